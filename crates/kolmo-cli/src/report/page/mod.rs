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

use crate::plot::{escape, palette};

/// Environment of the measurements.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The command line.
    pub command: String,
    /// Pairs (name, value): version, features, date, processor, memory, devices with their drivers.
    pub facts: Vec<(String, String)>,
}

/// A line of a report with the name of its device in charts and tables.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Device, such as `cuda:0`, followed by the file name for lines of another run.
    pub device: String,
    /// The line as JSON.
    pub line: Value,
}

impl Measured {
    /// Returns the value at a key `a` or `a.b`.
    pub fn get(&self, key: &str) -> &Value {
        key.split('.').fold(&self.line, |value, key| &value[key])
    }

    /// Returns the number at a key.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.get(key).as_f64()
    }

    /// Returns the text at a key, or an empty text.
    pub fn text(&self, key: &str) -> &str {
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
#[derive(Debug)]
pub struct Page<'a> {
    /// The measurements.
    pub measured: &'a [Measured],
    /// Environment of the measurements.
    pub environment: &'a Environment,
    /// Notes on measurements that were left out for lack of memory.
    pub notes: &'a [String],
}

const STYLE: &str = include_str!("style.css");

impl Page<'_> {
    /// Returns the page as HTML.
    pub fn html(&self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n<title>kolmo: comparison</title>\n\
             <style>\n{}{STYLE}</style>\n</head>\n<body>\n\
             <header><h1>kolmo: comparison</h1>\n<p><code>{}</code></p>\n",
            palette::variables(),
            escape(&self.environment.command)
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
        for (what, value) in &self.environment.facts {
            let _ =
                writeln!(out, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(what), escape(value));
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

/// An HTML table under construction.
struct Table<'a> {
    out: &'a mut String,
}

impl<'a> Table<'a> {
    fn new(out: &'a mut String, head: &[&str]) -> Self {
        out.push_str("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>");
        for h in head {
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

    /// Appends a cell with a number of a line, or a dash if the line has none.
    fn number(&mut self, index: usize, measured: &Measured, key: &str, show: impl Fn(f64) -> String) {
        match measured.number(key) {
            Some(value) => {
                let _ = write!(
                    self.out,
                    "<td class=\"n\" data-line=\"{index}\" data-key=\"{key}\" data-value=\"{value:?}\">{}</td>",
                    escape(&show(value))
                );
            }
            None => self.plain("–"),
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

/// Groups the measurements by case, in the order of their first lines.
fn by_case<'a>(lines: &[(usize, &'a Measured)]) -> Vec<(&'a str, Vec<(usize, &'a Measured)>)> {
    let mut cases: Vec<(&str, Vec<(usize, &Measured)>)> = Vec::new();
    for (index, m) in lines {
        match cases.iter_mut().find(|(case, _)| *case == m.text("case")) {
            Some((_, own)) => own.push((*index, m)),
            None => cases.push((m.text("case"), vec![(*index, m)])),
        }
    }
    cases
}

fn time(value: f64) -> String {
    super::seconds(value)
}
