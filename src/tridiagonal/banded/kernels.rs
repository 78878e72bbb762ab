//! Kernels that solve overlapping tiles (windows) of block rows, and their CPU implementations.

use std::ops::Range;

use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, UNFUSED, dispatch};
use crate::kernel::kernel;
use crate::parallel::*;
use crate::tridiagonal::kernels::number::{Number, fma};
use crate::tridiagonal::kernels::tiles::{LANES, small};
use crate::util::inline_array::{array, each};

kernel! {
    /// Computes the unknowns of tiles of a pentadiagonal matrix, or checks the rows at tile borders
    /// if `seam` is set.
    pub(crate) static PENTADIAGONAL_WINDOW = pentadiagonal_window + block_window + pivots
        (blocks, at, tiles, tile, levels, limit, tiny, seam)(
        dl2: &[T], dl: &[T], d: &[T], du: &[T], du2: &[T], rhs: &[T], x: &mut [T], flags: &mut [u32],
    ).with(&GROUPS).with_cuda_groups(3);
    /// Computes the unknowns of tiles of a block tridiagonal matrix, or checks the rows at tile
    /// borders if `seam` is set.
    pub(crate) static BLOCK_WINDOW = block_window + block_window + pivots(like pentadiagonal_window)(
        lower: &[T], diagonal: &[T], upper: &[T], rhs: &[T], x: &mut [T], flags: &mut [u32],
    ).with(&GROUPS);
}

/// Threads of a workgroup: few, since each holds its rows from the first use to the last, and small
/// workgroups wait less at barriers.
pub(super) const GROUP: usize = 128;
const GROUPS: [(&str, f64); 1] = [("GROUP", GROUP as f64)];
/// Block rows (pairs of rows) per thread.
pub(super) const OWN: usize = 4;
/// Block rows (pairs of rows) of a window, a tile with the rows around it.
pub(super) const WINDOW_BLOCKS: usize = OWN * GROUP;

/// Two rows of the matrix: lower, diagonal and upper 2 × 2 block, each row by row, then the two
/// right-hand sides.
type BlockRow<T> = [T; 14];
/// One number of each of the [`LANES`] windows that are solved together.
type Vector<T> = [T; LANES];

/// Offsets in a [`BlockRow`]: lower (L), diagonal (D), upper block (U), right-hand sides (R).
const L: usize = 0;
const D: usize = 4;
const U: usize = 8;
const R: usize = 12;

trait BlockRows<T>: Copy + Sync {
    fn row(self, k: usize) -> BlockRow<T>;
}

/// Block rows stored as five diagonals and a right-hand side.
#[derive(Clone, Copy)]
struct FiveDiagonals<'a, T>([&'a [T]; 6]);

impl<T: Number> BlockRows<T> for FiveDiagonals<'_, T> {
    #[inline(always)]
    fn row(self, k: usize) -> BlockRow<T> {
        let [[a2, b2], [a, b], [d0, d1], [c, e], [c2, e2], [r, s]] =
            each(self.0, |array| [array[2 * k], array[2 * k + 1]]);
        [a2, a, T::ZERO, b2, d0, c, b, d1, c2, T::ZERO, e, e2, r, s]
    }
}

/// Block rows stored as blocks and a right-hand side.
#[derive(Clone, Copy)]
struct ThreeBlocks<'a, T>([&'a [T]; 3], &'a [T]);

impl<T: Number> BlockRows<T> for ThreeBlocks<'_, T> {
    #[inline(always)]
    fn row(self, k: usize) -> BlockRow<T> {
        let mut row = [T::ZERO; 14];
        for (at, blocks) in [L, D, U].into_iter().zip(self.0) {
            row[at..at + 4].copy_from_slice(&blocks[4 * k..4 * k + 4]);
        }
        row[R..].copy_from_slice(&self.1[2 * k..2 * k + 2]);
        row
    }
}

/// Returns the block row x = 0, as padding for positions outside of the matrix.
fn no_row<T: Number>() -> BlockRow<T> {
    let mut row = [T::ZERO; 14];
    (row[D], row[D + 3]) = (T::of(1.0), T::of(1.0));
    row
}

/// Returns how many of the two rows of block row `o` the unknowns `x` do not certify.
///
/// `x` are those of the previous, the current and the next block row. A row is certified if |b −
/// A·x| is small against |A|·|x| + |b| and that scale is in range, or if all its terms are 0.
#[inline(always)]
fn uncertified<T: Number, const LEVEL: u8>(
    o: impl Fn(usize) -> T,
    x: [[T; 2]; 3],
    p: pentadiagonal_window::Params,
) -> T {
    let mut bad = T::ZERO;
    let least = T::of(crate::util::quantity::power(-16 * p.tiny as i32));
    for row in 0..2 {
        let (mut left, mut scale, mut zero) = (o(R + row), o(R + row).size(), o(R + row) == T::ZERO);
        for (block, x) in [L, U, D].into_iter().zip([x[0], x[2], x[1]]) {
            for (k, x) in x.into_iter().enumerate() {
                let c = o(block + 2 * row + k);
                left = fma::<T, LEVEL>(-c, x, left);
                scale = scale + (c * x).size();
                zero &= (c == T::ZERO) | (x == T::ZERO);
            }
        }
        let known =
            (left.size() <= scale * small(p.limit)) & (scale >= least) & (scale * least <= T::of(1.0));
        bad = bad + if known | zero { T::ZERO } else { T::of(1.0) };
    }
    bad
}

/// Vector e, then 2 × 2 matrix g, of a block row for back substitution: x = e − g·x_next.
type BlockBackSubstitution<T> = [Vector<T>; 6];

/// [`LANES`] consecutive tiles that are solved together, one per vector lane.
struct BlockStrip<'a, T, R> {
    rows: R,
    p: pentadiagonal_window::Params,
    first: usize,
    back: &'a mut [BlockBackSubstitution<T>],
    x: &'a mut [T],
    flags: &'a mut [u32],
}

impl<T: Number, R: BlockRows<T>> BlockStrip<'_, T, R> {
    /// Number of block rows of a window before its tile.
    fn overlap(&self) -> usize {
        (WINDOW_BLOCKS - self.p.tile as usize) / 2
    }

    /// Block row `at` of each window, counted from the window's first.
    #[inline(always)]
    fn row(&self, at: usize) -> [Vector<T>; 14] {
        let [tile, blocks, begin] = [self.p.tile, self.p.blocks, self.p.at].map(|n| n as usize);
        let from = begin + self.first * tile + at;
        let mut all = [[T::ZERO; LANES]; 14];
        for j in 0..LANES {
            let block = (from + j * tile).wrapping_sub(self.overlap());
            let row = if j < self.flags.len() && block < blocks { self.rows.row(block) } else { no_row() };
            for (all, v) in all.iter_mut().zip(row) {
                all[j] = v;
            }
        }
        all
    }

    /// Range of a window's block rows that exist in the matrix for at least one window.
    fn part(&self) -> Range<usize> {
        let [tile, blocks, begin] = [self.p.tile, self.p.blocks, self.p.at].map(|n| n as usize);
        let (first, overlap) = (begin + self.first * tile, self.overlap());
        let start = if self.flags.len() == 1 { overlap.saturating_sub(first) } else { 0 };
        start..WINDOW_BLOCKS.min(blocks + overlap - first)
    }

    /// Forward elimination: stores the [`BlockBackSubstitution`] of each block row.
    #[inline(always)]
    fn down<const LEVEL: u8>(&mut self) {
        let mut before: BlockBackSubstitution<T> = [[T::ZERO; LANES]; 6];
        for at in self.part() {
            let o = self.row(at);
            for j in 0..LANES {
                let o = |k: usize| o[k][j];
                let [e0, e1, g0, g1, g2, g3] = array(|k| before[k][j]);
                let less = |s: T, a: [T; 2], b: [T; 2]| {
                    fma::<T, LEVEL>(-a[0], b[0], fma::<T, LEVEL>(-a[1], b[1], s))
                };
                let l = [[o(L), o(L + 1)], [o(L + 2), o(L + 3)]];
                let [a, b] = [less(o(D), l[0], [g0, g2]), less(o(D + 1), l[0], [g1, g3])];
                let [c, d] = [less(o(D + 2), l[1], [g0, g2]), less(o(D + 3), l[1], [g1, g3])];
                let [r, s] = [less(o(R), l[0], [e0, e1]), less(o(R + 1), l[1], [e0, e1])];
                let det = fma::<T, LEVEL>(a, d, -(b * c));
                let inverse = T::of(1.0) / det;
                let [a, b, c, d] = [d * inverse, -b * inverse, -c * inverse, a * inverse];
                let times = |m: [T; 2], v: [T; 2]| fma::<T, LEVEL>(m[0], v[0], m[1] * v[1]);
                let [upper, lower] = [[o(U), o(U + 2)], [o(U + 1), o(U + 3)]];
                let own = [
                    times([a, b], [r, s]),
                    times([c, d], [r, s]),
                    times([a, b], upper),
                    times([a, b], lower),
                    times([c, d], upper),
                    times([c, d], lower),
                ];
                for (before, own) in before.iter_mut().zip(own) {
                    before[j] = own;
                }
            }
            self.back[at] = before;
        }
    }

    /// Back substitution: stores the unknowns of tiles, and adds each tile's number of uncertified
    /// rows to `bad`.
    #[inline(always)]
    fn up<const LEVEL: u8>(&mut self, bad: &mut Vector<T>) {
        let (overlap, tile) = (self.overlap(), self.p.tile as usize);
        // The unknowns of this block row and of the next two.
        let mut x = [[[T::ZERO; LANES]; 2]; 3];
        let part = self.part();
        for at in (part.start.max(overlap.saturating_sub(1))..part.end).rev() {
            (x[2], x[1]) = (x[1], x[0]);
            let back = &self.back[at];
            for j in 0..LANES {
                for (k, g) in [2, 4].into_iter().enumerate() {
                    let inner = fma::<T, LEVEL>(-back[g + 1][j], x[1][1][j], back[k][j]);
                    x[0][k][j] = fma::<T, LEVEL>(-back[g][j], x[1][0][j], inner);
                }
            }
            if (overlap..overlap + tile).contains(&at) {
                let [upper, lower] = x[0];
                for (j, own) in upper.into_iter().zip(lower).enumerate().take(self.flags.len()) {
                    let to = 2 * (j * tile + at - overlap);
                    if let Some(to) = self.x.get_mut(to..to + 2) {
                        to.copy_from_slice(&[own.0, own.1]);
                    }
                }
            }
            if (overlap..overlap + tile).contains(&(at + 1)) && at + 1 < part.end {
                self.check::<LEVEL>(at + 1, &x, bad);
            }
        }
        if part.start >= overlap {
            // There is no row before the first.
            let x = [[[T::ZERO; LANES]; 2], x[0], x[1]];
            self.check::<LEVEL>(part.start, &x, bad);
        }
    }

    /// Adds each window's number of uncertified rows (0 to 2) in block row `at` to `bad`. `x` has
    /// the unknowns of the previous, this and the next block row.
    #[inline(always)]
    fn check<const LEVEL: u8>(&self, at: usize, x: &[[Vector<T>; 2]; 3], bad: &mut Vector<T>) {
        let o = self.row(at);
        for (j, bad) in bad.iter_mut().enumerate() {
            let x = array(|k| [x[k][0][j], x[k][1][j]]);
            *bad = *bad + uncertified::<T, LEVEL>(|k| o[k][j], x, self.p);
        }
    }
}

impl<T: Number, R: BlockRows<T>> Body for BlockStrip<'_, T, R> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let mut bad = [T::ZERO; LANES];
        self.down::<LEVEL>();
        self.up::<LEVEL>(&mut bad);
        self.flags.iter_mut().zip(bad).for_each(|(flag, bad)| *flag = u32::from(bad != T::ZERO));
    }
}

fn windows<T: Number>(
    rows: impl BlockRows<T>,
    p: pentadiagonal_window::Params,
    x: &mut [T],
    flags: &mut [u32],
) {
    let [tiles, tile, at, blocks] = [p.tiles, p.tile, p.at, p.blocks].map(|n| n as usize);
    if p.seam > 0 {
        return seams(rows, p, x, flags);
    }
    let here = 2 * at..2 * blocks.min(at + tiles * tile);
    let strips = x[here].par_chunks_mut(2 * LANES * tile).zip(flags[..tiles].par_chunks_mut(LANES));
    let scratch = || vec![[[T::ZERO; LANES]; 6]; WINDOW_BLOCKS];
    strips.enumerate().for_each_init(scratch, |back, (strip, (x, flags))| {
        dispatch(BlockStrip { rows, p, first: strip * LANES, back, x, flags });
    });
}

/// Counts the uncertified tiles per group of 128. The block rows on either side of the border
/// before a tile count as its own, unless tiles are whole systems.
fn seams<T: Number>(rows: impl BlockRows<T>, p: pentadiagonal_window::Params, x: &[T], flags: &mut [u32]) {
    let [tiles, tile, at, blocks] = [p.tiles, p.tile, p.at, p.blocks].map(|n| n as usize);
    let unknown = |k: usize| if k < blocks { [x[2 * k], x[2 * k + 1]] } else { [T::ZERO; 2] };
    let is_certified = |k: usize| {
        let (o, x) = (rows.row(k), [unknown(k - 1), unknown(k), unknown(k + 1)]);
        uncertified::<T, UNFUSED>(|k| o[k], x, p) == T::ZERO
    };
    let (flags, above) = flags.split_at_mut(tiles);
    for (group, (flags, above)) in flags.chunks(GROUP).zip(above).enumerate() {
        let bad = |(k, &bad): (usize, &u32)| {
            let block = at + (group * GROUP + k) * tile;
            bad == 1 || (p.seam == 1 && block > at && !(is_certified(block - 1) && is_certified(block)))
        };
        *above = flags.iter().enumerate().filter(|&flag| bad(flag)).count() as u32;
    }
}

fn pentadiagonal_window<T: Number>(
    _: &Call<'_>,
    p: pentadiagonal_window::Params,
    b: pentadiagonal_window::Bindings<'_, T>,
) {
    windows(FiveDiagonals([b.dl2, b.dl, b.d, b.du, b.du2, b.rhs]), p, b.x, b.flags);
}

fn block_window<T: Number>(_: &Call<'_>, p: pentadiagonal_window::Params, b: block_window::Bindings<'_, T>) {
    windows(ThreeBlocks([b.lower, b.diagonal, b.upper], b.rhs), p, b.x, b.flags);
}
