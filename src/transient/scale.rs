//! Built-in chains beyond any machine: what they would take on many ranks, from smaller ones of the same family.
//!
//! States are numbered in 32 bits, and the transitions of 10¹¹ states are not worth looking at to say how many they
//! are. In a family of chains with one size p, states and transitions are polynomials in p of degree 2 at most; what a
//! rank reads of others, where it has more rows than it reads, and the exit rates grow in proportion to p. Four small
//! sizes give the polynomials, and a check of them.

use std::ops::Range;

use rayon::prelude::*;

use super::bound::{Survey, survey};
use super::capacity::{self, Look, ManyRanks, Need, expect_somebody, look, predicted};
use super::hops;
use super::region::Region;
use super::solve::{Options, Problem};
use crate::kernel::{Precision, Real};
use crate::lane::Lane;
use crate::models::{self, Family};
use crate::sparse::BLOCK;
use crate::transient::Initial;
use crate::{Error, Result};

/// A rank that is looked at has this part of a small chain.
const PARTS: usize = 3;
/// How much is read across a cut depends on where it lies among the n/p states that one more of the size adds; so many
/// places are tried, and the worst counts.
const PLACES: usize = 24;
/// Relative error of a number of the fourth size, found from the others, above which nothing is predicted.
const AGREE: f64 = 0.05;

/// A chain that no process has seen.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Scale {
    /// Its name.
    pub model: String,
    /// Number of states.
    pub n: u64,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Uniformization rate.
    pub alpha: f64,
    /// Multiplications, at most; none for a steady state.
    pub terms: Option<u64>,
    /// Sizes that were looked at.
    pub from: Vec<String>,
    /// What ranks would have to do.
    pub ranks: ManyRanks,
}

/// What was seen of a small chain.
struct Seen<T> {
    size: u64,
    survey: Survey<T>,
    middle: Look,
    /// What a rank reads of those before it, and of those behind it.
    before: Read,
    behind: Read,
    /// What the first rank and the last read, which may be one another's in a ring.
    ends: [Read; 2],
}

/// Values that a rank reads, and how far from its rows they lie.
#[derive(Debug, Clone, Copy, Default)]
struct Read {
    halo: f64,
    reach: f64,
}

impl Read {
    fn most(self, other: Self) -> Self {
        Self { halo: self.halo.max(other.halo), reach: self.reach.max(other.reach) }
    }

    fn and(self, other: Self) -> Self {
        Self { halo: self.halo + other.halo, reach: self.reach + other.reach }
    }
}

impl<T> Seen<T> {
    /// What the first, the last or any other of many ranks reads.
    fn read(&self, place: Place) -> Read {
        match place {
            Place::First => self.behind.most(self.ends[0]),
            Place::Last => self.before.most(self.ends[1]),
            Place::Between => self.before.and(self.behind),
        }
    }
}

/// Where a rank's rows lie.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    First,
    Between,
    Last,
}

/// Predicts the run of a family's chain on `count` ranks, each with a lane like the first of these. An exchange is
/// measured between the ranks, or else the lanes, that there are.
///
/// # Errors
/// If there is nobody to measure an exchange with; if small chains of the family do not tell what a large one takes.
pub fn predict(
    lanes: &[Lane],
    precision: Precision,
    family: &Family,
    times: &[f64],
    options: &Options,
    count: usize,
) -> Result<Scale> {
    match precision {
        Precision::F32 => predict_in::<f32>(lanes, family, times, options, count),
        Precision::F64 => predict_in::<f64>(lanes, family, times, options, count),
    }
}

fn predict_in<T: Real>(
    lanes: &[Lane],
    family: &Family,
    times: &[f64],
    options: &Options,
    count: usize,
) -> Result<Scale> {
    let (lane, real, ranks) = (&lanes[0], T::PRECISION.bytes(), options.split.ranks);
    let n = family.states(family.size);
    if count == 0 || count as u128 > n.div_ceil(BLOCK as u128) || n > u128::from(u64::MAX) {
        return Err(Error::Invalid(format!(
            "--ranks {count}: {} has {n} states, in blocks of {BLOCK}; give 1 to as many ranks as there are blocks",
            family.name
        )));
    }
    expect_somebody(lanes, ranks)?;
    let swap = hops::measure(lanes, ranks)?;
    let bandwidth = lane.bandwidth()?;
    let mut seen = Vec::new();
    for size in family.samples {
        seen.push(see::<T>(lane, family, size, options)?);
    }
    let fits = |what: &str, of: &dyn Fn(&Seen<T>) -> f64, degree: usize| -> Result<f64> {
        let points: Vec<(f64, f64)> = seen.iter().map(|s| (s.size as f64, of(s))).collect();
        let (last, before) = points.split_last().expect("four sizes");
        let known = &before[before.len() - degree - 1..];
        let (guess, real) = (through(known, last.0), last.1);
        if (guess - real).abs() > AGREE * real.abs() + 2.0 {
            return Err(Error::Invalid(format!(
                "{}: the {what} of small chains of the family do not tell those of a large one ({guess} from three, {real} \
                 in the fourth); ask for a chain that can be looked at, of at most 4294967294 states",
                family.name
            )));
        }
        Ok(through(&points[points.len() - degree - 1..], family.size as f64))
    };
    let n = n as u64;
    // Sums of squares of sizes below 2⁶⁴ are not exact as doubles; states are counted exactly.
    let nnz = fits("transitions", &|s| s.survey.nnz as f64, 2)?;
    let alpha = fits("exit rates", &|s| s.survey.alpha, 1)?;
    let entries_a_row = (nnz - n as f64) / n as f64;
    let mut sample = vec![0, count / 2, count - 1];
    sample.dedup();
    let mut looked = Vec::new();
    for rank in sample {
        let blocks = n.div_ceil(BLOCK as u64);
        let cut =
            |rank: usize| ((u128::from(blocks) * rank as u128 / count as u128) as u64 * BLOCK as u64).min(n);
        let rows = cut(rank + 1) - cut(rank);
        let place = match rank {
            0 => Place::First,
            r if r + 1 == count => Place::Last,
            _ => Place::Between,
        };
        let (mut halo, mut reach) = (0.0, 0.0);
        if count > 1 {
            halo = fits("values that ranks exchange", &|s| s.read(place).halo, 1)?;
            reach = fits("distances of states that ranks exchange", &|s| s.read(place).reach, 1)?;
        }
        let entries = entries_a_row * rows as f64;
        let halo = halo.min((n - rows) as f64).min(entries).max(0.0) as usize;
        // Bytes of the matrix are those of the rows in the middle of the largest chain that was looked at.
        let known = &seen[seen.len() - 1].middle.need;
        let matrix = known.matrix as f64 / known.rows as f64 * rows as f64;
        let need = Need {
            rows: rows as usize,
            entries: entries as u64,
            matrix: matrix as u64,
            vectors: (3 * rows + 2 * halo as u64) * real,
            ..known.clone()
        };
        let bytes = entries * (real + 4) as f64 + 5.0 * rows as f64 * real as f64;
        let look = Look { need, halo, reach: reach.max(0.0) as usize, bytes };
        let work = look.work(bandwidth, real);
        looked.push((rank, look, work));
    }
    // What rounding does to a step depends on the rows that there are, not on how many.
    let mut large = seen.swap_remove(seen.len() - 1).survey;
    large.alpha = alpha;
    large.inverse_alpha = T::of(1.0 / alpha);
    let one = models::parse(&family.spec(family.samples[0])).expect("a built-in")?;
    let problem = Problem {
        transitions: &*one.transitions,
        initial: &Initial::State(0),
        times,
        rewards: &[],
        vectors: true,
    };
    Ok(Scale {
        model: family.name.clone(),
        n,
        nnz: nnz as u64,
        alpha,
        terms: capacity::terms(&large, &problem, options),
        from: family.samples.iter().map(|&size| family.spec(size)).collect(),
        ranks: predicted(looked, count, swap, options),
    })
}

fn see<T: Real>(lane: &Lane, family: &Family, size: u64, options: &Options) -> Result<Seen<T>> {
    let model = models::parse(&family.spec(size)).expect("a built-in")?;
    let (chain, n) = (&*model.transitions, model.transitions.states());
    let share = n / PARTS;
    let whole = |row: usize| row / BLOCK * BLOCK;
    // Counted apart before and behind the rows.
    let read = |rows: Range<usize>| -> [Read; 2] {
        let Region { halo, .. } = Region::new(chain, 0, rows.clone());
        let before = halo.partition_point(|&state| (state as usize) < rows.start);
        let far = |reach: Option<usize>| reach.unwrap_or(0) as f64;
        let first = halo.first().filter(|_| before > 0).map(|&state| rows.start - state as usize);
        let last = halo.last().filter(|_| before < halo.len()).map(|&state| state as usize + 1 - rows.end);
        [
            Read { halo: before as f64, reach: far(first) },
            Read { halo: (halo.len() - before) as f64, reach: far(last) },
        ]
    };
    let (mut before, mut behind) = (Read::default(), Read::default());
    let at = |place: usize| share + n * place / (PLACES * size as usize);
    for [left, right] in lane.host(|| {
        (0..PLACES).into_par_iter().map(|place| read(at(place)..at(place) + share)).collect::<Vec<_>>()
    }) {
        (before, behind) = (before.most(left), behind.most(right));
    }
    let ends = [0..share, n - share..n].map(|rows| {
        let [left, right] = read(rows);
        left.and(right)
    });
    let middle = look::<T>(lane, chain, whole(share)..whole(2 * share), options)?;
    Ok(Seen { size, survey: lane.host(|| survey::<T>(chain)), middle, before, behind, ends })
}

/// The value at x of the polynomial through some points (Lagrange).
fn through(points: &[(f64, f64)], x: f64) -> f64 {
    let weight = |i: usize| -> f64 {
        let others = points.iter().enumerate().filter(|(j, _)| *j != i);
        others.map(|(_, other)| (x - other.0) / (points[i].0 - other.0)).product()
    };
    points.iter().enumerate().map(|(i, point)| point.1 * weight(i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{DeviceSpec, OpenOptions, open};
    use crate::sparse::MatrixFormat;

    #[test]
    fn a_parabola_is_found_again() {
        let at = |x: f64| 2.0 * x * x - 3.0 * x + 5.0;
        let points: Vec<(f64, f64)> = [3.0, 7.0, 9.0].map(|x| (x, at(x))).into();

        assert!((through(&points, 1000.0) / at(1000.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn small_chains_tell_what_looking_at_a_large_one_does() {
        let options = OpenOptions { precision: Some(Precision::F64), ..OpenOptions::default() };
        let (lanes, precision) = open(&[DeviceSpec::Cpu, DeviceSpec::Cpu], &options).unwrap();
        let options = Options { format: MatrixFormat::Hyb, ..Options::default() };
        for spec in
            ["wlan:40,6", "wlan:90,3", "tandem:700", "birth-death:900000,1,2", "circulant:900000,-3,1,40"]
        {
            let model = models::parse(spec).unwrap().unwrap();
            let problem = Problem {
                transitions: &*model.transitions,
                initial: &Initial::State(0),
                times: &[3.0],
                rewards: &[],
                vectors: true,
            };
            let family = models::family(spec).unwrap().unwrap();
            for count in [1, 4, 7] {
                let known = capacity::many(&lanes, precision, &problem, &options, count).unwrap();
                let found = predict(&lanes, precision, &family, &[3.0], &options, count).unwrap();

                assert_eq!(found.n, model.transitions.states() as u64, "{spec}");
                let near = |what: &str, a: u64, b: u64, within: f64| {
                    let (a, b) = (a as f64, b as f64);
                    assert!((a - b).abs() <= within * b + 600.0, "{spec} on {count}: {what}: {a}, not {b}");
                };
                for (found, known) in found.ranks.ranks.iter().zip(&known.ranks) {
                    assert_eq!((found.rank, found.need.rows), (known.rank, known.need.rows), "{spec}");
                    // Rows at an end of the chain are shorter than those in its middle.
                    near("entries", found.need.entries, known.need.entries, 0.03);
                    // The worst place of a cut, and the one that it has, which may read half as much.
                    let (most, halo) = (found.halo as f64, known.halo as f64);
                    assert!(
                        (0.4 * most..=1.02 * most + 2.0).contains(&halo),
                        "{spec} on {count}: {halo} of {most}"
                    );
                    near("memory", found.need.total(), known.need.total(), 0.04);
                }
                let survey = survey::<f64>(&*model.transitions);
                near("nnz", found.nnz, survey.nnz, 1e-6);
                assert!((found.alpha / survey.alpha - 1.0).abs() < 1e-9, "{spec}: {}", found.alpha);
                assert_eq!(found.terms, capacity::terms(&survey, &problem, &options), "{spec}");
            }
        }
    }

    #[test]
    fn a_hundred_thousand_million_states_are_predicted() {
        let (lanes, precision) = open(&[DeviceSpec::Cpu, DeviceSpec::Cpu], &OpenOptions::default()).unwrap();
        let family = models::family("wlan:10750,6").unwrap().unwrap();

        let found = predict(&lanes, precision, &family, &[1.0], &Options::default(), 1000).unwrap();

        // 6M² + 12M + 4 with M = 2·10750·6.
        assert_eq!(found.n, 6 * 129_000 * 129_000 + 12 * 129_000 + 4);
        let middle = &found.ranks.ranks[1];
        assert_eq!(middle.rank, 500);
        assert!(middle.need.rows.abs_diff(found.n as usize / 1000) < 256);
        assert!(middle.halo > 129_000 && middle.step > 0.0, "{middle:?}");
    }
}
