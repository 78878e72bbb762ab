//! Tests of Poisson windows and weights against closed forms and high-precision values.

use super::*;
use crate::transient::chain::transitions::exit_rate;
use proptest::prelude::*;

/// Returns the compensated sum.
fn sum(values: &[f64]) -> f64 {
    exit_rate(values.iter().copied())
}

fn assert_relative(actual: f64, expected: f64, tolerance: f64, what: &str) {
    let error = ((actual - expected) / expected).abs();
    assert!(error <= tolerance, "{what}: {actual:e} instead of {expected:e}, relative error {error:e}");
}

/// Expected: the f64 nearest to exp(−λ + k ln λ − ln k!), evaluated with 50 digits by mpmath 1.3.
#[test]
fn weights_have_known_values() {
    for (lambda, k, expected) in [
        (0.001, 0, 0.999_000_499_833_375),
        (0.001, 3, 1.665_000_833_055_625e-10),
        (1.0, 0, 0.367_879_441_171_442_33),
        (1.0, 9, 1.013_777_119_630_297_4e-6),
        (25.0, 25, 0.079_522_951_468_065_44),
        (25.0, 4, 2.260_407_530_104_821_2e-7),
        (25.0, 52, 8.489_263_445_518_009e-7),
        (1e4, 10_000, 0.003_989_389_558_962_826),
        (1e4, 9_476, 3.493_751_169_035_443_6e-9),
        (1e4, 10_480, 4.632_710_232_375_281e-8),
        (123_456.789, 123_456, 0.001_135_409_639_212_815),
        (123_456.789, 125_135, 1.320_637_810_841_707e-8),
        (1e8, 100_000_000, 3.989_422_800_689_808e-5),
        (1e8, 99_947_144, 3.414_994_978_937_006e-11),
        (1e8, 100_047_668, 4.650_372_891_524_32e-10),
    ] {
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
    // mpmath 1.3, sums of (j − k) p_j with 50 digits.
    for (lambda, k, expected) in [
        (25.0, 20, 5.370_475_201_741_574_4),
        (25.0, 25, 1.988_073_786_701_636_3),
        (25.0, 60, 1.416_091_073_343_176e-9),
        (1e4, 9_900, 108.290_948_840_878_64),
        (1e4, 10_000, 39.893_895_589_628_26),
        (1e4, 10_600, 2.280_199_927_735_073_2e-8),
        (1e4, 13_000, 2.098_536_283_586_399_7e-180),
        (1e8, 100_000_000, 3_989.422_800_689_808),
    ] {
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
