//! Interface of systems that the host eliminates: tridiagonal, cyclic and banded.

use std::ops::Range;

use crate::tridiagonal::residual::Residual;
use crate::util::quantity::exponent;

/// Systems that the host can eliminate; all their rows are local.
pub(crate) trait Eliminate: Sized + Sync {
    /// Rows of a system, and the number of systems.
    fn size(&self) -> (usize, usize);
    /// True if no matrix element couples row `i` and later rows of a system with rows before.
    fn is_decoupled(&self, i: usize) -> bool;
    /// Rows that are not coupled to other rows, as a system of its own.
    fn part(&self, here: Range<usize>) -> Self;
    fn b(&self) -> &[&[f64]];
    /// Computes r = b − A·x, and returns its residual norms.
    fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual;
    /// Columns and values of the elements of a row of one system.
    fn elements(&self, i: usize) -> impl Iterator<Item = (usize, f64)>;
    /// Number of diagonals on each side of the main one; if cyclic, those of the folded band.
    fn bandwidth(&self) -> usize;
    /// True if the first and the last unknown are neighbours.
    fn is_cyclic(&self) -> bool {
        false
    }
    /// Solves one system in place. Returns the row of a zero pivot, if any.
    fn eliminate(&self, b: &mut [Vec<f64>]) -> Option<usize>;
    /// Solves one system for the right-hand sides `b`, with rows and columns multiplied by powers
    /// of two.
    fn scaled(&self, rows: &[i32], columns: &[i32], b: Vec<&[f64]>) -> Result<Vec<Unknowns>, usize>;
}

/// Unknowns of one right-hand side, with their residual and the number of corrections.
pub(crate) struct Unknowns {
    pub(super) x: Vec<f64>,
    pub(super) residual: Residual,
    pub(super) corrections: u32,
}

/// Exponents of powers of two that scale first each row, then each column, to a maximum of 1 … 2.
pub(crate) fn scales(system: &impl Eliminate) -> (Vec<i32>, Vec<i32>) {
    let (n, _) = system.size();
    let sized = |i| system.elements(i).filter(|(_, v)| *v != 0.0).map(|(column, v)| (column, exponent(v)));
    let rows: Vec<i32> = (0..n).map(|i| -sized(i).map(|(_, size)| size).max().unwrap_or(0)).collect();
    let mut sizes = vec![None; n];
    for (i, own) in rows.iter().enumerate() {
        for (column, size) in sized(i) {
            sizes[column] = sizes[column].max(Some(size + own));
        }
    }
    (rows, sizes.into_iter().map(|size| -size.unwrap_or(0)).collect())
}
