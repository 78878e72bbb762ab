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

use super::banded_lu::{Factors, Scalar};
use super::eliminate::{Eliminate, scales};
use crate::kernel::Precision;
use crate::transient::DoubleWord;
use crate::util::quantity::times_power_of_two;

/// ρ above which a matrix is singular to working precision, the inverse of the unit roundoff.
const SINGULAR: f64 = (1u64 << 53) as f64;
/// Maximum ρ in doubles of a matrix that is regular for any rounding errors.
const REGULAR: f64 = (1u64 << 40) as f64;
/// Least exponent of elements with exact double-double products, in rows and columns of size 1.
const LEAST: i32 = -400;

/// Maximum growth, for random right-hand sides of the size of rows, that proves a matrix regular.
///
/// The growth of a singular matrix is 1 / (c u), where u is the unit roundoff. c is mostly below 2⁴
/// and depends on the rounding errors and the random factors.
pub(crate) fn clear(precision: Precision) -> f64 {
    match precision {
        Precision::F64 | Precision::Q64 => (1u64 << 32) as f64,
        Precision::F32 => (1u64 << 12) as f64,
    }
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

/// Row in which the matrix of a system is singular to working precision, if it is.
pub(crate) fn singular(system: &impl Eliminate) -> Option<usize> {
    match system.bandwidth() {
        1 => verdict::<3>(system),
        2 => verdict::<5>(system),
        _ => verdict::<7>(system),
    }
}

/// Matrix of a system with rows and columns scaled to size 1, as a banded matrix.
struct Scaled<'a, E> {
    system: &'a E,
    n: usize,
    rows: Vec<i32>,
    columns: Vec<i32>,
}

impl<E: Eliminate> Scaled<'_, E> {
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

    fn factors<T: Scalar, const W: usize>(&self) -> Result<Factors<T, W>, usize> {
        let row = |place: usize| {
            let mut row = [T::from(0.0); W];
            for (column, v) in self.elements(self.at(place)) {
                let k = column + W / 2 - place;
                row[k] = row[k] + T::from(v);
            }
            row
        };
        Factors::new(self.n, row)
    }

    /// An estimate of ρ.
    fn measure<T: Scalar, const W: usize>(&self, factors: &Factors<T, W>) -> f64 {
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
                return growth;
            }
            y = x.iter().map(|x| x.size() / growth).collect();
            // The first two steps only improve y; the last two do not both miss a singular matrix.
            rho = if step > 1 { rho.max(growth) } else { rho };
        }
        rho
    }
}

fn verdict<const W: usize>(system: &impl Eliminate) -> Option<usize> {
    let n = system.size().0;
    let (rows, columns) = scales(system);
    let scaled = Scaled { system, n, rows, columns };
    let doubles = scaled.factors::<f64, W>();
    if doubles.is_ok_and(|factors| scaled.measure(&factors) <= REGULAR) {
        return None;
    }
    let tiny = |(_, v): (usize, f64)| v.abs() < crate::util::quantity::power(LEAST);
    if (0..n).any(|i| scaled.elements(i).any(tiny)) {
        return None;
    }
    match scaled.factors::<DoubleWord, W>() {
        Err(place) => Some(scaled.at(place)),
        Ok(factors) => {
            // Beyond the range of doubles nothing is known.
            let rho = scaled.measure(&factors);
            (rho > SINGULAR && rho.is_finite()).then(|| scaled.at(factors.least_pivot()))
        }
    }
}
