//! Numbers whose exponent has a place of its own, for norms beyond the range of doubles.

use std::ops::{Add, Div, Mul};

use crate::util::quantity::{exponent, times_power_of_two};

/// mantissa · 2^exponent with 1 ≤ mantissa < 2, or 0, infinity or NaN with the exponent 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Wide {
    mantissa: f64,
    exponent: i32,
}

impl Wide {
    /// v·2^k, for v ≥ 0.
    pub(super) fn new(v: f64, k: i32) -> Self {
        match v > 0.0 && v.is_finite() {
            true => {
                let own = exponent(v);
                Self { mantissa: times_power_of_two(v, -own), exponent: own + k }
            }
            false => Self { mantissa: v, exponent: 0 },
        }
    }

    /// The two parts.
    pub(super) fn parts(self) -> [f64; 2] {
        [self.mantissa, f64::from(self.exponent)]
    }

    /// The nearest double.
    pub(super) fn to_f64(self) -> f64 {
        times_power_of_two(self.mantissa, self.exponent)
    }

    /// True for 0, infinity and NaN, whose exponent says nothing.
    fn is_special(self) -> bool {
        self.mantissa == 0.0 || !self.mantissa.is_finite()
    }

    /// Maximum; NaN if one of both is NaN.
    pub(super) fn larger(self, other: Self) -> Self {
        let (a, b) = match self.is_special() || other.is_special() {
            true => (self.mantissa, other.mantissa),
            false if self.exponent == other.exponent => (self.mantissa, other.mantissa),
            false => (f64::from(self.exponent), f64::from(other.exponent)),
        };
        if b > a || b.is_nan() { other } else { self }
    }
}

impl From<f64> for Wide {
    fn from(v: f64) -> Self {
        Self::new(v, 0)
    }
}

impl Add for Wide {
    type Output = Self;
    fn add(self, other: Self) -> Self {
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
        Self::new(part(self) + part(other), top)
    }
}

impl Mul for Wide {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self::new(self.mantissa * other.mantissa, self.exponent + other.exponent)
    }
}

impl Div for Wide {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        Self::new(self.mantissa / other.mantissa, self.exponent - other.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_the_range() {
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
}
