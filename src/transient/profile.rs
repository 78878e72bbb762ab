//! Wall-clock time that methods spend on their lanes, for measurements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Activity of a method on its lanes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Activity {
    /// Allocates and fills arrays.
    Start,
    /// Computes matrix–vector products.
    Products,
    /// Checks for convergence.
    Checks,
    /// Copies results to the host and passes them to the observer.
    Results,
}

/// Seconds spent on each activity.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct ActivitySeconds {
    /// Allocation and initialization of arrays.
    pub start: f64,
    /// Matrix–vector products, from the first launch to the end of the last.
    pub products: f64,
    /// Convergence checks for early termination.
    pub checks: f64,
    /// Copies of results to the host, and the calls of the observer.
    pub results: f64,
}

/// Nanoseconds spent on each activity so far.
#[derive(Debug, Default)]
pub struct Clock([AtomicU64; 4]);

impl Clock {
    /// Runs `work` and adds its time to `activity`.
    pub(super) fn time<R>(&self, activity: Activity, work: impl FnOnce() -> R) -> R {
        let from = Instant::now();
        let done = work();
        self.0[activity as usize].fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    /// Returns the seconds of each activity since the last call, and resets them.
    pub fn take(&self) -> ActivitySeconds {
        let [start, products, checks, results] =
            self.0.each_ref().map(|nanoseconds| nanoseconds.swap(0, Ordering::Relaxed) as f64 * 1e-9);
        ActivitySeconds { start, products, checks, results }
    }
}
