//! Sums over chains that walk on a chain table, on all lanes and ranks.

use std::collections::BTreeMap;
use std::time::Instant;

use super::kernels::{BLOCK, BUFFER, number, walk};
use super::launcher::{Bound, LaneTables, Part, Round, StepCount, Task, Units, is_long};
use crate::kernel::{Precision, Real};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::walk::sequence::{PointSource, Stream};
use crate::walk::table::Table;
use crate::walk::table::record_layout::{COLUMNS, UNIT};
use crate::{Machine, Progress, Result};

/// Work of a lane on units: returns results, each with the number of its first unit in the queue.
type OnUnits<'w, 'a> = dyn Fn(&LaneTables<'a>, &Units) -> Result<Vec<(u32, Vec<f64>)>> + Sync + 'w;

/// Lanes, each with a copy of the chain table and of the table of quasi-random points.
#[derive(Debug)]
pub struct Chains<'a> {
    lanes: Vec<LaneTables<'a>>,
    precision: Precision,
    ranks: Ranks,
    points: &'a PointSource,
    table: &'a Table,
}

impl<'a> Chains<'a> {
    /// Copies the tables to every lane.
    pub fn new(machine: &'a Machine, table: &'a Table, points: &'a PointSource) -> Result<Self> {
        let &Machine { ref lanes, precision, ranks } = machine;
        let lanes = at_once(lanes, |lane| LaneTables::new(lane, precision, table, points));
        let lanes = lanes.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(Self { lanes, precision, ranks, points, table })
    }

    /// Number of columns of the table and of the sums: 1 or `COLUMNS`.
    pub fn columns(&self) -> usize {
        self.lanes[0].values()
    }

    /// Returns sums of θ (sum along a walk) over the points of the round, per task and column.
    pub fn sums(&self, tasks: &[Task], round: Round, watch: &mut dyn Progress) -> Result<Vec<f64>> {
        match self.precision {
            Precision::F32 => self.sums_of::<f32>(tasks, round, watch),
            Precision::F64 | Precision::Q64 => self.sums_of::<f64>(tasks, round, watch),
        }
    }

    fn sums_of<T: Real>(&self, tasks: &[Task], round: Round, watch: &mut dyn Progress) -> Result<Vec<f64>> {
        if tasks.is_empty() || round.walks() == 0 {
            return Ok(vec![0.0; tasks.len() * self.columns()]);
        }
        if round.length == 0 {
            // Chains without steps need no lane and no points.
            return Ok(tasks.iter().flat_map(|task| self.without_steps::<T>(task, round.walks())).collect());
        }
        let progress = StepCount::new(round.steps(tasks.len()), watch);
        let is_long = self.lanes.iter().any(|on| is_long(on.lane, round));
        let mut sums = progress.watched(is_long, || match self.points.buffered {
            true => self.streams::<T>(tasks, round, &progress),
            false => self.blocks::<T>(&self.words(tasks), round, &progress),
        })?;
        sums.iter_mut().for_each(|s| *s *= self.table.factor);
        Ok(sums)
    }

    /// Sum over `walks` chains without steps. Each adds g of the start row, or the functional of g.
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

    /// Encodes tasks for the kernel: record of the first row, key, component and replicate.
    fn words<'t>(&self, tasks: impl IntoIterator<Item = &'t Task>) -> Vec<[u32; 4]> {
        let word = |task: &Task| {
            let Stream { key, component, replicate } = self.points.stream(task.component, task.replicate);
            [self.table.place(task.row), key, component, replicate]
        };
        tasks.into_iter().map(word).collect()
    }

    /// Returns the kernel parameters of a [`Part`], except for those of blocks and groups.
    fn params(&self, part: &Part<'_>, round: Round) -> walk::Params {
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

    /// Distributes units of work over ranks and lanes, and returns all results on every rank.
    ///
    /// `work` repeatedly takes units, and returns their results with the number of the first one.
    /// All results are in the order of the units.
    fn share_out(&self, units: u64, work: &OnUnits<'_, 'a>) -> Result<Vec<f64>> {
        let units = Units::new(self.ranks.share(units));
        let parts: Result<Vec<_>> = at_once(&self.lanes, |lane| work(lane, &units)).into_iter().collect();
        let mut parts: Vec<(u32, Vec<f64>)> = parts?.into_iter().flatten().collect();
        parts.sort_unstable_by_key(|&(first, _)| first);
        let mine: Vec<f64> = parts.into_iter().flat_map(|(_, values)| values).collect();
        Ok(if self.ranks.is_distributed() { self.ranks.all_gather(&mine).concat() } else { mine })
    }

    /// Sums walks per task and right-hand side in blocks of 256; the kernel computes the points.
    ///
    /// Results of blocks do not depend on lane or rank, and are added in one order.
    fn blocks<T: Real>(
        &self,
        tasks: &[[u32; 4]],
        round: Round,
        progress: &StepCount<'_>,
    ) -> Result<Vec<f64>> {
        // Very many tasks run in batches, to limit the memory of their sums.
        const MOST: u32 = 1 << 22;
        let (columns, blocks) = (self.columns(), round.blocks());
        let mut sums = Vec::with_capacity(tasks.len() * columns);
        for tasks in tasks.chunks((MOST / blocks).max(1) as usize) {
            let all = self.batch::<T>(tasks, round, progress)?;
            sums.extend(all.chunks(blocks as usize * columns).flat_map(|task| added(task, columns)));
        }
        Ok(sums)
    }

    /// Returns the sums over each block of 256 chains, block by block, for some tasks.
    fn batch<T: Real>(&self, tasks: &[[u32; 4]], round: Round, progress: &StepCount<'_>) -> Result<Vec<f64>> {
        let lanes = self.lanes.len() as u32;
        let part = Part { tasks, points: round.points, buffer: None };
        self.share_out(u64::from(round.blocks()) * tasks.len() as u64, &|on, units| {
            let mut bound = Bound::<T>::new(on, self.params(&part, round), &part)?;
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
                    let left = units.left() / groups;
                    let steps = f64::from((blocks.end - blocks.start).div_ceil(groups));
                    let fit = 0.2 / from.elapsed().as_secs_f64().max(1e-6) * steps;
                    pace = (fit as u32).clamp(1, (left / (2 * lanes)).max(1));
                }
                mine.push((blocks.start, values));
            }
            Ok(mine)
        })
    }

    /// Sums walks per task and right-hand side with buffered points.
    ///
    /// A lane computes the points of a stream, and then all tasks of that stream.
    fn streams<T: Real>(&self, tasks: &[Task], round: Round, progress: &StepCount<'_>) -> Result<Vec<f64>> {
        let columns = self.columns();
        let mut streams: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        for (i, task) in tasks.iter().enumerate() {
            streams.entry((task.component, task.replicate)).or_default().push(i);
        }
        let streams: Vec<((u32, u32), Vec<usize>)> = streams.into_iter().collect();
        let all = self.share_out(streams.len() as u64, &|on, units| {
            let mut mine = Vec::new();
            while let Some(unit) = units.take(1) {
                let ((component, replicate), members) = &streams[unit.start as usize];
                let words = self.words(members.iter().map(|&i| &tasks[i]));
                let stream = self.points.stream(*component, *replicate);
                mine.push((unit.start, self.stream::<T>(on, &words, stream, round)?));
                progress.add(round.steps(members.len()))?;
            }
            Ok(mine)
        })?;
        let mut sums = vec![0.0; tasks.len() * columns];
        let members = streams.iter().flat_map(|(_, members)| members);
        for (&i, part) in members.zip(all.chunks(columns)) {
            sums[i * columns..][..columns].copy_from_slice(part);
        }
        Ok(sums)
    }

    /// Computes each task's sum over the points of one random stream.
    ///
    /// Tasks of a stream share its component and replicate. Buffered points are generated in pieces
    /// that fit the buffer; the sums of the pieces are added.
    fn stream<T: Real>(
        &self,
        on: &LaneTables<'a>,
        tasks: &[[u32; 4]],
        stream: Stream,
        round: Round,
    ) -> Result<Vec<f64>> {
        let columns = self.columns();
        let mut sums = vec![0.0; tasks.len() * columns];
        self.points.pieces(on.lane, stream, round.points, round.length, |points, buffer| {
            let part = Part { tasks, points, buffer };
            let mut bound = Bound::<T>::new(on, self.params(&part, round), &part)?;
            let blocks = bound.walk(0..bound.params.end, |_| Ok(()))?;
            let here = blocks.chunks(blocks.len() / tasks.len()).flat_map(|task| added(task, columns));
            sums.iter_mut().zip(here).for_each(|(all, new)| *all += new);
            Ok(())
        })?;
        Ok(sums)
    }
}

fn added(blocks: &[f64], columns: usize) -> impl Iterator<Item = f64> {
    (0..columns).map(move |c| blocks.iter().skip(c).step_by(columns).sum())
}
