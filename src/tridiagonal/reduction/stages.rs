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

/// A chunk's part of the solution, on its lane.
#[derive(Debug)]
pub(crate) struct ChunkSolve<T> {
    pub(super) scheme: Scheme,
    /// Stage 1: from rows to the first of the levels of equations, and on.
    pub(super) up: Option<Launch>,
    /// Stage 3: from the first level's values to the unknowns.
    pub(super) down: Launch,
    pub(super) levels: Option<Levels<T>>,
    /// Flags of whole systems.
    pub(super) flags: Option<Buffer<u32>>,
}

impl<T: Number> ChunkSolve<T> {
    /// The level that the chunk leaves.
    pub(super) fn last(&self) -> Option<&Arc<Level<T>>> {
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

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small pivots that stage 2 does not know of: it
    /// knows all of reduced blocks.
    pub(crate) fn flags(&self, lane: &Lane) -> Result<u32> {
        let blocks = self.levels.as_ref().filter(|_| self.scheme != Scheme::Tiles);
        match blocks.map(|levels| &levels.first().flags).or(self.flags.as_ref()) {
            Some(flags) => download_flags(lane, flags),
            None => Ok(0),
        }
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

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small pivots that it knows of.
    fn flags(&self, _lane: &Lane) -> Result<u32> {
        Ok(0)
    }

    /// Solves the equations, with or without exchanges; the number of pivots that the host replaced.
    fn solve(&self, lane: &Lane, equations: &mut Equations<T>, exchange: bool) -> Result<u32>;
}
