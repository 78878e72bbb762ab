//! Solver of transient problems: scans the chain, builds the matrix and runs the method.

use std::borrow::Cow;
use std::time::Instant;

use super::chain::statistics::MatrixStatistics;
use super::chain::{Chain, Initial, Reward};
use super::checkpoint::{Checkpoint, Checkpointer};
use super::context::{Context, matrix_statistics, total};
use super::cost_model::Costs;
use super::exchange::parts::ChainParts;
use super::krylov::exponential;
use super::lockstep::GroupMember;
use super::memory::expect_chain_memory;
use super::numerics::fixed_point::exact_mass;
use super::problem::{Method, Observer, Options, Partitioning, Problem, check, check_precision};
use super::session::RunSession;
use super::solution::{Bound, RewardValue, Seconds, Solution, TimeResult};
use super::steady_state::limit::LimitProblem;
use super::step::matrix::{MatrixInfo, PartMatrix};
use super::uniformization::batches::uniformize;
use super::validation::{ResultSummary, Validator, check_rewards, contradiction};
use super::{chebyshev, scaling_squaring};
use crate::kernel::{Number, Precision};
use crate::lane::Lane;
use crate::ranks::Ranks;
use crate::{Invalid, Machine, Result, Status};

/// Computes the probabilities at every time of the problem, on one or several lanes.
///
/// The rows are shared between the lanes.
///
/// # Errors
/// For times that are negative or NaN, ε outside of (0, 1), an invalid initial distribution,
/// rewards of the wrong length. If a lane lacks memory or is lost. Any error that the observer
/// returns.
pub fn solve(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Solution> {
    checked(machine, problem, options)?;
    let checkpointer = &mut Checkpointer::none();
    let own = machine.of_thread();
    let machine = own.as_ref().unwrap_or(machine);
    by_precision!(machine.precision, solve_in(machine, problem, options, observer, checkpointer, None))
}

/// Solves as [`solve`] in double precision, with statistics and a matrix on the only lane.
pub(super) fn solve_with(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    given: (MatrixStatistics<f64>, PartMatrix<f64>),
) -> Result<Solution> {
    checked(machine, problem, options)?;
    solve_in(machine, problem, options, observer, &mut Checkpointer::none(), Some(given))
}

impl Chain {
    /// Computes the probabilities and the chain's rewards at times 0 … ∞ on the best device.
    ///
    /// # Errors
    /// As [`solve`]; and if the device does not open.
    pub fn transient(&self, times: &[f64]) -> Result<Solution> {
        self.transient_on(&Machine::best()?, times, &Options::default())
    }

    /// Computes the probabilities and the chain's rewards at times 0 … ∞ on a given machine.
    ///
    /// # Errors
    /// As [`solve`].
    pub fn transient_on(&self, machine: &Machine, times: &[f64], options: &Options) -> Result<Solution> {
        let mut probabilities = Vec::new();
        let solution = solve(machine, &self.at(times), options, &mut probabilities)?;
        Ok(Solution { probabilities, ..solution })
    }

    /// Returns the problem of the probabilities and the chain's rewards at `times`.
    pub fn at<'a>(&'a self, times: &'a [f64]) -> Problem<'a> {
        let (transitions, initial, rewards) = (&*self.transitions, &self.initial, &self.rewards[..]);
        Problem { transitions, initial, times, rewards, vectors: true, mass_error: 0.0 }
    }
}

/// Solves as [`solve`], with the state of the run in a file from which another process can
/// continue.
///
/// See [`checkpoint`](super::checkpoint). If the observer's [`progress`](crate::Progress::progress)
/// returns [`Error::Interrupted`](crate::Error::Interrupted), the state is saved before that error
/// is returned. Results that an earlier run delivered are delivered again.
///
/// # Errors
/// As [`solve`]; and if the checkpoint belongs to another run.
pub fn solve_resumable(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpoint: &mut Checkpoint,
) -> Result<Solution> {
    checked(machine, problem, options)?;
    let name = match options.method {
        Method::Chebyshev { .. } => Some("Chebyshev"),
        Method::Krylov { .. } => Some("Krylov"),
        _ => None,
    };
    if let Some(name) = name {
        return Invalid::Unsupported.fail(format!(
            "checkpoints of the {name} method are not supported; use `method` auto, or leave \
             `checkpoint` out"
        ));
    }
    let mut checkpointer = machine.ranks.all_ok(Checkpointer::new(checkpoint, machine, problem, options))?;
    let saved = &mut checkpointer;
    let solution =
        by_precision!(machine.precision, solve_in(machine, problem, options, observer, saved, None))?;
    checkpointer.complete();
    Ok(solution)
}

/// Checks the problem and the options on all ranks; fails on every rank if one fails.
fn checked(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<()> {
    let sound = check(problem, options).and_then(|()| check_precision(machine, problem, options));
    machine.ranks.all_ok(sound)
}

/// Scans the rows, unless statistics and matrix are `given`; then solves as [`Scanned::solve`].
fn solve_in<T: Number>(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
    given: Option<(MatrixStatistics<T>, PartMatrix<T>)>,
) -> Result<Solution> {
    let started = Instant::now();
    let (n, ranks) = (problem.transitions.states(), machine.ranks);
    ranks.all_ok(expect_chain_memory(machine, n))?;
    let (statistics, matrix) = match given {
        Some((statistics, matrix)) => (statistics, Some(matrix)),
        None => (matrix_statistics::<T>(machine, problem.transitions, options.format)?, None),
    };
    let own = statistics.rows.clone();
    let initial = ranks.all_ok(problem.initial.probabilities_within(own.clone(), n, problem.mass_error))?;
    if ranks.is_distributed() {
        observer.rows(own.clone());
    }
    let costs = Costs::new(&statistics, n, machine);
    let expands = options.method == Method::Auto
        && T::PRECISION != Precision::Q64
        && checkpointer.is_idle()
        && options.split.halo_depth.is_none_or(|depth| depth == 1)
        && is_far(&statistics, &costs, problem, options.epsilon)?;
    let split = match expands {
        true => Partitioning { halo_depth: Some(1), ..options.split },
        false => options.partitioning(),
    };
    // A rank has the rewards of its own rows.
    let of_own =
        |reward: &Reward| Reward { name: reward.name.clone(), values: reward.values[own.clone()].to_vec() };
    let rewards: Cow<'_, [Reward]> = match ranks.is_distributed() {
        true => problem.rewards.iter().map(of_own).collect(),
        false => Cow::Borrowed(problem.rewards),
    };
    let problem = &Problem { rewards: &rewards, ..*problem };
    let scanned = Scanned { machine, problem, options, statistics, matrix, initial, expands, split };
    let solution = scanned.solve(started, observer, checkpointer)?;
    Ok(Solution {
        seconds: Seconds { total: started.elapsed().as_secs_f64(), ..solution.seconds },
        ..solution
    })
}

/// Problem after the scan of its rows: the data from which the matrix is built.
struct Scanned<'a, T> {
    machine: &'a Machine,
    problem: &'a Problem<'a>,
    options: &'a Options,
    statistics: MatrixStatistics<T>,
    /// Matrix on the only lane, if there is one already.
    matrix: Option<PartMatrix<T>>,
    /// Initial probabilities of this rank's rows.
    initial: Vec<f64>,
    expands: bool,
    split: Partitioning,
}

impl<T: Number> Scanned<'_, T> {
    fn solve(
        self,
        started: Instant,
        observer: &mut dyn Observer,
        checkpointer: &mut Checkpointer<'_>,
    ) -> Result<Solution> {
        let Self { machine, problem, options, .. } = self;
        let (ranks, initial_error) = (machine.ranks, problem.initial.rounding());
        let mut solution = self.solution();
        let initial_mass = match problem.initial {
            Initial::State(_) => 1.0,
            _ => total(&self.initial, ranks),
        };
        let discrete = self.statistics.discrete;
        let given = (T::PRECISION == Precision::Q64).then(|| exact_mass(&self.initial, ranks));
        let mut validator = Validator::new(ranks, observer, given, problem.times.len());
        let at_rest = self.results_at_rest(&mut validator)?;
        let mut session = RunSession::new(&mut validator, checkpointer, at_rest);
        session.checkpointer.set_rows(&self.statistics.rows)?;
        solution.terms = session.replay()?;
        if session.is_complete() && solution.terms > 0 {
            solution.matrix.format = "none: the checkpoint was complete".to_owned();
        }
        if session.checkpointer.is_idle() && !ranks.is_distributed() {
            scaling_squaring::run(problem, options, &self.statistics, &self.initial, &mut session)?;
            if session.is_complete() {
                "none".clone_into(&mut solution.matrix.format);
            }
        }
        let (finite, endless): (Vec<usize>, Vec<usize>) =
            session.unserved().partition(|&index| problem.times[index].is_finite());
        let Self { machine, problem, options, .. } = self;
        let (scale, rows) = (self.statistics.scale, self.statistics.rows.clone());
        let begin = if endless.is_empty() { Vec::new() } else { self.initial.clone() };
        match finite.is_empty() {
            false => self.run(finite, started, &mut session, &mut solution)?,
            true if endless.is_empty() => {}
            // A limit alone needs no matrix on the lanes.
            true => "none".clone_into(&mut solution.matrix.format),
        }
        if !endless.is_empty() {
            let at = Instant::now();
            let steady = LimitProblem { machine, problem, options, scale, rows, initial: &begin };
            let served = steady.run(&endless, &mut session)?;
            session.checkpointer.ended(served.terms);
            solution.terms += served.terms;
            solution.eliminated = served.eliminated;
            solution.seconds.solve += at.elapsed().as_secs_f64();
            if !served.met {
                solution.status = Status::NotMet;
            }
        }
        solution.times = session.into_results();
        // Lanes copy concurrently, so their sum may exceed the wall time.
        let spent = validator.spent.as_secs_f64();
        solution.seconds.solve = (solution.seconds.solve - spent).max(0.0);
        solution.seconds.download += spent;
        for (time, summary) in solution.times.iter_mut().zip(validator.summaries) {
            check_rewards(time)?;
            time.bound = time.bound.capped();
            if let Some(ResultSummary { mass, least, missing }) = summary {
                let iterated = time.alpha_t > 0.0 && time.alpha_t.is_finite() && time.stopped.is_none();
                if let Some(missing) = missing.filter(|_| iterated) {
                    // In discrete time each step may move 2⁻⁶⁴ to the wrong state.
                    let moved = if discrete { time.alpha_t * (-63f64).exp2() } else { 0.0 };
                    time.bound = time.bound.of_missing(missing + moved + initial_error);
                }
                time.mass = Some(mass);
                time.contradiction = contradiction(mass, initial_mass, least, time.bound.total());
            }
            solution.bound = solution.bound.worst(&time.bound);
            if time.bound.total() > options.epsilon || time.contradiction.is_some() {
                solution.status = Status::NotMet;
            }
        }
        let most = machine.lanes.iter().map(Lane::peak_bytes).max().unwrap_or(0);
        solution.device_bytes = ranks.all_gather(&[most]).into_iter().flatten().max().unwrap_or(0);
        Ok(solution)
    }

    /// Returns a solution that has no results for the requested times yet.
    fn solution(&self) -> Solution {
        Solution {
            probabilities: Vec::new(),
            status: Status::Met,
            bound: Bound::default(),
            n: self.problem.transitions.states(),
            nnz: self.statistics.nnz,
            alpha: self.statistics.alpha,
            discrete: self.problem.transitions.is_discrete(),
            terms: 0,
            expansion: None,
            eliminated: 0,
            matrix: MatrixInfo { format: "hyb".to_owned(), parts: 1, ..MatrixInfo::default() },
            times: Vec::new(),
            device_bytes: 0,
            seconds: Seconds::default(),
        }
    }

    /// Returns the results at times when the distribution still is the initial one.
    ///
    /// These are time 0, and all times of a chain without transitions.
    fn results_at_rest(&self, observer: &mut dyn Observer) -> Result<Vec<Option<TimeResult>>> {
        let problem = self.problem;
        let mut results = vec![None; problem.times.len()];
        for (index, &time) in problem.times.iter().enumerate() {
            if time != 0.0 && self.statistics.alpha != 0.0 {
                continue;
            }
            let bound = Bound { rounding: problem.initial.rounding(), ..Bound::default() };
            let rewards = rest_rewards(problem, &self.initial, self.machine.ranks, time);
            results[index] = Some(TimeResult { time, bound, rewards, ..TimeResult::default() });
            if problem.vectors {
                observer.result(index, &self.initial)?;
            }
        }
        Ok(results)
    }

    /// Builds the matrix, and runs the methods for the `finite` times without a result.
    fn run(
        self,
        finite: Vec<usize>,
        started: Instant,
        session: &mut RunSession<'_, '_>,
        solution: &mut Solution,
    ) -> Result<()> {
        let Self { machine, problem, options, statistics, matrix, initial, expands, split } = self;
        // The lanes may have been used before.
        let (up_before, down_before) = transfers(&machine.lanes);
        let member = match session.checkpointer.is_idle() {
            true => GroupMember::join(machine, problem, options, &statistics, expands),
            false => None,
        };
        let parts = match (matrix, member) {
            (None, None) => None,
            (matrix, member) => Some(ChainParts::whole(machine, &statistics, matrix, member)?),
        };
        let context = Context::build(machine, problem, options, statistics, initial, expands, split, parts)?;
        solution.matrix = context.parts.matrix.clone();
        let (uploaded, _) = transfers(&machine.lanes);
        solution.seconds.build = started.elapsed().as_secs_f64() - (uploaded - up_before);
        let at = Instant::now();
        let mut due = context.due(finite)?;
        let mut terms = 0;
        let expansion = match options.method {
            Method::Krylov { strict } => Some(exponential::run(&context, strict, None, &due, session)?),
            Method::Chebyshev { strict } => Some(chebyshev::run(&context, strict, &due, session)?),
            _ => None,
        };
        if let Some(expansion) = expansion {
            terms = expansion.terms;
            due.retain(|due| !session.is_served(due.index));
        }
        if !due.is_empty() {
            let swept = uniformize(&context, &due, session)?;
            terms += swept.terms;
            solution.expansion = swept.expansion;
        }
        solution.expansion = expansion.or(solution.expansion);
        session.checkpointer.ended(terms);
        solution.terms += terms;
        let (up, down) = transfers(&machine.lanes);
        let seconds = &mut solution.seconds;
        (seconds.upload, seconds.download) = (up - up_before, down - down_before);
        seconds.solve = at.elapsed().as_secs_f64() - (up - uploaded) - seconds.download;
        Ok(())
    }
}

/// True if the Chebyshev or Krylov method may pay for one of the times.
fn is_far<T: Number>(
    statistics: &MatrixStatistics<T>,
    costs: &Costs,
    problem: &Problem<'_>,
    epsilon: f64,
) -> Result<bool> {
    let longest = problem.times.iter().copied().filter(|t| t.is_finite()).fold(0.0, f64::max);
    if longest == 0.0 || statistics.alpha == 0.0 || statistics.discrete {
        return Ok(false);
    }
    let lambda = statistics.lambda(longest)?;
    let krylov = T::PRECISION == Precision::F64 && exponential::is_worth(costs, lambda);
    Ok(chebyshev::is_worth(lambda, epsilon) || krylov)
}

/// Returns the seconds of copies to the lanes, and from them, each the maximum over lanes.
fn transfers(lanes: &[Lane]) -> (f64, f64) {
    let all = lanes.iter().map(Lane::transfer_seconds);
    all.fold((0.0, 0.0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
}

fn rest_rewards(problem: &Problem<'_>, initial: &[f64], ranks: Ranks, t: f64) -> Vec<RewardValue> {
    let value = |r: &Reward| {
        let mut sum = [0.0];
        ranks.ordered_reduce(&mut sum, |sum| {
            r.values.iter().zip(initial).for_each(|(r, p)| sum[0] += r * p);
        });
        let instantaneous = sum[0];
        // A chain at rest earns its reward rate for the whole time, and nothing in no time.
        let cumulative = if t == 0.0 || instantaneous == 0.0 { 0.0 } else { instantaneous * t };
        RewardValue { name: r.name.clone(), instantaneous, cumulative }
    };
    problem.rewards.iter().map(value).collect()
}
