//! Kernels of BiCGSTAB, and their CPU implementations.

use crate::kernel::block_sums::tree;
use crate::kernel::cpu::simd::{Body, SLICE, dispatch};
use crate::kernel::cpu::{Call, blocks};
use crate::kernel::{Kernel, Real, fma, kernel};
use crate::parallel::*;
use crate::sparse::BLOCK;
use crate::sparse::spmv_cpu::{ChunkMatrix, Plain};
use crate::walk::splitting::ROWS;

kernel! {
    /// Product y = (I − M) x, with the scalar products of y with z and with itself.
    pub(crate) static BICGSTAB_PRODUCT = bicgstab_product + hyb + slices + tail + float + tree + bicgstab(rows, first_row)(
        slices: &[u32], columns: &[u32], values: &[T], scalars: &[T], x: &[T], z: &[T], y: &mut [T],
        sums: &mut [[T; 2]],
    );
    /// Updates the residual in the first half of a BiCGSTAB iteration: r −= α q.
    pub(crate) static BICGSTAB_HALF = bicgstab_half + bicgstab(rows)(scalars: &[T], q: &[T], r: &mut [T]);
    /// Updates x and the residual r in the second half of a BiCGSTAB iteration.
    pub(crate) static BICGSTAB_WHOLE = bicgstab_whole + tree + bicgstab(rows, weighted)(
        scalars: &[T], d: &[T], t: &[T], shadow: &[T], w: &[T], x: &mut [T], r: &mut [T], sums: &mut [[T; 2]],
    );
    /// Updates the search direction d of BiCGSTAB.
    pub(crate) static BICGSTAB_DIRECTION = bicgstab_direction + bicgstab(rows)(
        scalars: &[T], r: &[T], q: &[T], d: &mut [T],
    );
    /// Computes the scalars for the next stage of a BiCGSTAB iteration from sums over blocks.
    pub(crate) static BICGSTAB_SCALARS = bicgstab_scalars + tree + bicgstab(blocks, stage)(
        sums: &[[T; 2]], scalars: &mut [T],
    );
}

pub(crate) static ALL: [&Kernel; 5] =
    [&BICGSTAB_PRODUCT, &BICGSTAB_HALF, &BICGSTAB_WHOLE, &BICGSTAB_DIRECTION, &BICGSTAB_SCALARS];

// Indices of the scalars, equal to those in `shaders/lib/bicgstab.wgsl`.
pub(crate) const RHO: usize = 0;
const ALPHA: usize = 1;
const OMEGA: usize = 2;
const BETA: usize = 3;
pub(crate) const ENOUGH: usize = 4;
pub(crate) const ITERATIONS: usize = 5;
pub(crate) const ACTIVE: usize = 6;
pub(crate) const SCALARS: usize = 7;

/// Limit of the scalars of BiCGSTAB, far above their size in any converging iteration.
const LARGEST: f64 = 1e30;

fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Reduces the two terms of each row of a block: the first by sums, the second by `second`.
#[inline(always)]
fn block_of<T: Real>([a, b]: &mut [[T; BLOCK]; 2], second: impl Fn(T, T) -> T) -> [T; 2] {
    [tree(a, T::add), tree(b, second)]
}

/// Rows of (I − M) x that one thread computes. Only the last block of rows may be incomplete.
struct RowProduct<'a, T> {
    matrix: Plain<'a, T>,
    /// First row, counted in the chunk; `first` is the same row in the whole matrix.
    row: usize,
    first: usize,
    x: &'a [T],
    z: &'a [T],
    y: &'a mut [T],
    sums: &'a mut [[T; 2]],
}

impl<T: Real> Body for RowProduct<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let mut products = [T::NONE; SLICE];
        let (x, z) = (&self.x[self.first..][..self.y.len()], &self.z[self.first..][..self.y.len()]);
        for (block, (y, sums)) in self.y.chunks_mut(BLOCK).zip(self.sums).enumerate() {
            let mut terms = [[T::ZERO; BLOCK]; 2];
            for (k, y) in y.chunks_mut(SLICE).enumerate() {
                let at = block * BLOCK + k * SLICE;
                self.matrix.sums::<LEVEL>((self.row + at) / SLICE, self.x, &mut products);
                let (x, z) = (&x[at..][..y.len()], &z[at..][..y.len()]);
                let [a, b] = &mut terms;
                let (a, b) = (&mut a[k * SLICE..][..y.len()], &mut b[k * SLICE..][..y.len()]);
                for (i, y) in y.iter_mut().enumerate() {
                    *y = x[i] - T::number(products[i]);
                    (a[i], b[i]) = (*y * z[i], *y * *y);
                }
            }
            *sums = block_of(&mut terms, T::add);
        }
    }
}

fn bicgstab_product<T: Real>(
    call: &Call<'_>,
    p: bicgstab_product::Params,
    b: bicgstab_product::Bindings<'_, T>,
) {
    let bicgstab_product::Bindings { slices, columns, values, scalars, x, z, y, sums, .. } = b;
    if scalars[ACTIVE] == T::ZERO {
        return;
    }
    let (rows, first) = (p.rows as usize, p.first_row as usize);
    let (y, sums) = (&mut y[first..][..rows], &mut sums[first / BLOCK..][..rows.div_ceil(BLOCK)]);
    let matrix = Plain { slices, columns: call.columns(columns, 32), values };
    let some = |k: usize, y: &mut [T], sums: &mut [[T; 2]]| {
        dispatch(RowProduct { matrix, row: k * ROWS, first: first + k * ROWS, x, z, y, sums });
    };
    let pieces = y.par_chunks_mut(call.piece(ROWS)).zip(sums.par_chunks_mut(call.piece(ROWS / BLOCK)));
    pieces.enumerate().for_each(|(k, (y, sums))| some(k, y, sums));
}

/// Update y += a x, or y = z + a (y + b x) if `of` is (b, z).
struct RowUpdate<'a, T> {
    a: T,
    x: &'a [T],
    y: &'a mut [T],
    of: Option<(T, &'a [T])>,
}

impl<T: Real> Body for RowUpdate<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Self { a, x, y, of } = self;
        match of {
            None => y.iter_mut().zip(x).for_each(|(y, &x)| *y = fma::<T, LEVEL>(a, x, *y)),
            Some((b, z)) => y.iter_mut().zip(x).zip(z).for_each(|((y, &x), &z)| {
                *y = fma::<T, LEVEL>(a, fma::<T, LEVEL>(b, x, *y), z);
            }),
        }
    }
}

fn bicgstab_half<T: Real>(call: &Call<'_>, p: bicgstab_half::Params, b: bicgstab_half::Bindings<'_, T>) {
    if b.scalars[ACTIVE] == T::ZERO {
        return;
    }
    let a = -b.scalars[ALPHA];
    blocks(call, &mut b.r[..p.rows as usize], |first, y| {
        dispatch(RowUpdate { a, x: &b.q[first..][..y.len()], y, of: None });
    });
}

fn bicgstab_direction<T: Real>(
    call: &Call<'_>,
    p: bicgstab_direction::Params,
    b: bicgstab_direction::Bindings<'_, T>,
) {
    if b.scalars[ACTIVE] == T::ZERO {
        return;
    }
    let (a, omega) = (b.scalars[BETA], -b.scalars[OMEGA]);
    blocks(call, &mut b.d[..p.rows as usize], |first, y| {
        let here = first..first + y.len();
        dispatch(RowUpdate { a, x: &b.q[here.clone()], of: Some((omega, &b.r[here])), y });
    });
}

/// Rows of x and r that one thread updates. Only the last block of rows may be incomplete.
struct Whole<'a, T> {
    scalars: &'a [T],
    d: &'a [T],
    t: &'a [T],
    shadow: &'a [T],
    /// Weights of the residual's rows; none if all are 1.
    w: Option<&'a [T]>,
    x: &'a mut [T],
    r: &'a mut [T],
    sums: &'a mut [[T; 2]],
}

impl<T: Real> Body for Whole<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (alpha, omega) = (self.scalars[ALPHA], self.scalars[OMEGA]);
        let pieces = self.x.chunks_mut(BLOCK).zip(self.r.chunks_mut(BLOCK)).zip(self.sums);
        for (block, ((x, r), sums)) in pieces.enumerate() {
            let here = block * BLOCK..block * BLOCK + x.len();
            let (d, t, shadow) = (&self.d[here.clone()], &self.t[here.clone()], &self.shadow[here.clone()]);
            let mut terms = [[T::ZERO; BLOCK]; 2];
            let [a, b] = &mut terms;
            let (a, b) = (&mut a[..x.len()], &mut b[..x.len()]);
            let r = &mut r[..x.len()];
            for i in 0..x.len() {
                let half = r[i];
                r[i] = fma::<T, LEVEL>(-omega, t[i], half);
                x[i] = fma::<T, LEVEL>(alpha, d[i], fma::<T, LEVEL>(omega, half, x[i]));
                (a[i], b[i]) = (shadow[i] * r[i], r[i].abs());
            }
            if let Some(w) = self.w {
                b.iter_mut().zip(&w[here]).for_each(|(b, &w)| *b = *b * w);
            }
            *sums = block_of(&mut terms, larger);
        }
    }
}

fn bicgstab_whole<T: Real>(call: &Call<'_>, p: bicgstab_whole::Params, b: bicgstab_whole::Bindings<'_, T>) {
    let bicgstab_whole::Bindings { scalars, d, t, shadow, w, x, r, sums, .. } = b;
    if scalars[ACTIVE] == T::ZERO {
        return;
    }
    let rows = p.rows as usize;
    let some = |k: usize, x: &mut [T], r: &mut [T], sums: &mut [[T; 2]]| {
        let here = k * ROWS..k * ROWS + x.len();
        let (d, t, shadow) = (&d[here.clone()], &t[here.clone()], &shadow[here.clone()]);
        let w = (p.weighted != 0).then(|| &w[here]);
        dispatch(Whole { scalars, d, t, shadow, w, x, r, sums });
    };
    let (x, r, sums) = (&mut x[..rows], &mut r[..rows], &mut sums[..rows.div_ceil(BLOCK)]);
    let (size, sums) = (call.piece(ROWS), sums.par_chunks_mut(call.piece(ROWS / BLOCK)));
    let pieces = x.par_chunks_mut(size).zip(r.par_chunks_mut(size)).zip(sums).enumerate();
    pieces.for_each(|(k, ((x, r), sums))| some(k, x, r, sums));
}

fn bicgstab_scalars<T: Real>(
    _: &Call<'_>,
    p: bicgstab_scalars::Params,
    b: bicgstab_scalars::Bindings<'_, T>,
) {
    let mut own = [[T::ZERO; BLOCK]; 2];
    let whole = p.stage == 2;
    let second = |a, b| if whole { larger(a, b) } else { a + b };
    for (k, &[a, b]) in b.sums[..p.blocks as usize].iter().enumerate() {
        let [own_a, own_b] = &mut own;
        let thread = k % BLOCK;
        (own_a[thread], own_b[thread]) = (own_a[thread] + a, second(own_b[thread], b));
    }
    let [a, b_] = block_of(&mut own, second);
    let scalars = b.scalars;
    if scalars[ACTIVE] == T::ZERO {
        return;
    }
    // Inverses, since every lane rounds 1/a alike.
    let (rho, one) = (scalars[RHO], T::of(1.0));
    let scalar = match p.stage {
        0 => rho * (one / a),
        1 if b_ > T::ZERO => a * (one / b_),
        1 => T::ZERO,
        _ => a * (one / rho) * (scalars[ALPHA] * (one / scalars[OMEGA])),
    };
    scalars[[ALPHA, OMEGA, BETA][p.stage as usize]] = scalar;
    if whole {
        scalars[RHO] = a;
        scalars[ITERATIONS] = scalars[ITERATIONS] + one;
    }
    let finite = scalar.abs() <= T::of(LARGEST);
    if !finite || whole && b_ <= scalars[ENOUGH] {
        scalars[ACTIVE] = T::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wgsl_and_cpu_constants_are_equal() {
        let names = ["RHO", "ALPHA", "OMEGA", "BETA", "ENOUGH", "ITERATIONS", "ACTIVE"];
        let places: [usize; SCALARS] = [RHO, ALPHA, OMEGA, BETA, ENOUGH, ITERATIONS, ACTIVE];
        let text = BICGSTAB_SCALARS.wgsl;
        for (name, place) in names.into_iter().zip(places) {
            assert!(text.contains(&format!("const {name} = {place}u;")), "{name}");
        }
        assert!(text.contains(&format!("const LARGEST = {LARGEST:e};")));
    }
}
