//! One pass over the rows of a plan: each chunk has its windows, and no chunk waits for another.
//!
//! The memory of a chunk also holds the neighbouring rows that its windows need, and the rows of
//! tiles that its borders cut. The chunks on either side of a border both solve such a tile, to
//! equal bits, and each keeps its own rows. So every border between tiles is in a chunk that has
//! the unknowns of both tiles, and is certified there.

pub(crate) mod windows;

use std::ops::Range;

use self::windows::{Windows, tile};
use super::chunk::{Pace, SystemChunk, Upload, places};
use super::kernels::alignment::ChunkPlace;
use super::kernels::number::Number;
use super::kernels::windows::WINDOW_ROWS;
use super::reduction::interface_buffers::split;
use super::system::row_range::RowSpan;
use crate::Result;
use crate::lane::HostArray;

/// Maximum number of neighbouring rows that the memory of a chunk holds on either side.
pub(super) const NEIGHBOUR_ROWS: usize = WINDOW_ROWS;

/// One-pass method on the chunks of a plan.
#[derive(Debug)]
pub(super) struct OnePass<T> {
    /// Rows of a window on either side of its tile.
    pub(super) overlap: usize,
    parts: Vec<ChunkWindows<T>>,
    /// Number of uncertified tiles in each group of tiles, for all chunks.
    bad: HostArray<u32>,
}

#[derive(Debug)]
struct ChunkWindows<T> {
    /// Rows of the host's arrays that the chunk's memory holds.
    held: Range<usize>,
    /// Index in memory of the first of the chunk's own rows.
    own: usize,
    windows: Windows<T>,
}

impl<T: Number> ChunkWindows<T> {
    /// Creates the windows of a chunk. Row 0 of the host's arrays is row `origin` of all rows.
    fn new(chunk: &SystemChunk<'_, T>, span: RowSpan, origin: usize, overlap: usize) -> Result<Self> {
        let (tile, first) = (tile(overlap), origin + chunk.first);
        // Includes the tile of the previous row, to certify a border between tiles that is at
        // `first`.
        let start = first.saturating_sub(1) / tile * tile;
        let end = (first + chunk.rows).next_multiple_of(tile);
        let from = start.saturating_sub(overlap);
        let to = (end + overlap).min(span.all());
        let place = ChunkPlace { n: span.n, first: from, cyclic: span.cyclic };
        let tiles = start - from..end.min(span.all()) - from;
        let windows = Windows::new(chunk.lane, &chunk.memory, place, to - from, tiles, overlap)?;
        Ok(Self { held: from - origin..to - origin, own: first - from, windows })
    }
}

impl<T: Number> OnePass<T> {
    /// Creates windows with `overlap` rows on either side of their tiles for the chunks of `span`.
    /// Row 0 of the host's arrays is row `origin` of all rows; `host` allocates arrays.
    pub(super) fn new(
        chunks: &[SystemChunk<'_, T>],
        span: RowSpan,
        origin: usize,
        overlap: usize,
        host: impl Fn(usize) -> Result<HostArray<u32>>,
    ) -> Result<Self> {
        let parts = chunks.iter().map(|chunk| ChunkWindows::new(chunk, span, origin, overlap));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let bad = host(parts.iter().map(|part| part.windows.groups()).sum())?;
        Ok(Self { overlap, parts, bad })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.windows.bytes()).sum()
    }

    pub(super) fn single(&self) -> &Windows<T> {
        &self.parts[0].windows
    }

    /// Solves with inputs and unknowns on the host; true if the unknowns are certified. The rows of
    /// the chunks are rows `here` of `x`.
    pub(super) fn solve(
        &mut self,
        chunks: &[SystemChunk<'_, T>],
        pace: Pace,
        inputs: &[HostArray<T>; 4],
        (x, here): (&mut HostArray<T>, Range<usize>),
        upload: Upload,
    ) -> Result<bool> {
        let stride = inputs[0].len();
        let rhs = x.len() / stride;
        let xs = places(x, stride, here, chunks);
        let bad = split(&mut self.bad, self.parts.iter().map(|part| part.windows.groups()));
        let work = chunks.iter().zip(self.parts.iter().zip(xs).zip(bad)).collect();
        pace.run(
            work,
            [&|chunk, ((part, x), bad)| {
                chunk.bring(part.held.clone(), inputs, rhs, upload)?;
                chunk.lane.enqueue(&part.windows.launches())?;
                chunk.download(part.own, x)?;
                part.windows.fetch(chunk.lane, bad)
            }],
        )?;
        Ok(self.bad.iter().all(|&tiles| tiles == 0))
    }
}
