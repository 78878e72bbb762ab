//! Double-word arithmetic: numbers of about 106 bits, as unevaluated sums of two doubles; and
//! elimination.
//!
//! Algorithms and error bounds: M. Joldes, J.-M. Muller, V. Popescu, "Tight and rigorous error
//! bounds for basic building blocks of double-word arithmetic", ACM Transactions on Mathematical
//! Software 44(2), 2017, doi:10.1145/3121432. Relative errors are below 2⁻¹⁰¹ for each operation,
//! as long as nothing over- or underflows.

use std::iter::Sum;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The number hi + lo, with |lo| at most half an ulp of hi.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub(crate) struct DoubleWord {
    pub(crate) hi: f64,
    pub(crate) lo: f64,
}

fn two_sum(a: f64, b: f64) -> DoubleWord {
    let sum = a + b;
    let rounded = sum - a;
    DoubleWord { hi: sum, lo: (a - (sum - rounded)) + (b - rounded) }
}

/// Returns a + b like [`two_sum`], for |a| ≥ |b| or a = 0.
fn fast_two_sum(a: f64, b: f64) -> DoubleWord {
    let sum = a + b;
    DoubleWord { hi: sum, lo: b - (sum - a) }
}

impl DoubleWord {
    pub(crate) const ZERO: Self = Self { hi: 0.0, lo: 0.0 };
    pub(crate) const ONE: Self = Self { hi: 1.0, lo: 0.0 };

    pub(crate) fn abs(self) -> Self {
        if self.hi < 0.0 { -self } else { self }
    }

    pub(crate) fn to_f64(self) -> f64 {
        self.hi
    }

    /// Returns the product of two doubles, exact unless it underflows.
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let hi = a * b;
        Self { hi, lo: a.mul_add(b, -hi) }
    }
}

impl From<f64> for DoubleWord {
    fn from(hi: f64) -> Self {
        Self { hi, lo: 0.0 }
    }
}

impl Neg for DoubleWord {
    type Output = Self;
    fn neg(self) -> Self {
        Self { hi: -self.hi, lo: -self.lo }
    }
}

impl Add for DoubleWord {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let (s, t) = (two_sum(self.hi, other.hi), two_sum(self.lo, other.lo));
        let v = fast_two_sum(s.hi, s.lo + t.hi);
        fast_two_sum(v.hi, t.lo + v.lo)
    }
}

impl Sub for DoubleWord {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for DoubleWord {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let high = Self::product(self.hi, other.hi);
        let low = self.lo.mul_add(other.hi, self.lo.mul_add(other.lo, self.hi * other.lo));
        fast_two_sum(high.hi, high.lo + low)
    }
}

impl Div for DoubleWord {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let first = self.hi / other.hi;
        let rest = self - other * Self::from(first);
        let second = rest.hi / other.hi;
        let rest = rest - other * Self::from(second);
        let sum = fast_two_sum(first, second);
        sum + Self::from(rest.hi / other.hi)
    }
}

impl Sum for DoubleWord {
    fn sum<I: Iterator<Item = Self>>(numbers: I) -> Self {
        numbers.fold(Self::ZERO, Add::add)
    }
}

/// Real numbers of reference solutions.
pub(crate) trait Real:
    Copy
    + From<f64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Sum
{
    /// Returns the absolute value, rounded to a double.
    fn size(self) -> f64;
}

impl Real for f64 {
    fn size(self) -> f64 {
        self.abs()
    }
}

impl Real for DoubleWord {
    fn size(self) -> f64 {
        self.hi.abs()
    }
}

/// Solves a dense system by elimination with partial pivoting; `None` if a pivot is 0.
///
/// Each row ends with its right-hand side.
pub(crate) fn eliminate<T: Real>(mut a: Vec<Vec<T>>) -> Option<Vec<T>> {
    let n = a.len();
    for k in 0..n {
        let pivot = (k..n).max_by(|&p, &q| a[p][k].size().total_cmp(&a[q][k].size()))?;
        a.swap(k, pivot);
        let (done, rest) = a.split_at_mut(k + 1);
        let row = &done[k];
        if row[k].size() == 0.0 {
            return None;
        }
        for other in rest.iter_mut().filter(|other| other[k].size() != 0.0) {
            let factor = other[k] / row[k];
            for j in (k..=n).filter(|&j| row[j].size() != 0.0) {
                other[j] = other[j] - factor * row[j];
            }
        }
    }
    let mut x = vec![T::from(0.0); n];
    for k in (0..n).rev() {
        let rest = (k + 1..n).fold(T::from(0.0), |sum, j| sum + a[k][j] * x[j]);
        x[k] = (a[k][n] - rest) / a[k][k];
    }
    Some(x)
}

#[test]
fn thirds_and_sevenths_are_accurate() {
    let one = |k: f64| DoubleWord::ONE / DoubleWord::from(k);
    let sum = one(3.0) + one(7.0) - DoubleWord::from(10.0) / DoubleWord::from(21.0);
    let product = one(3.0) * DoubleWord::from(3.0) - DoubleWord::ONE;
    assert!(sum.abs().to_f64() <= 1e-31 && product.abs().to_f64() <= 1e-31, "{sum:?} {product:?}");
    // 2⁻⁸⁰ added to 1 is kept.
    let small = DoubleWord::from((-80f64).exp2());
    assert_eq!((DoubleWord::ONE + small - DoubleWord::ONE).to_f64(), small.hi);
}
