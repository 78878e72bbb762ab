//! Matrix of a uniformization step of probabilities and their derivatives.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::{Number, fma};
use crate::lane::expect_memory;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::{Transitions, exit_rate};
use crate::{Invalid, Result};

/// Rows that a thread processes at once.
pub(super) const BLOCK: usize = 512;

/// Minimum average number of entries per class; with fewer, further entries do not share classes.
const ENTRIES_OF_A_CLASS: usize = 8;

/// Qᵀ and the transposed derivatives of Q on one pattern, for `W` interleaved vectors.
///
/// Vector 0 is x, and vector c ≥ 1 its derivative by parameter c. To save memory, entries with
/// equal numbers in all `W` matrices share a class: a row of `table`. The first entry of each row
/// is its diagonal.
#[derive(Debug)]
pub(super) struct Matrix<const W: usize> {
    starts: Vec<usize>,
    columns: Vec<u32>,
    classes: Vec<u32>,
    /// Scaled rate of each class, and its derivatives; for diagonals, those of the exit rate.
    table: Vec<[f64; W]>,
    inverse_alpha: f64,
    /// Bound of ‖dQ‖/α for each parameter, where ‖dQ‖ is the largest l1 norm of a row.
    pub(super) norms: Vec<f64>,
    /// Bound of the rounding error of x ↦ x dQ/α for each parameter and ‖x‖₁ ≤ 1.
    pub(super) rounding: Vec<f64>,
}

/// Classes so far: distinct rows of `W` numbers.
struct Classes<const W: usize> {
    /// Class of each row, found by the bits of its numbers.
    of: HashMap<[u64; W], u32, FixedState>,
    table: Vec<[f64; W]>,
    /// Number of classes from which on entries do not share classes.
    most: usize,
}

impl<const W: usize> Classes<W> {
    /// Returns the class of a row of numbers; adds it to the table if it is new.
    fn class(&mut self, numbers: [f64; W]) -> u32 {
        let next = self.table.len() as u32;
        let class = match self.table.len() < self.most {
            true => *self.of.entry(numbers.map(f64::to_bits)).or_insert(next),
            false => next,
        };
        if class == next {
            self.table.push(numbers);
        }
        class
    }
}

impl<const W: usize> Matrix<W> {
    /// Reads a chain and the derivatives of its rates, row i of which belongs to source state i.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], and [`Invalid`] for 2³² entries or more.
    pub(super) fn new(
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<f64>,
        derivatives: &[&CsrMatrix],
    ) -> Result<Self> {
        let (n, scale) = (transitions.states(), statistics.scale);
        let inverse_alpha = inverse_alpha(statistics);
        let count = statistics.nnz as usize + n + derivatives.iter().map(|d| d.nnz()).sum::<usize>();
        if u32::try_from(count).is_err() {
            return Invalid::TooLarge
                .fail(format!("{count} transitions are out of range: expected below 2^32"));
        }
        expect_memory((count * (8 + 8 * W) + n * 32 * W) as u64, || {
            format!("a chain of {n} states with derivatives")
        })?;
        let turned: Vec<CsrMatrix> = derivatives.iter().map(|d| d.transposed()).collect();
        // For each row of dQ without diagonal: sum, sum of magnitudes, and that times roundings.
        let mut sums = vec![vec![[0.0; 3]; n]; derivatives.len()];
        for (derivative, sums) in derivatives.iter().zip(&mut sums) {
            for (state, [sum, ..]) in sums.iter_mut().enumerate() {
                *sum = signed_sum(others(derivative, state).map(|(_, d)| d)) * scale;
            }
        }
        let most = (statistics.nnz as usize / ENTRIES_OF_A_CLASS).max(1 << 10);
        let mut classes = Classes { of: HashMap::default(), table: Vec::new(), most };
        let mut matrix = Self {
            starts: Vec::with_capacity(n + 1),
            columns: Vec::with_capacity(count),
            classes: Vec::with_capacity(count),
            table: Vec::new(),
            inverse_alpha,
            norms: Vec::new(),
            rounding: Vec::new(),
        };
        let (mut entries, mut row) = (Vec::new(), Vec::new());
        for state in 0..n {
            matrix.starts.push(matrix.columns.len());
            let mut own = [statistics.exit[state]; W];
            for (own, sums) in own[1..].iter_mut().zip(&sums) {
                *own = sums[state][0];
            }
            matrix.columns.push(state as u32);
            matrix.classes.push(classes.class(own));
            row.clear();
            transitions.incoming(state, &mut row);
            merge(&row, &turned, (state, scale), &mut entries);
            // Maximum number of roundings of a term: in the sum, and in the operations after it.
            let roundings = entries.len() as f64 + 6.0;
            for (column, numbers) in &entries {
                for (number, sums) in numbers[1..].iter().zip(&mut sums) {
                    sums[*column as usize][1] += number.abs();
                    sums[*column as usize][2] += number.abs() * roundings;
                }
                matrix.columns.push(*column);
                matrix.classes.push(classes.class(*numbers));
            }
        }
        matrix.starts.push(matrix.columns.len());
        matrix.table = classes.table;
        let largest = |sums: &Vec<[f64; 3]>, of: fn(&[f64; 3]) -> f64| {
            1.001 * inverse_alpha * sums.iter().map(of).fold(0.0, f64::max)
        };
        matrix.norms = sums.iter().map(|sums| largest(sums, |[sum, all, _]| all + sum.abs())).collect();
        let rounding = |[_, all, rounded]: &[f64; 3]| 0.5 * f64::EPSILON * (rounded + 8.0 * all);
        let underflow = f64::NEGLIGIBLE * (4 * count + 12 * n) as f64;
        matrix.rounding = sums.iter().map(|sums| largest(sums, rounding) + underflow).collect();
        Ok(matrix)
    }

    /// Writes the next vectors to `next`: xP, and yP + x dQ/α of each derivative y.
    pub(super) fn step(&self, x: &[[f64; W]], next: &mut [[f64; W]]) {
        next.par_chunks_mut(BLOCK).enumerate().for_each(|(block, next)| {
            dispatch(Rows { matrix: self, x, first: block * BLOCK, next });
        });
    }
}

/// Returns the stored 1/α; 1 for a chain without transitions, where any α is valid.
pub(super) fn inverse_alpha(statistics: &MatrixStatistics<f64>) -> f64 {
    if statistics.inverse_alpha > 0.0 { statistics.inverse_alpha } else { 1.0 }
}

/// Returns the entries of a row without its diagonal.
pub(in crate::transient) fn others(
    matrix: &CsrMatrix,
    state: usize,
) -> impl Iterator<Item = (u32, f64)> + Clone {
    let (columns, values) = matrix.row(state);
    columns.iter().copied().zip(values.iter().copied()).filter(move |(to, _)| *to as usize != state)
}

/// Returns a sum with an error of at most 2u times the sum of the magnitudes.
pub(super) fn signed_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let part = |sign: f64| exit_rate(values.clone().map(|v| v * sign).filter(|v| *v > 0.0));
    part(1.0) - part(-1.0)
}

/// Merges row `state` of Qᵀ and of the transposed derivatives, multiplied by `scale`.
///
/// Columns ascend, and the diagonal is left out.
fn merge<const W: usize>(
    row: &[(u32, f64)],
    derivatives: &[CsrMatrix],
    (state, scale): (usize, f64),
    entries: &mut Vec<(u32, [f64; W])>,
) {
    entries.clear();
    let of = |vector: usize| move |(column, value): (u32, f64)| (column, vector, value * scale);
    let rates = row.iter().copied().map(of(0));
    let others = derivatives.iter().zip(1..).flat_map(|(d, vector)| others(d, state).map(of(vector)));
    let mut all: Vec<(u32, usize, f64)> = rates.chain(others).collect();
    all.sort_by_key(|&(column, ..)| column);
    for (column, vector, value) in all {
        match entries.last_mut().filter(|(last, _)| *last == column) {
            Some((_, numbers)) => numbers[vector] = value,
            None => {
                let mut numbers = [0.0; W];
                numbers[vector] = value;
                entries.push((column, numbers));
            }
        }
    }
}

/// A block of rows of a step, from row `first`.
struct Rows<'a, const W: usize> {
    matrix: &'a Matrix<W>,
    x: &'a [[f64; W]],
    first: usize,
    next: &'a mut [[f64; W]],
}

impl<const W: usize> Body for Rows<'_, W> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Matrix { starts, columns, classes, table, inverse_alpha, .. } = self.matrix;
        let (x, inverse) = (self.x, *inverse_alpha);
        for (row, next) in (self.first..).zip(self.next) {
            let entries = starts[row]..starts[row + 1];
            let (classes, columns) = (&classes[entries.clone()], &columns[entries]);
            let (mut flow, mut change) = ([0.0; W], [0.0; W]);
            for (&class, &column) in classes[1..].iter().zip(&columns[1..]) {
                let (numbers, x) = (&table[class as usize], &x[column as usize]);
                for c in 0..W {
                    flow[c] = fma::<f64, LEVEL>(numbers[0], x[c], flow[c]);
                }
                if W > 1 {
                    for c in 0..W {
                        change[c] = fma::<f64, LEVEL>(numbers[c], x[0], change[c]);
                    }
                }
            }
            let (leave, own) = (&table[classes[0] as usize], &x[row]);
            for c in 0..W {
                let y = match fused(LEVEL) {
                    true => f64::stepped::<true>(flow[c], leave[0], own[c], inverse),
                    false => f64::stepped::<false>(flow[c], leave[0], own[c], inverse),
                };
                let moved = fma::<f64, LEVEL>(-leave[c], own[0], change[c]);
                let y = if c == 0 { y } else { fma::<f64, LEVEL>(moved, inverse, y) };
                // Subnormal numbers are slow.
                next[c] = if y.abs() < f64::NEGLIGIBLE { 0.0 } else { y };
            }
        }
    }
}
