//! The system that is left to the host when rows are in blocks.

use super::pivot;
use super::unit::Number;

/// Solves a system of dl, d, du and b, one behind the other, with or without exchanges: its unknowns, and the number of
/// pivots that had to be replaced.
pub(super) fn solve<T: Number>(system: &[T], exchange: bool) -> (Vec<T>, u32) {
    let rows = system.len() / 4;
    let part = |k: usize| system[k * rows..(k + 1) * rows].iter().map(|v| v.wide()).collect::<Vec<f64>>();
    let system = [0, 1, 2, 3].map(part);
    let (x, replaced) = match exchange {
        true => pivot::solve_replaced(&system),
        false => (thomas(&system), 0),
    };
    (x.into_iter().map(T::of).collect(), replaced)
}

/// One sweep down and one up (Thomas 1949).
fn thomas([dl, d, du, b]: &[Vec<f64>; 4]) -> Vec<f64> {
    let n = d.len();
    let (mut c, mut x) = (vec![0.0; n], vec![0.0; n]);
    let (mut before_c, mut before_x) = (0.0, 0.0);
    for i in 0..n {
        let inverse = 1.0 / f64::mul_add(-dl[i], before_c, d[i]);
        before_c = du[i] * inverse;
        before_x = f64::mul_add(-dl[i], before_x, b[i]) * inverse;
        (c[i], x[i]) = (before_c, before_x);
    }
    for i in (0..n.saturating_sub(1)).rev() {
        x[i] = f64::mul_add(-c[i], x[i + 1], x[i]);
    }
    x
}
