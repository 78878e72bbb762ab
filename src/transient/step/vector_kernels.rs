//! The kernels of uniformization and their CPU implementations.

use super::kernels::Sliced;
pub(crate) use super::kernels::{RECURRENCE_COLUMNS, STEP, STEP_COLUMNS, STEP_DERIVATIVES, STEP_PACKED};
use super::kernels::{STEP_PACKED_RECURRENCE, STEP_PACKED_SOME, STEP_RECURRENCE, STEP_SOME};
pub(crate) use super::pattern_kernel::STEP_PATTERN;
use super::pattern_kernel::{STEP_PATTERN_RECURRENCE, STEP_PATTERN_SOME};
use super::rows::{StepRows, terms, weighted};
pub(crate) use crate::kernel::block_sums::{BLOCK_DEFECT, BLOCK_DOT, BLOCK_NORM, BLOCK_SUM};
pub(crate) use crate::kernel::block_sums::{block_defect, block_dot, block_norm, block_sum};
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::cpu::{Call, blocks};
use crate::kernel::{Kernel, Number, Real, kernel};
use crate::sparse::spmv_cpu::Plain;
use crate::util::inline_array::{array, each};

kernel! {
    /// Takes many steps of a small chain in one launch.
    pub(crate) static SWEEP = sweep + entries + slices + tail + float(first, count, end, window_first, window_end, rows)(
        slices: &[u32], columns: &[u32], values: &[T], exit: &[T], scalars: &[T], x: &mut [T],
        before: &mut [T], acc: &mut [T],
    ) in q64;
    /// Adds weighted iterates to an accumulator, except the one that the step itself updates.
    pub(crate) static ACCUMULATE = accumulate + float(window_first, window_end, weights, rows, own)(
        scalars: &[T], x: &[T], y: &[T], acc: &mut [T],
    ) in q64;
    /// Adds the vector x to acc.
    pub(crate) static ADD = add(rows, own)(x: &[T], acc: &mut [T]);
    /// Adds multiples of four vectors to another.
    pub(crate) static COMBINE = combine(first, rows, own)(
        factors: &[T], a: &[T], b: &[T], c: &[T], d: &[T], y: &mut [T],
    );
    /// Multiplies a vector by a number.
    pub(crate) static SCALE = scale(first, rows, own)(factors: &[T], y: &mut [T]);
    /// Gathers elements by index: one part's halo from another part, or rates of a matrix.
    pub(crate) static GATHER = gather(items, first)(index: &[u32], x: &[T], y: &mut [T]) in q64;
}

/// All kernels of the transient solver, without [`VARIANTS`].
pub(crate) static ALL: [&Kernel; 13] = [
    &STEP,
    &STEP_PACKED,
    &STEP_PATTERN,
    &SWEEP,
    &ACCUMULATE,
    &ADD,
    &COMBINE,
    &SCALE,
    &GATHER,
    &BLOCK_SUM,
    &BLOCK_DOT,
    &BLOCK_DEFECT,
    &BLOCK_NORM,
];

/// Variants of the step kernels, three matrix formats each: HYB, packed, patterns.
///
/// `_SOME` computes only some rows of a chunk; `_RECURRENCE` computes y ← 2 x P − y for
/// Chebyshev's recurrence. `STEP_COLUMNS` steps several vectors, `RECURRENCE_COLUMNS` has their
/// recurrence, and `STEP_DERIVATIVES` steps a vector with its derivatives.
pub(crate) static VARIANTS: [&Kernel; 15] = [
    &STEP_COLUMNS[0],
    &STEP_COLUMNS[1],
    &STEP_COLUMNS[2],
    &STEP_DERIVATIVES[0],
    &STEP_DERIVATIVES[1],
    &STEP_DERIVATIVES[2],
    &RECURRENCE_COLUMNS[0],
    &RECURRENCE_COLUMNS[1],
    &RECURRENCE_COLUMNS[2],
    &STEP_SOME,
    &STEP_PACKED_SOME,
    &STEP_PATTERN_SOME,
    &STEP_RECURRENCE,
    &STEP_PACKED_RECURRENCE,
    &STEP_PATTERN_RECURRENCE,
];

/// Maximum number of states of a chain for the kernel `sweep`.
pub const SWEEP_ROWS: usize = 1024;

fn sweep<T: Number>(call: &Call<'_>, p: sweep::Params, b: sweep::Bindings<'_, T>) {
    let sweep::Bindings { slices, columns, values, scalars, .. } = b;
    let columns = call.columns(columns, 32);
    let first = p.first + p.step * p.count;
    let end = (first + p.count).min(p.end);
    let (window, rows) = (p.window_first..p.window_end, p.rows as usize);
    // Outside of every window the accumulator is a placeholder.
    let mut acc = if window.is_empty() { None } else { Some(&mut b.acc[..rows]) };
    let exit = &b.exit[..rows];
    let (x, before) = (&mut b.x[..rows], &mut b.before[..rows]);
    let (mut from, mut to) = (&mut *x, &mut *before);
    for k in first..end {
        let weight = || scalars[1 + (k - window.start) as usize];
        let acc = acc.as_deref_mut().filter(|_| window.contains(&k)).map(|acc| (acc, weight(), None));
        let inverse_alpha = scalars[0];
        let (own, y) = (&*from, &mut *to);
        let rows = StepRows { exit, own, y, acc, inverse_alpha, recurrence: false };
        dispatch(Sliced { matrix: Plain { slices, columns, values }, first: 0, x: own, rows });
        std::mem::swap(&mut from, &mut to);
    }
    // After an odd number of steps the newest vector is in the other array.
    if (end - first) % 2 == 1 {
        from.swap_with_slice(to);
    }
}

/// Operation acc += w x, or acc += w x + w' y with the next iterate y and the weights w, w'.
struct Accumulate<'a, T> {
    x: (&'a [T], T),
    y: Option<(&'a [T], T)>,
    acc: &'a mut [T],
}

impl<T: Number> Body for Accumulate<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (x, weight) = self.x;
        match self.y {
            None => {
                for (acc, &x) in self.acc.iter_mut().zip(x) {
                    *acc = weighted::<T, LEVEL>(weight, x, *acc);
                }
            }
            Some((y, next)) => {
                for ((acc, &x), &y) in self.acc.iter_mut().zip(x).zip(y) {
                    *acc = weighted::<T, LEVEL>(next, y, weighted::<T, LEVEL>(weight, x, *acc));
                }
            }
        }
    }
}

fn accumulate<T: Number>(call: &Call<'_>, p: accumulate::Params, b: accumulate::Bindings<'_, T>) {
    let Some(terms) = terms(p.step, p.window_first..p.window_end, p.weights) else { return };
    let (rows, own) = (p.rows as usize, p.own as usize);
    let (weight, next) = terms.weights(b.scalars);
    let (x, y) = (&b.x[own..][..rows], &b.y[own..][..rows]);
    blocks(call, &mut b.acc[..rows], |first, acc| {
        let here = first..first + acc.len();
        dispatch(Accumulate { x: (&x[here.clone()], weight), y: next.map(|next| (&y[here], next)), acc });
    });
}

fn add<T: Real>(call: &Call<'_>, p: add::Params, b: add::Bindings<'_, T>) {
    let rows = p.rows as usize;
    let x = &b.x[p.own as usize..][..rows];
    blocks(call, &mut b.acc[..rows], |first, acc| {
        for (acc, &x) in acc.iter_mut().zip(&x[first..]) {
            *acc = *acc + x;
        }
    });
}

/// Operation y += Σ f v for four factors f and vectors v at once.
struct Combine<'a, T> {
    factors: [T; 4],
    vectors: [&'a [T]; 4],
    y: &'a mut [T],
}

impl<T: Real> Body for Combine<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let ([f, g, h, k], [a, b, c, d]) = (self.factors, self.vectors);
        for ((((y, &a), &b), &c), &d) in self.y.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let two = weighted::<T, LEVEL>(g, b, f * a);
            let all = weighted::<T, LEVEL>(k, d, weighted::<T, LEVEL>(h, c, two));
            *y = *y + all;
        }
    }
}

fn combine<T: Real>(call: &Call<'_>, p: combine::Params, b: combine::Bindings<'_, T>) {
    let rows = p.rows as usize;
    let factors = array(|k| b.factors[p.first as usize + k]);
    blocks(call, &mut b.y[p.own as usize..][..rows], |first, y| {
        let here = first..first + y.len();
        dispatch(Combine { factors, vectors: each([b.a, b.b, b.c, b.d], |v| &v[here.clone()]), y });
    });
}

fn scale<T: Real>(call: &Call<'_>, p: scale::Params, b: scale::Bindings<'_, T>) {
    let factor = b.factors[(p.first + p.step) as usize];
    blocks(call, &mut b.y[p.own as usize..][..p.rows as usize], |_, y| {
        for y in y {
            *y = factor * *y;
        }
    });
}

fn gather<T: Number>(call: &Call<'_>, p: gather::Params, b: gather::Bindings<'_, T>) {
    let gather::Bindings { index, x, .. } = b;
    blocks(call, &mut b.y[p.first as usize..][..p.items as usize], |at, y| {
        for (y, &i) in y.iter_mut().zip(&index[at..]) {
            *y = x[i as usize];
        }
    });
}
