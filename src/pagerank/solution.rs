//! PageRank of nodes, with bounds.

use serde::Serialize;

use crate::Status;

/// A node's PageRank, within the half-width of the estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Node {
    /// Its number.
    pub node: u32,
    /// PageRank, near enough.
    pub estimate: f64,
    /// Half-width of the interval: the sum of the three that follow.
    pub half_width: f64,
    /// Of the probability asked for, where there were walks.
    pub statistical: f64,
    /// What the terms that were left out can move the estimate by.
    pub truncation: f64,
    /// What rounding can.
    pub rounding: f64,
    /// Half-width around the estimate that is certain, whatever walks have found.
    pub certain: f64,
}

impl Node {
    /// A node of which no part is left to chance.
    pub(super) fn certain(node: u32, estimate: f64, truncation: f64, rounding: f64) -> Self {
        let half_width = truncation + rounding;
        Self { node, estimate, half_width, statistical: 0.0, truncation, rounding, certain: half_width }
    }
}

/// Seconds of a run's phases.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Seconds {
    /// Reading or generating the graph.
    pub load: f64,
    /// Products with P.
    pub solve: f64,
    /// Everything.
    pub total: f64,
}

/// PageRank of the nodes that were asked for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Whether every half-width is what was asked for.
    pub status: Status,
    /// The nodes, in the order they were asked for.
    pub nodes: Vec<Node>,
    /// Products with P.
    pub products: u32,
    /// Factors between which each sum of two iterates lay of the one before it, in the end.
    pub quotients: (f64, f64),
    /// Steps of walks.
    pub steps: u64,
    /// True if elimination found the answer, after products that would not have ended.
    pub direct: bool,
    /// Times.
    pub seconds: Seconds,
}
