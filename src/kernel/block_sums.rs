//! Sums over blocks of 256 rows in a fixed tree order, so that all lanes return equal bits.

use std::ops::Range;

use super::cpu::Call;
use super::{Kernel, Number, Real, kernel};
use crate::parallel::*;

/// Rows of a block; one workgroup adds them.
const BLOCK: usize = Kernel::GROUP as usize;

kernel! {
    /// Sums of a vector over blocks of rows.
    pub(crate) static BLOCK_SUM = block_sum + block_sums + tree + float(rows, own, out, out_step, first_step)(
        x: &[T], out: &mut [T],
    ) in q64;
    /// Scalar products of two vectors over blocks of rows.
    pub(crate) static BLOCK_DOT = block_dot + block_sums + tree + float(like block_sum)(
        r: &[T], x: &[T], out: &mut [T],
    ) in q64;
    /// Sums of |y_i − μ x_i| over the selected rows of each block. `factor` encodes μ as
    /// [`Number::factor`]; `among` has one bit per row, set for selected rows.
    pub(crate) static BLOCK_DEFECT = block_defect + block_sums + tree + float(like block_sum)(
        factor: &[T], among: &[u32], x: &[T], y: &[T], out: &mut [T],
    ) in q64;
    /// l1 norms of a vector over blocks of rows.
    pub(crate) static BLOCK_NORM = block_norm + block_sums + tree + float(like block_sum)(x: &[T], out: &mut [T]);
}

/// Reduces 2^k values to one by joining halves, in the order of the kernels.
pub(crate) fn tree<V: Copy>(values: &mut [V], join: impl Fn(V, V) -> V) -> V {
    let mut half = values.len() / 2;
    while half > 0 {
        let (low, high) = values.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(l, h)| *l = join(*l, *h));
        half /= 2;
    }
    values[0]
}

/// Sums the terms of the first block of `rows`.
fn sum_of<T: Number>(rows: Range<usize>, term: impl Fn(usize) -> T::Sum) -> T {
    let mut sums = [T::NONE; BLOCK];
    for (i, s) in rows.zip(&mut sums) {
        *s = term(i);
    }
    T::number(tree(&mut sums, T::capped))
}

/// Computes the output of [`BLOCK_DEFECT`] from host vectors; `None` selects all rows.
pub(crate) fn defects<T: Number>(factor: T, among: Option<&[u32]>, x: &[T], y: &[T]) -> Vec<T> {
    let term = |i: usize| match among.is_none_or(|among| among[i / 32] >> (i % 32) & 1 == 1) {
        true => T::deviation(factor, x[i], y[i]),
        false => T::NONE,
    };
    (0..x.len()).step_by(BLOCK).map(|first| sum_of(first..x.len(), term)).collect()
}

fn blocks<T: Number>(
    call: &Call<'_>,
    p: block_sum::Params,
    out: &mut [T],
    term: impl Fn(usize) -> T::Sum + Sync,
) {
    let rows = p.rows as usize;
    let at = (p.out + (p.step - p.first_step) * p.out_step) as usize;
    let out = &mut out[at..][..rows.div_ceil(BLOCK)];
    let block = |(block, out): (usize, &mut T)| *out = sum_of(block * BLOCK..rows, &term);
    if call.parallel() {
        out.par_iter_mut().enumerate().with_min_len(64).for_each(block);
    } else {
        out.iter_mut().enumerate().for_each(block);
    }
}

fn block_sum<T: Number>(call: &Call<'_>, p: block_sum::Params, b: block_sum::Bindings<'_, T>) {
    blocks(call, p, b.out, |i| b.x[p.own as usize + i].whole());
}

fn block_norm<T: Real>(call: &Call<'_>, p: block_sum::Params, b: block_norm::Bindings<'_, T>) {
    blocks(call, p, b.out, |i| b.x[p.own as usize + i].abs().whole());
}

fn block_dot<T: Number>(call: &Call<'_>, p: block_sum::Params, b: block_dot::Bindings<'_, T>) {
    blocks(call, p, b.out, |i| T::product(b.r[i], b.x[p.own as usize + i]));
}

fn block_defect<T: Number>(call: &Call<'_>, p: block_sum::Params, b: block_defect::Bindings<'_, T>) {
    let factor = b.factor[0];
    blocks(call, p, b.out, |i| match b.among[i / 32] >> (i % 32) & 1 {
        1 => T::deviation(factor, b.x[p.own as usize + i], b.y[p.own as usize + i]),
        _ => T::NONE,
    });
}
