//! Transition matrices P(t) = e^{Qt} of many small chains.
//!
//! With the uniformization rate α and μ = αt/2^s ≤ 0.8, e^{Qt} is the 2^s-th power of P(h) = e^{−μ}
//! e^B, h = t/2^s, B = μI + Qh. Four products evaluate a polynomial of degree 16 for e^B, by the
//! scheme of J. Sastre (Linear Algebra and its Applications 539, 2018,
//! doi:10.1016/j.laa.2017.11.010):
//!
//! * C = B²
//! * X = C (c₁ C + c₂ B)
//! * Y = (X + c₃ C + c₄ B) (X + c₅ C) + c₆ X + c₇ C
//! * e^B ≈ (Y + c₈ C + c₉ B) (Y + c₁₀ X + c₁₁ B) + c₁₂ Y + c₁₃ X + c₁₄ C + B + I
//!
//! # Error
//! Q has the given rates; its diagonal is computed from them. Norms are maximum row sums of
//! absolute values. Let u = 2⁻⁵³. Roundings are counted for processors without fused operations;
//! others have fewer.
//!
//! * Rounding rates, exit rates and the diagonal changes B by at most 3 u μ in norm, and so P(h) by
//!   at most 3.01 u μ.
//! * The polynomial has the coefficients 1 and 1 for powers 0 and 1. Those of powers 2 to 15 differ
//!   from 1/k! by at most 5 u/k!, and that of power 16 by at most 0.455/16!. So it changes P(h) by
//!   at most 2.5 u μ² + 0.51 e^{−μ} μ¹⁶/16!.
//! * B is nonnegative and its rows sum to μ, up to 3 u μ. So no matrix of the scheme has a larger
//!   norm than the number that the scheme gives for μ instead of B and with absolute values of the
//!   coefficients.
//! * A matrix product sums its terms in groups of 16. Each term of an element passes at most
//!   g = min(n, 16) + ⌈n/16⌉ roundings, its product included. Let γ = 1.01 g u. Given matrices of
//!   norms x and y with errors d and e, the computed product has an error of at most
//!   d y + x e + d e + γ (x + d) (y + e). The first one plus c times the second one has an error of
//!   at most d + |c| e + 1.01 u (x + d) + 2.01 u |c| (y + e).
//! * Horner's scheme of degree 19 gives e^{−μ} with a relative error of at most
//!   (1 + 2 e^μ (e^μ − 1) + e^μ (e^μ − 1 − μ − μ²/2)) u, from roundings of sums, products and 1/k!.
//!   This is a convex function of μ, so for μ ≤ 0.8 it is at most (1 + 7.2 μ) u. The product with
//!   e^B is rounded once more.
//! * Squaring a matrix with error e, whose exact value has norm 1, gives an error of at most
//!   2e + e² + γ (1 + e)².
//! * Rounding h to h' changes P(t) by at most 2α |t − 2^s h'|. Other underflow adds less than
//!   10⁻²⁵⁰.
//! * Elements are from 0 to 1 after the last step, so the error of a row is at most n.
//!
//! Rounding errors of an element of P(h) are small relative to the exact value of the polynomial
//! there: the absolute values of terms of power k sum to at most 4.3/k! times Bᵏ, and the
//! coefficient is at least 0.545/k!. The truncation error is small in norm alone. Elements of P(h)
//! between states more than 16 jumps apart are 0, and those nearly as far apart have few correct
//! digits.

mod device;
mod kernels;

use std::sync::LazyLock;

use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Precision, Real, fma};
use crate::parallel::*;
use crate::util::inline_array::array;
use crate::{Invalid, Machine, Progress, Result};

use super::chain::transitions::exit_rate;
pub use device::{MOST_STATES_ON_DEVICES, transition_matrices_on};
use kernels::exponential_step::Params as Step;
pub(crate) use kernels::{KERNELS, VARIANTS};

/// Rows and columns of a register tile, and number of terms per group of a sum.
const ROWS: usize = 4;
const COLUMNS: usize = 16;
const TERMS: usize = 16;

/// Coefficients c₁, c₂, … of the polynomial.
#[rustfmt::skip]
const SCHEME: [f64; 14] = [
    4.018761610201036e-4, 2.945531440279683e-3, -8.709066576837676e-3, 0.4017568440673568,
    3.230762888122312e-2, 5.768988513026145, 2.338576034271299e-2, 0.2381070373870987,
    2.224209172496374, -5.792361707073261, -4.130276365929783e-2, 10.40801735231354,
    -63.3171245588337, 0.3484665863364574,
];

/// Maximum mean number μ of jumps for which the polynomial suffices.
const MOST_MEAN: f64 = 0.8;

/// 16!
const FACTORIAL: f64 = 20_922_789_888_000.0;

/// Maximum αt; beyond it, the rounding of Q alone makes the error bound useless.
const MOST_JUMPS: f64 = (1u64 << 50) as f64;

const UNIT: f64 = 0.5 * f64::EPSILON;

/// Computes P(t) of each chain into `p`; returns a bound on the l1 error of each row.
///
/// `q` has the generator Q of each chain by rows, shape `[times.len(), n, n]`. Its diagonal is
/// either minus the sum of the other entries, or 0; it is computed again from them. `p` has shape
/// `[times.len(), n, n]`: row i of P(t) has the state probabilities at time t for the initial state
/// i.
///
/// With the uniformization rate α, αt is the mean number of jumps of the uniformized chain. A
/// chain takes 10 matrix products for αt = 50, and one more for each doubling. Bounds are about
/// 3 αt (min(n, 16) + n/16 + 13) 10⁻¹⁶ for αt from 1 to 10¹¹, and at least 6·10⁻¹⁶.
///
/// The first lane of `machine` computes P(t). Results are bitwise those of the host, except on
/// software adapters, and if the host has no fused multiply–add. Chains of more than
/// [`MOST_STATES_ON_DEVICES`] states are computed on the host. For matrices in device memory, see
/// [`transition_matrices_on`].
///
/// # Errors
/// * Arrays of other lengths, or a precision other than double.
/// * Negative or infinite rates, or a diagonal entry that does not balance its row.
/// * Negative or infinite times, or αt above 2⁵⁰.
/// * Errors of the device and of `progress`.
pub fn transition_matrices(
    machine: &Machine,
    n: usize,
    q: &[f64],
    times: &[f64],
    p: &mut [f64],
    progress: &mut dyn Progress,
) -> Result<Vec<f64>> {
    let (lane, count, size) = (&machine.lanes[0], times.len(), n * n);
    expect_shape(n, q.len(), count, p.len())?;
    let on_host = lane.device().host || n > MOST_STATES_ON_DEVICES;
    if machine.precision != Precision::F64 {
        return Invalid::Unsupported
            .fail(format!("transition matrices in {} are not supported: expected f64", machine.precision));
    }
    // Progress is reported every few milliseconds; a device holds at most 512 MiB of generators.
    let group = match on_host {
        true => (1 << 26_u32.saturating_sub(3 * n.ilog2())).max(64),
        false => (device::most_bytes(lane) as usize / (8 * size)).max(1),
    };
    let mut bounds = Vec::with_capacity(count);
    for first in (0..count).step_by(group) {
        progress.progress(first as u64, count as u64)?;
        let chains = first..count.min(first + group);
        let matrices = chains.start * size..chains.end * size;
        let (q, times, p) = (&q[matrices.clone()], &times[chains], &mut p[matrices]);
        bounds.extend(match on_host {
            true => on_the_host(n, first, q, times, p)?,
            false => device::copied(lane, n, first, q, times, p)?,
        });
    }
    progress.progress(count as u64, count as u64)?;
    Ok(bounds)
}

/// Computes P(t) of each chain on all cores; messages number the chains from `first`.
fn on_the_host(n: usize, first: usize, q: &[f64], times: &[f64], p: &mut [f64]) -> Result<Vec<f64>> {
    let (coefficients, errors) = (coefficients(), TransitionErrors::new(n));
    let work = p.par_chunks_mut(n * n).zip(q.par_chunks(n * n)).zip(times).enumerate();
    let bounds = work.map(|(k, ((p, q), &time))| {
        let exit = checked_exit_rates(first + k, n, q)?;
        let alpha = exit.iter().copied().fold(0.0, f64::max);
        let scaling = Scaling::new(first + k, alpha, time)?;
        let squarings = scaling.squarings;
        dispatch(ChainExponential {
            n,
            q,
            exit: &exit,
            alpha,
            time,
            squarings,
            coefficients: &coefficients,
            steps: steps(squarings),
            matrices: &mut [],
            p,
        });
        Ok(errors.bound(&scaling))
    });
    bounds.collect::<Vec<Result<f64>>>().into_iter().collect()
}

/// Checks that arrays of `given` and `room` numbers have the shape `[count, n, n]`.
fn expect_shape(n: usize, given: usize, count: usize, room: usize) -> Result<()> {
    if n == 0 || Some(given) != (n * n).checked_mul(count) || room != given {
        return Invalid::Shape.fail(format!(
            "arrays of {given} and {room} numbers for {count} times and {n} states: expected the \
             shape [times, states, states], with at least one state"
        ));
    }
    Ok(())
}

/// Checks the generator of chain number `k` and returns the exit rates of its states.
fn checked_exit_rates(k: usize, n: usize, q: &[f64]) -> Result<Vec<f64>> {
    let mut exit = Vec::with_capacity(n);
    for (i, row) in q.chunks_exact(n).enumerate() {
        let others = || row.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, &rate)| rate);
        if let Some(rate) = others().find(|rate| !(*rate >= 0.0 && rate.is_finite())) {
            return Invalid::Number("q").fail(format!(
                "chain {k}: a rate of state {i} is {rate}: expected a finite number of at least 0"
            ));
        }
        let sum = exit_rate(others());
        let unbalanced = (row[i] + sum).abs() > 1e-5 * sum || row[i].is_nan();
        if !sum.is_finite() || (row[i] != 0.0 && unbalanced) {
            return Invalid::Number("q").fail(format!(
                "chain {k}: the diagonal entry of state {i} is {}, and the rates sum to {sum}: \
                 expected a finite sum, and minus the sum or 0 on the diagonal",
                row[i]
            ));
        }
        exit.push(sum);
    }
    Ok(exit)
}

/// Scaling of time: P(t) is the result of s squarings of P(h), h = t/2^s.
#[derive(Debug, Clone, Copy)]
struct Scaling {
    squarings: u32,
    /// Mean number μ = αh of jumps in time h, at most 0.8 up to rounding.
    mean: f64,
    /// Upper bound of the change of P(t) by rounding h, in norm.
    shift: f64,
}

impl Scaling {
    /// Determines the scaling of chain number `k` with the maximum exit rate `alpha`.
    fn new(k: usize, alpha: f64, time: f64) -> Result<Self> {
        if !(time >= 0.0 && time.is_finite()) {
            return Invalid::Time.fail(format!("time {k} is {time}: expected a finite number of at least 0"));
        }
        let jumps = alpha * time;
        if jumps > MOST_JUMPS || jumps.is_nan() {
            return Invalid::Time.fail(format!(
                "chain {k} makes up to {jumps:e} jumps until time {time}: expected at most 2^50"
            ));
        }
        let squarings = squarings_of(jumps);
        let h = (0..squarings).fold(time, |h, _| 0.5 * h);
        let shift = 2.0 * (alpha * (time - h * f64::from(squarings).exp2()).abs());
        Ok(Self { squarings, mean: alpha * h, shift })
    }
}

/// Error bounds of chains with `n` states.
struct TransitionErrors {
    n: usize,
    /// γ, a bound of the relative error of a product.
    product: f64,
    /// Upper bounds of the error of e^B for μ = 0, 1/64, 2/64, …
    polynomial: Vec<f64>,
}

impl TransitionErrors {
    fn new(n: usize) -> Self {
        let product = 1.01 * (n.min(TERMS) + n.div_ceil(TERMS)) as f64 * UNIT;
        let times = |x: NormBounds, y: NormBounds| NormBounds {
            exact: x.exact * y.exact,
            error: x.error * y.exact
                + x.exact * y.error
                + x.error * y.error
                + product * x.computed() * y.computed(),
        };
        let plus = |x: NormBounds, c: f64, y: NormBounds| NormBounds {
            exact: x.exact + c.abs() * y.exact,
            error: x.error + c.abs() * y.error + UNIT * (1.01 * x.computed() + 2.01 * c.abs() * y.computed()),
        };
        let polynomial = |k| {
            let mean = f64::from(k) / 64.0;
            let e_b = polynomial([0.0, 1.0, mean].map(|exact| NormBounds { exact, error: 0.0 }), times, plus);
            e_b.error + 0.51 * mean.powi(16) / FACTORIAL
        };
        Self { n, product, polynomial: (0..=(64.0 * MOST_MEAN) as u32 + 2).map(polynomial).collect() }
    }

    /// Returns an upper bound of the l1 error of each row of P(t).
    fn bound(&self, scaling: &Scaling) -> f64 {
        let (mean, product) = (scaling.mean, self.product);
        // Errors of e^B increase with μ.
        let e_b = self.polynomial[(64.0 * mean).ceil() as usize];
        let roundings = 2.5 * mean * mean + 2.0 + 10.3 * mean;
        let mut error = (-mean).exp() * e_b + 1.01 * roundings * UNIT;
        for _ in 0..scaling.squarings {
            error = 2.0 * error + error * error + product * (1.0 + error).powi(2);
        }
        (1.01 * (error + scaling.shift) + 1e-250).min(self.n as f64)
    }
}

/// Evaluates the polynomial for e^B, from 0, the identity and B.
///
/// `times` returns products, and `plus(x, c, y)` returns x + c y.
fn polynomial<X: Clone>(
    [zero, one, b]: [X; 3],
    times: impl Fn(X, X) -> X,
    plus: impl Fn(X, f64, X) -> X,
) -> X {
    let sum = |first: &X, terms: &[(f64, &X)]| {
        terms.iter().fold(first.clone(), |sum, (factor, x)| plus(sum, *factor, X::clone(x)))
    };
    let [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14] = SCHEME;
    let c = &times(b.clone(), b.clone());
    let x = &times(c.clone(), sum(&zero, &[(c2, &b), (c1, c)]));
    let y = times(sum(x, &[(c3, c), (c4, &b)]), sum(x, &[(c5, c)]));
    let y = &sum(&y, &[(c6, x), (c7, c)]);
    let rest = &sum(&b, &[(c14, c), (c13, x), (c12, y), (1.0, &one)]);
    sum(&times(sum(y, &[(c8, c), (c9, &b)]), sum(y, &[(c10, x), (c11, &b)])), &[(1.0, rest)])
}

/// Upper bounds of the norm of a matrix and of the error with which it is computed.
#[derive(Debug, Clone, Copy)]
struct NormBounds {
    exact: f64,
    error: f64,
}

impl NormBounds {
    /// Returns an upper bound of the norm of the computed matrix.
    fn computed(self) -> f64 {
        self.exact + self.error
    }
}

/// Returns upper bounds of the l1 error of each row of P(t) of chains with `n` states, from their
/// largest exit rates. Messages number the chains from `first`.
fn bounds(first: usize, n: usize, largest: &[f64], times: &[f64]) -> Result<Vec<f64>> {
    let scaling = |k: usize| Scaling::new(first + k, largest[k], times[k]);
    let errors = TransitionErrors::new(n);
    let bound = |k| scaling(k).map_or(f64::NAN, |scaling| errors.bound(&scaling));
    let bounds: Vec<f64> = (0..times.len()).into_par_iter().map(bound).collect();
    match bounds.iter().position(|bound| bound.is_nan()) {
        Some(k) => Err(scaling(k).expect_err("a bound is a number")),
        None => Ok(bounds),
    }
}

/// Returns the number of squarings for a mean number of jumps, at most [`MOST_SQUARINGS`].
fn squarings_of(jumps: f64) -> u32 {
    let (mut squarings, mut left) = (0, jumps);
    while left > MOST_MEAN && squarings < MOST_SQUARINGS {
        squarings += 1;
        left *= 0.5;
    }
    squarings
}

/// Number of squarings for [`MOST_JUMPS`].
const MOST_SQUARINGS: u32 = 51;

/// Number of terms of e^{−μ}.
pub const EXPONENTIAL_TERMS: usize = 20;
/// Number of coefficients: 1/k!, followed by those of the polynomial.
const COEFFICIENTS: usize = EXPONENTIAL_TERMS + SCHEME.len();

/// Returns the coefficients of e^{−μ} and of the polynomial.
fn coefficients() -> [f64; COEFFICIENTS] {
    let mut factorial = 1.0;
    array(|k| {
        factorial *= k.max(1) as f64;
        if k < EXPONENTIAL_TERMS { 1.0 / factorial } else { SCHEME[k - EXPONENTIAL_TERMS] }
    })
}

/// Number of matrices per chain.
const MATRICES: usize = 6;

/// Returns the steps from a generator to P(t). Task 0 computes B, tasks 1 to 4 the products of the
/// polynomial, and task 5 squares.
///
/// Matrix 0 is B, 1 is C, and 3 is X. Matrices 2, 4 and 5 are factors. The second factor of the
/// last product replaces B, and the terms to add to that product replace X. Powers of P(h)
/// alternate between 4 and 5.
fn steps(squarings: u32) -> &'static [Step] {
    static ALL: LazyLock<Vec<Step>> = LazyLock::new(|| {
        let polynomial = [[0; 3], [0, 0, 1], [1, 2, 3], [4, 5, 0], [2, 0, 4]].into_iter();
        let squarings = [[4, 4, 5], [5, 5, 4]].into_iter().cycle().take(MOST_SQUARINGS as usize);
        let all = polynomial.chain(squarings).zip(0..);
        let step = |([left, right, to], number): ([u32; 3], u32)| Step {
            task: number.min(5),
            left,
            right,
            to,
            stage: number.saturating_sub(3),
            ..Step::default()
        };
        all.map(step).collect()
    });
    &ALL[..ALL.len() - (MOST_SQUARINGS - squarings) as usize]
}

/// Computation of P(t) of one chain on the CPU, or of some of its steps.
struct ChainExponential<'a, T> {
    n: usize,
    q: &'a [T],
    exit: &'a [T],
    /// Largest exit rate.
    alpha: T,
    time: T,
    squarings: u32,
    coefficients: &'a [T; COEFFICIENTS],
    steps: &'a [Step],
    /// Work matrices, read before the steps and written after them; empty if `steps` has all steps.
    matrices: &'a mut [T],
    p: &'a mut [T],
}

impl<T: Real> Body for ChainExponential<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (n, size) = (self.n, self.n * self.n);
        let h = (0..self.squarings).fold(self.time, |h, _| h * T::of(0.5));
        let mean = self.alpha * h;
        let (terms, scheme) = self.coefficients.split_at(EXPONENTIAL_TERMS);
        let scale = terms.iter().rev().fold(T::ZERO, |sum, term| fma::<T, LEVEL>(sum, -mean, *term));
        let [c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14] =
            *scheme.first_chunk().expect("all coefficients");
        let given =
            |k: usize| PaddedMatrix::of(n, self.matrices.get(k * size..(k + 1) * size).unwrap_or_default());
        let mut all: [PaddedMatrix<T>; MATRICES] = std::array::from_fn(given);
        for step in self.steps {
            let mut result = match step.task {
                0 => self.scaled::<LEVEL>(h, mean),
                _ => all[step.left as usize].product::<LEVEL>(&all[step.right as usize]),
            };
            let [b, c, factor, x, left, right] = &mut all;
            match step.task {
                1 => *factor = b.map(|b| c2 * b).plus::<LEVEL>(&[(c1, &result)]),
                2 => {
                    *left = result.plus::<LEVEL>(&[(c3, c), (c4, b)]);
                    *right = result.plus::<LEVEL>(&[(c5, c)]);
                }
                3 => {
                    let y = result.plus::<LEVEL>(&[(c6, x), (c7, c)]);
                    *factor = y.plus::<LEVEL>(&[(c8, c), (c9, b)]);
                    result = y.plus::<LEVEL>(&[(c10, x), (c11, b)]);
                    *x = b.plus::<LEVEL>(&[(c14, c), (c13, x), (c12, &y)]);
                    for (i, row) in x.rows().enumerate() {
                        row[i] = row[i] + T::of(1.0);
                    }
                }
                4 => result = result.plus::<LEVEL>(&[(T::of(1.0), x)]).map(|e_b| scale * e_b),
                _ => {}
            }
            match step.stage == self.squarings + 1 {
                true => result.store(self.p),
                false => all[step.to as usize] = result,
            }
        }
        for (to, matrix) in self.matrices.chunks_exact_mut(size).zip(&mut all) {
            to.chunks_exact_mut(n).zip(matrix.rows()).for_each(|(to, row)| to.copy_from_slice(&row[..n]));
        }
    }
}

impl<T: Real> ChainExponential<'_, T> {
    /// Returns B = μI + Qh.
    #[inline(always)]
    fn scaled<const LEVEL: u8>(&self, h: T, mean: T) -> PaddedMatrix<T> {
        let mut b = PaddedMatrix::zero(self.n);
        for (i, (row, rates)) in b.rows().zip(self.q.chunks_exact(self.n)).enumerate() {
            row.iter_mut().zip(rates).for_each(|(element, rate)| *element = *rate * h);
            let stay = fma::<T, LEVEL>(-self.exit[i], h, mean);
            row[i] = if stay > T::ZERO { stay } else { T::ZERO };
        }
        b
    }
}

/// Square matrix by rows, padded with zeros to whole vectors.
struct PaddedMatrix<T> {
    n: usize,
    width: usize,
    values: Vec<T>,
}

impl<T: Real> PaddedMatrix<T> {
    fn zero(n: usize) -> Self {
        let width = n.next_multiple_of(8);
        Self { n, width, values: vec![T::ZERO; width * n.next_multiple_of(ROWS)] }
    }

    /// Copies a matrix without padding; allocates nothing for no values.
    fn of(n: usize, values: &[T]) -> Self {
        let unset = Self { n, width: n.next_multiple_of(8), values: Vec::new() };
        let mut matrix = if values.is_empty() { unset } else { Self::zero(n) };
        matrix.rows().zip(values.chunks_exact(n)).for_each(|(to, row)| to[..n].copy_from_slice(row));
        matrix
    }

    /// Stores probabilities without padding; those that rounding has moved out of [0, 1] are moved
    /// to its ends.
    fn store(&mut self, to: &mut [T]) {
        let (n, one) = (self.n, T::of(1.0));
        let at_least_0 = |x: T| if x > T::ZERO { x } else { T::ZERO };
        for (to, row) in to.chunks_exact_mut(n).zip(self.rows()) {
            to.iter_mut().zip(row).for_each(|(p, &mut x)| *p = if x < one { at_least_0(x) } else { one });
        }
    }

    fn rows(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.values.chunks_exact_mut(self.width).take(self.n)
    }

    /// Returns the matrix of f(x) for each element x.
    #[inline(always)]
    fn map(&self, f: impl Fn(T) -> T) -> Self {
        Self { values: self.values.iter().map(|x| f(*x)).collect(), ..*self }
    }

    /// Returns the sum of this matrix and of multiples of others.
    #[inline(always)]
    fn plus<const LEVEL: u8>(&self, terms: &[(T, &Self)]) -> Self {
        let mut sum = self.map(|x| x);
        for (factor, other) in terms {
            let pairs = sum.values.iter_mut().zip(&other.values);
            pairs.for_each(|(sum, x)| *sum = fma::<T, LEVEL>(*factor, *x, *sum));
        }
        sum
    }

    #[inline(always)]
    fn product<const LEVEL: u8>(&self, other: &Self) -> Self {
        match self.width.is_multiple_of(COLUMNS) {
            true => self.by_panels::<LEVEL, COLUMNS>(other),
            false => self.by_panels::<LEVEL, { COLUMNS / 2 }>(other),
        }
    }

    /// Returns the product with `right`, `WIDE` of its columns at a time.
    #[inline(always)]
    fn by_panels<const LEVEL: u8, const WIDE: usize>(&self, right: &Self) -> Self {
        let Self { n, width, .. } = *self;
        let mut result = Self::zero(n);
        // Columns of a large matrix are copied: its rows would displace each other in the cache.
        let mut copy = vec![[T::ZERO; WIDE]; if width > WIDE { n } else { 0 }];
        for column in (0..width).step_by(WIDE) {
            for (to, row) in copy.iter_mut().zip(right.values.chunks_exact(width)) {
                to.copy_from_slice(&row[column..][..WIDE]);
            }
            let panel = if width > WIDE { &copy[..] } else { &right.values.as_chunks().0[..n] };
            let rows = result.values.chunks_exact_mut(ROWS * width);
            for (to, from) in rows.zip(self.values.chunks_exact(ROWS * width)) {
                let sums = tile::<T, LEVEL, WIDE>(from, panel);
                for (i, sum) in sums.iter().enumerate() {
                    to[i * width + column..][..WIDE].copy_from_slice(sum);
                }
            }
        }
        result
    }
}

/// Returns the product of [`ROWS`] rows with columns of a matrix.
#[inline(always)]
fn tile<T: Real, const LEVEL: u8, const WIDE: usize>(rows: &[T], panel: &[[T; WIDE]]) -> [[T; WIDE]; ROWS] {
    let width = rows.len() / ROWS;
    let mut sums = [[T::ZERO; WIDE]; ROWS];
    for (group, panel) in panel.chunks(TERMS).enumerate() {
        let mut some = [[T::ZERO; WIDE]; ROWS];
        for (k, row) in (group * TERMS..).zip(panel) {
            for (i, some) in some.iter_mut().enumerate() {
                let a = rows[i * width + k];
                *some = array(|j| fma::<T, LEVEL>(a, row[j], some[j]));
            }
        }
        for (sum, some) in sums.iter_mut().zip(&some) {
            *sum = array(|j| sum[j] + some[j]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;

    use super::polynomial;

    /// A number that is an integer times 2^-shift.
    type Exact = (BigInt, u32);
    /// Coefficients of powers 0, 1, …
    type Polynomial = Vec<Exact>;

    fn plus((a, x): Exact, (b, y): Exact) -> Exact {
        let shift = x.max(y);
        ((a << (shift - x)) + (b << (shift - y)), shift)
    }

    fn product(a: Polynomial, b: Polynomial) -> Polynomial {
        let mut all = vec![(BigInt::ZERO, 0); a.len() + b.len()];
        for (i, (x, from)) in a.iter().enumerate() {
            for (j, (y, to)) in b.iter().enumerate() {
                all[i + j] = plus(all[i + j].clone(), (x * y, from + to));
            }
        }
        all
    }

    /// Returns the coefficients of the polynomial; if not `signed`, for |c_k| instead of c_k.
    fn coefficients(signed: bool) -> Polynomial {
        let powers = [vec![0], vec![1], vec![0, 1]];
        let given = powers.map(|all| all.into_iter().map(|x: i32| (x.into(), 0)).collect());
        let sum = |x: Polynomial, factor: f64, y: Polynomial| {
            let factor = if signed { factor } else { factor.abs() };
            let whole = factor * 70f64.exp2();
            assert_eq!(whole, whole.trunc(), "more than 70 binary digits");
            let term = product(y, vec![(BigInt::from(whole as i128), 70)]);
            let at = |all: &[Exact], k: usize| all.get(k).cloned().unwrap_or_default();
            (0..x.len().max(term.len())).map(|k| plus(at(&x, k), at(&term, k))).collect()
        };
        polynomial(given, product, sum)
    }

    /// Compares coefficients, in exact arithmetic, with the assumptions of the error bounds.
    #[test]
    fn coefficients_of_the_polynomial_are_those_of_the_exponential() {
        let mut factorial = BigInt::from(1);
        for (k, ((own, shift), (all, digits))) in
            coefficients(true).into_iter().zip(coefficients(false)).enumerate().take(17)
        {
            factorial *= k.max(1);
            let one = BigInt::from(1) << shift;
            let error = (own * &factorial - &one) << 53;
            let most = match k {
                0 | 1 => BigInt::ZERO,
                16 => (&one << 53) * 455 / 1000,
                _ => 5 * &one,
            };
            assert!(-&most <= error && error <= most, "power {k}: {error}, expected {most} at most");
            assert!(10 * all * &factorial <= BigInt::from(43) << digits, "power {k} without signs");
        }
    }
}
