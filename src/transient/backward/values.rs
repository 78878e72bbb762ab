//! Expectations from every state, for queries about all initial states.
//!
//! Let f be a column vector with a value of each state, and let N be Poisson with mean αt. The
//! expectation of f at t from state i is (e^{Qt} f)(i) = Σ_k P(N = k) (P^k f)(i). The bounds are
//! those of uniformization with the maximum norm instead of the l1 norm.
//!
//! The reward accumulated until some states are reached is solved for by the
//! [multilevel solver](crate::transient::multilevel). States are [eliminated](super::envelope) if
//! that is shorter. `docs/certificate.md` has the proofs.
//!
//! All of this runs on the host, in double precision.

use super::envelope::{Envelope, solved_or_eliminated};
use super::reachability::Predecessors;
use super::stochastic::Stochastic;
use crate::lane::expect_memory;
use crate::parallel::*;
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::scan::PROBABILITIES;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::multilevel::{Values, expectations, near_order};
use crate::transient::numerics::poisson::{Weights, Window, expected_excess};
use crate::{Invalid, Progress, Result};

/// Number of states that a thread processes at once.
const ROWS: usize = 4096;
/// Number of steps between two convergence checks.
const CHECK_STEPS: u64 = 32;
/// Largest supported product αt of uniformization rate and time.
const MOST_ALPHA_T: f64 = 1e13;
const U: f64 = 0.5 * f64::EPSILON;

/// An expectation from every initial state, with error bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct StateValues {
    /// One value for each state.
    pub values: Vec<f64>,
    /// Bound on the error of each value.
    pub bounds: Vec<f64>,
}

/// A chain prepared for expectations from every state.
pub struct Backward {
    chain: Stochastic,
    from: Predecessors,
    alpha: f64,
    /// True if times count steps.
    discrete: bool,
    /// Bound on the rounding error of each element of a step P a, for elements of a of at most 1.
    rounding: f64,
}

/// The chain with the rates of P, in the unit of time 1/α.
impl Transitions for Backward {
    fn states(&self) -> usize {
        self.chain.stay.len()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        for &before in self.from.of(state) {
            let own = self.chain.row(before as usize).find(|(to, _)| *to as usize == state);
            row.extend(own.map(|(_, rate)| (before, rate)));
        }
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        row.extend(self.chain.row(state));
    }
}

impl std::fmt::Debug for Backward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backward({} states)", self.states())
    }
}

impl Backward {
    /// Reads all transitions into memory.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] if memory is not sufficient, [`Invalid`] if an exit rate
    /// overflows.
    pub fn new(transitions: &dyn Transitions) -> Result<Self> {
        let n = transitions.states();
        let mut exit = vec![0.0; n];
        transitions.exit_rates(0..n, &mut exit);
        let discrete = transitions.is_discrete();
        let alpha = exit.iter().copied().fold(0.0, f64::max);
        let alpha = if discrete && alpha > 0.0 { 1.0 } else { alpha };
        if !alpha.is_finite() {
            return Invalid::Number("rates").fail("the sum of a state's rates is above the largest double");
        }
        expect_memory(n as u64 * 64, || format!("values of {n} states"))?;
        let chain = Stochastic::new(transitions, if alpha > 0.0 { alpha } else { 1.0 }, 0..n);
        let from = Predecessors::new(transitions);
        let given = if discrete { PROBABILITIES } else { 0.0 };
        let rounding = (2 * chain.longest() + 8) as f64 * U + given;
        Ok(Self { chain, from, alpha, discrete, rounding })
    }

    /// Returns the closed communicating classes: sets that no transition leaves.
    pub fn closed_classes(&self) -> Vec<Vec<u32>> {
        let even = vec![1.0; self.states()];
        let classes = Classes::new(self, &even, &even);
        let mut all = vec![Vec::new(); classes.representatives.len()];
        for (state, class) in (0u32..).zip(classes.of_states(self)) {
            if let Some(class) = class {
                all[class].push(state);
            }
        }
        all
    }

    /// Returns the states from which `targets` can be reached through states of `through` alone.
    ///
    /// The targets are included.
    pub fn may_reach(&self, targets: &[bool], through: &[bool]) -> Vec<bool> {
        self.from.may_reach(targets, through)
    }

    /// Writes P a to `out`, but elements of a itself for the states that are `fixed`.
    ///
    /// Returns the least and the largest element of `out`, and the largest change from a.
    fn step(&self, a: &[f64], out: &mut [f64], fixed: &[bool]) -> [f64; 3] {
        let block = |(block, out): (usize, &mut [f64])| {
            let mut seen = [f64::INFINITY, f64::NEG_INFINITY, 0.0f64];
            for (state, out) in (block * ROWS..).zip(out) {
                *out = if fixed[state] { a[state] } else { self.chain.apply(state, a) };
                seen = [seen[0].min(*out), seen[1].max(*out), seen[2].max((*out - a[state]).abs())];
            }
            seen
        };
        let both = |a: [f64; 3], b: [f64; 3]| [a[0].min(b[0]), a[1].max(b[1]), a[2].max(b[2])];
        let none = || [f64::INFINITY, f64::NEG_INFINITY, 0.0];
        out.par_chunks_mut(ROWS).enumerate().map(block).reduce(none, both)
    }

    /// Returns the expectation of `values` at a time from each state; `fixed` states are absorbing.
    ///
    /// The requested error is at most ε times the largest value.
    ///
    /// # Errors
    /// [`Invalid`] for a time that takes too many steps; errors of the observer.
    pub fn at(
        &self,
        values: &[f64],
        fixed: &[bool],
        time: f64,
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        self.sum(values, fixed, time, epsilon, false, observer)
    }

    /// Returns the reward accumulated until a time, expected from each state, at rates `rewards`.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn until(
        &self,
        rewards: &[f64],
        time: f64,
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        self.sum(rewards, &vec![false; rewards.len()], time, epsilon, true, observer)
    }

    /// Returns Σ w_k P^k f, where w_k is P(N = k), or P(N > k)/α if `earned`, N Poisson(αt).
    fn sum(
        &self,
        values: &[f64],
        fixed: &[bool],
        time: f64,
        epsilon: f64,
        earned: bool,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        let n = values.len();
        let most = values.iter().fold(0.0f64, |most, v| v.abs().max(most));
        let lambda = self.alpha * time;
        if time == 0.0 || lambda == 0.0 || most == 0.0 {
            let factor = if earned { time } else { 1.0 };
            let values: Vec<f64> = values.iter().map(|v| v * factor).collect();
            let bounds = values.iter().map(|v| if earned { v.abs() * U } else { 0.0 }).collect();
            return Ok(StateValues { values, bounds });
        }
        if lambda > MOST_ALPHA_T {
            return Invalid::Time.fail(format!(
                "time {time:e} is out of range: it needs {lambda:.1e} multiplications, and at most \
                 {MOST_ALPHA_T:e} are supported"
            ));
        }
        let window = if self.discrete { Window::of_step(lambda) } else { Window::new(lambda, 0.5 * epsilon) };
        let weights = window.weights();
        let (left, right) = (weights.left, weights.left + weights.values.len() as u64 - 1);
        let tails = if earned { weights.tails() } else { Vec::new() };
        let weight = |k: u64| match (earned, k < left) {
            (true, true) => 1.0,
            (true, false) => tails[(k - left) as usize + 1],
            (false, true) => 0.0,
            (false, false) => weights.values[(k - left) as usize],
        };
        // Sum of the weights of all terms.
        let whole = if earned { lambda } else { 1.0 };
        let (mut a, mut next, mut sum) = (values.to_vec(), vec![0.0; n], vec![0.0; n]);
        let (mut given, mut k, mut stop) = (0.0, 0, 0.0);
        loop {
            let w = weight(k);
            if w > 0.0 {
                sum.par_iter_mut().zip(&a).with_min_len(ROWS).for_each(|(sum, a)| *sum += w * a);
                given += w;
            }
            if k == right {
                break;
            }
            let [low, high, change] = self.step(&a, &mut next, fixed);
            std::mem::swap(&mut a, &mut next);
            k += 1;
            if k % CHECK_STEPS == 0 {
                observer.progress(k, right)?;
                // All later values are between the least and the largest, and no later step changes
                // a value more than this step. If the change is within rounding, further steps
                // cannot improve the bound.
                let noise = self.rounding * most;
                stop = (high - low).min((change + noise) * expected_excess(lambda, k));
                if stop <= 0.25 * epsilon * most || change <= noise {
                    let rest = (whole - given).max(0.0);
                    sum.par_iter_mut().zip(&a).with_min_len(ROWS).for_each(|(sum, a)| *sum += rest * a);
                    break;
                }
                stop = 0.0;
            }
        }
        let error = most * self.error(&weights, lambda, k, right, earned) + stop;
        let error = if earned { time * error } else { error };
        let scale = if earned { 1.0 / self.alpha } else { 1.0 };
        sum.iter_mut().for_each(|sum| *sum *= scale);
        Ok(StateValues { bounds: vec![error; n], values: sum })
    }

    /// Bounds the error of k steps for values of at most 1, except that of early termination.
    ///
    /// For accumulated rewards the bound is per unit of time.
    fn error(&self, weights: &Weights, lambda: f64, k: u64, right: u64, earned: bool) -> f64 {
        let steps = lambda.min(k as f64);
        // Rounding of steps; of products and additions of terms; of weights; and of λ itself.
        let rounding = self.rounding * steps
            + 3.0 * U * k as f64
            + weights.rounding
            + if self.discrete { 0.0 } else { 4.0 * f64::EPSILON * lambda.sqrt() };
        let error = weights.truncation + rounding + 16.0 * U;
        // After the last term R the tails P(N > k) decrease by a factor λ/(R + 2) or faster.
        let room = right as f64 + 2.0 - lambda;
        match earned {
            false => error,
            true if room > 0.0 => error + weights.truncation * (right as f64 + 2.0) / room / lambda,
            true => f64::INFINITY,
        }
    }

    /// Returns the expected total from each state until a state of `ends` is reached.
    ///
    /// A total consists of the `rewards` at these rates, and of the value of the state reached.
    /// `ends` must be reached almost surely from all other states. The requested error is at most ε
    /// times the largest value.
    ///
    /// # Errors
    /// [`Invalid`] for a negative value or reward; errors of the observer.
    pub fn total(
        &self,
        ends: &[bool],
        values: &[f64],
        rewards: &[f64],
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        if let Some(reward) = rewards.iter().chain(values).find(|reward| **reward < 0.0) {
            return Invalid::Reward.fail(format!(
                "reward or final value {reward} is out of range: expected a number ≥ 0 for sums over all time"
            ));
        }
        let equations =
            Equations { transitions: self, alpha: self.alpha, rates: U, rewards: self.rounding + 8.0 * U };
        Ok(equations.totals(ends, values, &[rewards], epsilon, observer)?.swap_remove(0))
    }
}

/// Equations of expectations until some states are left, and relative errors of their numbers.
pub(crate) struct Equations<'a> {
    transitions: &'a dyn Transitions,
    /// Number of units of time of the rewards in one of the rates.
    alpha: f64,
    /// Bound of the relative error of each rate.
    rates: f64,
    /// Bound of the relative error of each expected reward of a step.
    rewards: f64,
}

impl<'a> Equations<'a> {
    /// Creates the equations of a chain with exact rates.
    pub(crate) fn new(transitions: &'a dyn Transitions) -> Self {
        let given = if transitions.is_discrete() { PROBABILITIES } else { 0.0 };
        Self { transitions, alpha: 1.0, rates: 0.0, rewards: given + 8.0 * U }
    }

    /// Computes expected totals until a state of `ends`, as [`Backward::total`], for each reward.
    pub(crate) fn totals(
        &self,
        ends: &[bool],
        values: &[f64],
        rewards: &[&[f64]],
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<Vec<StateValues>> {
        let passing: Vec<u32> = (0..ends.len() as u32).filter(|&s| !ends[s as usize]).collect();
        let passing = near_order(self.transitions, passing);
        // b of the equations −Qv = b: the reward, plus the final value of each end times its rate.
        let into = self.rates_times(&passing, |to| if ends[to] { values[to] } else { 0.0 });
        let earned = |rewards: &&[f64]| -> Vec<f64> {
            passing.iter().zip(&into).map(|(&s, into)| into + rewards[s as usize] / self.alpha).collect()
        };
        let (found, _) = self.solve(&passing, rewards.iter().map(earned).collect(), epsilon, observer)?;
        let all = |(own, own_bounds): Values| {
            let mut all = StateValues { values: values.to_vec(), bounds: vec![0.0; ends.len()] };
            for ((&state, value), bound) in passing.iter().zip(own).zip(own_bounds) {
                (all.values[state as usize], all.bounds[state as usize]) = (value, bound);
            }
            all
        };
        Ok(found.into_iter().map(all).collect())
    }

    /// Returns Σ_j q_ij `value(j)` for each of some states i.
    pub(crate) fn rates_times(&self, states: &[u32], value: impl Fn(usize) -> f64 + Sync) -> Vec<f64> {
        let sum = |row: &mut Vec<(u32, f64)>, &state: &u32| {
            row.clear();
            self.transitions.outgoing(state as usize, row);
            exit_rate(row.iter().map(|&(to, rate)| rate * value(to as usize)))
        };
        states.par_iter().map_init(Vec::new, sum).collect()
    }

    /// Solves −Qv = b on `passing` for each b of `earned`.
    ///
    /// Returns values with bounds of their errors, and the number of multilevel cycles. The bounds
    /// are infinite if none is found.
    pub(crate) fn solve(
        &self,
        passing: &[u32],
        mut earned: Vec<Vec<f64>>,
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<(Vec<Values>, u64)> {
        let (m, count) = (passing.len(), earned.len());
        if m == 0 {
            return Ok((vec![Values::default(); count], 0));
        }
        // Subnormal quotients have no bound on the relative error.
        let mut row = Vec::new();
        let mut is_normal = |&s: &u32| {
            row.clear();
            self.transitions.outgoing(s as usize, &mut row);
            row.iter().all(|(_, p)| p.is_normal())
        };
        let normal = self.rates == 0.0 || passing.iter().all(&mut is_normal);
        let envelope = if normal { Envelope::new(self.transitions, passing)? } else { None };
        // Elimination would need the columns again. Without it, each is freed after its solve.
        let columns = if envelope.is_some() { earned.clone() } else { std::mem::take(&mut earned) };
        let eliminated = |envelope: &Envelope, observer: &mut dyn Progress| {
            let extra = self.rewards + (2 * m + 4) as f64 * self.rates;
            Ok(envelope.values(&earned, &mut || observer.progress(0, 0))?.map(|totals| {
                let bounded = |column: &Vec<f64>| -> Values {
                    let bounds = column.iter().map(|&v| totals.bound(v) + v * extra).collect();
                    // A finite expectation may exceed the range of doubles.
                    (column.iter().map(|v| v.min(f64::MAX)).collect(), bounds)
                };
                (totals.columns.iter().map(bounded).collect::<Vec<_>>(), 0)
            }))
        };
        let is_met = |(values, bounds): &Values| {
            let largest = values.iter().fold(0.0f64, |most, v| v.abs().max(most));
            bounds.iter().all(|bound| *bound <= epsilon * largest)
        };
        let errors = (self.rates, self.rewards);
        let found = solved_or_eliminated(
            envelope,
            observer,
            |observer| expectations(self.transitions, passing, (columns, errors), epsilon, observer),
            |(columns, _)| columns.iter().all(is_met),
            eliminated,
        )?;
        Ok(found.unwrap_or_else(|| (vec![(vec![0.0; m], vec![f64::INFINITY; m]); count], 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::tests::chain;

    /// Two slowly absorbed states: the mean time from state 1 is 2/q, from state 0 it is 1 more.
    #[test]
    fn totals_of_a_slowly_absorbed_chain_are_within_their_bounds() {
        for q in [1e-1, 1e-2] {
            let backward = Backward::new(&chain(3, &[(0, 1, 1.0), (1, 0, 1.0), (1, 2, q)])).expect("room");
            let (values, bounds) =
                expectations(&backward, &[0, 1], (vec![vec![1.0 / (1.0 + q); 2]], (0.0, 0.0)), 1e-9, &mut ())
                    .expect("no one stops it")
                    .expect("a bound")
                    .0
                    .remove(0);
            for (state, wanted) in [2.0 / q + 1.0, 2.0 / q].into_iter().enumerate() {
                let (value, bound) = (values[state], bounds[state]);
                assert!(
                    (value - wanted).abs() <= bound + 4.0 * U * wanted && bound <= 1e-6 * wanted,
                    "q = {q}, state {state}: {value} ± {bound}, not {wanted}"
                );
            }
        }
    }
}
