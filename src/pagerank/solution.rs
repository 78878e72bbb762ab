//! Results of PageRank, with bounds.

use std::time::Instant;

use serde::Serialize;

use crate::Status;

/// PageRank of a node, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Node {
    /// Number of the node.
    pub node: u32,
    /// Estimated PageRank.
    pub estimate: f64,
    /// Half-width of the interval: `truncation` + `rounding`.
    pub half_width: f64,
    /// Error bound of the omitted terms of the PageRank series.
    pub truncation: f64,
    /// Error bound of rounding.
    pub rounding: f64,
}

impl Node {
    /// Creates a node with the two parts of its half-width.
    pub(super) fn new(node: u32, estimate: f64, truncation: f64, rounding: f64) -> Self {
        Self { node, estimate, half_width: truncation + rounding, truncation, rounding }
    }
}

/// Times of a run in seconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// Seconds to read or generate the graph.
    pub load: f64,
    /// Seconds to compute PageRank.
    pub solve: f64,
    /// Total seconds.
    pub total: f64,
}

impl Seconds {
    /// Times of a computation that began at `started`.
    pub(super) fn since(started: Instant) -> Self {
        let solve = started.elapsed().as_secs_f64();
        Self { load: 0.0, solve, total: solve }
    }
}

/// PageRank of the requested nodes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Met if every half-width is at most the requested one.
    pub status: Status,
    /// Nodes in the requested order.
    pub nodes: Vec<Node>,
    /// Number of matrix–vector products with the transition matrix P.
    pub products: u32,
    /// Smallest and largest (z_k + z_(k+1))_i / (z_(k−1) + z_k)_i over nodes i, in the last
    /// product.
    ///
    /// z_k is the start distribution after k steps along edges.
    pub quotients: (f64, f64),
    /// True if elimination was used, because products converge too slowly.
    pub direct: bool,
    /// Times of the run.
    pub seconds: Seconds,
}
