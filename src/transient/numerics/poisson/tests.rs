//! Tests of Poisson windows and weights against closed forms and high-precision values.

use super::*;
use crate::transient::chain::transitions::exit_rate;
use proptest::prelude::*;

/// Returns the compensated sum.
fn sum(values: &[f64]) -> f64 {
    exit_rate(values.iter().copied())
}

/// Returns λ, k and the value of each line in a table of `known.txt`.
fn known(table: usize) -> impl Iterator<Item = (f64, u64, f64)> {
    let table = include_str!("known.txt").split("\n\n").nth(table).expect("a table");
    table.lines().skip(1).map(|line| {
        let [lambda, k, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<f64>().expect("a number");
        (number(lambda), k.parse().expect("a whole number"), number(value))
    })
}

fn assert_relative(actual: f64, expected: f64, tolerance: f64, what: &str) {
    let error = ((actual - expected) / expected).abs();
    assert!(error <= tolerance, "{what}: {actual:e} instead of {expected:e}, relative error {error:e}");
}

#[test]
fn weights_have_known_values() {
    for (lambda, k, expected) in known(0) {
        let weights = Window::new(lambda, 1e-20).weights();
        let weight = weights.values[(k - weights.left) as usize];
        // The bound of each weight, and the rounding of the constant to f64.
        assert_relative(weight, expected, U * (2.0 + 1.0 / 128.0), &format!("p_{k}({lambda})"));
        assert!(weights.rounding <= U * 1.01, "{}", weights.rounding);
    }
}

#[test]
fn right_is_the_quantile() {
    // Exact quantiles of 15/16 · 10⁻⁶. Up to λ = 10³ they equal those of 10⁻⁶; the next ones of
    // 10⁻⁶ are 10479 and 1004757.
    for (lambda, right) in [(0.01, 2), (1.0, 9), (25.0, 52), (100.0, 151), (1e3, 1154), (1e4, 10_480)] {
        assert_eq!(Window::new(lambda, 1e-6).right, right, "lambda = {lambda}");
    }
    assert_eq!(Window::new(1e6, 1e-6).right, 1_004_770);
    assert_eq!(Window::new(1e6, 1e-6).left, 994_718);
}

#[test]
fn no_time_passes() {
    let window = Window::new(0.0, 1e-6);
    assert_eq!((window.left, window.right, window.truncation()), (0, 0, 0.0));
    let weights = window.weights();
    assert_eq!((&weights.values[..], weights.truncation, weights.rounding), (&[1.0][..], 0.0, 0.0));
    assert_eq!(weights.tails(), [1.0, 0.0]);
    assert_eq!(expected_excess(0.0, 0), 0.0);
}

#[test]
fn extremes_of_the_range() {
    for lambda in [1e-300, 1e-17, 1.0, 1e7] {
        for epsilon in [f64::from_bits(1), 1e-300, 1e-17, 0.99999] {
            let window = Window::new(lambda, epsilon);
            assert!(window.left <= window.right && window.truncation() <= epsilon, "{window:?}");
            let weights = window.weights();
            let mass = sum(&weights.values);
            assert!(
                mass <= 1.0 + 2.0 * U && mass + window.truncation() >= 1.0 - 4.0 * U,
                "{window:?}: {mass}"
            );
        }
    }
    // 3 · 10⁻³⁰⁰ is met by the first term, 3 · 10⁻³⁰¹ needs the second.
    assert_eq!(Window::new(1e-300, 3e-300).right, 0);
    assert_eq!(Window::new(1e-300, 3e-301).right, 1);
    // Above 2⁵³ term numbers are not exact in f64. The quantile of the normal distribution,
    // z(10⁻⁶·15/16) = 4.766 standard deviations, checks the magnitude.
    let window = Window::new(MAX_LAMBDA, 1e-6);
    let z = (window.right - MAX_LAMBDA as u64) as f64 / MAX_LAMBDA.sqrt();
    assert!((4.766..4.767).contains(&z), "{z}");
}

#[test]
fn expected_excess_has_known_values() {
    // E[(N − 0)⁺] = λ and E[(N − 1)⁺] = λ − 1 + e^−λ.
    for lambda in [1e-3, 0.5, 3.0, 100.0, 1e9] {
        assert_excess(lambda, 0, lambda);
    }
    for lambda in [0.5f64, 3.0, 40.0] {
        assert_excess(lambda, 1, lambda - 1.0 + (-lambda).exp());
    }
    for (lambda, k, expected) in known(1) {
        assert_excess(lambda, k, expected);
    }
    assert!(expected_excess(1e4, 20_000) < 1e-300);
    // Early termination at any k adds no more than this.
    for k in [0, 9_000, 9_999, 10_000, 10_001, 11_000] {
        let simple = (1e4 - k as f64).max(0.0) + 1e2;
        assert!(expected_excess(1e4, k) <= simple, "k = {k}");
    }
}

fn assert_excess(lambda: f64, k: u64, expected: f64) {
    let actual = expected_excess(lambda, k);
    // Never below, except for the rounding of the expected value itself.
    assert!(actual >= expected * (1.0 - 4.0 * U), "E(N - {k})+ at {lambda}: {actual:e} < {expected:e}");
    // Twice the error bound of the module docs: |ln p_k| < 1000 unless λ p_k is negligible, and
    // there are fewer than 10⁴ elements up to λ = 10⁸.
    let tolerance = 2.0 * U * (64.0 * (1e3 + 40.0) + 1024.0 + 48.0 * 1e4);
    assert_relative(actual, expected, tolerance, &format!("E(N - {k})+ at {lambda}"));
}

#[test]
fn tails_are_the_sums_from_the_right() {
    // λ = 2: P(N > 2) = 1 − 5e⁻², P(N > 1) = 1 − 3e⁻², P(N > 0) = 1 − e⁻².
    let weights = Window::new(2.0, 1e-18).weights();
    let tails = weights.tails();
    let e = (-2.0f64).exp();
    assert_eq!((weights.left, tails.len()), (0, weights.values.len() + 1));
    for (tail, expected) in tails.iter().zip([1.0, 1.0 - e, 1.0 - 3.0 * e, 1.0 - 5.0 * e]) {
        assert!((tail - expected).abs() <= 5.0 * U, "{tail} instead of {expected}");
    }
    let weights = Window::new(1e5, 1e-3).weights();
    let tails = weights.tails();
    approx::assert_abs_diff_eq!(tails[0], 1.0, epsilon = weights.truncation);
    assert!(*tails.last().unwrap() <= weights.truncation);
    assert!(tails.windows(2).all(|pair| pair[0] > pair[1]));
}

#[test]
fn arguments_out_of_range_are_refused() {
    for (lambda, epsilon) in [
        (-1.0, 0.5),
        (f64::NAN, 0.5),
        (f64::INFINITY, 0.5),
        (1e16, 0.5),
        (1.0, 0.0),
        (1.0, 1.0),
        (1.0, -1e-6),
        (1.0, f64::NAN),
    ] {
        let outcome = std::panic::catch_unwind(|| Window::new(lambda, epsilon));
        assert!(outcome.is_err(), "lambda = {lambda}, epsilon = {epsilon}");
    }
}

#[test]
fn double_words() {
    // (1 + 2⁻⁶⁰) · (1 + 2⁻⁶⁰) = 1 + 2⁻⁵⁹ + 2⁻¹²⁰, and back.
    let x = DoubleWord { hi: 1.0, lo: (-60.0f64).exp2() };
    let square = x * x;
    assert_eq!((square.hi, square.lo), (1.0, (-59.0f64).exp2()));
    let back = square / x;
    assert!(back.hi == 1.0 && (back.lo - x.lo).abs() <= 16.0 * U * U, "{back:?}");
    let third = DoubleWord::from(1.0) / DoubleWord::from(3u64);
    let one = third + third + third;
    assert!(((one.hi - 1.0) + one.lo).abs() <= 22.0 * U * U, "{one:?}");
    let odd = (1u64 << 53) + 1;
    assert_eq!(DoubleWord::from(odd).lo.abs(), 1.0);
}

proptest! {
    #[test]
    fn windows_hold_their_mass(exponent in -12.0..6.0f64, digits in -20.0..-0.01f64) {
        let (lambda, epsilon) = (10f64.powf(exponent), 10f64.powf(digits));
        let window = Window::new(lambda, epsilon);
        let weights = window.weights();
        prop_assert!(weights.truncation <= epsilon);
        let mass = sum(&weights.values);
        prop_assert!(mass <= 1.0 + weights.rounding + 2.0 * U, "{}", mass);
        prop_assert!(mass + weights.truncation >= 1.0 - weights.rounding - 2.0 * U, "{}", mass);
        // One term less on the right, or one more on the left, would exceed the bound: by the
        // weights, up to the rounding of the tails.
        let above = weights.tails()[weights.values.len()];
        let below = weights.truncation - above;
        let rounding = 2.0 * U * (64.0 * 100.0 + 1024.0 + 48.0 * 1e4);
        if window.right > window.left {
            prop_assert!(above + weights.values.last().unwrap() > RIGHT_SHARE * epsilon * (1.0 - rounding));
        }
        if lambda > 1.0 && window.left < lambda as u64 {
            prop_assert!(below + weights.values[0] > LEFT_SHARE * epsilon * (1.0 - rounding));
        }
    }

    #[test]
    fn windows_grow_as_epsilon_falls(exponent in -3.0..10.0f64, digits in -300.0..-0.01f64, less in 0.0..5.0f64) {
        let lambda = 10f64.powf(exponent);
        let wide = Window::new(lambda, 10f64.powf(digits - less));
        let narrow = Window::new(lambda, 10f64.powf(digits));
        prop_assert!(wide.left <= narrow.left && wide.right >= narrow.right);
    }

    #[test]
    fn excess_falls_by_the_tail(exponent in -3.0..5.0f64, z in -6.0..6.0f64) {
        // E[(N − k)⁺] − E[(N − k − 1)⁺] = P(N > k).
        let lambda = 10f64.powf(exponent);
        let k = (lambda + z * lambda.sqrt()).max(0.0) as u64;
        let (here, next) = (expected_excess(lambda, k), expected_excess(lambda, k + 1));
        let tail = ln_above(lambda, k);
        let slack = slack(&[lambda.min(1e3), 40.0], 1000) + 2.0 * tail.error;
        prop_assert!((here - next - tail.value.exp()).abs() <= 2.0 * slack * here, "{} {} {:?}", here, next, tail);
    }
}
