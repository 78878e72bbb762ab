//! What looks and products of Krylov spaces cost, in products of a sweep. It decides how often they are made, and follows from a chain's
//! size alone: the bits of an answer depend neither on a clock nor on a device.

use super::bound::MatrixStatistics;
use super::kernels::SWEEP_ROWS;

/// Bytes that a product of a sweep moves: its entries and a few numbers a state.
fn product<T>(statistics: &MatrixStatistics<T>, states: usize) -> f64 {
    4.0 * statistics.nnz as f64 + 40.0 * states as f64
}

/// A look whether a sweep can stop: two vectors read, and a way to the host and back. That takes as long as some 50 products of a
/// small chain, and as 20 where a product is one launch of a device.
pub(super) fn look<T>(statistics: &MatrixStatistics<T>, states: usize) -> f64 {
    2.0 + 5e6 / (product(statistics, states) + 1e5)
}

/// A product of a Krylov space: 20 vectors are read three times and a half, every second time twice. Launches take as long as
/// tens of kilobytes do, but where a sweep has hundreds of steps in one, and a share of the small exponential some hundreds.
pub(super) fn krylov<T>(statistics: &MatrixStatistics<T>, states: usize) -> f64 {
    let launch = if states <= SWEEP_ROWS { 1e4 } else { 5e4 };
    1.0 + (840.0 * states as f64 + 1e6) / (product(statistics, states) + launch)
}
