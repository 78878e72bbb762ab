//! Sums with error bounds.

/// Sums numbers of any sign. Returns the sum and its error bound.
///
/// The rounding error of each addition is known exactly (A. Neumaier, "Rundungsfehleranalyse
/// einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974). These errors are summed
/// separately. If all of them are 0, the sum is exact.
pub(crate) fn sum(terms: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (mut sum, mut lost, mut all, mut count) = (0.0f64, 0.0f64, 0.0f64, 0.0);
    for term in terms {
        let next = sum + term;
        let rounding = if sum.abs() >= term.abs() { (sum - next) + term } else { (term - next) + sum };
        (sum, lost, all, count) = (next, lost + rounding, all + rounding.abs(), count + 1.0);
    }
    if all == 0.0 || !sum.is_finite() {
        return (sum, 0.0);
    }
    // Rounding errors: half an ulp of the last addition, and half an ulp of `all` of each to
    // `lost`.
    let value = sum + lost;
    (value, f64::EPSILON * (value.abs() + count * all))
}

/// Upper bound of a sum of nonnegative numbers.
pub(crate) fn at_most(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (value, error) = sum(terms);
    value + 2.0 * error
}

/// Divides by a positive number. Returns the quotient and its rounding error bound.
pub(crate) fn quotient(value: f64, by: f64) -> (f64, f64) {
    let quotient = value / by;
    let exact = quotient.mul_add(by, -value) == 0.0;
    (quotient, if exact { 0.0 } else { f64::EPSILON * quotient.abs() + f64::MIN_POSITIVE })
}
