//! Chunks of whole systems, of up to 2048 rows each, in one launch: each row is read once.

use super::stages::ChunkSolve;
use crate::Result;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Kernel, kernel};
use crate::lane::Lane;
use crate::parallel::*;
use crate::tridiagonal::kernels::number::{Number, fma};
use crate::tridiagonal::kernels::row_memory::{Arrays, RowMemory};
use crate::tridiagonal::kernels::tiles::{LANES, NOT_DOMINANT, both, small, small_exponent};
use crate::tridiagonal::scheme::Scheme;

kernel! {
    /// Computes the unknowns of the whole systems of a tile.
    pub(crate) static BATCH = tridiagonal_batch + pairs + rows + units + pivots
        (rows, n, tile, span, small, rhs, stride)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], x: &mut [T], flags: &mut [u32],
    );
}

/// Rows per thread on a device.
const ROWS: usize = 8;

/// Number of threads over which a system may extend: n / 8 if every system begins with a thread,
/// otherwise all threads of the group.
fn span(n: usize) -> usize {
    if n.is_multiple_of(ROWS) && (n / ROWS).is_power_of_two() { n / ROWS } else { Kernel::GROUP as usize }
}

/// Creates a chunk of `rows` rows of whole systems of `n` rows each, with `tile` rows per tile.
pub(super) fn chunk<T: Number>(
    lane: &Lane,
    memory: &RowMemory<T>,
    n: usize,
    rows: usize,
    tile: usize,
) -> Result<ChunkSolve<T>> {
    let tiles = rows.div_ceil(tile);
    let flags = lane.alloc("flags of small systems", tiles)?;
    let params = tridiagonal_batch::Params {
        step: 0,
        rows: rows as u32,
        n: n as u32,
        tile: tile as u32,
        span: span(n) as u32,
        small: small_exponent(T::PRECISION),
        rhs: memory.rhs as u32,
        stride: memory.stride() as u32,
    };
    let Arrays { dl, d, du, b, x } = &memory.arrays;
    let (dl, d, du, rhs, x) = (dl.arg(), d.arg(), du.arg(), b.arg(), x.arg());
    let args = tridiagonal_batch::Args { dl, d, du, rhs, x, flags: flags.arg() };
    let down = lane.bind(&BATCH, T::PRECISION, memory.rhs * tiles * Kernel::GROUP as usize, params, args)?;
    Ok(ChunkSolve { scheme: Scheme::Batch { tile }, up: None, down, levels: None, flags: Some(flags) })
}

/// Elimination of `W` consecutive systems of `n` rows side by side, one per vector lane.
struct BatchElimination<'a, T, const W: usize> {
    n: usize,
    rows: [&'a [T]; 4],
    x: &'a mut [T],
    /// Numbers e and h of each row for back substitution: x_i = e − h·x_{i+1}.
    back: &'a mut [[[T; LANES]; 2]],
    small: T,
    flags: &'a mut u32,
}

impl<T: Number, const W: usize> Body for BatchElimination<'_, T, W> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let n = self.n;
        let [dl, d, du, rhs] = self.rows.map(|array| &array[..W * n]);
        let (x, back) = (&mut self.x[..W * n], &mut self.back[..n]);
        let (mut e, mut h) = ([T::ZERO; W], [T::ZERO; W]);
        let (mut dominance, mut pivots) = ([T::of(1.0); W], [T::ZERO; W]);
        for (i, back) in back.iter_mut().enumerate() {
            for j in 0..W {
                let at = j * n + i;
                let a = if i > 0 { dl[at] } else { T::ZERO };
                let c = if i + 1 < n { du[at] } else { T::ZERO };
                let (b, rest) = (d[at], a.size() + c.size());
                let excess = b.size() - rest;
                dominance[j] = if excess < dominance[j] { excess } else { dominance[j] };
                let pivot = fma::<T, LEVEL>(-a, h[j], b);
                let few = pivot.size() <= self.small * (rest + b.size());
                pivots[j] = pivots[j] + if few { T::of(1.0) } else { T::ZERO };
                let inverse = T::of(1.0) / pivot;
                e[j] = fma::<T, LEVEL>(-a, e[j], rhs[at]) * inverse;
                h[j] = c * inverse;
                (back[0][j], back[1][j]) = (e[j], h[j]);
            }
        }
        let mut next = [T::ZERO; W];
        for (i, back) in back.iter().enumerate().rev() {
            for j in 0..W {
                next[j] = fma::<T, LEVEL>(-back[1][j], next[j], back[0][j]);
                x[j * n + i] = next[j];
            }
        }
        for j in 0..W {
            let loose = if dominance[j] < T::ZERO { NOT_DOMINANT } else { 0 };
            *self.flags = both(*self.flags, pivots[j].wide() as u32 | loose);
        }
    }
}

fn tridiagonal_batch<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_batch::Params,
    b: tridiagonal_batch::Bindings<'_, T>,
) {
    let [rows, n, tile] = [p.rows, p.n, p.tile].map(|n| n as usize);
    let small = small::<T>(p.small);
    let (stride, group) = (p.stride as usize, LANES * n);
    // A part has many systems and one right-hand side. One system per vector lane is solved at a
    // time.
    let size = group * ((1 << 14) / group + 1);
    let mut parts = Vec::new();
    for (x, rhs) in b.x.chunks_mut(stride).zip(b.rhs.chunks(stride)).take(p.rhs as usize) {
        parts.extend(x[..rows].chunks_mut(size).zip(rhs[..rows].chunks(size)).enumerate());
    }
    let scratch = || vec![[[T::ZERO; LANES]; 2]; n];
    let solved = parts.into_par_iter().enumerate().map_init(scratch, |back, (number, (part, (x, rhs)))| {
        let mut flags = 0;
        let here = part * size..part * size + x.len();
        let [dl, d, du] = [b.dl, b.d, b.du].map(|diagonal| &diagonal[here.clone()]);
        for (at, x) in x.chunks_mut(group).enumerate() {
            let rows = [dl, d, du, rhs].map(|array| &array[at * group..][..x.len()]);
            if x.len() == group {
                dispatch(BatchElimination::<T, LANES> { n, rows, x, back, small, flags: &mut flags });
                continue;
            }
            for (s, x) in x.chunks_mut(n).enumerate() {
                let rows = rows.map(|array| &array[s * n..(s + 1) * n]);
                dispatch(BatchElimination::<T, 1> { n, rows, x, back, small, flags: &mut flags });
            }
        }
        // Flags of the matrix are counted once, not per right-hand side.
        if number < rows.div_ceil(size) { flags } else { 0 }
    });
    let all = solved.reduce(|| 0, both);
    // The host combines the flags of all tiles.
    let flags = &mut b.flags[..rows.div_ceil(tile)];
    flags.fill(0);
    flags[0] = all;
}
