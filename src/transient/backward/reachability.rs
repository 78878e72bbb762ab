//! Probabilities of ever reaching a set of states, with error bounds.
//!
//! Let T be the states in no closed class, x the expected times in them, and A a set of states
//! without transitions out of A. The probability of reaching A is Σ_{i ∈ T, j ∈ A} x_i q_ij. The
//! [multilevel solver](crate::transient::multilevel) solves for x. T is
//! [eliminated](crate::transient::envelope) if that is shorter, or if the solver finds no bound
//! within ε.

use super::absorption::Total;
use super::values::Equations;
use crate::numerics::double_double::CompensatedSum;
use crate::transient::chain::Initial;
use crate::transient::chain::recurrent_classes::ClosedClasses;
use crate::transient::chain::transitions::Transitions;
use crate::transient::envelope::{Envelope, ExpectedRewards, solved_or_eliminated};
use crate::transient::multilevel::Passage;
use crate::{Machine, Progress, Result};

/// Probabilities of ever reaching sets of states.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reachability {
    /// Probability of reaching each set.
    pub probabilities: Vec<Total>,
    /// Number of multilevel cycles.
    pub iterations: u64,
}

/// Computes the probability of ever reaching each of some sets that the chain cannot leave.
///
/// The bounds are within ε if rounding allows it. `None` if no bound is found, or if several
/// processes share the work; [`solve`](crate::transient::solve) then computes the limit.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for an invalid initial distribution; errors of the
/// observer.
pub fn reachability(
    machine: &Machine,
    transitions: &dyn Transitions,
    initial: &Initial,
    sets: &[&[u32]],
    epsilon: f64,
    observer: &mut dyn Progress,
) -> Result<Option<Reachability>> {
    let n = transitions.states();
    if machine.ranks.is_distributed() {
        return Ok(None);
    }
    let probabilities = initial.probabilities_of(0..n, n)?;
    let classes = ClosedClasses::new(transitions, &probabilities, &probabilities);
    let beginning = (0u32..).zip(probabilities).filter(|(_, p)| *p != 0.0).collect();
    let error = initial.rounding();
    Query { transitions, beginning, error, sets, epsilon }.found(&classes, observer)
}

struct Query<'a> {
    transitions: &'a dyn Transitions,
    /// Initial states, ascending, with their probabilities.
    beginning: Vec<(u32, f64)>,
    /// Bound of the l1 error of the initial distribution `beginning`, from rounding.
    error: f64,
    sets: &'a [&'a [u32]],
    epsilon: f64,
}

impl Query<'_> {
    fn found(&self, classes: &ClosedClasses, observer: &mut dyn Progress) -> Result<Option<Reachability>> {
        // Unreachable states count as met.
        let met: Vec<bool> = (classes.of_states(self.transitions).iter().zip(&classes.reached))
            .map(|(class, reached)| class.is_some() || !reached)
            .collect();
        if met.iter().all(|met| *met) {
            let probabilities = self.sets.iter().map(|set| self.total(&self.indicator(set))).collect();
            return Ok(Some(Reachability { probabilities, iterations: 0 }));
        }
        let passing: Vec<u32> = (0u32..).zip(&met).filter(|(_, met)| !**met).map(|(s, _)| s).collect();
        solved_or_eliminated(
            Envelope::new(self.transitions, &passing)?.as_ref(),
            observer,
            |observer| self.solved(&passing, observer),
            |found| found.probabilities.iter().all(|p| p.bound <= self.epsilon),
            |envelope, observer| self.eliminated(envelope, &passing, observer),
        )
    }

    /// Computes the probability of reaching each set by the multilevel solver.
    ///
    /// The solver yields the expected time in each of the transient states `passing`. Multiplied by
    /// the rates into a set, these times sum to the probability of entering it. `None` if no error
    /// bound is found.
    fn solved(&self, passing: &[u32], observer: &mut dyn Progress) -> Result<Option<Reachability>> {
        let mut source = vec![0.0; passing.len()];
        for (state, p) in &self.beginning {
            if let Ok(place) = passing.binary_search(state) {
                source[place] = *p;
            }
        }
        let passage = Passage::new(self.transitions, passing.to_vec(), source, observer)?;
        let Some(mut passage) = passage else { return Ok(None) };
        passage.absorb(self.epsilon, observer)?;
        let loss = passage.loss();
        let probability = |set: &&[u32]| {
            let mut there = vec![false; self.transitions.states()];
            set.iter().for_each(|&state| there[state as usize] = true);
            let mut sum = self.initially(|state| f64::from(u8::from(there[state])));
            passage.arrivals(self.transitions, |state, expected| {
                sum.add(if there[state] { expected } else { 0.0 });
            });
            let bound = self.error + loss + 4.0 * f64::EPSILON;
            Total { value: sum.value().clamp(0.0, 1.0), bound }
        };
        let probabilities: Vec<Total> = self.sets.iter().map(probability).collect();
        let known = loss.is_finite();
        Ok(known.then_some(Reachability { probabilities, iterations: passage.steps() }))
    }

    /// Computes the probability of reaching each set by eliminating the transient states.
    fn eliminated(
        &self,
        envelope: &Envelope,
        passing: &[u32],
        observer: &mut dyn Progress,
    ) -> Result<Option<Reachability>> {
        let equations = Equations::new(self.transitions);
        let reward_rates = |set: &&[u32]| -> Vec<f64> {
            let there = self.indicator(set);
            equations.rates_times(passing, |to| there[to])
        };
        let reward_rates: Vec<Vec<f64>> = self.sets.iter().map(reward_rates).collect();
        let found = envelope.values(&reward_rates, &mut || observer.progress(0, 0))?;
        let of_set = |found: &ExpectedRewards, set: &[u32], column: &[f64]| {
            let mut values = self.indicator(set);
            passing.iter().zip(column).for_each(|(&state, &value)| values[state as usize] = value);
            let total = self.total(&values);
            Total { bound: total.bound + found.bound(total.value), ..total }
        };
        Ok(found.map(|found| {
            let sets = self.sets.iter().zip(&found.columns);
            let probabilities = sets.map(|(set, column)| of_set(&found, set, column)).collect();
            Reachability { probabilities, iterations: 0 }
        }))
    }

    /// Returns 1 for each state of a set, 0 for the others.
    fn indicator(&self, set: &[u32]) -> Vec<f64> {
        let mut all = vec![0.0; self.transitions.states()];
        set.iter().for_each(|&state| all[state as usize] = 1.0);
        all
    }

    /// Returns the expectation of `values` under the initial distribution.
    fn total(&self, values: &[f64]) -> Total {
        let value = self.initially(|state| values[state]).value();
        Total { value, bound: self.error + 4.0 * f64::EPSILON * value.abs() }
    }

    /// Sums the initial probabilities, each times a factor.
    fn initially(&self, factor: impl Fn(usize) -> f64) -> CompensatedSum {
        CompensatedSum::of(self.beginning.iter().map(|(state, p)| factor(*state as usize) * p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{DeviceSpec, OpenOptions};
    use crate::transient::chain::csr::tests::chain;

    fn found(n: usize, transitions: &[(u32, u32, f64)], initial: &Initial, sets: &[&[u32]]) -> Reachability {
        let chain = chain(n, transitions);
        let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default()).unwrap();
        reachability(&machine, &chain, initial, sets, 1e-9, &mut ()).unwrap().expect("an answer")
    }

    #[test]
    fn ruin_probabilities_of_a_gambler_match_the_closed_form() {
        // Up at rate 1, down at rate 2: from i the upper end n comes first with probability (2^i −
        // 1)/(2^n − 1).
        let n = 24;
        let list: Vec<_> = (1..n).flat_map(|i| [(i, i + 1, 1.0), (i, i - 1, 2.0)]).collect();
        let exact = |i: i32| (2f64.powi(i) - 1.0) / (2f64.powi(n as i32) - 1.0);
        for i in [1, 20, 23, 24] {
            let found = found(n as usize + 1, &list, &Initial::State(i), &[&[0], &[n], &[0, n]]);
            let [ruined, rich, over] = found.probabilities[..] else { panic!("one of each set") };
            for (total, exact) in [(rich, exact(i as i32)), (ruined, 1.0 - exact(i as i32)), (over, 1.0)] {
                let missed = (total.value - exact).abs();
                assert!(
                    missed <= total.bound + f64::EPSILON && total.bound <= 1e-9,
                    "{i}: {total:?}, {exact}"
                );
            }
        }
    }

    #[test]
    fn slow_exits_from_fast_states_and_closed_classes() {
        // States 0 and 1 alternate half a billion times before they are left: with probability 1/4
        // for state 2, 1/4 for state 3, and otherwise for the closed class of 4 and 5. Initially 0
        // or 5.
        let list = [
            (0, 1, 1.0),
            (1, 0, 1.0),
            (0, 2, 1e-9),
            (1, 3, 1e-9),
            (0, 4, 1e-9),
            (1, 4, 1e-9),
            (4, 5, 3.0),
            (5, 4, 1.0),
        ];
        let initial = Initial::Uniform(vec![0, 5]);
        let found = found(6, &list, &initial, &[&[2], &[3]]);
        // First set: v_0 (1 + 2q) = q + v_1 and v_1 (1 + 2q) = v_0, q = 1e-9. Second set: 0 and 1
        // swapped.
        let q = 1e-9;
        let exact = [(1.0 + 2.0 * q) / (4.0 + 4.0 * q), 1.0 / (4.0 + 4.0 * q)];
        for (total, exact) in found.probabilities.iter().zip(exact) {
            assert!((total.value - 0.5 * exact).abs() <= total.bound + f64::EPSILON, "{total:?}, {exact}");
        }
    }
}
