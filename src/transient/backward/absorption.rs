//! Rewards accumulated until absorption, and the time to absorption, with error bounds.
//!
//! The totals from each transient state are [solved for](super::values::Equations), and averaged
//! with the initial distribution.

use super::values::{Equations, TransientSystem};
use crate::transient::chain::recurrent_classes::ClosedClasses;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::chain::{Initial, Reward};
use crate::transient::memory::expect_chain_memory;
use crate::transient::multilevel::near_order;
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
    /// Number of multilevel cycles; 0 if the states were eliminated.
    pub iterations: u64,
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
        if !transitions.leaving(end as usize, &mut row).is_empty() {
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
    fn new(mut rewards: Vec<Total>, met: bool, iterations: u64) -> Self {
        let time = rewards.pop().expect("a time is left");
        let status = if met { Status::Met } else { Status::NotMet };
        Self { time, rewards, status, iterations }
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
    let classes = ClosedClasses::new(transitions, &initial, &initial);
    let mut ending = vec![false; n];
    ends.iter().for_each(|&end| ending[end as usize] = true);
    let passing: Vec<u32> =
        (0..n as u32).filter(|&s| classes.reached[s as usize] && !ending[s as usize]).collect();
    let all = |value: f64| Absorption::new(vec![Total { value, bound: 0.0 }; problem.rewards.len()], true, 0);
    if classes.representatives.iter().any(|&state| !ending[state]) {
        return Ok(all(f64::INFINITY));
    }
    if passing.is_empty() {
        return Ok(all(0.0));
    }
    let equations = Equations::new(transitions);
    let mut system = TransientSystem::new(&equations, near_order(transitions, passing))?;
    let passing = system.passing.clone();
    // Positive and negative rewards are accumulated separately; only their expectations are
    // subtracted.
    let (mut parts, mut columns) = (Vec::new(), Vec::new());
    for (reward, sign) in (0..problem.rewards.len()).flat_map(|reward| [(reward, 1.0), (reward, -1.0)]) {
        let values = &problem.rewards[reward].values;
        let rates = || passing.iter().map(|&state| (sign * values[state as usize]).max(0.0));
        if rates().any(|rate| rate > 0.0) {
            parts.push((reward, sign));
            columns.push(rates().collect());
        }
    }
    let found = system.solve(columns, (options.epsilon, 0.0), observer)?;
    let mean = |values: &[f64]| {
        let terms = passing.iter().zip(values).map(|(&state, value)| (initial[state as usize], value));
        let mean = exit_rate(terms.filter(|(p, _)| *p > 0.0).map(|(p, value)| p * value));
        // If the sum overflows, its compensation is NaN.
        if mean.is_nan() { f64::INFINITY } else { mean }
    };
    let (mut sums, mut longest) = (vec![(0.0, 0.0); problem.rewards.len()], 0.0);
    for ((reward, sign), (values, bounds)) in parts.into_iter().zip(found) {
        let mean_of = mean(&values);
        longest = values.iter().zip(&bounds).map(|(value, bound)| value + bound).fold(0.0, f64::max);
        sums[reward].0 += sign * mean_of;
        sums[reward].1 += mean(&bounds) + 4.0 * f64::EPSILON * mean_of;
        sums[reward].1 += f64::MIN_POSITIVE + problem.initial.rounding() * longest;
    }
    // The time is the last reward, so that `longest` bounds its expectations.
    let largest = |reward: &Reward| reward.values.iter().fold(0.0f64, |most, value| value.abs().max(most));
    let met = problem
        .rewards
        .iter()
        .zip(&sums)
        .all(|(reward, sum)| sum.1 <= options.epsilon * largest(reward) * longest);
    let totals = sums.into_iter().map(|(value, bound)| Total::finite(value, bound)).collect();
    Ok(Absorption::new(totals, met, system.levels.map_or(0, |levels| levels.steps())))
}
