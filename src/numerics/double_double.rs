//! Sums in double-double arithmetic, with twice the digits of a double.

/// Unit roundoff u: half the distance of 1 to the next double.
pub(crate) const UNIT: f64 = 0.5 * f64::EPSILON;

/// Compensated sum: the sum rounded at every step, and the accumulated rounding errors.
///
/// The result is as accurate as if rounded once from twice the digits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CompensatedSum {
    pub(crate) sum: f64,
    pub(crate) lost: f64,
}

impl CompensatedSum {
    pub(crate) fn of(terms: impl IntoIterator<Item = f64>) -> Self {
        let mut sum = Self::default();
        terms.into_iter().for_each(|term| sum.add(term));
        sum
    }

    pub(crate) fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        let virtual_term = sum - self.sum;
        self.lost += (self.sum - (sum - virtual_term)) + (term - virtual_term);
        self.sum = sum;
    }

    pub(crate) fn add_product(&mut self, a: f64, b: f64) {
        let product = a * b;
        self.add(product);
        self.lost += a.mul_add(b, -product);
    }

    /// Returns the sum, rounded to a double.
    pub(crate) fn value(self) -> f64 {
        self.sum + self.lost
    }

    /// Returns the sum as two doubles, the first of which is the rounded sum.
    pub(crate) fn parts(self) -> (f64, f64) {
        let mut sum = Self { sum: self.sum, lost: 0.0 };
        sum.add(self.lost);
        (sum.sum, sum.lost)
    }

    /// Bounds the magnitude of the exact sum of at most `terms` numbers or products.
    ///
    /// `all` is the sum of their magnitudes.
    pub(crate) fn magnitude(self, terms: usize, all: f64) -> f64 {
        self.value().abs() * (1.0 + 4.0 * UNIT) + (2.0 * terms as f64 * UNIT).powi(2) * all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_enclosed_though_they_cancel() {
        let mut sum = CompensatedSum::of([1e16, 1.0, -1e16, 1e-3]);
        sum.add_product(1.0 + f64::EPSILON, 1.0 - f64::EPSILON);
        sum.add(-1.0);

        let magnitude = sum.magnitude(64, 2e16 + 3.0);

        assert!((1.001 - f64::EPSILON * f64::EPSILON..1.0010001).contains(&magnitude), "{magnitude}");
    }
}
