//! `kolmo walk`.

mod arguments;
mod page_rank;

pub(crate) use arguments::WalkArgs;

use std::io::Write;

use crate::cli::input::numbers::listed;
use crate::cli::input::suggest;
use crate::cli::output::plot_series;
use crate::cli::planning::advice::Forecast;
use crate::cli::planning::dry_run;
use crate::cli::prelude::*;
use kolmo::io::{read_matrix, read_rhs};
use kolmo::models::{System, system};
use kolmo::walk::{Component, Count, Length, Options, Problem, Quantity, Solution, solve};

/// Reads a matrix from a file, or builds a built-in system; returns it with its right-hand sides.
pub(crate) fn read(spec: &str, rhs: &[PathBuf], seed: u64, quiet: bool) -> Result<(System, Vec<Vec<f64>>)> {
    let mut built = match system(spec, seed) {
        Some(built) => built?,
        None => {
            let readable = ("a matrix in .mtx, .npz or .npy", kolmo::models::SYSTEMS);
            let path = suggest::existing(spec, &suggest::SYSTEMS, readable)?;
            let (matrix, notes) = read_matrix(path).map_err(of_graph)?;
            notes.iter().filter(|_| !quiet).for_each(|note| say(format_args!("note: {note}")));
            let rhs = vec![1.0; matrix.rows()];
            System { name: spec.to_owned(), matrix, rhs }
        }
    };
    let mut given = vectors(rhs)?;
    if given.is_empty() {
        given.push(std::mem::take(&mut built.rhs));
    }
    Ok((built, given))
}

/// Adds a hint at `--pagerank` to the error of a file that may be a list of edges.
fn of_graph(error: Error) -> Error {
    let is_matrix =
        |extension: &std::ffi::OsStr| ["mtx", "npz", "npy"].iter().any(|known| extension == *known);
    match error {
        Error::File { path, reason } if !path.extension().is_some_and(is_matrix) => {
            Error::File { path, reason: format!("{reason}; a list of links is read with --pagerank 0.85") }
        }
        error => error,
    }
}

fn vectors(paths: &[PathBuf]) -> Result<Vec<Vec<f64>>> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(read_rhs(path)?);
    }
    Ok(all)
}

/// Parses the list of `--component` or `--seeds`, keeping its order.
fn components(list: &str, option: &str, index: impl Fn(u64) -> Result<u32, String>) -> Result<Vec<u32>> {
    listed(list, option, index, |item, _| {
        format!("invalid entry '{item}': expected I,J,K-L, whole numbers counted from 0")
    })
}

/// Opens the file of `-o`, or stdout.
fn open(output: Option<&Path>) -> Result<OutputFile> {
    let Some(path) = output else { return Ok(OutputFile::stdout()) };
    extension(path, "components", ".csv")?;
    OutputFile::create(path)
}

/// Returns the time of `--time-limit`; an error unless it is finite and above 0.
pub(crate) fn time_limit(seconds: Option<f64>) -> Result<Option<Duration>> {
    let limit = |limit| Duration::try_from_secs_f64(limit).ok().filter(|_| limit > 0.0);
    let wrong = |limit| format!("--time-limit {limit} must be a finite number of seconds above 0");
    let checked = seconds.map(|seconds| limit(seconds).ok_or_else(|| Error::invalid(wrong(seconds))));
    checked.transpose()
}

/// Error for options that have no effect next to others.
fn ignored(args: &WalkArgs) -> Result<()> {
    let idle = |idle: &str, by: String| {
        fail(format!("{idle} has nothing to limit where {by} is given; leave one of them out"))
    };
    match (args.chains, args.length) {
        (Count::Number(chains), _) if args.max_chains.is_some() => {
            idle("--max-chains", format!("--chains {chains}"))
        }
        (_, Length::Steps(steps)) if args.delta.is_some() => idle("--delta", format!("--length {steps}")),
        _ => Ok(()),
    }
}

/// Options of the solver.
fn options(args: &WalkArgs) -> Result<Options> {
    Ok(Options::default()
        .epsilon(args.epsilon)
        .confidence(args.confidence)
        .sequence(args.sequence)
        .scramble(args.scramble)
        .seed(args.seed)
        .replicates(args.replicates)
        .chains(args.chains)
        .max_chains(args.max_chains.unwrap_or(Options::default().max_chains))
        .length(args.length)
        .delta(args.delta)
        .splitting(args.splitting)
        .control(args.control)
        .time_limit(time_limit(args.time_limit)?)
        .walk_limit(None))
}

/// Opens the files of `-o` (only on rank 0), `--plot` and `--report`.
fn outputs(
    args: &WalkArgs,
    ranks: Ranks,
) -> Result<(Option<OutputFile>, Option<OutputFile>, Option<OutputFile>)> {
    let dry_run = args.dry_run;
    let alone = args.plot.is_some() || dry_run || args.time_limit.is_some();
    let why = "--plot, --dry-run and --time-limit are the work of one process; start it without mpirun";
    expect(!alone || !ranks.is_distributed(), why)?;
    let output = args.output.as_deref().filter(|_| !dry_run);
    let output = ranks.is_root().then(|| open(output)).transpose()?;
    let plot = args.plot.as_deref().filter(|_| !dry_run).map(plot_series::create).transpose()?;
    Ok((output, plot, args.solving.common.report_file(ranks)?))
}

/// System, right-hand sides, components and functionals.
type WalkInput = (System, Vec<Vec<f64>>, Vec<u32>, Vec<Vec<f64>>);

fn input(args: &WalkArgs, quiet: bool) -> Result<WalkInput> {
    let (system, rhs) = read(&args.matrix, &args.rhs, args.seed, quiet)?;
    interrupt::check()?;
    let n = system.matrix.rows();
    let row = |i: u64| {
        let last = n.max(1) - 1;
        let none = || format!("{i} is out of range: expected 0 to {last}");
        if i < n as u64 { Ok(i as u32) } else { Err(none()) }
    };
    let list = args.component.as_deref();
    let list = list.map_or(Ok(Vec::new()), |list| components(list, "--component", row))?;
    Ok((system, rhs, list, vectors(&args.functional)?))
}

pub(crate) fn run(args: &WalkArgs, ranks: Ranks) -> Result<Status> {
    if let Some(damping) = args.graph.pagerank {
        return page_rank::run(args, damping, ranks);
    }
    let started = Instant::now();
    let mut options = ranks.all_ok(ignored(args).and_then(|()| options(args)))?;
    let quiet = args.solving.common.quiet;
    let (output, plot, report_file) = ranks.all_ok(outputs(args, ranks))?;
    let machine = args.solving.common.open_on(ranks)?;
    let reading = ProgressDisplay::new(quiet, "reading the system");
    let (system, rhs, components, functionals) = ranks.all_ok(input(args, quiet))?;
    drop(reading);
    let load = started.elapsed().as_secs_f64();

    let matrix = &system.matrix;
    let problem = Problem::new(matrix, &rhs, &components).functionals(&functionals);
    if args.dry_run {
        return dry_run::walk(&machine, &problem, &options, &system.name, load, report_file);
    }
    let progress = ProgressDisplay::new(quiet, "preparing the walks");
    options.time_limit = options.time_limit.map(|limit| limit.saturating_sub(started.elapsed()));
    let mut forecast = Forecast::new(&options, matrix.nnz(), quiet);
    let mut solution = solve(&machine, &problem, &options, &mut |done, all| {
        interrupt::check()?;
        progress.at(done, all, if all > 0 { "steps" } else { "products with the matrix" });
        forecast.at(done, all);
        Ok(())
    })?;
    drop(progress);
    if let Some(output) = output {
        complete(output, |output| output.write_all(table(&solution, rhs.len() > 1).as_bytes()))?;
    }
    plot.map(|file| plot_series::convergence(file, &system.name, &solution)).transpose()?;
    solution.seconds.load = load;
    solution.seconds.total = started.elapsed().as_secs_f64();

    let run = report::walk::WalkReport {
        system: &system.name,
        confidence: args.confidence,
        time_limit: args.time_limit,
        devices: report::devices_of(&machine),
        solution: &solution,
    };
    let warnings = solution.warnings.iter().filter(|_| !quiet);
    warnings.for_each(|warning| say(format_args!("warning: {warning}")));
    conclude(&run, report_file, &args.solving, ranks)
}

/// Results ordered by right-hand side, components before functionals.
fn answers(solution: &Solution) -> Vec<&Component> {
    let mut all: Vec<&Component> = solution.components.iter().chain(&solution.functionals).collect();
    all.sort_by_key(|c| c.rhs);
    all
}

/// The results as CSV: `component,estimate,half_width,chains,length`.
///
/// Several right-hand sides have a column `rhs` in front. Functionals are the components `h0`,
/// `h1`.
fn table(solution: &Solution, several: bool) -> String {
    let rhs = if several { "rhs," } else { "" };
    let mut text = format!("{rhs}component,estimate,half_width,chains,length\n");
    for c in answers(solution) {
        let rhs = if several { format!("{},", c.rhs) } else { String::new() };
        let letter = if c.quantity == Quantity::Functional { "h" } else { "" };
        let [estimate, half_width] = [c.estimate, c.half_width].map(number);
        text += &format!("{rhs}{letter}{},{estimate},{half_width},{},{}\n", c.component, c.chains, c.length);
    }
    text
}
