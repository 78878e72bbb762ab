//! The transition matrix of a step, by rows, for values of every initial state.

use std::ops::Range;

use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::chain::transitions::Transitions;

/// P = I + Q/α by rows (Q: generator, α: uniformization rate), stored for the sweeps.
///
/// Built-in models would otherwise generate each row thousands of times.
pub(crate) struct Stochastic {
    /// P without its diagonal.
    moves: CsrMatrix,
    /// Probability of staying in each state.
    pub(crate) stay: Vec<f64>,
}

impl Stochastic {
    pub(crate) fn new(transitions: &dyn Transitions, alpha: f64, states: Range<usize>) -> Self {
        let moves = CsrMatrix::from_rows(states.len(), transitions.states(), |i, row| {
            transitions.outgoing(states.start + i, row);
            row.iter_mut().for_each(|(_, rate)| *rate /= alpha);
        });
        let stay = |row: &mut Vec<(u32, f64)>, state: usize| {
            row.clear();
            transitions.outgoing(state, row);
            let rate: f64 = row.iter().map(|&(_, rate)| rate).sum();
            1.0 - (rate / alpha).min(1.0)
        };
        Self { moves, stay: states.into_par_iter().map_init(Vec::new, stay).collect() }
    }

    /// Iterates over the transitions of a row without its diagonal: state and probability.
    pub(crate) fn row(&self, state: usize) -> impl Iterator<Item = (u32, f64)> {
        let (to, probability) = self.moves.row(state);
        to.iter().copied().zip(probability.iter().copied())
    }

    /// Computes element `state` of P a, for a column vector `a`.
    pub(crate) fn apply(&self, state: usize, a: &[f64]) -> f64 {
        let moved = self.row(state).map(|(to, p)| p * a[to as usize]);
        self.stay[state] * a[state] + moved.sum::<f64>()
    }

    /// Returns the largest number of transitions out of a state.
    pub(crate) fn longest(&self) -> usize {
        self.moves.starts().windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }
}
