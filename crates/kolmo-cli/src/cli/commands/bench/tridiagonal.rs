//! `kolmo bench tridiagonal`: solutions on the device, from host to host, and by other libraries.

use std::io::Write;
use std::str::FromStr;

use clap::Args;
use serde::Serialize;

use crate::cli::arguments::{Common, whole};
use crate::cli::commands::{tridiagonal, tune};
use crate::cli::outcome::Outcome;
use crate::cli::output::write_report;
use crate::cli::planning::lanes::LaneSets;
use crate::cli::planning::{estimate, tuning_store};
use crate::cli::terminal::{interrupt, say};
use crate::report::seconds;
use kolmo::io::tridiagonal::{AnyFile, BandedFile};
use kolmo::lane::{Device, DeviceSpec};
use kolmo::output::OutputFile;
use kolmo::settings::Tuned;
use kolmo::tridiagonal::lane_count::measure::Effort;
use kolmo::tridiagonal::lane_count::published::BEST_GAIN;
use kolmo::tridiagonal::lane_count::{LANE_COUNTS, LaneTime, untuned};
use kolmo::tridiagonal::{BandedSystem, Form, System};
use kolmo::{Error, Result};
use kolmo_bench::{
    HostTimes, Record, Spread, banded_times, bandwidth, kinds_of_memory, resident_times, system_lane_times,
};

#[derive(Debug, Args)]
pub(crate) struct Tridiagonal {
    /// System: a file (.npz, .csv, .mtx) or a built-in (random:1e6)
    ///
    /// Built-ins: random:N, toeplitz:N,DL,D,DU, laplace:N, pentadiagonal:N, biharmonic:N, blocks:N.
    /// Each may be followed by ,BATCH, the number of systems.
    #[arg(default_value = "random:1000000")]
    pub(crate) system: String,
    /// Seed of the random numbers of a built-in
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
    /// Cases to measure: resident, host, pageable, peers, comma-separated
    ///
    /// resident: rows and unknowns stay on the device. host: from host to host, in page-locked
    /// memory where the device supports it. pageable: from host to host in ordinary memory. peers:
    /// LAPACK and cuSPARSE, in builds with the feature `peers`.
    #[arg(long, value_name = "LIST", default_value = "resident,host,pageable,peers")]
    measure: Parts,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// A case to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Rows and unknowns stay on the device.
    Resident,
    /// Host to host, in page-locked memory where the device supports it.
    Host,
    /// Host to host in pageable memory, if `Host` uses page-locked memory.
    Pageable,
    /// Routines of LAPACK and cuSPARSE.
    Peers,
}

#[derive(Debug, Clone)]
struct Parts(Vec<Part>);

impl FromStr for Parts {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        let one = |name: &str| match name.trim() {
            "resident" => Ok(Part::Resident),
            "host" => Ok(Part::Host),
            "pageable" => Ok(Part::Pageable),
            "peers" => Ok(Part::Peers),
            other => Err(Error::Invalid(format!(
                "'{other}' is not measured; give some of resident, host, pageable, peers"
            ))),
        };
        s.split(',').map(one).collect::<Result<_>>().map(Self)
    }
}

pub(crate) fn run(args: &Tridiagonal) -> Result<Outcome> {
    if args.repeat == 0 {
        return Err(Error::Invalid("--repeat 0 measures nothing; give 1 or more".to_owned()));
    }
    if args.rhs == 0 {
        return Err(Error::Invalid("--rhs 0 leaves nothing to solve; give 1 or more".to_owned()));
    }
    if args.common.lanes.0.is_some() || args.max_lanes == 0 {
        return Err(Error::Invalid(
            "the lanes of this benchmark are 1, 2, 4, … 32: give --max-lanes, 1 or more, to stop earlier, and leave \
             --lanes out"
                .to_owned(),
        ));
    }
    let report = args.common.report.as_deref().map(OutputFile::create).transpose()?;
    let (mut name, mut file) = match tridiagonal::system(&args.system, false, false, None, args.seed)? {
        (name, AnyFile::Tridiagonal(file)) => (name, file),
        (name, AnyFile::Banded(BandedFile { system, .. })) => {
            let all = args.common.device.0.iter().map(|spec| banded(args, spec, &name, &system));
            return told(report, all);
        }
    };
    if args.rhs > 1 {
        name += &format!(", {} right-hand sides", args.rhs);
        let first = file.system.b.swap_remove(0);
        // Right-hand sides of different sizes, so that swapped ones would show.
        let sized = |k: usize| first.iter().map(|b| b / (1 << (k % 8)) as f64).collect();
        file.system.b = (0..args.rhs).map(sized).collect();
    }
    let all = args.common.device.0.iter().map(|spec| records(args, spec, &name, &file.system));
    told(report, all)
}

/// Prints the records of each device and writes the report.
fn told(
    report: Option<OutputFile>,
    devices: impl Iterator<Item = Result<Vec<SystemRecord>>>,
) -> Result<Outcome> {
    let mut all = Vec::new();
    let mut out = OutputFile::stdout();
    for some in devices {
        let some = some?;
        write!(out, "{}", table(&some)).map_err(|e| out.error(e))?;
        all.extend(some);
    }
    write_report(report, all.iter().map(|record| serde_json::json!(record)))?;
    out.commit()?;
    Ok(Outcome::Met)
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
    /// Routine of another library; `None` for kolmo.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'static str>,
    /// Library of the routine.
    #[serde(skip_serializing_if = "Option::is_none")]
    library: Option<String>,
    #[serde(flatten)]
    lanes: Option<OfLanes>,
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
    /// Seconds predicted by the models of `kolmo tune`, if it has been run.
    predicted_seconds: Option<f64>,
}

/// Data common to all records of a device.
struct Case<'a> {
    name: &'a str,
    system: &'a System,
    device: &'a Device,
    precision: kolmo::kernel::Precision,
    /// GB/s of a copy on the device.
    copy: f64,
    repeat: usize,
    /// Measurements of the device stored by `kolmo tune`.
    tuned: Option<&'a Tuned>,
}

impl Case<'_> {
    fn record(&self, time: Spread, residual: f64, extra_memory: f64) -> SystemRecord {
        let System { n, batch, b, .. } = self.system;
        let (rows, shape) = (b.len() * self.system.rows(), (*n, *batch, b.len()));
        SystemRecord {
            record: Record {
                // The second stage reads dl, d, du and b again.
                bytes_moved: 9 * self.precision.bytes() * rows as u64,
                copy_gb_per_s: self.copy,
                repetitions: self.repeat,
                ..Record::tridiagonal(
                    self.name.to_owned(),
                    self.device,
                    self.precision,
                    shape,
                    time,
                    residual,
                )
            },
            rows_per_s: rows as f64 / time.median,
            resident: true,
            one_pass: false,
            locked: false,
            extra_memory,
            peer: None,
            library: None,
            lanes: None,
        }
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
            let time = Spread { min: 1e-3 * run.min, median: 1e-3 * run.median };
            let mut record = self.record(time, times.residual, times.extra_memory);
            (record.resident, record.locked, record.record.lanes) = (false, times.locked, run.lanes);
            record.record.bytes_moved = record.record.bytes;
            record.lanes = Some(OfLanes {
                gain: one_lane / run.median,
                lanes_best: best,
                lanes_predicted: predicted,
                predicted_seconds: tuned
                    .and_then(|t| t.choice.time(&t.sizes, rows, run.lanes))
                    .map(|ms| 1e-3 * ms),
            });
            record
        };
        times.runs.iter().map(record).collect()
    }
}

/// Measures `system` on one device.
fn records(args: &Tridiagonal, spec: &DeviceSpec, name: &str, system: &System) -> Result<Vec<SystemRecord>> {
    let counts: Vec<usize> = LANE_COUNTS.into_iter().filter(|&count| count <= args.max_lanes).collect();
    let measured = |part| args.measure.0.contains(&part);
    let LaneSets { sets, .. } = LaneSets::open(&args.common, spec, &counts)?;
    let (one, precision, first) = (&sets[0], sets[0].precision, &sets[0].lanes[0]);
    let device = first.device().clone();
    let copy = bandwidth(&one.lanes, 3)?;
    let tuned = tuning_store::of(&device, precision, args.common.quiet);
    let tuned = tuned.as_deref();
    if !args.common.quiet {
        let kinds = [Part::Host, Part::Pageable].map(measured).into_iter().filter(|&wanted| wanted).count();
        let visits = usize::from(measured(Part::Resident)) + kinds * sets.len();
        // Each visit has one warm-up solution.
        let solutions = (visits * (args.repeat + 1)) as f64;
        let rows = system.rows();
        let time = solutions * rows as f64 * tune::seconds_a_row(&sets, rows)?;
        let what = format!("{name} on {}", device.spec);
        estimate::forecast(&args.common, what, time, tune::system_bytes(one, rows));
    }
    let case = Case { name, system, device: &device, precision, copy, repeat: args.repeat, tuned };
    let mut all = Vec::new();
    if measured(Part::Resident) {
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
            Err(Error::Invalid(why)) => say(why),
            Err(e) => return Err(e),
        }
    }
    let effort = Effort { least: args.repeat, most: args.repeat, ..Effort::default() };
    let locks = kinds_of_memory(first).contains(&true);
    for (part, pageable) in [(Part::Host, false), (Part::Pageable, true)] {
        interrupt::check()?;
        if measured(part) && (!pageable || locks) {
            all.extend(case.host(&system_lane_times(&sets, system, pageable, effort)?));
        }
    }
    if measured(Part::Peers) {
        interrupt::check()?;
        all.extend(peers(&case, spec));
    }
    Ok(all)
}

/// Measures a pentadiagonal or block tridiagonal system on one lane of a device.
fn banded(
    args: &Tridiagonal,
    spec: &DeviceSpec,
    name: &str,
    system: &BandedSystem,
) -> Result<Vec<SystemRecord>> {
    if args.rhs > 1 {
        return Err(Error::Invalid(format!("--rhs {}: {name} is measured with one; leave it out", args.rhs)));
    }
    let LaneSets { sets, .. } = LaneSets::open(&args.common, spec, &[1])?;
    let (one, device) = (&sets[0], sets[0].lanes[0].device().clone());
    let copy = bandwidth(&one.lanes, 3)?;
    let numbers = (system.form().width() * system.arrays().len() + 2) as u64;
    let bytes = numbers * one.precision.bytes() * system.rows() as u64;
    let record = |time: Spread, residual: f64, extra_memory: f64| {
        let shape = (system.n(), system.batch(), 1);
        let record = Record::tridiagonal(name.to_owned(), &device, one.precision, shape, time, residual);
        SystemRecord {
            record: Record {
                nnz: system.arrays().iter().flatten().filter(|v| **v != 0.0).count() as u64,
                format: if system.form() == Form::Blocks { "blocks" } else { "pentadiagonal" }.to_owned(),
                bytes,
                bytes_moved: bytes,
                gb_per_s: bytes as f64 / time.median / 1e9,
                copy_gb_per_s: copy,
                repetitions: args.repeat,
                ..record
            },
            rows_per_s: system.rows() as f64 / time.median,
            resident: true,
            one_pass: true,
            locked: false,
            extra_memory,
            peer: None,
            library: None,
            lanes: None,
        }
    };
    let mut all = Vec::new();
    let measured = |part| args.measure.0.contains(&part);
    let resident = [Part::Resident, Part::Host].map(measured);
    if resident != [false; 2] {
        let times = banded_times(one, system, args.repeat)?;
        let own = times.resident;
        let both = [(own.seconds, true), (times.host, false)];
        for ((time, resident), _) in both.into_iter().zip(resident).filter(|(_, measured)| *measured) {
            all.push(SystemRecord { resident, ..record(time, own.residual, own.extra_memory) });
        }
    }
    if measured(Part::Peers) {
        interrupt::check()?;
        for (resident, times) in banded_peers(spec, system, args.repeat) {
            match times {
                Ok((name, library, time, extra_memory, residual)) => {
                    let own = record(time, residual, extra_memory);
                    let (peer, library) = (Some(name), Some(library));
                    all.push(SystemRecord { resident, one_pass: false, peer, library, ..own });
                }
                Err(why) => say(why),
            }
        }
    }
    Ok(all)
}

/// Result of a peer: true if on the device; then name, library, times, extra memory, residual.
type BandedPeer = (bool, std::result::Result<(&'static str, String, Spread, f64, f64), String>);

/// Measures LAPACK and cuSPARSE on a pentadiagonal or block tridiagonal system.
#[cfg(feature = "peers")]
fn banded_peers(spec: &DeviceSpec, system: &BandedSystem, repeat: usize) -> Vec<BandedPeer> {
    use kolmo_bench::peers::{PeerTimes, cusparse, lapack};

    let of = |t: PeerTimes| (t.name, t.library, t.seconds, t.extra_memory, t.residual);
    let mut all = vec![(false, lapack::dgbsv(system, repeat.min(3)).map(of))];
    if let DeviceSpec::Cuda(ordinal) = *spec {
        all.push((true, cusparse::gpsv_interleaved(ordinal, system, repeat).map(of)));
    }
    all
}

#[cfg(not(feature = "peers"))]
fn banded_peers(_: &DeviceSpec, _: &BandedSystem, _: usize) -> Vec<BandedPeer> {
    vec![(false, Err("LAPACK and cuSPARSE are measured by builds with the feature 'peers'".to_owned()))]
}

/// Measures LAPACK and cuSPARSE on a tridiagonal system.
#[cfg(feature = "peers")]
fn peers(case: &Case<'_>, spec: &DeviceSpec) -> Vec<SystemRecord> {
    use kolmo_bench::peers::{PeerTimes, cusparse, lapack};

    if case.precision != kolmo::kernel::Precision::F64 {
        say("the peers are measured in f64");
        return Vec::new();
    }
    // Few repetitions: it uses one thread and takes seconds for a large system.
    let few = case.repeat.min(3);
    // LAPACK and cuSPARSE get one system per right-hand side.
    let System { batch, dl, d, du, b, .. } = case.system;
    let system = System::batched(
        b.len() * batch,
        dl.repeat(b.len()),
        d.repeat(b.len()),
        du.repeat(b.len()),
        vec![b.concat()],
    );
    let system = match &system {
        Ok(system) => system,
        Err(e) => {
            say(e);
            return Vec::new();
        }
    };
    let mut all: Vec<(bool, Result<PeerTimes, String>)> = vec![(false, lapack::dgtsv(system, few))];
    if let DeviceSpec::Cuda(ordinal) = *spec {
        // The peer has its own copy of the rows on the device.
        let peer = cusparse::Peer::new(ordinal, system);
        match peer {
            Ok(mut peer) => {
                for &routine in cusparse::Routine::of(system) {
                    all.push((true, peer.times(routine, case.repeat)));
                }
            }
            Err(why) => all.push((true, Err(why))),
        }
    }
    let mut records = Vec::new();
    for (resident, times) in all {
        match times {
            Ok(t) => {
                let mut record = case.record(t.seconds, t.residual, t.extra_memory);
                record.resident = resident;
                (record.peer, record.library) = (Some(t.name), Some(t.library));
                if !resident {
                    (record.record.device, record.record.backend) =
                        ("one thread of the host".to_owned(), "cpu");
                    record.record.repetitions = few;
                }
                records.push(record);
            }
            Err(why) => say(why),
        }
    }
    records
}

#[cfg(not(feature = "peers"))]
fn peers(_: &Case<'_>, _: &DeviceSpec) -> Vec<SystemRecord> {
    say("LAPACK and cuSPARSE are measured by builds with the feature 'peers'");
    Vec::new()
}

/// Table of the records of one device.
fn table(records: &[SystemRecord]) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "case",
        "device",
        "what",
        "lanes",
        "median",
        "least",
        "predicted",
        "Mrow/s",
        "GB/s",
        "gain",
        "memory",
        "residual",
        "",
    ]);
    for r in records {
        let SystemRecord { record, .. } = r;
        let what = match (r.peer, r.resident) {
            (Some(peer), _) => peer,
            (None, true) if r.one_pass => "resident, one pass",
            (None, true) => "resident",
            (None, false) if r.locked => "host, page-locked",
            (None, false) => "host",
        };
        let mut marks = Vec::new();
        if let Some(of) = r.lanes {
            if record.lanes == of.lanes_best {
                marks.push("best");
            }
            if record.lanes == of.lanes_predicted {
                marks.push("auto");
            }
        }
        table.add_row([
            record.case.clone(),
            format!("{} ({}, {})", record.device, record.backend, record.precision),
            what.to_owned(),
            record.lanes.to_string(),
            seconds(record.seconds.median),
            seconds(record.seconds.min),
            r.lanes.and_then(|of| of.predicted_seconds).map_or("-".to_owned(), seconds),
            format!("{:.1}", 1e-6 * r.rows_per_s),
            format!("{:.1}", record.gb_per_s),
            r.lanes.map_or("-".to_owned(), |of| format!("{:.2} x", of.gain)),
            format!("+{:.1} %", 100.0 * r.extra_memory),
            format!("{:.1e}", record.relative_error),
            marks.join(", "),
        ]);
    }
    let mut text = format!("{table}\n");
    if let Some(gain) = records.iter().filter_map(|r| r.lanes).map(|of| of.gain).reduce(f64::max) {
        text += &format!(
            "largest gain over one lane {gain:.2} x (Veneva, Imamura 2024, RTX 2080 Ti, n = 8e7 and 1e8: \
             {BEST_GAIN:.2} x)\n"
        );
    }
    for peer in records.iter().filter(|r| r.peer.is_some()) {
        let ours = records.iter().filter(|r| r.peer.is_none() && r.resident == peer.resident);
        let least = ours.map(|r| r.record.seconds.median).reduce(f64::min);
        if let (Some(name), Some(least)) = (peer.peer, least) {
            let place = if peer.resident { "on the device" } else { "host to host" };
            text += &format!("{:.2} x as fast as {name}, {place}\n", peer.record.seconds.median / least);
        }
    }
    text
}
