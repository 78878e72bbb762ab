//! Chunks in blocks, one a thread: up to a reduced system, and from its unknowns down to the others.

use std::ops::Range;
use std::sync::Arc;

use super::super::arithmetic::Number;
use super::super::equations::{ChunkEquations, Equations, Shape};
use super::super::memory::RowMemory;
use super::super::place::Place;
use super::super::reduced_system::{Blocking, ReducedSystem, ReductionLevels, Source, solve_on_host};
use super::{ChunkSolve, InterfaceSolve, RankReduction};
use crate::Result;
use crate::lane::{Lane, Launch};

/// dl, d, du and b of the reduced system; its unknowns and the one behind.
pub(super) const SHAPE: Shape = Shape { columns: 4, width: 1, flags: 0, values: 1, behind: 1 };

/// A chunk in blocks.
#[derive(Debug)]
pub(super) struct BlockReduction<T> {
    reduced: Arc<ReducedSystem<T>>,
    up: Launch,
    down: Launch,
    blocking: Blocking,
}

impl<T: Number> BlockReduction<T> {
    /// Cuts `rows` rows, at least 2, into so many blocks.
    pub(super) fn new(
        lane: &Lane,
        memory: &RowMemory<T>,
        place: Place,
        rows: usize,
        blocks: usize,
        blocking: Blocking,
    ) -> Result<Self> {
        assert!((2..1 << 31).contains(&rows) && rows >= 2 * blocks, "{rows} rows in {blocks} blocks");
        let reduced = ReducedSystem::new(lane, blocks)?;
        let kept = memory.kept.as_ref().expect("memory for rows in blocks has room for what they keep");
        let source = Source::rows(rows, place, &memory.arrays);
        let [up, down] = source.reduction(lane, &reduced, kept, blocking.pivot)?;
        Ok(Self { reduced: Arc::new(reduced), up, down, blocking })
    }
}

impl<T: Number> ChunkSolve<T> for BlockReduction<T> {
    fn items(&self) -> usize {
        self.reduced.rows
    }

    fn bytes(&self) -> u64 {
        self.reduced.bytes()
    }

    fn up(&self) -> Vec<&Launch> {
        vec![&self.up]
    }

    fn down(&self) -> Vec<&Launch> {
        vec![&self.down]
    }

    fn fetch(&self, lane: &Lane, to: ChunkEquations<'_, T>) -> Result<()> {
        self.reduced.fetch(lane, to.columns.into_iter())
    }

    fn send(&self, lane: &Lane, values: &[T]) -> Result<()> {
        lane.send(values, &self.reduced.x, 0)
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.reduced.flags(lane)
    }

    fn interface(&self, lane: &Lane, _: bool) -> Result<Option<Box<dyn InterfaceSolve<T>>>> {
        let levels = ReductionLevels::to_leaf(lane, self.reduced.clone(), self.blocking)?;
        Ok(Some(Box::new(BlockInterface { levels, gathered: false })))
    }
}

/// The reduced system of a rank's rows, which becomes smaller ones before it leaves the rank.
#[derive(Debug)]
pub(super) struct BlockRankReduction<T> {
    levels: ReductionLevels<T>,
}

impl<T: Number> BlockRankReduction<T> {
    /// The reduction of these rows of `all`, by so many levels beside the first system.
    pub(super) fn new(
        lane: &Lane,
        rows: Range<usize>,
        all: usize,
        blocking: Blocking,
        levels: u32,
    ) -> Result<Self> {
        // Of the system on each level: its first row here, those here and all.
        let mut here = (rows.start, rows.len(), all);
        let mut blocks = || {
            let (first, rows, all) = here;
            let blocks = blocking.blocks(first, rows, all);
            here = (2 * (first / blocking.block), 2 * blocks, 2 * all.div_ceil(blocking.block));
            blocks
        };
        let given = Arc::new(ReducedSystem::new(lane, blocks())?);
        let levels = ReductionLevels::new(lane, given, (0..levels).map(|_| blocks()), blocking.pivot)?;
        Ok(Self { levels })
    }
}

impl<T: Number> RankReduction<T> for BlockRankReduction<T> {
    fn items(&self) -> usize {
        self.levels.last().rows
    }

    fn bytes(&self) -> u64 {
        self.levels.given.bytes() + self.levels.bytes()
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.levels.flags(lane)
    }

    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        self.levels.given.send(lane, equations.columns())?;
        lane.enqueue(&self.levels.up.iter().collect::<Vec<_>>())?;
        self.levels.last().fetch(lane, equations.columns_mut())?;
        lane.finish()
    }

    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()> {
        let (given, last, values) = (&self.levels.given, self.levels.last(), &mut equations.values);
        // The unknown behind a system is the same on every level.
        let behind = [values[last.rows]];
        for level in &self.levels.levels {
            lane.send(&behind, &level.x, level.rows)?;
        }
        lane.send(&values[..last.rows], &last.x, 0)?;
        lane.enqueue(&self.levels.down.iter().collect::<Vec<_>>())?;
        lane.fetch(&given.x, 0, &mut values[..given.rows])?;
        lane.finish()?;
        values[given.rows] = behind[0];
        Ok(())
    }
}

/// Stage 2 in blocks: the reduced system of the only chunk or of all becomes smaller ones, of which the host solves the last.
#[derive(Debug)]
pub(super) struct BlockInterface<T> {
    levels: ReductionLevels<T>,
    /// Whether the system is brought from the host.
    gathered: bool,
}

impl<T: Number> BlockInterface<T> {
    /// Stage 2 for so many rows of the reduced system.
    pub(super) fn of_all(lane: &Lane, rows: usize, blocking: Blocking) -> Result<Self> {
        let given = Arc::new(ReducedSystem::new(lane, rows / 2)?);
        Ok(Self { levels: ReductionLevels::to_leaf(lane, given, blocking)?, gathered: true })
    }
}

impl<T: Number> InterfaceSolve<T> for BlockInterface<T> {
    fn bytes(&self) -> u64 {
        let given = if self.gathered { self.levels.given.bytes() } else { 0 };
        given + self.levels.bytes()
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        self.levels.flags(lane)
    }

    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32> {
        let given = &self.levels.given;
        if self.gathered {
            given.send(lane, equations.columns())?;
        }
        lane.enqueue(&self.levels.up.iter().collect::<Vec<_>>())?;
        let replaced = self.levels.last().solve_on_host(lane, exchange)?;
        lane.enqueue(&self.levels.down.iter().collect::<Vec<_>>())?;
        if self.gathered {
            lane.fetch(&given.x, 0, &mut equations.values[..=given.rows])?;
        }
        Ok(replaced)
    }
}

/// Stage 2 on the host, of the reduced system as it is.
#[derive(Debug)]
pub(super) struct HostInterface;

impl<T: Number> InterfaceSolve<T> for HostInterface {
    fn bytes(&self) -> u64 {
        0
    }

    fn flags(&self, _: &Lane) -> Result<u32> {
        Ok(0)
    }

    fn solve(&self, _: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32> {
        let (x, replaced) = solve_on_host(&equations.numbers, exchange);
        equations.values[..x.len()].copy_from_slice(&x);
        Ok(replaced)
    }
}
