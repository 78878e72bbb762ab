//! Rewards summed until a chain is absorbed, and the time that takes, with bounds on their errors.
//!
//! Let T be the states that are left in the end and h the largest expected number of steps from any reached state until
//! absorption. The total of a reward ρ that absorbing states do not earn is V = (1/α) x_0·v with v = ρ + Pv. Sweeps backwards make v:
//! each takes what is earned as far as a block of states reaches, however seldom these are left, and v errs by at most
//! (1/α) h max |ρ − (v − Pv)|. All rewards share the sweeps. One of them is the time, earned at rate 1: in each step its v falls by at
//! least 1 less its own defect d, so that h ≤ max v / (1 − d).
//!
//! Where sweeps do not get there, the iterates x_0, x_1, … are summed, V = (1/α) Σ_k ρ·x_k. In the place of x_m P^j stands
//! μ^j x_m on T, as in a [stop](crate::transient::iteration::quasi_stationary), so that
//!
//! V ≈ (1/α) (Σ_{k<m} ρ·x_k + ρ·x_m / (1 − μ)).
//!
//! A sequence whose defects on T are δ_0, δ_1, … differs from the exact one by Σ_i δ_i P^{k−1−i} at k, and what δ_i is worth
//! in all later steps is at most ‖δ_i‖ max|ρ| h. Before the stop ‖δ_i‖ ≤ g, the rounding of a step; behind it
//! ‖δ_{m+j}‖ ≤ μ^j (d + g). So V errs by at most (1/α) max|ρ| h (e + g m + (d + g)/(1 − μ)), with e for the beginning and the
//! rounding of sums: relative to the longest mean time to absorption that is as small as errors of probabilities are.
//!
//! Where it is shorter the states of T are [eliminated](super::envelope), with relative errors however slow the way is.

use super::envelope::Envelope;
use super::hitting_time::bound_hitting_time;
use super::hitting_time::{Stochastic, expected_rewards};
use crate::kernel::{Number, Precision, Q64};
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::statistics::{LAZY, scale_of};
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::chain::{Initial, Reward};
use crate::transient::context::{Context, matrix_statistics};
use crate::transient::cost_model::Costs;
use crate::transient::exchange::parts::Parts;
use crate::transient::iteration::Iteration;
use crate::transient::iteration::quasi_stationary::EarlyTermination;
use crate::transient::memory::expect_chain_memory;
use crate::transient::problem::{Observer, Options, Problem, check, check_precision};
use crate::{Error, Machine, Result, Status};

/// Multiplications before the first look whether the rest has a shape.
const FIRST_CHECK: u64 = 64;
/// Multiplications after which a sweep is given up, and transitions followed backwards for its bound.
const MOST_STEPS: u64 = 1 << 31;
const MOST_WORK: u64 = 1 << 35;

/// A reward summed until absorption.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// The expectation; infinite where absorption is not certain.
    pub value: f64,
    /// Bound on its error; infinite where none was found, or where the expectation is finite and no
    /// double.
    pub bound: f64,
}

impl Total {
    /// A finite expectation. One that is no double has no bound.
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
    /// The time that it takes.
    pub time: Total,
    /// What each reward sums to.
    pub rewards: Vec<Total>,
    /// Met where bounds are at most ε times the largest reward times the longest mean time to absorption.
    pub status: Status,
    /// Multiplications, or sweeps backwards.
    pub terms: u64,
    /// States that were eliminated; 0 where the chain was iterated.
    pub eliminated: usize,
}

/// Sums rewards until the chain is in one of `ends`, states that it never leaves. Where it may never get there, all totals are
/// infinite; what states of `ends` earn does not count.
///
/// # Errors
/// As [`solve`](crate::transient::solve); and if a state of `ends` can be left, or several processes share the work.
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
    if machine.ranks.is_distributed() || !transitions.is_whole() {
        return Err(Error::Invalid(
            "rewards until absorption are not supported on several ranks: expected one process".into(),
        ));
    }
    let mut row = Vec::new();
    for &end in ends {
        row.clear();
        transitions.outgoing(end as usize, &mut row);
        if !row.is_empty() {
            return Err(Error::Invalid(format!(
                "state {end} is not absorbing: it has an exit rate \
                                               above 0"
            )));
        }
    }
    // The time is the reward of 1.
    let mut all: Vec<Reward> = rewards.to_vec();
    all.push(Reward { name: String::new(), values: vec![1.0; n] });
    for reward in all.iter_mut().filter(|reward| reward.values.len() == n) {
        ends.iter().for_each(|&end| reward.values[end as usize] = 0.0);
    }
    let problem = Problem { transitions, initial, times: &[f64::INFINITY], rewards: &all, vectors: false };
    check(machine.ranks, &problem, options)?;
    check_precision(machine, &problem, options)?;
    match machine.precision {
        Precision::F32 => absorbed::<f32>(machine, &problem, ends, options, observer),
        Precision::F64 => absorbed::<f64>(machine, &problem, ends, options, observer),
        Precision::Q64 => absorbed::<Q64>(machine, &problem, ends, options, observer),
    }
}

/// Totals of all rewards, the last of them the time.
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
    let classes = machine.lanes[0].host(|| Classes::new(transitions, &initial, &initial));
    let mut ending = vec![false; n];
    ends.iter().for_each(|&end| ending[end as usize] = true);
    let passing: Vec<u32> =
        (0..n as u32).filter(|&s| classes.reached[s as usize] && !ending[s as usize]).collect();
    let found = if classes.representatives.iter().any(|&state| !ending[state]) {
        Outcome::certain(f64::INFINITY, problem.rewards.len())
    } else if passing.is_empty() {
        Outcome::certain(0.0, problem.rewards.len())
    } else {
        let mut statistics = matrix_statistics::<T>(machine, transitions, options.format, true)?;
        let parts = Parts::build(
            machine,
            transitions,
            &statistics,
            options.width,
            options.format,
            options.partitioning(),
        )?;
        (statistics.lengths, statistics.exit) = (Vec::new(), Vec::new());
        let initial_error = problem.initial.rounding();
        let expands = false;
        let costs = Costs::new(&statistics, problem.transitions.states(), machine);
        let context =
            Context { machine, problem, options, statistics, costs, parts, initial, initial_error, expands };
        totals(&context, &passing, observer)?
    };
    let mut rewards = found.totals;
    let time = rewards.pop().expect("a time is left");
    let status = if found.met { Status::Met } else { Status::NotMet };
    Ok(Absorption { time, rewards, status, terms: found.terms, eliminated: found.eliminated })
}

/// Totals by the shorter way: multiplications, or elimination of the states that are passed.
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
    let found = context.machine.lanes[0].host(|| envelope.map(eliminated).transpose())?.flatten();
    match found {
        Some(totals) => {
            let met = totals.iter().all(|total| total.bound.is_finite());
            Ok(Outcome { totals, met, terms, eliminated: passing.len() })
        }
        None => iterate(context, observer),
    }
}

/// Totals by elimination.
fn eliminated<T: Number>(
    context: &Context<'_, T>,
    envelope: &Envelope,
    passing: &[u32],
    check: &mut (dyn FnMut() -> Result<()> + Send),
) -> Result<Option<Vec<Total>>> {
    let part = |reward: &Reward, sign: f64| -> Vec<f64> {
        passing.iter().map(|&state| (sign * reward.values[state as usize]).max(0.0)).collect()
    };
    // Nothing is subtracted but the expectations of what is below 0.
    let signs = [1.0, -1.0];
    let reward_rates: Vec<Vec<f64>> =
        context.problem.rewards.iter().flat_map(|reward| signs.map(|sign| part(reward, sign))).collect();
    let Some(found) = envelope.values(&reward_rates, check)? else { return Ok(None) };
    let sum = |column: &Vec<f64>| {
        let states =
            passing.iter().zip(column).map(|(&state, value)| (context.initial[state as usize], value));
        let terms = states.filter(|(p, _)| *p > 0.0).map(|(p, value)| p * value);
        let sum = exit_rate(terms);
        // Where the sum leaves the range its compensation is no number.
        if sum.is_nan() { f64::INFINITY } else { sum }
    };
    let total = |both: &[Vec<f64>]| {
        let (above, below) = (sum(&both[0]), sum(&both[1]));
        // Products, a compensated sum, and a difference.
        let relative = found.relative + 4.0 * f64::EPSILON + context.initial_error;
        Total::finite(above - below, (above + below) * relative + f64::MIN_POSITIVE)
    };
    Ok(Some(found.columns.chunks(2).map(total).collect()))
}

/// Totals from every state by sweeps backwards, on the host: the time first, whose values show how long it takes at most.
fn sweep<T: Number>(
    context: &Context<'_, T>,
    passing: &[u32],
    most: u64,
    observer: &mut dyn Observer,
) -> Result<Outcome> {
    let n = context.problem.transitions.states();
    // Every state stays with some probability, as in a step.
    let holding = LAZY * context.statistics.mean_holding();
    let mut met = vec![true; n];
    passing.iter().for_each(|&state| met[state as usize] = false);
    let work = || -> Result<Outcome> {
        let chain = Stochastic::new(context.problem.transitions, 1.0 / holding, 0..n);
        let (time, others) = context.problem.rewards.split_last().expect("a time is left");
        let all: Vec<&Reward> = std::iter::once(time).chain(others).collect();
        let (mut summed, mut terms) = (Vec::new(), 0);
        for some in all.chunks(4) {
            let (sums, sweeps) = match some.len() {
                1 => sums_of::<T, 1>(context, &chain, &met, some, most, observer)?,
                2 => sums_of::<T, 2>(context, &chain, &met, some, most, observer)?,
                _ => sums_of::<T, 4>(context, &chain, &met, some, most, observer)?,
            };
            terms += sweeps;
            if sums.iter().any(|sum| sum.error > context.options.epsilon * sum.largest) {
                return Ok(Outcome { totals: Vec::new(), met: false, terms, eliminated: 0 });
            }
            summed.extend(sums);
        }
        // In each step the expected time falls by what is earned less the defect, or more.
        let longest = summed[0].highest / (summed[0].largest - summed[0].defect) * (1.0 + 4.0 * f64::EPSILON);
        summed.rotate_left(1);
        let total = |sum: Sum| {
            let bound = (sum.error * longest + 4.0 * f64::EPSILON * sum.value.abs()) * holding / sum.scale;
            Total::finite(sum.value * holding / sum.scale, bound)
        };
        let totals: Vec<Total> = summed.into_iter().map(total).collect();
        let met = totals.iter().all(|total| total.bound.is_finite());
        Ok(Outcome { totals, met, terms, eliminated: 0 })
    };
    context.machine.lanes[0].host(work)
}

/// What sweeps give of a reward, in steps and times a power of two.
struct Sum {
    scale: f64,
    /// The largest reward, and the largest value of a state.
    largest: f64,
    highest: f64,
    defect: f64,
    /// From the beginning, and the error of each step.
    value: f64,
    error: f64,
}

/// Sums of at most `K` rewards, which share the sweeps, and their number.
fn sums_of<T: Number, const K: usize>(
    context: &Context<'_, T>,
    chain: &Stochastic,
    met: &[bool],
    rewards: &[&Reward],
    most: u64,
    observer: &mut dyn Observer,
) -> Result<(Vec<Sum>, u64)> {
    let of = |reward: &Reward| reward.values.iter().fold(0.0f64, |most, v| v.abs().max(most));
    let scales: Vec<f64> = rewards.iter().map(|reward| scale_of(of(reward))).collect();
    let mut reward_rates = vec![[0.0; K]; met.len()];
    for (k, (reward, scale)) in rewards.iter().zip(&scales).enumerate() {
        reward_rates
            .iter_mut()
            .zip(&reward.values)
            .for_each(|(reward_rates, value)| reward_rates[k] = value * scale);
    }
    let mut enough = [f64::INFINITY; K];
    // Half of what may be spent, so that the beginning's part has room.
    let half = |reward: &Reward, scale: &f64| 0.5 * context.options.epsilon * of(reward) * scale;
    enough
        .iter_mut()
        .zip(rewards.iter().zip(&scales))
        .for_each(|(e, (reward, scale))| *e = half(reward, scale));
    let found = expected_rewards(chain, met, &reward_rates, enough, most, observer)?;
    let sum = |(k, (reward, scale)): (usize, (&&Reward, &f64))| {
        let mut sum = [0.0; 2];
        found.values.iter().zip(&context.initial).for_each(|(value, p)| add(&mut sum, value[k] * p));
        let (largest, defect) = (of(reward) * scale, found.defects[k]);
        Sum {
            scale: *scale,
            largest,
            highest: found.values.iter().map(|value| value[k]).fold(0.0, f64::max),
            defect,
            value: sum[0] + sum[1],
            error: defect + context.initial_error * largest,
        }
    };
    Ok((rewards.iter().zip(&scales).enumerate().map(sum).collect(), found.sweeps))
}

/// Adds a number to a sum and what it lost.
pub(crate) fn add(sum: &mut [f64; 2], value: f64) {
    let next = sum[0] + value;
    sum[1] += if sum[0].abs() >= value.abs() { (sum[0] - next) + value } else { (value - next) + sum[0] };
    sum[0] = next;
}

/// Totals by multiplications until the rest has a shape.
fn iterate<T: Number>(context: &Context<'_, T>, observer: &mut dyn Observer) -> Result<Outcome> {
    let (statistics, rewards) = (&context.statistics, context.problem.rewards);
    // Every state stays with some probability: a periodic chain settles, too.
    let inverse_alpha = T::of(LAZY * statistics.inverse_alpha.wide());
    let holding = match T::PRECISION {
        Precision::Q64 => statistics.mean_holding(),
        _ => inverse_alpha.wide() * statistics.scale,
    };
    let largest = |r: &Reward| r.values.iter().fold(0.0f64, |most, v| v.abs().max(most));
    let scale = |r: &Reward| {
        // A fraction is below 1.
        scale_of(largest(r)) * if T::PRECISION == Precision::Q64 { 0.5 } else { 1.0 }
    };
    let scales: Vec<f64> = rewards.iter().map(scale).collect();
    let scaled: Vec<(&[f64], f64)> = rewards.iter().zip(&scales).map(|(r, &s)| (&r.values[..], s)).collect();
    let mut iteration =
        Iteration::new(&context.machine.lanes, &context.parts, inverse_alpha, &scaled, (0, 0))?;
    iteration.start_in(&context.initial, context.beginning())?;
    let (mut sums, mut last) = (vec![[0.0; 2]; rewards.len()], vec![0.0; rewards.len()]);
    // The beginning as stored, and dot products by blocks and then in turn.
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
            sums.iter_mut().zip(row).for_each(|(sum, value)| add(sum, *value));
            last.copy_from_slice(row);
        }
        let terms = iteration.steps();
        if terms < check_at {
            continue;
        }
        check_at = terms + (terms / 8).clamp(16, 1 << 14);
        let masses = iteration.non_absorbing_masses()?;
        let termination =
            EarlyTermination::new::<T, _>(terms - 1, masses, statistics.step, |mu| iteration.defect(mu))?;
        let behind = (termination.defect + termination.rounding) / termination.decay;
        let rounded = fixed + statistics.step * terms as f64;
        let error = rounded + behind;
        stalled = if termination.defect <= 2.0 * termination.rounding { stalled + 1 } else { 0 };
        // Where rounding alone is too much, more steps would at most halve the error.
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
    let total = |((reward, scale), (sum, last)): ((&Reward, f64), ([f64; 2], f64))| {
        let rest = last * (1.0 - decay) / decay;
        let value = sum[0] + sum[1] + if rest.is_finite() { rest } else { 0.0 };
        Total::finite(value * holding / scale, largest(reward) * holding * longest * error)
    };
    let all = rewards.iter().zip(scales).zip(sums.into_iter().zip(last));
    let totals: Vec<Total> = all.map(total).collect();
    let met = met && totals.iter().all(|total| total.bound.is_finite());
    Ok(Outcome { totals, met, terms, eliminated: 0 })
}
