//! Subsystem that the requested components depend on.

use crate::sparse::CsrMatrix;
use crate::walk::options::Problem;
use crate::walk::solution::{Quantity, Solution};
use crate::{Error, Result};

/// Equations of all unknowns that walks can reach, and of no others, with their own numbering.
pub(crate) struct ReachableSystem {
    /// Indices of the subsystem's unknowns in the whole system, ascending.
    rows: Vec<u32>,
    matrix: CsrMatrix,
    rhs: Vec<Vec<f64>>,
    components: Vec<u32>,
    functionals: Vec<Vec<f64>>,
}

impl ReachableSystem {
    /// Returns the subsystem, or none if it is empty or the whole system.
    pub(crate) fn of(problem: &Problem<'_>) -> Option<Self> {
        let whole = problem.matrix;
        let entries = |i: u32| {
            let (columns, values) = whole.row(i as usize);
            columns.iter().zip(values).filter(|&(_, &a)| a != 0.0).map(|(&j, &a)| (j, a))
        };
        let mut reached = vec![false; whole.rows()];
        problem.components.iter().for_each(|&m| reached[m as usize] = true);
        for h in problem.functionals {
            reached.iter_mut().zip(h).for_each(|(reached, &h)| *reached |= h != 0.0);
        }
        let mut rows: Vec<u32> = (0..reached.len() as u32).filter(|&i| reached[i as usize]).collect();
        let mut next = 0;
        while let Some(&i) = rows.get(next) {
            next += 1;
            for (j, _) in entries(i) {
                if !std::mem::replace(&mut reached[j as usize], true) {
                    rows.push(j);
                }
            }
        }
        if rows.len() == whole.rows() || rows.is_empty() {
            return None;
        }
        rows.sort_unstable();
        let own = |j: u32| rows.binary_search(&j).expect("rows lead to rows that were reached") as u32;
        let n = rows.len();
        let matrix = CsrMatrix::from_rows(n, n, |i, row| {
            row.extend(entries(rows[i]).map(|(j, a)| (own(j), a)));
        });
        let part =
            |all: &[Vec<f64>]| all.iter().map(|x| rows.iter().map(|&i| x[i as usize]).collect()).collect();
        let (rhs, functionals) = (part(problem.rhs), part(problem.functionals));
        let components = problem.components.iter().map(|&m| own(m)).collect();
        Some(Self { rows, matrix, rhs, components, functionals })
    }

    pub(crate) fn problem(&self) -> Problem<'_> {
        let Self { matrix, rhs, components, functionals, .. } = self;
        Problem { matrix, rhs, components, functionals }
    }

    /// Converts row numbers of a solution or error to those of the whole system.
    pub(crate) fn back(&self, problem: &Problem<'_>, answer: Result<Solution>) -> Result<Solution> {
        let mut solution = answer.map_err(|error| match error {
            Error::Divergent { what, row, sum, matrix, lower, upper, and, remedy } => {
                let row = self.rows[row] as usize;
                Error::Divergent { what, row, sum, matrix, lower, upper, and, remedy }
            }
            other => other,
        })?;
        let (n, reached) = (problem.matrix.rows(), self.rows.len());
        let all = solution.components.iter_mut().chain(&mut solution.rounds);
        for c in all.filter(|c| c.quantity == Quantity::Component) {
            c.component = self.rows[c.component as usize];
        }
        (solution.n, solution.nnz) = (n, problem.matrix.nnz());
        solution.row_norm.1 = self.rows[solution.row_norm.1] as usize;
        solution.warnings.push(format!(
            "the convergence of walks on all {n} unknowns is not proved; the components depend on \
             {reached} of them, on which walks converge"
        ));
        Ok(solution)
    }
}
