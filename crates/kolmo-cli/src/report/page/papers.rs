//! Tables and figures of three papers: published results next to those of this machine.

use std::fmt::Write;

use super::{Measured, Table, devices, error, figure, section, time};
use crate::plot::palette::REFERENCE;
use crate::plot::{Axis, Form, Line, Lines, Stroke, escape, short};
use crate::report::times;
use kolmo::tridiagonal::lane_count::published::{BEST_GAIN, LANE_COST, MODEL, STAGES, TABLE};
use kolmo_bench::compare::papers::{
    FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, KARWACKI, LAI, LAI_SPEED_UP, Paper, STREAMS, TABLE_II, VENEVA,
};
use kolmo_bench::seed_table::{Column, SIZES, published};

type Own<'a> = Vec<(usize, &'a Measured)>;

pub(super) fn sections(measured: &[Measured], out: &mut String) {
    let of =
        |name: &str| -> Own<'_> { measured.iter().enumerate().filter(|(_, m)| m.figure(name)).collect() };
    let devices = devices(measured);
    let table_ii = of(TABLE_II);
    if !table_ii.is_empty() {
        karwacki(&table_ii, &devices, out);
    }
    let figures = [FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5].map(of);
    if figures.iter().any(|own| !own.is_empty()) {
        lai(&figures, &devices, out);
    }
    let streams = of(STREAMS);
    if !streams.is_empty() {
        veneva(&streams, &devices, out);
    }
}

fn source(out: &mut String, paper: &Paper) {
    let _ = writeln!(
        out,
        "<p class=\"source\">{}. Its machine: {}.</p>",
        escape(paper.citation),
        escape(paper.machine)
    );
}

fn line(name: impl Into<String>, color: usize, stroke: Stroke, points: Vec<(f64, f64)>) -> Option<Line> {
    (!points.is_empty()).then(|| Line { name: name.into(), color, stroke, points })
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
    for (color, (name, column)) in [
        ("2012: CPU", Column::Cpu),
        ("2012: GPU", Column::OneSubdivided),
        ("2012: two GPUs", Column::SeveralFull),
    ]
    .into_iter()
    .enumerate()
    {
        let rows = SIZES.iter().filter_map(|&k| published(k));
        let points = rows.filter_map(|row| Some((1e6 * row.n, row.of(column)?))).collect();
        lines.extend(line(name, [REFERENCE, REFERENCE - 1, REFERENCE - 2][color], Stroke::Dashed, points));
    }
    for (color, device) in devices.iter().enumerate() {
        // The device has this colour in all charts.
        for (wanted, name) in [(false, "Algorithm 1"), (true, "sweep")] {
            let points = own.iter().filter(|(_, m)| m.device == *device && sweep(m) == wanted);
            let points = points.filter_map(|(_, m)| Some((m.number("n")?, m.seconds()))).collect();
            lines.extend(line(
                format!("{device}, {name}"),
                color,
                if wanted { Stroke::Solid } else { Stroke::Points },
                points,
            ));
        }
    }
    out.push_str("<div class=\"charts\">\n");
    let chart = Lines {
        title: "Table II: seconds by states".to_owned(),
        x: Axis::log("states"),
        y: Axis::log("seconds"),
        lines,
    };
    figure(
        out,
        TABLE_II,
        &chart.svg(Form::Page),
        "Hollow and dashed: published in 2012. Dots: the same algorithm here. Lines: one sweep here.",
    );
    out.push_str("</div>\n");
    let mut head = vec!["n", "nnz", "2012: CPU s", "GPU s", "two GPUs s", "CPU/GPU"];
    let columns: Vec<(&str, bool, String)> = devices
        .iter()
        .filter(|device| own.iter().any(|(_, m)| m.device == **device))
        .flat_map(|device| {
            [(*device, false, format!("{device}: Algorithm 1")), (*device, true, format!("{device}: sweep"))]
        })
        .collect();
    head.extend(columns.iter().map(|c| c.2.as_str()));
    head.push("largest error");
    let mut sizes: Vec<usize> = SIZES.to_vec();
    sizes.extend(own.iter().filter_map(|(_, m)| m.number("k")).map(|k| k as usize));
    sizes.sort_unstable();
    sizes.dedup();
    let mut table = Table::new(out, &head);
    for k in sizes {
        let here: Vec<&(usize, &Measured)> =
            own.iter().filter(|(_, m)| m.number("k") == Some(k as f64)).collect();
        table.row(if here.is_empty() { "published" } else { "" });
        let row = published(k);
        match here.first() {
            Some((index, m)) => {
                table.number(*index, m, "n", |v| super::super::grouped(v as u64));
                table.number(*index, m, "nnz", |v| super::super::grouped(v as u64));
            }
            None => {
                table.plain(&row.map_or(String::new(), |r| format!("{}·10⁶", r.n)));
                table.plain(&row.map_or(String::new(), |r| format!("{}·10⁶", r.nnz)));
            }
        }
        let dash = || "–".to_owned();
        table.plain(&row.map_or_else(dash, |r| r.cpu.to_string()));
        table.plain(&row.and_then(|r| r.gpu).map_or_else(dash, |s| s.to_string()));
        table.plain(&row.map_or_else(dash, |r| r.two_gpus.to_string()));
        table.plain(&row.and_then(|r| Some(r.cpu / r.gpu?)).map_or_else(dash, |s| format!("{s:.2}")));
        for (device, wanted, _) in &columns {
            match here.iter().find(|(_, m)| m.device == *device && sweep(m) == *wanted) {
                Some((index, m)) => table.number(*index, m, "seconds.median", time),
                None => table.plain("–"),
            }
        }
        let worst = here.iter().max_by(|a, b| {
            let of = |m: &Measured| m.number("relative_error").unwrap_or(0.0);
            of(a.1).total_cmp(&of(b.1))
        });
        match worst {
            Some((index, m)) => table.number(*index, m, "relative_error", error),
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
    let of = |own: &Own<'_>, name: &str, device: Option<&str>, x: &str, y: &str| -> Vec<(f64, f64)> {
        own.iter()
            .filter(|(_, m)| {
                (name.is_empty() || m.text("method") == name) && device.is_none_or(|d| m.device == d)
            })
            .filter_map(|(_, m)| Some((m.number(x)?, m.number(y)?)))
            .collect()
    };
    if let Some((_, first)) = two.first() {
        let chart = Lines {
            title: "Fig. 2: accuracy of random numbers".to_owned(),
            x: Axis::doubling("chains"),
            y: Axis::log("root of the mean square error / max x"),
            lines: colored()
                .filter_map(|(color, name)| {
                    line(name, color, Stroke::Solid, of(two, name, None, "chains", "relative_error"))
                })
                .collect(),
        };
        let caption =
            format!("{}; {} (points are the same on every device).", first.text("case"), first.device);
        figure(out, FIGURE_2, &chart.svg(Form::Page), &caption);
    }
    for (figure_, own, what) in
        [(FIGURE_3, three, "Fig. 3: dense systems"), (FIGURE_4, four, "Fig. 4: sparse systems")]
    {
        for device in devices.iter().filter(|d| own.iter().any(|(_, m)| m.device == **d)) {
            let chart = Lines {
                title: format!("{what}, {device}"),
                x: Axis::log("unknowns"),
                y: Axis::log("seconds"),
                lines: colored()
                    .filter_map(|(color, name)| {
                        line(name, color, Stroke::Solid, of(own, name, Some(device), "n", "seconds.median"))
                    })
                    .collect(),
            };
            figure(out, figure_, &chart.svg(Form::Page), "Computing time by where the points come from.");
        }
    }
    if !five.is_empty() {
        let over = |key: &str| -> Vec<Line> {
            let one = |(i, d): (usize, &&str)| line(*d, i, Stroke::Solid, of(five, "", Some(d), "n", key));
            devices.iter().enumerate().filter_map(one).collect()
        };
        let chart = Lines {
            title: "Fig. 5: computing time".to_owned(),
            x: Axis::log("unknowns"),
            y: Axis::log("seconds"),
            lines: over("seconds.median"),
        };
        figure(out, FIGURE_5, &chart.svg(Form::Page), "The same walks on every device.");
        // Relative to the first device, which would be a constant if it were alone.
        let mut lines = over("speed");
        let ends: Vec<f64> = five.iter().filter_map(|(_, m)| m.number("n")).collect();
        let (least, most) = ends.iter().fold((f64::INFINITY, 0.0f64), |(a, b), n| (a.min(*n), b.max(*n)));
        let published = vec![(least, LAI_SPEED_UP), (most, LAI_SPEED_UP)];
        if lines.len() > 1 {
            lines.extend(line("2015: up to 50", REFERENCE, Stroke::Dotted, published));
            let chart = Lines {
                title: format!("Fig. 5: speed over {}", devices.first().unwrap_or(&"")),
                x: Axis::log("unknowns"),
                y: Axis::log("times as fast"),
                lines,
            };
            figure(out, FIGURE_5, &chart.svg(Form::Page), "A CPU here is all of its threads.");
        }
    }
    out.push_str("</div>\n");
    for (name, own) in [("Figure 2", two), ("Figure 3", three), ("Figure 4", four), ("Figure 5", five)] {
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(out, "<details><summary>{name}: numbers</summary>");
        let mut table = Table::new(
            out,
            &["unknowns", "device", "points", "chains", "median", "Msteps/s", "speed", "error"],
        );
        for (index, m) in own {
            table.row("");
            table.number(*index, m, "n", |v| super::super::grouped(v as u64));
            table.text(&m.device);
            table.text(if m.text("method").is_empty() { m.text("sequence") } else { m.text("method") });
            table.number(*index, m, "chains", |v| super::super::grouped(v as u64));
            table.number(*index, m, "seconds.median", time);
            table.number(*index, m, "steps_per_s", |v| short(1e-6 * v));
            table.number(*index, m, "speed", times);
            table.number(*index, m, "relative_error", error);
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
    let one: Vec<&(usize, &Measured)> = own.iter().filter(|(_, m)| m.number("lanes") == Some(1.0)).collect();
    out.push_str("<div class=\"charts\">\n");
    let mut lines = Vec::new();
    lines.extend(line(
        "2024",
        REFERENCE,
        Stroke::Dashed,
        STAGES.iter().map(|s| (s.n as f64, s.sum)).collect(),
    ));
    let model: Vec<(f64, f64)> =
        [1e3, 1e4, 1e5, 1e6, 1e7, 1e8].map(|n| (n, MODEL.sum.at(n as usize))).to_vec();
    lines.extend(line("2024, model", REFERENCE - 1, Stroke::Dotted, model));
    for (i, device) in devices.iter().enumerate() {
        let points = one.iter().filter(|(_, m)| m.device == *device);
        let points = points.filter_map(|(_, m)| Some((m.number("n")?, m.number("sum_ms")?))).collect();
        lines.extend(line(*device, i, Stroke::Solid, points));
    }
    let chart = Lines {
        title: "Sum of the stages that overlap".into(),
        x: Axis::log("rows"),
        y: Axis::log("ms"),
        lines,
    };
    figure(out, STREAMS, &chart.svg(Form::Page), "T1 comp + T1 D2H + T3 H2D + T3 comp on one lane.");

    // Overheads of the largest size.
    let largest = one.iter().filter_map(|(_, m)| m.number("n")).fold(0.0, f64::max);
    let counts = [2usize, 4, 8, 16, 32];
    let mut lines = Vec::new();
    let points = counts.map(|s| (s as f64, MODEL.overhead(largest as usize, s))).to_vec();
    lines.extend(line("2024, model", REFERENCE - 1, Stroke::Dotted, points));
    for (i, device) in devices.iter().enumerate() {
        let points = own.iter().filter(|(_, m)| m.device == *device && m.number("n") == Some(largest));
        let points = points
            .filter(|(_, m)| m.number("lanes") > Some(1.0))
            .filter_map(|(_, m)| Some((m.number("lanes")?, m.number("overhead_ms")?)))
            .collect();
        lines.extend(line(*device, i, Stroke::Solid, points));
    }
    let chart = Lines {
        title: format!("Overhead of lanes, {} rows", super::super::grouped(largest as u64)),
        x: Axis::doubling("lanes"),
        y: Axis::linear("ms"),
        lines,
    };
    figure(out, STREAMS, &chart.svg(Form::Page), "T on s lanes − T on one + (s − 1)/s · sum.");

    let mut lines = Vec::new();
    let published = |of: fn(&kolmo::tridiagonal::lane_count::published::Best) -> usize| {
        TABLE.iter().map(|b| (b.n as f64, of(b) as f64)).collect::<Vec<_>>()
    };
    lines.extend(line("2024, measured", REFERENCE, Stroke::Dashed, published(|b| b.measured)));
    lines.extend(line("2024, predicted", REFERENCE - 1, Stroke::Dotted, published(|b| b.predicted)));
    for (i, device) in devices.iter().enumerate() {
        let points = one.iter().filter(|(_, m)| m.device == *device);
        let points = points.filter_map(|(_, m)| Some((m.number("n")?, m.number("lanes_best")?))).collect();
        lines.extend(line(*device, i, Stroke::Solid, points));
    }
    let chart = Lines {
        title: "Best number of lanes".into(),
        x: Axis::log("rows"),
        y: Axis::doubling("lanes"),
        lines,
    };
    figure(out, STREAMS, &chart.svg(Form::Page), "The number with the least time, host to host.");
    out.push_str("</div>\n");

    let head = [
        "rows",
        "device",
        "T1 comp ms",
        "T1 D2H ms",
        "T3 H2D ms",
        "T3 comp ms",
        "sum ms",
        "√(sum/τ)",
        "best lanes",
        "gain",
        "residual",
    ];
    let mut table = Table::new(out, &head);
    let mut sizes: Vec<usize> = STAGES.iter().map(|s| s.n).collect();
    sizes.extend(one.iter().filter_map(|(_, m)| m.number("n")).map(|n| n as usize));
    sizes.sort_unstable();
    sizes.dedup();
    let ms = |v: f64| format!("{v:.4}");
    for n in sizes {
        if let Some(s) = STAGES.iter().find(|s| s.n == n) {
            table.row("published");
            table.plain(&super::super::grouped(n as u64));
            table.text("2024: RTX 2080 Ti");
            for v in [s.stages.comp_1, s.stages.d2h_1, s.stages.h2d_3, s.stages.comp_3, s.sum] {
                table.plain(&v.to_string());
            }
            table.plain(&s.gomez_luna.to_string());
            let best = TABLE.iter().find(|b| b.n == n);
            table.plain(&best.map_or("–".to_owned(), |b| b.measured.to_string()));
            table.plain("–");
            table.plain("–");
            table.end_row();
        }
        for (index, m) in one.iter().filter(|(_, m)| m.number("n") == Some(n as f64)) {
            table.row("");
            table.number(*index, m, "n", |v| super::super::grouped(v as u64));
            table.text(&m.device);
            for key in
                ["stages_ms.comp_1", "stages_ms.d2h_1", "stages_ms.h2d_3", "stages_ms.comp_3", "sum_ms"]
            {
                table.number(*index, m, key, ms);
            }
            table.number(*index, m, "gomez_luna", |v| format!("{v:.1}"));
            table.number(*index, m, "lanes_best", |v| v.to_string());
            let best = own
                .iter()
                .filter(|(_, o)| o.device == m.device && o.number("n") == m.number("n"))
                .map(|(_, o)| o.seconds())
                .fold(f64::INFINITY, f64::min);
            table.plain(&format!("{:.2} ×", m.seconds() / best));
            table.number(*index, m, "relative_error", error);
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
