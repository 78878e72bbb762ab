//! Statistics of all transitions that are known before the matrix is built.

use std::ops::Range;

use super::absorbing_states::NonAbsorbing;
use crate::kernel::{Number, Precision};
use crate::transient::numerics::poisson::{Weights, Window};
use crate::transient::rounding::drift;
use crate::{Invalid, Result};

/// Largest αt supported: storing the Poisson weights for it takes some hundred megabytes.
const MOST_ALPHA_T: f64 = 1e13;

/// Statistics of all transitions that building the matrix requires, from one pass over them.
#[derive(Debug, Clone)]
pub struct MatrixStatistics<T> {
    /// Rows known to this rank, whole blocks: its own, and others if it computes these as well.
    pub rows: Range<usize>,
    /// Number of transitions into each state of `rows`.
    pub lengths: Vec<u32>,
    /// Stored exit rate of each row in `rows`, multiplied by `scale`.
    pub exit: Vec<T>,
    /// Set of the non-absorbing states in `rows`.
    pub non_absorbing: NonAbsorbing,
    /// Rows of every lane of all ranks; empty for a single rank, which cuts them by row lengths.
    pub shares: Vec<Range<usize>>,
    /// Entries of the generator, including its diagonal.
    pub nnz: u64,
    /// Largest exit rate α, as given.
    pub alpha: f64,
    /// Factor of all stored rates, a power of two: it brings α into [1, 2), unless 1/α overflows.
    pub scale: f64,
    /// Stored 1/α of the scaled rates, at most the exact quotient.
    ///
    /// It is then taken as exact, so that α is its inverse.
    pub inverse_alpha: T,
    /// Fixed point: scaled α, by which matrix entries are divided exactly.
    ///
    /// It is slightly above the largest exit rate, so that no quotient is 1; 1 in discrete time.
    pub divisor: f64,
    /// True if times count steps: α is 1.
    pub discrete: bool,
    /// Bound on the l1 rounding error of one step x ↦ x P for a vector x of norm at most 1.
    pub step: f64,
    /// Bound on the l1 error of a vector of probabilities from rounding when stored.
    pub vector: f64,
    /// Number of steps for which the matrix is built; infinite if unknown.
    pub steps: f64,
}

impl<T: Number> MatrixStatistics<T> {
    /// Returns αt of a finite time above 0, where α is the inverse of the stored 1/α.
    ///
    /// # Errors
    /// [`Invalid`] if αt is too large for the weights of a window to be stored; a window is
    /// about ten square roots of αt wide.
    pub fn lambda(&self, t: f64) -> Result<f64> {
        // Poisson probabilities require a normal number; the bound on rounding covers the
        // difference.
        let time = t / self.scale;
        let lambda = match T::PRECISION {
            Precision::Q64 => time * self.divisor,
            _ => time / self.inverse_alpha.wide(),
        };
        let lambda = lambda.max(f64::MIN_POSITIVE);
        if lambda > MOST_ALPHA_T {
            return Invalid::Time.fail(format!(
                "time {t:e} is out of range: it needs {lambda:.1e} multiplications, and at most \
                 {MOST_ALPHA_T:e} are supported; for the steady state, give the time inf"
            ));
        }
        Ok(lambda)
    }

    /// Returns the inverse of the largest stored exit rate, in the unit of time.
    pub fn mean_holding(&self) -> f64 {
        match T::PRECISION {
            Precision::Q64 => self.scale / self.divisor,
            _ => self.inverse_alpha.wide() * self.scale,
        }
    }

    /// Returns the matrix entry of a rate, or in fixed point of its quotient by α.
    pub(crate) fn entry(&self, rate: f64) -> T {
        let entry = T::entry(rate * self.scale, self.divisor);
        match T::PRECISION {
            // A state that is left surely is stored with a probability of 2⁻⁶⁴ of staying.
            Precision::Q64 if self.discrete => T::from_bits(entry.bits().saturating_sub(1)),
            _ => entry,
        }
    }

    /// Returns the window of αt = λ, which in discrete time has the one term λ.
    pub(crate) fn window(&self, lambda: f64, epsilon: f64) -> Window {
        if self.discrete { Window::of_step(lambda) } else { Window::new(lambda, epsilon) }
    }

    /// Returns the Poisson weights for time `t`; in fixed point they are at most the exact ones.
    pub(crate) fn weights(&self, window: &Window, t: f64) -> Weights {
        match T::PRECISION {
            Precision::Q64 if !self.discrete => {
                let lambda = window.lambda;
                window.weights_below((t / self.scale).mul_add(self.divisor, -lambda))
            }
            _ => window.weights(),
        }
    }

    /// Returns the rounding error bound of [`weights`](Self::weights).
    pub(crate) fn weights_rounding(&self, window: &Window) -> f64 {
        match T::PRECISION {
            // The weight 1 is stored as 1 − 2⁻⁶⁴.
            Precision::Q64 if self.discrete => (-64f64).exp2(),
            Precision::Q64 => window.rounding_below(),
            _ => window.rounding(),
        }
    }

    /// Bounds the rounding error of a Poisson(λ) sum over a window of `len` terms.
    ///
    /// The rounding of the weights is not included. `steps` is the number of steps to the last
    /// iterate.
    pub(crate) fn rounding(&self, lambda: f64, len: u64, steps: u64) -> f64 {
        self.rounding_at_speed(lambda, f64::INFINITY, len, steps)
    }

    /// Bounds the rounding of a Poisson(λ) sum, given a bound `speed` of its l1 derivative by λ.
    pub(crate) fn rounding_at_speed(&self, lambda: f64, speed: f64, len: u64, steps: u64) -> f64 {
        // This covers the steps, the stored initial vector and weights, and each addition to a
        // partial sum of mass ≤ 1. E min(N, steps) ≤ min(λ, steps).
        let handed_out = if T::PRECISION == Precision::Q64 { f64::EPSILON } else { 0.0 };
        let drift = if self.discrete { 0.0 } else { drift(lambda, speed) };
        let vector = 2.0 * self.vector;
        self.step * lambda.min(steps as f64) + vector + self.vector * len as f64 + drift + handed_out
    }
}

/// Multiplies rates by a power of two.
pub(crate) fn scale_rates(row: &mut [(u32, f64)], scale: f64) {
    row.iter_mut().for_each(|(_, rate)| *rate *= scale);
}

/// Returns the power of two that brings a number into [1, 2): 2¹⁰²² below 2⁻¹⁰²², 1 for 0.
pub(crate) fn scale_of(alpha: f64) -> f64 {
    // The biased exponents (bias 1023) of a power of two and of its inverse add up to 2046.
    let exponent = (alpha.to_bits() >> 52).max(1);
    match alpha > 0.0 {
        // 2⁻¹⁰²³ is subnormal.
        true if exponent == 2046 => f64::from_bits(1 << 51),
        true => f64::from_bits((2046 - exponent) << 52),
        false => 1.0,
    }
}
