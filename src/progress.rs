//! Progress of long computations.

use crate::Result;

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
}

impl Progress for () {}

impl<F: FnMut(u64, u64) -> Result<()> + Send> Progress for F {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self(done, all)
    }
}
