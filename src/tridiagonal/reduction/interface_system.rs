//! Interface system: the equations of the chunks of all ranks, and stage 2, which solves them.

use std::time::Instant;

use super::interface_buffers::{ChunkEquations, InterfaceEquations};
use super::levels::Shape;
use super::stages::{RankReduction, Stage2};
use crate::Result;
use crate::lane::{Lane, Launch};
use crate::ranks::Ranks;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::all_flags;

#[derive(Debug)]
pub(crate) struct InterfaceSystem<'a, T> {
    pub(crate) ranks: Ranks,
    /// Lane that reduces the equations of this rank, and on rank 0 also performs stage 2.
    pub(crate) home: &'a Lane,
    /// True if one chunk holds all rows; its equations and values stay on its lane.
    pub(crate) single_chunk: bool,
    pub(crate) rank_reduction: Option<RankReduction<T>>,
    /// Stage 2; `None` if systems are not coupled by interface equations, and on ranks other than
    /// 0.
    pub(crate) stage2: Option<Stage2<T>>,
    pub(crate) equations: InterfaceEquations<T>,
    /// Number of zero pivots that the host replaced.
    pub(crate) replaced: u32,
}

impl<'a, T: Number> InterfaceSystem<'a, T> {
    pub(crate) fn none(ranks: Ranks, home: &'a Lane) -> Self {
        let equations = InterfaceEquations::none();
        Self { ranks, home, single_chunk: false, rank_reduction: None, stage2: None, equations, replaced: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.rank_reduction.as_ref().map_or(0, |reduction| reduction.bytes())
            + self.stage2.as_ref().map_or(0, |stage2| stage2.bytes())
    }

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small
    /// pivots that the flags of chunks do not count.
    pub(crate) fn flags(&self) -> Result<u32> {
        let stage2 = self.stage2.as_ref().map_or(Ok(0), |stage2| stage2.flags(self.home))?;
        let reduction = self.rank_reduction.as_ref().map_or(Ok(0), |reduction| reduction.flags(self.home))?;
        Ok(all_flags([stage2, reduction, self.replaced]))
    }

    /// All launches of stage 2; `None` if stage 2 includes steps on the host.
    pub(crate) fn launches(&self) -> Option<Vec<&Launch>> {
        match &self.stage2 {
            Some(stage2) => stage2.launches(),
            None => (self.equations.shape == Shape::NOTHING).then(Vec::new),
        }
    }

    /// Returns host slices for the equations of each chunk, given its number of items (see
    /// [`Shape`]); `None` if the equations stay on the chunk's lane.
    pub(crate) fn of_chunks(
        &mut self,
        items: impl Iterator<Item = usize> + Clone,
    ) -> Vec<Option<ChunkEquations<'_, T>>> {
        match self.single_chunk {
            true => items.map(|_| None).collect(),
            false => self.equations.split(items).into_iter().map(Some).collect(),
        }
    }

    pub(crate) fn reduce(&mut self) -> Result<()> {
        let Self { home, rank_reduction, equations, .. } = self;
        rank_reduction.as_ref().map_or(Ok(()), |reduction| reduction.reduce(home, equations))
    }

    pub(crate) fn expand(&mut self) -> Result<()> {
        let Self { home, rank_reduction, equations, .. } = self;
        rank_reduction.as_ref().map_or(Ok(()), |reduction| reduction.expand(home, &mut equations.values))
    }

    /// Solves the equations of all ranks on rank 0, and sends each rank its interface values.
    /// Returns the seconds that this took.
    pub(crate) fn solve(&mut self) -> Result<f64> {
        let started = Instant::now();
        self.gather();
        let Self { ranks, home, stage2, equations, .. } = self;
        let solved = stage2.as_ref().map_or(Ok(0), |stage2| stage2.solve(home, equations));
        let finished = solved.and_then(|replaced| home.finish().map(|()| replaced));
        self.replaced = ranks.all_ok(finished)?;
        self.scatter();
        Ok(started.elapsed().as_secs_f64())
    }

    fn counts(&self) -> Vec<usize> {
        let counts = self.ranks.all_gather(&[self.equations.sent as u64]);
        counts.iter().map(|count| count[0] as usize).collect()
    }

    fn gather(&mut self) {
        if !self.ranks.is_distributed() {
            return;
        }
        let mine = self.equations.list();
        let counts = self.counts();
        let all = self.ranks.gather_to_root(&mine);
        if self.ranks.is_root() {
            self.equations.fill(&all, &counts);
        }
    }

    fn scatter(&mut self) {
        if !self.ranks.is_distributed() {
            return;
        }
        let (ranks, counts, equations) = (self.ranks, self.counts(), &mut self.equations);
        let mut at = 0;
        let mut lists = Vec::new();
        for count in counts {
            lists.push(equations.values_of(&(at..at + count)));
            at += count;
        }
        let values = &equations.values;
        let list = |rank: usize| values[lists[rank].clone()].iter().map(|v| v.wide()).collect::<Vec<f64>>();
        let mine = ranks.scatter_from_root(lists[ranks.rank()].len(), list);
        equations.values.iter_mut().zip(mine).for_each(|(to, v)| *to = T::of(v));
    }
}
