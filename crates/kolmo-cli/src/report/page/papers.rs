//! Tables and figures of three papers: published results next to those of this machine.

use std::fmt::Write;

use super::{Indexed, Measured, Table, chart, count, devices, error, section};
use crate::plot::palette::REFERENCE;
use crate::plot::{Axis, Line, Stroke, escape, short};
use crate::report::{grouped, seconds, times};
use kolmo::tridiagonal::lane_count::published::{BEST_GAIN, Best, LANE_COST, MODEL, STAGES, TABLE};
use kolmo_bench::compare::papers::{
    FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, KARWACKI, LAI, LAI_SPEED_UP, Paper, STREAMS, TABLE_II, VENEVA,
};
use kolmo_bench::seed_table::{Column, Published, SIZES, published};

type Own<'a> = Vec<Indexed<'a>>;

pub(super) fn sections(measured: &[Measured], out: &mut String) {
    let of =
        |name: &str| -> Own<'_> { measured.iter().enumerate().filter(|(_, m)| m.figure(name)).collect() };
    let devices = devices(measured);
    let (table_ii, streams) = (of(TABLE_II), of(STREAMS));
    if !table_ii.is_empty() {
        karwacki(&table_ii, &devices, out);
    }
    let figures = [FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5].map(of);
    if figures.iter().any(|own| !own.is_empty()) {
        lai(&figures, &devices, out);
    }
    if !streams.is_empty() {
        veneva(&streams, &devices, out);
    }
}

fn source(out: &mut String, paper: &Paper) {
    let (citation, machine) = (escape(paper.citation), escape(paper.machine));
    let _ = writeln!(out, "<p class=\"source\">{citation}. Its machine: {machine}.</p>");
}

fn line(name: impl Into<String>, color: usize, stroke: Stroke, points: Vec<(f64, f64)>) -> Option<Line> {
    (!points.is_empty()).then(|| Line::new(name, color, stroke, points))
}

/// Pairs of two numbers of the lines that `shown` accepts.
fn points(own: &[Indexed<'_>], x: &str, y: &str, shown: impl Fn(&Measured) -> bool) -> Vec<(f64, f64)> {
    let shown = own.iter().filter(|(_, m)| shown(m));
    shown.filter_map(|(_, m)| Some((m.number(x)?, m.number(y)?))).collect()
}

/// A line for each device, in its colour.
fn by_device<'a>(
    devices: &'a [&str],
    points: impl Fn(&str) -> Vec<(f64, f64)> + 'a,
) -> impl Iterator<Item = Line> + 'a {
    let one = move |(color, device): (usize, &&str)| line(*device, color, Stroke::Solid, points(device));
    devices.iter().enumerate().filter_map(one)
}

fn karwacki(own: &Own<'_>, devices: &[&str], out: &mut String) {
    section(
        out,
        "karwacki-2012",
        "Uniformization: Table II of 2012",
        "Seconds of all products for two wireless devices at t = 10 and \u{3b5} = 10\u{207b}\u{2075}, in double precision. The \
         unit of time is not published; here it is a millisecond. Algorithm 1 is the paper\u{2019}s (intervals, HYB, three \
         kernels a term; scaled up from fewer products where the whole would take more than two seconds), one sweep is what \
         kolmo does.",
    );
    source(out, &KARWACKI);
    let sweep = |m: &Measured| m.text("column") == "one";
    let mut lines = Vec::new();
    let published_ = [Column::Cpu, Column::OneSubdivided, Column::SeveralFull];
    for (k, (name, column)) in ["2012: CPU", "2012: GPU", "2012: two GPUs"].iter().zip(published_).enumerate()
    {
        let rows = SIZES.iter().filter_map(|&k| published(k));
        let points = rows.filter_map(|row| Some((1e6 * row.n, row.of(column)?))).collect();
        lines.extend(line(*name, REFERENCE - k, Stroke::Dashed, points));
    }
    for (color, device) in devices.iter().enumerate() {
        // The device has this colour in all charts.
        for (wanted, name, stroke) in [(false, "Algorithm 1", Stroke::Points), (true, "sweep", Stroke::Solid)]
        {
            let points = points(own, "n", "seconds.median", |m| m.device == *device && sweep(m) == wanted);
            lines.extend(line(format!("{device}, {name}"), color, stroke, points));
        }
    }
    out.push_str("<div class=\"charts\">\n");
    let axes = [Axis::log("states"), Axis::log("seconds")];
    let caption =
        "Hollow and dashed: published in 2012. Dots: the same algorithm here. Lines: one sweep here.";
    chart(out, TABLE_II, "Table II: seconds by states", axes, lines, caption);
    out.push_str("</div>\n");
    let measured = devices.iter().filter(|device| own.iter().any(|(_, m)| m.device == **device));
    let columns: Vec<(&str, bool)> =
        measured.flat_map(|device| [(*device, false), (*device, true)]).collect();
    let heading = |(device, swept): &(&str, bool)| {
        format!("|{device}: {}", if *swept { "sweep" } else { "Algorithm 1" })
    };
    let headings: String = columns.iter().map(heading).collect();
    let head = format!("n|nnz|2012: CPU s|GPU s|two GPUs s|CPU/GPU{headings}|largest error");
    let mut sizes: Vec<usize> = SIZES.to_vec();
    sizes.extend(own.iter().filter_map(|(_, m)| m.number("k")).map(|k| k as usize));
    sizes.sort_unstable();
    sizes.dedup();
    let mut table = Table::new(out, &head);
    for k in sizes {
        let here: Own<'_> = own.iter().filter(|(_, m)| m.number("k") == Some(k as f64)).copied().collect();
        table.row(if here.is_empty() { "published" } else { "" });
        let row = published(k);
        match (here.first(), &row) {
            (Some(line), _) => table.numbers(*line, &[("n", &count), ("nnz", &count)]),
            (None, row) => {
                row.iter().flat_map(|r| [r.n, r.nnz]).for_each(|k| table.plain(&format!("{k}·10⁶")));
            }
        }
        let mut known = |of: &dyn Fn(&Published) -> Option<String>| {
            table.plain(&row.as_ref().and_then(of).unwrap_or_else(|| "–".to_owned()));
        };
        known(&|r| Some(r.cpu.to_string()));
        known(&|r| r.gpu.map(|s| s.to_string()));
        known(&|r| Some(r.two_gpus.to_string()));
        known(&|r| r.gpu.map(|s| format!("{:.2}", r.cpu / s)));
        for (device, wanted) in &columns {
            match here.iter().find(|(_, m)| m.device == *device && sweep(m) == *wanted) {
                Some(line) => table.numbers(*line, &[("seconds.median", &seconds)]),
                None => table.plain("–"),
            }
        }
        let of = |m: &Measured| m.number("relative_error").unwrap_or(0.0);
        match here.iter().max_by(|a, b| of(a.1).total_cmp(&of(b.1))) {
            Some(line) => table.numbers(*line, &[("relative_error", &error)]),
            None => table.plain("–"),
        }
        table.end_row();
    }
    table.end();
    out.push_str("</section>\n");
}

fn lai([two, three, four, five]: &[Own<'_>; 4], devices: &[&str], out: &mut String) {
    section(
        out,
        "lai-2015",
        "Walks: Figures 2 to 5 of 2015",
        "The paper\u{2019}s figures have no numbers to quote; here they are drawn from this machine\u{2019}s. Its findings: \
         quasi-random points are a little more accurate and converge faster than pseudo-random ones (Fig. 2); they are much \
         faster when one sequence serves all components, and the gap stays as systems grow, dense (Fig. 3) or sparse (Fig. 4); a GPU is \
         more than 50 times as fast as a CPU (Fig. 5).",
    );
    source(out, &LAI);
    out.push_str("<div class=\"charts\">\n");
    // One colour per method in all figures, different from the devices' colours if there are
    // enough.
    let mut methods: Vec<&str> = Vec::new();
    for (_, m) in [two, three, four].into_iter().flatten() {
        if !methods.contains(&m.text("method")) {
            methods.push(m.text("method"));
        }
    }
    let colored = || methods.iter().enumerate().map(|(i, name)| ((devices.len() + i) % REFERENCE, *name));
    let by_method = |own: &Own<'_>, device: Option<&str>, x: &str, y: &str| -> Vec<Line> {
        let of = |name: &str| {
            points(own, x, y, |m| m.text("method") == name && device.is_none_or(|d| m.device == d))
        };
        colored().filter_map(|(color, name)| line(name, color, Stroke::Solid, of(name))).collect()
    };
    if let Some((_, first)) = two.first() {
        let axes = [Axis::doubling("chains"), Axis::log("root of the mean square error / max x")];
        let caption =
            format!("{}; {} (points are the same on every device).", first.text("case"), first.device);
        let lines = by_method(two, None, "chains", "relative_error");
        chart(out, FIGURE_2, "Fig. 2: accuracy of random numbers", axes, lines, &caption);
    }
    let unknowns = |y: &str| [Axis::log("unknowns"), Axis::log(y)];
    for (figure, own, what) in
        [(FIGURE_3, three, "Fig. 3: dense systems"), (FIGURE_4, four, "Fig. 4: sparse systems")]
    {
        for device in devices.iter().filter(|d| own.iter().any(|(_, m)| m.device == **d)) {
            let lines = by_method(own, Some(device), "n", "seconds.median");
            let (title, caption) =
                (format!("{what}, {device}"), "Computing time by where the points come from.");
            chart(out, figure, title, unknowns("seconds"), lines, caption);
        }
    }
    if !five.is_empty() {
        let over = |key: &str| -> Vec<Line> {
            by_device(devices, |device| points(five, "n", key, |m| m.device == device)).collect()
        };
        let (title, caption) = ("Fig. 5: computing time", "The same walks on every device.");
        chart(out, FIGURE_5, title, unknowns("seconds"), over("seconds.median"), caption);
        // Relative to the first device, which would be a constant if it were alone.
        let mut lines = over("speed");
        let ends: Vec<f64> = five.iter().filter_map(|(_, m)| m.number("n")).collect();
        let (least, most) = ends.iter().fold((f64::INFINITY, 0.0f64), |(a, b), n| (a.min(*n), b.max(*n)));
        let published = vec![(least, LAI_SPEED_UP), (most, LAI_SPEED_UP)];
        if lines.len() > 1 {
            lines.extend(line("2015: up to 50", REFERENCE, Stroke::Dotted, published));
            let title = format!("Fig. 5: speed over {}", devices[0]);
            chart(
                out,
                FIGURE_5,
                title,
                unknowns("times as fast"),
                lines,
                "A CPU here is all of its threads.",
            );
        }
    }
    out.push_str("</div>\n");
    for (name, own) in [("Figure 2", two), ("Figure 3", three), ("Figure 4", four), ("Figure 5", five)] {
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(out, "<details><summary>{name}: numbers</summary>");
        let mut table = Table::new(out, "unknowns|device|points|chains|median|Msteps/s|speed|error");
        for &line in own {
            let m = line.1;
            table.row("");
            table.numbers(line, &[("n", &count)]);
            table.text(&m.device);
            table.text(if m.text("method").is_empty() { m.text("sequence") } else { m.text("method") });
            let rate = |v: f64| short(1e-6 * v);
            table.numbers(line, &[("chains", &count), ("seconds.median", &seconds), ("steps_per_s", &rate)]);
            table.numbers(line, &[("speed", &times), ("relative_error", &error)]);
            table.end_row();
        }
        table.end();
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

fn veneva(own: &Own<'_>, devices: &[&str], out: &mut String) {
    section(
        out,
        "veneva-2024",
        "Tridiagonal systems: streams of 2024",
        "Host-to-host solutions on 1 to 32 streams, here lanes. What overlap can hide is the sum of four stages; the overhead is \
         what the lanes cost beside it. kolmo\u{2019}s units of 128 rows send next to nothing between the stages, where \
         sub-systems of 10 rows send a fifth of the system: its sums are smaller, and so is what lanes can hide.",
    );
    source(out, &VENEVA);
    let one: Own<'_> = own.iter().filter(|(_, m)| m.number("lanes") == Some(1.0)).copied().collect();
    let over_rows = |key: &str| -> Vec<Line> {
        by_device(devices, |device| points(&one, "n", key, |m| m.device == device)).collect()
    };
    out.push_str("<div class=\"charts\">\n");
    let stages = STAGES.iter().map(|s| (s.n as f64, s.sum)).collect();
    let model = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8].map(|n| (n, MODEL.sum.at(n as usize))).to_vec();
    let mut lines = vec![
        Line::new("2024", REFERENCE, Stroke::Dashed, stages),
        Line::new("2024, model", REFERENCE - 1, Stroke::Dotted, model),
    ];
    lines.extend(over_rows("sum_ms"));
    let (axes, caption) =
        ([Axis::log("rows"), Axis::log("ms")], "T1 comp + T1 D2H + T3 H2D + T3 comp on one lane.");
    chart(out, STREAMS, "Sum of the stages that overlap", axes, lines, caption);

    // Overheads of the largest size.
    let largest = one.iter().filter_map(|(_, m)| m.number("n")).fold(0.0, f64::max);
    let model = [2usize, 4, 8, 16, 32].map(|s| (s as f64, MODEL.overhead(largest as usize, s))).to_vec();
    let mut lines = vec![Line::new("2024, model", REFERENCE - 1, Stroke::Dotted, model)];
    lines.extend(by_device(devices, |device| {
        let largest = |m: &Measured| m.number("n") == Some(largest) && m.number("lanes") > Some(1.0);
        points(own, "lanes", "overhead_ms", |m| m.device == device && largest(m))
    }));
    let (axes, caption) =
        ([Axis::doubling("lanes"), Axis::linear("ms")], "T on s lanes − T on one + (s − 1)/s · sum.");
    chart(out, STREAMS, format!("Overhead of lanes, {} rows", count(largest)), axes, lines, caption);

    let published =
        |of: fn(&Best) -> usize| TABLE.iter().map(|b| (b.n as f64, of(b) as f64)).collect::<Vec<_>>();
    let mut lines = vec![
        Line::new("2024, measured", REFERENCE, Stroke::Dashed, published(|b| b.measured)),
        Line::new("2024, predicted", REFERENCE - 1, Stroke::Dotted, published(|b| b.predicted)),
    ];
    lines.extend(over_rows("lanes_best"));
    let (axes, caption) =
        ([Axis::log("rows"), Axis::doubling("lanes")], "The number with the least time, host to host.");
    chart(out, STREAMS, "Best number of lanes", axes, lines, caption);
    out.push_str("</div>\n");

    let head =
        "rows|device|T1 comp ms|T1 D2H ms|T3 H2D ms|T3 comp ms|sum ms|√(sum/τ)|best lanes|gain|residual";
    let mut table = Table::new(out, head);
    let mut sizes: Vec<usize> = STAGES.iter().map(|s| s.n).collect();
    sizes.extend(one.iter().filter_map(|(_, m)| m.number("n")).map(|n| n as usize));
    sizes.sort_unstable();
    sizes.dedup();
    let (ms, ratio, lanes) = (|v: f64| format!("{v:.4}"), |v: f64| format!("{v:.1}"), |v: f64| v.to_string());
    for n in sizes {
        if let Some(s) = STAGES.iter().find(|s| s.n == n) {
            table.row("published");
            table.plain(&grouped(n as u64));
            table.text("2024: RTX 2080 Ti");
            let numbers =
                [s.stages.comp_1, s.stages.d2h_1, s.stages.h2d_3, s.stages.comp_3, s.sum, s.gomez_luna];
            numbers.iter().for_each(|v| table.plain(&v.to_string()));
            let best = TABLE.iter().find(|b| b.n == n);
            table.plain(&best.map_or("–".to_owned(), |b| b.measured.to_string()));
            table.plain("–");
            table.plain("–");
            table.end_row();
        }
        for &line in one.iter().filter(|(_, m)| m.number("n") == Some(n as f64)) {
            let m = line.1;
            table.row("");
            table.numbers(line, &[("n", &count)]);
            table.text(&m.device);
            table.numbers(
                line,
                &[("stages_ms.comp_1", &ms), ("stages_ms.d2h_1", &ms), ("stages_ms.h2d_3", &ms)],
            );
            table.numbers(line, &[("stages_ms.comp_3", &ms), ("sum_ms", &ms), ("gomez_luna", &ratio)]);
            table.numbers(line, &[("lanes_best", &lanes)]);
            let alike = own.iter().filter(|(_, o)| o.device == m.device && o.number("n") == m.number("n"));
            let best = alike.map(|(_, o)| o.seconds()).fold(f64::INFINITY, f64::min);
            table.plain(&format!("{:.2} ×", m.seconds() / best));
            table.numbers(line, &[("relative_error", &error)]);
            table.end_row();
        }
    }
    table.end();
    let _ = writeln!(
        out,
        "<p>Published: a stream costs τ = {LANE_COST} ms, and the largest gain over one stream is {BEST_GAIN:.2} (8·10⁷ and \
         10⁸ rows). Here τ is what a further lane adds to the smallest system.</p>\n</section>"
    );
}
