//! Sums over chains that walk on a chain table, on all lanes.

use std::collections::BTreeMap;

use super::kernels::{BLOCK, WALK, WALK_COLUMNS, number, walk, walk_columns};
use super::launcher::{BlockKernel, Launcher, Part, RealBuffer, Round, StepCount, Task, Units, Work, arrays};
use super::published_grid::walk_grid;
use crate::kernel::block_sums::{BLOCK_SUM, block_sum};
use crate::kernel::{Precision, Real};
use crate::lane::{Buffer, Lane, Launch};
use crate::walk::options::Grid;
use crate::walk::sequence::{PointSource, Stream};
use crate::walk::table::Table;
use crate::walk::table::record_layout::{COLUMNS, UNIT};
use crate::{Invalid, Machine, Progress, Result};

/// Copies of the chain table and of the sequence's table on a lane.
#[derive(Debug)]
pub(crate) struct LaneTables {
    rows: Buffer<u32>,
    sequence: Buffer<u32>,
    columns: Option<RealBuffer>,
}

impl LaneTables {
    fn new(lane: &Lane, precision: Precision, table: &Table, points: &PointSource) -> Result<Self> {
        let columns = (!table.columns.is_empty())
            .then(|| RealBuffer::new(lane, precision, "right-hand sides", &table.columns))
            .transpose()?;
        let rows = match lane.adopt("the chain table", &table.words)? {
            Some(own) => own,
            None => lane.alloc_with("the chain table", &table.words)?,
        };
        Ok(Self { rows, sequence: points.upload(lane)?, columns })
    }
}

impl BlockKernel for LaneTables {
    fn values(&self) -> usize {
        if self.columns.is_some() { COLUMNS } else { 1 }
    }

    fn bind<'a, T: Real>(
        &'a self,
        lane: &Lane,
        params: walk::Params,
        part: &Part<'a>,
    ) -> Result<Work<'a, T>> {
        let items = params.groups as usize * BLOCK;
        let (starts, sums) = arrays::<T>(lane, part.tasks, params.end as usize * self.values())?;
        let (rows, tasks, out) = (self.rows.arg(), starts.arg(), sums.arg());
        let table = part.buffer.map_or(&self.sequence, |b| b.words).arg();
        let launch = match &self.columns {
            None => lane.bind(&WALK, T::PRECISION, items, params, walk::Args { rows, tasks, table, out })?,
            Some(columns) => {
                let args = walk_columns::Args { rows, tasks, table, columns: columns.arg(), out };
                lane.bind(&WALK_COLUMNS, T::PRECISION, items, params, args)?
            }
        };
        Ok(Work::Launch(launch, sums))
    }
}

/// Lanes with the chain table and the sequence's table.
#[derive(Debug)]
pub struct Chains<'a> {
    launcher: Launcher<'a, LaneTables>,
    table: &'a Table,
    grid: Option<Grid>,
}

impl<'a> Chains<'a> {
    /// Copies the tables to every lane.
    ///
    /// # Errors
    /// A lane without enough memory, or with a smaller limit of bindings than a table.
    pub fn new(machine: &'a Machine, table: &'a Table, points: &'a PointSource) -> Result<Self> {
        let tables = |lane: &Lane| LaneTables::new(lane, machine.precision, table, points);
        let launcher = Launcher::new(machine, points, tables)?;
        Ok(Self { launcher, table, grid: None })
    }

    /// Uses a given grid, one task after another, instead of blocks of 256 walks.
    ///
    /// # Errors
    /// [`Invalid`] for an unsupported grid, and for several right-hand sides.
    pub fn on_grid(self, grid: Grid) -> Result<Self> {
        grid.kernel()?;
        if self.columns() > 1 {
            let reason = "several right-hand sides are not supported on a grid: expected one";
            return Invalid::Unsupported.fail(reason.to_owned());
        }
        Ok(Self { grid: Some(grid), ..self })
    }

    /// Number of columns of the table and of the sums: 1 or `COLUMNS`.
    pub fn columns(&self) -> usize {
        self.launcher.values()
    }

    /// Returns the sum of θ over the points of the round, per task and column.
    pub fn sums(&self, tasks: &[Task], round: Round, watch: &mut dyn Progress) -> Result<Vec<f64>> {
        match self.launcher.precision {
            Precision::F32 => self.sums_of::<f32>(tasks, round, watch),
            Precision::F64 | Precision::Q64 => self.sums_of::<f64>(tasks, round, watch),
        }
    }

    fn sums_of<T: Real>(&self, tasks: &[Task], round: Round, watch: &mut dyn Progress) -> Result<Vec<f64>> {
        let columns = self.columns();
        if tasks.is_empty() || round.walks() == 0 {
            return Ok(vec![0.0; tasks.len() * columns]);
        }
        if round.length == 0 {
            // Chains without steps need no lane and no points.
            return Ok(tasks.iter().flat_map(|task| self.without_steps::<T>(task, round.walks())).collect());
        }
        let mut sums = Vec::with_capacity(tasks.len() * columns);
        if self.launcher.points.buffered || self.grid.is_some() {
            sums = self.streams::<T>(tasks, round, watch)?;
        } else {
            let words = self.words(tasks);
            self.launcher.blocks::<T>(&words, round, watch, |blocks| sums.extend(added(blocks, columns)))?;
        }
        sums.iter_mut().for_each(|s| *s *= self.table.factor);
        Ok(sums)
    }

    /// Sum of chains without steps: g of the row, or the functional of g, per chain.
    fn without_steps<T: Real>(&self, task: &Task, walks: u32) -> Vec<f64> {
        let row = task.row as usize;
        let all = self.table.factor * f64::from(walks);
        if let Some(k) = row.checked_sub(self.table.place.len()) {
            return self.table.starts[k].without_steps[..self.columns()].iter().map(|g| g * all).collect();
        }
        match &self.table.columns[..] {
            [] => {
                let record = &self.table.words[self.table.place[row] as usize * UNIT..];
                vec![number::<T>(record[0], record[1]).wide() * all]
            }
            g => g[row * COLUMNS..][..COLUMNS].iter().map(|&g| T::of(g).wide() * all).collect(),
        }
    }

    fn words<'t>(&self, tasks: impl IntoIterator<Item = &'t Task>) -> Vec<[u32; 4]> {
        let place = |task: &Task| self.table.place(task.row);
        tasks.into_iter().map(|task| self.launcher.words(task, place(task))).collect()
    }

    /// Sums with buffered points, or on a grid.
    ///
    /// A lane computes the points of a stream, and then all tasks of that stream.
    fn streams<T: Real>(&self, tasks: &[Task], round: Round, watch: &mut dyn Progress) -> Result<Vec<f64>> {
        let columns = self.columns();
        let mut streams: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (i, task) in tasks.iter().enumerate() {
            streams.entry((task.component, task.replicate)).or_default().push(i);
        }
        let streams: Vec<((u32, u32), Vec<usize>)> = streams.into_iter().collect();
        let progress = StepCount::new(round.steps(tasks.len()), watch);
        let walk = |lane: &(&'a Lane, LaneTables), units: &Units| {
            let mut mine = Vec::new();
            while let Some(unit) = units.take(1) {
                let ((component, replicate), members) = &streams[unit.start as usize];
                let words = self.words(members.iter().map(|&i| &tasks[i]));
                let stream = self.launcher.points.stream(*component, *replicate);
                mine.push((unit.start, self.stream::<T>(lane, &words, stream, round)?));
                progress.add(round.steps(members.len()))?;
            }
            Ok(mine)
        };
        let share_out = || self.launcher.share_out(streams.len() as u64, &walk);
        let all = progress.watched(self.launcher.is_long(round), share_out)?;
        let mut sums = vec![0.0; tasks.len() * columns];
        let members = streams.iter().flat_map(|(_, members)| members);
        for (&i, part) in members.zip(all.chunks(columns)) {
            sums[i * columns..][..columns].copy_from_slice(part);
        }
        Ok(sums)
    }

    /// Sums of the tasks of one stream, added over its pieces.
    fn stream<T: Real>(
        &self,
        lane: &(&'a Lane, LaneTables),
        tasks: &[[u32; 4]],
        stream: Stream,
        round: Round,
    ) -> Result<Vec<f64>> {
        let columns = self.columns();
        let mut sums = vec![0.0; tasks.len() * columns];
        self.launcher.points.pieces(lane.0, stream, round.points, round.length, |points, buffer| {
            let part = |tasks| Part { tasks, points, buffer };
            let here: Vec<f64> = match self.grid {
                Some(grid) => {
                    let sum = |task| self.grid_sum::<T>(lane, grid, &part(task), round);
                    tasks.chunks(1).map(sum).collect::<Result<_>>()?
                }
                None => {
                    let mut bound = self.launcher.bind::<T>(lane, &part(tasks), round)?;
                    let blocks = bound.walk(0..bound.params.end, |_| Ok(()))?;
                    blocks.chunks(blocks.len() / tasks.len()).flat_map(|task| added(task, columns)).collect()
                }
            };
            sums.iter_mut().zip(here).for_each(|(all, new)| *all += new);
            Ok(())
        })?;
        Ok(sums)
    }

    /// Binds a launch on a grid, and returns its array of one result per group or thread.
    fn bind_grid<T: Real>(
        &self,
        (lane, tables): &(&'a Lane, LaneTables),
        grid: Grid,
        (items, values): (usize, usize),
        params: walk::Params,
        part: &Part<'_>,
    ) -> Result<(Launch, Buffer<T>)> {
        let (starts, out) = arrays::<T>(lane, part.tasks, values)?;
        let table = part.buffer.map_or(&tables.sequence, |b| b.words).arg();
        let (rows, tasks) = (tables.rows.arg(), starts.arg());
        let params = walk::Params { groups: grid.groups, ..params };
        let args = walk_grid::Args { rows, tasks, table, out: out.arg() };
        Ok((lane.bind(grid.kernel()?, T::PRECISION, items, params, args)?, out))
    }

    /// Computes one task on a grid: group sums, and their sum by another launch.
    fn grid_sum<T: Real>(
        &self,
        on: &(&'a Lane, LaneTables),
        grid: Grid,
        part: &Part<'_>,
        round: Round,
    ) -> Result<f64> {
        let (lane, groups) = (on.0, grid.groups as usize);
        let items = groups * grid.size as usize;
        let params = self.launcher.params(part, round);
        let (walks, partial) = self.bind_grid::<T>(on, grid, (items, groups), params, part)?;
        let out = lane.alloc::<T>("sums of walks", groups.div_ceil(BLOCK))?;
        let params = block_sum::Params { rows: grid.groups, ..Default::default() };
        let args = block_sum::Args { x: partial.arg(), out: out.arg() };
        let reduce = lane.bind(&BLOCK_SUM, T::PRECISION, groups, params, args)?;
        lane.launch(&[&walks, &reduce], 0)?;
        let mut sums = vec![T::ZERO; out.len()];
        lane.download(&out, 0, &mut sums)?;
        Ok(sums.into_iter().map(T::wide).sum())
    }

    /// Computes each task in one thread, walk by walk, on the first lane.
    ///
    /// This is the method of section 3.1 of the paper of 2015. Points have to have random access.
    pub fn unknown_by_thread(&self, tasks: &[Task], round: Round) -> Result<Vec<f64>> {
        match self.launcher.precision {
            Precision::F32 => self.by_thread::<f32>(tasks, round),
            Precision::F64 | Precision::Q64 => self.by_thread::<f64>(tasks, round),
        }
    }

    fn by_thread<T: Real>(&self, tasks: &[Task], round: Round) -> Result<Vec<f64>> {
        assert!(
            !self.launcher.points.buffered && self.columns() == 1,
            "points by random access, one right-hand side"
        );
        let (on, count) = (&self.launcher.lanes[0], tasks.len());
        let words = self.words(tasks);
        let part = Part { tasks: &words, points: round.points, buffer: None };
        let grid = Grid { groups: count.div_ceil(BLOCK) as u32, size: BLOCK as u32 };
        let params = walk::Params { end: count as u32, ..self.launcher.params(&part, round) };
        let (launch, out) = self.bind_grid::<T>(on, grid, (count, count), params, &part)?;
        on.0.launch(&[&launch], 0)?;
        let mut sums = vec![T::ZERO; count];
        on.0.download(&out, 0, &mut sums)?;
        Ok(sums.into_iter().map(|s| s.wide() * self.table.factor).collect())
    }
}

fn added(blocks: &[f64], columns: usize) -> impl Iterator<Item = f64> {
    (0..columns).map(move |c| blocks.iter().skip(c).step_by(columns).sum())
}
