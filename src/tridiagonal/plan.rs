//! A plan: one system shape on some lanes, solved as often as wanted.
//!
//! The rows are cut into chunks, one a lane. Each goes through stage 1 (up to one [`Unit`], or to the interface system
//! of its blocks) and stage 3 (down from the unknowns that the host found for it); in between the host solves the
//! interface system of all chunks. Copies and kernels of different lanes overlap; what cannot overlap is the barrier
//! between the two stages, since every unknown depends on every row.

use std::ops::Range;
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use super::blocks::{BlockShare, Cut};
use super::kernels::both;
use super::partition::{Arrays, Place, Share};
use super::pivot;
use super::unit::{Number, Unit};
use crate::lane::cpu::simd::PORTABLE;
use crate::lane::{Buffer, HostArray, Lane, Launch};
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
    /// The interface system of the units, on the host.
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
    fn host_array<T: Number>(&self, lane: &Lane, what: &str, len: usize) -> Result<HostArray<T>> {
        match self.pageable {
            true => {
                crate::lane::cpu::expect_memory((len * size_of::<T>()) as u64, || what.to_owned())?;
                Ok(HostArray::plain(len))
            }
            false => lane.host_array(len),
        }
    }
}

/// Chunks of a system on lanes.
#[derive(Debug)]
pub struct Plan<'a, T> {
    n: usize,
    rows: usize,
    cyclic: bool,
    options: PlanOptions,
    chunks: Vec<Chunk<'a, T>>,
    /// Interface systems of all chunks, and what the host found for them; each chunk's range in both.
    pieces: HostArray<T>,
    answers: HostArray<T>,
    /// dl, d, du, b and x on the host.
    arrays: [HostArray<T>; 5],
    /// Pivots that the host had to replace in the interface system.
    replaced: u32,
}

#[derive(Debug)]
struct Chunk<'a, T> {
    lane: &'a Lane,
    first: usize,
    rows: usize,
    arrays: Arrays<T>,
    work: Work<T>,
    piece: Range<usize>,
    answer: Range<usize>,
}

#[derive(Debug)]
enum Work<T> {
    Tiles(Share<T>),
    Blocks(BlockShare<T>),
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
        let rows = n.checked_mul(batch).unwrap_or(usize::MAX);
        if rows == 0 || lanes.is_empty() {
            return Err(Error::Invalid(format!("{batch} systems of {n} rows on {} lanes", lanes.len())));
        }
        if cyclic && (batch > 1 || options.block.is_some()) {
            return Err(Error::Invalid(format!(
                "a plan for {batch} cyclic systems{}; a plan takes one, in tiles",
                if options.block.is_some() { " in blocks" } else { "" }
            )));
        }
        if n >= 1 << 31 {
            return Err(Error::Invalid(format!("{n} rows; a system has at most {}", (1u64 << 31) - 1)));
        }
        let block = options.block.unwrap_or(3);
        if block < 3 {
            return Err(Error::Invalid(format!(
                "blocks of {block} rows; 3 are needed for something to lie between the ends"
            )));
        }
        let (chunks, pieces, answers) = cut(lanes, n, rows, cyclic, options)?;
        let host = |what: &str, len: usize| options.host_array(&lanes[0], what, len);
        let rows_on_host = if options.resident { 0 } else { rows };
        let [dl, d, du, b, x] = ["dl", "d", "du", "b", "x"].map(|what| host(what, rows_on_host));
        Ok(Self {
            n,
            rows,
            cyclic,
            options: *options,
            chunks,
            pieces: host("the interface system", pieces)?,
            answers: host("the interface system", answers)?,
            arrays: [dl?, d?, du?, b?, x?],
            replaced: 0,
        })
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
        (self.n, self.rows, self.cyclic) = (n, n, false);
        self.relane(lanes)
    }

    /// Goes on with the same systems on other lanes.
    ///
    /// # Errors
    /// If there is no lane; devices' errors, after which the plan must be given lanes again before it solves.
    pub(crate) fn relane(&mut self, lanes: &'a [Lane]) -> Result<()> {
        let Some(lane) = lanes.first() else {
            return Err(Error::Invalid(format!("{} rows on no lane", self.rows)));
        };
        // The devices may hold no more than one of both.
        self.chunks.clear();
        let (chunks, pieces, answers) = cut(lanes, self.n, self.rows, self.cyclic, &self.options)?;
        self.pieces = self.options.host_array(lane, "the interface system", pieces)?;
        self.answers = self.options.host_array(lane, "the interface system", answers)?;
        self.chunks = chunks;
        Ok(())
    }

    /// Rows of one system.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Rows of all systems.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Chunks, one on each lane that has rows.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Whether inputs and unknowns are page-locked.
    pub fn locked(&self) -> bool {
        self.arrays[0].locked()
    }

    /// The inputs, to be filled before [`Plan::solve`].
    pub fn inputs(&mut self) -> Inputs<'_, T> {
        let rows = self.rows;
        let [dl, d, du, b, _] = &mut self.arrays;
        Inputs { dl: &mut dl[..rows], d: &mut d[..rows], du: &mut du[..rows], b: &mut b[..rows] }
    }

    /// dl, d, du and b, as filled.
    pub(crate) fn given(&self) -> [&[T]; 4] {
        std::array::from_fn(|k| &self.arrays[k][..self.rows])
    }

    /// The unknowns, after [`Plan::solve`].
    pub fn x(&self) -> &[T] {
        &self.arrays[4][..self.rows]
    }

    /// A chunk's arrays on its lane, and its first row: for data that a program brings there by itself.
    pub fn on_device(&self, chunk: usize) -> (&Arrays<T>, usize) {
        (&self.chunks[chunk].arrays, self.chunks[chunk].first)
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots of all chunks.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn flags(&self) -> Result<u32> {
        self.chunks.iter().try_fold(self.replaced, |flags, chunk| {
            let own = match &chunk.work {
                Work::Tiles(share) => share.flags(chunk.lane)?,
                Work::Blocks(blocks) => blocks.flags(chunk.lane)?,
            };
            Ok(both(flags, own))
        })
    }

    /// Bytes on the devices.
    pub fn device_bytes(&self) -> u64 {
        let work = |work: &Work<T>| match work {
            Work::Tiles(share) => share.bytes(),
            Work::Blocks(blocks) => blocks.bytes(),
        };
        self.chunks.iter().map(|chunk| chunk.arrays.bytes() + work(&chunk.work)).sum()
    }

    /// Whether a chunk is everything, and no host is needed between its stages.
    fn alone(&self) -> Option<(&Chunk<'a, T>, Vec<&Launch>)> {
        match &self.chunks[..] {
            [chunk] => match &chunk.work {
                Work::Tiles(share) => Some((chunk, share.whole())),
                Work::Blocks(_) => None,
            },
            _ => None,
        }
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
        // CUDA's queues take everything at once; others are worked on by a thread each.
        let threads = !self.chunks.iter().all(|chunk| chunk.lane.device().backend == "cuda");
        let [.., x] = &mut self.arrays;
        let x = std::mem::replace(x, HostArray::plain(0));
        let mut x = Restore { x, plan: self };
        let (plan, x) = (&mut *x.plan, &mut x.x);
        if let Some((chunk, whole)) = plan.alone() {
            chunk.upload(&plan.arrays, send)?;
            chunk.lane.enqueue(&whole)?;
            chunk.lane.fetch(&chunk.arrays.x, 0, &mut x[..plan.rows])?;
            chunk.lane.finish()?;
            return Ok(0.0);
        }
        let arrays = &plan.arrays;
        let pieces = split(&mut plan.pieces, plan.chunks.iter().map(|c| c.piece.len()));
        let work: Vec<_> = plan.chunks.iter().zip(pieces).collect();
        on_lanes(threads, work, |(chunk, piece)| {
            chunk.upload(arrays, send)?;
            chunk.lane.enqueue(&chunk.up())?;
            chunk.lane.fetch(chunk.top(), 0, piece)
        })?;
        plan.chunks.iter().try_for_each(|chunk| chunk.lane.finish())?;
        let at = Instant::now();
        plan.interface();
        let interface = at.elapsed().as_secs_f64();
        let (answers, xs) = (&plan.answers, split(x, plan.chunks.iter().map(|c| c.rows)));
        let work: Vec<_> = plan.chunks.iter().zip(xs).collect();
        on_lanes(threads, work, |(chunk, x)| {
            chunk.put(&answers[chunk.answer.clone()])?;
            chunk.lane.enqueue(&chunk.down())?;
            chunk.lane.fetch(&chunk.arrays.x, 0, x)
        })?;
        plan.chunks.iter().try_for_each(|chunk| chunk.lane.finish())?;
        Ok(interface)
    }

    /// Solves with one stage after the other on all lanes, and measures each: what the model of the lane count needs.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn solve_by_stages(&mut self, send: Send) -> Result<Stages> {
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
        let pieces = split(&mut self.pieces, self.chunks.iter().map(|c| c.piece.len()));
        for (chunk, piece) in self.chunks.iter().zip(pieces) {
            chunk.lane.fetch(chunk.top(), 0, piece)?;
        }
        wait(&self.chunks)?;
        let units_down = lap();
        self.interface();
        let interface = lap();
        for chunk in &self.chunks {
            chunk.put(&self.answers[chunk.answer.clone()])?;
        }
        wait(&self.chunks)?;
        let ends_up = lap();
        self.chunks.iter().try_for_each(|chunk| chunk.lane.enqueue(&chunk.down()))?;
        wait(&self.chunks)?;
        let solve = lap();
        let [.., x] = &mut self.arrays;
        let xs = split(x, self.chunks.iter().map(|c| c.rows));
        for (chunk, x) in self.chunks.iter().zip(xs) {
            chunk.lane.fetch(&chunk.arrays.x, 0, x)?;
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
    pub fn solve_resident(&self, times: u64) -> Result<f64> {
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

    /// The interface system of all chunks, on the host: from `pieces` to `answers`.
    fn interface(&mut self) {
        if self.chunks.iter().all(|chunk| matches!(chunk.work, Work::Tiles(_))) {
            let units: Vec<Unit<T>> = self.pieces.chunks_exact(6).map(Unit::of).collect();
            let ends = join(&units, self.cyclic);
            self.answers.chunks_exact_mut(2).zip(ends).for_each(|(to, ends)| to.copy_from_slice(&ends));
            return;
        }
        // Rows of all chunks one behind the other; a chunk of one row is a unit: x = u0 − u1·x_left − u2·x_right.
        let mut system: [Vec<f64>; 4] = Default::default();
        for chunk in &self.chunks {
            let piece = &self.pieces[chunk.piece.clone()];
            match &chunk.work {
                Work::Tiles(_) => {
                    let row = [piece[1].wide(), 1.0, piece[2].wide(), piece[0].wide()];
                    system.iter_mut().zip(row).for_each(|(all, v)| all.push(v));
                }
                Work::Blocks(_) => {
                    let parts = piece.chunks_exact(piece.len() / 4);
                    system
                        .iter_mut()
                        .zip(parts)
                        .for_each(|(all, part)| all.extend(part.iter().map(|v| v.wide())));
                }
            }
        }
        let x;
        (x, self.replaced) = match self.options.pivot {
            true => pivot::solve_replaced(&system),
            false => (thomas(&system), 0),
        };
        let mut at = 0usize;
        for chunk in &self.chunks {
            let answer = &mut self.answers[chunk.answer.clone()];
            let of = |i: usize| x.get(i).map_or(T::ZERO, |&x| T::of(x));
            match &chunk.work {
                Work::Tiles(_) => {
                    answer.copy_from_slice(&[at.checked_sub(1).map_or(T::ZERO, of), of(at + 1)]);
                    at += 1;
                }
                Work::Blocks(_) => {
                    answer.iter_mut().enumerate().for_each(|(k, v)| *v = of(at + k));
                    at += answer.len() - 1;
                }
            }
        }
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

impl<T: Number> Chunk<'_, T> {
    fn upload(&self, [dl, d, du, b, _]: &[HostArray<T>; 5], send: Send) -> Result<()> {
        let here = self.first..self.first + self.rows;
        let to = &self.arrays;
        if send == Send::All {
            self.lane.send(&dl[here.clone()], &to.dl, 0)?;
            self.lane.send(&d[here.clone()], &to.d, 0)?;
            self.lane.send(&du[here.clone()], &to.du, 0)?;
        }
        if send != Send::Nothing {
            self.lane.send(&b[here], &to.b, 0)?;
        }
        Ok(())
    }

    fn up(&self) -> Vec<&Launch> {
        match &self.work {
            Work::Tiles(share) => share.up(),
            Work::Blocks(blocks) => blocks.up(),
        }
    }

    fn down(&self) -> Vec<&Launch> {
        match &self.work {
            Work::Tiles(share) => share.down(),
            Work::Blocks(blocks) => blocks.down(),
        }
    }

    fn top(&self) -> &Buffer<T> {
        match &self.work {
            Work::Tiles(share) => share.root(),
            Work::Blocks(blocks) => blocks.top(),
        }
    }

    fn put(&self, answer: &[T]) -> Result<()> {
        match &self.work {
            Work::Tiles(share) => self.lane.send(answer, share.ends(), 0),
            Work::Blocks(blocks) => {
                let mut targets = blocks.targets().into_iter();
                targets.try_for_each(|(buffer, at, which)| self.lane.send(&answer[which], buffer, at))
            }
        }
    }
}

/// Chunks of all rows on the lanes, one each while there are rows; and the lengths of what they give to the host and
/// take from it.
fn cut<'a, T: Number>(
    lanes: &'a [Lane],
    n: usize,
    rows: usize,
    cyclic: bool,
    options: &PlanOptions,
) -> Result<(Vec<Chunk<'a, T>>, usize, usize)> {
    let size = rows.div_ceil(lanes.len()).next_multiple_of(8);
    let (mut pieces, mut answers) = (0, 0);
    let chunks = (0..rows)
        .step_by(size)
        .zip(lanes)
        .map(|(first, lane)| {
            let place = Place { n, first, ring: cyclic };
            let rows = size.min(rows - first);
            // One row is no block: its unit says all.
            let arrays = Arrays::new(lane, rows)?;
            let work = match options.block {
                Some(block) if rows > 1 => {
                    let cut = Cut { block, host: options.interface_on_host, pivot: options.pivot };
                    Work::Blocks(BlockShare::new(lane, rows, place, &arrays, cut)?)
                }
                _ => Work::Tiles(Share::new(lane, rows, place, &arrays)?),
            };
            let (piece, answer) = match &work {
                Work::Tiles(_) => (6, 2),
                Work::Blocks(blocks) => (blocks.top().len(), blocks.top().len() / 4 + 1),
            };
            (pieces, answers) = (pieces + piece, answers + answer);
            let (piece, answer) = (pieces - piece..pieces, answers - answer..answers);
            Ok(Chunk { lane, first, rows, arrays, work, piece, answer })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok((chunks, pieces, answers))
}

/// Consecutive parts of these lengths.
fn split<T>(mut whole: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let part = |length| {
        let (part, rest) = std::mem::take(&mut whole).split_at_mut(length);
        whole = rest;
        part
    };
    lengths.map(part).collect()
}

/// Does something for every chunk: one after the other, or with a thread each.
fn on_lanes<I: std::marker::Send>(
    threads: bool,
    chunks: Vec<I>,
    work: impl Fn(I) -> Result<()> + Sync,
) -> Result<()> {
    if !threads || chunks.len() == 1 {
        return chunks.into_iter().try_for_each(work);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = chunks.into_iter().map(|chunk| scope.spawn(move || work(chunk))).collect();
        let joined = running.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All are waited for, whether one failed or not.
        joined.collect::<Vec<_>>().into_iter().collect()
    })
}

/// The unknowns next to each unit, in order.
fn join<T: Number>(units: &[Unit<T>], cyclic: bool) -> Vec<[T; 2]> {
    let mut whole = Unit::EMPTY;
    let nodes: Vec<Unit<T>> = units
        .iter()
        .map(|unit| {
            let (joined, between, _) = whole.join::<PORTABLE>(unit);
            whole = joined;
            between
        })
        .collect();
    let [left, mut right] = if cyclic { whole.ring().0 } else { [T::ZERO; 2] };
    let mut ends = vec![[T::ZERO; 2]; units.len()];
    for (node, ends) in nodes.iter().zip(&mut ends).rev() {
        let (before, first) = node.between::<PORTABLE>(left, right);
        *ends = [before, right];
        right = first;
    }
    ends
}

/// One sweep down and one up (Thomas 1949).
fn thomas([dl, d, du, b]: &[Vec<f64>; 4]) -> Vec<f64> {
    let n = d.len();
    let (mut c, mut x) = (vec![0.0; n], vec![0.0; n]);
    let (mut before_c, mut before_x) = (0.0, 0.0);
    for i in 0..n {
        let inverse = 1.0 / f64::mul_add(-dl[i], before_c, d[i]);
        before_c = du[i] * inverse;
        before_x = f64::mul_add(-dl[i], before_x, b[i]) * inverse;
        (c[i], x[i]) = (before_c, before_x);
    }
    for i in (0..n.saturating_sub(1)).rev() {
        x[i] = f64::mul_add(-c[i], x[i + 1], x[i]);
    }
    x
}

/// Copies numbers of another precision, on all threads.
pub(crate) fn convert<S: Number, T: Number>(from: &[S], to: &mut [T]) {
    const BLOCK: usize = 1 << 14;
    let blocks = to.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK));
    blocks.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(from.wide())));
}
