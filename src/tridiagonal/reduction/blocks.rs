//! Chunks in blocks, one per thread: reduction to a reduced system, and back substitution.

use std::ops::Range;
use std::sync::Arc;

use super::interface_buffers::Equations;
use super::levels::{Level, Levels, Shape};
use super::reduced_system::{Source, solve_on_host};
use super::stages::{ChunkSolve, InterfaceSolve, RankReduction};
use crate::Result;
use crate::lane::Lane;
use crate::tridiagonal::kernels::alignment::Place;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::row_memory::RowMemory;
use crate::tridiagonal::scheme::{Blocking, Scheme};

/// Creates the launches of a chunk of `rows` rows (at least 2) in `blocks` blocks.
pub(super) fn chunk<T: Number>(
    lane: &Lane,
    memory: &RowMemory<T>,
    place: Place,
    rows: usize,
    blocks: usize,
    blocking: Blocking,
) -> Result<ChunkSolve<T>> {
    assert!((2..1 << 31).contains(&rows) && rows >= 2 * blocks, "{rows} rows in {blocks} blocks");
    let reduced = Level::new(lane, Shape::REDUCED_SYSTEM, 2 * blocks)?;
    let kept = memory.kept.as_ref().expect("memory for rows in blocks has room for what they keep");
    let source = Source::rows(rows, place, &memory.arrays);
    let [up, down] = source.reduction(lane, &reduced, kept, blocking.pivot)?;
    let levels = Some(Levels::new(Arc::new(reduced)));
    Ok(ChunkSolve { scheme: Scheme::Blocks(blocking), up: Some(up), down, levels, flags: None })
}

/// Further reduction of a rank's reduced system before its equations are sent to rank 0.
#[derive(Debug)]
pub(super) struct BlockRankReduction<T> {
    levels: Levels<T>,
}

impl<T: Number> BlockRankReduction<T> {
    /// Creates the reduction of these rows of `all` by `levels` levels after the first reduced
    /// system.
    pub(super) fn new(
        lane: &Lane,
        rows: Range<usize>,
        all: usize,
        blocking: Blocking,
        levels: u32,
    ) -> Result<Self> {
        // Of the system on each level: its first local row, the number of local rows, and of all
        // rows.
        let mut here = (rows.start, rows.len(), all);
        let mut blocks = || {
            let (first, rows, all) = here;
            let blocks = blocking.blocks(first, rows, all);
            here = (2 * (first / blocking.block), 2 * blocks, 2 * all.div_ceil(blocking.block));
            blocks
        };
        let given = Arc::new(Level::new(lane, Shape::REDUCED_SYSTEM, 2 * blocks())?);
        let levels = Levels::of_systems(lane, given, (0..levels).map(|_| blocks()), blocking.pivot)?;
        Ok(Self { levels })
    }
}

impl<T: Number> RankReduction<T> for BlockRankReduction<T> {
    fn items(&self) -> usize {
        self.levels.last().count
    }

    fn bytes(&self) -> u64 {
        self.levels.bytes()
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.levels.flags_above(lane)
    }

    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        self.levels.first().send(lane, equations.columns())?;
        lane.enqueue(&self.levels.up.iter().collect::<Vec<_>>())?;
        self.levels.last().fetch(lane, equations.columns_mut())?;
        lane.finish()
    }

    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        let (given, last, values) = (self.levels.first(), self.levels.last(), &mut equations.values);
        // The unknown after a system is the same on every level.
        let behind = [values[last.count]];
        for level in &self.levels.all[1..] {
            lane.send(&behind, &level.values, level.count)?;
        }
        lane.send(&values[..last.count], &last.values, 0)?;
        lane.enqueue(&self.levels.down.iter().collect::<Vec<_>>())?;
        lane.fetch(&given.values, 0, &mut values[..given.count])?;
        lane.finish()?;
        values[given.count] = behind[0];
        Ok(())
    }
}

/// Stage 2 in blocks: reduces the reduced system (of the only chunk or of all chunks) further. The
/// host solves the last system.
#[derive(Debug)]
pub(super) struct BlockInterface<T> {
    levels: Levels<T>,
    /// True if the equations are uploaded from the host.
    gathered: bool,
}

impl<T: Number> BlockInterface<T> {
    /// Creates stage 2 for the reduced system of the only chunk.
    pub(super) fn of_chunk(lane: &Lane, given: Arc<Level<T>>, blocking: Blocking) -> Result<Self> {
        Ok(Self { levels: Levels::to_leaf(lane, given, blocking)?, gathered: false })
    }

    /// Creates stage 2 for a reduced system of `rows` rows, gathered from all chunks.
    pub(super) fn of_all(lane: &Lane, rows: usize, blocking: Blocking) -> Result<Self> {
        let given = Arc::new(Level::new(lane, Shape::REDUCED_SYSTEM, rows)?);
        Ok(Self { levels: Levels::to_leaf(lane, given, blocking)?, gathered: true })
    }
}

impl<T: Number> InterfaceSolve<T> for BlockInterface<T> {
    fn bytes(&self) -> u64 {
        if self.gathered { self.levels.bytes() } else { self.levels.bytes_above() }
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.levels.flags_above(lane)
    }

    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32> {
        let given = self.levels.first();
        if self.gathered {
            given.send(lane, equations.columns())?;
        }
        lane.enqueue(&self.levels.up.iter().collect::<Vec<_>>())?;
        let last = self.levels.last();
        let mut system = vec![T::ZERO; last.equations.len()];
        lane.download(&last.equations, 0, &mut system)?;
        let (x, replaced) = solve_on_host(&system, exchange);
        lane.upload(&x, &last.values, 0)?;
        lane.enqueue(&self.levels.down.iter().collect::<Vec<_>>())?;
        if self.gathered {
            lane.fetch(&given.values, 0, &mut equations.values[..=given.count])?;
        }
        Ok(replaced)
    }
}

/// Stage 2 on the host: solves the reduced system without further reduction.
#[derive(Debug)]
pub(super) struct HostInterface;

impl<T: Number> InterfaceSolve<T> for HostInterface {
    fn solve(&self, _: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32> {
        let (x, replaced) = solve_on_host(&equations.numbers, exchange);
        equations.values[..x.len()].copy_from_slice(&x);
        Ok(replaced)
    }
}
