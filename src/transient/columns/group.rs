//! A run of up to 8 vectors on one lane.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::kernels::{CHANGE_COLUMNS, COLUMN_CHANGE, ColumnChange, NORM_COLUMNS, column_change, threads};
use super::{ColumnScale, DerivativeColumns, EarlyEnd, ReportProducts, RunData, WeightedTime, Weighting};
use crate::kernel::{Kernel, Real};
use crate::lane::{Buffer, Lane, Launch, Program};
use crate::parallel::*;
use crate::transient::chain::transitions::add_rates;
use crate::transient::chebyshev::{CertifiedSeries, ExpansionState, RecurrenceNorms, saves};
use crate::transient::context::DEFAULT_VECTORS;
use crate::transient::numerics::poisson::expected_excess;
use crate::transient::step::chunk::Chunk;
use crate::transient::step::kernels::{
    RECURRENCE_COLUMNS, STEP, STEP_COLUMNS, STEP_DERIVATIVES, STEP_RECURRENCE, step,
};
use crate::transient::step::matrix::PartMatrix;
use crate::transient::step::vector_kernels::{ACCUMULATE, accumulate};
use crate::{Error, Result};

/// Number of steps between two convergence checks; even, so that the newest iterate is in x\[0\].
const STEPS: u64 = 64;
/// Maximum numbers of workgroups that measure a change, and the norms of each step.
const GROUPS: [usize; 2] = [1024, 256];
/// Minimum ratio of αt to the products of a Chebyshev expansion for which one is tried.
///
/// Uniformization must first have taken as many steps as the expansion needs. An expansion that is
/// abandoned at its end costs about an eighth of the time; most end after some tens of steps.
const PAYS: f64 = 12.0;
/// Number of rows that a thread copies at once.
const ROWS: usize = 4096;

/// Columns of the block that share a run, stored side by side and padded to `width` columns.
pub(super) struct ColumnGroup<'a, T> {
    pub(super) shared: &'a RunData<'a, T>,
    pub(super) lane: &'a Lane,
    pub(super) matrix: &'a PartMatrix<T>,
    /// Columns of the block; the first one is the distribution if the others are derivatives.
    pub(super) columns: Vec<usize>,
    pub(super) width: usize,
    pub(super) report: &'a ReportProducts<'a>,
}

/// Incomplete sum of weighted iterates for a requested time.
struct ColumnSum<T> {
    due: WeightedTime,
    /// 1/α, and the weights of the current steps.
    scalars: Buffer<T>,
    acc: Buffer<T>,
    /// Launches that read x\[0\] or x\[1\]: steps that add their terms, and additions alone.
    steps: [Vec<Launch>; 2],
    adds: [Launch; 2],
    /// Compensated sum of the weights so far.
    given: [f64; 2],
    /// Error relative to the norm, and further error in each column, if the sum is complete.
    end: Option<(f64, Vec<f64>)>,
}

impl<T> ColumnSum<T> {
    /// Sets the number of steps that add terms.
    fn open(&mut self, steps: usize) {
        let launches = self.steps.iter_mut().flatten().chain(&mut self.adds);
        launches.for_each(|launch| launch.set("window_end", steps as u32));
    }
}

impl<T: Real> ColumnGroup<'_, T> {
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
        let x = self.vectors()?;
        let free = self.lane.free_bytes().map_or(DEFAULT_VECTORS, |free| free / 10 * 9 / x[0].bytes());
        for dues in self.shared.dues.chunks((free as usize).max(1)) {
            self.lane.upload(&start, &x[0], 0)?;
            self.pass(&x, &start, dues)?;
        }
        Ok(())
    }

    fn vectors(&self) -> Result<[Buffer<T>; 2]> {
        let vector = || self.lane.alloc("a block of vectors", self.shared.n * self.width);
        Ok([vector()?, vector()?])
    }

    /// Takes the steps that the times of `dues` need from x\[0\], and stores their results.
    fn pass(&self, x: &[Buffer<T>; 2], start: &[T], dues: &[WeightedTime]) -> Result<()> {
        let targets = dues.iter().map(|due| self.target([&x[0], &x[1]], due.clone(), false));
        let mut targets: Vec<_> = targets.collect::<Result<_>>()?;
        let out = self.lane.alloc("changes of vectors", self.measures(GROUPS[0]))?;
        let kernel = of_width(self.width, &COLUMN_CHANGE, &CHANGE_COLUMNS);
        let change = self.measure(kernel, GROUPS[0], [&x[1], &x[0]], &out)?;
        let (mut k, mut least) = (0, vec![f64::INFINITY; self.width]);
        let RunData { statistics, request, derivatives, .. } = self.shared;
        let mut expands = derivatives.is_none() && !request.integral && !statistics.discrete;
        loop {
            let open = targets.iter().filter(|target| target.end.is_none());
            let Some(last) = open.map(|target| target.due.right).max() else { break };
            let end = (k + STEPS).min(last + 1);
            self.advance(&mut targets, k..end, None)?;
            k = end;
            let complete = |target: &&mut ColumnSum<T>| target.end.is_none() && target.due.right < k;
            for target in targets.iter_mut().filter(complete) {
                let right = target.due.right;
                target.end = Some(match derivatives {
                    Some(by) => {
                        by.steps.fetch_max(right, Relaxed);
                        let bound = |&c| (by.bound)(target.due.index, c, None);
                        (0.0, self.columns.iter().map(bound).collect())
                    }
                    None => (target.due.error(statistics, request, right), vec![0.0; self.width]),
                });
            }
            if k <= last {
                self.lane.launch(&[&change], 0)?;
                let mut parts = vec![T::ZERO; out.len()];
                self.lane.download(&out, 0, &mut parts)?;
                self.terminate(&mut targets, k, &ColumnChange::of_columns(&parts, self.width), &mut least)?;
                let open = targets.iter().filter(|target| target.end.is_none());
                let longest = open.map(|target| target.due.lambda).fold(0.0, f64::max);
                if expands && saves(longest, request.epsilon, PAYS.max(longest / k as f64)) {
                    expands = false;
                    match self.expand(start, &mut targets) {
                        // Without memory for two more vectors the run goes on.
                        Err(Error::OutOfMemory { .. }) => {}
                        other => other?,
                    }
                }
            }
        }
        targets.iter().try_for_each(|target| self.finish(target))
    }

    /// Prepares the launches that add terms to the sum for a time.
    fn target(&self, x: [&Buffer<T>; 2], due: WeightedTime, recurs: bool) -> Result<ColumnSum<T>> {
        let (lane, rows) = (self.lane, x[0].len());
        let scalars = lane.alloc("weights", 1 + STEPS as usize)?;
        let acc = lane.alloc("a sum of vectors", rows)?;
        let steps = |source: usize| self.steps([x[source], x[1 - source]], [&scalars, &acc], recurs);
        let add = |source: usize| {
            let params = accumulate::Params { rows: rows as u32, ..accumulate::Params::default() };
            let (scalars, acc) = (scalars.arg(), acc.arg());
            let args = accumulate::Args { scalars, x: x[source].arg(), y: x[1 - source].arg(), acc };
            lane.bind(&ACCUMULATE, T::PRECISION, rows, params, args)
        };
        let (steps, adds) = ([steps(0)?, steps(1)?], [add(0)?, add(1)?]);
        Ok(ColumnSum { due, steps, adds, scalars, acc, given: [0.0; 2], end: None })
    }

    /// Prepares the launches of a step, or of one of Chebyshev's recurrence, from x to y.
    fn steps(
        &self,
        [x, y]: [&Buffer<T>; 2],
        [scalars, acc]: [&Buffer<T>; 2],
        recurs: bool,
    ) -> Result<Vec<Launch>> {
        let (lane, width) = (self.lane, self.width);
        let kernel = match (recurs, self.shared.lead()) {
            (true, _) => of_width(width, &STEP_RECURRENCE, &RECURRENCE_COLUMNS),
            (false, 0) => of_width(width, &STEP, &STEP_COLUMNS),
            _ => of_width(width, &STEP, &STEP_DERIVATIVES),
        };
        let pointers = |rows: usize| if lane.device().host { width - 1 } else { rows * width + 1 };
        let step = |chunk: &Chunk<T>| {
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
                x: x.arg(),
                y: y.arg(),
                acc: acc.arg(),
            };
            lane.bind(kernel, T::PRECISION, chunk.rows * width, params, args)
        };
        self.matrix.chunks.iter().map(step).collect()
    }

    /// Returns how many values a measurement in at most `groups` workgroups stores per step.
    fn measures(&self, groups: usize) -> usize {
        threads(self.shared.n * self.width, groups) / Kernel::GROUP as usize * 4 * self.width
    }

    /// Prepares the measurement of the change from x to y.
    fn measure(
        &self,
        kernel: &'static Kernel,
        groups: usize,
        [x, y]: [&Buffer<T>; 2],
        out: &Buffer<T>,
    ) -> Result<Launch> {
        let threads = threads(x.len(), groups);
        let params = column_change::Params { step: 0, elements: x.len() as u32, threads: threads as u32 };
        let args = column_change::Args { x: x.arg(), y: y.arg(), out: out.arg() };
        self.lane.bind(kernel, T::PRECISION, threads, params, args)
    }

    /// Completes open sums by Chebyshev polynomials, unless norms of their vectors grow too far.
    fn expand(&self, start: &[T], targets: &mut [ColumnSum<T>]) -> Result<()> {
        let RunData { statistics, request, columns, .. } = self.shared;
        let x = self.vectors()?;
        self.lane.upload(start, &x[0], 0)?;
        let norms = self.columns.iter().map(|c| columns[*c].norm).filter(|norm| *norm > 0.0);
        let epsilon = request.epsilon * norms.fold(1.0, f64::min);
        let (mut sums, mut open) = (Vec::new(), Vec::new());
        let unmet = targets.iter().enumerate().filter(|(_, target)| target.end.is_none());
        for (place, ColumnSum { due, .. }) in unmet {
            let fixed =
                statistics.rounding(due.lambda, 0, 0) + request.error_of_rates(due.lambda, due.lambda);
            let certificate = CertifiedSeries::new(due.lambda, epsilon, fixed, statistics.step);
            let terms = certificate.series.coefficients.clone();
            let weights = Weighting { terms, ..Weighting::default() };
            let due = WeightedTime::of_weights(due.index, due.lambda, 0, 0.0, weights);
            // The recurrence begins with v_1, in x[1].
            sums.push(self.target([&x[1], &x[0]], due, true)?);
            open.push((place, certificate));
        }
        for sum in &mut sums {
            let scalars = [statistics.inverse_alpha, T::of(sum.due.weights.of(0))];
            self.lane.upload(&scalars, &sum.scalars, 0)?;
            sum.open(1);
            self.lane.launch(&[&sum.adds[1]], 0)?;
        }
        let first = self.steps([&x[0], &x[1]], [&sums[0].scalars, &sums[0].acc], false)?;
        self.lane.launch(&first.iter().collect::<Vec<_>>(), 0)?;
        let len = self.measures(GROUPS[1]);
        let out = self.lane.alloc("norms of vectors", STEPS as usize * len)?;
        let kernel = of_width(self.width, &NORM_COLUMNS[0], &NORM_COLUMNS);
        let norm = |from: usize| self.measure(kernel, GROUPS[1], [&x[from], &x[1 - from]], &out);
        let measures = [norm(1)?, norm(0)?];
        let (mut k, mut checked) = (1, 0);
        let mut norms = RecurrenceNorms(vec![1.0, 1.0 + statistics.step]);
        while let Some(next) = open.iter().map(|(_, certificate)| certificate.next).min() {
            // An even number of steps, so that the newest vector is in x[1] again.
            let end = k + next.saturating_sub(k).clamp(2, k.clamp(8, STEPS)).next_multiple_of(2);
            self.advance(&mut sums, k..end, Some(&measures))?;
            let mut parts = vec![T::ZERO; (end - k) as usize * len];
            self.lane.download(&out, 0, &mut parts)?;
            for parts in parts.chunks_exact(len) {
                let of = |change: &ColumnChange| if request.backward { change.max } else { change.l1 };
                let norm = ColumnChange::of_columns(parts, self.width).iter().map(of).fold(0.0, f64::max);
                // The factor covers the rounding of sums.
                norms.0.push(1.01 * norm);
            }
            k = end;
            for at in (0..open.len()).rev() {
                let met = match open[at].1.check(checked..k, &norms, statistics) {
                    ExpansionState::Open => continue,
                    ExpansionState::Hopeless => None,
                    ExpansionState::Met(bound) => Some(bound.total()),
                };
                let ((place, _), mut sum) = (open.remove(at), sums.remove(at));
                if let Some(error) = met {
                    sum.end = Some((0.0, vec![error; self.width]));
                    targets[place] = sum;
                }
            }
            checked = k;
        }
        Ok(())
    }

    /// Takes the steps `all` from the first vector of the targets, and adds their terms to the
    /// sums.
    ///
    /// After a step from vector i, 0 or 1, it launches `measures[i]`.
    fn advance(
        &self,
        targets: &mut [ColumnSum<T>],
        all: Range<u64>,
        measures: Option<&[Launch; 2]>,
    ) -> Result<()> {
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
            let measure = measures.map(|measures| &measures[source]);
            targets[lead].steps[source].iter().chain(others).chain(measure).collect()
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
        targets: &mut [ColumnSum<T>],
        k: u64,
        changes: &[ColumnChange],
        least: &mut [f64],
    ) -> Result<()> {
        let (request, noise) = (&self.shared.request, self.shared.statistics.step);
        // The factor covers the rounding of sums and differences.
        let moved = |change: &ColumnChange| 1.01 * if request.backward { change.max } else { change.l1 };
        // Exact changes never grow. Small changes that grow are rounding, and more steps repeat it.
        let stuck = |(change, least): (&ColumnChange, &f64)| {
            moved(change) <= noise || (moved(change) <= 64.0 * noise && moved(change) >= *least)
        };
        let stuck: Vec<bool> = changes.iter().zip(&*least).map(stuck).collect();
        least.iter_mut().zip(changes).for_each(|(least, change)| *least = least.min(moved(change)));
        for target in targets.iter_mut().filter(|target| target.end.is_none()) {
            let excess = expected_excess(target.due.lambda, k);
            let error = |change: &ColumnChange| {
                let error = (moved(change) + noise) * excess;
                if request.backward { error.min(1.01 * change.spread) } else { error }
            };
            let met = |(column, error): (&ColumnScale, &f64)| *error <= 0.25 * request.epsilon * column.norm;
            let end = match self.shared.derivatives {
                // The sum is soon complete.
                Some(_) if target.due.right <= k + STEPS => None,
                Some(by) => self.early_bounds(by, &target.due, k, changes).map(|bounds| (0.0, bounds)),
                None => {
                    let errors: Vec<f64> = changes.iter().map(error).collect();
                    let columns = self.columns.iter().map(|c| &self.shared.columns[*c]);
                    let ends = columns.zip(&errors).zip(&stuck).all(|(column, stuck)| *stuck || met(column));
                    ends.then(|| (target.due.error(&self.shared.statistics, request, k), errors))
                }
            };
            if end.is_some() {
                let rest = target.due.whole - (target.given[0] + target.given[1]);
                self.lane.upload(&[T::of(rest.max(0.0))], &target.scalars, 1)?;
                target.open(1);
                self.lane.launch(&[&target.adds[0]], 0)?;
                target.end = end;
            }
        }
        Ok(())
    }

    /// Bounds the errors of x and its derivatives in a sum whose later iterates x_k replaces.
    ///
    /// `None` if a bound within ε rises above it, or another bound by more than a quarter.
    fn early_bounds(
        &self,
        by: &DerivativeColumns<'_>,
        due: &WeightedTime,
        k: u64,
        changes: &[ColumnChange],
    ) -> Option<Vec<f64>> {
        let (excess, epsilon) = (expected_excess(due.lambda, k), self.shared.request.epsilon);
        let bound = |(&c, change): (&usize, &ColumnChange)| {
            // The factor covers the rounding of sums and differences.
            let end = EarlyEnd { k, excess, changes: [1.01 * changes[0].l1, 1.01 * change.l1] };
            let [whole, early] = [None, Some(&end)].map(|end| (by.bound)(due.index, c, end));
            (early <= if whole > epsilon { 1.25 * whole } else { epsilon }).then_some(early)
        };
        let bounds = self.columns.iter().zip(changes).map(bound).collect::<Option<_>>()?;
        by.steps.fetch_max(k, Relaxed);
        Some(bounds)
    }

    /// Copies the sum for a time to the results, with the bounds of its error.
    fn finish(&self, target: &ColumnSum<T>) -> Result<()> {
        let RunData { statistics, request, columns, n, .. } = self.shared;
        let (due, width, all) = (&target.due, self.width, columns.len());
        let (error, stops) = target.end.as_ref().expect("a pass ends when all sums are complete");
        let mut sums = vec![T::ZERO; target.acc.len()];
        self.lane.download(&target.acc, 0, &mut sums)?;
        let [of_value, of_bound] =
            if request.integral { [statistics.mean_holding(), due.time] } else { [1.0; 2] };
        let mut result = lock(&self.shared.results[due.index]);
        // Of several groups with derivatives, the first one stores the distribution.
        let repeated = usize::from(self.shared.lead() > 0 && self.columns[1] > 1);
        let stored = || self.columns.iter().enumerate().skip(repeated);
        for ((_, &c), stop) in stored().zip(&stops[repeated..]) {
            if self.shared.derivatives.is_some() {
                result.bounds[c] = *stop;
                continue;
            }
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

/// Returns the variant of a kernel for a number of columns.
fn of_width(width: usize, one: &'static Kernel, several: &'static [Kernel]) -> &'static Kernel {
    let is_wide = |kernel: &&Kernel| kernel.constants.contains(&("COLUMNS", width as f64));
    several.iter().find(is_wide).unwrap_or(one)
}
