//! Cost model of convergence checks and Krylov products, in products of a uniformization run.
//!
//! It determines how often checks are made. The costs depend only on the sizes of a chain and on
//! the kind of its lanes, so the bits of a result do not depend on timing. Times are converted to
//! the bytes that a device moves meanwhile, and divided by the bytes of a product.

use super::chain::statistics::MatrixStatistics;
use super::step::vector_kernels::SWEEP_ROWS;
use crate::Machine;

/// Largest number of vectors of a Krylov subspace.
pub(super) const MOST_VECTORS: usize = 40;

/// Cost model of a chain on its lanes; unit: a matrix–vector product of uniformization.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    states: usize,
    entries: f64,
    /// Bytes moved by a product of a uniformization run: the entries and a few numbers per state.
    product: f64,
    /// True if the lanes of all ranks are processor cores, with cheap launches.
    on_host: bool,
}

impl Costs {
    /// Creates the cost model for a chain on all ranks of a machine.
    pub(crate) fn new<T>(statistics: &MatrixStatistics<T>, states: usize, machine: &Machine) -> Self {
        let device = machine.lanes.iter().any(|lane| !lane.device().on_host_cores());
        let on_host = machine.ranks.all_reduce_max(f64::from(u8::from(device))) == 0.0;
        Self::of(states, statistics.nnz as f64, on_host)
    }

    pub(super) fn of(states: usize, entries: f64, on_host: bool) -> Self {
        Self { states, entries, product: 4.0 * entries + 40.0 * states as f64, on_host }
    }

    /// Returns the cost of a convergence check in products of a uniformization run.
    ///
    /// A check reads two vectors and synchronizes with the host. CPU lanes use the cost of a device
    /// too, where it is largest: a run then terminates at one step on all devices, with equal bits.
    pub(super) fn check(&self) -> f64 {
        2.0 + 2e8 / (self.product + self.launch(false))
    }

    /// True if a uniformization run of `steps` steps takes a device less than about ten
    /// milliseconds.
    ///
    /// Compiling the kernel of a check takes one or two milliseconds; small chains do not need it.
    /// CPU lanes use the estimate for a device too, as in [`check`](Self::check).
    pub(super) fn is_short(&self, steps: u64) -> bool {
        self.states > SWEEP_ROWS && steps as f64 * (self.product + self.launch(false)) < 4e10
    }

    /// Returns the cost of a check of all transient classes on the host, in products of a run.
    ///
    /// It reads the rows in both directions, at about ten nanoseconds per entry.
    pub(super) fn class_check(&self) -> f64 {
        (4e4 * self.entries + 2e8) / (self.product + self.launch(false))
    }

    /// Returns the cost of the search for transient classes by one thread, in products of a run.
    pub(super) fn class_search(&self) -> f64 {
        4e5 * self.entries / (self.product + self.launch(false))
    }

    /// Returns the number of vectors of a Krylov subspace: at most [`MOST_VECTORS`].
    pub(super) fn vectors(&self) -> usize {
        self.states.min(MOST_VECTORS)
    }

    /// Returns the cost of a Krylov product, in products of a uniformization run.
    ///
    /// A subspace has 40 vectors; fewer cost their share. On average 20 vectors are read 3.5 times,
    /// and twice as often in every second product. About 20 launches and a share of the small
    /// matrix exponential are added.
    pub(super) fn krylov(&self) -> f64 {
        let launches = if self.on_host { 1e6 } else { 1e9 };
        let all = 840.0 * self.states as f64 + launches;
        1.0 + all * self.vectors() as f64 / MOST_VECTORS as f64 / (self.product + self.launch(self.on_host))
    }

    /// Returns the launch overhead of a step, in bytes that the device could move meanwhile.
    fn launch(&self, on_host: bool) -> f64 {
        match (on_host, self.states <= SWEEP_ROWS) {
            (true, true) => 1e3,
            (true, false) => 5e4,
            (false, true) => 3e6,
            (false, false) => 8e6,
        }
    }
}
