//! Birth–death chain on finitely many states.

use crate::sparse::Repeat;
use crate::transient::chain::transitions::Transitions;

/// Birth–death chain with states 0 … N−1.
///
/// Births have rate λ in states below N−1, deaths rate μ in states above 0. With λ, μ > 0 this is
/// the M/M/1 queue of at most N−1 customers, and its stationary distribution is proportional to
/// (λ/μ)^i. Transitions with rate zero are omitted.
#[derive(Debug, Clone)]
pub(super) struct BirthDeath {
    /// Number of states N ≥ 1.
    pub(super) states: usize,
    /// Rate λ, finite and ≥ 0.
    pub(super) birth: f64,
    /// Rate μ, finite and ≥ 0.
    pub(super) death: f64,
}

impl BirthDeath {
    /// Appends the existing neighbours: `state` − 1 at rate `below`, `state` + 1 at `above`.
    fn neighbours(&self, state: usize, below: f64, above: f64, row: &mut Vec<(u32, f64)>) {
        debug_assert!(state < self.states, "state {state} of {}", self.states);
        if state > 0 && below > 0.0 {
            row.push((state as u32 - 1, below));
        }
        if state + 1 < self.states && above > 0.0 {
            row.push((state as u32 + 1, above));
        }
    }
}

impl Transitions for BirthDeath {
    fn states(&self) -> usize {
        self.states
    }

    /// Returns the states with repeating rows: all except the states near the ends.
    fn repeats(&self) -> Vec<Repeat> {
        match self.states {
            0..6 => Vec::new(),
            n => vec![Repeat { rows: 3..n - 2, period: 1, reach: 1 }],
        }
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.neighbours(state, self.birth, self.death, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.neighbours(state, self.death, self.birth, row);
    }
}
