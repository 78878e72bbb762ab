//! Tables of walks on lanes, bound kernels, work units that lanes share, and progress.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::kernels::{BLOCK, WALK, WALK_COLUMNS, walk, walk_columns};
use crate::kernel::{Precision, Real};
use crate::lane::{Arg, Buffer, Lane, Launch, Program};
use crate::parallel::*;
use crate::walk::sequence::Points;
use crate::walk::table::Table;
use crate::walk::table::record_layout::COLUMNS;
use crate::{Progress, Result};

/// Chains that start at one row, with the points of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Row of the component.
    pub row: u32,
    /// Component number of the stream: the row, or 0 if all components share one sequence.
    pub component: u32,
    /// Replicate number of the stream.
    pub replicate: u32,
}

/// Parameters of all chains of a round of sampling.
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

    pub(crate) fn blocks(&self) -> u32 {
        self.walks().div_ceil(BLOCK as u32)
    }

    /// Largest number of steps of all chains of `tasks` tasks.
    pub(crate) fn steps(&self, tasks: usize) -> u64 {
        u64::from(self.walks()) * u64::from(self.length) * tasks as u64
    }
}

/// Array on a lane in the precision of a run.
#[derive(Debug)]
enum RealBuffer {
    Single(Buffer<f32>),
    Double(Buffer<f64>),
}

impl RealBuffer {
    fn new(lane: &Lane, precision: Precision, what: &str, numbers: &[f64]) -> Result<Self> {
        Ok(match precision {
            Precision::F64 | Precision::Q64 => Self::Double(lane.alloc_with(what, numbers)?),
            Precision::F32 => {
                let rounded: Vec<f32> = numbers.par_iter().map(|&x| x as f32).collect();
                Self::Single(lane.alloc_with(what, &rounded)?)
            }
        })
    }

    fn arg(&self) -> Arg<'_> {
        match self {
            Self::Single(buffer) => buffer.arg(),
            Self::Double(buffer) => buffer.arg(),
        }
    }
}

/// Copies of the chain table and of the table of the point sequence on a lane.
#[derive(Debug)]
pub(crate) struct LaneTables<'a> {
    pub(crate) lane: &'a Lane,
    rows: Buffer<u32>,
    sequence: Buffer<u32>,
    columns: Option<RealBuffer>,
}

impl<'a> LaneTables<'a> {
    pub(crate) fn new(lane: &'a Lane, precision: Precision, table: &Table, points: &Points) -> Result<Self> {
        let columns = (!table.columns.is_empty())
            .then(|| RealBuffer::new(lane, precision, "right-hand sides", &table.columns))
            .transpose()?;
        let rows = match lane.adopt("the chain table", &table.words)? {
            Some(own) => own,
            None => lane.alloc_with("the chain table", &table.words)?,
        };
        Ok(Self { lane, rows, sequence: points.upload(lane)?, columns })
    }

    /// Number of results per block of walks: one per column of the table.
    pub(crate) fn values(&self) -> usize {
        if self.columns.is_some() { COLUMNS } else { 1 }
    }

    /// Binds the kernel of walks for `items` threads; also returns the buffer for its sums.
    pub(crate) fn bind<T: Real>(
        &self,
        (items, values): (usize, usize),
        params: walk::Params,
        tasks: &[[u32; 4]],
    ) -> Result<(Launch, Buffer<T>)> {
        let lane = self.lane;
        let sums = lane.alloc::<T>("sums of walks", values)?;
        let starts = lane.alloc_with("starts of walks", bytemuck::cast_slice::<_, u32>(tasks))?;
        let (rows, tasks, out) = (self.rows.arg(), starts.arg(), sums.arg());
        let table = self.sequence.arg();
        let launch = match &self.columns {
            None => lane.bind(&WALK, T::PRECISION, items, params, walk::Args { rows, tasks, table, out })?,
            Some(columns) => {
                let args = walk_columns::Args { rows, tasks, table, columns: columns.arg(), out };
                lane.bind(&WALK_COLUMNS, T::PRECISION, items, params, args)?
            }
        };
        Ok((launch, sums))
    }
}

/// On the host: intended steps per launch, and smallest number of blocks of a launch.
const HOST: (u64, u32) = (1 << 22, 16);

/// True for a CPU lane on which even the smallest launch exceeds the intended number of steps.
pub(crate) fn is_long(lane: &Lane, round: Round) -> bool {
    let least = u64::from(HOST.1) * BLOCK as u64 * u64::from(round.length);
    least > HOST.0 && lane.device().on_host_cores()
}

/// Kernel bound to its arguments, for the blocks of walks of some tasks.
pub(crate) struct BoundWalks<'a, T> {
    lane: &'a Lane,
    pub(crate) params: walk::Params,
    values: usize,
    launch: Launch,
    sums: Buffer<T>,
}

impl<'a, T: Real> BoundWalks<'a, T> {
    /// Binds the kernel of blocks for these tasks; sets the blocks and groups in `params`.
    ///
    /// A task has the record of the first row, then key, component and replicate of its stream.
    pub(crate) fn new(on: &LaneTables<'a>, params: walk::Params, tasks: &[[u32; 4]]) -> Result<Self> {
        let per_task = (params.end_point - params.first_point).div_ceil(BLOCK as u32);
        let end = per_task * tasks.len() as u32;
        // Launches are long enough to fill a device for any length of walks, and short enough to
        // notice an interruption.
        let (steps, least) = if on.lane.device().on_host_cores() { HOST } else { (1 << 28, 2048) };
        let of_block = BLOCK as u64 * (u64::from(params.length) + 1);
        let groups = ((steps / of_block) as u32).clamp(least, 1 << 16).min(end);
        let params = walk::Params { groups, end, per_task, ..params };
        let (lane, values) = (on.lane, on.values());
        let (launch, sums) = on.bind((groups as usize * BLOCK, end as usize * values), params, tasks)?;
        Ok(Self { lane, params, values, launch, sums })
    }

    /// Returns the sums of walks of some blocks; `watch` gets the number of blocks done.
    pub(crate) fn walk(
        &mut self,
        blocks: Range<u32>,
        mut watch: impl FnMut(u64) -> Result<()> + Send,
    ) -> Result<Vec<f64>> {
        let (values, groups) = (self.values, u64::from(self.params.groups));
        let count = u64::from(blocks.end - blocks.start);
        let mut out = vec![T::ZERO; count as usize * values];
        self.launch.set("first", blocks.start);
        self.launch.set("end", blocks.end);
        let program = Program { cycle: vec![vec![&self.launch]] };
        let mut done = |steps: u64| watch((steps * groups).min(count));
        self.lane.run(&program, 0, count.div_ceil(groups), &mut done)?;
        self.lane.download(&self.sums, blocks.start as usize * values, &mut out)?;
        Ok(out.into_iter().map(T::wide).collect())
    }
}

/// Queue of work units (blocks of walks) that all lanes share.
pub(crate) struct Units {
    next: AtomicU32,
    end: u32,
}

impl Units {
    pub(crate) fn new(all: Range<u64>) -> Self {
        Self { next: AtomicU32::new(all.start as u32), end: all.end as u32 }
    }

    pub(crate) fn left(&self) -> u32 {
        self.end.saturating_sub(self.next.load(Ordering::Relaxed))
    }

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
    /// Steps done in unfinished launches, as far as these report them.
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
