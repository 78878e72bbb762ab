//! Halo depth: the number of steps that lanes take between two exchanges.
//!
//! A step of a small chain does not hide the latency of an exchange through the host. Lanes that
//! also compute some rows of their neighbours need fewer exchanges.

use super::subdomain::{Kind, Region};
use crate::transient::solution::ExchangeCost;

/// Largest number of steps between two exchanges.
pub const MAX_HALO_DEPTH: usize = 64;

/// Seconds and bytes of a step of a lane.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Work {
    /// Seconds for the own rows.
    pub(crate) compute: f64,
    /// Seconds per step for the additional rows of one more step without an exchange.
    ///
    /// They are computed in each step but the last.
    pub(crate) ghosts: f64,
    /// Share of the own rows that no other lane reads.
    pub(crate) interior: f64,
    /// Bytes of the halo of one step.
    pub(crate) bytes: f64,
    /// Additional bytes of the halo for one more step without an exchange: all rows as far as it
    /// reads.
    pub(crate) deeper: f64,
}

impl Work {
    /// Returns the work of a region; its own rows take `compute` seconds.
    pub(crate) fn of(region: &Region, regions: &[Region], compute: f64, real: u64) -> Self {
        let hull = region.halo_width();
        let rows = region.rows.len().max(1) as f64;
        let pieces = region.pieces(regions, 1);
        let interior = pieces.iter().find(|piece| piece.kind == Kind::Interior);
        Self {
            compute,
            ghosts: compute * hull as f64 / rows,
            interior: interior.map_or(0, |piece| piece.rows.len()) as f64 / rows,
            bytes: (region.len() - region.rows.len()) as f64 * real as f64,
            deeper: hull as f64 * real as f64,
        }
    }

    /// Returns the seconds of a step with an exchange every `halo_depth` steps, and those exposed.
    ///
    /// The exposed seconds are the part of the exchange that is not hidden.
    pub(crate) fn step(self, halo_depth: usize, cost: ExchangeCost) -> (f64, f64) {
        let k = halo_depth as f64;
        // Every step computes k − 1 layers of halo, and the last step its boundary twice.
        let ghosts = k * (k - 1.0) * self.ghosts;
        let again = if halo_depth == 1 { 0.0 } else { (1.0 - self.interior) * self.compute };
        let bytes = self.bytes + (k - 1.0) * self.deeper;
        let exposed = cost.exposed_seconds(bytes, halo_depth, self.interior, self.compute);
        ((k * self.compute + ghosts + again + exposed) / k, exposed / k)
    }
}

/// Returns the halo depth with the shortest predicted step; it does not affect the bits.
///
/// A larger depth must gain a tenth, or 1.5 % if the time for which an exchange blocks a lane is
/// known.
pub(crate) fn choose(work: &[Work], cost: ExchangeCost) -> usize {
    let slowest = |halo_depth: usize| work.iter().map(|w| w.step(halo_depth, cost).0).fold(0.0, f64::max);
    let enough = if cost.busy > 0.0 { 0.985 } else { 0.9 };
    let (mut best, mut chosen) = (slowest(1), 1);
    for halo_depth in [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MAX_HALO_DEPTH] {
        let step = slowest(halo_depth);
        if step < enough * best {
            (best, chosen) = (step, halo_depth);
        }
    }
    chosen
}

impl ExchangeCost {
    /// Returns the seconds of an exchange of `bytes` bytes.
    fn seconds(self, bytes: f64) -> f64 {
        self.latency + bytes / self.rate
    }

    /// Returns the seconds by which an exchange of `bytes` bytes prolongs `halo_depth` steps.
    ///
    /// With an exchange after every step, it is hidden by the rows that no other lane reads, a
    /// share `interior` of the `compute` seconds of a step. With several steps it is hidden by all
    /// rows of the last one.
    pub(super) fn exposed_seconds(self, bytes: f64, halo_depth: usize, interior: f64, compute: f64) -> f64 {
        let hidden = if halo_depth == 1 { interior * compute } else { compute };
        self.busy + bytes / self.drain + (self.seconds(bytes) - hidden).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_chains_exchange_after_every_step_and_small_ones_rarely() {
        let cost = ExchangeCost { latency: 210e-6, rate: 10e9, busy: 0.0, drain: f64::INFINITY };
        let large = Work { compute: 430e-6, ghosts: 8e-6, interior: 0.98, bytes: 757e3, deeper: 1.41e6 };
        let small = Work { compute: 21e-6, ghosts: 0.5e-6, interior: 0.9, bytes: 20e3, deeper: 20e3 };
        // Here ghosts are as large as the lane's share.
        let dense = Work { compute: 100e-6, ghosts: 100e-6, interior: 0.0, bytes: 1e6, deeper: 1e6 };

        assert_eq!(choose(&[large, large], cost), 1);
        assert_eq!(choose(&[dense], ExchangeCost { latency: 50e-6, ..cost }), 1);
        let halo_depth = choose(&[small, small], cost);
        assert!((4..=32).contains(&halo_depth), "{halo_depth}");
        assert!(small.step(halo_depth, cost).0 < 0.5 * small.step(1, cost).0);
    }

    #[test]
    fn exchanges_that_keep_a_lane_busy_are_rarer_though_hidden() {
        // Two wgpu adapters with `wlan:204,6`: 1, 2 and 3 steps between two exchanges take 496, 468
        // and 476 µs a step in HYB, and 289, 271 and 299 µs in patterns.
        let cost = ExchangeCost { latency: 72e-6, rate: 11.5e9, busy: 60e-6, drain: 40e9 };
        let hyb = Work { compute: 402e-6, ghosts: 4e-6, interior: 0.99, bytes: 757e3, deeper: 1.41e6 };
        let patterns = Work { compute: 190e-6, ghosts: 2e-6, ..hyb };

        assert_eq!(choose(&[hyb, hyb], cost), 2);
        assert!(choose(&[patterns, patterns], cost) <= 2);
        for (halo_depth, measured) in [(1, 496e-6), (2, 468e-6), (3, 476e-6)] {
            let (step, _) = hyb.step(halo_depth, cost);
            assert!((step / measured - 1.0).abs() < 0.05, "{halo_depth}: {step}");
        }
    }
}
