//! Kernels of the partition method with one block per thread, and their CPU implementations.

use super::number::Number;
use super::tiles::{Diagonals, NOT_DOMINANT, both, small};
use crate::kernel::cpu::Call;
use crate::kernel::{Kernel, kernel};
use crate::parallel::*;

kernel! {
    /// Stage 1 in blocks: reduces each block to two rows of the interface system.
    pub(crate) static BLOCK_REDUCE = tridiagonal_block_reduce + block_rows + pivots + tree(
        rows, n, first, blocks, small, at_dl, at_d, at_du, at_rhs,
    )(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], above: &mut [T], flags: &mut [u32],
    );
    /// Stage 3 in blocks: computes the unknowns inside of blocks.
    pub(crate) static BLOCK_SOLVE = tridiagonal_block_solve + block_rows + pivots(like tridiagonal_block_reduce)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], above: &[T], kept: &mut [T], x: &mut [T],
    );
}

/// Coefficients a, b, c and right-hand side d of a row.
type RowCoefficients<T> = [T; 4];

struct RowBlocks<'a, T> {
    all: Diagonals<'a, T>,
    rows: usize,
    n: usize,
    first: usize,
    blocks: usize,
    small: T,
}

impl<'a, T: Number> RowBlocks<'a, T> {
    fn of(p: tridiagonal_block_reduce::Params, [dl, d, du, rhs]: [&'a [T]; 4]) -> Self {
        let [rows, n, first, blocks] = [p.rows, p.n, p.first, p.blocks].map(|number| number as usize);
        let part = |diagonal: &'a [T], at: u32| &diagonal[at as usize..][..rows];
        let (dl, d, du, rhs) = (part(dl, p.at_dl), part(d, p.at_d), part(du, p.at_du), part(rhs, p.at_rhs));
        Self { all: Diagonals { dl, d, du, rhs }, rows, n, first, blocks, small: small(p.small) }
    }

    fn rows_of(&self, block: usize) -> std::ops::Range<usize> {
        let (length, longer) = (self.rows / self.blocks, self.rows % self.blocks);
        let start = block * length + block.min(longer);
        start..start + length + usize::from(block < longer)
    }

    fn row(&self, i: usize) -> RowCoefficients<T> {
        let place = (self.first + i) % self.n;
        let Diagonals { dl, d, du, rhs } = self.all;
        let a = if place > 0 { dl[i] } else { T::ZERO };
        let c = if place + 1 < self.n { du[i] } else { T::ZERO };
        [a, d[i], c, rhs[i]]
    }

    /// Returns the pivot and false. If the pivot is negligible against the row's largest
    /// coefficient `size`, returns a replacement and true.
    fn pivot(&self, pivot: T, size: T) -> (T, bool) {
        let least = self.small * size;
        if pivot.size() > least {
            return (pivot, false);
        }
        let least = if least > self.small { least } else { self.small };
        (if pivot < T::ZERO { -least } else { least }, true)
    }
}

fn size<T: Number>(row: &RowCoefficients<T>) -> T {
    let max = |a: T, b: T| if a > b { a } else { b };
    max(row[0].size(), max(row[1].size(), row[2].size()))
}

/// Equation v·x_kept + u·x_i + w·x_{i+1} = r, the running row of an elimination through a block.
struct Running<T> {
    v: T,
    u: T,
    w: T,
    r: T,
    size: T,
    bad: u32,
}

impl<T: Number> Running<T> {
    fn new(row: &RowCoefficients<T>) -> Self {
        Self { v: row[0], u: row[1], w: row[2], r: row[3], size: size(row), bad: 0 }
    }

    fn eliminate(&mut self, next: &RowCoefficients<T>, blocks: &RowBlocks<'_, T>) {
        let own = size(next);
        let [a, b, c, d] = *next;
        let z = T::ZERO;
        let exchange = a.size() * self.size > self.u.size() * own;
        let (p, o) = match exchange {
            true => ([z, a, b, c, d], [self.v, self.u, self.w, z, self.r]),
            false => ([self.v, self.u, self.w, z, self.r], [z, a, b, c, d]),
        };
        let (pivot, tiny) = blocks.pivot(p[1], if exchange { own } else { self.size });
        let q = -(o[1] / pivot);
        let minus = |p: T, o: T| T::fma::<true>(q, p, o);
        *self = Self {
            v: minus(p[0], o[0]),
            u: minus(p[2], o[2]),
            w: minus(p[3], o[3]),
            r: minus(p[4], o[4]),
            size: if exchange { self.size } else { own },
            bad: self.bad + u32::from(tiny),
        };
    }
}

fn tridiagonal_block_reduce<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_block_reduce::Params,
    b: tridiagonal_block_reduce::Bindings<'_, T>,
) {
    let blocks = RowBlocks::of(p, [b.dl, b.d, b.du, b.rhs]);
    let count = 2 * blocks.blocks;
    let (dl, rest) = b.above[..4 * count].split_at_mut(count);
    let (d, rest) = rest.split_at_mut(count);
    let (du, rhs) = rest.split_at_mut(count);
    let one = |block: usize, [dl, d, du, rhs]: [&mut [T]; 4]| {
        let here = blocks.rows_of(block);
        let loose = here.clone().any(|i| {
            let [a, b, c, _] = blocks.row(i);
            b.size() < a.size() + c.size()
        });
        let mut down = Running::new(&blocks.row(here.start + 1));
        for i in here.start + 2..here.end {
            down.eliminate(&blocks.row(i), &blocks);
        }
        let turned = |i: usize| {
            let [a, b, c, d] = blocks.row(i);
            [c, b, a, d]
        };
        let mut up = Running::new(&turned(here.end - 2));
        for i in (here.start..here.end - 2).rev() {
            up.eliminate(&turned(i), &blocks);
        }
        (dl[0], d[0], du[0], rhs[0]) = (up.w, up.u, up.v, up.r);
        (dl[1], d[1], du[1], rhs[1]) = (down.v, down.u, down.w, down.r);
        (down.bad + up.bad) | if loose { NOT_DOMINANT } else { 0 }
    };
    const GROUP: usize = Kernel::GROUP as usize;
    let parts = dl.par_chunks_mut(2 * GROUP).zip(d.par_chunks_mut(2 * GROUP));
    let parts = parts.zip(du.par_chunks_mut(2 * GROUP)).zip(rhs.par_chunks_mut(2 * GROUP));
    parts.zip(b.flags).enumerate().for_each(|(group, ((((dl, d), du), rhs), flags))| {
        let pairs = dl.chunks_mut(2).zip(d.chunks_mut(2)).zip(du.chunks_mut(2)).zip(rhs.chunks_mut(2));
        *flags = pairs
            .enumerate()
            .map(|(k, (((dl, d), du), rhs))| one(group * GROUP + k, [dl, d, du, rhs]))
            .fold(0, both);
    });
}

fn tridiagonal_block_solve<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_block_reduce::Params,
    b: tridiagonal_block_solve::Bindings<'_, T>,
) {
    let blocks = RowBlocks::of(p, [b.dl, b.d, b.du, b.rhs]);
    let above = b.above;
    let x = &mut b.x[..blocks.rows];
    // The kernel stores these numbers for all blocks, this implementation for one block per thread.
    let one = |block: usize, x: &mut [T], kept: &mut Vec<[T; 3]>| {
        let here = blocks.rows_of(block);
        let (x_first, x_last, after) = (above[2 * block], above[2 * block + 1], above[2 * block + 2]);
        kept.clear();
        let second = blocks.row(here.start + 1);
        let minus = |q: T, p: T, o: T| T::fma::<true>(-q, p, o);
        let (mut u, mut w, mut r) = (second[1], second[2], minus(second[0], x_first, second[3]));
        let mut own = size(&second);
        for i in here.start + 2..here.end {
            let next = blocks.row(i);
            let [a, b, c, d] = next;
            let other = size(&next);
            let z = T::ZERO;
            let exchange = a.size() * own > u.size() * other;
            let (p, o) = if exchange { ([a, b, c, d], [u, w, z, r]) } else { ([u, w, z, r], [a, b, c, d]) };
            let (pivot, _) = blocks.pivot(p[0], if exchange { other } else { own });
            let inverse = T::of(1.0) / pivot;
            kept.push([p[3] * inverse, p[1] * inverse, p[2] * inverse]);
            let q = o[0] * inverse;
            (u, w, r) = (minus(q, p[1], o[1]), minus(q, p[2], o[2]), minus(q, p[3], o[3]));
            own = if exchange { own } else { other };
        }
        let (mut next, mut after) = (x_last, after);
        let len = x.len();
        x[0] = x_first;
        x[len - 1] = x_last;
        for (x, [e, h, k]) in x[1..len - 1].iter_mut().zip(&*kept).rev() {
            let here = minus(*k, after, minus(*h, next, *e));
            (after, next) = (next, here);
            *x = here;
        }
    };
    // Blocks of the two lengths, in runs of one task each.
    const RUN: usize = 256;
    let (length, longer) = (blocks.rows / blocks.blocks, blocks.rows % blocks.blocks);
    let (long, short) = x.split_at_mut(longer * (length + 1));
    for (first, x, length) in [(0, long, length + 1), (longer, short, length)] {
        x.par_chunks_mut(RUN * length).enumerate().for_each_init(Vec::new, |kept, (run, x)| {
            for (k, x) in x.chunks_mut(length).enumerate() {
                one(first + run * RUN + k, x, kept);
            }
        });
    }
}
