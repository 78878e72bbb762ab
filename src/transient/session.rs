//! Results and progress of a run on their way to the observer and to the checkpoint.

use super::checkpoint::Checkpointer;
use super::problem::Observer;
use super::solution::TimeResult;
use crate::{Iterate, Progress, Result};

/// Receives the results of a run: probabilities for the observer, and everything for a checkpoint.
///
/// As [`Progress`] it defers interruptions until the checkpointer has saved the state.
pub(crate) struct RunSession<'s, 'c> {
    observer: &'s mut dyn Observer,
    pub(crate) checkpointer: &'s mut Checkpointer<'c>,
    /// Results of the requested times so far.
    results: Vec<Option<TimeResult>>,
    /// True if the observer has ended an iteration.
    ended: bool,
}

impl<'s, 'c> RunSession<'s, 'c> {
    /// Creates a session with the results known so far.
    pub(crate) fn new(
        observer: &'s mut dyn Observer,
        checkpointer: &'s mut Checkpointer<'c>,
        results: Vec<Option<TimeResult>>,
    ) -> Self {
        Self { observer, checkpointer, results, ended: false }
    }

    /// Passes the probabilities at time number `index` to the observer.
    pub(super) fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.observer.result(index, probabilities)?;
        self.checkpointer.delivered(index, probabilities);
        Ok(())
    }

    /// Stores the result of time number `index`.
    pub(super) fn serve(&mut self, index: usize, result: TimeResult) {
        self.checkpointer.finished(index, &result);
        self.results[index] = Some(result);
    }

    /// True if time number `index` has its result.
    pub(super) fn is_served(&self, index: usize) -> bool {
        self.results[index].is_some()
    }

    /// Returns the indices of the times without a result.
    pub(super) fn unserved(&self) -> impl Iterator<Item = usize> {
        (0..self.results.len()).filter(|&index| !self.is_served(index))
    }

    /// True if the observer has ended an iteration, so that no other method starts.
    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// True if every time has its result.
    pub(super) fn is_complete(&self) -> bool {
        self.results.iter().all(Option::is_some)
    }

    /// Returns all results.
    ///
    /// # Panics
    /// If one is missing.
    pub(super) fn into_results(self) -> Vec<TimeResult> {
        self.results.into_iter().map(|result| result.expect("every time was served")).collect()
    }

    /// Restores results from the checkpoint. Returns the matrix–vector products of complete phases.
    pub(super) fn replay(&mut self) -> Result<u64> {
        self.checkpointer.replay(&mut self.results, self.observer)
    }
}

impl Progress for RunSession<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        let agreed = self.observer.progress(done, all);
        self.checkpointer.defer_interrupt(agreed)
    }

    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        let agreed = self.observer.iterate(iterate);
        self.ended |= !agreed.as_ref().unwrap_or(&true);
        self.checkpointer.defer_interrupt(agreed.map(drop))?;
        Ok(!self.ended)
    }
}
