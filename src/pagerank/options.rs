//! Options of PageRank.

use crate::util::options::options;

use std::time::{Duration, Instant};

options! {
    /// Options of a PageRank computation.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Options {
        /// Damping factor d, the probability of following an edge: at least 0 and below 1.
        pub damping: f64 = 0.85,
        /// Nodes to restart at, with equal probability; empty for all nodes.
        pub seeds: Vec<u32> = Vec::new(),
        /// Requested half-width relative to the estimate; the larger of this and `epsilon` counts.
        pub relative: f64 = 1e-6,
        /// Requested absolute half-width.
        pub epsilon: f64 = 0.0,
        /// Largest number of matrix–vector products with the transition matrix P.
        pub most_products: u32 = u32::MAX,
        /// Time limit, after which the bounds reached so far are returned.
        pub time_limit: Option<Duration> = None,
    }
}

impl Options {
    /// True if the time limit has passed since `started`.
    pub(super) fn is_timed_out(&self, started: Instant) -> bool {
        self.time_limit.is_some_and(|limit| started.elapsed() >= limit)
    }
}
