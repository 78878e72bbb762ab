//! Powers of two, which keep numbers in the range of a precision without rounding them.

use rayon::prelude::*;

use super::unit::Number;
use crate::kernel::Precision;

/// 2^k, a normal number.
fn power(k: i32) -> f64 {
    f64::from_bits(((1023 + k) as u64) << 52)
}

/// The k of 2^k ≤ |v| < 2^(k+1); of 0 that of the least double.
pub(super) fn exponent(v: f64) -> i32 {
    let biased = |v: f64| (v.to_bits() >> 52 & 0x7ff) as i32;
    match biased(v) {
        0 if v == 0.0 => -1074,
        0 => biased(v * power(64)) - 64 - 1023,
        normal => normal - 1023,
    }
}

/// v·2^k, rounded once where it leaves the range of normal doubles.
pub(super) fn scaled(v: f64, k: i32) -> f64 {
    if k.abs() <= 1022 {
        return v * power(k);
    }
    // Of the three factors only the last one to have an effect rounds: they differ by more than doubles have digits.
    let k = k.clamp(-3000, 3000);
    let third = k / 3;
    v * power(third) * power(third) * power(k - 2 * third)
}

/// The largest |v|, on all threads.
pub(super) fn largest(v: &[f64]) -> f64 {
    let more = |m: f64, v: f64| if v.abs() > m { v.abs() } else { m };
    let blocks = v.par_chunks(1 << 14).map(|part| part.iter().fold(0.0, |m, &v| more(m, v)));
    blocks.reduce(|| 0.0, more)
}

/// Exponents of right-hand sides that elimination in this precision takes as they are: half of its range is left for
/// what becomes of them.
pub(super) fn roomy(precision: Precision) -> i32 {
    match precision {
        Precision::F64 => 500,
        Precision::F32 => 60,
    }
}

/// The k with which 2^k brings numbers of this largest size to size 1, where they are not of a size that is taken as it is.
pub(super) fn shift(largest: f64, roomy: i32) -> i32 {
    match exponent(largest) {
        _ if largest == 0.0 => 0,
        k if k.abs() > roomy => -k,
        _ => 0,
    }
}

/// Copies v·2^k into another precision, on all threads.
pub(super) fn convert<S: Number, T: Number>(from: &[S], to: &mut [T], k: i32) {
    if k == 0 {
        return super::plan::convert(from, to);
    }
    let blocks = to.par_chunks_mut(1 << 14).zip(from.par_chunks(1 << 14));
    blocks.for_each(|(to, from)| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = T::of(scaled(from.wide(), k)));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_are_exact_as_long_as_the_range_allows() {
        for (v, k) in [(1.0, 0), (1.5, 0), (2.0, 1), (0.75, -1), (-3.0, 1), (f64::MAX, 1023), (5e-324, -1074)]
        {
            assert_eq!(exponent(v), k, "{v:e}");
        }
        assert_eq!(exponent(f64::MIN_POSITIVE * 0.75), -1023);
        let (least, odd) = (5e-324, 1.0 + f64::EPSILON);
        assert_eq!(scaled(least, 2097), power(1023));
        assert_eq!(scaled(power(1023), -2097), least);
        assert_eq!(scaled(odd, -1022), odd * f64::MIN_POSITIVE);
        assert_eq!(scaled(scaled(odd, 1000), -2000), scaled(odd, -1000));
        assert_eq!((scaled(1.0, 5000), scaled(1.0, -5000)), (f64::INFINITY, 0.0));
        // 2^−1074 · 1.5 lies between two doubles and goes to the even one; 1.25 rounded twice would, too.
        assert_eq!((scaled(1.5, -1074), scaled(1.25, -1074), scaled(1.75, -1073)), (1e-323, 5e-324, 2e-323));
        assert_eq!((shift(0.0, 500), shift(1e-200, 500), shift(1e-200, 60)), (0, -exponent(1e-200), 665));
    }
}
