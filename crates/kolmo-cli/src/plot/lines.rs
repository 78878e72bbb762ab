//! Line chart with markers and two axes.

use std::ops::Range;

use super::axis::Axis;
use super::{Canvas, Label, SMALL, TEXT, WIDTH, palette, width_of};

/// Style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stroke {
    /// A line with markers.
    Solid,
    /// A line without markers.
    Bare,
    /// A dotted line without markers: a reference value.
    Dotted,
    /// Markers without a line.
    Points,
}

#[derive(Clone)]
pub(crate) struct ChartLine {
    /// Name in the legend.
    name: String,
    /// Index of the colour in [`palette::SERIES`].
    color: usize,
    stroke: Stroke,
    /// Points, in the order in which they are joined.
    points: Vec<(f64, f64)>,
}

impl ChartLine {
    pub(crate) fn new(
        name: impl Into<String>,
        color: usize,
        stroke: Stroke,
        points: Vec<(f64, f64)>,
    ) -> Self {
        Self { name: name.into(), color, stroke, points }
    }
}

pub(crate) struct LineChart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<ChartLine>,
}

/// Height of the plotting area, in units.
pub(super) const PLOT: f64 = 190.0;

/// Width of the labels to the left of the plotting area, and height of the labels below.
pub(super) const LABELS: (f64, f64) = (52.0, 34.0);

impl LineChart {
    pub(crate) fn svg(&self) -> String {
        let mut canvas = Canvas::default();
        let head = canvas.title(&self.title);
        let names: Vec<&str> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let (places, legend) = legend_places(&names);
        canvas.open("legend");
        for (line, (x, y)) in self.lines.iter().zip(places) {
            let y = head + y;
            line.draw(&mut canvas, &[(x, y), (x + 9.0, y), (x + 18.0, y)], 1..2, 0);
            canvas.text((x + 22.0, y), Label::new(SMALL, palette::INK, "start"), &line.name);
        }
        canvas.close();
        let top = head + legend + 16.0;
        canvas.text((6.0, top - 12.0), Label::new(SMALL, palette::MUTED, "start"), &self.y.label);
        let placed: Vec<Vec<(f64, f64)>> = self.lines.iter().map(|line| self.placed(line)).collect();
        let all = || placed.iter().flatten();
        let (x, y) = (self.x.range(all().map(|p| p.0)), self.y.range(all().map(|p| p.1)));
        let (left, right, bottom) = (LABELS.0, WIDTH - 14.0, top + PLOT);
        let label = |anchor| Label::new(SMALL, palette::INK, anchor);
        canvas.open("grid");
        for (tick, text) in x.ticks.iter().zip(self.x.labels(&x.ticks)) {
            let at = x.at(*tick, left, right);
            canvas.line(&[(at, top), (at, bottom + 3.0)], palette::GRID, 0.5, "");
            canvas.text((at, bottom + 10.0), label("middle"), &text);
        }
        for (tick, text) in y.ticks.iter().zip(self.y.labels(&y.ticks)) {
            let at = y.at(*tick, bottom, top);
            canvas.line(&[(left - 3.0, at), (right, at)], palette::GRID, 0.5, "");
            canvas.text((left - 5.0, at), label("end"), &text);
        }
        canvas.close();
        canvas.line(&[(left, top), (left, bottom), (right, bottom)], palette::MUTED, 0.5, "");
        let below = Label::new(SMALL, palette::MUTED, "middle");
        canvas.text(((left + right) / 2.0, bottom + 26.0), below, &self.x.label);
        let drawn: Vec<Vec<(f64, f64)>> = placed
            .iter()
            .map(|line| line.iter().map(|p| (x.at(p.0, left, right), y.at(p.1, bottom, top))).collect())
            .collect();
        for (k, line) in self.lines.iter().enumerate() {
            let hidden = drawn[..k].iter().filter(|other| coincide(other, &drawn[k])).count();
            line.draw(&mut canvas, &drawn[k], 0..drawn[k].len(), hidden);
        }
        canvas.finish(bottom + LABELS.1, &self.title)
    }

    fn placed(&self, line: &ChartLine) -> Vec<(f64, f64)> {
        line.points.iter().filter_map(|&(x, y)| Some((self.x.place(x)?, self.y.place(y)?))).collect()
    }
}

impl ChartLine {
    /// Draws the line through points of the picture, and the markers of the points in `marked`.
    ///
    /// `hidden` is the number of lines below it that coincide; the line is then dashed to show
    /// them.
    fn draw(&self, canvas: &mut Canvas, points: &[(f64, f64)], marked: Range<usize>, hidden: usize) {
        let color = palette::series(self.color);
        let dash = match self.stroke {
            Stroke::Dotted => "1.5 3".to_owned(),
            _ if hidden > 0 => format!("6 {}", 6 * hidden),
            _ => String::new(),
        };
        if self.stroke != Stroke::Points && points.len() > 1 {
            canvas.line(points, color, 1.5, &dash);
        }
        if !matches!(self.stroke, Stroke::Bare | Stroke::Dotted) {
            let radius = if self.stroke == Stroke::Points { 4.0 } else { 2.5 };
            points[marked].iter().for_each(|&at| canvas.circle(at, radius, color));
        }
    }
}

/// True if two lines coincide in the picture.
fn coincide(a: &[(f64, f64)], b: &[(f64, f64)]) -> bool {
    a.len() > 1
        && a.len() == b.len()
        && a.iter().zip(b).all(|(p, q)| (p.0 - q.0).abs().max((p.1 - q.1).abs()) < 0.75)
}

/// Returns the positions of a legend's names, from its top left corner, and its height.
fn legend_places(names: &[&str]) -> (Vec<(f64, f64)>, f64) {
    let (mut x, mut y, mut places) = (6.0, TEXT / 2.0, Vec::new());
    for name in names {
        let wide = 22.0 + width_of(name, SMALL) + 8.0;
        if x > 6.0 && x + wide > WIDTH {
            (x, y) = (6.0, y + TEXT + 4.0);
        }
        places.push((x, y));
        x += wide;
    }
    let height = if names.is_empty() { 0.0 } else { y + TEXT / 2.0 + 4.0 };
    (places, height)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> LineChart {
        let lines = vec![
            ChartLine::new("a", 0, Stroke::Solid, vec![(1.0, 1.0), (10.0, 0.1), (100.0, 0.01)]),
            ChartLine::new("b", 1, Stroke::Solid, vec![(1.0, 0.5), (100.0, 0.0)]),
            ChartLine::new("c", 2, Stroke::Bare, vec![(1.0, 1.0), (100.0, 1.0)]),
        ];
        LineChart { title: "Errors < 1 & more".into(), x: Axis::log("chains"), y: Axis::log("error"), lines }
    }

    #[test]
    fn a_chart_is_a_complete_svg_file() {
        let file = chart().svg();

        let dark = "@media (prefers-color-scheme:dark){[fill=\"#FFFFFF\"]{fill:#0D1117}";
        let title = "<title>Errors &lt; 1 &amp; more</title>";
        for part in ["width=\"720\"", "xmlns=", "fill=\"#FFFFFF\"", title, dark] {
            assert!(file.contains(part), "{part}");
        }
    }

    #[test]
    fn a_line_over_another_is_dashed() {
        let mut chart = chart();
        chart.lines[1] = ChartLine { color: 1, ..chart.lines[0].clone() };

        let svg = chart.svg();

        let dashed = |color: &str| {
            let parts = ["<polyline", "dasharray", color];
            svg.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
        };
        assert_eq!((dashed("#0072B2"), dashed("#D55E00")), (0, 1));
    }

    #[test]
    fn a_legend_wraps_before_the_edge() {
        let names = ["a name of thirty characters or", "another that is as long as it", "short"];

        let (places, height) = legend_places(&names);

        assert_eq!(places[0], (6.0, TEXT / 2.0));
        assert!(places[1].0 == 6.0 && places[1].1 > places[0].1 && height > places[2].1);
    }
}
