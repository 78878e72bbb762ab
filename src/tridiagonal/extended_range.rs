//! Numbers with a separate exponent, for norms beyond the range of doubles.

use std::ops::{Add, Div, Mul};

use crate::util::quantity::{exponent, power, times_power_of_two};

/// Spacing of the exponents of [`Wide`], for which products of two mantissas are normal doubles.
const STEP: i32 = 512;
/// Least mantissa of a positive, finite [`Wide`]. All mantissas are below 1 / `LEAST`.
const LEAST: f64 = power(-STEP / 2);

/// The number mantissa · 2^exponent.
///
/// The exponent is a multiple of [`STEP`], and 0 for 0, infinity and NaN. Most doubles are their
/// own mantissa, so that norms of ordinary rows take no longer than in doubles.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Wide {
    mantissa: f64,
    exponent: i32,
}

impl Wide {
    /// Returns v·2^k for v ≥ 0 and a k that is a multiple of [`STEP`].
    #[inline(always)]
    fn of(v: f64, k: i32) -> Self {
        if (LEAST..1.0 / LEAST).contains(&v) { Self { mantissa: v, exponent: k } } else { Self::new(v, k) }
    }

    #[cold]
    pub(super) fn new(v: f64, k: i32) -> Self {
        match v > 0.0 && v.is_finite() {
            true => {
                let nearest = (exponent(v) + k + STEP / 2).div_euclid(STEP) * STEP;
                Self { mantissa: times_power_of_two(v, k - nearest), exponent: nearest }
            }
            false => Self { mantissa: v, exponent: 0 },
        }
    }

    pub(super) fn parts(self) -> [f64; 2] {
        [self.mantissa, f64::from(self.exponent)]
    }

    #[inline(always)]
    pub(super) fn to_f64(self) -> f64 {
        if self.exponent == 0 { self.mantissa } else { times_power_of_two(self.mantissa, self.exponent) }
    }

    /// True for 0, infinity and NaN, whose exponent has no meaning.
    fn is_special(self) -> bool {
        self.mantissa == 0.0 || !self.mantissa.is_finite()
    }

    /// Returns the larger number; NaN if one of the numbers is NaN.
    #[inline(always)]
    pub(super) fn larger(self, other: Self) -> Self {
        let (a, b) = match self.exponent == other.exponent || self.is_special() || other.is_special() {
            true => (self.mantissa, other.mantissa),
            false => (f64::from(self.exponent), f64::from(other.exponent)),
        };
        if b > a || b.is_nan() { other } else { self }
    }
}

impl From<f64> for Wide {
    #[inline(always)]
    fn from(v: f64) -> Self {
        Self::of(v, 0)
    }
}

impl Add for Wide {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        if self.exponent == other.exponent {
            return Self::of(self.mantissa + other.mantissa, self.exponent);
        }
        if self.is_special() || other.is_special() {
            let one = |w: Self| if w.is_special() { w.mantissa } else { 1.0 };
            return match (self.mantissa == 0.0, other.mantissa == 0.0) {
                (true, _) => other,
                (_, true) => self,
                _ => Self::new(one(self) + one(other), 0),
            };
        }
        let top = self.exponent.max(other.exponent);
        let part = |w: Self| times_power_of_two(w.mantissa, w.exponent - top);
        Self::of(part(self) + part(other), top)
    }
}

impl Mul for Wide {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self::of(self.mantissa * other.mantissa, self.exponent + other.exponent)
    }
}

impl Div for Wide {
    type Output = Self;
    #[inline(always)]
    fn div(self, other: Self) -> Self {
        Self::of(self.mantissa / other.mantissa, self.exponent - other.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_numbers_neither_overflow_nor_underflow() {
        let [most, least] = [f64::MAX, 5e-324].map(Wide::from);
        assert_eq!((most * most / most).to_f64(), f64::MAX);
        assert_eq!((least * least / least).to_f64(), 5e-324);
        assert_eq!(((most * most + least * least) / most).to_f64(), f64::MAX);
        assert_eq!((Wide::from(3.0) + Wide::from(0.75)).to_f64(), 3.75);
        assert_eq!((Wide::default() + least, Wide::default().larger(least)), (least, least));
        assert_eq!((most * most).larger(most), most * most);
        let [nan, all] = [f64::NAN, f64::INFINITY].map(Wide::from);
        assert!(most.larger(nan).to_f64().is_nan() && nan.larger(most).to_f64().is_nan());
        assert!((nan + most).to_f64().is_nan() && (all / all).to_f64().is_nan());
        assert_eq!(((most * most).larger(all), (most + all)), (all, all));
    }

    #[test]
    fn a_number_has_one_form_and_rounds_as_a_double() {
        for k in -1074..1024 {
            let v = times_power_of_two(1.0, k);
            let wide = Wide::from(v);
            assert_eq!((wide.to_f64(), wide), (v, Wide::new(1.0, k)), "2^{k}");
            assert!(wide.exponent % STEP == 0 && (LEAST..1.0 / LEAST).contains(&wide.mantissa), "2^{k}");
            assert_eq!(wide.larger(Wide::from(0.75 * v)), wide, "2^{k}");
        }
        let numbers = [1e-70, 1.0 / 3.0, 0.7, 1e70, 1e-90, 1e90, 5e-200, 3e200].map(|v| (v, Wide::from(v)));
        for (a, wide_a) in numbers {
            for (b, wide_b) in numbers {
                let results = [wide_a + wide_b, wide_a.larger(wide_b), wide_a / wide_b * wide_b];
                assert_eq!(results.map(Wide::to_f64)[..2], [a + b, a.max(b)]);
                let apart = (results[2].to_f64() / a - 1.0).abs();
                assert!(apart <= f64::EPSILON, "{a:e} / {b:e} * {b:e}");
            }
        }
    }
}
