//! Transitions within a set of states, and residuals in double-double arithmetic.
//!
//! Let Q be the generator restricted to the set: rates inside it, and minus the whole exit rates on
//! the diagonal. *Forward* equations are xQ = −f, for distributions and expected times. *Backward*
//! equations are Qv = −f, for expectations from each state.

use std::sync::{Arc, OnceLock};

use super::element::Element;
use super::ordered_sweep::OrderedBlocks;

use crate::numerics::double_double::{CompensatedSum, UNIT};
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::chain::statistics::scale_of;
use crate::transient::chain::transitions::{Transitions, places};
use crate::util::memory::zeroed;

/// Number of states per unit of parallel work.
pub(super) const ROWS: usize = 4096;
/// Number of states per block of a parallel sweep.
const BLOCK: usize = 1 << 14;
/// Mean number of transitions per state above which the order of a sweep hardly matters.
const MIXED: usize = 16;
/// Number of transitions from which sweeps run in parallel.
const PARALLEL: usize = 1 << 21;
/// Lower limit of rates, the largest exit rate being in [1, 2), and of the elements of a solution.
pub(super) const LEAST: f64 = 1e-280;

/// Sums of amounts by index: a hash table for the entries of a row.
#[derive(Default)]
pub(super) struct Sums {
    /// Position in `entries` by hash; valid if that entry has this hash.
    place: Vec<u32>,
    entries: Vec<(u32, f64)>,
    hash: Vec<u32>,
}

impl Sums {
    /// Prepares for up to `most` indices, without any entries.
    pub(super) fn clear(&mut self, most: usize) {
        let size = (2 * most).next_power_of_two().max(16);
        if self.place.len() < size {
            self.place.resize(size, 0);
        }
        self.entries.clear();
        self.hash.clear();
    }

    /// Adds an amount to the sum of index j.
    pub(super) fn add(&mut self, j: u32, amount: f64) {
        let mask = self.place.len() - 1;
        let mut hash = j as usize & mask;
        loop {
            let at = self.place[hash] as usize;
            if self.hash.get(at) != Some(&(hash as u32)) {
                self.place[hash] = self.entries.len() as u32;
                self.entries.push((j, amount));
                return self.hash.push(hash as u32);
            }
            if self.entries[at].0 == j {
                self.entries[at].1 += amount;
                return;
            }
            hash = (hash + 1) & mask;
        }
    }

    /// Returns indices and sums, in the order in which the indices were first added.
    pub(super) fn entries(&mut self) -> &mut Vec<(u32, f64)> {
        &mut self.entries
    }
}

/// Equation to solve: forward for row vectors, or backward for column vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Equation {
    /// xQ = −f for a row vector x.
    Forward,
    /// Qv = −f for a column vector v.
    Backward,
}

/// Transitions among the states of a set, by rows and by columns, with ascending indices.
#[derive(Default)]
pub(super) struct SetTransitions {
    /// Rates to other states of the set.
    pub(super) out: CsrMatrix,
    /// Rates from other states of the set.
    into: CsrMatrix,
    /// Rate of each state out of the set.
    pub(super) kill: Vec<f64>,
    /// Exit rate of each state.
    pub(super) exit: Vec<f64>,
    /// Blocks of parallel sweeps in order, by direction of the equations and of the sweep.
    blocks: [[OnceLock<OrderedBlocks>; 2]; 2],
}

impl SetTransitions {
    /// Creates the links from rates by row; stores rates by column, too, if `both` is true.
    pub(super) fn new(out: CsrMatrix, kill: Vec<f64>, both: bool) -> Self {
        let into = if both { out.transposed() } else { CsrMatrix::default() };
        let mut exit = zeroed(kill.len());
        by_rows(&mut exit, |i| out.row(i).1.iter().sum::<f64>() + kill[i]);
        Self { out, into, kill, exit, blocks: Default::default() }
    }

    /// Frees the rates that only equations of the opposite direction read; `None` restores them.
    pub(super) fn keep(&mut self, direction: Option<Equation>) {
        match direction {
            Some(Equation::Forward) => self.out = CsrMatrix::default(),
            Some(Equation::Backward) => self.into = CsrMatrix::default(),
            None if self.out.rows() < self.states() => self.out = self.into.transposed(),
            None if self.into.rows() < self.states() => self.into = self.out.transposed(),
            None => {}
        }
    }

    pub(super) fn states(&self) -> usize {
        self.kill.len()
    }

    /// Returns the matrix with the rates of equation i in row i.
    pub(super) fn matrix(&self, direction: Equation) -> &CsrMatrix {
        match direction {
            Equation::Forward => &self.into,
            Equation::Backward => &self.out,
        }
    }

    /// Computes −Q v, or −v Q.
    ///
    /// Expectations differ little within blocks that are left rarely, so that their differences are
    /// more accurate than those of sums.
    pub(super) fn apply<E: Element>(&self, direction: Equation, v: &[E], out: &mut [E]) {
        let matrix = self.matrix(direction);
        let falls = |i: usize| dot(matrix, i, |j| v[i] - v[j as usize]);
        match direction {
            Equation::Forward => by_rows(out, |i| E::all(self.exit[i]) * v[i] - dot_row(matrix, i, v)),
            Equation::Backward => by_rows(out, |i| E::all(self.kill[i]) * v[i] + falls(i)),
        }
    }

    /// Returns true if sweeps run in parallel: for many transitions.
    ///
    /// Backward sweeps with few transitions per state run in order. One such sweep carries
    /// expectations from later states to improbable ones.
    fn in_blocks(&self, direction: Equation) -> bool {
        self.matrix(direction).nnz() >= PARALLEL && (direction == Equation::Forward || self.is_mixed())
    }

    /// Returns true for many transitions per state.
    pub(super) fn is_mixed(&self) -> bool {
        self.out.nnz().max(self.into.nnz()) > MIXED * self.states()
    }

    /// Returns the blocks of a sweep in order; `None` if one thread may be as fast.
    ///
    /// In many chains most rows wait for the row before them. Two threads then only take turns.
    fn blocks(&self, direction: Equation, ascending: bool) -> Option<&OrderedBlocks> {
        let matrix = self.matrix(direction);
        let found = &self.blocks[usize::from(direction == Equation::Forward)][usize::from(ascending)];
        (matrix.nnz() >= PARALLEL && threads() > 2)
            .then(|| found.get_or_init(|| OrderedBlocks::new(matrix, ascending)))
    }

    /// Makes the first, ascending sweep from v = 0, and computes its residual.
    pub(super) fn first_sweep<E: Element>(&self, direction: Equation, f: &[E], v: &mut [E], left: &mut [E]) {
        let matrix = self.matrix(direction);
        // True if equation i has read the new v_j.
        let in_blocks = self.in_blocks(direction);
        let reads = |i: usize, j: usize| match (i / BLOCK, j / BLOCK) {
            (own, other) if !in_blocks || own == other => j < i,
            (own, other) => own % 2 > other % 2,
        };
        self.sweep(direction, f, v, true);
        // Other terms of a row cancel; their rounding errors would stall solves of stiff chains.
        by_rows(left, |i| {
            let (to, rate) = matrix.row(i);
            let later = to.iter().zip(rate).filter(|(j, _)| !reads(i, **j as usize));
            let rest = if self.exit[i] > 0.0 { E::all(0.0) } else { f[i] };
            rest + later.map(|(&j, rate)| E::all(*rate) * v[j as usize]).sum()
        });
    }

    /// Returns the solution of equation i for a right-hand side; 0 without a rate.
    fn over_exit<E: Element>(&self, i: usize, sum: E) -> E {
        if self.exit[i] > 0.0 { sum / E::all(self.exit[i]) } else { E::all(0.0) }
    }

    /// Makes a Gauss–Seidel sweep for −Q v = f or −v Q = f, in parallel blocks for large sets.
    pub(super) fn sweep<E: Element>(&self, direction: Equation, f: &[E], v: &mut [E], ascending: bool) {
        if !self.in_blocks(direction) {
            return self.sweep_in_order(direction, f, v, ascending);
        }
        let matrix = self.matrix(direction);
        by_blocks(v, ascending, |i, v| self.over_exit(i, f[i] + dot(matrix, i, |j| v.get(j))));
    }

    /// Makes a Gauss–Seidel sweep for the equation −Q v = f, or −v Q = f, in order.
    fn sweep_in_order<E: Element>(&self, direction: Equation, f: &[E], v: &mut [E], ascending: bool) {
        let (matrix, n) = (self.matrix(direction), v.len());
        if let Some(blocks) = self.blocks(direction, ascending) {
            return blocks.run(v, |i, v| self.over_exit(i, f[i] + dot(matrix, i, |j| v.get(j))));
        }
        for k in 0..n {
            let i = if ascending { k } else { n - 1 - k };
            v[i] = self.over_exit(i, f[i] + dot_row(matrix, i, v));
        }
    }

    /// Makes a Gauss–Seidel sweep for the equation −x Q = f in order.
    pub(super) fn relax(&self, f: &[f64], x: &mut [f64], ascending: bool) {
        match self.is_by_rows() {
            true => self.sweep_by_rows(f, x, ascending),
            false => self.sweep_in_order(Equation::Forward, f, x, ascending),
        }
    }

    /// Makes a forward Gauss–Seidel sweep without rates by column, for f > 0.
    ///
    /// Each change of v_i is added to the sums of the successors of i. The rounding error of a sum
    /// is therefore relative to old elements, not to its value. Elements below f_i / exit rate are
    /// raised to it.
    fn sweep_by_rows(&self, f: &[f64], v: &mut [f64], ascending: bool) {
        let (mut sums, n) = (f.to_vec(), v.len());
        let add = |sums: &mut [f64], i: usize, amount: f64| {
            let (to, rate) = self.out.row(i);
            to.iter().zip(rate).for_each(|(&j, rate)| sums[j as usize] += amount * rate);
        };
        (0..n).for_each(|i| add(&mut sums, i, v[i]));
        for k in 0..n {
            let i = if ascending { k } else { n - 1 - k };
            let next = if self.exit[i] > 0.0 { sums[i].max(f[i]) / self.exit[i] } else { 0.0 };
            let change = next - std::mem::replace(&mut v[i], next);
            add(&mut sums, i, change);
        }
    }

    /// Returns the rate from i to j.
    pub(super) fn rate(&self, i: u32, j: u32) -> f64 {
        let (to, rate) = self.out.row(i as usize);
        to.binary_search(&j).map_or(0.0, |k| rate[k])
    }

    /// Returns true if only the rates by row are stored.
    pub(super) fn is_by_rows(&self) -> bool {
        self.into.rows() < self.states()
    }
}

fn dot_row<E: Element>(matrix: &CsrMatrix, i: usize, v: &[E]) -> E {
    dot(matrix, i, |j| v[j as usize])
}

/// Returns the sum of the rates of a row, each times `factor(j)`; four partial sums save time.
#[inline]
fn dot<E: Element>(matrix: &CsrMatrix, i: usize, mut factor: impl FnMut(u32) -> E) -> E {
    let (to, rate) = matrix.row(i);
    let ((fours, to), (rates, rate)) = (to.as_chunks::<4>(), rate.as_chunks::<4>());
    let mut sums = [E::all(0.0); 4];
    for (to, rate) in fours.iter().zip(rates) {
        for k in 0..4 {
            sums[k] = sums[k] + E::all(rate[k]) * factor(to[k]);
        }
    }
    let rest: E = to.iter().zip(rate).map(|(&j, rate)| E::all(*rate) * factor(j)).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

/// Elements of a vector during a sweep of a block.
#[derive(Clone, Copy)]
struct Current<'a, E> {
    /// Elements of the current block.
    own: &'a [E],
    /// Index of its first element.
    first: usize,
    /// All elements, without changes of the current block.
    v: &'a [E],
}

impl<E: Element> Current<'_, E> {
    #[inline]
    fn get(self, j: u32) -> E {
        match self.own.get((j as usize).wrapping_sub(self.first)) {
            Some(own) => *own,
            None => self.v[j as usize],
        }
    }
}

/// Sets each element in turn from the current elements.
///
/// Blocks with even numbers are computed before those with odd numbers, or after them if
/// `ascending` is false. Blocks of equal parity run in parallel, and read old elements of one
/// another.
fn by_blocks<E: Element>(v: &mut [E], ascending: bool, of: impl Fn(usize, Current<'_, E>) -> E + Sync) {
    let (n, count) = (v.len(), v.len().div_ceil(BLOCK));
    for odd in [!ascending, ascending].map(usize::from) {
        let fresh = |k: usize| {
            let first = (2 * k + odd) * BLOCK;
            let mut own = v[first..n.min(first + BLOCK)].to_vec();
            for k in 0..own.len() {
                let k = if ascending { k } else { own.len() - 1 - k };
                own[k] = of(first + k, Current { own: &own, first, v });
            }
            own
        };
        let fresh: Vec<Vec<E>> = (0..(count + 1 - odd) / 2).into_par_iter().map(fresh).collect();
        v.par_chunks_mut(BLOCK).enumerate().for_each(|(k, v)| {
            if k % 2 == odd {
                v.copy_from_slice(&fresh[k / 2]);
            }
        });
    }
}

/// Sets each element by its index, in parallel.
pub(super) fn by_rows<E: Send>(out: &mut [E], of: impl Fn(usize) -> E + Sync) {
    let chunk = |(block, out): (usize, &mut [E])| {
        out.iter_mut().zip(block * ROWS..).for_each(|(out, i)| *out = of(i));
    };
    match out.len() {
        0..=ROWS => out.iter_mut().enumerate().for_each(|(i, out)| *out = of(i)),
        _ => out.par_chunks_mut(ROWS).enumerate().for_each(chunk),
    }
}

/// Subtracts a multiple of a vector; a factor of 0 also removes elements that are not finite.
pub(super) fn subtract<E: Element>(from: &mut [E], factor: E, other: &[E]) {
    let taken = |k, other: E| if factor.number(k) == 0.0 { 0.0 } else { factor.number(k) * other.number(k) };
    let pairs = from.par_iter_mut().zip(other).with_min_len(ROWS);
    pairs.for_each(|(from, &other)| *from = *from - E::of(|k| taken(k, other)));
}

/// Returns Σ `of(i)` in a fixed order, within a relative 1e-9 if all terms are nonnegative.
pub(super) fn sum_rows<E: Element>(n: usize, of: impl Fn(usize) -> E + Sync) -> E {
    let block = |k: usize| (k * ROWS..n.min((k + 1) * ROWS)).map(&of).sum();
    match n {
        0..=ROWS => (0..n).map(of).sum(),
        _ => (0..n.div_ceil(ROWS)).into_par_iter().map(block).collect::<Vec<E>>().into_iter().sum(),
    }
}

/// Returns the largest magnitude; NaN if any element is NaN.
pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().map(|v| v.abs()).max_by(f64::total_cmp).unwrap_or(0.0)
}

/// Number of states from which the order of the states in memory counts.
const CACHED: usize = 1 << 14;

/// Returns the states in an order in which neighbours are near each other.
///
/// This is the given order, or breadth first if most transitions are long in it, as between random
/// points. Vectors of neighbours are then read from a processor's cache.
pub(in crate::transient) fn near_order(transitions: &dyn Transitions, states: Vec<u32>) -> Vec<u32> {
    let (n, mut row) = (states.len(), Vec::new());
    if n < CACHED {
        return states;
    }
    let mut place = places(transitions.states(), &states);
    let (mut sum, mut count) = (0, 0);
    for k in (0..n).step_by(64) {
        let row = transitions.leaving(states[k] as usize, &mut row);
        let inside = row.iter().map(|&(to, _)| place[to as usize]).filter(|&to| to != u32::MAX);
        inside.for_each(|to| (sum, count) = (sum + k.abs_diff(to as usize), count + 1));
    }
    // The mean distance of random places is n/3.
    if 8 * sum < n * count {
        return states;
    }
    let mut order: Vec<u32> = Vec::with_capacity(n);
    for root in states {
        let mut at = order.len();
        order.extend((place[root as usize] != u32::MAX).then_some(root));
        place[root as usize] = u32::MAX;
        while let Some(&state) = order.get(at) {
            at += 1;
            let fresh = transitions.leaving(state as usize, &mut row).iter().map(|&(to, _)| to);
            order
                .extend(fresh.filter(|&to| std::mem::replace(&mut place[to as usize], u32::MAX) != u32::MAX));
        }
    }
    order
}

/// Copies a vector.
pub(super) fn copied(v: &[f64]) -> Vec<f64> {
    let mut copy = zeroed(v.len());
    by_rows(&mut copy, |i| v[i]);
    copy
}

/// A vector of unevaluated sums of two doubles.
pub(super) struct Pair {
    pub(super) high: Vec<f64>,
    pub(super) low: Vec<f64>,
}

impl Clone for Pair {
    fn clone(&self) -> Self {
        Self { high: copied(&self.high), low: copied(&self.low) }
    }
}

impl Pair {
    pub(super) fn of(high: Vec<f64>) -> Self {
        Self { low: zeroed(high.len()), high }
    }

    /// Adds a correction to each element.
    pub(super) fn add(&mut self, e: &[f64]) {
        let pairs = self.high.par_iter_mut().zip(&mut self.low[..]).zip(e).with_min_len(ROWS);
        pairs.for_each(|((high, low), e)| {
            let mut sum = CompensatedSum { sum: *high, lost: *low };
            sum.add(*e);
            *high = sum.value();
            *low = (sum.sum - *high) + sum.lost;
        });
    }
}

/// A restricted generator, in the unit in which the largest exit rate is in [1, 2).
pub(super) struct Subchain {
    pub(super) links: Arc<SetTransitions>,
    /// Rounding errors of the exit rates in `links`.
    exit_low: Vec<f64>,
    /// Power of two by which rates are multiplied.
    pub(super) scale: f64,
    /// Bound of the relative error of each rate, which bounds of backward residuals include.
    pub(super) rounding: f64,
    /// States of the chain.
    pub(super) states: Vec<u32>,
}

impl Subchain {
    /// Reads the transitions of some states; `place` is that of [`places`].
    ///
    /// Rates by column are stored only if `both` is true. `None` if the rates span too many orders
    /// of magnitude.
    pub(super) fn new(
        transitions: &dyn Transitions,
        states: Vec<u32>,
        place: &[u32],
        both: bool,
    ) -> Option<Self> {
        let exits = |&state: &u32| {
            let mut exit = [0.0];
            transitions.exit_rates(state as usize..state as usize + 1, &mut exit);
            exit[0]
        };
        let largest = (0..states.len()).into_par_iter().map(|i| exits(&states[i])).reduce(|| 0.0, f64::max);
        let scale = scale_of(largest);
        let out = CsrMatrix::from_rows(states.len(), states.len(), |i, row| {
            transitions.outgoing(states[i] as usize, row);
            row.retain_mut(|(to, rate)| {
                (*to, *rate) = (place[*to as usize], *rate * scale);
                *to != u32::MAX
            });
            row.sort_unstable_by_key(|t| t.0);
        });
        // Exit rate and rate out of the set, each in double-double arithmetic.
        let n = states.len();
        let (mut kill, mut exit, mut exit_low) = (zeroed(n), zeroed(n), zeroed(n));
        let rows = kill.par_iter_mut().zip(&mut exit[..]).zip(&mut exit_low[..]).zip(&states);
        let usable = rows.map_init(Vec::new, |row, (((kill, high), low), &state)| {
            let row = transitions.leaving(state as usize, row);
            let (mut exit, mut out, mut usable) =
                (CompensatedSum::default(), CompensatedSum::default(), true);
            for (to, rate) in row.iter().map(|&(to, rate)| (to, rate * scale)) {
                exit.add(rate);
                if place[to as usize] == u32::MAX {
                    out.add(rate);
                }
                usable &= rate >= LEAST;
            }
            *high = exit.value();
            *low = (exit.sum - *high) + exit.lost;
            *kill = out.value();
            usable
        });
        if !usable.reduce(|| true, |a, b| a && b) {
            return None;
        }
        let links = SetTransitions { exit, ..SetTransitions::new(out, kill, both) };
        Some(Self { links: Arc::new(links), exit_low, scale, rounding: 0.0, states })
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Returns the residual f + vQ or f + Qv of state i, and a bound on its magnitude.
    ///
    /// f is the sum of `f` and `f_low`.
    fn residual_of(&self, direction: Equation, (f, f_low): (f64, f64), v: &Pair, i: usize) -> (f64, f64) {
        let (to, rate) = self.links.matrix(direction).row(i);
        let (mut sum, mut all, mut all_low) = (CompensatedSum { sum: f, lost: f_low }, f.abs(), f_low.abs());
        for (&j, &rate) in to.iter().zip(rate) {
            let (high, low) = (v.high[j as usize], v.low[j as usize]);
            sum.add_product(high, rate);
            sum.lost += low * rate;
            all += (high * rate).abs();
            all_low += (low * rate).abs();
        }
        let (high, low) = (v.high[i], v.low[i]);
        let (exit, exit_low) = (self.links.exit[i], self.exit_low[i]);
        sum.add_product(-high, exit);
        sum.lost -= low * exit + high * exit_low;
        all += (high * exit).abs();
        all_low += (low * exit).abs() + (high * exit_low).abs();
        // Products of low parts are rounded, and so are their sums.
        let terms = 2 * to.len() + 6;
        let underflow = terms as f64 * 4.0 * f64::MIN_POSITIVE;
        let rounding = 4.0 * terms as f64 * UNIT * all_low + underflow;
        (sum.value(), sum.magnitude(terms, 1.001 * all) + rounding)
    }

    /// Computes the residual of each state, and returns bounds on their magnitudes.
    ///
    /// `low` has the low parts of f; it is empty if they are 0.
    pub(super) fn residual(
        &self,
        direction: Equation,
        (f, low): (&[f64], &[f64]),
        v: &Pair,
        r: &mut [f64],
    ) -> Vec<f64> {
        let mut bounds = zeroed(self.len());
        let moved = direction == Equation::Backward && self.rounding > 0.0;
        let rows = r.par_iter_mut().zip(&mut bounds[..]).enumerate().with_min_len(ROWS);
        rows.for_each(|(i, (r, bound))| {
            let low = low.get(i).copied().unwrap_or_default();
            (*r, *bound) = self.residual_of(direction, (f[i], low), v, i);
            if moved {
                *bound += self.rounding * self.moved(&v.high, i);
            }
        });
        bounds
    }

    /// Computes bounds on the magnitudes of the residuals.
    pub(super) fn defects(&self, direction: Equation, f: &[f64], v: &Pair) -> Vec<f64> {
        self.residual(direction, (f, &[]), v, &mut zeroed(f.len()))
    }

    /// Bounds the change of backward residual i by relative errors of all rates of at most 1.
    fn moved(&self, v: &[f64], i: usize) -> f64 {
        let (to, rate) = self.links.out.row(i);
        let moved = to.iter().zip(rate).map(|(&j, rate)| rate * (v[j as usize] - v[i]).abs()).sum::<f64>();
        1.001 * (moved + self.links.kill[i] * v[i].abs())
    }
}
