//! Derivatives of transient probabilities by parameters of the rates.
//!
//! Let P = I + Q/α with a uniformization rate α that does not depend on the parameter θ. With
//! x_k = π(0) Pᵏ, the derivatives y_k = dx_k/dθ obey y_{k+1} = y_k P + x_k (dQ/dθ)/α, and
//! dπ(t)/dθ = Σ w_k y_k with the Poisson weights w_k of π(t). [`forward`] computes y_k together
//! with x_k, for several parameters at once. [`adjoint`](adjoint::adjoint) computes the derivatives
//! of one functional by every rate. `docs/certificate.md` has the proofs of the bounds.
//!
//! All computations are in double precision. In [`forward`], x and up to seven derivatives are
//! columns of one block, whose step reads the matrix once. The lanes of a machine share the
//! parameters. [`adjoint`](adjoint::adjoint) runs on the first lane.

pub mod adjoint;
pub mod device_chain;
pub(crate) mod kernels;
pub(in crate::transient) mod long_run;

use std::sync::atomic::AtomicU64;

use super::chain::scan::statistics;
use super::chain::statistics::MatrixStatistics;
use super::columns::{self, Action, ActionRequest, DerivativeColumns, EarlyEnd, Weighting};
use super::numerics::poisson::{Weights, Window};
use super::problem::{Options, Problem, check};
use super::rate_derivative::{GeneratorDerivative, others, signed_sum};
pub use super::solution::Bounded;
use crate::kernel::Precision;
use crate::lane::expect_memory;
use crate::sparse::CsrMatrix;
use crate::util::memory::zeroed;
use crate::{Invalid, Machine, Progress, Result};

/// Unit roundoff of f64, 2⁻⁵³.
const U: f64 = 0.5 * f64::EPSILON;

/// Derivatives of a chain by a parameter θ.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: String,
    /// dQ/dθ: entry (i, j) is the derivative of the rate from state i to state j.
    ///
    /// The diagonal may be left out. A diagonal entry must be minus the sum of the rest of its row.
    pub rates: CsrMatrix,
    /// Derivative of the initial probability of each state; `None` if they do not depend on θ.
    pub initial: Option<Vec<f64>>,
}

/// Probabilities at one time, and their derivatives by each parameter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimeGradient {
    /// Probabilities.
    pub probabilities: Bounded,
    /// Bound of the omitted Poisson mass, a part of the bound of the probabilities.
    pub truncation: f64,
    /// Derivatives of the probabilities, one vector per parameter.
    pub derivatives: Vec<Bounded>,
    /// Integral of the probabilities from 0 to the time, and its derivatives, if requested.
    ///
    /// In discrete time, it is the sum over the steps before the time.
    pub integrals: Option<(Bounded, Vec<Bounded>)>,
}

/// Probabilities of a chain and their derivatives.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// Uniformization rate: the largest exit rate.
    pub alpha: f64,
    /// Number of matrix–vector products until the end of the run, which may be early.
    pub terms: u64,
    /// Results in the order of the times.
    pub times: Vec<TimeGradient>,
}

/// Computes probabilities and their derivatives by all parameters, at finite times.
///
/// ε determines where Poisson sums are truncated; bounds may exceed it by rounding. The rewards of
/// the problem are not used: the derivative of an expected reward is the dot product of the rewards
/// and a derivative. `integrals` requests the integrals, too, for accumulated rewards.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::lane::{DeviceSpec, OpenOptions};
/// use kolmo::sparse::CsrMatrix;
/// use kolmo::transient::gradient::{Parameter, forward};
/// use kolmo::transient::{Chain, Options, Problem};
///
/// // A machine fails at the rate λ = 0.1. It has failed at time 2 with probability 1 − e^(−2λ).
/// let chain = Chain::from_csr(2, &[0, 1, 1], &[1], &[0.1])?;
/// let rates = CsrMatrix::from_csr(2, 2, &[0, 1, 1], &[1], &[1.0])?;
/// let parameter = Parameter { name: "λ".to_owned(), rates, initial: None };
/// let problem = Problem::new(&*chain.transitions, &chain.initial, &[2.0]);
/// let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
/// let found = forward(&machine, &problem, &[parameter], &Options::default(), false, &mut ())?;
/// let derivative = &found.times[0].derivatives[0];
/// assert!((derivative.values[1] - 2.0 * (-0.2f64).exp()).abs() <= derivative.bound);
/// # Ok::<(), kolmo::Error>(())
/// ```
///
/// # Errors
/// * [`Invalid`] for a time that is not finite, a precision other than f64, and several ranks.
/// * [`Invalid`] for derivatives of another shape, that are not finite, or with a diagonal entry
///   that does not balance its row.
/// * Errors of [`solve`](super::solve) for the problem; [`crate::Error::OutOfMemory`]; errors of
///   the observer.
pub fn forward(
    machine: &Machine,
    problem: &Problem<'_>,
    parameters: &[Parameter],
    options: &Options,
    integrals: bool,
    observer: &mut dyn Progress,
) -> Result<Gradients> {
    check(problem, options)?;
    check_machine(machine)?;
    let own = machine.of_thread();
    let machine = own.as_ref().unwrap_or(machine);
    parameters.iter().try_for_each(|parameter| check_parameter(parameter, problem.transitions.states()))?;
    check_times(problem.times)?;
    let statistics = uniformized(statistics(problem.transitions)?, problem.times);
    let (n, count) = (problem.transitions.states(), 1 + parameters.len());
    let (alpha, holding) = (statistics.alpha, statistics.mean_holding());
    let kinds = if integrals { 2 } else { 1 };
    let entries: usize = parameters.iter().map(|parameter| parameter.rates.nnz() + n).sum();
    let vectors = 1 + kinds * problem.times.len();
    expect_memory((8 * n * count * (vectors + 1) + 36 * entries) as u64, || {
        format!("derivatives of {n} states at {} times", problem.times.len())
    })?;
    let start = problem.initial.rounding() + problem.mass_error;
    let mut norms = vec![DerivativeNorms { step: statistics.step, start, ..DerivativeNorms::default() }];
    let mut changes = Vec::new();
    for Parameter { rates, initial, .. } in parameters {
        let GeneratorDerivative { entries, norm, rounding } = GeneratorDerivative::new(rates, &statistics);
        let initial = initial.iter().flatten().map(|v| v.abs()).sum();
        norms.push(DerivativeNorms { change: norm, rounding, initial, ..norms[0] });
        changes.push(entries);
    }
    let most = |of: fn(&DerivativeNorms) -> f64| norms.iter().map(of).fold(0.0, f64::max);
    let (largest, initial) = (most(|norms| norms.change) / holding, most(|norms| norms.initial));
    // Bounds multiply the omitted mass by the norm of a derivative, and for integrals by the time.
    let share = |time: f64| {
        let norm = (initial + largest * time).max(1.0) * if integrals { time.max(1.0) } else { 1.0 };
        (0.125 * options.epsilon / norm).max(1e-290)
    };
    let due = |&time: &f64| PoissonTime::new(&statistics, time, share(time));
    let due: Vec<PoissonTime> = problem.times.iter().map(due).collect::<Result<_>>()?;
    let block = block(problem, parameters)?;
    let request = ActionRequest::new(problem.transitions, &block, problem.times, options.epsilon);
    let sum = |index: usize| {
        let (due, kind) = (&due[index / kinds], index % kinds);
        let (whole, weights) = ([1.0, due.lambda][kind], due.weights[kind].clone());
        columns::WeightedTime::of_weights(index, due.lambda, due.right, whole, weights)
    };
    let sums = (0..kinds * due.len()).map(sum).collect();
    let bound = |sum: usize, column: usize, end: Option<&EarlyEnd>| {
        let bounds = if column == 0 { DerivativeNorms::probabilities } else { DerivativeNorms::derivative };
        bounds(&norms[column], &due[sum / kinds], holding, end)[sum % kinds]
    };
    let by = DerivativeColumns { entries: &changes, bound: &bound, steps: AtomicU64::new(0) };
    let mut sums = columns::derivatives(request, statistics, &by, sums, machine, observer)?.into_iter();
    let mut of_kind = |kind: usize| {
        let Action { values, bounds } = sums.next().expect("a sum for each of the dues");
        let scale = [1.0, holding][kind];
        let vector = |c: usize| Bounded {
            values: values.iter().skip(c).step_by(count).map(|value| value * scale).collect(),
            bound: bounds[c],
        };
        (vector(0), (1..count).map(vector).collect())
    };
    let time = |due: &PoissonTime| {
        let (probabilities, derivatives) = of_kind(0);
        let integrals = integrals.then(|| of_kind(1));
        TimeGradient { probabilities, truncation: due.omitted[0], derivatives, integrals }
    };
    let times = due.iter().map(time).collect();
    Ok(Gradients { alpha, terms: by.steps.into_inner() * count as u64, times })
}

/// Returns the initial probabilities and their derivatives, side by side.
fn block(problem: &Problem<'_>, parameters: &[Parameter]) -> Result<Vec<f64>> {
    let (n, count) = (problem.transitions.states(), 1 + parameters.len());
    let mut block = zeroed(n * count);
    let p = problem.initial.probabilities_within(0..n, n, problem.mass_error)?;
    let derivatives = parameters.iter().map(|parameter| parameter.initial.as_deref().unwrap_or(&[]));
    for (c, column) in [&p[..]].into_iter().chain(derivatives).enumerate() {
        block[c..].iter_mut().step_by(count).zip(column).for_each(|(x, value)| *x = *value);
    }
    Ok(block)
}

/// Completes the statistics of a chain: if all rates are 0, 1/α is the largest of the times.
fn uniformized(mut found: MatrixStatistics<f64>, times: &[f64]) -> MatrixStatistics<f64> {
    if found.alpha == 0.0 {
        found.inverse_alpha = times.iter().fold(1.0, |most, &time| time.max(most));
    }
    found
}

/// Returns an error unless the machine computes in double precision, in a single process.
fn check_machine(machine: &Machine) -> Result<()> {
    if machine.precision != Precision::F64 {
        return Invalid::Argument("precision").fail(format!(
            "`precision` {} is not supported for derivatives: expected f64",
            machine.precision
        ));
    }
    Invalid::Unsupported.unless(!machine.ranks.is_distributed(), || {
        "derivatives are not supported on several ranks; use one process".to_owned()
    })
}

/// Returns an error unless all times are finite.
fn check_times(times: &[f64]) -> Result<()> {
    match times.iter().find(|time| time.is_infinite()) {
        Some(_) => {
            Invalid::Time.fail("the time inf is not supported for derivatives: expected a finite time")
        }
        None => Ok(()),
    }
}

/// Returns an error unless the derivatives are finite and fit a chain of `n` states.
fn check_parameter(parameter: &Parameter, n: usize) -> Result<()> {
    let Parameter { name, rates, initial } = parameter;
    if (rates.rows(), rates.columns()) != (n, n) {
        return Invalid::Shape.fail(format!(
            "the derivatives of the rates by '{name}' are a matrix of {} rows and {} columns: expected {n} and {n}",
            rates.rows(),
            rates.columns()
        ));
    }
    if let Some((from, to, value)) = rates.entries().find(|(.., value)| !value.is_finite()) {
        return Invalid::Number("gradient").fail(format!(
            "the derivative of the rate {from} -> {to} by '{name}' is {value}: expected a finite number"
        ));
    }
    for state in 0..n {
        let (columns, values) = rates.row(state);
        let diagonal =
            columns.iter().zip(values).find(|(to, _)| **to as usize == state).map_or(0.0, |(_, v)| *v);
        let sum = signed_sum(others(rates, state).map(|(_, d)| d));
        let size: f64 = values.iter().map(|v| v.abs()).sum();
        if diagonal != 0.0 && (diagonal + sum).abs() > 1e-9 * size {
            return Invalid::Number("gradient").fail(format!(
                "row {state} of the derivatives by '{name}' sums to {:e}: expected 0, as in a generator; \
                 leave the diagonal out if it is not known",
                diagonal + sum
            ));
        }
    }
    let Some(initial) = initial else { return Ok(()) };
    if initial.len() != n {
        return Invalid::Shape.fail(format!(
            "the derivative of the initial distribution by '{name}' has {} values: expected {n}",
            initial.len()
        ));
    }
    match initial.iter().position(|value| !value.is_finite()) {
        Some(state) => Invalid::Distribution.fail(format!(
            "the derivative of the initial probability of state {state} by '{name}' is {}: expected a finite number",
            initial[state]
        )),
        None => Ok(()),
    }
}

/// A requested time with its Poisson window.
#[derive(Debug)]
struct PoissonTime {
    time: f64,
    /// Mean λ = αt of the Poisson distribution.
    lambda: f64,
    /// Index of the last term.
    right: u64,
    /// Number of terms.
    len: f64,
    /// Bound of the omitted Poisson mass, and that plus the mass of the last one or two terms.
    omitted: [f64; 3],
    /// Bounds of the sum of the rounding errors of weights, and of the error of each tail weight.
    rounding: [f64; 2],
    /// Poisson weights for the time, and tail weights P(N > k) for the integral.
    weights: [Weighting; 2],
}

impl PoissonTime {
    /// Determines the window of a finite time, whose omitted mass is at most `epsilon`.
    fn new(statistics: &MatrixStatistics<f64>, time: f64, epsilon: f64) -> Result<Self> {
        let lambda = if time > 0.0 { statistics.lambda(time)? } else { 0.0 };
        let mut window = statistics.window(lambda, epsilon);
        let mut weights = window.weights();
        let last = |weights: &Weights, k| weights.values.iter().rev().take(k).sum::<f64>();
        // Bounds of derivatives and integrals count the last two terms as omitted.
        let mut share = epsilon;
        while !window.is_of_step() && last(&weights, 2) > epsilon && share > 1e-280 {
            share /= 256.0;
            window = Window::new(lambda, share);
            weights = window.weights();
        }
        let mut tails = weights.tails();
        let before = if weights.left == 0 { 0.0 } else { 1.0 };
        let tail_rounding = weights.rounding + 2.0 * U + 1e-11 * weights.above().0;
        tails.remove(0);
        let omitted = |k| match window.is_of_step() {
            true => 0.0,
            false => weights.truncation + 1.001 * last(&weights, k),
        };
        Ok(Self {
            time,
            lambda,
            right: window.right,
            len: weights.values.len() as f64,
            omitted: [weights.truncation, omitted(1), omitted(2)],
            rounding: [weights.rounding, tail_rounding],
            weights: [
                Weighting { before: 0.0, first: weights.left, terms: weights.values },
                Weighting { before, first: weights.left, terms: tails },
            ],
        })
    }

    /// Bound of the rounding error of λ.
    fn drift(&self) -> f64 {
        f64::EPSILON * self.lambda
    }
}

/// Norms and rounding errors that determine the bounds of x and of a derivative.
#[derive(Debug, Clone, Copy, Default)]
struct DerivativeNorms {
    /// Bound of the rounding error of a step x ↦ xP for ‖x‖ ≤ 1.
    step: f64,
    /// Bound of the l1 error of π(0).
    start: f64,
    /// Bound of ‖dQ/dθ‖/α, the largest l1 norm of a row.
    change: f64,
    /// Bound of the rounding error of x ↦ x (dQ/dθ)/α for ‖x‖ ≤ 1.
    rounding: f64,
    /// l1 norm of dπ(0)/dθ.
    initial: f64,
}

impl DerivativeNorms {
    /// Bounds the l1 errors of dπ(t)/dθ and of its integral; `holding` is 1/α.
    fn derivative(&self, due: &PoissonTime, holding: f64, end: Option<&EarlyEnd>) -> [f64; 2] {
        let Self { step, start, change, rounding, initial } = *self;
        let (lambda, right) = end.map_or((due.lambda, due.right as f64), |end| (end.k as f64, end.k as f64));
        // ‖y_k‖ ≤ initial + k change, weighted with the Poisson probabilities and at the last term.
        let (norm, last) = (initial + lambda * change, initial + right * change);
        // With s = step + U, the error e_k of y_k obeys
        // e_{k+1} ≤ e_k (1 + s) + change (start + k step) + rounding + s ‖y_k‖.
        let s = step + U;
        let linear = change * start + rounding + s * initial;
        let square = change * (step + s);
        let growth = 1.001 * (2.0 * s * right).exp();
        let steps = growth * (lambda * linear + 0.5 * lambda * lambda * square);
        let drift = due.drift() * (2.0 * (initial + due.lambda * change) + change) + 2.0 * f64::MIN_POSITIVE;
        // Last changes bound those of the J = (N − k)⁺ omitted steps; `pairs` bounds E J (J − 1).
        let ended = end.map_or(0.0, |&EarlyEnd { k, excess, changes: [x, y] }| {
            let (k, noise) = (k as f64, 1.001 * step);
            let pairs = (due.lambda * excess).min((due.lambda - k).max(0.0) * excess + k);
            let next = y + 1.001 * (s * (last + steps) + rounding) + change * (x + start + noise * k);
            excess * next + 0.5 * pairs * change * (x + noise) + 8.0 * U * (last + steps)
        });
        // Weight of omitted terms before the window, and errors of weights, move to iterate k.
        let (outside, moved) = if end.is_some() { (2.0 * last, 2.0 * last) } else { (norm, last) };
        let sums = 1.001 * U * (due.len + 3.0) * (norm + steps);
        let at = outside * due.omitted[1] + steps + drift + sums + due.rounding[0] * moved + ended;
        let sums = 1.001 * U * (right + 6.0) * (norm + steps);
        let tails = due.len * holding * due.rounding[1] * moved;
        let until = due.time * (outside * due.omitted[2] + steps + 2.0 * drift + sums + ended) + tails;
        [1.001 * at, 1.001 * until]
    }

    /// Bounds the l1 errors of π(t) and of its integral; `holding` is 1/α.
    fn probabilities(&self, due: &PoissonTime, holding: f64, end: Option<&EarlyEnd>) -> [f64; 2] {
        let (noise, taken) = (1.001 * self.step, end.map_or(due.lambda, |end| end.k as f64));
        let steps = self.start + noise * taken;
        let (moved, ended) =
            end.map_or((1.0, 0.0), |end| (2.0, end.excess * (end.changes[0] + noise) + 8.0 * U));
        let drift = 2.0 * due.drift() + 2.0 * f64::MIN_POSITIVE;
        let weights = moved * due.rounding[0];
        let at = moved * due.omitted[0] + steps + drift + weights + U * (due.len + 3.0) + ended;
        let until = moved * due.omitted[1] + steps + drift + U * (due.right as f64 + 6.0) + ended;
        [1.001 * at, 1.001 * (due.time * until + moved * due.len * holding * due.rounding[1])]
    }
}

#[cfg(test)]
mod tests;
