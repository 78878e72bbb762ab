//! The state of a run beside its vectors, as a checkpoint holds it: one type for each method.

use serde::{Deserialize, Serialize};

use crate::transient::problem::Order;
use crate::transient::solution::TimeResult;

/// The state of a run beside its vectors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    /// Order of the states in use.
    pub(super) order: Order,
    /// Kinds of the devices.
    pub(super) backends: Vec<String>,
    /// Multiplications of phases before.
    pub(super) terms: u64,
    /// Times of phases before: (place, result).
    pub(super) times: Vec<(usize, TimeResult)>,
    pub(super) phase: Phase,
}

impl State {
    /// Multiplications done.
    pub(super) fn terms(&self) -> u64 {
        self.terms
            + match &self.phase {
                Phase::Uniformization(uniformization) => uniformization.before + uniformization.steps,
                Phase::Stationary(stationary) => stationary.steps,
                Phase::Subdivided(subdivided) => subdivided.terms,
                Phase::Done => 0,
            }
    }
}

/// The phase of a run, and its progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// One of the sweeps for finite times.
    Uniformization(UniformizationState),
    /// The steady state.
    Stationary(StationaryState),
    /// Finite times by intervals.
    Subdivided(SubdividedState),
    /// Everything is delivered.
    Done,
}

/// The state of a sweep, beside x_k and the sums of open windows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UniformizationState {
    /// Multiplications of sweeps before.
    pub(crate) before: u64,
    /// k, and where the steps to the next decision end, if not at k.
    pub(crate) steps: u64,
    pub(crate) until: Option<u64>,
    pub(crate) check: u64,
    pub(crate) accumulators: usize,
    /// The first place whose window has not opened, and places that found no accumulator.
    pub(crate) waiting: usize,
    pub(crate) left_over: Vec<usize>,
    /// Of each open window its place, the step of the first weight held, and what the weights were divided by.
    pub(crate) open: Vec<(usize, u64, f64)>,
    /// One each planned time.
    pub(crate) planned: Vec<TimeProgress>,
}

/// The part of a planned time that a sweep changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TimeProgress {
    pub(crate) index: usize,
    pub(crate) steady_state: f64,
    pub(crate) steps: u64,
    pub(crate) truncation: f64,
    pub(crate) normalisation: f64,
    pub(crate) rewards: Vec<(f64, f64)>,
}

/// The state of the iteration, beside x_k.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StationaryState {
    /// k, and where the steps before the next look at the distance end, if not at k.
    pub(crate) steps: u64,
    pub(crate) until: Option<u64>,
    /// The last distance; the smallest of the second sweep, and how long it has not become smaller.
    pub(crate) distance: f64,
    pub(crate) best: f64,
    pub(crate) stalled: u32,
    pub(crate) certificate: Option<Certificate>,
}

/// The findings of the first sweep and of the iteration backwards.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// H, if it has a bound.
    pub(crate) hitting_time: Option<f64>,
    /// Closed classes.
    pub(crate) classes: usize,
}

/// The state at the end of an interval, beside the sum.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SubdividedState {
    /// The time, by its place among those of the problem, and its intervals done.
    pub(crate) index: usize,
    pub(crate) interval: u64,
    /// Multiplications done.
    pub(crate) terms: u64,
}
