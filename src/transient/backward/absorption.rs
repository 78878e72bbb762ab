//! Rewards accumulated until absorption, and the time to absorption, with error bounds.
//!
//! Let T be the transient states, and h the largest expected number of steps from any reached state
//! until absorption. The total of a reward ρ, which is 0 in absorbing states, is V = (1/α) x_0·v
//! with v = ρ + Pv. Gauss–Seidel sweeps solve for v; they propagate rewards across a whole block of
//! states, however slowly these are left. If they do not converge, the iterates are summed up to a
//! quasi-stationary x_m, V ≈ (1/α) (Σ_{k<m} ρ·x_k + ρ·x_m / (1 − μ)). If it is shorter, the states
//! of T are [eliminated](super::envelope). `docs/certificate.md` has the bounds.

use super::envelope::Envelope;
use super::hitting_time::{Stochastic, TOGETHER, bound_hitting_time, expected_rewards};
use crate::kernel::{Number, Precision};
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::statistics::{LAZY, scale_of};
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::chain::{Initial, Reward};
use crate::transient::context::{Context, matrix_statistics};
use crate::transient::exchange::cost::exchange_cost;
use crate::transient::iteration::Iteration;
use crate::transient::iteration::quasi_stationary::EarlyTermination;
use crate::transient::memory::expect_chain_memory;
use crate::transient::numerics::double_double::Exact;
use crate::transient::partition::RunFacts;
use crate::transient::problem::{Observer, Options, Problem, check, check_precision};
use crate::{Error, Machine, Result, Status};

/// Matrix–vector products before the first check for a quasi-stationary distribution.
///
/// An elimination that costs at most as many products is made at once.
const FIRST_CHECK: u64 = 64;
/// Maximum number of matrix–vector products of [`iterate`].
const MOST_STEPS: u64 = 1 << 31;
/// Maximum number of transitions processed by the sweeps, each sweep counting all of them.
const MOST_WORK: u64 = 1 << 35;

/// A reward accumulated until absorption.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// The expectation; infinite if absorption is not certain.
    pub value: f64,
    /// Error bound of `value`; infinite if unknown.
    ///
    /// It is also infinite if a finite expectation exceeds the range of doubles.
    pub bound: f64,
}

impl Total {
    /// Returns the total of a finite expectation; its bound is infinite if the value overflows.
    fn finite(value: f64, bound: f64) -> Self {
        match value.is_finite() && bound.is_finite() {
            true => Self { value, bound },
            false if value.is_nan() => Self { value: 0.0, bound: f64::INFINITY },
            false => Self { value: value.clamp(-f64::MAX, f64::MAX), bound: f64::INFINITY },
        }
    }
}

/// Expectations until a chain is absorbed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Absorption {
    /// Expected time to absorption.
    pub time: Total,
    /// Expected total of each reward.
    pub rewards: Vec<Total>,
    /// `Met` if all bounds are small enough.
    ///
    /// They must be at most ε times the largest reward times the longest mean time to absorption.
    pub status: Status,
    /// Number of matrix–vector products, or of Gauss–Seidel sweeps.
    pub terms: u64,
    /// Number of eliminated states; 0 if the chain was iterated.
    pub eliminated: usize,
}

/// Computes rewards accumulated until the chain is in one of the absorbing states `ends`.
///
/// All totals are infinite if `ends` may never be reached. Rewards of states in `ends` are ignored.
///
/// # Errors
/// As [`solve`](crate::transient::solve); also if a state of `ends` is not absorbing, or if several
/// processes share the work.
pub fn until_absorption(
    machine: &Machine,
    transitions: &dyn Transitions,
    initial: &Initial,
    ends: &[u32],
    rewards: &[Reward],
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Absorption> {
    let n = transitions.states();
    if machine.ranks.is_distributed() {
        return Err(Error::Invalid(
            "rewards until absorption are not supported on several ranks: expected one process".into(),
        ));
    }
    let mut row = Vec::new();
    for &end in ends {
        row.clear();
        transitions.outgoing(end as usize, &mut row);
        if !row.is_empty() {
            let what = format!("state {end} is not absorbing: it has an exit rate above 0");
            return Err(Error::Invalid(what));
        }
    }
    // The time is the total of the reward 1.
    let mut all: Vec<Reward> = rewards.to_vec();
    all.push(Reward { name: String::new(), values: vec![1.0; n] });
    for reward in all.iter_mut().filter(|reward| reward.values.len() == n) {
        ends.iter().for_each(|&end| reward.values[end as usize] = 0.0);
    }
    let problem = Problem { transitions, initial, times: &[f64::INFINITY], rewards: &all, vectors: false };
    check(&problem, options)?;
    check_precision(machine, &problem, options)?;
    by_precision!(machine.precision, absorbed(machine, &problem, ends, options, observer))
}

/// Totals of all rewards; the last one is the time.
struct Outcome {
    totals: Vec<Total>,
    met: bool,
    terms: u64,
    eliminated: usize,
}

impl Outcome {
    fn certain(value: f64, count: usize) -> Self {
        Self { totals: vec![Total { value, bound: 0.0 }; count], met: true, terms: 0, eliminated: 0 }
    }

    /// Returns totals without elimination; they are met if all bounds are finite, too.
    fn of(totals: Vec<Total>, met: bool, terms: u64) -> Self {
        let met = met && totals.iter().all(|total| total.bound.is_finite());
        Self { totals, met, terms, eliminated: 0 }
    }
}

fn absorbed<T: Number>(
    machine: &Machine,
    problem: &Problem<'_>,
    ends: &[u32],
    options: &Options,
    observer: &mut dyn Observer,
) -> Result<Absorption> {
    let (transitions, n) = (problem.transitions, problem.transitions.states());
    expect_chain_memory(machine, transitions.states())?;
    let initial = problem.initial.probabilities_of(0..n, n)?;
    let classes = Classes::new(transitions, &initial, &initial);
    let mut ending = vec![false; n];
    ends.iter().for_each(|&end| ending[end as usize] = true);
    let passing: Vec<u32> =
        (0..n as u32).filter(|&s| classes.reached[s as usize] && !ending[s as usize]).collect();
    let found = if classes.representatives.iter().any(|&state| !ending[state]) {
        Outcome::certain(f64::INFINITY, problem.rewards.len())
    } else if passing.is_empty() {
        Outcome::certain(0.0, problem.rewards.len())
    } else {
        let statistics = matrix_statistics::<T>(machine, transitions, options.format, true)?;
        let run = RunFacts::endless(options.partitioning(), options.format, exchange_cost);
        let context = Context::build(machine, problem, options, statistics, initial, false, run)?;
        totals(&context, &passing, observer)?
    };
    let mut rewards = found.totals;
    let time = rewards.pop().expect("a time is left");
    let status = if found.met { Status::Met } else { Status::NotMet };
    Ok(Absorption { time, rewards, status, terms: found.terms, eliminated: found.eliminated })
}

/// Computes the totals by sweeps or elimination, whichever is shorter.
///
/// If neither succeeds, the chain is iterated.
fn totals<T: Number>(
    context: &Context<'_, T>,
    passing: &[u32],
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let envelope = Envelope::new(context.problem.transitions, passing)?;
    let worth = envelope.as_ref().map(|envelope| envelope.worth(context.statistics.nnz));
    let mut terms = 0;
    if worth.is_none_or(|worth| worth > FIRST_CHECK) {
        let most = (MOST_WORK / context.statistics.nnz.max(1)).max(1 << 16);
        let found = sweep(context, passing, worth.unwrap_or(most).min(most), observer)?;
        if found.met {
            return Ok(found);
        }
        terms = found.terms;
    }
    let mut check = || observer.progress(0, 0);
    let eliminated = |envelope: Envelope| eliminated(context, &envelope, passing, &mut check);
    let found = envelope.map(eliminated).transpose()?.flatten();
    match found {
        Some(totals) => Ok(Outcome { eliminated: passing.len(), ..Outcome::of(totals, true, terms) }),
        None => iterate(context, observer),
    }
}

/// Computes the totals by elimination; `None` if elimination fails.
fn eliminated<T: Number>(
    context: &Context<'_, T>,
    envelope: &Envelope,
    passing: &[u32],
    check: &mut (dyn FnMut() -> Result<()> + Send),
) -> Result<Option<Vec<Total>>> {
    let part = |reward: &Reward, sign: f64| -> Vec<f64> {
        passing.iter().map(|&state| (sign * reward.values[state as usize]).max(0.0)).collect()
    };
    // Positive and negative rewards are accumulated separately; only their expectations are
    // subtracted.
    let signs = [1.0, -1.0];
    let reward_rates: Vec<Vec<f64>> =
        context.problem.rewards.iter().flat_map(|reward| signs.map(|sign| part(reward, sign))).collect();
    let Some(found) = envelope.values(&reward_rates, check)? else { return Ok(None) };
    let sum = |column: &Vec<f64>| {
        let states =
            passing.iter().zip(column).map(|(&state, value)| (context.initial[state as usize], value));
        let terms = states.filter(|(p, _)| *p > 0.0).map(|(p, value)| p * value);
        let sum = exit_rate(terms);
        // If the sum overflows, its compensation is NaN.
        if sum.is_nan() { f64::INFINITY } else { sum }
    };
    let total = |both: &[Vec<f64>]| {
        let (above, below) = (sum(&both[0]), sum(&both[1]));
        // Rounding of the products, of a compensated sum, and of a difference.
        let relative = found.relative + 4.0 * f64::EPSILON + context.initial_error;
        Total::finite(above - below, (above + below) * relative + f64::MIN_POSITIVE)
    };
    Ok(Some(found.columns.chunks(2).map(total).collect()))
}

/// Computes the totals by Gauss–Seidel sweeps on the host.
///
/// The time is first: its values bound the expected number of steps to absorption.
fn sweep<T: Number>(
    context: &Context<'_, T>,
    passing: &[u32],
    most: u64,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let n = context.problem.transitions.states();
    // Every state has a holding probability, as in the steps of an iteration.
    let holding = LAZY * context.statistics.mean_holding();
    let mut met = vec![true; n];
    passing.iter().for_each(|&state| met[state as usize] = false);
    let chain = Stochastic::new(context.problem.transitions, 1.0 / holding, 0..n);
    let (time, others) = context.problem.rewards.split_last().expect("a time is left");
    let all: Vec<&Reward> = std::iter::once(time).chain(others).collect();
    let (mut summed, mut terms) = (Vec::new(), 0);
    for some in all.chunks(TOGETHER) {
        let scaled: Vec<(f64, f64)> =
            some.iter().map(|reward| (scale_of(largest(reward)), largest(reward))).collect();
        let rates: Vec<Vec<f64>> = (some.iter().zip(&scaled))
            .map(|(reward, (scale, _))| reward.values.iter().map(|value| value * scale).collect())
            .collect();
        // Half of the error budget; the other half is for the error of the initial vector.
        let half = |&(scale, largest): &(f64, f64)| 0.5 * context.options.epsilon * largest * scale;
        let enough: Vec<f64> = scaled.iter().map(half).collect();
        let found = expected_rewards(&chain, &met, &rates, &enough, most, observer)?;
        terms += found.sweeps;
        for ((&(scale, largest), values), &defect) in scaled.iter().zip(&found.values).zip(&found.defects) {
            let (mut sum, largest) = (Exact::default(), largest * scale);
            values.iter().zip(&context.initial).for_each(|(value, p)| sum.add(value * p));
            let error = defect + context.initial_error * largest;
            if error > context.options.epsilon * largest {
                return Ok(Outcome { totals: Vec::new(), met: false, terms, eliminated: 0 });
            }
            let highest = values.iter().copied().fold(0.0, f64::max);
            summed.push(Sum { scale, largest, highest, defect, value: sum.value(), error });
        }
    }
    // In each step the expected time falls by at least the reward minus the defect.
    let longest = summed[0].highest / (summed[0].largest - summed[0].defect) * (1.0 + 4.0 * f64::EPSILON);
    summed.rotate_left(1);
    let total = |sum: Sum| {
        let bound = (sum.error * longest + 4.0 * f64::EPSILON * sum.value.abs()) * holding / sum.scale;
        Total::finite(sum.value * holding / sum.scale, bound)
    };
    Ok(Outcome::of(summed.into_iter().map(total).collect(), true, terms))
}

/// Result of the sweeps for one reward, in steps and times the power of two `scale`.
struct Sum {
    scale: f64,
    /// Largest reward.
    largest: f64,
    /// Largest value of a state.
    highest: f64,
    defect: f64,
    /// Expectation under the initial distribution.
    value: f64,
    /// Error of each step: the defect, plus the initial error times the largest reward.
    error: f64,
}

fn largest(reward: &Reward) -> f64 {
    reward.values.iter().fold(0.0, |most, value| value.abs().max(most))
}

/// Computes the totals by matrix–vector products until the iterate is quasi-stationary on T.
fn iterate<T: Number>(context: &Context<'_, T>, observer: &mut dyn Observer) -> Result<Outcome> {
    let (statistics, rewards) = (&context.statistics, context.problem.rewards);
    // Every state has a holding probability, so that a periodic chain converges, too.
    let inverse_alpha = T::of(LAZY * statistics.inverse_alpha.wide());
    let holding = match T::PRECISION {
        Precision::Q64 => statistics.mean_holding(),
        _ => inverse_alpha.wide() * statistics.scale,
    };
    let scale = |r: &Reward| {
        // Fixed-point numbers are below 1.
        scale_of(largest(r)) * if T::PRECISION == Precision::Q64 { 0.5 } else { 1.0 }
    };
    let scales: Vec<f64> = rewards.iter().map(scale).collect();
    let scaled: Vec<(&[f64], f64)> = rewards.iter().zip(&scales).map(|(r, &s)| (&r.values[..], s)).collect();
    let mut iteration =
        Iteration::new(&context.machine.lanes, &context.parts, inverse_alpha, &scaled, (0, 0))?;
    iteration.start(&context.initial, context.beginning())?;
    let (mut sums, mut last) = (vec![Exact::default(); rewards.len()], vec![0.0; rewards.len()]);
    // Errors of the stored initial vector and of dot products, by blocks and then compensated.
    let u = T::PRECISION.unit_roundoff();
    let fixed = context.initial_error
        + statistics.vector
        + 16.0 * u
        + (context.parts.blocks as f64 + 16.0) * f64::EPSILON;
    let (mut check_at, mut stalled) = (FIRST_CHECK, 0);
    let (decay, error) = loop {
        let terms = iteration.steps();
        let rows = iteration.advance(check_at.min(terms + iteration.most_steps()), &[], observer)?;
        for row in rows.chunks(rewards.len()) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| sum.add(*value));
            last.copy_from_slice(row);
        }
        let terms = iteration.steps();
        if terms < check_at {
            continue;
        }
        check_at = terms + (terms / 8).clamp(16, 1 << 14);
        let termination = EarlyTermination::after_last(&iteration, statistics.step)?;
        let behind = (termination.defect + termination.rounding) / termination.decay;
        let rounded = fixed + statistics.step * terms as f64;
        let error = rounded + behind;
        stalled = if termination.defect <= 2.0 * termination.rounding { stalled + 1 } else { 0 };
        // If rounding alone exceeds ε, more steps would at most halve the error.
        let hopeless = rounded > context.options.epsilon && behind <= rounded;
        if error <= context.options.epsilon || hopeless || stalled >= 8 || terms >= MOST_STEPS {
            break (termination.decay, error);
        }
    };
    let terms = iteration.steps();
    let met = error <= context.options.epsilon;
    let probable = iteration.newest()?;
    let work = (MOST_WORK / statistics.nnz.max(1)).max(1 << 16);
    let longest =
        bound_hitting_time(context, 1.0 / holding, &probable, work, observer)?.0.unwrap_or(f64::INFINITY);
    let total = |((reward, scale), (sum, last)): ((&Reward, f64), (Exact, f64))| {
        let rest = last * (1.0 - decay) / decay;
        let value = sum.value() + if rest.is_finite() { rest } else { 0.0 };
        Total::finite(value * holding / scale, largest(reward) * holding * longest * error)
    };
    let all = rewards.iter().zip(scales).zip(sums.into_iter().zip(last));
    Ok(Outcome::of(all.map(total).collect(), met, terms))
}
