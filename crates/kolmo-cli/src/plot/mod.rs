//! Line charts with markers, and heat maps, as SVG with a dark mode, 360 units wide for phones.

mod axis;
mod heat_map;
mod lines;
pub(crate) mod palette;

pub(crate) use axis::Axis;
pub(crate) use heat_map::HeatMap;
pub(crate) use lines::{ChartLine, LineChart, Stroke};

use std::fmt::Write;

use kolmo::output::printable;

/// Width of a chart, in units.
const WIDTH: f64 = 360.0;

/// Font size of text, in units of the chart (see [`WIDTH`]).
const TEXT: f64 = 12.0;
/// Font size of labels at axes and in legends, in units.
const SMALL: f64 = 11.0;

/// Style of a text.
#[derive(Debug, Clone, Copy)]
struct Label {
    size: f64,
    color: &'static str,
    /// Part of the text at its position: `start`, `middle` or `end`.
    anchor: &'static str,
    bold: bool,
}

impl Label {
    const fn new(size: f64, color: &'static str, anchor: &'static str) -> Self {
        Self { size, color, anchor, bold: false }
    }
}

/// SVG elements of a picture. Coordinates are in units from its top left corner.
#[derive(Debug, Default)]
struct Canvas(String);

impl Canvas {
    /// Appends an element with its attributes. Numbers are written with two decimals.
    fn element(&mut self, tag: &str, numbers: &[(&str, f64)], rest: &str) {
        let _ = write!(self.0, "<{tag}");
        for (name, value) in numbers {
            let _ = write!(self.0, " {name}=\"{}\"", decimals(*value));
        }
        let _ = writeln!(self.0, " {rest}/>");
    }

    /// Appends a line of text, vertically centred at `y`.
    fn text(&mut self, (x, y): (f64, f64), label: Label, text: &str) {
        let Label { size, color, anchor, bold } = label;
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        // The baseline is half the height of a capital letter below the centre.
        let (x, base) = (decimals(x), decimals(y + 0.36 * size));
        let _ = writeln!(
            self.0,
            "<text x=\"{x}\" y=\"{base}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{color}\"{weight}>{}</text>",
            escape(text)
        );
    }

    fn circle(&mut self, (x, y): (f64, f64), radius: f64, color: &str) {
        self.element("circle", &[("cx", x), ("cy", y), ("r", radius)], &format!("fill=\"{color}\""));
    }

    /// Appends a rectangle with its top left corner at `(x, y)`, without gaps to its neighbours.
    fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
        let numbers = [("x", x), ("y", y), ("width", width), ("height", height)];
        self.element("rect", &numbers, &format!("fill=\"{color}\" shape-rendering=\"crispEdges\""));
    }

    /// Appends a line through points; `dash` is an SVG dash pattern, or empty.
    fn line(&mut self, points: &[(f64, f64)], color: &str, width: f64, dash: &str) {
        let points: Vec<String> =
            points.iter().map(|&(x, y)| format!("{},{}", decimals(x), decimals(y))).collect();
        let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let rest = format!("points=\"{}\" fill=\"none\" stroke=\"{color}\"{dash}", points.join(" "));
        self.element("polyline", &[("stroke-width", width)], &rest);
    }

    /// Begins a group of elements, which [`Canvas::close`] ends.
    fn open(&mut self, class: &str) {
        let _ = writeln!(self.0, "<g class=\"{class}\">");
    }

    fn close(&mut self) {
        self.0.push_str("</g>\n");
    }

    /// Appends the title in the top left corner; returns the y coordinate below it.
    fn title(&mut self, text: &str) -> f64 {
        let mut at = 10.0;
        for line in wrapped(text, TEXT + 1.0) {
            self.text(
                (6.0, at),
                Label { bold: true, ..Label::new(TEXT + 1.0, palette::INK, "start") },
                &line,
            );
            at += TEXT + 4.0;
        }
        at - 4.0
    }

    fn finish(self, height: f64, title: &str) -> String {
        let (body, height) = (self.0, height.ceil());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {WIDTH} {height}\" \
                 font-family=\"sans-serif\" role=\"img\">\n<title>{}</title>\n{}<rect width=\"100%\" height=\"100%\" \
                 fill=\"{}\"/>\n{body}</svg>\n",
            2.0 * WIDTH,
            2.0 * height,
            escape(title),
            palette::dark_style(),
            palette::PAPER,
        )
    }
}

/// Escapes text for XML and HTML; control characters are made visible.
pub(crate) fn escape(text: &str) -> String {
    printable(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a coordinate with at most two decimals.
fn decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Estimated width of a text in units; font metrics are not available.
fn width_of(text: &str, size: f64) -> f64 {
    0.56 * size * text.chars().count() as f64
}

/// Splits bold text into lines that fit the width.
fn wrapped(text: &str, size: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        // Bold letters are wider.
        if !line.is_empty() && 1.12 * width_of(&format!("{line} {word}"), size) > WIDTH - 12.0 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Formats a number with a few digits: 1500, 0.25, 3.1·10⁻⁷.
pub(crate) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let exponent = value.abs().log10().floor() as i32;
    if (-3..=4).contains(&exponent) {
        let digits = (2 - exponent).clamp(0, 5) as usize;
        let text = format!("{value:.digits$}");
        return match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => text,
        };
    }
    scientific(value)
}

/// Formats a number with a few digits and a power of ten.
fn scientific(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:.2e}");
    let (mantissa, exponent) = text.split_once('e').expect("an exponent is written");
    let superscript = |c: char| c.to_digit(10).map_or('⁻', |digit| SUPERSCRIPTS[digit as usize]);
    let power: String = exponent.chars().map(superscript).collect();
    match mantissa.trim_end_matches('0').trim_end_matches('.') {
        "1" => format!("10{power}"),
        mantissa => format!("{mantissa}·10{power}"),
    }
}

const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_axes() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.25, "0.25"),
            (12345.0, "12345"),
            (0.001, "0.001"),
            (1e6, "10⁶"),
            (3.14e-7, "3.14·10⁻⁷"),
            (9.9999e7, "10⁸"),
            (-2.5e-12, "-2.5·10⁻¹²"),
        ] {
            assert_eq!(short(value), text);
        }
    }
}
