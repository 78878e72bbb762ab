//! Progress of long computations.

use crate::error::Result;

/// State of an iteration whose error is bounded from its residual.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Iterate {
    /// Number of steps so far.
    pub steps: u64,
    /// Norm of the residual, relative to that of the first iterate of the current equations.
    pub residual: f64,
    /// Error bound of the best result so far; infinite if none is known yet.
    pub bound: f64,
    /// Reason why the bound falls no further, in the last report of an iteration that misses ε.
    pub limit: Option<&'static str>,
}

impl Default for Iterate {
    fn default() -> Self {
        Self { steps: 0, residual: 1.0, bound: f64::INFINITY, limit: None }
    }
}

/// Receives the progress of a computation, and may stop it.
///
/// `()` ignores it. A closure receives work done and total, such as `|done: u64, all: u64| Ok(())`.
pub trait Progress: Send {
    /// Reports the work done and a bound of all work (0 if unknown), in units of the solver.
    ///
    /// An error stops the computation, which returns it.
    fn progress(&mut self, _done: u64, _all: u64) -> Result<()> {
        Ok(())
    }

    /// Reports a step of an iteration for the long run; false ends it with the best result so far.
    ///
    /// By default it reports the number of steps as [`progress`](Self::progress).
    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        self.progress(iterate.steps, 0).map(|()| true)
    }
}

impl Progress for () {}

impl<F: FnMut(u64, u64) -> Result<()> + Send> Progress for F {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self(done, all)
    }
}
