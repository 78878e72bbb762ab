//! From a problem to its answer: plan the windows, build the matrix, sweep.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::bound::{MatrixStatistics, expect_room, scale_of, statistics, statistics_of_rows};
use super::chain::{Initial, Reward, Transitions, add_rates};
use super::checkpoint::{Checkpoint, Checkpointer};
use super::iteration::Iteration;
use super::matrix::MatrixInfo;
use super::order::{Order, reorder};
use super::partitioning::{Partitioning, rows_of, share};
use super::parts::Parts;
use super::poisson::Window;
use super::sweep::{Planned, Sweep};
use super::{rewards, stationary, subdivided};
use crate::kernel::{Precision, Real};
use crate::lane::Lane;
use crate::ranks::Ranks;
use crate::sparse::{MatrixFormat, WidthRule};
use crate::{Error, Result};

/// What is asked.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// The chain's transitions.
    pub transitions: &'a dyn Transitions,
    /// Where it begins.
    pub initial: &'a Initial,
    /// Times ≥ 0, in any order; infinity is the steady state.
    pub times: &'a [f64],
    /// Rewards whose expectations are wanted at each time.
    pub rewards: &'a [Reward],
    /// Whether the probabilities themselves are wanted.
    pub vectors: bool,
}

/// How the sum is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Method {
    /// One sweep with unscaled iterates.
    #[default]
    Sweep,
    /// l = ⌈αt/Θ⌉ intervals of equal length, each a sum of its own from the result of the one before: Algorithm 1
    /// of Karwacki, Bylina, Bylina (FedCSIS 2012), with the error shared over the intervals.
    Subdivided {
        /// Largest αt of an interval.
        theta: f64,
    },
}

/// How it is computed.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bound on the total l1 error of each time's probabilities.
    pub epsilon: f64,
    /// Rule for the ELL width.
    pub width: WidthRule,
    /// Format of the matrix.
    pub format: MatrixFormat,
    /// Method.
    pub method: Method,
    /// How rows are split over lanes.
    pub split: Partitioning,
    /// Order of the states inside.
    pub order: Order,
}

impl Options {
    /// How rows are split for the method.
    pub(super) fn partitioning(&self) -> Partitioning {
        match self.method {
            Method::Sweep => self.split,
            // Its terms are scaled by kernels that know of own rows alone.
            Method::Subdivided { .. } => Partitioning { halo_depth: Some(1), ..self.split },
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            epsilon: 1e-6,
            width: WidthRule::Auto,
            format: MatrixFormat::Auto,
            method: Method::Sweep,
            split: Partitioning::default(),
            order: Order::Auto,
        }
    }
}

/// What the solver tells while it works.
pub trait Observer: Send {
    /// Multiplications done, and an upper bound of all. An error stops the work.
    fn progress(&mut self, done: u64, all: u64) -> Result<()>;
    /// The states whose probabilities this rank will be given; not called where there is one rank, which has all.
    fn rows(&mut self, _rows: Range<usize>) {}
    /// The probabilities at time number `index`, one a state. Times arrive in the order of their windows.
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()>;
}

/// Whether the requested bound is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is.
    Met,
    /// It is not.
    NotMet,
}

/// A proved bound on an l1 error; the total is the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Bound {
    /// Poisson mass outside of the window.
    pub truncation: f64,
    /// Iterates replaced by an earlier one.
    pub steady_state: f64,
    /// Rounding of numbers stored and computed.
    pub rounding: f64,
}

impl Bound {
    /// The bound on the error.
    pub fn total(&self) -> f64 {
        self.truncation + self.steady_state + self.rounding
    }

    /// The same with a sum of at most 2: no two distributions differ by more.
    fn capped(self) -> Self {
        // A bound that is no number is none.
        let truncation = self.truncation.min(2.0);
        let steady_state = self.steady_state.min(2.0 - truncation);
        Self { truncation, steady_state, rounding: self.rounding.min(2.0 - truncation - steady_state) }
    }
}

/// A reward's expectations at one time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RewardValue {
    /// The reward's name.
    pub name: String,
    /// Expected rate of reward at the time.
    pub instantaneous: f64,
    /// Expected reward accumulated up to the time; NaN where it is not known, which is at infinity for a reward that
    /// may die out.
    pub cumulative: f64,
}

/// What is known of one time.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct TimeResult {
    /// The time; `null` in JSON where it is infinite.
    pub time: f64,
    /// Uniformization rate times time.
    pub alpha_t: f64,
    /// First and last term of the sum.
    pub window: (u64, u64),
    /// Bound on the l1 error.
    pub bound: Bound,
    /// Sum of the probabilities, if they were computed.
    pub mass: Option<f64>,
    /// How the probabilities contradict the bound, if they do; it is then not met.
    pub contradiction: Option<String>,
    /// Expectations of rewards.
    pub rewards: Vec<RewardValue>,
}

/// Seconds of each phase.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Seconds {
    /// Reading the model.
    pub load: f64,
    /// Surveying and building the matrix.
    pub build: f64,
    /// Copying to the device.
    pub upload: f64,
    /// Multiplying.
    pub solve: f64,
    /// Copying to the host and handing results over.
    pub download: f64,
    /// All of it.
    pub total: f64,
}

/// The answer, the probabilities themselves having gone to the [`Observer`].
#[derive(Debug, Clone)]
pub struct Solution {
    /// Whether the requested bound is met at every time.
    pub status: Status,
    /// Termwise worst bound over times.
    pub bound: Bound,
    /// Number of states.
    pub n: usize,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Uniformization rate: the largest exit rate.
    pub alpha: f64,
    /// Multiplications.
    pub terms: u64,
    /// States that were eliminated for the steady state; 0 where it was iterated.
    pub eliminated: usize,
    /// The matrix as stored.
    pub matrix: MatrixInfo,
    /// Order of the states inside.
    pub order: Order,
    /// Each time, in the order asked.
    pub times: Vec<TimeResult>,
    /// Largest number of bytes held on the device.
    pub device_bytes: u64,
    /// Seconds of `build` and `solve`.
    pub seconds: Seconds,
}

/// Computes the probabilities at every time of the problem on one lane or several, which share the rows.
///
/// # Errors
/// Times that are negative or NaN, ε outside of (0, 1), an initial distribution that is none, rewards of another
/// length; a lane that lacks memory or is lost; whatever the observer returns.
pub fn solve(
    lanes: &[Lane],
    precision: Precision,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Solution> {
    options.split.ranks.all_ok(check(problem, options))?;
    solve_kept(lanes, precision, problem, options, observer, &mut Checkpointer::none())
}

/// As [`solve`], with the state of the run in a file from which another process can go on, see
/// [`checkpoint`](super::checkpoint). When the observer's [`progress`](Observer::progress) gives
/// [`Error::Interrupted`], the state is kept before that error is returned. Results that a run before delivered are
/// delivered again.
///
/// # Errors
/// As [`solve`]; and if the checkpoint belongs to another run.
pub fn solve_resumable(
    lanes: &[Lane],
    precision: Precision,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpoint: &mut Checkpoint,
) -> Result<Solution> {
    let ranks = options.split.ranks;
    ranks.all_ok(check(problem, options))?;
    // Of a chain that was solved before.
    problem.transitions.settle(&rewards::home(problem.transitions.states(), ranks));
    let mut checkpointer = ranks.all_ok(Checkpointer::new(checkpoint, lanes, precision, problem, options))?;
    let options = Options { order: checkpointer.order().unwrap_or(options.order), ..*options };
    let solution = solve_kept(lanes, precision, problem, &options, observer, &mut checkpointer)?;
    checkpointer.complete();
    Ok(solution)
}

fn solve_kept(
    lanes: &[Lane],
    precision: Precision,
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<Solution> {
    match precision {
        Precision::F32 => solve_in::<f32>(lanes, problem, options, observer, checkpointer),
        Precision::F64 => solve_in::<f64>(lanes, problem, options, observer, checkpointer),
    }
}

pub(super) fn check(problem: &Problem<'_>, options: &Options) -> Result<()> {
    let epsilon = options.epsilon;
    if !(epsilon > 0.0 && epsilon < 1.0) {
        return Err(Error::Invalid(format!(
            "epsilon is {epsilon}; it must lie between 0 and 1, both excluded"
        )));
    }
    if let Method::Subdivided { theta } = options.method
        && !(theta > 0.0 && theta.is_finite())
    {
        return Err(Error::Invalid(format!("theta is {theta}; it must be a number above 0")));
    }
    let n = problem.transitions.states();
    if n == 0 {
        return Err(Error::Invalid("the chain has no states".to_owned()));
    }
    if problem.times.is_empty() {
        return Err(Error::Invalid("no time was asked for; give --time T".to_owned()));
    }
    if let Some(t) = problem.times.iter().find(|t| t.is_nan() || **t < 0.0) {
        return Err(Error::Invalid(format!("time {t} is not a time; it must be 0 or more")));
    }
    for reward in problem.rewards {
        let home = || rewards::home(n, options.split.ranks).len();
        if reward.values.len() != n && (problem.transitions.whole() || reward.values.len() != home()) {
            let (name, got) = (&reward.name, reward.values.len());
            return Err(Error::Invalid(format!("reward '{name}' has {got} values, the chain {n} states")));
        }
    }
    Ok(())
}

/// A chain built on its lane, and what the methods share.
pub(crate) struct Built<'a, T> {
    pub(crate) lanes: &'a [Lane],
    /// Its rewards are those of this rank's rows.
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) options: &'a Options,
    pub(crate) statistics: MatrixStatistics<T>,
    pub(crate) parts: Parts<T>,
    /// Of this rank's rows.
    pub(crate) initial: Vec<f64>,
    /// Error of the initial probabilities as numbers.
    pub(crate) initial_error: f64,
}

fn solve_in<T: Real>(
    lanes: &[Lane],
    problem: &Problem<'_>,
    options: &Options,
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<Solution> {
    let started = Instant::now();
    let n = problem.transitions.states();
    let ranks = options.split.ranks;
    ranks.all_ok(expect_room::<T>(lanes, problem.transitions, ranks))?;
    let statistics = surveyed::<T>(lanes, problem.transitions, ranks)?;
    let own = statistics.rows.clone();
    let initial = ranks.all_ok(problem.initial.probabilities_of(own.clone(), n))?;
    if ranks.is_distributed() {
        observer.rows(own.clone());
    }
    let (real, how) = (T::PRECISION.bytes(), options.split);
    let (reordered, order) =
        reorder(lanes, problem, &initial, &statistics.lengths, real, how, options.order)?;
    checkpointer.set_order(order);
    if let Some(reordered) = reordered {
        let initial = Initial::Distribution(reordered.permute(&reordered.initial));
        let rewards = reordered.rewards(problem.rewards);
        let own = Problem { transitions: &reordered, initial: &initial, rewards: &rewards, ..*problem };
        let options = Options { order: Order::Natural, ..*options };
        drop(statistics);
        let solution = solve_in::<T>(lanes, &own, &options, &mut reordered.restore(observer), checkpointer)?;
        return Ok(Solution { order, ..solution });
    }
    let rewards = rewards::settled(problem.rewards, &own, n, ranks);
    let problem = &Problem { rewards: &rewards, ..*problem };
    let mut seconds = Seconds::default();
    let mut solution = Solution {
        status: Status::Met,
        bound: Bound::default(),
        n,
        nnz: statistics.nnz,
        alpha: statistics.alpha,
        terms: 0,
        eliminated: 0,
        matrix: MatrixInfo { format: "hyb".to_owned(), parts: 1, ..MatrixInfo::default() },
        order: Order::Natural,
        times: Vec::new(),
        device_bytes: 0,
        seconds,
    };
    let (initial_error, initial_mass) = (problem.initial.rounding(), total(&initial, ranks));
    let mut seen = vec![None; problem.times.len()];
    let mut handed_over = Duration::ZERO;
    let mut observer = LastLook { ranks, inner: observer, seen: &mut seen, spent: &mut handed_over };

    // Where nothing can happen, or has had no time to, the answer is the initial distribution itself.
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
    // Lanes may have worked before.
    let (up_before, down_before) = transfers(lanes);
    if times.iter().any(Option::is_none) {
        // Classes of states are looked for along transitions.
        if problem.times.iter().all(|t| t.is_finite()) {
            problem.transitions.arrivals_suffice();
        }
        let (width, format, how) = (options.width, options.format, options.partitioning());
        let parts = Parts::build(lanes, problem.transitions, &statistics, width, format, how)?;
        solution.matrix = parts.matrix.clone();
        let (uploaded, _) = transfers(lanes);
        seconds.build = started.elapsed().as_secs_f64() - (uploaded - up_before);
        let mut built = Built { lanes, problem, options, statistics, parts, initial, initial_error };
        built.statistics.lengths = Vec::new();
        built.statistics.exit = Vec::new();
        let at = Instant::now();
        let finite: Vec<usize> =
            (0..times.len()).filter(|&i| times[i].is_none() && problem.times[i].is_finite()).collect();
        if !finite.is_empty() {
            let terms = match options.method {
                Method::Sweep => sweep(&built, &finite, &mut times, &mut observer, checkpointer)?,
                Method::Subdivided { theta } => {
                    subdivided::run(&built, theta, &finite, &mut times, &mut observer, checkpointer)?
                }
            };
            checkpointer.ended(terms);
            solution.terms += terms;
        }
        let infinite: Vec<usize> = (0..times.len()).filter(|&i| times[i].is_none()).collect();
        if !infinite.is_empty() {
            let (terms, eliminated) =
                stationary::run(&built, &infinite, &mut times, &mut observer, checkpointer)?;
            checkpointer.ended(terms);
            solution.terms += terms;
            solution.eliminated = eliminated;
        }
        let (up, down) = transfers(lanes);
        (seconds.upload, seconds.download) = (up - up_before, down - down_before);
        // Lanes copy at the same time: what they add up to may exceed the time that passed.
        let spent = observer.spent.as_secs_f64();
        seconds.solve = (at.elapsed().as_secs_f64() - (up - uploaded) - seconds.download - spent).max(0.0);
        seconds.download += spent;
    }
    solution.times = times.into_iter().flatten().collect();
    assert_eq!(solution.times.len(), problem.times.len(), "every time was served");
    for (time, seen) in solution.times.iter_mut().zip(seen) {
        expect_numbers(time)?;
        time.bound = time.bound.capped();
        if let Some(Seen { mass, least }) = seen {
            time.mass = Some(mass);
            time.contradiction = contradiction(mass, initial_mass, least, time.bound.total());
        }
        let (worst, bound) = (&mut solution.bound, &time.bound);
        worst.truncation = worst.truncation.max(bound.truncation);
        worst.steady_state = worst.steady_state.max(bound.steady_state);
        worst.rounding = worst.rounding.max(bound.rounding);
        if bound.total() > options.epsilon || time.contradiction.is_some() {
            solution.status = Status::NotMet;
        }
    }
    let most = lanes.iter().map(Lane::peak_bytes).max().unwrap_or(0);
    solution.device_bytes = ranks.all_gather(&[most]).into_iter().flatten().max().unwrap_or(0);
    solution.seconds = Seconds { total: started.elapsed().as_secs_f64(), ..seconds };
    Ok(solution)
}

/// Surveys what is this rank's of a chain.
pub(super) fn surveyed<T: Real>(
    lanes: &[Lane],
    transitions: &dyn Transitions,
    ranks: Ranks,
) -> Result<MatrixStatistics<T>> {
    if !ranks.is_distributed() {
        let mut statistics = lanes[0].host(|| statistics::<T>(transitions))?;
        statistics.shares =
            share(lanes, transitions, Some(&statistics.lengths), T::PRECISION.bytes(), ranks)?;
        return Ok(statistics);
    }
    let shares = share(lanes, transitions, None, T::PRECISION.bytes(), ranks)?;
    let counts = ranks.all_gather(&[lanes.len() as u64]).concat();
    let before = counts[..ranks.rank()].iter().sum::<u64>() as usize;
    let rows = rows_of(&shares, before, lanes.len());
    transitions.settle(&rows);
    // Sums over ranks are made by the thread that asked, not in a lane's.
    Ok(MatrixStatistics { shares, ..statistics_of_rows::<T>(transitions, rows, ranks)? })
}

/// Seconds of copies to and from the lanes so far, the longest of each.
fn transfers(lanes: &[Lane]) -> (f64, f64) {
    let all = lanes.iter().map(Lane::transfer_seconds);
    all.fold((0.0, 0.0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
}

/// What was seen of a result.
#[derive(Clone, Copy)]
struct Seen {
    mass: f64,
    /// Its smallest element, before it was made one of at least 0.
    least: f64,
}

/// Looks at each result on its way to the observer.
struct LastLook<'a> {
    ranks: Ranks,
    inner: &'a mut dyn Observer,
    seen: &'a mut [Option<Seen>],
    /// Time that this took.
    spent: &'a mut Duration,
}

impl Observer for LastLook<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.inner.progress(done, all)
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        let from = Instant::now();
        let here = probabilities.iter().copied().fold(f64::INFINITY, f64::min);
        // Rounding can take a probability below 0; 0 is nearer to what it should be.
        let raised = (here < 0.0).then(|| probabilities.iter().map(|p| p.max(0.0)).collect::<Vec<_>>());
        let mass = total(raised.as_deref().unwrap_or(probabilities), self.ranks);
        self.seen[index] = Some(Seen { mass, least: -self.ranks.all_reduce_max(-here) });
        self.inner.result(index, raised.as_deref().unwrap_or(probabilities))?;
        *self.spent += from.elapsed();
        Ok(())
    }
}

/// The sum of all ranks' values, in the order of states.
pub(super) fn total(values: &[f64], ranks: Ranks) -> f64 {
    let mut sum = [0.0; 2];
    ranks.ordered_reduce(&mut sum, |sum| {
        let mut state = [sum[0], sum[1]];
        add_rates(&mut state, values.iter().copied());
        sum.copy_from_slice(&state);
    });
    sum[0] + sum[1]
}

/// How probabilities contradict a bound on their l1 error, if they do: what they add up to is that of the beginning, and
/// none is below 0.
fn contradiction(mass: f64, initial: f64, least: f64, bound: f64) -> Option<String> {
    // What sums round by.
    let bound = bound + 4.0 * f64::EPSILON;
    if !mass.is_finite() {
        Some("a probability is no number".to_owned())
    } else if (mass - initial).abs() > bound {
        Some(format!("the probabilities add up to {mass}, at the beginning to {initial}"))
    } else if -least > bound {
        Some(format!("a probability is {least:e}"))
    } else {
        None
    }
}

/// An error where a reward at a finite time is no double.
fn expect_numbers(time: &TimeResult) -> Result<()> {
    for reward in time.rewards.iter().filter(|_| time.time.is_finite()) {
        for (what, value) in [("expected", reward.instantaneous), ("accumulated", reward.cumulative)] {
            if !value.is_finite() {
                return Err(Error::Invalid(format!(
                    "the {what} reward '{}' at time {:e} is above {:e}, the largest double; give its values in a larger \
                     unit",
                    reward.name,
                    time.time,
                    f64::MAX
                )));
            }
        }
    }
    Ok(())
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
        // A chain at rest earns its reward for as long as it is asked to; nothing in no time.
        let cumulative = if t == 0.0 || instantaneous == 0.0 { 0.0 } else { instantaneous * t };
        RewardValue { name: r.name.clone(), instantaneous, cumulative }
    };
    problem.rewards.iter().map(value).collect()
}

/// The terms that a time takes, and what of ε is left for a stop at the steady state.
pub(super) fn windows<T: Real>(statistics: &MatrixStatistics<T>, epsilon: f64, lambda: f64) -> (Window, f64) {
    // What rounding leaves of ε is shared between truncation and a stop at the steady state; where it leaves
    // nothing the bound cannot be met, and half of ε is as good as any share.
    let len = 12.0 * lambda.sqrt() + 64.0;
    let left = epsilon - statistics.rounding(lambda, len as u64, u64::MAX);
    let left = if left > 0.0 { left } else { 0.5 * epsilon };
    let share = if lambda > 256.0 { 0.8 } else { 0.999 };
    (Window::new(lambda, share * left), (1.0 - share) * left)
}

/// The one sweep, or as many as memory for the accumulators asks for.
pub(crate) fn sweep<T: Real>(
    built: &Built<'_, T>,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<u64> {
    let (problem, epsilon) = (built.problem, built.options.epsilon);
    let mut planned = Vec::with_capacity(which.len());
    for &index in which {
        let lambda = built.statistics.lambda(problem.times[index])?;
        let (window, steady_allowance) = windows(&built.statistics, epsilon, lambda);
        let weights = window.weights();
        planned.push(Planned {
            index,
            lambda,
            tails: if problem.rewards.is_empty() { Vec::new() } else { weights.tails() },
            steps: weights.left + weights.values.len() as u64,
            truncation: weights.truncation,
            weights,
            steady_allowance,
            steady_state: 0.0,
            normalisation: 0.0,
            rewards: vec![(0.0, 0.0); problem.rewards.len()],
        });
    }
    // In the order in which windows open, which is not always that of times: shares of ε differ.
    planned.sort_by_key(|time| time.weights.left);
    let mut resumed = checkpointer.sweep()?;
    let mut terms = resumed.as_ref().map_or(0, |resumed| resumed.state.before);
    // Scaled by powers of two, as rates are.
    let scale = |r: &Reward| {
        scale_of(built.parts.ranks.all_reduce_max(r.values.iter().fold(0.0, |most, v| v.abs().max(most))))
    };
    let scales: Vec<f64> = problem.rewards.iter().map(scale).collect();
    let rewards: Vec<(&[f64], f64)> =
        problem.rewards.iter().zip(&scales).map(|(r, &scale)| (&r.values[..], scale)).collect();
    while !planned.is_empty() {
        let most = planned.iter().map(Planned::right).max().unwrap_or(0);
        let progress = (terms, terms + most);
        let inverse_alpha = built.statistics.inverse_alpha;
        let mut iteration = Iteration::new(built.lanes, &built.parts, inverse_alpha, &rewards, progress)?;
        // A tenth of what is free stays free, for weights and the driver.
        let room = |(l, lane): (usize, &Lane)| {
            let rows: usize = built.parts.of(l).map(|(_, part)| part.rows.len()).sum();
            let vector = rows as u64 * T::PRECISION.bytes();
            lane.free_bytes().map_or(16, |free| free / 10 * 9 / vector.max(1))
        };
        let room = built.lanes.iter().enumerate().map(room).min().unwrap_or(1);
        let room = (built.parts.ranks.all_reduce_min(room) as usize).clamp(1, planned.len());
        let sweep = match resumed.take() {
            None => {
                iteration.start(&built.initial)?;
                Sweep::new(iteration, &mut planned, room, problem.vectors, terms)
            }
            Some(kept) if kept.state.fits(&planned, &kept.vectors, built.initial.len(), problem.vectors) => {
                Sweep::resume(iteration, &mut planned, kept, problem.vectors)?
            }
            Some(_) => return Err(checkpointer.unusable()),
        };
        let (steps, left_over) = sweep.run(observer, checkpointer)?;
        terms += steps;
        let mut again = Vec::new();
        for (place, time) in planned.into_iter().enumerate() {
            if left_over.contains(&place) {
                again.push(Planned {
                    rewards: vec![(0.0, 0.0); problem.rewards.len()],
                    steady_state: 0.0,
                    ..time
                });
            } else {
                let result = finish(built, &time, &scales);
                checkpointer.finished(time.index, &result);
                times[time.index] = Some(result);
            }
        }
        planned = again;
    }
    Ok(terms)
}

fn finish<T: Real>(built: &Built<'_, T>, time: &Planned, scales: &[f64]) -> TimeResult {
    let holding = built.statistics.mean_holding();
    let (left, len) = (time.weights.left, time.weights.values.len() as u64);
    // Masses that weights were divided by are known to ten roundings or better.
    let measured = match T::PRECISION {
        Precision::F32 => time.normalisation + 10.0 * T::PRECISION.unit_roundoff(),
        Precision::F64 => 0.0,
    };
    let rewards = built.problem.rewards.iter().zip(&time.rewards).zip(scales).map(
        |((r, &(instantaneous, cumulative)), scale)| RewardValue {
            name: r.name.clone(),
            instantaneous: instantaneous / scale,
            cumulative: cumulative * holding / scale,
        },
    );
    TimeResult {
        time: built.problem.times[time.index],
        alpha_t: time.lambda,
        window: (left, left + len - 1),
        bound: Bound {
            truncation: time.truncation,
            steady_state: time.steady_state,
            rounding: built.statistics.rounding(time.lambda, len, time.steps)
                + time.weights.rounding
                + measured
                + built.initial_error,
        },
        rewards: rewards.collect(),
        ..TimeResult::default()
    }
}
