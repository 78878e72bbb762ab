//! The three schemes: how chunks become interface equations, how a rank makes these fewer, and how stage 2 solves them.
//!
//! A [`Scheme`] makes the parts of a plan; each part owns its memory and its launches on a lane. Tiles leave reduced blocks,
//! blocks leave rows of a reduced system, and whole systems leave nothing.

mod batch;
mod blocks;
mod tiles;

use std::fmt::Debug;
use std::ops::Range;

use super::arithmetic::Number;
use super::equations::{ChunkEquations, Equations, Shape};
use super::memory::RowMemory;
use super::place::{Alignment, Place};
use super::reduced_system::Blocking;
use super::subtrees::{Run, Subtrees};
use crate::Result;
use crate::lane::{Lane, Launch};

/// A chunk's part of the solution, on its lane.
pub(super) trait ChunkSolve<T>: Debug + Send + Sync {
    /// Items that the chunk leaves.
    fn items(&self) -> usize {
        0
    }

    /// Bytes on the device, without the chunk's rows.
    fn bytes(&self) -> u64;

    /// Stage 1: up to the chunk's equations.
    fn up(&self) -> Vec<&Launch> {
        Vec::new()
    }

    /// Stage 3, once the interface values are there.
    fn down(&self) -> Vec<&Launch>;

    /// Takes the equations away.
    fn fetch(&self, _lane: &Lane, _to: ChunkEquations<'_, T>) -> Result<()> {
        Ok(())
    }

    /// Brings the interface values.
    fn send(&self, _lane: &Lane, _values: &[T]) -> Result<()> {
        Ok(())
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots that stage 2 does not know of.
    fn flags(&self, lane: &Lane) -> Result<u32>;

    /// Stage 2, where this chunk is everything: its equations and values stay where they are.
    fn interface(&self, _lane: &Lane, _cyclic: bool) -> Result<Option<Box<dyn InterfaceSolve<T>>>> {
        Ok(None)
    }
}

/// The reduction of a rank's equations, on its first lane, so that what it sends does not grow with its rows.
pub(super) trait RankReduction<T>: Debug + Send + Sync {
    /// Items that leave.
    fn items(&self) -> usize;

    /// Bytes on the device.
    fn bytes(&self) -> u64;

    /// The number of small pivots that stage 2 does not know of.
    fn flags(&self, lane: &Lane) -> Result<u32>;

    /// Makes the equations of chunks those that leave.
    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()>;

    /// Makes the values that came back those that the chunks ask for.
    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()>;
}

/// Stage 2, which one lane does for all: from the interface equations of all rows to their values.
pub(super) trait InterfaceSolve<T>: Debug + Send + Sync {
    /// Bytes on the device.
    fn bytes(&self) -> u64;

    /// All there is to do, where that needs no host.
    fn launches(&self) -> Option<Vec<&Launch>> {
        None
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots that it knows of.
    fn flags(&self, lane: &Lane) -> Result<u32>;

    /// Solves the equations, with or without exchanges; the number of pivots that the host replaced.
    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32>;
}

/// The way in which rows are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Tiles, whose reduced blocks are joined in the merge tree.
    Tiles,
    /// Blocks, whose reduced system is solved.
    Blocks(Blocking),
    /// Whole systems, so many rows of them together, which ask nothing of others.
    Batch {
        /// Rows of a tile.
        tile: usize,
    },
}

impl Scheme {
    /// The scheme for `rows` rows of systems of `n` each, in these blocks if in any.
    pub(super) fn of(n: usize, rows: usize, cyclic: bool, blocking: Option<Blocking>) -> Self {
        match (blocking, batch::tile(n, rows / n)) {
            // One row is no block: its reduced block says all.
            (Some(blocking), _) if rows > 1 => Self::Blocks(blocking),
            (None, Some(tile)) if !cyclic => Self::Batch { tile },
            _ => Self::Tiles,
        }
    }

    /// The places at which `rows` rows may be cut for so many ranks.
    pub(super) fn alignment(self, rows: usize, ranks: usize) -> Alignment {
        match self {
            Self::Tiles => Alignment::of_ranks(rows, ranks),
            Self::Blocks(blocking) => Blocking::alignment(blocking.block, 0),
            Self::Batch { tile } => Alignment::at(tile),
        }
    }

    /// The shape of interface equations.
    pub(super) fn shape(self) -> Shape {
        match self {
            Self::Tiles => tiles::SHAPE,
            Self::Blocks(_) => blocks::SHAPE,
            Self::Batch { .. } => Shape::NOTHING,
        }
    }

    /// Items of all rows, where parts leave them at this alignment.
    pub(super) fn items(self, rows: usize, alignment: Alignment) -> usize {
        match self {
            Self::Tiles => alignment.blocks(rows),
            Self::Blocks(blocking) => {
                (0..=alignment.levels).fold(rows, |rows, _| 2 * rows.div_ceil(blocking.block))
            }
            Self::Batch { .. } => 0,
        }
    }

    /// A chunk of `rows` of `all` rows; in tiles it joins its reduced blocks by so many levels.
    pub(super) fn chunk<T: Number>(
        self,
        lane: &Lane,
        memory: &RowMemory<T>,
        place: Place,
        [rows, all]: [usize; 2],
        levels: u32,
    ) -> Result<Box<dyn ChunkSolve<T>>> {
        Ok(match self {
            Self::Tiles => Box::new(tiles::TileReduction::new(lane, &memory.arrays, place, rows, levels)?),
            Self::Blocks(blocking) => {
                let blocks = blocking.blocks(place.first, rows, all);
                Box::new(blocks::BlockReduction::new(lane, memory, place, rows, blocks, blocking)?)
            }
            Self::Batch { tile } => {
                Box::new(batch::BatchSolve::new(lane, &memory.arrays, place.n, rows, tile)?)
            }
        })
    }

    /// The reduction of `rows` of `all` rows on a rank whose chunks leave items at the first alignment, and which is to
    /// leave them at the second; none where nothing is left to do.
    pub(super) fn rank_reduction<T: Number>(
        self,
        lane: &Lane,
        rows: Range<usize>,
        all: usize,
        [of_chunk, of_rank]: [Alignment; 2],
    ) -> Result<Option<Box<dyn RankReduction<T>>>> {
        let levels = of_rank.levels.saturating_sub(of_chunk.levels);
        Ok(match self {
            Self::Tiles => {
                let (count, start) = (of_chunk.blocks(rows.len()), of_rank.blocks(rows.start));
                Some(Box::new(Subtrees::of_rank(lane, count, levels, start, of_rank.blocks(all))?))
            }
            Self::Blocks(blocking) if levels > 0 => {
                Some(Box::new(blocks::BlockRankReduction::new(lane, rows, all, blocking, levels)?))
            }
            Self::Blocks(_) | Self::Batch { .. } => None,
        })
    }

    /// Stage 2 for `items` items of several chunks, in tiles these subtrees.
    pub(super) fn interface<T: Number>(
        self,
        lane: &Lane,
        items: usize,
        subtrees: Vec<Run>,
        cyclic: bool,
    ) -> Result<Option<Box<dyn InterfaceSolve<T>>>> {
        Ok(match self {
            Self::Tiles => Some(Box::new(tiles::TileInterface::of_all(lane, items, subtrees, cyclic)?)),
            Self::Blocks(Blocking { host: true, .. }) => Some(Box::new(blocks::HostInterface)),
            Self::Blocks(blocking) => Some(Box::new(blocks::BlockInterface::of_all(lane, items, blocking)?)),
            Self::Batch { .. } => None,
        })
    }
}
