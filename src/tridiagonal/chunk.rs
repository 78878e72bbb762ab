//! Chunks: runs of a plan's rows that lanes process.
//!
//! A lane has one memory for rows. If the lanes together hold all rows of the plan, each chunk has
//! its own memory, and its rows stay there. Otherwise the chunks of a lane pass through its memory
//! one after another: in order in stage 1, in reverse order in stage 3. So the rows of one chunk
//! need not be uploaded twice.

use std::ops::Range;
use std::sync::Arc;

use super::kernels::number::Number;
use super::kernels::row_memory::RowMemory;
use super::reduction::interface_buffers::split;
use super::reduction::stages::ChunkSolve;
use crate::Result;
use crate::lane::{Buffer, HostArray, Lane, Launch};
use crate::parallel::at_once;

/// Inputs that a solution uploads to the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upload {
    /// Diagonals and right-hand side.
    All,
    /// The right-hand side alone: the diagonals are those of the previous solution.
    RightHandSide,
}

#[derive(Debug)]
pub(crate) struct SystemChunk<'a, T> {
    pub(crate) lane: &'a Lane,
    /// Index of the chunk's lane among the lanes of this rank.
    pub(crate) at: usize,
    /// Index of the first row in the host's arrays.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) memory: Arc<RowMemory<T>>,
    pub(crate) solve: ChunkSolve<T>,
    /// Range of the chunk's reduced blocks, or rows of a reduced system, among those of this rank.
    pub(crate) items: Range<usize>,
    /// True if the upload of a later chunk overwrites the rows on the lane before stage 3 begins.
    pub(crate) evicted: bool,
    /// True if other chunks use this chunk's memory as well, one after another.
    pub(crate) shared: bool,
    /// True if the host's arrays are pageable, so that copies go through a page-locked buffer of
    /// the lane.
    pub(crate) staged: bool,
}

impl<T: Number> SystemChunk<'_, T> {
    /// Uploads the inputs of the chunk's rows for `rhs` right-hand sides.
    pub(crate) fn upload(&self, inputs: &[HostArray<T>; 4], rhs: usize, upload: Upload) -> Result<()> {
        self.bring(self.first..self.first + self.rows, inputs, rhs, upload)
    }

    /// Uploads rows `here` of the host's arrays and of `rhs` right-hand sides to the lane's memory.
    /// If other chunks use this memory, all inputs are uploaded.
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
        for (k, b) in b.chunks(d.len()).take(rhs).enumerate() {
            copy(&b[here.clone()], &to.b, k * self.memory.stride())?;
        }
        Ok(())
    }

    /// Number of unknowns that a download writes on the host: 0 if the lane works in the host's
    /// array.
    pub(crate) fn downloaded(&self) -> usize {
        if self.memory.adopted { 0 } else { self.rows }
    }

    /// Downloads the unknowns of some right-hand sides, from row `at` of the lane's memory on.
    pub(crate) fn download(&self, at: usize, xs: &mut [&mut [T]]) -> Result<()> {
        let from = &self.memory.arrays.x;
        xs.iter_mut().enumerate().try_for_each(|(k, x)| match self.staged {
            true => self.lane.download(from, k * self.memory.stride() + at, x),
            false => self.lane.fetch(from, k * self.memory.stride() + at, x),
        })
    }

    /// Returns the launches of stage 1, of stage 2 (given as `interface`) and of stage 3, for a
    /// solution without steps on the host.
    pub(crate) fn launches<'l>(&'l self, interface: &[&'l Launch]) -> Vec<&'l Launch> {
        [&self.solve.up(), interface, &self.solve.down()].concat()
    }
}

/// Step of a stage, as a function of a chunk and of the data that the step needs for it.
pub(crate) type Step<'s, T, I> = &'s (dyn Fn(&SystemChunk<'_, T>, &mut I) -> Result<()> + Sync);

/// Execution of the steps of chunks, which do not wait for steps of other chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// True if each lane has a thread; otherwise one thread serves all lanes.
    pub(crate) threads: bool,
}

impl Pace {
    /// Executes steps for chunks, in sequence or with one thread per lane, and waits for the lanes.
    pub(crate) fn run<'a, T: Number, I: Send, const N: usize>(
        self,
        work: Vec<(&'a SystemChunk<'a, T>, I)>,
        steps: [Step<'_, T, I>; N],
    ) -> Result<()> {
        let lanes: Vec<&Lane> = work.iter().map(|(chunk, _)| chunk.lane).collect();
        let all = |work: Vec<(&'a SystemChunk<'a, T>, I)>| {
            let mut work = work.into_iter();
            work.try_for_each(|(chunk, mut item)| steps.iter().try_for_each(|step| step(chunk, &mut item)))
        };
        if !self.threads || work.len() == 1 {
            all(work)?;
        } else {
            let count = work.iter().map(|(chunk, _)| chunk.at + 1).max().unwrap_or(0);
            let mut each: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
            work.into_iter().for_each(|(chunk, item)| each[chunk.at].push((chunk, item)));
            at_once(each, all).into_iter().collect::<Result<()>>()?;
        }
        lanes.iter().try_for_each(|lane| lane.finish())
    }
}

/// Slices of a host array into which chunks download, for each right-hand side. Right-hand sides
/// are `stride` numbers apart, and rows `here` of each belong to the chunks.
pub(crate) fn places<'x, T: Number>(
    x: &'x mut [T],
    stride: usize,
    here: Range<usize>,
    chunks: &[SystemChunk<'_, T>],
) -> Vec<Vec<&'x mut [T]>> {
    let mut all: Vec<Vec<&mut [T]>> = chunks.iter().map(|_| Vec::new()).collect();
    for x in x.chunks_mut(stride) {
        let parts = split(&mut x[here.clone()], chunks.iter().map(SystemChunk::downloaded));
        all.iter_mut().zip(parts).for_each(|(own, part)| own.push(part));
    }
    all
}
