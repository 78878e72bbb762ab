//! Transition matrices P(t) = e^{Qt} of many small chains.
//!
//! With the uniformization rate α and μ = αt/2^s ≤ 0.8, e^{Qt} is the 2^s-th power of P(h) = e^{−μ}
//! Σ Bᵏ/k!, h = t/2^s, B = μI + Qh. The sum is truncated after k = 16 and evaluated in six products
//! by the scheme of M. S. Paterson and L. J. Stockmeyer (SIAM Journal on Computing 2(1), 1973,
//! doi:10.1137/0202007) with B, B², B³ and B⁴. All matrices are nonnegative, so nothing cancels.
//!
//! # Error
//! Q has the given rates; its diagonal is computed from them. Norms are maximum row sums of
//! absolute values. Let u = 2⁻⁵³. Roundings are counted for processors without fused operations;
//! others have fewer. All numbers are at least 0, so relative errors of factors add up in a
//! product, and the largest one of the terms bounds that of a sum.
//!
//! * A matrix product sums its terms in groups of 16. Each term of an element passes at most g =
//!   min(n, 16) + ⌈n/16⌉ roundings, its product included. So the element has a relative error of at
//!   most γ = 1.01 g u.
//! * Rounding rates, exit rates and the diagonal changes B by at most 3 u μ in norm, and so P(h) by
//!   at most 3.01 u μ.
//! * Horner's scheme of degree 19 gives e^{−μ} with a relative error of at most
//!   (1 + 2 e^μ (e^μ − 1) + e^μ (e^μ − 1 − μ − μ²/2)) u, from roundings of sums, products and 1/k!.
//!   This is a convex function of μ, so for μ ≤ 0.8 it is at most (1 + 7.2 μ) u.
//! * The coefficients of terms 0 and 1 have this error, later ones 2 u more. Term k > 0 is rounded
//!   once by its own multiplication by the coefficient. Term 0 passes one addition, terms 1 to 3 at
//!   most 4, and term k at most k + 4. So these roundings are at most (2 + 7.2 μ + 4 k) u for term
//!   k.
//! * Terms 1 to 3 pass at most k − 1 products, and term k > 3 at most k. The norm of term k is the
//!   Poisson probability of k with mean μ. The mean of k is μ, that of k − 1 for k > 0 is
//!   μ − 1 + e^{−μ} ≤ μ²/2, and k > 3 has at most the probability μ⁴/24. So the errors of all terms
//!   sum to at most 1.01 ((μ²/2 + μ⁴/24) γ + (2 + 11.2 μ) u).
//! * Truncation adds the Poisson probability beyond the last term: at most a few per cent of the
//!   rounding errors of P(h), since μ ≤ 0.8.
//! * Squaring a matrix with error e, whose exact value has norm 1, gives an error of at most
//!   2e + e² + γ (1 + e)².
//! * Rounding h to h' changes P(t) by at most 2α |t − 2^s h'|. Other underflow adds less than
//!   10⁻²⁵⁰.
//! * Elements are at most 1 after the last step, so the error of a row is at most n.

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

/// Degree of the polynomial, and the maximum mean number μ of jumps for which it suffices.
const DEGREE: u32 = 16;
const MOST_MEAN: f64 = 0.8;

/// (DEGREE + 1)!
const FACTORIAL: f64 = 355_687_428_096_000.0;

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
/// chain takes 12 matrix products for αt = 50, and one more for each doubling. Bounds are about
/// 3 αt (min(n, 16) + n/16 + 10) 10⁻¹⁶ for αt from 1 to 10¹¹, and at least 2·10⁻¹⁶.
///
/// The first lane of `machine` computes P(t). Results are bitwise those of the host, except on
/// software adapters. Chains of more than [`MOST_STATES_ON_DEVICES`] states are computed on the
/// host. For matrices in device memory, see [`transition_matrices_on`].
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
    let inverse = inverse_factorials();
    let work = p.par_chunks_mut(n * n).zip(q.par_chunks(n * n)).zip(times).enumerate();
    let bounds = work.map(|(k, ((p, q), &time))| {
        let exit = checked_exit_rates(first + k, n, q)?;
        let alpha = exit.iter().copied().fold(0.0, f64::max);
        let scaling = Scaling::new(first + k, alpha, time)?;
        let squarings = scaling.squarings;
        dispatch(Exponential {
            n,
            q,
            exit: &exit,
            alpha,
            time,
            squarings,
            inverse: &inverse,
            steps: steps(squarings),
            matrices: &mut [],
            p,
        });
        Ok(scaling.bound(n))
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

    /// Returns an upper bound of the l1 error of each row of P(t), for `n` states.
    fn bound(&self, n: usize) -> f64 {
        let product = 1.01 * (n.min(TERMS) + n.div_ceil(TERMS)) as f64 * UNIT;
        // Each later weight is at most μ/18 < 0.05 times its predecessor.
        let truncated = 1.07 * self.mean.powi(DEGREE as i32 + 1) / FACTORIAL;
        let powers = (0.5 * self.mean.powi(2) + self.mean.powi(4) / 24.0) * product;
        let roundings = 1.01 * (powers + (2.0 + 11.2 * self.mean) * UNIT);
        let mut error = roundings + 3.01 * self.mean * UNIT + truncated;
        for _ in 0..self.squarings {
            error = 2.0 * error + error * error + product * (1.0 + error).powi(2);
        }
        (1.01 * (error + self.shift) + 1e-250).min(n as f64)
    }
}

/// Returns upper bounds of the l1 error of each row of P(t) of chains with `n` states, from their
/// largest exit rates. Messages number the chains from `first`.
fn bounds(first: usize, n: usize, largest: &[f64], times: &[f64]) -> Result<Vec<f64>> {
    let scaling = |k: usize| Scaling::new(first + k, largest[k], times[k]);
    let bound = |k| scaling(k).map_or(f64::NAN, |scaling| scaling.bound(n));
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

/// Number of coefficients 1/k!, also those of e^{−μ}.
pub const COEFFICIENTS: usize = 20;

/// Returns 1/k! for k = 0, 1, …
fn inverse_factorials() -> [f64; COEFFICIENTS] {
    let mut factorial = 1.0;
    array(|k| {
        factorial *= k.max(1) as f64;
        1.0 / factorial
    })
}

/// Number of matrices per chain.
const MATRICES: usize = 6;

/// Returns the steps from a generator to P(t).
///
/// Matrices 0 to 3 are B, B², B³ and B⁴. The sum alternates between 4 and 5.
fn steps(squarings: u32) -> &'static [Step] {
    static ALL: LazyLock<Vec<Step>> = LazyLock::new(|| {
        let step = |task, [left, right, to]: [u32; 3], factors, term, stage| {
            let rest = Step::default();
            Step { task, left, right, to, factors, term, stage, ..rest }
        };
        let powers = [[0, 0, 1], [1, 0, 2], [1, 1, 3]].map(|matrices| step(1, matrices, 2, 0, 0));
        let mut all = vec![step(0, [0; 3], 0, 0, 0)];
        all.extend(powers);
        all.push(step(2, [0, 0, 4], 0, DEGREE - 4, 0));
        let terms = [(8, 0), (4, 0), (0, 1)].map(|(term, stage)| (Some(term), stage));
        let squarings = (1..=MOST_SQUARINGS).map(|squared| (None, squared + 1));
        let products = terms.into_iter().chain(squarings).zip([4, 5].into_iter().cycle());
        all.extend(products.map(|((term, stage), sum)| match term {
            Some(term) => step(2, [sum, 3, 9 - sum], 2, term, stage),
            None => step(1, [sum, sum, 9 - sum], 2, 0, stage),
        }));
        all
    });
    &ALL[..ALL.len() - (MOST_SQUARINGS - squarings) as usize]
}

/// Computation of P(t) of one chain on the CPU, or of some of its steps.
struct Exponential<'a, T> {
    n: usize,
    q: &'a [T],
    exit: &'a [T],
    /// Largest exit rate.
    alpha: T,
    time: T,
    squarings: u32,
    /// 1/k! for k = 0, 1, …
    inverse: &'a [T; COEFFICIENTS],
    steps: &'a [Step],
    /// Matrices before and after the steps; empty for all steps.
    matrices: &'a mut [T],
    p: &'a mut [T],
}

impl<T: Real> Body for Exponential<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let (n, size) = (self.n, self.n * self.n);
        let h = (0..self.squarings).fold(self.time, |h, _| h * T::of(0.5));
        let mean = self.alpha * h;
        let [others @ .., last] = self.inverse;
        let scale = others.iter().rev().fold(*last, |sum, inverse| fma::<T, LEVEL>(sum, -mean, *inverse));
        let given = |k: usize| Dense::of(n, self.matrices.get(k * size..(k + 1) * size).unwrap_or_default());
        let mut all: [Dense<T>; MATRICES] = std::array::from_fn(given);
        for step in self.steps {
            let mut result = match step.task {
                0 => self.scaled::<LEVEL>(h, mean),
                _ if step.factors == 0 => Dense::zero(n),
                _ => all[step.left as usize].product::<LEVEL>(&all[step.right as usize]),
            };
            if step.task == 2 {
                let inverse = &self.inverse[step.term as usize..];
                let terms = if step.factors == 0 { 5 } else { 4 };
                for (matrix, inverse) in all.iter().zip(&inverse[1..terms]) {
                    result.add::<LEVEL>(scale * *inverse, matrix);
                }
                for (i, row) in result.rows().enumerate() {
                    row[i] = fma::<T, LEVEL>(scale, inverse[0], row[i]);
                }
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

impl<T: Real> Exponential<'_, T> {
    /// Returns B = μI + Qh.
    #[inline(always)]
    fn scaled<const LEVEL: u8>(&self, h: T, mean: T) -> Dense<T> {
        let mut b = Dense::zero(self.n);
        for (i, (row, rates)) in b.rows().zip(self.q.chunks_exact(self.n)).enumerate() {
            row.iter_mut().zip(rates).for_each(|(element, rate)| *element = *rate * h);
            let stay = fma::<T, LEVEL>(-self.exit[i], h, mean);
            row[i] = if stay > T::ZERO { stay } else { T::ZERO };
        }
        b
    }
}

/// Square matrix by rows, padded with zeros to whole vectors.
struct Dense<T> {
    n: usize,
    width: usize,
    values: Vec<T>,
}

impl<T: Real> Dense<T> {
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

    /// Stores probabilities without padding; those that rounding has raised above 1 are set to 1.
    fn store(&mut self, to: &mut [T]) {
        let (n, one) = (self.n, T::of(1.0));
        for (to, row) in to.chunks_exact_mut(n).zip(self.rows()) {
            to.iter_mut().zip(row).for_each(|(p, value)| *p = if *value < one { *value } else { one });
        }
    }

    fn rows(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.values.chunks_exact_mut(self.width).take(self.n)
    }

    /// Adds `factor` times another matrix.
    #[inline(always)]
    fn add<const LEVEL: u8>(&mut self, factor: T, other: &Self) {
        let pairs = self.values.iter_mut().zip(&other.values);
        pairs.for_each(|(sum, x)| *sum = fma::<T, LEVEL>(factor, *x, *sum));
    }

    #[inline(always)]
    fn product<const LEVEL: u8>(&self, other: &Self) -> Self {
        let mut result = Self::zero(self.n);
        let rows = result.values.chunks_exact_mut(ROWS * self.width);
        for (to, from) in rows.zip(self.values.chunks_exact(ROWS * self.width)) {
            match self.width.is_multiple_of(COLUMNS) {
                true => other.tiles::<LEVEL, COLUMNS>(from, to),
                false => other.tiles::<LEVEL, { COLUMNS / 2 }>(from, to),
            }
        }
        result
    }

    /// Stores in `to` the product of [`ROWS`] rows `from` of the left factor with this matrix.
    #[inline(always)]
    fn tiles<const LEVEL: u8, const WIDE: usize>(&self, from: &[T], to: &mut [T]) {
        let Self { n, width, ref values } = *self;
        for column in (0..width).step_by(WIDE) {
            let mut sums = [[T::ZERO; WIDE]; ROWS];
            for first in (0..n).step_by(TERMS) {
                let mut some = [[T::ZERO; WIDE]; ROWS];
                for k in first..n.min(first + TERMS) {
                    let row: &[T; WIDE] = values[k * width + column..][..WIDE].try_into().expect("a tile");
                    for (i, some) in some.iter_mut().enumerate() {
                        let a = from[i * width + k];
                        *some = array(|j| fma::<T, LEVEL>(a, row[j], some[j]));
                    }
                }
                for (sum, some) in sums.iter_mut().zip(&some) {
                    *sum = array(|j| sum[j] + some[j]);
                }
            }
            for (i, sum) in sums.iter().enumerate() {
                to[i * width + column..][..WIDE].copy_from_slice(sum);
            }
        }
    }
}
