//! Coefficients of the Chebyshev expansion of e^{a(P − I)}, and the integrals in its error bound.
//!
//! With w_k = e^{−a} I_k(a), where I_k are the modified Bessel functions,
//!
//! e^{a(P − I)} = w_0 T_0(P) + 2 Σ_{k ≥ 1} w_k T_k(P).
//!
//! Let S be the difference of two independent Poisson variables of mean a/2. Then w_k is the
//! probability that S = k (Skellam 1946). So w_0 + 2 Σ w_k = 1, and
//!
//! ∫₀ᵃ e^{−s} I_k(s) ds = 2 Σ_{j > k} (j − k) w_j = E (|S| − k)⁺, see `docs/certificate.md`.
//!
//! # Tail
//! From E e^{hS} = e^{a(cosh h − 1)} follows P(S ≥ k) ≤ e^{f(k)} with f(k) = a(cosh h − 1) − hk,
//! sinh h = k/a (Chernoff). M is the first k with e^{f(k)} ≤ 2⁻¹⁰⁰.
//!
//! # Rounding
//! Weights recur downwards by c_{j−1} = c_{j+1} + (2j/a) c_j from c_{M+1} = 0 and c_M = 1
//! (J. C. P. Miller 1952). They are divided by c_0 + 2 Σ c_j. The exact solution of this recurrence
//! is a multiple of I_j + μ (−1)^j K_j with |μ| = I_{M+1} / K_{M+1}. K_j increases with j, so the
//! second term is at most I_{M+1}. Each w_j is therefore met to a relative 3 (M + 1) e^{f(M)} and
//! an absolute 2 e^{f(M)}.
//!
//! All terms are positive. A step in double words has a relative error of 26u², so M steps have one
//! below 2⁻⁷⁰ for M below 2²⁵. The final rounding to a double adds u (1 + 2⁻⁸).

use crate::numerics::double_word::DoubleWord;

/// Factor by which upper bounds exceed computed sums of weights.
const MARGIN: f64 = 1.0 + 1e-9;

/// Coefficients of the Chebyshev expansion of e^{a(P − I)}, for one number a = αt.
#[derive(Debug)]
pub(crate) struct Series {
    /// w_0, 2 w_1, 2 w_2, … up to degree M, with w_k = e^{−a} I_k(a).
    pub(crate) coefficients: Vec<f64>,
    /// Upper bounds of E (|S| − k)⁺ for k = 0 … M + 1, within a relative 10⁻⁹ plus 10⁻¹⁵.
    pub(crate) excess: Vec<f64>,
    /// Bound of the sum of all coefficients' errors, without their relative rounding to doubles.
    pub(crate) doubt: f64,
}

/// Range of a for which the coefficients can be computed.
pub(crate) const RANGE: std::ops::RangeInclusive<f64> = 1e-3..=1e10;

/// Returns f(k) = a(cosh h − 1) − hk with sinh h = k/a, an upper bound of ln P(S ≥ k).
fn ln_tail(a: f64, k: f64) -> f64 {
    k * k / (a.hypot(k) + a) - k * (k / a).asinh()
}

/// Returns the least k ≥ 1 for which f(k), see [`ln_tail`], is at most `ln`.
fn first_below(a: f64, ln: f64) -> u64 {
    let mut end = 1;
    while ln_tail(a, end as f64) > ln {
        end *= 2;
    }
    let mut start = end / 2;
    while end - start > 1 {
        let middle = start + (end - start) / 2;
        if ln_tail(a, middle as f64) > ln { start = middle } else { end = middle }
    }
    end
}

/// Estimates the matrix–vector products for an error of `epsilon`, if norms stay at most 1.
pub(crate) fn products(a: f64, epsilon: f64) -> u64 {
    first_below(a, epsilon.ln() - 0.5 * a.max(1.0).ln()) + 2
}

impl Series {
    /// Returns ∫ c_k(s) ds from 0 to a, within a relative 10⁻⁹.
    pub(crate) fn integral(&self, k: usize) -> f64 {
        self.excess[k] / MARGIN * if k == 0 { 1.0 } else { 2.0 }
    }

    /// Computes the coefficients for an `a` within [`RANGE`].
    pub(crate) fn new(a: f64) -> Self {
        assert!(RANGE.contains(&a), "a = {a:e} has no coefficients here");
        let most = first_below(a, -100.0 * std::f64::consts::LN_2);
        let zero = DoubleWord::from(0.0);
        let mut c = vec![zero; most as usize + 2];
        c[most as usize] = DoubleWord::from(1.0);
        let mut sum = zero;
        for j in (1..=most).rev() {
            let here = c[j as usize];
            sum = sum + here;
            c[j as usize - 1] = c[j as usize + 1] + here * DoubleWord::from(2 * j) / DoubleWord::from(a);
        }
        let scale = DoubleWord::from(1.0) / (sum + sum + c[0]);
        let weights: Vec<f64> = c.into_iter().map(|c| (c * scale).hi).collect();

        let count = most as f64 + 1.0;
        let tail = 1.01 * ln_tail(a, most as f64).exp();
        // The rounding of these sums of positive terms is below 2 (M + 1) u. E (|S| − k)⁺ beyond M
        // is at most 2 (M + 1/h) e^{f(M)}, and 1/h is at most M.
        let mut excess = vec![20.0 * count * count * tail; most as usize + 2];
        let (mut above, mut value) = (0.0, 0.0);
        for k in (0..=most as usize).rev() {
            above += weights[k + 1];
            value += 2.0 * above;
            excess[k] += value * MARGIN;
        }
        let mut coefficients = weights;
        coefficients.pop();
        coefficients.iter_mut().skip(1).for_each(|w| *w *= 2.0);
        Self { coefficients, excess, doubt: 16.0 * count * tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns I_k(a) by its power series, which has no negative term.
    fn bessel(k: i32, a: f64) -> f64 {
        let mut term = (1..=k).fold(1.0, |term, i| term * 0.5 * a / f64::from(i));
        let (mut sum, mut j) = (0.0, 0.0);
        while term > 1e-18 * sum {
            sum += term;
            j += 1.0;
            term *= 0.25 * a * a / (j * (j + f64::from(k)));
        }
        sum
    }

    #[test]
    fn coefficients_are_those_of_the_power_series() {
        for a in [1e-3, 0.7, 5.0, 60.0] {
            let series = Series::new(a);
            for (k, &c) in series.coefficients.iter().enumerate().take(40) {
                let wanted = (-a).exp() * bessel(k as i32, a) * if k == 0 { 1.0 } else { 2.0 };
                assert!(
                    (c - wanted).abs() <= 1e-13 * wanted + 1e-28,
                    "a = {a}, k = {k}: {c:e}, not {wanted:e}"
                );
            }
        }
    }

    #[test]
    fn excesses_are_the_integrals() {
        // Simpson's rule in x = √s, where the integrand is smooth.
        let a: f64 = 9.0;
        let series = Series::new(a);
        for k in [0, 1, 4, 11] {
            let (steps, end) = (400, a.sqrt());
            let value = |i: i32| {
                let x = end * f64::from(i) / f64::from(steps);
                2.0 * x * (-x * x).exp() * bessel(k, x * x)
            };
            let inside: f64 = (1..steps).map(|i| f64::from(2 + 2 * (i % 2)) * value(i)).sum();
            let integral = (value(0) + inside + value(steps)) * end / f64::from(3 * steps);
            let excess = series.excess[k as usize];
            assert!((excess - integral).abs() <= 1e-8 * integral, "k = {k}: {excess:e}, not {integral:e}");
        }
        // E |S| = a (w_0 + w_1).
        for a in [0.02, 1e4, 3e7] {
            let Series { coefficients, excess, .. } = Series::new(a);
            let wanted = a * (coefficients[0] + 0.5 * coefficients[1]);
            assert!(excess[0] >= wanted && excess[0] <= wanted * (1.0 + 1e-8), "a = {a}");
            let all: f64 = coefficients.iter().sum();
            assert!((all - 1.0).abs() < 1e-12, "a = {a}: {all}");
        }
    }
}
