//! Chunks: the rows of a plan, cut into runs that lanes work on.
//!
//! A lane has one window of memory. Where the rows of all windows together are the plan's, each chunk has a window of
//! its own and its rows stay there. Otherwise the chunks of a lane go through its window one after the other: up in
//! order, down in the opposite order, so that the rows of one need not be brought twice.

use std::ops::Range;
use std::sync::Arc;

use super::batch::{self, BatchShare};
use super::blocks::{BlockShare, Cut};
use super::kernels::TILE;
use super::leaving::Leaving;
use super::partition::{Arrays, Grain, Place, Share};
use super::plan::{PlanOptions, Send};
use super::stage2::Stage2;
use super::subtrees::{self, Run};
use super::unit::Number;
use crate::lane::{Buffer, HostArray, Lane, Launch};
use crate::ranks::Ranks;
use crate::{Error, Result};

/// Rows of a chunk at least, where chunks are made smaller until they fit.
const FEWEST_ROWS: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Chunk<'a, T> {
    pub(super) lane: &'a Lane,
    /// Which lane that is.
    pub(super) at: usize,
    /// Its first row, counted from the first here.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) window: Arc<Window<T>>,
    pub(super) work: Work<T>,
    /// Its units, or rows of the interface system of its blocks, counted from the first here.
    pub(super) items: Range<usize>,
    /// Whether its rows are gone when stage 3 begins.
    pub(super) evicted: bool,
    /// Whether others go through the same window.
    pub(super) shared: bool,
    /// Whether the host's arrays are not page-locked, so that copies go through memory of the lane that is.
    staged: bool,
}

/// A lane's memory for rows.
#[derive(Debug)]
pub(super) struct Window<T> {
    pub(super) arrays: Arrays<T>,
    /// What blocks keep for the way back.
    kept: Option<Buffer<T>>,
}

impl<T: Number> Window<T> {
    pub(super) fn bytes(&self) -> u64 {
        self.arrays.bytes() + self.kept.as_ref().map_or(0, Buffer::bytes)
    }
}

#[derive(Debug)]
pub(super) enum Work<T> {
    Tiles(Box<Share<T>>),
    Blocks(Box<BlockShare<T>>),
    /// Small systems, which ask nothing of others.
    Whole(Box<BatchShare>),
}

impl<T: Number> Work<T> {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tiles(share) => share.bytes(),
            Self::Blocks(blocks) => blocks.bytes(),
            Self::Whole(systems) => systems.bytes(),
        }
    }
}

impl<T: Number> Chunk<'_, T> {
    /// Brings what stage 1 needs.
    pub(super) fn upload(&self, arrays: &[HostArray<T>; 5], send: Send) -> Result<()> {
        self.bring(arrays, if self.shared { Send::All } else { send })
    }

    /// Brings what stage 3 needs and stage 1 did not leave.
    pub(super) fn upload_again(&self, arrays: &[HostArray<T>; 5]) -> Result<()> {
        self.bring(arrays, if self.evicted { Send::All } else { Send::Nothing })
    }

    fn bring(&self, [dl, d, du, b, _]: &[HostArray<T>; 5], send: Send) -> Result<()> {
        let here = self.first..self.first + self.rows;
        let to = &self.window.arrays;
        let copy = |from: &[T], to: &Buffer<T>| match self.staged {
            true => self.lane.upload(from, to, 0),
            false => self.lane.send(from, to, 0),
        };
        if send == Send::All {
            copy(&dl[here.clone()], &to.dl)?;
            copy(&d[here.clone()], &to.d)?;
            copy(&du[here.clone()], &to.du)?;
        }
        if send != Send::Nothing {
            copy(&b[here], &to.b)?;
        }
        Ok(())
    }

    /// Takes the unknowns away.
    pub(super) fn fetch(&self, x: &mut [T]) -> Result<()> {
        match self.staged {
            true => self.lane.download(&self.window.arrays.x, 0, x),
            false => self.lane.fetch(&self.window.arrays.x, 0, x),
        }
    }

    pub(super) fn up(&self) -> Vec<&Launch> {
        match &self.work {
            Work::Tiles(share) => share.up().collect(),
            Work::Blocks(blocks) => vec![blocks.up()],
            Work::Whole(_) => Vec::new(),
        }
    }

    pub(super) fn down(&self) -> Vec<&Launch> {
        match &self.work {
            Work::Tiles(share) => share.down().collect(),
            Work::Blocks(blocks) => vec![blocks.down()],
            Work::Whole(systems) => vec![systems.launch()],
        }
    }

    /// Takes what stage 2 needs.
    pub(super) fn fetch_piece(&self, piece: Piece<'_, T>) -> Result<()> {
        match &self.work {
            Work::Tiles(share) => {
                self.lane.fetch(&share.units().flags, 0, piece.flags)?;
                piece.numbers.into_iter().try_for_each(|to| self.lane.fetch(&share.units().units, 0, to))
            }
            Work::Blocks(blocks) => {
                let level = blocks.level();
                let columns = piece.numbers.into_iter().enumerate();
                columns.into_iter().try_for_each(|(k, to)| self.lane.fetch(&level.system, k * level.rows, to))
            }
            Work::Whole(_) => Ok(()),
        }
    }

    /// Brings what stage 2 found, out of what it found for all chunks here.
    pub(super) fn put(&self, answers: &[T]) -> Result<()> {
        let Range { start, end } = self.items;
        match &self.work {
            Work::Tiles(share) => self.lane.send(&answers[2 * start..2 * end], &share.units().outer, 0),
            Work::Blocks(blocks) => self.lane.send(&answers[start..end + 1], &blocks.level().x, 0),
            Work::Whole(_) => Ok(()),
        }
    }

    pub(super) fn flags(&self) -> Result<u32> {
        match &self.work {
            // The units know, and stage 2 knows all of them.
            Work::Tiles(_) => Ok(0),
            Work::Blocks(blocks) => blocks.flags(self.lane),
            Work::Whole(systems) => systems.flags(self.lane),
        }
    }
}

/// What chunks are worked on as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Tiles, whose units are joined.
    Tiles,
    /// Blocks, whose interface system is solved.
    Blocks,
    /// Whole systems, which ask nothing of others.
    Whole,
}

/// Where a chunk's part of the interface system goes on the host.
pub(super) struct Piece<'p, T> {
    /// Six numbers of each unit; or dl, d, du and b of the interface system.
    numbers: Vec<&'p mut [T]>,
    /// Flags of units.
    flags: &'p mut [u32],
}

/// The interface system on the host, on its way to stage 2 and back.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    pub(super) kind: Kind,
    /// Subtrees of units, or rows of the interface system, that leave this rank; units, or rows, there is room for.
    pub(super) sent: usize,
    pub(super) room: usize,
    pub(super) numbers: HostArray<T>,
    pub(super) flags: HostArray<u32>,
    /// The two unknowns next to each unit; or those of the interface system and the one behind.
    pub(super) answers: HostArray<T>,
}

impl<T: Number> Pieces<T> {
    /// None.
    pub(super) fn none() -> Self {
        let (numbers, answers) = (HostArray::plain(0), HostArray::plain(0));
        Self { kind: Kind::Whole, sent: 0, room: 0, numbers, flags: HostArray::plain(0), answers }
    }

    /// Room for `room` items, `sent` of which leave this rank.
    pub(super) fn new(
        kind: Kind,
        [sent, room]: [usize; 2],
        array: impl Fn(usize) -> Result<HostArray<T>>,
        flags: impl Fn(usize) -> Result<HostArray<u32>>,
    ) -> Result<Self> {
        let [numbers, marks, answers] = match kind {
            Kind::Tiles => [6 * room, room, 2 * room],
            Kind::Blocks => [4 * room, 0, room + 1],
            Kind::Whole => [0; 3],
        };
        let (numbers, flags, answers) = (array(numbers)?, flags(marks)?, array(answers)?);
        Ok(Self { kind, sent, room, numbers, flags, answers })
    }

    /// Where the pieces of chunks go, which are consecutive.
    pub(super) fn split(&mut self, chunks: &[Chunk<'_, T>]) -> Vec<Piece<'_, T>> {
        let items = || chunks.iter().map(|chunk| chunk.items.len());
        match self.kind {
            Kind::Tiles => {
                let numbers = split(&mut self.numbers, items().map(|items| 6 * items));
                let flags = split(&mut self.flags, items());
                let piece = |(numbers, flags)| Piece { numbers: vec![numbers], flags };
                numbers.into_iter().zip(flags).map(piece).collect()
            }
            Kind::Blocks => {
                let columns = self.numbers.chunks_mut(self.room.max(1));
                let mut columns: Vec<_> = columns.map(|c| split(c, items()).into_iter()).collect();
                let piece = |_| Piece {
                    numbers: columns.iter_mut().filter_map(Iterator::next).collect(),
                    flags: &mut [],
                };
                chunks.iter().map(piece).collect()
            }
            Kind::Whole => chunks.iter().map(|_| Piece { numbers: Vec::new(), flags: &mut [] }).collect(),
        }
    }

    /// Numbers of an item, and of what comes back for it.
    pub(super) fn width(&self) -> (usize, usize) {
        match self.kind {
            Kind::Tiles => (6, 2),
            Kind::Blocks => (4, 1),
            Kind::Whole => (0, 0),
        }
    }
}

/// Rows of a plan on its lanes.
pub(super) struct Job<'p, T> {
    pub(super) n: usize,
    /// The first row here, how many there are, and all.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) all: usize,
    pub(super) cyclic: bool,
    pub(super) ranks: Ranks,
    pub(super) options: &'p PlanOptions,
    /// dl, d, du, b and x on the host.
    pub(super) arrays: &'p [HostArray<T>; 5],
}

impl<T> Job<'_, T> {
    /// How rows are cut into blocks, if they are.
    fn cut(&self) -> Cut {
        let PlanOptions { block, interface_on_host, pivot, .. } = *self.options;
        Cut { block: block.unwrap_or(3), host: interface_on_host, pivot }
    }
}

/// The first multiple of `rows` that is a tile or more.
pub(super) fn at_least_a_tile(rows: usize) -> usize {
    rows * TILE.div_ceil(rows)
}

/// Chunks, and what puts their pieces together.
pub(super) struct Cutting<'a, T> {
    pub(super) chunks: Vec<Chunk<'a, T>>,
    pub(super) stage2: Stage2<T>,
    pub(super) kind: Kind,
    /// What joins the units of the chunks before they leave this rank, where chunks do not do it.
    pub(super) leaving: Option<Leaving<T>>,
    /// Items that leave all ranks.
    pub(super) items: usize,
}

/// How `rows` rows of systems of `n` each may be cut for so many ranks: worked on as what, at multiples of so many rows, which lie at least
/// so many before the end.
pub(super) fn grain(
    n: usize,
    rows: usize,
    cyclic: bool,
    block: Option<usize>,
    ranks: usize,
) -> (Kind, Grain, usize) {
    if let Some(block) = block
        && rows > 1
    {
        let (rows, tail) = Cut::grain(block, 0);
        return (Kind::Blocks, Grain { rows, levels: 0 }, tail);
    }
    // One row is no block: its unit says all.
    match batch::tile(n, rows / n) {
        Some(rows) if block.is_none() && !cyclic => (Kind::Whole, Grain { rows, levels: 0 }, 1),
        _ => (Kind::Tiles, Grain::of_ranks(rows, ranks), 1),
    }
}

/// Chunks of all rows: one on each lane while there are rows, or, where these do not fit, as many more as it takes. In
/// the memory of `job.arrays` itself where a lane can work there.
pub(super) fn cut<'a, T: Number>(lanes: &'a [Lane], job: &Job<'_, T>) -> Result<Cutting<'a, T>> {
    let mut parts = lanes.len();
    let mut first = None;
    let ranks = job.ranks;
    let (kind, mut of_rank, tail) = grain(job.n, job.all, job.cyclic, job.options.block, ranks.size());
    if kind == Kind::Blocks {
        // Interface systems of one level leave all ranks.
        of_rank.levels = match job.rows {
            0 => u32::MAX,
            _ => job.cut().levels(job.first, job.all),
        };
        of_rank.levels = ranks.all_reduce_min(u64::from(of_rank.levels)) as u32;
    }
    let subtrees = match kind {
        Kind::Tiles if ranks.is_distributed() => of_ranks(job, of_rank),
        _ => Vec::new(),
    };
    loop {
        // A chunk alone on its rank leaves what the rank sends; alone altogether, all is left to stage 2.
        let grain = match (kind, parts) {
            (Kind::Tiles, 1) if !ranks.is_distributed() => Grain::TILES,
            (Kind::Tiles, 2..) => Grain::of_chunks(job.all, parts * ranks.size()),
            (Kind::Blocks, _) => Grain { rows: at_least_a_tile(of_rank.rows), levels: 0 },
            _ => of_rank,
        };
        let grain = if ranks.is_distributed() && grain.levels > of_rank.levels { of_rank } else { grain };
        let size = job.rows.div_ceil(parts).next_multiple_of(grain.rows);
        match cut_into(lanes, job, (kind, of_rank, tail), &subtrees, grain, size) {
            Err(e @ Error::OutOfMemory { .. }) if !job.options.resident => {
                let first = first.get_or_insert(e);
                if size <= FEWEST_ROWS.max(grain.rows) {
                    return Err(std::mem::replace(first, Error::Interrupted));
                }
                parts *= 2;
            }
            done => return done,
        }
    }
}

/// The subtrees of units that ranks send, one rank's behind the other's. Every rank calls this.
fn of_ranks<T>(job: &Job<'_, T>, grain: Grain) -> Vec<Run> {
    let all = grain.units(job.all);
    let levels = subtrees::depth(all);
    let shares = job.ranks.all_gather(&[job.first as u64, job.rows as u64]);
    let shares = shares.iter().map(|share| [share[0] as usize, share[1] as usize]);
    let units = shares.map(|[first, rows]| grain.units(first)..grain.units(first) + grain.units(rows));
    units.flat_map(|units| subtrees::largest(units, all, levels)).collect()
}

/// Chunks of `size` rows.
fn cut_into<'a, T: Number>(
    lanes: &'a [Lane],
    job: &Job<'_, T>,
    (kind, of_rank, tail): (Kind, Grain, usize),
    subtrees: &[Run],
    grain: Grain,
    size: usize,
) -> Result<Cutting<'a, T>> {
    let Job { n, rows, options, arrays, .. } = *job;
    // What ranks hold begins where a unit, a tile or a block does.
    let begins = if kind == Kind::Blocks { options.block.unwrap_or(1) } else { grain.rows };
    assert!(rows == 0 || job.first.is_multiple_of(begins), "{rows} rows from row {} on", job.first);
    // Only where all rows end does a chunk take a rest that is too short for one of its own.
    let last = (job.all - job.first).saturating_sub(tail).min(rows.saturating_sub(1));
    let starts: Vec<usize> = match rows {
        0 => Vec::new(),
        _ => std::iter::once(0).chain((size..=last).step_by(size)).collect(),
    };
    let ends = starts.iter().skip(1).copied().chain([rows]);
    let ranges: Vec<Range<usize>> = starts.iter().zip(ends).map(|(&start, end)| start..end).collect();
    let longest = ranges.iter().map(Range::len).max().unwrap_or(0);
    let count = ranges.len();
    let blocks = job.cut();
    let items = match kind {
        Kind::Tiles if job.ranks.is_distributed() => of_rank.units(job.all),
        Kind::Tiles => grain.units(job.all),
        Kind::Blocks if job.ranks.is_distributed() => {
            (0..=of_rank.levels).fold(job.all, |rows, _| 2 * rows.div_ceil(blocks.block))
        }
        Kind::Blocks => 2 * blocks.blocks(0, job.all, job.all),
        Kind::Whole => 0,
    };
    let several = count > 1 || job.ranks.is_distributed();
    // One lane does stage 2 for all.
    let stage2 = match several && job.ranks.is_root() {
        true => {
            let subtrees = match job.ranks.is_distributed() {
                true => subtrees.to_vec(),
                false => vec![Run { level: 0, nodes: 0..items }],
            };
            Some(Stage2::of_all(&lanes[0], kind, items, subtrees, job.cyclic, blocks)?)
        }
        false => None,
    };
    let leaving = match (kind, of_rank.levels.saturating_sub(grain.levels)) {
        _ if rows == 0 || !job.ranks.is_distributed() => None,
        (Kind::Tiles, levels) => {
            let (start, all) = (of_rank.units(job.first), of_rank.units(job.all));
            Some(Leaving::tiles(&lanes[0], grain.units(rows), levels, start, all)?)
        }
        (Kind::Blocks, levels @ 1..) => {
            let here = job.first..job.first + rows;
            Some(Leaving::blocks(&lanes[0], here, job.all, blocks, levels)?)
        }
        _ => None,
    };
    let adopted = match lanes {
        [lane] if count == 1 && kind != Kind::Blocks && !options.resident => Arrays::adopt(lane, arrays)?,
        _ => None,
    };
    let mut windows = match adopted {
        Some(arrays) => vec![Arc::new(Window { arrays, kept: None })],
        None => Vec::new(),
    };
    for lane in lanes.iter().take(count).skip(windows.len()) {
        let what = "what blocks keep for the way back";
        windows.push(Arc::new(Window {
            arrays: Arrays::new(lane, longest)?,
            kept: if kind == Kind::Blocks { Some(lane.alloc(what, 3 * longest)?) } else { None },
        }));
    }
    let mut before = 0;
    let chunk = |(k, range): (usize, &Range<usize>)| {
        let (at, first, rows) = (k % lanes.len(), range.start, range.len());
        let (lane, window) = (&lanes[at], &windows[at]);
        let place = Place { n, first: job.first + first, ring: job.cyclic };
        let (work, items) = match (kind, &window.kept) {
            (Kind::Blocks, Some(kept)) => {
                let count = blocks.blocks(place.first, rows, job.all);
                let share = BlockShare::new(lane, rows, place, &window.arrays, kept, count, blocks.pivot)?;
                let items = share.level().rows;
                (Work::Blocks(Box::new(share)), items)
            }
            (Kind::Whole, _) => {
                (Work::Whole(Box::new(BatchShare::new(lane, rows, n, grain.rows, &window.arrays)?)), 0)
            }
            _ => {
                let share = Share::new(lane, rows, place, &window.arrays, grain.levels)?;
                let items = share.units().count;
                (Work::Tiles(Box::new(share)), items)
            }
        };
        before += items;
        let items = before - items..before;
        let (evicted, shared) = (k + lanes.len() < count, count > lanes.len());
        let (window, staged) = (window.clone(), options.pageable);
        Ok(Chunk { lane, at, first, rows, window, work, items, evicted, shared, staged })
    };
    let chunks: Vec<Chunk<'a, T>> = ranges.iter().enumerate().map(chunk).collect::<Result<_>>()?;
    let stage2 = match (stage2, &chunks[..]) {
        (Some(stage2), _) => stage2,
        (None, [chunk]) if !several => Stage2::of(chunk, job.cyclic, blocks)?,
        _ => Stage2::Nothing,
    };
    Ok(Cutting { chunks, stage2, kind, leaving, items })
}

/// Does something for every chunk of some lanes: one after the other, or with a thread for each lane.
pub(super) fn on_lanes<'c, 'a: 'c, T: Number, I: std::marker::Send>(
    threads: bool,
    work: Vec<(&'c Chunk<'a, T>, I)>,
    perform: impl Fn(&Chunk<'a, T>, I) -> Result<()> + Sync,
) -> Result<()> {
    if !threads || work.len() == 1 {
        return work.into_iter().try_for_each(|(chunk, item)| perform(chunk, item));
    }
    let lanes = work.iter().map(|(chunk, _)| chunk.at + 1).max().unwrap_or(0);
    let mut each: Vec<Vec<_>> = (0..lanes).map(|_| Vec::new()).collect();
    work.into_iter().for_each(|(chunk, item)| each[chunk.at].push((chunk, item)));
    std::thread::scope(|scope| {
        let perform = &perform;
        let one = |own: Vec<(&'c Chunk<'a, T>, I)>| {
            own.into_iter().try_for_each(|(chunk, item)| perform(chunk, item))
        };
        let running: Vec<_> = each.into_iter().map(|own| scope.spawn(move || one(own))).collect();
        let joined = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All are waited for, whether one failed or not.
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Consecutive parts of these lengths.
pub(super) fn split<T>(mut whole: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let part = |length| {
        let (part, rest) = std::mem::take(&mut whole).split_at_mut(length);
        whole = rest;
        part
    };
    lengths.map(part).collect()
}
