//! Sections of the solvers: bars, tables, rooflines.

use super::parts::PARTS;
use super::{Indexed, Measured, Table, by_case, chart, devices, error, figure, section};
use crate::plot::palette::REFERENCE;
use crate::plot::{Axis, Bar, Bars, Form, Line, Stroke, short};
use crate::report::{seconds, times};

pub(super) fn sections(measured: &[Measured], out: &mut String) {
    let devices = devices(measured);
    for (part, heading, text) in PARTS {
        let lines: Vec<Indexed<'_>> = measured.iter().enumerate().filter(|(_, m)| m.part(part)).collect();
        if lines.is_empty() {
            continue;
        }
        section(out, part, heading, text);
        out.push_str("<div class=\"charts\">\n");
        match part {
            // With a single lane there is no curve over lanes.
            "transfer" if lines.iter().any(|(_, m)| m.number("lanes") > Some(1.0)) => {
                transfers(&lines, &devices, out);
            }
            _ => bars(part, &lines, &devices, out),
        }
        out.push_str("</div>\n");
        table(part, &lines, out);
        out.push_str("</section>\n");
    }
    rooflines(measured, &devices, out);
}

/// Index of a device, which selects its colour.
fn color(devices: &[&str], device: &str) -> usize {
    devices.iter().position(|d| *d == device).unwrap_or(0)
}

fn bars(part: &str, lines: &[Indexed<'_>], devices: &[&str], out: &mut String) {
    for (case, own) in by_case(lines) {
        let bar = |(_, m): &Indexed<'_>| Bar {
            name: m.device.clone(),
            value: 1.0 / m.seconds(),
            text: match m.number("speed") {
                Some(speed) if speed != 1.0 => format!("{}, {}", seconds(m.seconds()), times(speed)),
                _ => seconds(m.seconds()),
            },
            color: color(devices, &m.device),
        };
        let bars = Bars { title: case.to_owned(), bars: own.iter().map(bar).collect() };
        // A single bar always fills the chart.
        let caption =
            if own.len() > 1 { "Longer is faster." } else { "One device; others get bars in proportion." };
        figure(out, part, &bars.svg(Form::Page), caption);
    }
}

fn transfers(lines: &[Indexed<'_>], devices: &[&str], out: &mut String) {
    for case in kolmo_bench::TRANSFERS {
        let of = |device: &&str| {
            let points = lines.iter().filter(|(_, m)| m.text("case") == case && m.device == *device);
            let points: Vec<(f64, f64)> =
                points.filter_map(|(_, m)| Some((m.number("lanes")?, m.number("gb_per_s")?))).collect();
            let line = || Line::new(*device, color(devices, device), Stroke::Solid, points.clone());
            (!points.is_empty()).then(line)
        };
        let (axes, lines) =
            ([Axis::doubling("lanes"), Axis::log("GB/s")], devices.iter().filter_map(of).collect());
        let caption = format!("{case}: GB/s by the number of lanes.");
        chart(out, "transfer", format!("Transfer: {case}"), axes, lines, &caption);
    }
}

fn table(part: &str, lines: &[Indexed<'_>], out: &mut String) {
    let folded = part == "transfer";
    if folded {
        out.push_str("<details><summary>Numbers</summary>\n");
    }
    let (unit, key, scale) = super::parts::rate(part);
    let head =
        format!("case|device|median|speed|error|{unit}|copy GB/s|least|format|lanes|precision|backend");
    let mut table = Table::new(out, &head);
    let scaled = |v: f64| short(v * scale);
    let by_case = by_case(lines);
    for (k, line) in by_case.iter().flat_map(|(_, own)| own.iter().enumerate()) {
        let (_, m) = *line;
        table.row(if k == 0 { "first" } else { "" });
        table.case(m.text("case"));
        table.text(&m.device);
        table.numbers(*line, &[("seconds.median", &seconds), ("speed", &times), ("relative_error", &error)]);
        table.numbers(*line, &[(key, &scaled), ("copy_gb_per_s", &short), ("seconds.min", &seconds)]);
        table.text(m.text("format"));
        table.numbers(*line, &[("lanes", &|v| v.to_string())]);
        table.text(m.text("precision"));
        table.text(m.text("backend"));
        table.end_row();
    }
    table.end();
    if folded {
        out.push_str("</details>\n");
    }
}

/// Name and colour of a line's point in the roofline chart; `None` if it has none.
fn engine(m: &Measured) -> Option<(String, usize)> {
    let (case, format) = (m.text("case"), m.text("format").split([',', ' ']).next().unwrap_or(""));
    Some(match m.text("part") {
        "step" if m.get("accumulate") == true && case.contains("hyb") => ("step, HYB".to_owned(), 0),
        "step" if m.get("accumulate") == true => (format!("step, {format}"), 1),
        "transient" => (format!("transient {case}"), if case.contains("tandem") { 6 } else { 2 }),
        "walk" if m.number("steps_per_s").is_some() => ("walks".to_owned(), 3),
        "tridiagonal" if case.contains("best") => ("tridiagonal, host to host".to_owned(), 4),
        _ => return None,
    })
}

fn rooflines(measured: &[Measured], devices: &[&str], out: &mut String) {
    let mut charts = String::new();
    for device in devices {
        let own: Vec<&Measured> = measured.iter().filter(|m| m.device == *device).collect();
        let point = |m: &&Measured| {
            let ((name, color), flops, bytes) = (engine(m)?, m.number("flops")?, m.number("bytes_moved")?);
            let at = (flops / bytes, 1e-9 * flops / m.seconds());
            (flops > 0.0 && bytes > 0.0).then_some((name, color, at))
        };
        let points: Vec<(String, usize, (f64, f64))> = own.iter().filter_map(point).collect();
        if points.is_empty() {
            continue;
        }
        let (least, most) =
            points.iter().fold((f64::INFINITY, 0.0f64), |(a, b), p| (a.min(p.2.0), b.max(p.2.0)));
        let ends = [0.5 * least, 2.0 * most];
        let roof = |name: String, stroke: Stroke, bandwidth: f64| {
            Line::new(name, REFERENCE, stroke, ends.map(|x| (x, x * bandwidth)).to_vec())
        };
        let mut lines = Vec::new();
        let copy = own.iter().filter_map(|m| m.number("copy_gb_per_s")).fold(0.0, f64::max);
        if copy > 0.0 {
            lines.push(roof(format!("memory, {} GB/s", short(copy)), Stroke::Bare, copy));
        }
        let bus = own.iter().filter(|m| m.part("transfer") && m.text("case") == "round trip");
        let bus = bus.filter_map(|m| m.number("gb_per_s")).fold(0.0, f64::max);
        if bus > 0.0 {
            lines.push(roof(format!("round trip, {} GB/s", short(bus)), Stroke::Dotted, bus));
        }
        lines.extend(
            points.into_iter().map(|(name, color, at)| Line::new(name, color, Stroke::Points, vec![at])),
        );
        let title = format!("Roofline of {device}: {}", own[0].text("device"));
        let axes = [Axis::log("operations a byte moved"), Axis::log("Gflop/s")];
        let caption = format!("{device}: every job against what the device copies, and its bus.");
        chart(&mut charts, "roofline", title, axes, lines, &caption);
    }
    if charts.is_empty() {
        return;
    }
    section(
        out,
        "roofline",
        "Rooflines",
        "Each engine is bound by memory: few operations for a byte. The lines are what a copy on the device reaches, and a \
         round trip between host and device, in this run. Bytes are those that a format moves with gathers counted once, so \
         that a smaller format stands further to the right on the same line; caches lift points above it. Walks count 64 \
         bytes a step, the record that it reads.",
    );
    out.push_str("<div class=\"charts\">\n");
    out.push_str(&charts);
    out.push_str("</div>\n</section>\n");
}
