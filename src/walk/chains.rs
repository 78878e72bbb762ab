//! Many chains on some lanes: which lane walks what, and the sums that come back.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::grid::{Grid, walk_grid};
use super::kernels::{BLOCK, BUFFER, Block, COLUMNS, Source, WALK, WALK_COLUMNS, number, walk, walk_columns};
use super::sequence::mtgp32::{Mtgp32, SETS};
use super::sequence::{Points, Scramble, Sequence, Stream, dimension_key, fill};
use super::table::{Table, UNIT};
use crate::kernel::{Precision, Real};
use crate::lane::cpu::simd::dispatch;
use crate::lane::{Buffer, Lane, Launch, Program};
use crate::ranks::Ranks;
use crate::transient::kernels::{BLOCK_SUM, block_sum};
use crate::{Error, Result};

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

/// The points of all chains.
#[derive(Debug, Clone)]
pub struct Feed {
    scramble: Scramble,
    seed: u64,
    /// By random access; none of MTGP32.
    points: Option<Points>,
    /// Dimensions that are the sequence's own.
    tabled: u32,
    /// Generators of MTGP32.
    groups: u32,
    /// Whether points are made ahead, into a buffer.
    buffered: bool,
}

impl Feed {
    /// Points of that many dimensions. `groups` is the number of MTGP32's generators. Points of Halton, Faure and MTGP32
    /// are made ahead, into buffers; `ahead` does so with those of the others.
    ///
    /// # Errors
    /// As [`Points::new`], and for a number of groups without parameter sets.
    pub fn new(
        sequence: Sequence,
        scramble: Scramble,
        dimensions: u32,
        seed: u64,
        groups: u32,
        ahead: bool,
    ) -> Result<Self> {
        let points = match sequence {
            Sequence::Mtgp32 if groups == 0 || groups > SETS => {
                return Err(Error::Invalid(format!(
                    "{groups} groups of mtgp32: there are {SETS} parameter sets, one a group; take 1 to {SETS} groups"
                )));
            }
            Sequence::Mtgp32 => None,
            _ => Some(Points::new(sequence, scramble, dimensions, seed)?),
        };
        let tabled = points.as_ref().map_or(dimensions, |p| match sequence {
            Sequence::Philox => dimensions,
            _ => p.tabled(),
        });
        let buffered = ahead || !matches!(sequence, Sequence::Sobol | Sequence::Philox);
        Ok(Self { scramble, seed, points, tabled, groups, buffered })
    }

    /// Dimensions that are the sequence's own; later ones are Philox's.
    pub fn tabled(&self) -> u32 {
        self.tabled
    }

    fn stream(&self, task: &Task) -> Stream {
        Stream::new(self.seed, task.component, task.replicate)
    }
}

/// Lanes with the chain table and the sequence's table.
#[derive(Debug)]
pub struct Chains<'a> {
    lanes: Vec<Equipped<'a>>,
    precision: Precision,
    feed: &'a Feed,
    table: &'a Table,
    grid: Option<Grid>,
    ranks: Ranks,
}

#[derive(Debug)]
struct Equipped<'a> {
    lane: &'a Lane,
    rows: Buffer<u32>,
    /// Of the sequence.
    table: Buffer<u32>,
    columns: Option<Numbers>,
}

/// Numbers of a run's precision.
#[derive(Debug)]
enum Numbers {
    Single(Buffer<f32>),
    Double(Buffer<f64>),
}

/// Receives the steps done and to do; an error stops the round.
pub type Watch<'a> = &'a mut (dyn FnMut(u64, u64) -> Result<()> + Send);

/// Whether a CPU does the lane's work.
fn on_cpu(lane: &Lane) -> bool {
    lane.device().on_host_cores()
}

/// Bytes of a buffer of points.
fn buffer_bytes(lane: &Lane) -> u64 {
    let most = if on_cpu(lane) { 16 << 20 } else { 256 << 20 };
    lane.device().limits.binding.min(most)
}

/// Some tasks and points of a launch.
struct Part<'a> {
    tasks: &'a [[u32; 4]],
    points: (u32, u32),
    /// Points by dimensions, and how many there are in a row.
    buffer: Option<(&'a Buffer<u32>, u32)>,
}

impl<'a> Chains<'a> {
    /// Copies the tables to every lane.
    ///
    /// # Errors
    /// If a lane has not enough memory, or a table exceeds what it can bind.
    pub fn new(lanes: &'a [Lane], precision: Precision, table: &'a Table, feed: &'a Feed) -> Result<Self> {
        let equip = |lane: &'a Lane| {
            let columns = match (&table.columns[..], precision) {
                ([], _) => None,
                (all, Precision::F64) => Some(Numbers::Double(lane.alloc_with("right-hand sides", all)?)),
                (all, Precision::F32) => {
                    let all: Vec<f32> = all.iter().map(|&x| x as f32).collect();
                    Some(Numbers::Single(lane.alloc_with("right-hand sides", &all)?))
                }
            };
            Ok(Equipped {
                lane,
                rows: match lane.adopt("the chain table", &table.words)? {
                    Some(own) => own,
                    None => lane.alloc_with("the chain table", &table.words)?,
                },
                table: match &feed.points {
                    Some(points) if !feed.buffered => points.upload(lane)?,
                    _ => lane.alloc("no table of a sequence", 4)?,
                },
                columns,
            })
        };
        let lanes = std::thread::scope(|scope| {
            let all: Vec<_> = lanes.iter().map(|lane| scope.spawn(move || equip(lane))).collect();
            all.into_iter().map(|t| t.join().expect("an upload does not panic")).collect::<Result<_>>()
        })?;
        Ok(Self { lanes, precision, feed, table, grid: None, ranks: Ranks::ALONE })
    }

    /// Shares the walks with other ranks, which have the same tables and ask for the same sums.
    pub fn over(self, ranks: Ranks) -> Self {
        Self { ranks, ..self }
    }

    /// Walks on a given grid, a task after the other, in the place of blocks of 256 walks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a grid that there is none of, and for several right-hand sides.
    pub fn on_grid(self, grid: Grid) -> Result<Self> {
        grid.kernel()?;
        if self.columns() > 1 {
            return Err(Error::Invalid(
                "a grid walks for one right-hand side at a time; give one".to_owned(),
            ));
        }
        Ok(Self { grid: Some(grid), ..self })
    }

    /// Columns of the table, and of the sums: 1 or [`COLUMNS`].
    pub fn columns(&self) -> usize {
        if self.table.columns.is_empty() { 1 } else { COLUMNS }
    }

    /// For each task and column the sum of θ over the points of the round. Blocks of 256 chains are the same whatever
    /// lane of whatever rank walks them, and are added in one order.
    ///
    /// # Errors
    /// Those of the lanes and of `watch`.
    pub fn sums(&self, tasks: &[Task], round: Round, watch: Watch<'_>) -> Result<Vec<f64>> {
        match self.precision {
            Precision::F32 => self.sums_of::<f32>(tasks, round, watch),
            Precision::F64 => self.sums_of::<f64>(tasks, round, watch),
        }
    }

    fn sums_of<T: Real>(&self, tasks: &[Task], round: Round, watch: Watch<'_>) -> Result<Vec<f64>> {
        let walks = round.points.1 - round.points.0;
        let per_task = walks.div_ceil(BLOCK as u32);
        if tasks.is_empty() || per_task == 0 {
            return Ok(vec![0.0; tasks.len() * self.columns()]);
        }
        if round.length == 0 {
            // Chains of no step need no lane, and no points.
            return Ok(tasks.iter().flat_map(|task| self.standing::<T>(task, walks)).collect());
        }
        let mut sums = if self.feed.buffered || self.grid.is_some() {
            self.streams::<T>(tasks, round, watch)?
        } else {
            // Where tasks are very many they come in batches, for the sake of the sums' memory.
            const MOST: u32 = 1 << 22;
            let batch = ((MOST / per_task).max(1) as usize).min(tasks.len());
            let of_task = u64::from(walks) * u64::from(round.length);
            let mut sums = Vec::with_capacity(tasks.len() * self.columns());
            let mut done = 0;
            for tasks in tasks.chunks(batch) {
                let mut here = |steps: u64, _: u64| watch(done + steps, of_task * tasks.len() as u64);
                self.blocks::<T>(tasks, per_task, round, &mut here, &mut sums)?;
                done += tasks.len() as u64 * of_task;
            }
            sums
        };
        sums.iter_mut().for_each(|s| *s *= self.table.factor);
        Ok(sums)
    }

    /// What chains of no step add up: g of their row, each of them.
    fn standing<T: Real>(&self, task: &Task, walks: u32) -> Vec<f64> {
        let row = task.row as usize;
        let all = self.table.factor * f64::from(walks);
        match &self.table.columns[..] {
            [] => {
                let record = &self.table.words[self.table.place[row] as usize * UNIT..];
                vec![number::<T>(record[0], record[1]).wide() * all]
            }
            g => g[row * COLUMNS..][..COLUMNS].iter().map(|&g| T::of(g).wide() * all).collect(),
        }
    }

    fn words(&self, task: &Task) -> [u32; 4] {
        let stream = self.feed.stream(task);
        [self.table.place[task.row as usize], stream.key, stream.component, stream.replicate]
    }

    /// A launch on a part of `per_task` blocks a task, and the blocks of one step of it. `out` gets the sums.
    fn bind<T: Real>(
        &self,
        equipped: &Equipped<'_>,
        part: &Part<'_>,
        round: Round,
        out: &Buffer<T>,
    ) -> Result<(Launch, u32)> {
        let lane = equipped.lane;
        let starts = lane.alloc_with::<u32>("starts of walks", bytemuck::cast_slice(part.tasks))?;
        let per_task = (part.points.1 - part.points.0).div_ceil(BLOCK as u32);
        let count = per_task * part.tasks.len() as u32;
        // Launches are long enough to fill a device, whatever the length of a walk, and short enough that an
        // interruption is noticed.
        let (steps, least) = if on_cpu(lane) { (1u64 << 22, 16) } else { (1 << 28, 2048) };
        let of_block = BLOCK as u64 * (u64::from(round.length) + 1);
        let groups = ((steps / of_block) as u32).clamp(least, 1 << 16).min(count);
        let [seed_low, seed_high] = [self.feed.seed as u32, (self.feed.seed >> 32) as u32];
        let (sequence, stride) = match part.buffer {
            Some((_, stride)) => (BUFFER, stride),
            None => (self.feed.points.as_ref().map_or(BUFFER, |p| p.sequence().code()), 0),
        };
        let params = walk::Params {
            step: 0,
            groups,
            first: 0,
            end: count,
            per_task,
            first_point: part.points.0,
            end_point: part.points.1,
            length: round.length,
            cut: round.cut.to_bits(),
            sequence,
            scramble: self.feed.scramble.code(),
            tabled: self.feed.points.as_ref().map_or(0, Points::tabled),
            seed_low,
            seed_high,
            stride,
        };
        let (rows, tasks, out) = (equipped.rows.arg(), starts.arg(), out.arg());
        let table = part.buffer.map_or(&equipped.table, |b| b.0).arg();
        let items = groups as usize * BLOCK;
        let columns = match &equipped.columns {
            None => None,
            Some(Numbers::Single(buffer)) => Some(buffer.arg()),
            Some(Numbers::Double(buffer)) => Some(buffer.arg()),
        };
        let launch = match columns {
            None => lane.bind(&WALK, T::PRECISION, items, params, walk::Args { rows, tasks, table, out })?,
            Some(columns) => {
                let args = walk_columns::Args { rows, tasks, table, columns, out };
                lane.bind(&WALK_COLUMNS, T::PRECISION, items, params, args)?
            }
        };
        Ok((launch, groups))
    }

    /// Adds the sums of every task and column to the end of `sums`.
    fn blocks<T: Real>(
        &self,
        tasks: &[Task],
        per_task: u32,
        round: Round,
        watch: Watch<'_>,
        sums: &mut Vec<f64>,
    ) -> Result<()> {
        let (count, columns) = (per_task * tasks.len() as u32, self.columns());
        let words: Vec<[u32; 4]> = tasks.iter().map(|t| self.words(t)).collect();
        let own = self.ranks.share(u64::from(count));
        let own = own.start as u32..own.end as u32;
        let next = AtomicU32::new(own.start);
        let walked = AtomicU64::new(0);
        let watch = Mutex::new(watch);
        let work = |equipped: &Equipped<'_>| -> Result<Vec<(u32, Vec<T>)>> {
            let lane = equipped.lane;
            let out = lane.alloc::<T>("sums of walks", count as usize * columns)?;
            let part = Part { tasks: &words, points: round.points, buffer: None };
            let (mut launch, groups) = self.bind(equipped, &part, round, &out)?;
            // One lane takes all; several take launches of a few tenths of a second, whoever is free.
            let mut pace = if self.lanes.len() == 1 { count.div_ceil(groups) } else { 1 };
            let count = own.end;
            let mut mine = Vec::new();
            loop {
                let share = pace * groups;
                let first = next.fetch_add(share, Ordering::Relaxed);
                if first >= count {
                    break;
                }
                let end = count.min(first + share);
                launch.set("first", first);
                launch.set("end", end);
                let program = Program { cycle: vec![vec![&launch]] };
                let steps = (end - first).div_ceil(groups);
                let (from, mut seen) = (Instant::now(), 0);
                lane.run(&program, 0, u64::from(steps), &mut |done| {
                    let blocks = (done * u64::from(groups)).min(u64::from(end - first));
                    let steps = (blocks - seen) * BLOCK as u64 * u64::from(round.length);
                    seen = blocks;
                    let walked = walked.fetch_add(steps, Ordering::Relaxed) + steps;
                    (watch.lock().unwrap_or_else(|e| e.into_inner()))(walked, 0)
                })?;
                if self.lanes.len() > 1 {
                    let left = count.saturating_sub(next.load(Ordering::Relaxed)) / groups;
                    let fit = 0.2 / from.elapsed().as_secs_f64().max(1e-6) * f64::from(steps);
                    pace = (fit as u32).clamp(1, (left / (2 * self.lanes.len() as u32)).max(1));
                }
                let mut sums = vec![T::ZERO; (end - first) as usize * columns];
                lane.download(&out, first as usize * columns, &mut sums)?;
                mine.push((first, sums));
            }
            Ok(mine)
        };
        let mut mine = vec![0.0; own.len() * columns];
        for (first, part) in self.on_lanes(work)?.into_iter().flatten() {
            for (sum, value) in mine[(first - own.start) as usize * columns..].iter_mut().zip(part) {
                *sum = value.wide();
            }
        }
        let all = if self.ranks.is_distributed() { self.ranks.all_gather(&mine).concat() } else { mine };
        sums.extend(added(&all, per_task as usize, columns));
        Ok(())
    }

    /// Sums where points come out of buffers: a lane makes a stream's points and walks all tasks of that stream.
    fn streams<T: Real>(&self, tasks: &[Task], round: Round, watch: Watch<'_>) -> Result<Vec<f64>> {
        let columns = self.columns();
        let mut streams: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (i, task) in tasks.iter().enumerate() {
            streams.entry((task.component, task.replicate)).or_default().push(i);
        }
        let streams: Vec<Vec<usize>> = streams.into_values().collect();
        let of_task = u64::from(round.points.1 - round.points.0) * u64::from(round.length);
        let own = self.ranks.share(streams.len() as u64);
        let streams = &streams[own.start as usize..own.end as usize];
        let (next, walked, watch) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(watch));
        let work = |equipped: &Equipped<'_>| -> Result<Vec<(usize, Vec<f64>)>> {
            let mut mine = Vec::new();
            while let Some(members) = streams.get(next.fetch_add(1, Ordering::Relaxed)) {
                let words: Vec<[u32; 4]> = members.iter().map(|&i| self.words(&tasks[i])).collect();
                let stream = self.feed.stream(&tasks[members[0]]);
                let mut sums = vec![0.0; members.len() * columns];
                self.stream::<T>(equipped, &words, stream, round, &mut sums)?;
                mine.extend(members.iter().zip(sums.chunks(columns)).map(|(&i, s)| (i, s.to_vec())));
                let steps = members.len() as u64 * of_task;
                let walked = walked.fetch_add(steps, Ordering::Relaxed) + steps;
                (watch.lock().unwrap_or_else(|e| e.into_inner()))(walked, tasks.len() as u64 * of_task)?;
            }
            Ok(mine)
        };
        let mut sums = vec![0.0; tasks.len() * columns];
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for (i, part) in self.on_lanes(work)?.into_iter().flatten() {
            places.push(i as u64);
            values.extend(part);
        }
        let (places, values) =
            (self.ranks.all_gather(&places).concat(), self.ranks.all_gather(&values).concat());
        for (&i, part) in places.iter().zip(values.chunks(columns)) {
            sums[i as usize * columns..][..columns].copy_from_slice(part);
        }
        Ok(sums)
    }

    /// Adds the sums of one stream's tasks to `sums`, a buffer of points after the other.
    fn stream<T: Real>(
        &self,
        equipped: &Equipped<'_>,
        tasks: &[[u32; 4]],
        stream: Stream,
        round: Round,
        sums: &mut [f64],
    ) -> Result<()> {
        let (lane, columns) = (equipped.lane, self.columns());
        let mut generators = match &self.feed.points {
            Some(_) => None,
            None => {
                let seeds: Vec<u32> = (0..self.feed.groups).map(|g| dimension_key(stream.key, g)).collect();
                Some(Mtgp32::new(lane, &seeds, round.length)?)
            }
        };
        // Whole blocks, so that buffers change no sum.
        let fit = buffer_bytes(lane) / (4 * u64::from(round.length) * BLOCK as u64);
        let most = match self.feed.buffered {
            true => u32::try_from(fit.max(1)).map_or(u32::MAX / 2, |fit| fit.saturating_mul(BLOCK as u32)),
            false => u32::MAX,
        };
        // MTGP32 begins at its first point; those of earlier rounds are made again.
        let mut first = if generators.is_some() { 0 } else { round.points.0 };
        while first < round.points.1 {
            let stop = if first < round.points.0 { round.points.0 } else { round.points.1 };
            let count = (stop - first).min(most);
            // Words are read four at a time.
            let stride = count.next_multiple_of(4);
            let buffer = match (&mut generators, &self.feed.points) {
                (Some(generators), _) => Some(generators.fill(lane, stride)?),
                (None, Some(_)) if !self.feed.buffered => None,
                (None, Some(points)) => Some(fill(lane, points, stream, first, stride, 0..round.length)?),
                (None, None) => unreachable!("a sequence without random access has generators"),
            };
            let buffer = buffer.as_ref().map(|buffer| (buffer, stride));
            if first < round.points.0 {
                // Made for the sake of those behind them.
            } else if let Some(grid) = self.grid {
                for (task, sum) in tasks.iter().zip(&mut *sums) {
                    let tasks = std::slice::from_ref(task);
                    let part = Part { tasks, points: (first, first + count), buffer };
                    *sum += self.grid_sum::<T>(equipped, grid, &part, round)?;
                }
            } else {
                let per_task = count.div_ceil(BLOCK as u32);
                let blocks = per_task * tasks.len() as u32;
                let out = lane.alloc::<T>("sums of walks", blocks as usize * columns)?;
                let part = Part { tasks, points: (first, first + count), buffer };
                let (launch, groups) = self.bind(equipped, &part, round, &out)?;
                let program = Program { cycle: vec![vec![&launch]] };
                lane.run(&program, 0, u64::from(blocks.div_ceil(groups)), &mut |_| Ok(()))?;
                let mut here = vec![T::ZERO; blocks as usize * columns];
                lane.download(&out, 0, &mut here)?;
                let here: Vec<f64> = here.into_iter().map(T::wide).collect();
                let here = added(&here, per_task as usize, columns);
                sums.iter_mut().zip(here).for_each(|(all, new)| *all += new);
            }
            first += count;
        }
        Ok(())
    }

    /// One task on a grid: group sums, and their sum by another launch.
    fn grid_sum<T: Real>(
        &self,
        equipped: &Equipped<'_>,
        grid: Grid,
        part: &Part<'_>,
        round: Round,
    ) -> Result<f64> {
        let lane = equipped.lane;
        let groups = grid.groups as usize;
        let starts = lane.alloc_with::<u32>("starts of walks", bytemuck::cast_slice(part.tasks))?;
        let partial = lane.alloc::<T>("sums of groups", groups)?;
        let out = lane.alloc::<T>("sums of walks", groups.div_ceil(BLOCK))?;
        let points = part.buffer.map_or(&equipped.table, |b| b.0);
        let (rows, tasks, table) = (equipped.rows.arg(), starts.arg(), points.arg());
        let args = walk_grid::Args { rows, tasks, table, out: partial.arg() };
        let items = groups * grid.size as usize;
        let params = self.grid_params(grid, 0, part, round);
        let walks = lane.bind(grid.kernel()?, T::PRECISION, items, params, args)?;
        let params = block_sum::Params { rows: grid.groups, ..Default::default() };
        let args = block_sum::Args { x: partial.arg(), out: out.arg() };
        let reduce = lane.bind(&BLOCK_SUM, T::PRECISION, groups, params, args)?;
        lane.launch(&[&walks, &reduce], 0)?;
        let mut sums = vec![T::ZERO; out.len()];
        lane.download(&out, 0, &mut sums)?;
        Ok(sums.into_iter().map(T::wide).sum())
    }

    fn grid_params(&self, grid: Grid, unknowns: u32, part: &Part<'_>, round: Round) -> walk_grid::Params {
        let (sequence, stride) = match part.buffer {
            Some((_, stride)) => (BUFFER, stride),
            None => (self.feed.points.as_ref().map_or(BUFFER, |p| p.sequence().code()), 0),
        };
        walk_grid::Params {
            step: 0,
            groups: grid.groups,
            unknowns,
            first_point: part.points.0,
            end_point: part.points.1,
            length: round.length,
            cut: round.cut.to_bits(),
            sequence,
            scramble: self.feed.scramble.code(),
            tabled: self.feed.points.as_ref().map_or(0, Points::tabled),
            seed_low: self.feed.seed as u32,
            seed_high: (self.feed.seed >> 32) as u32,
            stride,
        }
    }

    /// One thread an unknown: each task's walks one after the other, as in section 3.1 of the paper of 2015, on the
    /// first lane. Points come by random access.
    ///
    /// # Errors
    /// Those of the lane.
    pub fn unknown_by_thread(&self, tasks: &[Task], round: Round) -> Result<Vec<f64>> {
        match self.precision {
            Precision::F32 => self.by_thread::<f32>(tasks, round),
            Precision::F64 => self.by_thread::<f64>(tasks, round),
        }
    }

    fn by_thread<T: Real>(&self, tasks: &[Task], round: Round) -> Result<Vec<f64>> {
        assert!(!self.feed.buffered && self.columns() == 1, "points by random access, one right-hand side");
        let equipped = &self.lanes[0];
        let words: Vec<[u32; 4]> = tasks.iter().map(|t| self.words(t)).collect();
        let starts = equipped.lane.alloc_with::<u32>("starts of walks", bytemuck::cast_slice(&words))?;
        let out = equipped.lane.alloc::<T>("sums of walks", tasks.len())?;
        let part = Part { tasks: &words, points: round.points, buffer: None };
        let grid = Grid { groups: tasks.len().div_ceil(BLOCK) as u32, size: BLOCK as u32 };
        let params = self.grid_params(grid, tasks.len() as u32, &part, round);
        let (rows, table) = (equipped.rows.arg(), equipped.table.arg());
        let args = walk_grid::Args { rows, tasks: starts.arg(), table, out: out.arg() };
        let launch = equipped.lane.bind(grid.kernel()?, T::PRECISION, tasks.len(), params, args)?;
        equipped.lane.launch(&[&launch], 0)?;
        let mut sums = vec![T::ZERO; tasks.len()];
        equipped.lane.download(&out, 0, &mut sums)?;
        Ok(sums.into_iter().map(|s| s.wide() * self.table.factor).collect())
    }

    /// Runs `work` on every lane at the same time.
    fn on_lanes<R: Send>(&self, work: impl Fn(&Equipped<'_>) -> Result<R> + Sync) -> Result<Vec<R>> {
        match &self.lanes[..] {
            [one] => Ok(vec![work(one)?]),
            several => std::thread::scope(|scope| {
                let work = &work;
                let all: Vec<_> = several.iter().map(|lane| scope.spawn(move || work(lane))).collect();
                all.into_iter().map(|t| t.join().expect("walks do not panic")).collect()
            }),
        }
    }
}

/// Walks whose spread is looked at.
const LOOKED_AT: usize = 64;

/// How far apart a few walks from a row lie in what they add up, column by column: the largest less the smallest.
pub(super) fn spread(table: &Table, row: u32, seed: u64, length: u32, cut: f32) -> [f64; COLUMNS] {
    let spread = match &table.columns[..] {
        [] => [spreads::<1>(table, &[], row, seed, length, cut)[0]; COLUMNS],
        columns => spreads(table, bytemuck::cast_slice(columns), row, seed, length, cut),
    };
    spread.map(|s| s * table.factor)
}

fn spreads<const C: usize>(
    table: &Table,
    columns: &[[f64; C]],
    row: u32,
    seed: u64,
    length: u32,
    cut: f32,
) -> [f64; C] {
    let points =
        Points::new(Sequence::Philox, Scramble::None, length, seed).expect("philox has random access");
    let mut theta = [[0.0; C]; BLOCK];
    dispatch(Block {
        rows: &table.words,
        columns,
        // No run has so many replicates.
        source: Source::Access(&points, Stream::new(seed, row, u32::MAX)),
        row: table.place[row as usize],
        first_point: 0,
        walks: LOOKED_AT,
        length,
        cut: f64::from(cut),
        theta: &mut theta,
    });
    std::array::from_fn(|column| {
        let all = theta[..LOOKED_AT].iter().map(|theta| theta[column]);
        all.clone().fold(f64::NEG_INFINITY, f64::max) - all.fold(f64::INFINITY, f64::min)
    })
}

/// Sums of `per_task` blocks each, column by column.
fn added(blocks: &[f64], per_task: usize, columns: usize) -> Vec<f64> {
    let task = |blocks: &[f64]| {
        (0..columns).map(|c| blocks.iter().skip(c).step_by(columns).sum::<f64>()).collect::<Vec<_>>()
    };
    blocks.chunks(per_task * columns).flat_map(task).collect()
}
