//! `kolmo bench transfer`.

use std::io::Write;

use clap::Args;

use crate::cli::arguments::{Common, Size, whole};
use crate::cli::outcome::Outcome;
use crate::cli::output::write_report;
use crate::cli::planning::estimate;
use crate::cli::planning::lanes::LaneSets;
use crate::cli::terminal::interrupt;
use crate::report::{bytes, seconds};
use kolmo::output::OutputFile;
use kolmo::ranks::Ranks;
use kolmo::tridiagonal::lane_count::LANE_COUNTS;
use kolmo::{Error, Result};
use kolmo_bench::{self as bench, Record};

#[derive(Debug, Args)]
pub(crate) struct Transfer {
    /// Bytes moved one way, shared by the lanes, at least 4KiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    size: Size,
    /// Number of measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    repeat: usize,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Bytes of the pilot transfer from which the run time is predicted.
const PILOT: u64 = 16 << 20;

pub(crate) fn run(args: &Transfer, ranks: Ranks) -> Result<Outcome> {
    if args.repeat == 0 {
        return Err(Error::Invalid("--repeat 0 measures nothing; give 1 or more".to_owned()));
    }
    if args.size.0 < 4096 {
        return Err(Error::Invalid(format!(
            "--size {} B is too little to time; give 4KiB or more",
            args.size.0
        )));
    }
    if ranks.is_distributed() {
        return between_ranks(args, ranks);
    }
    let report = args.common.report.as_deref().map(OutputFile::create).transpose()?;
    let counts = match args.common.lanes.0 {
        Some(lanes) => vec![lanes],
        None => LANE_COUNTS.to_vec(),
    };
    let mut devices: Vec<Vec<Record>> = Vec::new();
    for spec in &args.common.device.0 {
        let lanes = LaneSets::open(&args.common, spec, &counts)?;
        let mut records = Vec::new();
        if !args.common.quiet {
            let one = &lanes.sets[0];
            let few = args.size.0.min(PILOT);
            let pilot = bench::transfer(one, few, 1, false)?;
            let once: f64 = pilot.iter().map(|record| record.seconds.median).sum();
            // Each measurement has one warm-up transfer.
            let rounds =
                (lanes.sets.len() * bench::kinds_of_memory(&one.lanes[0]).len() * (args.repeat + 1)) as f64;
            let what = format!("{} on {}, {} numbers of lanes", bytes(args.size.0), spec, lanes.sets.len());
            let time = rounds * once * args.size.0 as f64 / few as f64;
            // Two arrays on the host and two on the device.
            estimate::forecast(&args.common, what, time, 4 * args.size.0);
        }
        for set in &lanes.sets {
            interrupt::check()?;
            for &locked in bench::kinds_of_memory(&set.lanes[0]) {
                records.extend(bench::transfer(set, args.size.0, args.repeat, locked)?);
            }
        }
        devices.push(records);
    }
    write_report(report, devices.iter().flatten().map(|record| serde_json::json!(record)))?;
    let mut out = OutputFile::stdout();
    writeln!(out, "{}", table(&devices)).map_err(|e| out.error(e))?;
    out.commit()?;
    Ok(Outcome::Met)
}

/// Message sizes of exchanges between ranks, in bytes.
const EXCHANGES: [u64; 8] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20];

/// Measures transfers between neighbouring ranks. Collective.
fn between_ranks(args: &Transfer, ranks: Ranks) -> Result<Outcome> {
    let report = args.common.report.as_deref().filter(|_| ranks.is_root());
    let report = ranks.all_ok(report.map(OutputFile::create).transpose())?;
    let mut records = Vec::new();
    for bytes in EXCHANGES.into_iter().filter(|&bytes| bytes <= args.size.0) {
        ranks.all_ok(interrupt::check())?;
        records.extend(bench::between_ranks(ranks, bytes, args.repeat)?);
    }
    write_report(report, records.iter().map(|record| serde_json::json!(record)))?;
    if !ranks.is_root() {
        return Ok(Outcome::Met);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(["case", "ranks", "bytes", "median", "least", "GB/s", "a copy"]);
    let mut notes = String::new();
    for case in bench::BETWEEN_RANKS {
        let of_case: Vec<&Record> = records.iter().filter(|r| r.case == case).collect();
        for r in &of_case {
            table.add_row([
                r.case.clone(),
                ranks.size().to_string(),
                bytes(r.bytes),
                seconds(r.seconds.median),
                seconds(r.seconds.min),
                format!("{:.2}", r.gb_per_s),
                format!("{:.1}", r.copy_gb_per_s),
            ]);
        }
        match (of_case.first(), of_case.last()) {
            (Some(few), Some(many)) if many.bytes > few.bytes => {
                let rate = (many.bytes - few.bytes) as f64 / (many.seconds.median - few.seconds.median);
                notes += &format!(
                    "{case}: {} and {:.2} GB/s to each neighbour\n",
                    seconds(few.seconds.median),
                    rate / 1e9
                );
            }
            (None, _) => notes += &format!("{case}: not all neighbours have a host in common\n"),
            _ => {}
        }
    }
    let mut out = OutputFile::stdout();
    write!(out, "{table}\n{notes}").map_err(|e| out.error(e))?;
    out.commit()?;
    Ok(Outcome::Met)
}

fn locked(record: &Record) -> bool {
    record.more.as_ref().is_some_and(|more| more["locked"] == true)
}

fn table(devices: &[Vec<Record>]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header(["case", "memory", "device", "lanes", "bytes", "median", "least", "GB/s", "speed"]);
    for (case, records) in devices.iter().flat_map(|records| bench::TRANSFERS.map(|case| (case, records))) {
        let of_case: Vec<&Record> = records.iter().filter(|r| r.case == case).collect();
        for r in &of_case {
            table.add_row([
                r.case.clone(),
                if locked(r) { "page-locked" } else { "pageable" }.to_owned(),
                format!("{} ({})", r.device, r.backend),
                r.lanes.to_string(),
                bytes(r.bytes),
                seconds(r.seconds.median),
                seconds(r.seconds.min),
                format!("{:.1}", r.gb_per_s),
                // Relative to the smallest number of lanes on this device.
                format!("{:.2} x", of_case[0].seconds.median / r.seconds.median),
            ]);
        }
    }
    table
}
