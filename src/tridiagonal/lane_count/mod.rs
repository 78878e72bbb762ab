//! Number of lanes for a host-to-host solution.
//!
//! Chunks of one system pass through upload, stage 1, download, upload, stage 3 and download on k
//! lanes at a time. Transfers of one chunk overlap with the kernels of another. More lanes hide
//! more of the transfers, but each has a cost. [`choice`] predicts the optimum from measurements of
//! this machine ([`SizeTimes`]), which [`settings`](crate::settings) stores.
//!
//! All times are in milliseconds. τ ([`SizeTimes::lane_cost`]) is the time that a lane adds to a
//! solution. In the source it is the creation of a CUDA stream; here lanes stay open.
//!
//! # Sources
//! * M. Veneva, T. Imamura, "ML-based optimum number of CUDA streams for the GPU implementation of
//!   the tridiagonal partition method", Mathematical Modeling and Computational Physics, Yerevan
//!   2024; see also arXiv:2501.05938.
//! * J. Gómez-Luna, J. M. González-Linares, J. I. Benavides, N. Guil, "Performance models for
//!   asynchronous data transfers on consumer graphics processing units", Journal of Parallel and
//!   Distributed Computing 72(9), 2012, doi:10.1016/j.jpdc.2011.07.011.
//! * B. van Werkhoven, J. Maassen, F. J. Seinstra, H. E. Bal, "Performance models for CPU-GPU data
//!   transfers", CCGrid 2014, pp. 11-20.

pub mod choice;
pub mod measure;

use serde::{Deserialize, Serialize};

/// Lane counts that are measured, and among which one is chosen.
pub const LANE_COUNTS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Minimum number of measured sizes for a choice.
pub const FEWEST_SIZES: usize = 5;

/// Largest gain over one lane that Veneva and Imamura publish (n = 8·10⁷ and 10⁸).
///
/// It is for an RTX 2080 Ti, f64, blocks of 10 rows, and the interface system on the host.
pub const BEST_GAIN: f64 = 1.30;

/// Times of complete solutions with a number of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LaneTime {
    /// Number of lanes on which the system was solved.
    pub lanes: usize,
    /// Median time of a solution, in milliseconds.
    pub median: f64,
    /// Minimum time of a solution, in milliseconds.
    pub min: f64,
    /// Standard error of the median, in milliseconds.
    pub error: f64,
}

impl LaneTime {
    /// Creates statistics from the milliseconds of one solution or more.
    pub fn of(lanes: usize, mut times: Vec<f64>) -> Self {
        assert!(!times.is_empty(), "a median of no measurement");
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        // The quartiles of a normal distribution are 1.349 σ apart, and the median of r values has
        // the error √(π/2r) σ. The quartiles are not affected by a few disturbed measurements.
        let sigma = (at(0.75) - at(0.25)) / 1.349;
        let error = sigma * (std::f64::consts::FRAC_PI_2 / times.len() as f64).sqrt();
        Self { lanes, median: at(0.5), min: times[0], error }
    }
}

/// Measurements of a system of `n` rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeTimes {
    /// Number of rows.
    pub n: usize,
    /// Times of solutions by number of lanes, beginning with one lane.
    pub runs: Vec<LaneTime>,
}

impl SizeTimes {
    /// Median time of a solution on one lane, in milliseconds.
    pub fn one_lane(&self) -> f64 {
        self.runs[0].median
    }

    /// Times on the lane count with the smallest median.
    pub fn best(&self) -> LaneTime {
        let least = self.runs.iter().min_by(|a, b| a.median.total_cmp(&b.median));
        *least.expect("a size was measured on one lane at least")
    }

    /// Cost τ in milliseconds that each lane after the first adds for a system too small to gain
    /// from lanes.
    pub fn lane_cost(&self) -> f64 {
        match &self.runs[..] {
            [one, .., most] => (most.median - one.median).max(0.0) / (most.lanes - one.lanes) as f64,
            _ => 0.0,
        }
    }

    /// Median time on `lanes` lanes, if it was measured.
    pub fn time(&self, lanes: usize) -> Option<f64> {
        self.runs.iter().find(|run| run.lanes == lanes).map(|run| run.median)
    }
}

/// Sizes for measurements: those of the source, {1, 2.5, 4, 5, 7.5, 8} · 10ⁱ for i = 3 … 7, and 10⁸
/// of its predictions.
pub fn sizes() -> Vec<usize> {
    let decades = (2..=6).map(|i| 10usize.pow(i));
    decades.flat_map(|d| [10, 25, 40, 50, 75, 80].map(|m| m * d)).chain([100_000_000]).collect()
}

/// Default lane count for `n` rows without measurements, from an H200: with queued copies from
/// page-locked memory, or with copying threads.
///
/// It is 1 on host cores, since they share one memory, which a second lane does not make faster.
pub fn untuned(on_host_cores: bool, queued_copies: bool, n: usize) -> usize {
    match n {
        _ if on_host_cores => 1,
        0..500_000 if queued_copies => 1,
        500_000..2_000_000 if queued_copies => 2,
        2_000_000..7_500_000 if queued_copies => 4,
        _ if queued_copies => 8,
        0..2_000_000 => 1,
        2_000_000..20_000_000 => 4,
        20_000_000..70_000_000 => 8,
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_source() {
        let sizes = sizes();

        assert_eq!(sizes.len(), 31);
        assert_eq!(sizes[..7], [1000, 2500, 4000, 5000, 7500, 8000, 10_000]);
        assert!(sizes.is_sorted());
    }

    #[test]
    fn without_measurements_large_systems_take_more_lanes_on_devices_alone() {
        assert_eq!([1_000, 5_000_000, 100_000_000].map(|n| untuned(false, true, n)), [1, 4, 8]);
        assert_eq!([1_000, 5_000_000, 100_000_000].map(|n| untuned(false, false, n)), [1, 4, 16]);
        assert_eq!(untuned(true, false, 100_000_000), 1);
    }

    #[test]
    fn the_error_of_a_median_shrinks_with_the_root_of_the_measurements() {
        let times = |r: usize| (0..r).map(|i| 10.0 + i as f64 / (r - 1) as f64).collect::<Vec<_>>();

        let (few, many) = (LaneTime::of(2, times(5)), LaneTime::of(2, times(2001)));

        assert_eq!((few.median, few.min, few.lanes), (10.5, 10.0, 2));
        assert_eq!(LaneTime::of(1, vec![3.0]).error, 0.0);
        // The quartiles are half a millisecond apart in each, to the last measurement.
        approx::assert_abs_diff_eq!(few.error / many.error / (2001f64 / 5.0).sqrt(), 1.0, epsilon = 1e-2);
    }
}
