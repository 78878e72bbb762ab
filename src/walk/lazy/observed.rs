//! System of lazy walks, and norms of the rows that they met.

use crate::kernel::Real;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::quantity::exponent;
use crate::walk::sequence::philox::philox;
use crate::{Error, Invalid, Result};

/// Marks a row without diagonal entry, as its number of entries; columns have 32 bits only.
pub(super) const NO_DIAGONAL: f64 = 8_589_934_592.0;

/// A matrix in compressed rows with its right-hand side, for any storage.
pub(super) trait Rows: Sync {
    /// Range of the entries of row i.
    fn range(&self, i: usize) -> std::ops::Range<usize>;
    /// Column and value of an entry.
    fn entry(&self, e: usize) -> (u32, f64);
    /// b_i.
    fn rhs(&self, i: usize) -> f64;

    /// Returns a_ii, or 1 if the matrix is L, and Σ_j |a_ij| over all other entries.
    #[inline(always)]
    fn sums<T: Real>(&self, i: u32, given: bool) -> (T, T) {
        let (mut diagonal, mut sum) = (T::of(f64::from(u8::from(given))), T::ZERO);
        for (j, a) in self.range(i as usize).map(|e| self.entry(e)) {
            match !given && j == i {
                true => diagonal = T::of(a),
                false => sum = sum + T::of(a).abs(),
            }
        }
        (diagonal, sum)
    }

    /// Returns the column of the entry that `aim` selects, and true if that entry is positive.
    ///
    /// It is the first entry up to which the sum of |a| exceeds `aim`, or else the last one.
    #[inline(always)]
    fn choose<T: Real>(&self, i: u32, given: bool, aim: T) -> (u32, bool) {
        let (mut reached, mut next, mut positive) = (T::ZERO, i, true);
        for (j, a) in self.range(i as usize).map(|e| self.entry(e)) {
            if (!given && j == i) || a == 0.0 {
                continue;
            }
            (next, positive) = (j, a > 0.0);
            reached = reached + T::of(a).abs();
            if reached > aim {
                break;
            }
        }
        (next, positive)
    }
}

/// System in the arrays of the caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct SystemView<'a> {
    /// A, or L itself.
    pub(super) matrix: &'a CsrMatrix,
    /// b, or f.
    pub(super) rhs: &'a [f64],
    /// True if they are L and f.
    pub(super) given: bool,
    /// Powers of 2 by which the right-hand side is multiplied.
    pub(super) powers: [f64; 3],
}

impl Rows for SystemView<'_> {
    #[inline(always)]
    fn range(&self, i: usize) -> std::ops::Range<usize> {
        self.matrix.starts()[i]..self.matrix.starts()[i + 1]
    }

    #[inline(always)]
    fn entry(&self, e: usize) -> (u32, f64) {
        (self.matrix.column()[e], self.matrix.value()[e])
    }

    #[inline(always)]
    fn rhs(&self, i: usize) -> f64 {
        let [one, two, three] = self.powers;
        self.rhs[i] * one * two * three
    }
}

/// Norms of L and f over the rows that walks met; those of all rows if no other row is worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ObservedNorms {
    /// Largest row sum of |L|.
    pub(super) norm: f64,
    /// Largest |f|.
    pub(super) f: f64,
    /// Number of entries of the longest row, with the diagonal.
    pub(super) longest: f64,
}

impl ObservedNorms {
    /// Norms before the first walk.
    pub(super) const NOTHING: Self = Self { norm: 0.0, f: 0.0, longest: 0.0 };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            norm: self.norm.max(other.norm),
            f: self.f.max(other.f),
            longest: self.longest.max(other.longest),
        }
    }

    /// Upper bound of the absolute value of a walk's sum.
    pub(super) fn most(self) -> f64 {
        if self.norm < 1.0 { self.f / (1.0 - self.norm) } else { f64::INFINITY }
    }

    /// Returns an error if a row had no diagonal entry, or an entry that is not finite.
    pub(super) fn check(self) -> Result<Self> {
        let fail = |reason: &str| Err(Error::invalid(format!("a row that walks met {reason}")));
        if self.longest >= NO_DIAGONAL {
            return fail("has no diagonal entry, or 0 there; without `lazy` the message names it");
        }
        if !(self.norm.is_finite() && self.f.is_finite()) {
            return fail("has an entry that is not finite; without `lazy` the message names it");
        }
        Ok(self)
    }
}

/// Makes a few short pilot walks from each of the first rows.
///
/// `see` gets the rows that they meet, with diagonal entries and sums of all other |a_ij|.
fn pilot(
    view: &SystemView<'_>,
    rows: &[u32],
    seed: u64,
    mut see: impl FnMut(usize, f64, f64) -> Result<()>,
) -> Result<()> {
    const WALKS: u32 = 16;
    const STEPS: u32 = 64;
    const MOST: usize = 64;
    let key = [seed as u32, (seed >> 32) as u32];
    for &first in rows.iter().take(MOST) {
        for walk in 0..WALKS {
            let mut row = first;
            for step in 0..STEPS {
                let i = row as usize;
                let entries = view.range(i).map(|e| view.entry(e));
                let (diagonal, sum) = view.sums(row, view.given);
                see(i, diagonal, sum)?;
                let word = philox([walk, step, first, 0x7363_6f75], key)[0];
                let mut left = f64::from(word) / 4_294_967_296.0 * sum;
                let mut next = None;
                for (j, a) in entries.filter(|&(j, a)| (view.given || j != row) && a != 0.0) {
                    next = Some(j);
                    left -= a.abs();
                    if left < 0.0 {
                        break;
                    }
                }
                match next {
                    Some(next) => row = next,
                    None => break,
                }
            }
        }
    }
    Ok(())
}

/// Exponent of the largest |f| that pilot walks meet, 0 if they meet none.
pub(super) fn pilot_exponent(view: &SystemView<'_>, rows: &[u32], seed: u64) -> Result<i32> {
    let mut largest = None;
    pilot(view, rows, seed, |i, diagonal, _| {
        let b = view.rhs[i];
        if b != 0.0 && diagonal != 0.0 {
            largest = largest.max(Some(exponent(b) - exponent(diagonal)));
        }
        Ok(())
    })?;
    Ok(largest.unwrap_or(0))
}

/// Norms of the rows that pilot walks meet.
pub(super) fn pilot_norms(view: &SystemView<'_>, rows: &[u32], seed: u64) -> Result<ObservedNorms> {
    let mut observed = ObservedNorms::NOTHING;
    pilot(view, rows, seed, |i, diagonal, sum| {
        let longest = if diagonal == 0.0 { NO_DIAGONAL } else { view.range(i).len() as f64 };
        // Checked row by row, since the maximum of a number and NaN is the number.
        let here = ObservedNorms { norm: sum / diagonal.abs(), f: (view.rhs(i) / diagonal).abs(), longest }
            .check()?;
        observed = observed.and(here);
        Ok(())
    })?;
    Ok(observed)
}

/// Returns the smallest nonzero |a|.
///
/// # Errors
/// [`Error::Invalid`] for an entry that f32 does not represent with all 24 bits.
pub(super) fn least_in_f32(matrix: &CsrMatrix) -> Result<f64> {
    let normal = |a: f64| a == 0.0 || (a.abs() as f32).is_normal();
    if let Some(entry) = matrix.value().par_iter().position_first(|&a| !normal(a)) {
        let a = matrix.value()[entry];
        return Invalid::Number("matrix").fail(format!(
            "the matrix has an entry {a:e}, which is out of range of f32; use `precision` f64, or \
             leave out `lazy`"
        ));
    }
    let size = |&a: &f64| if a == 0.0 { f64::INFINITY } else { a.abs() };
    Ok(matrix.value().par_iter().map(size).reduce(|| f64::INFINITY, f64::min))
}
