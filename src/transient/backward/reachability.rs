//! Probabilities of ever reaching a set of states, with error bounds.
//!
//! Let T be the states in no closed class, and A a set of states without transitions out of A. The
//! probability of reaching A solves v = b + Pv on T, b_i = Σ_{j ∈ A} p_ij. It is a reward until
//! absorption, so the error of any v is at most max |b − (v − Pv)| times the largest expected
//! number of steps until T is left. [Gauss–Seidel sweeps](super::hitting_time) compute both. If it
//! is shorter, or if the sweeps do not converge, T is [eliminated](super::envelope).

use super::absorption::Total;
use super::envelope::{Envelope, Values};
use super::hitting_time::{Stochastic, TOGETHER, expected_rewards};
use crate::transient::chain::Initial;
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::transient::numerics::double_double::Exact;
use crate::transient::problem::Observer;
use crate::{Machine, Result};

/// Maximum number of sweeps. Stiff chains take hundreds.
///
/// Chains that would need more sweeps are solved faster by iterating to the limit.
const MOST_SWEEPS: u64 = 1 << 12;
/// Minimum number of sweeps that `MOST_WORK` must allow; sweeps are not used otherwise.
const FEWEST_SWEEPS: u64 = 1 << 8;
/// Maximum number of transitions processed by the sweeps, each sweep counting all of them.
const MOST_WORK: u64 = 1 << 33;
/// Elimination is used without any sweeps if it costs at most this many sweeps.
const AT_ONCE: u64 = 64;
/// Requested defect of the expected time to leave T.
const OF_TIME: f64 = 1.0 / 16.0;

/// Probabilities of ever reaching sets of states.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reachability {
    /// Probability of reaching each set.
    pub probabilities: Vec<Total>,
    /// Number of Gauss–Seidel sweeps.
    pub sweeps: u64,
}

/// Returns the states from which `targets` can be reached through states of `through` alone.
///
/// The targets are included. Takes linear time and memory.
///
/// # Panics If the numbers of states differ.
pub fn may_reach(transitions: &dyn Transitions, targets: &[bool], through: &[bool]) -> Vec<bool> {
    assert_eq!((targets.len(), through.len()), (transitions.states(), targets.len()), "states");
    let mut row = Vec::new();
    reached_back(targets, through, |state, before| {
        row.clear();
        transitions.incoming(state, &mut row);
        before.extend(row.iter().map(|&(from, _)| from));
    })
}

/// Searches back from `targets` through `through`; `predecessors` appends those of a state.
pub(super) fn reached_back(
    targets: &[bool],
    through: &[bool],
    mut predecessors: impl FnMut(usize, &mut Vec<u32>),
) -> Vec<bool> {
    let mut found = targets.to_vec();
    let mut open: Vec<u32> = (0u32..).zip(targets).filter(|(_, t)| **t).map(|(s, _)| s).collect();
    let mut before = Vec::new();
    while let Some(state) = open.pop() {
        predecessors(state as usize, &mut before);
        let fresh =
            |&state: &u32| through[state as usize] && !std::mem::replace(&mut found[state as usize], true);
        open.extend(before.drain(..).filter(fresh));
    }
    found
}

/// Computes the probability of ever reaching each of some sets that the chain cannot leave.
///
/// The bounds are within ε if rounding allows it. `None` if the sweeps take too long, or if several
/// processes share the work; [`solve`](crate::transient::solve) then iterates to the limit.
///
/// # Errors An invalid initial distribution; errors of the observer.
pub fn reachability(
    machine: &Machine,
    transitions: &dyn Transitions,
    initial: &Initial,
    sets: &[&[u32]],
    epsilon: f64,
    observer: &mut dyn Observer,
) -> Result<Option<Reachability>> {
    let n = transitions.states();
    if machine.ranks.is_distributed() {
        return Ok(None);
    }
    let beginning = initial.probabilities_of(0..n, n)?;
    let error = initial.rounding();
    Query { transitions, beginning, error, sets, epsilon }.found(observer)
}

struct Query<'a> {
    transitions: &'a dyn Transitions,
    beginning: Vec<f64>,
    /// Error of the initial distribution `beginning`.
    error: f64,
    sets: &'a [&'a [u32]],
    epsilon: f64,
}

impl Query<'_> {
    fn found(&self, observer: &mut dyn Observer) -> Result<Option<Reachability>> {
        let n = self.beginning.len();
        let classes = Classes::new(self.transitions, &self.beginning, &self.beginning);
        // Unreachable states count as met.
        let met: Vec<bool> = (classes.of_states(self.transitions).iter().zip(&classes.reached))
            .map(|(class, reached)| class.is_some() || !reached)
            .collect();
        let mut exit = vec![0.0; n];
        self.transitions.exit_rates(0..n, &mut exit);
        let alpha =
            exit.iter().zip(&met).filter(|(_, met)| !**met).map(|(rate, _)| *rate).fold(0.0, f64::max);
        if met.iter().all(|met| *met) {
            let probabilities = self.sets.iter().map(|set| self.total(set, &[])).collect();
            return Ok(Some(Reachability { probabilities, sweeps: 0 }));
        }
        let passing: Vec<u32> = (0u32..).zip(&met).filter(|(_, met)| !**met).map(|(s, _)| s).collect();
        let envelope = Envelope::new(self.transitions, &passing)?;
        let chain = Stochastic::new(self.transitions, alpha, 0..n);
        let nnz = chain.moves.nnz().max(1) as u64;
        let worth = envelope.as_ref().map(|envelope| envelope.worth(nnz));
        let swept = match worth {
            Some(..=AT_ONCE) => None,
            _ if !alpha.is_normal() => None,
            worth => self.sweeps(&chain, &met, worth.unwrap_or(u64::MAX), observer)?,
        };
        match (swept, envelope) {
            (None, Some(envelope)) => self.eliminated(&envelope, &passing, observer),
            (swept, _) => Ok(swept),
        }
    }

    /// Computes the probabilities by at most `most` sweeps; `None` if that is not enough.
    fn sweeps(
        &self,
        chain: &Stochastic,
        met: &[bool],
        most: u64,
        observer: &mut dyn Observer,
    ) -> Result<Option<Reachability>> {
        let most = most.min(MOST_WORK / chain.moves.nnz().max(1) as u64).min(MOST_SWEEPS);
        if most < FEWEST_SWEEPS {
            return Ok(None);
        }
        // The sweeps for the sets need several times as many, because their defects must be far
        // smaller.
        let ones = [vec![1.0; met.len()]];
        let steps = expected_rewards(chain, met, &ones, &[OF_TIME], most / 4, observer)?;
        if !steps.met || steps.defects[0] > 0.5 {
            return Ok(None);
        }
        // In each step the expected time falls by at least 1 minus the defect.
        let highest = steps.values[0].iter().copied().fold(0.0, f64::max);
        let longest = highest / (1.0 - steps.defects[0]) * (1.0 + 4.0 * f64::EPSILON);
        let mut found = Reachability { probabilities: Vec::new(), sweeps: steps.sweeps };
        for sets in self.sets.chunks(TOGETHER) {
            let rates: Vec<Vec<f64>> = sets.iter().map(|set| self.rates_into(set, chain)).collect();
            let enough = vec![0.5 * self.epsilon / longest; sets.len()];
            let swept = expected_rewards(chain, met, &rates, &enough, most, observer)?;
            found.sweeps += swept.sweeps;
            for ((set, values), defect) in sets.iter().zip(&swept.values).zip(&swept.defects) {
                let total = self.total(set, values);
                let bound = total.bound + defect * longest * (1.0 + 4.0 * f64::EPSILON);
                found.probabilities.push(Total { bound, ..total });
            }
            if !swept.met {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// Returns each state's probability of a step into a set.
    fn rates_into(&self, set: &[u32], chain: &Stochastic) -> Vec<f64> {
        let mut there = vec![0.0; self.beginning.len()];
        set.iter().for_each(|&state| there[state as usize] = 1.0);
        let into = |state| chain.row(state).fold(0.0, |sum, (to, p)| sum + p * there[to as usize]);
        (0..there.len()).map(into).collect()
    }

    /// Computes the probabilities by elimination.
    fn eliminated(
        &self,
        envelope: &Envelope,
        passing: &[u32],
        observer: &mut dyn Observer,
    ) -> Result<Option<Reachability>> {
        let n = self.beginning.len();
        let mut row = Vec::new();
        let mut reward_rates = |set: &&[u32]| -> Vec<f64> {
            let mut there = vec![false; n];
            set.iter().for_each(|&state| there[state as usize] = true);
            let into = |&state: &u32| {
                row.clear();
                self.transitions.outgoing(state as usize, &mut row);
                exit_rate(row.iter().filter(|(to, _)| there[*to as usize]).map(|(_, rate)| *rate))
            };
            passing.iter().map(into).collect()
        };
        let reward_rates: Vec<Vec<f64>> = self.sets.iter().map(&mut reward_rates).collect();
        let found = envelope.values(&reward_rates, &mut || observer.progress(0, 0))?;
        let of_set = |found: &Values, set: &[u32], column: &[f64]| {
            let mut values = vec![0.0; n];
            passing.iter().zip(column).for_each(|(&state, &value)| values[state as usize] = value);
            let total = self.total(set, &values);
            Total { bound: total.bound + found.bound(total.value), ..total }
        };
        Ok(found.map(|found| {
            let sets = self.sets.iter().zip(&found.columns);
            let probabilities = sets.map(|(set, column)| of_set(&found, set, column)).collect();
            Reachability { probabilities, sweeps: 0 }
        }))
    }

    /// Returns the expectation of `values` under the initial distribution.
    ///
    /// `values` are 0 in closed classes; states of `set` count with the value 1.
    fn total(&self, set: &[u32], values: &[f64]) -> Total {
        let mut sum = Exact::default();
        values.iter().zip(&self.beginning).for_each(|(value, p)| sum.add(value * p));
        set.iter().for_each(|state| sum.add(self.beginning[*state as usize]));
        let value = sum.value();
        Total { value, bound: self.error + 4.0 * f64::EPSILON * value.abs() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::tests::chain;

    fn found(n: usize, transitions: &[(u32, u32, f64)], initial: &Initial, sets: &[&[u32]]) -> Reachability {
        let chain = chain(n, transitions);
        let (beginning, error) = (initial.probabilities_of(0..n, n).unwrap(), initial.rounding());
        let sought = Query { transitions: &chain, beginning, error, sets, epsilon: 1e-9 };
        sought.found(&mut ()).unwrap().expect("a way that is found")
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
        assert!(found.sweeps < 1000, "{}", found.sweeps);
        for (total, exact) in found.probabilities.iter().zip(exact) {
            assert!((total.value - 0.5 * exact).abs() <= total.bound + f64::EPSILON, "{total:?}, {exact}");
        }
    }
}
