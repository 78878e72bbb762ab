//! HTML page of `kolmo bench compare`: tables with bars, published numbers and the environment.
//!
//! The page has no script and loads nothing. Every number in a table is in a cell that names its
//! line and key (`data-line`, `data-key`, `data-value`). The lines themselves are in the page as
//! JSON (`#lines`), so that the numbers can be checked against them. The page is well-formed XML
//! too.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::{grouped, seconds, times};
use crate::plot::{escape, short};
use kolmo::tridiagonal::lane_count::published::{STAGES, best_lanes};
use kolmo_bench::compare::papers::{STREAMS, TABLE_II};
use kolmo_bench::seed_table::{SIZES, published};

/// A line of a report (one measurement) with the name of its device in tables.
pub(crate) struct Measured {
    /// Device, such as `cuda:0`, followed by the file name for lines of another run.
    pub(crate) device: String,
    pub(crate) line: Value,
}

impl Measured {
    /// Returns the value at a key `a` or `a.b`.
    pub(crate) fn get(&self, key: &str) -> &Value {
        key.split('.').fold(&self.line, |value, key| &value[key])
    }

    /// Returns the text at a key, or an empty text.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).as_str().unwrap_or("")
    }

    /// Returns the number at a key of [`NUMBERS`] as text, or an empty text.
    pub(crate) fn shown(&self, key: &str) -> String {
        let show = NUMBERS.iter().find(|number| number.0 == key).map(|number| number.2);
        self.get(key).as_f64().zip(show).map_or(String::new(), |(value, show)| show(value))
    }

    /// Median time in seconds; NaN if the line has none.
    fn seconds(&self) -> f64 {
        self.get("seconds.median").as_f64().unwrap_or(f64::NAN)
    }

    /// True if the line belongs to a part of the comparison or to a figure of a paper.
    fn part(&self, name: &str) -> bool {
        self.text("part") == name || self.text("figure").starts_with(name)
    }

    fn same_case(&self, other: &Self) -> bool {
        ["case", "method", "chains"].iter().all(|key| self.get(key) == other.get(key))
    }
}

fn millions(value: f64) -> String {
    short(1e-6 * value)
}

fn count(value: f64) -> String {
    grouped(value as u64)
}

fn milliseconds(value: f64) -> String {
    format!("{value:.4}")
}

/// Column of a table: key in the report, heading, and format of a value.
type Number = (&'static str, &'static str, fn(f64) -> String);

const NUMBERS: [Number; 20] = [
    ("n", "n", count),
    ("nnz", "nnz", count),
    ("chains", "chains", count),
    ("lanes", "lanes", count),
    ("seconds.median", "median", seconds),
    ("seconds.min", "least", seconds),
    ("speed", "speed", times),
    ("relative_error", "error", |v| if v == 0.0 { "0".to_owned() } else { format!("{v:.1e}") }),
    ("steps_per_s", "Msteps/s", millions),
    ("rows_per_s", "Mrows/s", millions),
    ("gb_per_s", "GB/s", short),
    ("copy_gb_per_s", "copy GB/s", short),
    ("stages_ms.comp_1", "T1 comp ms", milliseconds),
    ("stages_ms.d2h_1", "T1 D2H ms", milliseconds),
    ("stages_ms.h2d_3", "T3 H2D ms", milliseconds),
    ("stages_ms.comp_3", "T3 comp ms", milliseconds),
    ("sum_ms", "sum ms", milliseconds),
    ("overhead_ms", "overhead ms", milliseconds),
    ("gomez_luna", "√(sum/τ)", |v| format!("{v:.1}")),
    ("lanes_best", "best lanes", count),
];

pub(crate) struct Page<'a> {
    pub(crate) measured: &'a [Measured],
    /// The command line of the measurements.
    pub(crate) command: &'a str,
    /// Pairs (name, value): version, features, date, processor, memory, devices with their drivers.
    pub(crate) facts: &'a [(String, String)],
    /// Notes on measurements that were left out for lack of memory.
    pub(crate) notes: &'a [String],
}

impl Page<'_> {
    /// Returns the page as HTML.
    ///
    /// Blocks of the template are separated by empty lines. A comment in a block is replaced by its
    /// content; a block without content is left out.
    pub(crate) fn html(&self) -> String {
        let mut out = String::new();
        for block in include_str!("page.html").split("\n\n") {
            let Some((before, (mark, after))) =
                block.split_once("<!--").and_then(|(before, rest)| Some((before, rest.split_once("-->")?)))
            else {
                out.extend([block, "\n\n"]);
                continue;
            };
            let content = match mark {
                "command" => escape(self.command),
                "conclusion" => conclusion(self.measured),
                "environment" => self.environment(),
                "lines" => self.lines(),
                part => table(self.measured, part),
            };
            if !content.is_empty() {
                out.extend([before, &content, after, "\n\n"]);
            }
        }
        out
    }

    fn lines(&self) -> String {
        let lines: Vec<&Value> = self.measured.iter().map(|m| &m.line).collect();
        // A closing tag in a name would end the script element, and XML needs `&` escaped.
        let json = json!(lines).to_string().replace('<', "\\u003c").replace('&', "\\u0026");
        json + "\n"
    }

    fn environment(&self) -> String {
        let mut out = "<div class=\"wide\"><table>\n".to_owned();
        for (what, value) in self.facts {
            let [what, value] = [what, value].map(|text| escape(text));
            let _ = writeln!(out, "<tr><th scope=\"row\">{what}</th><td>{value}</td></tr>");
        }
        out += "</table></div>\n";
        for note in self.notes {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(note));
        }
        out
    }
}

/// Published numbers of Table II of 2012 and of the stages of 2024, as lines.
fn published_lines() -> Vec<Measured> {
    let mut lines = Vec::new();
    for (k, row) in SIZES.iter().filter_map(|&k| Some((k, published(k)?))) {
        let case = format!("wlan:{k},6 t=10, Algorithm 1");
        let all = [("CPU", Some(row.cpu)), ("GPU", row.gpu), ("two GPUs", Some(row.two_gpus))];
        for (device, seconds) in all.into_iter().filter_map(|(device, seconds)| Some((device, seconds?))) {
            let line = json!({
                "figure": TABLE_II, "case": case, "n": 1e6 * row.n, "nnz": 1e6 * row.nnz,
                "seconds": {"median": seconds},
            });
            lines.push(Measured { device: format!("2012: {device}"), line });
        }
    }
    for stages in STAGES {
        let best = best_lanes().find(|best| best.n == stages.n).map(|best| best.measured);
        let line = json!({
            "figure": STREAMS, "case": format!("{} rows, host to host, 1 lanes", stages.n), "lanes": 1,
            "stages_ms": stages.stages, "sum_ms": stages.sum, "gomez_luna": stages.gomez_luna,
            "lanes_best": best,
        });
        lines.push(Measured { device: "2024: RTX 2080 Ti".to_owned(), line });
    }
    lines
}

/// Table of the lines of a part or paper, by case; empty without a line.
///
/// `mark` is the name of the part, and keys of columns in addition to those of all tables.
fn table(measured: &[Measured], mark: &str) -> String {
    let mut keys = mark.split(' ');
    let part = keys.next().unwrap_or("");
    if !measured.iter().any(|m| m.part(part)) {
        return String::new();
    }
    let columns: Vec<&str> =
        ["case", "device", "seconds.median", "speed", "relative_error"].into_iter().chain(keys).collect();
    let columns = [&columns[..], &["precision", "backend"]].concat();
    let known = published_lines();
    let measured = measured.iter().enumerate().map(|(index, m)| (Some(index), m));
    let mut rows: Vec<(Option<usize>, &Measured)> =
        measured.chain(known.iter().map(|m| (None, m))).filter(|(_, m)| m.part(part)).collect();
    // The cases are in the order of their first lines.
    let first: HashMap<&str, usize> =
        rows.iter().enumerate().rev().map(|(k, (_, m))| (m.text("case"), k)).collect();
    rows.sort_by_key(|(_, m)| first[m.text("case")]);
    let mut out = "<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>".to_owned();
    for key in &columns {
        let heading = NUMBERS.iter().find(|number| number.0 == *key).map_or(*key, |number| number.1);
        let _ = write!(out, "<th scope=\"col\">{heading}</th>");
    }
    out += "</tr></thead>\n<tbody>\n";
    let mut last = "";
    for (index, m) in &rows {
        let first = if m.text("case") == last { "" } else { "first " };
        last = m.text("case");
        let published = if index.is_none() { "published" } else { "" };
        let _ = write!(out, "<tr class=\"{first}{published}\">");
        for key in &columns {
            cell(&mut out, (*index, m), key, &rows);
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

/// Writes the cell of a line at a key; a median has a bar, relative to the fastest of its case.
fn cell(
    out: &mut String,
    (index, m): (Option<usize>, &Measured),
    key: &str,
    rows: &[(Option<usize>, &Measured)],
) {
    let Some(value) = m.get(key).as_f64() else {
        let text = if key == "device" { &m.device } else { m.text(key) };
        let _ = write!(out, "<td>{}</td>", escape(text));
        return;
    };
    let _ = write!(out, "<td class=\"n\"");
    if let Some(index) = index {
        let _ = write!(out, " data-line=\"{index}\" data-key=\"{key}\" data-value=\"{value:?}\"");
    }
    let _ = write!(out, ">{}", escape(&m.shown(key)));
    if key == "seconds.median" {
        let own = rows.iter().filter(|(_, other)| other.text("case") == m.text("case"));
        let least = own.map(|(_, m)| m.seconds()).fold(f64::INFINITY, f64::min);
        let _ = write!(out, "<i style=\"width:{:.2}%\"></i>", 100.0 * least / value);
    }
    *out += "</td>";
}

/// Speed of each device relative to the first one, and the sources.
fn conclusion(measured: &[Measured]) -> String {
    let mut devices: Vec<&Measured> = Vec::new();
    for m in measured {
        if !devices.iter().any(|known| known.device == m.device) {
            devices.push(m);
        }
    }
    let Some((first, others)) = devices.split_first() else { return String::new() };
    let mut out = String::new();
    for (part, heading) in PARTS {
        for Measured { device, .. } in others {
            if let Some(answer) = answer(&speeds(measured, part, &first.device, device)) {
                let [device, first] = [device, &first.device].map(|name| escape(name));
                let (speed, range) = answer;
                let _ =
                    writeln!(out, "<li>{heading}: <b>{device}</b> is <b>{speed}</b> {first} ({range})</li>");
            }
        }
    }
    out = format!("<ul>\n{out}</ul>\n");
    if others.is_empty() {
        out = "<p>One device is compared with nothing; name several, or give <code>--with</code> another report.</p>\n"
            .to_owned();
    }
    for m in devices {
        let facts = ["device", "backend", "host", "date"].map(|key| m.text(key));
        let facts: Vec<&str> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        let _ = writeln!(out, "<p class=\"source\">{}: {}</p>", escape(&m.device), escape(&facts.join(", ")));
    }
    out
}

/// Parts that the conclusion compares.
const PARTS: [(&str, &str); 5] = [
    ("step", "One step of uniformization"),
    ("transient", "Transient solutions"),
    ("walk", "Quasi-random walks"),
    ("tridiagonal", "Tridiagonal systems"),
    ("transfer", "Transfers"),
];

/// Speeds of `device` relative to `first` on each case of a part that both have.
///
/// Each device counts with its best number of lanes.
fn speeds(measured: &[Measured], part: &str, first: &str, device: &str) -> Vec<f64> {
    let least = |of: &Measured, device: &str| {
        let same = measured.iter().filter(|m| m.part(part) && m.device == device && m.same_case(of));
        same.map(Measured::seconds).fold(f64::INFINITY, f64::min)
    };
    let mut cases: Vec<&Measured> = Vec::new();
    for m in measured.iter().filter(|m| m.part(part) && m.device == device) {
        if !cases.iter().any(|known| known.same_case(m)) {
            cases.push(m);
        }
    }
    let ratios = cases.into_iter().map(|of| least(of, first) / least(of, device));
    ratios.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect()
}

/// Text on the geometric mean of the speeds and their range; `None` without a case.
fn answer(speeds: &[f64]) -> Option<(String, String)> {
    let mean = (speeds.iter().map(|s| s.ln()).sum::<f64>() / speeds.len() as f64).exp();
    let than = match times(mean) {
        equal if equal.ends_with('×') => format!("{equal} as fast as"),
        other => format!("{other} than"),
    };
    let (least, most) = speeds.iter().fold((f64::INFINITY, 0.0f64), |(a, b), s| (a.min(*s), b.max(*s)));
    match speeds.len() {
        0 => None,
        1 => Some((than, "one case".to_owned())),
        n => Some((than, format!("mean of {n} cases: {} to {}", times(least), times(most)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_compared_where_both_have_the_case() {
        let measured = |device: &str, case: &str, lanes: u64, median: f64| Measured {
            device: device.to_owned(),
            line: json!({"part": "walk", "case": case, "lanes": lanes, "host": "a & b", "seconds": {"median": median}}),
        };
        let all = [
            measured("cpu", "a", 1, 1.0),
            measured("cpu", "b", 1, 1.0),
            measured("gpu", "a", 1, 9.0),
            measured("gpu", "a", 2, 2.0),
            measured("gpu", "b", 1, 8.0),
            measured("gpu", "c", 1, 1.0),
        ];

        assert_eq!(speeds(&all, "walk", "cpu", "gpu"), [0.5, 0.125]);
        let out = conclusion(&all);
        let words =
            "<b>gpu</b> is <b>4.0 × slower than</b> cpu (mean of 2 cases: 8.0 × slower to 2.0 × slower)";
        assert!(out.contains(words) && out.contains("cpu: a &amp; b"), "{out}");
        assert_eq!(answer(&[]), None);
        let of = |speed| answer(&[speed]).expect("a speed").0;
        assert_eq!([40.0, 1.02].map(of), ["40 × faster than", "about 1 × as fast as"]);
    }
}
