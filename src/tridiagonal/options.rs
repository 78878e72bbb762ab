//! Options of solutions and plans.

use serde::Serialize;

use super::scheme::Blocking;
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

/// Device or host that solves the interface system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interface {
    /// The host, by elimination.
    Host,
    /// The device, by the partition method.
    Device,
    /// Automatic choice: the device.
    #[default]
    Auto,
}

options! {
    /// Settings of [`solve`](super::solve).
    #[derive(Debug, Clone, Copy)]
    pub struct Options {
        /// Rows of a block that one thread eliminates; `None`: units of 128 rows that 16 threads
        /// share.
        pub block: Option<usize> = None,
        /// Device or host that solves the interface system.
        pub interface: Interface = Interface::Auto,
        /// Row exchanges (pivoting) in the elimination.
        pub pivot: Pivot = Pivot::Auto,
        /// Number of corrections (steps of iterative refinement).
        pub refine: Refine = Refine::Auto,
        /// Limit of the normwise relative residual. The componentwise one may be as large, or 1e-8
        /// if that is more: [`Residual::within`](super::Residual::within).
        pub tolerance: f64 = 1e-12,
    }
}

/// Default number of rows per block if rows may be exchanged.
const PIVOT_BLOCK: usize = 32;
/// Default number of rows per block if the host solves the interface system, as first published.
const HOST_BLOCK: usize = 10;
impl Options {
    /// Options of the plan without row exchanges.
    pub(super) fn plain(&self) -> PlanOptions {
        let interface_on_host = self.interface == Interface::Host;
        let block = self.block.or(interface_on_host.then_some(HOST_BLOCK));
        PlanOptions { block, interface_on_host, ..PlanOptions::default() }
    }

    /// Blocks of the plan with row exchanges.
    pub(super) fn pivoted(&self) -> Blocking {
        let (block, host) = (self.block.unwrap_or(PIVOT_BLOCK), self.interface == Interface::Host);
        Blocking { block, host, pivot: true }
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
        /// Rows of a block that one thread eliminates, 3 or more; `None`: units of 128 rows, each
        /// of 16 threads.
        pub block: Option<usize> = None,
        /// With blocks: true if the host solves the interface system, without further reduction.
        pub interface_on_host: bool = false,
        /// With blocks: true if rows may be exchanged.
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
    pub(super) fn blocking(&self) -> Option<Blocking> {
        self.block.map(|block| Blocking { block, host: self.interface_on_host, pivot: self.pivot })
    }

    pub(super) fn host_array<T: bytemuck::Pod>(
        &self,
        lane: &Lane,
        what: &str,
        len: usize,
    ) -> Result<HostArray<T>> {
        crate::lane::cpu::expect_memory((len * size_of::<T>()) as u64, || what.to_owned())?;
        if self.pageable { Ok(HostArray::plain(len)) } else { lane.host_array(len) }
    }
}

impl From<Blocking> for PlanOptions {
    fn from(Blocking { block, host, pivot }: Blocking) -> Self {
        Self { block: Some(block), interface_on_host: host, pivot, ..Self::default() }
    }
}
