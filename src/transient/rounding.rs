//! The rounding of a step, bounded.
//!
//! Rates are multiplied by a power of two c that brings α into [1, 2), and times divided by it, which is exact; so
//! neither sums of rates nor products of rates and probabilities leave the range of the numbers, in whatever unit
//! rates are given. In what follows they are those in that unit.
//!
//! A step computes s = Σ r x (k terms, fused, columns ascending), s' = s − E x, y = x + s'/α. With u the unit roundoff,
//! the standard model of rounding gives for each row i
//!
//! |ŷ − y| ≤ u (k + 1) Σ_j r_ji |x_j| / α + u (Σ_j r_ji |x_j| + E_i |x_i|) / α + u |y|
//!
//! to first order; where products are not fused each term rounds once more, which the constants below cover.
//! Summed over rows, the l1 error of a step is at most Σ_j |x_j| g_j with
//!
//! g_j = u (Σ_i r_ji (k_i + 3) / α + 6 E_j / α + 3) + |Ê_j − E_j| / α + Σ_i |r̂_ji − r_ji| / α,
//!
//! hats marking stored numbers. What underflows, flushed to zero or not, and what the CPU takes for 0 errs by less than
//! [`Number::NEGLIGIBLE`] in each of at most 2 nnz + 6 n operations and stored numbers. Since P is an l1 contraction, errors
//! of different steps add, and N steps err by at most N times max_j g_j and that.

use crate::kernel::{Number, Precision, quotient};

/// u (Σ_i r_ji (k_i + 3) + 6 E_j) + |Ê_j − E_j| + Σ_i |r̂_ji − r_ji| of a column j: α (g_j − 3 u).
///
/// `rows` is Σ_i r_ji (k_i + 3), `storage` the last sum, `exact` is E_j and `stored` is Ê_j.
pub(crate) fn column_rounding<T: Number>(rows: f64, storage: f64, exact: f64, stored: f64) -> f64 {
    let u = T::PRECISION.unit_roundoff();
    let own = (stored - exact).abs() + 2.0 * f64::EPSILON * exact;
    u * (rows + 6.0 * exact) + storage + own
}

/// Bound of the l1 error of a step on a matrix of `nnz` entries and n rows, from the largest
/// [`column_rounding`].
pub(crate) fn step_rounding<T: Number>(largest_column: f64, inverse_alpha: T, nnz: u64, n: usize) -> f64 {
    let u = T::PRECISION.unit_roundoff();
    // Rates that vanish beside α in that unit are among what underflows.
    let underflow = T::NEGLIGIBLE.wide() * (2 * nnz + 6 * n as u64) as f64;
    // The bound itself was computed with a few roundings; a thousandth more covers them and second-order terms.
    1.001 * (largest_column * inverse_alpha.wide() + 3.0 * u) + underflow
}

/// Fixed point: bounds of the l1 errors of a step and of a vector of n probabilities as stored, for states of at
/// most `most` transitions.
pub(crate) fn fixed_rounding(n: usize, most: f64) -> (f64, f64) {
    let unit = (-64f64).exp2();
    // Each row is rounded once; of each state the shares of its transitions are, and what leaves it.
    let vector = unit * (n as f64 + 1.0);
    (1.001 * (vector + unit * 2.0 * most), vector)
}

/// Bound on the rounding of a sum over Poisson(λ) terms with a window of `len`, weights' own rounding aside, of which
/// the last iterate is the one after `steps` steps. A step errs by at most `step`, a vector as stored by `vector`.
pub(crate) fn sum_rounding<T: Number>(step: f64, vector: f64, lambda: f64, len: u64, steps: u64) -> f64 {
    // Steps; the initial vector and each weight as stored; each addition to a partial sum of mass ≤ 1; and λ
    // itself, whose relative error is at most 2⁻⁵²: the weights then move by 2 max_k p_k(λ) ≤ 2/√(2eλ) per unit.
    // And λ is at least the smallest normal number.
    let drift = f64::EPSILON * lambda * 2.0 / (2.0 * std::f64::consts::E * lambda.max(1e-300)).sqrt()
        + 2.0 * f64::MIN_POSITIVE;
    // E min(N, steps) ≤ min(λ, steps).
    let handed_out = if T::PRECISION == Precision::Q64 { f64::EPSILON } else { 0.0 };
    step * lambda.min(steps as f64) + 2.0 * vector + vector * len as f64 + drift + handed_out
}

/// The share of a state's probability that leaves it in a step, in 2⁻⁶⁴, not less than the exact one; none where that is 1.
pub(crate) fn exit_share(row: impl Iterator<Item = f64>, divisor: f64) -> Option<u64> {
    let shares = row.map(|rate| match quotient(rate, divisor) {
        (share, false) if rate > 0.0 => share.into(),
        // A rate that has vanished beside α leaves a share, too.
        (share, _) => u128::from(share) + 1,
    });
    u64::try_from(shares.sum::<u128>()).ok()
}

/// The largest number of the precision that is at most 1/rate, for a rate in [2⁻⁵², 4]; 0 for a rate of 0.
pub(crate) fn inverse_below<T: Number>(rate: f64) -> T {
    if rate == 0.0 {
        return T::ZERO;
    }
    let mut inverse = T::of(1.0 / rate);
    // The fused product has the exact sign of inverse·rate − 1.
    while inverse.wide().mul_add(rate, -1.0) > 0.0 {
        inverse = T::of(inverse.wide() * (1.0 - 1.5 * T::PRECISION.unit_roundoff()));
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_inverse_never_exceeds_the_exact_one() {
        for rate in [1.0, 1.3, 1.9999999999999998, 2.0 / 3.0, 1e-15] {
            let inverse = inverse_below::<f64>(rate);

            assert!(inverse.mul_add(rate, -1.0) <= 0.0, "{rate}");
            assert!(inverse * rate > 1.0 - 4.0 * f64::EPSILON, "{rate}");
        }
        let single = inverse_below::<f32>(3.0);
        assert!(single.wide() * 3.0 <= 1.0 && single.wide() * 3.0 > 1.0 - 3e-7);
    }
}
