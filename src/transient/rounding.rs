//! Bound on the rounding error of one step x ↦ xP.
//!
//! Rates are multiplied by a power of two c that brings α into [1, 2), and times are divided by c.
//! This scaling is exact. It keeps sums of rates and products of rates and probabilities within the
//! range of the number type, for any unit of time. All rates below are scaled.
//!
//! A step computes s = Σ r x (k terms, fused, columns ascending), s' = s − E x, y = x + s'/α. Let u
//! be the unit roundoff. The standard model of rounding gives for each row i
//!
//! |ŷ − y| ≤ u (k + 1) Σ_j r_ji |x_j| / α + u (Σ_j r_ji |x_j| + E_i |x_i|) / α + u |y|
//!
//! to first order. If products are not fused, each term rounds once more; the constants below cover
//! that. Summed over rows, the l1 error of a step is at most Σ_j |x_j| g_j with
//!
//! g_j = u (Σ_i r_ji (k_i + 3) / α + 6 E_j / α + 3) + |Ê_j − E_j| / α + Σ_i |r̂_ji − r_ji| / α,
//!
//! where hats mark stored numbers. Underflow, flushed to zero or not, and magnitudes that the CPU
//! treats as 0 add an error below [`Number::NEGLIGIBLE`] for each operation and stored number.
//! There are at most 2 nnz + 6 n of these. P is an l1 contraction, so the errors of different steps
//! add: the error of N steps is at most N times the sum of max_j g_j and this underflow term.

use crate::kernel::{Number, quotient};

/// Returns α (g_j − 3 u) for a column j, the part of g_j that scales with 1/α.
///
/// This is u (Σ_i r_ji (k_i + 3) + 6 E_j) + |Ê_j − E_j| + Σ_i |r̂_ji − r_ji|. `rows` is Σ_i r_ji
/// (k_i + 3), `storage` is the last sum, `exact` is E_j and `stored` is Ê_j.
pub(crate) fn column_rounding<T: Number>(rows: f64, storage: f64, exact: f64, stored: f64) -> f64 {
    let u = T::PRECISION.unit_roundoff();
    let own = (stored - exact).abs() + 2.0 * f64::EPSILON * exact;
    u * (rows + 6.0 * exact) + storage + own
}

/// Bounds the l1 error of a step for n rows, `nnz` entries and the largest [`column_rounding`].
pub(crate) fn step_rounding<T: Number>(largest_column: f64, inverse_alpha: T, nnz: u64, n: usize) -> f64 {
    let u = T::PRECISION.unit_roundoff();
    // Scaled rates that are negligible next to α count as underflow.
    let underflow = T::NEGLIGIBLE.wide() * (2 * nnz + 6 * n as u64) as f64;
    // The factor 1.001 covers second-order terms and the rounding of the bound itself.
    1.001 * (largest_column * inverse_alpha.wide() + 3.0 * u) + underflow
}

/// Fixed point: returns the l1 error bounds of a step and of a stored vector of n probabilities.
///
/// `most` is the largest number of transitions out of a state.
pub(crate) fn fixed_rounding(n: usize, most: f64) -> (f64, f64) {
    let unit = (-64f64).exp2();
    // Each row is rounded once. In each state its transition shares and its exit share are rounded.
    let vector = unit * (n as f64 + 1.0);
    (1.001 * (vector + unit * 2.0 * most), vector)
}

/// Bounds the l1 change of a Poisson(λ) sum by the rounding of λ = αt.
///
/// The relative error of λ is at most 2⁻⁵². Per unit of λ, the weights change by at most
/// 2 max_k p_k(λ) ≤ 2/√(2eλ), and the sum by at most `speed`.
pub(crate) fn drift(lambda: f64, speed: f64) -> f64 {
    let weights = 2.0 / (2.0 * std::f64::consts::E * lambda.max(1e-300)).sqrt();
    // λ is raised to the smallest normal number if it is below.
    f64::EPSILON * lambda * weights.min(speed) + 2.0 * f64::MIN_POSITIVE
}

/// Returns a state's exit probability in units of 2⁻⁶⁴, rounded up; `None` if it is 1.
pub(crate) fn exit_share(row: impl Iterator<Item = f64>, divisor: f64) -> Option<u64> {
    let shares = row.map(|rate| match quotient(rate, divisor) {
        (share, false) if rate > 0.0 => share.into(),
        // Inexact shares are rounded up, also those of rates that underflowed to 0.
        (share, _) => u128::from(share) + 1,
    });
    u64::try_from(shares.sum::<u128>()).ok()
}

/// Returns the largest `T` that is at most 1/rate, for a rate in [2⁻⁵², 4]; 0 for the rate 0.
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
