//! Rewards accumulated until absorption, and the time to absorption, with error bounds.
//!
//! Let T be the transient states, and x the expected times in them. The total of a reward ρ, which
//! is 0 in absorbing states, is Σ_T x_i ρ_i. The
//! [multilevel solver](crate::transient::multilevel) solves for x. T is
//! [eliminated](super::envelope) if that is shorter, or if the solver finds no bound within ε.

use super::envelope::{Envelope, solved_or_eliminated};
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::chain::{Initial, Reward};
use crate::transient::memory::expect_chain_memory;
use crate::transient::multilevel::Passage;
use crate::transient::problem::{Options, Problem, check, check_precision};
use crate::{Invalid, Machine, Progress, Result, Status};

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
    /// `Met` if all bounds are as small as requested.
    ///
    /// They must be at most ε times the largest reward times the longest mean time to absorption.
    pub status: Status,
    /// Number of multilevel cycles.
    pub iterations: u64,
    /// Number of eliminated states; 0 if there was no elimination.
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
    observer: &mut dyn Progress,
) -> Result<Absorption> {
    let n = transitions.states();
    if machine.ranks.is_distributed() {
        return Invalid::Unsupported
            .fail("rewards until absorption are not supported on several ranks: expected one process");
    }
    let mut row = Vec::new();
    for &end in ends {
        row.clear();
        transitions.outgoing(end as usize, &mut row);
        if !row.is_empty() {
            let what = format!("state {end} is not absorbing: it has an exit rate above 0");
            return Invalid::States.fail(what);
        }
    }
    // The time is the total of the reward 1.
    let mut all: Vec<Reward> = rewards.to_vec();
    all.push(Reward { name: String::new(), values: vec![1.0; n] });
    for reward in all.iter_mut().filter(|reward| reward.values.len() == n) {
        ends.iter().for_each(|&end| reward.values[end as usize] = 0.0);
    }
    let problem = Problem::new(transitions, initial, &[f64::INFINITY]).rewards(&all).vectors(false);
    check(&problem, options)?;
    check_precision(machine, &problem, options)?;
    absorbed(machine, &problem, ends, options, observer)
}

impl Absorption {
    /// Creates the result; the last of `rewards` is the time, `met` is true if all bounds suffice.
    fn new(mut rewards: Vec<Total>, met: bool, iterations: u64, eliminated: usize) -> Self {
        let time = rewards.pop().expect("a time is left");
        let status = if met { Status::Met } else { Status::NotMet };
        Self { time, rewards, status, iterations, eliminated }
    }
}

fn absorbed(
    machine: &Machine,
    problem: &Problem<'_>,
    ends: &[u32],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Absorption> {
    let (transitions, n) = (problem.transitions, problem.transitions.states());
    expect_chain_memory(machine, transitions.states())?;
    let initial = problem.initial.probabilities_of(0..n, n)?;
    let classes = Classes::new(transitions, &initial, &initial);
    let mut ending = vec![false; n];
    ends.iter().for_each(|&end| ending[end as usize] = true);
    let passing: Vec<u32> =
        (0..n as u32).filter(|&s| classes.reached[s as usize] && !ending[s as usize]).collect();
    let all = |value: f64, bound: f64| {
        Absorption::new(vec![Total { value, bound }; problem.rewards.len()], bound == 0.0, 0, 0)
    };
    if classes.representatives.iter().any(|&state| !ending[state]) {
        return Ok(all(f64::INFINITY, 0.0));
    }
    if passing.is_empty() {
        return Ok(all(0.0, 0.0));
    }
    let found = solved_or_eliminated(
        Envelope::new(transitions, &passing)?,
        observer,
        |observer| solved(problem, &initial, &passing, options.epsilon, observer),
        |found| found.status == Status::Met,
        |envelope, observer| eliminated(problem, &initial, envelope, &passing, observer),
    )?;
    Ok(found.unwrap_or_else(|| all(0.0, f64::INFINITY)))
}

/// Computes the totals from expected times by the multilevel solver; `None` if it finds no bound.
fn solved(
    problem: &Problem<'_>,
    initial: &[f64],
    passing: &[u32],
    epsilon: f64,
    observer: &mut dyn Progress,
) -> Result<Option<Absorption>> {
    let passage = Passage::new(problem.transitions, passing.to_vec(), initial, observer)?;
    let Some(mut passage) = passage else { return Ok(None) };
    let rewards: Vec<&[f64]> = problem.rewards.iter().map(|reward| &reward.values[..]).collect();
    let Some(found) = passage.earn(&rewards, epsilon, observer)? else { return Ok(None) };
    let initial_error = problem.initial.rounding();
    let (mut totals, mut met) = (Vec::new(), true);
    for ((reward, &value), bound) in problem.rewards.iter().zip(&found.totals).zip(found.bounds) {
        let largest = reward.values.iter().fold(0.0f64, |most, value| value.abs().max(most));
        let bound = bound + initial_error * largest * found.longest;
        let total = Total::finite(value, bound);
        met &= total.bound <= epsilon * largest * found.longest;
        totals.push(total);
    }
    Ok(Some(Absorption::new(totals, met, passage.steps(), 0)))
}

/// Computes the totals by eliminating the transient states; `None` if it finds no bound.
fn eliminated(
    problem: &Problem<'_>,
    initial: &[f64],
    envelope: &Envelope,
    passing: &[u32],
    observer: &mut dyn Progress,
) -> Result<Option<Absorption>> {
    let part = |reward: &Reward, sign: f64| -> Vec<f64> {
        passing.iter().map(|&state| (sign * reward.values[state as usize]).max(0.0)).collect()
    };
    // Positive and negative rewards are accumulated separately; only their expectations are
    // subtracted.
    let signs = [1.0, -1.0];
    let reward_rates: Vec<Vec<f64>> =
        problem.rewards.iter().flat_map(|reward| signs.map(|sign| part(reward, sign))).collect();
    let found = envelope.values(&reward_rates, &mut || observer.progress(0, 0))?;
    let Some(found) = found else { return Ok(None) };
    let sum = |column: &Vec<f64>| {
        let states = passing.iter().zip(column).map(|(&state, value)| (initial[state as usize], value));
        let terms = states.filter(|(p, _)| *p > 0.0).map(|(p, value)| p * value);
        let sum = exit_rate(terms);
        // If the sum overflows, its compensation is NaN.
        if sum.is_nan() { f64::INFINITY } else { sum }
    };
    let total = |both: &[Vec<f64>]| {
        let (above, below) = (sum(&both[0]), sum(&both[1]));
        // Rounding of the products, of a compensated sum, and of a difference.
        let relative = found.relative + 4.0 * f64::EPSILON + problem.initial.rounding();
        Total::finite(above - below, (above + below) * relative + f64::MIN_POSITIVE)
    };
    let totals: Vec<Total> = found.columns.chunks(2).map(total).collect();
    let met = totals.iter().all(|total| total.bound.is_finite());
    Ok(Some(Absorption::new(totals, met, 0, passing.len())))
}
