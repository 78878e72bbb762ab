//! Derivatives of transient probabilities by parameters of the rates.
//!
//! Let P = I + Q/α with a uniformization rate α that does not depend on the parameter θ. With
//! x_k = π(0) Pᵏ, the derivatives y_k = dx_k/dθ obey y_{k+1} = y_k P + x_k (dQ/dθ)/α, and
//! dπ(t)/dθ = Σ w_k y_k with the Poisson weights w_k of π(t). [`forward`] computes y_k together
//! with x_k, for several parameters at once. [`adjoint`](adjoint::adjoint) computes the derivatives
//! of one functional by every rate. `docs/certificate.md` has the proofs of the bounds.
//!
//! The computations run on the host, in double precision.

pub mod adjoint;
pub(in crate::transient) mod long_run;
mod matrix;

use std::time::Instant;

pub(in crate::transient) use self::matrix::others;
use self::matrix::{BLOCK, Matrix, inverse_alpha, signed_sum};
use super::chain::scan::statistics;
use super::chain::statistics::MatrixStatistics;
use super::numerics::poisson::{Weights, Window};
use super::problem::{Options, Problem, check};
use crate::kernel::Precision;
use crate::lane::{PIECE, expect_memory};
use crate::parallel::*;
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

/// Vector with a bound on its error.
///
/// Vectors of [`forward`] have a value for each state. [`Adjoint`](adjoint::Adjoint) has others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bounded {
    /// Computed values.
    pub values: Vec<f64>,
    /// Bound on the l1 norm of the error in [`forward`]: the sum of the errors of all values.
    pub bound: f64,
}

impl Bounded {
    /// Returns true if the bound is at most ε times the l1 norm, or ε for a norm below 1.
    pub fn is_within(&self, epsilon: f64) -> bool {
        self.bound <= epsilon * self.values.iter().map(|value| value.abs()).sum::<f64>().max(1.0)
    }
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
    /// Number of matrix–vector products.
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
    parameters.iter().try_for_each(|parameter| check_parameter(parameter, problem.transitions.states()))?;
    check_times(problem.times)?;
    let statistics = statistics::<f64>(problem.transitions)?;
    let mut found = Gradients {
        alpha: statistics.alpha,
        terms: 0,
        times: vec![TimeGradient::default(); problem.times.len()],
    };
    let mut rest = parameters;
    while !rest.is_empty() || found.times[0].probabilities.values.is_empty() {
        let (group, after) = rest.split_at(rest.len().min(7));
        rest = after;
        let solve = match group.len() {
            0 => solve::<1>,
            1 => solve::<2>,
            2 | 3 => solve::<4>,
            _ => solve::<8>,
        };
        solve(machine, problem, &statistics, group, (options.epsilon, integrals), observer, &mut found)?;
    }
    Ok(found)
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

/// Weights of the iterates x_k in the sum for a time, or for the integral up to a time.
#[derive(Debug)]
struct Weighting {
    /// Weight of each iterate before `first`.
    before: f64,
    /// Index k of the iterate with the first weight; iterates after the last weight have weight 0.
    first: u64,
    weights: Vec<f64>,
}

impl Weighting {
    /// Returns the weight of iterate k.
    fn of(&self, k: u64) -> f64 {
        k.checked_sub(self.first)
            .map_or(self.before, |i| self.weights.get(i as usize).copied().unwrap_or(0.0))
    }
}

/// A requested time with its Poisson window.
#[derive(Debug)]
struct Due {
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

impl Due {
    /// Determines the window of a finite time, whose omitted mass is at most `epsilon`.
    fn new(statistics: &MatrixStatistics<f64>, time: f64, epsilon: f64) -> Result<Self> {
        let lambda = match statistics.alpha > 0.0 {
            true => statistics.lambda(time)?,
            // α = 1 in the unit of the scale.
            false => time,
        };
        let mut window = match time == 0.0 {
            true => Window::of_step(0.0),
            false if lambda > 1e13 => {
                return Invalid::Time
                    .fail(format!("time {time:e} is out of range: it needs {lambda:.1e} products"));
            }
            false if statistics.discrete => Window::of_step(lambda),
            false => Window::new(lambda, epsilon),
        };
        let lambda = if time == 0.0 { 0.0 } else { lambda };
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
                Weighting { before: 0.0, first: weights.left, weights: weights.values },
                Weighting { before, first: weights.left, weights: tails },
            ],
        })
    }

    /// Bound of the rounding error of λ.
    fn drift(&self) -> f64 {
        f64::EPSILON * self.lambda
    }
}

/// Norms and rounding errors that determine the bounds of x and of a derivative.
#[derive(Debug, Clone, Copy)]
struct Norms {
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

impl Norms {
    /// Bounds the l1 errors of dπ(t)/dθ and of its integral; `holding` is 1/α.
    fn derivative(&self, due: &Due, holding: f64) -> [f64; 2] {
        let Self { step, start, change, rounding, initial } = *self;
        let (lambda, right) = (due.lambda, due.right as f64);
        // ‖y_k‖ ≤ initial + k change, weighted with the Poisson probabilities and at the last term.
        let (norm, last) = (initial + lambda * change, initial + right * change);
        // With s = step + 2U, the error e_k of y_k obeys
        // e_{k+1} ≤ e_k (1 + s) + change (start + U + k step) + rounding + s ‖y_k‖.
        let s = step + 2.0 * U;
        let linear = change * (start + U) + rounding + s * initial;
        let square = change * (step + s);
        let growth = 1.001 * (2.0 * s * right).exp();
        let steps = growth * (lambda * linear + 0.5 * lambda * lambda * square);
        let drift = due.drift() * (2.0 * norm + change) + 2.0 * f64::MIN_POSITIVE;
        let sums = 1.001 * U * (due.len + 3.0) * (norm + steps);
        let at = norm * due.omitted[1] + steps + drift + sums + due.rounding[0] * last;
        let sums = 1.001 * U * (right + 6.0) * (norm + steps);
        let tails = due.len * holding * due.rounding[1] * last;
        let until = due.time * (norm * due.omitted[2] + steps + 2.0 * drift + sums) + tails;
        [1.001 * at, 1.001 * until]
    }

    /// Bounds the l1 errors of π(t) and of its integral; `holding` is 1/α.
    fn probabilities(&self, due: &Due, holding: f64) -> [f64; 2] {
        let steps = self.start + 1.001 * self.step * due.lambda;
        let drift = 2.0 * due.drift() + 2.0 * f64::MIN_POSITIVE;
        let at = due.omitted[0] + steps + drift + due.rounding[0] + U * (due.len + 3.0);
        let until = due.omitted[1] + steps + drift + U * (due.right as f64 + 6.0);
        [1.001 * at, 1.001 * (due.time * until + due.len * holding * due.rounding[1])]
    }
}

/// Weighted sum of the iterates, with the derivatives.
struct Sum<'a, const W: usize> {
    weighting: &'a Weighting,
    values: Vec<[f64; W]>,
}

/// Run that computes x and its derivatives by at most `W` − 1 parameters, interleaved by state.
struct Run<'a, const W: usize> {
    matrix: Matrix<W>,
    x: Vec<[f64; W]>,
    next: Vec<[f64; W]>,
    sums: Vec<Sum<'a, W>>,
    /// Index of the iterate in `x`.
    k: u64,
}

impl<const W: usize> Run<'_, W> {
    /// Adds x_k to the sums, and with `both` also x_{k+1}, which `next` has.
    fn add(&mut self, both: bool) {
        for sum in &mut self.sums {
            let own = sum.weighting.of(self.k);
            let after = if both { sum.weighting.of(self.k + 1) } else { 0.0 };
            if own == 0.0 && after == 0.0 {
                continue;
            }
            let rows = sum.values.par_chunks_mut(BLOCK).zip(self.x.par_chunks(BLOCK));
            rows.zip(self.next.par_chunks(BLOCK)).for_each(|((sum, x), next)| {
                for ((sum, x), next) in sum.iter_mut().zip(x).zip(next) {
                    for c in 0..W {
                        sum[c] += own * x[c];
                        if both {
                            sum[c] += after * next[c];
                        }
                    }
                }
            });
        }
    }

    /// Takes steps towards iterate `end`, for about [`PIECE`].
    ///
    /// The sums are updated after every second step, to read them less often.
    fn advance(&mut self, end: u64) {
        let since = Instant::now();
        while self.k < end && since.elapsed() < PIECE {
            self.matrix.step(&self.x, &mut self.next);
            self.add(true);
            self.swap();
            if self.k < end {
                self.matrix.step(&self.x, &mut self.next);
                self.swap();
                if self.k == end {
                    self.add(false);
                }
            }
        }
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.x, &mut self.next);
        self.k += 1;
    }
}

/// Solves for a group of at most `W` − 1 parameters, and appends their derivatives to the results.
fn solve<const W: usize>(
    machine: &Machine,
    problem: &Problem<'_>,
    statistics: &MatrixStatistics<f64>,
    group: &[Parameter],
    (epsilon, integrals): (f64, bool),
    observer: &mut dyn Progress,
    found: &mut Gradients,
) -> Result<()> {
    let n = problem.transitions.states();
    let rates: Vec<&CsrMatrix> = group.iter().map(|parameter| &parameter.rates).collect();
    let matrix = Matrix::<W>::new(problem.transitions, statistics, &rates)?;
    let holding = inverse_alpha(statistics) * statistics.scale;
    let l1 = |parameter: &Parameter| parameter.initial.iter().flatten().map(|v| v.abs()).sum::<f64>();
    let largest = matrix.norms.iter().copied().fold(0.0, f64::max) / holding;
    let initial = group.iter().map(l1).fold(0.0, f64::max);
    // Bounds multiply the omitted mass by the norm of a derivative, and for integrals by the time.
    let share = |time: f64| {
        let norm = (initial + largest * time).max(1.0) * if integrals { time.max(1.0) } else { 1.0 };
        (0.125 * epsilon / norm).max(1e-290)
    };
    let due = |&time: &f64| Due::new(statistics, time, share(time));
    let due: Vec<Due> = problem.times.iter().map(due).collect::<Result<_>>()?;
    let kinds = if integrals { 2 } else { 1 };
    let bytes = (n * W * 8) as u64 * (2 + (due.len() * kinds) as u64);
    expect_memory(bytes, || format!("derivatives of {n} states at {} times", due.len()))?;
    let mut x: Vec<[f64; W]> = zeroed(n);
    let p = problem.initial.probabilities_within(0..n, n, problem.mass_error)?;
    x.iter_mut().zip(&p).for_each(|(x, p)| x[0] = *p);
    for (c, parameter) in group.iter().enumerate() {
        x.iter_mut().zip(parameter.initial.iter().flatten()).for_each(|(x, d)| x[c + 1] = *d);
    }
    let sums = due.iter().flat_map(|due| &due.weights[..kinds]);
    let sums = sums.map(|weighting| Sum { weighting, values: zeroed(n) }).collect();
    let mut run = Run { matrix, x, next: zeroed(n), sums, k: 0 };
    let end = due.iter().map(|due| due.right).max().unwrap_or(0);
    if end == 0 {
        run.add(false);
    }
    while run.k < end {
        machine.lanes[0].with_threads(&mut || run.advance(end));
        observer.progress(run.k, end)?;
    }
    let norms = |c: usize| Norms {
        step: statistics.step,
        start: problem.initial.rounding() + problem.mass_error,
        change: c.checked_sub(1).map_or(0.0, |c| run.matrix.norms[c]),
        rounding: c.checked_sub(1).map_or(0.0, |c| run.matrix.rounding[c]),
        initial: c.checked_sub(1).map_or(0.0, |c| l1(&group[c])),
    };
    found.terms += end * (1 + group.len() as u64);
    for (i, (due, result)) in due.iter().zip(&mut found.times).enumerate() {
        let vector = |c: usize, kind: usize| {
            let scale = if kind == 1 { holding } else { 1.0 };
            let values = run.sums[i * kinds + kind].values.iter().map(|value| value[c] * scale).collect();
            let bounds = match c {
                0 => norms(c).probabilities(due, holding),
                _ => norms(c).derivative(due, holding),
            };
            Bounded { values, bound: bounds[kind] }
        };
        let all = 1..group.len() + 1;
        result.probabilities = vector(0, 0);
        result.truncation = due.omitted[0];
        result.derivatives.extend(all.clone().map(|c| vector(c, 0)));
        if integrals {
            let (own, derivatives) = result.integrals.get_or_insert_default();
            *own = vector(0, 1);
            derivatives.extend(all.map(|c| vector(c, 1)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
