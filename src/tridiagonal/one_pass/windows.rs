//! One pass over the rows: tiles solved from their windows alone, and a certificate that this
//! suffices.
//!
//! # Method
//! If rows are dominant, the coupling of unknowns decays with their distance, and beyond some rows
//! it is lost in rounding. A window is a tile with the surrounding rows that still matter. It is
//! solved as if there were no other rows (truncated SPIKE), and the unknowns of the tile are kept.
//! Each row is read once, 40 bytes in f64, and no tile waits for another. Tiles begin at multiples
//! of their size, counted over all rows, so that lanes, chunks and ranks change no bit.
//!
//! # Certificate
//! Let x̂ be the stored unknowns of all tiles and r = b − A·x̂. If |r_i| ≤ ω·(|A|·|x̂| + |b|)_i for
//! every row i, x̂ is the exact solution of a system with elements that differ from the given ones
//! by at most the share ω of each (Oettli, Prager 1964). r has two sources.
//!
//! * *Truncation*: windows omit unknowns beyond their ends, and on devices those beyond the last
//!   level of cyclic reduction. A thread of a device solves its other rows between its last unknown
//!   and that of the previous thread, for any values of these. So an error of the last unknowns
//!   appears in the equations that determine them, the threads' last rows, and in no others. The
//!   CPU implementation omits nothing inside of a window. Beyond the end of a window the next tile
//!   has its own version of the unknowns, and the difference appears in the two rows at the border,
//!   with x̂ as each tile stored it. r is computed in all these rows. A solution is certified only
//!   if |r_i| ≤ ω·(|A|·|x̂| + |b|)_i in each of them. ω is 64 ε, the error above which dominant
//!   systems are refined (32 ε in single precision). No decay rate of the couplings is assumed.
//! * *Rounding*, in every row, as in an elimination in two passes without exchanges. It is small if
//!   rows are dominant and pivots are not small (Higham 2002, theorem 9.13: |L|·|U| ≤ 3·|A|). This
//!   is checked in every row. The residual that [`solve`](crate::tridiagonal::solve) reports is
//!   computed from the whole of x̂, for each method.
//!
//! NaN is not certified, nor are rows with products so small or large that they may lose digits
//! (beyond 10^±144, in single precision 10^±14).
//!
//! # Cost
//! A check of 8 samples of rows determines how far couplings reach before the solution
//! ([`overlap`]). It takes some microseconds on the host. If they reach beyond 384 rows, only the
//! two-pass method is used.
//!
//! A solution may fail the certificate: other rows are weaker than the samples, or unknowns of a
//! tile are negligible against those around it. The two-pass method then follows, 40 + 72 bytes per
//! row. It remains selected until the plan gets other lanes or other diagonals from the host.

use std::marker::PhantomData;
use std::ops::Range;

use crate::Result;
use crate::kernel::{Kernel, Precision};
use crate::lane::{Buffer, Lane, Launch};
use crate::tridiagonal::kernels::alignment::ChunkPlace;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::row_memory::{Arrays, RowMemory};
use crate::tridiagonal::kernels::tiles::small_exponent;
use crate::tridiagonal::kernels::windows::{
    SEAM, SEAMS, WINDOW, WINDOW_ROWS, tridiagonal_seam, tridiagonal_window,
};

/// Exponent s of the backward error 4^−s up to which rows are certified: 64 ε in double precision,
/// 32 ε in single.
pub(crate) const fn limit(precision: Precision) -> u32 {
    if matches!(precision, Precision::F32) { 9 } else { 23 }
}

/// Exponent s of the range 4^(−8 s) … 4^(8 s) in which sums of a row's products can be certified.
pub(crate) const fn tiny(precision: Precision) -> u32 {
    if matches!(precision, Precision::F32) { 3 } else { 30 }
}

/// Maximum overlap of a window: rows on either side of its tile.
pub(crate) const MOST: usize = 512;
/// Minimum overlap of a window: rows on either side of its tile.
pub(crate) const LEAST: usize = 64;
/// Number of samples of rows in which the coupling is checked.
const STRETCHES: usize = 8;
/// Rows of a sample after which its elimination no longer depends on the first row.
pub(crate) const BEGUN: usize = 64;
const STRETCH: usize = BEGUN + MOST;

/// Number of rows after which the coupling of unknowns is lost in rounding, in both directions;
/// `None` if the sample is too short for that.
fn reach<T: Number>([dl, d, du]: [&[T]; 3]) -> Option<usize> {
    let negligible = 0.25 * T::PRECISION.unit_roundoff();
    let one_way = |rows: &mut dyn Iterator<Item = [f64; 3]>| {
        let (mut h, mut left, mut count) = (0.0, 1.0, 0);
        for (k, [before, own, behind]) in rows.enumerate() {
            h = behind / (own - before * h);
            if k >= BEGUN {
                (left, count) = (left * h.abs(), count + 1);
            }
            if left <= negligible {
                return Some(count);
            }
        }
        None
    };
    let row = |i: usize| [dl[i].wide(), d[i].wide(), du[i].wide()];
    let down = one_way(&mut (0..d.len()).map(row))?;
    let up = one_way(&mut (0..d.len()).rev().map(row).map(|[dl, d, du]| [du, d, dl]))?;
    Some(down.max(up))
}

/// Overlap that windows need for `rows` rows of systems of `n` rows, found from samples. `None` if
/// it is too large. `read` returns dl, d and du of a sample, and is called until one sample fails.
pub(crate) fn overlap<T: Number>(
    n: usize,
    rows: usize,
    mut read: impl FnMut(Range<usize>) -> Result<[Vec<T>; 3]>,
) -> Result<Option<usize>> {
    overlap_for(rows, |here| {
        let [mut dl, d, mut du] = read(here.clone())?;
        for (i, row) in here.enumerate() {
            dl[i] = if row % n == 0 { T::ZERO } else { dl[i] };
            du[i] = if (row + 1) % n == 0 { T::ZERO } else { du[i] };
        }
        Ok(reach([&dl, &d, &du]))
    })
}

/// Returns the overlap from `reach`, which returns the number of rows after which the coupling in a
/// sample is lost. It is called until it returns `None` for a sample.
pub(crate) fn overlap_for(
    rows: usize,
    mut reach: impl FnMut(Range<usize>) -> Result<Option<usize>>,
) -> Result<Option<usize>> {
    let mut most = 0;
    for k in 0..STRETCHES {
        let at = ((2 * k + 1) * (rows / (2 * STRETCHES))).saturating_sub(STRETCH / 2);
        let Some(rows) = reach(at..(at + STRETCH).min(rows))? else { return Ok(None) };
        most = most.max(rows);
    }
    // A third is added, since other rows may be weaker; rounded up to whole cache lines.
    let wanted = (most + most.div_ceil(3)).next_multiple_of(16).max(LEAST);
    Ok(Some(wanted).filter(|&rows| rows <= MOST))
}

/// Number of levels of cyclic reduction for an overlap, over the last of each thread's rows.
pub(crate) fn levels(overlap: usize, rows: usize) -> u32 {
    // Couplings of the last level extend over one and a half windows' overlap, since there are many
    // more of them.
    (3 * overlap).div_ceil(2 * rows).next_power_of_two().ilog2()
}

pub(crate) fn tile(overlap: usize) -> usize {
    WINDOW_ROWS - 2 * overlap
}

/// Kernel parameters of the tiles of the rows `solved` among `rows` rows in memory, for `rhs`
/// right-hand sides with this stride. The first of `solved` begins a tile.
pub(crate) fn params<T: Number>(
    place: ChunkPlace,
    rows: usize,
    solved: Range<usize>,
    overlap: usize,
    (rhs, stride): (usize, usize),
) -> tridiagonal_window::Params {
    let (n, first) = place.params(rows);
    tridiagonal_window::Params {
        step: 0,
        rows: rows as u32,
        n,
        first,
        at: solved.start as u32,
        tiles: solved.len().div_ceil(tile(overlap)) as u32,
        tile: tile(overlap) as u32,
        rhs: rhs as u32,
        stride: stride as u32,
        levels: levels(overlap, WINDOW_ROWS / Kernel::GROUP as usize),
        small: small_exponent(T::PRECISION),
        limit: limit(T::PRECISION),
        tiny: tiny(T::PRECISION),
    }
}

/// Launches that solve the rows of a lane by the one-pass method.
#[derive(Debug)]
pub(crate) struct Windows<T> {
    window: Launch,
    seam: Launch,
    /// Number of tiles times number of right-hand sides.
    count: usize,
    flags: Buffer<u32>,
    numbers: PhantomData<T>,
}

impl<T: Number> Windows<T> {
    /// Creates windows with `overlap` rows on either side of the tiles of the rows `solved`, among
    /// `rows` rows in memory. The first of `solved` begins a tile.
    pub(crate) fn new(
        lane: &Lane,
        memory: &RowMemory<T>,
        place: ChunkPlace,
        rows: usize,
        solved: Range<usize>,
        overlap: usize,
    ) -> Result<Self> {
        let params = params::<T>(place, rows, solved, overlap, (memory.rhs, memory.stride()));
        let count = memory.rhs * params.tiles as usize;
        let groups = count.div_ceil(SEAMS);
        let flags = lane.alloc("flags of tiles", count + groups)?;
        let Arrays { dl, d, du, b, x } = &memory.arrays;
        let (dl, d, du, rhs, x) = (dl.arg(), d.arg(), du.arg(), b.arg(), x.arg());
        let args = tridiagonal_window::Args { dl, d, du, rhs, x, flags: flags.arg() };
        let window = lane.bind(&WINDOW, T::PRECISION, count * Kernel::GROUP as usize, params, args)?;
        let args = tridiagonal_seam::Args { dl, d, du, rhs, x, flags: flags.arg() };
        let seam = lane.bind(&SEAM, T::PRECISION, groups * Kernel::GROUP as usize, params, args)?;
        Ok(Self { window, seam, count, flags, numbers: PhantomData })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.flags.bytes()
    }

    pub(crate) fn launches(&self) -> Vec<&Launch> {
        vec![&self.window, &self.seam]
    }

    pub(crate) fn groups(&self) -> usize {
        self.count.div_ceil(SEAMS)
    }

    /// Downloads the number of uncertified tiles of each group; called after the launches.
    pub(crate) fn fetch(&self, lane: &Lane, bad: &mut [u32]) -> Result<()> {
        lane.fetch(&self.flags, self.count, bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 10_000;

    /// Overlap for rows (−1, d, −1), with a value of d for each of 8 parts of the rows.
    fn found(d: impl Fn(usize) -> f64) -> Option<usize> {
        let beside = |row: usize, unused: usize| if row == unused { f64::NAN } else { -1.0 };
        let read = |here: Range<usize>| {
            let dl = here.clone().map(|row| beside(row, 0)).collect();
            let du = here.clone().map(|row| beside(row, ROWS - 1)).collect();
            Ok([dl, here.map(|row| d(row * STRETCHES / ROWS)).collect(), du])
        };
        overlap::<f64>(ROWS, ROWS, read).expect("no device is asked")
    }

    /// Couplings of rows −1, d, −1 are powers of ρ = (d − √(d² − 4)) / 2.
    #[test]
    fn overlap_covers_all_couplings() {
        for (d, wanted) in
            [(4.0, Some(64)), (2.5, Some(80)), (2.1, Some(176)), (2.02, Some(368)), (2.0, None)]
        {
            let rho: f64 = (d - (d * d - 4.0f64).sqrt()) / 2.0;
            let rows = (0.125 * f64::EPSILON).ln() / rho.ln();
            if let Some(wanted) = wanted {
                assert!(4.0 / 3.0 * rows <= wanted as f64, "{d}: {rows} rows");
            }
            assert_eq!(found(|_| d), wanted, "{d}: couplings are lost after {rows} rows");
        }
        // The sample with the slowest decay determines the overlap.
        assert_eq!(found(|part| if part == 5 { 2.1 } else { 4.0 }), Some(176));
        assert_eq!(found(|part| if part == 7 { 2.0 } else { 4.0 }), None);
    }
}
