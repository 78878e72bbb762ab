//! `kolmo walk`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::faster::Forecast;
use super::files::Files;
use super::graph::{self, GraphArgs};
use super::progress::Progress;
use super::{Outcome, Solving, conclude, curves, dry_run, interrupt, no_format, say, whole, write_report};
use crate::report;
use kolmo::internals::count;
use kolmo::io::npz::{self, Values};
use kolmo::io::write::push_number;
use kolmo::io::{read_matrix, read_rhs};
use kolmo::kernel::Precision;
use kolmo::lane::Lane;
use kolmo::models::{System, system};
use kolmo::output::OutputFile;
use kolmo::ranks::Ranks;
use kolmo::walk::sequence::{Scramble, Sequence};
use kolmo::walk::{
    Component, ControlVariate, Count, Grid, Length, Options, Problem, Quantity, RowOrder, Solution,
    Splitting, solve,
};
use kolmo::{Error, Result};

#[derive(Debug, Args)]
pub(super) struct Walk {
    /// Matrix A: a file (.mtx, .npz, .npy) or a built-in (poisson2d:100,0.9)
    ///
    /// Built-ins: poisson2d:SIDE,RHO, poisson3d:SIDE,RHO, random-dominant:N,PER_ROW,RHO,positive
    /// and random-dominant:N,PER_ROW,RHO,signed. RHO is the largest row sum of |L|. With --pagerank
    /// MATRIX is a graph.
    pub(super) matrix: String,
    /// Right-hand side b: .npy, .mtx (one per column) or text (one number per line); repeatable
    ///
    /// By default b is all ones for a file. Built-ins have their own: random numbers in (0, 1),
    /// times the diagonal of A.
    #[arg(short = 'b', long = "rhs", value_name = "FILE")]
    rhs: Vec<PathBuf>,
    /// Components of x to estimate, counted from 0, such as 7,100-103
    #[arg(long, alias = "components", value_name = "I,J,K-L", required_unless_present_any = ["functional", "pagerank"])]
    pub(super) component: Option<String>,
    /// Vector h: estimate the scalar product <h, x>; formats as for -b; repeatable
    #[arg(long, value_name = "FILE")]
    functional: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) graph: GraphArgs,
    /// Largest half-width of the intervals, above 0 [default: 1e-3 of the scale of x]
    ///
    /// The scale is max |f| / (1 - norm of L), where x = L x + f. For <h, x> the default is
    /// multiplied by the sum of |h|.
    #[arg(long, value_name = "E", allow_hyphen_values = true)]
    pub(super) epsilon: Option<f64>,
    /// Confidence level of the intervals, 0 < P < 1
    #[arg(long, value_name = "P", default_value_t = 0.95, allow_hyphen_values = true)]
    pub(super) confidence: f64,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub(super) seed: u64,
    /// Output file: .csv or .npz by its extension [default: CSV on stdout]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Draw the half-widths over the number of chains as an SVG chart
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) solving: Solving,
    /// Sequence of points: sobol, halton, faure (quasi-random), philox, mtgp32 (pseudo-random)
    #[arg(long, value_name = "S", default_value = "sobol")]
    sequence: Sequence,
    /// Randomisation of each replicate: owen, shift or none [default: owen]
    ///
    /// The pseudo-random sequences philox and mtgp32 need none.
    #[arg(long, value_name = "S")]
    scramble: Option<Scramble>,
    /// Chains (walks) per component over all replicates: auto, norm, row-norm or a number
    ///
    /// auto doubles the number until the interval is at most --epsilon.
    ///
    /// norm and row-norm are a-priori estimates from the norm of L, or of the component's row (Lai,
    /// Jin, Guo, Lin 2015).
    #[arg(long, value_name = "N", default_value = "auto")]
    chains: Count,
    /// Largest number of chains per component with --chains auto [default: 67108864]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(super) max_chains: Option<u64>,
    /// Number of independent replicates that intervals are computed from, 1 to 65536
    #[arg(long, value_name = "R", default_value_t = 16, value_parser = whole::<u32>)]
    replicates: u32,
    /// Steps per chain: auto, printed or a number
    ///
    /// auto (or corrected) takes the fewest steps with a truncation error of at most --delta.
    /// printed is the estimate as printed by Lai, Jin, Guo, Lin (2015), which lacks the factor 1 -
    /// norm of L.
    #[arg(long, value_name = "T", default_value = "auto")]
    length: Length,
    /// Bound on the truncation error, above 0 [default: a tenth of --epsilon]
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    delta: Option<f64>,
    /// Splitting x = L x + f: auto, jacobi, scaled-jacobi, richardson:W or given
    ///
    /// jacobi: L = I - D^-1 A and f = D^-1 b, where D is the diagonal of A.
    ///
    /// scaled-jacobi: the unknowns of jacobi are scaled so that all row sums of |L| are below 1.
    ///
    /// auto: jacobi, scaled if needed.
    ///
    /// richardson:W: L = I - W A and f = W b.
    ///
    /// given: MATRIX is L, and -b is f.
    #[arg(long, value_name = "S", default_value = "auto")]
    splitting: Splitting,
    /// Order of the entries of a row
    #[arg(long, value_name = "O", default_value = "value")]
    row_order: OrderArg,
    /// Control variate: auto, none, jacobi, krylov, or a number of Jacobi sweeps
    ///
    /// Walks estimate the correction to an approximate solution from its residual, which reduces
    /// the variance. jacobi takes at most 8 sweeps, krylov is BiCGSTAB. auto takes jacobi, and also
    /// krylov if the walks would take longer.
    #[arg(long, alias = "sweeps", value_name = "C", default_value = "auto")]
    control: ControlVariate,
    /// Walk directly on the matrix, without preparation
    ///
    /// There is no chain table, row order, control variate or certificate of convergence. Intervals
    /// are conditional on the rows that the walks visited. With --pagerank: a local push from each
    /// node, followed by walks.
    #[arg(long)]
    pub(super) lazy: bool,
    /// Number of thread groups with --group-size; generators of mtgp32 [default: 84]
    #[arg(long, value_name = "G", value_parser = whole::<u32>)]
    groups: Option<u32>,
    /// Threads per group of a grid: 32, 64, 128, 256, 512, 1024 or auto
    ///
    /// auto takes the fastest grid that `kolmo tune` measured, including the number of groups
    /// unless --groups gives it. Without --group-size walks run in blocks of 256.
    #[arg(long, value_name = "W")]
    group_size: Option<GroupSize>,
    /// Generate all points in advance, into a buffer
    #[arg(long)]
    points_ahead: bool,
    /// Use one sequence of points for all components
    #[arg(long)]
    shared_sequence: bool,
    /// Walk even if convergence is not proved
    #[arg(long)]
    force: bool,
    /// Stop after this time with the intervals reached; exit code 1 if they are too wide
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(super) time_limit: Option<f64>,
}

impl Walk {
    /// Adds the input and output files of these arguments to `files`.
    pub(super) fn files<'a>(&'a self, files: Files<'a>) -> Files<'a> {
        files
            .read("MATRIX", [Path::new(&self.matrix)])
            .read("-b", self.rhs.iter().map(PathBuf::as_path))
            .read("--functional", self.functional.iter().map(PathBuf::as_path))
            .written("-o", self.output.as_deref())
            .written("--report", self.solving.common.report.as_deref())
            .written("--plot", self.plot.as_deref())
    }
}

/// Threads per group; `None` for the tuned size.
#[derive(Debug, Clone, Copy)]
struct GroupSize(Option<u32>);

impl FromStr for GroupSize {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s {
            "auto" => Ok(Self(None)),
            s => count(s).map(|size| Self(Some(size))).ok_or_else(|| {
                Error::Invalid(format!(
                    "'{s}' is no size of a group; give auto, 32, 64, 128, 256, 512 or 1024"
                ))
            }),
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OrderArg {
    /// By the value that each entry leads to, which suits quasi-random points
    Value,
    /// By column
    Index,
}

/// Reads a matrix from a file, or builds a built-in system; returns it with its right-hand sides.
pub(super) fn read(spec: &str, rhs: &[PathBuf], seed: u64, quiet: bool) -> Result<(System, Vec<Vec<f64>>)> {
    let mut built = match system(spec, seed) {
        Some(built) => built?,
        None => {
            let path = Path::new(spec);
            super::meant::expect_file(spec, &super::meant::SYSTEMS)?;
            if !path.exists() {
                return Err(Error::File {
                    path: path.into(),
                    reason: format!(
                        "there is no such file; give a matrix in .mtx, .npz or .npy, or a built-in: {}",
                        kolmo::models::SYSTEMS
                    ),
                });
            }
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

/// Reads all vectors of the files.
fn vectors(paths: &[PathBuf]) -> Result<Vec<Vec<f64>>> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(read_rhs(path)?);
    }
    Ok(all)
}

/// Parses the list of `--component`, keeping its order.
pub(super) fn components(list: &str, n: usize) -> Result<Vec<u32>> {
    listed(list, "--component", |i: u64| match i {
        i if i < n as u64 => Ok(i as u32),
        i => Err(format!("{i} is none of a system of {n} unknowns; they are 0 to {}", n.max(1) - 1)),
    })
}

/// Parses a list I,J,K-L and maps each number by `known`, keeping the order.
pub(super) fn listed(
    list: &str,
    option: &str,
    known: impl Fn(u64) -> std::result::Result<u32, String>,
) -> Result<Vec<u32>> {
    let fail = |reason: String| Error::Invalid(format!("{option}: {reason}"));
    let mut all = Vec::new();
    for item in list.split(',') {
        let number = |s: &str| match count::<u64>(s.trim()) {
            Some(i) => known(i).map(|_| i).map_err(fail),
            None => {
                Err(fail(format!("invalid entry '{item}': expected I,J,K-L, whole numbers counted from 0")))
            }
        };
        match item.split_once('-') {
            Some((a, b)) => {
                let (a, b) = (number(a)?, number(b)?);
                if b < a {
                    return Err(fail(format!(
                        "the range {item} runs backwards; give the smaller number first"
                    )));
                }
                for i in a..=b {
                    all.push(known(i).map_err(fail)?);
                }
            }
            None => all.push(known(number(item)?).map_err(fail)?),
        }
    }
    Ok(all)
}

/// Error for options that have no effect next to others.
fn ignored(args: &Walk) -> Result<()> {
    let fail = |idle: &str, by: String| {
        Err(Error::Invalid(format!("{idle} has nothing to limit where {by} is given; leave one of them out")))
    };
    match (args.chains, args.length) {
        (Count::Number(chains), _) if args.max_chains.is_some() => {
            fail("--max-chains", format!("--chains {chains}"))
        }
        (_, Length::Steps(steps)) if args.delta.is_some() => fail("--delta", format!("--length {steps}")),
        _ => Ok(()),
    }
}

pub(super) fn run(args: &Walk, ranks: Ranks) -> Result<Outcome> {
    if let Some(damping) = args.graph.pagerank {
        return graph::run(args, damping, ranks);
    }
    let started = Instant::now();
    ranks.all_ok(ignored(args))?;
    let mut options = Options {
        epsilon: args.epsilon,
        confidence: args.confidence,
        sequence: args.sequence,
        scramble: args.scramble,
        seed: args.seed,
        replicates: args.replicates,
        chains: args.chains,
        max_chains: args.max_chains.unwrap_or(Options::default().max_chains),
        length: args.length,
        delta: args.delta,
        splitting: args.splitting,
        order: match args.row_order {
            OrderArg::Value => RowOrder::Value,
            OrderArg::Index => RowOrder::Index,
        },
        control: args.control,
        shared: args.shared_sequence,
        force: args.force,
        groups: args.groups.unwrap_or(Grid::PUBLISHED.groups),
        lazy: args.lazy,
        grid: match (args.group_size, args.groups) {
            (None, Some(groups)) if args.sequence != Sequence::Mtgp32 => {
                Some(Grid { groups, ..Grid::PUBLISHED })
            }
            (None, _) => None,
            (Some(GroupSize(size)), groups) => Some(Grid {
                groups: groups.unwrap_or(Grid::PUBLISHED.groups),
                size: size.unwrap_or(Grid::PUBLISHED.size),
            }),
        },
        ahead: args.points_ahead,
        time_limit: ranks.all_ok(args.time_limit.map(time_limit).transpose())?,
        walk_limit: None,
    };
    let quiet = args.solving.common.quiet || !ranks.is_root();
    // Only rank 0 writes.
    let outputs = || {
        let alone = args.plot.is_some() || args.solving.dry_run || args.time_limit.is_some();
        if ranks.is_distributed() && alone {
            return Err(Error::Invalid(
                "--plot, --dry-run and --time-limit are the work of one process; start it without mpirun"
                    .to_owned(),
            ));
        }
        let report = args.solving.common.report.as_deref();
        let output = args.output.as_deref().filter(|_| !args.solving.dry_run);
        let output = ranks.is_root().then(|| open(output)).transpose()?;
        let plot = args.plot.as_deref().filter(|_| !args.solving.dry_run).map(curves::create).transpose()?;
        Ok((output, plot, report.filter(|_| ranks.is_root()).map(OutputFile::create).transpose()?))
    };
    let (output, plot, report_file) = ranks.all_ok(outputs())?;
    let machine = args.solving.common.open_on(ranks)?;
    if let Some(GroupSize(None)) = args.group_size {
        let grid = tuned_grid(&machine.lanes[0], machine.precision, args.groups, quiet);
        ranks.expect_same("grid", &format!("{} groups of {}", grid.groups, grid.size))?;
        options.grid = Some(grid);
    }
    let input = || {
        let (system, rhs) = read(&args.matrix, &args.rhs, args.seed, quiet)?;
        interrupt::check()?;
        let list = args.component.as_deref();
        let components = list.map_or(Ok(Vec::new()), |list| components(list, system.matrix.rows()))?;
        Ok((system, rhs, components, vectors(&args.functional)?))
    };
    let reading = Progress::new(quiet, "reading the system");
    let (system, rhs, components, functionals) = ranks.all_ok(input())?;
    drop(reading);
    let load = started.elapsed().as_secs_f64();

    let (matrix, components, functionals) = (&system.matrix, &components[..], &functionals[..]);
    let problem = Problem { matrix, rhs: &rhs, components, functionals };
    if args.solving.dry_run {
        return dry_run::walk(&machine, &problem, &options, &system.name, load, report_file);
    }
    let progress = Progress::new(quiet, "preparing the walks");
    options.time_limit = options.time_limit.map(|limit| limit.saturating_sub(started.elapsed()));
    let mut forecast = Forecast::new(&options, matrix.nnz(), quiet);
    let mut solution = solve(&machine, &problem, &options, &mut |done, all| {
        interrupt::check()?;
        progress.at(done, all, if all > 0 { "steps" } else { "products with the matrix" });
        forecast.at(done, all);
        Ok(())
    })?;
    drop(progress);
    if let Some(mut output) = output {
        let written = match args.output.as_deref().is_some_and(is_npz) {
            true => npz::write_arrays(&mut output, &arrays(&solution)),
            false => output.write_all(&table(&solution, rhs.len() > 1)),
        };
        written.map_err(|e| output.error(e))?;
        output.commit()?;
    }
    plot.map(|file| curves::convergence(file, &system.name, &solution)).transpose()?;
    solution.seconds.load = load;
    solution.seconds.total = started.elapsed().as_secs_f64();

    let run = report::walk::Run {
        system: &system.name,
        confidence: args.confidence,
        time_limit: args.time_limit,
        devices: report::devices_of(&machine),
        solution: &solution,
    };
    write_report(report_file, [format_args!("{:#}", run.json())])?;
    if !quiet {
        for warning in &solution.warnings {
            say(format_args!("warning: {warning}"));
        }
    }
    Ok(conclude(&run, solution.status, &args.solving.common, args.solving.verbose, ranks))
}

/// Converts the seconds of `--time-limit`; an error unless they are finite and above 0.
pub(super) fn time_limit(limit: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(limit).ok().filter(|_| limit > 0.0).ok_or_else(|| {
        Error::Invalid(format!("--time-limit {limit} must be a finite number of seconds above 0"))
    })
}

/// Returns the fastest measured grid of the first lane's device, else the published grid.
fn tuned_grid(lane: &Lane, precision: Precision, groups: Option<u32>, quiet: bool) -> Grid {
    let tuned = super::tuned::of(lane.device(), precision, quiet);
    let best = tuned.as_ref().and_then(|tuned| tuned.walks.as_ref()?.best());
    let (grid, why) = match best {
        Some(best) => (Grid { groups: best.groups, size: best.size }, "as `kolmo tune` measured".to_owned()),
        None => {
            let why = format!("by default; `kolmo tune --device {}` measures it", lane.device().spec);
            (Grid::PUBLISHED, why)
        }
    };
    let grid = Grid { groups: groups.unwrap_or(grid.groups), ..grid };
    if !quiet {
        say(format_args!("a grid of {} groups of {} threads, {why}", grid.groups, grid.size));
    }
    grid
}

pub(super) fn open(output: Option<&Path>) -> Result<OutputFile> {
    let Some(path) = output else { return Ok(OutputFile::stdout()) };
    match path.extension().and_then(|e| e.to_str()) {
        Some("csv" | "npz") => OutputFile::create(path),
        _ => Err(no_format(path, "components", ".csv or .npz")),
    }
}

pub(super) fn is_npz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "npz")
}

/// Results ordered by right-hand side, components before functionals.
fn answers(solution: &Solution) -> Vec<&Component> {
    let mut all: Vec<&Component> = solution.components.iter().chain(&solution.functionals).collect();
    all.sort_by_key(|c| c.rhs);
    all
}

/// The columns of [`table`] as arrays.
///
/// With functionals there is a further column `functional`: 1 for functionals, 0 for components.
fn arrays(solution: &Solution) -> Vec<(&'static str, Vec<u64>, Values<'static>)> {
    let all = answers(solution);
    let integers = |name, of: fn(&Component) -> u64| {
        (name, vec![all.len() as u64], Values::Integers(all.iter().map(|&c| of(c) as i64).collect()))
    };
    let floats = |name, of: fn(&Component) -> f64| {
        (name, vec![all.len() as u64], Values::Floats(all.iter().map(|&c| of(c)).collect()))
    };
    let mut columns = vec![
        integers("rhs", |c| c.rhs as u64),
        integers("component", |c| u64::from(c.component)),
        floats("estimate", |c| c.estimate),
        floats("half_width", |c| c.half_width),
        integers("chains", |c| c.chains),
        integers("length", |c| u64::from(c.length)),
    ];
    if !solution.functionals.is_empty() {
        columns.insert(1, integers("functional", |c| u64::from(c.quantity == Quantity::Functional)));
    }
    columns
}

/// The results as CSV: `component,estimate,half_width,chains,length`.
///
/// Several right-hand sides have a column `rhs` in front. Functionals are the components `h0`,
/// `h1`.
fn table(solution: &Solution, several: bool) -> Vec<u8> {
    let mut text = Vec::new();
    if several {
        text.extend_from_slice(b"rhs,");
    }
    text.extend_from_slice(b"component,estimate,half_width,chains,length\n");
    for c in answers(solution) {
        if several {
            text.extend_from_slice(format!("{},", c.rhs).as_bytes());
        }
        let letter = if c.quantity == Quantity::Functional { "h" } else { "" };
        text.extend_from_slice(format!("{letter}{},", c.component).as_bytes());
        push_number(&mut text, c.estimate);
        text.push(b',');
        push_number(&mut text, c.half_width);
        text.extend_from_slice(format!(",{},{}\n", c.chains, c.length).as_bytes());
    }
    text
}
