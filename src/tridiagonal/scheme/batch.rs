//! Chunks of whole systems, of up to 2048 rows each, in one launch: each row is read once.

use super::super::arithmetic::Number;
use super::super::batch_kernels::{BATCH, tridiagonal_batch};
use super::super::kernels::{TILE, all_flags, small_exponent};
use super::super::memory::Arrays;
use super::ChunkSolve;
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Buffer, Lane, Launch};

/// Rows of a thread on a device.
const ROWS: usize = 8;
/// Rows of a tile of whole systems, if the kernel takes these: none where one does not fit, or where tiles would begin at
/// odd rows.
pub(super) fn tile(n: usize, batch: usize) -> Option<usize> {
    match (TILE / n).min(batch) {
        0 => None,
        // One tile is all.
        all if all == batch => Some(all * n),
        fit => {
            [fit, fit - 1].into_iter().find(|fit| (fit * n).is_multiple_of(2) && *fit > 0).map(|fit| fit * n)
        }
    }
}

/// Threads that a system may spread over: those of one that begins with a thread, or all of them.
fn span(n: usize) -> usize {
    match n.is_multiple_of(ROWS) && (n / ROWS).is_power_of_two() {
        true => n / ROWS,
        false => Kernel::GROUP as usize,
    }
}

/// A chunk of whole systems.
#[derive(Debug)]
pub(super) struct BatchSolve {
    launch: Launch,
    flags: Buffer<u32>,
}

impl BatchSolve {
    /// `rows` rows of systems of `n` each, `tile` of them together, see [`tile`].
    pub(super) fn new<T: Number>(
        lane: &Lane,
        arrays: &Arrays<T>,
        n: usize,
        rows: usize,
        tile: usize,
    ) -> Result<Self> {
        let tiles = rows.div_ceil(tile);
        let flags = lane.alloc("flags of small systems", tiles)?;
        let params = tridiagonal_batch::Params {
            step: 0,
            rows: rows as u32,
            n: n as u32,
            tile: tile as u32,
            span: span(n) as u32,
            small: small_exponent(T::PRECISION),
        };
        let Arrays { dl, d, du, b, x } = arrays;
        let (dl, d, du, rhs, x) = (dl.arg(), d.arg(), du.arg(), b.arg(), x.arg());
        let args = tridiagonal_batch::Args { dl, d, du, rhs, x, flags: flags.arg() };
        let launch = lane.bind(&BATCH, T::PRECISION, tiles * Kernel::GROUP as usize, params, args)?;
        Ok(Self { launch, flags })
    }
}

impl<T: Number> ChunkSolve<T> for BatchSolve {
    fn bytes(&self) -> u64 {
        self.flags.bytes()
    }

    fn down(&self) -> Vec<&Launch> {
        vec![&self.launch]
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        let mut flags = vec![0; self.flags.len()];
        lane.download(&self.flags, 0, &mut flags)?;
        Ok(all_flags(flags))
    }
}
