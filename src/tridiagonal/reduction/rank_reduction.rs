//! Subtrees of the merge tree that ranks send: the largest ones with rows of one rank only.
//!
//! The leaves here are the units at which ranks are cut (`Alignment::of_ranks`). A run of units
//! consists of at most two largest subtrees per level. A rank joins its units up to these subtrees,
//! and rank 0 continues with those of all ranks, each on its level.
//!
//! Kernels process whole levels on all ranks. Nodes beside a rank's subtrees, or below those that
//! rank 0 received, are computed but never read.

use std::ops::Range;
use std::sync::Arc;

use super::levels::{Level, Levels, Shape};
use crate::Result;
use crate::lane::Lane;
use crate::tridiagonal::kernels::number::Number;

/// Maximum number of levels above the units of a rank: enough to join 64 units, its maximum, to
/// one.
const LEVELS: u32 = 6;

/// Number of levels above `all` units of all ranks on which subtrees may be sent.
pub fn depth(all: usize) -> u32 {
    all.next_power_of_two().ilog2().min(LEVELS)
}

/// Adjacent subtrees on one level. Level 0 has the units at which ranks are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubtreeRun {
    /// Level of the subtrees.
    pub level: u32,
    /// Indices of the subtrees on that level.
    pub nodes: Range<usize>,
}

/// Returns the largest subtrees of the merge tree with leaves in `units` of `all`, left to right.
///
/// There are at most two per level, except on the last of `levels` levels above the units. The last
/// subtree of all need not be full.
pub fn largest(units: Range<usize>, all: usize, levels: u32) -> Vec<SubtreeRun> {
    let mut runs: Vec<SubtreeRun> = Vec::new();
    let mut at = units.start;
    while at < units.end {
        let whole = |&level: &u32| at.is_multiple_of(1 << level) && (at + (1 << level)).min(all) <= units.end;
        let level = (0..=levels).rev().find(whole).unwrap_or(0);
        let node = at >> level;
        match runs.last_mut() {
            Some(run) if run.level == level => run.nodes.end = node + 1,
            _ => runs.push(SubtreeRun { level, nodes: node..node + 1 }),
        }
        at = (at + (1 << level)).min(all);
    }
    runs
}

/// Callback for subtrees: their level, their indices there, and their range in a list of all.
type VisitSubtrees<'v, T> = &'v mut dyn FnMut(&Level<T>, &Range<usize>, Range<usize>) -> Result<()>;

/// Levels of a merge tree on a lane, and the subtrees that a rank sends to rank 0.
#[derive(Debug)]
pub struct Subtrees<T> {
    tree: Levels<T>,
    /// Number of merges below the level at which ranks are cut. `lead` is the number of nodes of
    /// the first level before those of this rank.
    before: usize,
    lead: usize,
    /// Subtrees that are sent, as indices among the nodes of this tree.
    runs: Vec<SubtreeRun>,
}

impl<T: Number> Subtrees<T> {
    /// Creates the tree of rank 0 over `all` units, from the subtrees of all ranks in rank order.
    pub fn of_all(lane: &Lane, all: usize, runs: Vec<SubtreeRun>) -> Result<Self> {
        let mut tree = Levels::new(Arc::new(Level::new(lane, Shape::REDUCED_BLOCKS, all)?));
        let levels = runs.iter().map(|run| run.level).max().unwrap_or(0);
        (0..levels).try_for_each(|_| tree.merge(lane, 1))?;
        Ok(Self { tree, before: 0, lead: 0, runs })
    }

    /// Creates the tree of a rank with `count` reduced blocks, 2^below of which form one of the
    /// `all` units. The first local unit is unit `start` of all.
    pub fn of_rank(lane: &Lane, count: usize, below: u32, start: usize, all: usize) -> Result<Self> {
        let levels = depth(all);
        // Nodes are numbered as in the tree of all ranks, from the last multiple of 2^levels up to
        // `start`.
        let base = start >> levels << levels;
        let lead = (start - base) << below;
        let mut tree = Levels::new(Arc::new(Level::new(lane, Shape::REDUCED_BLOCKS, lead + count)?));
        tree.reduce_levels(lane, below)?;
        let before = tree.up.len();
        (0..levels).try_for_each(|_| tree.merge(lane, 1))?;
        let mut runs = largest(start..start + count.div_ceil(1 << below), all, levels);
        for SubtreeRun { level, nodes } in &mut runs {
            let skipped = base >> *level;
            *nodes = nodes.start - skipped..nodes.end - skipped;
        }
        Ok(Self { tree, before, lead, runs })
    }

    /// Device memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.tree.bytes()
    }

    /// Number of subtrees that this rank sends, or that rank 0 receives from all ranks.
    pub fn count(&self) -> usize {
        self.runs.iter().map(|run| run.nodes.len()).sum()
    }

    /// Level up to which all subtrees are joined, with the reduced blocks for the root solve.
    pub fn top(&self) -> &Arc<Level<T>> {
        self.tree.last()
    }

    /// Levels at which ranks may be cut, from the units up, each with the merges that lead to it.
    fn levels(&self) -> impl DoubleEndedIterator<Item = (usize, Range<usize>)> + use<T> {
        let before = self.before;
        (0..=self.tree.up.len() - before).map(move |level| {
            (level, if level == 0 { 0..before } else { before + level - 1..before + level })
        })
    }

    /// Calls `visit` for each run of subtrees of a level, with the level, their indices there, and
    /// their range in a list of all subtrees.
    fn visit(&self, level: usize, visit: VisitSubtrees<'_, T>) -> Result<()> {
        let mut at = 0;
        for run in &self.runs {
            let here = at..at + run.nodes.len();
            at = here.end;
            if run.level as usize == level {
                visit(&self.tree.all[self.before + level], &run.nodes, here)?;
            }
        }
        Ok(())
    }

    /// Executes the merges up to each level, and calls `visit` for its subtrees before the next
    /// merge overwrites them.
    fn up(&self, lane: &Lane, visit: VisitSubtrees<'_, T>) -> Result<()> {
        for (level, merges) in self.levels() {
            lane.enqueue(&self.tree.up[merges].iter().collect::<Vec<_>>())?;
            self.visit(level, visit)?;
        }
        Ok(())
    }

    /// Calls `visit` for the subtrees of each level, from the top down, and then executes the back
    /// substitution to the next level.
    fn down(&self, lane: &Lane, visit: VisitSubtrees<'_, T>) -> Result<()> {
        let down = &self.tree.down;
        for (level, merges) in self.levels().rev() {
            self.visit(level, visit)?;
            // The last merge has the first launch.
            let launches = &down[down.len() - merges.end..down.len() - merges.start];
            lane.enqueue(&launches.iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Rank 0: uploads the subtrees of all ranks (six numbers and flags each), and joins them up to
    /// [`Subtrees::top`].
    pub fn gather(&self, lane: &Lane, equations: &[T], flags: &[u32]) -> Result<()> {
        self.up(lane, &mut |to, nodes, here| {
            lane.send(&equations[6 * here.start..6 * here.end], &to.equations, 6 * nodes.start)?;
            lane.send(&flags[here], &to.flags, nodes.start)
        })
    }

    /// Rank 0: computes the interface values of each subtree from those of the blocks of
    /// [`Subtrees::top`].
    pub fn scatter(&self, lane: &Lane, values: &mut [T]) -> Result<()> {
        self.down(lane, &mut |from, nodes, here| {
            lane.fetch(&from.values, 2 * nodes.start, &mut values[2 * here.start..2 * here.end])
        })
    }

    /// Replaces the reduced blocks of this rank in `equations` and `flags` by those of its
    /// subtrees. Any rank calls it.
    pub fn reduce_levels(&self, lane: &Lane, equations: &mut [T], flags: &mut [u32]) -> Result<()> {
        let (first, lead) = (self.tree.first(), self.lead);
        let count = first.count - lead;
        lane.send(&equations[..6 * count], &first.equations, 6 * lead)?;
        lane.send(&flags[..count], &first.flags, lead)?;
        self.up(lane, &mut |from, nodes, here| {
            lane.fetch(&from.equations, 6 * nodes.start, &mut equations[6 * here.start..6 * here.end])?;
            lane.fetch(&from.flags, nodes.start, &mut flags[here])
        })
    }

    /// Any rank: computes the interface values of its blocks from those of its subtrees, at the
    /// beginning of `values`.
    pub fn back_substitute(&self, lane: &Lane, values: &mut [T]) -> Result<()> {
        self.down(lane, &mut |to, nodes, here| {
            lane.send(&values[2 * here.start..2 * here.end], &to.values, 2 * nodes.start)
        })?;
        let first = self.tree.first();
        lane.fetch(&first.values, 2 * self.lead, &mut values[..2 * (first.count - self.lead)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(level: u32, nodes: Range<usize>) -> SubtreeRun {
        SubtreeRun { level, nodes }
    }

    #[test]
    fn subtrees_are_as_large_as_the_ends_of_a_run_allow() {
        assert_eq!(largest(0..64, 128, 6), [run(6, 0..1)]);
        assert_eq!(largest(1..64, 128, 6), [0, 1, 2, 3, 4, 5].map(|level| run(level, 1..2)));
        assert_eq!(largest(33..35, 128, 6), [run(0, 33..35)]);
        assert_eq!(largest(24..41, 128, 6), [run(3, 3..5), run(0, 40..41)]);
        // The last subtree of all counts as full.
        assert_eq!(largest(64..101, 101, 6), [run(6, 1..2)]);
        assert_eq!(largest(96..101, 101, 3), [run(3, 12..13)]);
        assert_eq!(largest(7..7, 101, 3), []);
    }
}
