//! Matrices with diagonals borrowed from the caller.

use std::borrow::Cow;

use super::row_range::RowSpan;
use super::view::View;
use crate::{Invalid, Result};

/// Tridiagonal matrices of equal size, concatenated, with borrowed diagonals.
///
/// They are the input of [`solve_into`](crate::tridiagonal::solve_into). Elements are stored as in
/// a [`System`](crate::tridiagonal::System). Only off-diagonals of n − 1 elements per system, and
/// those of a transposed matrix, are copied.
#[derive(Debug, Clone)]
pub struct Matrix<'a> {
    pub(crate) n: usize,
    pub(crate) dl: Cow<'a, [f64]>,
    pub(crate) d: &'a [f64],
    pub(crate) du: Cow<'a, [f64]>,
    batch: usize,
    cyclic: bool,
}

impl<'a> Matrix<'a> {
    /// Borrows the diagonals of `batch` matrices.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if there is no row or no system, or array lengths do not match.
    pub fn new(batch: usize, dl: &'a [f64], d: &'a [f64], du: &'a [f64]) -> Result<Self> {
        if batch == 0 {
            return Invalid::Shape.fail("0 systems: expected at least 1");
        }
        let rows = d.len();
        if rows == 0 {
            return Invalid::Shape.fail("a system of 0 rows: expected at least 1");
        }
        if !rows.is_multiple_of(batch) {
            return Invalid::Shape.fail(format!("{rows} rows cannot be {batch} systems of equal size"));
        }
        let n = rows / batch;
        let wide = |name: &str, diagonal: &'a [f64], front: bool| {
            let given = diagonal.len();
            match rows.checked_sub(given) {
                Some(0) => Ok(Cow::Borrowed(diagonal)),
                Some(missing) if missing == batch => Ok(Cow::Owned(widen(diagonal, n, batch, front))),
                _ => Invalid::Shape.fail(format!(
                    "{name} has {given} numbers, but d has {rows}: expected {n} for each system, \
                     or {} as in LAPACK",
                    n - 1
                )),
            }
        };
        Ok(Self { n, dl: wide("dl", dl, true)?, d, du: wide("du", du, false)?, batch, cyclic: false })
    }

    /// Makes the first and the last unknown of each system neighbours.
    #[must_use]
    pub fn cyclic(self) -> Self {
        Self { cyclic: true, ..self }
    }

    /// Returns the transposed matrix, with copied off-diagonals.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        transpose_each(self.n, self.dl.to_mut(), self.du.to_mut());
        self
    }

    /// Total number of rows.
    pub fn rows(&self) -> usize {
        self.d.len()
    }

    /// View with these right-hand sides, their lengths already checked.
    pub(crate) fn view<'v>(&'v self, b: &[&'v [f64]]) -> View<'v> {
        let Self { n, dl, d, du, batch, cyclic } = self;
        View { span: RowSpan::whole(*n, *batch, *cyclic), dl, d, du, b: b.to_vec() }
    }
}

/// Extends off-diagonals of n − 1 elements per system by NaN at the unused end, so that a cyclic
/// system is rejected.
fn widen(diagonal: &[f64], n: usize, batch: usize, front: bool) -> Vec<f64> {
    let mut wide = vec![f64::NAN; batch * n];
    if n > 1 {
        for (wide, one) in wide.chunks_exact_mut(n).zip(diagonal.chunks_exact(n - 1)) {
            wide[usize::from(front)..][..n - 1].copy_from_slice(one);
        }
    }
    wide
}

/// Transposes concatenated systems of `n` rows each.
pub(crate) fn transpose_each(n: usize, dl: &mut [f64], du: &mut [f64]) {
    for (dl, du) in dl.chunks_exact_mut(n).zip(du.chunks_exact_mut(n)) {
        // Row i of the transpose has du[i − 1] on the left and dl[i + 1] on the right.
        dl.rotate_left(1);
        du.rotate_right(1);
        dl.swap_with_slice(du);
    }
}
