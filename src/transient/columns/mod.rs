//! The action of e^{Qt} on several vectors, on the lanes of a machine.
//!
//! *Forward*, a row vector x becomes x e^{Qt}, as a distribution does, and norms are l1 norms.
//! *Backward*, a column vector f becomes e^{Qt} f, the expectation of f at t from every state.
//! Norms are then maximum norms. Let P = I + Q/α, and let x_k be x P^k or P^k f. Each result is
//! Σ w_k x_k with Poisson weights w_k. Neither norm grows in a step, so the bounds of
//! uniformization hold for vectors with entries of any sign. `docs/certificate.md` has the proofs.
//!
//! Every lane stores the whole matrix in HYB format, so lanes exchange nothing, and ranks only
//! gather their results. A lane computes its share of the vectors in groups of up to 8. A step
//! reads the matrix once for a group, and one run serves all requested times.

mod group;
pub(crate) mod kernels;

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use self::group::ColumnGroup;
use super::chain::scan::statistics;
use super::chain::statistics::{MatrixStatistics, scale_of};
use super::chain::transitions::Transitions;
use super::partition::most_elements;
use super::partition::subdomain::Region;
use super::rounding::{drift, step_rounding};
use super::step::matrix::MatrixSource;
use crate::kernel::Real;
use crate::lane::{Lane, expect_memory};
use crate::parallel::{at_once, lock, *};
use crate::ranks::Ranks;
use crate::sparse::{CsrMatrix, HybLayout, MatrixFormat};
use crate::util::memory::try_zeroed;
use crate::{Error, Invalid, Limit, Machine, Progress, Result};

/// Unit roundoff of f64, 2⁻⁵³.
pub(super) const U: f64 = 0.5 * f64::EPSILON;

/// Direction in which e^{Qt} acts: on row vectors or on column vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// x e^{Qt} for rows x, such as distributions at time 0; errors in the l1 norm.
    Forward,
    /// e^{Qt} f for columns f, such as values at time t; errors in the maximum norm.
    Backward,
}

/// Several vectors at one time, with bounds on their errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// Element (i, c) of state i and vector c, at index i k + c for k vectors.
    pub values: Vec<f64>,
    /// Bound on the error of each vector, in the norm of the [`Direction`].
    pub bounds: Vec<f64>,
}

/// A block of vectors on which e^{Qt} acts, and the requested times.
#[derive(Clone, Copy)]
pub(crate) struct ActionRequest<'a> {
    pub(crate) transitions: &'a dyn Transitions,
    pub(crate) backward: bool,
    /// States whose values do not change in a backward run; may be empty.
    pub(crate) fixed: &'a [bool],
    /// True for the integrals from time 0 instead of the vectors at each time.
    pub(crate) integral: bool,
    /// True if times count steps.
    pub(crate) discrete: bool,
    /// Bound of the relative error of each rate and time.
    pub(crate) rates: f64,
    pub(crate) block: &'a [f64],
    pub(crate) times: &'a [f64],
    pub(crate) epsilon: f64,
}

/// Transposed chain for steps P f: returns outgoing transitions as the incoming ones.
pub(super) struct ByRows<'a>(pub(super) ActionRequest<'a>);

impl Transitions for ByRows<'_> {
    fn states(&self) -> usize {
        self.0.transitions.states()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.outgoing(state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        if self.0.fixed.get(state) != Some(&true) {
            self.0.transitions.outgoing(state, row);
        }
    }

    fn is_discrete(&self) -> bool {
        self.0.discrete
    }
}

/// Weights of the iterates x_k in the sum for a time, or for the integral up to a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Weighting {
    /// Weight of each iterate before `first`.
    pub(super) before: f64,
    /// Index k of the iterate with the first of `terms`. Iterates after these have weight 0.
    pub(super) first: u64,
    pub(super) terms: Vec<f64>,
}

impl Weighting {
    /// Returns the weight of iterate k.
    pub(super) fn of(&self, k: u64) -> f64 {
        k.checked_sub(self.first).map_or(self.before, |i| self.terms.get(i as usize).copied().unwrap_or(0.0))
    }
}

/// A requested time with its Poisson window.
#[derive(Debug, Clone, Default)]
pub(super) struct WeightedTime {
    /// Index of the result.
    index: usize,
    time: f64,
    lambda: f64,
    /// Last term of the sum.
    right: u64,
    weights: Weighting,
    /// Sum of all weights: 1, or λ for an integral.
    whole: f64,
    /// Error of leaving out the terms after the last one, relative to `whole`.
    truncation: f64,
    /// Error of the weights.
    rounding: f64,
}

impl WeightedTime {
    /// Makes a sum whose error the caller bounds.
    ///
    /// `whole` is the sum of all weights, if it may end early.
    pub(super) fn of_weights(index: usize, lambda: f64, right: u64, whole: f64, weights: Weighting) -> Self {
        Self { index, lambda, right, whole, weights, ..Self::default() }
    }

    fn new<T: Real>(
        statistics: &MatrixStatistics<T>,
        request: &ActionRequest<'_>,
        index: usize,
        lambda: f64,
    ) -> Self {
        let window = statistics.window(lambda, (0.5 * request.epsilon).clamp(1e-290, 0.5));
        let (weights, right) = (window.weights(), window.right);
        let mut due = Self {
            index,
            time: request.times[index],
            lambda,
            right,
            whole: 1.0,
            truncation: weights.truncation,
            rounding: weights.rounding,
            ..Self::default()
        };
        due.weights.first = weights.left;
        if request.integral {
            due.weights.terms = weights.tails().split_off(1);
            (due.weights.before, due.whole) = (1.0, lambda);
            // After the last term R the tails P(N > k) decrease by a factor λ/(R + 2) or faster.
            // The first tail weight has an excess of 1e-11 P(N > R).
            let next = right as f64 + 2.0;
            let room = (next - lambda).max(0.0);
            due.truncation *= 1.0 + next / room / lambda + 1e-11 * due.weights.terms.len() as f64 / lambda;
        } else {
            due.weights.terms = weights.values;
        }
        due
    }

    /// Bounds the error after k steps for a vector of norm 1, except that of early termination.
    fn error<T: Real>(&self, statistics: &MatrixStatistics<T>, request: &ActionRequest<'_>, k: u64) -> f64 {
        let terms = if self.weights.before > 0.0 { k + 1 } else { self.weights.terms.len() as u64 };
        // `own` has the errors of the weights, computed and stored, of scaling and of their sum.
        let own =
            request.error_of_rates(self.lambda, k as f64) + self.rounding + statistics.vector + 16.0 * U;
        1.001 * (self.truncation + statistics.rounding(self.lambda, terms, k) + own)
    }
}

/// Norm of a column, and two powers of two that bring it into [½, 1).
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnScale {
    pub(super) norm: f64,
    scales: [f64; 2],
}

impl ColumnScale {
    pub(super) fn new(values: impl Iterator<Item = f64> + Clone, backward: bool) -> Self {
        let largest = values.clone().fold(0.0f64, |most, v| v.abs().max(most));
        let first = scale_of(largest);
        let norm = if backward { largest * first } else { values.map(|v| (v * first).abs()).sum() };
        let second = if norm > 0.0 { 0.5 * scale_of(norm) } else { 1.0 };
        Self { norm: norm * second, scales: [first, second] }
    }

    pub(super) fn scaled(&self, value: f64) -> f64 {
        value * self.scales[0] * self.scales[1]
    }

    pub(super) fn unscaled(&self, value: f64) -> f64 {
        value / self.scales[1] / self.scales[0]
    }
}

/// Receives a number of further matrix–vector products.
type ReportProducts<'a> = dyn Fn(u64) -> Result<()> + Sync + 'a;

/// Interleaves derivatives: row `width` j + c is row j of derivative c ≥ 1.
fn side_by_side(derivatives: &[CsrMatrix], width: usize) -> CsrMatrix {
    let n = derivatives[0].rows();
    CsrMatrix::from_rows(n * width, n, |element, row| {
        if let Some(entries) = (element % width).checked_sub(1).and_then(|c| derivatives.get(c)) {
            entries.append(element / width, row);
        }
    })
}

/// Early end of a sum: iterate k replaces all later ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct EarlyEnd {
    /// Number of steps k.
    pub(super) k: u64,
    /// Bound of the expected number of omitted steps, E (N − k)⁺.
    pub(super) excess: f64,
    /// Bounds of the l1 norms of the last changes of x and of the derivative.
    pub(super) changes: [f64; 2],
}

/// Vectors of a block after the first one, x, as derivatives of x.
pub(super) struct DerivativeColumns<'a> {
    /// Transposed derivatives of the scaled generator, one for each vector.
    pub(super) entries: &'a [CsrMatrix],
    /// Bounds the error of a sum and of a vector, both by index, with or without an early end.
    pub(super) bound: &'a (dyn Fn(usize, usize, Option<&EarlyEnd>) -> f64 + Sync),
    /// Largest number of steps of a sum.
    pub(super) steps: AtomicU64,
}

/// Data of a run that all lanes share.
struct RunData<'a, T> {
    request: ActionRequest<'a>,
    n: usize,
    statistics: MatrixStatistics<T>,
    dues: Vec<WeightedTime>,
    columns: Vec<ColumnScale>,
    derivatives: Option<&'a DerivativeColumns<'a>>,
    /// Results, one for each requested time.
    results: Vec<Mutex<Action>>,
}

impl<'a> ActionRequest<'a> {
    pub(crate) fn new(
        transitions: &'a dyn Transitions,
        block: &'a [f64],
        times: &'a [f64],
        epsilon: f64,
    ) -> Self {
        let discrete = transitions.is_discrete();
        let (backward, fixed, integral, rates) = (false, &[][..], false, 0.0);
        Self { transitions, backward, fixed, integral, discrete, rates, block, times, epsilon }
    }

    /// Computes all results. Fails like [`exponential_action`](super::exponential_action).
    pub(crate) fn solve(self, machine: &Machine, observer: &mut dyn Progress) -> Result<Vec<Action>> {
        let sound = self.check().and_then(|()| machine.expect_floating("vectors times matrix exponentials"));
        machine.ranks.all_ok(sound)?;
        by_floating!(machine.precision, solve(self, machine, observer))
    }

    /// Bounds the relative change of a sum by errors of the rates, in a number of steps.
    fn error_of_rates(&self, lambda: f64, steps: f64) -> f64 {
        // Each step changes by at most twice the relative error of the rates.
        let drift = || drift(lambda, f64::INFINITY);
        if self.rates > 0.0 { 1.001 * (2.0 * self.rates * lambda.min(steps) + drift()) } else { 0.0 }
    }

    pub(super) fn check(&self) -> Result<()> {
        let (n, len) = (self.transitions.states(), self.block.len());
        Invalid::Shape.unless(n > 0 && len > 0 && len % n == 0, || {
            format!("a block of {len} numbers for {n} states: expected the shape [states, vectors]")
        })?;
        Invalid::Argument("epsilon").unless(self.epsilon > 0.0, || {
            format!("`epsilon` {} is out of range: expected a number above 0", self.epsilon)
        })?;
        if let Some(at) = self.block.iter().position(|v| !v.is_finite()) {
            let (k, value) = (len / n, self.block[at]);
            return Invalid::Number("block").fail(format!(
                "element ({}, {}) is {value}: expected a finite number",
                at / k,
                at % k
            ));
        }
        let valid = |t: &f64| *t >= 0.0 && t.is_finite() && (!self.discrete || t.fract() == 0.0);
        match self.times.iter().find(|t| !valid(t)) {
            Some(t) if self.discrete => {
                Invalid::Time.fail(format!("time {t} is not supported: expected a finite number of steps"))
            }
            Some(t) => Invalid::Time.fail(format!(
                "time {t} is not supported: expected a finite number ≥ 0; e^(Qt) of a negative time may \
                 grow without a limit"
            )),
            None => Ok(()),
        }
    }
}

/// Returns the statistics of the matrix of a step in the requested direction.
pub(super) fn statistics_of<T: Real>(
    request: &ActionRequest<'_>,
    by_rows: &ByRows<'_>,
) -> Result<MatrixStatistics<T>> {
    if !request.backward {
        return statistics(request.transitions);
    }
    Ok(of_rows(statistics(by_rows)?))
}

/// Sets the rounding bound of a step P f.
///
/// The lengths must be the numbers of transitions out of each state.
pub(super) fn of_rows<T: Real>(mut found: MatrixStatistics<T>) -> MatrixStatistics<T> {
    let longest = found.lengths.iter().copied().max().unwrap_or(0);
    // |error of row i| ≤ max |f| g_i, with g_i as for columns but with the length of row i itself.
    // |r̂ − r| ≤ u r in single precision, and |Ê − E| ≤ 3 u E.
    let largest = T::PRECISION.unit_roundoff() * f64::from(longest + 13);
    let given = if found.discrete { super::chain::scan::PROBABILITIES } else { 0.0 };
    let alpha = 1.0 / found.inverse_alpha.wide().max(f64::MIN_POSITIVE);
    found.step = step_rounding(largest * alpha, found.inverse_alpha, found.nnz, found.rows.len()) + given;
    found
}

fn solve<T: Real>(
    request: ActionRequest<'_>,
    machine: &Machine,
    observer: &mut dyn Progress,
) -> Result<Vec<Action>> {
    let by_rows = ByRows(request);
    let rows: &dyn Transitions = if request.backward { &by_rows } else { request.transitions };
    machine.ranks.all_ok(prepared::<T>(request, &by_rows))?.run(rows, machine, observer)
}

/// Checks the memory, and scans the chain and the block.
fn prepared<'a, T: Real>(request: ActionRequest<'a>, by_rows: &ByRows<'_>) -> Result<RunData<'a, T>> {
    let (n, k) = (request.transitions.states(), request.block.len() / request.transitions.states());
    expect_memory(8 * (request.block.len() * request.times.len()) as u64, || {
        format!("{k} vectors of {n} states at {} times", request.times.len())
    })?;
    let statistics = statistics_of::<T>(&request, by_rows)?;
    let column =
        |c: usize| ColumnScale::new(request.block.iter().skip(c).step_by(k).copied(), request.backward);
    let columns: Vec<ColumnScale> = (0..k).into_par_iter().map(column).collect();
    let mut dues = Vec::new();
    let mut results = Vec::new();
    for (index, &time) in request.times.iter().enumerate() {
        let mut result = Action { values: Vec::new(), bounds: vec![0.0; k] };
        if time > 0.0 && statistics.alpha > 0.0 {
            dues.push(WeightedTime::new(&statistics, &request, index, statistics.lambda(time)?));
            result.values = try_zeroed(n * k, || format!("{k} vectors of {n} states"))?;
        } else {
            // Without transitions the vectors stay as they are.
            let factor = if request.integral { time } else { 1.0 };
            result.values = request.block.iter().map(|v| v * factor).collect();
            if request.integral {
                result.bounds = columns.iter().map(|c| 1.01 * U * time * c.unscaled(c.norm)).collect();
            }
        }
        results.push(Mutex::new(result));
    }
    Ok(RunData { request, n, statistics, dues, columns, derivatives: None, results })
}

/// Computes weighted sums of the iterates of a block \[x, y_1, y_2, …\], y_c a derivative of x.
///
/// A step computes xP, and y_c P + x D_c / α with the derivative D_c of the scaled generator.
/// Returns a result for each index of the dues. Sums may end early.
pub(super) fn derivatives(
    request: ActionRequest<'_>,
    statistics: MatrixStatistics<f64>,
    derivatives: &DerivativeColumns<'_>,
    dues: Vec<WeightedTime>,
    machine: &Machine,
    observer: &mut dyn Progress,
) -> Result<Vec<Action>> {
    let (n, len) = (request.transitions.states(), request.block.len());
    let columns = vec![ColumnScale { norm: 1.0, scales: [1.0; 2] }; len / n];
    let result = |_: &WeightedTime| {
        let values = try_zeroed(len, || format!("derivatives of {n} states"))?;
        Ok(Mutex::new(Action { values, bounds: vec![0.0; columns.len()] }))
    };
    let (results, derivatives) = (dues.iter().map(result).collect::<Result<_>>()?, Some(derivatives));
    let shared = RunData { request, n, statistics, dues, columns, derivatives, results };
    shared.run(request.transitions, machine, observer)
}

impl<T: Real> RunData<'_, T> {
    /// Returns 1 if the first vector is in every group, since the rest are its derivatives; else 0.
    fn lead(&self) -> usize {
        usize::from(self.derivatives.is_some_and(|derivatives| !derivatives.entries.is_empty()))
    }

    /// Shares the vectors among the lanes of all ranks, and computes all results on every rank.
    fn run(
        mut self,
        rows: &dyn Transitions,
        machine: &Machine,
        observer: &mut dyn Progress,
    ) -> Result<Vec<Action>> {
        self.dues.sort_by(|a, b| a.lambda.total_cmp(&b.lambda));
        let (lead, ranks) = (self.lead(), machine.ranks);
        let count = self.columns.len() - lead;
        let lanes: Vec<usize> = ranks.all_gather(&[machine.lanes.len()]).concat();
        let first = |rank: usize| lanes[..rank].iter().sum::<usize>();
        let cut = |lane: usize| lead + count * lane / first(ranks.size());
        let own = first(ranks.rank())..first(ranks.rank() + 1);
        let shares = own.map(|lane| cut(lane)..cut(lane + 1));
        let all = self.dues.iter().map(|due| due.right + 1).max().unwrap_or(0) * self.columns.len() as u64;
        let progress = Mutex::new((observer, 0));
        let report = |more: u64| {
            let (observer, done) = &mut *lock(&progress);
            *done += more;
            observer.progress(*done, all.max(*done))
        };
        if !self.dues.is_empty() {
            let work = |(columns, lane): (Range<usize>, &Lane)| self.on_lane(lane, rows, columns, &report);
            let done = at_once(shares.zip(&machine.lanes).filter(|(columns, _)| !columns.is_empty()), work);
            ranks.all_ok(done.into_iter().collect::<Result<()>>())?;
        }
        let taken = |result: Mutex<Action>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut results: Vec<Action> = self.results.into_iter().map(taken).collect();
        let shares: Vec<_> = (0..ranks.size()).map(|r| cut(first(r))..cut(first(r + 1))).collect();
        results.iter_mut().for_each(|result| gather(result, ranks, &shares));
        Ok(results)
    }

    /// Computes a range of columns on a lane.
    fn on_lane(
        &self,
        lane: &Lane,
        rows: &dyn Transitions,
        columns: Range<usize>,
        report: &ReportProducts<'_>,
    ) -> Result<()> {
        let (n, real, statistics) = (self.n, T::PRECISION.bytes(), &self.statistics);
        let region = Region::whole(n, &statistics.lengths);
        let layout = HybLayout::new(&statistics.lengths, real);
        let regions = std::slice::from_ref(&region);
        let source = || MatrixSource::new(lane, rows, statistics, &layout, &region, regions, 1);
        let (lead, mut matrix) = (self.lead(), None);
        let most = most_elements(lane, real).min(u32::MAX as usize) / n;
        let mut first = columns.start;
        while first < columns.end {
            let count = columns.end - first + lead;
            // Seven columns take less time in a group of eight than in three groups.
            let more = lead > 0 || count == 3 || count == 7;
            let widths = if lead > 0 && lane.device().host { &[2, 3, 4, 5, 6, 8][..] } else { &[1, 2, 4, 8] };
            let mut widths = widths.iter().copied().filter(|w| *w > lead && *w <= most);
            let above = if more { widths.clone().find(|w| *w >= count) } else { None };
            let width = above.or_else(|| widths.rfind(|w| *w <= count));
            let Some(width) = width else {
                return Err(Error::memory(
                    &lane.device().name,
                    "a vector",
                    n as u64 * real,
                    Limit::Allocation(format!(
                        "a kernel binds at most {} numbers",
                        most_elements(lane, real)
                    )),
                ));
            };
            let end = columns.end.min(first + width - lead);
            let entries = self
                .derivatives
                .filter(|_| lead > 0)
                .map(|all| side_by_side(&all.entries[first - 1..end - 1], width));
            if matrix.is_none() || lead > 0 {
                // The former matrix is freed first.
                drop(matrix.take());
                matrix = Some(source().derivatives(entries.as_ref()).build(MatrixFormat::Hyb)?);
            }
            let matrix = matrix.as_ref().expect("it was built");
            let columns = (0..lead).chain(first..end).collect();
            ColumnGroup { shared: self, lane, matrix, columns, width, report }.run()?;
            first = end;
        }
        Ok(())
    }
}

/// Completes a result by the columns of other ranks; `shares` has the columns of each rank.
pub(super) fn gather(Action { values, bounds }: &mut Action, ranks: Ranks, shares: &[Range<usize>]) {
    /// Maximum number of elements per message: MPI counts their bytes by an `int`.
    const PIECE: usize = 1 << 24;
    if !ranks.is_distributed() {
        return;
    }
    let (own, all) = (shares[ranks.rank()].clone(), bounds.len());
    let exchange = |rows: &mut [f64]| {
        let mine: Vec<f64> = rows.chunks_exact(all).flat_map(|row| &row[own.clone()]).copied().collect();
        for (share, theirs) in
            shares.iter().zip(ranks.all_gather(&mine)).filter(|(share, _)| !share.is_empty())
        {
            for (row, theirs) in rows.chunks_exact_mut(all).zip(theirs.chunks_exact(share.len())) {
                row[share.clone()].copy_from_slice(theirs);
            }
        }
    };
    [&mut bounds[..]].into_iter().chain(values.chunks_mut((PIECE / all).max(1) * all)).for_each(exchange);
}
