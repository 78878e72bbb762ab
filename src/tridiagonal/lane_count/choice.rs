//! Choice of the lane count: the smallest number with a predicted time close to the minimum.
//!
//! The time on one lane is interpolated between measured sizes, linear in the logarithms. The time
//! on s lanes is that time multiplied by the ratio T(n, s) / T(n, 1), which is linear in log n
//! between measured sizes. Times of any shape are predicted, and noise affects two sizes alone.

use serde::Serialize;

use super::SizeTimes;

/// Minimum relative reduction of the time that justifies more lanes.
pub const MARGIN: f64 = 0.01;

/// Upper limit to which timing noise raises [`MARGIN`] in the comparison with one lane.
pub const LARGEST_MARGIN: f64 = 0.03;

/// True if the time `chosen` exceeds `best` (milliseconds) by more than 5 % and 20 µs.
pub fn missed(chosen: f64, best: f64) -> bool {
    chosen > 1.05 * best && chosen > best + 0.020
}

/// Measured sizes around `n`, and the position of `n` between them in log n, from 0 to 1.
fn around(sizes: &[SizeTimes], n: usize) -> (&SizeTimes, &SizeTimes, f64) {
    let above = sizes.partition_point(|size| size.n < n).min(sizes.len() - 1);
    let (low, high) = (&sizes[above.saturating_sub(1)], &sizes[above]);
    let width = (high.n as f64 / low.n as f64).ln();
    let share = if width > 0.0 { (n as f64 / low.n as f64).ln() / width } else { 0.0 };
    (low, high, share.clamp(0.0, 1.0))
}

/// Milliseconds on one lane, linear in the logarithms of n and time. Beyond the largest size the
/// time is proportional to n, below the smallest it is constant.
fn one_lane(sizes: &[SizeTimes], n: usize) -> f64 {
    let (low, high, share) = around(sizes, n);
    let between = low.one_lane().powf(1.0 - share) * high.one_lane().powf(share);
    between * (n as f64 / sizes[sizes.len() - 1].n as f64).max(1.0)
}

/// All lane counts that were measured for any size, ascending.
pub fn counts(sizes: &[SizeTimes]) -> Vec<usize> {
    let mut counts: Vec<usize> =
        sizes.iter().flat_map(|size| size.runs.iter().map(|run| run.lanes)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Predicted milliseconds for `n` rows on `lanes` lanes, from measurements of ascending sizes.
///
/// Returns `None` for a number of lanes that was not measured for a size next to `n`.
pub fn time(sizes: &[SizeTimes], n: usize, lanes: usize) -> Option<f64> {
    let (low, high, share) = around(sizes, n);
    let ratio = |size: &SizeTimes| size.time(lanes).map(|time| time / size.one_lane());
    // If only one of the sizes was measured with this count, its ratio is used.
    let ratio = match (ratio(low), ratio(high)) {
        (Some(low), Some(high)) => low + (high - low) * share,
        (low, high) => low.or(high)?,
    };
    Some(one_lane(sizes, n) * ratio)
}

/// Smallest lane count for `n` rows with a time close to the minimum.
pub fn lanes(sizes: &[SizeTimes], n: usize) -> usize {
    let timed = |lanes: usize| time(sizes, n, lanes).map(|time| (lanes, time));
    let times: Vec<(usize, f64)> = counts(sizes).into_iter().filter_map(timed).collect();
    let least = times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
    let (low, high, share) = around(sizes, n);
    let near = if share < 0.5 { low } else { high };
    let noise = 2.0 * near.runs[0].error / near.one_lane();
    let close = |&&(lanes, time): &&(usize, f64)| {
        let margin = if lanes == 1 { noise.clamp(MARGIN, LARGEST_MARGIN) } else { MARGIN };
        time <= least * (1.0 + margin)
    };
    times.iter().find(close).expect("the least time is close to itself").0
}

/// Additional time of the chosen lane counts, relative to the best ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Regret {
    /// Maximum of T(chosen) / T(best) − 1 over sizes, where T is the time on that lane count.
    pub worst: f64,
    /// Number of sizes at which the chosen count is more than 5 % and 20 µs slower than the best.
    pub missed: usize,
}

impl Regret {
    /// Computes the regret over sizes for which `choose` returns a lane count.
    ///
    /// A count that was not measured for a size is reduced to the largest one that was.
    pub fn of(sizes: &[SizeTimes], choose: impl Fn(usize) -> usize) -> Self {
        let mut regret = Self::default();
        for (i, size) in sizes.iter().enumerate() {
            let lanes = choose(i);
            let run = size.runs.iter().rev().find(|run| run.lanes <= lanes).unwrap_or(&size.runs[0]);
            let best = size.best().median;
            regret.worst = regret.worst.max(run.median / best - 1.0);
            regret.missed += usize::from(missed(run.median, best));
        }
        regret
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LANE_COUNTS, LaneTime, sizes};
    use super::*;

    fn data(time: impl Fn(f64, f64) -> f64) -> Vec<SizeTimes> {
        let size = |n: usize| SizeTimes {
            n,
            runs: LANE_COUNTS
                .map(|lanes| LaneTime::of(lanes, vec![time(n as f64 * 1e-6, lanes as f64)]))
                .to_vec(),
        };
        sizes().into_iter().map(size).collect()
    }

    #[test]
    fn lanes_are_taken_where_they_pay() {
        // Lanes reduce the time between 10⁵ and 10⁷ rows only.
        let odd = data(|m, s| {
            let pays = (0.1..=10.0).contains(&m);
            0.1 + m * if pays { 4.0 / s + 0.05 * s } else { 4.0 + 0.05 * s }
        });
        assert!(Regret::of(&odd, |i| lanes(&odd, odd[i].n)).worst <= MARGIN);
        assert_eq!([10, 1_000_000, 1_000_000_000].map(|n| lanes(&odd, n)), [1, 8, 1]);
        let flat = data(|m, s| 0.1 + 20.0 * m + 0.01 * (s - 1.0));
        assert!(sizes().into_iter().all(|n| lanes(&flat, n) == 1));
        let predicted = time(&flat, 20_000_000, 4).unwrap();
        approx::assert_relative_eq!(predicted, 400.13, max_relative = 1e-3);
        assert_eq!(time(&flat, 20_000_000, 64), None);
    }

    #[test]
    fn a_gain_within_noise_is_ignored() {
        for (error, wanted) in [(0.001, 2), (0.02, 1)] {
            let mut some = data(|m, s| 1.0 + m - if s > 1.0 { 0.015 * (1.0 + m) } else { 0.0 });
            some.iter_mut().for_each(|size| size.runs[0].error = error * size.runs[0].median);
            assert_eq!(lanes(&some, 10_000), wanted, "error {error}");
        }
    }

    #[test]
    fn sizes_may_have_been_measured_on_fewer_lanes() {
        let mut some = data(|m, s| 0.1 + 20.0 * m / s.min(4.0) + 0.001 * s);
        some.iter_mut().take(6).for_each(|size| size.runs.truncate(1));
        assert_eq!(lanes(&some, 50_000_000), 4);
        some.iter_mut().for_each(|size| size.runs.truncate(2));
        assert_eq!(lanes(&some, 50_000_000), 2);
        assert!(time(&some, 50_000_000, 2).is_some() && time(&some, 50_000_000, 4).is_none());
    }

    #[test]
    fn a_miss_exceeds_a_relative_and_an_absolute_difference() {
        let cases = [(1.06, 1.0), (0.121, 0.1), (1.04, 1.0), (0.119, 0.1)];
        assert_eq!(cases.map(|(chosen, best)| missed(chosen, best)), [true, true, false, false]);
    }
}
