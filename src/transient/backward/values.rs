//! Expectations from every state, for queries about all initial states.
//!
//! Let f be a column vector with a value of each state, and let N be Poisson with mean αt. The
//! expectation of f at t from state i is (e^{Qt} f)(i) = Σ_k P(N = k) (P^k f)(i). The bounds are
//! those of uniformization with the maximum norm instead of the l1 norm.
//!
//! The reward accumulated until some states are reached is solved for by the
//! [multilevel solver](crate::transient::multilevel). States are
//! [eliminated](crate::transient::envelope) if that is shorter. `docs/certificate.md` has the
//! proofs.
//!
//! Values at a time run on the [lanes of a machine](crate::transient::columns). All else runs on
//! the host, in double precision.

use super::predecessors::Predecessors;
use crate::lane::expect_memory;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::chain::recurrent_classes::ClosedClasses;
use crate::transient::chain::scan::PROBABILITIES;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::columns::{Action, ActionRequest};
use crate::transient::envelope::{Envelope, solved_or_eliminated};
use crate::transient::multilevel::{Expectations, Values, near_order};
use crate::{Invalid, Machine, Progress, Result};

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
    /// Off-diagonal entries of P = I + Q/α, stored because built-in models generate rows slowly.
    moves: CsrMatrix,
    from: Predecessors,
    alpha: f64,
    /// True if times count steps.
    discrete: bool,
    /// Bound on the rounding error of each element of a step P a, for elements of a of at most 1.
    rounding: f64,
}

/// Transitions of the chain in the unit of time 1/α: its rates are the entries of P.
impl Transitions for Backward {
    fn states(&self) -> usize {
        self.moves.rows()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        for &before in self.from.of(state) {
            let (to, rates) = self.moves.row(before as usize);
            let own = to.iter().position(|to| *to as usize == state);
            row.extend(own.map(|place| (before, rates[place])));
        }
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let (to, rates) = self.moves.row(state);
        row.extend(to.iter().copied().zip(rates.iter().copied()));
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
        let unit = if alpha > 0.0 { alpha } else { 1.0 };
        let moves = CsrMatrix::from_rows(n, n, |state, row| {
            transitions.outgoing(state, row);
            row.iter_mut().for_each(|(_, rate)| *rate /= unit);
        });
        let from = Predecessors::new(transitions);
        let given = if discrete { PROBABILITIES } else { 0.0 };
        let longest = moves.starts().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        let rounding = (2 * longest + 8) as f64 * U + given;
        Ok(Self { moves, from, alpha, discrete, rounding })
    }

    /// Returns the closed communicating classes: sets that no transition leaves.
    pub fn closed_classes(&self) -> Vec<Vec<u32>> {
        let even = vec![1.0; self.states()];
        let classes = ClosedClasses::new(self, &even, &even);
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

    /// Returns the expectation of `values` at a time from each state; `fixed` states are absorbing.
    ///
    /// The requested error is at most ε times the largest value. The lanes of the machine compute
    /// the values.
    ///
    /// # Errors
    /// [`Invalid`] for a time that takes too many steps; errors of the observer.
    pub fn at(
        &self,
        machine: &Machine,
        values: &[f64],
        fixed: &[bool],
        time: f64,
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        let times = [self.alpha * time];
        let request = ActionRequest { fixed, ..self.request(values, &times, epsilon) };
        self.solve(machine, request, 1.0, observer)
    }

    /// Returns the reward accumulated until a time, expected from each state, at rates `rewards`.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn until(
        &self,
        machine: &Machine,
        rewards: &[f64],
        time: f64,
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        let unit = if self.alpha > 0.0 { self.alpha } else { 1.0 };
        let times = [unit * time];
        let request = ActionRequest { integral: true, ..self.request(rewards, &times, epsilon) };
        self.solve(machine, request, unit, observer)
    }

    /// Returns the request for P by rows, with rates that have been divided by α.
    fn request<'a>(&'a self, block: &'a [f64], times: &'a [f64], epsilon: f64) -> ActionRequest<'a> {
        let (backward, discrete) = (true, self.discrete);
        let rates = if discrete { 0.0 } else { U };
        ActionRequest { backward, discrete, rates, ..ActionRequest::new(self, block, times, epsilon) }
    }

    /// Computes values, and divides them by `unit`.
    fn solve(
        &self,
        machine: &Machine,
        request: ActionRequest<'_>,
        unit: f64,
        observer: &mut dyn Progress,
    ) -> Result<StateValues> {
        let Action { mut values, bounds } = request.solve(machine, observer)?.remove(0);
        values.iter_mut().for_each(|value| *value /= unit);
        Ok(StateValues { bounds: vec![1.001 * bounds[0] / unit; values.len()], values })
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
        let mut system = TransientSystem::of_transient(&equations, ends)?;
        Ok(system.totals(ends, values, &[rewards], epsilon, observer)?.swap_remove(0))
    }
}

/// Equations for expectations until some states are left, with bounds of their relative errors.
pub(crate) struct Equations<'a> {
    transitions: &'a dyn Transitions,
    /// Divisor α of the stored transition rates; reward rates are stored unscaled.
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

    /// Returns Σ_j q_ij `value(j)` for each of some states i.
    pub(crate) fn rates_times(&self, states: &[u32], value: impl Fn(usize) -> f64 + Sync) -> Vec<f64> {
        let sum = |row: &mut Vec<(u32, f64)>, &state: &u32| {
            let row = self.transitions.leaving(state as usize, row);
            exit_rate(row.iter().map(|&(to, rate)| rate * value(to as usize)))
        };
        states.par_iter().map_init(Vec::new, sum).collect()
    }
}

/// Equations −Qv = b on some states that are left almost surely.
///
/// The levels are prepared for the first equations that need them, and used for all further ones.
pub(crate) struct TransientSystem<'a> {
    equations: &'a Equations<'a>,
    pub(crate) passing: Vec<u32>,
    envelope: Option<Envelope>,
    pub(crate) levels: Option<Expectations>,
}

impl<'a> TransientSystem<'a> {
    /// Creates the equations on all states outside of `ends`.
    pub(crate) fn of_transient(equations: &'a Equations<'a>, ends: &[bool]) -> Result<Self> {
        let passing = (0..ends.len() as u32).filter(|&s| !ends[s as usize]).collect();
        Self::new(equations, near_order(equations.transitions, passing))
    }

    /// Creates the equations on the states `passing`.
    pub(crate) fn new(equations: &'a Equations<'a>, passing: Vec<u32>) -> Result<Self> {
        // Subnormal quotients have no bound on the relative error.
        let mut row = Vec::new();
        let mut is_normal =
            |&s: &u32| equations.transitions.leaving(s as usize, &mut row).iter().all(|(_, p)| p.is_normal());
        let normal = equations.rates == 0.0 || passing.iter().all(&mut is_normal);
        let envelope = if normal { Envelope::new(equations.transitions, &passing)? } else { None };
        Ok(Self { equations, passing, envelope, levels: None })
    }

    /// Computes expected totals until a state of `ends`, as [`Backward::total`], for each reward.
    pub(crate) fn totals(
        &mut self,
        ends: &[bool],
        values: &[f64],
        rewards: &[&[f64]],
        epsilon: f64,
        observer: &mut dyn Progress,
    ) -> Result<Vec<StateValues>> {
        // b of the equations −Qv = b: the reward, plus the final value of each end times its rate.
        let into = self.equations.rates_times(&self.passing, |to| if ends[to] { values[to] } else { 0.0 });
        let unit = self.equations.alpha;
        let earned = |rewards: &&[f64]| -> Vec<f64> {
            self.passing.iter().zip(&into).map(|(&s, into)| into + rewards[s as usize] / unit).collect()
        };
        let found = self.solve(rewards.iter().map(earned).collect(), (epsilon, 0.0), observer)?;
        let all = |(own, own_bounds): Values| {
            let mut all = StateValues { values: values.to_vec(), bounds: vec![0.0; ends.len()] };
            for ((&state, value), bound) in self.passing.iter().zip(own).zip(own_bounds) {
                (all.values[state as usize], all.bounds[state as usize]) = (value, bound);
            }
            all
        };
        Ok(found.into_iter().map(all).collect())
    }

    /// Solves −Qv = b for each b of `earned`, and bounds the errors of the values.
    ///
    /// The requested error is at most ε times the largest value, or ε times `scale` if that is
    /// larger. The bounds are infinite if none is found.
    pub(crate) fn solve(
        &mut self,
        mut earned: Vec<Vec<f64>>,
        (epsilon, scale): (f64, f64),
        observer: &mut dyn Progress,
    ) -> Result<Vec<Values>> {
        let Self { equations, passing, envelope, levels } = self;
        let (m, count) = (passing.len(), earned.len());
        if m == 0 {
            return Ok(vec![Values::default(); count]);
        }
        // Elimination would need the columns again. Without it, each is freed after its solve.
        let columns = if envelope.is_some() { earned.clone() } else { std::mem::take(&mut earned) };
        let eliminated = |envelope: &Envelope, observer: &mut dyn Progress| {
            let extra = equations.rewards + (2 * m + 4) as f64 * equations.rates;
            // Numbers of both signs are eliminated as differences.
            let signs = |b: &Vec<f64>| if b.iter().any(|b| *b < 0.0) { &[1.0, -1.0][..] } else { &[1.0] };
            let part = |b: &Vec<f64>, sign: f64| b.iter().map(|b| (sign * b).max(0.0)).collect();
            let parts = earned.iter().flat_map(|b| signs(b).iter().map(move |sign| part(b, *sign)));
            let parts: Vec<Vec<f64>> = parts.collect();
            Ok(envelope.values(&parts, &mut || observer.progress(0, 0))?.map(|totals| {
                let bounded = |column: &Vec<f64>| -> Values {
                    let bounds = column.iter().map(|&v| totals.bound(v) + v * extra).collect();
                    // A finite expectation may exceed the range of doubles.
                    (column.iter().map(|v| v.min(f64::MAX)).collect(), bounds)
                };
                let mut all = totals.columns.iter().map(bounded);
                let difference = |b: &Vec<f64>| {
                    let (mut values, mut bounds) = all.next().unwrap_or_default();
                    for (less, errors) in signs(b)[1..].iter().filter_map(|_| all.next()) {
                        for (k, (value, bound)) in values.iter_mut().zip(&mut bounds).enumerate() {
                            *value -= less[k];
                            *bound += errors[k] + U * value.abs();
                        }
                    }
                    (values, bounds)
                };
                earned.iter().map(difference).collect::<Vec<Values>>()
            }))
        };
        let is_met = |(values, bounds): &Values| {
            let largest = values.iter().fold(scale, |most, v| v.abs().max(most));
            bounds.iter().all(|bound| *bound <= epsilon * largest)
        };
        let errors = (equations.rates, equations.rewards);
        let iterated = |observer: &mut dyn Progress| {
            if levels.is_none() {
                *levels = Expectations::new(equations.transitions, passing, errors, observer)?;
            }
            let Some(levels) = levels else { return Ok(None) };
            levels.of(columns, (epsilon, scale), observer)
        };
        let met = |columns: &Vec<Values>| columns.iter().all(is_met);
        let found = solved_or_eliminated(envelope.as_ref(), observer, iterated, met, eliminated)?;
        Ok(found.unwrap_or_else(|| vec![(vec![0.0; m], vec![f64::INFINITY; m]); count]))
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
            let mut levels = Expectations::new(&backward, &[0, 1], (0.0, 0.0), &mut ())
                .expect("no one stops it")
                .expect("times");
            let found = levels.of(vec![vec![1.0 / (1.0 + q); 2]], (1e-9, 0.0), &mut ());
            let (values, bounds) = found.expect("no one stops it").expect("a bound").remove(0);
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
