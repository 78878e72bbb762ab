//! Times with their windows and weights, and where an iteration has ended.

use crate::kernel::Number;
use crate::transient::checkpoint::Certificate;
use crate::transient::context::Context;
use crate::transient::numerics::poisson::{Weights, Window};
use crate::transient::solution::Stopped;

/// A time point with its weights.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The place among the times asked for.
    pub(crate) index: usize,
    /// ε.
    pub(crate) epsilon: f64,
    /// αt.
    pub(crate) lambda: f64,
    /// The terms of the sum.
    pub(crate) window: Window,
    /// Poisson weights, once they are asked for.
    pub(crate) weights: Option<Weights>,
    /// P(N > k) from one step before the window on; empty where no reward asks for it.
    pub(crate) tails: Vec<f64>,
    /// The price that a stop may have here whatever rounding has.
    pub(crate) steady_allowance: f64,
    /// What is left of ε where the weights are summed, and where the mean of a curve stands in their place.
    pub(crate) summed: ErrorBudget,
    pub(crate) averaged: ErrorBudget,
    /// Bound of the stop, if one happened, and of what rounding adds to it.
    pub(crate) steady_state: f64,
    pub(crate) termination_rounding: f64,
    /// Where it stopped, and true if no weights were needed behind it.
    pub(crate) stopped: Option<Stopped>,
    pub(crate) is_averaged: bool,
    /// Steps that its iterates took, at most.
    pub(crate) steps: u64,
    /// Bound of the mass that is left out.
    pub(crate) truncation: f64,
    /// Σ w_k |m_k − 1| of the masses that weights were divided by.
    pub(crate) normalisation: f64,
    /// (instantaneous, cumulative·α) of each reward.
    pub(crate) rewards: Vec<(f64, f64)>,
}

/// What is left of ε at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorBudget {
    /// ε less everything but the price of a stop and the rounding of steps.
    pub(crate) left: f64,
    /// The rounding that is there whatever a stop costs, that of steps aside.
    pub(crate) rounded: f64,
}

impl Planned {
    pub(crate) fn right(&self) -> u64 {
        self.window.right
    }

    /// The weights and tails, which are computed where they are asked for first.
    pub(crate) fn weighted<T: Number>(&mut self, context: &Context<'_, T>) {
        if self.weights.is_none() {
            let weights = context.statistics.weights(&self.window, context.problem.times[self.index]);
            self.tails = if self.rewards.is_empty() { Vec::new() } else { weights.tails() };
            self.weights = Some(weights);
        }
    }
}

/// Where a sweep has ended: k, and x_k as it is kept; and H of its steps, if that is known.
pub(crate) struct LastIterate {
    pub(crate) steps: u64,
    pub(crate) kept: Vec<f64>,
    pub(crate) certificate: Option<Certificate>,
}
