//! `kolmo tridiagonal`: tridiagonal, pentadiagonal and block tridiagonal systems.

use std::io::IsTerminal;

use crate::cli::arguments::{Auto, Solving, auto_or, expect_fraction};
use crate::cli::input::suggest;
use crate::cli::output::collective_file::SharedFile;
use crate::cli::planning::lanes;
use crate::cli::prelude::*;
use crate::report::tridiagonal::TridiagonalReport;
use kolmo::internals::largest;
use kolmo::io::tridiagonal::{
    AnyFile, BandedFile, Order, SystemFile, UnknownsLayout, read_any, read_array, right_hand_sides,
    side_by_side, write,
};
use kolmo::tridiagonal::{
    BandedSystem, Options, Pivot, Refine, RowSpan, Rows, Solution, System, solve_banded, solve_rows,
};
use kolmo::{Invalid, models};

#[derive(Debug, Args)]
pub(crate) struct TridiagonalArgs {
    /// System: a file (.npz, .csv, .mtx) or a built-in (random:1e6)
    ///
    /// Tridiagonal built-ins: random:N, toeplitz:N,DL,D,DU, laplace:N. Pentadiagonal:
    /// pentadiagonal:N, biharmonic:N. Blocks of 2 x 2: blocks:N. Each may be followed by ,BATCH,
    /// the number of systems.
    system: String,
    /// Right-hand sides: .npy, .mtx, or text (one number per line) [default: SYSTEM's own, else
    /// ones]
    #[arg(short, long, value_name = "FILE")]
    b: Option<PathBuf>,
    /// Largest relative residual |b - A x| / (|A| |x| + |b|), in maximum norms, 0 < E < 1
    ///
    /// The residual of each single row may be E as well, or 1e-8 if that is larger.
    #[arg(long, value_name = "E", default_value = "1e-12", allow_hyphen_values = true)]
    tolerance: f64,
    /// Cyclic system: dl[0] couples the first row to the last unknown, du[n-1] the last to the
    /// first
    #[arg(long)]
    cyclic: bool,
    /// Solve with the transposed matrix
    #[arg(long)]
    transpose: bool,
    /// Layout of several systems in two-dimensional arrays
    #[arg(long, value_name = "L", default_value = "strided", value_parser = named(&LAYOUTS))]
    layout: BatchLayout,
    /// Seed of the random numbers of a built-in system
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// Output file: .npy, .csv or .txt by its extension
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) solving: Solving,
    /// Pivoting strategy
    #[arg(long, value_name = "P", default_value = "auto", value_parser = named(&PIVOTS))]
    pivot: Pivot,
    /// Steps of iterative refinement: auto, or 0 to 100
    ///
    /// auto continues while the residual falls and is above the rounding error of double precision.
    #[arg(long, value_name = "K", default_value = "auto", value_parser = auto_or("number of corrections", 0..=100))]
    refine: Auto<usize>,
}

/// True for interleaved systems.
type BatchLayout = bool;

const LAYOUTS: [(&str, &str, BatchLayout); 2] =
    [("strided", "One system per row", false), ("interleaved", "One system per column", true)];

const PIVOTS: [(&str, &str, Pivot); 3] = [
    ("none", "No row exchanges", Pivot::None),
    ("scaled", "Scaled partial pivoting", Pivot::Scaled),
    (
        "auto",
        "No row exchanges if every row is diagonally dominant, else scaled partial pivoting",
        Pivot::Auto,
    ),
];

/// Reads a system from a file, or builds a built-in one; returns its name and the system.
pub(crate) fn system(
    spec: &str,
    cyclic: bool,
    interleaved: bool,
    b: Option<&Path>,
    seed: u64,
) -> Result<(String, AnyFile)> {
    let b = b.map(read_array).transpose()?;
    let sides = |b: Option<_>, n: usize, batch: usize| {
        right_hand_sides(&[batch, n][usize::from(batch == 1)..], b, interleaved)
    };
    if let Some(made) = models::banded(spec, seed) {
        let (name, mut system) = made?;
        expect(!cyclic, format_args!("{name}: only a tridiagonal system can be --cyclic; leave it out"))?;
        let (b, shape, order) = sides(b, system.n(), system.batch())?;
        if !b.is_empty() {
            system.b = b;
        }
        return Ok((name, AnyFile::Banded(BandedFile { system, shape, order, has_b: true })));
    }
    let Some(made) = models::tridiagonal(spec, seed) else {
        suggest::expect_file(spec, &suggest::TRIDIAGONAL)?;
        return Ok((spec.to_owned(), read_any(Path::new(spec), cyclic, interleaved, b)?));
    };
    let models::Tridiagonal { name, mut system } = made?;
    system.cyclic = cyclic;
    let (b, shape, order) = sides(b, system.n, system.batch)?;
    if !b.is_empty() {
        system.b = b;
    }
    Ok((name, AnyFile::Tridiagonal(SystemFile { system, shape, order, has_b: true })))
}

/// The system to solve: this rank's rows, or a whole banded system.
enum GivenSystem {
    Tridiagonal(Rows),
    Banded(BandedSystem),
}

impl GivenSystem {
    fn span(&self) -> RowSpan {
        match self {
            Self::Tridiagonal(rows) => rows.span,
            Self::Banded(system) => RowSpan::whole(system.n(), system.batch(), false),
        }
    }

    fn b(&self) -> &[Vec<f64>] {
        match self {
            Self::Tridiagonal(rows) => &rows.b,
            Self::Banded(system) => &system.b,
        }
    }

    fn transposed(self) -> Self {
        match self {
            Self::Tridiagonal(rows) => Self::Tridiagonal(rows.transposed()),
            Self::Banded(system) => Self::Banded(system.transposed()),
        }
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::Tridiagonal(rows) => rows.check(),
            Self::Banded(system) => system.check(),
        }
    }

    fn solve(&self, machine: &Machine, options: &Options) -> Result<Solution> {
        match self {
            Self::Tridiagonal(rows) => solve_rows(machine, rows, options),
            Self::Banded(system) => solve_banded(machine, system, options),
        }
    }
}

/// A loaded system and the shape of its unknowns in the output.
struct Loaded {
    name: String,
    given: GivenSystem,
    shape: Vec<usize>,
    order: Order,
    has_b: bool,
}

fn one_process(name: &str, ranks: Ranks) -> Error {
    Error::invalid(format!(
        "{name} on {} ranks; a pentadiagonal or block tridiagonal system is solved by one process",
        ranks.size()
    ))
}

/// Reads the system, or generates it, and keeps this rank's rows.
fn load(args: &TridiagonalArgs, ranks: Ranks) -> Result<Loaded> {
    let (cyclic, interleaved) = (args.cyclic, args.layout);
    if ranks.is_distributed() && models::banded(&args.system, args.seed).is_some() {
        return Err(one_process(&args.system, ranks));
    }
    let share = |n, batch| RowSpan::share(n, batch, cyclic, ranks);
    let own = |b: Vec<Vec<f64>>, span: &RowSpan| b.iter().map(|b| b[span.range()].to_vec()).collect();
    if ranks.is_distributed()
        && let Some(made) = models::BuiltIn::parse(&args.system, args.seed, true)
    {
        let made = made?;
        let span = share(made.n, made.batch);
        let [dl, d, du, ones] = made.rows(span.range())?;
        let shape = [made.batch, made.n];
        let given = args.b.as_deref().map(read_array).transpose()?;
        let (b, shape, order) = right_hand_sides(&shape[usize::from(made.batch == 1)..], given, interleaved)?;
        let b = if b.is_empty() { vec![ones] } else { own(b, &span) };
        let given = GivenSystem::Tridiagonal(Rows { span, dl, d, du, b });
        return Ok(Loaded { name: made.name, given, shape, order, has_b: true });
    }
    let (name, file) = system(&args.system, cyclic, interleaved, args.b.as_deref(), args.seed)?;
    match file {
        AnyFile::Tridiagonal(SystemFile { system, shape, order, has_b }) => {
            let System { n, batch, dl, d, du, b, .. } = system;
            let span = share(n, batch);
            let rows = match ranks.is_distributed() {
                true => {
                    let part = |all: Vec<f64>| all[span.range()].to_vec();
                    Rows { span, dl: part(dl), d: part(d), du: part(du), b: own(b, &span) }
                }
                false => Rows { span, dl, d, du, b },
            };
            Ok(Loaded { name, given: GivenSystem::Tridiagonal(rows), shape, order, has_b })
        }
        AnyFile::Banded(_) if ranks.is_distributed() => Err(one_process(&name, ranks)),
        AnyFile::Banded(BandedFile { system, shape, order, has_b }) => {
            Ok(Loaded { name, given: GivenSystem::Banded(system), shape, order, has_b })
        }
    }
}

/// Turns an error about the system's numbers into an error of the file that has them.
fn file_of(error: Error, args: &TridiagonalArgs, given: &GivenSystem) -> Error {
    let (Error::Invalid(..), Err(Error::Invalid(kind, reason))) = (&error, given.check()) else {
        return error;
    };
    let built_in = models::BuiltIn::parse(&args.system, args.seed, true).is_some()
        || models::banded(&args.system, args.seed).is_some();
    let own = (!built_in).then(|| args.system.as_ref());
    match args.b.as_deref().filter(|_| kind == Invalid::Number("b")).or(own) {
        Some(path) => Error::File { path: path.into(), reason },
        None => error,
    }
}

/// Output files, on rank 0 only.
struct OutputFiles {
    format: String,
    output: Option<OutputFile>,
    report: Option<OutputFile>,
}

/// Opens the outputs.
///
/// This precedes reading the system: a mistyped name should not cost the reading of a large file.
fn outputs(args: &TridiagonalArgs, ranks: Ranks) -> Result<OutputFiles> {
    expect_fraction("--tolerance", args.tolerance)?;
    let format = match &args.output {
        None => "csv",
        Some(path) if path.extension().is_some_and(|e| e == "npz") => {
            let reason = "an .npz holds several arrays, and unknowns are one; use .npy".to_owned();
            return Err(Error::File { path: path.clone(), reason });
        }
        Some(path) => extension(path, "unknowns", ".npy, .csv or .txt")?,
    };
    let output = args.output.as_deref().filter(|_| ranks.is_root());
    let create = if ranks.is_distributed() { OutputFile::create_shared } else { OutputFile::create };
    let output = output.map(create).transpose()?;
    Ok(OutputFiles { format: format.to_owned(), output, report: args.solving.common.report_file(ranks)? })
}

/// Opens the devices again if they need more lanes; returns the machine and the predicted number.
fn with_lanes(
    args: &TridiagonalArgs,
    given: &GivenSystem,
    machine: Machine,
    ranks: Ranks,
) -> Result<(Machine, Option<usize>)> {
    let (common, span) = (&args.solving.common, given.span());
    let predicted = match (common.lanes, given) {
        (Some(_), _) | (_, GivenSystem::Banded(_)) => None,
        (None, GivenSystem::Tridiagonal(_)) => {
            let together = if span.cyclic && span.batch > 1 { span.n } else { span.rows };
            let verbose = args.solving.verbose && !common.quiet;
            Some(lanes::predict(common, verbose, &machine, together.max(1)))
        }
    };
    if ranks.all_reduce_max(predicted.unwrap_or(1) as f64) <= 1.0 {
        return Ok((machine, predicted));
    }
    drop(machine);
    let specs = kolmo::lane::of_place(&common.device, ranks.place());
    let count = predicted.or(common.lanes).unwrap_or(1);
    let machine = ranks.all_ok(common.open_lanes(&specs, count))?.on_ranks(ranks);
    Ok((machine, predicted))
}

/// Writes the unknowns to the file of `-o` or to stdout; prints a few of them to a terminal.
fn write_unknowns(
    args: &TridiagonalArgs,
    output: Option<OutputFile>,
    format: &str,
    form: &UnknownsLayout<'_>,
    span: &RowSpan,
    x: &[Vec<f64>],
) -> Result<()> {
    let ranks = span.ranks;
    if let Some(path) = &args.output
        && format == "npy"
        && ranks.is_distributed()
        && form.order != Order::Interleaved
    {
        return share(SharedFile::open(path.clone(), output, form.shape, ranks)?, form, span, x);
    }
    if args.output.is_none() && ranks.all_gather(&[u8::from(std::io::stdout().is_terminal())])[0] == [1] {
        return glance(span, x);
    }
    // With several ranks, rank 0 gathers all unknowns.
    let all: Vec<Vec<f64>>;
    let x = match ranks.is_distributed() {
        true => {
            all = x.iter().map(|x| ranks.gather_to_root(x)).collect();
            &all
        }
        false => x,
    };
    ranks.all_ok(match output {
        Some(out) => write(out, format, form, x),
        None if ranks.is_root() => write(OutputFile::stdout(), format, form, x),
        None => Ok(()),
    })
}

pub(crate) fn run(args: &TridiagonalArgs, ranks: Ranks) -> Result<Status> {
    let started = Instant::now();
    let common = &args.solving.common;
    let quiet = common.quiet;
    let OutputFiles { format, output, report: report_file } = ranks.all_ok(outputs(args, ranks))?;
    let machine = common.open_on(ranks)?;
    let &TridiagonalArgs { pivot, tolerance, .. } = args;
    let refine = args.refine.map_or(Refine::Auto, |steps| Refine::Steps(steps as u32));
    let options = Options::default().pivot(pivot).refine(refine).tolerance(tolerance);
    let progress = ProgressDisplay::new(quiet, "reading the system");
    let loaded = load(args, ranks).and_then(|loaded| {
        interrupt::check()?;
        match loaded.given.b().len() {
            several @ 2.. if format == "txt" => {
                fail(format!(".txt holds one right-hand side, and there are {several}; use .csv or .npy"))
            }
            _ => Ok(loaded),
        }
    });
    let Loaded { name, mut given, shape, order, has_b } = ranks.all_ok(loaded)?;
    drop(progress);
    if args.transpose {
        given = given.transposed();
    }
    let (span, rhs) = (given.span(), given.b().len());
    if !has_b && !quiet {
        say(format_args!(
            "note: {name} has no right-hand side; it is 1 in every row (-b FILE gives another)"
        ));
    }
    let (machine, lanes_predicted) = with_lanes(args, &given, machine, ranks)?;
    let load = started.elapsed().as_secs_f64();
    let at = Instant::now();
    let progress = ProgressDisplay::new(quiet, "solving");
    let solution = given.solve(&machine, &options).map_err(|e| file_of(e, args, &given))?;
    drop(progress);
    let solved = at.elapsed().as_secs_f64();
    ranks.all_ok(interrupt::check())?;
    let form = UnknownsLayout { n: span.n, batch: span.batch, rhs, shape: &shape, order };
    write_unknowns(args, output, &format, &form, &span, &solution.x)?;
    let run = TridiagonalReport {
        name: &name,
        span,
        rhs,
        tolerance: args.tolerance,
        devices: report::devices_of(&machine),
        lanes: ranks.all_reduce_sum(machine.lanes.len() as u64) as usize,
        lanes_predicted,
        solution: &solution,
        seconds: [load, solved, started.elapsed().as_secs_f64()],
    };
    conclude(&run, report_file, &args.solving, ranks)
}

/// Writes this rank's unknowns at their place in the shared file.
fn share(mut file: SharedFile, form: &UnknownsLayout<'_>, span: &RowSpan, x: &[Vec<f64>]) -> Result<()> {
    let written = match (x, form.order) {
        ([x], _) => file.write(span.first, x),
        (x, Order::Shared) => {
            x.iter().enumerate().try_for_each(|(k, x)| file.write(k * span.all() + span.first, x))
        }
        (x, _) => file.write(span.first * x.len(), &side_by_side(x)),
    };
    span.ranks.all_ok(written)?;
    file.commit(span.ranks)
}

/// Prints the ten largest unknowns, for a terminal.
fn glance(span: &RowSpan, x: &[Vec<f64>]) -> Result<()> {
    const GLANCE: usize = 10;
    // Right-hand side, row and value.
    type Unknown = [f64; 3];
    let larger = |a: &Unknown, b: &Unknown| {
        let size = b[2].abs().total_cmp(&a[2].abs());
        size.then(a[0].total_cmp(&b[0])).then(a[1].total_cmp(&b[1]))
    };
    let mut mine: Vec<Unknown> = Vec::new();
    for (k, x) in x.iter().enumerate() {
        let entry = |(i, _): (usize, f64)| [k as f64, (span.first + i) as f64, x[i]];
        mine.extend(largest(x, GLANCE, f64::abs).into_iter().map(entry));
    }
    let mut all: Vec<Unknown> = span.ranks.all_gather(&mine).concat();
    if !span.ranks.is_root() {
        return Ok(());
    }
    all.sort_by(larger);
    all.truncate(GLANCE);
    let mut text = String::new();
    for [k, row, value] in all {
        let (system, row) = (row as usize / span.n, row as usize % span.n);
        let system = if span.batch > 1 { format!("system {system} ") } else { String::new() };
        let column = if x.len() > 1 { format!("right-hand side {k} ") } else { String::new() };
        text += &format!("{system}{column}row {row}  {value}\n");
    }
    let all = span.all() * x.len();
    if all > GLANCE {
        text += &format!("the {GLANCE} largest of {all}; -o FILE.npy, .csv or .txt writes all\n");
    }
    print(text)
}
