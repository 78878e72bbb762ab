//! Derivatives of the generator by a parameter, as the step of derivatives reads them.

use crate::kernel::Number;
use crate::sparse::CsrMatrix;
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::exit_rate;

/// Derivative of the scaled generator by a parameter, with norms that bound errors.
#[derive(Debug)]
pub(super) struct GeneratorDerivative {
    /// Transpose: row j has the derivatives of the rates into state j, and of its exit rate.
    pub(super) entries: CsrMatrix,
    /// Bound of ‖dQ‖/α, where ‖dQ‖ is the largest l1 norm of a row.
    pub(super) norm: f64,
    /// Bound of the rounding error of x ↦ x dQ/α for ‖x‖₁ ≤ 1.
    pub(super) rounding: f64,
}

impl GeneratorDerivative {
    /// Takes the derivatives of the rates; row i belongs to source state i.
    pub(super) fn new(rates: &CsrMatrix, statistics: &MatrixStatistics<f64>) -> Self {
        let n = rates.rows();
        let by_source = CsrMatrix::from_rows(n, n, |state, row| {
            row.extend(others(rates, state).map(|(to, d)| (to, d * statistics.scale)));
            let exit = signed_sum(row.iter().map(|&(_, d)| d));
            if exit != 0.0 {
                let at = row.partition_point(|&(to, _)| (to as usize) < state);
                row.insert(at, (state as u32, -exit));
            }
        });
        let entries = by_source.transposed();
        // A term is rounded l times in the sum of l products, and four times in the operations that
        // follow. The exit rate has an error of 2u times the sum of the magnitudes.
        let (mut norm, mut rounding) = (0.0f64, 0.0f64);
        for state in 0..n {
            let (to, values) = by_source.row(state);
            let (mut size, mut rounded) = (0.0, 0.0);
            for (&to, value) in to.iter().zip(values) {
                let length = entries.row(to as usize).0.len();
                size += value.abs();
                rounded += value.abs() * (length as f64 + 6.0);
            }
            norm = norm.max(size);
            rounding = rounding.max(rounded);
        }
        let inverse = 1.001 * statistics.inverse_alpha;
        let count = statistics.nnz as usize + entries.nnz();
        let underflow = f64::NEGLIGIBLE * (4 * count + 12 * n) as f64;
        Self { entries, norm: inverse * norm, rounding: 0.5 * f64::EPSILON * inverse * rounding + underflow }
    }
}

/// Returns the entries of a row without its diagonal.
pub(super) fn others(matrix: &CsrMatrix, state: usize) -> impl Iterator<Item = (u32, f64)> + Clone {
    let (columns, values) = matrix.row(state);
    columns.iter().copied().zip(values.iter().copied()).filter(move |(to, _)| *to as usize != state)
}

/// Returns a sum with an error of at most 2u times the sum of the magnitudes.
pub(super) fn signed_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let part = |sign: f64| exit_rate(values.clone().map(|v| v * sign).filter(|v| *v > 0.0));
    part(1.0) - part(-1.0)
}
