//! Solutions of tridiagonal systems.

use serde::Serialize;

use super::options::Interface;
use super::plan::Stages;
use super::residual::Residual;
use crate::Status;

/// Method that computed the unknowns that are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Overlapping tiles (windows), each solved on its own and certified, in one pass over the
    /// rows.
    OnePass,
    /// The partition method without pivoting.
    Partition,
    /// The partition method with scaled partial pivoting.
    Pivoted,
    /// Elimination with partial pivoting on the host.
    Host,
}

/// Unknowns, with the residuals that prove their quality.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Unknowns of each right-hand side; empty if they were written to the caller's arrays.
    pub x: Vec<Vec<f64>>,
    /// Met if the residual is [within](Residual::within) the tolerance, and the matrix is neither
    /// found singular nor [unproved](Self::unproved).
    pub status: Status,
    /// Status of each right-hand side.
    pub statuses: Vec<Status>,
    /// Residual of x, the maximum over all right-hand sides.
    pub residual: Residual,
    /// Residual of each right-hand side.
    pub residuals: Vec<Residual>,
    /// max |x| / max |b|, at most the largest double; infinite if an unknown is beyond that range.
    pub growth: f64,
    /// True if every row is dominant.
    pub dominant: bool,
    /// Number of pivots of the partition method that were negligible against their row.
    pub small_pivots: u32,
    /// System and row in which the matrix was found singular; `None` if it was not.
    pub singular: Option<(usize, usize)>,
    /// True if the answer may be less accurate than its residual indicates.
    ///
    /// Pivots were negligible, and the host of rank 0 lacks the memory for elimination with
    /// pivoting, which would determine if the matrix is singular.
    pub unproved: bool,
    /// Rows of a block or tile.
    pub block: usize,
    /// Device or host that solved the interface system.
    pub interface: Interface,
    /// Method that computed the unknowns.
    pub method: Method,
    /// Number of corrections, the maximum over all right-hand sides.
    pub refinements: u32,
    /// Times of the stages of the first solution.
    pub stages: Stages,
    /// Device memory in bytes.
    pub device_bytes: u64,
    /// Number of chunks of the rows.
    pub chunks: usize,
    /// Seconds of all solutions, without residuals.
    pub solve_seconds: f64,
}
