//! Multilevel aggregation of a restricted generator Q, for forward and backward equations.
//!
//! Let x solve xQ = −f approximately: a stationary distribution (f = 0), or expected times in
//! transient states. The matrix −diag(x)Q is an M-matrix with row and column sums of 0 or above.
//! States i and j with a large symmetric coupling x_i q_ij + x_j q_ji are aggregated. The coarse
//! rates are those of the aggregated chain, Σ_i (x_i / X_I) q_ij, where X_I is the sum of x over
//! the aggregate I. So fast transitions are aggregated first, and slow ones remain on coarse
//! levels.
//!
//! A *multiplicative* cycle improves x by Gauss–Seidel sweeps, aggregation with the current x, the
//! solution X of the coarse level, and disaggregation: x_i becomes X_I times its share in I. An
//! *additive* cycle computes a correction for a forward or backward equation. Coarse levels take up
//! to two minimal-residual steps (K-cycle). With aggregates of two states and single sweeps, every
//! second level does.
//!
//! Sources: J. Koury, D. McAllister, W. Stewart, "Iterative methods for computing stationary
//! distributions of nearly completely decomposable Markov chains", SIAM Journal on Algebraic and
//! Discrete Methods 5, 1984, doi:10.1137/0605019; H. De Sterck and others, "Multilevel adaptive
//! aggregation for Markov chains, with application to web ranking", SIAM Journal on Scientific
//! Computing 30, 2008, doi:10.1137/070685142; Y. Notay, "Aggregation-based algebraic multigrid for
//! convection-diffusion equations", SIAM Journal on Scientific Computing 34, 2012,
//! doi:10.1137/110835347.

use std::sync::Arc;

use super::coarsest::{Coarsest, SWEEPS};
use super::subchain::{Direction, LEAST, Links, ROWS, by_rows, sum_rows};
use crate::parallel::*;
use crate::sparse::CsrMatrix;

/// Number of states up to which a level is not coarsened.
const COARSEST: usize = 200;
/// Minimum coupling of two paired states, relative to their exit rates.
const WEAK: f64 = 1e-5;
/// Maximum number of states of a coarse level, relative to the finer level.
const COARSENING: f64 = 0.8;
/// Lower limit of x_i / max x in the weights 1/x_i of the norm of forward residuals.
const NORM_FLOOR: f64 = 1e-10;
/// Relative squared residual after the first coarse step at which the second is skipped.
const ENOUGH: f64 = 0.0625;
/// Number of parts in which rows are aggregated in parallel.
const PARTS: usize = 16;

/// A level of the hierarchy: a chain, its aggregates, and its approximate solution.
struct Level {
    links: Arc<Links>,
    /// Approximate solution x of xQ = −f; all elements are above 0.
    x: Vec<f64>,
    /// The vector f of the equation xQ = −f.
    source: Arc<[f64]>,
    /// Index of the aggregate of each state; empty on the coarsest level.
    aggregate: Vec<u32>,
    /// Share of each state in its aggregate: x_i / X_I.
    share: Vec<f64>,
    /// Maximum element of x; the norm of forward residuals has weights `top`/x_i.
    top: f64,
}

/// Strength of the preconditioner; cycles of stronger ones cost more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strength {
    /// Pairwise aggregations per level; aggregates of k pairings have about 2ᵏ states.
    pairings: usize,
    /// Sweeps before and after the correction by a coarse level.
    sweeps: usize,
}

impl Strength {
    /// Least strength; sufficient for most chains.
    pub(super) const FIRST: Self = Self { pairings: 3, sweeps: 1 };

    /// Returns true if cycles of the next strength cost little more than those of this one.
    pub(super) fn is_cheap(self) -> bool {
        self.pairings > 1
    }

    /// Returns the next strength; the last one is its own successor.
    pub(super) fn next(self) -> Self {
        match self.pairings {
            1 => Self { sweeps: (self.sweeps + 1).min(3), ..self },
            pairings => Self { pairings: pairings - 1, ..self },
        }
    }
}

/// Levels of aggregated chains; the first is the given one.
pub(super) struct Hierarchy {
    levels: Vec<Level>,
    coarsest: Coarsest,
    pub(super) strength: Strength,
}

impl Hierarchy {
    /// Builds the levels for an initial x, and improves x by multiplicative cycles.
    ///
    /// `check` is called on each level of a cycle, and may end the work with an error.
    pub(super) fn new(
        links: Arc<Links>,
        x: Vec<f64>,
        source: Arc<[f64]>,
        (cycles, strength): (usize, Strength),
        check: &mut dyn FnMut() -> crate::Result<()>,
    ) -> crate::Result<Self> {
        let mut levels = vec![Level::new(links, x, source)];
        let mut coarsest = None;
        for _ in 0..cycles.max(1) {
            let last = descend(&mut levels, strength, check)?;
            ascend(&mut levels, &last);
            coarsest = Some(last);
        }
        let largest = |level: &Level| level.x.iter().copied().fold(0.0, f64::max);
        levels.iter_mut().for_each(|level| level.top = largest(level));
        let coarsest = coarsest.expect("at least one cycle");
        Ok(Self { levels, coarsest, strength })
    }

    /// Returns the approximate solution x of the finest level.
    pub(super) fn weights(&self) -> &[f64] {
        &self.levels[0].x
    }

    /// Frees all levels except the finest; no cycle is possible afterwards.
    pub(super) fn free_coarse(&mut self) {
        self.levels.truncate(1);
    }

    /// Applies [`Links::keep`] to each level; returns the links of the finest level.
    pub(super) fn keep(&mut self, direction: Option<Direction>) -> Arc<Links> {
        let own = self.levels.iter_mut().filter_map(|level| Arc::get_mut(&mut level.links));
        own.for_each(|links| links.keep(direction));
        self.levels[0].links.clone()
    }

    /// Returns an approximate solution e of −Qe = r or −eQ = r, by one additive cycle.
    pub(super) fn correction(&self, direction: Direction, r: &[f64]) -> Vec<f64> {
        self.cycle(0, direction, r)
    }

    /// Returns the backward solution of the coarsest level, constant on its aggregates.
    ///
    /// It approximates slow modes, but its residual may exceed r by many orders of magnitude.
    pub(super) fn coarse_solution(&self, r: &[f64]) -> Vec<f64> {
        let (mut r, last) = (r.to_vec(), self.levels.len() - 1);
        for (level, coarse) in self.levels.iter().zip(&self.levels[1..]) {
            r = level.restrict(Direction::Backward, coarse.x.len(), |i| r[i]);
        }
        let mut e = self.coarsest.solve(Direction::Backward, &r);
        for level in self.levels[..last].iter().rev() {
            e = level.aggregate.iter().map(|&from| e[from as usize]).collect();
        }
        e
    }

    /// Returns the inner product in which residuals of a direction are minimized.
    pub(super) fn product(&self, direction: Direction, a: &[f64], b: &[f64]) -> f64 {
        self.levels[0].product(direction, a, b)
    }

    fn cycle(&self, at: usize, direction: Direction, r: &[f64]) -> Vec<f64> {
        let level = &self.levels[at];
        let Some(coarse) = self.levels.get(at + 1) else { return self.coarsest.solve(direction, r) };
        let mut e = vec![0.0; r.len()];
        let mut left = vec![0.0; r.len()];
        level.links.first_sweep(direction, r, &mut e, &mut left);
        if self.strength.sweeps > 1 {
            (1..self.strength.sweeps).for_each(|_| level.links.sweep(direction, r, &mut e, true));
            level.links.apply(direction, &e, &mut left);
            left.iter_mut().zip(r).for_each(|(left, r)| *left = r - *left);
        }
        let coarse_r = level.restrict(direction, coarse.x.len(), |i| left[i]);
        drop(left);
        let forward = direction == Direction::Forward;
        // With aggregates of two states, two steps on each level take as much work per level.
        let twice = self.strength.pairings > 1 || self.strength.sweeps > 1 || at % 2 == 1;
        let coarse_e = match twice && at + 2 < self.levels.len() {
            true => self.two_steps(at + 1, direction, &coarse_r),
            false => self.cycle(at + 1, direction, &coarse_r),
        };
        let parts = e.par_iter_mut().zip(&level.aggregate).zip(&level.share).with_min_len(ROWS);
        parts.for_each(|((e, &from), share)| {
            *e += if forward { share * coarse_e[from as usize] } else { coarse_e[from as usize] };
        });
        for _ in 0..self.strength.sweeps {
            level.links.sweep(direction, r, &mut e, false);
        }
        e
    }

    /// Takes up to two minimal-residual steps, each preconditioned by a cycle.
    fn two_steps(&self, at: usize, direction: Direction, r: &[f64]) -> Vec<f64> {
        let level = &self.levels[at];
        let product = |a: &[f64], b: &[f64]| level.product(direction, a, b);
        let image = |e: &[f64]| {
            let mut out = vec![0.0; e.len()];
            level.links.apply(direction, e, &mut out);
            out
        };
        let mut first = self.cycle(at, direction, r);
        let image1 = image(&first);
        let square1 = product(&image1, &image1);
        if square1.is_nan() || square1 <= 0.0 {
            return first;
        }
        let factor1 = product(&image1, r) / square1;
        let left: Vec<f64> = r.iter().zip(&image1).map(|(r, image)| r - factor1 * image).collect();
        let enough = product(&left, &left) <= ENOUGH * product(r, r);
        let second = if enough { Vec::new() } else { self.cycle(at, direction, &left) };
        let (mut along, mut factor2) = (factor1, 0.0);
        if !enough {
            let image2 = image(&second);
            let mixed = product(&image2, &image1);
            let square2 = product(&image2, &image2) - mixed * mixed / square1;
            if square2 > 0.0 {
                factor2 = product(&image2, &left) / square2;
                along -= mixed * factor2 / square1;
            }
        }
        first.iter_mut().for_each(|e| *e *= along);
        if factor2 != 0.0 {
            first.iter_mut().zip(&second).for_each(|(e, second)| *e += factor2 * second);
        }
        first
    }
}

/// Runs the downward half of a multiplicative cycle, and builds missing levels.
fn descend(
    levels: &mut Vec<Level>,
    strength: Strength,
    check: &mut dyn FnMut() -> crate::Result<()>,
) -> crate::Result<Coarsest> {
    let mut at = 0;
    loop {
        check()?;
        let level = &mut levels[at];
        level.relax(true);
        level.relax(false);
        level.relax(true);
        if level.aggregate.is_empty() {
            let small = level.x.len() <= COARSEST;
            let aggregate = if small { None } else { level.aggregates(strength.pairings) };
            let Some(aggregate) = aggregate else { break };
            level.aggregate = aggregate;
        }
        // The level of an earlier cycle is freed before its successor is built.
        let kept = levels.get_mut(at + 1).map(|old| {
            old.links = Arc::default();
            std::mem::take(&mut old.aggregate)
        });
        let level = &mut levels[at];
        let count = level.aggregate.iter().max().map_or(0, |last| *last as usize + 1);
        let coarse = level.coarse(&level.aggregate, count);
        level.share = level.shares(&coarse);
        at += 1;
        match kept {
            Some(aggregate) => levels[at] = Level { aggregate, ..coarse },
            None => levels.push(coarse),
        }
    }
    let last = &levels[at];
    Ok(Coarsest::new(&last.links))
}

/// Runs the upward half of a multiplicative cycle.
fn ascend(levels: &mut [Level], coarsest: &Coarsest) {
    let last = levels.len() - 1;
    let coarse = &mut levels[last];
    match coarsest.weights(&coarse.source) {
        Some(x) => coarse.x = x.into_iter().map(|x| x.max(LEAST)).collect(),
        None => (0..SWEEPS).for_each(|k| coarse.relax(k % 2 == 0)),
    }
    for at in (0..last).rev() {
        let (fine, coarse) = levels.split_at_mut(at + 1);
        let (fine, coarse) = (&mut fine[at], &coarse[0]);
        by_rows(&mut fine.x, |i| (fine.share[i] * coarse.x[fine.aggregate[i] as usize]).max(LEAST));
        fine.relax(false);
        fine.relax(true);
    }
}

/// Rows of a coarse chain: ends of the rows, columns, rates, rates out of the set.
type CoarseRows = (Vec<usize>, Vec<u32>, Vec<f64>, Vec<f64>);

impl Level {
    fn new(links: Arc<Links>, x: Vec<f64>, source: Arc<[f64]>) -> Self {
        Self { links, x, source, aggregate: Vec::new(), share: Vec::new(), top: 0.0 }
    }

    /// Makes a Gauss–Seidel sweep of xQ = −f; x stays above 0, with sum 1 if f = 0.
    fn relax(&mut self, ascending: bool) {
        self.links.sweep(Direction::Forward, &self.source, &mut self.x, ascending);
        let (x, source) = (&self.x, &self.source);
        let factor = match sum_rows(x.len(), |i| source[i]) > 0.0 {
            true => 1.0,
            false => 1.0 / sum_rows(x.len(), |i| x[i]),
        };
        self.x.par_iter_mut().with_min_len(ROWS).for_each(|x| *x = (*x * factor).max(LEAST));
    }

    fn product(&self, direction: Direction, a: &[f64], b: &[f64]) -> f64 {
        match direction {
            Direction::Forward => {
                let floor = NORM_FLOOR * self.top;
                sum_rows(a.len(), |i| a[i] * b[i] * (self.top / self.x[i].max(floor)))
            }
            Direction::Backward => sum_rows(a.len(), |i| a[i] * b[i]),
        }
    }

    /// Returns the residual of the coarse level, one number per aggregate.
    ///
    /// It is the sum over the aggregate for forward equations, else the mean weighted with the
    /// shares.
    fn restrict(&self, direction: Direction, count: usize, r: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut coarse = vec![0.0; count];
        for (i, &to) in self.aggregate.iter().enumerate() {
            coarse[to as usize] += match direction {
                Direction::Forward => r(i),
                Direction::Backward => self.share[i] * r(i),
            };
        }
        coarse
    }

    /// Aggregates states by repeated pairing; `None` if that leaves too many.
    fn aggregates(&self, pairings: usize) -> Option<Vec<u32>> {
        let mut all: Vec<u32> = (0..self.x.len() as u32).collect();
        let mut count = all.len();
        for _ in 0..pairings {
            if count <= COARSEST {
                break;
            }
            let (next, fewer) = self.pairs(&all, count);
            all.iter_mut().for_each(|own| *own = next[*own as usize]);
            count = fewer;
        }
        (count as f64 <= COARSENING * self.x.len() as f64).then_some(all)
    }

    /// Returns the states of each aggregate, and the sum of x over each.
    fn members(&self, aggregate: &[u32], count: usize) -> (CsrMatrix<()>, Vec<f64>) {
        let mut x = vec![0.0; count];
        aggregate.iter().zip(&self.x).for_each(|(&own, own_x)| x[own as usize] += own_x);
        let entries = aggregate.iter().zip(0..).map(|(&own, i): (&u32, u32)| (own, i, ()));
        (CsrMatrix::grouped(count, self.x.len(), entries), x)
    }

    /// Pairs each aggregate with the most strongly coupled free one.
    ///
    /// An aggregate without such a neighbour joins a pair if a coupling to it is at least the exit
    /// rate. Returns the new aggregate of each, and the number of these. Couplings are added up
    /// from the rates of the states, since the chain of the given aggregates would take as much
    /// memory. Without stored rates by column, the rate j → i counts only if there is a
    /// transition i → j.
    fn pairs(&self, aggregate: &[u32], n: usize) -> (Vec<u32>, usize) {
        const FREE: u32 = u32::MAX;
        let (members, x) = self.members(aggregate, n);
        let (links, by_rows_alone) = (&*self.links, self.links.is_by_rows());
        let [out, into] = [Direction::Backward, Direction::Forward].map(|way| links.matrix(way));
        let mut exit = vec![0.0; n];
        by_rows(&mut exit, |own| {
            let leaves = |&i: &u32| {
                let (to, rate) = out.row(i as usize);
                let beyond = to.iter().zip(rate).filter(|(j, _)| aggregate[**j as usize] as usize != own);
                let rate = self.links.kill[i as usize] + beyond.map(|(_, rate)| rate).sum::<f64>();
                self.x[i as usize] / x[own] * rate
            };
            members.row(own).0.iter().map(leaves).sum()
        });
        let (mut paired, mut count) = (vec![FREE; n], 0);
        let mut place = vec![0u32; n];
        let mut near: Vec<(u32, f64)> = Vec::new();
        for i in 0..n {
            if paired[i] != FREE {
                continue;
            }
            near.clear();
            let mut add = |j: u32, coupling: f64| match near.get_mut(place[j as usize] as usize) {
                Some(known) if known.0 == j => known.1 += coupling,
                _ => {
                    place[j as usize] = near.len() as u32;
                    near.push((j, coupling));
                }
            };
            for &state in members.row(i).0 {
                let share = self.x[state as usize] / x[i];
                let (to, rate) = out.row(state as usize);
                to.iter().zip(rate).for_each(|(&j, rate)| add(aggregate[j as usize], share * rate));
                let mut back =
                    |j: u32, rate: f64| add(aggregate[j as usize], rate * (self.x[j as usize] / x[i]));
                if by_rows_alone {
                    to.iter().for_each(|&j| back(j, links.rate(j, state)));
                } else {
                    let (from, rate) = into.row(state as usize);
                    from.iter().zip(rate).for_each(|(&j, rate)| back(j, *rate));
                }
            }
            let own = exit[i];
            let (mut best, mut joined) = ((WEAK, FREE), (0.0, FREE));
            for &(j, coupling) in near.iter().filter(|(j, _)| *j as usize != i) {
                if paired[j as usize] == FREE {
                    let other = exit[j as usize] * (x[j as usize] / x[i]);
                    let quality = coupling * (1.0 / own + 1.0 / other);
                    if quality > best.0 {
                        best = (quality, j);
                    }
                } else if coupling > joined.0 {
                    joined = (coupling, j);
                }
            }
            paired[i] = match (best.1, joined) {
                (FREE, (coupling, j)) if j != FREE && coupling >= own => paired[j as usize],
                (other, _) => {
                    if other != FREE {
                        paired[other as usize] = count;
                    }
                    count += 1;
                    count - 1
                }
            };
        }
        (paired, count as usize)
    }

    /// Returns the share of each state in its aggregate.
    fn shares(&self, coarse: &Self) -> Vec<f64> {
        let mut share = vec![0.0; self.x.len()];
        by_rows(&mut share, |i| self.x[i] / coarse.x[self.aggregate[i] as usize]);
        share
    }

    /// Returns the chain of the aggregates.
    fn coarse(&self, aggregate: &[u32], count: usize) -> Self {
        let (members, x) = self.members(aggregate, count);
        let mut source = vec![0.0; count];
        aggregate.iter().zip(&*self.source).for_each(|(&own, f)| source[own as usize] += f);
        let part = count.div_ceil(PARTS).max(64);
        let rows = |k: usize| {
            let own = k * part..count.min((k + 1) * part);
            self.coarse_rows(aggregate, &members, &x, own)
        };
        let parts: Vec<CoarseRows> = (0..count.div_ceil(part)).into_par_iter().map(rows).collect();
        let nnz = parts.iter().map(|part| part.1.len()).sum();
        let (mut starts, mut kill) = (Vec::with_capacity(count + 1), Vec::with_capacity(count));
        let (mut column, mut value) = (Vec::with_capacity(nnz), Vec::with_capacity(nnz));
        starts.push(0);
        for (ends, own_columns, own_values, own_kill) in parts {
            let first = column.len();
            starts.extend(ends.iter().map(|end| first + end));
            column.extend(own_columns);
            value.extend(own_values);
            kill.extend(own_kill);
        }
        let out = CsrMatrix::of_rows(count, starts, column, value);
        let links = Arc::new(Links::new(out, kill, !self.links.is_by_rows()));
        Self::new(links, x, source.into())
    }

    /// Computes some rows of the chain of the aggregates.
    fn coarse_rows(
        &self,
        aggregate: &[u32],
        members: &CsrMatrix<()>,
        x: &[f64],
        rows: std::ops::Range<usize>,
    ) -> CoarseRows {
        let (mut ends, mut kills) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        let (mut column, mut value): (Vec<u32>, Vec<f64>) = (Vec::new(), Vec::new());
        let (mut place, mut sorted) = (vec![0u32; x.len()], Vec::new());
        for row in rows {
            let (first, mut kill) = (column.len(), 0.0);
            for &i in members.row(row).0 {
                let share = self.x[i as usize] / x[row];
                kill += share * self.links.kill[i as usize];
                let (to, rate) = self.links.out.row(i as usize);
                for (&j, rate) in to.iter().zip(rate) {
                    let there = aggregate[j as usize];
                    let known = place[there as usize] as usize;
                    if there as usize == row {
                        continue;
                    }
                    if known >= first && known < column.len() && column[known] == there {
                        value[known] += share * rate;
                    } else {
                        place[there as usize] = column.len() as u32;
                        column.push(there);
                        value.push(share * rate);
                    }
                }
            }
            sorted.extend(column.drain(first..).zip(value.drain(first..)));
            sorted.sort_unstable_by_key(|entry| entry.0);
            sorted.drain(..).for_each(|(to, rate)| (column.push(to), value.push(rate)).0);
            ends.push(column.len());
            kills.push(kill);
        }
        (ends, column, value, kills)
    }
}
