//! Sums of numbers with bounds on their errors.

/// The sum of numbers of either sign, and a bound on its error.
///
/// Each addition's rounding is known exactly (A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur
/// Summation endlicher Summen", ZAMM 54, 1974) and is added up apart. Where all are 0 the sum is exact.
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
    // The last addition rounds by half a unit, and those of `lost` by that much of `all`.
    let value = sum + lost;
    (value, f64::EPSILON * (value.abs() + count * all))
}

/// An upper bound on the sum of numbers of 0 or more.
pub(crate) fn at_most(terms: impl IntoIterator<Item = f64>) -> f64 {
    let (value, error) = sum(terms);
    value + 2.0 * error
}

/// The quotient of two numbers, the second above 0, and a bound on its rounding.
pub(crate) fn quotient(value: f64, by: f64) -> (f64, f64) {
    let quotient = value / by;
    let exact = quotient.mul_add(by, -value) == 0.0;
    (quotient, if exact { 0.0 } else { f64::EPSILON * quotient.abs() + f64::MIN_POSITIVE })
}
