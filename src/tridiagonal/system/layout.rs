//! Layouts: order of the elements of many systems in an array.

use super::System;
use crate::parallel::*;
use crate::{Invalid, Result};

/// Order of the elements of systems of equal size in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Row i of system s is element s·stride + i, as in cuSPARSE's `gtsv2StridedBatch`.
    Strided {
        /// Distance between two systems in elements, n or more.
        stride: usize,
    },
    /// Row i of system s is element i·batch + s, as in cuSPARSE's `gtsvInterleavedBatch`.
    Interleaved,
}

/// Tile size of a transposition, so that source and destination stay in cache.
const TILE: usize = 32;

impl Layout {
    /// Copies the systems from this layout to a concatenated array.
    fn collect(self, n: usize, batch: usize, values: &[f64]) -> Vec<f64> {
        let mut all = vec![0.0; n * batch];
        match self {
            Self::Strided { stride } => all
                .par_chunks_mut(n)
                .zip(values.par_chunks(stride))
                .for_each(|(own, from)| own.copy_from_slice(&from[..n])),
            Self::Interleaved => transpose(values, batch, &mut all),
        }
        all
    }

    /// Copies unknowns of concatenated systems into this layout. Elements between strided systems
    /// are not changed.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if array lengths do not match.
    pub fn lay_out(self, system: &System, x: &[f64], into: &mut [f64]) -> Result<()> {
        let (n, batch) = (system.n, system.batch);
        self.expect(n, batch, "the unknowns", into.len())?;
        if x.len() != system.rows() {
            let (x, rows) = (x.len(), system.rows());
            return Invalid::Shape.fail(format!("{x} unknowns for {rows} rows: expected equal numbers"));
        }
        match self {
            Self::Strided { stride } => into
                .par_chunks_mut(stride)
                .zip(x.par_chunks(n))
                .for_each(|(into, own)| into[..n].copy_from_slice(own)),
            Self::Interleaved => transpose(x, n, &mut into[..n * batch]),
        }
        Ok(())
    }

    fn expect(self, n: usize, batch: usize, what: &str, len: usize) -> Result<()> {
        if n == 0 || batch == 0 {
            return Invalid::Shape.fail(format!("{batch} systems of {n} rows: expected at least 1 of each"));
        }
        if let Self::Strided { stride } = self
            && stride < n
        {
            return Invalid::Shape.fail(format!(
                "stride {stride} for systems of {n} rows is out of range: expected at least {n}"
            ));
        }
        let needed = match self {
            Self::Strided { stride } => (batch - 1).saturating_mul(stride).saturating_add(n),
            Self::Interleaved => batch.saturating_mul(n),
        };
        if len < needed {
            return Invalid::Shape.fail(format!(
                "{what} has {len} numbers: expected {needed}, for {batch} systems of {n} rows in \
                 this layout"
            ));
        }
        Ok(())
    }
}

/// Transposes `from`, which has rows of `columns` numbers, into `to`.
pub(crate) fn transpose(from: &[f64], columns: usize, to: &mut [f64]) {
    let rows = to.len() / columns;
    to.par_chunks_mut(rows * TILE).enumerate().for_each(|(tile, to)| {
        for first in (0..rows).step_by(TILE) {
            for (j, to) in to.chunks_mut(rows).enumerate() {
                let column = tile * TILE + j;
                for i in first..rows.min(first + TILE) {
                    to[i] = from[i * columns + column];
                }
            }
        }
    });
}

impl System {
    /// Creates `batch` systems of `n` rows each from arrays in this layout. The unused ends of dl
    /// and du may have any value.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if there is no row or no system, or an array is too short.
    ///
    /// ```
    /// use kolmo::tridiagonal::{Layout, System};
    ///
    /// // Two systems of three rows, row by row.
    /// let d = [4.0, 5.0, 4.0, 5.0, 4.0, 5.0];
    /// let ones = [1.0; 6];
    /// let systems = System::laid_out(Layout::Interleaved, 3, 2, [&ones, &d, &ones], &[&ones])?;
    /// assert_eq!(systems.d, [4.0, 4.0, 4.0, 5.0, 5.0, 5.0]);
    /// # Ok::<(), kolmo::Error>(())
    /// ```
    pub fn laid_out(
        layout: Layout,
        n: usize,
        batch: usize,
        [dl, d, du]: [&[f64]; 3],
        b: &[&[f64]],
    ) -> Result<Self> {
        let names = ["dl", "d", "du"].into_iter().zip([dl, d, du]);
        let all = names.chain(b.iter().map(|&b| ("b", b)));
        all.into_iter().try_for_each(|(what, values)| layout.expect(n, batch, what, values.len()))?;
        let collect = |values: &[f64]| layout.collect(n, batch, values);
        Self::batched(batch, collect(dl), collect(d), collect(du), b.iter().map(|b| collect(b)).collect())
    }
}
