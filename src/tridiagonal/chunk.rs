//! Chunks: the rows of a plan, cut into runs that lanes work on.
//!
//! A lane has one window of memory. Where the rows of all windows together are the plan's, each chunk has a window of
//! its own and its rows stay there. Otherwise the chunks of a lane go through its window one after the other: up in
//! order, down in the opposite order, so that the rows of one need not be brought twice.

use std::ops::Range;
use std::sync::Arc;

use super::batch::{self, BatchShare};
use super::blocks::{BlockShare, Cut};
use super::interface::Piece;
use super::partition::{Arrays, Place, Share};
use super::plan::{PlanOptions, Send};
use super::unit::Number;
use crate::lane::{Buffer, HostArray, Lane, Launch};
use crate::{Error, Result};

/// Rows of a chunk at least, where chunks are made smaller until they fit.
const FEWEST_ROWS: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Chunk<'a, T> {
    pub(super) lane: &'a Lane,
    /// Which lane that is.
    pub(super) at: usize,
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) window: Arc<Window<T>>,
    pub(super) work: Work<T>,
    /// Its part of what goes to the host between the stages, and of what comes back.
    pub(super) piece: Range<usize>,
    pub(super) answer: Range<usize>,
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
            Work::Tiles(share) => share.up(),
            Work::Blocks(blocks) => blocks.up(),
            Work::Whole(_) => Vec::new(),
        }
    }

    pub(super) fn down(&self) -> Vec<&Launch> {
        match &self.work {
            Work::Tiles(share) => share.down(),
            Work::Blocks(blocks) => blocks.down(),
            Work::Whole(systems) => vec![systems.launch()],
        }
    }

    /// Takes what the host needs between the stages.
    pub(super) fn fetch_top(&self, piece: &mut [T]) -> Result<()> {
        match &self.work {
            Work::Tiles(share) => self.lane.fetch(share.root(), 0, piece),
            Work::Blocks(blocks) => self.lane.fetch(blocks.top(), 0, piece),
            Work::Whole(_) => Ok(()),
        }
    }

    /// What solves its rows, if it needs no other's: those of all rows in tiles where it has `all` of them.
    pub(super) fn whole(&self, all: bool) -> Option<Vec<&Launch>> {
        match &self.work {
            Work::Tiles(share) if all => Some(share.whole()),
            Work::Whole(systems) => Some(vec![systems.launch()]),
            _ => None,
        }
    }

    /// What it gave to the host, out of that of all chunks.
    pub(super) fn given<'p>(&self, pieces: &'p [T]) -> Piece<'p, T> {
        let piece = &pieces[self.piece.clone()];
        match &self.work {
            Work::Tiles(_) => Piece::Unit(piece),
            Work::Blocks(_) => Piece::Blocks(piece),
            Work::Whole(_) => Piece::Nothing,
        }
    }

    pub(super) fn put(&self, answer: &[T]) -> Result<()> {
        match &self.work {
            Work::Tiles(share) => self.lane.send(answer, share.ends(), 0),
            Work::Blocks(blocks) => {
                let mut targets = blocks.targets().into_iter();
                targets.try_for_each(|(buffer, at, which)| self.lane.send(&answer[which], buffer, at))
            }
            Work::Whole(_) => Ok(()),
        }
    }

    pub(super) fn flags(&self) -> Result<u32> {
        match &self.work {
            Work::Tiles(share) => share.flags(self.lane),
            Work::Blocks(blocks) => blocks.flags(self.lane),
            Work::Whole(systems) => systems.flags(self.lane),
        }
    }
}

/// Rows of a plan on its lanes.
pub(super) struct Job<'p, T> {
    pub(super) n: usize,
    pub(super) rows: usize,
    pub(super) cyclic: bool,
    pub(super) options: &'p PlanOptions,
    /// dl, d, du, b and x on the host.
    pub(super) arrays: &'p [HostArray<T>; 5],
}

impl<T> Job<'_, T> {
    /// Rows of a tile of whole systems, where they are so small.
    fn tile(&self) -> Option<usize> {
        let plain = self.options.block.is_none() && !self.cyclic;
        if plain { batch::tile(self.n, self.rows / self.n) } else { None }
    }
}

/// Chunks of all rows: one on each lane while there are rows, or, where these do not fit, as many more as it takes. In
/// the memory of `job.arrays` itself where a lane can work there.
pub(super) fn cut<'a, T: Number>(lanes: &'a [Lane], job: &Job<'_, T>) -> Result<Vec<Chunk<'a, T>>> {
    let mut parts = lanes.len();
    let mut first = None;
    loop {
        // Threads take eight rows, and small systems stay whole.
        let step = job.tile().unwrap_or(8);
        let size = job.rows.div_ceil(parts).next_multiple_of(step);
        match cut_into(lanes, job, size) {
            Err(e @ Error::OutOfMemory { .. }) if !job.options.resident => {
                let first = first.get_or_insert(e);
                if size <= FEWEST_ROWS {
                    return Err(std::mem::replace(first, Error::Interrupted));
                }
                parts *= 2;
            }
            done => return done,
        }
    }
}

/// Chunks of `size` rows.
fn cut_into<'a, T: Number>(lanes: &'a [Lane], job: &Job<'_, T>, size: usize) -> Result<Vec<Chunk<'a, T>>> {
    let Job { n, rows, cyclic, options, arrays } = *job;
    let count = rows.div_ceil(size);
    let blocks = options.block.is_some();
    let small = job.tile();
    let adopted = match lanes {
        [lane] if count == 1 && !blocks && !options.resident => Arrays::adopt(lane, arrays)?,
        _ => None,
    };
    let mut windows = match adopted {
        Some(arrays) => vec![Arc::new(Window { arrays, kept: None })],
        None => Vec::new(),
    };
    for lane in lanes.iter().take(count).skip(windows.len()) {
        let what = "what blocks keep for the way back";
        windows.push(Arc::new(Window {
            arrays: Arrays::new(lane, size.min(rows))?,
            kept: if blocks { Some(lane.alloc(what, 3 * size.min(rows))?) } else { None },
        }));
    }
    let (mut pieces, mut answers) = (0, 0);
    let chunk = |k: usize| {
        let (at, first) = (k % lanes.len(), k * size);
        let (lane, window) = (&lanes[at], &windows[at]);
        let place = Place { n, first, ring: cyclic };
        let rows = size.min(rows - first);
        let work = match (options.block, &window.kept) {
            // One row is no block: its unit says all.
            (Some(block), Some(kept)) if rows > 1 => {
                let cut = Cut { block, host: options.interface_on_host, pivot: options.pivot };
                Work::Blocks(Box::new(BlockShare::new(lane, rows, place, &window.arrays, kept, cut)?))
            }
            _ => match small {
                Some(tile) => Work::Whole(Box::new(BatchShare::new(lane, rows, n, tile, &window.arrays)?)),
                None => Work::Tiles(Box::new(Share::new(lane, rows, place, &window.arrays)?)),
            },
        };
        let (piece, answer) = match &work {
            Work::Tiles(_) => (6, 2),
            Work::Blocks(blocks) => (blocks.top().len(), blocks.top().len() / 4 + 1),
            Work::Whole(_) => (0, 0),
        };
        (pieces, answers) = (pieces + piece, answers + answer);
        let (piece, answer) = (pieces - piece..pieces, answers - answer..answers);
        let (evicted, shared) = (k + lanes.len() < count, count > lanes.len());
        let (window, staged) = (window.clone(), options.pageable);
        Ok(Chunk { lane, at, first, rows, window, work, piece, answer, evicted, shared, staged })
    };
    (0..count).map(chunk).collect()
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
