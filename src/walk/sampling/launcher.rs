//! Distribution of blocks of walks over lanes and ranks, for any kernel of walks.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::kernels::{BLOCK, BUFFER, walk};
use crate::kernel::{Precision, Real};
use crate::lane::{Arg, Buffer, Lane, Launch, Program};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::walk::sequence::{PointBuffer, PointSource, on_cpu};
use crate::{Machine, Progress, Result};

/// First row and stream of some chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Row of the component.
    pub row: u32,
    /// Component number of the stream: the row, or 0 if all components share one sequence.
    pub component: u32,
    /// Replicate number of the stream.
    pub replicate: u32,
}

/// Parameters of all chains of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Points of every task's stream: first, and one past the last.
    pub points: (u32, u32),
    /// Largest number of steps of a chain.
    pub length: u32,
    /// Weight at which a chain ends.
    pub cut: f32,
}

impl Round {
    pub(crate) fn walks(&self) -> u32 {
        self.points.1 - self.points.0
    }

    fn blocks(&self) -> u32 {
        self.walks().div_ceil(BLOCK as u32)
    }

    /// Largest number of steps of `tasks` tasks.
    pub(crate) fn steps(&self, tasks: usize) -> u64 {
        u64::from(self.walks()) * u64::from(self.length) * tasks as u64
    }
}

/// Array on a lane in the precision of a run.
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

/// Tasks and points of a launch.
pub(crate) struct Part<'a> {
    /// First row in the kernel's numbering, key, component and replicate of each task.
    pub(crate) tasks: &'a [[u32; 4]],
    pub(crate) points: (u32, u32),
    pub(crate) buffer: Option<PointBuffer<'a>>,
}

/// Kernel for blocks of walks, with its tables on a lane.
pub(crate) trait BlockKernel: Send + Sync {
    /// Number of results per block.
    fn values(&self) -> usize;

    /// Binds the kernel to blocks 0 .. `params.end` of a part.
    fn bind<'a, T: Real>(&'a self, lane: &Lane, params: walk::Params, part: &Part<'a>)
    -> Result<Work<'a, T>>;
}

/// Function that computes the blocks of a step on the host.
type HostWalk<'a, T> = dyn Fn(&walk::Params, &mut [T]) + Sync + 'a;

/// Executable form of a bound kernel.
pub(crate) enum Work<'a, T> {
    /// Launch, and its output array.
    Launch(Launch, Buffer<T>),
    /// Function that reads the host's memory, so that the lane has no copy.
    Host(Box<HostWalk<'a, T>>),
}

/// Allocates the start rows and the output array of a launch.
pub(crate) fn arrays<T: Real>(
    lane: &Lane,
    tasks: &[[u32; 4]],
    values: usize,
) -> Result<(Buffer<u32>, Buffer<T>)> {
    let out = lane.alloc("sums of walks", values)?;
    Ok((lane.alloc_with("starts of walks", bytemuck::cast_slice(tasks))?, out))
}

/// Kernel bound for some tasks.
pub(crate) struct Bound<'a, T> {
    lane: &'a Lane,
    pub(crate) params: walk::Params,
    values: usize,
    work: Work<'a, T>,
}

impl<T: Real> Bound<'_, T> {
    /// Computes some blocks and returns their results; `watch` gets the number of blocks done.
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
                    walk(&walk::Params { step, ..params }, out);
                    done(u64::from(step) + 1)?;
                }
            }
        }
        Ok(out.into_iter().map(T::wide).collect())
    }
}

/// Work of a lane on units: returns their results, each with the number of its first unit.
type OnUnits<'w, 'a, K> = dyn Fn(&(&'a Lane, K), &Units) -> Result<Vec<(u32, Vec<f64>)>> + Sync + 'w;

/// Queue of work units shared by all lanes.
pub(crate) struct Units {
    next: AtomicU32,
    end: u32,
}

impl Units {
    /// Takes the next units, at most `count`; none if no unit is left.
    pub(crate) fn take(&self, count: u32) -> Option<Range<u32>> {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        (first < self.end).then(|| first..self.end.min(first + count))
    }
}

/// Number of steps that all lanes have done.
pub(crate) struct StepCount<'a> {
    done: Mutex<(u64, &'a mut dyn Progress)>,
    all: u64,
    /// Steps done in unfinished launches, as far as these count them.
    pending: AtomicU64,
}

impl<'a> StepCount<'a> {
    pub(crate) fn new(all: u64, watch: &'a mut dyn Progress) -> Self {
        Self { done: Mutex::new((0, watch)), all, pending: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, steps: u64) -> Result<()> {
        let (done, watch) = &mut *lock(&self.done);
        self.pending.store(0, Ordering::Relaxed);
        *done = (*done + steps).min(self.all);
        watch.progress(*done, self.all)
    }

    /// Calls the watch with the current number of steps, including those of unfinished launches.
    fn check(&self) -> Result<()> {
        let (done, watch) = &mut *lock(&self.done);
        watch.progress((*done + self.pending.load(Ordering::Relaxed)).min(self.all), self.all)
    }

    /// Runs `work`. If `long`, another thread calls the watch meanwhile.
    ///
    /// A single launch on the host may take long. If the watch returns an error, launches end
    /// without results. If the system refuses the thread, `work` runs alone.
    pub(crate) fn watched<R>(&self, long: bool, work: impl FnOnce() -> Result<R>) -> Result<R> {
        if !long || cfg!(target_family = "wasm") {
            return work();
        }
        let (stop, (working, finished)) = (AtomicBool::new(false), channel::<()>());
        thread::scope(|scope| {
            let checks = thread::Builder::new().spawn_scoped(scope, || {
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
            let join = |checks: thread::ScopedJoinHandle<'_, Result<()>>| {
                checks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            checks.map_or(Ok(()), join).and(done)
        })
    }
}

/// Time between two calls of the watch during long launches.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Steps per launch on the host, and smallest number of blocks of a launch.
const HOST: (u64, u32) = (1 << 22, 16);

/// Lanes prepared for walks with one kernel.
#[derive(Debug)]
pub(crate) struct Launcher<'a, K> {
    pub(crate) lanes: Vec<(&'a Lane, K)>,
    pub(crate) precision: Precision,
    pub(crate) points: &'a PointSource,
    ranks: Ranks,
}

impl<'a, K: BlockKernel> Launcher<'a, K> {
    /// Prepares every lane by `kernel`, which makes the lane's tables.
    pub(crate) fn new(
        machine: &'a Machine,
        points: &'a PointSource,
        kernel: impl Fn(&Lane) -> Result<K> + Sync,
    ) -> Result<Self> {
        let lanes = at_once(&machine.lanes, |lane| Ok((lane, kernel(lane)?)));
        let lanes = lanes.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(Self { lanes, precision: machine.precision, points, ranks: machine.ranks })
    }

    /// Number of results per block.
    pub(crate) fn values(&self) -> usize {
        self.lanes[0].1.values()
    }

    /// Encodes a task for the kernel, in which its first row has the number `first`.
    pub(crate) fn words(&self, task: &Task, first: u32) -> [u32; 4] {
        let stream = self.points.stream(task.component, task.replicate);
        [first, stream.key, stream.component, stream.replicate]
    }

    /// Returns the parameters of a part, without those of blocks and groups, which the caller sets.
    pub(crate) fn params(&self, part: &Part<'_>, round: Round) -> walk::Params {
        let PointSource { points, scramble, seed, .. } = self.points;
        let (sequence, stride) = match (part.buffer, points) {
            (None, Some(points)) => (points.sequence.code(), 0),
            (buffer, _) => (BUFFER, buffer.map_or(0, |b| b.stride)),
        };
        walk::Params {
            first_point: part.points.0,
            end_point: part.points.1,
            length: round.length,
            cut: round.cut.to_bits(),
            sequence,
            scramble: scramble.code(),
            tabled: points.as_ref().map_or(0, |points| points.tabled),
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
        // Launches are long enough to fill a device for any length of walks, and short enough to
        // notice an interruption.
        let (steps, least) = if on_cpu(lane) { HOST } else { (1 << 28, 2048) };
        let of_block = BLOCK as u64 * (u64::from(round.length) + 1);
        let groups = ((steps / of_block) as u32).clamp(least, 1 << 16).min(end);
        let params = walk::Params { groups, end, per_task, ..self.params(part, round) };
        Ok(Bound { lane, params, values: kernel.values(), work: kernel.bind(lane, params, part)? })
    }

    /// Computes all points of a round; `take` gets the results of the blocks, task by task.
    ///
    /// Blocks have 256 chains. Their results do not depend on lane or rank, and come in one order.
    pub(crate) fn blocks<T: Real>(
        &self,
        tasks: &[[u32; 4]],
        round: Round,
        watch: &mut dyn Progress,
        mut take: impl FnMut(&[f64]),
    ) -> Result<()> {
        // Very many tasks run in batches, to limit the memory of their sums.
        const MOST: u32 = 1 << 22;
        let batch = (MOST / round.blocks()).max(1) as usize;
        let progress = StepCount::new(round.steps(tasks.len()), watch);
        let walk = || {
            for tasks in tasks.chunks(batch) {
                let blocks = self.batch::<T>(tasks, round, &progress)?;
                blocks.chunks(round.blocks() as usize * self.values()).for_each(&mut take);
            }
            Ok(())
        };
        progress.watched(self.is_long(round), walk)
    }

    /// True if the smallest launch of a CPU lane exceeds the intended number of steps.
    pub(crate) fn is_long(&self, round: Round) -> bool {
        let least = u64::from(HOST.1) * BLOCK as u64 * u64::from(round.length);
        least > HOST.0 && self.lanes.iter().any(|(lane, _)| on_cpu(lane))
    }

    /// Returns the results of all blocks of some tasks.
    fn batch<T: Real>(&self, tasks: &[[u32; 4]], round: Round, progress: &StepCount<'_>) -> Result<Vec<f64>> {
        let lanes = self.lanes.len() as u32;
        self.share_out(u64::from(round.blocks()) * tasks.len() as u64, &|lane, units| {
            let part = Part { tasks, points: round.points, buffer: None };
            let mut bound = self.bind::<T>(lane, &part, round)?;
            let groups = bound.params.groups;
            // A single lane takes all blocks. Several lanes take launches of 0.2 s as they become
            // free.
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

    /// Distributes units of work over ranks and lanes, and returns all results on every rank.
    ///
    /// `work` repeatedly takes units, and returns their results with the number of the first one.
    /// All results are in the order of the units.
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
