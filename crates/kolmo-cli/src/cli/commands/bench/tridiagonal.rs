//! `kolmo bench tridiagonal`: solutions on the device, and from host to host.

use serde::Serialize;

use super::finish;
use crate::cli::arguments::{List, expect_some};
use crate::cli::commands::tridiagonal;
use crate::cli::planning::lanes::LaneSets;
use crate::cli::planning::tuning_store;
use crate::cli::prelude::*;
use kolmo::bench::{HostTimes, Record, Spread, banded_times, bandwidth, resident_times, system_lane_times};
use kolmo::io::tridiagonal::AnyFile;
use kolmo::lane::Device;
use kolmo::settings::Tuned;
use kolmo::tridiagonal::lane_count::measure::Effort;
use kolmo::tridiagonal::lane_count::{BEST_GAIN, LANE_COUNTS, LaneTime, choice, untuned};
use kolmo::tridiagonal::{BandedSystem, Form, System};

#[derive(Debug, Args)]
pub(crate) struct SystemBench {
    /// System: a file (.npz, .csv, .mtx) or a built-in (random:1e6)
    ///
    /// Built-ins: random:N, toeplitz:N,DL,D,DU, laplace:N, pentadiagonal:N, biharmonic:N, blocks:N.
    /// Each may be followed by ,BATCH, the number of systems.
    #[arg(default_value = "random:1000000")]
    pub(crate) system: String,
    /// Seed of the random numbers of a built-in system
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// Number of right-hand sides of each system, solved together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<usize>)]
    rhs: usize,
    /// Number of measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    repeat: usize,
    /// Largest number of lanes to measure; the numbers are 1, 2, 4, 8, 16, 32
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = whole::<usize>)]
    max_lanes: usize,
    /// Cases to measure: resident, host, pageable, comma-separated
    ///
    /// resident: rows and unknowns stay on the device. host: from host to host, in page-locked
    /// memory where the device supports it. pageable: from host to host in ordinary memory.
    #[arg(long, value_name = "LIST", default_value = "resident,host,pageable", value_parser = parts)]
    measure: List<ArrayPlace>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Place of the arrays in a measured case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayPlace {
    /// Rows and unknowns stay on the device.
    Resident,
    /// Host to host, in page-locked memory where the device supports it.
    Host,
    /// Host to host in pageable memory, if `Host` uses page-locked memory.
    Pageable,
}

fn parts(list: &str) -> Result<List<ArrayPlace>, String> {
    let one = |name: &str| match name.trim() {
        "resident" => Ok(ArrayPlace::Resident),
        "host" => Ok(ArrayPlace::Host),
        "pageable" => Ok(ArrayPlace::Pageable),
        other => Err(format!("'{other}' is not measured; give some of resident, host, pageable")),
    };
    list.split(',').map(one).collect()
}

pub(crate) fn run(args: &SystemBench) -> Result<Status> {
    let common = &args.common;
    expect_some("--repeat", args.repeat as u64)?;
    expect(args.rhs > 0, "--rhs 0 leaves nothing to solve; give 1 or more")?;
    let why = "the lanes of this benchmark are 1, 2, 4, … 32: give --max-lanes, 1 or more, to stop earlier, and leave \
               --lanes out";
    expect(common.lanes.is_none() && args.max_lanes > 0, why)?;
    let report = common.report_file(Ranks::ALONE)?;
    let (mut name, mut file) = tridiagonal::system(&args.system, false, false, None, args.seed)?;
    if let AnyFile::Tridiagonal(file) = &mut file
        && args.rhs > 1
    {
        name += &format!(", {} right-hand sides", args.rhs);
        let first = file.system.b.swap_remove(0);
        // Right-hand sides of different sizes, so that swapped ones would show.
        let sized = |k: usize| first.iter().map(|b| b / (1 << (k % 8)) as f64).collect();
        file.system.b = (0..args.rhs).map(sized).collect();
    }
    let (mut all, mut tables) = (Vec::new(), String::new());
    for spec in &common.device {
        let some = match &file {
            AnyFile::Tridiagonal(file) => records(args, spec, &name, &file.system)?,
            AnyFile::Banded(file) => banded(args, spec, &name, &file.system)?,
        };
        tables += &table(&some);
        all.extend(some);
    }
    finish(report, &all, tables)
}

/// Measurement of one kind of solution.
#[derive(Debug, Clone, Serialize)]
struct SystemRecord {
    #[serde(flatten)]
    record: Record,
    rows_per_s: f64,
    /// True if rows and unknowns stay on the device.
    resident: bool,
    /// True if one pass over the rows was sufficient.
    one_pass: bool,
    /// True if the rows are in page-locked host memory.
    locked: bool,
    /// Additional bytes on the device, relative to those of dl, d, du, b and x.
    extra_memory: f64,
    #[serde(flatten)]
    lanes: Option<OfLanes>,
}

impl SystemRecord {
    /// Returns a record of solutions of `rows` rows with all data on the device.
    fn new(record: Record, rows: usize, one_pass: bool, extra_memory: f64) -> Self {
        Self {
            rows_per_s: rows as f64 / record.seconds.median,
            record,
            resident: true,
            one_pass,
            locked: false,
            extra_memory,
            lanes: None,
        }
    }
}

/// Effect of the number of lanes on a solution from host to host.
#[derive(Debug, Clone, Copy, Serialize)]
struct OfLanes {
    /// Time of one lane divided by the time of this number of lanes.
    gain: f64,
    /// Number of lanes with the shortest time.
    lanes_best: usize,
    /// Number of lanes that `--lanes auto` takes.
    lanes_predicted: usize,
    /// Seconds predicted from measurements of `kolmo tune`, if it has been run.
    predicted_seconds: Option<f64>,
}

/// Data common to all records of a device.
struct RecordBase<'a> {
    name: &'a str,
    system: &'a System,
    device: &'a Device,
    precision: Precision,
    /// GB/s of a copy on the device.
    copy: f64,
    repeat: usize,
    /// Measurements of the device stored by `kolmo tune`.
    tuned: Option<&'a Tuned>,
}

impl RecordBase<'_> {
    fn record(&self, time: Spread, residual: f64, extra_memory: f64) -> SystemRecord {
        let System { n, batch, b, .. } = self.system;
        let (rows, shape) = (b.len() * self.system.rows(), (*n, *batch, b.len()));
        let name = self.name.to_owned();
        let record = Record {
            // The second stage reads dl, d, du and b again.
            bytes_moved: 9 * self.precision.bytes() * rows as u64,
            copy_gb_per_s: self.copy,
            repetitions: self.repeat,
            ..Record::tridiagonal(name, self.device, self.precision, shape, time, residual)
        };
        SystemRecord::new(record, rows, false, extra_memory)
    }

    /// Returns the records of solutions from host to host.
    fn host(&self, times: &HostTimes) -> Vec<SystemRecord> {
        let rows = self.system.rows();
        let tuned = self.tuned;
        let one_lane = times.runs[0].median;
        let best = times.runs.iter().min_by(|a, b| a.median.total_cmp(&b.median)).map_or(1, |run| run.lanes);
        let (host, queued) = (self.device.on_host_cores(), self.device.queued_copies);
        let predicted = tuned.map_or_else(|| untuned(host, queued, rows), |t| t.lanes(rows));
        let record = |run: &LaneTime| {
            let mut record = self.record(Spread::from(run), times.residual, times.extra_memory);
            (record.resident, record.locked, record.record.lanes) = (false, times.locked, run.lanes);
            record.record.bytes_moved = record.record.bytes;
            let predicted_ms = tuned.and_then(|t| choice::time(&t.sizes, rows, run.lanes));
            record.lanes = Some(OfLanes {
                gain: one_lane / run.median,
                lanes_best: best,
                lanes_predicted: predicted,
                predicted_seconds: predicted_ms.map(|ms| 1e-3 * ms),
            });
            record
        };
        times.runs.iter().map(record).collect()
    }
}

fn records(args: &SystemBench, spec: &DeviceSpec, name: &str, system: &System) -> Result<Vec<SystemRecord>> {
    let counts: Vec<usize> = LANE_COUNTS.into_iter().filter(|&count| count <= args.max_lanes).collect();
    let measured = |part| args.measure.contains(&part);
    let LaneSets { sets, .. } = LaneSets::open(&args.common, spec, &counts)?;
    let (one, precision, first) = (&sets[0], sets[0].precision, &sets[0].lanes[0]);
    let device = first.device().clone();
    let copy = bandwidth(&one.lanes, 3)?;
    let tuned = tuning_store::of(&device, precision, args.common.quiet);
    let tuned = tuned.as_deref();
    let case = RecordBase { name, system, device: &device, precision, copy, repeat: args.repeat, tuned };
    let mut all = Vec::new();
    if measured(ArrayPlace::Resident) {
        interrupt::check()?;
        match resident_times(one, system, args.repeat) {
            Ok(t) => {
                let mut record = case.record(t.seconds, t.residual, t.extra_memory);
                record.one_pass = t.one_pass;
                if t.one_pass {
                    record.record.bytes_moved = record.record.bytes;
                }
                all.push(record);
            }
            // A system too large for one lane can still be streamed through it.
            Err(Error::Invalid(_, why)) => say(why),
            Err(e) => return Err(e),
        }
    }
    let effort = Effort { least: args.repeat, most: args.repeat, ..Effort::default() };
    let locks = first.device().queued_copies;
    for (part, pageable) in [(ArrayPlace::Host, false), (ArrayPlace::Pageable, true)] {
        interrupt::check()?;
        if measured(part) && (!pageable || locks) {
            all.extend(case.host(&system_lane_times(&sets, system, pageable, effort)?));
        }
    }
    Ok(all)
}

/// Measures a pentadiagonal or block tridiagonal system on one lane of a device.
fn banded(
    args: &SystemBench,
    spec: &DeviceSpec,
    name: &str,
    system: &BandedSystem,
) -> Result<Vec<SystemRecord>> {
    expect(args.rhs == 1, format_args!("--rhs {}: {name} is measured with one; leave it out", args.rhs))?;
    let LaneSets { sets, .. } = LaneSets::open(&args.common, spec, &[1])?;
    let (one, device) = (&sets[0], sets[0].lanes[0].device().clone());
    let copy = bandwidth(&one.lanes, 3)?;
    let numbers = (system.form().width() * system.arrays().len() + 2) as u64;
    let bytes = numbers * one.precision.bytes() * system.rows() as u64;
    let record = |time: Spread, residual: f64, extra_memory: f64| {
        let shape = (system.n(), system.batch(), 1);
        let record = Record {
            nnz: system.arrays().iter().flatten().filter(|v| **v != 0.0).count() as u64,
            format: if system.form() == Form::Blocks { "blocks" } else { "pentadiagonal" }.to_owned(),
            copy_gb_per_s: copy,
            repetitions: args.repeat,
            ..Record::tridiagonal(name.to_owned(), &device, one.precision, shape, time, residual)
        };
        SystemRecord::new(record.moving(bytes, bytes), system.rows(), true, extra_memory)
    };
    let mut all = Vec::new();
    let measured = |part| args.measure.contains(&part);
    let resident = [ArrayPlace::Resident, ArrayPlace::Host].map(measured);
    if resident != [false; 2] {
        let times = banded_times(one, system, args.repeat)?;
        let own = times.resident;
        let both = [(own.seconds, true), (times.host, false)];
        for ((time, resident), _) in both.into_iter().zip(resident).filter(|(_, measured)| *measured) {
            all.push(SystemRecord { resident, ..record(time, own.residual, own.extra_memory) });
        }
    }
    Ok(all)
}

fn table(records: &[SystemRecord]) -> String {
    let table = report::table(
        records,
        &[
            ("case", &|r| r.record.case.clone()),
            ("device", &|SystemRecord { record: r, .. }| {
                format!("{} ({}, {})", r.device, r.backend, r.precision)
            }),
            ("what", &|r| {
                let what = match r.resident {
                    true if r.one_pass => "resident, one pass",
                    true => "resident",
                    false if r.locked => "host, page-locked",
                    false => "host",
                };
                what.to_owned()
            }),
            ("lanes", &|r| r.record.lanes.to_string()),
            ("median", &|r| seconds(r.record.seconds.median)),
            ("least", &|r| seconds(r.record.seconds.min)),
            ("predicted", &|r| r.lanes.and_then(|of| of.predicted_seconds).map_or("-".to_owned(), seconds)),
            ("Mrow/s", &|r| format!("{:.1}", 1e-6 * r.rows_per_s)),
            ("GB/s", &|r| format!("{:.1}", r.record.gb_per_s)),
            ("gain", &|r| r.lanes.map_or("-".to_owned(), |of| format!("{:.2} x", of.gain))),
            ("memory", &|r| format!("+{:.1} %", 100.0 * r.extra_memory)),
            ("residual", &|r| format!("{:.1e}", r.record.relative_error)),
            ("", &|r| {
                let is =
                    |lanes: fn(&OfLanes) -> usize| r.lanes.is_some_and(|of| lanes(&of) == r.record.lanes);
                let marks = [(is(|of| of.lanes_best), "best"), (is(|of| of.lanes_predicted), "auto")];
                marks.iter().filter(|mark| mark.0).map(|mark| mark.1).collect::<Vec<_>>().join(", ")
            }),
        ],
    );
    let mut text = format!("{table}\n");
    if let Some(gain) = records.iter().filter_map(|r| r.lanes).map(|of| of.gain).reduce(f64::max) {
        text += &format!(
            "largest gain over one lane {gain:.2} x (Veneva, Imamura 2024, RTX 2080 Ti, n = 8e7 and 1e8: \
             {BEST_GAIN:.2} x)\n"
        );
    }
    text
}
