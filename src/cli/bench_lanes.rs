//! The lanes of `kolmo bench tridiagonal`: each number of them measured, predicted, and the best.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::{Common, Outcome, tridiagonal};
use crate::bench::{Record, Spread, bandwidth, system_lane_times};
use crate::io::output::OutputFile;
use crate::lane::DeviceSpec;
use crate::report::seconds;
use crate::tridiagonal::System;
use crate::tridiagonal::lane_count::measure::Effort;
use crate::tridiagonal::lane_count::published::BEST_GAIN;
use crate::tridiagonal::lane_count::store::{self, Found, Key};
use crate::tridiagonal::lane_count::{LANE_COUNTS, LaneTime, untuned};
use crate::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Tridiagonal {
    /// A file (.npz, .csv, .mtx) or a built-in: random:N, toeplitz:N,DL,D,DU, laplace:N
    #[arg(default_value = "random:1000000")]
    system: String,
    /// Seed of a built-in's random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10)]
    repeat: usize,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Tridiagonal) -> Result<Outcome> {
    if args.repeat == 0 {
        return Err(Error::Invalid("--repeat 0 measures nothing; give 1 or more".to_owned()));
    }
    let mut report = args.common.report.as_deref().map(OutputFile::create).transpose()?;
    let (name, file) = tridiagonal::system(&args.system, false, None, args.seed)?;
    let mut all = Vec::new();
    let mut out = OutputFile::stdout();
    for spec in &args.common.device.0 {
        super::interrupt::check()?;
        let some = records(&args.common, spec, &name, &file.system, args.repeat)?;
        write!(out, "{}", table(&some)).map_err(|e| out.error(e))?;
        all.extend(some);
    }
    if let Some(mut file) = report.take() {
        for record in &all {
            writeln!(file, "{}", serde_json::json!(record)).map_err(|e| file.error(e))?;
        }
        file.commit()?;
    }
    out.commit()?;
    Ok(Outcome::Met)
}

/// Host-to-host solutions on some lanes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LaneRecord {
    #[serde(flatten)]
    record: Record,
    rows_per_s: f64,
    /// Always false: everything goes from the host to the host.
    resident: bool,
    /// Time over that of one lane, inverted.
    gain: f64,
    /// The number with the least time.
    lanes_best: usize,
    /// The number that `--lanes auto` takes.
    lanes_predicted: usize,
    /// What `kolmo tune` predicts for this number, if it was run.
    predicted_seconds: Option<f64>,
}

/// Measures `system` on one device, on each number of lanes up to 32.
pub(super) fn records(
    common: &Common,
    spec: &DeviceSpec,
    case: &str,
    system: &System,
    repeat: usize,
) -> Result<Vec<LaneRecord>> {
    if common.lanes.0.is_some() {
        return Err(Error::Invalid(
            "--lanes N: the lanes of this benchmark are 1, 2, 4, … 32; leave --lanes out".to_owned(),
        ));
    }
    let most = LANE_COUNTS[LANE_COUNTS.len() - 1];
    let (lanes, precision) = common.open_lanes(std::slice::from_ref(spec), most)?;
    let device = lanes[0].device();
    let copy = bandwidth(&lanes[..1], 3)?;
    let rows = system.rows();
    let tuned = match store::folder() {
        Some(folder) => store::load(&folder, &Key::new(device, precision)),
        None => Found::Absent,
    };
    let tuned = match &tuned {
        Found::Tuned(tuned) => Some(&**tuned),
        _ => None,
    };
    let effort = Effort { least: repeat, most: repeat, ..Effort::default() };
    let (runs, residual) = system_lane_times(&lanes, precision, system, &LANE_COUNTS, effort)?;
    let best = runs.iter().min_by(|a, b| a.median.total_cmp(&b.median)).map_or(1, |run| run.lanes);
    let predicted = tuned.map_or_else(|| untuned(device.backend, device.software, rows), |t| t.lanes(rows));
    // dl, d, du and b there, x back.
    let bytes = 5 * precision.bytes() * rows as u64;
    let record = |run: &LaneTime| {
        let time = Spread { min: 1e-3 * run.min, median: 1e-3 * run.median };
        LaneRecord {
            record: Record {
                bench: "tridiagonal",
                case: case.to_owned(),
                device: device.name.clone(),
                backend: device.backend,
                precision: precision.to_string(),
                n: system.n,
                nnz: (3 * rows - 2 * system.batch) as u64,
                format: "tridiagonal".to_owned(),
                lanes: run.lanes,
                accumulate: None,
                bytes,
                bytes_moved: bytes,
                seconds: time,
                gb_per_s: bytes as f64 / time.median / 1e9,
                copy_gb_per_s: copy,
                relative_error: residual,
                repetitions: repeat,
                terms: None,
                together: None,
                steps_per_s: None,
                more: None,
            },
            rows_per_s: rows as f64 / time.median,
            resident: false,
            gain: runs[0].median / run.median,
            lanes_best: best,
            lanes_predicted: predicted,
            predicted_seconds: tuned
                .and_then(|t| t.choice.time(&t.sizes, rows, run.lanes))
                .map(|ms| 1e-3 * ms),
        }
    };
    Ok(runs.iter().map(record).collect())
}

/// The records of one device as a table.
pub(super) fn table(records: &[LaneRecord]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "case",
        "device",
        "lanes",
        "median",
        "least",
        "predicted",
        "Mrow/s",
        "GB/s",
        "gain",
        "residual",
        "",
    ]);
    for r in records {
        let LaneRecord { record, .. } = r;
        let mut marks = Vec::new();
        if record.lanes == r.lanes_best {
            marks.push("best");
        }
        if record.lanes == r.lanes_predicted {
            marks.push("auto");
        }
        table.add_row([
            record.case.clone(),
            format!("{} ({}, {})", record.device, record.backend, record.precision),
            record.lanes.to_string(),
            seconds(record.seconds.median),
            seconds(record.seconds.min),
            r.predicted_seconds.map_or("-".to_owned(), seconds),
            format!("{:.1}", 1e-6 * r.rows_per_s),
            format!("{:.1}", record.gb_per_s),
            format!("{:.2} x", r.gain),
            format!("{:.1e}", record.relative_error),
            marks.join(", "),
        ]);
    }
    let gain = records.iter().map(|r| r.gain).fold(1.0, f64::max);
    format!(
        "{table}\nlargest gain over one lane {gain:.2} x (Veneva, Imamura 2024, RTX 2080 Ti, n = 8e7 and 1e8: \
         {BEST_GAIN:.2} x)\n"
    )
}
