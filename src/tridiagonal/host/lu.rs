//! Gaussian elimination with partial pivoting on the host, as LAPACK's `dgtsv` (Anderson et al.,
//! LAPACK Users' Guide, 1999).
//!
//! A row is exchanged with the next one if that has the larger element, which adds one upper
//! diagonal.

use crate::tridiagonal::kernels::number::Number;

/// Returns o − w·p, rounded once if `FUSED` and twice otherwise.
fn minus<const FUSED: bool>(w: f64, p: f64, o: f64) -> f64 {
    if FUSED { (-w).mul_add(p, o) } else { o - w * p }
}

/// Solves several right-hand sides of one matrix in place. Returns the row of a zero pivot, if any.
pub(crate) fn gtsv<const FUSED: bool>(
    dl: &[f64],
    d: &[f64],
    du: &[f64],
    b: &mut [Vec<f64>],
) -> Option<usize> {
    let n = d.len();
    let (mut d, mut du, mut du2) = (d.to_vec(), du.to_vec(), vec![0.0; n]);
    du[n - 1] = 0.0;
    for i in 0..n - 1 {
        let below = dl[i + 1];
        if d[i].abs() >= below.abs() {
            if d[i] == 0.0 {
                return Some(i);
            }
            let w = below / d[i];
            d[i + 1] = minus::<FUSED>(w, du[i], d[i + 1]);
            for b in &mut *b {
                b[i + 1] = minus::<FUSED>(w, b[i], b[i + 1]);
            }
        } else {
            let w = d[i] / below;
            d[i] = below;
            let next = d[i + 1];
            d[i + 1] = minus::<FUSED>(w, next, du[i]);
            du[i] = next;
            du2[i] = du[i + 1];
            du[i + 1] *= -w;
            for b in &mut *b {
                let upper = b[i];
                b[i] = b[i + 1];
                b[i + 1] = minus::<FUSED>(w, b[i], upper);
            }
        }
    }
    if d[n - 1] == 0.0 {
        return Some(n - 1);
    }
    for b in b {
        for i in (0..n).rev() {
            let mut s = b[i];
            if i + 1 < n {
                s = minus::<FUSED>(du[i], b[i + 1], s);
            }
            if i + 2 < n {
                s = minus::<FUSED>(du2[i], b[i + 2], s);
            }
            b[i] = s / d[i];
        }
    }
    None
}

/// Row of a cyclic system during elimination: coefficients of three consecutive unknowns, of the
/// last but one and of the last, and the index of its right-hand sides.
#[derive(Clone, Copy)]
struct CyclicRow {
    c: [f64; 3],
    near: f64,
    last: f64,
    b: usize,
}

/// Solves a cyclic system in place. Returns the row of a zero pivot, if any.
///
/// The last row and the last column stay until the end. The pivot is the largest of three: in the
/// running row, the next row and the last row. Three unknowns remain for a dense elimination.
pub(crate) fn gtsv_cyclic(dl: &[f64], d: &[f64], du: &[f64], b: &mut [Vec<f64>]) -> Option<usize> {
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
        // Right-hand sides are at the index of their rows; unknowns are stored in order.
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

/// Dense elimination with partial pivoting.
///
/// Row k has its right-hand sides at `at[k]`, and unknown k is stored there. Returns the row of a
/// zero pivot plus `first`, if any.
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

/// Solves an interface system given as concatenated dl, d, du and b. Returns its unknowns and the
/// number of replaced pivots.
///
/// A zero pivot is replaced by ε times the size of its row. The residual of the whole system then
/// shows the error.
pub(crate) fn solve_concatenated<T: Number>(system: &[T]) -> (Vec<T>, u32) {
    let rows = system.len() / 4;
    let part = |k: usize| system[k * rows..(k + 1) * rows].iter().map(|v| v.wide()).collect::<Vec<f64>>();
    let [dl, mut d, du, b] = [0, 1, 2, 3].map(part);
    for replaced in 0..16 {
        let mut x = [b.clone()];
        let Some(row) = gtsv::<true>(&dl, &d, &du, &mut x) else {
            return (x[0].iter().map(|&x| T::of(x)).collect(), replaced);
        };
        let size = dl[row].abs().max(d[row].abs()).max(du[row].abs());
        d[row] += f64::EPSILON * if size > 0.0 { size } else { 1.0 };
    }
    (vec![T::of(f64::NAN); rows], 16)
}
