//! Derivatives of a functional of transient probabilities by every rate.
//!
//! Let F = Σ_k x_k c_k with x_k = π(0) Pᵏ and column vectors c_k, the weighted values of the times
//! whose windows include k. With b_{m−1} = c_m + P b_m, b_R = 0 after the last term R,
//!
//! dF/dq_ij = (1/α) Σ_m x_m(i) (b_m(j) − b_m(i)), and dF/dπ(0) = b_{−1}.
//!
//! The iterates x_m are stored. If memory does not suffice for all of them, every √R-th is stored,
//! and those between two of them are computed again.

use std::time::Instant;

use super::{Bounded, Due, U, check_machine, check_times, uniformized};
use crate::kernel::cpu::simd::{Body, dispatch, fused};
use crate::kernel::{Number, fma};
use crate::lane::{PIECE, expect_memory};
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::chain::csr::Csr;
use crate::transient::chain::statistics::scale_rates;
use crate::transient::chain::transitions::Transitions;
use crate::transient::problem::{Options, Problem, check};
use crate::transient::{Initial, Reward};
use crate::util::memory::{less_than, zeroed};
use crate::{Invalid, Machine, Progress, Result};

/// Term of a functional: an expectation at a time, or accumulated until then.
#[derive(Debug, Clone, Copy)]
pub struct Functional<'a> {
    /// Finite time.
    pub time: f64,
    /// Value of each state.
    pub values: &'a [f64],
    /// True if the values are rates, accumulated until the time.
    pub accumulated: bool,
}

/// A functional, and its derivatives by all rates and all initial probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Adjoint {
    /// Value of the functional.
    pub value: f64,
    /// Derivative by the rate of each entry of the matrix. The bound is that of each derivative.
    ///
    /// The derivatives g_ij include the effect of a rate on the diagonal of the generator. Those of
    /// diagonal entries are 0. For any changes dq_ij of the rates, the error of Σ g_ij dq_ij is at
    /// most `rates.bound` times the largest Σ_j |dq_ij| of a row i.
    pub rates: Bounded,
    /// Derivative by each initial probability. The bound is that of each derivative.
    ///
    /// It is the value of the functional for a chain that starts in that state.
    pub initial: Bounded,
}

/// Computes a functional of transient probabilities, and its derivatives by every rate.
///
/// The functional is the sum of `functionals`. Row i of `rates` has the rates out of state i; zeros
/// may be stored, and finite diagonal entries have no effect. If all iterates take more than
/// `memory` bytes, by default half of the free memory, only about 2√R of R are stored at a time.
///
/// # Errors
/// [`Invalid`] for rates that are negative or not finite, for values of another shape or that are
/// not finite, for times that are not finite, for a precision other than f64, and for several
/// ranks; [`crate::Error::OutOfMemory`]; errors of the observer.
pub fn adjoint(
    machine: &Machine,
    rates: &CsrMatrix,
    initial: &Initial,
    functionals: &[Functional<'_>],
    options: &Options,
    memory: Option<u64>,
    observer: &mut dyn Progress,
) -> Result<Adjoint> {
    check_machine(machine)?;
    let n = rates.rows();
    if let Some((from, to, rate)) = rates.entries().find(|&(i, j, r)| i != j && !(0.0..1e300).contains(&r)) {
        return Invalid::Number("rates")
            .fail(format!("the rate {from} -> {to} is {rate:e}: expected a number from 0 to 1e300"));
    }
    let chain = Csr::from_rates(rates);
    let times: Vec<f64> = functionals.iter().map(|functional| functional.time).collect();
    // The check of rewards also applies to values.
    let reward = |f: &Functional<'_>| Reward { name: "values".to_owned(), values: f.values.to_vec() };
    let values: Vec<Reward> = functionals.iter().map(reward).collect();
    check(&Problem::new(&chain, initial, &times).rewards(&values), options)?;
    check_times(&times)?;
    let statistics = uniformized(&chain, &times)?;
    let epsilon = |time: f64| (0.0625 * options.epsilon / time.max(1.0)).max(1e-290);
    let due = times.iter().map(|&time| Due::new(&statistics, time, epsilon(time))).collect::<Result<_>>()?;
    let start = initial.probabilities(n)?;
    let bytes = (rates.nnz() * 48 + n * 64) as u64;
    expect_memory(bytes, || format!("derivatives by {} rates", rates.nnz()))?;
    let holding = statistics.mean_holding();
    let longest = |rows: &[usize]| rows.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
    let mut run = Backward {
        forward: Forward {
            into: CsrMatrix::from_rows(n, n, |state, row| {
                chain.incoming(state, row);
                scale_rates(row, statistics.scale);
            }),
            exit: statistics.exit,
            inverse_alpha: statistics.inverse_alpha,
        },
        rates,
        functionals,
        due,
        holding,
        b: zeroed(n),
        next: zeroed(n),
        blocks: blocks(rates),
        errors: Errors {
            longest: longest(rates.starts()) as f64,
            forward: [initial.rounding(), 1.001 * statistics.step],
            ..Errors::default()
        },
    };
    match run.blocks.len() {
        // Waking other threads takes longer than the steps.
        0 | 1 => alone(|| run.run(machine, &start, memory, observer))?,
        _ => run.run(machine, &start, memory, observer)?,
    }
    Ok(run.result(&start))
}

/// Derivatives by the rates of a block of rows, from row `first`.
struct Block {
    first: usize,
    derivatives: Vec<f64>,
}

/// Returns blocks of [`BLOCK`] rows, with derivatives of 0.
fn blocks(rates: &CsrMatrix) -> Vec<Block> {
    let (n, starts) = (rates.rows(), rates.starts());
    let block =
        |first: usize| Block { first, derivatives: zeroed(starts[n.min(first + BLOCK)] - starts[first]) };
    (0..n).step_by(BLOCK).map(block).collect()
}

/// Number of rows that a thread processes at once.
const BLOCK: usize = 512;

/// Bounds of the errors of a backward run.
#[derive(Debug, Clone, Copy, Default)]
struct Errors {
    /// Length of the longest row.
    longest: f64,
    /// l1 errors of π(0), and of each step from x_m to x_{m+1}.
    forward: [f64; 2],
    /// Bound of the magnitudes of the elements of b_m.
    size: f64,
    /// Bound of the error of each element of b_m.
    error: f64,
    /// Sum of the errors of the terms x_m(i) (b_m(j) − b_m(i)) so far.
    terms: f64,
    /// Sum of the bounds of these terms.
    sizes: f64,
}

impl Errors {
    /// Adds the term of x_m and b_m, and advances to b_{m−1} = c_m + P b_m.
    ///
    /// `added` bounds the elements of c_m.
    fn step(&mut self, m: u64, added: f64) {
        let most = self.size + self.error;
        let [start, step] = self.forward;
        self.terms += 2.0 * self.error + (start + m as f64 * step) * 2.0 * most;
        self.sizes += 2.0 * most;
        self.error += U * (2.0 * self.longest + 12.0) * most + 4.0 * U * added;
        self.size += added;
    }
}

/// Run from the last term of all windows to the first iterate.
struct Backward<'a> {
    forward: Forward,
    rates: &'a CsrMatrix,
    functionals: &'a [Functional<'a>],
    due: Vec<Due>,
    /// 1/α.
    holding: f64,
    b: Vec<f64>,
    next: Vec<f64>,
    blocks: Vec<Block>,
    errors: Errors,
}

impl<'a> Backward<'a> {
    /// Returns the weights and values with the weighted sum c_m.
    fn weights(&self, m: u64) -> Vec<(f64, &'a [f64])> {
        let weighted = |(functional, due): (&Functional<'a>, &Due)| match functional.accumulated {
            true => (due.weights[1].of(m) * self.holding, functional.values),
            false => (due.weights[0].of(m), functional.values),
        };
        let all = self.functionals.iter().zip(&self.due).map(weighted);
        all.filter(|(weight, _)| *weight != 0.0).collect()
    }

    /// Computes the iterates from `start`, and runs backwards over them.
    fn run(
        &mut self,
        machine: &Machine,
        start: &[f64],
        memory: Option<u64>,
        observer: &mut dyn Progress,
    ) -> Result<()> {
        let (n, lane) = (start.len(), &machine.lanes[0]);
        let last = self.due.iter().map(|due| due.right).max().unwrap_or(0);
        // The first backward step yields b_{R−1} = c_R, as b_R = 0.
        self.step(last, &[]);
        let vector = (n * size_of::<f64>()).max(1) as u64;
        let free = memory.unwrap_or_else(|| less_than(last * vector * 2).map_or(u64::MAX, |free| free / 2));
        let fit = (free / vector).max(4);
        let length = if last <= fit { last.max(1) } else { last.isqrt() + 1 };
        let pieces = last.div_ceil(length);
        let work = last + if pieces > 1 { 2 * last } else { last };
        let mut kept = vec![start.to_vec()];
        let mut done = 0;
        let mut iterates = Vec::new();
        if pieces > 1 {
            expect_memory((pieces + length) * vector, || format!("iterates of {n} states"))?;
            let mut room = [kept[0].clone(), zeroed(n)];
            while done < (pieces - 1) * length {
                lane.with_threads(&mut || {
                    let since = Instant::now();
                    while done < (pieces - 1) * length && since.elapsed() < PIECE {
                        let [x, next] = &mut room;
                        self.forward.step(x, next);
                        room.swap(0, 1);
                        done += 1;
                        if done % length == 0 {
                            kept.push(room[0].clone());
                        }
                    }
                });
                observer.progress(done, work)?;
            }
        }
        for piece in (0..pieces).rev() {
            let first = piece * length;
            let count = (last.min(first + length) - first) as usize;
            iterates.truncate(count);
            iterates.resize_with(count, || zeroed(n));
            iterates[0].copy_from_slice(&kept[piece as usize]);
            let (mut ahead, mut back) = (1, count);
            while back > 0 {
                lane.with_threads(&mut || {
                    let since = Instant::now();
                    while back > 0 && since.elapsed() < PIECE {
                        if ahead < count {
                            let (before, after) = iterates.split_at_mut(ahead);
                            self.forward.step(&before[ahead - 1], &mut after[0]);
                            ahead += 1;
                        } else {
                            back -= 1;
                            self.step(first + back as u64, &iterates[back]);
                        }
                        done += 1;
                    }
                });
                observer.progress(done, work)?;
            }
        }
        Ok(())
    }

    /// Adds the terms of x_m and b_m to the derivatives, and computes b_{m−1}.
    ///
    /// x is empty at the last term, where b = 0 and the terms vanish.
    fn step(&mut self, m: u64, x: &[f64]) {
        let added = self.weights(m);
        let largest = |values: &[f64]| values.iter().fold(0.0f64, |most, v| v.abs().max(most));
        let sizes: f64 = added.iter().map(|(weight, values)| weight * largest(values)).sum();
        let (rates, b, holding) = (self.rates, &self.b, self.holding);
        let rows = self.blocks.par_iter_mut().zip(self.next.par_chunks_mut(BLOCK));
        rows.for_each(|(block, next)| dispatch(Rows { rates, holding, b, x, added: &added, block, next }));
        std::mem::swap(&mut self.b, &mut self.next);
        match x {
            [] => {
                let window = |(functional, due): (&Functional<'_>, &Due)| match functional.accumulated {
                    true => due.len * self.holding * due.rounding[1] * largest(functional.values),
                    false => due.rounding[0] * largest(functional.values),
                };
                self.errors.error = self.functionals.iter().zip(&self.due).map(window).sum::<f64>();
                self.errors.error += 4.0 * U * sizes;
                self.errors.size = sizes;
            }
            _ => self.errors.step(m, sizes),
        }
    }

    /// Returns the value and the derivatives, with bounds of their errors.
    fn result(self, start: &[f64]) -> Adjoint {
        let Self { functionals, due, holding, errors, .. } = self;
        let most = |f: &Functional<'_>| f.values.iter().fold(0.0f64, |most, v| v.abs().max(most));
        let (mut rates, mut initial) = (0.0, errors.error);
        let mut steps = 0.0f64;
        for (functional, due) in functionals.iter().zip(&due) {
            let (time, size) = (due.time, most(functional));
            let kind = usize::from(functional.accumulated);
            let scale = if functional.accumulated { time } else { 1.0 };
            rates +=
                2.0 * size * scale * (time * due.omitted[1 + kind] + due.drift() * (2.0 * time + holding));
            initial += size * scale * (due.omitted[kind] + 2.0 * due.drift() + 4.0 * U);
            steps = steps.max(due.right as f64);
        }
        let sums = U * (steps + 4.0) * errors.sizes;
        rates += holding * (errors.terms + sums) + errors.longest * f64::MIN_POSITIVE;
        // The factor covers terms of second order and the rounding of the bound.
        let growth = 1.002 * (4.0 * U * (errors.longest + 6.0) * steps).exp();
        let derivatives: Vec<Vec<f64>> = self.blocks.into_iter().map(|block| block.derivatives).collect();
        let mut values = derivatives.concat();
        values.iter_mut().for_each(|value| *value *= holding);
        Adjoint {
            value: start.iter().zip(&self.b).map(|(p, b)| p * b).sum(),
            rates: Bounded { values, bound: growth * rates },
            initial: Bounded { values: self.b, bound: growth * initial },
        }
    }
}

/// Matrix of the steps from x to xP, whose row i has the scaled rates into state i.
struct Forward {
    into: CsrMatrix,
    exit: Vec<f64>,
    inverse_alpha: f64,
}

impl Forward {
    /// Writes xP to `next`.
    fn step(&self, x: &[f64], next: &mut [f64]) {
        let blocks = next.par_chunks_mut(BLOCK).enumerate();
        blocks.for_each(|(k, next)| dispatch(Next { matrix: self, x, first: k * BLOCK, next }));
    }
}

/// A block of rows of a forward step, from row `first`.
struct Next<'a> {
    matrix: &'a Forward,
    x: &'a [f64],
    first: usize,
    next: &'a mut [f64],
}

impl Body for Next<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Forward { into, exit, inverse_alpha } = self.matrix;
        for (row, next) in (self.first..).zip(self.next) {
            let (columns, rates) = into.row(row);
            let flow = columns.iter().zip(rates);
            let flow = flow.fold(0.0, |flow, (&j, &r)| fma::<f64, LEVEL>(r, self.x[j as usize], flow));
            let (leave, own) = (exit[row], self.x[row]);
            *next = match fused(LEVEL) {
                true => f64::stepped::<true>(flow, leave, own, *inverse_alpha),
                false => f64::stepped::<false>(flow, leave, own, *inverse_alpha),
            };
            // Subnormal numbers are slow.
            if next.abs() < f64::NEGLIGIBLE {
                *next = 0.0;
            }
        }
    }
}

/// A block of rows of a backward step.
struct Rows<'a> {
    rates: &'a CsrMatrix,
    /// 1/α.
    holding: f64,
    b: &'a [f64],
    /// Iterate x_m; empty if b = 0.
    x: &'a [f64],
    /// Weights and values with the weighted sum c_m.
    added: &'a [(f64, &'a [f64])],
    block: &'a mut Block,
    next: &'a mut [f64],
}

impl Body for Rows<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Self { rates, holding, b, x, added, block, next } = self;
        if !x.is_empty() {
            let (first, starts) = (block.first, rates.starts());
            let offset = starts[first];
            for (row, next) in (first..).zip(&mut *next) {
                let entries = starts[row]..starts[row + 1];
                let to = &rates.column()[entries.clone()];
                let values = &rates.value()[entries.clone()];
                let derivatives = &mut block.derivatives[entries.start - offset..entries.end - offset];
                let (own, x) = (b[row], x[row]);
                let mut flow = 0.0;
                for ((&to, &rate), derivative) in to.iter().zip(values).zip(derivatives) {
                    let difference = b[to as usize] - own;
                    flow = fma::<f64, LEVEL>(rate, difference, flow);
                    *derivative = fma::<f64, LEVEL>(x, difference, *derivative);
                }
                *next = fma::<f64, LEVEL>(flow, holding, own);
            }
        }
        let rows = block.first..block.first + next.len();
        for (weight, values) in added {
            for (next, value) in next.iter_mut().zip(&values[rows.clone()]) {
                *next = fma::<f64, LEVEL>(*weight, *value, *next);
            }
        }
    }
}
