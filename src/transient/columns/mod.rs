//! The action of e^{Qt} on several vectors, on the lanes of a machine.
//!
//! *Forward*, a row vector x becomes x e^{Qt}, as a distribution does, and norms are l1 norms.
//! *Backward*, a column vector f becomes e^{Qt} f, the expectation of f at t from every state.
//! Norms are then maximum norms. Let P = I + Q/α, and let x_k be x P^k or P^k f. Each result is
//! Σ w_k x_k with Poisson weights w_k. Neither norm grows in a step, so the bounds of
//! uniformization hold for vectors with entries of any sign. `docs/certificate.md` has the proofs.
//!
//! Every lane stores the whole matrix in HYB format, so lanes exchange nothing. A lane computes its
//! share of the vectors in groups of up to 8. A step reads the matrix once for a group, and one run
//! serves all requested times.

mod group;
pub(crate) mod kernels;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use self::group::Group;
use super::chain::scan::statistics;
use super::chain::statistics::{MatrixStatistics, scale_of};
use super::chain::transitions::Transitions;
use super::numerics::poisson::Weights;
use super::partition::most_elements;
use super::partition::subdomain::Region;
use super::rounding::{drift, step_rounding};
use super::step::matrix::Source;
use crate::kernel::{Precision, Real};
use crate::lane::{Lane, expect_memory};
use crate::parallel::{at_once, lock, *};
use crate::sparse::{Layout, MatrixFormat};
use crate::util::memory::try_zeroed;
use crate::{Error, Invalid, Limit, Machine, Progress, Result};

/// Unit roundoff of f64, 2⁻⁵³.
const U: f64 = 0.5 * f64::EPSILON;

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

/// Computes x e^{Qt} or e^{Qt} f for the vectors of a block, at each time.
///
/// `block` has the shape \[n, k\] by rows: element (i, c) of state i and vector c is at index
/// i k + c. Entries have any sign. ε is relative to the norm of each vector, and determines where
/// Poisson sums are truncated. Bounds may exceed it by rounding. Long runs end early if the vectors
/// no longer change.
///
/// # Errors
/// * [`Invalid`] for an empty chain or block, one of another shape, or numbers that are not finite.
/// * [`Invalid`] for a time that is negative, infinite, no whole number of steps in discrete time,
///   or takes more than 10¹³ steps.
/// * [`Invalid`] for an ε that is not above 0, and for a machine in fixed point.
/// * [`crate::Error::OutOfMemory`], errors of devices and of the observer.
pub fn exponential_action(
    machine: &Machine,
    transitions: &dyn Transitions,
    direction: Direction,
    block: &[f64],
    times: &[f64],
    epsilon: f64,
    observer: &mut dyn Progress,
) -> Result<Vec<Action>> {
    let backward = direction == Direction::Backward;
    let request = Request { backward, ..Request::new(transitions, block, times, epsilon) };
    request.solve(machine, observer)
}

/// A block of vectors on which e^{Qt} acts, and the requested times.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
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
struct ByRows<'a>(Request<'a>);

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

/// A requested time with its Poisson window.
#[derive(Debug)]
struct Due {
    /// Index among the requested times.
    index: usize,
    time: f64,
    lambda: f64,
    right: u64,
    weights: Weights,
    /// Weights of the terms from `weights.left` on; `before` is the weight of each earlier term.
    terms: Vec<f64>,
    before: f64,
    /// Sum of all weights: 1, or λ for an integral.
    whole: f64,
    /// Error of leaving out the terms after the last one, relative to `whole`.
    truncation: f64,
}

impl Due {
    fn new<T: Real>(
        statistics: &MatrixStatistics<T>,
        request: &Request<'_>,
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
            terms: Vec::new(),
            before: 0.0,
            whole: 1.0,
            truncation: weights.truncation,
            weights,
        };
        if request.integral {
            let tails = due.weights.tails();
            (due.terms, due.before, due.whole) = (tails[1..].to_vec(), 1.0, lambda);
            // After the last term R the tails P(N > k) decrease by a factor λ/(R + 2) or faster.
            // The first tail weight has an excess of 1e-11 P(N > R).
            let next = right as f64 + 2.0;
            let room = (next - lambda).max(0.0);
            due.truncation *= 1.0 + next / room / lambda + 1e-11 * due.terms.len() as f64 / lambda;
        } else {
            due.terms = std::mem::take(&mut due.weights.values);
        }
        due
    }

    /// Returns the weight of iterate k.
    fn weight(&self, k: u64) -> f64 {
        k.checked_sub(self.weights.left)
            .map_or(self.before, |i| self.terms.get(i as usize).copied().unwrap_or(0.0))
    }

    /// Bounds the error after k steps for a vector of norm 1, relative to `whole`.
    ///
    /// The error of early termination is not included.
    fn error<T: Real>(&self, statistics: &MatrixStatistics<T>, rates: f64, k: u64) -> f64 {
        let terms = if self.before > 0.0 { k + 1 } else { self.terms.len() as u64 };
        // `rates` bounds the errors of the rates: each step changes by at most twice their relative
        // error. `own` adds those of the weights, computed and stored, of scaling and of their sum.
        let steps = self.lambda.min(k as f64);
        let rates = if rates > 0.0 { 2.0 * rates * steps + drift(self.lambda, f64::INFINITY) } else { 0.0 };
        let own = rates + self.weights.rounding + statistics.vector + 16.0 * U;
        1.001 * (self.truncation + statistics.rounding(self.lambda, terms, k) + own)
    }
}

/// Norm of a column, and two powers of two that bring it into [½, 1).
#[derive(Debug, Clone, Copy)]
struct Column {
    norm: f64,
    scales: [f64; 2],
}

impl Column {
    fn new(values: impl Iterator<Item = f64> + Clone, backward: bool) -> Self {
        let largest = values.clone().fold(0.0f64, |most, v| v.abs().max(most));
        let first = scale_of(largest);
        let norm = if backward { largest * first } else { values.map(|v| (v * first).abs()).sum() };
        let second = if norm > 0.0 { 0.5 * scale_of(norm) } else { 1.0 };
        Self { norm: norm * second, scales: [first, second] }
    }

    fn scaled(&self, value: f64) -> f64 {
        value * self.scales[0] * self.scales[1]
    }

    fn unscaled(&self, value: f64) -> f64 {
        value / self.scales[1] / self.scales[0]
    }
}

/// Data of a run that all lanes share.
struct Shared<'a, T> {
    request: Request<'a>,
    n: usize,
    statistics: MatrixStatistics<T>,
    dues: Vec<Due>,
    columns: Vec<Column>,
    /// Results, one for each requested time.
    results: Vec<Mutex<Action>>,
    /// Reports a number of further matrix–vector products.
    report: &'a (dyn Fn(u64) -> Result<()> + Sync),
}

impl<'a> Request<'a> {
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

    /// Computes all results.
    ///
    /// # Errors
    /// As [`exponential_action`].
    pub(crate) fn solve(self, machine: &Machine, observer: &mut dyn Progress) -> Result<Vec<Action>> {
        self.check()?;
        machine.expect_floating("vectors times matrix exponentials")?;
        match machine.precision {
            Precision::F32 => solve::<f32>(self, machine, observer),
            _ => solve::<f64>(self, machine, observer),
        }
    }

    fn check(&self) -> Result<()> {
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
fn statistics_of<T: Real>(request: &Request<'_>, by_rows: &ByRows<'_>) -> Result<MatrixStatistics<T>> {
    if !request.backward {
        return statistics(request.transitions);
    }
    let mut found = statistics::<T>(by_rows)?;
    let longest = found.lengths.iter().copied().max().unwrap_or(0);
    // |error of row i| ≤ max |f| g_i, with g_i as for columns but with the length of row i itself.
    // |r̂ − r| ≤ u r in single precision, and |Ê − E| ≤ 3 u E.
    let largest = T::PRECISION.unit_roundoff() * f64::from(longest + 13);
    let given = if found.discrete { super::chain::scan::PROBABILITIES } else { 0.0 };
    let alpha = 1.0 / found.inverse_alpha.wide().max(f64::MIN_POSITIVE);
    found.step = step_rounding(largest * alpha, found.inverse_alpha, found.nnz, found.rows.len()) + given;
    Ok(found)
}

fn solve<T: Real>(
    request: Request<'_>,
    machine: &Machine,
    observer: &mut dyn Progress,
) -> Result<Vec<Action>> {
    let (n, k) = (request.transitions.states(), request.block.len() / request.transitions.states());
    expect_memory(8 * (request.block.len() * request.times.len()) as u64, || {
        format!("{k} vectors of {n} states at {} times", request.times.len())
    })?;
    let by_rows = ByRows(request);
    let rows: &dyn Transitions = if request.backward { &by_rows } else { request.transitions };
    let statistics = statistics_of::<T>(&request, &by_rows)?;
    let column = |c: usize| Column::new(request.block.iter().skip(c).step_by(k).copied(), request.backward);
    let columns: Vec<Column> = (0..k).into_par_iter().map(column).collect();
    let mut dues = Vec::new();
    let mut results = Vec::new();
    for (index, &time) in request.times.iter().enumerate() {
        let mut result = Action { values: Vec::new(), bounds: vec![0.0; k] };
        if time > 0.0 && statistics.alpha > 0.0 {
            dues.push(Due::new(&statistics, &request, index, statistics.lambda(time)?));
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
    dues.sort_by(|a, b| a.lambda.total_cmp(&b.lambda));
    let lanes = machine.lanes.len();
    let shares = (0..lanes).map(|l| k * l / lanes..k * (l + 1) / lanes).zip(&machine.lanes);
    let all = dues.last().map_or(0, |due| due.right + 1) * k as u64;
    let progress = Mutex::new((observer, 0));
    let report = |more: u64| {
        let (observer, done) = &mut *lock(&progress);
        *done += more;
        observer.progress(*done, all.max(*done))
    };
    let shared = Shared { request, n, statistics, dues, columns, results, report: &report };
    if !shared.dues.is_empty() {
        let work = |(columns, lane): (Range<usize>, &Lane)| shared.on_lane(lane, rows, columns);
        at_once(shares.filter(|(columns, _)| !columns.is_empty()), work)
            .into_iter()
            .collect::<Result<()>>()?;
    }
    Ok(shared
        .results
        .into_iter()
        .map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect())
}

impl<T: Real> Shared<'_, T> {
    /// Builds the matrix on a lane, and computes a range of columns there.
    fn on_lane(&self, lane: &Lane, rows: &dyn Transitions, columns: Range<usize>) -> Result<()> {
        let (n, real, statistics) = (self.n, T::PRECISION.bytes(), &self.statistics);
        let entries = statistics.lengths.iter().map(|&length| u64::from(length)).sum();
        let all = || 0..n;
        let region =
            Region { lane: 0, rows: all(), computed: all(), halo: Vec::new(), left: 0, entries, remote: 0 };
        let layout = Layout::new(&statistics.lengths, real);
        let regions = std::slice::from_ref(&region);
        let source = Source::new(lane, rows, statistics, &layout, &region, regions, 1);
        let matrix = source.build(MatrixFormat::Hyb)?;
        let most = most_elements(lane, real).min(u32::MAX as usize) / n;
        let mut first = columns.start;
        while first < columns.end {
            let count = columns.end - first;
            // Seven columns take less time in a group of eight than in three groups.
            let width = if count == 7 { 8 } else { 1 << count.ilog2().min(3) };
            let width = if count == 3 { 4 } else { width };
            let width = (0..=3).map(|log| 1 << log).rfind(|w| *w <= width.min(most));
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
            let count = count.min(width);
            Group { shared: self, lane, matrix: &matrix, columns: first..first + count, width }.run()?;
            first += count;
        }
        Ok(())
    }
}
