//! Reduced systems: each block of rows, one per thread, leaves two rows, which are tridiagonal
//! again.
//!
//! This is the method as first published (Austin, Berndt, Moulton 2004), with row exchanges. A
//! reduced system is reduced further in the same way, until the host solves it. Scaled partial
//! pivoting inside of a block does not involve the two unknowns at its ends. So no row moves from
//! one block to another, and the reduced system stays tridiagonal (Klein, Strzodka 2023,
//! doi:10.1145/3580373).

use std::ops::Range;
use std::sync::Arc;

use super::levels::{Level, Levels, Shape};
use super::stages::ChunkSolve;
use crate::Result;
use crate::lane::{Arg, Buffer, Lane, Launch};
use crate::tridiagonal::kernels::alignment::ChunkPlace;
use crate::tridiagonal::kernels::blocks::{
    BLOCK_REDUCE, BLOCK_SOLVE, tridiagonal_block_reduce, tridiagonal_block_solve,
};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::row_memory::{Arrays, RowMemory};
use crate::tridiagonal::kernels::tiles::least_exponent;
use crate::tridiagonal::scheme::{Blocking, Scheme};

/// Creates the launches of a chunk of `rows` rows (at least 2) in `blocks` blocks.
pub(super) fn chunk<T: Number>(
    lane: &Lane,
    memory: &RowMemory<T>,
    place: ChunkPlace,
    rows: usize,
    blocks: usize,
) -> Result<ChunkSolve<T>> {
    assert!((2..1 << 31).contains(&rows) && rows >= 2 * blocks, "{rows} rows in {blocks} blocks");
    let reduced = Level::new(lane, Shape::REDUCED_SYSTEM, 2 * blocks)?;
    let kept = memory.kept.as_ref().expect("memory for rows in blocks has room for what they keep");
    let source = BlockSystem::rows(rows, place, &memory.arrays);
    let [up, down] = source.reduction(lane, &reduced, kept)?;
    let levels = Some(Levels::new(Arc::new(reduced)));
    Ok(ChunkSolve { scheme: Scheme::Blocks, up: Some(up), down, levels, flags: None })
}

/// System in blocks: number of rows, their position in their systems, arrays, and offsets in the
/// arrays.
struct BlockSystem<'a> {
    rows: usize,
    place: (u32, u32),
    arrays: [Arg<'a>; 4],
    at: [usize; 4],
    x: Arg<'a>,
}

impl<'a> BlockSystem<'a> {
    /// Rows of a chunk.
    fn rows<T: Number>(rows: usize, place: ChunkPlace, arrays: &'a Arrays<T>) -> Self {
        let Arrays { dl, d, du, b, x } = arrays;
        let arrays = [dl.arg(), d.arg(), du.arg(), b.arg()];
        Self { rows, place: place.params(rows), arrays, at: [0; 4], x: x.arg() }
    }

    /// Rows of a reduced system. It has no ends: coefficients are zero where a system begins or
    /// ends.
    fn reduced<T: Number>(system: &'a Level<T>) -> Self {
        let (rows, x) = (system.count, system.values.arg());
        let (arrays, at) = ([system.equations.arg(); 4], [0, 1, 2, 3].map(|k| k * rows));
        Self { rows, place: ((1 << 31) - 1, 1), arrays, at, x }
    }

    /// Creates two launches: reduction of the rows to the reduced system `above`, and back
    /// substitution from its unknowns.
    fn reduction<T: Number>(&self, lane: &Lane, above: &Level<T>, kept: &Buffer<T>) -> Result<[Launch; 2]> {
        let blocks = above.count / 2;
        assert!(kept.len() >= 3 * self.rows, "room for {} of {} numbers", kept.len(), 3 * self.rows);
        let [at_dl, at_d, at_du, at_rhs] = self.at.map(|at| at as u32);
        let params = tridiagonal_block_reduce::Params {
            step: 0,
            rows: self.rows as u32,
            n: self.place.0,
            first: self.place.1,
            blocks: blocks as u32,
            small: least_exponent(T::PRECISION),
            at_dl,
            at_d,
            at_du,
            at_rhs,
        };
        let [dl, d, du, rhs] = self.arrays;
        let (system, flags) = (above.equations.arg(), above.flags.arg());
        let args = tridiagonal_block_reduce::Args { dl, d, du, rhs, above: system, flags };
        let up = lane.bind(&BLOCK_REDUCE, T::PRECISION, blocks, params, args)?;
        let (above, kept, x) = (above.values.arg(), kept.arg(), self.x);
        let args = tridiagonal_block_solve::Args { dl, d, du, rhs, above, kept, x };
        let down = lane.bind(&BLOCK_SOLVE, T::PRECISION, blocks, params, args)?;
        Ok([up, down])
    }
}

impl<T: Number> Levels<T> {
    /// Creates the successive reduced systems of `given`, with these numbers of blocks.
    fn of_systems(
        lane: &Lane,
        given: Arc<Level<T>>,
        blocks: impl IntoIterator<Item = usize>,
    ) -> Result<Self> {
        let mut levels = Self::new(given);
        for blocks in blocks {
            let kept = match levels.kept.take() {
                Some(kept) => kept,
                None => lane.alloc("what blocks keep for the way back", 3 * levels.first().count)?,
            };
            let above = Level::new(lane, Shape::REDUCED_SYSTEM, 2 * blocks)?;
            let launches = BlockSystem::reduced(levels.last()).reduction(lane, &above, &kept)?;
            levels.kept = Some(kept);
            levels.push(above, launches);
        }
        Ok(levels)
    }

    /// Creates `levels` reduced systems after the first one of these rows of `all`, which a rank
    /// reduces before it sends equations to rank 0.
    pub(super) fn of_rank(lane: &Lane, rows: Range<usize>, all: usize, levels: u32) -> Result<Self> {
        let mut here = (rows.start, rows.len(), all);
        let mut blocks = || {
            here = Blocking::above(here);
            here.1 / 2
        };
        let given = Arc::new(Level::new(lane, Shape::REDUCED_SYSTEM, 2 * blocks())?);
        Self::of_systems(lane, given, (0..levels).map(|_| blocks()))
    }

    /// Creates the reduced systems from `given` down to the one that the host solves.
    pub(super) fn to_leaf(lane: &Lane, given: Arc<Level<T>>) -> Result<Self> {
        let blocks = Blocking::smaller(given.count);
        Self::of_systems(lane, given, blocks)
    }
}
