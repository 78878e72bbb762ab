//! The rounding of a step, bounded.
//!
//! Rates are multiplied by a power of two c that brings α into [1, 2), and times divided by it, which is exact; so
//! neither sums of rates nor products of rates and probabilities leave the range of the numbers, in whatever unit
//! rates are given. In what follows they are those in that unit.
//!
//! A step computes s = Σ r x (k terms, fused, columns ascending), s' = s − E x, y = x + s'/α. With u the unit roundoff,
//! the standard model of rounding gives for each row i
//!
//! |ŷ − y| ≤ u (k + 1) Σ_j r_ji |x_j| / α + u (Σ_j r_ji |x_j| + E_i |x_i|) / α + u |y|
//!
//! to first order; where products are not fused each term rounds once more, which the constants below cover.
//! Summed over rows, the l1 error of a step is at most Σ_j |x_j| g_j with
//!
//! g_j = u (Σ_i r_ji (k_i + 3) / α + 6 E_j / α + 3) + |Ê_j − E_j| / α + Σ_i |r̂_ji − r_ji| / α,
//!
//! hats marking stored numbers. What underflows, flushed to zero or not, and what the CPU takes for 0 errs by less than
//! [`Number::NEGLIGIBLE`] in each of at most 2 nnz + 6 n operations and stored numbers. Since P is an l1 contraction, errors
//! of different steps add, and N steps err by at most N times max_j g_j and that.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::absorbing_states::Leavable;
use super::transitions::{Transitions, exit_rate};
use crate::kernel::{Number, Precision, quotient};
use crate::lane::cpu::{expect_memory, zeroed};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::transient::numerics::poisson::{Weights, Window};
use crate::{Error, Machine, Result};

/// Facts of all transitions that the solver needs before it can build the matrix, from one pass over them.
#[derive(Debug, Clone)]
pub struct MatrixStatistics<T> {
    /// The rows that this rank knows, at first its own: whole blocks.
    pub rows: Range<usize>,
    /// Entries of each of them in Rᵀ.
    pub lengths: Vec<u32>,
    /// Their stored exit rates, in the unit of `scale`.
    pub exit: Vec<T>,
    /// Those of them that can be left.
    pub leavable: Leavable,
    /// Rows of every lane of all ranks; empty for a rank alone, which shares them out by the lengths.
    pub shares: Vec<Range<usize>>,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Largest exit rate, as given.
    pub alpha: f64,
    /// Factor of all rates that are stored, a power of two: it brings α into [1, 2), unless 1/α overflows.
    pub scale: f64,
    /// 1/α in that unit as stored: at most the exact quotient, and then taken as exact, so that α is its inverse.
    pub inverse_alpha: T,
    /// Fixed point: α in that unit, which entries of the matrix are divided by exactly, chosen so that no quotient is 1.
    pub divisor: f64,
    /// Bound on the l1 error of one step.
    pub step: f64,
    /// Bound on the l1 error of rounding a vector of probabilities.
    pub vector: f64,
}

impl<T: Number> MatrixStatistics<T> {
    /// αt of a finite time above 0, α being the inverse of the stored 1/α.
    ///
    /// # Errors
    /// [`Error::Invalid`] where that is more than a window is made for: one is some ten square roots wide, and its
    /// weights are held.
    pub fn lambda(&self, t: f64) -> Result<f64> {
        // No Poisson probability is computed of less; the difference is in the bound on rounding.
        let time = t / self.scale;
        let lambda = match T::PRECISION {
            Precision::Q64 => time * self.divisor,
            _ => time / self.inverse_alpha.wide(),
        };
        let lambda = lambda.max(f64::MIN_POSITIVE);
        if lambda > MOST_ALPHA_T {
            return Err(Error::Invalid(format!(
                "time {t:e} asks for some {lambda:.1e} multiplications; at most {MOST_ALPHA_T:e} (ask for --time inf?)"
            )));
        }
        Ok(lambda)
    }

    /// The inverse of the largest stored exit rate, in the unit of time.
    pub fn mean_holding(&self) -> f64 {
        match T::PRECISION {
            Precision::Q64 => self.scale / self.divisor,
            _ => self.inverse_alpha.wide() * self.scale,
        }
    }

    /// Weights of a window at a time: in fixed point at most the exact ones.
    pub(crate) fn weights(&self, window: &Window, t: f64) -> Weights {
        match T::PRECISION {
            Precision::Q64 => {
                let lambda = window.lambda;
                window.weights_below((t / self.scale).mul_add(self.divisor, -lambda))
            }
            _ => window.weights(),
        }
    }

    /// The rounding of these weights.
    pub(crate) fn weights_rounding(&self, window: &Window) -> f64 {
        if T::PRECISION == Precision::Q64 { window.rounding_below() } else { window.rounding() }
    }

    /// Bound on the rounding of a sum over Poisson(λ) terms with a window of `len`, weights' own rounding aside, of which
    /// the last iterate is the one after `steps` steps.
    pub(crate) fn rounding(&self, lambda: f64, len: u64, steps: u64) -> f64 {
        // Steps; the initial vector and each weight as stored; each addition to a partial sum of mass ≤ 1; and λ
        // itself, whose relative error is at most 2⁻⁵²: the weights then move by 2 max_k p_k(λ) ≤ 2/√(2eλ) per unit.
        // And λ is at least the smallest normal number.
        let drift = f64::EPSILON * lambda * 2.0 / (2.0 * std::f64::consts::E * lambda.max(1e-300)).sqrt()
            + 2.0 * f64::MIN_POSITIVE;
        // E min(N, steps) ≤ min(λ, steps).
        let handed_out = if T::PRECISION == Precision::Q64 { f64::EPSILON } else { 0.0 };
        self.step * lambda.min(steps as f64)
            + 2.0 * self.vector
            + self.vector * len as f64
            + drift
            + handed_out
    }
}

/// Appends a row of the stored matrix to `entries`, each column as `place` has it.
pub(crate) fn append_entries<T: Number>(
    transitions: &dyn Transitions,
    statistics: &MatrixStatistics<T>,
    row: usize,
    place: impl Fn(u32) -> u32,
    entries: &mut Vec<(u32, T)>,
) {
    thread_local! {
        static RATES: RefCell<Vec<(u32, f64)>> = const { RefCell::new(Vec::new()) };
    }
    RATES.with_borrow_mut(|rates| {
        rates.clear();
        transitions.incoming(row, rates);
        let entry = |rate: f64| T::entry(rate * statistics.scale, statistics.divisor);
        entries.extend(rates.iter().map(|&(column, rate)| (place(column), entry(rate))));
    });
}

/// Makes sure, before all states are looked at, that there is room for what every run needs: on the host the lengths,
/// the exit rates and a probability a state; on the lanes, one of which has an even share of the states or more, the
/// exit rates and two iterates.
///
/// # Errors
/// [`Error::OutOfMemory`] where there is not.
pub fn expect_room(machine: &Machine, transitions: &dyn Transitions) -> Result<()> {
    let n = (transitions.states() / machine.ranks.size()) as u64;
    let number = machine.precision.bytes();
    let lanes = &machine.lanes;
    let share = 3 * number * n / lanes.len() as u64;
    lanes[0].expect_room(&format!("a chain of {n} states"), share)?;
    // Lanes on the host's cores have theirs from the same memory.
    let on_host = lanes.iter().filter(|lane| lane.device().on_host_cores()).count() as u64;
    expect_host_room(machine, transitions, on_host * share)
}

/// The part of [`expect_room`] that is about the host, of which lanes take so many bytes.
pub(crate) fn expect_host_room(machine: &Machine, transitions: &dyn Transitions, lanes: u64) -> Result<()> {
    expect_host_memory(transitions.states() / machine.ranks.size(), machine.precision.bytes(), lanes)
}

/// Makes sure that there is room for what a run on `n` states has on the host, beside `lanes` bytes.
pub(super) fn expect_host_memory(n: usize, number: u64, lanes: u64) -> Result<()> {
    expect_memory(n as u64 * (4 + 8 + number) + lanes, || format!("a chain of {n} states"))
}

/// Largest αt: a window's weights take some hundreds of megabytes there.
const MOST_ALPHA_T: f64 = 1e13;

/// Rows that a thread looks at in one go.
const ROWS: usize = 4096;

/// Entries of some rows of Rᵀ.
pub(crate) fn lengths(transitions: &dyn Transitions, rows: Range<usize>) -> Vec<u32> {
    let mut lengths: Vec<u32> = zeroed(rows.len());
    let repeats = transitions.repeats_among(&rows);
    repeats.places(&mut lengths, ROWS).into_par_iter().for_each_init(Vec::new, |row, (first, lengths)| {
        for (i, length) in lengths.iter_mut().enumerate() {
            row.clear();
            transitions.incoming(rows.start + first + i, row);
            *length = row.len() as u32;
        }
    });
    repeats.copy(&mut lengths);
    lengths
}

/// The diagonal of a column: minus the sum of its stored rates, so that single precision loses no mass to the rounding
/// of rates. `exact` is the sum of the rates as given.
fn diagonal_of<T: Number>(row: &[(u32, f64)], exact: f64) -> T {
    T::of(match T::PRECISION {
        Precision::F32 => exit_rate(row.iter().map(|&(_, r)| T::of(r).wide())),
        Precision::F64 | Precision::Q64 => exact,
    })
}

/// The share of a state's probability that leaves it in a step, in 2⁻⁶⁴, not less than the exact one; none where that is 1.
fn leave_of(row: impl Iterator<Item = f64>, divisor: f64) -> Option<u64> {
    let shares = row.map(|rate| match quotient(rate, divisor) {
        (share, false) if rate > 0.0 => share.into(),
        // A rate that has vanished beside α leaves a share, too.
        (share, _) => u128::from(share) + 1,
    });
    u64::try_from(shares.sum::<u128>()).ok()
}

/// α/0.9 in the place of α leaves every state a probability of staying.
pub(crate) const LAZY: f64 = 0.9;

/// The statistics in fixed point from those in double precision; `lazy` for an α of which every exit rate is at most nine
/// tenths.
fn fixed<T: Number>(
    transitions: &dyn Transitions,
    found: MatrixStatistics<f64>,
    lazy: bool,
    ranks: Ranks,
) -> Result<MatrixStatistics<T>> {
    let MatrixStatistics { rows, lengths, leavable, shares, nnz, alpha, scale, .. } = found;
    // Far enough above every exit rate for the shares of some million transitions to be rounded up.
    let divisor = alpha * scale * (1.0 + (-40f64).exp2()) / if lazy { LAZY } else { 1.0 };
    let divisor = if alpha == 0.0 { 1.0 } else { divisor };
    let mut exit: Vec<T> = zeroed(rows.len());
    let most = leaves(transitions, &rows, &mut exit, scale, divisor);
    let most = ranks.all_reduce_max(most.unwrap_or(f64::INFINITY));
    if most.is_infinite() {
        return Err(Error::Invalid(
            "a state has more than ten million transitions, whose rounding q64 has no room for; use --precision f64"
                .to_owned(),
        ));
    }
    let unit = (-64f64).exp2();
    // Each row is rounded once; of each state the shares of its transitions are, and what leaves it.
    let vector = unit * (transitions.states() as f64 + 1.0);
    let step = 1.001 * (vector + unit * 2.0 * most);
    let inverse_alpha = T::ZERO;
    Ok(MatrixStatistics {
        rows,
        lengths,
        exit,
        leavable,
        shares,
        nnz,
        alpha,
        scale,
        inverse_alpha,
        divisor,
        step,
        vector,
    })
}

/// Notes what leaves some states, and tells the most transitions of one; none where a sum has no room.
fn leaves<T: Number>(
    transitions: &dyn Transitions,
    rows: &Range<usize>,
    exit: &mut [T],
    scale: f64,
    divisor: f64,
) -> Option<f64> {
    let most = |(first, exit): (usize, &mut [T])| {
        let (first, mut most) = (rows.start + first, Some(0.0f64));
        transitions.each_outgoing(first..first + exit.len(), &mut |state, row| {
            let leave = leave_of(row.iter().map(|&(_, rate)| rate * scale), divisor);
            exit[state - first] = T::from_bits(leave.unwrap_or(u64::MAX));
            most = most.filter(|_| leave.is_some()).map(|most| most.max(row.len() as f64));
        });
        most
    };
    let repeats = transitions.repeats_among(rows);
    let most = repeats.places(exit, ROWS).into_par_iter().map(most);
    let most = most.reduce(|| Some(0.0), |a, b| Some(a?.max(b?)));
    repeats.copy(exit);
    most
}

impl<T: Number> MatrixStatistics<T> {
    /// Gets to know all rows of `hull`, which includes those that are known.
    pub(crate) fn widen(&mut self, transitions: &dyn Transitions, hull: Range<usize>) {
        let (scale, divisor) = (self.scale, self.divisor);
        let exits = |rows: Range<usize>| -> Vec<T> {
            let one = |row: &mut Vec<(u32, f64)>, state: usize| {
                row.clear();
                transitions.outgoing(state, row);
                scale_rates(row, scale);
                match T::PRECISION {
                    Precision::Q64 => {
                        let leave = leave_of(row.iter().map(|&(_, rate)| rate), divisor);
                        T::from_bits(leave.expect("every rank has looked at its own"))
                    }
                    _ => diagonal_of(row, exit_rate(row.iter().map(|&(_, r)| r))),
                }
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
struct RemoteRowLengths {
    /// Ascending.
    states: Vec<u32>,
    lengths: Vec<u32>,
}

impl RemoteRowLengths {
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
        let ends = ranks.all_gather(&[rows.end as u64]).concat();
        let mut wanted = vec![Vec::new(); ranks.size()];
        states.iter().for_each(|&state| {
            wanted[ends.partition_point(|&end| end <= u64::from(state))].push(state);
        });
        let answer = |asked: Vec<u32>| {
            asked.into_iter().map(|state| lengths[state as usize - rows.start]).collect::<Vec<u32>>()
        };
        let lengths = ranks.all_to_all(ranks.all_to_all(wanted).into_iter().map(answer).collect()).concat();
        Self { states, lengths }
    }

    fn length(&self, state: u32) -> u32 {
        let place = self.states.binary_search(&state).expect("some row leads there");
        self.lengths[place]
    }
}

/// Multiplies rates by a power of two.
pub fn scale_rates(row: &mut [(u32, f64)], scale: f64) {
    row.iter_mut().for_each(|(_, rate)| *rate *= scale);
}

/// The power of two that brings a number above 0 into [1, 2); 2¹⁰²² for what is smaller than 2⁻¹⁰²², 1 for 0.
pub(crate) fn scale_of(alpha: f64) -> f64 {
    // Exponents of doubles are biased by 1023; that of a power of two's inverse lies as far on the other side.
    let exponent = (alpha.to_bits() >> 52).max(1);
    match alpha > 0.0 {
        // 2⁻¹⁰²³ is subnormal.
        true if exponent == 2046 => f64::from_bits(1 << 51),
        true => f64::from_bits((2046 - exponent) << 52),
        false => 1.0,
    }
}

/// Surveys the transitions for a run in precision `T`.
///
/// # Errors
/// [`Error::Invalid`] for an exit rate that is no double.
pub fn statistics<T: Number>(transitions: &dyn Transitions) -> Result<MatrixStatistics<T>> {
    statistics_of_rows(transitions, 0..transitions.states(), false, Ranks::ALONE)
}

/// The same where every rank looks at its own rows alone; `lazy` where every state is to stay with some probability, and the
/// matrix says so.
pub(crate) fn statistics_of_rows<T: Number>(
    transitions: &dyn Transitions,
    rows: Range<usize>,
    lazy: bool,
    ranks: Ranks,
) -> Result<MatrixStatistics<T>> {
    if T::PRECISION == Precision::Q64 {
        return fixed(transitions, statistics_of_rows::<f64>(transitions, rows, lazy, ranks)?, lazy, ranks);
    }
    let lengths = lengths(transitions, rows.clone());
    let abroad = match ranks.is_distributed() && !transitions.is_whole() {
        true => Some(RemoteRowLengths::new(transitions, &rows, &lengths, ranks)),
        false => None,
    };
    let mut exit: Vec<T> = zeroed(rows.len());
    let mut look =
        |scale: f64| look::<T>(transitions, &rows, &lengths, abroad.as_ref(), &mut exit, scale).over(ranks);
    let mut found = look(1.0);
    let alpha = found.exact;
    if !alpha.is_finite() {
        return Err(Error::Invalid(format!(
            "a state's rates add up to more than {:e}, the largest double; give rates per a shorter unit of time",
            f64::MAX
        )));
    }
    let scale = scale_of(alpha);
    // Scaling is exact where what is stored stays clear of the ends of the range: the rule, and no second look is needed.
    let low = T::NEGLIGIBLE.wide();
    match alpha == 0.0 || (alpha * low <= 1.0 && found.least >= low && found.least * scale >= low) {
        true => {
            exit.par_iter_mut().for_each(|rate| *rate = T::of(rate.wide() * scale));
            (found.stored, found.scaled) = (found.stored * scale, found.scaled * scale);
        }
        false => found = look(scale),
    }
    let inverse_alpha = inverse_below::<T>(found.stored);
    let leavable = Leavable::new(transitions, rows.clone(), &exit, ranks);
    let entries = lengths.par_iter().map(|&l| u64::from(l)).reduce(|| 0, |a, b| a + b);
    let nnz = ranks.all_reduce_sum(entries + leavable.count());
    let u = T::PRECISION.unit_roundoff();
    // Rates that vanish beside α in that unit are among what underflows.
    let underflow = T::NEGLIGIBLE.wide() * (2 * nnz + 6 * transitions.states() as u64) as f64;
    // The bound itself was computed with a few roundings; a thousandth more covers them and second-order terms.
    let step = 1.001 * (found.scaled * inverse_alpha.wide() + 3.0 * u) + underflow;
    let shares = Vec::new();
    let divisor = 1.0;
    Ok(MatrixStatistics {
        rows,
        lengths,
        exit,
        leavable,
        shares,
        nnz,
        alpha,
        scale,
        inverse_alpha,
        divisor,
        step,
        vector: u,
    })
}

/// The findings of a look at all transitions.
#[derive(Clone, Copy)]
struct Look {
    /// Largest exit rate as stored, and exact.
    stored: f64,
    exact: f64,
    /// Smallest rate; infinity if there is none.
    least: f64,
    /// Largest u·(…)·α + errors of storage: the parts of g_j that 1/α multiplies.
    scaled: f64,
}

impl Look {
    const NOTHING: Self = Self { stored: 0.0, exact: 0.0, least: f64::INFINITY, scaled: 0.0 };

    fn and(self, other: Self) -> Self {
        Self {
            stored: self.stored.max(other.stored),
            exact: self.exact.max(other.exact),
            least: self.least.min(other.least),
            scaled: self.scaled.max(other.scaled),
        }
    }

    /// Of all ranks.
    fn over(self, ranks: Ranks) -> Self {
        let [stored, exact, scaled] =
            [self.stored, self.exact, self.scaled].map(|largest| ranks.all_reduce_max(largest));
        Self { stored, exact, scaled, least: -ranks.all_reduce_max(-self.least) }
    }
}

/// Looks at the transitions out of `rows`, their rates multiplied by `scale`, and notes exit rates.
fn look<T: Number>(
    transitions: &dyn Transitions,
    rows: &Range<usize>,
    lengths: &[u32],
    abroad: Option<&RemoteRowLengths>,
    exit: &mut [T],
    scale: f64,
) -> Look {
    let single = T::PRECISION == Precision::F32;
    let u = T::PRECISION.unit_roundoff();
    let repeats = transitions.repeats_among(rows);
    let found = repeats
        .places(exit, ROWS)
        .into_par_iter()
        .map_init(Default::default, |(other, scaled): &mut (Vec<_>, Vec<_>), (first, exit)| {
            let mut length = |to: usize| match (rows.contains(&to), abroad) {
                (true, _) => f64::from(lengths[to - rows.start]),
                (false, Some(abroad)) => f64::from(abroad.length(to as u32)),
                (false, None) => {
                    other.clear();
                    transitions.incoming(to, other);
                    other.len() as f64
                }
            };
            let mut found = Look::NOTHING;
            let first = rows.start + first;
            transitions.each_outgoing(first..first + exit.len(), &mut |state, row| {
                let row = match scale == 1.0 {
                    true => row,
                    false => {
                        scaled.clear();
                        scaled.extend_from_slice(row);
                        scale_rates(scaled, scale);
                        &scaled[..]
                    }
                };
                let out = &mut exit[state - first];
                let exact = exit_rate(row.iter().map(|&(_, r)| r));
                // Where the sum overflows its compensation is no number.
                let exact = if exact.is_nan() { f64::INFINITY } else { exact };
                *out = diagonal_of(row, exact);
                let rows: f64 = row.iter().map(|&(to, r)| r * (length(to as usize) + 3.0)).sum();
                let storage: f64 = match single {
                    true => row.iter().map(|&(_, r)| (T::of(r).wide() - r).abs()).sum(),
                    false => 0.0,
                };
                let own = (out.wide() - exact).abs() + 2.0 * f64::EPSILON * exact;
                found = found.and(Look {
                    stored: out.wide(),
                    exact,
                    least: row.iter().fold(f64::INFINITY, |least, &(_, r)| least.min(r)),
                    scaled: u * (rows + 6.0 * exact) + storage + own,
                });
            });
            found
        })
        .reduce(|| Look::NOTHING, Look::and);
    repeats.copy(exit);
    found
}

/// The largest number of the precision that is at most 1/rate, for a rate in [2⁻⁵², 4]; 0 for a rate of 0.
fn inverse_below<T: Number>(rate: f64) -> T {
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
        for rate in [1.0, 1.3, 1.9999999999999998, 2.0 / 3.0, 1e-15] {
            let inverse = inverse_below::<f64>(rate);

            assert!(inverse.mul_add(rate, -1.0) <= 0.0, "{rate}");
            assert!(inverse * rate > 1.0 - 4.0 * f64::EPSILON, "{rate}");
        }
        let single = inverse_below::<f32>(3.0);
        assert!(single.wide() * 3.0 <= 1.0 && single.wide() * 3.0 > 1.0 - 3e-7);
    }
}
