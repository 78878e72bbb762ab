//! A run of up to 8 vectors on one lane.

use std::ops::Range;

use super::kernels::{CHANGE_COLUMNS, COLUMN_CHANGE, Change, column_change, threads};
use super::{Column, Due, Report, Shared};
use crate::Result;
use crate::kernel::{Kernel, Real};
use crate::lane::{Buffer, Lane, Launch, Program};
use crate::parallel::*;
use crate::transient::chain::transitions::add_rates;
use crate::transient::context::DEFAULT_VECTORS;
use crate::transient::numerics::poisson::expected_excess;
use crate::transient::step::chunk::Chunk;
use crate::transient::step::kernels::{STEP, STEP_COLUMNS, STEP_DERIVATIVES, step};
use crate::transient::step::matrix::Matrix;
use crate::transient::step::vector_kernels::{ACCUMULATE, accumulate};

/// Number of steps between two convergence checks; even, so that the newest iterate is in x\[0\].
const STEPS: u64 = 64;
/// Number of rows that a thread copies at once.
const ROWS: usize = 4096;

/// Columns of the block that share a run, stored side by side and padded to `width` columns.
pub(super) struct Group<'a, T> {
    pub(super) shared: &'a Shared<'a, T>,
    pub(super) lane: &'a Lane,
    pub(super) matrix: &'a Matrix<T>,
    /// Columns of the block; the first one is the distribution if the others are derivatives.
    pub(super) columns: Vec<usize>,
    pub(super) width: usize,
    pub(super) report: &'a Report<'a>,
}

/// Incomplete sum of weighted iterates for a requested time.
struct Target<'d, T> {
    due: &'d Due,
    /// 1/α, and the weights of the current steps.
    scalars: Buffer<T>,
    acc: Buffer<T>,
    /// Launches that read x\[0\] or x\[1\]: steps that add their terms, and additions alone.
    steps: [Vec<Launch>; 2],
    adds: [Launch; 2],
    /// Compensated sum of the weights so far.
    given: [f64; 2],
    /// Number of steps, and the error of early termination in each column, if the sum is complete.
    end: Option<(u64, Vec<f64>)>,
}

impl<T> Target<'_, T> {
    /// Sets the number of steps that add terms.
    fn open(&mut self, steps: usize) {
        let launches = self.steps.iter_mut().flatten().chain(&mut self.adds);
        launches.for_each(|launch| launch.set("window_end", steps as u32));
    }
}

impl<T: Real> Group<'_, T> {
    /// Computes the results of all times, as many at once as there is memory for.
    pub(super) fn run(&self) -> Result<()> {
        let (n, width) = (self.shared.n, self.width);
        let mut start = vec![T::ZERO; n * width];
        let all = self.shared.columns.len();
        start.par_chunks_mut(ROWS * width).enumerate().for_each(|(part, start)| {
            for (row, start) in (part * ROWS..).zip(start.chunks_exact_mut(width)) {
                for (&c, start) in self.columns.iter().zip(start) {
                    let value = self.shared.request.block[row * all + c];
                    *start = T::of(self.shared.columns[c].scaled(value));
                }
            }
        });
        let vector = || self.lane.alloc("a block of vectors", n * width);
        let x = [vector()?, vector()?];
        let free = self.lane.free_bytes().map_or(DEFAULT_VECTORS, |free| free / 10 * 9 / x[0].bytes());
        for dues in self.shared.dues.chunks((free as usize).max(1)) {
            self.lane.upload(&start, &x[0], 0)?;
            self.pass(&x, dues)?;
        }
        Ok(())
    }

    /// Takes the steps that the times of `dues` need, and stores their results.
    fn pass(&self, x: &[Buffer<T>; 2], dues: &[Due]) -> Result<()> {
        let targets: Result<Vec<_>> = dues.iter().map(|due| self.target(x, due)).collect();
        let mut targets = targets?;
        let threads = threads(x[0].len());
        let out = self.lane.alloc("changes of vectors", threads / Kernel::GROUP as usize * 4 * self.width)?;
        let params = column_change::Params { step: 0, elements: x[0].len() as u32, threads: threads as u32 };
        let args = column_change::Args { x: x[1].arg(), y: x[0].arg(), out: out.arg() };
        let kernel = of_width(self.width, &COLUMN_CHANGE, &CHANGE_COLUMNS);
        let change = self.lane.bind(kernel, T::PRECISION, threads, params, args)?;
        let (mut k, mut least) = (0, vec![f64::INFINITY; self.width]);
        loop {
            let open = targets.iter().filter(|target| target.end.is_none());
            let Some(last) = open.map(|target| target.due.right).max() else { break };
            let end = (k + STEPS).min(last + 1);
            self.advance(&mut targets, k..end)?;
            k = end;
            let complete = |target: &&mut Target<'_, T>| target.end.is_none() && target.due.right < k;
            for target in targets.iter_mut().filter(complete) {
                target.end = Some((target.due.right, vec![0.0; self.width]));
            }
            if k <= last && self.shared.derivatives.is_none() {
                self.lane.launch(&[&change], 0)?;
                let mut parts = vec![T::ZERO; out.len()];
                self.lane.download(&out, 0, &mut parts)?;
                self.terminate(&mut targets, k, &Change::of_columns(&parts, self.width), &mut least)?;
            }
        }
        targets.iter().try_for_each(|target| self.finish(target))
    }

    /// Prepares the launches that add terms to the sum for a time.
    fn target<'d>(&self, x: &[Buffer<T>; 2], due: &'d Due) -> Result<Target<'d, T>> {
        let (lane, width, rows) = (self.lane, self.width, x[0].len());
        let scalars = lane.alloc("weights", 1 + STEPS as usize)?;
        let acc = lane.alloc("a sum of vectors", rows)?;
        let several = if self.shared.lead() > 0 { &STEP_DERIVATIVES } else { &STEP_COLUMNS };
        let pointers = |rows: usize| if lane.device().host { width - 1 } else { rows * width + 1 };
        let step = |chunk: &Chunk<T>, source: usize| {
            let ([slices, columns, values], words) = chunk.hyb().expect("the matrix was built in HYB");
            let params = step::Params {
                // The pointers of derivatives, or the positions of their slices, end the words.
                derivatives: words.wrapping_sub(pointers(chunk.rows)) as u32,
                rows: (chunk.rows * width) as u32,
                first_row: (chunk.first * width) as u32,
                ..step::Params::default()
            };
            let args = step::Args {
                slices,
                columns,
                values,
                exit: self.matrix.exit.arg(),
                scalars: scalars.arg(),
                x: x[source].arg(),
                y: x[1 - source].arg(),
                acc: acc.arg(),
            };
            lane.bind(of_width(width, &STEP, several), T::PRECISION, chunk.rows * width, params, args)
        };
        let steps =
            |source| self.matrix.chunks.iter().map(|chunk| step(chunk, source)).collect::<Result<_>>();
        let add = |source: usize| {
            let params = accumulate::Params { rows: rows as u32, ..accumulate::Params::default() };
            let (scalars, acc) = (scalars.arg(), acc.arg());
            let args = accumulate::Args { scalars, x: x[source].arg(), y: x[1 - source].arg(), acc };
            lane.bind(&ACCUMULATE, T::PRECISION, rows, params, args)
        };
        let (steps, adds) = ([steps(0)?, steps(1)?], [add(0)?, add(1)?]);
        Ok(Target { due, steps, adds, scalars, acc, given: [0.0; 2], end: None })
    }

    /// Takes the steps `all` from x\[0\], and adds their terms to the sums.
    fn advance(&self, targets: &mut [Target<'_, T>], all: Range<u64>) -> Result<()> {
        let mut open = Vec::new();
        for (t, target) in targets.iter_mut().enumerate() {
            let done = target.end.is_some();
            let weights: Vec<f64> =
                if done { Vec::new() } else { all.clone().map(|k| target.due.weights.of(k)).collect() };
            let adds = weights.iter().any(|w| *w != 0.0);
            target.open(if adds { weights.len() } else { 0 });
            if adds {
                open.push(t);
            }
            add_rates(&mut target.given, weights.iter().copied());
            let scalars =
                [self.shared.statistics.inverse_alpha].into_iter().chain(weights.into_iter().map(T::of));
            self.lane.upload(&scalars.collect::<Vec<T>>(), &target.scalars, 0)?;
        }
        // The launches of steps add the terms of the first open sum; `adds` serve the other sums.
        let lead = open.first().copied().unwrap_or(0);
        let cycle = |source: usize| {
            let others = open.iter().filter(|t| **t != lead).map(|t| &targets[*t].adds[source]);
            targets[lead].steps[source].iter().chain(others).collect()
        };
        let program = Program { cycle: vec![cycle(0), cycle(1)] };
        let mut before = 0;
        self.lane.run(&program, 0, all.end - all.start, &mut |done| {
            let more = done - std::mem::replace(&mut before, done);
            (self.report)(more * self.columns.len() as u64)
        })
    }

    /// Completes the sums whose later iterates may be replaced by x_k.
    ///
    /// No later step changes a vector by more than the last one and its rounding. Backward, later
    /// iterates also stay between the smallest and the largest element. `least` has the smallest
    /// change of each column so far.
    fn terminate(
        &self,
        targets: &mut [Target<'_, T>],
        k: u64,
        changes: &[Change],
        least: &mut [f64],
    ) -> Result<()> {
        let (request, noise) = (&self.shared.request, self.shared.statistics.step);
        // The factor covers the rounding of sums and differences.
        let moved = |change: &Change| 1.01 * if request.backward { change.max } else { change.l1 };
        // Exact changes never grow. Small changes that grow are rounding, and more steps repeat it.
        let stuck = |(change, least): (&Change, &f64)| {
            moved(change) <= noise || (moved(change) <= 64.0 * noise && moved(change) >= *least)
        };
        let stuck: Vec<bool> = changes.iter().zip(&*least).map(stuck).collect();
        least.iter_mut().zip(changes).for_each(|(least, change)| *least = least.min(moved(change)));
        for target in targets.iter_mut().filter(|target| target.end.is_none()) {
            let excess = expected_excess(target.due.lambda, k);
            let error = |change: &Change| {
                let error = (moved(change) + noise) * excess;
                if request.backward { error.min(1.01 * change.spread) } else { error }
            };
            let errors: Vec<f64> = changes.iter().map(error).collect();
            let columns = self.columns.iter().map(|c| &self.shared.columns[*c]);
            let met = |(column, error): (&Column, &f64)| *error <= 0.25 * request.epsilon * column.norm;
            if columns.zip(&errors).zip(&stuck).all(|(column, stuck)| *stuck || met(column)) {
                let rest = target.due.whole - (target.given[0] + target.given[1]);
                self.lane.upload(&[T::of(rest.max(0.0))], &target.scalars, 1)?;
                target.open(1);
                self.lane.launch(&[&target.adds[0]], 0)?;
                target.end = Some((k, errors));
            }
        }
        Ok(())
    }

    /// Copies the sum for a time to the results, with the bounds of its error.
    fn finish(&self, target: &Target<'_, T>) -> Result<()> {
        let Shared { statistics, request, columns, n, .. } = self.shared;
        let (due, width, all) = (target.due, self.width, columns.len());
        let (k, stops) = target.end.as_ref().expect("a pass ends when all sums are complete");
        let mut sums = vec![T::ZERO; target.acc.len()];
        self.lane.download(&target.acc, 0, &mut sums)?;
        let [of_value, of_bound] =
            if request.integral { [statistics.mean_holding(), due.time] } else { [1.0; 2] };
        let error = due.error(statistics, request.rates, *k);
        let mut result = lock(&self.shared.results[due.index]);
        // Of several groups with derivatives, the first one stores the distribution.
        let repeated = usize::from(self.shared.lead() > 0 && self.columns[1] > 1);
        let stored = || self.columns.iter().enumerate().skip(repeated);
        for ((_, &c), stop) in stored().zip(&stops[repeated..]) {
            let column = &columns[c];
            // Scaling rounds subnormal numbers.
            let tiny = if column.norm > 0.0 { *n as f64 * f64::from_bits(2) } else { 0.0 };
            // A vector of zeros stays 0.
            let stop = if column.norm > 0.0 { *stop } else { 0.0 };
            result.bounds[c] = column.unscaled(1.001 * of_bound * (column.norm * error + stop)) + tiny;
        }
        let rows = result.values.par_chunks_mut(ROWS * all).zip(sums.par_chunks(ROWS * width));
        rows.for_each(|(values, sums)| {
            for (values, sums) in values.chunks_exact_mut(all).zip(sums.chunks_exact(width)) {
                for (place, &c) in stored() {
                    let sum = sums[place];
                    values[c] = columns[c].unscaled(sum.wide() * of_value);
                }
            }
        });
        Ok(())
    }
}

/// Returns the variant of a kernel for 1, 2, 4 or 8 columns.
fn of_width(width: usize, one: &'static Kernel, several: &'static [Kernel; 3]) -> &'static Kernel {
    if width == 1 { one } else { &several[width.ilog2() as usize - 1] }
}
