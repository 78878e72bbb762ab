//! Final validation of a result: its numbers are finite and consistent with its error bound.

use std::time::{Duration, Instant};

use super::context::total;
use super::numerics::fixed_point::{exact_mass, missing};
use super::problem::Observer;
use super::solution::TimeResult;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::BLOCK;
use crate::{Invalid, Iterate, Progress, Result};

/// Mass and least element of a result's probabilities.
#[derive(Clone, Copy)]
pub(super) struct ResultSummary {
    pub(super) mass: f64,
    /// Smallest element, before negative elements were raised to 0.
    pub(super) least: f64,
    /// Initial mass minus the computed mass; `None` for numbers in floating point.
    ///
    /// In fixed point, each probability is at most the exact one.
    pub(super) missing: Option<f64>,
}

/// Observer that summarizes each result before it passes it to the inner observer.
pub(super) struct Validator<'a> {
    ranks: Ranks,
    inner: &'a mut dyn Observer,
    given: Option<u128>,
    pub(super) summaries: Vec<Option<ResultSummary>>,
    /// Total time spent in this observer, including the inner one.
    pub(super) spent: Duration,
}

impl<'a> Validator<'a> {
    /// Creates a validator of `times` results; `given` is the exact initial mass in fixed point.
    pub(super) fn new(ranks: Ranks, inner: &'a mut dyn Observer, given: Option<u128>, times: usize) -> Self {
        Self { ranks, inner, given, summaries: vec![None; times], spent: Duration::ZERO }
    }
}

impl Progress for Validator<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.inner.progress(done, all)
    }

    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        self.inner.iterate(iterate)
    }
}

impl Observer for Validator<'_> {
    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        let from = Instant::now();
        let ends = |block: &[f64]| block.iter().fold([f64::INFINITY, 0.0], |[a, b], p| [p.min(a), p.max(b)]);
        let blocks = probabilities.par_chunks(BLOCK).with_min_len(64).map(ends);
        let [least, most] = blocks.reduce(|| [f64::INFINITY, 0.0], |a, b| [a[0].min(b[0]), a[1].max(b[1])]);
        // The approximation can leave [0, 1]. Moving a probability back reduces its error.
        let moved = |to: fn(f64) -> f64, p: &[f64]| p.iter().map(|&p| to(p)).collect::<Vec<f64>>();
        let raised = (least < 0.0).then(|| moved(|p| p.max(0.0), probabilities));
        let result = raised.as_deref().unwrap_or(probabilities);
        let mass = total(result, self.ranks);
        let missing = self.given.map(|given| missing(given, exact_mass(probabilities, self.ranks)));
        self.summaries[index] =
            Some(ResultSummary { mass, least: -self.ranks.all_reduce_max(-least), missing });
        let capped = (most > 1.0).then(|| moved(|p| p.min(1.0), result));
        self.inner.result(index, capped.as_deref().unwrap_or(result))?;
        self.spent += from.elapsed();
        Ok(())
    }
}

/// Describes how probabilities contradict a bound on their l1 error, if they do.
///
/// They must sum to the initial mass and be nonnegative, within the bound.
pub(super) fn contradiction(mass: f64, initial: f64, least: f64, bound: f64) -> Option<String> {
    // Allows for the rounding of the sums.
    let bound = bound + 4.0 * f64::EPSILON;
    if !mass.is_finite() {
        Some("a probability is not a number".to_owned())
    } else if (mass - initial).abs() > bound {
        Some(format!("the probabilities add up to {mass}, but to {initial} initially"))
    } else if -least > bound {
        Some(format!("a probability is {least:e}"))
    } else {
        None
    }
}

/// Returns an error if a reward at a finite time overflows a double.
pub(super) fn check_rewards(time: &TimeResult) -> Result<()> {
    for reward in time.rewards.iter().filter(|_| time.time.is_finite()) {
        for (what, value) in [("expected", reward.instantaneous), ("accumulated", reward.cumulative)] {
            if !value.is_finite() {
                return Invalid::Reward.fail(format!(
                    "the {what} reward '{}' at time {:e} is above {:e}, the largest double; give \
                     its values in a larger unit",
                    reward.name,
                    time.time,
                    f64::MAX
                ));
            }
        }
    }
    Ok(())
}
