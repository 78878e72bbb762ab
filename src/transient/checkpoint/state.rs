//! State of a run in a checkpoint, without the vectors: one type for each method.

use serde::{Deserialize, Serialize};

use crate::transient::solution::TimeResult;

/// State of a run without its vectors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunState {
    /// Kinds of the devices that computed the state.
    pub(super) backends: Vec<String>,
    /// Matrix–vector products of earlier phases.
    pub(super) terms: u64,
    /// Results of the times in earlier phases: (index of the time, result).
    pub(super) times: Vec<(usize, TimeResult)>,
    pub(super) phase: RunPhase,
}

impl RunState {
    /// Returns the number of matrix–vector products done.
    pub(super) fn terms(&self) -> u64 {
        self.terms
            + match &self.phase {
                RunPhase::Uniformization(uniformization) => uniformization.before + uniformization.steps,
                RunPhase::Finite | RunPhase::Done => 0,
            }
    }
}

/// Phase of a run, and its progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum RunPhase {
    Uniformization(UniformizationState),
    /// Results at finite times are delivered; those at infinite time are missing.
    Finite,
    /// All results are delivered.
    Done,
}

/// State of a uniformization run, without x_k and the sums of open windows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UniformizationState {
    /// Matrix–vector products of earlier uniformization runs.
    pub(crate) before: u64,
    /// Number k of the current iterate; `until` is the step of the next window or check, if not k.
    pub(crate) steps: u64,
    pub(crate) until: Option<u64>,
    pub(crate) check: u64,
    pub(crate) accumulators: usize,
    /// Number of the first planned time with a window not yet open; `left_over` are numbers of
    /// times without an accumulator.
    pub(crate) waiting: usize,
    pub(crate) left_over: Vec<usize>,
    /// Open windows: number of the time, step of the first stored weight, divisor of the weights.
    pub(crate) open: Vec<(usize, u64, f64)>,
    pub(crate) planned: Vec<TimeProgress>,
}

/// Progress of a planned time in a uniformization run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TimeProgress {
    /// Index of this time among the requested times.
    pub(crate) index: usize,
    /// Error bound of early termination; 0 without one.
    pub(crate) steady_state: f64,
    /// Number of steps counted in the rounding error: up to the last term, or early termination.
    pub(crate) steps: u64,
    /// Bound of the Poisson probability outside of the summed terms.
    pub(crate) truncation: f64,
    /// Σ w_k |m_k − 1| over Poisson weights w_k and the masses m_k that they were divided by.
    pub(crate) normalisation: f64,
    /// For each reward its value at the time, and α times its value accumulated until then.
    pub(crate) rewards: Vec<(f64, f64)>,
}
