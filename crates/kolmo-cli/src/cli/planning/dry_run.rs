//! `--dry-run` of `kolmo walk`: memory and time, predicted from a pilot run.

use serde::Serialize;

use crate::cli::planning::advice;
use crate::cli::prelude::*;
use crate::report::devices;
use kolmo::lane::{Lane, available_memory};
use kolmo::walk::{Component, Count, Options, PILOT, Problem, Solution, solve};

/// Maximum number of components in the pilot of `walk`.
const COMPONENTS: usize = 16;
/// Chains per replicate in the pilot of `walk`.
const CHAINS: u64 = 256;
/// Time limit of the pilot of `walk`.
const TIME: Duration = Duration::from_millis(500);

/// Memory that a lane or the host needs, and its free memory.
#[derive(Clone, Serialize)]
struct MemoryNeed {
    device: String,
    needed: u64,
    free: Option<u64>,
}

impl MemoryNeed {
    /// Memory of each lane; the need is the peak of a pilot run.
    fn lanes(machine: &Machine, free: Vec<Option<u64>>) -> Vec<Self> {
        let one = |(lane, free): (&Lane, Option<u64>)| Self {
            device: format!("{} {}", lane.device().spec, lane.device().name),
            needed: lane.peak_bytes(),
            free,
        };
        machine.lanes.iter().zip(free).map(one).collect()
    }

    fn line(&self, what: &str) -> String {
        let there = report::plan::free(self.free, self.needed);
        format!("memory   {}  {what} {}; {there}", self.device, bytes(self.needed))
    }
}

/// Pilot run of walks and its extrapolation to the requested half-width.
struct Walks {
    solution: Solution,
    /// Number of components and functionals in the pilot.
    piloted: usize,
    /// Chains of each of them.
    chains: u64,
    /// Seconds after which [`TIME`] ended the pilot; `None` if all its chains were walked.
    ended: Option<f64>,
    /// Steps per second.
    rate: f64,
    /// Largest number of steps of a chain.
    length: u32,
    /// Chains that a component needs.
    worst: f64,
    /// Chains of a component, limited by `--max-chains`.
    capped: f64,
    /// Predicted seconds of all walks.
    seconds: f64,
}

impl Walks {
    /// Prepares the walks, and runs a few chains of a few components.
    fn pilot(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<Self> {
        let few = &problem.components[..problem.components.len().min(COMPONENTS)];
        let functionals = &problem.functionals[..problem.functionals.len().min(COMPONENTS)];
        let pilot = problem.components(few).functionals(functionals);
        let chains = CHAINS * u64::from(options.replicates.max(1));
        // A given number of chains requests walks, even if BiCGSTAB would be faster.
        let walked = match options.chains {
            Count::Grow => options.clone().max_chains(chains),
            _ => options.clone().chains(Count::Number(chains)),
        };
        let walked = walked.walk_limit(Some(TIME));
        let (mut first, mut seen) = (None, (0, 0));
        let solution = solve(machine, &pilot, &walked, &mut |done, all| {
            if all > 0 {
                first.get_or_insert_with(Instant::now);
                seen = (done, all);
            }
            interrupt::check()
        })?;
        let answers = || solution.components.iter().chain(&solution.functionals);
        // If the time limit ended the pilot's chains, the rate is that of their steps so far.
        let ended = first.filter(|_| solution.steps == 0).map(|since| since.elapsed().as_secs_f64());
        let (rate, length) = match ended {
            Some(seconds) => {
                let walks = chains * if few.is_empty() { functionals.len() } else { few.len() } as u64;
                (seen.0 as f64 / seconds, (seen.1 / walks.max(1)) as u32)
            }
            None => {
                let rate = solution.steps as f64 / solution.seconds.solve.max(1e-9);
                (rate, answers().map(|c| c.length).max().unwrap_or(0))
            }
        };
        let worst = match options.chains {
            Count::Number(n) => n as f64,
            // The chains of the first round.
            _ if ended.is_some() => (PILOT * u64::from(options.replicates)) as f64,
            _ => answers().map(needed).fold(chains as f64, f64::max),
        };
        let capped = if length > 0 { worst.min(options.max_chains.max(chains) as f64) } else { 0.0 };
        let all = asked(problem) as f64 * problem.rhs.len() as f64;
        let seconds = if length > 0 { capped * f64::from(length) * all / rate.max(1.0) } else { 0.0 };
        let piloted = few.len() + functionals.len();
        Ok(Self { solution, piloted, chains, ended, rate, length, worst, capped, seconds })
    }

    /// Prints the pilot, the predicted chains and the predicted time.
    fn say(&self, load: f64, prepare: f64) {
        let Self { solution, piloted, ended, length, .. } = self;
        let found = match *ended {
            Some(time) => format!("none at its end after {}", seconds(time)),
            None => format!("half-width {:.1e}", solution.bound.total()),
        };
        let (chains, rate) = (grouped(self.chains), 1e-6 * self.rate);
        let chains = match length {
            0 => format!("no walk: {found}"),
            _ => format!("{chains} chains each: {found}, {rate:.1} million steps/s"),
        };
        say(format_args!("pilot    {piloted} of the components, {chains}"));
        if solution.krylov > 0 {
            let products = grouped(solution.krylov as u64);
            say(format_args!(
                "control  {products} products of BiCGSTAB, after which walks have {length} steps at most"
            ));
        }
        let [load, prepare, walks] = [load, prepare, self.seconds].map(seconds);
        if *length == 0 {
            return say(format_args!("time     load {load}, prepare {prepare}, no walk"));
        }
        let missed = self.worst > self.capped;
        let limit = if missed { ", where --max-chains ends; the half-width will not be met" } else { "" };
        let most = if ended.is_some() { "at least" } else { "at most" };
        let ([chains, length], epsilon) =
            ([self.capped as u64, u64::from(*length)].map(grouped), solution.epsilon);
        say(format_args!(
            "chains   {most} about {chains} a component of at most {length} steps for {epsilon:.1e}{limit}"
        ));
        say(format_args!("time     load {load}, prepare {prepare}, walks {most} about {walks}"));
    }
}

/// Chains that a component needs if its interval shrinks with the square root of their number, as
/// for pseudo-random points.
fn needed(c: &Component) -> f64 {
    let left = c.epsilon - c.bound.truncation - c.bound.rounding;
    match left > 0.0 {
        true => (c.chains as f64 * (c.bound.statistical / left).powi(2)).max(c.chains as f64),
        false => f64::INFINITY,
    }
}

/// Number of requested components and functionals.
fn asked(problem: &Problem<'_>) -> usize {
    problem.components.len() + problem.functionals.len()
}

/// Predicts memory and time of walks from a pilot run.
pub(crate) fn walk(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    system: &str,
    load: f64,
    report: Option<OutputFile>,
) -> Result<Status> {
    let free: Vec<Option<u64>> = machine.lanes.iter().map(Lane::free_bytes).collect();
    let walks = Walks::pilot(machine, problem, options)?;
    let solution = &walks.solution;
    let prepare = solution.seconds.build + solution.seconds.certificate + solution.seconds.upload;
    let rooms = MemoryNeed::lanes(machine, free);
    let needed = (12 * problem.matrix.nnz() + 8 * 8 * problem.matrix.rows()) as u64 + solution.table_bytes;
    let host = MemoryNeed { device: "the host".to_owned(), needed, free: Some(available_memory()) };
    let object = json!({
        "command": "walk",
        "dry_run": true,
        "model": system,
        "devices": devices(machine),
        "n": solution.n,
        "nnz": solution.nnz,
        "norm": solution.norm,
        "epsilon": solution.epsilon,
        "components": asked(problem),
        "chains": walks.capped,
        "length": walks.length,
        "steps_per_s": walks.rate,
        "pilot": {"components": walks.piloted, "chains": walks.chains, "half_width": solution.bound.total()},
        "memory": rooms,
        "host": host,
        "seconds": {
            "load": load, "prepare": prepare, "walks": walks.seconds, "total": load + prepare + walks.seconds,
        },
    });
    write_object(report, &object)?;
    let ([unknowns, entries], norm) = ([solution.n, solution.nnz].map(|k| grouped(k as u64)), solution.norm);
    let precision = machine.precision;
    say(format_args!(
        "system   {system}  {unknowns} unknowns, {entries} entries, norm {norm:.6}, {precision}"
    ));
    for room in &rooms {
        say(room.line(&format!("chain table {} and sums", bytes(solution.table_bytes))));
    }
    say(host.line("matrix, vectors and table"));
    walks.say(load, prepare);
    if walks.length > 0 {
        let steps = walks.seconds * walks.rate;
        advice::note(options, walks.seconds, steps, problem.matrix.nnz()).into_iter().for_each(say);
    }
    Ok(Status::Met)
}
