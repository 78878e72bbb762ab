//! Division of a plan's rows into chunks: one per lane, or more if the lanes do not hold all rows.

use std::ops::Range;
use std::sync::Arc;

use crate::lane::{HostArray, Lane};
use crate::tridiagonal::chunk::SystemChunk;
use crate::tridiagonal::kernels::alignment::{Alignment, ChunkPlace};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::row_memory::RowMemory;
use crate::tridiagonal::one_pass::NEIGHBOUR_ROWS;
use crate::tridiagonal::options::PlanOptions;
use crate::tridiagonal::reduction::levels::Shape;
use crate::tridiagonal::reduction::rank_reduction::{self, SubtreeRun};
use crate::tridiagonal::reduction::stages::{RankReduction, Stage2};
use crate::tridiagonal::scheme::{BLOCK, Blocking, Scheme};
use crate::tridiagonal::system::row_range::RowSpan;
use crate::{Error, Result};

/// Minimum number of rows per chunk when chunks are made smaller to fit.
const FEWEST_ROWS: usize = 1 << 12;

/// Chunks of a plan, with the reduction and solution of their equations.
pub(crate) struct Chunks<'a, T> {
    pub(crate) chunks: Vec<SystemChunk<'a, T>>,
    /// Further reduction of the chunks' equations before they leave this rank, if needed.
    pub(crate) rank_reduction: Option<RankReduction<T>>,
    pub(crate) stage2: Option<Stage2<T>>,
    /// Number of reduced blocks, or rows of a reduced system, that all ranks send to stage 2.
    pub(crate) items: usize,
    pub(crate) shape: Shape,
}

/// Division of a plan's rows over its lanes.
pub(crate) struct Chunking<'a, 'p, T> {
    lanes: &'a [Lane],
    span: RowSpan,
    options: &'p PlanOptions,
    /// Host arrays dl, d, du, b and x.
    arrays: &'p [HostArray<T>; 5],
    /// Number of rows in the host arrays before the first local row.
    before: usize,
    scheme: Scheme,
    /// Positions at which rows are cut for ranks, and levels on which a rank reduces its equations.
    of_rank: Alignment,
    /// Subtrees that ranks send, in rank order, if ranks share rows in tiles.
    subtrees: Option<Vec<SubtreeRun>>,
}

impl<'a, 'p, T: Number> Chunking<'a, 'p, T> {
    /// Creates the division of these rows. Every rank calls this.
    pub(crate) fn new(
        lanes: &'a [Lane],
        span: RowSpan,
        options: &'p PlanOptions,
        arrays: &'p [HostArray<T>; 5],
        before: usize,
    ) -> Self {
        let (all, ranks) = (span.all(), span.ranks);
        let scheme = Scheme::of(span.n, all, span.cyclic, options.pivot);
        let mut of_rank = scheme.alignment(all, ranks.size());
        if scheme == Scheme::Blocks {
            // All ranks send reduced systems of one level.
            let levels = if span.rows == 0 { u32::MAX } else { Blocking::levels(span.first, all) };
            of_rank.levels = ranks.all_reduce_min(u64::from(levels)) as u32;
        }
        let in_tiles = ranks.is_distributed() && scheme == Scheme::Tiles;
        let subtrees = in_tiles.then(|| of_ranks(span, of_rank));
        Self { lanes, span, options, arrays, before, scheme, of_rank, subtrees }
    }

    /// Creates the chunks of all local rows. If a lane can work in the host's arrays, its chunk
    /// uses them.
    pub(crate) fn chunks(&self) -> Result<Chunks<'a, T>> {
        let mut parts = self.lanes.len();
        let mut first = None;
        loop {
            let alignment = self.alignment(parts);
            let size = self.span.rows.div_ceil(parts).next_multiple_of(alignment.rows);
            match self.chunks_of(size, alignment) {
                Err(e @ Error::OutOfMemory { .. }) if !self.options.resident => {
                    let first = first.get_or_insert(e);
                    if size <= FEWEST_ROWS.max(alignment.rows) {
                        return Err(std::mem::replace(first, Error::Interrupted));
                    }
                    parts *= 2;
                }
                done => return done,
            }
        }
    }

    /// Alignment of chunks if each rank has `parts` of them.
    ///
    /// The only chunk of a rank reduces its rows to the equations that the rank sends. A chunk of
    /// all rows leaves the whole reduction of equations to stage 2.
    fn alignment(&self, parts: usize) -> Alignment {
        let (ranks, of_rank) = (self.span.ranks, self.of_rank);
        let alignment = match (self.scheme, parts) {
            (Scheme::Tiles, 1) if !ranks.is_distributed() => Alignment::TILES,
            (Scheme::Tiles, 2..) => Alignment::of_chunks(self.span.all(), parts * ranks.size()),
            (Scheme::Blocks, _) => Alignment { levels: 0, ..of_rank.of_tiles_at_least() },
            _ => of_rank,
        };
        if ranks.is_distributed() && alignment.levels > of_rank.levels { of_rank } else { alignment }
    }

    fn chunks_of(&self, size: usize, alignment: Alignment) -> Result<Chunks<'a, T>> {
        let Self { span, scheme, of_rank, .. } = *self;
        let RowSpan { first, rows, cyclic, ranks, .. } = span;
        // The rows of a rank begin with a unit, a tile or a block.
        let begins = if scheme == Scheme::Blocks { BLOCK } else { alignment.rows };
        assert!(rows == 0 || first.is_multiple_of(begins), "{rows} rows from row {first} on");
        let ranges = self.ranges(size);
        let several = ranges.len() > 1 || ranks.is_distributed();
        let left = if ranks.is_distributed() { of_rank } else { alignment };
        let items = scheme.items(span.all(), left);
        // One lane performs stage 2 for all ranks.
        let mut stage2 = match several && ranks.is_root() {
            true => {
                let all = || vec![SubtreeRun { level: 0, nodes: 0..items }];
                let subtrees = self.subtrees.clone().unwrap_or_else(all);
                scheme.stage2(&self.lanes[0], items, subtrees, cyclic)?
            }
            false => None,
        };
        let rank_reduction = match rows > 0 && ranks.is_distributed() {
            true => {
                let levels = [alignment, of_rank];
                scheme.rank_reduction(&self.lanes[0], span.range(), span.all(), levels)?
            }
            false => None,
        };
        let chunks = self.on_lanes(&ranges, alignment)?;
        if let ([chunk], false) = (&chunks[..], several) {
            stage2 = chunk.solve.stage2(chunk.lane, cyclic)?;
        }
        Ok(Chunks { chunks, rank_reduction, stage2, items, shape: scheme.shape() })
    }

    /// Ranges of `size` local rows. At the end of all rows, a rest that is too short for a chunk is
    /// added to the previous one.
    fn ranges(&self, size: usize) -> Vec<Range<usize>> {
        let RowSpan { first, rows, .. } = self.span;
        if rows == 0 {
            return Vec::new();
        }
        let last = (self.span.all() - first).saturating_sub(self.of_rank.tail).min(rows - 1);
        let starts: Vec<usize> = std::iter::once(0).chain((size..=last).step_by(size)).collect();
        let ends = starts.iter().skip(1).copied().chain([rows]);
        starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
    }

    /// Allocates memory on each lane that has rows, large enough for each of these ranges.
    fn memories(&self, ranges: &[Range<usize>]) -> Result<Vec<Arc<RowMemory<T>>>> {
        let in_blocks = self.scheme == Scheme::Blocks;
        if let ([lane], [_]) = (self.lanes, ranges)
            && !in_blocks
            && !self.span.ranks.is_distributed()
            && !self.options.resident
            && let Some(memory) = RowMemory::adopt(lane, self.arrays, self.options.rhs)?
        {
            return Ok(vec![Arc::new(memory)]);
        }
        // A window extends beyond its chunk.
        let several = ranges.len() > 1 || self.span.ranks.is_distributed();
        let neighbours = if several && self.scheme == Scheme::Tiles { 2 * NEIGHBOUR_ROWS } else { 0 };
        let longest = neighbours + ranges.iter().map(Range::len).max().unwrap_or(0);
        let shared = ranges.len() > self.lanes.len();
        let memory = |lane| RowMemory::new(lane, longest, self.options.rhs, in_blocks, shared);
        self.lanes.iter().take(ranges.len()).map(|lane| memory(lane).map(Arc::new)).collect()
    }

    /// Creates the chunks of these ranges, assigned to lanes in round-robin order.
    fn on_lanes(&self, ranges: &[Range<usize>], alignment: Alignment) -> Result<Vec<SystemChunk<'a, T>>> {
        let (lanes, count) = (self.lanes, ranges.len());
        let memories = self.memories(ranges)?;
        let mut before = 0;
        let chunk = |(k, range): (usize, &Range<usize>)| {
            let (at, first, rows) = (k % lanes.len(), self.before + range.start, range.len());
            let (lane, memory) = (&lanes[at], memories[at].clone());
            let RowSpan { n, cyclic, .. } = self.span;
            let place = ChunkPlace { n, first: self.span.first + range.start, cyclic };
            let solve = self.scheme.chunk(lane, &memory, place, [rows, self.span.all()], alignment.levels)?;
            let items = before..before + solve.items();
            before = items.end;
            let (evicted, shared) = (k + lanes.len() < count, count > lanes.len());
            let staged = self.options.pageable;
            Ok(SystemChunk { lane, at, first, rows, memory, solve, items, evicted, shared, staged })
        };
        ranges.iter().enumerate().map(chunk).collect()
    }
}

/// Subtrees of units that ranks send. Every rank calls this.
fn of_ranks(span: RowSpan, alignment: Alignment) -> Vec<SubtreeRun> {
    let all = alignment.blocks(span.all());
    let levels = rank_reduction::depth(all);
    let shares = span.ranks.all_gather(&[span.first as u64, span.rows as u64]);
    let blocks = shares.iter().map(|share| {
        let [first, rows] = [share[0] as usize, share[1] as usize].map(|rows| alignment.blocks(rows));
        first..first + rows
    });
    blocks.flat_map(|blocks| rank_reduction::largest(blocks, all, levels)).collect()
}
