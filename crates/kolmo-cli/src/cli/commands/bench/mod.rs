//! `kolmo bench`.

pub(crate) mod tridiagonal;
pub(crate) mod walk;

use std::fmt::Display;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::arguments::{Auto, List, expect_some};
use crate::cli::commands::transient::{self, halo_depth};
use crate::cli::output::write_records;
use crate::cli::prelude::*;
use crate::report::TableColumn;
use kolmo::bench::{self, Record};
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Options, Partitioning};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure one step of uniformization, a sparse matrix-vector product
    ///
    /// Measured with and without the accumulator of a time point, and compared with the bandwidth
    /// of a copy.
    Spmv(Spmv),
    /// Measure the rate of random walks, in steps per second
    Walk(walk::WalkBench),
    /// Measure tridiagonal solutions on the device, and from host to host for each number of lanes
    Tridiagonal(tridiagonal::SystemBench),
}

#[derive(Debug, Args)]
pub(crate) struct Spmv {
    /// Chain, as for `kolmo transient`
    #[arg(default_value = "wlan:60,6")]
    model: String,
    /// Measure all devices together on one chain, instead of one after the other
    #[arg(long)]
    together: bool,
    /// Number of measurements of each case
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    repeat: usize,
    /// Storage of the matrix: auto, hyb, packed, pattern, or all that the chain fits
    #[arg(long, value_name = "F|all", default_value = "auto", value_parser = formats)]
    matrix_format: List<MatrixFormat>,
    /// Steps between two exchanges of lanes that share a chain: auto, or 1 to 64
    #[arg(long, value_name = "N", default_value = "auto", value_parser = halo_depth())]
    halo_depth: Auto<usize>,
    #[command(flatten)]
    common: Common,
}

fn formats(s: &str) -> Result<List<MatrixFormat>> {
    if s == "all" { Ok(MatrixFormat::STORED.to_vec()) } else { s.parse().map(|one| vec![one]) }
}

pub(crate) fn run(command: &Bench, ranks: Ranks) -> Result<Status> {
    match command {
        Bench::Spmv(spmv) => run_spmv(spmv, ranks),
        Bench::Walk(walk) => walk::run(walk),
        Bench::Tridiagonal(tridiagonal) => tridiagonal::run(tridiagonal),
    }
}

fn run_spmv(args: &Spmv, ranks: Ranks) -> Result<Status> {
    expect_some("--repeat", args.repeat as u64)?;
    let report = args.common.report_file(ranks)?;
    let chain = transient::model(&args.model, None, false)?;
    let mut records: Vec<Record> = Vec::new();
    // One device at a time, since they would compete for the host; or all on one chain.
    let each: Vec<&[DeviceSpec]> = match args.together {
        true => vec![&args.common.device],
        false => args.common.device.chunks(1).collect(),
    };
    for specs in each {
        let machine = args.common.open(specs)?;
        interrupt::check()?;
        let _progress = ProgressDisplay::new(args.common.quiet, "measuring");
        kolmo::internals::expect_chain_memory(&machine, chain.transitions.states())?;
        let copy = bench::bandwidth(&machine.lanes, args.repeat)?;
        let split = Partitioning::default().halo_depth(args.halo_depth);
        for &format in &args.matrix_format {
            let options = Options::default().format(format).split(split);
            let measured =
                bench::spmv(&machine, &chain.name, &*chain.transitions, &options, args.repeat, copy);
            match measured {
                Err(Error::Invalid(_, why)) if args.matrix_format.len() > 1 => say(why),
                measured => records.extend(measured?),
            }
        }
    }
    let stored: [TableColumn<'_, Record>; 2] = [
        ("format", &|r| r.format.clone()),
        ("acc", &|r| r.accumulate.map_or("", |a| if a { "yes" } else { "no" }).to_owned()),
    ];
    let speeds: [TableColumn<'_, Record>; 3] = [
        ("useful GB/s", &|r| format!("{:.1}", r.gb_per_s)),
        ("copy GB/s", &|r| format!("{:.1}", r.copy_gb_per_s)),
        ("of copy", &|r| format!("{:.0} %", 100.0 * r.gb_per_s / r.copy_gb_per_s)),
    ];
    let text = format!("{}\n{}", table(&records, &stored, &speeds), exchanges(&records));
    finish(report, &records, text)
}

/// Writes the report of a benchmark and prints its tables.
fn finish(report: Option<OutputFile>, records: &[impl Serialize], text: impl Display) -> Result<Status> {
    write_records(report, records)?;
    print(text).map(|()| Status::Met)
}

/// Returns a table of records, with further columns before and after the times.
fn table(
    records: &[Record],
    before: &[TableColumn<'_, Record>],
    after: &[TableColumn<'_, Record>],
) -> comfy_table::Table {
    let speed = |r: &Record| {
        // Relative to the first record with this case and accumulator.
        let first = records.iter().find(|f| f.accumulate == r.accumulate && f.case == r.case);
        format!("{:.2} x", first.unwrap_or(r).seconds.median / r.seconds.median)
    };
    let mut columns: Vec<TableColumn<'_, Record>> = vec![
        ("case", &|r| r.case.clone()),
        ("device", &|r| format!("{} ({})", r.device, r.backend)),
        ("precision", &|r| r.precision.clone()),
    ];
    let times: [TableColumn<'_, Record>; 2] =
        [("median", &|r| seconds(r.seconds.median)), ("least", &|r| seconds(r.seconds.min))];
    let rest: [TableColumn<'_, Record>; 2] =
        [("speed", &speed), ("error", &|r| format!("{:.1e}", r.relative_error))];
    columns.extend([before, &times, after, &rest].concat());
    report::table(records, &columns)
}

/// Describes the cost of the exchange between lanes, one line for each chain.
fn exchanges(records: &[Record]) -> String {
    let line = |r: &Record| {
        let bench::ExchangeMeasurement { alone, communication_share, halo_depth } = r.together.as_ref()?;
        let (case, percent, alone) = (&r.case, 100.0 * communication_share, seconds(*alone));
        Some(format!(
            "{case}: {alone} a step without exchange, which costs {percent:.1} %; an exchange every {halo_depth} steps\n"
        ))
    };
    records.iter().filter_map(line).collect()
}
