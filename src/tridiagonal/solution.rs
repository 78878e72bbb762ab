//! Solutions of tridiagonal systems.

use serde::Serialize;

use super::options::Interface;
use super::plan::Stages;
use super::residual::Residual;
use crate::Status;

/// The method that solved a system in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Windows around tiles, each solved by itself and certified, in one pass over the rows.
    OnePass,
    /// The partition method without pivoting.
    Partition,
    /// The partition method with scaled partial pivoting.
    Pivoted,
    /// Elimination with partial pivoting on the host.
    Host,
}

/// Unknowns, and proof of how well they solve the systems.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Unknowns, for each right-hand side as many as rows; none that went to the caller's own arrays.
    pub x: Vec<Vec<f64>>,
    /// Whether the residual is within the tolerance, see [`Residual::within`].
    pub status: Status,
    /// The same of each right-hand side.
    pub statuses: Vec<Status>,
    /// Residual of x, the largest of all right-hand sides.
    pub residual: Residual,
    /// Residual of each right-hand side.
    pub residuals: Vec<Residual>,
    /// max |x| / max |b|: how much larger the unknowns are than the right-hand sides, up to the largest double; infinite
    /// where an unknown is beyond that.
    pub growth: f64,
    /// Whether every row is dominant.
    pub dominant: bool,
    /// Pivots that were next to nothing against their row, in the partition method.
    pub small_pivots: u32,
    /// The system and row where the matrix was found singular.
    pub singular: Option<(usize, usize)>,
    /// Whether the answer may be worth less than its residual says: pivots were next to nothing, and the host of rank 0
    /// lacks the memory for elimination with pivoting, which would tell whether the matrix is singular.
    pub unproved: bool,
    /// Rows of a block or tile.
    pub block: usize,
    /// The place where the interface system was solved.
    pub interface: Interface,
    /// The method that solved it.
    pub method: Method,
    /// Corrections made, the largest number of all right-hand sides.
    pub refinements: u32,
    /// Stages of the first solution.
    pub stages: Stages,
    /// Bytes on the devices.
    pub device_bytes: u64,
    /// Chunks that the rows were cut into.
    pub chunks: usize,
    /// Seconds of all solutions, without residuals.
    pub solve_seconds: f64,
}
