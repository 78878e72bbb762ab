//! Solutions of tridiagonal systems.

use serde::Serialize;

use super::host::scaling;
use super::kernels::tiles::{NOT_DOMINANT, UNIT};
use super::options::PlanOptions;
use super::plan::Stages;
use super::residual::Residual;
use super::scheme::BLOCK;
use crate::Status;
use crate::ranks::Ranks;

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
    /// The matrix may be singular: pivots were negligible or its regularity is in doubt. With
    /// several ranks, the host of rank 0 may lack the memory for elimination with pivoting.
    pub unproved: bool,
    /// Number of rows per block or tile into which the method divides the systems.
    pub block: usize,
    /// Method that computed the unknowns.
    pub method: Method,
    /// Number of corrections, the maximum over all right-hand sides.
    pub refinements: u32,
    /// Seconds of each stage of the first solution.
    pub stages: Stages,
    /// Device memory in bytes, over all ranks.
    pub device_bytes: u64,
    /// Number of chunks into which the rows are divided, over all ranks.
    pub chunks: usize,
    /// Seconds of the first solution and of all corrections, without residuals.
    pub solve_seconds: f64,
}

/// Solution in progress by one method, with the state of its matrix.
pub(crate) struct Pass {
    /// Fields that the method determines; [`Self::finish`] computes the others.
    pub(crate) solution: Solution,
    /// [`NOT_DOMINANT`] in the top bit, and the number of small pivots in the bits below.
    pub(crate) flags: u32,
    /// True if neither dominant rows nor a solution for random right-hand sides prove the matrix
    /// regular.
    pub(crate) doubt: bool,
}

impl Pass {
    /// Creates an empty result with these arrays for unknowns, one per right-hand side.
    pub(crate) fn new(x: Vec<Vec<f64>>, how: &PlanOptions) -> Self {
        let solution = Solution {
            status: Status::NotMet,
            statuses: Vec::new(),
            residual: Residual::default(),
            residuals: vec![Residual::default(); x.len()],
            x,
            growth: 0.0,
            dominant: false,
            small_pivots: 0,
            singular: None,
            unproved: false,
            block: if how.pivot { BLOCK } else { UNIT },
            method: if how.pivot { Method::Pivoted } else { Method::OnePass },
            refinements: 0,
            stages: Stages::default(),
            device_bytes: 0,
            chunks: 0,
            solve_seconds: 0.0,
        };
        Self { solution, flags: 0, doubt: false }
    }

    pub(crate) fn residual(&self) -> Residual {
        self.solution.residuals.iter().copied().fold(Residual::default(), Residual::max)
    }

    /// Completes the solution for these right-hand sides.
    pub(crate) fn finish(self, b: &[&[f64]], ranks: Ranks, tolerance: f64) -> Solution {
        let (residual, Self { solution, flags, .. }) = (self.residual(), self);
        let largest = |all: &mut dyn Iterator<Item = &[f64]>| {
            ranks.all_reduce_max(all.map(scaling::largest).fold(0.0, f64::max))
        };
        let xs = largest(&mut solution.x.iter().map(|x| &x[..]));
        let bs = largest(&mut b.iter().copied());
        let status = |residual: &Residual| {
            let met = residual.within(tolerance) && solution.singular.is_none() && !solution.unproved;
            if met { Status::Met } else { Status::NotMet }
        };
        Solution {
            status: status(&residual),
            statuses: solution.residuals.iter().map(status).collect(),
            residual,
            growth: growth(xs, bs),
            dominant: flags & NOT_DOMINANT == 0,
            small_pivots: flags & !NOT_DOMINANT,
            device_bytes: ranks.all_reduce_sum(solution.device_bytes),
            chunks: ranks.all_reduce_sum(solution.chunks as u64) as usize,
            solve_seconds: ranks.all_reduce_max(solution.solve_seconds),
            ..solution
        }
    }
}

/// Returns max |x| / max |b| from the two maxima, at most the largest double for a finite x.
pub(crate) fn growth(x: f64, b: f64) -> f64 {
    let growth = if x.is_finite() { (x / b).min(f64::MAX) } else { x };
    if b > 0.0 { growth } else { 0.0 }
}
