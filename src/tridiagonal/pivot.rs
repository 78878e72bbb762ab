//! The last resort: elimination with partial pivoting on the host, for systems that elimination without it cannot solve, and
//! the answer to whether a matrix is singular.
//! Corrections by the residual make the componentwise error small (Skeel 1980, doi:10.1090/S0025-5718-1980-0572859-4).

use std::ops::Range;

use super::elimination::{gtsv, gtsv_cyclic};
use super::range;
use super::residual::Residual;
use super::span::Span;
use super::view::View;
use crate::kernel::Precision;
use crate::number::{exponent, times_power_of_two};
use crate::parallel::*;

/// The outcome of systems on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Improved {
    /// Whether unknowns are others than before.
    pub(super) changed: bool,
    /// The first system and row at which a pivot is zero.
    pub(super) singular: Option<(usize, usize)>,
    /// Corrections, the largest number of all changed unknowns.
    pub(super) corrections: u32,
}

/// Unknowns of one right-hand side, how well they solve it, and after how many corrections.
struct Answer {
    x: Vec<f64>,
    residual: Residual,
    corrections: u32,
}

/// The parts of a system that ask nothing of one another.
fn parts(view: &View<'_>, system: usize) -> Vec<Range<usize>> {
    let (first, end) = (system * view.span.n, (system + 1) * view.span.n);
    let apart = |&i: &usize| view.du[i - 1] == 0.0 && view.dl[i] == 0.0 && !view.span.cyclic;
    let mut starts: Vec<usize> = std::iter::once(first).chain((first + 1..end).filter(apart)).collect();
    starts.push(end);
    starts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

/// Solves those parts of systems whose residuals `asked` says it of, rows that are all here, and keeps of each right-hand side
/// what solves it better. Unknowns of a singular matrix become NaN.
pub(super) fn improve(
    view: &View<'_>,
    x: &mut [Vec<f64>],
    asked: impl Fn(Residual) -> bool + Sync,
) -> Improved {
    let Span { n, batch, .. } = view.span;
    let given: &[Vec<f64>] = x;
    let all: Vec<Range<usize>> = (0..batch).flat_map(|s| parts(view, s)).collect();
    let one = |here: &Range<usize>| {
        let system = view.part(here.clone());
        let residuals: Vec<Residual> =
            system.b.iter().zip(given).map(|(b, x)| system.residual(b, &x[here.clone()], &mut [])).collect();
        residuals.iter().any(|&r| asked(r)).then(|| (here.clone(), residuals, best(&system)))
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

/// Elimination of one system as it is; where that is not as good as it can be, also of the system with rows and columns
/// of size 1, and the better of both. The row of a pivot that is zero in both, if there is one.
fn best(system: &View<'_>) -> Result<Vec<Answer>, usize> {
    let first = corrected(system);
    if first.as_ref().is_ok_and(|answers| answers.iter().all(|answer| answer.residual.fine(false))) {
        return first;
    }
    let second = balanced(system);
    match (first, second) {
        (Ok(first), Ok(second)) => {
            let better =
                |(a, b): (Answer, Answer)| if a.residual.excess() < b.residual.excess() { a } else { b };
            Ok(first.into_iter().zip(second).map(better).collect())
        }
        (Err(row), Err(_)) => Err(row),
        (Ok(answers), Err(_)) | (Err(_), Ok(answers)) => Ok(answers),
    }
}

/// Corrections at most: of a system that they can help each leaves less than half of the error.
const CORRECTIONS: u32 = 12;

/// Elimination, and corrections by the residual while they lower it.
fn corrected(system: &View<'_>) -> Result<Vec<Answer>, usize> {
    let roomy = range::roomy(Precision::F64);
    // Right-hand sides in a range in which elimination has room, and their unknowns.
    let eliminated = |b: &mut [Vec<f64>]| {
        let shifts: Vec<i32> = b.iter().map(|b| range::shift(range::largest(b), roomy)).collect();
        let all = |b: &mut [Vec<f64>], sign: i32| {
            for (b, &k) in b.iter_mut().zip(&shifts).filter(|(_, k)| **k != 0) {
                b.iter_mut().for_each(|b| *b = times_power_of_two(*b, sign * k));
            }
        };
        all(b, 1);
        let zero = match system.span.cyclic {
            // Without fused operations these are the bits of LAPACK's reference implementation: where rounding alone decides,
            // in matrices as good as singular, no answer is worse than its.
            false => gtsv::<false>(system.dl, system.d, system.du, b),
            true => gtsv_cyclic(system.dl, system.d, system.du, b),
        };
        all(b, -1);
        zero.map_or(Ok(()), Err)
    };
    let mut x: Vec<Vec<f64>> = system.b.iter().map(|b| b.to_vec()).collect();
    eliminated(&mut x)?;
    let mut r: Vec<Vec<f64>> = x.iter().map(|x| vec![0.0; x.len()]).collect();
    let mut answers: Vec<Answer> = Vec::with_capacity(x.len());
    for ((x, b), r) in x.into_iter().zip(&system.b).zip(&mut r) {
        let residual = system.residual(b, &x, r);
        answers.push(Answer { x, residual, corrections: 0 });
    }
    for _ in 0..CORRECTIONS {
        if answers.iter().all(|answer| answer.residual.settled(false)) {
            break;
        }
        eliminated(&mut r)?;
        let mut falls = false;
        for ((answer, b), r) in answers.iter_mut().zip(&system.b).zip(&mut r) {
            let x: Vec<f64> = answer.x.iter().zip(&*r).map(|(x, e)| x + e).collect();
            let (before, residual) = (answer.residual.excess(), system.residual(b, &x, r));
            if residual.excess() < before {
                falls |= residual.excess() < 0.5 * before;
                *answer = Answer { x, residual, corrections: answer.corrections + 1 };
            } else {
                // Nothing more for this one.
                r.fill(0.0);
            }
        }
        if !falls {
            break;
        }
    }
    Ok(answers)
}

/// Elimination and corrections as [`corrected`], of rows and columns multiplied by powers of two: first each row has a largest element of 1 … 2, then each
/// column. The componentwise error does not depend on such factors.
fn balanced(system: &View<'_>) -> Result<Vec<Answer>, usize> {
    let Span { n, cyclic, .. } = system.span;
    // Places of a row's elements, and of a column's.
    let neighbours = |i: usize| [(i + n - 1) % n, i, (i + 1) % n];
    let used = |i: usize| [i > 0 || cyclic, true, i + 1 < n || cyclic];
    let of_row = |i: usize| [system.dl[i], system.d[i], system.du[i]];
    let of_column = |i: usize| {
        let [above, _, below] = neighbours(i);
        [system.du[above], system.d[i], system.dl[below]]
    };
    let size = |elements: [f64; 3], used: [bool; 3], others: [i32; 3]| {
        let sizes =
            (0..3).filter(|&k| used[k] && elements[k] != 0.0).map(|k| exponent(elements[k]) + others[k]);
        sizes.max().unwrap_or(0)
    };
    let rows: Vec<i32> = (0..n).map(|i| -size(of_row(i), used(i), [0; 3])).collect();
    let column = |i| -size(of_column(i), used(i), neighbours(i).map(|i| rows[i]));
    let columns: Vec<i32> = (0..n).map(column).collect();
    let product = |k: usize, i: usize| match used(i)[k] {
        true => times_power_of_two(of_row(i)[k], rows[i] + columns[neighbours(i)[k]]),
        false => 0.0,
    };
    let [dl, d, du] = [0, 1, 2].map(|k| (0..n).map(|i| product(k, i)).collect::<Vec<f64>>());
    let mut shifts = Vec::with_capacity(system.b.len());
    let mut b: Vec<Vec<f64>> = Vec::with_capacity(system.b.len());
    for own in &system.b {
        // The largest number becomes one that elimination has room for.
        let sizes = own.iter().zip(&rows).filter(|(b, _)| **b != 0.0).map(|(b, k)| exponent(*b) + k);
        let shift = -sizes.max().unwrap_or(0);
        b.push(own.iter().zip(&rows).map(|(b, k)| times_power_of_two(*b, k + shift)).collect());
        shifts.push(shift);
    }
    let b = b.iter().map(|b| &b[..]).collect();
    let answers = corrected(&View { span: system.span, dl: &dl, d: &d, du: &du, b })?;
    let given = answers.into_iter().zip(shifts).zip(&system.b).map(|((answer, shift), b)| {
        let x: Vec<f64> =
            answer.x.iter().zip(&columns).map(|(x, k)| times_power_of_two(*x, k - shift)).collect();
        Answer { residual: system.residual(b, &x, &mut []), x, ..answer }
    });
    Ok(given.collect())
}
