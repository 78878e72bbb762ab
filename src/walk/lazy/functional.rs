//! Functionals of lazy walks, as additional unknowns after those of the system.
//!
//! Σ_i h_i x_i / Σ_i |h_i| is the unknown of a row of L with the entries h_i / Σ |h_i|. A step
//! reads all entries of its row, so rows have at most [`GROUP`] entries. Larger functionals are
//! trees of such rows: a walk takes `levels` steps to reach the system. All entries are halved,
//! because walks that meet a row sum of 1 have no error bound. A walk thus enters the system with
//! the weight 2^−levels.

use crate::lane::cpu::expect_memory;
use crate::sparse::CsrMatrix;
use crate::util::quantity::{exponent, times_power_of_two};
use crate::walk::options::Problem;
use crate::{Invalid, Result};

/// Largest number of entries of a row; the rounding bound of a lazy step grows with its square.
const GROUP: usize = 16;

/// Start rows of walks: the components, or one functional.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) rows: Vec<u32>,
    /// Number of the functional, none for components.
    pub(super) functional: Option<u32>,
    /// Number of steps before walks reach the system.
    pub(super) levels: u32,
    /// Σ |h_i| / 2^exponent, at least 1 unless h is 0; 1 for components.
    pub(super) norm: f64,
    pub(super) exponent: i32,
}

impl Start {
    /// Converts ε of a functional to that of its mean, for which Σ |h_i| = 1.
    pub(super) fn of_mean(&self, epsilon: f64) -> f64 {
        let of_mean = times_power_of_two(epsilon / self.norm.max(1.0), -self.exponent);
        of_mean.clamp(f64::MIN_POSITIVE, f64::MAX)
    }
}

/// A system with its functionals as additional unknowns.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) matrix: CsrMatrix,
    pub(super) rhs: Vec<f64>,
}

/// Returns the starts of the components and functionals, and the system extended by the latter.
///
/// Without functionals there is no extended system. `given` is true if the matrix is L.
pub(super) fn starts(problem: &Problem<'_>, given: bool) -> Result<(Vec<Start>, Option<Extended>)> {
    let n = problem.matrix.rows();
    let components =
        Start { rows: problem.components.to_vec(), functional: None, levels: 0, norm: 1.0, exponent: 0 };
    let mut all: Vec<Start> = Some(components).filter(|c| !c.rows.is_empty()).into_iter().collect();
    if problem.functionals.is_empty() {
        return Ok((all, None));
    }
    // Rows of L.
    let mut rows: Vec<Vec<(u32, f64)>> = Vec::new();
    for (h, k) in problem.functionals.iter().zip(0..) {
        let largest = h.iter().fold(0.0f64, |most, h| most.max(h.abs()));
        let exponent = if largest > 0.0 { exponent(largest) } else { 0 };
        let scaled = (0..).zip(h.iter().map(|&h| times_power_of_two(h, -exponent)));
        let mut entries: Vec<(u32, f64)> = scaled.filter(|&(_, h)| h != 0.0).collect();
        let mut levels = 0;
        loop {
            levels += 1;
            let mut group = |entries: &[(u32, f64)]| {
                let sum: f64 = entries.iter().map(|(_, h)| h.abs()).sum();
                rows.push(entries.iter().map(|&(i, h)| (i, 0.5 * (h / sum))).collect());
                ((n + rows.len() - 1) as u32, sum)
            };
            // h = 0 has a row without entries.
            let groups: Vec<(u32, f64)> = match entries[..] {
                [] => vec![group(&[])],
                _ => entries.chunks(GROUP).map(group).collect(),
            };
            if let [(row, norm)] = groups[..] {
                all.push(Start { rows: vec![row], functional: Some(k), levels, norm, exponent });
                break;
            }
            entries = groups;
        }
    }
    let (count, entries) = (n + rows.len(), problem.matrix.nnz() + rows.iter().map(Vec::len).sum::<usize>());
    if count >= u32::MAX as usize {
        return Invalid::TooLarge.fail(format!(
            "{n} unknowns and {} more for the functionals are out of range: expected at most 2^32 \
             − 2",
            rows.len()
        ));
    }
    expect_memory(24 * entries as u64 + 16 * count as u64, || "the system with its functionals".to_owned())?;
    let matrix = CsrMatrix::from_rows(count, count, |i, row| {
        if i < n {
            let (columns, values) = problem.matrix.row(i);
            return row.extend(columns.iter().copied().zip(values.iter().copied()));
        }
        let sign = if given { 1.0 } else { -1.0 };
        row.extend(rows[i - n].iter().map(|&(j, l)| (j, sign * l)));
        row.extend((!given).then_some((i as u32, 1.0)));
    });
    let mut rhs = problem.rhs[0].clone();
    rhs.resize(count, 0.0);
    Ok((all, Some(Extended { matrix, rhs })))
}
