//! Implementations of the three schemes: reduction of chunks, reduction on ranks, and stage 2.
//!
//! A `Scheme` creates the parts of a plan. Each part owns its memory and its launches on a lane.
//! Tiles leave reduced blocks, blocks leave rows of a reduced system, and whole systems leave
//! nothing.

pub(crate) mod interface_buffers;
pub(crate) mod interface_system;
pub mod levels;
pub mod merge_tree;
pub mod rank_reduction;
mod reduced_system;
pub(crate) mod stages;
mod tiles;
pub(crate) mod whole_systems;

use std::ops::Range;
use std::sync::Arc;

use self::levels::{Level, Levels, Shape};
use self::merge_tree::RootSolve;
use self::rank_reduction::{SubtreeRun, Subtrees};
use self::stages::{ChunkSolve, RankReduction, Stage2};
use super::kernels::alignment::{Alignment, ChunkPlace};
use super::kernels::number::Number;
use super::kernels::row_memory::RowMemory;
use super::scheme::{Blocking, Scheme};
use crate::Result;
use crate::lane::Lane;

impl<T: Number> ChunkSolve<T> {
    /// Stage 2 if this chunk holds all rows: its equations and values stay on its lane.
    pub(crate) fn stage2(&self, lane: &Lane, cyclic: bool) -> Result<Option<Stage2<T>>> {
        let Some(last) = self.last().cloned() else { return Ok(None) };
        Ok(match self.scheme {
            Scheme::Tiles => Some(Stage2::Tiles(RootSolve::new(lane, last, cyclic)?, None)),
            Scheme::Blocks => Some(Stage2::Blocks { levels: Levels::to_leaf(lane, last)?, gathered: false }),
            Scheme::Batch { .. } => None,
        })
    }
}

impl Scheme {
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::Tiles => Shape::REDUCED_BLOCKS,
            Self::Blocks => Shape::REDUCED_SYSTEM,
            Self::Batch { .. } => Shape::NOTHING,
        }
    }

    /// Creates the launches of a chunk of `rows` rows, out of `all` rows. In tiles, the chunk joins
    /// its reduced blocks on `levels` levels of the merge tree.
    pub(crate) fn chunk<T: Number>(
        self,
        lane: &Lane,
        memory: &RowMemory<T>,
        place: ChunkPlace,
        [rows, all]: [usize; 2],
        levels: u32,
    ) -> Result<ChunkSolve<T>> {
        match self {
            Self::Tiles => tiles::chunk(lane, memory, place, rows, levels),
            Self::Blocks => {
                let blocks = Blocking::blocks(place.first, rows, all);
                reduced_system::chunk(lane, memory, place, rows, blocks)
            }
            Self::Batch { tile } => whole_systems::chunk(lane, memory, place.n, rows, tile),
        }
    }

    /// Creates the reduction of the equations of this rank's `rows`, out of `all` rows, from the
    /// alignment of its chunks to that of ranks; `None` if no reduction is left.
    pub(crate) fn rank_reduction<T: Number>(
        self,
        lane: &Lane,
        rows: Range<usize>,
        all: usize,
        [of_chunk, of_rank]: [Alignment; 2],
    ) -> Result<Option<RankReduction<T>>> {
        let levels = of_rank.levels.saturating_sub(of_chunk.levels);
        Ok(match self {
            Self::Tiles => {
                let (count, start) = (of_chunk.blocks(rows.len()), of_rank.blocks(rows.start));
                Some(RankReduction::Tiles(Subtrees::of_rank(
                    lane,
                    count,
                    levels,
                    start,
                    of_rank.blocks(all),
                )?))
            }
            Self::Blocks if levels > 0 => {
                Some(RankReduction::Blocks(Levels::of_rank(lane, rows, all, levels)?))
            }
            Self::Blocks | Self::Batch { .. } => None,
        })
    }

    /// Creates stage 2 for `items` items ([`Shape`]) of several chunks, in tiles of `subtrees`.
    pub(crate) fn stage2<T: Number>(
        self,
        lane: &Lane,
        items: usize,
        subtrees: Vec<SubtreeRun>,
        cyclic: bool,
    ) -> Result<Option<Stage2<T>>> {
        Ok(match self {
            Self::Tiles => {
                let subtrees = Subtrees::of_all(lane, items, subtrees)?;
                let root = RootSolve::new(lane, subtrees.top().clone(), cyclic)?;
                Some(Stage2::Tiles(root, Some(subtrees)))
            }
            Self::Blocks => {
                let given = Arc::new(Level::new(lane, Shape::REDUCED_SYSTEM, items)?);
                Some(Stage2::Blocks { levels: Levels::to_leaf(lane, given)?, gathered: true })
            }
            Self::Batch { .. } => None,
        })
    }
}
