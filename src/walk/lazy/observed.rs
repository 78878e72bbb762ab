//! The system of lazy walks, and what walks observe of its size.

use crate::kernel::Real;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::quantity::exponent;
use crate::walk::sequence::philox::philox;
use crate::{Error, Result};

/// The number of entries that stands for a row without a diagonal entry: columns are counted in 32 bits.
pub(super) const NO_DIAGONAL: f64 = 8_589_934_592.0;

/// Compressed rows, wherever they lie.
pub(super) trait Rows: Sync {
    /// Where row i begins and ends.
    fn range(&self, i: usize) -> std::ops::Range<usize>;
    /// Column and value of an entry.
    fn entry(&self, e: usize) -> (u32, f64);
    /// b_i.
    fn rhs(&self, i: usize) -> f64;

    /// a_ii, or 1 where the matrix is L, and Σ_j |a_ij| of the others.
    #[inline(always)]
    fn sums<T: Real>(&self, i: u32, given: bool) -> (T, T) {
        let (mut diagonal, mut sum) = (T::of(f64::from(u8::from(given))), T::ZERO);
        for (j, a) in self.range(i as usize).map(|e| self.entry(e)) {
            match !given && j == i {
                true => diagonal = T::of(a),
                false => sum = sum.plus(T::of(a).distance(T::ZERO)),
            }
        }
        (diagonal, sum)
    }

    /// The column of the first entry up to which |a| add up to more than `aim`, or of the last one, and whether it is
    /// positive.
    #[inline(always)]
    fn choose<T: Real>(&self, i: u32, given: bool, aim: T) -> (u32, bool) {
        let (mut reached, mut next, mut positive) = (T::ZERO, i, true);
        for (j, a) in self.range(i as usize).map(|e| self.entry(e)) {
            if (!given && j == i) || a == 0.0 {
                continue;
            }
            (next, positive) = (j, a > 0.0);
            reached = reached.plus(T::of(a).distance(T::ZERO));
            if reached > aim {
                break;
            }
        }
        (next, positive)
    }
}

/// The system as its owner has it, in compressed rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct SystemView<'a> {
    /// A, or L itself.
    pub(super) matrix: &'a CsrMatrix,
    /// b, or f.
    pub(super) rhs: &'a [f64],
    /// Whether they are L and f.
    pub(super) given: bool,
    /// Powers of 2 that the right-hand side is walked on times.
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

/// What the rows that walks met say of L and f: norms, if no other row is worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ObservedNorms {
    /// Largest row sum of |L|.
    pub(super) norm: f64,
    /// Largest |f|.
    pub(super) f: f64,
    /// Entries of the longest row, the diagonal's among them.
    pub(super) longest: f64,
}

impl ObservedNorms {
    /// What is observed before the first walk.
    pub(super) const NOTHING: Self = Self { norm: 0.0, f: 0.0, longest: 0.0 };

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            norm: self.norm.max(other.norm),
            f: self.f.max(other.f),
            longest: self.longest.max(other.longest),
        }
    }

    /// The most that a walk adds up, in absolute value.
    pub(super) fn most(self) -> f64 {
        if self.norm < 1.0 { self.f / (1.0 - self.norm) } else { f64::INFINITY }
    }

    /// An error if walks met what they cannot walk on.
    pub(super) fn check(self) -> Result<Self> {
        let fail = |reason: &str| Err(Error::Invalid(format!("a row that walks met {reason}")));
        if self.longest >= NO_DIAGONAL {
            return fail("has no diagonal entry, or 0 there; without `lazy` the message names it");
        }
        if !(self.norm.is_finite() && self.f.is_finite()) {
            return fail("has an entry that is not finite; without `lazy` the message names it");
        }
        Ok(self)
    }
}

/// A pilot: a few short walks from each of some rows. `see` gets the rows that they meet, with their diagonal entries and
/// the sums of the others.
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
                let entries = view
                    .range(i)
                    .map(|e| view.entry(e))
                    .filter(|&(j, a)| (view.given || j != row) && a != 0.0);
                let (diagonal, sum) = view.sums(row, view.given);
                see(i, diagonal, sum)?;
                let word = philox([walk, step, first, 0x7363_6f75], key)[0];
                let mut left = f64::from(word) / 4_294_967_296.0 * sum;
                let mut next = None;
                for (j, a) in entries {
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

/// The exponent of the largest |f| that a few walks meet, 0 where they meet none.
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

/// What a few walks meet.
pub(super) fn pilot_norms(view: &SystemView<'_>, rows: &[u32], seed: u64) -> Result<ObservedNorms> {
    let mut observed = ObservedNorms::NOTHING;
    pilot(view, rows, seed, |i, diagonal, sum| {
        let longest = if diagonal == 0.0 { NO_DIAGONAL } else { view.range(i).len() as f64 };
        // Row by row, since the greater of a number and a NaN is the number.
        let here = ObservedNorms { norm: sum / diagonal.abs(), f: (view.rhs(i) / diagonal).abs(), longest }
            .check()?;
        observed = observed.and(here);
        Ok(())
    })?;
    Ok(observed)
}

/// The least |a| that is not 0.
///
/// # Errors
/// [`Error::Invalid`] for one that f32 does not hold to its 24 bits.
pub(super) fn least_in_f32(matrix: &CsrMatrix) -> Result<f64> {
    let normal = |a: f64| a == 0.0 || (a.abs() as f32).is_normal();
    if let Some(entry) = matrix.value().par_iter().position_first(|&a| !normal(a)) {
        let a = matrix.value()[entry];
        return Err(Error::Invalid(format!(
            "the matrix has an entry {a:e}, which is out of range of f32; use `precision` f64, or \
             leave out `lazy`"
        )));
    }
    let size = |&a: &f64| if a == 0.0 { f64::INFINITY } else { a.abs() };
    Ok(matrix.value().par_iter().map(size).reduce(|| f64::INFINITY, f64::min))
}
