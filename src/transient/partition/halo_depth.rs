//! Halo depth: the number of steps that lanes take between two exchanges.
//!
//! A step of a small chain does not hide the latency of an exchange through the host, and a GPU
//! waits for its two submissions. Lanes that also compute some rows of their neighbours need fewer
//! exchanges. The depth follows from typical costs; it does not affect the bits.

use super::subdomain::{Region, RowKind};
use crate::Machine;
use crate::transient::solution::LaneExchange;

/// Largest number of steps between two exchanges.
pub const MAX_HALO_DEPTH: usize = 64;

/// Typical cost of an exchange between lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeCost {
    /// Seconds from the end of a step until another lane has its values, extrapolated to no values.
    latency: f64,
    /// Throughput of the values in bytes per second.
    rate: f64,
    /// Seconds for which an exchange blocks a lane even if overlapped, extrapolated to no values.
    busy: f64,
    /// Throughput in bytes per second while the lane is blocked.
    drain: f64,
}

impl ExchangeCost {
    /// Cost between lanes that store into each other's memory, for events and latency.
    const PEER: Self = Self { latency: 10e-6, rate: 300e9, busy: 0.0, drain: f64::INFINITY };
    /// Cost between GPUs through the host, measured between two Vulkan adapters of one host.
    const CARDS: Self = Self { latency: 38e-6, rate: 11.5e9, busy: 80e-6, drain: 54e9 };
    /// Cost between processor cores through the host.
    const CORES: Self = Self { latency: 15e-6, rate: 3e9, busy: 0.0, drain: f64::INFINITY };

    /// Returns the cost of an exchange between the lanes of a machine. Collective.
    pub(crate) fn of(machine: &Machine, exchange: LaneExchange) -> Self {
        let card = machine.lanes.iter().any(|lane| !lane.device().on_host_cores());
        match machine.ranks.all_reduce_max(f64::from(u8::from(card))) {
            _ if exchange == LaneExchange::Peer => Self::PEER,
            0.0 => Self::CORES,
            _ => Self::CARDS,
        }
    }
}

/// Seconds and bytes of a step of a lane.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Work {
    /// Seconds of a step for the lane's own rows.
    pub(crate) compute: f64,
    /// Number of rows that the own rows read beyond them, relative to the number of own rows.
    ///
    /// Each further step between two exchanges adds as many computed rows to every step but the
    /// last.
    pub(crate) ghosts: f64,
    /// Share of the own rows that no other lane reads.
    pub(crate) interior: f64,
    /// Bytes of the halo of one step.
    pub(crate) bytes: f64,
    /// Bytes that each further step between two exchanges adds to the halo.
    pub(crate) deeper: f64,
}

impl Work {
    /// Returns the work of lane `lane` with one-step halos; its own rows take `compute` seconds.
    pub(super) fn of(lane: usize, regions: &[Region], compute: f64, real: u64) -> Self {
        let (mut rows, mut hull, mut halo, mut interior) = (0, 0, 0, 0);
        for region in regions.iter().filter(|region| region.lane == lane) {
            rows += region.rows.len();
            hull += region.halo_width();
            let others = regions.iter().filter(|other| other.lane != lane);
            halo += others.map(|other| region.halo_from(other).len()).sum::<usize>();
            let pieces = region.pieces(regions, 1);
            let inner = pieces.iter().find(|piece| piece.kind == RowKind::Interior);
            interior += inner.map_or(0, |piece| piece.rows.len());
        }
        let share = |count: usize| count as f64 / rows.max(1) as f64;
        Self {
            compute,
            ghosts: share(hull),
            interior: share(interior),
            bytes: halo as f64 * real as f64,
            deeper: hull as f64 * real as f64,
        }
    }

    /// Predicts the seconds of a step with an exchange every `halo_depth` steps.
    ///
    /// With an exchange after every step, it is hidden by the rows that no other lane reads. With
    /// several steps it is hidden by all rows of the last one.
    pub(crate) fn step(self, halo_depth: usize, cost: ExchangeCost) -> f64 {
        if self.bytes == 0.0 {
            return self.compute;
        }
        let k = halo_depth as f64;
        // Every step computes k − 1 layers of halo, and the last step its boundary twice.
        let ghosts = (k - 1.0) * self.ghosts * self.compute;
        let (hidden, again) = match halo_depth {
            1 => (self.interior * self.compute, 0.0),
            _ => (self.compute, (1.0 - self.interior) * self.compute),
        };
        let bytes = self.bytes + (k - 1.0) * self.deeper;
        let blocked = cost.busy + bytes / cost.drain;
        let exposed = (cost.latency + bytes / cost.rate - hidden).max(0.0);
        self.compute + ghosts + (again + blocked + exposed) / k
    }
}

/// Returns the halo depth of the fastest predicted step; a larger depth must gain 2.5 %.
pub(crate) fn choose(work: &[Work], cost: ExchangeCost) -> usize {
    let slowest = |halo_depth: usize| work.iter().map(|w| w.step(halo_depth, cost)).fold(0.0, f64::max);
    let (mut best, mut chosen) = (slowest(1), 1);
    for halo_depth in [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MAX_HALO_DEPTH] {
        let step = slowest(halo_depth);
        if step < 0.975 * best {
            (best, chosen) = (step, halo_depth);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_chains_and_gpus_exchange_rarely_and_large_chains_on_cores_after_every_step() {
        let large = Work { compute: 402e-6, ghosts: 0.01, interior: 0.99, bytes: 757e3, deeper: 1.41e6 };
        let small = Work { compute: 21e-6, ghosts: 0.02, interior: 0.9, bytes: 20e3, deeper: 20e3 };
        // Here ghosts are as many as the lane's rows.
        let dense = Work { compute: 100e-6, ghosts: 1.0, interior: 0.0, bytes: 1e6, deeper: 1e6 };

        assert_eq!(choose(&[large, large], ExchangeCost::CORES), 1);
        assert_eq!(choose(&[dense], ExchangeCost::CORES), 1);
        let halo_depth = choose(&[small, small], ExchangeCost::CARDS);
        assert!((4..=32).contains(&halo_depth), "{halo_depth}");
        assert!(small.step(halo_depth, ExchangeCost::CARDS) < 0.5 * small.step(1, ExchangeCost::CARDS));

        // Two Vulkan adapters with `wlan:204,6`: 1, 2 and 3 steps between two exchanges take 496,
        // 468 and 476 µs a step in HYB, and 289, 271 and 299 µs in patterns.
        let patterns = Work { compute: 190e-6, ..large };
        assert_eq!(choose(&[large, large], ExchangeCost::CARDS), 2);
        assert_eq!(choose(&[patterns, patterns], ExchangeCost::CARDS), 2);
        for (work, measured) in [(large, [496e-6, 468e-6, 476e-6]), (patterns, [289e-6, 271e-6, 299e-6])] {
            for (halo_depth, measured) in (1..).zip(measured) {
                let step = work.step(halo_depth, ExchangeCost::CARDS);
                assert!((step / measured - 1.0).abs() < 0.035, "{halo_depth}: {step}");
            }
        }
    }
}
