//! One uniformization run for many quantities, with its observer and its error bounds.

use std::sync::{Arc, Mutex, PoisonError};

use crate::compensated;
use crate::reduced::{Reduction, ReductionKey, reduced};
use crate::source::listed;
use crate::state_sets::States;
use crate::truncation::{self, Edge};
use crate::until::Until;
use kolmo::kernel::Precision;
use kolmo::lane::{Lane, expect_memory};
use kolmo::transient::poisson::expected_excess;
use kolmo::transient::{
    Chain, Initial, Options, Phase, Problem, Reward, Solution, TimeResult, Transitions, in_lockstep, solve,
    solve_phases,
};
use kolmo::{Error, Iterate, Machine, Progress, Result};

/// Time of a change, and its rounding error or a bound of that.
pub type PhaseEnd = (f64, f64);

/// Quantities that one run computes: one chain, one initial distribution, one or more times.
#[derive(Debug)]
pub(crate) struct UniformizationRun {
    pub(crate) absorbing: States,
    pub(crate) initial: Initial,
    /// States to reach, and the lower time bound; `None` for the bound 0.
    ///
    /// If rates are constant, a separate run computes the distribution at that time first.
    pub(crate) later: Option<(States, f64)>,
    pub(crate) asked: Vec<TimedMeasure>,
}

/// Requested measure at a time.
#[derive(Debug)]
pub(crate) struct TimedMeasure {
    /// Index of the answer.
    pub(crate) answer: usize,
    pub(crate) time: f64,
    pub(crate) what: Measure,
}

/// Measure at a time: a probability or an expected reward.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Measure {
    /// Probability of a set of states.
    States(States),
    /// Expected reward at the time; index of the reward.
    Instantaneous(usize),
    /// Expected reward accumulated until the time; index of the reward.
    Cumulative(usize),
}

impl Measure {
    /// Sets `sum` to the quantity at a time; accumulated rewards are left to the solver.
    fn sum(&self, rewards: &[Reward], probabilities: &[f64], sum: &mut f64) {
        match self {
            Self::States(states) => {
                *sum = compensated(states.iter().map(|&state| probabilities[state as usize]));
            }
            Self::Instantaneous(k) => {
                *sum =
                    compensated(rewards[*k].values.iter().zip(probabilities).map(|(reward, p)| reward * p));
            }
            Self::Cumulative(_) => {}
        }
    }
}

/// Phase of a schedule: rates and rewards up to a time.
pub(crate) struct PhaseRates {
    pub(crate) end: PhaseEnd,
    pub(crate) transitions: Arc<dyn Transitions>,
    pub(crate) rewards: Arc<Vec<Reward>>,
}

impl TimedMeasure {
    /// True for the probability of several states.
    pub(crate) fn is_sum(&self) -> bool {
        matches!(&self.what, Measure::States(states) if states.len() > 1)
    }
}

/// Mean l1 norm of the summed vectors, which may exceed 1 for Chebyshev and Krylov only.
fn norm(solution: &Solution) -> f64 {
    solution.expansion.map_or(1.0, |expansion| expansion.weighted_norm.max(1.0))
}

/// Bound of the rounding error of a dot product with rewards of at most 1, summed in blocks.
pub(crate) fn rounding(solution: &Solution, result: &TimeResult, precision: Precision) -> f64 {
    let unit = match precision {
        Precision::F64 | Precision::Q64 => f64::EPSILON,
        Precision::F32 => f64::from(f32::EPSILON),
    };
    let n = solution.n as f64;
    // In the long-run limit, all states are added one by one.
    let in_turn = match result.time.is_infinite() {
        true => n,
        // After early termination no Poisson term is added.
        false => n / 256.0 + steps(result).min(result.window.1 - result.window.0) as f64,
    };
    norm(solution) * (16.0 * unit + in_turn * f64::EPSILON)
}

/// Index of the last Poisson term that is added.
fn steps(result: &TimeResult) -> u64 {
    result.stopped.map_or(result.window.1, |stopped| stopped.step + 1)
}

/// Bound of the error of a reward accumulated until t, for reward rates of at most 1.
///
/// * Errors of the probabilities contribute at most their product with t.
/// * A uniformization run sums Σ P(N > k)/α, where N is Poisson with mean αt. Before the window
///   L … R it takes P(N > k) as 1. The uniformization rate is α.
/// * Beyond R the sum lacks E (N − R − 1)⁺/α.
/// * Before L it is too large by at most t P(N < L) / (αt − L + 1), since
///   P(N < k − 1) ≤ (k − 1)/αt · P(N < k).
/// * After early termination, the extrapolation has no terms before L. They are at most t P(N < L).
/// * With scaling and squaring, the bound of the probabilities also covers the integrals.
/// * A Chebyshev or Krylov expansion ends long before αt. Its integrals have an error of 10⁻⁹ of
///   its terms.
/// * In fixed point, truncation cannot be separated from the other missing mass.
fn cumulative_error(result: &TimeResult, rounding: f64, solution: &Solution, precision: Precision) -> f64 {
    let (t, mean, (first, last)) = (result.time, result.alpha_t, result.window);
    if t == 0.0 || mean == 0.0 {
        return t * rounding;
    }
    if result.squarings.is_some() {
        return t * (result.bound.total() + rounding);
    }
    let truncation = result.bound.truncation;
    // Poisson terms are added one by one.
    let kept = result.bound.total() - truncation + rounding + f64::EPSILON * steps(result) as f64;
    let room = last as f64 + 2.0 - mean;
    match solution.expansion {
        None if room > 0.0 && precision != Precision::Q64 => {
            let before = match (first, result.stopped) {
                // The sums of the extrapolation have no terms before the window.
                (_, Some(_)) => truncation,
                (0, None) => 0.0,
                _ => truncation / (mean - first as f64 + 1.0),
            };
            let after = if solution.discrete { 0.0 } else { expected_excess(mean, last + 1) / mean };
            t * (kept + (before + after) * (1.0 + 1e-9))
        }
        _ if room > 0.0 => t * (kept + truncation * (1.0 + (last as f64 + 2.0) / room / mean)),
        _ => t * (kept + truncation + 1.001e-9 * norm(solution)),
    }
}

/// Results of a [`UniformizationRun`].
pub(crate) struct RunResults {
    pub(crate) solution: Solution,
    /// Probability of each requested set, and each requested instantaneous reward.
    pub(crate) sums: Vec<f64>,
    /// Probability of paths that fail before the lower time bound, see [`Until::early`].
    pub(crate) early: f64,
    /// Probability in each boundary state at the last time.
    pub(crate) left: Vec<f64>,
    /// Index of each requested quantity's time.
    pub(crate) places: Vec<usize>,
    /// Indices of the rewards that the run computes.
    pub(crate) rewards: Vec<usize>,
    /// True if the run returned all probabilities, from which instantaneous rewards are computed.
    pub(crate) vectors: bool,
    /// Index of the time at the end of each phase of a schedule, except the last.
    ends: Vec<usize>,
    /// Sum of the error bounds of all ends.
    late: f64,
}

impl RunResults {
    /// Bound of the error of a reward accumulated until a time: the sum over all phases.
    ///
    /// The error of the distribution at the start of a phase counts for its whole length.
    pub(crate) fn cumulative_error(&self, place: usize, precision: Precision) -> f64 {
        let last = &self.solution.times[place];
        let ends = self.ends.iter().map(|end| &self.solution.times[*end]);
        let mut before = TimeResult::default();
        let in_phase = |result: &TimeResult| {
            let start = std::mem::replace(&mut before, result.clone());
            let mut own = result.clone();
            own.time -= start.time;
            // A difference of sums would lose a short phase.
            own.alpha_t = if start.time > 0.0 { own.phase_alpha_t } else { own.alpha_t };
            let rounding = rounding(&self.solution, result, precision);
            own.time * start.bound.total() + cumulative_error(&own, rounding, &self.solution, precision)
        };
        ends.filter(|end| end.time < last.time).chain([last]).map(in_phase).sum::<f64>() + self.late
    }

    /// Returns the index of a reward among those that the run computes.
    pub(crate) fn reward_place(&self, reward: usize) -> usize {
        self.rewards.iter().position(|r| *r == reward).expect("the run computes all its rewards")
    }
}

/// Results of a run, or its boundary probabilities if their sum exceeded the allowed loss.
pub(crate) type ResultsOrLoss = std::result::Result<RunResults, Vec<f64>>;

/// Stage of a run: chain and rewards up to a time.
#[derive(Clone)]
pub(crate) struct RunStage<'a> {
    /// End of the phase, and the bound of its error.
    pub(crate) end: f64,
    pub(crate) late: f64,
    pub(crate) transitions: Arc<dyn Transitions>,
    pub(crate) rewards: &'a [Reward],
    /// Rewards of `rewards` that the solver computes.
    pub(crate) given: Arc<Vec<Reward>>,
}

impl RunStage<'_> {
    /// True if both phases have one chain and its rewards, by address.
    fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.transitions, &other.transitions) && std::ptr::eq(self.rewards, other.rewards)
    }
}

/// Uniformization run that is ready for the solver, and the results it collects.
pub(crate) struct Begun<'a> {
    run: &'a UniformizationRun,
    /// Phases of a schedule; one without an end if rates are constant.
    phases: Vec<RunStage<'a>>,
    /// Index of the time at the end of each phase, except the last.
    ends: Vec<usize>,
    initial: Initial,
    reduction: Option<Arc<Reduction>>,
    /// Distinct times. `places` has the index of each requested quantity's time.
    times: Vec<f64>,
    places: Vec<usize>,
    /// Indices of the rewards that the solver computes.
    own: Vec<usize>,
    vectors: bool,
    options: Options,
    /// Requested error bound; `options.epsilon` may be a share of it.
    epsilon: f64,
    /// Completed run up to the lower time bound, if there is one.
    until: Option<Until>,
    /// Index of the lower time bound in a schedule, states that fail there, and their probability.
    early: Option<(usize, Vec<u32>, f64)>,
    edge: Edge,
    allowed: f64,
    sums: Vec<f64>,
    /// Boundary probabilities at each time.
    left: Vec<Vec<f64>>,
    /// Boundary probabilities at the first time when their sum exceeds `allowed`.
    exceeded: Option<Vec<f64>>,
}

impl UniformizationRun {
    /// Returns the distinct times, the index of each request's time, and the rewards to compute.
    ///
    /// The flag is true if the run returns probabilities: for sets of states, or if they are
    /// `needed` in any case. Instantaneous rewards are then computed from them.
    fn requested(&self, needed: bool) -> (bool, Vec<f64>, Vec<usize>, Vec<usize>) {
        let vectors = needed || self.asked.iter().any(|asked| matches!(asked.what, Measure::States(_)));
        let (mut times, mut places, mut rewards) = (Vec::new(), Vec::new(), Vec::new());
        for asked in &self.asked {
            let place = times.iter().position(|time| *time == asked.time);
            places.push(place.unwrap_or(times.len()));
            if place.is_none() {
                times.push(asked.time);
            }
            match asked.what {
                Measure::Instantaneous(_) if vectors => {}
                Measure::Instantaneous(k) | Measure::Cumulative(k) if !rewards.contains(&k) => {
                    rewards.push(k);
                }
                _ => {}
            }
        }
        (vectors, times, places, rewards)
    }

    /// States that fail before the lower time bound, by the index of the phase's end there.
    fn failing_states(&self, ends: &[usize], times: &[f64]) -> Option<(usize, Vec<u32>, f64)> {
        let (reached, from) = self.later.as_ref()?;
        let index = *ends.iter().find(|end| times[**end] == *from)?;
        let lost = |state: &&u32| self.absorbing.binary_search(state).is_ok();
        Some((index, reached.iter().filter(lost).copied().collect(), 0.0))
    }

    /// Returns what determines the states of the reduced chain.
    ///
    /// `None` if all states may be initial, or if quantities other than probabilities of sets are
    /// requested.
    fn reduction_key(&self) -> Option<ReductionKey> {
        let sets = self.asked.chunk_by(|a, b| a.what == b.what).map(|asked| match &asked[0].what {
            Measure::States(set) => Some(set.clone()),
            Measure::Instantaneous(_) | Measure::Cumulative(_) => None,
        });
        let asked = sets.collect::<Option<_>>()?;
        let few = !matches!(self.initial, Initial::Distribution(_));
        few.then(|| ReductionKey { starts: listed(&self.initial), absorbing: self.absorbing.clone(), asked })
    }

    /// Prepares the run. With a lower time bound, first solves a run up to that time.
    ///
    /// `known` is the reduction of an earlier chain, or receives that of this chain.
    pub(crate) fn begin<'a>(
        &'a self,
        phases: Vec<RunStage<'a>>,
        (edge, allowed): (&[u32], f64),
        known: &mut Option<Arc<Reduction>>,
        (machine, options): (&Machine, &Options),
        watch: &mut dyn Progress,
    ) -> Result<Begun<'a>> {
        let (vectors, mut times, places, own) = self.requested(!edge.is_empty());
        let (mut options, epsilon) = (*options, options.epsilon);
        let (mut initial, mut reduction, mut until) = (self.initial.clone(), None, None);
        let scheduled = phases.len() > 1;
        // On a GPU, the steps that a reduction saves take as long as the reduction.
        let on_host = machine.lanes.iter().all(|lane| lane.device().on_host_cores());
        // Chains and rewards of equal phases are prepared once.
        let mut ready: Vec<(RunStage<'a>, bool, RunStage<'a>)> = Vec::new();
        let prepared = |stage: RunStage<'a>| {
            let past = self.later.as_ref().is_some_and(|(_, from)| stage.end > *from);
            if let Some((.., found)) = ready.iter().find(|(of, then, _)| of.is_like(&stage) && *then == past)
            {
                return Ok(RunStage { end: stage.end, late: stage.late, ..found.clone() });
            }
            let chain = Chain::new("a chain", Box::new(stage.transitions.clone()));
            let chain = match &self.later {
                Some((reached, _)) if scheduled && past => {
                    chain.absorbing(&[&self.absorbing[..], reached].concat())
                }
                Some(_) if scheduled => chain.absorbing(&self.absorbing),
                Some((reached, from)) => {
                    let first = Until::between(String::new(), self.absorbing.to_vec(), reached.to_vec());
                    let first = until.insert(first.truncated(edge));
                    let (chain, later) = first.first(chain, &initial, *from, machine, &mut options, watch)?;
                    initial = later;
                    chain
                }
                None if self.absorbing.is_empty() => chain,
                None if scheduled || !edge.is_empty() || !on_host => chain.absorbing(&self.absorbing),
                None => match self.reduction_key().and_then(|key| reduced(&chain, key, known)) {
                    Some((chain, found)) => {
                        (initial, reduction) = (chain.initial.clone(), Some(found));
                        chain
                    }
                    None => chain.absorbing(&self.absorbing),
                },
            };
            let transitions: Arc<dyn Transitions> = chain.transitions.into();
            let given: Arc<Vec<_>> = Arc::new(own.iter().map(|k| stage.rewards[*k].clone()).collect());
            let found = RunStage { transitions, given, ..stage };
            ready.push((stage, past, found.clone()));
            Ok(found)
        };
        let phases = phases.into_iter().map(prepared).collect::<Result<Vec<_>>>()?;
        let ends = further_times(&phases, !edge.is_empty(), &mut times);
        let early = if scheduled { self.failing_states(&ends, &times) } else { None };
        let reached = self.later.as_ref().map_or(&[][..], |(reached, _)| &reached[..]);
        let edge = Edge::new(edge, &[&self.absorbing, reached]);
        let (sums, left, exceeded) = (vec![0.0; self.asked.len()], vec![Vec::new(); times.len()], None);
        Ok(Begun {
            run: self,
            phases,
            ends,
            initial,
            reduction,
            times,
            places,
            own,
            vectors,
            options,
            epsilon,
            until,
            early,
            edge,
            allowed,
            sums,
            left,
            exceeded,
        })
    }
}

/// Adds times at which a truncated chain is checked, and ends of phases; returns the indices of
/// the ends.
fn further_times(phases: &[RunStage<'_>], truncated: bool, times: &mut Vec<f64>) -> Vec<usize> {
    let last = times.iter().copied().fold(0.0, f64::max);
    if truncated {
        times.extend(truncation::looks(&*phases[0].transitions, last));
    }
    let before = phases.iter().map(|stage| stage.end).filter(|end| *end < last);
    before.map(|end| (times.push(end), times.len() - 1).1).collect()
}

/// Solves prepared runs of chains with equal patterns of transitions.
pub(crate) fn complete(
    mut runs: Vec<Begun<'_>>,
    machine: &Machine,
    watch: &mut dyn Progress,
) -> Vec<Result<ResultsOrLoss>> {
    let (mut problems, mut keeping) = (Vec::new(), Vec::new());
    for begun in &mut runs {
        let Begun { run, phases, initial, reduction, times, places, vectors, options, .. } = begun;
        let Begun { until, early, edge, allowed, sums, left, exceeded, .. } = begun;
        let schedule = phases.iter().map(|stage| Phase {
            end: stage.end,
            late: stage.late,
            transitions: &*stage.transitions,
            rewards: &stage.given,
        });
        let schedule: Vec<Phase<'_>> = schedule.collect();
        let first = Problem::new(schedule[0].transitions, initial, times);
        problems.push((first.rewards(schedule[0].rewards).vectors(*vectors), *options, schedule));
        let (phases, reduction, times) = (&*phases, &*reduction, &*times);
        let (before, asked) = (until.as_ref().map_or(&[][..], Until::left), &run.asked);
        keeping.push(move |index: usize, probabilities: &[f64]| {
            let all = reduction.as_ref().map(|reduction| {
                let mut all = vec![0.0; reduction.original];
                reduction.states.iter().zip(probabilities).for_each(|(&state, p)| all[state as usize] += p);
                all
            });
            let probabilities = &*edge.taken(all.as_deref().unwrap_or(probabilities), &mut left[index]);
            *exceeded = truncation::exceeding(&left[index], before, *allowed);
            if exceeded.is_some() {
                return Err(Error::Interrupted);
            }
            if let Some((_, states, failed)) = early.as_mut().filter(|(early, ..)| *early == index) {
                *failed = compensated(states.iter().map(|&state| probabilities[state as usize]));
            }
            let asked = asked.iter().zip(&mut *sums).zip(&*places).filter(|(_, place)| **place == index);
            let stage = &phases[phases.partition_point(|stage| stage.end < times[index])];
            asked.for_each(|((asked, sum), _)| asked.what.sum(stage.rewards, probabilities, sum));
            Ok(())
        });
    }
    let keep = &mut |which: usize, index: usize, p: &[f64]| keeping[which](index, p);
    let solutions = solve_together(machine, &problems, keep, watch);
    drop(problems);
    drop(keeping);
    runs.into_iter().zip(solutions).map(|(run, solution)| run.end(solution)).collect()
}

/// Maximum number of runs that take their steps together.
const TOGETHER: usize = 8;
/// Rough estimate of the memory of a run in bytes per state.
const BYTES: u64 = 512;
/// Free memory of a device that does not report it, in bytes.
const UNKNOWN: u64 = 1 << 30;

/// Callback with the index of a problem, the index of a time, and the probabilities.
type ResultSink<'a> = &'a mut (dyn FnMut(usize, usize, &[f64]) -> Result<()> + Send);

/// Solves problems of chains with equal patterns of transitions, each with its own options.
///
/// On a single CPU lane, the runs take their steps together. On GPUs of equal kind, each run uses
/// one lane, and is prepared while others take steps. Results are bitwise equal to those of single
/// runs. An error ends only its own run; an interruption by `watch` ends all runs.
fn solve_together(
    machine: &Machine,
    problems: &[(Problem<'_>, Options, Vec<Phase<'_>>)],
    keep: ResultSink<'_>,
    watch: &mut dyn Progress,
) -> Vec<Result<Solution>> {
    let all = Mutex::new(All { keep, watch, done: vec![0; problems.len()], stopped: false });
    let on_lane = |lane: &Lane| Machine::new([lane.clone()], machine.precision).on_ranks(machine.ranks);
    let work = |machine: &Machine, which: usize| {
        let (problem, options, phases) = &problems[which];
        let keep = |index: usize, p: &[f64]| {
            (all.lock().unwrap_or_else(PoisonError::into_inner).keep)(which, index, p)
        };
        let observer = &mut (&mut Among { all: &all, which }, keep);
        match phases.len() {
            1 => solve(machine, problem, options, observer),
            _ => solve_phases(machine, phases, problem.initial, problem.times, options, observer),
        }
    };
    let states = problems.iter().map(|(problem, ..)| problem.transitions.states());
    let bytes = BYTES * states.clone().take(TOGETHER).sum::<usize>() as u64;
    let most = states.max().unwrap_or(0);
    let fits = |lane: &Lane| {
        let on_device = lane.device().host || bytes <= lane.free_bytes().unwrap_or(UNKNOWN) / 2;
        on_device && expect_memory(bytes, || "chains side by side".to_owned()).is_ok()
    };
    let lanes: Vec<Machine> = machine.lanes.iter().map(on_lane).collect();
    // On different devices, the bits of a value would depend on the lane that is free.
    let (first, kind) =
        (&machine.lanes[0], |lane: &Lane| (lane.device().backend, lane.device().name.clone()));
    let alike = |lane: &Lane| !lane.device().on_host_cores() && kind(lane) == kind(first);
    let apart = problems.len() > 1 && machine.lanes.iter().all(alike);
    match (lanes.len() == 1 || apart) && machine.lanes.iter().all(fits) {
        true => in_lockstep(problems.len(), most, |which| work(&lanes[which % lanes.len()], which)),
        false if problems.len() == 1 => vec![work(machine, 0)],
        false => {
            let machine = machine.one_lane_per_gpu();
            (0..problems.len()).map(|which| work(&machine, which)).collect()
        }
    }
}

/// Callbacks for results and progress, shared by the runs of several problems.
struct All<'a> {
    keep: ResultSink<'a>,
    watch: &'a mut dyn Progress,
    /// Completed work of each problem, in the units of its progress.
    done: Vec<u64>,
    /// True after `watch` returned an error, which ends all runs.
    stopped: bool,
}

/// Observer of problem `which` that reports the total progress of all problems.
struct Among<'s, 'a> {
    all: &'s Mutex<All<'a>>,
    which: usize,
}

impl Progress for Among<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        let mut shared = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.stopped {
            return Err(Error::Interrupted);
        }
        shared.done[self.which] = done;
        let (done, count) = (shared.done.iter().sum(), shared.done.len() as u64);
        let told = shared.watch.progress(done, all * count);
        shared.stopped = told.is_err();
        told
    }

    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).watch.iterate(iterate)
    }
}

impl Begun<'_> {
    /// Returns the results of the run, combined with those up to the lower time bound.
    fn end(self, solution: Result<Solution>) -> Result<ResultsOrLoss> {
        let Self { until, early, times, places, own, vectors, sums, left, .. } = self;
        let (epsilon, exceeded, ends) = (self.epsilon, self.exceeded, self.ends);
        let late = self.phases.iter().map(|stage| stage.late).sum();
        if let Some(left) = exceeded {
            return Ok(Err(left));
        }
        let mut solution = solution?;
        if let Some(until) = &until {
            until.add_to(&mut solution, &times, epsilon);
        }
        let left = truncation::add_losses(&mut solution, until.as_ref().map_or(&[], Until::left), left);
        let early = until.as_ref().map_or(early.map_or(0.0, |(.., failed)| failed), Until::early);
        Ok(Ok(RunResults { solution, sums, early, left, places, rewards: own, vectors, ends, late }))
    }
}
