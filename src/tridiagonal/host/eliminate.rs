//! Systems that the host eliminates: tridiagonal, cyclic and banded ones.

use std::ops::Range;

use crate::tridiagonal::residual::Residual;
use crate::util::quantity::exponent;

/// Systems that the host can eliminate, all of whose rows are here.
pub(crate) trait Eliminate: Sized + Sync {
    /// Rows of a system, and the number of systems.
    fn size(&self) -> (usize, usize);
    /// True if row `i` of a system and those behind it ask nothing of the rows before, nor these of them.
    fn is_decoupled(&self, i: usize) -> bool;
    /// Rows that ask nothing of others, as a system.
    fn part(&self, here: Range<usize>) -> Self;
    /// Right-hand sides.
    fn b(&self) -> &[&[f64]];
    /// r = b − A·x, and how small it is.
    fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual;
    /// Columns and values of the elements of a row of one system.
    fn elements(&self, i: usize) -> impl Iterator<Item = (usize, f64)>;
    /// Diagonals on either side, those of a folded band if the system is cyclic.
    fn bandwidth(&self) -> usize;
    /// True if the first and the last unknown are neighbours.
    fn is_cyclic(&self) -> bool;
    /// Solves one system in place; the row of a pivot that is zero, if there is one.
    fn eliminate(&self, b: &mut [Vec<f64>]) -> Option<usize>;
    /// Answers for the right-hand sides `b` of one system whose rows and columns are multiplied by 2^k.
    fn scaled(&self, rows: &[i32], columns: &[i32], b: Vec<&[f64]>) -> Result<Vec<Answer>, usize>;
}

/// Unknowns of one right-hand side, how well they solve it, and after how many corrections.
pub(crate) struct Answer {
    pub(super) x: Vec<f64>,
    pub(super) residual: Residual,
    pub(super) corrections: u32,
}

/// Exponents of factors by which first each row has a largest element of 1 … 2, then each column.
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
