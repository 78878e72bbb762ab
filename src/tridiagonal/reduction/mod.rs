//! The three schemes: how chunks become interface equations, how a rank makes these fewer, and how stage 2 solves them.
//!
//! A `Scheme` makes the parts of a plan; each part owns its memory and its launches on a lane. Tiles leave reduced blocks,
//! blocks leave rows of a reduced system, and whole systems leave nothing.

mod blocks;
pub(crate) mod interface_buffers;
pub(crate) mod interface_system;
pub mod levels;
pub mod merge_tree;
pub mod rank_reduction;
pub(crate) mod reduced_system;
mod tiles;
pub(crate) mod whole_systems;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use self::blocks::{BlockInterface, BlockRankReduction, HostInterface};
use self::interface_buffers::{ChunkEquations, Equations};
use self::levels::{Level, Levels, Shape, download_flags};
use self::rank_reduction::{Run, Subtrees};
use self::reduced_system::Blocking;
use self::tiles::TileInterface;
use super::kernels::alignment::{Alignment, Place};
use super::kernels::number::Number;
use super::kernels::row_memory::RowMemory;
use crate::Result;
use crate::lane::{Buffer, Lane, Launch};

/// A chunk's part of the solution, on its lane.
#[derive(Debug)]
pub(crate) struct ChunkSolve<T> {
    scheme: Scheme,
    /// Stage 1: from rows to the first of the levels of equations, and on.
    up: Option<Launch>,
    /// Stage 3: from the first level's values to the unknowns.
    down: Launch,
    levels: Option<Levels<T>>,
    /// Flags of whole systems.
    flags: Option<Buffer<u32>>,
}

impl<T: Number> ChunkSolve<T> {
    /// The level that the chunk leaves.
    fn last(&self) -> Option<&Arc<Level<T>>> {
        self.levels.as_ref().map(Levels::last)
    }

    /// Items that the chunk leaves.
    pub(crate) fn items(&self) -> usize {
        self.last().map_or(0, |last| last.count)
    }

    /// Bytes on the device, without the chunk's rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.as_ref().map_or(0, Levels::bytes) + self.flags.as_ref().map_or(0, Buffer::bytes)
    }

    /// Stage 1: up to the chunk's equations.
    pub(crate) fn up(&self) -> Vec<&Launch> {
        self.up.iter().chain(self.levels.iter().flat_map(|levels| &levels.up)).collect()
    }

    /// Stage 3, once the interface values are there.
    pub(crate) fn down(&self) -> Vec<&Launch> {
        self.levels.iter().flat_map(|levels| &levels.down).chain([&self.down]).collect()
    }

    /// Takes the equations away.
    pub(crate) fn fetch(&self, lane: &Lane, to: ChunkEquations<'_, T>) -> Result<()> {
        let Some(last) = self.last() else { return Ok(()) };
        if !to.flags.is_empty() {
            lane.fetch(&last.flags, 0, to.flags)?;
        }
        last.fetch(lane, to.columns.into_iter())
    }

    /// Brings the interface values.
    pub(crate) fn send(&self, lane: &Lane, values: &[T]) -> Result<()> {
        self.last().map_or(Ok(()), |last| lane.send(values, &last.values, 0))
    }

    /// [`NOT_DOMINANT`](super::kernels::tiles::NOT_DOMINANT) and the number of small pivots that stage 2 does not know of: it
    /// knows all of reduced blocks.
    pub(crate) fn flags(&self, lane: &Lane) -> Result<u32> {
        let blocks = self.levels.as_ref().filter(|_| self.scheme != Scheme::Tiles);
        match blocks.map(|levels| &levels.first().flags).or(self.flags.as_ref()) {
            Some(flags) => download_flags(lane, flags),
            None => Ok(0),
        }
    }

    /// Stage 2, where this chunk is everything: its equations and values stay where they are.
    pub(crate) fn interface(&self, lane: &Lane, cyclic: bool) -> Result<Option<Box<dyn InterfaceSolve<T>>>> {
        let Some(last) = self.last().cloned() else { return Ok(None) };
        Ok(match self.scheme {
            Scheme::Tiles => Some(Box::new(TileInterface::of_chunk(lane, last, cyclic)?)),
            Scheme::Blocks(blocking) => Some(Box::new(BlockInterface::of_chunk(lane, last, blocking)?)),
            Scheme::Batch { .. } => None,
        })
    }
}

/// The reduction of a rank's equations, on its first lane, so that what it sends does not grow with its rows.
pub(crate) trait RankReduction<T>: Debug + Send + Sync {
    /// Items that leave.
    fn items(&self) -> usize;

    /// Bytes on the device.
    fn bytes(&self) -> u64;

    /// The number of small pivots that stage 2 does not know of.
    fn flags(&self, _lane: &Lane) -> Result<u32> {
        Ok(0)
    }

    /// Makes the equations of chunks those that leave.
    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()>;

    /// Makes the values that came back those that the chunks ask for.
    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()>;
}

/// Stage 2, which one lane does for all: from the interface equations of all rows to their values.
pub(crate) trait InterfaceSolve<T>: Debug + Send + Sync {
    /// Bytes on the device.
    fn bytes(&self) -> u64 {
        0
    }

    /// All there is to do, where that needs no host.
    fn launches(&self) -> Option<Vec<&Launch>> {
        None
    }

    /// [`NOT_DOMINANT`](super::kernels::tiles::NOT_DOMINANT) and the number of small pivots that it knows of.
    fn flags(&self, _lane: &Lane) -> Result<u32> {
        Ok(0)
    }

    /// Solves the equations, with or without exchanges; the number of pivots that the host replaced.
    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32>;
}

/// The way in which rows are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
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
    pub(crate) fn of(n: usize, rows: usize, cyclic: bool, blocking: Option<Blocking>) -> Self {
        match (blocking, whole_systems::tile(n, rows / n)) {
            // One row is no block: its reduced block says all.
            (Some(blocking), _) if rows > 1 => Self::Blocks(blocking),
            (None, Some(tile)) if !cyclic => Self::Batch { tile },
            _ => Self::Tiles,
        }
    }

    /// The places at which `rows` rows may be cut for so many ranks.
    pub(crate) fn alignment(self, rows: usize, ranks: usize) -> Alignment {
        match self {
            Self::Tiles => Alignment::of_ranks(rows, ranks),
            Self::Blocks(blocking) => Blocking::alignment(blocking.block, 0),
            Self::Batch { tile } => Alignment::at(tile),
        }
    }

    /// The shape of interface equations.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Tiles => Shape::REDUCED_BLOCKS,
            Self::Blocks(_) => Shape::REDUCED_SYSTEM,
            Self::Batch { .. } => Shape::NOTHING,
        }
    }

    /// Items of all rows, where parts leave them at this alignment.
    pub(crate) fn items(self, rows: usize, alignment: Alignment) -> usize {
        match self {
            Self::Tiles => alignment.blocks(rows),
            Self::Blocks(blocking) => {
                (0..=alignment.levels).fold(rows, |rows, _| 2 * rows.div_ceil(blocking.block))
            }
            Self::Batch { .. } => 0,
        }
    }

    /// A chunk of `rows` of `all` rows; in tiles it joins its reduced blocks by so many levels.
    pub(crate) fn chunk<T: Number>(
        self,
        lane: &Lane,
        memory: &RowMemory<T>,
        place: Place,
        [rows, all]: [usize; 2],
        levels: u32,
    ) -> Result<ChunkSolve<T>> {
        match self {
            Self::Tiles => tiles::chunk(lane, memory, place, rows, levels),
            Self::Blocks(blocking) => {
                blocks::chunk(lane, memory, place, rows, blocking.blocks(place.first, rows, all), blocking)
            }
            Self::Batch { tile } => whole_systems::chunk(lane, memory, place.n, rows, tile),
        }
    }

    /// The reduction of `rows` of `all` rows on a rank whose chunks leave items at the first alignment, and which is to
    /// leave them at the second; none where nothing is left to do.
    pub(crate) fn rank_reduction<T: Number>(
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
                Some(Box::new(BlockRankReduction::new(lane, rows, all, blocking, levels)?))
            }
            Self::Blocks(_) | Self::Batch { .. } => None,
        })
    }

    /// Stage 2 for `items` items of several chunks, in tiles these subtrees.
    pub(crate) fn interface<T: Number>(
        self,
        lane: &Lane,
        items: usize,
        subtrees: Vec<Run>,
        cyclic: bool,
    ) -> Result<Option<Box<dyn InterfaceSolve<T>>>> {
        Ok(match self {
            Self::Tiles => Some(Box::new(TileInterface::of_all(lane, items, subtrees, cyclic)?)),
            Self::Blocks(Blocking { host: true, .. }) => Some(Box::new(HostInterface)),
            Self::Blocks(blocking) => Some(Box::new(BlockInterface::of_all(lane, items, blocking)?)),
            Self::Batch { .. } => None,
        })
    }
}
