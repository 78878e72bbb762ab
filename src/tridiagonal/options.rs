//! Options of solutions and plans.

use serde::Serialize;

use crate::Result;
use crate::lane::{HostArray, Lane};
use crate::util::options::options;

/// Row exchanges (pivoting) in the elimination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pivot {
    /// No row exchanges.
    None,
    /// Scaled partial pivoting.
    Scaled,
    /// No exchanges if stage 1 finds every row dominant, |d| ≥ |dl| + |du|, and scaled partial
    /// pivoting otherwise.
    #[default]
    Auto,
}

/// Number of corrections (steps of iterative refinement) after a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refine {
    /// Corrections while the residual falls and is above 2 ε (normwise) or 8 ε (componentwise).
    ///
    /// If every row is dominant, they begin only above 64 ε componentwise. If the residual remains
    /// above these limits, elimination with pivoting on the host follows.
    #[default]
    Auto,
    /// Given maximum number of corrections.
    Steps(u32),
}

options! {
    /// Settings of [`solve`](super::solve).
    #[derive(Debug, Clone, Copy)]
    pub struct Options {
        /// Row exchanges (pivoting) in the elimination.
        pub pivot: Pivot = Pivot::Auto,
        /// Number of corrections (steps of iterative refinement).
        pub refine: Refine = Refine::Auto,
        /// Limit of the normwise relative residual. The componentwise one may be as large, or 1e-8
        /// if that is more: [`Residual::within`](super::Residual::within).
        pub tolerance: f64 = 1e-12,
    }
}

options! {
    /// Settings of a [`Plan`](super::Plan).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PlanOptions {
        /// Number of right-hand sides that are solved together, 1 or more.
        ///
        /// The three diagonals are read once for all of them if each system fits a tile as a whole,
        /// or one pass over the rows suffices. Otherwise right-hand sides are solved one after
        /// another.
        pub rhs: usize = 1,
        /// True if rows may be exchanged. They are then in blocks, each of one thread.
        pub pivot: bool = false,
        /// True if inputs and unknowns are in pageable memory although lanes support page-locked
        /// memory.
        pub pageable: bool = false,
        /// True if the plan has no arrays on the host, see
        /// [`Plan::solve_resident`](super::Plan::solve_resident).
        pub resident: bool = false,
    }
}

impl PlanOptions {
    pub(super) fn host_array<T: bytemuck::Pod>(
        &self,
        lane: &Lane,
        what: &str,
        len: usize,
    ) -> Result<HostArray<T>> {
        crate::util::memory::expect_memory((len * size_of::<T>()) as u64, || what.to_owned())?;
        if self.pageable { Ok(HostArray::plain(len)) } else { lane.host_array(len) }
    }
}
