//! Matrices that are singular to working precision.
//!
//! The measure is ρ(|A⁻¹|·|A|), the least condition number of all matrices that scaling of rows and
//! columns can make of A (Bauer 1963). It is small for ill-scaled and for triangular matrices. A
//! matrix stays regular if its elements change by less than 1/ρ relatively; a singular one has ρ =
//! ∞.
//!
//! ρ is estimated from below by some steps of y ← |A⁻¹·s·|A|·y| with random factors s. In doubles a
//! singular matrix has ρ ≥ 2⁵³/c, where c depends on the rounding errors. A matrix that is not
//! clearly regular is therefore eliminated in double-double arithmetic. There ρ = ∞ appears as more
//! than 2⁹⁰, which is distinct from 2⁵³.
//!
//! c is large if the null vectors v have elements of very different sizes, which is possible even
//! with rows and columns of size 1. The last y tends to |v|. Its elements then scale the columns
//! for a second measure.

use super::banded_lu::{BandedFactors, LuScalar};
use super::eliminate::{Eliminate, scales};
use crate::kernel::Precision;
use crate::numerics::double_word::DoubleWord;
use crate::parallel::*;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::system::row_range::RowSpan;
use crate::tridiagonal::system::view::View;
use crate::util::quantity::{exponent, power, times_power_of_two};

/// ρ (module docs) above which a matrix is singular to working precision: 1 / unit roundoff.
const SINGULAR: f64 = (1u64 << 53) as f64;
/// Maximum ρ (module docs) in doubles of a matrix that is regular for any rounding errors.
const REGULAR: f64 = (1u64 << 40) as f64;
/// Least exponent of elements with exact double-double products, in rows and columns of size 1.
const LEAST: i32 = -400;
/// Least exponent of the elements of the last y (module docs) for which the first measure decides.
const EVEN: i32 = -8;
/// Least exponent of the elements of y (module docs) that scale the columns for a second measure.
const UNEVEN: i32 = -200;

/// Maximum growth ‖x‖∞ that proves a matrix regular, for a random right-hand side.
///
/// Element i of the right-hand side is the sum of magnitudes of row i, times a random factor.
/// The growth of a singular matrix is 1 / (c u), where u is the unit roundoff. c is mostly below 2⁴
/// and depends on the rounding errors and the random factors.
pub(crate) fn clear(precision: Precision) -> f64 {
    if matches!(precision, Precision::F32) { (1u64 << 12) as f64 } else { (1u64 << 32) as f64 }
}

/// Random number of row `i`, of size ½ … 1. Signs alone may sum to 0, as rows of singular matrices.
pub(crate) fn noise(i: usize, step: u64) -> f64 {
    let mut bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (step << 32);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let size = 0.5 + (bits >> 12 & ((1 << 51) - 1)) as f64 / (1u64 << 52) as f64;
    if bits >> 63 == 0 { size } else { -size }
}

/// Maximum of nonnegative numbers; infinity if one of them is NaN.
pub(crate) fn most(sizes: impl Iterator<Item = f64>) -> f64 {
    sizes.fold(0.0, |most, size| if size.is_nan() { f64::INFINITY } else { most.max(size) })
}

/// Returns the maximum of |x|, computed on all threads; infinity if an x is NaN.
pub(crate) fn largest_size<T: Number>(x: &[T]) -> f64 {
    let blocks = x.par_chunks(BLOCK).map(|part| most(part.iter().map(|x| x.wide().abs())));
    blocks.reduce(|| 0.0, f64::max)
}

/// Rows that a thread examines at a time.
const BLOCK: usize = 1 << 14;

/// True if a positive definite symmetric part proves that no matrix of a batch is nearly singular.
///
/// Let A have the diagonal 1, after division of its rows, and let q_i = a_i·c_{i−1} be the product
/// of the elements that couple rows i − 1 and i. A diagonal scaling gives both elements the size
/// √|q_i|: equal signs if q_i > 0, opposite signs if q_i < 0. Then the symmetric part of A is
/// I + T, where T has the elements √q_i of positive q_i. If these are at most h = (1 − 2⁻⁵) / 2,
/// then ‖T‖ ≤ 2h and ‖A⁻¹‖ ≤ 2⁵. With |q_i| ≤ 2³⁰ and n ≤ 2³¹,
/// ρ ≤ ‖|A⁻¹|‖·‖|A|‖ ≤ √n·2⁵·(1 + 2·2¹⁵) < 2³⁸. If one of the two elements is 0, the matrix is
/// reducible, and ρ is the maximum over its irreducible blocks.
pub(crate) fn is_definite(view: &View<'_>) -> bool {
    let (RowSpan { n, rows, cyclic, ranks, .. }, View { dl, d, du, .. }) = (view.span, view);
    if cyclic || n == 1 || ranks.is_distributed() {
        return false;
    }
    // True if rows `from` … `to` − 1 of a system have small products with the rows above.
    let couplings = |from: usize, to: usize| {
        let elements = dl[from..to].iter().zip(&du[from - 1..to - 1]);
        let diagonals = d[from..to].iter().zip(&d[from - 1..to - 1]);
        elements.zip(diagonals).fold(true, |all, ((a, c), (d, e))| {
            let (product, own) = (a * c, d * e);
            let (size, q) = (own.abs(), if own < 0.0 { -product } else { product });
            // Then underflow of a·c does not matter.
            let exact = (size > power(-900)) & (size < power(900));
            all & exact & (q <= 0.2346 * size) & (q >= -power(30) * size)
        })
    };
    let part = |mut from: usize, end: usize| {
        while from < end {
            let to = end.min((from / n + 1) * n);
            if !couplings(if from.is_multiple_of(n) { from + 1 } else { from }, to) {
                return false;
            }
            from = to;
        }
        true
    };
    // The first rows rule out most matrices without such a scaling.
    let blocks = (0..rows.div_ceil(BLOCK)).into_par_iter();
    part(0, rows.min(64)) && blocks.all(|block| part(block * BLOCK, rows.min((block + 1) * BLOCK)))
}

/// Row in which the matrix of a system is singular to working precision, if it is.
pub(crate) fn singular(system: &impl Eliminate) -> Option<usize> {
    match system.bandwidth() {
        1 => verdict::<3>(system),
        2 => verdict::<5>(system),
        _ => verdict::<7>(system),
    }
}

/// Matrix of a system with rows and columns scaled to size 1, as a banded matrix.
struct ScaledSystem<'a, E> {
    system: &'a E,
    n: usize,
    rows: Vec<i32>,
    columns: Vec<i32>,
}

impl<E: Eliminate> ScaledSystem<'_, E> {
    /// Position of a row or column in the band. A cyclic system has the order 0, n − 1, 1, n − 2, …
    fn place(&self, i: usize) -> usize {
        match self.system.is_cyclic() {
            false => i,
            true if 2 * i < self.n => 2 * i,
            true => 2 * (self.n - 1 - i) + 1,
        }
    }

    /// Row or column at a position in the band.
    fn at(&self, place: usize) -> usize {
        match (self.system.is_cyclic(), place % 2) {
            (false, _) => place,
            (true, 0) => place / 2,
            (true, _) => self.n - 1 - place / 2,
        }
    }

    /// Positions of the columns and elements of a row.
    fn elements(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let all = self.system.elements(i).filter(|&(_, v)| v != 0.0);
        all.map(move |(j, v)| (self.place(j), times_power_of_two(v, self.rows[i] + self.columns[j])))
    }

    fn factors<T: LuScalar, const W: usize>(&self) -> Result<BandedFactors<T, W>, usize> {
        let row = |place: usize| {
            let mut row = [T::from(0.0); W];
            for (column, v) in self.elements(self.at(place)) {
                let k = column + W / 2 - place;
                row[k] = row[k] + T::from(v);
            }
            row
        };
        BandedFactors::new(self.n, row)
    }

    /// Returns an estimate of ρ and the last y (module docs), scaled to a largest element of 1.
    fn measure<T: LuScalar, const W: usize>(&self, factors: &BandedFactors<T, W>) -> (f64, Vec<f64>) {
        let (mut y, mut rho) = (vec![1.0; self.n], 0.0f64);
        for step in 0..4 {
            let row = |place: usize| {
                let size: f64 = self.elements(self.at(place)).map(|(column, v)| v.abs() * y[column]).sum();
                T::from(noise(place, step) * size)
            };
            let mut x: Vec<T> = (0..self.n).map(row).collect();
            factors.solve(&mut x);
            let growth = most(x.iter().map(|x| x.size()));
            if growth == 0.0 || !growth.is_finite() {
                return (growth, y);
            }
            y = x.iter().map(|x| x.size() / growth).collect();
            // The first two steps only improve y; the last two do not both miss a singular matrix.
            rho = if step > 1 { rho.max(growth) } else { rho };
        }
        (rho, y)
    }

    /// Returns the matrix with columns of these sizes and rows of size 1.
    fn with_columns(&self, sizes: &[f64]) -> Self {
        let column = |j: usize| exponent(sizes[self.place(j)]).max(UNEVEN) + self.columns[j];
        let columns: Vec<i32> = (0..self.n).map(column).collect();
        let row = |i: usize| {
            let all = self.system.elements(i).filter(|&(_, v)| v != 0.0);
            -all.map(|(j, v)| exponent(v) + columns[j]).max().unwrap_or(0)
        };
        Self { system: self.system, n: self.n, rows: (0..self.n).map(row).collect(), columns }
    }

    /// True if doubles show that the matrix is regular, or if their range is too short to decide.
    fn is_clear<const W: usize>(&self) -> bool {
        // Double-doubles have the range of doubles and give a singular matrix a larger ρ.
        let clear = |rho: f64| rho <= REGULAR || !rho.is_finite();
        let Ok(factors) = self.factors::<f64, W>() else { return false };
        let (rho, sizes) = self.measure(&factors);
        let uneven = sizes.iter().any(|&size| size < power(EVEN));
        if !rho.is_finite() || rho > REGULAR || !uneven {
            return clear(rho);
        }
        drop(factors);
        let scaled = self.with_columns(&sizes);
        scaled.factors::<f64, W>().is_ok_and(|factors| clear(scaled.measure(&factors).0))
    }
}

fn verdict<const W: usize>(system: &impl Eliminate) -> Option<usize> {
    let n = system.size().0;
    let (rows, columns) = scales(system);
    let scaled = ScaledSystem { system, n, rows, columns };
    if scaled.is_clear::<W>() {
        return None;
    }
    let tiny = |(_, v): (usize, f64)| v.abs() < power(LEAST);
    if (0..n).any(|i| scaled.elements(i).any(tiny)) {
        return None;
    }
    match scaled.factors::<DoubleWord, W>() {
        Err(place) => Some(scaled.at(place)),
        Ok(factors) => {
            let (rho, _) = scaled.measure(&factors);
            (rho > SINGULAR && rho.is_finite()).then(|| scaled.at(factors.least_pivot()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tridiagonal::System;

    fn toeplitz(n: usize, batch: usize, [a, d, c]: [f64; 3]) -> System {
        let of = |v: f64| vec![v; n * batch];
        System::batched(batch, of(a), of(d), of(c), vec![of(1.0)]).unwrap()
    }

    #[test]
    fn matrices_with_a_definite_scaling_are_regular() {
        let definite = |system: &System| is_definite(&View::from(system));
        for n in [2, 3, 64, 65, BLOCK, BLOCK + 1, 3 * BLOCK] {
            for (numbers, is) in [
                ([1.0, 0.5, -1.0], true),
                ([-1e100, -0.5e-100, 1e-300], true),
                ([1.0, -2.1, 1.0], true),
                ([40.0, 2.1, 0.025], true),
                ([0.0, 1.0, 1e200], true),
                ([1.0, 2.0, 1.0], false),
                ([1.0, 0.5, 0.7], false),
                ([1.0, 1e-6, -1.0], false),
                ([1.0, 0.0, -1.0], false),
                ([1e-160, 1e-150, -1e-160], false),
            ] {
                let mut system = toeplitz(n, 3, numbers);
                assert_eq!(definite(&system), is, "n = {n}, {numbers:?}");
                assert!(!definite(&system.clone().cyclic()));
                // Neither the signs of rows nor unused elements make a difference.
                for array in [&mut system.dl, &mut system.d, &mut system.du] {
                    array.iter_mut().step_by(3).for_each(|v| *v = -*v);
                }
                for s in 0..3 {
                    (system.dl[s * n], system.du[(s + 1) * n - 1]) = (f64::NAN, f64::NAN);
                }
                assert_eq!(definite(&system), is, "n = {n}, {numbers:?}");
                system.du[2 * n] = 1.0;
                system.dl[2 * n + 1] = system.d[2 * n] * system.d[2 * n + 1];
                assert!(!definite(&system));
            }
        }
        // Random elements of all sizes satisfy the proved bound.
        let mut random = fastrand::Rng::with_seed(7);
        let mut number = |orders: f64| (random.f64() - 0.5) * (orders * (random.f64() - 0.5)).exp2();
        let mut found = 0;
        for case in 0..3000 {
            let n = 2 + case % 7;
            let [dl, d, du] = [40.0, 20.0, 40.0].map(|orders| (0..n).map(|_| number(orders)).collect());
            let system = System::new(dl, d, du, vec![1.0; n]).unwrap();
            let view = View::from(&system);
            if is_definite(&view) {
                let (rows, columns) = scales(&view);
                let scaled = ScaledSystem { system: &view, n, rows, columns };
                let factors = scaled.factors::<DoubleWord, 3>().unwrap_or_else(|_| panic!("no pivot is 0"));
                let rho = scaled.measure(&factors).0;
                assert!(rho < power(38), "{system:?} has {rho:e}");
                found += 1;
            }
        }
        assert!(found > 100, "{found} of 3000 matrices");
    }

    #[test]
    fn uneven_null_vectors_are_found() {
        // Row sums of 0, with random sizes of rows and columns up to 2^40.
        for n in 4..60 {
            for cyclic in [false, true] {
                let size = |i: usize, salt: u64| power((noise(i % n, salt) * 40.0) as i32);
                let whole = |i: usize, salt: u64| (noise(i, salt) * 9.0).round();
                let left = |i: usize| if i > 0 || cyclic { whole(i, 1) } else { 0.0 };
                let right = |i: usize| if i + 1 < n || cyclic { whole(i, 2) } else { 0.0 };
                let of = |k: usize, v: &dyn Fn(usize) -> f64| -> Vec<f64> {
                    (0..n).map(|i| v(i) * size(i, 3) * size(i + n + k - 1, 4)).collect()
                };
                let middle = |i: usize| -left(i) - right(i);
                let system = System::new(of(0, &left), of(1, &middle), of(2, &right), vec![1.0; n]).unwrap();
                let system = if cyclic { system.cyclic() } else { system };
                assert!(singular(&View::from(&system)).is_some(), "n = {n}, cyclic: {cyclic}");
            }
        }
    }
}
