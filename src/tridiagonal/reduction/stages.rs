//! Stages of a solution: reduction of chunks, reduction on ranks, and the interface system.
//!
//! The schemes implement these traits, and fill [`ChunkSolve`].

use std::fmt::Debug;
use std::sync::Arc;

use super::interface_buffers::{ChunkEquations, Equations};
use super::levels::{Level, Levels, download_flags};
use crate::Result;
use crate::lane::{Buffer, Lane, Launch};
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
    /// Flags of whole systems.
    pub(super) flags: Option<Buffer<u32>>,
}

impl<T: Number> ChunkSolve<T> {
    /// Last level of equations of the chunk.
    pub(super) fn last(&self) -> Option<&Arc<Level<T>>> {
        self.levels.as_ref().map(Levels::last)
    }

    /// Number of items of the chunk's last level.
    pub(crate) fn items(&self) -> usize {
        self.last().map_or(0, |last| last.count)
    }

    /// Device memory in bytes, without the chunk's rows.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.as_ref().map_or(0, Levels::bytes) + self.flags.as_ref().map_or(0, Buffer::bytes)
    }

    /// Launches of stage 1, from rows to the chunk's last level of equations.
    pub(crate) fn up(&self) -> Vec<&Launch> {
        self.up.iter().chain(self.levels.iter().flat_map(|levels| &levels.up)).collect()
    }

    /// Launches of stage 3, from interface values to unknowns.
    pub(crate) fn down(&self) -> Vec<&Launch> {
        self.levels.iter().flat_map(|levels| &levels.down).chain([&self.down]).collect()
    }

    /// Downloads the equations.
    pub(crate) fn fetch(&self, lane: &Lane, to: ChunkEquations<'_, T>) -> Result<()> {
        let Some(last) = self.last() else { return Ok(()) };
        if !to.flags.is_empty() {
            lane.fetch(&last.flags, 0, to.flags)?;
        }
        last.fetch(lane, to.columns.into_iter())
    }

    /// Uploads the interface values.
    pub(crate) fn send(&self, lane: &Lane, values: &[T]) -> Result<()> {
        self.last().map_or(Ok(()), |last| lane.send(values, &last.values, 0))
    }

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small
    /// pivots that stage 2 does not count. With reduced blocks, it counts all.
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
pub(crate) trait RankReduction<T>: Debug + Send + Sync {
    /// Number of items that this rank sends.
    fn items(&self) -> usize;

    /// Device memory in bytes.
    fn bytes(&self) -> u64;

    /// Number of small pivots that stage 2 does not count.
    fn flags(&self, _lane: &Lane) -> Result<u32> {
        Ok(0)
    }

    /// Reduces the equations of chunks to those that this rank sends.
    fn reduce(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()>;

    /// Computes the interface values of chunks from those that this rank received.
    fn expand(&self, lane: &Lane, equations: &mut Equations<T>) -> Result<()>;
}

/// Stage 2 on one lane: solves the interface equations of all rows.
pub(crate) trait InterfaceSolve<T>: Debug + Send + Sync {
    /// Device memory in bytes.
    fn bytes(&self) -> u64 {
        0
    }

    /// All launches of stage 2; `None` if it includes steps on the host.
    fn launches(&self) -> Option<Vec<&Launch>> {
        None
    }

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small
    /// pivots that stage 2 counts.
    fn flags(&self, _lane: &Lane) -> Result<u32> {
        Ok(0)
    }

    /// Solves the equations, with or without row exchanges. Returns the number of pivots replaced
    /// on the host.
    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32>;
}
