//! Adaptive sampling: more and more chains, until intervals are short enough or a budget ends.

use std::time::Instant;

use super::interval::student;
use super::launcher::{Round, Task};
use super::run::{BatchResult, Run};
use super::solution::{Bound, Component};
use crate::Result;

/// A component on its way to its interval.
#[derive(Debug, Clone)]
pub(super) struct RunningEstimate {
    pub(super) component: u32,
    /// Σ θ of each replicate, column by column.
    sums: Vec<f64>,
    columns: usize,
    /// Points of each replicate.
    pub(super) points: u64,
}

impl RunningEstimate {
    /// Mean and statistical half-width of offset + scale · θ in a column.
    pub(super) fn interval(&self, column: usize, offset: f64, scale: f64, confidence: f64) -> (f64, f64) {
        let sums = self.sums.iter().skip(column).step_by(self.columns);
        let means: Vec<f64> = sums.map(|s| offset + scale * s / self.points as f64).collect();
        student(&means, confidence)
    }

    /// Chains so far, over all replicates.
    pub(super) fn chains(&self) -> u64 {
        self.points * (self.sums.len() / self.columns) as u64
    }

    /// The component as it is estimated so far, by chains of at most so many steps.
    pub(super) fn component(&self, estimate: f64, bound: Bound, length: u32) -> Component {
        Component {
            component: self.component,
            rhs: 0,
            estimate,
            half_width: bound.total(),
            bound,
            chains: self.chains(),
            length,
        }
    }
}

/// Rounds of walks for the components of a run.
pub(super) struct AdaptiveSampling<'a> {
    pub(super) run: &'a Run<'a>,
    /// Right-hand sides, and columns that are added up.
    pub(super) rhs: usize,
    pub(super) columns: usize,
    /// Points of a replicate: in the first round and at most.
    pub(super) points: (u64, u64),
    /// Steps of a chain at most, and the weight at which it ends.
    pub(super) length: u32,
    pub(super) cut: f32,
}

impl AdaptiveSampling<'_> {
    /// Walks for all components, and again as much for those that are not `settled`. `sums` walks; `component` is what is
    /// known of one so far, for a right-hand side.
    pub(super) fn run(
        &self,
        mut sums: impl FnMut(&[Task], Round) -> Result<Vec<f64>>,
        settled: impl Fn(usize, &RunningEstimate) -> bool,
        component: impl Fn(usize, &RunningEstimate) -> Result<Component>,
    ) -> Result<BatchResult> {
        let at = Instant::now();
        let mut result = BatchResult::default();
        let (columns, replicates) = (self.columns, self.run.replicates);
        let each = replicates as usize * columns;
        let new = |&component: &u32| RunningEstimate { component, sums: vec![0.0; each], columns, points: 0 };
        let mut all: Vec<RunningEstimate> = self.run.problem.components.iter().map(new).collect();
        let mut active: Vec<usize> = (0..all.len()).collect();
        let (mut end, most) = self.points;
        while !active.is_empty() {
            let task = |&k: &usize| {
                let row = all[k].component;
                let component = if self.run.options.shared { 0 } else { row };
                (0..replicates).map(move |replicate| Task { row, component, replicate })
            };
            let tasks: Vec<Task> = active.iter().flat_map(task).collect();
            let points = (all[active[0]].points as u32, end as u32);
            let round = Round { points, length: self.length, cut: self.cut };
            result.steps += round.steps(tasks.len());
            let sums = sums(&tasks, round)?;
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
