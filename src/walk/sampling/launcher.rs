//! Walks in blocks on some lanes, whatever their kernel walks on: which lane walks which blocks, and what comes back.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::kernels::{BLOCK, BUFFER, walk};
use crate::kernel::{Precision, Real};
use crate::lane::{Arg, Buffer, Lane, Launch, Program};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::walk::sequence::{PointBuffer, PointSource, Points, on_cpu};
use crate::{Machine, Result};

/// The first row of some chains and their stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Component of x, the number of a row.
    pub row: u32,
    /// The component's number in the streams: its row, or 0 for all where they share one sequence.
    pub component: u32,
    /// The replicate's number in the streams.
    pub replicate: u32,
}

/// What all chains of a round have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Points of every task's stream: first, and one past the last.
    pub points: (u32, u32),
    /// Steps of a chain, at most.
    pub length: u32,
    /// A chain ends once its weight is at most this.
    pub cut: f32,
}

impl Round {
    /// Walks of a task.
    pub(crate) fn walks(&self) -> u32 {
        self.points.1 - self.points.0
    }

    /// Blocks of a task.
    fn blocks(&self) -> u32 {
        self.walks().div_ceil(BLOCK as u32)
    }

    /// Steps of some tasks, at most.
    pub(crate) fn steps(&self, tasks: usize) -> u64 {
        u64::from(self.walks()) * u64::from(self.length) * tasks as u64
    }
}

/// Receives the steps done and to do; an error stops the round.
pub type Watch<'a> = &'a mut (dyn FnMut(u64, u64) -> Result<()> + Send);

/// Real numbers on a lane, in a run's precision.
#[derive(Debug)]
pub(crate) enum RealBuffer {
    Single(Buffer<f32>),
    Double(Buffer<f64>),
}

impl RealBuffer {
    pub(crate) fn new(lane: &Lane, precision: Precision, what: &str, numbers: &[f64]) -> Result<Self> {
        Ok(match precision {
            Precision::F64 | Precision::Q64 => Self::Double(lane.alloc_with(what, numbers)?),
            Precision::F32 => {
                let rounded: Vec<f32> = numbers.par_iter().map(|&x| x as f32).collect();
                Self::Single(lane.alloc_with(what, &rounded)?)
            }
        })
    }

    pub(crate) fn arg(&self) -> Arg<'_> {
        match self {
            Self::Single(buffer) => buffer.arg(),
            Self::Double(buffer) => buffer.arg(),
        }
    }
}

/// Some tasks and points of a launch.
pub(crate) struct Part<'a> {
    /// First row as the kernel numbers it, key, component and replicate of each task.
    pub(crate) tasks: &'a [[u32; 4]],
    pub(crate) points: (u32, u32),
    pub(crate) buffer: Option<PointBuffer<'a>>,
}

/// A kernel that walks in blocks, with a lane's tables.
pub(crate) trait BlockKernel: Send + Sync {
    /// Numbers that a block leaves.
    fn values(&self) -> usize;

    /// Binds it to blocks 0 .. `params.end` of a part.
    fn bind<'a, T: Real>(&'a self, lane: &Lane, params: walk::Params, part: &Part<'a>)
    -> Result<Work<'a, T>>;
}

/// Walks the blocks of a step.
type HostWalk<'a, T> = dyn Fn(&walk::Params, &mut [T]) + Sync + 'a;

/// What walks blocks.
pub(crate) enum Work<'a, T> {
    /// A launch, and the array that blocks leave their numbers in.
    Launch(Launch, Buffer<T>),
    /// A function that walks in the host's memory, without a copy of it on the lane.
    Host(Box<HostWalk<'a, T>>),
}

/// The arrays of a launch: where walks start, and as many values as they leave.
pub(crate) fn arrays<T: Real>(
    lane: &Lane,
    tasks: &[[u32; 4]],
    values: usize,
) -> Result<(Buffer<u32>, Buffer<T>)> {
    let out = lane.alloc("sums of walks", values)?;
    Ok((lane.alloc_with("starts of walks", bytemuck::cast_slice(tasks))?, out))
}

/// A kernel bound for some tasks.
pub(crate) struct Bound<'a, T> {
    lane: &'a Lane,
    pub(crate) params: walk::Params,
    values: usize,
    work: Work<'a, T>,
}

impl<T: Real> Bound<'_, T> {
    /// What some blocks leave; `watch` gets the number of blocks done.
    pub(crate) fn walk(
        &mut self,
        blocks: Range<u32>,
        mut watch: impl FnMut(u64) -> Result<()> + Send,
    ) -> Result<Vec<f64>> {
        let (values, groups) = (self.values, self.params.groups);
        let count = u64::from(blocks.end - blocks.start);
        let mut done = |steps: u64| watch((steps * u64::from(groups)).min(count));
        let mut out = vec![T::ZERO; count as usize * values];
        match &mut self.work {
            Work::Launch(launch, sums) => {
                launch.set("first", blocks.start);
                launch.set("end", blocks.end);
                let program = Program { cycle: vec![vec![launch]] };
                self.lane.run(&program, 0, count.div_ceil(u64::from(groups)), &mut done)?;
                self.lane.download(sums, blocks.start as usize * values, &mut out)?;
            }
            Work::Host(walk) => {
                let params = walk::Params { first: blocks.start, end: blocks.end, ..self.params };
                for (step, out) in (0..).zip(out.chunks_mut(groups as usize * values)) {
                    self.lane.host(|| walk(&walk::Params { step, ..params }, out));
                    done(u64::from(step) + 1)?;
                }
            }
        }
        Ok(out.into_iter().map(T::wide).collect())
    }
}

/// What a lane does with units: what they leave, with the number of the first.
type OnUnits<'w, 'a, K> = dyn Fn(&(&'a Lane, K), &Units) -> Result<Vec<(u32, Vec<f64>)>> + Sync + 'w;

/// Units of work that lanes take from.
pub(crate) struct Units {
    next: AtomicU32,
    end: u32,
}

impl Units {
    /// The next units, `count` of them at most; none where all are taken.
    pub(crate) fn take(&self, count: u32) -> Option<Range<u32>> {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        (first < self.end).then(|| first..self.end.min(first + count))
    }
}

/// The steps that all lanes have done.
pub(crate) struct Progress<'a> {
    done: Mutex<(u64, Watch<'a>)>,
    all: u64,
    /// Steps of launches that are not done yet, where these count them.
    pending: AtomicU64,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(all: u64, watch: Watch<'a>) -> Self {
        Self { done: Mutex::new((0, watch)), all, pending: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, steps: u64) -> Result<()> {
        let (done, watch) = &mut *self.done.lock().unwrap_or_else(|e| e.into_inner());
        self.pending.store(0, Ordering::Relaxed);
        *done = (*done + steps).min(self.all);
        watch(*done, self.all)
    }

    /// Shows the watch the steps so far, those of launches under way among them.
    fn check(&self) -> Result<()> {
        let (done, watch) = &mut *self.done.lock().unwrap_or_else(|e| e.into_inner());
        watch((*done + self.pending.load(Ordering::Relaxed)).min(self.all), self.all)
    }

    /// Does work. If it is `long`, a single launch may take long on the host: a thread beside it calls the watch, and ends the
    /// launches where that returns an error. Their results are lost.
    pub(crate) fn watched<R>(&self, long: bool, work: impl FnOnce() -> Result<R>) -> Result<R> {
        if !long || cfg!(target_family = "wasm") {
            return work();
        }
        let (stop, (working, finished)) = (AtomicBool::new(false), channel::<()>());
        std::thread::scope(|scope| {
            let checks = scope.spawn(|| {
                let finished = finished;
                while finished.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if let Err(error) = self.check() {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                Ok(())
            });
            let done = interruptible(&stop, || {
                let _working = working;
                counted(&self.pending, work)
            });
            let seen = checks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            seen.and(done)
        })
    }
}

/// Time between two looks at the watch beside long launches.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Steps of a launch on the host, and blocks that it has at least.
const HOST: (u64, u32) = (1 << 22, 16);

/// Lanes that walk with one kernel.
#[derive(Debug)]
pub(crate) struct Launcher<'a, K> {
    pub(crate) lanes: Vec<(&'a Lane, K)>,
    pub(crate) precision: Precision,
    pub(crate) points: &'a PointSource,
    ranks: Ranks,
}

impl<'a, K: BlockKernel> Launcher<'a, K> {
    /// Gives every lane what `kernel` has for it.
    pub(crate) fn new(
        machine: &'a Machine,
        points: &'a PointSource,
        kernel: impl Fn(&Lane) -> Result<K> + Sync,
    ) -> Result<Self> {
        let lanes = at_once(&machine.lanes, |lane| Ok((lane, kernel(lane)?)));
        let lanes = lanes.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(Self { lanes, precision: machine.precision, points, ranks: machine.ranks })
    }

    /// Numbers that a block leaves.
    pub(crate) fn values(&self) -> usize {
        self.lanes[0].1.values()
    }

    /// A task whose first row has the number `first` in the kernel.
    pub(crate) fn words(&self, task: &Task, first: u32) -> [u32; 4] {
        let stream = self.points.stream(task.component, task.replicate);
        [first, stream.key, stream.component, stream.replicate]
    }

    /// The parameters of walks through a part; blocks and groups are for the caller to set.
    pub(crate) fn params(&self, part: &Part<'_>, round: Round) -> walk::Params {
        let PointSource { points, scramble, seed, .. } = self.points;
        let (sequence, stride) = match (part.buffer, points) {
            (None, Some(points)) => (points.sequence().code(), 0),
            (buffer, _) => (BUFFER, buffer.map_or(0, |b| b.stride)),
        };
        walk::Params {
            first_point: part.points.0,
            end_point: part.points.1,
            length: round.length,
            cut: round.cut.to_bits(),
            sequence,
            scramble: scramble.code(),
            tabled: points.as_ref().map_or(0, Points::tabled),
            seed_low: *seed as u32,
            seed_high: (seed >> 32) as u32,
            stride,
            ..Default::default()
        }
    }

    /// Binds a lane's kernel to the blocks of a part.
    pub(crate) fn bind<'b, T: Real>(
        &self,
        (lane, kernel): &'b (&'a Lane, K),
        part: &Part<'b>,
        round: Round,
    ) -> Result<Bound<'b, T>> {
        let per_task = (part.points.1 - part.points.0).div_ceil(BLOCK as u32);
        let end = per_task * part.tasks.len() as u32;
        // Launches are long enough to fill a device, whatever the length of a walk, and short enough that an
        // interruption is noticed.
        let (steps, least) = if on_cpu(lane) { HOST } else { (1 << 28, 2048) };
        let of_block = BLOCK as u64 * (u64::from(round.length) + 1);
        let groups = ((steps / of_block) as u32).clamp(least, 1 << 16).min(end);
        let params = walk::Params { groups, end, per_task, ..self.params(part, round) };
        Ok(Bound { lane, params, values: kernel.values(), work: kernel.bind(lane, params, part)? })
    }

    /// Walks all points of a round, for one task after the other: `take` gets what the blocks of a task leave. Blocks of
    /// 256 chains are the same whatever lane of whatever rank walks them, and come back in one order.
    pub(crate) fn blocks<T: Real>(
        &self,
        tasks: &[[u32; 4]],
        round: Round,
        watch: Watch<'_>,
        mut take: impl FnMut(&[f64]),
    ) -> Result<()> {
        // Where tasks are very many they come in batches, for the sake of the sums' memory.
        const MOST: u32 = 1 << 22;
        let batch = (MOST / round.blocks()).max(1) as usize;
        let progress = Progress::new(round.steps(tasks.len()), watch);
        let walk = || {
            for tasks in tasks.chunks(batch) {
                let blocks = self.batch::<T>(tasks, round, &progress)?;
                blocks.chunks(round.blocks() as usize * self.values()).for_each(&mut take);
            }
            Ok(())
        };
        progress.watched(self.is_long(round), walk)
    }

    /// True if the smallest launch of a CPU lane has more steps than launches are to have.
    pub(crate) fn is_long(&self, round: Round) -> bool {
        let least = u64::from(HOST.1) * BLOCK as u64 * u64::from(round.length);
        least > HOST.0 && self.lanes.iter().any(|(lane, _)| on_cpu(lane))
    }

    /// What all blocks of some tasks leave.
    fn batch<T: Real>(&self, tasks: &[[u32; 4]], round: Round, progress: &Progress<'_>) -> Result<Vec<f64>> {
        let lanes = self.lanes.len() as u32;
        self.share_out(u64::from(round.blocks()) * tasks.len() as u64, &|lane, units| {
            let part = Part { tasks, points: round.points, buffer: None };
            let mut bound = self.bind::<T>(lane, &part, round)?;
            let groups = bound.params.groups;
            // One lane takes all; several take launches of a few tenths of a second, whoever is free.
            let mut pace = if lanes > 1 { 1 } else { bound.params.end.div_ceil(groups) };
            let mut mine = Vec::new();
            while let Some(blocks) = units.take(pace * groups) {
                let (from, mut seen) = (Instant::now(), 0);
                let values = bound.walk(blocks.clone(), |done| {
                    let steps = (done - seen) * BLOCK as u64 * u64::from(round.length);
                    seen = done;
                    progress.add(steps)
                })?;
                if lanes > 1 {
                    let left = units.end.saturating_sub(units.next.load(Ordering::Relaxed)) / groups;
                    let steps = f64::from((blocks.end - blocks.start).div_ceil(groups));
                    let fit = 0.2 / from.elapsed().as_secs_f64().max(1e-6) * steps;
                    pace = (fit as u32).clamp(1, (left / (2 * lanes)).max(1));
                }
                mine.push((blocks.start, values));
            }
            Ok(mine)
        })
    }

    /// Shares units of work out over ranks and lanes. `work` takes some again and again, and returns what they leave with
    /// the number of the first; all of it comes back in the order of the units, on every rank.
    pub(crate) fn share_out(&self, units: u64, work: &OnUnits<'_, 'a, K>) -> Result<Vec<f64>> {
        let own = self.ranks.share(units);
        let units = Units { next: AtomicU32::new(own.start as u32), end: own.end as u32 };
        let parts: Result<Vec<_>> = at_once(&self.lanes, |lane| work(lane, &units)).into_iter().collect();
        let mut parts: Vec<(u32, Vec<f64>)> = parts?.into_iter().flatten().collect();
        parts.sort_unstable_by_key(|&(first, _)| first);
        let mine: Vec<f64> = parts.into_iter().flat_map(|(_, values)| values).collect();
        Ok(if self.ranks.is_distributed() { self.ranks.all_gather(&mine).concat() } else { mine })
    }
}
