//! Horizontal bar chart. The longest bar fills the width of the chart.

use super::{Canvas, Form, Label, TEXT, WIDTH, palette, width_of};

/// One bar.
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Value that the length shows, 0 or more.
    pub(crate) value: f64,
    /// Text to the right of the bar.
    pub(crate) text: String,
    /// Index of the colour in [`palette::SERIES`].
    pub(crate) color: usize,
}

/// A bar chart.
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// Height of a bar including the space around it.
const ROW: f64 = 18.0;

impl Bars {
    /// Returns the chart as SVG.
    pub(crate) fn svg(&self, form: Form) -> String {
        let widest =
            |of: fn(&Bar) -> &str| self.bars.iter().map(|bar| width_of(of(bar), TEXT)).fold(0.0, f64::max);
        let left = widest(|bar| &bar.name).min(130.0) + 14.0;
        let longest = (WIDTH - left - widest(|bar| &bar.text) - 14.0).max(40.0);
        let most =
            self.bars.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
        let mut canvas = Canvas::default();
        let mut y = canvas.title(&self.title) + ROW / 2.0;
        for bar in &self.bars {
            let shown = most > 0.0 && bar.value.is_finite();
            let length = if shown { (bar.value / most).clamp(0.0, 1.0) * longest } else { 0.0 };
            canvas.text((left - 5.0, y), Label::new(TEXT, palette::INK, "end"), &bar.name);
            canvas.rectangle((left, y - 7.0), length.max(0.5), 14.0, palette::series(bar.color));
            canvas.text((left + length + 4.0, y), Label::new(TEXT, palette::INK, "start"), &bar.text);
            y += ROW;
        }
        canvas.finish(form, y - ROW / 2.0 + 4.0, &self.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_proportion() {
        let bar =
            |value: f64| Bar { name: "cpu".to_owned(), value, text: super::super::short(value), color: 0 };
        let bars = Bars { title: "Speed".into(), bars: vec![bar(1.0), bar(4.0), bar(f64::NAN)] };

        let svg = bars.svg(Form::Page);

        let width = |line: &str| -> f64 {
            let rest = &line[line.find(" width=\"").unwrap() + 8..];
            rest[..rest.find('"').unwrap()].parse().unwrap()
        };
        let widths: Vec<f64> = svg.lines().filter(|l| l.starts_with("<rect")).map(width).collect();
        assert_eq!(widths.len(), 3);
        assert!((widths[1] / widths[0] - 4.0).abs() < 0.001 && widths[2] == 0.5, "{widths:?}");
    }
}
