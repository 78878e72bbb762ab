//! `kolmo bench`.

pub(crate) mod seed_table;
pub(crate) mod transfer;
pub(crate) mod tridiagonal;
pub(crate) mod walk;

use std::fmt::Display;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::arguments::{Auto, List, expect_positive, expect_some};
use crate::cli::commands::transient::{self, halo_depth};
use crate::cli::output::write_records;
use crate::cli::prelude::*;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::{Chain, Method, Options, Partitioning, solve};
use kolmo_bench::{self as bench, Record};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure one step of uniformization, a sparse matrix-vector product
    ///
    /// Measured with and without the accumulator of a time point, and compared with the bandwidth
    /// of a copy.
    Spmv(Spmv),
    /// Measure transient solutions and their error against a reference from the CPU
    Transient(Transient),
    /// Measure random walks: rate, accuracy, coverage of intervals, preparation
    Walk(walk::Walk),
    /// Measure transfers between host and device for each number of lanes
    ///
    /// Host to device, device to host, round trips, and copies on the device. Under mpirun:
    /// transfers between neighbouring ranks.
    Transfer(transfer::Transfer),
    /// Measure tridiagonal solutions on the device, and from host to host for each number of lanes
    Tridiagonal(tridiagonal::Tridiagonal),
    /// Reproduce Table II of Karwacki, Bylina, Bylina (2012) on this machine
    SeedTable(seed_table::SeedTable),
}

#[derive(Debug, Args)]
pub(crate) struct Spmv {
    #[command(flatten)]
    job: Job,
    /// Steps between two exchanges of lanes that share a chain: auto, or 1 to 64
    #[arg(long, value_name = "N", default_value = "auto", hide = true, value_parser = halo_depth())]
    halo_depth: Auto<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Transient {
    #[command(flatten)]
    job: Job,
    /// Time t of the solution, in the time unit of the rates
    #[arg(long, value_name = "T", default_value = "10")]
    time: f64,
    /// Bound on the l1 error
    #[arg(long, value_name = "E", default_value = "1e-6")]
    epsilon: f64,
    /// Measure --method subdivided with intervals of alpha t <= THETA, instead of --method auto
    #[arg(long, value_name = "THETA")]
    theta: Option<f64>,
}

#[derive(Debug, Args)]
struct Job {
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
    #[command(flatten)]
    common: Common,
}

fn formats(s: &str) -> Result<List<MatrixFormat>> {
    match s {
        "all" => Ok(MatrixFormat::STORED.to_vec()),
        one => one.parse().map(|one| vec![one]),
    }
}

pub(crate) fn run(command: &Bench, ranks: Ranks) -> Result<Outcome> {
    let (job, of_transient) = match command {
        Bench::Spmv(spmv) => (&spmv.job, None),
        Bench::Transient(transient) => (&transient.job, Some(transient)),
        Bench::Walk(walk) => return walk::run(walk),
        Bench::Transfer(transfer) => return transfer::run(transfer, ranks),
        Bench::Tridiagonal(tridiagonal) => return tridiagonal::run(tridiagonal),
        Bench::SeedTable(args) => return seed_table::run(args),
    };
    expect_some("--repeat", job.repeat as u64)?;
    let theta = of_transient.and_then(|t| t.theta);
    theta.map_or(Ok(()), |theta| expect_positive("--theta", theta))?;
    let report = job.common.report_file(ranks)?;
    let chain = transient::model(&job.model, None, false)?;
    let reference = of_transient.map_or(Ok(Vec::new()), |t| reference(t, &chain))?;
    let mut records: Vec<Record> = Vec::new();
    // One device at a time, since they would compete for the host; or all on one chain.
    let each: Vec<&[DeviceSpec]> = match job.together {
        true => vec![&job.common.device],
        false => job.common.device.chunks(1).collect(),
    };
    for specs in each {
        let machine = job.common.open(specs)?;
        interrupt::check()?;
        let _progress = Progress::new(job.common.quiet, "measuring");
        kolmo::internals::expect_chain_memory(&machine, chain.transitions.states())?;
        let copy = bench::bandwidth(&machine.lanes, job.repeat)?;
        for &format in &job.matrix_format {
            let options = Options::default().format(format);
            let measured = match command {
                Bench::Spmv(spmv) => {
                    let split = Partitioning::default().halo_depth(spmv.halo_depth);
                    let (options, transitions) = (options.split(split), &*chain.transitions);
                    bench::spmv(&machine, &chain.name, transitions, &options, job.repeat, copy)
                }
                _ => of_transient.map_or(Ok(Vec::new()), |t| {
                    let method = theta.map_or(Method::Auto, |theta| Method::Subdivided { theta });
                    let options = options.epsilon(t.epsilon).method(method);
                    let (name, reference) = (&chain.name, &reference);
                    let case = bench::Case { name, chain: &chain, time: t.time, reference };
                    bench::transient(&machine, &case, &options, job.repeat, copy).map(|record| vec![record])
                }),
            };
            match measured {
                Err(Error::Invalid(_, why)) if job.matrix_format.len() > 1 => say(why),
                measured => records.extend(measured?),
            }
        }
    }
    let text = format!("{}\n{}", table(&records), exchanges(&records));
    finish(report, &records, text)
}

/// Writes the report of a benchmark and prints its tables.
fn finish(report: Option<OutputFile>, records: &[impl Serialize], text: impl Display) -> Result<Outcome> {
    write_records(report, records)?;
    print(text).map(|()| Outcome::Met)
}

fn reference(args: &Transient, chain: &Chain) -> Result<Vec<f64>> {
    let times = [args.time];
    let problem = chain.at(&times).rewards(&[]);
    let options = Options::default().epsilon(args.epsilon * 1e-2);
    let mut probabilities: Vec<Vec<f64>> = Vec::new();
    solve(&args.job.common.open_cpu()?, &problem, &options, &mut probabilities)?;
    Ok(probabilities.swap_remove(0))
}

fn table(records: &[Record]) -> comfy_table::Table {
    // The first record with this case and accumulator.
    let first = |r: &Record| {
        let first = records.iter().find(|f| f.accumulate == r.accumulate && f.case == r.case);
        first.unwrap_or(&records[0]).seconds.median
    };
    report::table(
        records,
        &[
            ("case", &|r| r.case.clone()),
            ("device", &|r| format!("{} ({})", r.device, r.backend)),
            ("precision", &|r| r.precision.clone()),
            ("format", &|r| r.format.clone()),
            ("acc", &|r| r.accumulate.map_or("", |a| if a { "yes" } else { "no" }).to_owned()),
            ("median", &|r| seconds(r.seconds.median)),
            ("least", &|r| seconds(r.seconds.min)),
            ("useful GB/s", &|r| format!("{:.1}", r.gb_per_s)),
            ("copy GB/s", &|r| format!("{:.1}", r.copy_gb_per_s)),
            ("of copy", &|r| format!("{:.0} %", 100.0 * r.gb_per_s / r.copy_gb_per_s)),
            ("speed", &|r| format!("{:.2} x", first(r) / r.seconds.median)),
            ("error", &|r| format!("{:.1e}", r.relative_error)),
        ],
    )
}

/// Describes the cost of the exchange between lanes, one line for each chain.
fn exchanges(records: &[Record]) -> String {
    let line = |r: &Record| {
        let bench::Together { alone, communication_share, halo_depth } = r.together.as_ref()?;
        let (case, percent, alone) = (&r.case, 100.0 * communication_share, seconds(*alone));
        Some(format!(
            "{case}: {alone} a step without exchange, which costs {percent:.1} %; an exchange every {halo_depth} steps\n"
        ))
    };
    records.iter().filter_map(line).collect()
}
