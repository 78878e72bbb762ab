//! More and more chains, until intervals are short enough or a budget ends.

use super::chains::Task;
use super::interval::student;
use crate::Result;

/// A component on its way to its interval.
#[derive(Debug, Clone)]
pub(super) struct Growing {
    pub(super) component: u32,
    /// Σ θ of each replicate, column by column.
    sums: Vec<f64>,
    columns: usize,
    /// Points of each replicate.
    pub(super) points: u64,
}

impl Growing {
    /// Mean and statistical half-width of offset + scale · θ in a column.
    pub(super) fn interval(&self, column: usize, offset: f64, scale: f64, confidence: f64) -> (f64, f64) {
        let sums = self.sums.iter().skip(column).step_by(self.columns);
        let means: Vec<f64> = sums.map(|s| offset + scale * s / self.points as f64).collect();
        student(&means, confidence)
    }
}

/// What is walked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Growth<'a> {
    pub(super) components: &'a [u32],
    pub(super) replicates: u32,
    pub(super) columns: usize,
    /// Whether all components have one sequence.
    pub(super) shared: bool,
    /// Points of a replicate: in the first round and at most.
    pub(super) points: (u64, u64),
}

impl Growth<'_> {
    /// Walks for all components, and again as much for those that are not `done`. `sums` gets tasks and points; `seen`
    /// every component after each of its rounds.
    pub(super) fn run(
        &self,
        mut sums: impl FnMut(&[Task], (u32, u32)) -> Result<Vec<f64>>,
        done: impl Fn(&Growing) -> bool,
        mut seen: impl FnMut(&Growing),
    ) -> Result<Vec<Growing>> {
        let each = self.replicates as usize * self.columns;
        let new =
            |&component: &u32| Growing { component, sums: vec![0.0; each], columns: self.columns, points: 0 };
        let mut growing: Vec<Growing> = self.components.iter().map(new).collect();
        let mut active: Vec<usize> = (0..growing.len()).collect();
        let (mut end, most) = self.points;
        while !active.is_empty() {
            let task = |&k: &usize| {
                let row = growing[k].component;
                let component = if self.shared { 0 } else { row };
                (0..self.replicates).map(move |replicate| Task { row, component, replicate })
            };
            let tasks: Vec<Task> = active.iter().flat_map(task).collect();
            let first = growing[active[0]].points;
            let sums = sums(&tasks, (first as u32, end as u32))?;
            for (&k, sums) in active.iter().zip(sums.chunks(each)) {
                growing[k].sums.iter_mut().zip(sums).for_each(|(all, new)| *all += new);
                growing[k].points = end;
                seen(&growing[k]);
            }
            if end >= most {
                break;
            }
            active.retain(|&k| !done(&growing[k]));
            end = (2 * end).min(most);
        }
        Ok(growing)
    }
}
