//! Measurement of the times that lane counts are chosen from.

use super::LaneTime;
use crate::Result;

/// Limits on the number of timed solutions of a size.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Minimum number of solutions per lane count.
    pub least: usize,
    /// Maximum number of solutions per lane count.
    pub most: usize,
    /// Intended seconds for all lane counts together; `least` and `most` take precedence.
    pub seconds: f64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { least: 5, most: 51, seconds: 0.5 }
    }
}

/// Times solutions with each lane count of `counts`, ascending. `solve` takes a number of lanes and
/// returns the seconds of a solution.
///
/// Every count is visited twice, in two random orders, so that slow changes (clocks, other
/// programs) affect all counts. The first solution of a visit, which allocates and touches memory,
/// does not count.
pub fn measure(
    counts: &[usize],
    effort: Effort,
    solve: &mut dyn FnMut(usize) -> Result<f64>,
) -> Result<Vec<LaneTime>> {
    assert!(counts.is_sorted(), "the fewest lanes come first: {counts:?}");
    let mut times = vec![Vec::new(); counts.len()];
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let mut random = fastrand::Rng::with_seed(0);
    let (least, most) = (effort.least.max(1), effort.most.max(1));
    for visit in 0..2 {
        random.shuffle(&mut order);
        for &k in &order {
            solve(counts[k])?;
            let first = solve(counts[k])?;
            times[k].push(1e3 * first);
            // The first visit takes half of the solutions, the second the rest.
            let wanted = ((effort.seconds / counts.len() as f64 / first) as usize).clamp(least, most);
            let until = if visit == 0 { wanted.div_ceil(2) } else { wanted };
            while times[k].len() < until {
                times[k].push(1e3 * solve(counts[k])?);
            }
        }
    }
    Ok(counts.iter().zip(times).map(|(&lanes, times)| LaneTime::of(lanes, times)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_visited_twice_and_warms_up_each_time() {
        let effort = Effort { least: 6, most: 9, seconds: 0.0 };
        let mut calls: Vec<usize> = Vec::new();

        let times = measure(&[1, 2, 8], effort, &mut |lanes| {
            // The first solution after a change of the number of lanes is slow.
            let warm = calls.last() == Some(&lanes);
            calls.push(lanes);
            Ok(if warm { 1e-3 * lanes as f64 } else { 1.0 })
        })
        .unwrap();

        assert_eq!(times.iter().map(|t| t.lanes).collect::<Vec<_>>(), [1, 2, 8]);
        for time in times {
            assert!((time.median / time.lanes as f64 - 1.0).abs() < 1e-12 && time.min == time.median);
            let visits = calls.chunk_by(|a, b| a == b).filter(|c| c[0] == time.lanes).count();
            // The last count of one round may be the first of the next.
            assert!((1..=2).contains(&visits), "{calls:?}");
            // One warm-up per visit, and six solutions that count.
            assert_eq!(calls.iter().filter(|l| **l == time.lanes).count(), 8);
        }
    }

    #[test]
    fn time_decides_between_the_fewest_and_the_most() {
        let count = |seconds: f64, effort: Effort| {
            let mut calls = 0;
            measure(&[1], effort, &mut |_| {
                calls += 1;
                Ok(seconds)
            })
            .unwrap();
            calls - 2
        };
        let effort = Effort { least: 2, most: 11, seconds: 1.0 };

        assert_eq!([10.0, 0.2, 1e-6].map(|seconds| count(seconds, effort)), [2, 5, 11]);
    }
}
