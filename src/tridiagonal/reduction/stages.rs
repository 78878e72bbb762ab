//! Stages of a solution: reduction of chunks, reduction on ranks, and the interface system.

use std::sync::Arc;

use super::interface_buffers::{ChunkEquations, InterfaceEquations};
use super::levels::{Level, Levels, download_flags};
use super::merge_tree::RootSolve;
use super::rank_reduction::Subtrees;
use crate::Result;
use crate::lane::{Buffer, Lane, Launch};
use crate::tridiagonal::host::lu::solve_concatenated;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::scheme::Scheme;

/// Launches and equations of a chunk on its lane.
#[derive(Debug)]
pub(crate) struct ChunkSolve<T> {
    pub(super) scheme: Scheme,
    /// Stage 1: from rows to the first level of equations.
    pub(super) up: Option<Launch>,
    /// Stage 3: from the first level's values to the unknowns.
    pub(super) down: Launch,
    pub(super) levels: Option<Levels<T>>,
    pub(super) flags: Option<Buffer<u32>>,
}

impl<T: Number> ChunkSolve<T> {
    pub(super) fn last(&self) -> Option<&Arc<Level<T>>> {
        self.levels.as_ref().map(Levels::last)
    }

    pub(crate) fn items(&self) -> usize {
        self.last().map_or(0, |last| last.count)
    }

    /// Device memory in bytes, without the chunk's rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.as_ref().map_or(0, Levels::bytes) + self.flags.as_ref().map_or(0, Buffer::bytes)
    }

    pub(crate) fn up(&self) -> Vec<&Launch> {
        self.up.iter().chain(self.levels.iter().flat_map(|levels| &levels.up)).collect()
    }

    pub(crate) fn down(&self) -> Vec<&Launch> {
        self.levels.iter().flat_map(|levels| &levels.down).chain([&self.down]).collect()
    }

    pub(crate) fn fetch(&self, lane: &Lane, to: ChunkEquations<'_, T>) -> Result<()> {
        let Some(last) = self.last() else { return Ok(()) };
        if !to.flags.is_empty() {
            lane.fetch(&last.flags, 0, to.flags)?;
        }
        last.fetch(lane, to.columns.into_iter())
    }

    pub(crate) fn send(&self, lane: &Lane, values: &[T]) -> Result<()> {
        self.last().map_or(Ok(()), |last| lane.send(values, &last.values, 0))
    }

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small
    /// pivots, without those that stage 2 counts. With reduced blocks, it counts all.
    pub(crate) fn flags(&self, lane: &Lane) -> Result<u32> {
        let blocks = self.levels.as_ref().filter(|_| self.scheme != Scheme::Tiles);
        match blocks.map(|levels| &levels.first().flags).or(self.flags.as_ref()) {
            Some(flags) => download_flags(lane, flags),
            None => Ok(0),
        }
    }
}

/// Reduction of a rank's equations on its first lane, so that the message to rank 0 does not grow
/// with the number of rows.
#[derive(Debug)]
pub(crate) enum RankReduction<T> {
    /// In tiles: largest subtrees of the merge tree.
    Tiles(Subtrees<T>),
    /// In blocks: smaller reduced systems.
    Blocks(Levels<T>),
}

impl<T: Number> RankReduction<T> {
    pub(crate) fn items(&self) -> usize {
        match self {
            Self::Tiles(subtrees) => subtrees.count(),
            Self::Blocks(levels) => levels.last().count,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tiles(subtrees) => subtrees.bytes(),
            Self::Blocks(levels) => levels.bytes(),
        }
    }

    /// Number of small pivots of this reduction, 0 if stage 2 counts them.
    pub(super) fn flags(&self, lane: &Lane) -> Result<u32> {
        match self {
            Self::Tiles(_) => Ok(0),
            Self::Blocks(levels) => levels.flags_above(lane),
        }
    }

    /// Reduces the equations of chunks to those that this rank sends.
    pub(super) fn reduce(&self, lane: &Lane, equations: &mut InterfaceEquations<T>) -> Result<()> {
        match self {
            Self::Tiles(subtrees) => {
                subtrees.reduce_levels(lane, &mut equations.numbers, &mut equations.flags)?;
            }
            Self::Blocks(levels) => {
                levels.first().send(lane, equations.columns())?;
                lane.enqueue(&levels.up.iter().collect::<Vec<_>>())?;
                levels.last().fetch(lane, equations.columns_mut())?;
            }
        }
        lane.finish()
    }

    /// Computes the interface values of chunks from those that this rank received.
    pub(super) fn expand(&self, lane: &Lane, values: &mut [T]) -> Result<()> {
        let levels = match self {
            Self::Tiles(subtrees) => {
                subtrees.back_substitute(lane, values)?;
                return lane.finish();
            }
            Self::Blocks(levels) => levels,
        };
        let (given, last) = (levels.first(), levels.last());
        // The unknown after a system is the same on every level.
        let behind = [values[last.count]];
        for level in &levels.all[1..] {
            lane.send(&behind, &level.values, level.count)?;
        }
        lane.send(&values[..last.count], &last.values, 0)?;
        lane.enqueue(&levels.down.iter().collect::<Vec<_>>())?;
        lane.fetch(&given.values, 0, &mut values[..given.count])?;
        lane.finish()?;
        values[given.count] = behind[0];
        Ok(())
    }
}

/// Stage 2 on one lane: solves the interface equations of all rows.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a plan has only one")]
pub(crate) enum Stage2<T> {
    /// In tiles: the root solve for the reduced blocks of the only chunk, or for joined subtrees.
    Tiles(RootSolve<T>, Option<Subtrees<T>>),
    /// In blocks: reduction down to the last system, which the host solves. `gathered` is true if
    /// the host uploads the equations of several chunks.
    Blocks { levels: Levels<T>, gathered: bool },
}

impl<T: Number> Stage2<T> {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tiles(root, subtrees) => root.bytes() + subtrees.as_ref().map_or(0, Subtrees::bytes),
            Self::Blocks { levels, gathered: true } => levels.bytes(),
            Self::Blocks { levels, .. } => levels.bytes_above(),
        }
    }

    /// All launches of stage 2; `None` if it includes steps on the host.
    pub(super) fn launches(&self) -> Option<Vec<&Launch>> {
        if let Self::Tiles(root, None) = self { Some(root.launches().collect()) } else { None }
    }

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small
    /// pivots that stage 2 counts.
    pub(super) fn flags(&self, lane: &Lane) -> Result<u32> {
        match self {
            Self::Tiles(root, _) => root.flags(lane),
            Self::Blocks { levels, .. } => levels.flags_above(lane),
        }
    }

    /// Solves the equations. Returns the number of pivots replaced on the host.
    pub(super) fn solve(&self, lane: &Lane, equations: &mut InterfaceEquations<T>) -> Result<u32> {
        match self {
            Self::Tiles(root, subtrees) => {
                if let Some(subtrees) = subtrees {
                    subtrees.gather(lane, &equations.numbers, &equations.flags)?;
                }
                lane.enqueue(&root.launches().collect::<Vec<_>>())?;
                if let Some(subtrees) = subtrees {
                    subtrees.scatter(lane, &mut equations.values)?;
                }
                Ok(0)
            }
            Self::Blocks { levels, gathered } => {
                let (given, last) = (levels.first(), levels.last());
                if *gathered {
                    given.send(lane, equations.columns())?;
                }
                lane.enqueue(&levels.up.iter().collect::<Vec<_>>())?;
                let mut system = vec![T::ZERO; last.equations.len()];
                lane.download(&last.equations, 0, &mut system)?;
                let (x, replaced) = solve_concatenated(&system);
                lane.upload(&x, &last.values, 0)?;
                lane.enqueue(&levels.down.iter().collect::<Vec<_>>())?;
                if *gathered {
                    lane.fetch(&given.values, 0, &mut equations.values[..=given.count])?;
                }
                Ok(replaced)
            }
        }
    }
}
