//! `kolmo bench`.

pub(crate) mod compare;
pub(crate) mod seed_table;
pub(crate) mod transfer;
pub(crate) mod tridiagonal;
pub(crate) mod walk;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand};

use crate::cli::arguments::{Common, whole};
use crate::cli::commands::bench::seed_table::SeedTable;
use crate::cli::commands::transient;
use crate::cli::commands::transient::HaloDepth;
use crate::cli::outcome::Outcome;
use crate::cli::output::output_conflicts::Files;
use crate::cli::output::write_report;
use crate::cli::planning::estimate::{forecast, of_chain};
use crate::cli::terminal::progress::Progress;
use crate::cli::terminal::{interrupt, say};
use crate::report::seconds;
use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::output::OutputFile;
use kolmo::ranks::Ranks;
use kolmo::sparse::{MatrixFormat, WidthRule};
use kolmo::transient::{Chain, Method, Observer, Options, Partitioning, Problem, solve};
use kolmo::{Error, Machine, Result};
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
    /// Compare devices on a fixed set of jobs, and redraw the figures of three papers
    ///
    /// The papers: Karwacki, Bylina, Bylina (2012); Lai, Jin, Guo, Lin (2015); Veneva, Imamura
    /// (2024).
    Compare(compare::Compare),
    /// Reproduce Table II of Karwacki, Bylina, Bylina (2012) on this machine
    SeedTable(SeedTable),
}

#[derive(Debug, Args)]
pub(crate) struct Spmv {
    #[command(flatten)]
    job: Job,
    /// Steps between two exchanges of lanes that share a chain: auto (measured), or 1 to 64
    #[arg(long, alias = "hops", value_name = "N", default_value = "auto")]
    halo_depth: HaloDepth,
    /// Show the phases of each lane between two exchanges, if lanes share a chain
    #[arg(long)]
    timeline: bool,
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
    /// Width of the ELL part of the matrix: auto, cusp, mean, max or a number of entries per row
    #[arg(long, value_name = "W", default_value = "auto")]
    ell_width: WidthRule,
    /// Storage of the matrix: auto, hyb, packed, pair, pattern, or all that the chain fits
    #[arg(long, value_name = "F|all", default_value = "auto", value_parser = formats)]
    matrix_format: Formats,
    #[command(flatten)]
    common: Common,
}

impl Bench {
    /// Adds the input and output files of these arguments to `files`.
    pub(crate) fn files<'a>(&'a self, files: Files<'a>) -> Files<'a> {
        let (read, common): (Vec<&str>, &Common) = match self {
            Self::Spmv(Spmv { job, .. }) | Self::Transient(Transient { job, .. }) => {
                (vec![&job.model], &job.common)
            }
            Self::Walk(args) => (args.matrix.iter().map(|m| &m[..]).collect(), &args.common),
            Self::Transfer(args) => (Vec::new(), &args.common),
            Self::Tridiagonal(args) => (vec![&args.system], &args.common),
            Self::SeedTable(args) => (Vec::new(), &args.common),
            Self::Compare(args) => return args.files(files),
        };
        let read = read.into_iter().map(Path::new);
        files.read("what is measured", read).written("--report", common.report.as_deref())
    }
}

/// Matrix formats to measure.
#[derive(Debug, Clone)]
struct Formats(Vec<MatrixFormat>);

fn formats(s: &str) -> Result<Formats> {
    match s {
        "all" => Ok(Formats(MatrixFormat::STORED.to_vec())),
        one => one.parse().map(|one| Formats(vec![one])),
    }
}

/// Observer that keeps the probabilities of the last time.
struct Keep(Vec<f64>);

impl Observer for Keep {
    fn progress(&mut self, _: u64, _: u64) -> Result<()> {
        interrupt::check()
    }

    fn result(&mut self, _: usize, probabilities: &[f64]) -> Result<()> {
        self.0 = probabilities.to_vec();
        Ok(())
    }
}

pub(crate) fn run(command: &Bench, ranks: Ranks) -> Result<Outcome> {
    let job = match command {
        Bench::Spmv(spmv) => &spmv.job,
        Bench::Transient(transient) => &transient.job,
        Bench::Walk(walk) => return walk::run(walk),
        Bench::Transfer(transfer) => return transfer::run(transfer, ranks),
        Bench::Tridiagonal(tridiagonal) => return tridiagonal::run(tridiagonal),
        Bench::Compare(compare) => return compare::run(compare),
        Bench::SeedTable(args) => return seed_table::run(args),
    };
    if job.repeat == 0 {
        return Err(Error::Invalid("--repeat 0 measures nothing; give 1 or more".to_owned()));
    }
    if let Bench::Transient(t) = command
        && let Some(theta) = t.theta.filter(|theta| !(*theta > 0.0 && theta.is_finite()))
    {
        return Err(Error::Invalid(format!("--theta {theta} must be a finite number above 0")));
    }
    let report = job.common.report.as_deref().map(OutputFile::create).transpose()?;
    let chain = transient::model(&job.model, None)?;
    let reference = match command {
        Bench::Spmv(_)
        | Bench::SeedTable(_)
        | Bench::Walk(_)
        | Bench::Transfer(_)
        | Bench::Compare(_)
        | Bench::Tridiagonal(_) => Vec::new(),
        Bench::Transient(t) => {
            let memory_limit = job.common.memory_limit.map(|size| size.0);
            let options = OpenOptions { memory_limit, ..OpenOptions::default() };
            let cpu = Machine::open(&[DeviceSpec::Cpu], &options)?;
            let times = [t.time];
            let problem = Problem { rewards: &[], ..chain.at(&times) };
            let options = Options { epsilon: t.epsilon * 1e-2, width: WidthRule::Mean, ..Options::default() };
            let mut keep = Keep(Vec::new());
            solve(&cpu, &problem, &options, &mut keep)?;
            keep.0
        }
    };
    let mut records: Vec<Record> = Vec::new();
    // One device at a time, since they would compete for the host; or all on one chain.
    let each: Vec<&[DeviceSpec]> = match job.together {
        true => vec![&job.common.device.0],
        false => job.common.device.0.chunks(1).collect(),
    };
    let formats = &job.matrix_format.0;
    for specs in each {
        let machine = job.common.open_all(specs)?;
        interrupt::check()?;
        announce(command, job, &chain, &machine)?;
        let _progress = Progress::new(job.common.quiet, "measuring");
        kolmo::internals::expect_chain_memory(&machine, chain.transitions.states())?;
        let copy = bench::bandwidth(&machine.lanes, job.repeat)?;
        match command {
            Bench::Spmv(spmv) => {
                let split = Partitioning { halo_depth: spmv.halo_depth.0, ..Partitioning::default() };
                for &format in formats {
                    let options = Options { width: job.ell_width, format, split, ..Options::default() };
                    let (name, chain) = (&chain.name, &*chain.transitions);
                    match bench::spmv(&machine, name, chain, &options, job.repeat, copy) {
                        Err(Error::Invalid(why)) if formats.len() > 1 => say(why),
                        measured => records.extend(measured?),
                    }
                }
            }
            Bench::Walk(_) | Bench::Transfer(_) | Bench::Tridiagonal(_) | Bench::Compare(_) => {}
            Bench::Transient(t) => {
                let method = t.theta.map_or(Method::Auto, |theta| Method::Subdivided { theta });
                for &format in formats {
                    let (epsilon, width) = (t.epsilon, job.ell_width);
                    let options = Options { epsilon, width, format, method, ..Options::default() };
                    let case =
                        bench::Case { name: &chain.name, chain: &chain, time: t.time, reference: &reference };
                    match bench::transient(&machine, &case, &options, job.repeat, copy) {
                        Err(Error::Invalid(why)) if formats.len() > 1 => say(why),
                        measured => records.push(measured?),
                    }
                }
            }
            Bench::SeedTable(_) => unreachable!("it has a table of its own"),
        }
    }
    write_report(report, records.iter().map(|record| serde_json::json!(record)))?;
    let mut out = OutputFile::stdout();
    writeln!(out, "{}", table(&records)).map_err(|e| out.error(e))?;
    if matches!(command, Bench::Spmv(spmv) if spmv.timeline) {
        writeln!(out, "{}", timeline(&records)).map_err(|e| out.error(e))?;
    }
    out.commit()?;
    Ok(Outcome::Met)
}

/// Prints the predicted time and memory of measuring a chain.
fn announce(command: &Bench, job: &Job, chain: &Chain, machine: &Machine) -> Result<()> {
    if job.common.quiet {
        return Ok(());
    }
    let (time, epsilon) = match command {
        Bench::Transient(t) => (Some(t.time), t.epsilon),
        _ => (None, 1e-6),
    };
    let Some((step, all, bytes)) = of_chain(machine, chain, &[time.unwrap_or(1.0)], epsilon)? else {
        return Ok(());
    };
    // A measurement takes a tenth of a second or four steps, with the accumulator and without.
    let each = if time.is_some() { all } else { 2.0 * (4.0 * step).max(0.1) };
    let measurements = (job.repeat * job.matrix_format.0.len()) as f64;
    let what = format!("{} on {}, once it is built", chain.name, machine.lanes[0].device().spec);
    forecast(&job.common, what, measurements * each, bytes);
    Ok(())
}

fn table(records: &[Record]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "case",
        "device",
        "precision",
        "format",
        "acc",
        "median",
        "least",
        "useful GB/s",
        "copy GB/s",
        "of copy",
        "speed",
        "error",
    ]);
    for r in records {
        // Relative to the first record with this case and accumulator.
        let first = records.iter().find(|f| f.accumulate == r.accumulate && f.case == r.case).unwrap_or(r);
        table.add_row([
            r.case.clone(),
            format!("{} ({})", r.device, r.backend),
            r.precision.clone(),
            r.format.clone(),
            r.accumulate.map_or("", |a| if a { "yes" } else { "no" }).to_owned(),
            seconds(r.seconds.median),
            seconds(r.seconds.min),
            format!("{:.1}", r.gb_per_s),
            format!("{:.1}", r.copy_gb_per_s),
            format!("{:.0} %", 100.0 * r.gb_per_s / r.copy_gb_per_s),
            format!("{:.2} x", first.seconds.median / r.seconds.median),
            format!("{:.1e}", r.relative_error),
        ]);
    }
    table
}

/// Tables of the phases of each lane between two exchanges.
fn timeline(records: &[Record]) -> String {
    let mut text = String::new();
    for (record, together) in records.iter().filter_map(|r| r.together.as_ref().map(|t| (r, t))) {
        let _ = writeln!(
            text,
            "{} on {} ({}): {} a step, {} without exchange, which costs {:.1} %; an exchange every {} steps",
            record.case,
            record.device,
            record.backend,
            seconds(record.seconds.median),
            seconds(together.alone),
            100.0 * together.communication_share,
            together.halo_depth,
        );
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::TableStyle::new());
        table.set_header(["lane", "phase", "begins after", "takes"]);
        for p in &together.phases {
            table.add_row([p.lane.to_string(), p.phase.to_owned(), seconds(p.start), seconds(p.seconds)]);
        }
        let _ = writeln!(text, "{table}");
    }
    text
}
