//! Options of PageRank.

use std::time::{Duration, Instant};

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// d: the probability that a reader follows a link, at least 0 and below 1.
    pub damping: f64,
    /// Nodes to start anew at, each as probable; none for all nodes.
    pub seeds: Vec<u32>,
    /// Half-width that no interval may exceed, over its estimate.
    pub relative: f64,
    /// Half-width that is good enough whatever the estimate is.
    pub epsilon: f64,
    /// Products with P at most.
    pub most_products: u32,
    /// Time after which the bounds reached are the answer.
    pub time_limit: Option<Duration>,
}

impl Options {
    /// True if the time limit of work that started then has passed.
    pub(super) fn is_timed_out(&self, started: Instant) -> bool {
        self.time_limit.is_some_and(|limit| started.elapsed() >= limit)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            damping: 0.85,
            seeds: Vec::new(),
            relative: 1e-6,
            epsilon: 0.0,
            most_products: u32::MAX,
            time_limit: None,
        }
    }
}
