//! The steady state by iteration, with a certificate.
//!
//! Let Z contain one state of each reachable closed class, and let H be the largest expected number
//! of steps from any reachable state to Z. Then lim x Pᵏ differs from x by at most 2·H·‖xP − x‖ in
//! l1, as `docs/certificate.md` proves. H is bounded by the
//! [hitting-time module](crate::transient::backward::hitting_time). The proof does not rely on two
//! iterates being close, which would fail for stiff chains. The choice of Z determines the size of
//! H. The most probable state of a class, as found by the first phase, is reached soon. The empty
//! state of a saturated queue would not be reached in a lifetime.
//!
//! If finite times were computed before, the iteration starts with the last of their iterates. If
//! states are absorbing, [early termination](crate::transient::iteration::quasi_stationary) may end
//! it: it shows where the remaining transient mass is absorbed, however slowly. The states of a
//! small chain are [eliminated](super::gth) before the iteration costs more than that, and at once
//! if that costs less than the first phase.
//!
//! Each rank follows the transitions of its own states: forward on its lanes, backward on the host.

use super::gth::{self, Given, Plan};
use crate::kernel::{Number, Precision};
use crate::ranks::Ranks;
use crate::transient::backward::absorption::until_absorption;
use crate::transient::backward::hitting_time::bound_hitting_time;
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::statistics::LAZY;
use crate::transient::chain::{Absorbing, Reward};
use crate::transient::checkpoint::{Certificate, Phase, StationaryState};
use crate::transient::context::{Context, total};
use crate::transient::iteration::quasi_stationary::EarlyTermination;
use crate::transient::iteration::schedule::LastIterate;
use crate::transient::iteration::{Iteration, Which};
use crate::transient::multilevel;
use crate::transient::session::Session;
use crate::transient::solution::{Bound, RewardValue, TimeResult};
use crate::{Invalid, Iterate, Progress, Result, Status};

/// Maximum number of steps of the first phase, which finds the most probable states.
const FIRST_STEPS: u64 = 1 << 14;
/// Distance of successive iterates at which the first phase ends.
pub(crate) const FIRST_DISTANCE: f64 = 1e-6;
/// Maximum number of transitions processed for the certificate: about a minute's work.
const MOST_WORK: u64 = 1 << 35;
/// Number of transitions whose processing takes as long as starting a step.
const SHORT_STEP: u64 = 1 << 14;
/// Maximum number of matrix–vector products of the iteration.
const MOST_STEPS: u64 = 1 << 31;

impl StationaryState {
    /// Takes steps to `until`, or a sixteenth more; then measures the l1 change of one step.
    ///
    /// Checkpoints may be saved on the way.
    fn advance<T: Number>(
        &mut self,
        iteration: &mut Iteration<'_, T>,
        (most, ranks): (u64, Ranks),
        session: &mut Session<'_, '_>,
    ) -> Result<()> {
        let to = self.until.take().unwrap_or_else(|| self.steps + (self.steps / 16).clamp(16, most));
        loop {
            let leg = session.next_stop(self.steps, to);
            iteration.advance(leg, &[], session)?;
            session.record_pace(leg - self.steps);
            self.steps = leg;
            if leg == to {
                break;
            }
            session.save_if_due(|| Ok((self.phase(Some(to)), vec![iteration.snapshot()?])))?;
        }
        // The sum of n magnitudes in blocks of 256, then in double precision, has a smaller
        // relative error.
        let slack = 1.0 + 12.0 * T::PRECISION.unit_roundoff() + 1e-9;
        self.distance = iteration.distance()? * slack;
        let hitting_time = self.certificate.as_ref().and_then(|known| known.hitting_time);
        let bound = hitting_time.map_or(f64::INFINITY, |time| 2.0 * time * self.distance);
        let iterate = Iterate { steps: self.steps, residual: self.distance, bound, limit: None };
        ranks.all_ok(session.iterate(iterate).map(drop))
    }

    fn phase(&self, until: Option<u64>) -> Phase {
        Phase::Stationary(Self { until, ..self.clone() })
    }
}

/// Number of steps before the first convergence check when a previous iterate is continued.
///
/// Few suffice, since the iterate may already be close to the steady state.
const NEAR_STEPS: u64 = 16;

/// Cost and accuracy of the computation for infinite time.
pub(crate) struct Served {
    pub(crate) terms: u64,
    /// Number of eliminated states.
    pub(crate) eliminated: usize,
    /// True if all accumulated rewards meet ε.
    pub(crate) met: bool,
}

/// Computes the results for infinite time, starting with the `last` iterate if given.
pub(crate) fn run<T: Number>(
    context: &Context<'_, T>,
    which: &[usize],
    last: Option<LastIterate>,
    session: &mut Session<'_, '_>,
) -> Result<Served> {
    let Limit { values, bound, terms, eliminated } = limit(context, last, session)?;
    let (rewards, met) = rewards_of(context, &values, bound, session)?;
    for &index in which {
        if context.problem.vectors {
            session.result(index, &values)?;
        }
        let result = TimeResult {
            time: context.problem.times[index],
            alpha_t: f64::INFINITY,
            window: (0, terms),
            bound,
            rewards: rewards.clone(),
            ..TimeResult::default()
        };
        session.serve(index, result);
    }
    Ok(Served { terms, eliminated, met })
}

/// Limit distribution on this rank's states, and the cost of computing it.
struct Limit {
    values: Vec<f64>,
    bound: Bound,
    /// Number of matrix–vector products.
    terms: u64,
    /// Number of eliminated states.
    eliminated: usize,
}

impl Limit {
    /// Returns true if the error bound of the limit exceeds ε.
    fn misses<T>(&self, context: &Context<'_, T>) -> bool {
        self.bound.total() > context.options.epsilon
    }
}

/// Computes the limit: short eliminations first, then by levels, iteration and long eliminations.
///
/// The result of the first method that meets ε is returned, else the one with the least bound.
fn limit<T: Number>(
    context: &Context<'_, T>,
    mut last: Option<LastIterate>,
    session: &mut Session<'_, '_>,
) -> Result<Limit> {
    let plan = plan(context);
    let nnz = context.statistics.nnz;
    let is_short = |plan: &&Plan| plan.is_short();
    // An elimination that takes less time than the first phase of an iteration.
    let is_quick = |plan: &&Plan| plan.worth(nnz) <= FIRST_STEPS;
    let met = |best: &Option<Limit>| best.as_ref().is_some_and(|best| !best.misses(context));
    let mut best = match plan.as_ref().filter(is_short) {
        Some(plan) => eliminate(context, plan, session)?,
        None => None,
    };
    let on_host = is_on_host::<T>(context, session);
    if !met(&best) && on_host {
        best = better(best, multilevel(context, session)?);
    }
    if !met(&best)
        && !session.is_ended()
        && let Some(plan) = plan.as_ref().filter(is_quick).filter(|plan| !plan.is_short())
    {
        best = better(best, eliminate(context, plan, session)?);
    }
    if !met(&best) && !session.is_ended() {
        // After the levels, iterations that take longer than about a minute are hopeless.
        let endless = if on_host { most_sweeps(context) } else { MOST_STEPS };
        let is_eliminated = best.as_ref().is_some_and(|best| best.eliminated > 0);
        let long = plan.as_ref().filter(|plan| !plan.is_short() && !is_quick(plan));
        let most = match long {
            _ if is_eliminated => FIRST_STEPS,
            Some(plan) => plan.worth(nnz).min(endless),
            None => endless,
        };
        best = better(best, Some(iterate(context, last.take(), most, session)?));
        if let Some(plan) = long.filter(|_| !met(&best) && !session.is_ended()) {
            // Elimination fails if rates span too many orders of magnitude.
            let next = match eliminate(context, plan, session)? {
                Some(found) => found,
                None => iterate(context, None, endless, session)?,
            };
            best = better(best, Some(next));
        }
    }
    match best {
        Some(best) => Ok(best),
        // Any distribution has an l1 error of at most 2.
        None => iterate(context, last, 1, session),
    }
}

/// Returns the limit with the smaller bound, and the products of the longer computation.
fn better(one: Option<Limit>, other: Option<Limit>) -> Option<Limit> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let terms = one.terms.max(other.terms);
            let best = if other.bound.total() < one.bound.total() { other } else { one };
            Some(Limit { terms, ..best })
        }
        (one, other) => one.or(other),
    }
}

/// True if multilevel aggregation applies: in one process, in doubles, without a state to resume.
fn is_on_host<T: Number>(context: &Context<'_, T>, session: &Session<'_, '_>) -> bool {
    !context.parts.ranks.is_distributed() && session.is_idle() && T::PRECISION != Precision::Q64
}

/// Computes the limit by multilevel aggregation on the host; `None` if it finds no bound.
fn multilevel<T: Number>(context: &Context<'_, T>, session: &mut Session<'_, '_>) -> Result<Option<Limit>> {
    let epsilon = context.options.epsilon;
    let found = multilevel::limit(context.problem.transitions, &context.initial, epsilon, session)?;
    Ok(found.map(|found| {
        let rounding = found.bound + context.initial_error;
        let bound = Bound { rounding, ..Bound::default() };
        Limit { values: found.values, bound, terms: found.steps, eliminated: 0 }
    }))
}

/// Returns the rewards of the limit, and true if all accumulated rewards meet ε.
fn rewards_of<T: Number>(
    context: &Context<'_, T>,
    limit: &[f64],
    bound: Bound,
    observer: &mut dyn Progress,
) -> Result<(Vec<RewardValue>, bool)> {
    let (problem, ranks) = (context.problem, context.parts.ranks);
    let mut found = Vec::with_capacity(problem.rewards.len());
    // Rewards that may be zero in the limit; their accumulated values are computed separately.
    let mut unknown = Vec::new();
    for (place, reward) in problem.rewards.iter().enumerate() {
        let mut sum = [0.0];
        ranks.ordered_reduce(&mut sum, |sum| {
            reward.values.iter().zip(limit).for_each(|(r, p)| sum[0] += r * p);
        });
        let [instantaneous] = sum;
        let most = ranks.all_reduce_max(reward.values.iter().fold(0.0f64, |m, r| m.max(r.abs())));
        let cumulative = match instantaneous.abs() > bound.total() * most {
            true => instantaneous * f64::INFINITY,
            false if most == 0.0 => 0.0,
            false => {
                unknown.push(place);
                f64::NAN
            }
        };
        found.push(RewardValue { name: reward.name.clone(), instantaneous, cumulative });
    }
    let mut met = true;
    if !unknown.is_empty() {
        let rewards: Vec<&Reward> = unknown.iter().map(|&place| &problem.rewards[place]).collect();
        let (totals, all) = totals_of(context, &rewards, observer)?;
        met = all;
        unknown.into_iter().zip(totals).for_each(|(place, total)| found[place].cumulative = total);
    }
    Ok((found, met))
}

/// Computes rewards accumulated over an infinite horizon, and returns true if they meet ε.
///
/// A value is infinite if a state of a closed class has a reward. Otherwise it is the value
/// accumulated until a closed class is entered.
fn totals_of<T: Number>(
    context: &Context<'_, T>,
    rewards: &[&Reward],
    observer: &mut dyn Progress,
) -> Result<(Vec<f64>, bool)> {
    let (problem, transitions) = (context.problem, context.problem.transitions);
    let refused = |reward: &Reward, why: &str| {
        let what = format!("the accumulated reward '{}' at time inf is unknown: {why}", reward.name);
        Invalid::Reward.fail(what + "; give a finite time")
    };
    if context.parts.ranks.is_distributed() {
        return refused(rewards[0], "several ranks are not supported");
    }
    let classes = Classes::new(transitions, &context.initial, &context.initial);
    let class = classes.of_states(transitions);
    let closed: Vec<u32> = (0..class.len() as u32).filter(|&state| class[state as usize].is_some()).collect();
    let (mut totals, mut passing) = (vec![f64::INFINITY; rewards.len()], Vec::new());
    for (place, (reward, total)) in rewards.iter().zip(&mut totals).enumerate() {
        let values = || closed.iter().map(|&state| reward.values[state as usize]);
        match [values().any(|value| value > 0.0), values().any(|value| value < 0.0)] {
            [true, false] => {}
            [false, true] => *total = f64::NEG_INFINITY,
            [false, false] => passing.push(place),
            [true, true] => {
                return refused(reward, "the reward rates in the limit have both signs and cancel");
            }
        }
    }
    if passing.is_empty() {
        return Ok((totals, true));
    }
    let absorbing = Absorbing::new(transitions, &closed);
    let own: Vec<Reward> = passing.iter().map(|&place| rewards[place].clone()).collect();
    let Context { machine, options, .. } = *context;
    let found = until_absorption(machine, &absorbing, problem.initial, &closed, &own, options, observer)?;
    passing.iter().zip(&found.rewards).for_each(|(&place, total)| totals[place] = total.value);
    Ok((totals, found.status == Status::Met))
}

/// Finds an order of elimination within the limits of time and memory, equal on all ranks.
fn plan<T: Number>(context: &Context<'_, T>) -> Option<Plan> {
    let transitions = context.problem.transitions;
    if transitions.states() > gth::MOST_BANDED {
        return None;
    }
    let initial: Vec<f64> = context.parts.ranks.all_gather(&context.initial).concat();
    Plan::new(transitions, &Classes::new(transitions, &initial, &initial))
}

/// Computes the limit of this rank's states by elimination, which every rank repeats.
fn eliminate<T: Number>(
    context: &Context<'_, T>,
    plan: &Plan,
    observer: &mut dyn Progress,
) -> Result<Option<Limit>> {
    let (transitions, ranks) = (context.problem.transitions, context.parts.ranks);
    let initial: Vec<f64> = ranks.all_gather(&context.initial).concat();
    let mut check = || ranks.all_ok(observer.progress(0, 0));
    let from = Given { transitions, scale: context.statistics.scale, enough: context.options.epsilon };
    let found = plan.limit(from, &initial, &mut check)?;
    Ok(found.map(|(limit, rounding)| {
        let rounding = rounding + context.initial_error;
        let bound = Bound { rounding, ..Bound::default() };
        let values = limit[context.parts.rows.clone()].to_vec();
        Limit { values, bound, terms: 0, eliminated: transitions.states() }
    }))
}

/// Returns the number of Gauss–Seidel sweeps after which the certificate is given up.
pub(crate) fn most_sweeps<T: Number>(context: &Context<'_, T>) -> u64 {
    (MOST_WORK / context.statistics.nnz.max(SHORT_STEP)).max(1 << 16)
}

/// Returns the limit of the extrapolation after early termination, if its bound is within ε.
///
/// In the limit all transient mass is absorbed. `before` steps are those of an earlier run.
fn absorbed<T: Number>(
    context: &Context<'_, T>,
    iteration: &Iteration<'_, T>,
    before: u64,
) -> Result<Option<Limit>> {
    if !context.parts.absorbing {
        return Ok(None);
    }
    let (terms, step) = (iteration.steps(), context.statistics.step);
    let termination = EarlyTermination::after_last(iteration, step)?;
    if termination.decay == 0.0 {
        return Ok(None);
    }
    let endless = 1.0 / termination.decay;
    let bound = Bound {
        steady_state: termination.defect * endless,
        rounding: step * terms as f64
            + termination.rounding * endless
            + 16.0 * f64::EPSILON
            + context.initial_error,
        ..Bound::default()
    };
    if bound.total() > context.options.epsilon {
        return Ok(None);
    }
    let (mut values, newest) = (iteration.iterate(Which::Before)?, iteration.newest()?);
    for (i, (p, newest)) in values.iter_mut().zip(newest).enumerate() {
        *p = if context.statistics.non_absorbing.contains(i) { 0.0 } else { *p + (newest - *p) * endless };
    }
    Ok(Some(Limit { values, bound, terms: terms - before, eliminated: 0 }))
}

/// Iterates to the steady state, or for at most `most` products.
///
/// Starts with the initial distribution, or with the `last` iterate of an earlier run.
fn iterate<T: Number>(
    context: &Context<'_, T>,
    last: Option<LastIterate>,
    most: u64,
    session: &mut Session<'_, '_>,
) -> Result<Limit> {
    let ranks = context.parts.ranks;
    // With 0.9/α every state has a holding probability: a periodic chain converges, too.
    let inverse_alpha = T::of(LAZY * context.statistics.inverse_alpha.wide());
    let alpha = match T::PRECISION {
        // The fixed-point matrix is built for this α.
        Precision::Q64 => context.statistics.divisor,
        _ => 1.0 / inverse_alpha.wide(),
    };
    let mut iteration =
        Iteration::new(&context.machine.lanes, &context.parts, inverse_alpha, &[], (0, 0), false)?;
    let mut s = StationaryState {
        steps: 0,
        until: None,
        distance: f64::INFINITY,
        best: f64::INFINITY,
        stalled: 0,
        certificate: None,
    };
    let mut before = 0;
    let of = |phase| if let Phase::Stationary(state) = phase { Some(state) } else { None };
    match (session.resume(of)?, last) {
        (None, None) => iteration.start(&context.initial, context.beginning())?,
        (None, Some(last)) => {
            iteration.resume(last.steps, &last.kept)?;
            (before, s.steps, s.until) = (last.steps, last.steps, Some(last.steps + NEAR_STEPS));
            // Converts H to the shorter steps of this iteration.
            let shorter = context.statistics.mean_holding() * alpha / context.statistics.scale;
            let in_steps = |steps: f64| steps * shorter * (1.0 + 4.0 * f64::EPSILON);
            s.certificate = last
                .certificate
                .map(|known| Certificate { hitting_time: known.hitting_time.map(in_steps), ..known });
        }
        (Some(kept), _) => {
            s = kept.state;
            match &kept.vectors[..] {
                [x] if x.len() == context.initial.len() && s.until.is_none_or(|until| until > s.steps) => {
                    iteration.resume(s.steps, x)?;
                }
                _ => return Err(session.unusable()),
            }
        }
    }
    let certificate = match s.certificate {
        Some(certificate) => certificate,
        None => {
            let moves = |s: &StationaryState| s.distance > FIRST_DISTANCE || context.parts.absorbing;
            let goes_on = |s: &StationaryState| moves(s) && s.steps - before < FIRST_STEPS.min(most);
            while !session.is_ended() && (s.until.is_some() || goes_on(&s)) {
                session.save_if_due(|| Ok((s.phase(s.until), vec![iteration.snapshot()?])))?;
                s.advance(&mut iteration, (1 << 10, ranks), session)?;
                if let Some(limit) = absorbed(context, &iteration, before)? {
                    return Ok(limit);
                }
            }
            let probable = iteration.newest()?;
            let most = if session.is_ended() { 2 } else { most_sweeps(context).min(most) };
            let found =
                bound_hitting_time(context, alpha / context.statistics.scale, &probable, most, session);
            let found =
                session.save_on_interrupt(found, || Ok((s.phase(None), vec![iteration.snapshot()?])))?;
            Certificate { hitting_time: found.0, classes: found.1 }
        }
    };
    s.certificate = Some(certificate);
    let Certificate { hitting_time, classes } = certificate;

    // Without a certificate the distance of two distributions is at most 2.
    let bound_of =
        |distance: f64| hitting_time.map_or(2.0, |hitting_time| (2.0 * hitting_time * distance).min(2.0));
    // The contribution of a step's own rounding to the residual cannot be iterated away.
    let floor = hitting_time.map_or(0.0, |hitting_time| 2.0 * hitting_time * context.statistics.step);
    let target = (context.options.epsilon - floor).max(0.25 * context.options.epsilon) * 0.9;
    // Converged: the distance no longer falls and is within the rounding of two steps.
    let goes_on =
        |s: &StationaryState| bound_of(s.distance) > target && s.stalled < 8 && s.steps - before < most;
    while !session.is_ended() && (s.until.is_some() || goes_on(&s)) {
        session.save_if_due(|| Ok((s.phase(s.until), vec![iteration.snapshot()?])))?;
        s.advance(&mut iteration, (1 << 16, ranks), session)?;
        if let Some(limit) = absorbed(context, &iteration, before)? {
            return Ok(limit);
        }
        let falls = s.distance < 0.999 * s.best || s.distance > 2.0 * context.statistics.step;
        s.stalled = if falls { 0 } else { s.stalled + 1 };
        s.best = s.best.min(s.distance);
    }
    let steady_state = bound_of(s.distance);
    let terms = iteration.steps();
    let mut values = iteration.newest()?;
    // The mass has drifted by rounding, by a measured amount; the limit has the initial mass.
    let (mass, initial) = (total(&values, ranks), total(&context.initial, ranks));
    values.iter_mut().for_each(|p| *p = *p / mass * initial);
    // With one closed class the limit depends on the last residual alone. With several, rounding in
    // all steps has shifted mass between them.
    let on_the_way = match classes {
        1 => 0.0,
        _ => (context.statistics.step * terms as f64).min(2.0),
    };
    let rounding = floor
        + on_the_way
        + 2.0 * (mass - initial).abs()
        + 4.0 * T::PRECISION.unit_roundoff()
        + context.initial_error;
    let bound = Bound { steady_state, rounding, ..Bound::default() };
    if bound.total() > context.options.epsilon {
        let limit = Some(match hitting_time {
            _ if session.is_ended() => "the time limit",
            None => "expected times to a probable state, of which no bound is found",
            Some(_) if s.stalled < 8 => "the number of steps",
            Some(_) => "rounding errors",
        });
        let (residual, bound) = (s.distance, bound.total());
        ranks.all_ok(session.iterate(Iterate { steps: s.steps, residual, bound, limit }))?;
    }
    Ok(Limit { values, bound, terms: terms - before, eliminated: 0 })
}
