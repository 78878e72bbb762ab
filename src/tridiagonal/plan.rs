//! A plan: one system shape on some lanes, solved as often as wanted.
//!
//! The rows are cut into chunks, one a lane. Each goes through stage 1 (up to one [`Unit`]) and stage 3 (down from the
//! unknowns next to it); in between the host joins the chunks' units, six numbers each. Copies and kernels of
//! different lanes overlap; what cannot overlap is the barrier between the two stages, since every unknown depends on
//! every row.

use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use super::partition::{Place, Share};
use super::unit::{Number, Unit};
use crate::lane::Lane;
use crate::lane::cpu::simd::PORTABLE;
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

/// Chunks of a system on lanes.
#[derive(Debug)]
pub struct Plan<'a, T> {
    n: usize,
    rows: usize,
    cyclic: bool,
    chunks: Vec<Chunk<'a, T>>,
    /// dl, d, du, b and x on the host.
    arrays: [Vec<T>; 5],
}

#[derive(Debug)]
struct Chunk<'a, T> {
    lane: &'a Lane,
    first: usize,
    share: Share<T>,
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
    /// Memory for `batch` systems of `n` rows each, one behind the other, in equal chunks on the lanes. A cyclic
    /// system is one system.
    ///
    /// # Errors
    /// If there is no row, or a lane's memory does not suffice: [`Error::OutOfMemory`] names the sizes.
    pub fn new(lanes: &'a [Lane], n: usize, batch: usize, cyclic: bool) -> Result<Self> {
        let rows = n.checked_mul(batch).unwrap_or(usize::MAX);
        if rows == 0 || lanes.is_empty() {
            return Err(Error::Invalid(format!("{batch} systems of {n} rows on {} lanes", lanes.len())));
        }
        if cyclic && batch > 1 {
            return Err(Error::Invalid(format!(
                "a plan for {batch} cyclic systems; cyclic systems are solved one by one"
            )));
        }
        if n >= 1 << 31 {
            return Err(Error::Invalid(format!("{n} rows; a system has at most {}", (1u64 << 31) - 1)));
        }
        crate::lane::cpu::expect_memory(5 * rows as u64 * size_of::<T>() as u64, || {
            format!("{batch} systems of {n} rows: dl, d, du, b and x")
        })?;
        let chunks = cut(lanes, n, rows, cyclic)?;
        let arrays = std::array::from_fn(|_| vec![T::ZERO; rows]);
        Ok(Self { n, rows, cyclic, chunks, arrays })
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
        if lanes.is_empty() {
            return Err(Error::Invalid(format!("{} rows on no lane", self.rows)));
        }
        // The devices may hold no more than one of both.
        self.chunks.clear();
        self.chunks = cut(lanes, self.n, self.rows, self.cyclic)?;
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

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots of all chunks.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn flags(&self) -> Result<u32> {
        self.chunks
            .iter()
            .try_fold(0, |flags, chunk| Ok(super::kernels::both(flags, chunk.share.flags(chunk.lane)?)))
    }

    /// Bytes on the devices.
    pub fn device_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.share.bytes()).sum()
    }

    /// Solves, with all lanes at work at the same time. Stages of different lanes overlap: `total` is the time that
    /// passed, the others are zero but for the interface; [`Plan::solve_by_stages`] measures them.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn solve(&mut self, send: Send) -> Result<Stages> {
        let started = Instant::now();
        if let [chunk] = &self.chunks[..] {
            // Nothing lies next to it.
            chunk.upload(&self.arrays, send)?;
            chunk.lane.launch(&chunk.share.whole(), 0)?;
            let [.., x] = &mut self.arrays;
            chunk.lane.download(&chunk.share.x, 0, &mut x[..self.rows])?;
            return Ok(Stages { total: started.elapsed().as_secs_f64(), ..Stages::default() });
        }
        let arrays = &self.arrays;
        let units = on_lanes(&self.chunks, |chunk| {
            chunk.upload(arrays, send)?;
            chunk.lane.launch(&chunk.share.up(), 0)?;
            chunk.share.unit(chunk.lane)
        })?;
        let at = Instant::now();
        let ends = interface(&units, self.cyclic);
        let interface = at.elapsed().as_secs_f64();
        let [.., x] = &mut self.arrays;
        let mut rest = &mut x[..];
        let mut work = Vec::new();
        for (chunk, ends) in self.chunks.iter().zip(ends) {
            let (own, after) = rest.split_at_mut(chunk.share.rows);
            rest = after;
            work.push((chunk, ends, own));
        }
        on_lanes(work, |(chunk, ends, x)| {
            chunk.share.put(chunk.lane, ends)?;
            chunk.lane.launch(&chunk.share.down(), 0)?;
            chunk.lane.download(&chunk.share.x, 0, x)
        })?;
        Ok(Stages { interface, total: started.elapsed().as_secs_f64(), ..Stages::default() })
    }

    /// Solves with one stage after the other on all lanes, and measures each: what the model of the lane count needs.
    ///
    /// # Errors
    /// If a device is lost.
    pub fn solve_by_stages(&mut self, send: Send) -> Result<Stages> {
        let mut stages = Stages::default();
        let started = Instant::now();
        let mut lap = {
            let mut before = started;
            move |seconds: &mut f64| {
                let now = Instant::now();
                *seconds = (now - before).as_secs_f64();
                before = now;
            }
        };
        let arrays = &self.arrays;
        for chunk in &self.chunks {
            chunk.upload(arrays, send)?;
            chunk.lane.launch(&[], 0)?;
        }
        lap(&mut stages.upload);
        on_lanes(&self.chunks, |chunk| chunk.lane.launch(&chunk.share.up(), 0))?;
        lap(&mut stages.reduce);
        let units = on_lanes(&self.chunks, |chunk| chunk.share.unit(chunk.lane))?;
        lap(&mut stages.units_down);
        let ends = interface(&units, self.cyclic);
        lap(&mut stages.interface);
        for (chunk, ends) in self.chunks.iter().zip(ends) {
            chunk.share.put(chunk.lane, ends)?;
            chunk.lane.launch(&[], 0)?;
        }
        lap(&mut stages.ends_up);
        on_lanes(&self.chunks, |chunk| chunk.lane.launch(&chunk.share.down(), 0))?;
        lap(&mut stages.solve);
        let [.., x] = &mut self.arrays;
        for chunk in &self.chunks {
            chunk.lane.download(&chunk.share.x, 0, &mut x[chunk.first..][..chunk.share.rows])?;
        }
        lap(&mut stages.download);
        stages.total = started.elapsed().as_secs_f64();
        Ok(stages)
    }

    /// Solves what is on the devices `times` times, without any copy, and gives the seconds of one.
    ///
    /// # Errors
    /// If a device is lost, or there is more than one chunk.
    pub fn solve_resident(&self, times: u64) -> Result<f64> {
        let [chunk] = &self.chunks[..] else {
            return Err(Error::Invalid(format!(
                "{} chunks; resident data are solved on one lane",
                self.chunks.len()
            )));
        };
        let program = crate::lane::Program { cycle: vec![chunk.share.whole()] };
        let started = Instant::now();
        chunk.lane.run(&program, 0, times, &mut |_| Ok(()))?;
        Ok(started.elapsed().as_secs_f64() / times as f64)
    }
}

impl<T: Number> Chunk<'_, T> {
    fn upload(&self, [dl, d, du, b, _]: &[Vec<T>; 5], send: Send) -> Result<()> {
        let here = self.first..self.first + self.share.rows;
        let share = &self.share;
        if send == Send::All {
            self.lane.upload(&dl[here.clone()], &share.dl, 0)?;
            self.lane.upload(&d[here.clone()], &share.d, 0)?;
            self.lane.upload(&du[here.clone()], &share.du, 0)?;
        }
        if send != Send::Nothing {
            self.lane.upload(&b[here], &share.b, 0)?;
        }
        Ok(())
    }
}

/// Chunks of all rows on the lanes, one each while there are rows.
fn cut<'a, T: Number>(lanes: &'a [Lane], n: usize, rows: usize, ring: bool) -> Result<Vec<Chunk<'a, T>>> {
    // Threads read eight rows at a time.
    let size = rows.div_ceil(lanes.len()).next_multiple_of(8);
    let chunk = |(first, lane): (usize, &'a Lane)| {
        let place = Place { n, first, ring };
        Ok(Chunk { lane, first, share: Share::new(lane, size.min(rows - first), place)? })
    };
    (0..rows).step_by(size).zip(lanes).map(chunk).collect()
}

/// Does something on every chunk's lane at the same time, in the order of the chunks where there is only one.
fn on_lanes<I: IntoIterator<Item: std::marker::Send>, R: std::marker::Send>(
    chunks: I,
    work: impl Fn(I::Item) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let mut chunks: Vec<_> = chunks.into_iter().collect();
    if chunks.len() == 1 {
        return Ok(vec![work(chunks.remove(0))?]);
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
fn interface<T: Number>(units: &[Unit<T>], cyclic: bool) -> Vec<[T; 2]> {
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

/// Copies numbers of another precision, on all threads.
pub(crate) fn convert<S: Number, T: Number>(from: &[S], to: &mut [T]) {
    const BLOCK: usize = 1 << 14;
    let blocks = to.par_chunks_mut(BLOCK).zip(from.par_chunks(BLOCK));
    blocks.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(from.wide())));
}
