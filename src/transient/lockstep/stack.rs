//! Steps of runs of chains with one pattern, on interleaved vectors.

use std::time::Instant;

use super::pattern::{EntryClasses, Pattern};
use crate::kernel::block_sums::tree;
use crate::kernel::cpu::interleaved::{ClassifiedEntries, GROUP};
use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::{Number, fma};
use crate::lane::{HostArray, Lane, PIECE};
use crate::parallel::*;
use crate::sparse::BLOCK;
use crate::util::inline_array::array;
use crate::util::memory::less_than;

/// Maximum number of runs per step: the number of f64 elements of a 512-bit vector.
pub(super) const WIDTH: usize = 8;

/// Leg of a run: steps up to the next use of the iterate by the run, with its vectors.
#[derive(Debug, Default)]
pub(in crate::transient) struct Leg {
    /// Number of steps of the leg.
    pub(in crate::transient) steps: u64,
    /// Rounded 1/α, with the uniformization rate α of the chain.
    pub(in crate::transient) inverse_alpha: f64,
    /// Iterate x_k before the first step; after the leg, the newest iterate.
    pub(in crate::transient) x: Vec<f64>,
    /// Iterate before the newest one; set when the steps of this leg are done.
    pub(in crate::transient) before: Vec<f64>,
    /// Weighted sums of iterates, to which the steps add.
    pub(in crate::transient) sums: Vec<WeightedSum>,
    /// Reward rates of each state, one vector per reward.
    pub(in crate::transient) rewards: Vec<Vec<f64>>,
    /// Expected rewards of the iterates before each step, shape `[done, rewards]`.
    pub(in crate::transient) collected: Vec<f64>,
    /// Number of completed steps.
    pub(in crate::transient) done: u64,
}

/// Weighted sum Σ w_k x_k of iterates, such as π(t) with Poisson weights.
#[derive(Debug)]
pub(in crate::transient) struct WeightedSum {
    pub(in crate::transient) values: Vec<f64>,
    /// Number of the leg's step that the first weight belongs to.
    pub(in crate::transient) first: u64,
    /// Weights of consecutive steps.
    pub(in crate::transient) weights: Vec<f64>,
}

impl WeightedSum {
    fn weight(&self, step: u64) -> f64 {
        step.checked_sub(self.first).and_then(|i| self.weights.get(i as usize)).copied().unwrap_or(0.0)
    }
}

/// Run of a stack.
#[derive(Debug)]
struct StackedRun {
    /// Rates of the run's chain, one per class of [`EntryClasses`].
    rates: Vec<f64>,
    leg: Option<Leg>,
    waits: bool,
    /// Column of the interleaved vectors that is reserved for the run.
    column: Option<usize>,
    /// True if the column has the current vectors, and those of the leg are outdated.
    inside: bool,
}

/// Runs of chains with one pattern of transitions.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) number: u64,
    pub(super) pattern: Pattern,
    classes: EntryClasses,
    slots: Vec<Option<StackedRun>>,
    vectors: Vectors,
}

/// Interleaved vectors: element (state, column) has index state × width + column.
///
/// There are [`Pattern::rows`] rows; those after the last state are 0.
#[derive(Debug)]
struct Vectors {
    /// Number of columns, one for each run: 1, 2, 4 or 8.
    width: usize,
    /// Numbers of weighted sums (at least 1) and of rewards that are allocated per run.
    sums: usize,
    rewards: usize,
    /// Slot whose rates are in each column of `table`; `None` if they are outdated.
    columns: Vec<Option<usize>>,
    /// Rates, shape `[classes, width]`.
    table: HostArray<f64>,
    /// Newest iterate, at index `now`, and the one before.
    x: [HostArray<f64>; 2],
    now: usize,
    /// Weighted sums, shape `[states, sums, width]`.
    sum: HostArray<f64>,
    /// Reward rates, one array of shape `[states, width]` per reward.
    values: Vec<HostArray<f64>>,
    /// Rewards summed over blocks of rows, shape `[blocks, rewards, width]`.
    partials: Vec<f64>,
}

impl Vectors {
    fn new(rows: usize, width: usize, sums: usize, rewards: usize) -> Self {
        let vector = || HostArray::large(rows * width);
        Self {
            width,
            sums,
            rewards,
            columns: vec![None; width],
            table: HostArray::plain(0),
            x: [vector(), vector()],
            now: 0,
            sum: HostArray::large(rows * width * sums),
            values: (0..rewards).map(|_| vector()).collect(),
            partials: vec![0.0; rows.div_ceil(BLOCK) * width * rewards.max(1)],
        }
    }

    /// Performs one step for all columns.
    ///
    /// `weights` has two weights for each sum: of the iterate before and of that after the step.
    /// The second one is used if `both` is true. `weights` is empty if nothing is added.
    fn step<const W: usize>(
        &mut self,
        (pattern, classes): (&Pattern, &EntryClasses),
        inverse_alpha: [f64; W],
        weights: &[[[f64; W]; 2]],
        both: bool,
    ) {
        let [first, second] = &mut self.x;
        let (x, y) = if self.now == 0 { (first, second) } else { (second, first) };
        let shared = StepInputs {
            pattern,
            entries: &classes.of,
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
            dispatch(OutputRows { shared: &shared, first: block * BLOCK, y, sums, partials });
        });
        self.now = 1 - self.now;
    }
}

impl Stack {
    pub(super) fn new(number: u64, pattern: Pattern) -> Self {
        let (classes, vectors) = (EntryClasses::new(&pattern.columns), Vectors::new(0, 0, 1, 0));
        Self { number, classes, pattern, slots: Vec::new(), vectors }
    }

    /// Returns true if memory suffices for a stack whose entries all have their own rates.
    pub(super) fn fits(pattern: &Pattern) -> bool {
        let numbers = 4 * pattern.rows() + pattern.columns.len();
        less_than((numbers * WIDTH * size_of::<f64>()) as u64).is_none()
    }

    /// Returns true if there are no runs.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Adds a run of a chain with the given rates of all entries; returns its slot.
    pub(super) fn add(&mut self, rates: &[f64]) -> usize {
        let (classes, others) = (self.classes.count(), self.slots.iter_mut().flatten());
        let rates = self.classes.add(rates, others.map(|slot| &mut slot.rates));
        if self.classes.count() != classes {
            self.vectors.columns.fill(None);
        }
        let slot = StackedRun { rates, leg: None, waits: false, column: None, inside: false };
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

    fn slot(&mut self, slot: usize) -> &mut StackedRun {
        self.slots[slot].as_mut().expect("a run keeps its slot")
    }

    /// Submits a leg of a run, which then waits for its steps.
    pub(super) fn set(&mut self, slot: usize, leg: Leg) {
        let slot = self.slot(slot);
        (slot.leg, slot.waits, slot.inside) = (Some(leg), true, false);
    }

    pub(super) fn waits(&mut self, slot: usize) -> bool {
        self.slot(slot).waits
    }

    /// Returns the number of waiting runs.
    pub(super) fn waiting(&self) -> usize {
        self.slots.iter().flatten().filter(|slot| slot.waits).count()
    }

    /// Returns the number of completed steps of a run's leg.
    pub(super) fn done(&mut self, slot: usize) -> u64 {
        self.slot(slot).leg.as_ref().map_or(0, |leg| leg.done)
    }

    /// Returns the leg of a run if it is complete or aborted; otherwise the run waits again.
    pub(super) fn taken(&mut self, slot: usize, gives_up: bool) -> Option<Leg> {
        let slot = self.slot(slot);
        slot.waits = !gives_up && slot.leg.as_ref().is_some_and(|leg| leg.done < leg.steps);
        if slot.waits { None } else { slot.leg.take() }
    }

    /// Performs steps for all waiting runs, until a leg is complete or [`PIECE`] has passed.
    ///
    /// These runs no longer wait, so that they can report progress. Returns their number.
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
        // Every second step adds two terms to the sums, so an even number of steps is taken.
        // Only the end of a leg may follow an odd number.
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

    /// Assigns a column to each waiting run, and copies its rates there if they changed.
    ///
    /// Allocates new vectors if `width` differs or more sums or rewards are needed.
    fn arrange(&mut self, width: usize) {
        let most = |of: fn(&Leg) -> usize, slots: &[Option<StackedRun>]| {
            let waiting = slots.iter().flatten().filter(|slot| slot.waits);
            waiting.filter_map(|slot| slot.leg.as_ref()).map(of).max().unwrap_or(0)
        };
        let sums = most(|leg| leg.sums.len(), &self.slots).max(1);
        let rewards = most(|leg| leg.rewards.len(), &self.slots);
        let (rows, classes) = (self.pattern.rows(), self.classes.count());
        let held = &self.vectors;
        if width != held.width || sums > held.sums || rewards > held.rewards {
            self.unpack(|_| true);
            self.slots.iter_mut().flatten().for_each(|slot| slot.column = None);
            self.vectors = Vectors::new(rows, width, sums, rewards);
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

    /// Copies the vectors of runs with new steps into their columns of the interleaved vectors.
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

    /// Copies vectors from columns back to the legs for which `ended` returns true.
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

/// Returns the columns and legs of waiting runs.
fn legs(slots: &mut [Option<StackedRun>]) -> Vec<(usize, &mut Leg)> {
    let waiting = slots.iter_mut().flatten().filter(|slot| slot.waits);
    waiting.filter_map(|slot| Some((slot.column?, slot.leg.as_mut()?))).collect()
}

/// Number of rows per parallel copy task.
const ROWS: usize = 4096;

/// Writes a column of an array with rows of `stride` elements, in parallel.
fn put(to: &mut [f64], (stride, column): (usize, usize), from: &[f64]) {
    to.par_chunks_mut(ROWS * stride).zip(from.par_chunks(ROWS)).for_each(|(to, from)| {
        to.chunks_exact_mut(stride).zip(from).for_each(|(row, value)| row[column] = *value);
    });
}

/// Reads a column of an array with rows of `stride` elements, in parallel.
fn take(from: &[f64], (stride, column): (usize, usize), to: &mut [f64]) {
    to.par_chunks_mut(ROWS).zip(from.par_chunks(ROWS * stride)).for_each(|(to, from)| {
        to.iter_mut().zip(from.chunks_exact(stride)).for_each(|(value, row)| *value = row[column]);
    });
}

/// Inputs of a step, shared by all blocks of rows.
struct StepInputs<'a, const W: usize> {
    pattern: &'a Pattern,
    entries: &'a ClassifiedEntries,
    table: &'a [[f64; W]],
    x: &'a [[f64; W]],
    /// Reward rates, one slice by states per reward.
    values: Vec<&'a [[f64; W]]>,
    inverse_alpha: [f64; W],
    /// Weights of x and of the next iterate, per sum; empty if nothing is added.
    weights: &'a [[[f64; W]; 2]],
    /// Number of weighted sums per state and column.
    sums: usize,
    /// True if the next iterate is added to the sums, too.
    both: bool,
}

/// Outputs of a step for a block of rows, from row `first`.
struct OutputRows<'a, const W: usize> {
    shared: &'a StepInputs<'a, W>,
    first: usize,
    y: &'a mut [[f64; W]],
    sums: &'a mut [[f64; W]],
    /// Rewards of x summed over the rows, one element per reward.
    partials: &'a mut [[f64; W]],
}

/// Returns a·b + s for each run, fused if the instruction set allows it.
#[inline(always)]
fn plus<const W: usize, const LEVEL: u8>(a: &[f64; W], b: &[f64; W], s: &[f64; W]) -> [f64; W] {
    array(|c| fma::<f64, LEVEL>(a[c], b[c], s[c]))
}

impl<const W: usize> Body for OutputRows<'_, W> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let StepInputs { pattern, entries, table, x, ref values, inverse_alpha, weights, sums, both } =
            *self.shared;
        let rows = self.first..self.first + self.y.len();
        let tails = !pattern.tails(rows.clone()).is_empty();
        let vectors =
            self.y.as_chunks_mut::<GROUP>().0.iter_mut().zip(x[rows.clone()].as_chunks::<GROUP>().0);
        for (first, (y, own)) in rows.clone().step_by(GROUP).zip(vectors) {
            let (leave, mut s) = entries.products::<W, LEVEL>(pattern.group(first), (table, x));
            if tails && !pattern.tails(first..first + GROUP).is_empty() {
                for (row, s) in (first..).zip(&mut s) {
                    // COO entry t is added to partial sum t mod 4, in the order of a single run.
                    let tail = pattern.tails(row..row + 1);
                    let p = entries.products_of_any::<W, LEVEL>(tail, (table, x));
                    *s = array(|c| s[c] + ((p[0][c] + p[2][c]) + (p[1][c] + p[3][c])));
                }
            }
            let next: [[f64; W]; GROUP] = array(|i| {
                array(|c| match fused(LEVEL) {
                    true => f64::stepped::<true>(s[i][c], leave[i][c], own[i][c], inverse_alpha[c]),
                    false => f64::stepped::<false>(s[i][c], leave[i][c], own[i][c], inverse_alpha[c]),
                })
            });
            *y = next;
            if weights.is_empty() {
                continue;
            }
            let sums_of_rows = &mut self.sums[(first - self.first) * sums..][..GROUP * sums];
            for (i, sums) in sums_of_rows.chunks_exact_mut(sums).enumerate() {
                for (sum, [weight, weight_of_next]) in sums.iter_mut().zip(weights) {
                    let mut added = plus::<W, LEVEL>(weight, &own[i], sum);
                    if both {
                        added = plus::<W, LEVEL>(weight_of_next, &next[i], &added);
                    }
                    *sum = added;
                }
            }
        }
        for (partial, values) in self.partials.iter_mut().zip(values) {
            let mut products = [[0.0; W]; BLOCK];
            for (product, row) in products.iter_mut().zip(rows.clone()) {
                *product = array(|c| values[row][c] * x[row][c]);
            }
            *partial = tree(&mut products, |a, b| array(|c| a[c] + b[c]));
        }
    }
}
