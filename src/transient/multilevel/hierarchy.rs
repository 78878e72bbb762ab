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
use super::element::Element;
use super::subchain::{Equation, LEAST, ROWS, SetTransitions, Sums, by_rows, subtract, sum_rows};
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::memory::zeroed;

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
const PARTS: usize = 64;
/// Maximum number of preferred partners that are found before states are paired.
const WISHES: usize = 6;
/// Number of states per thread whose preferred partners are found in parallel.
const WISHING: usize = 1 << 10;

/// A level of the hierarchy: a chain, its aggregates, and its approximate solution.
struct HierarchyLevel {
    links: Arc<SetTransitions>,
    /// Approximate solution x of xQ = −f; all elements are above 0.
    x: Vec<f64>,
    /// The vector f of the equation xQ = −f.
    source: Arc<[f64]>,
    /// Index of the aggregate of each state; empty on the coarsest level.
    aggregate: Vec<u32>,
    /// States of each aggregate.
    members: CsrMatrix<()>,
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
    levels: Vec<HierarchyLevel>,
    coarsest: Coarsest,
    pub(super) strength: Strength,
}

impl Hierarchy {
    /// Builds levels for x and improves x by multiplicative cycles; `check` may end the work.
    pub(super) fn new(
        links: Arc<SetTransitions>,
        x: Vec<f64>,
        source: Arc<[f64]>,
        (cycles, strength): (usize, Strength),
        check: &mut dyn FnMut() -> crate::Result<()>,
    ) -> crate::Result<Self> {
        let mut levels = vec![HierarchyLevel::new(links, x, source)];
        let mut coarsest = None;
        for _ in 0..cycles.max(1) {
            let last = descend(&mut levels, strength, check)?;
            ascend(&mut levels, &last);
            coarsest = Some(last);
        }
        let largest = |level: &HierarchyLevel| level.x.iter().copied().fold(0.0, f64::max);
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

    /// Applies [`SetTransitions::keep`] to each level; returns those of the finest level.
    pub(super) fn keep(&mut self, direction: Option<Equation>) -> Arc<SetTransitions> {
        let own = self.levels.iter_mut().filter_map(|level| Arc::get_mut(&mut level.links));
        own.for_each(|links| links.keep(direction));
        self.levels[0].links.clone()
    }

    /// Returns an approximate solution e of −Qe = r or −eQ = r, by one additive cycle.
    pub(super) fn correction<E: Element>(&self, direction: Equation, r: &[E]) -> Vec<E> {
        self.cycle(0, direction, r)
    }

    /// Returns the backward solution of the coarsest level, constant on its aggregates.
    ///
    /// It approximates slow modes, but its residual may exceed r by many orders of magnitude.
    pub(super) fn coarse_solution(&self, r: &[f64]) -> Vec<f64> {
        let (mut r, last) = (r.to_vec(), self.levels.len() - 1);
        for level in &self.levels[..last] {
            r = level.restrict(Equation::Backward, &r);
        }
        let mut e = self.coarsest.solve(Equation::Backward, &r);
        for level in self.levels[..last].iter().rev() {
            e = level.aggregate.iter().map(|&from| e[from as usize]).collect();
        }
        e
    }

    /// Returns the inner product in which residuals of a direction are minimized.
    pub(super) fn product<E: Element>(&self, direction: Equation, a: &[E], b: &[E]) -> E {
        self.levels[0].product(direction, a, b)
    }

    fn cycle<E: Element>(&self, at: usize, direction: Equation, r: &[E]) -> Vec<E> {
        let level = &self.levels[at];
        if at + 1 == self.levels.len() {
            return self.coarsest.solve(direction, r);
        }
        let (mut e, mut left) = (zeroed(r.len()), zeroed(r.len()));
        level.links.first_sweep(direction, r, &mut e, &mut left);
        if self.strength.sweeps > 1 {
            (1..self.strength.sweeps).for_each(|_| level.links.sweep(direction, r, &mut e, true));
            level.links.apply(direction, &e, &mut left);
            let pairs = left.par_iter_mut().zip(r).with_min_len(ROWS);
            pairs.for_each(|(left, &r)| *left = r - *left);
        }
        let coarse_r = level.restrict(direction, &left);
        drop(left);
        let forward = direction == Equation::Forward;
        // With aggregates of two states, two steps on each level take as much work per level.
        let twice = self.strength.pairings > 1 || self.strength.sweeps > 1 || at % 2 == 1;
        let coarse_e = match twice && at + 2 < self.levels.len() {
            true => self.two_steps(at + 1, direction, &coarse_r),
            false => self.cycle(at + 1, direction, &coarse_r),
        };
        let parts = e.par_iter_mut().zip(&level.aggregate).zip(&level.share).with_min_len(ROWS);
        parts.for_each(|((e, &from), share)| {
            let coarse = coarse_e[from as usize];
            *e = *e + if forward { E::all(*share) * coarse } else { coarse };
        });
        for _ in 0..self.strength.sweeps {
            level.links.sweep(direction, r, &mut e, false);
        }
        e
    }

    /// Takes up to two minimal-residual steps, each preconditioned by a cycle.
    fn two_steps<E: Element>(&self, at: usize, direction: Equation, r: &[E]) -> Vec<E> {
        let level = &self.levels[at];
        let product = |a: &[E], b: &[E]| level.product(direction, a, b);
        let image = |e: &[E]| {
            let mut out = zeroed(e.len());
            level.links.apply(direction, e, &mut out);
            out
        };
        let mut first = self.cycle(at, direction, r);
        let image1 = image(&first);
        let square1 = product(&image1, &image1);
        if square1.largest().is_nan() || square1.largest() <= 0.0 {
            return first;
        }
        let factor1 = product(&image1, r).over(square1);
        let mut left = r.to_vec();
        subtract(&mut left, factor1, &image1);
        let enough = (product(&left, &left) - E::all(ENOUGH) * product(r, r)).largest() <= 0.0;
        let second = if enough { Vec::new() } else { self.cycle(at, direction, &left) };
        let (mut along, mut factor2) = (factor1, E::all(0.0));
        if !enough {
            let image2 = image(&second);
            let mixed = product(&image2, &image1);
            let square2 = product(&image2, &image2) - (mixed * mixed).over(square1);
            factor2 = product(&image2, &left).over(square2);
            along = along - (mixed * factor2).over(square1);
        }
        first.par_iter_mut().with_min_len(ROWS).for_each(|e| *e = *e * along);
        if !enough {
            subtract(&mut first, E::all(0.0) - factor2, &second);
        }
        first
    }
}

/// Runs the downward half of a multiplicative cycle, and builds missing levels.
fn descend(
    levels: &mut Vec<HierarchyLevel>,
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
            let Some((aggregate, count)) = aggregate else { break };
            level.members = members(&aggregate, count);
            level.aggregate = aggregate;
        }
        // The level of an earlier cycle is freed before its successor is built.
        let kept = levels.get_mut(at + 1).map(|old| {
            old.links = Arc::default();
            (std::mem::take(&mut old.aggregate), std::mem::replace(&mut old.members, members(&[], 0)))
        });
        let level = &mut levels[at];
        let coarse = level.coarse();
        level.share = level.shares(&coarse);
        at += 1;
        match kept {
            Some((aggregate, members)) => levels[at] = HierarchyLevel { aggregate, members, ..coarse },
            None => levels.push(coarse),
        }
    }
    let last = &levels[at];
    Ok(Coarsest::new(&last.links))
}

/// Runs the upward half of a multiplicative cycle.
fn ascend(levels: &mut [HierarchyLevel], coarsest: &Coarsest) {
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

/// Returns the states of each aggregate.
fn members(aggregate: &[u32], count: usize) -> CsrMatrix<()> {
    let part = |k: usize| {
        let rows = k * ROWS..aggregate.len().min((k + 1) * ROWS);
        rows.map(|i| (aggregate[i], i as u32, ()))
    };
    CsrMatrix::grouped(count, aggregate.len(), (aggregate.len().div_ceil(ROWS), part))
}

/// Returns the sums of v over aggregates.
fn sums(members: &CsrMatrix<()>, v: &[f64]) -> Vec<f64> {
    let mut sums = zeroed(members.rows());
    by_rows(&mut sums, |own| members.row(own).0.iter().map(|&i| v[i as usize]).sum());
    sums
}

/// Rows of a coarse chain: ends of the rows, columns, rates, rates out of the set.
type CoarseRows = (Vec<usize>, Vec<u32>, Vec<f64>, Vec<f64>);

/// Mark of an aggregate without a pair, and of a missing partner.
const FREE: u32 = u32::MAX;

/// Aggregates to be paired.
struct Joining<'a> {
    level: &'a HierarchyLevel,
    /// Aggregate of each state.
    aggregate: &'a [u32],
    /// States of each aggregate.
    members: CsrMatrix<()>,
    /// Sum of x over each aggregate.
    x: Vec<f64>,
    /// Exit rate of each aggregate.
    exit: Vec<f64>,
}

impl Joining<'_> {
    /// Returns the partners that aggregate i prefers, best first, and one whose pair it may join.
    ///
    /// Preferred partners have no pair yet. Missing partners are [`FREE`].
    fn wishes(&self, i: usize, sums: &mut Sums, paired: &[u32]) -> ([u32; WISHES], u32) {
        let (links, x, own_x) = (&*self.level.links, &self.level.x, self.x[i]);
        let [out, into] = [Equation::Backward, Equation::Forward].map(|way| links.matrix(way));
        let members = self.members.row(i).0;
        let by_rows_alone = links.is_by_rows();
        let rates = |&state: &u32| {
            out.row(state as usize).0.len() + if by_rows_alone { 0 } else { into.row(state as usize).0.len() }
        };
        sums.clear(members.iter().map(rates).sum());
        for &state in members {
            let share = x[state as usize] / own_x;
            let (to, rate) = out.row(state as usize);
            to.iter().zip(rate).for_each(|(&j, rate)| sums.add(self.aggregate[j as usize], share * rate));
            let mut back =
                |j: u32, rate: f64| sums.add(self.aggregate[j as usize], rate * (x[j as usize] / own_x));
            if by_rows_alone {
                to.iter().for_each(|&j| back(j, links.rate(j, state)));
            } else {
                let (from, rate) = into.row(state as usize);
                from.iter().zip(rate).for_each(|(&j, rate)| back(j, *rate));
            }
        }
        let own = self.exit[i];
        let (mut wishes, mut qualities, mut joined) = ([FREE; WISHES], [WEAK; WISHES], (own, FREE));
        for &(j, coupling) in sums.entries().iter().filter(|(j, _)| *j as usize != i) {
            if paired[j as usize] == FREE {
                let other = self.exit[j as usize] * (self.x[j as usize] / own_x);
                let quality = coupling * (1.0 / own + 1.0 / other);
                let rank = qualities.iter().position(|better| quality > *better);
                if let Some(rank) = rank {
                    wishes[rank..].rotate_right(1);
                    qualities[rank..].rotate_right(1);
                    (wishes[rank], qualities[rank]) = (j, quality);
                }
            } else if coupling > joined.0 || (coupling >= own && joined.1 == FREE) {
                joined = (coupling, j);
            }
        }
        (wishes, joined.1)
    }
}

impl HierarchyLevel {
    fn new(links: Arc<SetTransitions>, x: Vec<f64>, source: Arc<[f64]>) -> Self {
        let members = members(&[], 0);
        Self { links, x, source, aggregate: Vec::new(), members, share: Vec::new(), top: 0.0 }
    }

    /// Makes a Gauss–Seidel sweep of xQ = −f; x stays above 0, with sum 1 if f = 0.
    ///
    /// The sweep runs in order: backward equations need good weights of improbable states.
    fn relax(&mut self, ascending: bool) {
        self.links.relax(&self.source, &mut self.x, ascending);
        let (x, source) = (&self.x, &self.source);
        let factor = match sum_rows(x.len(), |i| source[i]) > 0.0 {
            true => 1.0,
            false => 1.0 / sum_rows(x.len(), |i| x[i]),
        };
        self.x.par_iter_mut().with_min_len(ROWS).for_each(|x| *x = (*x * factor).max(LEAST));
    }

    fn product<E: Element>(&self, direction: Equation, a: &[E], b: &[E]) -> E {
        match direction {
            Equation::Forward => {
                let floor = NORM_FLOOR * self.top;
                sum_rows(a.len(), |i| a[i] * b[i] * E::all(self.top / self.x[i].max(floor)))
            }
            Equation::Backward => sum_rows(a.len(), |i| a[i] * b[i]),
        }
    }

    /// Returns the residual of the coarse level, one number per aggregate.
    ///
    /// It is the sum over the aggregate for forward equations, else the mean weighted with the
    /// shares.
    fn restrict<E: Element>(&self, direction: Equation, r: &[E]) -> Vec<E> {
        let mut coarse = zeroed(self.members.rows());
        let of = |i: &u32| match direction {
            Equation::Forward => r[*i as usize],
            Equation::Backward => E::all(self.share[*i as usize]) * r[*i as usize],
        };
        by_rows(&mut coarse, |own| self.members.row(own).0.iter().map(of).sum());
        coarse
    }

    /// Aggregates states by repeated pairing; `None` if that leaves too many.
    ///
    /// Returns the aggregate of each state, and the number of aggregates.
    fn aggregates(&self, pairings: usize) -> Option<(Vec<u32>, usize)> {
        let mut all: Vec<u32> = (0..self.x.len() as u32).collect();
        let mut count = all.len();
        for _ in 0..pairings {
            if count <= COARSEST {
                break;
            }
            let (next, fewer) = self.pairs(&all, count);
            all.par_iter_mut().with_min_len(ROWS).for_each(|own| *own = next[*own as usize]);
            count = fewer;
        }
        (count as f64 <= COARSENING * self.x.len() as f64).then_some((all, count))
    }

    /// Pairs each aggregate with the most strongly coupled free one.
    ///
    /// An aggregate without such a neighbour joins a pair if a coupling to it is at least the exit
    /// rate. Returns the new aggregate of each, and the number of these. Couplings are added up
    /// from the rates of the states, since the chain of the given aggregates would take as much
    /// memory. Without stored rates by column, the rate j → i counts only if there is a
    /// transition i → j.
    fn pairs(&self, aggregate: &[u32], n: usize) -> (Vec<u32>, usize) {
        let members = members(aggregate, n);
        let x = sums(&members, &self.x);
        let mut exit = zeroed(n);
        by_rows(&mut exit, |own| {
            let leaves = |&i: &u32| {
                let (to, rate) = self.links.matrix(Equation::Backward).row(i as usize);
                let beyond = to.iter().zip(rate).filter(|(j, _)| aggregate[**j as usize] as usize != own);
                let rate = self.links.kill[i as usize] + beyond.map(|(_, rate)| rate).sum::<f64>();
                self.x[i as usize] / x[own] * rate
            };
            members.row(own).0.iter().map(leaves).sum()
        });
        let joining = Joining { level: self, aggregate, members, x, exit };
        let (mut paired, mut count) = (vec![FREE; n], 0);
        // Preferences are found in parallel, which does not change the pairs.
        let ahead = if threads() > 1 { WISHING * threads() } else { n.max(1) };
        let mut sums = Sums::default();
        for first in (0..n).step_by(ahead) {
            let found = |sums: &mut Sums, k: usize| match paired[first + k] {
                FREE => joining.wishes(first + k, sums, &paired).0,
                _ => [FREE; WISHES],
            };
            let range = 0..if threads() > 1 { ahead.min(n - first) } else { 0 };
            let range = range.into_par_iter().with_min_len(WISHING / 4);
            let wishes: Vec<[u32; WISHES]> = range.map_init(Sums::default, found).collect();
            for i in first..n.min(first + ahead) {
                if paired[i] != FREE {
                    continue;
                }
                let free = |j: &u32| *j != FREE && paired[*j as usize] == FREE;
                let (other, joined) =
                    match wishes.get(i - first).and_then(|wishes| wishes.iter().find(|j| free(j))) {
                        Some(&other) => (other, FREE),
                        None => {
                            let (wishes, joined) = joining.wishes(i, &mut sums, &paired);
                            (wishes[0], joined)
                        }
                    };
                paired[i] = if other == FREE && joined != FREE { paired[joined as usize] } else { count };
                if other != FREE {
                    paired[other as usize] = count;
                }
                count += u32::from(paired[i] == count);
            }
        }
        (paired, count as usize)
    }

    /// Returns the share of each state in its aggregate.
    fn shares(&self, coarse: &Self) -> Vec<f64> {
        let mut share = zeroed(self.x.len());
        by_rows(&mut share, |i| self.x[i] / coarse.x[self.aggregate[i] as usize]);
        share
    }

    /// Returns the chain of the aggregates.
    fn coarse(&self) -> Self {
        let count = self.members.rows();
        let (x, source) = (sums(&self.members, &self.x), sums(&self.members, &self.source));
        let part = count.div_ceil(PARTS).max(64);
        let rows = |k: usize| self.coarse_rows(&x, k * part..count.min((k + 1) * part));
        let parts: Vec<CoarseRows> = (0..count.div_ceil(part)).into_par_iter().map(rows).collect();
        let (mut starts, mut kill) = (Vec::with_capacity(count + 1), Vec::with_capacity(count));
        starts.push(0);
        for (ends, .., own_kill) in &parts {
            let first = starts[starts.len() - 1];
            starts.extend(ends.iter().map(|end| first + end));
            kill.extend(own_kill);
        }
        let (mut column, mut value) = (zeroed(starts[count]), zeroed(starts[count]));
        let (mut columns, mut values, mut pieces) = (&mut column[..], &mut value[..], Vec::new());
        for part in parts {
            let own = columns.split_off_mut(..part.1.len()).unwrap_or_default();
            pieces.push((own, values.split_off_mut(..part.1.len()).unwrap_or_default(), part));
        }
        pieces.into_par_iter().for_each(|(columns, values, part): (&mut [u32], &mut [f64], CoarseRows)| {
            columns.copy_from_slice(&part.1);
            values.copy_from_slice(&part.2);
        });
        let out = CsrMatrix::of_rows(count, starts, column, value);
        let links = Arc::new(SetTransitions::new(out, kill, !self.links.is_by_rows()));
        Self::new(links, x, source.into())
    }

    /// Computes some rows of the chain of the aggregates.
    fn coarse_rows(&self, x: &[f64], rows: std::ops::Range<usize>) -> CoarseRows {
        let (mut ends, mut kills) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        let (mut column, mut value): (Vec<u32>, Vec<f64>) = (Vec::new(), Vec::new());
        let mut sums = Sums::default();
        for row in rows {
            let (members, mut kill) = (self.members.row(row).0, 0.0);
            sums.clear(members.iter().map(|&i| self.links.out.row(i as usize).0.len()).sum());
            for &i in members {
                let share = self.x[i as usize] / x[row];
                kill += share * self.links.kill[i as usize];
                let (to, rate) = self.links.out.row(i as usize);
                for (&j, rate) in to.iter().zip(rate) {
                    let there = self.aggregate[j as usize];
                    if there as usize != row {
                        sums.add(there, share * rate);
                    }
                }
            }
            let sorted = sums.entries();
            sorted.sort_unstable_by_key(|entry| entry.0);
            sorted.iter().for_each(|&(to, rate)| (column.push(to), value.push(rate)).0);
            ends.push(column.len());
            kills.push(kill);
        }
        (ends, column, value, kills)
    }
}
