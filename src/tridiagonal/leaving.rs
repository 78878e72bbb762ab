//! What a rank does with the pieces of its chunks before they leave it, so that what it sends does not grow with its rows.

use std::ops::Range;

use super::blocks::{self, Cut};
use super::chunk::Pieces;
use super::subtrees::Subtrees;
use super::unit::Number;
use crate::Result;
use crate::lane::Lane;

/// Pieces of a rank, and how they become fewer on its first lane.
#[derive(Debug)]
pub(super) enum Leaving<T> {
    /// Units become subtrees.
    Tiles(Subtrees<T>),
    /// An interface system becomes smaller ones.
    Blocks(blocks::BlockLeaving<T>),
}

impl<T: Number> Leaving<T> {
    /// Of `count` units, see [`Subtrees::of_rank`].
    pub(super) fn tiles(lane: &Lane, count: usize, below: u32, start: usize, all: usize) -> Result<Self> {
        Subtrees::of_rank(lane, count, below, start, all).map(Self::Tiles)
    }

    /// Of the interface system of these rows of `all`.
    pub(super) fn blocks(lane: &Lane, rows: Range<usize>, all: usize, cut: Cut, levels: u32) -> Result<Self> {
        blocks::BlockLeaving::new(lane, rows, all, cut, levels).map(Self::Blocks)
    }

    /// Subtrees, or rows, that leave.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Tiles(tiles) => tiles.count(),
            Self::Blocks(blocks) => blocks.levels().last().unwrap_or(blocks.given()).rows,
        }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tiles(tiles) => tiles.bytes(),
            Self::Blocks(blocks) => blocks.bytes(),
        }
    }

    /// The number of small pivots that stage 2 does not know of.
    pub(super) fn flags(&self, lane: &Lane) -> Result<u32> {
        match self {
            Self::Tiles(_) => Ok(0),
            Self::Blocks(blocks) => blocks.flags(lane),
        }
    }

    /// Makes the pieces of chunks those that leave.
    pub(super) fn join(&self, lane: &Lane, pieces: &mut Pieces<T>) -> Result<()> {
        match self {
            Self::Tiles(tiles) => tiles.join(lane, &mut pieces.numbers, &mut pieces.flags)?,
            Self::Blocks(blocks) => {
                let (given, room) = (blocks.given(), pieces.room.max(1));
                for (k, column) in pieces.numbers.chunks(room).enumerate() {
                    lane.send(&column[..given.rows], &given.system, k * given.rows)?;
                }
                lane.enqueue(&blocks.up().collect::<Vec<_>>())?;
                let last = blocks.levels().last().unwrap_or(given);
                for (k, column) in pieces.numbers.chunks_mut(room).enumerate() {
                    lane.fetch(&last.system, k * last.rows, &mut column[..last.rows])?;
                }
            }
        }
        lane.finish()
    }

    /// Makes what came back for them what the chunks ask for.
    pub(super) fn part(&self, lane: &Lane, pieces: &mut Pieces<T>) -> Result<()> {
        let answers = &mut pieces.answers;
        match self {
            Self::Tiles(tiles) => {
                tiles.part(lane, answers)?;
                lane.finish()
            }
            Self::Blocks(blocks) => {
                let (given, count) = (blocks.given(), self.count());
                // The unknown behind a system is the same on every level.
                let behind = [answers[count]];
                for level in blocks.levels() {
                    lane.send(&behind, &level.x, level.rows)?;
                }
                let last = blocks.levels().last().unwrap_or(given);
                lane.send(&answers[..count], &last.x, 0)?;
                lane.enqueue(&blocks.down().collect::<Vec<_>>())?;
                lane.fetch(&given.x, 0, &mut answers[..given.rows])?;
                lane.finish()?;
                answers[given.rows] = behind[0];
                Ok(())
            }
        }
    }
}
