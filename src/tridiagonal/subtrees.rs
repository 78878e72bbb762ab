//! What ranks send of the tree of units: the largest subtrees whose rows are theirs alone.
//!
//! The units at which ranks are cut are the leaves here, as many as [`Grain::of_ranks`](super::partition::Grain::of_ranks)
//! says. Of a run of them the largest subtrees are two a level at most, whatever its ends are: a rank joins its units so far
//! and no further, and rank 0 goes on with those of all, each on its level. Levels are whole on both sides. What a level has
//! beside the subtrees of a rank, and below those that rank 0 was sent, is computed and never looked at.

use std::ops::Range;

use super::partition::{Joins, Level};
use super::unit::Number;
use crate::Result;
use crate::lane::{Lane, Launch};

/// Levels above the units of a rank at most: of 64 units, which are the most that a rank has, all become one.
const LEVELS: u32 = 6;

/// Levels above so many units of all ranks, of which subtrees are looked for.
pub fn depth(all: usize) -> u32 {
    all.next_power_of_two().ilog2().min(LEVELS)
}

/// Subtrees side by side on one level, 0 being that of the units at which ranks are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The level.
    pub level: u32,
    /// Their numbers on it.
    pub nodes: Range<usize>,
}

/// The largest subtrees of a run of `all` units, from left to right: two a level at most, but on the last of `levels` above
/// the units. The last subtree of all need not be full.
pub fn largest(units: Range<usize>, all: usize, levels: u32) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = units.start;
    while at < units.end {
        let whole = |&level: &u32| at.is_multiple_of(1 << level) && (at + (1 << level)).min(all) <= units.end;
        let level = (0..=levels).rev().find(whole).unwrap_or(0);
        let node = at >> level;
        match runs.last_mut() {
            Some(run) if run.level == level => run.nodes.end = node + 1,
            _ => runs.push(Run { level, nodes: node..node + 1 }),
        }
        at = (at + (1 << level)).min(all);
    }
    runs
}

/// A tree's levels on a lane, and the subtrees that go from a rank to rank 0.
#[derive(Debug)]
pub struct Subtrees<T> {
    first: Level<T>,
    joins: Joins<T>,
    /// Joins before the level at which ranks are cut, and units of the first level before the first of the rank.
    before: usize,
    lead: usize,
    /// Numbered as the nodes that are here.
    runs: Vec<Run>,
}

impl<T: Number> Subtrees<T> {
    /// Those of all ranks' runs, in their order, of `all` units: what rank 0 gets.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn of_all(lane: &Lane, all: usize, runs: Vec<Run>) -> Result<Self> {
        let (first, mut joins) = (Level::new(lane, all)?, Joins::none());
        let levels = runs.iter().map(|run| run.level).max().unwrap_or(0);
        (0..levels).try_for_each(|_| joins.add(lane, &first, 1))?;
        Ok(Self { first, joins, before: 0, lead: 0, runs })
    }

    /// Those that become of a rank's `count` units, of which 2^below are one of `all` at which ranks are cut. The first here
    /// is number `start` of the latter.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn of_rank(lane: &Lane, count: usize, below: u32, start: usize, all: usize) -> Result<Self> {
        let levels = depth(all);
        // Subtrees lie as in the tree of all, from the last place on where one of the last level begins.
        let base = start >> levels << levels;
        let lead = (start - base) << below;
        let (first, mut joins) = (Level::new(lane, lead + count)?, Joins::none());
        joins.climb(lane, &first, below)?;
        let before = joins.up.len();
        (0..levels).try_for_each(|_| joins.add(lane, &first, 1))?;
        let mut runs = largest(start..start + count.div_ceil(1 << below), all, levels);
        for Run { level, nodes } in &mut runs {
            let skipped = base >> *level;
            *nodes = nodes.start - skipped..nodes.end - skipped;
        }
        Ok(Self { first, joins, before, lead, runs })
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.first.bytes() + self.joins.bytes()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.runs.iter().map(|run| run.nodes.len()).sum()
    }

    /// What becomes of all of them.
    pub fn top(&self) -> &Level<T> {
        self.joins.last(&self.first)
    }

    fn level(&self, level: u32) -> &Level<T> {
        match self.before + level as usize {
            0 => &self.first,
            joined => &self.joins.levels[joined - 1],
        }
    }

    /// Levels at which ranks may be cut, from the units' on, and the join that leads to each from the one below.
    fn levels(&self) -> impl DoubleEndedIterator<Item = (u32, Option<usize>)> + use<T> {
        let before = self.before;
        (0..=(self.joins.up.len() - before) as u32)
            .map(move |level| (level, (level > 0).then(|| before + level as usize - 1)))
    }

    /// The runs of a level, and where they begin in a list of all.
    fn on(&self, level: u32) -> impl Iterator<Item = (&Run, usize)> {
        let begin = |at: &mut usize, run: &Run| Some(std::mem::replace(at, *at + run.nodes.len()));
        let begins = self.runs.iter().scan(0, begin);
        self.runs.iter().zip(begins).filter(move |(run, _)| run.level == level)
    }

    /// Rank 0: brings the subtrees of all ranks, six numbers and flags of each, and joins them up to [`Subtrees::top`].
    ///
    /// # Errors
    /// If the device is lost.
    pub fn gather(&self, lane: &Lane, numbers: &[T], flags: &[u32]) -> Result<()> {
        for (level, join) in self.levels() {
            join.map_or(Ok(()), |join| lane.enqueue(&[&self.joins.up[join]]))?;
            let to = self.level(level);
            for (Run { nodes, .. }, at) in self.on(level) {
                let here = at..at + nodes.len();
                lane.send(&numbers[6 * here.start..6 * here.end], &to.units, 6 * nodes.start)?;
                lane.send(&flags[here], &to.flags, nodes.start)?;
            }
        }
        Ok(())
    }

    /// Rank 0: from the unknowns next to each unit of [`Subtrees::top`] to the two next to each subtree.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn scatter(&self, lane: &Lane, answers: &mut [T]) -> Result<()> {
        for (level, join) in self.levels().rev() {
            for (Run { nodes, .. }, at) in self.on(level) {
                let here = &mut answers[2 * at..2 * (at + nodes.len())];
                lane.fetch(&self.level(level).outer, 2 * nodes.start, here)?;
            }
            join.map_or(Ok(()), |join| lane.enqueue(&[self.joins.down_of(join)]))?;
        }
        Ok(())
    }

    /// A rank: makes its units, of which `numbers` and `flags` are full, the subtrees.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn join(&self, lane: &Lane, numbers: &mut [T], flags: &mut [u32]) -> Result<()> {
        let (count, lead) = (self.first.count - self.lead, self.lead);
        lane.send(&numbers[..6 * count], &self.first.units, 6 * lead)?;
        lane.send(&flags[..count], &self.first.flags, lead)?;
        let mut joins = &self.joins.up[..];
        for (level, join) in self.levels() {
            // A subtree is taken away before its place is needed for what lies between its halves and those next to it.
            let (next, rest) = joins.split_at(join.map_or(self.before, |_| 1));
            lane.enqueue(&next.iter().collect::<Vec<&Launch>>())?;
            joins = rest;
            let from = self.level(level);
            for (Run { nodes, .. }, at) in self.on(level) {
                let here = at..at + nodes.len();
                lane.fetch(&from.units, 6 * nodes.start, &mut numbers[6 * here.start..6 * here.end])?;
                lane.fetch(&from.flags, nodes.start, &mut flags[here])?;
            }
        }
        Ok(())
    }

    /// A rank: from the two unknowns next to each subtree, which `answers` begins with, to those next to its units.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn part(&self, lane: &Lane, answers: &mut [T]) -> Result<()> {
        for (level, join) in self.levels().rev() {
            for (Run { nodes, .. }, at) in self.on(level) {
                let here = &answers[2 * at..2 * (at + nodes.len())];
                lane.send(here, &self.level(level).outer, 2 * nodes.start)?;
            }
            join.map_or(Ok(()), |join| lane.enqueue(&[self.joins.down_of(join)]))?;
        }
        let down: Vec<&Launch> = (0..self.before).rev().map(|join| self.joins.down_of(join)).collect();
        lane.enqueue(&down)?;
        let count = self.first.count - self.lead;
        lane.fetch(&self.first.outer, 2 * self.lead, &mut answers[..2 * count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(level: u32, nodes: Range<usize>) -> Run {
        Run { level, nodes }
    }

    #[test]
    fn subtrees_are_as_large_as_the_ends_of_a_run_allow() {
        assert_eq!(largest(0..64, 128, 6), [run(6, 0..1)]);
        assert_eq!(largest(1..64, 128, 6), [0, 1, 2, 3, 4, 5].map(|level| run(level, 1..2)));
        assert_eq!(largest(33..35, 128, 6), [run(0, 33..35)]);
        assert_eq!(largest(24..41, 128, 6), [run(3, 3..5), run(0, 40..41)]);
        // The last ones of all are full as they are.
        assert_eq!(largest(64..101, 101, 6), [run(6, 1..2)]);
        assert_eq!(largest(96..101, 101, 3), [run(3, 12..13)]);
        assert_eq!(largest(7..7, 101, 3), []);
    }
}
