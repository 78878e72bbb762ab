//! Sums over chains that walk on a chain table, on all lanes and ranks.

use std::time::Instant;

use super::kernels::{BLOCK, number, walk};
use super::launcher::{BoundWalks, LaneTables, Round, StepCount, Task, Units, is_long};
use crate::kernel::{Precision, Real};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::walk::sequence::{Points, Stream};
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
    points: &'a Points,
    table: &'a Table,
}

impl<'a> Chains<'a> {
    /// Copies the tables to every lane.
    pub fn new(machine: &'a Machine, table: &'a Table, points: &'a Points) -> Result<Self> {
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
        let words = self.words(tasks);
        let mut sums = progress.watched(is_long, || self.blocks::<T>(&words, round, &progress))?;
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
    fn words(&self, tasks: &[Task]) -> Vec<[u32; 4]> {
        let word = |task: &Task| {
            let Stream { key, component, replicate } = self.points.stream(task.component, task.replicate);
            [self.table.place(task.row), key, component, replicate]
        };
        tasks.iter().map(word).collect()
    }

    /// Returns the kernel parameters of a round, except for those of blocks and groups.
    fn params(&self, round: Round) -> walk::Params {
        let Points { scramble, tabled, .. } = *self.points;
        let [seed_low, seed_high] = self.points.key();
        walk::Params {
            first_point: round.points.0,
            end_point: round.points.1,
            length: round.length,
            cut: round.cut.to_bits(),
            scramble: scramble.code(),
            tabled,
            seed_low,
            seed_high,
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
            let added = |task: &[f64], c| task.iter().skip(c).step_by(columns).sum::<f64>();
            for task in all.chunks(blocks as usize * columns) {
                sums.extend((0..columns).map(|c| added(task, c)));
            }
        }
        Ok(sums)
    }

    /// Returns the sums over each block of 256 chains, block by block, for some tasks.
    fn batch<T: Real>(&self, tasks: &[[u32; 4]], round: Round, progress: &StepCount<'_>) -> Result<Vec<f64>> {
        let lanes = self.lanes.len() as u32;
        self.share_out(u64::from(round.blocks()) * tasks.len() as u64, &|on, units| {
            let mut bound = BoundWalks::<T>::new(on, self.params(round), tasks)?;
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
}
