//! Times with their windows and weights.

use crate::kernel::Number;
use crate::transient::checkpoint::TimeProgress;
use crate::transient::context::{Context, DueTime, windows};
use crate::transient::numerics::poisson::{Weights, Window};
use crate::transient::solution::Stopped;

/// A requested time with its window and weights.
#[derive(Debug)]
pub(crate) struct PlannedTime {
    pub(crate) due: DueTime,
    /// Requested error bound ε.
    pub(crate) epsilon: f64,
    /// Window: the first and the last step whose Poisson terms are summed.
    pub(crate) window: Window,
    /// Poisson weights, computed at first use.
    pub(crate) weights: Option<Weights>,
    /// Poisson tails P(N > k) from one step before the window on; empty without rewards.
    pub(crate) tails: Vec<f64>,
    /// Part of ε reserved for early termination at this time.
    pub(crate) steady_allowance: f64,
    /// Error budget if the weights are summed.
    pub(crate) summed: ErrorBudget,
    /// Error budget if closed forms replace the weights after early termination.
    pub(crate) averaged: ErrorBudget,
    /// Error bound of the rounding that early termination adds.
    pub(crate) termination_rounding: f64,
    /// Iterate at which the run terminated early.
    pub(crate) stopped: Option<Stopped>,
    /// Bound of the l1 norm of the result's derivative by λ, if closed forms replaced the weights
    /// after early termination.
    pub(crate) speed: Option<f64>,
    pub(crate) progress: TimeProgress,
}

/// Part of the error tolerance ε that remains at a requested time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorBudget {
    /// ε minus all error terms except early termination and rounding of the steps.
    pub(crate) left: f64,
    /// Rounding error without that of the steps and of early termination.
    pub(crate) rounded: f64,
}

impl PlannedTime {
    /// Plans a time that has no weights yet.
    pub(crate) fn new<T: Number>(context: &Context<'_, T>, due: DueTime) -> Self {
        let (statistics, epsilon, lambda) = (&context.statistics, context.options.epsilon, due.lambda);
        let (window, steady_allowance) = windows(statistics, epsilon, lambda);
        let budget = |(terms, speed): (u64, f64), weights: f64, truncation: f64| {
            let steps = statistics.rounding_at_speed(lambda, speed, terms, 0);
            let rounded = steps + weights + context.initial_error;
            ErrorBudget { left: epsilon - truncation - rounded, rounded }
        };
        Self {
            due,
            epsilon,
            weights: None,
            tails: Vec::new(),
            progress: TimeProgress {
                index: due.index,
                steady_state: 0.0,
                steps: window.right + 1,
                truncation: window.truncation(),
                normalisation: 0.0,
                rewards: vec![(0.0, 0.0); context.problem.rewards.len()],
            },
            steady_allowance,
            summed: budget(
                (window.terms(), f64::INFINITY),
                statistics.weights_rounding(&window),
                window.truncation(),
            ),
            averaged: budget((0, 0.0), 0.0, 0.0),
            window,
            termination_rounding: 0.0,
            stopped: None,
            speed: None,
        }
    }

    /// True if closed forms replaced the weights after early termination.
    pub(crate) fn is_averaged(&self) -> bool {
        self.speed.is_some()
    }

    pub(crate) fn right(&self) -> u64 {
        self.window.right
    }

    /// Returns the weights; computes them and the tails at first use.
    pub(crate) fn weighted<T: Number>(&mut self, context: &Context<'_, T>) -> &Weights {
        self.weights.get_or_insert_with(|| {
            let weights = context.statistics.weights(&self.window, self.due.time);
            if !self.progress.rewards.is_empty() {
                self.tails = weights.tails();
            }
            weights
        })
    }

    /// Adds the rewards of step k to their sums.
    pub(crate) fn credit(&mut self, k: u64, rewards: &[f64]) {
        let Window { left, right, .. } = self.window;
        // The weight of the step, and P(N > k).
        let (weight, beyond) = match &self.weights {
            _ if k < left => (0.0, 1.0),
            Some(weights) if k <= right => {
                let i = (k - left) as usize;
                (weights.values[i], self.tails[i + 1])
            }
            _ => (0.0, 0.0),
        };
        for ((instant, cumulative), reward) in self.progress.rewards.iter_mut().zip(rewards) {
            *instant += weight * reward;
            *cumulative += beyond * reward;
        }
    }
}
