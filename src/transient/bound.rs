//! What rounding can do to a step, proved.
//!
//! A step computes s = Σ r x (k terms, fused, columns ascending), s' = s − E x, y = x + s'/α. With u the unit
//! roundoff, the standard model of rounding gives for each row i
//!
//! |ŷ − y| ≤ u (k + 1) Σ_j r_ji |x_j| / α + u (Σ_j r_ji |x_j| + E_i |x_i|) / α + u |y|
//!
//! to first order; where products are not fused each term rounds once more, which the constants below cover.
//! Summed over rows, the l1 error of a step is at most Σ_j |x_j| g_j with
//!
//! g_j = u (Σ_i r_ji (k_i + 3) / α + 6 E_j / α + 3) + |Ê_j − E_j| / α + Σ_i |r̂_ji − r_ji| / α,
//!
//! hats marking stored numbers. Since P is an l1 contraction, errors of different steps add, and N steps err by
//! at most N max_j g_j.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::chain::{Transitions, exit_rate};
use crate::Result;
use crate::kernel::{Precision, Real};
use crate::lane::Lane;
use crate::lane::cpu::expect_memory;
use crate::ranks::Ranks;

/// What the solver must know of the transitions before it can build them: one pass over all of them.
#[derive(Debug, Clone)]
pub struct Survey<T> {
    /// The rows that this rank knows, at first its own: whole blocks.
    pub rows: Range<usize>,
    /// Entries of each of them in Rᵀ.
    pub lengths: Vec<u32>,
    /// Their stored exit rates.
    pub exit: Vec<T>,
    /// Rows of every lane of all ranks; empty for a rank alone, which shares them out by the lengths.
    pub shares: Vec<Range<usize>>,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Largest exit rate.
    pub alpha: f64,
    /// 1/α as stored: at most the exact quotient, and then taken as exact, so that α is its inverse.
    pub inverse_alpha: T,
    /// Bound on the l1 error of one step.
    pub step: f64,
}

impl<T: Real> Survey<T> {
    /// αt, α being the inverse of the stored 1/α.
    pub(super) fn lambda(&self, t: f64) -> f64 {
        t / self.inverse_alpha.wide()
    }

    /// Bound on the rounding of a sum over Poisson(λ) terms with a window of `len`, weights' own rounding aside.
    pub(super) fn rounding(&self, lambda: f64, len: u64) -> f64 {
        let u = T::PRECISION.unit_roundoff();
        // Steps; the initial vector and each weight as stored; each addition to a partial sum of mass ≤ 1; and λ
        // itself, whose relative error is at most 2⁻⁵²: the weights then move by 2 max_k p_k(λ) ≤ 2/√(2eλ) per unit.
        let drift = f64::EPSILON * lambda * 2.0 / (2.0 * std::f64::consts::E * lambda.max(1e-300)).sqrt();
        self.step * lambda + 2.0 * u + u * len as f64 + drift
    }
}

/// Makes sure, before all states are looked at, that there is room for what every run needs: on the host the lengths,
/// the exit rates and a probability a state; on the lanes, one of which has an even share of the states or more, the
/// exit rates and two iterates.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where there is not.
pub fn expect_room<T: Real>(lanes: &[Lane], transitions: &dyn Transitions, ranks: Ranks) -> Result<()> {
    let n = (transitions.states() / ranks.size()) as u64;
    let (what, number) = (format!("a chain of {n} states"), T::PRECISION.bytes());
    if let [lane, ..] = lanes {
        lane.expect_room(&what, 3 * number * n / lanes.len() as u64)?;
    }
    expect_memory(n * (4 + 8 + number), || what)
}

/// Rows that a thread looks at in one go.
const ROWS: usize = 4096;

/// Entries of some rows of Rᵀ.
pub(super) fn lengths(transitions: &dyn Transitions, rows: Range<usize>) -> Vec<u32> {
    let mut lengths = vec![0u32; rows.len()];
    lengths.par_chunks_mut(ROWS).enumerate().for_each_init(Vec::new, |row, (chunk, lengths)| {
        for (i, length) in lengths.iter_mut().enumerate() {
            row.clear();
            transitions.incoming(rows.start + chunk * ROWS + i, row);
            *length = row.len() as u32;
        }
    });
    lengths
}

/// The diagonal of a column: minus the sum of its stored rates, so that single precision loses no mass to the rounding
/// of rates. `exact` is the sum of the rates as given.
fn diagonal_of<T: Real>(row: &[(u32, f64)], exact: f64) -> T {
    T::of(match T::PRECISION {
        Precision::F32 => exit_rate(row.iter().map(|&(_, r)| T::of(r).wide())),
        Precision::F64 => exact,
    })
}

impl<T: Real> Survey<T> {
    /// Gets to know all rows of `hull`, which includes those that are known.
    pub(super) fn widen(&mut self, transitions: &dyn Transitions, hull: Range<usize>) {
        let exits = |rows: Range<usize>| -> Vec<T> {
            let one = |row: &mut Vec<(u32, f64)>, state: usize| {
                row.clear();
                transitions.outgoing(state, row);
                diagonal_of(row, exit_rate(row.iter().map(|&(_, r)| r)))
            };
            rows.into_par_iter().with_min_len(ROWS).map_init(Vec::new, one).collect()
        };
        let (before, after) = (hull.start..self.rows.start, self.rows.end..hull.end);
        self.lengths.splice(0..0, lengths(transitions, before.clone()));
        self.lengths.extend(lengths(transitions, after.clone()));
        self.exit.splice(0..0, exits(before));
        self.exit.extend(exits(after));
        self.rows = hull;
    }
}

/// Entries of rows of other ranks.
struct Abroad {
    /// Ascending.
    states: Vec<u32>,
    lengths: Vec<u32>,
}

impl Abroad {
    /// Of the states that some rows' transitions lead to, of a chain of which each rank knows its rows alone. `lengths`
    /// are those of this rank's. Every rank calls this at once.
    fn new(transitions: &dyn Transitions, rows: &Range<usize>, lengths: &[u32], ranks: Ranks) -> Self {
        let marks: Vec<AtomicU64> =
            (0..transitions.states().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        (0..rows.len().div_ceil(ROWS)).into_par_iter().for_each(|chunk| {
            let first = rows.start + chunk * ROWS;
            transitions.each_outgoing(first..(first + ROWS).min(rows.end), &mut |_, row| {
                for &(to, _) in row.iter().filter(|&&(to, _)| !rows.contains(&(to as usize))) {
                    let (mark, bit) = (&marks[to as usize / 64], 1 << (to % 64));
                    // Most are met more than once.
                    if mark.load(Ordering::Relaxed) & bit == 0 {
                        mark.fetch_or(bit, Ordering::Relaxed);
                    }
                }
            });
        });
        let mut states = Vec::new();
        for (first, mark) in (0u32..).step_by(64).zip(&marks) {
            let mut bits = mark.load(Ordering::Relaxed);
            while bits != 0 {
                states.push(first + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        let ends = ranks.all(&[rows.end as u64]).concat();
        let mut wanted = vec![Vec::new(); ranks.size()];
        states.iter().for_each(|&state| {
            wanted[ends.partition_point(|&end| end <= u64::from(state))].push(state);
        });
        let answer = |asked: Vec<u32>| {
            asked.into_iter().map(|state| lengths[state as usize - rows.start]).collect::<Vec<u32>>()
        };
        let lengths = ranks.trade(ranks.trade(wanted).into_iter().map(answer).collect()).concat();
        Self { states, lengths }
    }

    fn length(&self, state: u32) -> u32 {
        let place = self.states.binary_search(&state).expect("some row leads there");
        self.lengths[place]
    }
}

/// Surveys the transitions for a run in precision `T`.
pub fn survey<T: Real>(transitions: &dyn Transitions) -> Survey<T> {
    survey_rows(transitions, 0..transitions.states(), Ranks::ALONE)
}

/// The same where every rank looks at its own rows alone.
pub(super) fn survey_rows<T: Real>(
    transitions: &dyn Transitions,
    rows: Range<usize>,
    ranks: Ranks,
) -> Survey<T> {
    let lengths = lengths(transitions, rows.clone());
    let abroad = match ranks.several() && !transitions.whole() {
        true => Some(Abroad::new(transitions, &rows, &lengths, ranks)),
        false => None,
    };
    let single = T::PRECISION == Precision::F32;
    let u = T::PRECISION.unit_roundoff();
    let mut exit = vec![T::ZERO; rows.len()];
    // (largest exit rate, largest u·(…)·α + errors of storage): the parts of g_j that 1/α multiplies.
    let (stored, exact, scaled, diagonal) = exit
        .par_chunks_mut(ROWS)
        .enumerate()
        .map_init(Vec::new, |other, (chunk, exit)| {
            let mut length = |to: usize| match (rows.contains(&to), &abroad) {
                (true, _) => f64::from(lengths[to - rows.start]),
                (false, Some(abroad)) => f64::from(abroad.length(to as u32)),
                (false, None) => {
                    other.clear();
                    transitions.incoming(to, other);
                    other.len() as f64
                }
            };
            let (mut stored, mut exact_largest, mut scaled, mut diagonal) = (0.0f64, 0.0f64, 0.0f64, 0u64);
            let first = rows.start + chunk * ROWS;
            transitions.each_outgoing(first..first + exit.len(), &mut |state, row| {
                let out = &mut exit[state - first];
                let exact = exit_rate(row.iter().map(|&(_, r)| r));
                *out = diagonal_of(row, exact);
                let rows: f64 = row.iter().map(|&(to, r)| r * (length(to as usize) + 3.0)).sum();
                let storage: f64 = match single {
                    true => row.iter().map(|&(_, r)| (T::of(r).wide() - r).abs()).sum(),
                    false => 0.0,
                };
                let own = (out.wide() - exact).abs() + 2.0 * f64::EPSILON * exact;
                stored = stored.max(out.wide());
                exact_largest = exact_largest.max(exact);
                scaled = scaled.max(u * (rows + 6.0 * exact) + storage + own);
                diagonal += u64::from(exact > 0.0);
            });
            (stored, exact_largest, scaled, diagonal)
        })
        .reduce(|| (0.0, 0.0, 0.0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1), a.2.max(b.2), a.3 + b.3));

    let [stored, exact, scaled] = [stored, exact, scaled].map(|largest| ranks.most(largest));
    let inverse_alpha = inverse_below::<T>(stored);
    let nnz = ranks.sum(lengths.par_iter().map(|&l| u64::from(l)).sum::<u64>() + diagonal);
    // The bound itself was computed with a few roundings; a thousandth more covers them and second-order terms.
    let step = 1.001 * (scaled * inverse_alpha.wide() + 3.0 * u);
    Survey { rows, lengths, exit, shares: Vec::new(), nnz, alpha: exact, inverse_alpha, step }
}

/// The largest number of the precision that is at most 1/rate; 0 for a rate of 0.
fn inverse_below<T: Real>(rate: f64) -> T {
    if rate == 0.0 {
        return T::ZERO;
    }
    let mut inverse = T::of(1.0 / rate);
    // The fused product has the exact sign of inverse·rate − 1.
    while inverse.wide().mul_add(rate, -1.0) > 0.0 {
        inverse = T::of(inverse.wide() * (1.0 - 1.5 * T::PRECISION.unit_roundoff()));
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_inverse_never_exceeds_the_exact_one() {
        for rate in [3.0, 26.0, 53.8, 49.0, 1e-300, 7e100, 0.1, 201.0] {
            let inverse = inverse_below::<f64>(rate);

            assert!(inverse.mul_add(rate, -1.0) <= 0.0, "{rate}");
            assert!(inverse * rate > 1.0 - 4.0 * f64::EPSILON, "{rate}");
        }
        let single = inverse_below::<f32>(3.0);
        assert!(single.wide() * 3.0 <= 1.0 && single.wide() * 3.0 > 1.0 - 3e-7);
    }
}
