//! Transition matrices P(t) = e^{Qt} of many small chains.
//!
//! With the uniformization rate α and μ = αt/2^s ≤ 4, e^{Qt} is the 2^s-th power of
//! e^{−μ} Σ Bᵏ/k!, B = μI + Qt/2^s. The polynomial is evaluated by the scheme of M. S. Paterson and
//! L. J. Stockmeyer (SIAM Journal on Computing 2(1), 1973, doi:10.1137/0202007), in which every
//! number is at least 0.
//!
//! # Error
//! Norms are largest row sums of magnitudes. Let u = 2⁻⁵³. A product adds eight terms at a time, so
//! that an element passes at most g = 8 + ⌈n/8⌉ roundings, and its relative error is at most
//! γ = 1.01 g u. All numbers are at least 0, so errors relative to each element add up:
//!
//! * Rounding B changes Qt by at most 4 u αt in norm, and e^{Qt} by at most twice as much, αt ≤
//!   2⁵⁰.
//! * With p stored powers, term k of the polynomial has passed at most k products, and at most k +
//!   2 roundings of its coefficient, k/p + p + 1 of additions. Its weight is that of a Poisson
//!   distribution with mean μ, so the sum of all errors is at most 1.01 (μ (γ + 1.2 u) + (p + 3)
//!   u).
//! * The Poisson probability beyond the last term is left out.
//! * A square of a matrix with error e has at most 2e + e² + γ (1 + e)².
//! * Underflow adds less than 10⁻²⁵⁰.

use crate::kernel::cpu::simd::{Body, dispatch};
use crate::parallel::*;
use crate::util::inline_array::array;
use crate::{Invalid, Progress, Result};

use super::chain::transitions::exit_rate;

/// Rows and columns of a tile that stays in registers, and terms that are added at a time.
const ROWS: usize = 4;
const COLUMNS: usize = 16;
const TERMS: usize = 8;

/// Largest number of jumps that the polynomial serves.
const JUMPS: f64 = 4.0;

/// Number p of powers of B that are stored.
const POWERS: usize = 6;

/// Largest αt: beyond it, the rounding of Q alone would make the bound useless.
const MOST_JUMPS: f64 = (1u64 << 50) as f64;

const UNIT: f64 = 0.5 * f64::EPSILON;

/// Computes P(t) of each chain into `p`; returns a bound on the l1 error of each row.
///
/// `q` has the generator of each chain by rows, shape `[times.len(), n, n]`; the diagonal is
/// either minus the sum of the other entries, or 0. `p` has the same shape. Row i of P(t) has the
/// probabilities at time t from state i. About 14 matrix products serve up to 50 jumps, and one
/// more each doubling. Bounds grow with the number of jumps αt, about as 3 αt (n/8 + 8) 10⁻¹⁶.
///
/// # Errors
/// For arrays of other lengths, negative rates, a diagonal that does not balance its row, negative
/// or infinite times, and αt above 2⁵⁰; those of `progress`.
pub fn transition_matrices(
    n: usize,
    q: &[f64],
    times: &[f64],
    p: &mut [f64],
    progress: &mut dyn Progress,
) -> Result<Vec<f64>> {
    let (count, size) = (times.len(), n * n);
    if n == 0 || Some(q.len()) != size.checked_mul(count) || p.len() != q.len() {
        return Invalid::Shape.fail(format!(
            "arrays of {} and {} numbers for {count} times and {n} states: expected the shape \
             [times, states, states], with at least one state",
            q.len(),
            p.len()
        ));
    }
    let mut bounds = vec![0.0; count];
    // Some milliseconds of work between two reports.
    let group = (1 << 26_u32.saturating_sub(3 * n.ilog2())).max(64);
    for first in (0..count).step_by(group) {
        progress.progress(first as u64, count as u64)?;
        let chains = first..count.min(first + group);
        let some = &mut p[chains.start * size..chains.end * size];
        let work = some.par_chunks_mut(size).zip(&mut bounds[chains.clone()]);
        let failed = work.zip(chains).map(|((p, bound), k)| {
            let chain = Chain::new(k, n, &q[k * size..][..size], times[k])?;
            *bound = chain.exponential(p);
            Ok(())
        });
        failed.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>()?;
    }
    progress.progress(count as u64, count as u64)?;
    Ok(bounds)
}

/// Chain with its time.
struct Chain<'a> {
    n: usize,
    q: &'a [f64],
    exit: Vec<f64>,
    time: f64,
    /// Largest exit rate α.
    alpha: f64,
}

impl<'a> Chain<'a> {
    /// Checks chain number `k`.
    fn new(k: usize, n: usize, q: &'a [f64], time: f64) -> Result<Self> {
        if !(time >= 0.0 && time.is_finite()) {
            return Invalid::Time.fail(format!("time {k} is {time}: expected a finite number of at least 0"));
        }
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
            if row[i] != 0.0 && unbalanced {
                return Invalid::Number("q").fail(format!(
                    "chain {k}: the diagonal entry of state {i} is {}, and the rates sum to {sum}: \
                     expected minus the sum, or 0",
                    row[i]
                ));
            }
            exit.push(sum);
        }
        let alpha = exit.iter().copied().fold(0.0, f64::max);
        if alpha * time > MOST_JUMPS || (alpha * time).is_nan() {
            return Invalid::Time.fail(format!(
                "chain {k} makes up to {:e} jumps until time {time}: expected at most 2^50",
                alpha * time
            ));
        }
        Ok(Self { n, q, exit, time, alpha })
    }

    /// Computes P(t) into `p`, and returns a bound on the l1 error of each row.
    fn exponential(&self, p: &mut [f64]) -> f64 {
        let Self { n, time, alpha, .. } = *self;
        let jumps = alpha * time;
        let squarings = (jumps / JUMPS).log2().ceil().max(0.0) as i32;
        let h = time * f64::from(-squarings).exp2();
        let (b, mean) = self.step(h);
        let (terms, rest) = terms(mean, (-60f64 - f64::from(squarings)).exp2());
        // The scheme takes p − 1 products for the powers, and one for each further p terms.
        let power = (1..=POWERS).min_by_key(|p| p - 1 + terms / p).expect("a power");
        let mut powers = vec![b];
        for _ in 1..power {
            let next = powers[powers.len() - 1].product(&powers[0]);
            powers.push(next);
        }
        let coefficients: Vec<f64> =
            std::iter::successors(Some((1, (-mean).exp())), |&(k, a)| Some((k + 1, a / f64::from(k))))
                .map(|(_, a)| a)
                .take(terms + 1)
                .collect();
        let mut all = coefficients.chunks(power).rev();
        let mut sum = Dense::zero(n);
        sum.add(all.next().expect("the last terms"), &powers);
        for chunk in all {
            sum = sum.product(&powers[power - 1]);
            sum.add(chunk, &powers);
        }
        let product = 1.01 * (TERMS + n.div_ceil(TERMS)) as f64 * UNIT;
        let mut error = mean * (product + 1.2 * UNIT) + (power + 3) as f64 * UNIT + rest;
        for _ in 0..squarings {
            sum = sum.product(&sum);
            error = 2.0 * error + error * error + product * (1.0 + error).powi(2);
        }
        for (row, values) in p.chunks_exact_mut(n).zip(sum.values.chunks_exact(sum.width)) {
            // No probability is above 1.
            row.iter_mut().zip(values).for_each(|(p, value)| *p = value.min(1.0));
        }
        let shift = 2.0 * alpha * (time - h * f64::from(squarings).exp2()).abs();
        (1.01 * (error + 8.0 * UNIT * jumps + shift) + if jumps > 0.0 { 1e-250 } else { 0.0 }).min(2.0)
    }

    /// Returns B = μI + Qh and μ, the mean number of jumps in time h.
    fn step(&self, h: f64) -> (Dense, f64) {
        let (mut b, mean) = (Dense::zero(self.n), self.alpha * h);
        for (i, (row, rates)) in b.rows().zip(self.q.chunks_exact(self.n)).enumerate() {
            row.iter_mut().zip(rates).for_each(|(element, rate)| *element = rate * h);
            row[i] = mean - self.exit[i] * h;
        }
        (b, mean)
    }
}

/// Returns the number of Poisson terms whose tail is at most `most`, and a bound on the tail.
fn terms(mean: f64, most: f64) -> (usize, f64) {
    let mut weight = (-mean).exp();
    let mut last = 0;
    loop {
        // Weights of later terms fall at least by the factor mean / (last + 2).
        let next = weight * mean / (last + 1) as f64;
        let factor = mean / (last + 2) as f64;
        let tail = 1.01 * next / (1.0 - factor);
        if factor < 1.0 && tail <= most {
            return (last, tail);
        }
        (weight, last) = (next, last + 1);
    }
}

/// Square matrix by rows, which are filled up with zeros to vectors.
struct Dense {
    n: usize,
    width: usize,
    values: Vec<f64>,
}

impl Dense {
    fn zero(n: usize) -> Self {
        let width = n.next_multiple_of(8);
        Self { n, width, values: vec![0.0; width * n.next_multiple_of(ROWS)] }
    }

    fn rows(&mut self) -> impl Iterator<Item = &mut [f64]> {
        self.values.chunks_exact_mut(self.width).take(self.n)
    }

    /// Adds the polynomial with these coefficients of the identity and of the powers.
    fn add(&mut self, coefficients: &[f64], powers: &[Self]) {
        for (power, &a) in powers.iter().zip(&coefficients[1..]) {
            self.values.iter_mut().zip(&power.values).for_each(|(sum, x)| *sum = a.mul_add(*x, *sum));
        }
        for (i, row) in self.rows().enumerate() {
            row[i] += coefficients[0];
        }
    }

    fn product(&self, other: &Self) -> Self {
        let mut result = Self::zero(self.n);
        let rows = result.values.chunks_exact_mut(ROWS * self.width);
        for (to, from) in rows.zip(self.values.chunks_exact(ROWS * self.width)) {
            dispatch(Rows { to, from, other });
        }
        result
    }
}

/// Product of some rows with a matrix.
struct Rows<'a> {
    to: &'a mut [f64],
    from: &'a [f64],
    other: &'a Dense,
}

impl Body for Rows<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        match self.other.width.is_multiple_of(COLUMNS) {
            true => self.tiles::<COLUMNS>(),
            false => self.tiles::<{ COLUMNS / 2 }>(),
        }
    }
}

impl Rows<'_> {
    #[inline(always)]
    fn tiles<const WIDE: usize>(self) {
        let Dense { n, width, ref values } = *self.other;
        for column in (0..width).step_by(WIDE) {
            let mut sums = [[0.0; WIDE]; ROWS];
            for first in (0..n).step_by(TERMS) {
                let mut some = [[0.0; WIDE]; ROWS];
                for k in first..n.min(first + TERMS) {
                    let row: &[f64; WIDE] = values[k * width + column..][..WIDE].try_into().expect("a tile");
                    for (i, some) in some.iter_mut().enumerate() {
                        let a = self.from[i * width + k];
                        *some = array(|j| a.mul_add(row[j], some[j]));
                    }
                }
                for (sum, some) in sums.iter_mut().zip(&some) {
                    *sum = array(|j| sum[j] + some[j]);
                }
            }
            for (i, sum) in sums.iter().enumerate() {
                self.to[i * width + column..][..WIDE].copy_from_slice(sum);
            }
        }
    }
}
