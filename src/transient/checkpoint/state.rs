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
                Phase::Sweep(sweep) => sweep.before + sweep.steps,
                Phase::Stationary(stationary) => stationary.steps,
                Phase::Subdivided(subdivided) => subdivided.terms,
                Phase::Done => 0,
            }
    }
}

/// The phase of a run, and its progress.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::transient) enum Phase {
    /// One of the sweeps for finite times.
    Sweep(SweepState),
    /// The steady state.
    Stationary(StationaryState),
    /// Finite times by intervals.
    Subdivided(SubdividedState),
    /// Everything is delivered.
    Done,
}

/// The state of a sweep, beside x_k and the sums of open windows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::transient) struct SweepState {
    /// Multiplications of sweeps before.
    pub(in crate::transient) before: u64,
    /// k, and where the steps to the next decision end, if not at k.
    pub(in crate::transient) steps: u64,
    pub(in crate::transient) until: Option<u64>,
    pub(in crate::transient) check: u64,
    pub(in crate::transient) accumulators: usize,
    /// The first place whose window has not opened, and places that found no accumulator.
    pub(in crate::transient) waiting: usize,
    pub(in crate::transient) left_over: Vec<usize>,
    /// Of each open window its place, the step of the first weight held, and what the weights were divided by.
    pub(in crate::transient) open: Vec<(usize, u64, f64)>,
    /// One each planned time.
    pub(in crate::transient) planned: Vec<Changed>,
}

/// The part of a planned time that a sweep changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::transient) struct Changed {
    pub(in crate::transient) index: usize,
    pub(in crate::transient) steady_state: f64,
    pub(in crate::transient) steps: u64,
    pub(in crate::transient) truncation: f64,
    pub(in crate::transient) normalisation: f64,
    pub(in crate::transient) rewards: Vec<(f64, f64)>,
}

/// The state of the iteration, beside x_k.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::transient) struct StationaryState {
    /// k, and where the steps before the next look at the distance end, if not at k.
    pub(in crate::transient) steps: u64,
    pub(in crate::transient) until: Option<u64>,
    /// The last distance; the smallest of the second sweep, and how long it has not become smaller.
    pub(in crate::transient) distance: f64,
    pub(in crate::transient) best: f64,
    pub(in crate::transient) stalled: u32,
    pub(in crate::transient) certificate: Option<Certificate>,
}

/// The findings of the first sweep and of the iteration backwards.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::transient) struct Certificate {
    /// H, if it has a bound.
    pub(in crate::transient) meeting: Option<f64>,
    /// Closed classes.
    pub(in crate::transient) classes: usize,
}

/// The state at the end of an interval, beside the sum.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::transient) struct SubdividedState {
    /// The time, by its place among those of the problem, and its intervals done.
    pub(in crate::transient) index: usize,
    pub(in crate::transient) interval: u64,
    /// Multiplications done.
    pub(in crate::transient) terms: u64,
}
