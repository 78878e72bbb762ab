//! `kolmo transient`.

mod schedule;
mod truncated;

use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use clap::builder::TypedValueParser;

use crate::cli::arguments::{Auto, Solving, auto_or, expect_fraction};
use crate::cli::input::numbers::listed;
use crate::cli::input::{changing_constants, explore, stdin, suggest};
use crate::cli::output::plot_series::{self, Curves};
use crate::cli::output::values::{Named, Selection, Sink, Style};
use crate::cli::planning::tuning_store;
use crate::cli::prelude::*;
use kolmo::internals::{bandwidths, count, out_of_range};
use kolmo::io::{read_chain, read_distribution, srew, trew};
use kolmo::models;
use kolmo::sparse::MatrixFormat;
use kolmo::transient::checkpoint::Checkpoint;
use kolmo::transient::{
    Chain, Initial, Labels, MAX_HALO_DEPTH, Method, Observer, Options, Partitioning, Problem, Reward,
    Solution, estimate, plan_phases, solve, solve_phases, solve_resumable,
};
use kolmo_check::truncation::{self, Edge};
use kolmo_check::until::{self, Until};
use kolmo_check::{Truncation, language, state_sets};
use truncated::{Probe, enlarge, rewards_within, truncated};

#[derive(Debug, Clone, Args)]
pub(crate) struct Transient {
    /// Chain: a file (.tra, .drn, .mtx, .npz, .npy), a PRISM model (.sm, .prism) or a
    /// built-in (tandem:15)
    ///
    /// The name - reads one of the text formats from stdin. Text formats may be gzipped.
    ///
    /// Built-ins: wlan:K,S, tandem:C, birth-death:N,LAMBDA,MU, circulant:N,O1,O2,…
    #[arg(id = "model", value_name = "MODEL", required_unless_present = "schedule")]
    given: Option<String>,
    /// Specification of the chain: MODEL, or the model of the schedule's first phase.
    #[arg(skip)]
    model: String,
    /// Values of a PRISM model's constants, such as N=64,MU=0.5
    ///
    /// MU=0.5@0,2@8 is 0.5 up to time 8 and 2 from then on; MU=0.5@0,2@8%24 repeats this every 24
    /// units of time. Such constants must not change initial values or ranges of variables.
    #[arg(long = "const", value_name = "NAME=V,…", value_parser = changing_constants::constants)]
    constants: Option<changing_constants::TimedConstants>,
    /// File of chains that hold one after another: lines UNTIL,MODEL after the header until,model
    ///
    /// UNTIL is the time up to which MODEL holds; the last may be inf. jump:MODEL is one step of a
    /// chain in discrete time, at the end of the line before. Initial state, labels and rewards are
    /// those of the first model.
    #[arg(long, value_name = "FILE.csv")]
    schedule: Option<PathBuf>,
    /// Explore only part of a PRISM model, losing at most this probability, 0 < LOSS < --epsilon
    ///
    /// For models with infinitely many states, or too many. States are added until the probability
    /// of leaving the explored part is at most LOSS at every time. LOSS is part of the bound
    /// --epsilon.
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true, conflicts_with_all = ["checkpoint", "dry_run", "initial", "labels"])]
    truncate: Option<f64>,
    /// Times T >= 0, comma-separated, in the time unit of the rates; inf is the steady state
    ///
    /// The answers are in the order of this list.
    #[arg(long, value_name = "T[,T…]", allow_hyphen_values = true, required_unless_present_any = ["times", "within", "steps"])]
    time: Option<String>,
    /// Numbers of steps of a chain in discrete time, comma-separated; inf is the long run
    #[arg(long, value_name = "K[,K…]", allow_hyphen_values = true, conflicts_with_all = ["time", "times", "within"])]
    steps: Option<String>,
    /// Read a file of a chain (.tra, .mtx, .npz, .npy) as probabilities of a step
    ///
    /// Times then count steps. PRISM models and .drn declare discrete time themselves.
    #[arg(long)]
    discrete: bool,
    /// Times START, START + STEP, … up to STOP
    ///
    /// Together with --time: the times of both options, ascending, each once.
    #[arg(long, value_name = "START:STEP:STOP", allow_hyphen_values = true)]
    times: Option<String>,
    /// Bound on the l1 error of the probabilities at each time, 0 < E < 1
    ///
    /// The l1 error is the sum of the absolute errors of all states.
    #[arg(long, value_name = "E", default_value = "1e-9", allow_hyphen_values = true)]
    pub(crate) epsilon: f64,
    /// Initial state, file of initial probabilities, or label:NAME [default: the model's own]
    ///
    /// label:NAME starts in the states with this label, with equal probabilities. A file is .npy or
    /// text.
    #[arg(long, value_name = "STATE|FILE|label:NAME")]
    initial: Option<String>,
    /// File of state labels (.lab), instead of the one next to the model
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Reward: a .srew or .trew file, or the name of a reward of the model; repeatable
    ///
    /// The output has the instantaneous and the accumulated reward at each time.
    #[arg(long, value_name = "FILE|NAME")]
    rewards: Vec<String>,
    /// Make these states absorbing: a label or an expression; repeatable
    ///
    /// Expressions: !A (not), A & B (and), A | B or A,B (or), true, and comparisons of variables
    /// such as 'q1=3 & q2<=1'.
    #[arg(long, value_name = "STATES")]
    absorbing: Vec<String>,
    /// Probability of reaching states TO by each time, passing only through states THROUGH
    ///
    /// Both are sets of states as for --absorbing; true is the set of all states.
    #[arg(long, num_args = 2, value_names = ["THROUGH", "TO"], conflicts_with_all = ["selection", "rewards", "absorbing"])]
    until: Option<Vec<String>>,
    /// With --until: reach TO at a time between T1 and T2
    #[arg(long, value_name = "T1,T2", requires = "until", conflicts_with_all = ["time", "times"], allow_hyphen_values = true)]
    within: Option<String>,
    /// Output only these states, by numbers or by a condition such as 'q1=3 & q2<=1'
    #[arg(long, value_name = "I,J,K-L|EXPR", group = "selection")]
    states: Option<String>,
    /// Output only the probability of this label or set of states (see --absorbing); repeatable
    #[arg(long, value_name = "NAME", group = "selection")]
    label: Vec<String>,
    /// Output only the K largest probabilities of each time
    #[arg(long, value_name = "K", group = "selection", value_parser = whole::<usize>)]
    top: Option<usize>,
    /// Draw probabilities over all finite times as an SVG chart
    ///
    /// Draws the labels or states that are selected, else the five most likely states.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Output file: .npy, .csv or .txt by its extension; - is stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format, instead of the one of the file's extension
    #[arg(long, value_name = "F", value_parser = named(&FORMATS))]
    format: Option<Prism>,
    #[command(flatten)]
    pub(crate) solving: Solving,
    /// Predict memory and run time from the rows of the chain instead of solving
    #[arg(long)]
    dry_run: bool,
    /// File in which the state of the run is saved, to continue with --resume
    ///
    /// Saved from time to time, on Ctrl-C and at the end, which takes about 1 % of the run time.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Seconds between two checkpoints [default: 100 times the time to write one, at least 5]
    #[arg(long, value_name = "SECONDS", requires = "checkpoint", allow_hyphen_values = true)]
    checkpoint_every: Option<f64>,
    /// Continue from the file of --checkpoint, if it exists
    ///
    /// The result has the same bits as that of an uninterrupted run with --checkpoint. Without
    /// --resume the run starts from the beginning and replaces the file.
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Method; alpha is the largest exit rate, t the largest time
    #[arg(long, value_name = "M", default_value = "auto", value_parser = named(&METHODS))]
    method: Method,
    /// Fail if --method chebyshev or krylov would fall back to uniformization
    ///
    /// The exit code is then 2. They fall back if the error bound or the memory does not permit
    /// them.
    #[arg(long)]
    strict: bool,
    /// Storage of the matrix: auto, hyb, packed or pattern
    ///
    /// auto takes the format with the fastest step in a trial on a CPU, or the smallest one on a
    /// GPU. packed and pattern need repetition: few different rates, or few different rows. hyb
    /// (ELL and COO) stores every chain.
    #[arg(long, value_name = "F", default_value = "auto")]
    matrix_format: MatrixFormat,
    /// Steps between two exchanges through the host: auto, or 1 to 64
    #[arg(long, value_name = "N", default_value = "auto", value_parser = halo_depth())]
    halo_depth: Auto<usize>,
    /// Minimum number of parts into which each lane splits its rows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<usize>)]
    parts: usize,
}

/// Format of `--format`.
#[derive(Debug, Clone, Copy)]
struct Prism;

const FORMATS: [(&str, &str, Prism); 1] = [("prism", "PRISM's format of results", Prism)];

const METHODS: [(&str, &str, Method); 5] = [
    (
        "auto",
        "Uniformization with early termination; switches to chebyshev or krylov if these need far fewer products",
        Method::Auto,
    ),
    ("sweep", "", Method::Auto),
    (
        "uniformization",
        "Uniformization without early termination: about alpha t matrix-vector products",
        Method::Uniformization,
    ),
    (
        "chebyshev",
        "Chebyshev polynomials: about sqrt(alpha t) products, for nearly reversible chains",
        Method::Chebyshev { strict: false },
    ),
    (
        "krylov",
        "Krylov subspaces: for stiff chains over long times; in f64 only",
        Method::Krylov { strict: false },
    ),
];

/// Returns the parser of `--halo-depth`.
pub(crate) fn halo_depth() -> impl TypedValueParser<Value = Auto<usize>> {
    auto_or("number of steps", 1..=MAX_HALO_DEPTH)
}

/// Reads a chain from a file, explores a PRISM model, or builds a built-in chain.
///
/// With `discrete`, entries of a file are probabilities of a step.
pub(crate) fn model(spec: &str, labels: Option<&Path>, discrete: bool) -> Result<Chain> {
    match models::parse(spec) {
        None if language::is_model(spec) => explore::chain(spec, (None, &[]), None, true),
        Some(_) if discrete => fail(format!(
            "{spec} is a built-in chain in continuous time, and --discrete is about a file; leave it out"
        )),
        Some(model) => {
            let model = model?;
            let labels = match labels {
                Some(file) => kolmo::io::lab::read(file, model.transitions.states())?,
                None => Labels::default(),
            };
            Ok(Chain { labels, ..model.into() })
        }
        None if spec == "-" => stdin::read(labels, discrete),
        None => {
            suggest::expect_file(spec, &suggest::CHAINS)?;
            read_chain(Path::new(spec), labels, discrete)
        }
    }
}

/// Reads the model on every rank.
fn model_on(args: &Transient, ranks: Ranks) -> Result<Chain> {
    if language::is_model(&args.model) {
        return ranks.all_ok(explored(args));
    }
    explore::expect_no_constants(&args.model, args.constants.as_ref().map(|constants| &constants.fixed))?;
    expect(args.model != "-" || !ranks.is_distributed(), "ranks read a file, not stdin; name one")?;
    ranks.all_ok(model(&args.model, args.labels.as_deref(), args.discrete))
}

/// Explores a PRISM model on every rank and returns its chain.
fn explored(args: &Transient) -> Result<Chain> {
    let Common { memory_limit, quiet, .. } = args.solving.common;
    let constants = args.constants.as_ref();
    let joint = constants.map_or(&[][..], |constants| &constants.joint);
    let constants = (constants.map(|constants| &constants.fixed), joint);
    let chain = explore::chain(&args.model, constants, memory_limit, quiet)?;
    Ok(match &args.labels {
        Some(file) => Chain { labels: kolmo::io::lab::read(file, chain.transitions.states())?, ..chain },
        None => chain,
    })
}

pub(crate) fn run(args: &Transient, ranks: Ranks) -> Result<Status> {
    let started = Instant::now();
    let args = &Transient { model: args.given.clone().unwrap_or_default(), ..args.clone() };
    let entries = ranks.all_ok(times(args).and_then(|times| schedule::entries(args, &times)))?;
    let first = entries.as_ref().map_or_else(|| Ok(args.clone()), |all| schedule::first(args, all));
    let args = &ranks.all_ok(first)?;
    let quiet = args.solving.common.quiet;
    // Each rank opens its outputs, reads the model and opens its devices.
    let Prepared { times, options, outputs, mut checkpoint, machine, small, posed, solved } =
        prepare(args, ranks)?;
    let phases = entries.map(|all| schedule::Phases::read(args, &all, &posed, ranks)).transpose()?;
    if args.dry_run {
        let of = (&posed, phases.as_ref(), &times[..]);
        return dry_run(args, &machine, of, &options, outputs.report_file);
    }
    let Posed { chain, selection, initial, rewards, until, edge } = posed;
    let TransientOutputs { output, report_file, plot, .. } = outputs;
    let n = chain.transitions.states();
    let style = Style { names: chain.names.clone(), prism: args.format.is_some() };
    let curves = plot.map(|file| Curves::new(file, &chain.name, &selection, &times, n, &style, ranks));
    let curves = ranks.all_ok(curves.transpose())?;
    let shown = interval(args)?.map_or(times.clone(), |(_, to)| vec![to]);
    let sums = matches!(&selection, Selection::Labels(sets) if sets.iter().any(|(_, set)| set.len() > 1));
    let mut sink = Sink::open(output, selection, !rewards.is_empty(), &shown, n, style, ranks)?;
    if !quiet {
        say_warnings(&args.solving.common, &chain, &machine);
    }
    let load = started.elapsed().as_secs_f64();

    let problem = Problem::new(&*chain.transitions, &initial, &times)
        .rewards(&rewards)
        .vectors(sink.wants_vectors() || curves.is_some() || args.truncate.is_some());
    sink.uncounted = until.as_ref().map(Until::early);
    let progress = ProgressDisplay::new(quiet, "building the matrix");
    let mut watch = RunObserver { sink, curves, progress, edge, left: vec![Vec::new(); times.len()] };
    let solved = match &mut checkpoint {
        None if let Some(Probe { solution, probabilities }) = solved
            && times.len() == 1 =>
        {
            watch.result(0, &probabilities).map(|()| solution)
        }
        None if let Some(phases) = &phases => {
            solve_phases(&machine, &phases.all(&problem), &initial, &times, &options, &mut watch)
        }
        None => solve(&machine, &problem, &options, &mut watch),
        Some(checkpoint) => solve_resumable(&machine, &problem, &options, &mut watch, checkpoint),
    };
    if let (Err(Error::Interrupted), Some(checkpoint), false) = (&solved, &checkpoint, quiet)
        && checkpoint.written() > 0
    {
        say(format_args!("{} holds the run; --resume continues it", checkpoint.path().display()));
    }
    let mut solution = solved?;
    if let Some(until) = &until {
        until.add_to(&mut solution, &shown, args.epsilon);
    }
    let RunObserver { sink, curves, progress, left, .. } = watch;
    drop(progress);
    truncation::add_losses(&mut solution, until.as_ref().map_or(&[], Until::left), left);
    if machine.precision == Precision::Q64 && sums {
        add_rounding_of_sums(&mut solution, args.epsilon);
    }
    let values = sink.values();
    sink.finish(&solution)?;
    curves.map(Curves::finish).transpose()?;
    solution.seconds.load = load;
    solution.seconds.total = started.elapsed().as_secs_f64();

    let run = report::transient::TransientReport {
        model: &chain.name,
        epsilon: args.epsilon,
        devices: report::devices_of(&machine),
        small,
        memory: report::memory_of(&machine),
        solution: &solution,
        checkpoint: checkpoint.as_ref(),
        values,
    };
    conclude(&run, report_file, &args.solving, ranks)
}

/// Prints the chain's warnings, and a note about a precision other than f64.
fn say_warnings(common: &Common, chain: &Chain, machine: &Machine) {
    chain.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
    let named = common.device.iter().any(|d| *d != DeviceSpec::Auto);
    if machine.precision != Precision::F64 && common.precision.is_none() && named {
        let without = machine.lanes.iter().map(|lane| lane.device()).find(|device| !device.f64);
        let name = without.map_or("a device", |device| &device.name);
        say(format_args!("note: {name} has no double precision; computing in {}", machine.precision));
    }
}

/// Predicts memory and time.
fn dry_run(
    args: &Transient,
    machine: &Machine,
    (posed, phases, times): (&Posed, Option<&schedule::Phases>, &[f64]),
    options: &Options,
    report: Option<OutputFile>,
) -> Result<Status> {
    let ranks = machine.ranks;
    let problem = posed.problem(times, true);
    let looking = ProgressDisplay::new(args.solving.common.quiet, "looking at the rows");
    let plan = match phases {
        Some(phases) => plan_phases(machine, &phases.all(&problem), &posed.initial, times, options)?,
        None => estimate::plan(machine, &problem, options)?,
    };
    drop(looking);
    let (model, precision) = (&posed.chain.name, machine.precision);
    let run = report::plan::DryRunReport { model, precision, plan: &plan };
    write_object(report, &run.json())?;
    if ranks.is_root() {
        say(run.text().trim_end());
    }
    // Insufficient memory is an error, as without --dry-run.
    let enough = plan.lanes.iter().try_for_each(|need| need.expect());
    ranks.all_ok(enough).map(|()| Status::Met)
}

/// Adds the rounding of sums of probabilities, which bounds in fixed point do not include.
fn add_rounding_of_sums(solution: &mut Solution, epsilon: f64) {
    let Solution { times, bound, status, .. } = solution;
    for bound in times.iter_mut().map(|time| &mut time.bound).chain([bound]) {
        bound.rounding += f64::EPSILON;
        if bound.total() > epsilon {
            *status = Status::NotMet;
        }
    }
}

/// A run before its start: times, options, outputs, machine and query.
struct Prepared {
    times: Vec<f64>,
    options: Options,
    outputs: TransientOutputs,
    checkpoint: Option<Checkpoint>,
    machine: Machine,
    /// True if the CPU was chosen because it finishes before a GPU would have started.
    small: bool,
    posed: Posed,
    /// Solution at the last time, known from truncating the model.
    solved: Option<Probe>,
}

/// A chain and the query on it.
struct Posed {
    chain: Chain,
    selection: Selection,
    initial: Initial,
    rewards: Vec<Reward>,
    until: Option<Until>,
    edge: Edge,
}

/// Output files, and the time between two checkpoints.
pub(crate) struct TransientOutputs {
    output: Option<Named>,
    /// File of `--report`, only on rank 0.
    pub(crate) report_file: Option<OutputFile>,
    /// File of `--plot`; `Some(None)` on ranks other than 0, which have no file.
    plot: Option<Option<OutputFile>>,
    /// Time between two checkpoints.
    pause: Option<Duration>,
}

fn prepare(args: &Transient, ranks: Ranks) -> Result<Prepared> {
    let (times, mut options, outputs) = ranks.all_ok(outputs(args, ranks))?;
    let checkpoint = match &args.checkpoint {
        Some(file) if !args.dry_run => Some(open_checkpoint(args, file, outputs.pause, ranks)?),
        _ => None,
    };
    // Chebyshev and Krylov vectors have negative numbers, and q64 has none.
    let fractions = !matches!(options.method, Method::Chebyshev { .. } | Method::Krylov { .. });
    let without_f64 = fractions.then_some(Precision::Q64);
    let common = &Common { without_f64, ..args.solving.common.clone() };
    let open = || -> Result<Machine> {
        let machine = common.open_on(ranks)?;
        tuning_store::recall(&machine, common.quiet);
        Ok(machine)
    };
    let (machine, small, posed, solved) = match args.truncate {
        Some(allowed) => {
            let truncation = truncated(args, allowed, &times, ranks)?;
            options.epsilon -= allowed;
            enlarge(args, truncation, common, &open, &times, &mut options)?
        }
        None => {
            // Opening the CPU takes no time: there is nothing to overlap with.
            let waits = common.device.iter().any(|device| *device != DeviceSpec::Cpu);
            let beside = waits && !ranks.is_distributed() && !args.dry_run;
            let (machine, mut posed, small) = if beside && !cfg!(target_family = "wasm") {
                open_and_read(args, common, &open, &times, &options)?
            } else {
                let machine = open()?;
                // Bandwidths are measured before a large chain is read: their arrays are large.
                let bytes = std::fs::metadata(&args.model).map_or(0, |file| file.len() as usize);
                let explores = language::is_model(&args.model);
                bandwidths(&machine, if explores { usize::MAX } else { bytes })?;
                (machine, Posed::read(args, ranks)?, false)
            };
            posed.begin(args, &machine, &mut options)?;
            (machine, small, posed, None)
        }
    };
    Ok(Prepared { times, options, outputs, checkpoint, machine, small, posed, solved })
}

/// Reads the model while devices open.
///
/// Returns true if the CPU is to be used because it finishes before a GPU would have started. A
/// device that does not open is an error at once.
fn open_and_read(
    args: &Transient,
    common: &Common,
    open: &dyn Fn() -> Result<Machine>,
    times: &[f64],
    options: &Options,
) -> Result<(Machine, Posed, bool)> {
    let cores_first = common.leaves_device_open();
    let doubles = matches!(common.precision, None | Some(Precision::F64));
    // The background scan needs the final rows, and --until makes states absorbing later.
    let ahead = doubles && args.until.is_none();
    let prescanned = move |posed: Posed| match ahead {
        true => Posed { chain: posed.chain.prescanned(), ..posed },
        false => posed,
    };
    let (send, receive) = mpsc::channel();
    let own = args.clone();
    let read = move || {
        let posed = Posed::read(&own, Ranks::ALONE);
        // The receiver is gone if a device did not open.
        let _ = send.send(posed.map(prescanned));
    };
    // The stack size of a main thread: parsers and searches recurse.
    let thread = thread::Builder::new().name("kolmo-model".to_owned()).stack_size(8 << 20);
    if thread.spawn(read.clone()).is_err() {
        // No thread is available: read in this one.
        read();
    }
    if cores_first
        && let start = tuning_store::gpu_start()
        && let Ok(posed) = receive.recv_timeout(Duration::from_secs_f64(start))
    {
        let posed = posed?;
        let machine = common.open(&[DeviceSpec::Cpu])?;
        if posed.is_for_cores(&machine, start, times, options)? {
            return Ok((machine, posed, true));
        }
        return Ok((open()?, posed, false));
    }
    let machine = open()?;
    let posed = receive.recv().expect("the thread that reads the model ends with a word")?;
    Ok((machine, posed, false))
}

/// Builds the query: selection, initial distribution, rewards, absorbing states.
fn pose(args: &Transient, mut chain: Chain, truncation: Option<&Truncation>) -> Result<Posed> {
    interrupt::check()?;
    let n = chain.transitions.states();
    if (args.steps.is_some() || args.discrete) && !chain.transitions.is_discrete() {
        return fail(format!(
            "{}: the chain is in continuous time, and --steps and --discrete are about discrete time; give --time",
            args.model
        ));
    }
    let at_edge = truncation.map_or(&[][..], Truncation::edge);
    let until = match args.until.as_deref() {
        Some([through, to]) => Some(Until::new(through, to, interval(args)?, &chain)?.truncated(at_edge)),
        _ => None,
    };
    let selection = match &until {
        Some(until) => Selection::Labels(vec![until.label()]),
        None => selection(args, &chain, n)?,
    };
    let initial = initial(args, &chain)?;
    let absorbing = absorbing(args, &chain)?;
    let edge = until.as_ref().map_or_else(|| Edge::new(at_edge, &[&absorbing]), Until::edge);
    let rewards = match truncation {
        None => rewards(args, &mut chain)?,
        Some(truncation) => rewards_within(args, &mut chain, &truncation.instance, &edge)?,
    };
    if !absorbing.is_empty() {
        chain = chain.absorbing(&absorbing);
    }
    Ok(Posed { chain, selection, initial, rewards, until, edge })
}

/// Returns the states of `--absorbing`, ascending.
fn absorbing(args: &Transient, chain: &Chain) -> Result<Vec<u32>> {
    let sets = args.absorbing.iter().map(|set| state_sets::states(set, chain));
    let mut all = sets.collect::<Result<Vec<_>>>()?.concat();
    all.sort_unstable();
    Ok(all)
}

impl Posed {
    fn problem<'a>(&'a self, times: &'a [f64], vectors: bool) -> Problem<'a> {
        let (transitions, initial, rewards) = (&*self.chain.transitions, &self.initial, &self.rewards[..]);
        Problem::new(transitions, initial, times).rewards(rewards).vectors(vectors)
    }

    /// Reads the whole model and builds the query.
    fn read(args: &Transient, ranks: Ranks) -> Result<Self> {
        let quiet = args.solving.common.quiet || language::is_model(&args.model);
        let reading = ProgressDisplay::new(quiet, "reading the model");
        let chain = model_on(args, ranks)?;
        drop(reading);
        ranks.all_ok(pose(args, chain, None))
    }

    /// True if the CPU of `machine` solves this in less than `start` seconds, a GPU's start-up
    /// time.
    fn is_for_cores(&self, machine: &Machine, start: f64, times: &[f64], options: &Options) -> Result<bool> {
        let tuned = tuning_store::of(machine.lanes[0].device(), machine.precision, true);
        let speed = tuned.and_then(|tuned| tuned.bytes_per_second);
        let seconds = estimate::seconds_on_cores(&self.problem(times, true), options, speed)?;
        Ok(seconds.is_some_and(|seconds| seconds < start))
    }

    /// Applies `--until`: makes states absorbing.
    ///
    /// With `--within` also solves up to the beginning of the interval.
    fn begin(&mut self, args: &Transient, machine: &Machine, options: &mut Options) -> Result<()> {
        let Some(until) = &mut self.until else { return Ok(()) };
        let from = interval(args)?.map_or(0.0, |(from, _)| from);
        let chain = std::mem::replace(&mut self.chain, Chain::from_csr(1, &[0, 0], &[], &[])?);
        if from == 0.0 || args.dry_run {
            self.chain = until.bounded(chain);
        } else {
            (self.chain, self.initial) =
                until.first(chain, &self.initial, from, machine, options, &mut |_, _| interrupt::check())?;
        }
        Ok(())
    }
}

/// The interval of `--within`.
fn interval(args: &Transient) -> Result<Option<(f64, f64)>> {
    args.within.as_deref().map(until::interval).transpose()
}

/// Parses times and options and opens the outputs.
///
/// This precedes reading the model: a mistyped name should not cost the reading of a large file.
fn outputs(args: &Transient, ranks: Ranks) -> Result<(Vec<f64>, Options, TransientOutputs)> {
    let times = times(args)?;
    if !args.solving.common.quiet {
        misread(args).iter().for_each(|note| say(format_args!("note: {note}")));
    }
    let mut method = args.method;
    match &mut method {
        Method::Chebyshev { strict } | Method::Krylov { strict } => *strict = args.strict,
        _ => expect(!args.strict, "--strict needs --method chebyshev or krylov")?,
    }
    let options = Options::default()
        .epsilon(args.epsilon)
        .format(args.matrix_format)
        .method(method)
        .split(Partitioning::default().parts(args.parts).halo_depth(args.halo_depth));
    for (option, count) in [("--parts", Some(args.parts)), ("--top", args.top)] {
        expect(count != Some(0), format_args!("{option} must be 1 or more"))?;
    }
    expect_fraction("--epsilon", args.epsilon)?;
    let pause = args.checkpoint_every.map(|seconds| {
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            Error::invalid(format!("--checkpoint-every {seconds} must be a number of seconds, 0 or more"))
        })
    });
    let pause = pause.transpose()?;
    let table = args.states.is_some() || !args.label.is_empty() || args.top.is_some() || args.until.is_some();
    let output = args.output.as_deref().filter(|_| !args.dry_run);
    let output = output.map(|path| Named::create(path, table, times.len(), args.format.is_some(), ranks));
    let output = output.transpose()?;
    let report_file = args.solving.common.report_file(ranks)?;
    let plot = args.plot.as_deref().filter(|_| !args.dry_run);
    let create = |path| ranks.is_root().then(|| plot_series::create(path)).transpose();
    let plot = plot.map(create).transpose()?;
    Ok((times, options, TransientOutputs { output, report_file, plot, pause }))
}

/// Opens the file of `--checkpoint`.
fn open_checkpoint(
    args: &Transient,
    file: &Path,
    pause: Option<Duration>,
    ranks: Ranks,
) -> Result<Checkpoint> {
    let replaced = !args.resume && file.is_file() && !args.solving.common.quiet;
    let checkpoint = Checkpoint::on_ranks(file, args.resume, ranks)?;
    if replaced {
        say(format_args!(
            "note: the run starts afresh and replaces {}; --resume would go on with it",
            file.display()
        ));
    }
    let checkpoint =
        checkpoint.complain(|error| say(format_args!("warning: no checkpoint written: {error}")));
    Ok(if let Some(pause) = pause { checkpoint.every(pause) } else { checkpoint })
}

struct RunObserver {
    sink: Sink,
    curves: Option<Curves>,
    progress: ProgressDisplay,
    edge: Edge,
    /// Probability of each boundary state of a truncated model, at each time.
    left: Vec<Vec<f64>>,
}

impl kolmo::Progress for RunObserver {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.progress.of("multiplications")(done, all)
    }

    fn iterate(&mut self, iterate: kolmo::Iterate) -> Result<bool> {
        self.progress.watch(None).iterate(iterate)
    }
}

impl Observer for RunObserver {
    fn rows(&mut self, rows: Range<usize>) {
        if let Some(curves) = &mut self.curves {
            curves.rows = rows.clone();
        }
        self.sink.rows = rows;
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        let probabilities = &*self.edge.taken(probabilities, &mut self.left[index]);
        if let Some(curves) = &mut self.curves {
            curves.result(index, probabilities);
        }
        self.sink.result(index, probabilities)
    }
}

fn times(args: &Transient) -> Result<Vec<f64>> {
    let number = |s: &str| match s.trim().parse::<f64>() {
        // A negative zero becomes 0.
        Ok(t) if t >= 0.0 => match out_of_range(s.trim().as_bytes()) {
            None => Ok(t + 0.0),
            Some(fault) => fail(format!("time {s} {fault}; inf is the steady state")),
        },
        _ => fail(format!("invalid time '{s}': expected a number ≥ 0 or inf")),
    };
    let mut times = Vec::new();
    if let Some((from, to)) = interval(args)? {
        times.push(to - from);
    }
    if let Some(list) = args.time.as_ref().or(args.steps.as_ref()) {
        for t in list.split(',') {
            times.push(number(t)?);
        }
    }
    if let Some(range) = &args.times {
        let parts: Vec<f64> = range.split(':').map(number).collect::<Result<_>>()?;
        let [start, step, stop] = parts[..] else {
            return fail(format!("--times {range} must read START:STEP:STOP, such as 0:0.5:10"));
        };
        let why = format_args!("--times {range}: the step must be above 0 and STOP at least START");
        expect(step > 0.0 && stop.is_finite() && stop >= start, why)?;
        // A STOP on the grid belongs to it, also if STEP is rounded.
        let count = ((stop - start) / step * (1.0 + 1e-12)).floor();
        if count > 1e7 {
            let count = if count < 1e15 { count.to_string() } else { format!("{count:.0e}") };
            return fail(format!("--times {range} names {count} times; at most ten million"));
        }
        // Rounds to the decimals of START and STEP: 3 · 0.1 is 0.3.
        let places = range.split(':').take(2).map(decimals).max().unwrap_or(0);
        let time = |i: u64| {
            let time = start + i as f64 * step;
            format!("{time:.places$}").parse().unwrap_or(time)
        };
        times.extend((0..=count as u64).map(time));
        if args.time.is_some() {
            times.sort_by(f64::total_cmp);
            times.dedup();
        }
    }
    Ok(times)
}

/// Notes about times that are probably mistakes.
fn misread(args: &Transient) -> Vec<String> {
    let mut notes = Vec::new();
    let range: Option<Vec<&str>> = args.times.as_deref().map(|range| range.split(':').collect());
    if let Some([start, step, stop]) = range.as_deref()
        && let (Ok(first), Ok(by), Ok(last)) =
            (start.trim().parse::<f64>(), step.trim().parse::<f64>(), stop.trim().parse::<f64>())
        && last > first
        && by > last - first
    {
        notes.push(format!(
            "--times {start}:{step}:{stop} is time {start} alone: one step of {step} is already beyond {stop}; the order \
             is START:STEP:STOP"
        ));
    }
    let list: Option<Vec<&str>> = args.time.as_deref().map(|list| list.split(',').collect());
    if let Some(["0", fraction]) = list.as_deref() {
        notes.push(format!(
            "--time 0,{fraction} is two times, 0 and {fraction}; a decimal number has a point, 0.{fraction}"
        ));
    }
    notes
}

/// Number of decimal places in a number's text.
fn decimals(text: &str) -> usize {
    let (mantissa, exponent) = text.trim().split_once(['e', 'E']).unwrap_or((text.trim(), "0"));
    let places = mantissa.split_once('.').map_or(0, |(_, places)| places.len() as i64);
    (places - exponent.parse::<i64>().unwrap_or(0)).clamp(0, 400) as usize
}

fn selection(args: &Transient, chain: &Chain, n: usize) -> Result<Selection> {
    if let Some(list) = &args.states {
        if state_sets::is_comparison(list) {
            let states = state_sets::states(list, chain)?;
            // In a truncated model states with this condition may be found later.
            return match states.is_empty() && args.truncate.is_none() {
                true => fail(format!("--states: no state has {list}")),
                false => Ok(Selection::States(states)),
            };
        }
        let none = |s: &str| format!("invalid state '{s}': expected 0 to {}", n - 1);
        let state = |i: u64| if i < n as u64 { Ok(i as u32) } else { Err(none(&i.to_string())) };
        return listed(list, "--states", state, |_, s| none(s)).map(Selection::States);
    }
    if !args.label.is_empty() {
        let sets = args.label.iter().map(|name| Ok((name.clone(), state_sets::states(name, chain)?)));
        return sets.collect::<Result<_>>().map(Selection::Labels);
    }
    Ok(args.top.map_or(Selection::All, Selection::Top))
}

fn initial(args: &Transient, chain: &Chain) -> Result<Initial> {
    let Some(text) = &args.initial else { return Ok(chain.initial.clone()) };
    if let Some(name) = text.strip_prefix("label:") {
        return Ok(Initial::Uniform(state_sets::states(name, chain)?));
    }
    if let Some(state) = count(text) {
        return Ok(Initial::State(state));
    }
    let path = Path::new(text);
    if !path.exists() {
        return fail(format!(
            "--initial {text} is neither the number of a state nor a file; give one of them, or label:NAME"
        ));
    }
    let initial = Initial::Distribution(read_distribution(path)?);
    // An invalid distribution is an error of the file.
    match initial.probabilities_of(0..0, chain.transitions.states()) {
        Err(Error::Invalid(_, reason)) => Err(Error::File { path: path.into(), reason }),
        other => other.map(|_| initial),
    }
}

/// True if the name is that of a file of transition rewards.
fn transition_rewards(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    [".trew", ".trans.rew"].iter().any(|extension| name.ends_with(extension))
}

/// Returns the rewards of `--rewards` and drops the chain's other rewards.
fn rewards(args: &Transient, chain: &mut Chain) -> Result<Vec<Reward>> {
    let mut all = Vec::new();
    for name in &args.rewards {
        match chain.rewards.iter().find(|r| r.name == *name) {
            Some(own) => all.push(own.clone()),
            None if let Some(why) = language::missing(chain, name) => {
                return fail(why.to_owned());
            }
            None if !Path::new(name).exists() => {
                let known: Vec<&str> = chain.rewards.iter().map(|r| &r.name[..]).collect();
                let known = match &known[..] {
                    [] => "the model has none".to_owned(),
                    some => format!("the model has: {}", some.join(", ")),
                };
                return fail(format!(
                    "no reward '{name}': {known}, and there is no file of that name; give a .srew or .trew file"
                ));
            }
            None if transition_rewards(Path::new(name)) => {
                for structure in trew::read(Path::new(name), chain.transitions.states())? {
                    all.push(structure.per_time_in(&*chain.transitions, Path::new(name))?);
                }
            }
            None => all.extend(srew::read(Path::new(name), chain.transitions.states())?),
        }
    }
    chain.rewards.clear();
    Ok(all)
}
