//! HTML page of `kolmo bench compare`: charts, tables and the environment.
//!
//! The page has no script and loads nothing. Every number in a table is in a cell that names its
//! line and key (`data-line`, `data-key`, `data-value`). The lines themselves are in the page as
//! JSON (`#lines`), so that the numbers can be checked against them. The page is well-formed XML
//! too.

mod conclusion;
mod engines;
mod papers;
mod parts;

use std::fmt::Write;

use serde_json::Value;

use super::grouped;
use crate::plot::{Axis, Form, Line, Lines, escape, palette};

/// A line of a report with the name of its device in charts and tables.
#[derive(Clone)]
pub(crate) struct Measured {
    /// Device, such as `cuda:0`, followed by the file name for lines of another run.
    pub(crate) device: String,
    pub(crate) line: Value,
}

/// A line and its index in the report.
type Indexed<'a> = (usize, &'a Measured);

impl Measured {
    /// Returns the value at a key `a` or `a.b`.
    pub(crate) fn get(&self, key: &str) -> &Value {
        key.split('.').fold(&self.line, |value, key| &value[key])
    }

    /// Returns the number at a key.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.get(key).as_f64()
    }

    /// Returns the text at a key, or an empty text.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).as_str().unwrap_or("")
    }

    /// True if the line belongs to this part of the comparison.
    fn part(&self, name: &str) -> bool {
        self.text("part") == name
    }

    fn figure(&self, name: &str) -> bool {
        self.text("figure") == name
    }

    /// Median time in seconds; NaN if the line has none.
    fn seconds(&self) -> f64 {
        self.number("seconds.median").unwrap_or(f64::NAN)
    }
}

/// Content of the page.
pub(crate) struct Page<'a> {
    pub(crate) measured: &'a [Measured],
    /// The command line of the measurements.
    pub(crate) command: &'a str,
    /// Pairs (name, value): version, features, date, processor, memory, devices with their drivers.
    pub(crate) facts: &'a [(String, String)],
    /// Notes on measurements that were left out for lack of memory.
    pub(crate) notes: &'a [String],
}

const STYLE: &str = include_str!("style.css");

impl Page<'_> {
    /// Returns the page as HTML.
    pub(crate) fn html(&self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n<title>kolmo: comparison</title>\n\
             <style>\n{}{STYLE}</style>\n</head>\n<body>\n\
             <header><h1>kolmo: comparison</h1>\n<p><code>{}</code></p>\n",
            palette::variables(),
            escape(self.command)
        );
        out.push_str(
            "<p>The same jobs of the three engines, one device after the other. Speeds are relative to the device that was \
             named first; a bar\u{2019}s length is its speed within its chart.</p></header>\n",
        );
        conclusion::section(self.measured, &mut out);
        engines::sections(self.measured, &mut out);
        papers::sections(self.measured, &mut out);
        self.environment(&mut out);
        out.push_str("<script type=\"application/json\" id=\"lines\">\n");
        for (i, m) in self.measured.iter().enumerate() {
            let separator = if i == 0 { '[' } else { ',' };
            // A closing tag in a name would end the script element, and XML needs `&` escaped.
            let json = m.line.to_string().replace('<', "\\u003c").replace('&', "\\u0026");
            let _ = writeln!(out, "{separator}{json}");
        }
        if self.measured.is_empty() {
            out.push('[');
        }
        out.push_str("]\n</script>\n</body>\n</html>\n");
        out
    }

    fn environment(&self, out: &mut String) {
        out.push_str("<section id=\"environment\"><h2>Environment</h2>\n<div class=\"wide\"><table>\n");
        for (what, value) in self.facts {
            let [what, value] = [what, value].map(|text| escape(text));
            let _ = writeln!(out, "<tr><th scope=\"row\">{what}</th><td>{value}</td></tr>");
        }
        out.push_str("</table></div>\n");
        for note in self.notes {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
        }
        out.push_str("</section>\n");
    }
}

/// Opens a section with a heading and an introduction.
fn section(out: &mut String, id: &str, heading: &str, text: &str) {
    let _ = writeln!(out, "<section id=\"{id}\"><h2>{}</h2>\n<p>{text}</p>", escape(heading));
}

/// Appends a chart with a caption. `kind` is its `data-chart` attribute, for tests.
fn figure(out: &mut String, kind: &str, svg: &str, caption: &str) {
    let label = escape(caption);
    let svg = svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1);
    let _ = writeln!(out, "<figure data-chart=\"{kind}\">\n{svg}<figcaption>{label}</figcaption>\n</figure>");
}

/// Appends a line chart with a caption.
fn chart(
    out: &mut String,
    kind: &str,
    title: impl Into<String>,
    axes: [Axis; 2],
    lines: Vec<Line>,
    caption: &str,
) {
    let [x, y] = axes;
    figure(out, kind, &Lines::new(title, x, y, lines).svg(Form::Page), caption);
}

/// An HTML table under construction.
struct Table<'a> {
    out: &'a mut String,
}

/// Key of a number in a line, and its text.
type Number<'a> = (&'a str, &'a dyn Fn(f64) -> String);

impl<'a> Table<'a> {
    /// Begins a table; `head` has its headings, separated by `|`.
    fn new(out: &'a mut String, head: &str) -> Self {
        out.push_str("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>");
        for h in head.split('|') {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(h));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        Self { out }
    }

    fn row(&mut self, class: &str) {
        let _ = write!(self.out, "<tr class=\"{class}\">");
    }

    fn text(&mut self, text: &str) {
        let _ = write!(self.out, "<td>{}</td>", escape(text));
    }

    /// Appends a cell with text that may be wrapped.
    fn case(&mut self, text: &str) {
        let _ = write!(self.out, "<td class=\"case\">{}</td>", escape(text));
    }

    /// Appends a cell with a published or derived number.
    fn plain(&mut self, text: &str) {
        let _ = write!(self.out, "<td class=\"n\">{}</td>", escape(text));
    }

    /// Appends cells with numbers of a line; a dash stands for a number that it lacks.
    fn numbers(&mut self, (index, measured): Indexed<'_>, numbers: &[Number<'_>]) {
        for (key, show) in numbers {
            let Some(value) = measured.number(key) else {
                self.plain("–");
                continue;
            };
            let _ = write!(
                self.out,
                "<td class=\"n\" data-line=\"{index}\" data-key=\"{key}\" data-value=\"{value:?}\">{}</td>",
                escape(&show(value))
            );
        }
    }

    fn end_row(&mut self) {
        self.out.push_str("</tr>\n");
    }

    fn end(self) {
        self.out.push_str("</tbody></table></div>\n");
    }
}

/// Returns the devices in the order of their first lines.
fn devices(measured: &[Measured]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for m in measured {
        if !all.contains(&m.device.as_str()) {
            all.push(&m.device);
        }
    }
    all
}

/// Formats a relative error or residual; 0 is exact.
fn error(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

/// Formats a count in a line.
fn count(value: f64) -> String {
    grouped(value as u64)
}

/// Groups the measurements by case, in the order of their first lines.
fn by_case<'a>(lines: &[Indexed<'a>]) -> Vec<(&'a str, Vec<Indexed<'a>>)> {
    let mut cases: Vec<(&str, Vec<Indexed<'_>>)> = Vec::new();
    for &line in lines {
        let name = line.1.text("case");
        match cases.iter_mut().find(|(case, _)| *case == name) {
            Some((_, own)) => own.push(line),
            None => cases.push((name, vec![line])),
        }
    }
    cases
}
