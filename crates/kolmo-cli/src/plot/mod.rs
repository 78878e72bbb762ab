//! Charts as SVG: lines with markers, and groups of horizontal bars.
//!
//! Both are drawn 360 units wide, so that they can be read on a telephone, with whole coordinates of half a unit.
//! [`Form::File`] is a picture of its own on white; [`Form::Page`] has no background, and its colours are variables
//! of the page around it ([`palette`]).

mod axis;
mod bars;
mod lines;
pub mod palette;

pub use axis::Axis;
pub use bars::{Bar, Bars};
pub use lines::{Line, Lines, Stroke};

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::prelude::{IntoDrawingArea, IntoFont, Rectangle, Text, TextStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, RGBColor};

/// The place that a chart is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A file of its own.
    File,
    /// A part of an HTML page that defines the variables of [`palette`].
    Page,
}

/// Width of a chart.
pub const WIDTH: u32 = 360;

/// Coordinates are whole, and this many make a unit.
const FINE: u32 = 2;

/// Size of text, in units.
const TEXT: f64 = 11.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Failed = DrawingAreaErrorKind<std::io::Error>;

/// Draws on an area of `WIDTH` × `height` units.
fn draw(form: Form, height: u32, with: impl FnOnce(&Area<'_>) -> Result<(), Failed>) -> String {
    let mut svg = String::new();
    let size = (WIDTH * FINE, height * FINE);
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = (|| {
            if form == Form::File {
                area.fill(&palette::PAPER)?;
            }
            with(&area)?;
            area.present()
        })();
        // A string takes whatever is written to it.
        drawn.expect("SVG should be drawn into memory");
    }
    let (wide, high) = size;
    let head = format!("width=\"{wide}\" height=\"{high}\" viewBox");
    match form {
        Form::File => {
            svg.replacen(&head, &format!("width=\"{}\" height=\"{}\" viewBox", 2 * WIDTH, 2 * height), 1)
        }
        Form::Page => {
            let svg =
                svg.replacen(&head, "viewBox", 1).replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
            palette::variables(&svg)
        }
    }
}

fn text_style<'a>(size: f64, color: RGBColor, anchor: (HPos, VPos)) -> TextStyle<'a> {
    // The backend writes a size as that over 1.24.
    let font = ("sans-serif", size * 1.24 * f64::from(FINE)).into_font();
    TextStyle { font, color: color.to_backend_color(), pos: Pos::new(anchor.0, anchor.1) }
}

fn bold<'a>(style: TextStyle<'a>) -> TextStyle<'a> {
    let TextStyle { font, color, pos } = style;
    TextStyle { font: font.style(FontStyle::Bold), color, pos }
}

/// Units that a text is wide, roughly: there is no font to ask.
fn width_of(text: &str, size: f64) -> f64 {
    0.56 * size * text.chars().count() as f64
}

fn fine(units: f64) -> i32 {
    (units * f64::from(FINE)).round() as i32
}

/// Lines of bold text that fit the width.
fn wrapped(text: &str, size: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always a line");
        // Bold letters are wider.
        if !line.is_empty() && 1.12 * width_of(&format!("{line} {word}"), size) > f64::from(WIDTH) - 12.0 {
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

/// The title in the top left corner; the units below it.
fn title(area: &Area<'_>, text: &str) -> Result<f64, Failed> {
    let mut at = 4.0;
    for line in wrapped(text, TEXT + 1.0) {
        let style = bold(text_style(TEXT + 1.0, palette::INK, (HPos::Left, VPos::Top)));
        area.draw(&Text::new(line, (fine(6.0), fine(at)), style))?;
        at += TEXT + 5.0;
    }
    Ok(at + 2.0)
}

/// Where swatches of a legend stand, in units from its top left corner, and its height.
fn legend_places(names: &[&str]) -> (Vec<(f64, f64)>, f64) {
    let (mut x, mut y, mut places) = (6.0, 0.0, Vec::new());
    for name in names {
        let wide = 16.0 + width_of(name, TEXT - 1.0) + 8.0;
        if x > 6.0 && x + wide > f64::from(WIDTH) {
            (x, y) = (6.0, y + TEXT + 4.0);
        }
        places.push((x, y));
        x += wide;
    }
    let height = if names.is_empty() { 0.0 } else { y + TEXT + 6.0 };
    (places, height)
}

fn swatch(
    area: &Area<'_>,
    (x, y): (f64, f64),
    color: RGBColor,
    hollow: bool,
    name: &str,
) -> Result<(), Failed> {
    let corners = [(fine(x), fine(y + 2.0)), (fine(x + 10.0), fine(y + 10.0))];
    let style = if hollow { color.stroke_width(FINE) } else { color.filled() };
    area.draw(&Rectangle::new(corners, style))?;
    let style = text_style(TEXT - 1.0, palette::INK, (HPos::Left, VPos::Top));
    area.draw(&Text::new(name.to_owned(), (fine(x + 14.0), fine(y + 0.5)), style))
}

/// A number of a few digits: 1 500, 0.25, 3.1·10⁻⁷.
pub fn short(value: f64) -> String {
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
    let mantissa = format!("{:.2}", value / 10f64.powi(exponent));
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.').to_owned();
    // 9.999 becomes 10.
    let (mantissa, exponent) = match mantissa.as_str() {
        "10" => ("1".to_owned(), exponent + 1),
        _ => (mantissa, exponent),
    };
    match mantissa.as_str() {
        "1" => format!("10{}", superscript(exponent)),
        _ => format!("{mantissa}·10{}", superscript(exponent)),
    }
}

fn superscript(exponent: i32) -> String {
    let digit = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        d => char::from_u32(0x2070 + d as u32 - '0' as u32).unwrap_or(d),
    };
    exponent.to_string().chars().map(digit).collect()
}

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

    #[test]
    fn a_legend_wraps_before_the_edge() {
        let names = ["a name of thirty characters or", "another that is as long as it", "short"];

        let (places, height) = legend_places(&names);

        assert_eq!(places[0], (6.0, 0.0));
        assert!(places[1].0 == 6.0 && places[1].1 > 0.0 && height > places[2].1);
    }
}
