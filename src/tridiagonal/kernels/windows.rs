//! Kernels of windows (overlapping tiles), and their CPU implementations.

use super::number::{Number, fma};
use super::tiles::{BackSubstitution, Diagonals, LANES, TURN, Turned, UNCACHED, descend, small, turn};
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, UNFUSED, dispatch, prefetch_line, stream, streamed};
use crate::kernel::kernel;
use crate::parallel::*;
use crate::util::inline_array::array;

kernel! {
    /// Computes the unknowns of tiles, each from the rows of its window alone.
    pub static WINDOW = tridiagonal_window + window_params + rows + backward + pivots
        (rows, n, first, at, tiles, tile, rhs, stride, levels, small, limit, tiny)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], x: &mut [T], flags: &mut [u32],
    );
    /// Checks the rows at the borders of tiles, and counts the tiles that are not certified.
    pub static SEAM = tridiagonal_seam + window_params + backward + tree + pivots(like tridiagonal_window)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], x: &[T], flags: &mut [u32],
    );
}

/// Rows of a window, a tile with the overlap on either side.
pub const WINDOW_ROWS: usize = 2048;
/// Tiles per group; the host reads one number of uncertified tiles for each group.
pub const SEAMS: usize = 256;

/// Prefetch distance in rows. Windows are too many streams for the hardware prefetcher.
const AHEAD: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Tiling {
    rows: usize,
    n: usize,
    first: usize,
    at: usize,
    tiles: usize,
    tile: usize,
}

impl Tiling {
    fn of(p: tridiagonal_window::Params) -> Self {
        let [rows, n, first, at, tiles, tile] =
            [p.rows, p.n, p.first, p.at, p.tiles, p.tile].map(|number| number as usize);
        Self { rows, n, first, at, tiles, tile }
    }

    /// Rows of a window on either side of its tile.
    fn overlap(self) -> usize {
        (WINDOW_ROWS - self.tile) / 2
    }

    /// Returns two flags: true if a system begins with this row, true if one ends with it.
    fn ends(self, row: usize) -> [bool; 2] {
        let place = (self.first + row) % self.n;
        [place == 0, place + 1 == self.n]
    }
}

/// True if a residual r certifies its row: |r| ≤ 4^−limit·s, or all products have a factor 0.
///
/// s is the sum of the absolute values of the row's products. It must be in 2^(−16 tiny) … 2^(16
/// tiny), where no product loses digits. `limit` and `tiny` are kernel parameters.
fn is_certified<T: Number>(
    [a, d, c, b]: [T; 4],
    [before, own, behind]: [T; 3],
    p: tridiagonal_window::Params,
) -> bool {
    let fma = fma::<T, UNFUSED>;
    let left = fma(-d, own, fma(-c, behind, fma(-a, before, b))).size();
    let scale = (a * before).size() + (d * own).size() + (c * behind).size() + b.size();
    let least = T::of(crate::util::quantity::power(-16 * p.tiny as i32));
    let known = left <= scale * small(p.limit) && scale >= least && scale * least <= T::of(1.0);
    known || [(a, before), (d, own), (c, behind), (b, b)].iter().all(|&(c, x)| c == T::ZERO || x == T::ZERO)
}

/// [`LANES`] consecutive tiles, one per vector lane.
struct Strip<'a, T> {
    all: Diagonals<'a, T>,
    tiling: Tiling,
    first: usize,
    small: T,
    back: &'a mut [BackSubstitution<T>],
    x: &'a mut [T],
    flags: &'a mut [u32],
    /// True if x is written with stores past the caches, which need not read the cache lines first.
    past: bool,
}

impl<T: Number> Strip<'_, T> {
    /// Reads rows `at … at + 7` of each window, transposed: one row of all windows is a vector.
    /// Missing rows become x_i = 0.
    #[inline(always)]
    fn rows<const LEVEL: u8>(&self, at: usize, places: &mut [usize; LANES], out: &mut [Turned<T>; 4]) {
        let Tiling { rows, n, tile, .. } = self.tiling;
        let Diagonals { dl, d, du, rhs } = self.all;
        let arrays = [dl, d, du, rhs];
        let from = self.tiling.at + self.first * tile + at;
        let (before, end) = (self.tiling.overlap(), from + (LANES - 1) * tile + TURN);
        if self.flags.len() == LANES && from >= before && end - before <= rows {
            for (array, out) in arrays.into_iter().zip(out.iter_mut()) {
                (0..LANES).for_each(|j| prefetch_line(array, from - before + j * tile + AHEAD));
                turn::<T, LEVEL>(array, from - before, tile, out);
            }
        } else {
            for (j, r) in (0..LANES).flat_map(|j| (0..TURN).map(move |r| (j, r))) {
                let row = (from + j * tile + r).wrapping_sub(before);
                let exists = j < self.flags.len() && row < rows;
                for (k, array) in arrays.into_iter().enumerate() {
                    out[k][r][j] = if exists { array[row] } else { T::of(f64::from(u8::from(k == 1))) };
                }
            }
        }
        for (j, place) in places.iter_mut().enumerate() {
            if *place == 0 || *place + TURN >= n {
                let [dl, _, du, _] = &mut *out;
                for (r, (dl, du)) in dl.iter_mut().zip(du).enumerate() {
                    let place = (*place + r) % n;
                    dl[j] = if place == 0 { T::ZERO } else { dl[j] };
                    du[j] = if place + 1 == n { T::ZERO } else { du[j] };
                }
            }
            let next = *place + TURN;
            *place = if next < n { next } else { next % n };
        }
    }

    /// Stores the unknowns of rows `at … at + 7` of each window, if they belong to its tile.
    #[inline(always)]
    fn keep<const LEVEL: u8>(&mut self, at: usize, turned: &Turned<T>) {
        for (j, _) in self.flags.iter().enumerate() {
            let from = j * self.tiling.tile + at - self.tiling.overlap();
            let own: [T; TURN] = array(|k| turned[k][j]);
            match self.x.get_mut(from..).and_then(<[T]>::first_chunk_mut) {
                Some(run) if self.past => stream::<LEVEL, T>(run, &own),
                Some(run) => *run = own,
                None => self.x.iter_mut().skip(from).zip(own).for_each(|(x, own)| *x = own),
            }
        }
    }

    /// Forward elimination: stores numbers for back substitution. Returns 1 for each window with a
    /// row that is not dominant or a small pivot.
    #[inline(always)]
    fn down<const LEVEL: u8>(&mut self) -> [u32; LANES] {
        let Tiling { n, first, at, tile, .. } = self.tiling;
        let from = first + at + self.first * tile + n * (WINDOW_ROWS / n + 1) - self.tiling.overlap();
        let mut places: [usize; LANES] = array(|j| (from + j * tile) % n);
        let (mut e, mut h, small) = ([T::ZERO; LANES], [T::ZERO; LANES], self.small);
        let (mut dominance, mut pivots) = ([T::of(1.0); LANES], [T::ZERO; LANES]);
        let mut rows: [Turned<T>; 4] = [[[T::ZERO; LANES]; TURN]; 4];
        for at in (0..WINDOW_ROWS).step_by(TURN) {
            self.rows::<LEVEL>(at, &mut places, &mut rows);
            let [a, b, c, r] = &rows;
            let pairs = a.as_chunks().0.iter().zip(b.as_chunks().0);
            let pairs = pairs.zip(c.as_chunks().0.iter().zip(r.as_chunks().0));
            for (((a, b), (c, r)), back) in pairs.zip(&mut self.back[at / 2..][..TURN / 2]) {
                let dets;
                (*back, dets) = descend::<T, LEVEL>([a, b, c, r], &mut e, &mut h);
                for j in 0..LANES {
                    let rest = [a[0][j].size() + c[0][j].size(), a[1][j].size() + c[1][j].size()];
                    let excess = [b[0][j].size() - rest[0], b[1][j].size() - rest[1]];
                    let excess = if excess[0] < excess[1] { excess[0] } else { excess[1] };
                    dominance[j] = if excess < dominance[j] { excess } else { dominance[j] };
                    let weight = (rest[0] + b[0][j].size()) * (rest[1] + b[1][j].size());
                    let few = dets[j].size() <= small * weight;
                    pivots[j] = pivots[j] + if few { T::of(1.0) } else { T::ZERO };
                }
            }
        }
        array(|j| u32::from(pivots[j] != T::ZERO || dominance[j] < T::ZERO))
    }

    /// Back substitution: computes the unknowns of tiles.
    #[inline(always)]
    fn up<const LEVEL: u8>(&mut self) {
        let (overlap, tile) = (self.tiling.overlap(), self.tiling.tile);
        let mut next = [T::ZERO; LANES];
        let mut turned: Turned<T> = [[T::ZERO; LANES]; TURN];
        for at in (overlap..WINDOW_ROWS).step_by(TURN).rev() {
            for k in (0..TURN / 2).rev() {
                let back = &self.back[at / 2 + k];
                for j in 0..LANES {
                    turned[2 * k + 1][j] = fma::<T, LEVEL>(-back[3][j], next[j], back[2][j]);
                    turned[2 * k][j] = fma::<T, LEVEL>(-back[1][j], next[j], back[0][j]);
                }
                next = turned[2 * k];
            }
            if at < overlap + tile {
                self.keep::<LEVEL>(at, &turned);
            }
        }
        if self.past {
            streamed();
        }
    }
}

impl<T: Number> Body for Strip<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let flags = self.down::<LEVEL>();
        self.flags.copy_from_slice(&flags[..self.flags.len()]);
        self.up::<LEVEL>();
    }
}

fn tridiagonal_window<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_window::Params,
    b: tridiagonal_window::Bindings<'_, T>,
) {
    solve_tiles(p, b);
}

/// Solves tiles, each from its window alone.
pub(crate) fn solve_tiles<T: Number>(p: tridiagonal_window::Params, b: tridiagonal_window::Bindings<'_, T>) {
    let tiling = Tiling::of(p);
    let all = Diagonals { dl: b.dl, d: b.d, du: b.du, rhs: b.rhs };
    let Tiling { rows, at, tiles, tile, .. } = tiling;
    let (here, [rhs, stride]) =
        (at.min(rows)..(at + tiles * tile).min(rows), [p.rhs, p.stride].map(|n| n as usize));
    let past = rhs * here.len() >= UNCACHED;
    // Unknowns of all right-hand sides by strip, so that all but the first read the diagonals from
    // cache.
    let mut strips: Vec<Vec<&mut [T]>> = Vec::new();
    strips.resize_with(tiles.div_ceil(LANES), Vec::new);
    for x in b.x.chunks_mut(stride).take(rhs) {
        let parts = x[here.clone()].chunks_mut(LANES * tile);
        strips.iter_mut().zip(parts).for_each(|(strip, part)| strip.push(part));
    }
    let flags = b.flags[..rhs * tiles].par_chunks_mut(rhs * LANES);
    let scratch = || vec![[[T::ZERO; LANES]; 4]; WINDOW_ROWS / 2];
    let small = small(p.small);
    strips.into_par_iter().zip(flags).enumerate().for_each_init(scratch, |back, (strip, (xs, flags))| {
        for (k, x) in xs.into_iter().enumerate() {
            let all = Diagonals { rhs: &b.rhs[k * stride..], ..all };
            let own = &mut [0; LANES][..flags.len() / rhs];
            dispatch(Strip { all, tiling, first: strip * LANES, small, back, x, flags: own, past });
            flags.iter_mut().skip(k).step_by(rhs).zip(own).for_each(|(to, own)| *to = *own);
        }
    });
}

fn tridiagonal_seam<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_window::Params,
    b: tridiagonal_seam::Bindings<'_, T>,
) {
    count_uncertified(p, b);
}

/// Counts the tiles that are not certified, per group of [`SEAMS`].
pub(crate) fn count_uncertified<T: Number>(
    p: tridiagonal_window::Params,
    b: tridiagonal_seam::Bindings<'_, T>,
) {
    let tiling = Tiling::of(p);
    let [rhs, stride] = [p.rhs, p.stride].map(|n| n as usize);
    let is_certified = |row: usize, k: usize| {
        let (x, b_k) = (&b.x[k * stride..], &b.rhs[k * stride..]);
        let [begins, ends] = tiling.ends(row);
        let a = if begins { T::ZERO } else { b.dl[row] };
        let c = if ends { T::ZERO } else { b.du[row] };
        let behind = if row + 1 < tiling.rows { x[row + 1] } else { T::ZERO };
        is_certified([a, b.d[row], c, b_k[row]], [x[row - 1], x[row], behind], p)
    };
    let (flags, above) = b.flags.split_at_mut(rhs * tiling.tiles);
    for (group, (flags, above)) in flags.chunks(SEAMS).zip(above).enumerate() {
        let bad = |(at, &bad): (usize, &u32)| {
            let (tile, k) = ((group * SEAMS + at) / rhs, (group * SEAMS + at) % rhs);
            let row = tiling.at + tile * tiling.tile;
            bad == 1 || (tile > 0 && !(is_certified(row - 1, k) && is_certified(row, k)))
        };
        *above = flags.iter().enumerate().filter(|&flag| bad(flag)).count() as u32;
    }
}
