//! Arithmetic with numbers of about 106 bits, each an unevaluated sum of two doubles.
//!
//! The error bounds are those of M. Joldes, J.-M. Muller, V. Popescu, "Tight and rigorous error
//! bounds for basic building blocks of double-word arithmetic" (2017), doi:10.1145/3121432.
//! u is 2⁻⁵³.

/// Unevaluated sum of two f64; hi is the sum rounded to f64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DoubleWord {
    pub(crate) hi: f64,
    pub(crate) lo: f64,
}

impl DoubleWord {
    /// Returns x + y exactly, for |x| ≥ |y| or x = 0 (Dekker 1971).
    fn ordered_sum(x: f64, y: f64) -> Self {
        let hi = x + y;
        Self { hi, lo: y - (hi - x) }
    }

    /// Returns x + y exactly (Knuth, Møller).
    fn sum(x: f64, y: f64) -> Self {
        let hi = x + y;
        let z = hi - x;
        Self { hi, lo: (x - (hi - z)) + (y - z) }
    }

    /// Returns x·y exactly (Dekker 1971), without fused multiply–add, which is slow on some
    /// processors.
    fn product(x: f64, y: f64) -> Self {
        /// Splits x into its 26 leading bits and the remainder.
        fn halves(x: f64) -> (f64, f64) {
            let scaled = 134_217_729.0 * x;
            let high = scaled - (scaled - x);
            (high, x - high)
        }
        let hi = x * y;
        let ((x1, x2), (y1, y2)) = (halves(x), halves(y));
        Self { hi, lo: ((x1 * y1 - hi) + x1 * y2 + x2 * y1) + x2 * y2 }
    }
}

impl From<f64> for DoubleWord {
    fn from(x: f64) -> Self {
        Self { hi: x, lo: 0.0 }
    }
}

impl From<u64> for DoubleWord {
    /// Converts exactly for k < 2⁶³.
    fn from(k: u64) -> Self {
        let hi = k as f64;
        Self { hi, lo: (k as i64 - hi as i64) as f64 }
    }
}

impl std::ops::Add for DoubleWord {
    type Output = Self;

    /// Adds with a relative error of 3u² for terms of one sign.
    fn add(self, y: Self) -> Self {
        let s = Self::sum(self.hi, y.hi);
        Self::ordered_sum(s.hi, s.lo + (self.lo + y.lo))
    }
}

impl std::ops::Neg for DoubleWord {
    type Output = Self;

    fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }
}

impl std::ops::Mul for DoubleWord {
    type Output = Self;

    /// Multiplies with a relative error of 7u².
    fn mul(self, y: Self) -> Self {
        let p = Self::product(self.hi, y.hi);
        Self::ordered_sum(p.hi, p.lo + (self.hi * y.lo + self.lo * y.hi))
    }
}

impl std::ops::Div for DoubleWord {
    type Output = Self;

    /// Divides with a relative error of 16u².
    fn div(self, y: Self) -> Self {
        let hi = self.hi / y.hi;
        let r = y * Self::from(hi);
        let rest = (self.hi - r.hi) + (self.lo - r.lo);
        Self::ordered_sum(hi, rest / y.hi)
    }
}
