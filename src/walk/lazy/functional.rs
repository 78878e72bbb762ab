//! Functionals of lazy walks: unknowns behind those of the system, whose rows lead to where walks begin.
//!
//! Σ_i h_i x_i / Σ_i |h_i| is the unknown of a row with the entries h_i / Σ |h_i| of L. As a step reads all of its row, rows have
//! at most [`GROUP`] entries, and others lead to them: a walk needs `levels` steps until it stands in the system. All entries are
//! halved, since nothing can be said of walks that meet a row sum of 1; a walk that begins in the system has the weight 2^−levels.

use crate::lane::cpu::expect_memory;
use crate::sparse::CsrMatrix;
use crate::util::quantity::{exponent, times_power_of_two};
use crate::walk::options::Problem;
use crate::{Error, Result};

/// Entries of a row: the rounding of a lazy step is bounded by the square of that number.
const GROUP: usize = 16;

/// What walks begin at: components, or a functional.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) rows: Vec<u32>,
    /// The functional's number.
    pub(super) functional: Option<u32>,
    /// Steps until walks stand in the system.
    pub(super) levels: u32,
    /// Σ |h_i| / 2^exponent, at least 1 where h is not 0; 1 for components.
    pub(super) norm: f64,
    pub(super) exponent: i32,
}

impl Start {
    /// ε of the mean, in which |h_i| sum to 1, where that of the functional is given.
    pub(super) fn of_mean(&self, epsilon: f64) -> f64 {
        let of_mean = times_power_of_two(epsilon / self.norm.max(1.0), -self.exponent);
        of_mean.clamp(f64::MIN_POSITIVE, f64::MAX)
    }
}

/// A system with its functionals as unknowns.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) matrix: CsrMatrix,
    pub(super) rhs: Vec<f64>,
}

/// The components of a problem and its functionals, and the system with these as unknowns, if there are any. `given` is
/// whether the matrix is L.
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
            // Of h = 0 there is a row without entries.
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
        return Err(Error::Invalid(format!(
            "{n} unknowns and {} more for the functionals are out of range: expected at most 2^32 \
             − 2",
            rows.len()
        )));
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
