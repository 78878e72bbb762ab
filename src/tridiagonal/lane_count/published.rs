//! Numbers published by M. Veneva and T. Imamura in 2024, see [`lane_count`](super).
//!
//! They are for an RTX 2080 Ti, f64, blocks of 10 rows, 256 threads per group, and the interface
//! system on the host. They serve as test data and for comparison in reports, never for a choice.

use super::StageTimes;
use super::overlap::OverlapModel;

/// Milliseconds for the creation of one CUDA stream.
pub const LANE_COST: f64 = 0.004448;

/// Largest published speedup over one lane (at n = 8·10⁷ and 10⁸ rows).
pub const BEST_GAIN: f64 = 1.30;

/// Published fitted models, in milliseconds.
pub const MODEL: OverlapModel = OverlapModel {
    sum: [0.0000021890017149, 0.1470644998564126],
    small: Some([0.0000002245645331, 0.6009426920043296, -0.0605183610625299]),
    big: Some([0.0000000356594859, 0.0522781620855163, 0.3941472844770443]),
};

/// Published times of the stages for a size in milliseconds, and derived numbers.
#[derive(Debug, Clone, Copy)]
pub struct Stages {
    /// Number of rows.
    pub n: usize,
    /// The four times that overlap can hide; the other times were not published and are zero here.
    pub stages: StageTimes,
    /// Sum in milliseconds of the four times that overlap can hide, as printed.
    pub sum: f64,
    /// Lane count √(sum/τ) for a cost τ of each lane, as printed.
    pub gomez_luna: f64,
}

const fn stages(n: usize, [comp_1, d2h_1, h2d_3, comp_3]: [f64; 4], sum: f64, gomez_luna: f64) -> Stages {
    let stages = StageTimes { h2d_1: 0.0, comp_1, d2h_1, stage_2: 0.0, h2d_3, comp_3, d2h_3: 0.0 };
    Stages { n, stages, sum, gomez_luna }
}

/// Times of the solver's stages in ms that Veneva and Imamura published, for five sizes n.
pub const STAGES: [Stages; 5] = [
    stages(4_000, [0.221312, 0.014848, 0.006592, 0.030688], 0.27344, 7.8),
    stages(40_000, [0.216544, 0.057312, 0.015456, 0.038112], 0.327424, 8.6),
    stages(400_000, [0.393184, 0.402944, 0.102784, 0.205408], 1.10432, 15.8),
    stages(4_000_000, [1.99398, 3.89741, 0.975392, 2.1305], 8.997282, 45.0),
    stages(40_000_000, [17.4515, 38.8368, 9.60672, 20.9816], 86.87662, 139.8),
];

/// Measured and predicted best lane count for a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Best {
    /// Number of rows.
    pub n: usize,
    /// Measured best lane count.
    pub measured: usize,
    /// Predicted best lane count, as printed.
    pub predicted: usize,
}

/// Published best lane counts for 25 sizes, measured and predicted.
///
/// At n = 80 000 the published formulas give 2, not the printed 1: half the sum is 0.161 ms there,
/// and the overhead of two lanes 0.138 ms. This is a misprint, or a margin that the text does not
/// mention.
pub fn best_lanes() -> impl Iterator<Item = Best> {
    const THOUSANDS: [usize; 25] = [
        1, 4, 5, 8, 10, 40, 50, 80, 100, 400, 500, 800, 1_000, 2_500, 4_000, 5_000, 7_500, 8_000, 10_000,
        25_000, 40_000, 50_000, 75_000, 80_000, 100_000,
    ];
    const MEASURED: [usize; 14] = [1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 8, 8, 8, 16];
    const PREDICTED: [usize; 14] = [1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 8, 8, 16];
    let best = |lanes: [usize; 14], k: usize| lanes.get(k).copied().unwrap_or(32);
    let row = move |(k, n)| Best { n: 1_000 * n, measured: best(MEASURED, k), predicted: best(PREDICTED, k) };
    THOUSANDS.into_iter().enumerate().map(row)
}

/// Size at which [`best_lanes`] does not follow from [`MODEL`], and the lane count of the formulas
/// there.
pub const MISPRINT: (usize, usize) = (80_000, 2);
