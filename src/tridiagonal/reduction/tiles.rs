//! Chunks in tiles: reduction to reduced blocks, and unknowns from their interface values.

use std::sync::Arc;

use super::interface_buffers::Equations;
use super::levels::{Level, Levels, Shape};
use super::merge_tree::RootSolve;
use super::rank_reduction::{Run, Subtrees};
use super::stages::{ChunkSolve, InterfaceSolve, RankReduction};
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Lane, Launch};
use crate::tridiagonal::kernels::alignment::Place;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::row_memory::{Arrays, RowMemory};
use crate::tridiagonal::kernels::tiles::{
    REDUCE, SOLVE, TILE, UNIT, small_exponent, tridiagonal_reduce, tridiagonal_solve,
};
use crate::tridiagonal::scheme::Scheme;

/// Creates a chunk of `rows` rows (at least 1) in tiles, which joins 2^levels units to one block.
pub(super) fn chunk<T: Number>(
    lane: &Lane,
    memory: &RowMemory<T>,
    place: Place,
    rows: usize,
    levels: u32,
) -> Result<ChunkSolve<T>> {
    assert!(rows > 0 && rows < 1 << 31, "a chunk of {rows} rows");
    let Arrays { dl, d, du, b, x } = &memory.arrays;
    let (shape, units) = (Shape::REDUCED_BLOCKS, rows.div_ceil(UNIT));
    let first = match memory.shared {
        true => Level::new(lane, shape, units)?,
        // Reduced blocks are no longer needed when unknowns are written.
        false => Level::within(lane, shape, units, x.clone())?,
    };
    let (n, at) = place.params(rows);
    let (cyclic, items) = (u32::from(place.cyclic), rows.div_ceil(TILE) * Kernel::GROUP as usize);
    let (rows, small) = (rows as u32, small_exponent(T::PRECISION));
    let (dl, d, du, rhs) = (dl.arg(), d.arg(), du.arg(), b.arg());
    let params = tridiagonal_reduce::Params { step: 0, rows, n, first: at, cyclic, small };
    let (units, flags) = (first.equations.arg(), first.flags.arg());
    let args = tridiagonal_reduce::Args { dl, d, du, rhs, units, flags };
    let up = lane.bind(&REDUCE, T::PRECISION, items, params, args)?;
    let params = tridiagonal_solve::Params { step: 0, rows, n, first: at, cyclic };
    let args = tridiagonal_solve::Args { dl, d, du, rhs, values: first.values.arg(), x: x.arg() };
    let down = lane.bind(&SOLVE, T::PRECISION, items, params, args)?;
    let mut tree = Levels::new(Arc::new(first));
    tree.reduce_levels(lane, levels)?;
    Ok(ChunkSolve { scheme: Scheme::Tiles, up: Some(up), down, levels: Some(tree), flags: None })
}

impl<T: Number> RankReduction<T> for Subtrees<T> {
    fn items(&self) -> usize {
        self.count()
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        self.reduce_levels(lane, &mut equations.numbers, &mut equations.flags)?;
        lane.finish()
    }

    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        self.back_substitute(lane, &mut equations.values)?;
        lane.finish()
    }
}

/// Stage 2 in tiles: the root solve for the reduced blocks of the only chunk, or for joined
/// subtrees.
#[derive(Debug)]
pub(super) struct TileInterface<T> {
    subtrees: Option<Subtrees<T>>,
    root: RootSolve<T>,
}

impl<T: Number> TileInterface<T> {
    /// Creates stage 2 for the reduced blocks of the only chunk.
    pub(super) fn of_chunk(lane: &Lane, blocks: Arc<Level<T>>, cyclic: bool) -> Result<Self> {
        Ok(Self { subtrees: None, root: RootSolve::new(lane, blocks, cyclic)? })
    }

    /// Creates stage 2 for these subtrees of a merge tree over `count` units.
    pub(super) fn of_all(lane: &Lane, count: usize, subtrees: Vec<Run>, cyclic: bool) -> Result<Self> {
        let subtrees = Subtrees::of_all(lane, count, subtrees)?;
        let root = RootSolve::new(lane, subtrees.top().clone(), cyclic)?;
        Ok(Self { subtrees: Some(subtrees), root })
    }
}

impl<T: Number> InterfaceSolve<T> for TileInterface<T> {
    fn bytes(&self) -> u64 {
        self.subtrees.as_ref().map_or(0, Subtrees::bytes) + self.root.bytes()
    }

    fn launches(&self) -> Option<Vec<&Launch>> {
        self.subtrees.is_none().then(|| self.root.launches().collect())
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.root.flags(lane)
    }

    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, _: bool) -> Result<u32> {
        if let Some(subtrees) = &self.subtrees {
            subtrees.gather(lane, &equations.numbers, &equations.flags)?;
        }
        lane.enqueue(&self.root.launches().collect::<Vec<_>>())?;
        if let Some(subtrees) = &self.subtrees {
            subtrees.scatter(lane, &mut equations.values)?;
        }
        Ok(0)
    }
}
