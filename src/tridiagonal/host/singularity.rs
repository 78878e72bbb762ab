//! Matrices that are singular to working precision.
//!
//! The measure is ρ(|A⁻¹|·|A|), the least condition number of all matrices that A becomes by scaling of rows and columns (Bauer
//! 1963): neither ill-scaled matrices nor triangular ones have a large one. A relative change of the elements by less than 1/ρ
//! leaves a matrix regular, and a singular one has ρ = ∞. It is estimated from below by some steps of y ← |A⁻¹·s·|A|·y| with
//! random factors s. Doubles find a singular matrix to be one of ρ ≥ 2⁵³/c, with a c that depends on the rounding errors met; so
//! whatever is not clearly regular is eliminated in double-word arithmetic, which tells ρ = ∞, there above 2⁹⁰, from 2⁵³.

use super::banded_lu::{Factors, Scalar};
use super::eliminate::{Eliminate, scales};
use crate::kernel::Precision;
use crate::transient::DoubleWord;
use crate::util::quantity::times_power_of_two;

/// ρ above which a matrix is singular to working precision, the inverse of the unit roundoff.
const SINGULAR: f64 = (1u64 << 53) as f64;
/// ρ in doubles up to which a matrix is regular, whatever rounding errors were: below 2⁵³ by more than they amount to.
const REGULAR: f64 = (1u64 << 40) as f64;
/// Exponents of elements, in rows and columns with largest ones of size 1, that have all digits in double-word products.
const LEAST: i32 = -400;

/// The growth of a solution for right-hand sides of the size of rows, with random factors, up to which no matrix is singular. A
/// singular one has that of 1 / (c u), where u is the unit roundoff and c, mostly below 2⁴, depends on the rounding errors and the factors.
pub(crate) fn clear(precision: Precision) -> f64 {
    match precision {
        Precision::F64 | Precision::Q64 => (1u64 << 32) as f64,
        Precision::F32 => (1u64 << 12) as f64,
    }
}

/// A random number of row `i`, of size ½ … 1. Signs alone may sum to 0, as the rows of a singular matrix do.
pub(crate) fn noise(i: usize, step: u64) -> f64 {
    let mut bits = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (step << 32);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let size = 0.5 + (bits >> 12 & ((1 << 51) - 1)) as f64 / (1u64 << 52) as f64;
    if bits >> 63 == 0 { size } else { -size }
}

/// The largest of numbers that are not negative; infinity if one of them is NaN.
pub(crate) fn most(sizes: impl Iterator<Item = f64>) -> f64 {
    sizes.fold(0.0, |most, size| if size.is_nan() { f64::INFINITY } else { most.max(size) })
}

/// The row in which the matrix of one system shows that it is singular to working precision, if it is.
pub(crate) fn singular(system: &impl Eliminate) -> Option<usize> {
    match system.bandwidth() {
        1 => verdict::<3>(system),
        2 => verdict::<5>(system),
        _ => verdict::<7>(system),
    }
}

/// The matrix of a system with rows and columns of size 1, as a banded one with W diagonals.
struct Scaled<'a, E> {
    system: &'a E,
    n: usize,
    rows: Vec<i32>,
    columns: Vec<i32>,
}

impl<E: Eliminate> Scaled<'_, E> {
    /// The place of a row or a column in the band: of a cyclic system they go in the order 0, n − 1, 1, n − 2, …
    fn place(&self, i: usize) -> usize {
        match self.system.is_cyclic() {
            false => i,
            true if 2 * i < self.n => 2 * i,
            true => 2 * (self.n - 1 - i) + 1,
        }
    }

    /// The row or column of a place.
    fn at(&self, place: usize) -> usize {
        match (self.system.is_cyclic(), place % 2) {
            (false, _) => place,
            (true, 0) => place / 2,
            (true, _) => self.n - 1 - place / 2,
        }
    }

    /// Places of columns and elements of a row.
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
            // The first steps start from any vector; two of the others do not both miss what is singular.
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
