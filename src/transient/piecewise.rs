//! Generators that are piecewise constant in time: phases, and jumps between them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Range;
use std::time::Instant;

use super::chain::Initial;
use super::estimate::{self, MemoryRequirement, Plan};
use super::problem::{Method, Observer, Options, Problem};
use super::solution::{Bound, Solution, TimeResult};
use super::solve::solve;
use super::{Reward, Transitions};
use crate::ranks::Ranks;
use crate::{Invalid, Machine, Progress, Result, Status};

/// Phase of a piecewise constant generator: a chain up to a time.
///
/// A chain in discrete time is a jump: one of its steps at time [`end`](Self::end), which is the
/// end of the phase before, or 0.
#[derive(Clone, Copy)]
pub struct Phase<'a> {
    /// Time at which the phase ends; infinity is allowed in the last phase.
    pub end: f64,
    /// Bound of the error of `end`, 0 if it is exact.
    pub late: f64,
    /// Transitions during the phase.
    pub transitions: &'a dyn Transitions,
    /// Rewards during the phase; all phases have the same names in the same order.
    pub rewards: &'a [Reward],
}

/// Computes the probabilities at `times` of a chain whose rates change from phase to phase.
///
/// At the time of a jump, the result is that after the jump. Each phase may use an equal part of ε.
/// The bounds of the phases add up, since e^{Qt} does not increase l1 norms, and so do accumulated
/// rewards, to which a jump adds nothing. If the length of a phase is not a double, its rounding δ
/// adds 2αδ to the bound. If its end has an error δ, the bound grows by 2(α + β)δ, with the rate β
/// of the next phase.
///
/// # Errors
/// For no phases, phases of different sizes or out of order, times outside of the phases; those of
/// [`solve`].
pub fn solve_phases(
    machine: &Machine,
    phases: &[Phase<'_>],
    initial: &Initial,
    times: &[f64],
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Solution> {
    let started = Instant::now();
    let mut results: Vec<TimeResult> = vec![TimeResult::default(); times.len()];
    let (mut initial, mut carried) = (initial.clone(), TimeResult::default());
    let (mut whole, mut rows): (Option<Solution>, _) = (None, None);
    for (k, part) in parts(phases, times, options)?.into_iter().enumerate() {
        let (phase, PhaseRun { start, own, ends, spans, options }) = (&phases[k], part);
        let problem = Problem::new(phase.transitions, &initial, &spans).rewards(phase.rewards);
        let problem = Problem { mass_error: carried.bound.total(), ..problem };
        let done = whole.as_ref().map_or(0, |solution| solution.terms);
        let (observer, ranks) = (&mut *observer, machine.ranks);
        let mut relay = Relay { observer, own: &own, last: Vec::new(), done, ranks, rows: &mut rows };
        let mut solution = solve(machine, &problem, &options, &mut relay)?;
        initial = Initial::Distribution(relay.last);
        let mut last = TimeResult::default();
        let jump = phase.transitions.is_discrete();
        for (i, mut result) in std::mem::take(&mut solution.times).into_iter().enumerate() {
            if jump {
                // A step in discrete time accumulates rewards, but a jump takes no time.
                result.rewards.iter_mut().for_each(|reward| reward.cumulative = 0.0);
            }
            let span = if jump { 0.0 } else { rounding_of_span(start, ends[i]) };
            let shift = 2.0 * solution.alpha * span + effect_of_ends(&phases[k..], ends[i]);
            let result = after(&carried, result, (ends[i], shift));
            match own.get(i) {
                Some(&index) => results[index] = result,
                None => last = result,
            }
        }
        carried = last;
        whole = Some(joined(whole, solution));
    }
    let mut solution = whole.expect("there is a phase");
    let met = |time: &TimeResult| time.bound.total() <= options.epsilon && time.contradiction.is_none();
    solution.status = if results.iter().all(met) { Status::Met } else { Status::NotMet };
    solution.bound = results.iter().fold(Bound::default(), |bound, time| bound.worst(&time.bound));
    solution.times = results;
    solution.seconds.total = started.elapsed().as_secs_f64();
    Ok(solution)
}

/// Predicts the memory and time of [`solve_phases`].
///
/// The memory is that of the phase that needs most, and products of all phases are added. Fails
/// like [`solve_phases`], except for lack of memory on a lane, which the plan reports.
pub fn plan_phases(
    machine: &Machine,
    phases: &[Phase<'_>],
    initial: &Initial,
    times: &[f64],
    options: &Options,
) -> Result<Plan> {
    let plan = |(phase, part): (&Phase<'_>, PhaseRun)| {
        let problem = Problem::new(phase.transitions, initial, &part.spans).rewards(phase.rewards);
        estimate::plan(machine, &problem, &part.options)
    };
    let combined = |one: Plan, other: Plan| {
        let (terms, work) =
            (one.terms.zip(other.terms), |plan: &Plan| plan.terms.map(|t| t as f64 * plan.step));
        let step = work(&one).zip(work(&other)).zip(terms);
        let step = step.map(|((a, b), (s, t))| (a + b) / (s + t).max(1) as f64);
        let (alpha, nnz) = (one.alpha.max(other.alpha), one.nnz.max(other.nnz));
        let bytes = |plan: &Plan| plan.lanes.iter().map(MemoryRequirement::total).sum::<u64>();
        let most = if bytes(&other) > bytes(&one) { other } else { one };
        Plan { alpha, nnz, terms: terms.map(|(s, t)| s + t), step: step.unwrap_or(most.step), ..most }
    };
    let all = phases.iter().zip(parts(phases, times, options)?).map(plan);
    Ok(all.collect::<Result<Vec<_>>>()?.into_iter().reduce(combined).expect("there is a phase"))
}

/// Part of a run in one phase.
struct PhaseRun {
    /// Time at which the phase begins.
    start: f64,
    /// Indices of the requested times in the phase.
    own: Vec<usize>,
    /// These times, and the end of the phase if another one follows.
    ends: Vec<f64>,
    /// Times since the start; 1 for a jump.
    spans: Vec<f64>,
    /// Options with the share of ε.
    options: Options,
}

/// Returns the parts of a run up to the phase of the last time.
fn parts(phases: &[Phase<'_>], times: &[f64], options: &Options) -> Result<Vec<PhaseRun>> {
    check(phases, times)?;
    let of_time: Vec<usize> = times.iter().map(|&time| phase_of(phases, time)).collect::<Result<_>>()?;
    let count = of_time.iter().max().map_or(1, |&last| last + 1);
    let share = options.epsilon(options.epsilon / count as f64);
    let mut of_phase = vec![Vec::new(); count];
    of_time.iter().enumerate().for_each(|(index, &phase)| of_phase[phase].push(index));
    let part = |(k, own): (usize, Vec<usize>)| {
        let start = if k == 0 { 0.0 } else { phases[k - 1].end };
        let mut ends: Vec<f64> = own.iter().map(|&index| times[index]).collect();
        ends.extend((k + 1 < count).then_some(phases[k].end));
        let jump = phases[k].transitions.is_discrete();
        let spans = ends.iter().map(|end| if jump { 1.0 } else { end - start }).collect();
        let options = if jump { share.method(Method::Auto) } else { share };
        PhaseRun { start, own, ends, spans, options }
    };
    Ok(of_phase.into_iter().enumerate().map(part).collect())
}

/// Returns an error if the phases do not make up a schedule.
fn check(phases: &[Phase<'_>], times: &[f64]) -> Result<()> {
    let [first, ..] = phases else {
        return Invalid::Shape.fail("no phase given: expected at least one");
    };
    if times.is_empty() {
        return Invalid::Time.fail("no time given: expected at least one");
    }
    let n = first.transitions.states();
    let names = |phase: &Phase<'_>| phase.rewards.iter().map(|r| r.name.clone()).collect::<Vec<_>>();
    let mut start: f64 = 0.0;
    for (k, phase) in phases.iter().enumerate() {
        let (number, end) = (k + 1, phase.end);
        if phase.transitions.states() != n {
            return Invalid::Shape.fail(format!(
                "phase {number} has {} states, but the first {n}: expected equal numbers",
                phase.transitions.states()
            ));
        }
        if names(phase) != names(first) {
            return Invalid::Reward
                .fail(format!("phase {number} has other rewards than the first: expected the same names"));
        }
        if phase.transitions.is_discrete() && end != start {
            return Invalid::Time.fail(format!(
                "phase {number} is a jump at time {end}: expected {start}, where the phase before it ends"
            ));
        }
        if !phase.transitions.is_discrete() && start.partial_cmp(&end) != Some(Ordering::Less) {
            return Invalid::Time.fail(format!(
                "phase {number} ends at {end}: expected a time after {start}, where it begins"
            ));
        }
        start = end;
    }
    Ok(())
}

/// Returns the phase that has a time: at the time of a jump, the jump.
fn phase_of(phases: &[Phase<'_>], time: f64) -> Result<usize> {
    if time.is_nan() || time < 0.0 {
        return Invalid::Time.fail(format!("invalid time {time}: expected a number ≥ 0 or inf"));
    }
    let first = phases.partition_point(|phase| phase.end < time);
    if first == phases.len() {
        let end = phases[first - 1].end;
        return Invalid::Time.fail(format!(
            "time {time} is after the last phase, which ends at {end}: expected a time in a phase"
        ));
    }
    let jumps = phases[first + 1..].iter().take_while(|phase| phase.end == time);
    Ok(first + jumps.take_while(|phase| phase.transitions.is_discrete()).count())
}

/// Returns |end − start − fl(end − start)|, which is a double, for 0 ≤ start ≤ end.
fn rounding_of_span(start: f64, end: f64) -> f64 {
    let span = end - start;
    if end.is_finite() { ((end - span) - start).abs() } else { 0.0 }
}

/// Bounds the effect of the errors of phase ends that may be at most `time`.
fn effect_of_ends(phases: &[Phase<'_>], time: f64) -> f64 {
    let fastest = |phase: &Phase<'_>| phase.transitions.largest_exit_rate();
    let near = phases.windows(2).take_while(|pair| pair[0].end - pair[0].late <= time);
    let inexact = near.filter(|pair| pair[0].late > 0.0);
    inexact.map(|pair| 2.0 * pair[0].late * (fastest(&pair[0]) + fastest(&pair[1]))).sum()
}

/// Returns a phase's result as that of the whole schedule, after the `carried` phases before it.
///
/// `shift` bounds the effect of the rounding of the time.
fn after(carried: &TimeResult, mut result: TimeResult, (time, shift): (f64, f64)) -> TimeResult {
    // The errors of a phase are in proportion to the mass it begins with.
    let (before, own, mass) = (&carried.bound, result.bound, 1.0 + carried.bound.total());
    result.bound = Bound {
        truncation: before.truncation + own.truncation * mass,
        steady_state: before.steady_state + own.steady_state * mass,
        rounding: before.rounding + (own.rounding + shift) * mass,
        loss: before.loss + own.loss * mass,
    };
    result.time = time;
    result.phase_alpha_t = result.alpha_t;
    result.alpha_t += carried.alpha_t;
    for (reward, before) in result.rewards.iter_mut().zip(&carried.rewards) {
        reward.cumulative += before.cumulative;
    }
    result.contradiction = carried.contradiction.clone().or(result.contradiction);
    result
}

/// Adds the work of earlier phases to the solution of a phase.
fn joined(before: Option<Solution>, mut solution: Solution) -> Solution {
    let Some(before) = before else { return Solution { discrete: false, ..solution } };
    solution.discrete = false;
    solution.alpha = solution.alpha.max(before.alpha);
    solution.nnz = solution.nnz.max(before.nnz);
    solution.terms += before.terms;
    solution.eliminated += before.eliminated;
    solution.expansion = solution.expansion.or(before.expansion);
    solution.device_bytes = solution.device_bytes.max(before.device_bytes);
    let (sum, more) = (&mut solution.seconds, before.seconds);
    sum.load += more.load;
    sum.build += more.build;
    sum.upload += more.upload;
    sum.solve += more.solve;
    sum.download += more.download;
    solution
}

/// Observer of a phase: passes the results of its times, and keeps that of its end.
struct Relay<'a> {
    observer: &'a mut dyn Observer,
    /// Indices of the phase's times among all times.
    own: &'a [usize],
    /// Probabilities at the end of the phase.
    last: Vec<f64>,
    /// Matrix–vector products of the phases before.
    done: u64,
    ranks: Ranks,
    /// Rows of this rank in the first phase, to which all results belong; `None` in one process.
    rows: &'a mut Option<Range<usize>>,
}

impl Progress for Relay<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.observer.progress(self.done + done, self.done + all)
    }
}

impl Observer for Relay<'_> {
    fn rows(&mut self, rows: Range<usize>) {
        // Later phases may divide the states differently.
        if self.rows.is_none() {
            self.observer.rows(rows.clone());
            *self.rows = Some(rows);
        }
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        let whole = match &self.rows {
            Some(_) => Cow::Owned(self.ranks.all_gather(probabilities).concat()),
            None => Cow::Borrowed(probabilities),
        };
        let rows = self.rows.clone().unwrap_or(0..whole.len());
        match self.own.get(index) {
            Some(&index) => return self.observer.result(index, &whole[rows]),
            None => self.last = whole.into_owned(),
        }
        Ok(())
    }
}
