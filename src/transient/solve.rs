//! Solver of transient problems: scans the chain, builds the matrix and runs the method.

use std::time::{Duration, Instant};

use super::chain::distributed_rewards;
use super::chain::statistics::MatrixStatistics;
use super::chain::{Chain, Initial, Reward};
use super::chebyshev;
use super::checkpoint::{Checkpoint, Checkpointer};
use super::context::{Context, matrix_statistics, total};
use super::cost_model::Costs;
use super::exchange::cost::exchange_cost;
use super::exchange::parts::Parts;
use super::krylov::exponential;
use super::memory::expect_chain_memory;
use super::numerics::fixed_point::exact_mass;
use super::partition::RunFacts;
use super::partition::reordering::{Order, reorder};
use super::problem::{Method, Observer, Options, Partitioning, Problem, check, check_precision};
use super::scaling_squaring;
use super::solution::{Bound, RewardValue, Seconds, Solution, TimeResult};
use super::steady_state::power_iteration;
use super::step::matrix::MatrixInfo;
use super::subdivided;
use super::uniformization::batches::uniformize;
use super::validation::{ResultSummary, Validator, check_rewards, contradiction};
use crate::kernel::{Number, Precision, Q64};
use crate::lane::Lane;
use crate::ranks::Ranks;
use crate::{Error, Machine, Result, Status};

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
    machine.ranks.all_ok(check(machine.ranks, problem, options))?;
    machine.ranks.all_ok(check_precision(machine, problem, options))?;
    solve_with(machine, problem, options, observer, &mut Checkpointer::none())
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
        Problem { transitions, initial, times, rewards, vectors: true }
    }
}

/// Solves as [`solve`], with the state of the run in a file from which another process can
/// continue.
///
/// See [`checkpoint`](super::checkpoint). If the observer's [`progress`](Observer::progress)
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
    let ranks = machine.ranks;
    ranks.all_ok(check(ranks, problem, options))?;
    ranks.all_ok(check_precision(machine, problem, options))?;
    let name = match options.method {
        Method::Chebyshev { .. } => Some("Chebyshev"),
        Method::Krylov { .. } => Some("Krylov"),
        _ => None,
    };
    if let Some(name) = name {
        return Err(Error::Invalid(format!(
            "checkpoints of the {name} method are not supported; use `method` auto, or leave \
             `checkpoint` out"
        )));
    }
    // A previous solve of this chain may have released its rows.
    problem.transitions.acquire_rows(&distributed_rewards::home(problem.transitions.states(), ranks));
    let mut checkpointer = ranks.all_ok(Checkpointer::new(checkpoint, machine, problem, options))?;
    let options = Options { order: checkpointer.order().unwrap_or(options.order), ..*options };
    let solution = solve_with(machine, problem, &options, observer, &mut checkpointer)?;
    checkpointer.complete();
    Ok(solution)
}

fn solve_with(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<Solution> {
    match machine.precision {
        Precision::F32 => solve_in::<f32>(machine, problem, options, observer, checkpointer),
        Precision::F64 => solve_in::<f64>(machine, problem, options, observer, checkpointer),
        Precision::Q64 => solve_in::<Q64>(machine, problem, options, observer, checkpointer),
    }
}

fn solve_in<T: Number>(
    machine: &Machine,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<Solution> {
    let started = Instant::now();
    let (n, lanes, ranks) = (problem.transitions.states(), &machine.lanes, machine.ranks);
    ranks.all_ok(expect_chain_memory(machine, n))?;
    let statistics =
        matrix_statistics::<T>(machine, problem.transitions, options.format, problem.is_endless())?;
    let own = statistics.rows.clone();
    let initial = ranks.all_ok(problem.initial.probabilities_of(own.clone(), n))?;
    if ranks.is_distributed() {
        observer.rows(own.clone());
    }
    let costs = Costs::new(&statistics, n, machine);
    let expands = options.method == Method::Auto
        && T::PRECISION != Precision::Q64
        && checkpointer.is_idle()
        && options.split.halo_depth.is_none_or(|depth| depth == 1)
        && is_far(&statistics, &costs, problem, options.epsilon)?;
    let choices = match expands {
        true => Partitioning { halo_depth: Some(1), ..options.split },
        false => options.partitioning(),
    };
    let steps = expected_steps(&statistics, problem);
    let mut run = RunFacts { choices, format: options.format, steps, exchange_cost, known: None };
    let (reordered, order) =
        reorder(machine, problem, &initial, &statistics.lengths, &mut run, options.order)?;
    checkpointer.set_order(order);
    if let Some(reordered) = reordered {
        let initial = Initial::Distribution(reordered.permute(&reordered.initial));
        let rewards = reordered.rewards(problem.rewards);
        let own = Problem { transitions: &reordered, initial: &initial, rewards: &rewards, ..*problem };
        let options = Options { order: Order::Natural, ..*options };
        drop(statistics);
        let solution =
            solve_in::<T>(machine, &own, &options, &mut reordered.restore(observer), checkpointer)?;
        return Ok(Solution { order, ..solution });
    }
    let rewards = distributed_rewards::redistributed(problem.rewards, &own, n, ranks);
    let problem = &Problem { rewards: &rewards, ..*problem };
    let mut seconds = Seconds::default();
    let mut solution = Solution {
        probabilities: Vec::new(),
        status: Status::Met,
        bound: Bound::default(),
        n,
        nnz: statistics.nnz,
        alpha: statistics.alpha,
        terms: 0,
        expansion: None,
        eliminated: 0,
        matrix: MatrixInfo { format: "hyb".to_owned(), parts: 1, ..MatrixInfo::default() },
        order: Order::Natural,
        times: Vec::new(),
        device_bytes: 0,
        seconds,
    };
    let initial_error = problem.initial.rounding();
    let initial_mass = match problem.initial {
        Initial::State(_) => 1.0,
        _ => total(&initial, ranks),
    };
    let mut summaries = vec![None; problem.times.len()];
    let mut handed_over = Duration::ZERO;
    let given = (T::PRECISION == Precision::Q64).then(|| exact_mass(&initial, ranks));
    let mut observer =
        Validator { ranks, inner: observer, given, summaries: &mut summaries, spent: &mut handed_over };

    // At time 0, or without transitions, the result is the initial distribution itself.
    let still = |t: f64| t == 0.0 || statistics.alpha == 0.0;
    let mut times: Vec<Option<TimeResult>> =
        problem.times.iter().map(|&t| still(t).then(|| at_rest(t, initial_error))).collect();
    for (i, time) in times.iter_mut().enumerate() {
        if let Some(time) = time {
            time.rewards = rest_rewards(problem, &initial, ranks, problem.times[i]);
            if problem.vectors {
                observer.result(i, &initial)?;
            }
        }
    }
    checkpointer.set_rows(&own)?;
    solution.terms = checkpointer.replay(&mut times, &mut observer)?;
    if times.iter().all(Option::is_some) && solution.terms > 0 {
        solution.matrix.format = "none: the checkpoint was complete".to_owned();
    }
    if checkpointer.is_idle() && !ranks.is_distributed() {
        scaling_squaring::run(problem, options, &statistics, &initial, &mut times, &mut observer)?;
        if times.iter().all(Option::is_some) {
            "none".clone_into(&mut solution.matrix.format);
        }
    }
    // The lanes may have been used before.
    let (up_before, down_before) = transfers(lanes);
    if times.iter().any(Option::is_none) {
        // The search for closed classes, for the steady state only, follows transitions.
        if problem.times.iter().all(|t| t.is_finite()) {
            problem.transitions.release_outgoing();
        }
        let parts = Parts::build_for(machine, problem.transitions, &statistics, options.width, run)?;
        solution.matrix = parts.matrix.clone();
        let (uploaded, _) = transfers(lanes);
        seconds.build = started.elapsed().as_secs_f64() - (uploaded - up_before);
        let mut context =
            Context { machine, problem, options, statistics, costs, parts, initial, initial_error, expands };
        context.statistics.lengths = Vec::new();
        context.statistics.exit = Vec::new();
        let at = Instant::now();
        let finite: Vec<usize> =
            (0..times.len()).filter(|&i| times[i].is_none() && problem.times[i].is_finite()).collect();
        let mut last = None;
        if !finite.is_empty() {
            let terms = match options.method {
                Method::Auto | Method::Uniformization => {
                    let swept = uniformize(&context, &finite, &mut times, &mut observer, checkpointer)?;
                    (solution.expansion, last) = (swept.expansion, swept.last);
                    swept.terms
                }
                Method::Chebyshev { strict } | Method::Krylov { strict } => {
                    let expansion = match options.method {
                        Method::Krylov { .. } => {
                            exponential::run(&context, strict, None, &finite, &mut times, &mut observer)?
                        }
                        _ => chebyshev::run(&context, strict, &finite, &mut times, &mut observer)?,
                    };
                    solution.expansion = Some(expansion);
                    let left: Vec<usize> = finite.into_iter().filter(|&i| times[i].is_none()).collect();
                    let swept = match left.is_empty() {
                        true => 0,
                        false => uniformize(&context, &left, &mut times, &mut observer, checkpointer)?.terms,
                    };
                    expansion.terms + swept
                }
                Method::Subdivided { theta } => {
                    subdivided::run(&context, theta, &finite, &mut times, &mut observer, checkpointer)?
                }
            };
            checkpointer.ended(terms);
            solution.terms += terms;
        }
        let infinite: Vec<usize> = (0..times.len()).filter(|&i| times[i].is_none()).collect();
        if !infinite.is_empty() {
            let served =
                power_iteration::run(&context, &infinite, last, &mut times, &mut observer, checkpointer)?;
            checkpointer.ended(served.terms);
            solution.terms += served.terms;
            solution.eliminated = served.eliminated;
            if !served.met {
                solution.status = Status::NotMet;
            }
        }
        let (up, down) = transfers(lanes);
        (seconds.upload, seconds.download) = (up - up_before, down - down_before);
        // Lanes copy concurrently, so their sum may exceed the wall time.
        let spent = observer.spent.as_secs_f64();
        seconds.solve = (at.elapsed().as_secs_f64() - (up - uploaded) - seconds.download - spent).max(0.0);
        seconds.download += spent;
    }
    solution.times = times.into_iter().flatten().collect();
    assert_eq!(solution.times.len(), problem.times.len(), "every time was served");
    for (time, summaries) in solution.times.iter_mut().zip(summaries) {
        check_rewards(time)?;
        time.bound = time.bound.capped();
        if let Some(ResultSummary { mass, least, missing }) = summaries {
            let iterated = time.alpha_t > 0.0 && time.alpha_t.is_finite() && time.stopped.is_none();
            if let Some(missing) = missing.filter(|_| iterated) {
                time.bound = time.bound.of_missing(missing + initial_error);
            }
            time.mass = Some(mass);
            time.contradiction = contradiction(mass, initial_mass, least, time.bound.total());
        }
        solution.bound = solution.bound.worst(&time.bound);
        if time.bound.total() > options.epsilon || time.contradiction.is_some() {
            solution.status = Status::NotMet;
        }
    }
    let most = lanes.iter().map(Lane::peak_bytes).max().unwrap_or(0);
    solution.device_bytes = ranks.all_gather(&[most]).into_iter().flatten().max().unwrap_or(0);
    solution.seconds = Seconds { total: started.elapsed().as_secs_f64(), ..seconds };
    Ok(solution)
}

/// Returns the matrix–vector products of the last time by uniformization, or 1e4 for the limit.
fn expected_steps<T: Number>(statistics: &MatrixStatistics<T>, problem: &Problem<'_>) -> f64 {
    const LIMIT: f64 = 1e4;
    let of = |&t: &f64| if t.is_finite() { statistics.alpha * t } else { LIMIT };
    problem.times.iter().map(of).fold(0.0, f64::max)
}

/// True if the Chebyshev or Krylov method may pay for one of the times.
fn is_far<T: Number>(
    statistics: &MatrixStatistics<T>,
    costs: &Costs,
    problem: &Problem<'_>,
    epsilon: f64,
) -> Result<bool> {
    let longest = problem.times.iter().copied().filter(|t| t.is_finite()).fold(0.0, f64::max);
    if longest == 0.0 || statistics.alpha == 0.0 {
        return Ok(false);
    }
    let lambda = statistics.lambda(longest)?;
    let krylov = T::PRECISION == Precision::F64 && exponential::is_worth(costs, lambda);
    Ok(chebyshev::is_worth(lambda, epsilon) || krylov)
}

/// Returns the seconds of copies to and from the lanes so far, the longest of each.
fn transfers(lanes: &[Lane]) -> (f64, f64) {
    let all = lanes.iter().map(Lane::transfer_seconds);
    all.fold((0.0, 0.0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
}

fn at_rest(time: f64, rounding: f64) -> TimeResult {
    TimeResult { time, bound: Bound { rounding, ..Bound::default() }, ..TimeResult::default() }
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
