//! What looks and products of Krylov spaces cost, in products of a sweep. It decides how often they are made, and follows from the sizes of
//! a chain and the kind of its lanes: the bits of an answer do not depend on a clock.

use super::chain::statistics::MatrixStatistics;
use super::step::vector_kernels::SWEEP_ROWS;
use crate::Machine;

/// Most vectors of a Krylov space.
pub(super) const MOST_VECTORS: usize = 40;

/// The sizes that costs follow from.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    states: usize,
    entries: f64,
    /// Bytes that a product of a sweep moves: its entries and a few numbers a state.
    product: f64,
    /// True if the lanes of all ranks are processor cores, for which the host need not wait.
    on_host: bool,
}

impl Costs {
    /// Those of a chain on the lanes of a machine, with all ranks of it.
    pub fn new<T>(statistics: &MatrixStatistics<T>, states: usize, machine: &Machine) -> Self {
        let device = machine.lanes.iter().any(|lane| !lane.device().on_host_cores());
        let on_host = machine.ranks.all_reduce_max(f64::from(u8::from(device))) == 0.0;
        Self::of(states, statistics.nnz as f64, on_host)
    }

    pub(super) fn of(states: usize, entries: f64, on_host: bool) -> Self {
        Self { states, entries, product: 4.0 * entries + 40.0 * states as f64, on_host }
    }

    /// A look whether a sweep can stop: two vectors read, and a way to the host and back, in bytes that are moved meanwhile. It is that of a
    /// device, where it takes longest, on cores, too: a sweep stops at one step on all, and gives the same bits.
    pub(super) fn check(&self) -> f64 {
        2.0 + 2e8 / (self.product + self.launch(false))
    }

    /// True if a sweep of some steps takes a device less than some ten milliseconds: the kernel of a look, which small chains do without, takes one
    /// or two to be made. It is the same on cores, as above.
    pub(super) fn is_short(&self, steps: u64) -> bool {
        self.states > SWEEP_ROWS && steps as f64 * (self.product + self.launch(false)) < 4e10
    }

    /// A look at the parts of a chain, on the host: its rows in both directions, at some ten nanoseconds an entry, in bytes that a device moves
    /// meanwhile.
    pub(super) fn class_check(&self) -> f64 {
        (4e4 * self.entries + 2e8) / (self.product + self.launch(false))
    }

    /// The search for these parts, by one thread.
    pub(super) fn class_search(&self) -> f64 {
        4e5 * self.entries / (self.product + self.launch(false))
    }

    /// Vectors of a Krylov space.
    pub(super) fn vectors(&self) -> usize {
        self.states.min(MOST_VECTORS)
    }

    /// A product of a Krylov space of 40 vectors, or a share of that: 20 are read three times and a half, every second time twice, in some 20
    /// launches, and a share of the small exponential.
    pub(super) fn krylov(&self) -> f64 {
        let launches = if self.on_host { 1e6 } else { 1e9 };
        let all = 840.0 * self.states as f64 + launches;
        1.0 + all * self.vectors() as f64 / MOST_VECTORS as f64 / (self.product + self.launch(self.on_host))
    }

    /// What a step of a sweep waits for its launch: next to nothing where one launch has hundreds of them.
    fn launch(&self, on_host: bool) -> f64 {
        match (on_host, self.states <= SWEEP_ROWS) {
            (true, true) => 1e3,
            (true, false) => 5e4,
            (false, true) => 3e6,
            (false, false) => 8e6,
        }
    }
}
