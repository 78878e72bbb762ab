//! The kernels of uniformization and their CPU twins.

use rayon::prelude::*;

use crate::kernel::{Kernel, Real, kernel};
use crate::lane::cpu::simd::{Body, SLICE, dispatch, fused};
use crate::lane::cpu::{Call, blocks};
use crate::sparse::HEADER;

/// One step, and its share of the time point whose window is open.
pub static STEP: Kernel = kernel!(step);
/// Many steps of a small chain.
pub static SWEEP: Kernel = kernel!(sweep);
/// One step's share of one more time point.
pub static ACCUMULATE: Kernel = kernel!(accumulate);
/// A vector added to another.
pub static ADD: Kernel = kernel!(add);
/// A vector times a number.
pub static SCALE: Kernel = kernel!(scale);
/// One part's halo from another part.
pub static GATHER: Kernel = kernel!(gather);
/// Mass by blocks.
pub static BLOCK_SUM: Kernel = kernel!(block_sum);
/// Rewards by blocks.
pub static BLOCK_DOT: Kernel = kernel!(block_dot);
/// Distances of two vectors by blocks.
pub static BLOCK_DISTANCE: Kernel = kernel!(block_distance);

/// Every kernel of this engine.
pub static ALL: [&Kernel; 9] =
    [&STEP, &SWEEP, &ACCUMULATE, &ADD, &SCALE, &GATHER, &BLOCK_SUM, &BLOCK_DOT, &BLOCK_DISTANCE];

/// Largest chain that [`SWEEP`] holds.
pub const SWEEP_ROWS: usize = 1024;

/// The rows `first .. first + y.len()` of a HYB chunk; `first` is a multiple of a slice.
struct Rows<'a, T> {
    slices: &'a [u32],
    columns: &'a [u32],
    values: &'a [T],
    first: usize,
    /// E, x of these rows themselves, y and the accumulator with the step's weight.
    exit: &'a [T],
    own: &'a [T],
    y: &'a mut [T],
    acc: Option<(&'a mut [T], T)>,
    x: &'a [T],
    inverse_alpha: T,
}

impl<T: Real> Body for Rows<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let mut sums = [T::ZERO; SLICE];
        let rows = self.y.len();
        for start in (0..rows).step_by(SLICE) {
            let here = start..(start + SLICE).min(rows);
            let header = HEADER * ((self.first + start) / SLICE);
            let (at, width) =
                (self.slices[header] as usize * SLICE, self.slices[header + 1] as usize * SLICE);
            let ell = at..at + width;
            T::slice_sums::<LEVEL>(&self.columns[ell.clone()], &self.values[ell], self.x, &mut sums);
            let pointers = self.slices[header + 2] as usize;
            if pointers != 0 {
                let pointers = &self.slices[pointers..=pointers + SLICE];
                for (s, ends) in sums.iter_mut().zip(pointers.windows(2)) {
                    let tail = ends[0] as usize..ends[1] as usize;
                    if !tail.is_empty() {
                        *s = s.plus(self.tail::<LEVEL>(&self.columns[tail.clone()], &self.values[tail]));
                    }
                }
            }
            let (exit, own) = (&self.exit[here.clone()], &self.own[here.clone()]);
            for (((y, &s), &exit), &own) in self.y[here.clone()].iter_mut().zip(&sums).zip(exit).zip(own) {
                let change = fma::<T, LEVEL>(exit.times(T::of(-1.0)), own, s);
                *y = fma::<T, LEVEL>(change, self.inverse_alpha, own);
            }
            if let Some((acc, weight)) = &mut self.acc {
                for (acc, &own) in acc[here].iter_mut().zip(own) {
                    *acc = fma::<T, LEVEL>(*weight, own, *acc);
                }
            }
        }
    }
}

impl<T: Real> Rows<'_, T> {
    /// The sum of a row's COO entries: entry t goes to partial sum t mod 4, since one chain of additions would
    /// wait for each of them.
    #[inline(always)]
    fn tail<const LEVEL: u8>(&self, columns: &[u32], values: &[T]) -> T {
        let mut p = [T::ZERO; 4];
        let mut entries = columns.chunks_exact(4).zip(values.chunks_exact(4));
        for (c, v) in &mut entries {
            for ((p, &c), &v) in p.iter_mut().zip(c).zip(v) {
                *p = fma::<T, LEVEL>(v, self.x[c as usize], *p);
            }
        }
        let rest = columns.len() & !3;
        for ((p, &c), &v) in p.iter_mut().zip(&columns[rest..]).zip(&values[rest..]) {
            *p = fma::<T, LEVEL>(v, self.x[c as usize], *p);
        }
        p[0].plus(p[2]).plus(p[1].plus(p[3]))
    }
}

#[inline(always)]
fn fma<T: Real, const LEVEL: u8>(a: T, b: T, c: T) -> T {
    if fused(LEVEL) { T::fma::<true>(a, b, c) } else { T::fma::<false>(a, b, c) }
}

fn step<T: Real>(call: &Call<'_>) {
    let (slices, columns, values) = (call.read::<u32>(0), call.read::<u32>(1), call.read::<T>(2));
    let (exit, scalars, x) = (call.read::<T>(3), call.read::<T>(4), call.read::<T>(5));
    let (rows, first_row, own) = (call.param(3) as usize, call.param(4) as usize, call.param(5) as usize);
    let (exit, own_x) = (&exit[first_row..][..rows], &x[own + first_row..][..rows]);
    let y = &mut call.write::<T>(6)[own + first_row..][..rows];
    let block = |first: usize, y: &mut [T], acc: Option<(&mut [T], T)>| {
        let here = first..first + y.len();
        let (exit, own) = (&exit[here.clone()], &own_x[here]);
        dispatch(Rows { slices, columns, values, first, exit, own, y, acc, x, inverse_alpha: scalars[0] });
    };
    let (k, window) = (call.param(0), call.param(1)..call.param(2));
    if window.contains(&k) {
        let weight = scalars[1 + (k - window.start) as usize];
        let acc = &mut call.write::<T>(7)[first_row..][..rows];
        if call.parallel() {
            const BLOCK: usize = 1024;
            let both = y.par_chunks_mut(BLOCK).zip(acc.par_chunks_mut(BLOCK)).enumerate();
            both.for_each(|(i, (y, acc))| block(i * BLOCK, y, Some((acc, weight))));
        } else {
            block(0, y, Some((acc, weight)));
        }
    } else {
        blocks(call, y, |first, y| block(first, y, None));
    }
}

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
        let acc = acc.as_deref_mut().filter(|_| window.contains(&k)).map(|acc| (acc, weight()));
        let inverse_alpha = scalars[0];
        let (own, y) = (&*from, &mut *to);
        dispatch(Rows { slices, columns, values, first: 0, exit, own, y, acc, x: own, inverse_alpha });
        std::mem::swap(&mut from, &mut to);
    }
    // After an odd number of steps the newest vector lies in the other array.
    if (end - first) % 2 == 1 {
        from.swap_with_slice(to);
    }
}

struct Axpy<'a, T> {
    a: T,
    x: &'a [T],
    y: &'a mut [T],
}

impl<T: Real> Body for Axpy<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = fma::<T, LEVEL>(self.a, x, *y);
        }
    }
}

fn accumulate<T: Real>(call: &Call<'_>) {
    let (scalars, x) = (call.read::<T>(0), call.read::<T>(1));
    let (weight, rows, own) = (call.param(0) - call.param(1), call.param(2) as usize, call.param(3) as usize);
    let (a, x) = (scalars[1 + weight as usize], &x[own..][..rows]);
    let acc = &mut call.write::<T>(2)[..rows];
    blocks(call, acc, |first, y| dispatch(Axpy { a, x: &x[first..first + y.len()], y }));
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
