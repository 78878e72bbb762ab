//! The kernels of uniformization and their CPU twins.

use rayon::prelude::*;

use super::step::{Plain, Rows, Sliced, fma, terms};
pub use super::step::{STEP, STEP_PACKED, STEP_PAIR, STEP_PATTERN};
use super::step::{STEP_PACKED_SOME, STEP_PAIR_SOME, STEP_PATTERN_SOME, STEP_SOME};
use crate::kernel::{Kernel, Real, kernel};
use crate::lane::cpu::simd::{Body, dispatch};
use crate::lane::cpu::{Call, blocks};

kernel! {
    /// Many steps of a small chain.
    pub static SWEEP = sweep + slices + tail(first, count, end, window_first, window_end, rows)(
        slices: &[u32], columns: &[u32], values: &[T], exit: &[T], scalars: &[T], x: &mut [T],
        before: &mut [T], acc: &mut [T],
    );
    /// Terms of one more time point.
    pub static ACCUMULATE = accumulate(window_first, window_end, weights, rows, own)(
        scalars: &[T], x: &[T], y: &[T], acc: &mut [T],
    );
    /// A vector added to another.
    pub static ADD = add(rows, own)(x: &[T], acc: &mut [T]);
    /// A vector times a number.
    pub static SCALE = scale(first, rows, own)(factors: &[T], y: &mut [T]);
    /// One part's halo from another part.
    pub static GATHER = gather(items, first)(index: &[u32], x: &[T], y: &mut [T]);
    /// Mass by blocks.
    pub static BLOCK_SUM = block_sum + block_sums + tree(rows, own, out, out_step, first_step)(x: &[T], out: &mut [T]);
    /// Rewards by blocks.
    pub static BLOCK_DOT = block_dot + block_sums + tree(rows, own, out, out_step, first_step)(r: &[T], x: &[T], out: &mut [T]);
    /// Distances of two vectors by blocks.
    pub static BLOCK_DISTANCE = block_distance + block_sums + tree(rows, own, out, out_step, first_step)(
        x: &[T], y: &[T], out: &mut [T],
    );
}

/// Every kernel of this engine.
pub static ALL: [&Kernel; 12] = [
    &STEP,
    &STEP_PACKED,
    &STEP_PAIR,
    &STEP_PATTERN,
    &SWEEP,
    &ACCUMULATE,
    &ADD,
    &SCALE,
    &GATHER,
    &BLOCK_SUM,
    &BLOCK_DOT,
    &BLOCK_DISTANCE,
];

/// Steps for some rows.
pub(crate) static SOME: [&Kernel; 4] = [&STEP_SOME, &STEP_PACKED_SOME, &STEP_PAIR_SOME, &STEP_PATTERN_SOME];

/// Largest chain that [`SWEEP`] holds.
pub const SWEEP_ROWS: usize = 1024;

fn sweep<T: Real>(call: &Call<'_>) {
    let (slices, columns, values) = (call.read::<u32>(0), call.read::<u32>(1), call.read::<T>(2));
    let (exit, scalars) = (call.read::<T>(3), call.read::<T>(4));
    let (x, before) = (call.write::<T>(5), call.write::<T>(6));
    let first = call.param(1) + call.param(0) * call.param(2);
    let end = (first + call.param(2)).min(call.param(3));
    let (window, rows) = (call.param(4)..call.param(5), call.param(6) as usize);
    // Outside of every window there is no accumulator, only something that stands in its place.
    let mut acc = (!window.is_empty()).then(|| &mut call.write::<T>(7)[..rows]);
    let exit = &exit[..rows];
    let (x, before) = (&mut x[..rows], &mut before[..rows]);
    let (mut from, mut to) = (&mut *x, &mut *before);
    for k in first..end {
        let weight = || scalars[1 + (k - window.start) as usize];
        let acc = acc.as_deref_mut().filter(|_| window.contains(&k)).map(|acc| (acc, weight(), None));
        let inverse_alpha = scalars[0];
        let (own, y) = (&*from, &mut *to);
        let rows = Rows { exit, own, y, acc, inverse_alpha };
        dispatch(Sliced { matrix: Plain { slices, columns, values }, first: 0, x: own, rows });
        std::mem::swap(&mut from, &mut to);
    }
    // After an odd number of steps the newest vector lies in the other array.
    if (end - first) % 2 == 1 {
        from.swap_with_slice(to);
    }
}

/// acc += w x, and w' y with it where there is one.
struct Add<'a, T> {
    x: (&'a [T], T),
    y: Option<(&'a [T], T)>,
    acc: &'a mut [T],
}

impl<T: Real> Body for Add<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (x, weight) = self.x;
        match self.y {
            None => {
                for (acc, &x) in self.acc.iter_mut().zip(x) {
                    *acc = fma::<T, LEVEL>(weight, x, *acc);
                }
            }
            Some((y, next)) => {
                for ((acc, &x), &y) in self.acc.iter_mut().zip(x).zip(y) {
                    *acc = fma::<T, LEVEL>(next, y, fma::<T, LEVEL>(weight, x, *acc));
                }
            }
        }
    }
}

fn accumulate<T: Real>(call: &Call<'_>) {
    let Some(terms) = terms(call) else { return };
    let (rows, own) = (call.param(4) as usize, call.param(5) as usize);
    let (weight, next) = terms.weights(call.read::<T>(0));
    let (x, y) = (&call.read::<T>(1)[own..][..rows], &call.read::<T>(2)[own..][..rows]);
    blocks(call, &mut call.write::<T>(3)[..rows], |first, acc| {
        let here = first..first + acc.len();
        dispatch(Add { x: (&x[here.clone()], weight), y: next.map(|next| (&y[here], next)), acc });
    });
}

fn add<T: Real>(call: &Call<'_>) {
    let (x, rows, own) = (call.read::<T>(0), call.param(1) as usize, call.param(2) as usize);
    let x = &x[own..][..rows];
    blocks(call, &mut call.write::<T>(1)[..rows], |first, acc| {
        for (acc, &x) in acc.iter_mut().zip(&x[first..]) {
            *acc = acc.plus(x);
        }
    });
}

fn scale<T: Real>(call: &Call<'_>) {
    let factor = call.read::<T>(0)[(call.param(1) + call.param(0)) as usize];
    let (rows, own) = (call.param(2) as usize, call.param(3) as usize);
    blocks(call, &mut call.write::<T>(1)[own..][..rows], |_, y| {
        for y in y {
            *y = factor.times(*y);
        }
    });
}

fn gather<T: Real>(call: &Call<'_>) {
    let (index, x) = (call.read::<u32>(0), call.read::<T>(1));
    let (items, first) = (call.param(1) as usize, call.param(2) as usize);
    let y = &mut call.write::<T>(2)[first..][..items];
    blocks(call, y, |at, y| {
        for (y, &i) in y.iter_mut().zip(&index[at..]) {
            *y = x[i as usize];
        }
    });
}

/// Sums blocks of 256 rows as a tree: halves are added to halves, as the kernels' workgroups do.
fn tree<T: Real>(call: &Call<'_>, out: usize, term: impl Fn(usize) -> T + Sync) {
    const BLOCK: usize = crate::sparse::BLOCK;
    let rows = call.param(1) as usize;
    let at = (call.param(3) + (call.param(0) - call.param(5)) * call.param(4)) as usize;
    let out = &mut call.write::<T>(out)[at..][..rows.div_ceil(BLOCK)];
    let block = |(block, out): (usize, &mut T)| {
        let mut sums = [T::ZERO; BLOCK];
        for (i, s) in (block * BLOCK..rows).zip(&mut sums) {
            *s = term(i);
        }
        let mut half = BLOCK / 2;
        while half > 0 {
            let (low, high) = sums.split_at_mut(half);
            for (l, h) in low.iter_mut().zip(high) {
                *l = l.plus(*h);
            }
            half /= 2;
        }
        *out = sums[0];
    };
    if call.parallel() {
        out.par_iter_mut().enumerate().with_min_len(64).for_each(block);
    } else {
        out.iter_mut().enumerate().for_each(block);
    }
}

fn block_sum<T: Real>(call: &Call<'_>) {
    let (x, own) = (call.read::<T>(0), call.param(2) as usize);
    tree(call, 1, |i| x[own + i]);
}

fn block_dot<T: Real>(call: &Call<'_>) {
    let (r, x, own) = (call.read::<T>(0), call.read::<T>(1), call.param(2) as usize);
    tree(call, 2, |i| r[i].times(x[own + i]));
}

fn block_distance<T: Real>(call: &Call<'_>) {
    let (x, y, own) = (call.read::<T>(0), call.read::<T>(1), call.param(2) as usize);
    tree(call, 2, |i| y[own + i].distance(x[own + i]));
}
