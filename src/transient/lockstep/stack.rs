//! Interleaved vectors of runs with one pattern, and their steps.

use std::time::Instant;

use super::WIDTH;
use super::pattern::{Classes, Pattern};
use crate::kernel::block_sums::tree;
use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::{Number, Real};
use crate::lane::{HostArray, Lane, PIECE};
use crate::parallel::*;
use crate::sparse::BLOCK;
use crate::util::inline_array::array;
use crate::util::memory::less_than;

/// Steps that a run takes without a decision, and its vectors.
#[derive(Debug, Default)]
pub(in crate::transient) struct Leg {
    /// Number of steps.
    pub(in crate::transient) steps: u64,
    /// Stored 1/α of the run's chain.
    pub(in crate::transient) inverse_alpha: f64,
    /// The iterate with which the leg begins, and at its end the newest one.
    pub(in crate::transient) x: Vec<f64>,
    /// The iterate before the newest one.
    pub(in crate::transient) before: Vec<f64>,
    /// Weighted sums of iterates.
    pub(in crate::transient) sums: Vec<WeightedSum>,
    /// Rewards to evaluate at every step.
    pub(in crate::transient) rewards: Vec<Vec<f64>>,
    /// Values of the rewards, one row for each step.
    pub(in crate::transient) collected: Vec<f64>,
    /// Steps taken so far.
    pub(in crate::transient) done: u64,
}

/// A weighted sum of iterates under construction.
#[derive(Debug)]
pub(in crate::transient) struct WeightedSum {
    pub(in crate::transient) values: Vec<f64>,
    /// Step of the leg that has the first weight.
    pub(in crate::transient) first: u64,
    /// Weights of consecutive steps.
    pub(in crate::transient) weights: Vec<f64>,
}

impl WeightedSum {
    fn weight(&self, step: u64) -> f64 {
        step.checked_sub(self.first).and_then(|i| self.weights.get(i as usize)).copied().unwrap_or(0.0)
    }
}

/// A run of the stack.
#[derive(Debug)]
struct Slot {
    /// Rates of the run's chain, by class.
    rates: Vec<f64>,
    leg: Option<Leg>,
    waits: bool,
    /// Column of the interleaved vectors that the leg uses.
    column: Option<usize>,
    /// True if the leg's vectors are in its column.
    inside: bool,
}

/// Runs of chains with one pattern.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) number: u64,
    pub(super) pattern: Pattern,
    classes: Classes,
    slots: Vec<Option<Slot>>,
    vectors: Vectors,
}

/// Interleaved vectors: element (state, column) has the number state × width + column.
#[derive(Debug)]
struct Vectors {
    /// Number of columns, one for each run: 1, 2, 4 or 8.
    width: usize,
    /// Numbers of sums and of rewards of a run for which there is memory; at least one sum.
    sums: usize,
    rewards: usize,
    /// Slot of which each column of `table` has the rates; `None` for no valid rates.
    columns: Vec<Option<usize>>,
    /// Rates of all columns, by class.
    table: HostArray<f64>,
    /// Iterates, the newest at `now`.
    x: [HostArray<f64>; 2],
    now: usize,
    /// Sums, all of a state one after another.
    sum: HostArray<f64>,
    /// Values of the rewards.
    values: Vec<HostArray<f64>>,
    /// Partial sums of the rewards of each block of rows.
    partials: Vec<f64>,
}

impl Vectors {
    fn new(n: usize, width: usize, sums: usize, rewards: usize) -> Self {
        let vector = || HostArray::large(n * width);
        Self {
            width,
            sums,
            rewards,
            columns: vec![None; width],
            table: HostArray::plain(0),
            x: [vector(), vector()],
            now: 0,
            sum: HostArray::large(n * width * sums),
            values: (0..rewards).map(|_| vector()).collect(),
            partials: vec![0.0; n.div_ceil(BLOCK) * width * rewards.max(1)],
        }
    }

    /// Takes a step of all columns.
    ///
    /// `weights` has for each sum the weights of the iterates before and after the step. It is
    /// empty if nothing is added.
    fn step<const W: usize>(
        &mut self,
        (pattern, classes): (&Pattern, &Classes),
        inverse_alpha: [f64; W],
        weights: &[[[f64; W]; 2]],
        both: bool,
    ) {
        let [first, second] = &mut self.x;
        let (x, y) = if self.now == 0 { (first, second) } else { (second, first) };
        let shared = Shared {
            pattern,
            classes: &classes.of,
            table: self.table.as_chunks().0,
            x: x.as_chunks().0,
            values: self.values.iter().map(|values| values.as_chunks().0).collect(),
            inverse_alpha,
            weights,
            sums: self.sums,
            both,
        };
        let y: &mut [[f64; W]] = y.as_chunks_mut().0;
        let sums: &mut [[f64; W]] = self.sum.as_chunks_mut().0;
        let partials: &mut [[f64; W]] = self.partials.as_chunks_mut().0;
        let sums = sums.par_chunks_mut(BLOCK * self.sums);
        let partials = partials.par_chunks_mut(self.rewards.max(1));
        let blocks = y.par_chunks_mut(BLOCK).zip(sums).zip(partials).enumerate();
        blocks.for_each(|(block, ((y, sums), partials))| {
            dispatch(Rows { shared: &shared, first: block * BLOCK, y, sums, partials });
        });
        self.now = 1 - self.now;
    }
}

impl Stack {
    pub(super) fn new(number: u64, pattern: Pattern) -> Self {
        let (classes, vectors) = (Classes::new(pattern.columns.len()), Vectors::new(0, 0, 1, 0));
        Self { number, classes, pattern, slots: Vec::new(), vectors }
    }

    /// Returns true if memory suffices for the vectors of a stack, and for rates of all entries.
    pub(super) fn fits(pattern: &Pattern) -> bool {
        let numbers = 4 * pattern.states() + pattern.columns.len();
        less_than((numbers * WIDTH * size_of::<f64>()) as u64).is_none()
    }

    /// Returns true if there are no runs.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Adds a run of a chain; returns the number of its slot.
    pub(super) fn add(&mut self, rates: &[f64]) -> usize {
        let (classes, others) = (self.classes.count(), self.slots.iter_mut().flatten());
        let rates = self.classes.add(rates, others.map(|slot| &mut slot.rates));
        if self.classes.count() != classes {
            self.vectors.columns.fill(None);
        }
        let slot = Slot { rates, leg: None, waits: false, column: None, inside: false };
        let free = self.slots.iter().position(Option::is_none);
        let at = free.unwrap_or(self.slots.len());
        self.slots.resize_with(self.slots.len().max(at + 1), || None);
        self.slots[at] = Some(slot);
        at
    }

    /// Removes a run.
    pub(super) fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.vectors.columns.iter_mut().filter(|of| **of == Some(slot)).for_each(|of| *of = None);
    }

    fn slot(&mut self, slot: usize) -> &mut Slot {
        self.slots[slot].as_mut().expect("a run keeps its slot")
    }

    /// Lets a run wait for the steps of a leg.
    pub(super) fn set(&mut self, slot: usize, leg: Leg) {
        let slot = self.slot(slot);
        (slot.leg, slot.waits, slot.inside) = (Some(leg), true, false);
    }

    pub(super) fn waits(&mut self, slot: usize) -> bool {
        self.slot(slot).waits
    }

    /// Returns the number of runs that wait.
    pub(super) fn waiting(&self) -> usize {
        self.slots.iter().flatten().filter(|slot| slot.waits).count()
    }

    /// Returns the steps that a run has taken in its leg.
    pub(super) fn done(&mut self, slot: usize) -> u64 {
        self.slot(slot).leg.as_ref().map_or(0, |leg| leg.done)
    }

    /// Returns the leg of a run if it is complete, or if the run gives it up; else the run waits.
    pub(super) fn taken(&mut self, slot: usize, gives_up: bool) -> Option<Leg> {
        let slot = self.slot(slot);
        slot.waits = !gives_up && slot.leg.as_ref().is_some_and(|leg| leg.done < leg.steps);
        if slot.waits { None } else { slot.leg.take() }
    }

    /// Takes steps for all waiting runs, until a leg is complete or some time has passed.
    ///
    /// Returns the number of these runs; they no longer wait.
    pub(super) fn run(&mut self, lane: &Lane) -> usize {
        let count = self.waiting();
        lane.with_threads(&mut || match count {
            1 => self.steps::<1>(),
            2 => self.steps::<2>(),
            3 | 4 => self.steps::<4>(),
            _ => self.steps::<WIDTH>(),
        });
        self.slots.iter_mut().flatten().for_each(|slot| slot.waits = false);
        count
    }

    fn steps<const W: usize>(&mut self) {
        self.arrange(W);
        self.pack();
        let mut runs = legs(&mut self.slots);
        let vectors = &mut self.vectors;
        let count = runs.iter().map(|(_, leg)| leg.steps - leg.done).min().unwrap_or(0);
        let mut inverse_alpha = [0.0; W];
        runs.iter().for_each(|(column, leg)| inverse_alpha[*column] = leg.inverse_alpha);
        let mut done = 0;
        let since = Instant::now();
        // Two terms are added to the sums at once, so a piece ends after an even number of steps.
        while done < count && (done % 2 == 1 || done == 0 || since.elapsed() < PIECE) {
            let both = done % 2 == 0 && done + 1 < count;
            let mut weights = vec![[[0.0; W]; 2]; vectors.sums];
            for (column, leg) in &runs {
                for (sum, [own, next]) in leg.sums.iter().zip(&mut weights) {
                    own[*column] = sum.weight(leg.done + done);
                    next[*column] = if both { sum.weight(leg.done + done + 1) } else { 0.0 };
                }
            }
            let idle = done % 2 == 1 || weights.as_flattened().as_flattened().iter().all(|w| *w == 0.0);
            let weights = if idle { &[][..] } else { &weights };
            vectors.step((&self.pattern, &self.classes), inverse_alpha, weights, both);
            for (column, leg) in &mut runs {
                for reward in 0..leg.rewards.len() {
                    let blocks = vectors.partials.chunks_exact(W).skip(reward).step_by(vectors.rewards);
                    leg.collected.push(blocks.fold(0.0, |sum, block| sum + block[*column]));
                }
            }
            done += 1;
        }
        runs.into_iter().for_each(|(_, leg)| leg.done += done);
        self.unpack(|leg| leg.done == leg.steps);
    }

    /// Gives each waiting run a column of vectors of `width` columns, with its rates.
    fn arrange(&mut self, width: usize) {
        let most = |of: fn(&Leg) -> usize, slots: &[Option<Slot>]| {
            let waiting = slots.iter().flatten().filter(|slot| slot.waits);
            waiting.filter_map(|slot| slot.leg.as_ref()).map(of).max().unwrap_or(0)
        };
        let sums = most(|leg| leg.sums.len(), &self.slots).max(1);
        let rewards = most(|leg| leg.rewards.len(), &self.slots);
        let (n, classes) = (self.pattern.states(), self.classes.count());
        let held = &self.vectors;
        if width != held.width || sums > held.sums || rewards > held.rewards {
            self.unpack(|_| true);
            self.slots.iter_mut().flatten().for_each(|slot| slot.column = None);
            self.vectors = Vectors::new(n, width, sums, rewards);
        }
        let vectors = &mut self.vectors;
        if vectors.table.len() != classes * width {
            vectors.columns.fill(None);
            vectors.table = HostArray::large(classes * width);
        }
        let mut used = vec![false; width];
        for slot in self.slots.iter_mut().flatten() {
            match slot.column.filter(|_| slot.waits) {
                Some(column) => used[column] = true,
                None => slot.column = None,
            }
        }
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot.as_mut().filter(|slot| slot.waits) else { continue };
            let free = || used.iter().position(|used| !used).expect("a column for each run");
            let column = slot.column.unwrap_or_else(free);
            used[column] = true;
            slot.column = Some(column);
            if vectors.columns[column] != Some(number) {
                put(&mut vectors.table, (width, column), &slot.rates);
                vectors.columns[column] = Some(number);
            }
        }
    }

    /// Copies the vectors of legs that begin into their columns.
    fn pack(&mut self) {
        let Vectors { width, sums, now, ref mut x, ref mut sum, ref mut values, .. } = self.vectors;
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.waits && !slot.inside) {
            let (Some(column), Some(leg)) = (slot.column, &slot.leg) else { continue };
            put(&mut x[now], (width, column), &leg.x);
            for (k, own) in leg.sums.iter().enumerate() {
                put(sum, (width * sums, k * width + column), &own.values);
            }
            for (values, reward) in values.iter_mut().zip(&leg.rewards) {
                put(values, (width, column), reward);
            }
            slot.inside = true;
        }
    }

    /// Copies the vectors of some legs back.
    fn unpack(&mut self, ended: impl Fn(&Leg) -> bool) {
        let Vectors { width, sums, now, ref x, ref sum, .. } = self.vectors;
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.waits && slot.inside) {
            let (Some(column), Some(leg)) = (slot.column, &mut slot.leg) else { continue };
            if !ended(leg) {
                continue;
            }
            take(&x[now], (width, column), &mut leg.x);
            leg.before.resize(leg.x.len(), 0.0);
            take(&x[1 - now], (width, column), &mut leg.before);
            for (k, own) in leg.sums.iter_mut().enumerate() {
                take(sum, (width * sums, k * width + column), &mut own.values);
            }
            slot.inside = false;
        }
    }
}

/// Returns the legs of waiting runs, with their columns.
fn legs(slots: &mut [Option<Slot>]) -> Vec<(usize, &mut Leg)> {
    let waiting = slots.iter_mut().flatten().filter(|slot| slot.waits);
    waiting.filter_map(|slot| Some((slot.column?, slot.leg.as_mut()?))).collect()
}

/// Number of rows that a thread copies at once.
const ROWS: usize = 4096;

/// Sets a column of an array with rows of `stride` numbers.
fn put(to: &mut [f64], (stride, column): (usize, usize), from: &[f64]) {
    to.par_chunks_mut(ROWS * stride).zip(from.par_chunks(ROWS)).for_each(|(to, from)| {
        to.chunks_exact_mut(stride).zip(from).for_each(|(row, value)| row[column] = *value);
    });
}

/// Reads a column of an array with rows of `stride` numbers.
fn take(from: &[f64], (stride, column): (usize, usize), to: &mut [f64]) {
    to.par_chunks_mut(ROWS).zip(from.par_chunks(ROWS * stride)).for_each(|(to, from)| {
        to.iter_mut().zip(from.chunks_exact(stride)).for_each(|(value, row)| *value = row[column]);
    });
}

/// Data of a step that all blocks of rows share.
struct Shared<'a, const W: usize> {
    pattern: &'a Pattern,
    classes: &'a [u32],
    table: &'a [[f64; W]],
    x: &'a [[f64; W]],
    /// Values of the rewards.
    values: Vec<&'a [[f64; W]]>,
    inverse_alpha: [f64; W],
    /// For each sum the weights of x and of the next iterate; empty if nothing is added.
    weights: &'a [[[f64; W]; 2]],
    /// Number of sums of a state.
    sums: usize,
    /// True if the next iterate is added as well.
    both: bool,
}

/// A block of rows of a step.
struct Rows<'a, const W: usize> {
    shared: &'a Shared<'a, W>,
    first: usize,
    y: &'a mut [[f64; W]],
    sums: &'a mut [[f64; W]],
    /// Sums of each reward over the rows.
    partials: &'a mut [[f64; W]],
}

/// Adds the product of `a` and `b` to `s` for each run.
#[inline(always)]
fn plus<const W: usize, const LEVEL: u8>(a: &[f64; W], b: &[f64; W], s: &[f64; W]) -> [f64; W] {
    array(|c| match fused(LEVEL) {
        true => f64::fma::<true>(a[c], b[c], s[c]),
        false => f64::fma::<false>(a[c], b[c], s[c]),
    })
}

impl<const W: usize> Body for Rows<'_, W> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Shared { pattern, classes, table, x, ref values, inverse_alpha, weights, sums, both } =
            *self.shared;
        let product = |class: u32, column: u32, s: &[f64; W]| {
            plus::<W, LEVEL>(&table[class as usize], &x[column as usize], s)
        };
        for (i, y) in self.y.iter_mut().enumerate() {
            let row = self.first + i;
            let [entries, tail] = pattern.row(row);
            let (classes_of_row, columns) = (&classes[entries.clone()], &pattern.columns[entries]);
            let mut s = [0.0; W];
            for (&class, &column) in classes_of_row[1..].iter().zip(&columns[1..]) {
                s = product(class, column, &s);
            }
            if !tail.is_empty() {
                // Entry t of the COO part is added to partial sum t mod 4, as in a single run.
                let mut p = [[0.0; W]; 4];
                for (t, entry) in tail.enumerate() {
                    p[t % 4] = product(classes[entry], pattern.columns[entry], &p[t % 4]);
                }
                s = array(|c| s[c] + ((p[0][c] + p[2][c]) + (p[1][c] + p[3][c])));
            }
            let (own, leave) = (x[row], &table[classes_of_row[0] as usize]);
            let next: [f64; W] = array(|c| match fused(LEVEL) {
                true => f64::stepped::<true>(s[c], leave[c], own[c], inverse_alpha[c]),
                false => f64::stepped::<false>(s[c], leave[c], own[c], inverse_alpha[c]),
            });
            *y = next;
            for (sum, [weight, weight_of_next]) in self.sums[i * sums..].iter_mut().zip(weights) {
                let mut added = plus::<W, LEVEL>(weight, &own, sum);
                if both {
                    added = plus::<W, LEVEL>(weight_of_next, &next, &added);
                }
                *sum = added;
            }
        }
        let rows = self.first..self.first + self.y.len();
        for (partial, values) in self.partials.iter_mut().zip(values) {
            let mut products = [[0.0; W]; BLOCK];
            for (product, row) in products.iter_mut().zip(rows.clone()) {
                *product = array(|c| values[row][c] * x[row][c]);
            }
            *partial = tree(&mut products, |a, b| array(|c| a[c] + b[c]));
        }
    }
}
