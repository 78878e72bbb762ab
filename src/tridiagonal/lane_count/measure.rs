//! Measuring what the models are fitted to.

use super::{LaneTime, SizeTimes, StageTimes};
use crate::Result;

/// How long a size is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Solutions of each lane count at least.
    pub least: usize,
    /// At most.
    pub most: usize,
    /// Seconds for all lane counts, between these two.
    pub seconds: f64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { least: 5, most: 51, seconds: 0.5 }
    }
}

/// Solves systems of `n` rows on each of `counts` lanes, one lane first, and takes medians. `solve` gets a number of
/// lanes and tells the seconds of a solution and, on one lane, of its stages, in milliseconds.
///
/// Every count is tried once before anything counts. Then come rounds of all counts, each in another order, so that
/// what changes over time (clocks, other programs) does not fall on one of them.
pub fn measure(
    n: usize,
    counts: &[usize],
    effort: Effort,
    solve: &mut dyn FnMut(usize) -> Result<(f64, StageTimes)>,
) -> Result<SizeTimes> {
    assert!(counts.first() == Some(&1) && counts.is_sorted(), "one lane comes first: {counts:?}");
    let mut round = 0.0;
    for &lanes in counts {
        solve(lanes)?;
        round += solve(lanes)?.0;
    }
    let rounds = ((effort.seconds / round) as usize).clamp(effort.least.max(1), effort.most.max(1));
    let mut times = vec![Vec::new(); counts.len()];
    let mut stages = Vec::new();
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let mut random = fastrand::Rng::with_seed(n as u64);
    for _ in 0..rounds {
        random.shuffle(&mut order);
        for &k in &order {
            let (seconds, of_stages) = solve(counts[k])?;
            times[k].push(1e3 * seconds);
            if counts[k] == 1 {
                stages.push(of_stages);
            }
        }
    }
    let runs = counts.iter().zip(times).map(|(&lanes, times)| LaneTime::of(lanes, times)).collect();
    Ok(SizeTimes { n, stages: median(&stages), runs })
}

/// The median of each stage.
fn median(all: &[StageTimes]) -> StageTimes {
    let of = |stage: fn(&StageTimes) -> f64| {
        let mut times: Vec<f64> = all.iter().map(stage).collect();
        times.sort_by(f64::total_cmp);
        times[(times.len() - 1) / 2]
    };
    StageTimes {
        h2d_1: of(|s| s.h2d_1),
        comp_1: of(|s| s.comp_1),
        d2h_1: of(|s| s.d2h_1),
        stage_2: of(|s| s.stage_2),
        h2d_3: of(|s| s.h2d_3),
        comp_3: of(|s| s.comp_3),
        d2h_3: of(|s| s.d2h_3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn each_count_is_measured_as_often_as_the_others() {
        let effort = Effort { least: 3, most: 9, seconds: 0.0 };
        let mut calls = Vec::new();

        let size = measure(1000, &[1, 2, 8], effort, &mut |lanes| {
            calls.push(lanes);
            let stages = StageTimes { comp_1: calls.len() as f64, d2h_3: 7.0, ..StageTimes::default() };
            Ok((1e-3 * lanes as f64, stages))
        })
        .unwrap();

        // Twice to warm up, three times counted.
        for lanes in [1, 2, 8] {
            assert_eq!(calls.iter().filter(|l| **l == lanes).count(), 5);
            assert!((size.time(lanes).unwrap() / lanes as f64 - 1.0).abs() < 1e-12);
        }
        assert_eq!((size.n, size.stages.d2h_3, size.stages.h2d_1), (1000, 7.0, 0.0));
        // Of three calls on one lane, the one in the middle.
        let ones: Vec<f64> =
            calls.iter().enumerate().skip(6).filter(|(_, l)| **l == 1).map(|(i, _)| (i + 1) as f64).collect();
        assert_eq!(size.stages.comp_1, ones[1]);
    }

    #[test]
    fn time_decides_between_the_fewest_and_the_most() {
        let count = |seconds: f64, effort: Effort| {
            let mut calls = 0;
            measure(7, &[1], effort, &mut |_| {
                calls += 1;
                Ok((seconds, StageTimes::default()))
            })
            .unwrap();
            calls - 2
        };
        let effort = Effort { least: 2, most: 11, seconds: 1.0 };

        assert_eq!([10.0, 0.2, 1e-6].map(|seconds| count(seconds, effort)), [2, 5, 11]);
    }

    #[test]
    fn the_first_error_ends_it() {
        let mut calls = 0;

        let failed = measure(7, &[1, 2], Effort::default(), &mut |_| {
            calls += 1;
            Err(Error::Interrupted)
        });

        assert!(matches!(failed, Err(Error::Interrupted)));
        assert_eq!(calls, 1);
    }
}
