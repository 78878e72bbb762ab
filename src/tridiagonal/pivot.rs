//! Gaussian elimination with partial pivoting on the host: for systems that elimination without it cannot solve, and
//! the answer to whether a matrix is singular. The method is LAPACK's `dgtsv` (Anderson et al., LAPACK Users' Guide,
//! 1999): a row is exchanged with the one below where that has the larger element, which adds one upper diagonal.
//! Corrections by the residual make the componentwise error small (Skeel 1980, doi:10.1090/S0025-5718-1980-0572859-4).

use super::range;
use super::residual::Residual;
use super::span::Span;
use super::view::View;
use crate::kernel::Precision;
use crate::number::{exponent, times_power_of_two};
use crate::parallel::*;

/// One system, factored as it is eliminated.
struct Factors<'a> {
    dl: &'a [f64],
    d: Vec<f64>,
    du: Vec<f64>,
    du2: Vec<f64>,
}

/// o − w·p, rounded once or twice.
fn minus<const FUSED: bool>(w: f64, p: f64, o: f64) -> f64 {
    if FUSED { (-w).mul_add(p, o) } else { o - w * p }
}

/// Solves in place, several right-hand sides of one matrix; the row of a pivot that is zero, if there is one.
fn gtsv<const FUSED: bool>(dl: &[f64], d: &[f64], du: &[f64], b: &mut [Vec<f64>]) -> Option<usize> {
    let n = d.len();
    let mut f = Factors { dl, d: d.to_vec(), du: du.to_vec(), du2: vec![0.0; n] };
    f.du[n - 1] = 0.0;
    for i in 0..n - 1 {
        let below = f.dl[i + 1];
        if f.d[i].abs() >= below.abs() {
            if f.d[i] == 0.0 {
                return Some(i);
            }
            let w = below / f.d[i];
            f.d[i + 1] = minus::<FUSED>(w, f.du[i], f.d[i + 1]);
            for b in &mut *b {
                b[i + 1] = minus::<FUSED>(w, b[i], b[i + 1]);
            }
        } else {
            let w = f.d[i] / below;
            f.d[i] = below;
            let next = f.d[i + 1];
            f.d[i + 1] = minus::<FUSED>(w, next, f.du[i]);
            f.du[i] = next;
            f.du2[i] = f.du[i + 1];
            f.du[i + 1] *= -w;
            for b in &mut *b {
                let upper = b[i];
                b[i] = b[i + 1];
                b[i + 1] = minus::<FUSED>(w, b[i], upper);
            }
        }
    }
    if f.d[n - 1] == 0.0 {
        return Some(n - 1);
    }
    for b in b {
        for i in (0..n).rev() {
            let mut s = b[i];
            if i + 1 < n {
                s = minus::<FUSED>(f.du[i], b[i + 1], s);
            }
            if i + 2 < n {
                s = minus::<FUSED>(f.du2[i], b[i + 2], s);
            }
            b[i] = s / f.d[i];
        }
    }
    None
}

/// A row of a cyclic system while it is eliminated: coefficients of three unknowns in a row, of the last but one and of
/// the last one, and where its right-hand sides are.
#[derive(Clone, Copy)]
struct CyclicRow {
    c: [f64; 3],
    near: f64,
    last: f64,
    b: usize,
}

/// Solves a cyclic system in place, as [`gtsv`]. The last row and the last column stay until the end, and the pivot is the largest of
/// three: of the running row, the next one and the last one. Three unknowns remain for a dense elimination.
fn gtsv_cyclic(dl: &[f64], d: &[f64], du: &[f64], b: &mut [Vec<f64>]) -> Option<usize> {
    let n = d.len();
    let (left, right) = (|i: usize| (i + n - 1) % n, |i: usize| (i + 1) % n);
    if n <= 3 {
        let mut a = vec![vec![0.0; n]; n];
        for i in 0..n {
            a[i][left(i)] += dl[i];
            a[i][i] += d[i];
            a[i][right(i)] += du[i];
        }
        return dense(&mut a, b, &(0..n).collect::<Vec<_>>(), 0);
    }
    let mut running = CyclicRow { c: [d[0], du[0], 0.0], near: 0.0, last: dl[0], b: 0 };
    let mut bottom = CyclicRow { c: [du[n - 1], 0.0, 0.0], near: dl[n - 1], last: d[n - 1], b: n - 1 };
    let mut pivots: Vec<CyclicRow> = Vec::with_capacity(n);
    for i in 0..n - 3 {
        let next = CyclicRow { c: [dl[i + 1], d[i + 1], du[i + 1]], near: 0.0, last: 0.0, b: i + 1 };
        let mut rows = [running, next, bottom];
        let largest = (0..3).fold(0, |m, k| if rows[k].c[0].abs() > rows[m].c[0].abs() { k } else { m });
        rows.swap(0, largest);
        let pivot = rows[0];
        if pivot.c[0] == 0.0 {
            return Some(i);
        }
        for row in &mut rows[1..] {
            let w = row.c[0] / pivot.c[0];
            row.c = [(-w).mul_add(pivot.c[1], row.c[1]), (-w).mul_add(pivot.c[2], row.c[2]), 0.0];
            row.near = (-w).mul_add(pivot.near, row.near);
            row.last = (-w).mul_add(pivot.last, row.last);
            for b in &mut *b {
                b[row.b] = (-w).mul_add(b[pivot.b], b[row.b]);
            }
        }
        pivots.push(pivot);
        [running, bottom] = [rows[1], rows[2]];
    }
    let mut a = vec![
        vec![running.c[0], running.c[1] + running.near, running.last],
        vec![dl[n - 2], d[n - 2], du[n - 2]],
        vec![bottom.c[0], bottom.c[1] + bottom.near, bottom.last],
    ];
    if let Some(row) = dense(&mut a, b, &[running.b, n - 2, bottom.b], n - 3) {
        return Some(row);
    }
    for b in b {
        // The right-hand sides lie where their rows were; unknowns go where they belong.
        let mut x = vec![0.0; n];
        for (k, &at) in [running.b, n - 2, bottom.b].iter().enumerate() {
            x[n - 3 + k] = b[at];
        }
        for (i, p) in pivots.iter().enumerate().rev() {
            let ends = (-p.near).mul_add(x[n - 2], (-p.last).mul_add(x[n - 1], b[p.b]));
            let s = (-p.c[2]).mul_add(x[i + 2], (-p.c[1]).mul_add(x[i + 1], ends));
            x[i] = s / p.c[0];
        }
        *b = x;
    }
    None
}

/// Dense elimination with partial pivoting; row k has its right-hand sides at `at[k]`, and unknown k goes there.
/// `first` is added to the number of a row whose pivot is zero.
fn dense(a: &mut [Vec<f64>], b: &mut [Vec<f64>], at: &[usize], first: usize) -> Option<usize> {
    let n = a.len();
    for i in 0..n {
        let largest = (i..n).fold(i, |m, k| if a[k][i].abs() > a[m][i].abs() { k } else { m });
        if a[largest][i] == 0.0 {
            return Some(first + i);
        }
        a.swap(i, largest);
        b.iter_mut().for_each(|b| b.swap(at[i], at[largest]));
        for k in i + 1..n {
            let w = a[k][i] / a[i][i];
            let (above, below) = a.split_at_mut(k);
            for (own, pivot) in below[0][i..].iter_mut().zip(&above[i][i..]) {
                *own = (-w).mul_add(*pivot, *own);
            }
            b.iter_mut().for_each(|b| b[at[k]] = (-w).mul_add(b[at[i]], b[at[k]]));
        }
    }
    for b in b {
        for i in (0..n).rev() {
            let s = (i + 1..n).fold(b[at[i]], |s, j| (-a[i][j]).mul_add(b[at[j]], s));
            b[at[i]] = s / a[i][i];
        }
    }
    None
}

/// Solves an interface system dl, d, du, b; a pivot that is zero is replaced by the least that its row's size allows, so
/// that the residual of the whole tells what it was worth. How many were, is the second result.
pub(super) fn solve_replaced([dl, d, du, b]: &[Vec<f64>; 4]) -> (Vec<f64>, u32) {
    let mut d = d.clone();
    for replaced in 0..16 {
        let mut x = [b.clone()];
        match gtsv::<true>(dl, &d, du, &mut x) {
            None => {
                let [x] = x;
                return (x, replaced);
            }
            Some(row) => {
                let size = dl[row].abs().max(d[row].abs()).max(du[row].abs());
                d[row] += f64::EPSILON * if size > 0.0 { size } else { 1.0 };
            }
        }
    }
    (vec![f64::NAN; d.len()], 16)
}

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

/// Solves those systems whose residuals `asked` says it of, rows that are all here, and keeps of each right-hand side
/// what solves it better. Unknowns of a singular matrix become NaN.
pub(super) fn improve(
    view: &View<'_>,
    x: &mut [Vec<f64>],
    asked: impl Fn(Residual) -> bool + Sync,
) -> Improved {
    let Span { n, batch, .. } = view.span;
    let given: &[Vec<f64>] = x;
    let one = |s: usize| {
        let system = view.system(s);
        let here = s * n..(s + 1) * n;
        let residuals: Vec<Residual> =
            system.b.iter().zip(given).map(|(b, x)| system.residual(b, &x[here.clone()], &mut [])).collect();
        residuals.iter().any(|&r| asked(r)).then(|| (s, residuals, best(&system)))
    };
    let solved: Vec<_> = (0..batch).into_par_iter().map(one).collect();
    let mut all = Improved::default();
    for (s, residuals, answers) in solved.into_iter().flatten() {
        let here = s * n..(s + 1) * n;
        match answers {
            Err(row) => {
                x.iter_mut().for_each(|x| x[here.clone()].fill(f64::NAN));
                all = Improved { changed: true, singular: all.singular.or(Some((s, row))), ..all };
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
