//! Chunks: runs of a plan's rows that lanes work on.
//!
//! A lane has one memory for rows. Where the rows of all lanes together are the plan's, each chunk has a memory of its own
//! and its rows stay there. Otherwise the chunks of a lane go through its memory one after the other: up in order, down in
//! the opposite order, so that the rows of one need not be brought twice.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::kernels::number::Number;
use super::kernels::row_memory::RowMemory;
use super::reduction::interface_buffers::{Equations, split};
use super::reduction::stages::ChunkSolve;
use crate::Result;
use crate::lane::{Buffer, HostArray, Lane, Launch};
use crate::parallel::at_once;

/// The inputs that a solution brings to the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// Diagonals and right-hand side.
    All,
    /// The right-hand side alone: the diagonals are those of the solution before.
    RightHandSide,
    /// Nothing: all is on the devices.
    Nothing,
}

/// A run of rows on a lane.
#[derive(Debug)]
pub(crate) struct Chunk<'a, T> {
    pub(crate) lane: &'a Lane,
    /// Number of that lane.
    pub(crate) at: usize,
    /// The first row in the host's arrays.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) memory: Arc<RowMemory<T>>,
    pub(crate) solve: ChunkSolve<T>,
    /// Items among those of all chunks here.
    pub(crate) items: Range<usize>,
    /// Whether its rows are gone when stage 3 begins.
    pub(crate) evicted: bool,
    /// Whether others go through the same memory.
    pub(crate) shared: bool,
    /// Whether the host's arrays are not page-locked, so that copies go through memory of the lane that is.
    pub(crate) staged: bool,
}

impl<T: Number> Chunk<'_, T> {
    /// The chunk's rows of the host's arrays.
    fn here(&self) -> Range<usize> {
        self.first..self.first + self.rows
    }

    /// Brings what stage 1 needs for so many right-hand sides.
    pub(crate) fn upload(&self, inputs: &[HostArray<T>; 4], rhs: usize, upload: Upload) -> Result<()> {
        self.bring(self.here(), inputs, rhs, upload)
    }

    /// Brings what stage 3 needs and stage 1 did not leave.
    pub(crate) fn upload_again(&self, inputs: &[HostArray<T>; 4]) -> Result<()> {
        if self.evicted { self.bring(self.here(), inputs, 1, Upload::All) } else { Ok(()) }
    }

    /// Brings rows of the host's arrays, and of so many right-hand sides, to the lane's memory; all that they have where others
    /// go through it.
    pub(crate) fn bring(
        &self,
        here: Range<usize>,
        [dl, d, du, b]: &[HostArray<T>; 4],
        rhs: usize,
        upload: Upload,
    ) -> Result<()> {
        let upload = if self.shared { Upload::All } else { upload };
        let to = &self.memory.arrays;
        let copy = |from: &[T], to: &Buffer<T>, at: usize| match self.staged {
            true => self.lane.upload(from, to, at),
            false => self.lane.send(from, to, at),
        };
        if upload == Upload::All {
            copy(&dl[here.clone()], &to.dl, 0)?;
            copy(&d[here.clone()], &to.d, 0)?;
            copy(&du[here.clone()], &to.du, 0)?;
        }
        if upload != Upload::Nothing {
            for (k, b) in b.chunks(d.len()).take(rhs).enumerate() {
                copy(&b[here.clone()], &to.b, k * self.memory.stride())?;
            }
        }
        Ok(())
    }

    /// Numbers of the host's unknowns that a download writes: none where the lane works in them.
    pub(crate) fn downloaded(&self) -> usize {
        if self.memory.adopted { 0 } else { self.rows }
    }

    /// Takes the unknowns of some right-hand sides away.
    pub(crate) fn download(&self, xs: &mut [&mut [T]]) -> Result<()> {
        self.take(0, xs)
    }

    /// Takes the unknowns of some right-hand sides from row `at` in memory on away.
    pub(crate) fn take(&self, at: usize, xs: &mut [&mut [T]]) -> Result<()> {
        let from = &self.memory.arrays.x;
        xs.iter_mut().enumerate().try_for_each(|(k, x)| match self.staged {
            true => self.lane.download(from, k * self.memory.stride() + at, x),
            false => self.lane.fetch(from, k * self.memory.stride() + at, x),
        })
    }

    /// Brings its interface values, out of those of all chunks here.
    pub(crate) fn send_values(&self, equations: &Equations<T>) -> Result<()> {
        self.solve.send(self.lane, &equations.values[equations.values_of(&self.items)])
    }

    /// All launches of a solution that needs no host: up, these of stage 2, and down.
    pub(crate) fn launches<'l>(&'l self, interface: &[&'l Launch]) -> Vec<&'l Launch> {
        [&self.solve.up(), interface, &self.solve.down()].concat()
    }
}

/// A step of a stage: what is done for a chunk and what belongs to it.
pub(crate) type Step<'s, T, I> = &'s (dyn Fn(&Chunk<'_, T>, &mut I) -> Result<()> + Sync);

/// The order in which the steps of chunks follow one another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// Each chunk goes on as soon as it can; with a thread for each lane, or from one.
    Overlapped {
        /// Whether each lane has a thread.
        threads: bool,
    },
    /// All chunks finish a step before the next one begins, and each step is measured.
    ByStages,
}

impl Pace {
    /// Takes steps for chunks and waits for their lanes; the seconds of each step, where steps are measured.
    pub(crate) fn run<'c, 'a: 'c, T: Number, I: Send, const N: usize>(
        self,
        mut work: Vec<(&'a Chunk<'a, T>, I)>,
        steps: [Step<'_, T, I>; N],
    ) -> Result<[f64; N]> {
        let lanes: Vec<&Lane> = work.iter().map(|(chunk, _)| chunk.lane).collect();
        let finish = || lanes.iter().try_for_each(|lane| lane.finish());
        let mut seconds = [0.0; N];
        match self {
            Self::Overlapped { threads } => {
                on_lanes(threads, work, &|chunk, item| steps.iter().try_for_each(|step| step(chunk, item)))?;
                finish()?;
            }
            Self::ByStages => {
                for (step, seconds) in steps.iter().zip(&mut seconds) {
                    let started = Instant::now();
                    work.iter_mut().try_for_each(|(chunk, item)| step(chunk, item))?;
                    finish()?;
                    *seconds = started.elapsed().as_secs_f64();
                }
            }
        }
        Ok(seconds)
    }
}

/// Does something for every chunk of some lanes: one after the other, or with a thread for each lane.
fn on_lanes<'a, T: Number, I: Send>(
    threads: bool,
    work: Vec<(&'a Chunk<'a, T>, I)>,
    perform: &(dyn Fn(&Chunk<'a, T>, &mut I) -> Result<()> + Sync),
) -> Result<()> {
    let all = |work: Vec<(&'a Chunk<'a, T>, I)>| {
        work.into_iter().try_for_each(|(chunk, mut item)| perform(chunk, &mut item))
    };
    if !threads || work.len() == 1 {
        return all(work);
    }
    let lanes = work.iter().map(|(chunk, _)| chunk.at + 1).max().unwrap_or(0);
    let mut each: Vec<Vec<_>> = (0..lanes).map(|_| Vec::new()).collect();
    work.into_iter().for_each(|(chunk, item)| each[chunk.at].push((chunk, item)));
    at_once(each, all).into_iter().collect()
}

/// The places of the rows `here` of an array of the host that chunks download, those of each right-hand side, `stride` numbers
/// apart.
pub(crate) fn places<'x, T: Number>(
    x: &'x mut [T],
    stride: usize,
    here: Range<usize>,
    chunks: &[Chunk<'_, T>],
) -> Vec<Vec<&'x mut [T]>> {
    let mut all: Vec<Vec<&mut [T]>> = chunks.iter().map(|_| Vec::new()).collect();
    for x in x.chunks_mut(stride) {
        let parts = split(&mut x[here.clone()], chunks.iter().map(Chunk::downloaded));
        all.iter_mut().zip(parts).for_each(|(own, part)| own.push(part));
    }
    all
}
