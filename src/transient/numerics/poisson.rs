//! Poisson probabilities p_k(λ) = e^−λ λ^k / k!: the window of terms for a given ε, and their
//! weights.
//!
//! The transient distribution is π(t) = Σ_k p_k(αt) π(0) P^k. Each term takes one matrix–vector
//! product, so the cost of a run is the last term `right` of its window. Terms before `left` are
//! computed but not accumulated.
//!
//! # Window
//! The end points are exact quantiles. The bounds of B. L. Fox and P. W. Glynn, "Computing Poisson
//! probabilities" (1988), doi:10.1145/42404.42409 give larger windows. Tails are evaluated as p_k
//! times a continued fraction,
//!
//! P(N > k) = p_k λ / (k+1−λ + 1·λ/(k+2−λ + 2·λ/(k+3−λ + …))), k + 1 > λ,\
//! P(N ≤ k) = p_k λ / (λ−k + 1·k/(λ−k+2 + 2(k−1)/(λ−k+4 + …))), k < λ
//!
//! (the incomplete gamma functions P(k+1, λ) and Q(k+1, λ); see W. Gautschi, "A computational
//! procedure for incomplete gamma functions" (1979), doi:10.1145/355853.355863). All elements are
//! positive. So nothing cancels, and two consecutive convergents enclose the value.
//!
//! ln p_k is computed by Loader's saddle point formula (C. Loader, "Fast and accurate computation
//! of binomial probabilities", 2000): −D(k, λ) − δ(k) − ½ ln 2πk. Here D = k ln(k/λ) + λ − k ≥ 0 is
//! the deviance, and δ is the error of Stirling's formula. The formula stays accurate for large λ
//! and cannot underflow.
//!
//! # Rounding of the tails
//! Let u = 2⁻⁵³, and let ln and exp be within 2 ulp.
//!
//! * D has a relative error below 40u. For |k−λ| < (k+λ)/3 it is a series in (k−λ)/(k+λ) in which
//!   the first term dominates, and k−λ is formed with one rounding. Beyond that range
//!   k|ln(k/λ)| + |k−λ| is at most 6.3 D, and the roundings are at most 5u of it.
//! * δ and ½ ln 2πk add less than 128u.
//! * The numerator and the denominator of a convergent are polynomials in the elements of the
//!   fraction with positive coefficients. So n elements with at most 6u each make 12n·u.
//! * The convergent is a product of n quotients, which makes 2n·u more.
//! * The iteration ends at a relative change of 2⁻⁴⁸ = 32u, known to within 24n·u. This change
//!   bounds the distance of the convergent from the value.
//!
//! So u·(64(|ln p_k| + |ln λ| + |ln G|) + 1024 + 48n) bounds the error of the logarithm of a tail
//! p_k λ / G. Every comparison with ε and every returned tail includes it. It is about 10⁻¹³ of the
//! tail.
//!
//! # Rounding of the weights
//! The recurrence starts at the mode ⌊λ⌋ with the weight 2⁶⁰⁰. With this start the smallest weight
//! of a window is a normal number for any ε > 0. Weights recur outwards by w_{k+1} = w_k λ/(k+1) in
//! double-word arithmetic. Its product and quotient have relative errors of 7u² and 16u²
//! (M. Joldes, J.-M. Muller, V. Popescu, "Tight and rigorous error bounds for basic building blocks
//! of double-word arithmetic" (2017), doi:10.1145/3121432). A window has at most 2³³ terms for
//! λ ≤ 2⁵³. So the error of a weight is below 2³³ · 24u² < 2⁻⁶⁸ before it is rounded to f64.
//!
//! The weights are divided by the sum of *all* weights. That sum continues beyond the window on
//! either side until the remainder is below 2⁻⁶⁶ of the sum. The remainder is bounded by the
//! geometric series w_k ρ/(1−ρ). Each ŵ_k is then p_k (1 + θ) with |θ| ≤ u (1 + 2⁻⁸), plus at most
//! 2⁻¹⁰⁷¹ if parts of p_k are not normal numbers. Hence for every λ
//!
//! Σ|ŵ_k − p_k| ≤ u (1 + 2⁻⁸) + 2⁻¹⁰⁷¹ · terms.
//!
//! A recurrence in f64 from a rounded p_m would have errors that grow as u·√λ.
//!
//! All bounds hold for λ as given. A relative error η of λ moves the distribution by at most
//! η √(2λ/e) in l1 (2λη times the largest p_k). It is equivalent to a relative error η of t.

use crate::numerics::double_word::DoubleWord;

/// Unit roundoff of f64, 2⁻⁵³.
const U: f64 = f64::EPSILON / 2.0;

/// Largest supported λ, 2⁵³: up to it all integers are exact in f64.
pub const MAX_LAMBDA: f64 = 9_007_199_254_740_992.0;

/// Share of ε for the left tail. It is small, as a larger `left` saves accumulations only.
const LEFT_SHARE: f64 = 1.0 / 16.0;

/// Share of ε for the right tail, fixed so that a smaller ε never gives a narrower window.
const RIGHT_SHARE: f64 = 1.0 - LEFT_SHARE;

/// Weight of the mode before normalization, 2⁶⁰⁰.
const MODE_WEIGHT: f64 = 4.149_515_568_880_993e180;

/// Terms left … right of the Poisson distribution of N: all but a mass of at most ε.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Index of the first term that is summed.
    pub left: u64,
    /// Last term: the number of matrix–vector products.
    pub right: u64,
    /// Mean λ = αt of N.
    pub lambda: f64,
    /// Upper bound of P(N < left) + P(N > right), at most ε.
    truncation: f64,
    /// Upper bound of P(N > right).
    above: f64,
}

/// Weights of the terms of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Index of the term with the first weight.
    pub left: u64,
    /// Poisson probabilities p_k for k = left, left + 1, …
    pub values: Vec<f64>,
    /// Proved upper bound of the mass outside of the window, at most ε.
    pub truncation: f64,
    /// Proved bound of Σ|ŵ_k − p_k| over the window, the rounding error of the weights ŵ_k.
    pub rounding: f64,
    /// Upper bound of P(N > right).
    above: f64,
}

impl Window {
    /// Computes the window with P(N < left) + P(N > right) ≤ `epsilon`.
    ///
    /// `left` is the last term with P(N < left) ≤ ε/16, and `right` the first with
    /// P(N > right) ≤ 15ε/16.
    ///
    /// # Panics
    /// Unless λ is in 0 … [`MAX_LAMBDA`] and ε strictly between 0 and 1.
    pub fn new(lambda: f64, epsilon: f64) -> Self {
        check_lambda(lambda);
        assert!(
            epsilon > 0.0 && epsilon < 1.0,
            "epsilon = {epsilon} is not between 0 and 1 (lambda = {lambda})"
        );
        if lambda == 0.0 {
            return Self::of_step(0.0);
        }
        let ln_epsilon = epsilon.ln();
        let floor = lambda as u64;

        // P(N ≤ ⌊λ⌋) exceeds 1/16, so `left` is at most ⌊λ⌋. The share is reduced by the rounding
        // of the logarithms on this side of the comparisons.
        let share = |part: f64| ln_epsilon + part.ln() - 8.0 * U * (1.0 + ln_epsilon.abs());
        let (left_share, right_share) = (share(LEFT_SHARE), share(RIGHT_SHARE));
        let left = partition_point(0, floor, |left| ln_at_most(lambda, left).upper() > left_share);
        let fits = |right: u64| ln_above(lambda, right).upper() <= right_share;
        let (mut end, mut step) = (floor + 1, lambda.sqrt() as u64 + 1);
        while !fits(end) {
            end += step;
            step *= 2;
        }
        let right = partition_point(left, end, fits);

        // A tail below the range of f64 is still positive.
        let tail = |ln: f64| (ln.exp() * (1.0 + 8.0 * U)).max(f64::from_bits(1)).min(epsilon);
        let above = tail(ln_above(lambda, right).upper());
        let below = if left == 0 { 0.0 } else { tail(ln_at_most(lambda, left - 1).upper()) };
        Self { left, right, lambda, truncation: (below + above).min(epsilon), above }
    }

    /// Returns the window of exactly `steps` steps, a whole number: one term of weight 1.
    pub(crate) fn of_step(steps: f64) -> Self {
        let k = steps as u64;
        Self { left: k, right: k, lambda: steps, truncation: 0.0, above: 0.0 }
    }

    /// True for one term of weight 1. Other windows omit some terms.
    pub(crate) fn is_of_step(&self) -> bool {
        self.truncation == 0.0
    }

    /// Returns a proved upper bound of P(N < left) + P(N > right), at most ε.
    pub fn truncation(&self) -> f64 {
        self.truncation
    }

    /// Returns the number of terms.
    pub fn terms(&self) -> u64 {
        self.right - self.left + 1
    }

    /// Returns the rounding error bound of the [weights](Self::weights), before they are computed.
    pub(crate) fn rounding(&self) -> f64 {
        if self.is_of_step() {
            0.0
        } else {
            U * (1.0 + 1.0 / 256.0) + self.terms() as f64 * f64::from_bits(8)
        }
    }

    /// Returns the rounding error bound of the [weights from below](Self::weights_below).
    pub(crate) fn rounding_below(&self) -> f64 {
        self.rounding() + (4.0 * U + self.terms() as f64 * (-64f64).exp2())
    }

    /// Computes the weights of all terms: 8 bytes each, and twice that during the computation.
    pub fn weights(&self) -> Weights {
        self.weights_of(0.0)
    }

    /// Computes weights at λ + `low`, each at most the exact one; λ must be the nearest double.
    pub fn weights_below(&self, low: f64) -> Weights {
        let mut weights = self.weights_of(low);
        // Each is within a relative u (1 + 2⁻⁸) of p_k. The second double below it is smaller by a
        // relative 2u at least.
        weights.values.iter_mut().for_each(|w| *w = w.next_down().next_down().max(0.0));
        weights.rounding = self.rounding_below();
        weights
    }

    fn weights_of(&self, low: f64) -> Weights {
        let len = self.terms() as usize;
        let mut weights = Weights {
            left: self.left,
            values: vec![0.0; len],
            truncation: self.truncation,
            rounding: self.rounding(),
            above: self.above,
        };
        if self.is_of_step() {
            weights.values[0] = 1.0;
            return weights;
        }
        let mut lows = vec![0.0; len];
        let mut keep = |k: u64, w: DoubleWord| {
            if (self.left..=self.right).contains(&k) {
                let place = (k - self.left) as usize;
                (weights.values[place], lows[place]) = (w.hi, w.lo);
            }
        };
        let lambda = DoubleWord { hi: self.lambda, lo: low };
        // Bound of the remainder of the sum on either side, with one bit for the roundings of the
        // test.
        let negligible = MODE_WEIGHT * (-67.0f64).exp2();
        let mode = self.lambda as u64;
        let mut sum = DoubleWord::from(0.0);

        let (mut k, mut w) = (mode, DoubleWord::from(MODE_WEIGHT));
        loop {
            keep(k, w);
            sum = sum + w;
            if k >= self.right && w.hi * self.lambda <= negligible * excess(k + 1, self.lambda) {
                break;
            }
            k += 1;
            w = w * lambda / DoubleWord::from(k);
        }
        let (mut k, mut w) = (mode, DoubleWord::from(MODE_WEIGHT));
        while k > 0 && (k > self.left || w.hi * k as f64 > negligible * -excess(k, self.lambda)) {
            w = w * DoubleWord::from(k) / lambda;
            k -= 1;
            keep(k, w);
            sum = sum + w;
        }
        let scale = DoubleWord::from(1.0) / sum;
        for (hi, &lo) in weights.values.iter_mut().zip(&lows) {
            *hi = (DoubleWord { hi: *hi, lo } * scale).hi;
        }
        weights
    }
}

impl Weights {
    /// Returns P(N > right), and a bound of its error.
    pub fn above(&self) -> (f64, f64) {
        // The relative excess is about 10⁻¹³ (module docs). A value that has underflowed is less
        // accurate.
        (self.above, 1e-11 * self.above + f64::MIN_POSITIVE)
    }

    /// Returns P(N > k) for k = left−1, left, …, right: one value more than there are weights.
    ///
    /// Cumulative rewards are (1/α) Σ_k P(N > k) c_k over the terms' rewards c_k. For terms before
    /// `left`, P(N > k) is between the first value and 1.
    ///
    /// Sums are double words, and they start with the upper bound of P(N > right). Each value is
    /// within `rounding` + u of P(N > k), plus the excess of that bound (about 10⁻¹² of it, see the
    /// module docs).
    pub fn tails(&self) -> Vec<f64> {
        let mut tails = vec![0.0; self.values.len() + 1];
        let mut sum = DoubleWord::from(self.above);
        tails[self.values.len()] = sum.hi;
        for (tail, &weight) in tails.iter_mut().zip(&self.values).rev() {
            sum = sum + DoubleWord::from(weight);
            *tail = sum.hi;
        }
        tails
    }
}

/// Returns an upper bound of E\[(N − k)⁺\], the expected number of steps after step k.
///
/// The relative excess is at most the rounding in the module docs, plus the smallest positive
/// number.
///
/// E\[(N − k)⁺\] = λ P(N ≥ k) − k P(N > k). Let H and T be the fractions after the first element of
/// P(N > k) and of P(N ≤ k). The value is then λ p_k (1 + H) / (k+1−λ + H) for k + 1 > λ, and
/// (λ − k) + λ p_k T / (λ−k + T) otherwise. These are sums and products of positive numbers.
///
/// # Panics
/// Unless λ is in 0 … [`MAX_LAMBDA`].
pub fn expected_excess(lambda: f64, k: u64) -> f64 {
    check_lambda(lambda);
    if lambda == 0.0 {
        return 0.0;
    }
    let (ln_p, ln_lambda) = (ln_probability(lambda, k), lambda.ln());
    // λ p_k with the error bounds of all its factors: a sum of logarithms, since p_k may underflow.
    let scale = |fraction: &Fraction| (ln_p + ln_lambda + slack(&[ln_p, ln_lambda], fraction.elements)).exp();
    let first = excess(k + 1, lambda);
    let value = if first > 0.0 {
        let h = above_fraction(lambda, k);
        scale(&h) * ((1.0 + h.value) / (first + h.value))
    } else {
        let (t, d) = (at_most_fraction(lambda, k), -excess(k, lambda));
        d + scale(&t) * (t.value / (d + t.value))
    };
    value * (1.0 + 8.0 * U) + f64::from_bits(1)
}

fn check_lambda(lambda: f64) {
    assert!((0.0..=MAX_LAMBDA).contains(&lambda), "lambda = {lambda} is not in 0 … {MAX_LAMBDA}");
}

/// Returns the first number in `start..end` from which on `found` holds, or `end`.
fn partition_point(mut start: u64, mut end: u64, found: impl Fn(u64) -> bool) -> u64 {
    while start < end {
        let middle = start + (end - start) / 2;
        if found(middle) {
            end = middle;
        } else {
            start = middle + 1;
        }
    }
    start
}

/// Returns k − λ with one rounding, also if k is not representable as f64.
fn excess(k: u64, lambda: f64) -> f64 {
    let floor = lambda.floor();
    // λ ≤ 2⁵³, so ⌊λ⌋ fits into a u64. The integer difference is rounded only if it is far above
    // 2⁵³; the fraction of λ is then negligible.
    (i128::from(k) - floor as i128) as f64 - (lambda - floor)
}

/// Natural logarithm of a number, with a bound of its absolute error.
#[derive(Debug, Clone, Copy)]
struct Ln {
    value: f64,
    error: f64,
}

impl Ln {
    fn upper(self) -> f64 {
        self.value + self.error
    }

    /// Returns ln(1 − e^x) for a probability e^x below 1/2; its relative error does not grow there.
    fn complement(self) -> Self {
        Self { value: (-self.value.exp_m1()).ln(), error: 2.0 * self.error + 16.0 * U }
    }
}

/// Returns the error bound of a tail's logarithm (module docs, "Rounding of the tails").
fn slack(logarithms: &[f64], elements: u64) -> f64 {
    U * (64.0 * logarithms.iter().map(|ln| ln.abs()).sum::<f64>() + 1024.0 + 48.0 * elements as f64)
}

/// Returns ln P(N > k).
fn ln_above(lambda: f64, k: u64) -> Ln {
    let first = excess(k + 1, lambda);
    if first <= 0.0 {
        // k ≤ λ − 1: the median of N is above λ − ln 2, so P(N ≤ k) < 1/2.
        return ln_at_most(lambda, k).complement();
    }
    let h = above_fraction(lambda, k);
    tail(lambda, k, first, h)
}

/// Returns ln P(N ≤ k) for k ≤ λ − 1.
fn ln_at_most(lambda: f64, k: u64) -> Ln {
    debug_assert!(excess(k + 1, lambda) <= 0.0, "k = {k} is too near lambda = {lambda}");
    tail(lambda, k, -excess(k, lambda), at_most_fraction(lambda, k))
}

/// Returns ln(p_k λ / (first + fraction)).
fn tail(lambda: f64, k: u64, first: f64, fraction: Fraction) -> Ln {
    let parts = [ln_probability(lambda, k), lambda.ln(), -(first + fraction.value).ln()];
    Ln { value: parts.iter().sum(), error: slack(&parts, fraction.elements) }
}

/// Value of a continued fraction, and the number of its elements that were evaluated.
struct Fraction {
    value: f64,
    elements: u64,
}

/// Returns 1·λ/(k+2−λ + 2·λ/(k+3−λ + …)), k + 1 > λ.
fn above_fraction(lambda: f64, k: u64) -> Fraction {
    let first = excess(k + 1, lambda);
    continued_fraction(|n| n * lambda, |n| first + n)
}

/// Returns 1·k/(λ−k+2 + 2(k−1)/(λ−k+4 + …)), k < λ; the fraction ends with element k.
fn at_most_fraction(lambda: f64, k: u64) -> Fraction {
    let (first, end) = (-excess(k, lambda), k as f64 + 1.0);
    continued_fraction(|n| n * (end - n).max(0.0), |n| first + 2.0 * n)
}

/// Evaluates a(1)/(b(1) + a(2)/(b(2) + …)) for b > 0 and a ≥ 0, up to a = 0 (modified Lentz).
fn continued_fraction(a: impl Fn(f64) -> f64, b: impl Fn(f64) -> f64) -> Fraction {
    const CHANGE: f64 = 32.0 * U;
    let (numerator, mut value) = (a(1.0), b(1.0));
    let (mut c, mut d) = (value, 0.0);
    let mut elements = 1;
    loop {
        elements += 1;
        let n = elements as f64;
        let (a, b) = (a(n), b(n));
        d = 1.0 / (b + a * d);
        c = b + a / c;
        let change = c * d;
        value *= change;
        if (change - 1.0).abs() <= CHANGE {
            return Fraction { value: numerator / value, elements };
        }
    }
}

/// Returns ln p_k(λ), λ > 0.
fn ln_probability(lambda: f64, k: u64) -> f64 {
    if k == 0 {
        return -lambda;
    }
    let x = k as f64;
    -deviance(lambda, k) - stirling_error(k) - 0.5 * (std::f64::consts::TAU * x).ln()
}

/// Returns the deviance D(k, λ) = k ln(k/λ) + λ − k, k > 0.
pub(crate) fn deviance(lambda: f64, k: u64) -> f64 {
    let (x, d) = (k as f64, excess(k, lambda));
    if d.abs() >= (x + lambda) / 3.0 {
        return x * (x / lambda).ln() - d;
    }
    // With v = (k−λ)/(k+λ), ln(k/λ) = 2(v + v³/3 + v⁵/5 + …). The first term of k ln(k/λ) minus k−λ
    // is (k−λ)v.
    let v = d / (x + lambda);
    let (mut sum, mut power, mut j) = (d * v, 2.0 * x * v, 1.0);
    loop {
        power *= v * v;
        j += 2.0;
        let next = sum + power / j;
        if next == sum {
            return sum;
        }
        sum = next;
    }
}

/// Returns δ(k) = ln k! − (k + ½) ln k + k − ½ ln 2π, k > 0.
fn stirling_error(k: u64) -> f64 {
    /// δ(1) … δ(15), evaluated with 40 digits.
    const SMALL: [f64; 15] = [
        0.081_061_466_795_327_26,
        0.041_340_695_955_409_3,
        0.027_677_925_684_998_34,
        0.020_790_672_103_765_093,
        0.016_644_691_189_821_193,
        0.013_876_128_823_070_748,
        0.011_896_709_945_891_77,
        0.010_411_265_261_972_096,
        0.009_255_462_182_712_733,
        0.008_330_563_433_362_87,
        0.007_573_675_487_951_841,
        0.006_942_840_107_209_53,
        0.006_408_994_188_004_207,
        0.005_951_370_112_758_848,
        0.005_554_733_551_962_801,
    ];
    if let Some(&small) = SMALL.get(k as usize - 1) {
        return small;
    }
    // The error of Stirling's series is below its first omitted term, 691/(360360 k¹¹) < 2⁻⁵² at
    // k = 16.
    let x = k as f64;
    let y = 1.0 / (x * x);
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - y / 1188.0) * y) * y) * y) / x
}

#[cfg(test)]
mod tests;
