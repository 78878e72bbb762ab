//! The time that methods spend on their lanes, for measurements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a method does on its lanes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Activity {
    /// Makes and fills arrays.
    Start,
    /// Multiplies.
    Products,
    /// Looks whether it can stop.
    Checks,
    /// Copies results to the host and hands them over.
    Results,
}

/// Seconds of each activity.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct ActivitySeconds {
    /// Arrays are made and filled.
    pub start: f64,
    /// Products, from the first launch to the end of the last.
    pub products: f64,
    /// Looks whether a sweep can stop.
    pub checks: f64,
    /// Results are copied to the host and handed over.
    pub results: f64,
}

/// Nanoseconds of each activity so far.
#[derive(Debug, Default)]
pub struct Clock([AtomicU64; 4]);

impl Clock {
    /// Does what belongs to an activity.
    pub(super) fn time<R>(&self, activity: Activity, work: impl FnOnce() -> R) -> R {
        let from = Instant::now();
        let done = work();
        self.0[activity as usize].fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    /// Seconds of each activity since this was last asked for.
    pub fn take(&self) -> ActivitySeconds {
        let [start, products, checks, results] =
            self.0.each_ref().map(|nanoseconds| nanoseconds.swap(0, Ordering::Relaxed) as f64 * 1e-9);
        ActivitySeconds { start, products, checks, results }
    }
}
