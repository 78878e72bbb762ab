//! Choice of the lane count: predicted times per number of lanes, and the smallest number close to
//! the minimum.
//!
//! # Forms
//! Let T(n, s) be the time on s lanes. The gain T(n, 1) − T(n, s) is modelled by
//!
//! a (1 − 1/s) + b n (1 − 1/s) − c (√s − 1) − d (s − 1) − e \[s > 1\], a, b, c, d, e ≥ 0,
//!
//! or by some of these terms. The gain is zero for one lane, and one regime covers all sizes. The
//! coefficients are fitted by least squares with weights 1/T(n, 1), since the relative error
//! matters. T(n, 1) itself is interpolated between measurements. Two tables without parameters and
//! the model of [`overlap`] are further candidates.
//!
//! # Which form
//! Each size is left out once. Each form is fitted to the other sizes and chooses a lane count for
//! the omitted one. The regret is the additional time relative to the best measured lane count.
//! Forms that miss fewer sizes ([`missed`]) come first, then those with a smaller mean regret. Of
//! forms with mean regrets that differ by less than [`TIE`], the one with fewer parameters is
//! chosen.

use serde::{Deserialize, Serialize};

use super::overlap::{self, OverlapModel};
use super::regression::non_negative;
use super::{FEWEST_SIZES, SizeTimes};

/// Mean regrets that differ by less than this are regarded as equal.
pub const TIE: f64 = 1e-3;

/// Minimum relative reduction of the time that justifies more lanes.
pub const MARGIN: f64 = 0.01;

/// Upper limit to which timing noise raises [`MARGIN`] in the comparison with one lane.
pub const LARGEST_MARGIN: f64 = 0.03;

/// True if a choice takes more than 5 % and 20 µs longer than the best one.
pub fn missed(chosen: f64, best: f64) -> bool {
    chosen > 1.05 * best && chosen > best + 0.020
}

/// Form of the prediction for the time on several lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Terms a, b and d (module docs): the cost is proportional to the number of lanes.
    Linear,
    /// Terms a, b and c (module docs): the cost grows with the square root of the number of lanes.
    Root,
    /// All five terms (module docs).
    FiveTerms,
    /// The model of [`overlap`].
    Overlap,
    /// Ratio of the times on s lanes and on one, at the nearest measured size.
    Nearest,
    /// Ratio of the times on s lanes and on one, linear in log n between measured sizes n.
    Interpolated,
}

impl Form {
    /// All forms; the first counts among those with tied regret and equally many parameters.
    pub const ALL: [Self; 6] =
        [Self::Linear, Self::Root, Self::FiveTerms, Self::Overlap, Self::Nearest, Self::Interpolated];

    /// Description for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "gain less a cost per lane",
            Self::Root => "gain less a cost per root of lanes",
            Self::FiveTerms => "gain less three costs",
            Self::Overlap => "Veneva and Imamura 2024",
            Self::Nearest => "table, nearest size",
            Self::Interpolated => "table, interpolated",
        }
    }

    /// Number of parameters, for measurements of `sizes` sizes.
    fn parameters(self, sizes: usize) -> usize {
        match self {
            Self::Linear | Self::Root => 3,
            Self::FiveTerms => 5,
            Self::Overlap => 8,
            Self::Nearest | Self::Interpolated => 8.max(sizes),
        }
    }

    /// Indices of the terms a … e (module docs) that this form uses.
    fn terms(self) -> &'static [usize] {
        match self {
            Self::Linear => &[0, 1, 3],
            Self::Root => &[0, 1, 2],
            Self::FiveTerms => &[0, 1, 2, 3, 4],
            _ => &[],
        }
    }
}

/// Terms of the gain with their signs; n is counted in millions.
fn terms(n: usize, lanes: usize) -> [f64; 5] {
    let s = lanes as f64;
    let hidden = 1.0 - 1.0 / s;
    [hidden, n as f64 * 1e-6 * hidden, 1.0 - s.sqrt(), 1.0 - s, if lanes > 1 { -1.0 } else { 0.0 }]
}

/// Milliseconds that `lanes` lanes save over one, from the coefficients (a, b, c, d, e). The unit
/// of b is milliseconds per million rows.
pub fn gain(coefficients: &[f64; 5], n: usize, lanes: usize) -> f64 {
    terms(n, lanes).iter().zip(coefficients).map(|(t, c)| t * c).sum()
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

/// All lane counts that were measured for any size.
fn counts(sizes: &[SizeTimes]) -> Vec<usize> {
    let mut counts: Vec<usize> =
        sizes.iter().flat_map(|size| size.runs.iter().map(|run| run.lanes)).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Regrets of a form (module docs): additional times of its choices at sizes left out of its fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Form that was fitted.
    pub form: Form,
    /// Mean regret T(chosen) / T(best) − 1 over the sizes; T is the time on a number of lanes.
    pub mean_regret: f64,
    /// Maximum regret T(chosen) / T(best) − 1 over the sizes; T is the time on a number of lanes.
    pub worst_regret: f64,
    /// Number of sizes at which the choice takes more than 5 % and 20 µs longer than the best one.
    pub missed: usize,
}

/// Chosen form for the lane counts of a device, with its coefficients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Form with the fewest misses, then the smallest mean regret (module docs).
    pub form: Form,
    /// Coefficients a, b (per million rows), c, d, e in milliseconds; zero if the form does not use
    /// them.
    pub coefficients: [f64; 5],
    /// Coefficients of the [`overlap`] model; `None` if another form is chosen.
    pub overlap: Option<OverlapModel>,
    /// All forms that could be fitted.
    pub candidates: Vec<Candidate>,
}

impl Choice {
    /// Fits every form to `sizes`, which ascend, and chooses one by its regret (module docs).
    /// `None` for fewer than [`FEWEST_SIZES`] sizes.
    pub fn fit(sizes: &[SizeTimes]) -> Option<Self> {
        assert!(sizes.is_sorted_by(|a, b| a.n < b.n), "sizes ascend, each once");
        if sizes.len() < FEWEST_SIZES {
            return None;
        }
        let candidates: Vec<Candidate> =
            Form::ALL.into_iter().filter_map(|form| leave_one_out(form, sizes)).collect();
        let fewest = candidates.iter().map(|c| c.missed).min()?;
        let able = || candidates.iter().filter(|c| c.missed == fewest);
        let least = able().map(|c| c.mean_regret).fold(f64::INFINITY, f64::min);
        let rank = |c: &&Candidate| c.form.parameters(sizes.len());
        let form = able().filter(|c| c.mean_regret <= least + TIE).min_by_key(rank)?.form;
        Some(Self { candidates, ..Self::of(form, sizes)? })
    }

    /// Fits a form to `sizes`, which ascend; `None` if it cannot be fitted.
    fn of(form: Form, sizes: &[SizeTimes]) -> Option<Self> {
        let overlap = match form {
            Form::Overlap => Some(overlap::fit(sizes)?.model),
            _ => None,
        };
        let mut coefficients = [0.0; 5];
        let used = form.terms();
        if !used.is_empty() {
            let (mut rows, mut y) = (Vec::new(), Vec::new());
            for size in sizes {
                for run in &size.runs[1..] {
                    let terms = terms(size.n, run.lanes);
                    rows.push(used.iter().map(|&k| terms[k] / size.one_lane()).collect());
                    y.push((size.one_lane() - run.median) / size.one_lane());
                }
            }
            let c = non_negative(&rows, &y);
            used.iter().zip(c).for_each(|(&k, c)| coefficients[k] = c);
        }
        Some(Self { form, coefficients, overlap, candidates: Vec::new() })
    }

    /// Smallest lane count for `n` rows with a time close to the minimum. `sizes` must be the
    /// measurements of [`Choice::fit`].
    pub fn lanes(&self, sizes: &[SizeTimes], n: usize) -> usize {
        let counts = counts(sizes);
        let times: Vec<f64> = counts.iter().map(|&lanes| self.predicted(sizes, n, lanes)).collect();
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let (low, high, share) = around(sizes, n);
        let near = if share < 0.5 { low } else { high };
        let noise = 2.0 * near.runs[0].error / near.one_lane();
        for (&lanes, &time) in counts.iter().zip(&times) {
            let margin = if lanes == 1 { noise.clamp(MARGIN, LARGEST_MARGIN) } else { MARGIN };
            // A prediction may be negative far from all measurements.
            if time <= least + margin * least.abs() {
                return lanes;
            }
        }
        unreachable!("the least time is close to itself")
    }

    /// Predicted milliseconds for `n` rows; `None` for a number of lanes that was not measured.
    pub fn time(&self, sizes: &[SizeTimes], n: usize, lanes: usize) -> Option<f64> {
        let time = self.predicted(sizes, n, lanes);
        (counts(sizes).contains(&lanes) && time.is_finite()).then_some(time)
    }

    /// Predicted milliseconds; infinite if a table has no measurement.
    fn predicted(&self, sizes: &[SizeTimes], n: usize, lanes: usize) -> f64 {
        let (one, (low, high, share)) = (one_lane(sizes, n), around(sizes, n));
        let ratio = |size: &SizeTimes| size.time(lanes).map_or(f64::INFINITY, |t| t / size.one_lane());
        match self.form {
            _ if lanes == 1 => one,
            Form::Overlap => one - self.overlap.as_ref().map_or(0.0, |model| model.gain(n, lanes)),
            Form::Nearest => one * ratio(if share < 0.5 { low } else { high }),
            Form::Interpolated => {
                let (low, high) = (ratio(low), ratio(high));
                // If only one of the sizes was measured with this count, its ratio is used.
                let (low, high) =
                    (if low.is_finite() { low } else { high }, if high.is_finite() { high } else { low });
                if low.is_finite() { one * (low + (high - low) * share) } else { f64::INFINITY }
            }
            _ => one - gain(&self.coefficients, n, lanes),
        }
    }
}

fn leave_one_out(form: Form, sizes: &[SizeTimes]) -> Option<Candidate> {
    let (mut sum, mut count) = (0.0, 0);
    let mut candidate = Candidate { form, mean_regret: 0.0, worst_regret: 0.0, missed: 0 };
    for (i, size) in sizes.iter().enumerate() {
        if size.runs.len() < 2 {
            continue;
        }
        let others: Vec<SizeTimes> = [&sizes[..i], &sizes[i + 1..]].concat();
        let lanes = Choice::of(form, &others)?.lanes(&others, size.n);
        // A count that was not measured for this size is reduced to the largest one that was.
        let run = size.runs.iter().rev().find(|run| run.lanes <= lanes).unwrap_or(&size.runs[0]);
        let best = size.best().median;
        let regret = run.median / best - 1.0;
        sum += regret;
        count += 1;
        candidate.worst_regret = candidate.worst_regret.max(regret);
        candidate.missed += usize::from(missed(run.median, best));
    }
    candidate.mean_regret = sum / f64::from(u32::try_from(count).unwrap_or(u32::MAX)).max(1.0);
    Some(candidate)
}

#[cfg(test)]
mod tests {
    use super::super::published::{DIFFERENCE_2_1, DIFFERENCE_4_8, MODEL, best_lanes};
    use super::super::{LANE_COUNTS, LaneTime, StageTimes, sizes};
    use super::*;

    /// The published sum with an overhead k(√s − 1) + e. Two published differences of times give k
    /// and e.
    #[test]
    fn two_published_differences_give_all_25_measured_optima() {
        let (n, [_, _, slower]) = (500_000, DIFFERENCE_4_8);
        let k = ((0.25 - 0.125) * MODEL.sum.at(n) - slower) / (8f64.sqrt() - 2.0);
        let (n, [_, _, slower]) = (100_000, DIFFERENCE_2_1);
        let e = 0.5 * MODEL.sum.at(n) + slower - k * (2f64.sqrt() - 1.0);
        let coefficients = [MODEL.sum.intercept, MODEL.sum.slope * 1e6, k, 0.0, e];

        assert!((k - 0.167754).abs() < 5e-7 && (e - 0.122361).abs() < 5e-7, "{k} {e}");
        for row in best_lanes() {
            let gain = |&lanes: &usize| gain(&coefficients, row.n, lanes);
            let best = LANE_COUNTS.into_iter().max_by(|a, b| gain(a).total_cmp(&gain(b)));
            assert_eq!(best, Some(row.measured), "n = {}", row.n);
        }
    }

    /// Returns measurements that follow `time(n, s)`.
    fn data(time: impl Fn(f64, f64) -> f64) -> Vec<SizeTimes> {
        let size = |n: usize| SizeTimes {
            n,
            stages: StageTimes { comp_1: 1e-6 * n as f64, ..StageTimes::default() },
            runs: LANE_COUNTS
                .map(|lanes| LaneTime::of(lanes, vec![time(n as f64 * 1e-6, lanes as f64)]))
                .to_vec(),
        };
        sizes().into_iter().map(size).collect()
    }

    fn regrets(choice: &Choice, data: &[SizeTimes]) -> Vec<f64> {
        let regret =
            |size: &SizeTimes| size.time(choice.lanes(data, size.n)).unwrap() / size.best().median - 1.0;
        data.iter().map(regret).collect()
    }

    #[test]
    fn times_of_a_form_are_recognised() {
        let linear = data(|m, s| 0.1 + 20.0 * m - (1.0 - 1.0 / s) * (0.02 + 6.0 * m) + 0.015 * (s - 1.0));
        let root = data(|m, s| 0.1 + 20.0 * m - (1.0 - 1.0 / s) * (0.02 + 6.0 * m) + 0.3 * (s.sqrt() - 1.0));
        for (data, form, want) in [
            (linear, Form::Linear, [0.02, 6.0, 0.0, 0.015, 0.0]),
            (root, Form::Root, [0.02, 6.0, 0.3, 0.0, 0.0]),
        ] {
            let choice = Choice::fit(&data).unwrap();
            assert_eq!(choice.form, form);
            // Exact data, up to rounding relative to T(n, 1) ≤ 2000 ms.
            let near = |(got, want): (&f64, &f64)| (got - want).abs() < 1e-9;
            assert!(choice.coefficients.iter().zip(&want).all(near), "{choice:?}");
            assert!(regrets(&choice, &data).iter().all(|r| *r <= MARGIN), "{choice:?}");
            let time = choice.time(&data, 20_000_000, 4).unwrap();
            approx::assert_abs_diff_eq!(time / (0.1 + 400.0), 1.0, epsilon = 0.3);
            assert_eq!(choice.time(&data, 20_000_000, 64), None);
        }
    }

    #[test]
    fn times_of_no_form_are_left_to_a_table() {
        // Lanes reduce the time between 10⁵ and 10⁷ rows only.
        let odd = data(|m, s| {
            let pays = (0.1..=10.0).contains(&m);
            0.1 + m * if pays { 4.0 / s + 0.05 * s } else { 4.0 + 0.05 * s }
        });
        let choice = Choice::fit(&odd).unwrap();
        assert!(matches!(choice.form, Form::Nearest | Form::Interpolated), "{choice:?}");
        assert!(regrets(&choice, &odd).iter().all(|r| *r <= MARGIN));
        assert_eq!([10, 1_000_000, 1_000_000_000].map(|n| choice.lanes(&odd, n)), [1, 8, 1]);
    }

    #[test]
    fn lanes_that_only_cost_are_not_taken() {
        let flat = data(|m, s| 0.1 + 20.0 * m + 0.01 * (s - 1.0));
        let choice = Choice::fit(&flat).unwrap();
        assert!(sizes().into_iter().all(|n| choice.lanes(&flat, n) == 1));
        assert_eq!((choice.form, choice.candidates.len()), (Form::Linear, Form::ALL.len()));
    }

    #[test]
    fn a_gain_within_the_noise_of_one_lane_is_none() {
        for (error, lanes) in [(0.001, 2), (0.02, 1)] {
            let mut some = data(|m, s| 1.0 + m - if s > 1.0 { 0.015 * (1.0 + m) } else { 0.0 });
            some.iter_mut().for_each(|size| size.runs[0].error = error * size.runs[0].median);
            let table = Choice::of(Form::Nearest, &some).unwrap();
            assert_eq!(table.lanes(&some, 10_000), lanes, "error {error}");
        }
    }

    #[test]
    fn sizes_may_have_been_measured_on_fewer_lanes() {
        let mut some = data(|m, s| 0.1 + 20.0 * m / s.min(4.0) + 0.001 * s);
        some.iter_mut().take(6).for_each(|size| size.runs.truncate(1));
        let choice = Choice::fit(&some).unwrap();
        assert_eq!(choice.lanes(&some, 50_000_000), 4);
        some.iter_mut().for_each(|size| size.runs.truncate(2));
        for form in [Form::Nearest, Form::Interpolated] {
            let table = Choice { form, ..choice.clone() };
            assert_eq!(table.lanes(&some, 50_000_000), 2);
            assert!(table.time(&some, 50_000_000, 2).is_some() && table.time(&some, 50_000_000, 4).is_none());
        }
        assert_eq!(Choice::fit(&some[..FEWEST_SIZES - 1]), None);
    }

    /// Simulated device: milliseconds per million rows of its transfers and kernels, and per
    /// operation of a lane.
    #[derive(Clone, Copy)]
    struct Rates {
        up: f64,
        down: f64,
        kernel: f64,
        latency: f64,
        /// Number of lanes that transfer concurrently.
        wide: f64,
    }

    impl Rates {
        /// Returns milliseconds: s chunks are uploaded while the chunks before them compute. After
        /// the barrier, s chunks compute while the chunks before them are downloaded.
        fn time(self, m: f64, s: f64) -> f64 {
            let at_once = s.min(self.wide);
            let (up, down) = (self.up * m / at_once, self.down * m / at_once);
            let kernel = self.kernel * m;
            let two = |transfer: f64| transfer.max(kernel) + transfer.min(kernel) / s;
            0.03 + two(up) + two(down) + 6.0 * self.latency * s
        }
    }

    /// Factors within 1 % of 1 that resemble noise.
    fn noise(m: f64, s: f64) -> f64 {
        1.0 + 0.01 * (m * 7919.0 + s * 104_729.0).sin()
    }

    #[test]
    fn devices_of_many_kinds_miss_no_size() {
        let gpu = Rates { up: 0.58, down: 0.145, kernel: 0.02, latency: 0.004, wide: 1.0 };
        for (name, rates) in [
            ("page-locked, fast kernels", gpu),
            ("page-locked, slow kernels", Rates { kernel: 0.5, ..gpu }),
            ("copying threads", Rates { up: 2.8, down: 2.8, latency: 0.04, wide: 4.0, ..gpu }),
            ("one memory", Rates { up: 0.3, down: 0.1, kernel: 4.0, latency: 0.02, wide: 1.0 }),
        ] {
            let data = data(|m, s| rates.time(m, s) * noise(m, s));
            let choice = Choice::fit(&data).unwrap();

            for n in sizes().into_iter().flat_map(|n| [n, n / 20 * 21, n / 10 * 13]) {
                let m = n as f64 * 1e-6;
                let best = LANE_COUNTS.map(|s| rates.time(m, s as f64)).into_iter().fold(f64::MAX, f64::min);
                let chosen = rates.time(m, choice.lanes(&data, n) as f64);
                assert!(!missed(chosen, best), "{name}: n = {n}, {chosen} against {best}, {choice:?}");
            }
        }
    }

    #[test]
    fn a_miss_is_one_of_both_kinds() {
        let cases = [(1.06, 1.0), (0.121, 0.1), (1.04, 1.0), (0.119, 0.1)];
        assert_eq!(cases.map(|(chosen, best)| missed(chosen, best)), [true, true, false, false]);
    }
}
