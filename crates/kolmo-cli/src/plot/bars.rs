//! Groups of horizontal bars. The longest bar of each group is as long as the chart is wide.

use plotters::prelude::{Rectangle, Text};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Form, TEXT, WIDTH, bold, draw, fine, palette, text_style, title, width_of, wrapped};

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// The group: the compared thing; bars of one group follow each other.
    pub group: String,
    /// The bar's own name.
    pub name: String,
    /// The length, 0 or more.
    pub value: f64,
    /// The text behind the bar.
    pub text: String,
    /// The colour, a number in [`palette::SERIES`].
    pub color: usize,
}

/// Groups of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// Height of a bar and of a group's name.
const ROW: f64 = 17.0;

impl Bars {
    /// The chart as SVG.
    pub fn svg(&self, form: Form) -> String {
        let groups: Vec<&[Bar]> = self.bars.chunk_by(|a, b| a.group == b.group).collect();
        let names = self.bars.iter().map(|bar| width_of(&bar.name, TEXT)).fold(0.0, f64::max).min(130.0);
        let texts = self.bars.iter().map(|bar| width_of(&bar.text, TEXT)).fold(0.0, f64::max);
        let left = names + 14.0;
        let longest = (f64::from(WIDTH) - left - texts - 14.0).max(40.0);
        let heads: Vec<Vec<String>> = groups.iter().map(|g| wrapped(&g[0].group, TEXT)).collect();
        let rows = self.bars.len() + heads.iter().map(Vec::len).sum::<usize>();
        let lines_of_title = wrapped(&self.title, TEXT + 1.0).len() as f64;
        let height = 10.0 + lines_of_title * (TEXT + 5.0) + rows as f64 * ROW + groups.len() as f64 * 6.0;
        draw(form, height.ceil() as u32, |area| {
            let mut y = title(area, &self.title)?;
            for (group, head) in groups.iter().zip(heads) {
                let finite = group.iter().map(|bar| bar.value).filter(|value| value.is_finite());
                let most = finite.fold(0.0, f64::max);
                for line in head {
                    let style = text_style(TEXT, palette::MUTED, (HPos::Left, VPos::Center));
                    area.draw(&Text::new(line, (fine(6.0), fine(y + ROW / 2.0)), bold(style)))?;
                    y += ROW;
                }
                for bar in *group {
                    let shown = most > 0.0 && bar.value.is_finite();
                    let share = if shown { (bar.value / most).clamp(0.0, 1.0) } else { 0.0 };
                    let end = left + share * longest;
                    let name = text_style(TEXT, palette::INK, (HPos::Right, VPos::Center));
                    area.draw(&Text::new(bar.name.clone(), (fine(left - 5.0), fine(y + ROW / 2.0)), name))?;
                    let corners =
                        [(fine(left), fine(y + 2.0)), (fine(end.max(left + 0.5)), fine(y + ROW - 2.0))];
                    area.draw(&Rectangle::new(corners, palette::series(bar.color).filled()))?;
                    let text = text_style(TEXT, palette::INK, (HPos::Left, VPos::Center));
                    area.draw(&Text::new(bar.text.clone(), (fine(end + 4.0), fine(y + ROW / 2.0)), text))?;
                    y += ROW;
                }
                y += 6.0;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_proportion_within_a_group() {
        let bar = |group: &str, value: f64| Bar {
            group: group.to_owned(),
            name: "cpu".to_owned(),
            value,
            text: super::super::short(value),
            color: 0,
        };
        let bars = Bars { title: "Speed".into(), bars: vec![bar("a", 1.0), bar("a", 4.0), bar("b", 0.5)] };

        let svg = bars.svg(Form::Page);

        let width = |line: &str| -> f64 {
            let rest = &line[line.find(" width=\"").unwrap() + 8..];
            rest[..rest.find('"').unwrap()].parse().unwrap()
        };
        let widths: Vec<f64> = svg.lines().filter(|l| l.starts_with("<rect")).map(width).collect();
        assert_eq!(widths.len(), 3);
        assert!((widths[1] / widths[0] - 4.0).abs() < 0.05 && widths[1] == widths[2], "{widths:?}");
    }
}
