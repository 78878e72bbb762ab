//! First section: speed of each device relative to the first one, and the sources.

use std::fmt::Write;

use super::parts::{PARTS, rate};
use super::{Measured, devices};
use crate::plot::{escape, short};
use crate::report::times;

pub(super) fn section(measured: &[Measured], out: &mut String) {
    let devices = devices(measured);
    let Some((first, others)) = devices.split_first() else { return };
    out.push_str("<section id=\"conclusion\"><h2>Conclusion</h2>\n<ul>\n");
    for device in others {
        for (part, heading, _) in PARTS {
            if let Some((speed, range)) = answer(&speeds(measured, part, first, device)) {
                let [heading, device, first] = [heading, device, first].map(escape);
                let _ =
                    writeln!(out, "<li>{heading}: <b>{device}</b> is <b>{speed}</b> {first} ({range})</li>");
            }
        }
    }
    if others.is_empty() {
        for (part, heading, _) in PARTS {
            let (name, key, scale) = rate(part);
            let best =
                measured.iter().filter(|m| m.part(part)).filter_map(|m| m.number(key)).fold(0.0, f64::max);
            if best > 0.0 {
                let (heading, best) = (escape(heading), short(best * scale));
                let _ = writeln!(out, "<li>{heading}: <b>{best} {name}</b> at most</li>");
            }
        }
    }
    out.push_str("</ul>\n");
    for device in &devices {
        let Some(m) = measured.iter().find(|m| m.device == *device) else { continue };
        let facts = [m.text("device"), m.text("backend"), m.text("host"), m.text("date")];
        let facts: Vec<&str> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
        let _ = writeln!(out, "<p class=\"source\">{}: {}</p>", escape(device), escape(&facts.join(", ")));
    }
    if others.is_empty() {
        out.push_str("<p>One device is compared with nothing; name several, or give <code>--with</code> another report.</p>\n");
    }
    out.push_str("</section>\n");
}

/// Speeds of `device` relative to `first` on each case of a part that both have.
///
/// Each device counts with its best number of lanes.
fn speeds(measured: &[Measured], part: &str, first: &str, device: &str) -> Vec<f64> {
    let case = |m: &Measured| ["case", "method", "chains"].map(|key| m.get(key).clone());
    let least = |of: &Measured, device: &str| {
        let same = measured.iter().filter(|m| m.part(part) && m.device == device && case(m) == case(of));
        same.map(Measured::seconds).fold(f64::INFINITY, f64::min)
    };
    let mut cases: Vec<&Measured> = Vec::new();
    for m in measured.iter().filter(|m| m.part(part) && m.device == device) {
        if !cases.iter().any(|known| case(known) == case(m)) {
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
    use serde_json::json;

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
        let mut out = String::new();
        section(&all, &mut out);
        let words =
            "<b>gpu</b> is <b>4.0 × slower than</b> cpu (mean of 2 cases: 8.0 × slower to 2.0 × slower)";
        assert!(out.contains(words) && out.contains("cpu: a &amp; b"), "{out}");
        assert_eq!(answer(&[]), None);
        let of = |speed| answer(&[speed]).expect("a speed").0;
        assert_eq!([40.0, 1.02].map(of), ["40 × faster than", "about 1 × as fast as"]);
    }
}
