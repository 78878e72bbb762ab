//! A plan: one system shape on some lanes, solved as often as wanted.
//!
//! The rows are cut into chunks, one a lane, or more where the lanes' memory does not hold them all. Each goes through
//! stage 1 (up to some [`Unit`](super::unit::Unit)s, or to the interface system of its blocks) and stage 3 (down from the
//! unknowns that were found for it); in between one lane solves the interface system of all chunks, those of other ranks
//! included. Copies and kernels of different lanes overlap; what cannot overlap is the barrier between the two stages, since
//! every unknown depends on every row. Which units are joined with which depends on the number of all rows alone, so that
//! lanes, chunks and ranks change no bit.

use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use super::chunk::{Chunk, Job, Kind, Pieces, cut, on_lanes, split};
use super::leaving::Leaving;
use super::partition::{Arrays, padded};
use super::rows::Span;
use super::stage2::Stage2;
use super::unit::Number;
use crate::lane::{HostArray, Lane, Launch};
use crate::{Error, Result};

/// Seconds of the stages of a solution, host to host.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Stages {
    /// Diagonals and right-hand side to the devices.
    pub upload: f64,
    /// Stage 1: chunks become units.
    pub reduce: f64,
    /// Units to the host.
    pub units_down: f64,
    /// The interface system of all chunks, on one lane.
    pub interface: f64,
    /// The unknowns between chunks to the devices.
    pub ends_up: f64,
    /// Stage 3: the unknowns of each chunk.
    pub solve: f64,
    /// Unknowns to the host.
    pub download: f64,
    /// From the first to the last; less than the sum where lanes overlap.
    pub total: f64,
}

/// How a plan works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanOptions {
    /// Rows of a block that one thread eliminates, 3 or more; `None`: units of 128 rows, each of 32 threads.
    pub block: Option<usize>,
    /// With blocks: whether the interface system goes to the host as it is, instead of being solved on the device.
    pub interface_on_host: bool,
    /// With blocks: whether rows may be exchanged.
    pub pivot: bool,
    /// Whether inputs and unknowns lie in memory that is not page-locked, where lanes could have it so.
    pub pageable: bool,
    /// Whether there are no arrays on the host: all is on the devices, see [`Plan::solve_resident`].
    pub resident: bool,
}

impl PlanOptions {
    fn host_array<T: bytemuck::Pod>(&self, lane: &Lane, what: &str, len: usize) -> Result<HostArray<T>> {
        crate::lane::cpu::expect_memory((len * size_of::<T>()) as u64, || what.to_owned())?;
        if self.pageable { Ok(HostArray::plain(len)) } else { lane.host_array(len) }
    }
}

/// Chunks of a system on lanes.
#[derive(Debug)]
pub struct Plan<'a, T> {
    span: Span,
    options: PlanOptions,
    chunks: Vec<Chunk<'a, T>>,
    /// The lane that does stage 2, on rank 0, and what is done on each rank before.
    home: &'a Lane,
    leaving: Option<Leaving<T>>,
    stage2: Stage2<T>,
    pieces: Pieces<T>,
    /// dl, d, du, b and x on the host.
    arrays: [HostArray<T>; 5],
    /// Pivots that the host had to replace in the interface system.
    replaced: u32,
}

/// Which of a plan's inputs a solution brings to the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    /// Diagonals and right-hand side.
    All,
    /// The right-hand side alone: the diagonals are those of the solution before.
    RightHandSide,
    /// Nothing: all is on the devices.
    Nothing,
}

/// The inputs of a plan, to be filled.
#[derive(Debug)]
pub struct Inputs<'p, T> {
    /// Lower diagonals.
    pub dl: &'p mut [T],
    /// Diagonals.
    pub d: &'p mut [T],
    /// Upper diagonals.
    pub du: &'p mut [T],
    /// Right-hand sides.
    pub b: &'p mut [T],
}

impl<'a, T: Number> Plan<'a, T> {
    /// As [`Plan::with`], in tiles.
    ///
    /// # Errors
    /// As [`Plan::with`].
    pub fn new(lanes: &'a [Lane], n: usize, batch: usize, cyclic: bool) -> Result<Self> {
        Self::with(lanes, n, batch, cyclic, &PlanOptions::default())
    }

    /// Memory for `batch` systems of `n` rows each, one behind the other, in equal chunks on the lanes. A cyclic
    /// system is one system, in tiles.
    ///
    /// # Errors
    /// If there is no row, or a lane's memory does not suffice: [`Error::OutOfMemory`] names the sizes.
    pub fn with(
        lanes: &'a [Lane],
        n: usize,
        batch: usize,
        cyclic: bool,
        options: &PlanOptions,
    ) -> Result<Self> {
        Self::of(lanes, Span::whole(n, batch, cyclic), options)
    }

    /// As [`Plan::with`], for the rows of `span`, which may be those of a rank: a plan of several ranks is made by all of
    /// them, with the same options, and so is everything that it does.
    pub(crate) fn of(lanes: &'a [Lane], span: Span, options: &PlanOptions) -> Result<Self> {
        let Span { n, batch, rows, cyclic, .. } = span;
        let Some(home) = lanes.first().filter(|_| span.all() > 0) else {
            return Err(Error::Invalid(format!("{batch} systems of {n} rows on {} lanes", lanes.len())));
        };
        if cyclic && (batch > 1 || options.block.is_some()) {
            return Err(Error::Invalid(format!(
                "a plan for {batch} cyclic systems{}; a plan takes one, in tiles",
                if options.block.is_some() { " in blocks" } else { "" }
            )));
        }
        if rows.min(n) >= 1 << 31 {
            return Err(Error::Invalid(format!(
                "{} rows; a system has at most {} in one process, more on several ranks",
                rows.min(n),
                (1u64 << 31) - 1
            )));
        }
        let block = options.block.unwrap_or(3);
        if block < 3 {
            return Err(Error::Invalid(format!(
                "blocks of {block} rows; 3 are needed for something to lie between the ends"
            )));
        }
        // Where a lane works in these arrays, it reads and writes whole groups of rows.
        let on_host = if options.resident { 0 } else { padded(rows) };
        let host = |what: &str| options.host_array(home, what, on_host);
        let made = || {
            let [dl, d, du, b, x] = ["dl", "d", "du", "b", "x"].map(host);
            Ok([dl?, d?, du?, b?, x?])
        };
        let arrays = span.ranks.all_ok(made())?;
        let (chunks, stage2, pieces) = (Vec::new(), Stage2::Nothing, Pieces::none());
        let leaving = None;
        let mut plan =
            Self { span, options: *options, chunks, home, leaving, stage2, pieces, arrays, replaced: 0 };
        plan.relane(lanes)?;
        Ok(plan)
    }

    /// Goes on with one system of the first `n` rows on other lanes, in the memory that is there on the host.
    ///
    /// # Errors
    /// If there is no row, or there are more than the plan was made for; devices' errors, as of [`Plan::relane`].
    pub(crate) fn reshape(&mut self, lanes: &'a [Lane], n: usize) -> Result<()> {
        let most = self.arrays[0].len();
        if n == 0 || n > most {
            return Err(Error::Invalid(format!("{n} rows in a plan that was made for {most}")));
        }
        self.span = Span::whole(n, 1, false);
        self.relane(lanes)
    }

    /// Goes on with the same systems on other lanes.
    ///
    /// # Errors
    /// If there is no lane; devices' errors, after which the plan must be given lanes again before it solves.
    pub(crate) fn relane(&mut self, lanes: &'a [Lane]) -> Result<()> {
        let Some(home) = lanes.first() else {
            return Err(Error::Invalid(format!("{} rows on no lane", self.span.rows)));
        };
        // The devices may hold no more than one of both.
        self.chunks.clear();
        (self.leaving, self.stage2, self.home) = (None, Stage2::Nothing, home);
        let Span { n, first, rows, cyclic, ranks, .. } = self.span;
        let (options, arrays) = (&self.options, &self.arrays);
        let job = Job { n, first, rows, all: self.span.all(), cyclic, ranks, options, arrays };
        let cutting = ranks.all_ok(cut(lanes, &job))?;
        // Alone, a chunk keeps its piece.
        let alone = cutting.chunks.len() == 1 && !ranks.is_distributed();
        let own = cutting.chunks.last().map_or(0, |last| last.items.end);
        let sent = cutting.leaving.as_ref().map_or(own, Leaving::count);
        let room = if ranks.is_root() { own.max(cutting.items) } else { own };
        let items = if alone { [0; 2] } else { [sent, room] };
        let what = "the interface system";
        let numbers = |len| options.host_array::<T>(home, what, len);
        let flags = |len| options.host_array::<u32>(home, what, len);
        self.pieces = ranks.all_ok(Pieces::new(cutting.kind, items, numbers, flags))?;
        (self.chunks, self.leaving, self.stage2) = (cutting.chunks, cutting.leaving, cutting.stage2);
        Ok(())
    }

    /// Rows of one system.
    pub fn n(&self) -> usize {
        self.span.n
    }

    /// Rows of all systems; of those here, on several ranks.
    pub fn rows(&self) -> usize {
        self.span.rows
    }

    /// Chunks, one on each lane that has rows, or more.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Whether the lanes do not hold all rows at once, so that each goes there twice.
    pub fn streamed(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.shared)
    }

    /// Whether inputs and unknowns are page-locked.
    pub fn locked(&self) -> bool {
        self.arrays[0].locked()
    }

    /// The inputs, to be filled before [`Plan::solve`].
    pub fn inputs(&mut self) -> Inputs<'_, T> {
        let rows = self.span.rows;
        let [dl, d, du, b, _] = &mut self.arrays;
        Inputs { dl: &mut dl[..rows], d: &mut d[..rows], du: &mut du[..rows], b: &mut b[..rows] }
    }

    /// dl, d, du and b, as filled.
    pub(crate) fn given(&self) -> [&[T]; 4] {
        std::array::from_fn(|k| &self.arrays[k][..self.span.rows])
    }

    /// The unknowns, after [`Plan::solve`].
    pub fn x(&self) -> &[T] {
        &self.arrays[4][..self.span.rows]
    }

    /// A chunk's arrays on its lane, and its first row: for data that a program brings there by itself.
    pub fn on_device(&mut self, chunk: usize) -> (&Arrays<T>, usize) {
        (&self.chunks[chunk].window.arrays, self.chunks[chunk].first)
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots of all chunks.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn flags(&self) -> Result<u32> {
        let known = || {
            let stage2 = self.stage2.flags(self.home)?;
            let chunks = self.chunks.iter().map(Chunk::flags).collect::<Result<Vec<u32>>>()?;
            let leaving = self.leaving.as_ref().map_or(Ok(0), |leaving| leaving.flags(self.home))?;
            Ok(Stage2::<T>::together(chunks.into_iter().chain([stage2, leaving, self.replaced])))
        };
        let ranks = self.span.ranks;
        let known = ranks.all_ok(known())?;
        Ok(Stage2::<T>::together(ranks.all_gather(&[known]).into_iter().flatten()))
    }

    /// Bytes on the devices.
    pub fn device_bytes(&self) -> u64 {
        let window = |chunk: &Chunk<'a, T>| if chunk.evicted { 0 } else { chunk.window.bytes() };
        self.chunks.iter().map(|chunk| window(chunk) + chunk.work.bytes()).sum::<u64>()
            + self.leaving.as_ref().map_or(0, Leaving::bytes)
            + self.stage2.bytes()
    }

    /// The chunk that is everything, if one is.
    fn everything(&self) -> Option<&Chunk<'a, T>> {
        match &self.chunks[..] {
            [chunk] if !self.span.ranks.is_distributed() => Some(chunk),
            _ => None,
        }
    }

    /// The same and all its launches, where no host is needed between its stages.
    fn alone(&self) -> Option<(&Chunk<'a, T>, Vec<&Launch>)> {
        let chunk = self.everything()?;
        let stage2 = self.stage2.launches()?;
        Some((chunk, [chunk.up(), stage2, chunk.down()].concat()))
    }

    /// Whether systems ask nothing of one another.
    fn apart(&self) -> bool {
        self.pieces.kind == Kind::Whole
    }

    /// Solves, with all lanes at work at the same time. Stages of different lanes overlap: `total` is the time that
    /// passed, the others are zero but for the interface; [`Plan::solve_by_stages`] measures them.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn solve(&mut self, send: Send) -> Result<Stages> {
        let started = Instant::now();
        let done = self.overlapped(send);
        // Whatever happened, no copy is left that still touches the arrays.
        let finished = self.chunks.iter().try_for_each(|chunk| chunk.lane.finish());
        let interface = done?;
        finished?;
        Ok(Stages { interface, total: started.elapsed().as_secs_f64(), ..Stages::default() })
    }

    /// Puts everything into the queues, and gives the seconds that the host worked on the interface system.
    fn overlapped(&mut self, send: Send) -> Result<f64> {
        // CUDA's queues take everything at once; others are worked on by a thread each, and so are copies through staging.
        let queues = self.chunks.iter().all(|chunk| chunk.lane.device().queued_copies);
        let threads = !queues || self.options.pageable;
        let [.., x] = &mut self.arrays;
        let x = std::mem::replace(x, HostArray::plain(0));
        let mut x = Restore { x, plan: self };
        let (plan, x) = (&mut *x.plan, &mut x.x);
        if let Some((chunk, whole)) = plan.alone() {
            chunk.upload(&plan.arrays, send)?;
            chunk.lane.enqueue(&whole)?;
            chunk.fetch(&mut x[..plan.span.rows])?;
            chunk.lane.finish()?;
            return Ok(0.0);
        }
        let ranks = plan.span.ranks;
        let finish = |chunks: &[Chunk<'a, T>]| chunks.iter().try_for_each(|chunk| chunk.lane.finish());
        let arrays = &plan.arrays;
        if plan.apart() {
            let xs = split(x, plan.chunks.iter().map(|c| c.rows));
            let done = on_lanes(threads, plan.chunks.iter().zip(xs).collect(), |chunk, x| {
                chunk.upload(arrays, send)?;
                chunk.lane.enqueue(&chunk.down())?;
                chunk.fetch(x)
            });
            return ranks.all_ok(done.and_then(|()| finish(&plan.chunks))).map(|()| 0.0);
        }
        let direct = plan.everything().is_some();
        let pieces = plan.pieces.split(&plan.chunks);
        let up = on_lanes(threads, plan.chunks.iter().zip(pieces).collect(), |chunk, piece| {
            chunk.upload(arrays, send)?;
            chunk.lane.enqueue(&chunk.up())?;
            if direct { Ok(()) } else { chunk.fetch_piece(piece) }
        });
        let (home, leaving, pieces) = (plan.home, &plan.leaving, &mut plan.pieces);
        let join = |()| leaving.as_ref().map_or(Ok(()), |leaving| leaving.join(home, pieces));
        ranks.all_ok(up.and_then(|()| finish(&plan.chunks)).and_then(join))?;
        let at = Instant::now();
        plan.gather();
        plan.stage2()?;
        let interface = at.elapsed().as_secs_f64();
        let part = |leaving: &Leaving<T>| leaving.part(plan.home, &mut plan.pieces);
        let parted = plan.leaving.as_ref().map_or(Ok(()), part);
        let (arrays, answers) = (&plan.arrays, &plan.pieces.answers);
        let xs = split(x, plan.chunks.iter().map(|c| c.rows));
        let down = |()| {
            on_lanes(threads, plan.chunks.iter().zip(xs).rev().collect(), |chunk, x| {
                chunk.upload_again(arrays)?;
                if !direct {
                    chunk.put(answers)?;
                }
                chunk.lane.enqueue(&chunk.down())?;
                chunk.fetch(x)
            })
        };
        ranks.all_ok(parted.and_then(down).and_then(|()| finish(&plan.chunks)))?;
        Ok(interface)
    }

    /// Brings the pieces of all ranks to the first.
    fn gather(&mut self) {
        let ranks = self.span.ranks;
        if !ranks.is_distributed() {
            return;
        }
        let Pieces { sent: own, room, .. } = self.pieces;
        let (width, _) = self.pieces.width();
        // One list a rank: its numbers, and flags of units behind them.
        let columns = if self.pieces.kind == Kind::Blocks { width } else { 1 };
        let wide = width / columns;
        let Pieces { numbers, flags, .. } = &mut self.pieces;
        let mut mine: Vec<f64> = Vec::with_capacity((width + 1) * own);
        for column in numbers.chunks(wide * room.max(1)) {
            mine.extend(column[..wide * own].iter().map(|v| v.wide()));
        }
        let flagged = if flags.is_empty() { 0 } else { own };
        mine.extend(flags[..flagged].iter().map(|&f| f64::from(f)));
        let counts = ranks.all_gather(&[own as u64]);
        let all = ranks.gather_to_root(&mine);
        if !ranks.is_root() {
            return;
        }
        let (mut from, mut to) = (&all[..], 0);
        let mut take = |count: usize| {
            let (part, rest) = from.split_at(count);
            from = rest;
            part
        };
        for count in counts.iter().map(|count| count[0] as usize) {
            for column in numbers.chunks_mut(wide * room.max(1)) {
                let into = &mut column[wide * to..wide * (to + count)];
                into.iter_mut().zip(take(wide * count)).for_each(|(to, v)| *to = T::of(*v));
            }
            if !flags.is_empty() {
                flags[to..to + count].iter_mut().zip(take(count)).for_each(|(to, v)| *to = *v as u32);
            }
            to += count;
        }
    }

    /// Solves the interface system of all ranks on the first, and brings each what it asks for.
    fn stage2(&mut self) -> Result<()> {
        let ranks = self.span.ranks;
        let Self { home, stage2, pieces, chunks, options, .. } = self;
        let everything = if ranks.is_distributed() { None } else { chunks.first() };
        let mut perform = || {
            stage2.bring(home, pieces)?;
            let replaced = stage2.perform(home, everything, pieces, options.pivot)?;
            stage2.take(home, pieces)?;
            home.finish()?;
            Ok(replaced)
        };
        let done = perform();
        self.replaced = ranks.all_ok(done)?;
        if ranks.is_distributed() {
            let (_, width) = self.pieces.width();
            // Of an interface system also the unknown behind.
            let behind = usize::from(self.pieces.kind == Kind::Blocks);
            let counts = ranks.all_gather(&[self.pieces.sent as u64]);
            let mut at = 0;
            let lists = counts.iter().map(|count| {
                let here = width * at..width * (at + count[0] as usize) + behind;
                at += count[0] as usize;
                here
            });
            let lists: Vec<_> = lists.collect();
            let answers = &self.pieces.answers;
            let list =
                |rank: usize| answers[lists[rank].clone()].iter().map(|v| v.wide()).collect::<Vec<f64>>();
            let mine = ranks.scatter_from_root(lists[ranks.rank()].len(), list);
            self.pieces.answers.iter_mut().zip(mine).for_each(|(to, v)| *to = T::of(v));
        }
        Ok(())
    }

    /// Solves with one stage after the other on all lanes, and measures each: what the model of the lane count needs.
    ///
    /// # Errors
    /// If a device is lost, or the lanes do not hold all rows at once.
    pub fn solve_by_stages(&mut self, send: Send) -> Result<Stages> {
        if self.streamed() {
            return Err(Error::Invalid(format!(
                "{} rows in {} chunks go through the lanes one after the other; their stages cannot be told apart",
                self.span.rows,
                self.chunks.len()
            )));
        }
        let direct = self.everything().is_some();
        let started = Instant::now();
        let mut before = started;
        let mut lap = || {
            let now = Instant::now();
            (now - std::mem::replace(&mut before, now)).as_secs_f64()
        };
        let wait = |chunks: &[Chunk<'a, T>]| chunks.iter().try_for_each(|chunk| chunk.lane.launch(&[], 0));
        for chunk in &self.chunks {
            chunk.upload(&self.arrays, send)?;
        }
        wait(&self.chunks)?;
        let upload = lap();
        self.chunks.iter().try_for_each(|chunk| chunk.lane.enqueue(&chunk.up()))?;
        wait(&self.chunks)?;
        let reduce = lap();
        if !direct {
            for (chunk, piece) in self.chunks.iter().zip(self.pieces.split(&self.chunks)) {
                chunk.fetch_piece(piece)?;
            }
        }
        wait(&self.chunks)?;
        let units_down = lap();
        self.stage2()?;
        let interface = lap();
        if !direct {
            for chunk in &self.chunks {
                chunk.put(&self.pieces.answers)?;
            }
        }
        wait(&self.chunks)?;
        let ends_up = lap();
        self.chunks.iter().try_for_each(|chunk| chunk.lane.enqueue(&chunk.down()))?;
        wait(&self.chunks)?;
        let solve = lap();
        let [.., x] = &mut self.arrays;
        let xs = split(x, self.chunks.iter().map(|c| c.rows));
        for (chunk, x) in self.chunks.iter().zip(xs) {
            chunk.fetch(x)?;
        }
        wait(&self.chunks)?;
        let download = lap();
        let total = started.elapsed().as_secs_f64();
        Ok(Stages { upload, reduce, units_down, interface, ends_up, solve, download, total })
    }

    /// Solves what is on the device `times` times, without any copy, and gives the seconds of one.
    ///
    /// # Errors
    /// If a device is lost, or there is more than one chunk, or it needs the host.
    pub fn solve_resident(&mut self, times: u64) -> Result<f64> {
        let Some((chunk, whole)) = self.alone() else {
            return Err(Error::Invalid(format!(
                "{} chunks{}; resident data are solved on one lane, in tiles",
                self.chunks.len(),
                if self.options.block.is_some() { " in blocks" } else { "" }
            )));
        };
        let program = crate::lane::Program { cycle: vec![whole] };
        let started = Instant::now();
        chunk.lane.run(&program, 0, times, &mut |_| Ok(()))?;
        Ok(started.elapsed().as_secs_f64() / times as f64)
    }
}

/// The unknowns, taken out of their plan for a while; dropped, they are back.
struct Restore<'p, 'a, T> {
    x: HostArray<T>,
    plan: &'p mut Plan<'a, T>,
}

impl<T> Drop for Restore<'_, '_, T> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.x, &mut self.plan.arrays[4]);
    }
}

/// Copies numbers of another precision, on all threads.
pub(crate) fn convert<S: Number, T: Number>(from: &[S], to: &mut [T]) {
    const BLOCK: usize = 1 << 14;
    let blocks = to.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK));
    blocks.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(from.wide())));
}
