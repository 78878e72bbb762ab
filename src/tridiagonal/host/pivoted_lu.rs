//! Elimination with partial pivoting on the host, for systems that need pivoting, and the test for
//! singular matrices.
//!
//! Corrections with the residual make the componentwise error small (Skeel 1980,
//! doi:10.1090/S0025-5718-1980-0572859-4).

use std::ops::Range;

use super::eliminate::{Eliminate, Unknowns, scales};
use super::lu::{gtsv, gtsv_cyclic};
use super::{scaling, singularity};
use crate::kernel::Precision;
use crate::parallel::*;
use crate::tridiagonal::residual::Residual;
use crate::tridiagonal::system::row_range::RowSpan;
use crate::tridiagonal::system::view::View;
use crate::util::quantity::{exponent, times_power_of_two};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Improved {
    pub(crate) changed: bool,
    /// First system and row in which a matrix is singular; `None` if all are regular.
    pub(crate) singular: Option<(usize, usize)>,
    /// Number of corrections (refinement steps), the maximum over all replaced unknowns.
    pub(crate) corrections: u32,
}

impl Eliminate for View<'_> {
    fn size(&self) -> (usize, usize) {
        (self.span.n, self.span.batch)
    }

    fn is_decoupled(&self, i: usize) -> bool {
        self.du[i - 1] == 0.0 && self.dl[i] == 0.0 && !self.span.cyclic
    }

    fn part(&self, here: Range<usize>) -> Self {
        View::part(self, here)
    }

    fn b(&self) -> &[&[f64]] {
        &self.b
    }

    fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        View::residual(self, b, x, r)
    }

    fn elements(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let RowSpan { n, cyclic, .. } = self.span;
        let all = [
            (i > 0 || cyclic, (i + n - 1) % n, self.dl[i]),
            (true, i, self.d[i]),
            (i + 1 < n || cyclic, (i + 1) % n, self.du[i]),
        ];
        all.into_iter().filter(|(used, ..)| *used).map(|(_, column, v)| (column, v))
    }

    fn bandwidth(&self) -> usize {
        1 + usize::from(self.span.cyclic)
    }

    fn is_cyclic(&self) -> bool {
        self.span.cyclic
    }

    fn eliminate(&self, b: &mut [Vec<f64>]) -> Option<usize> {
        match self.span.cyclic {
            // Without fused operations the result has the bits of LAPACK's reference
            // implementation. For nearly singular matrices, in which rounding alone decides, no
            // answer is worse than LAPACK's.
            false => gtsv::<false>(self.dl, self.d, self.du, b),
            true => gtsv_cyclic(self.dl, self.d, self.du, b),
        }
    }

    fn scaled(&self, rows: &[i32], columns: &[i32], b: Vec<&[f64]>) -> Result<Vec<Unknowns>, usize> {
        let RowSpan { n, cyclic, .. } = self.span;
        let product = |used: bool, v: f64, i: usize, column: usize| match used {
            true => times_power_of_two(v, rows[i] + columns[column]),
            false => 0.0,
        };
        let dl: Vec<f64> = (0..n).map(|i| product(i > 0 || cyclic, self.dl[i], i, (i + n - 1) % n)).collect();
        let d: Vec<f64> = (0..n).map(|i| product(true, self.d[i], i, i)).collect();
        let du: Vec<f64> = (0..n).map(|i| product(i + 1 < n || cyclic, self.du[i], i, (i + 1) % n)).collect();
        corrected(&View { span: self.span, dl: &dl, d: &d, du: &du, b })
    }
}

fn parts(all: &impl Eliminate, system: usize) -> Vec<Range<usize>> {
    let (n, _) = all.size();
    let (first, end) = (system * n, (system + 1) * n);
    let apart = |&i: &usize| all.is_decoupled(i);
    let mut starts: Vec<usize> = std::iter::once(first).chain((first + 1..end).filter(apart)).collect();
    starts.push(end);
    starts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Solves the decoupled parts of systems for which `asked` returns true, given their residual.
///
/// Of each right-hand side the better unknowns are kept. These parts, or all parts if there is
/// `doubt`, are tested for singular matrices, and the unknowns of singular ones become NaN.
pub(crate) fn improve(
    view: &impl Eliminate,
    x: &mut [Vec<f64>],
    asked: impl Fn(Residual) -> bool + Sync,
    doubt: bool,
) -> Improved {
    let (n, batch) = view.size();
    let given: &[Vec<f64>] = x;
    let all: Vec<Range<usize>> = (0..batch).flat_map(|s| parts(view, s)).collect();
    let one = |here: &Range<usize>| {
        let system = view.part(here.clone());
        let residuals: Vec<Residual> = system
            .b()
            .iter()
            .zip(given)
            .map(|(b, x)| system.residual(b, &x[here.clone()], &mut []))
            .collect();
        let asked = residuals.iter().any(|&r| asked(r));
        (asked || doubt).then(|| {
            let found = if asked { best(&system) } else { Ok((Vec::new(), false)) };
            let answers = found.and_then(|(answers, overflow)| {
                let singular = if overflow { None } else { singularity::singular(&system) };
                singular.map_or(Ok(answers), Err)
            });
            (here.clone(), residuals, answers)
        })
    };
    let solved: Vec<_> = all.par_iter().map(one).collect();
    let mut all = Improved::default();
    for (here, residuals, answers) in solved.into_iter().flatten() {
        match answers {
            Err(row) => {
                x.iter_mut().for_each(|x| x[here.clone()].fill(f64::NAN));
                let place = (here.start / n, here.start % n + row);
                all = Improved { changed: true, singular: all.singular.or(Some(place)), ..all };
            }
            Ok(answers) => {
                for ((x, given), own) in x.iter_mut().zip(residuals).zip(answers) {
                    if own.residual.excess() < given.excess() || !given.excess().is_finite() {
                        x[here.clone()].copy_from_slice(&own.x);
                        all.changed = true;
                        all.corrections = all.corrections.max(own.corrections);
                    }
                }
            }
        }
    }
    all
}

/// Eliminates one system as it is. If the result can be improved, it also eliminates the system
/// with rows and columns scaled to size 1, and returns the better unknowns.
///
/// The second result is true if the scaled system overflows (see [`balanced`]). The error is the
/// row of a zero pivot, if both eliminations have one.
fn best(system: &impl Eliminate) -> Result<(Vec<Unknowns>, bool), usize> {
    let first = corrected(system);
    if let Ok(answers) = &first
        && answers.iter().all(|answer| answer.residual.fine(false))
    {
        return first.map(|answers| (answers, false));
    }
    match (first, balanced(system)) {
        (Ok(first), Ok((second, overflow))) => {
            let better = |(a, b): (Unknowns, Unknowns)| {
                if a.residual.excess() < b.residual.excess() { a } else { b }
            };
            Ok((first.into_iter().zip(second).map(better).collect(), overflow))
        }
        (Err(row), Err(_)) => Err(row),
        (Ok(answers), Err(_)) => Ok((answers, false)),
        (Err(_), Ok(second)) => Ok(second),
    }
}

/// Maximum number of corrections. If they help, each leaves less than half of the error.
const CORRECTIONS: u32 = 12;

/// Replaces unknowns that one row determines, such as x_i = b_i / d_i, by the value from that row.
///
/// A row determines an unknown if it has no other, or if its others are determined. Elimination may
/// take such an unknown from another row with a larger element and more rounding errors. Returns
/// true if an unknown changes.
fn settle(system: &impl Eliminate, x: &mut [f64], b: &[f64]) -> bool {
    let (n, mut changed) = (x.len(), false);
    let mut known = vec![false; n];
    let mut rows = Vec::new();
    for start in (0..n).rev() {
        rows.push(start);
        while let Some(i) = rows.pop() {
            let all = || system.elements(i).filter(|(_, v)| *v != 0.0);
            let mut open = all().filter(|&(column, _)| !known[column]);
            let (Some((own, v)), None) = (open.next(), open.next()) else { continue };
            drop(open);
            let others = all().filter(|&(column, _)| column != own);
            let settled = others.fold(b[i], |b, (j, v)| (-v).mul_add(x[j], b)) / v;
            if settled.is_finite() && settled != x[own] {
                (x[own], changed) = (settled, true);
            }
            known[own] = true;
            let reach = system.bandwidth().min(n - 1);
            rows.extend((0..=2 * reach).map(|k| (own + n + k - reach) % n).filter(|&row| row != i));
        }
    }
    changed
}

/// Solves a system by elimination, and applies corrections while they lower the residual.
pub(crate) fn corrected(system: &impl Eliminate) -> Result<Vec<Unknowns>, usize> {
    let headroom = scaling::headroom(Precision::F64);
    // Scales right-hand sides to the range of the elimination, solves, and scales the unknowns
    // back.
    let eliminated = |b: &mut [Vec<f64>]| {
        let shifts: Vec<i32> = b.iter().map(|b| scaling::shift(scaling::largest(b), headroom)).collect();
        let all = |b: &mut [Vec<f64>], sign: i32| {
            for (b, &k) in b.iter_mut().zip(&shifts).filter(|(_, k)| **k != 0) {
                b.iter_mut().for_each(|b| *b = times_power_of_two(*b, sign * k));
            }
        };
        all(b, 1);
        let zero = system.eliminate(b);
        all(b, -1);
        zero.map_or(Ok(()), Err)
    };
    let mut x: Vec<Vec<f64>> = system.b().iter().map(|b| b.to_vec()).collect();
    eliminated(&mut x)?;
    let mut r: Vec<Vec<f64>> = x.iter().map(|x| vec![0.0; x.len()]).collect();
    let mut answers: Vec<Unknowns> = Vec::with_capacity(x.len());
    for ((x, b), r) in x.into_iter().zip(system.b()).zip(&mut r) {
        let residual = system.residual(b, &x, r);
        answers.push(Unknowns { x, residual, corrections: 0 });
    }
    for _ in 0..CORRECTIONS {
        // No correction changes an unknown that is not finite.
        if answers.iter().all(|Unknowns { residual, .. }| residual.settled(false) || residual.is_infinite()) {
            break;
        }
        eliminated(&mut r)?;
        let mut falls = false;
        for ((answer, b), r) in answers.iter_mut().zip(system.b()).zip(&mut r) {
            let x: Vec<f64> = answer.x.iter().zip(&*r).map(|(x, e)| x + e).collect();
            let (before, residual) = (answer.residual.excess(), system.residual(b, &x, r));
            if residual.excess() < before {
                falls |= residual.excess() < 0.5 * before;
                *answer = Unknowns { x, residual, corrections: answer.corrections + 1 };
            } else {
                // No further correction of this right-hand side.
                r.fill(0.0);
            }
        }
        if !falls {
            break;
        }
    }
    for (answer, b) in answers.iter_mut().zip(system.b()).filter(|(answer, _)| !answer.residual.fine(false)) {
        let mut x = answer.x.clone();
        if settle(system, &mut x, b) {
            let residual = system.residual(b, &x, &mut []);
            if residual.excess() < answer.residual.excess() {
                *answer = Unknowns { x, residual, ..*answer };
            }
        }
    }
    Ok(answers)
}

/// Calls [`corrected`] on the system with rows and columns multiplied by the powers of two of
/// [`scales`]. The componentwise error does not depend on such factors.
///
/// The second result is true if a solution overflows. Its right-hand side has size 1, so that
/// ‖A⁻¹‖ > 2¹⁰⁰⁰ for the scaled matrix. Then the range of doubles is too short for the verdict on
/// singular matrices.
fn balanced(system: &impl Eliminate) -> Result<(Vec<Unknowns>, bool), usize> {
    let (rows, columns) = scales(system);
    let mut shifts = Vec::with_capacity(system.b().len());
    let mut b: Vec<Vec<f64>> = Vec::with_capacity(system.b().len());
    for own in system.b() {
        // The largest number is scaled to size 1.
        let sizes = own.iter().zip(&rows).filter(|(b, _)| **b != 0.0).map(|(b, k)| exponent(*b) + k);
        let shift = -sizes.max().unwrap_or(0);
        b.push(own.iter().zip(&rows).map(|(b, k)| times_power_of_two(*b, k + shift)).collect());
        shifts.push(shift);
    }
    let answers = system.scaled(&rows, &columns, b.iter().map(|b| &b[..]).collect())?;
    let overflow = answers.iter().any(|answer| answer.residual.is_infinite());
    let given = answers.into_iter().zip(shifts).zip(system.b()).map(|((answer, shift), b)| {
        let x: Vec<f64> =
            answer.x.iter().zip(&columns).map(|(x, k)| times_power_of_two(*x, k - shift)).collect();
        Unknowns { residual: system.residual(b, &x, &mut []), x, ..answer }
    });
    Ok((given.collect(), overflow))
}
