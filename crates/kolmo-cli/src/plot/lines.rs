//! Lines and markers over two axes.

use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement};
use plotters::prelude::Text;
use plotters::series::DashedLineSeries;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, FontTransform, RGBColor};

use super::axis::Axis;
use super::{FINE, Form, TEXT, draw, fine, legend_places, palette, swatch, text_style, title};

/// A way to join the points of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// By a line.
    Solid,
    /// By dashes, between hollow markers: what others published.
    Dashed,
    /// By a line without markers: a limit.
    Bare,
    /// Not at all.
    Points,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// The colour, a number in [`palette::SERIES`].
    pub color: usize,
    /// The way its points are joined.
    pub stroke: Stroke,
    /// The points, in the order they are joined in.
    pub points: Vec<(f64, f64)>,
}

/// Lines over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// The title.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Height of the part between the axes, in units.
const PLOT: f64 = 190.0;

/// Width of the labels to the left, height of those below.
const LABELS: (f64, f64) = (46.0, 36.0);

impl Lines {
    /// The chart as SVG.
    pub fn svg(&self, form: Form) -> String {
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let (places, legend) = legend_places(&names);
        let head = 6.0 + super::wrapped(&self.title, TEXT + 1.0).len() as f64 * (TEXT + 5.0);
        let height = head + legend + PLOT + LABELS.1 + 14.0;
        draw(form, height.ceil() as u32, |area| {
            let top = title(area, &self.title)?;
            for (line, (x, y)) in self.lines.iter().zip(&places) {
                let hollow = line.stroke == Stroke::Dashed;
                swatch(area, (*x, top + y), palette::series(line.color), hollow, &line.name)?;
            }
            let label = text_style(TEXT - 1.0, palette::MUTED, (HPos::Left, VPos::Top));
            area.draw(&Text::new(self.y.label.clone(), (fine(6.0), fine(top + legend)), label))?;
            let (_, below) = area.split_vertically(fine(top + legend + 12.0));
            let placed: Vec<Vec<(f64, f64)>> = self.lines.iter().map(|line| self.placed(line)).collect();
            let all = || placed.iter().flatten();
            let (x_range, y_range) = (self.x.range(all().map(|p| p.0)), self.y.range(all().map(|p| p.1)));
            let (x_ticks, y_ticks) = (x_range.ticks.len(), y_range.ticks.len());
            let mut chart = ChartBuilder::on(&below)
                .margin_right(fine(14.0))
                .margin_top(fine(4.0))
                .x_label_area_size(fine(LABELS.1))
                .y_label_area_size(fine(LABELS.0))
                .build_cartesian_2d(x_range, y_range)?;
            let small = |anchor| text_style(TEXT - 1.0, palette::INK, anchor);
            chart
                .configure_mesh()
                .x_labels(x_ticks)
                .y_labels(y_ticks)
                .max_light_lines(0)
                .bold_line_style(palette::GRID.stroke_width(FINE / 2))
                .axis_style(palette::MUTED.stroke_width(FINE / 2))
                .x_label_style(small((HPos::Center, VPos::Top)))
                .y_label_style(small((HPos::Right, VPos::Center)))
                .axis_desc_style(
                    text_style(TEXT - 1.0, palette::MUTED, (HPos::Center, VPos::Top))
                        .transform(FontTransform::None),
                )
                .x_label_formatter(&|place| self.x.tick(*place))
                .y_label_formatter(&|place| self.y.tick(*place))
                .x_desc(self.x.label.clone())
                .draw()?;
            for (line, points) in self.lines.iter().zip(placed) {
                let color = palette::series(line.color);
                let style = color.stroke_width(FINE * 3 / 2);
                match line.stroke {
                    Stroke::Solid | Stroke::Bare => {
                        chart.draw_series([PathElement::new(points.clone(), style)])?;
                    }
                    Stroke::Dashed => {
                        chart.draw_series(DashedLineSeries::new(
                            points.clone(),
                            FINE * 5,
                            FINE * 4,
                            style,
                        ))?;
                    }
                    Stroke::Points => {}
                }
                if line.stroke != Stroke::Bare {
                    chart.draw_series(points.into_iter().map(|p| marker(p, color, line.stroke)))?;
                }
            }
            Ok(())
        })
    }

    fn placed(&self, line: &Line) -> Vec<(f64, f64)> {
        line.points.iter().filter_map(|&(x, y)| Some((self.x.place(x)?, self.y.place(y)?))).collect()
    }
}

fn marker(at: (f64, f64), color: RGBColor, stroke: Stroke) -> Circle<(f64, f64), u32> {
    let radius = if stroke == Stroke::Points { FINE * 4 } else { FINE * 5 / 2 };
    let style = if stroke == Stroke::Dashed { color.stroke_width(FINE) } else { color.filled() };
    Circle::new(at, radius, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Lines {
        Lines {
            title: "Errors < 1 & more".to_owned(),
            x: Axis::log("chains"),
            y: Axis::log("error"),
            lines: vec![
                Line {
                    name: "a".into(),
                    color: 0,
                    stroke: Stroke::Solid,
                    points: vec![(1.0, 1.0), (10.0, 0.1), (100.0, 0.01)],
                },
                Line {
                    name: "b".into(),
                    color: 1,
                    stroke: Stroke::Dashed,
                    points: vec![(1.0, 0.5), (100.0, 0.0)],
                },
                Line {
                    name: "c".into(),
                    color: 2,
                    stroke: Stroke::Bare,
                    points: vec![(1.0, 1.0), (100.0, 1.0)],
                },
            ],
        }
    }

    /// Centres of the circles of a colour.
    fn circles(svg: &str, attribute: &str) -> Vec<(f64, f64)> {
        let number = |line: &str, name: &str| -> f64 {
            let rest = &line[line.find(&format!(" {name}=\"")).unwrap() + name.len() + 3..];
            rest[..rest.find('"').unwrap()].parse().unwrap()
        };
        let of = |line: &&str| line.starts_with("<circle") && line.contains(attribute);
        svg.lines().filter(of).map(|line| (number(line, "cx"), number(line, "cy"))).collect()
    }

    #[test]
    fn markers_lie_where_the_axes_say() {
        let svg = chart().svg(Form::File);

        let own = circles(&svg, "fill=\"#0072B2\"");
        assert_eq!(own.len(), 3);
        // Equal ratios are equal distances; half a unit is lost in rounding.
        assert!((own[1].0 - own[0].0 - (own[2].0 - own[1].0)).abs() <= 1.0, "{own:?}");
        assert!((own[1].1 - own[0].1 - (own[2].1 - own[1].1)).abs() <= 1.0, "{own:?}");
        assert!(own[2].0 > own[0].0 && own[2].1 > own[0].1);
        // What a logarithm cannot show has no marker; a limit has none at all.
        assert_eq!(circles(&svg, "stroke=\"#D55E00\"").len(), 1);
        assert_eq!(circles(&svg, "#009E73").len(), 0);
    }

    #[test]
    fn a_file_stands_alone_and_a_page_has_variables() {
        let (file, page) = (chart().svg(Form::File), chart().svg(Form::Page));

        assert!(
            file.starts_with("<svg width=\"720\"") && file.contains("xmlns=") && file.contains("#FFFFFF")
        );
        assert!(file.contains("Errors &lt; 1 &amp; more"));
        assert!(!page.contains("http") && !page.contains("fill=\"#") && page.contains("var(--c0)"));
    }
}
