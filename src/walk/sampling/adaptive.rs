//! Adaptive sampling: doubles the number of chains until intervals suffice or a limit is reached.

use std::time::Instant;

use super::launcher::{Round, Task};
use super::walk_sums::Chains;
use crate::numerics::confidence::student;
use crate::walk::context::{BatchResult, WalkRun};
use crate::walk::solution::{Bound, Component, Quantity};
use crate::{Error, Progress, Result};

/// Running estimate of a component, or of a functional as a row after the last one.
#[derive(Debug, Clone)]
pub(crate) struct RunningEstimate {
    pub(crate) row: u32,
    /// Sums of θ (sum along a walk) per replicate and column; the column varies fastest.
    sums: Vec<f64>,
    columns: usize,
    pub(crate) points: u64,
    /// Largest number of steps of its chains.
    pub(crate) length: u32,
}

impl RunningEstimate {
    /// Mean and statistical half-width of offset + scale · θ (sum along a walk) for a column.
    pub(crate) fn interval(&self, column: usize, offset: f64, scale: f64, confidence: f64) -> (f64, f64) {
        let sums = self.sums.iter().skip(column).step_by(self.columns);
        let means: Vec<f64> = sums.map(|s| offset + scale * s / self.points as f64).collect();
        student(&means, confidence)
    }

    /// Number of chains so far, over all replicates.
    pub(crate) fn chains(&self) -> u64 {
        self.points * (self.sums.len() / self.columns) as u64
    }

    /// Returns the estimate as a component, for chains of at most `length` steps. The caller sets
    /// ε.
    pub(crate) fn component(&self, estimate: f64, bound: Bound, length: u32) -> Component {
        Component {
            quantity: Quantity::Component,
            component: self.row,
            rhs: 0,
            estimate,
            epsilon: f64::NAN,
            half_width: bound.total(),
            bound,
            chains: if length > 0 { self.chains() } else { 0 },
            length,
        }
    }
}

/// Rounds of walks from given rows, repeated until their intervals are short enough.
pub(crate) struct AdaptiveSampling<'a> {
    pub(crate) run: &'a WalkRun<'a>,
    pub(crate) rows: &'a [u32],
    pub(crate) chains: &'a Chains<'a>,
    /// Number of right-hand sides, at most that of the columns of the chains.
    pub(crate) rhs: usize,
    /// Number of points per replicate: in the first round, and at most in all rounds.
    pub(crate) points: (u64, u64),
    /// Largest number of steps of a chain. A chain also ends at the weight `cut`.
    pub(crate) length: u32,
    pub(crate) cut: f32,
}

impl AdaptiveSampling<'_> {
    /// Returns the tasks of some rows, by their indices.
    fn tasks(&self, of: &[usize]) -> Vec<Task> {
        let task = |&k: &usize| {
            let row = self.rows[k];
            (0..self.run.replicates).map(move |replicate| Task { row, component: row, replicate })
        };
        of.iter().flat_map(task).collect()
    }

    /// Makes walks from all rows, and doubles them for rows not `settled`, until the time limit.
    ///
    /// * `component` returns the current estimate for a right-hand side.
    /// * `watch` gets the number of steps done and the predicted total, for intervals that shrink
    ///   with the square root of the number of chains.
    pub(crate) fn run(
        &self,
        settled: impl Fn(usize, &RunningEstimate) -> bool,
        component: impl Fn(usize, &RunningEstimate) -> Result<Component>,
        watch: &mut dyn Progress,
    ) -> Result<BatchResult> {
        let at = Instant::now();
        let mut result = BatchResult::default();
        let (columns, replicates) = (self.chains.columns(), self.run.replicates);
        let each = replicates as usize * columns;
        let new = |&row: &u32| RunningEstimate {
            row,
            sums: vec![0.0; each],
            columns,
            points: 0,
            length: self.length,
        };
        let mut all: Vec<RunningEstimate> = self.rows.iter().map(new).collect();
        let mut active: Vec<usize> = (0..all.len()).collect();
        let (mut end, most) = self.points;
        let mut expected = 0;
        while !active.is_empty() {
            let tasks = self.tasks(&active);
            let points = (all[active[0]].points as u32, end as u32);
            let round = Round { points, length: self.length, cut: self.cut };
            let (before, here) = (result.steps, round.steps(tasks.len()));
            let is_timed_out = || {
                self.run.is_timed_out()
                    || self.run.options.walk_limit.is_some_and(|limit| at.elapsed() >= limit)
            };
            let mut timed_out = is_timed_out();
            let mut check = |done: u64, _: u64| {
                watch.progress(before + done, before.saturating_add(here.max(expected)))?;
                timed_out = is_timed_out();
                if timed_out { Err(Error::Interrupted) } else { Ok(()) }
            };
            let sums = match check(0, here).and_then(|()| self.chains.sums(&tasks, round, &mut check)) {
                Err(Error::Interrupted) if timed_out => break,
                sums => sums?,
            };
            result.steps += here;
            let latest = self.rhs * active.len();
            for (&k, sums) in active.iter().zip(sums.chunks(each)) {
                all[k].sums.iter_mut().zip(sums).for_each(|(all, new)| *all += new);
                all[k].points = end;
                for rhs in 0..self.rhs {
                    result.rounds.push(component(rhs, &all[k])?);
                }
            }
            if end >= most {
                break;
            }
            active.retain(|&k| !(0..self.rhs).all(|rhs| settled(rhs, &all[k])));
            end = (2 * end).min(most);
            let latest = &result.rounds[result.rounds.len() - latest..];
            let more = |c: &Component| c.more_chains((most * u64::from(replicates)) as f64);
            let chains = latest.iter().map(more).sum::<f64>() / self.rhs as f64;
            expected = (chains * f64::from(self.length)) as u64;
        }
        if all.iter().any(|estimate| estimate.points == 0) {
            // The time limit came before the first round: estimate without a step.
            let round = Round { points: (0, 1), length: 0, cut: self.cut };
            let rows: Vec<usize> = (0..all.len()).collect();
            let sums = self.chains.sums(&self.tasks(&rows), round, &mut ())?;
            for (estimate, sums) in all.iter_mut().zip(sums.chunks(each)) {
                (estimate.points, estimate.length) = (1, 0);
                estimate.sums.copy_from_slice(sums);
            }
        }
        result.solve = at.elapsed().as_secs_f64();
        for rhs in 0..self.rhs {
            for estimate in &all {
                result.components.push(component(rhs, estimate)?);
            }
        }
        Ok(result)
    }
}
