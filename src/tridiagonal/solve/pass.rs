//! The result of one pass over the systems, and the solution made from it.

use crate::Status;
use crate::ranks::Ranks;
use crate::tridiagonal::host::pivoted_lu::Improved;
use crate::tridiagonal::host::scaling;
use crate::tridiagonal::kernels::tiles::NOT_DOMINANT;
use crate::tridiagonal::options::Interface;
use crate::tridiagonal::plan::Stages;
use crate::tridiagonal::residual::Residual;
use crate::tridiagonal::solution::{Method, Solution};

/// Unknowns, flags of stage 1 and residuals of one method for all systems.
pub(crate) struct Pass {
    pub(crate) x: Vec<Vec<f64>>,
    /// True if one pass over the rows sufficed for all solutions so far.
    pub(crate) one_pass: bool,
    pub(crate) flags: u32,
    /// Residual of each right-hand side.
    pub(crate) residuals: Vec<Residual>,
    pub(crate) refinements: u32,
    /// True if neither dominant rows nor a solution for random right-hand sides prove the matrix
    /// regular.
    pub(crate) doubt: bool,
    pub(crate) stages: Stages,
    pub(crate) device_bytes: u64,
    pub(crate) chunks: usize,
}

impl Pass {
    /// Creates an empty result with these arrays for unknowns, one per right-hand side.
    pub(crate) fn new(x: Vec<Vec<f64>>) -> Self {
        Self {
            residuals: vec![Residual::default(); x.len()],
            x,
            one_pass: true,
            flags: 0,
            refinements: 0,
            doubt: false,
            stages: Stages::default(),
            device_bytes: 0,
            chunks: 0,
        }
    }

    pub(crate) fn residual(&self) -> Residual {
        self.residuals.iter().copied().fold(Residual::default(), Residual::max)
    }
}

/// Quotient of the maxima of |x| and |b|. It may be infinite for finite numbers.
pub(crate) fn growth(x: f64, b: f64) -> f64 {
    let growth = if x.is_finite() { (x / b).min(f64::MAX) } else { x };
    if b > 0.0 { growth } else { 0.0 }
}

/// Data from which the solution is assembled.
pub(crate) struct Outcome {
    pub(crate) done: Pass,
    pub(crate) host: Improved,
    pub(crate) unproved: bool,
    pub(crate) method: Method,
    pub(crate) block: usize,
    pub(crate) interface: Interface,
    pub(crate) seconds: f64,
}

impl Outcome {
    /// Creates the solution for these right-hand sides.
    pub(crate) fn solution(self, b: &[&[f64]], ranks: Ranks, tolerance: f64) -> Solution {
        let Self { done, host: Improved { singular, .. }, unproved, method, block, interface, seconds } =
            self;
        let largest = |all: &mut dyn Iterator<Item = &[f64]>| {
            ranks.all_reduce_max(all.map(scaling::largest).fold(0.0, f64::max))
        };
        let xs = largest(&mut done.x.iter().map(|x| &x[..]));
        let bs = largest(&mut b.iter().copied());
        let status = |residual: &Residual| {
            let met = residual.within(tolerance) && singular.is_none() && !unproved;
            if met { Status::Met } else { Status::NotMet }
        };
        let residual = done.residual();
        Solution {
            status: status(&residual),
            statuses: done.residuals.iter().map(status).collect(),
            residual,
            residuals: done.residuals,
            growth: growth(xs, bs),
            dominant: done.flags & NOT_DOMINANT == 0,
            small_pivots: done.flags & !NOT_DOMINANT,
            singular,
            unproved,
            block,
            interface,
            method,
            refinements: done.refinements,
            stages: done.stages,
            device_bytes: ranks.all_reduce_sum(done.device_bytes),
            chunks: ranks.all_reduce_sum(done.chunks as u64) as usize,
            solve_seconds: ranks.all_reduce_max(seconds),
            x: done.x,
        }
    }
}
