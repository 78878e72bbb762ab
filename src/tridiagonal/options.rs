//! Settings of solutions and of plans.

use serde::Serialize;

use super::scheme::Blocking;
use crate::Result;
use crate::lane::{HostArray, Lane};

/// The rows that may be exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pivot {
    /// No rows.
    None,
    /// Scaled partial pivoting.
    Scaled,
    /// No rows where stage 1 finds every row dominant, |d| ≥ |dl| + |du|, and scaled partial pivoting otherwise.
    #[default]
    Auto,
}

/// The number of corrections that follow a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refine {
    /// While the residual, normwise (2 ε) or componentwise (8 ε), is above what double precision can hold, and falls;
    /// where it ends above, elimination with pivoting on the host takes over. They begin where every row is dominant only
    /// above 64 ε componentwise.
    #[default]
    Auto,
    /// A given number.
    Steps(u32),
}

/// The place where the interface system is solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interface {
    /// On the host, by one sweep.
    Host,
    /// On the device, by the same method.
    Device,
    /// The faster of both.
    #[default]
    Auto,
}

/// Settings of [`solve`](super::solve).
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rows of a block that one thread eliminates; `None`: units of 128 rows that 16 threads share.
    pub block: Option<usize>,
    /// The place where the interface system is solved.
    pub interface: Interface,
    /// Rows that may be exchanged.
    pub pivot: Pivot,
    /// Corrections.
    pub refine: Refine,
    /// Normwise relative residual that counts as met. The componentwise one may be as large, or 1e-8 where that is more:
    /// [`Residual::within`](super::Residual::within).
    pub tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block: None,
            interface: Interface::Auto,
            pivot: Pivot::Auto,
            refine: Refine::Auto,
            tolerance: 1e-12,
        }
    }
}

/// Rows of a block where rows may be exchanged and nobody says how many.
const PIVOT_BLOCK: usize = 32;
/// Rows of a block with the interface on the host where nobody says how many: the published one.
const HOST_BLOCK: usize = 10;
impl Options {
    /// The plan without exchanges.
    pub(super) fn plain(&self) -> PlanOptions {
        let interface_on_host = self.interface == Interface::Host;
        let block = self.block.or(interface_on_host.then_some(HOST_BLOCK));
        PlanOptions { block, interface_on_host, ..PlanOptions::default() }
    }

    /// The blocks in which rows are exchanged.
    pub(super) fn pivoted(&self) -> Blocking {
        let (block, host) = (self.block.unwrap_or(PIVOT_BLOCK), self.interface == Interface::Host);
        Blocking { block, host, pivot: true }
    }
}

/// Settings of a [`Plan`](super::Plan).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Right-hand sides that are solved together, 1 or more. The three diagonals are read once for all of them where systems
    /// are so small that each is whole, or one pass over the rows is enough; otherwise one is solved after the other.
    pub rhs: usize,
    /// Rows of a block that one thread eliminates, 3 or more; `None`: units of 128 rows, each of 16 threads.
    pub block: Option<usize>,
    /// With blocks: whether the interface system goes to the host as it is, instead of being solved on the device.
    pub interface_on_host: bool,
    /// With blocks: whether rows may be exchanged.
    pub pivot: bool,
    /// Whether inputs and unknowns lie in memory that is not page-locked, where lanes could have it so.
    pub pageable: bool,
    /// Whether there are no arrays on the host: all is on the devices, see [`Plan::solve_resident`](super::Plan::solve_resident).
    pub resident: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        let (interface_on_host, pivot) = (false, false);
        Self { rhs: 1, block: None, interface_on_host, pivot, pageable: false, resident: false }
    }
}

impl PlanOptions {
    /// The blocks, if rows are in blocks.
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
