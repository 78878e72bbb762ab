//! Solution of banded systems in one call, with the residuals of the unknowns.

use std::ops::Range;
use std::time::Instant;

use super::super::options::{Options, Pivot, PlanOptions, Refine};
use super::super::residual::{Residual, joined};
use super::super::solve::SYSTEMS;
use super::plan::BandedPlan;
use super::{Banded, BandedSystem, Form};
use crate::lane::Lane;
use crate::parallel::*;
use crate::tridiagonal::host::eliminate::{Eliminate, Unknowns};
use crate::tridiagonal::host::pivoted_lu::{self, corrected};
use crate::tridiagonal::host::singularity::{clear, largest_size, noise};
use crate::tridiagonal::host::{banded_lu, scaling};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::NOT_DOMINANT;
use crate::tridiagonal::solution::{Method, Pass, Solution};
use crate::tridiagonal::solve::refinement::Refined;
use crate::util::quantity::times_power_of_two;
use crate::{Invalid, Machine, Result};

/// Solves pentadiagonal or block tridiagonal systems on lanes of one precision.
///
/// If windows suffice, one pass over the rows solves the system and certifies each row. Otherwise
/// banded elimination with partial pivoting on the host follows. The fields of the [`Solution`] are
/// those that [`solve`](super::super::solve()) returns for tridiagonal systems.
///
/// # Errors
/// [`crate::Error::Invalid`] for numbers that are not finite, and several ranks; errors of devices.
/// A singular matrix and unknowns beyond the range of doubles are no errors but outcomes.
pub fn solve_banded(machine: &Machine, system: &BandedSystem, options: &Options) -> Result<Solution> {
    if machine.ranks.is_distributed() {
        return Invalid::Unsupported.fail(format!(
            "a pentadiagonal or block tridiagonal system is not supported on {} ranks: expected \
             one process",
            machine.ranks.size()
        ));
    }
    machine.expect_floating(SYSTEMS)?;
    system.check()?;
    by_floating!(machine.precision, run(&machine.lanes, &system.view(), options))
}

fn run<T: Number>(lanes: &[Lane], view: &Banded<'_>, options: &Options) -> Result<Solution> {
    let (dominant, regular) = view.dominance();
    let mut done = Pass::new(vec![vec![0.0; view.rows()]; view.b.len()], &PlanOptions::default());
    done.flags = if dominant { 0 } else { NOT_DOMINANT };
    let started = Instant::now();
    let mut certified = false;
    let mut plan = match options.pivot {
        Pivot::Scaled => None,
        Pivot::None | Pivot::Auto => BandedPlan::<T>::of(lanes, view)?,
    };
    done.solution.block = 0;
    while let Some(mut own) = plan.take() {
        let solution = &mut done.solution;
        (solution.device_bytes, solution.chunks) = (own.device_bytes(), own.parts());
        solution.block = own.tile();
        certified = solve_all(&mut own, view, options.refine, dominant, solution)?;
        done.doubt = certified && !regular && is_doubtful(&mut own, view)?;
        plan = if certified { None } else { own.wider(view)? };
    }
    let asked = |residual: Residual| match options.refine {
        _ if !certified => true,
        Refine::Auto => !residual.fine(dominant),
        Refine::Steps(_) => !residual.within(options.tolerance),
    };
    if !certified || done.doubt || asked(done.residual()) {
        let solution = &mut done.solution;
        let host = pivoted_lu::improve(view, &mut solution.x, asked, done.doubt);
        let residuals = view.b.iter().zip(&solution.x).map(|(b, x)| view.residual(b, x, &mut []));
        solution.residuals = residuals.collect();
        solution.singular = host.singular;
        if host.changed {
            solution.refinements = host.corrections;
        }
        if host.changed || !certified {
            solution.method = Method::Host;
        }
    }
    done.solution.solve_seconds = started.elapsed().as_secs_f64();
    Ok(done.finish(&view.b, crate::ranks::Ranks::ALONE, options.tolerance))
}

/// Solves for all right-hand sides and refines; false at the first that is not certified.
fn solve_all<T: Number>(
    plan: &mut BandedPlan<'_, T>,
    view: &Banded<'_>,
    refine: Refine,
    dominant: bool,
    solution: &mut Solution,
) -> Result<bool> {
    let headroom = scaling::headroom(T::PRECISION);
    for (k, b) in view.b.iter().enumerate() {
        let x = &mut solution.x[k];
        let shift = scaling::shift(scaling::largest(b), headroom);
        if !plan.run(view, (b, shift), x)? {
            return Ok(false);
        }
        if shift != 0 {
            x.iter_mut().for_each(|x| *x = times_power_of_two(*x, -shift));
        }
        // The residual is computed in double precision.
        let mut r = vec![0.0; b.len()];
        let mut better = vec![0.0; b.len()];
        let mut refined =
            Refined::new((refine, dominant), view.residual(b, x, &mut r), || scaling::largest(&r));
        while let Some(scale) = refined.scale {
            plan.run(view, (&r, scale), &mut better)?;
            better.iter_mut().zip(&*x).for_each(|(e, x)| *e = x + times_power_of_two(*e, -scale));
            let after = view.residual(b, &better, &mut r);
            refined.correct(after, x, &better, || scaling::largest(&r));
        }
        solution.residuals[k] = refined.residual;
        solution.refinements = solution.refinements.max(refined.steps);
    }
    Ok(true)
}

/// True if the matrix may be singular, judged by the solution for a random right-hand side. Its
/// element i is the sum of the absolute values of row i times a random factor.
fn is_doubtful<T: Number>(plan: &mut BandedPlan<'_, T>, view: &Banded<'_>) -> Result<bool> {
    let row = |i: usize| noise(i, 0) * view.row(i).iter().map(|v| v.abs()).sum::<f64>();
    let b: Vec<f64> = (0..view.rows()).into_par_iter().map(row).collect();
    let mut x = vec![0.0; b.len()];
    Ok(!plan.run(view, (&b, 0), &mut x)? || largest_size(&x) > clear(T::PRECISION))
}

impl Eliminate for Banded<'_> {
    fn size(&self) -> (usize, usize) {
        (self.n, self.batch)
    }

    fn is_decoupled(&self, i: usize) -> bool {
        // Blocks are not cut. In a pentadiagonal matrix the two adjacent elements rule out most
        // rows.
        let cut = match self.form {
            Form::Pentadiagonal => self.arrays[1][i] == 0.0 && self.arrays[3][i - 1] == 0.0,
            Form::Blocks => i.is_multiple_of(2),
        };
        cut && (i.saturating_sub(3)..self.rows().min(i + 3))
            .all(|row| self.elements(row).all(|(column, v)| v == 0.0 || (column < i) == (row < i)))
    }

    fn part(&self, here: Range<usize>) -> Self {
        let width = self.form.width();
        let of = |v: &'_ [f64]| -> Range<usize> {
            if v.is_empty() { 0..0 } else { width * here.start..width * here.end }
        };
        Self {
            form: self.form,
            n: here.len(),
            batch: 1,
            arrays: self.arrays.map(|array| &array[of(array)]),
            b: self.b.iter().map(|b| &b[here.clone()]).collect(),
        }
    }

    fn b(&self) -> &[&[f64]] {
        &self.b
    }

    fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        let system = |here: Range<usize>, r: &mut [f64]| {
            self.part(here.clone()).norms(&b[here.clone()], &x[here], r).residual()
        };
        joined(0..self.rows(), self.n, r, system, Residual::max)
    }

    fn elements(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        // Elements beyond the ends are zeros.
        let (first, n) = (i / 2 * 2, self.rows());
        let columns = self.row(i).into_iter().enumerate().map(move |(k, v)| ((first + k).wrapping_sub(2), v));
        columns.filter(move |&(column, _)| column < n)
    }

    fn bandwidth(&self) -> usize {
        if self.form == Form::Blocks { 3 } else { 2 }
    }

    fn eliminate(&self, b: &mut [Vec<f64>]) -> Option<usize> {
        match self.form {
            Form::Pentadiagonal => banded_lu::solve(self.n, |i| self.arrays.map(|array| array[i]), b),
            // The first row of a block has one element more after its diagonal, the second one
            // before it.
            Form::Blocks => {
                let row = |i: usize| {
                    let [a, b, c, d, e, f] = self.row(i);
                    if i.is_multiple_of(2) { [0.0, a, b, c, d, e, f] } else { [a, b, c, d, e, f, 0.0] }
                };
                banded_lu::solve(self.n, row, b)
            }
        }
    }

    fn scaled(
        &self,
        rows: &[i32],
        columns: &[i32],
        b: Vec<&[f64]>,
    ) -> std::result::Result<Vec<Unknowns>, usize> {
        let width = self.form.width();
        let count = self.form.names().len();
        let mut arrays: [Vec<f64>; 5] = std::array::from_fn(|_| Vec::new());
        for (k, array) in arrays.iter_mut().enumerate().take(count) {
            let given = self.arrays[k];
            array.extend(given.iter().enumerate().map(|(at, &v)| {
                let row = at / width;
                let column = match self.form {
                    Form::Pentadiagonal => (row + k).wrapping_sub(2),
                    Form::Blocks => (row / 2 * 2 + 2 * k + at % 2).wrapping_sub(2),
                };
                columns.get(column).map_or(0.0, |&own| times_power_of_two(v, rows[row] + own))
            }));
        }
        corrected(&Banded { arrays: arrays.each_ref().map(|array| &array[..]), b, ..*self })
    }
}
