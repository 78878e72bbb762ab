//! Facts of all transitions that are known before the matrix is built.

use std::ops::Range;

use super::absorbing_states::NonAbsorbing;
use crate::kernel::{Number, Precision};
use crate::transient::numerics::poisson::{Weights, Window};
use crate::transient::rounding::{drift, sum_rounding};
use crate::{Error, Result};

/// Largest αt: a window's weights take some hundreds of megabytes there.
const MOST_ALPHA_T: f64 = 1e13;

/// α/0.9 in the place of α leaves every state a probability of staying.
pub(crate) const LAZY: f64 = 0.9;

/// Facts of all transitions that the solver needs before it can build the matrix, from one pass over them.
#[derive(Debug, Clone)]
pub struct MatrixStatistics<T> {
    /// The rows that this rank knows, at first its own: whole blocks.
    pub rows: Range<usize>,
    /// Entries of each of them in Rᵀ.
    pub lengths: Vec<u32>,
    /// Their stored exit rates, in the unit of `scale`.
    pub exit: Vec<T>,
    /// Those of them that can be left.
    pub non_absorbing: NonAbsorbing,
    /// Rows of every lane of all ranks; empty for a rank alone, which shares them out by the lengths.
    pub shares: Vec<Range<usize>>,
    /// Entries of the generator, its diagonal included.
    pub nnz: u64,
    /// Largest exit rate, as given.
    pub alpha: f64,
    /// Factor of all rates that are stored, a power of two: it brings α into [1, 2), unless 1/α overflows.
    pub scale: f64,
    /// 1/α in that unit as stored: at most the exact quotient, and then taken as exact, so that α is its inverse.
    pub inverse_alpha: T,
    /// Fixed point: α in that unit, which entries of the matrix are divided by exactly, chosen so that no quotient is 1.
    pub divisor: f64,
    /// Bound on the l1 error of one step.
    pub step: f64,
    /// Bound on the l1 error of rounding a vector of probabilities.
    pub vector: f64,
}

impl<T: Number> MatrixStatistics<T> {
    /// αt of a finite time above 0, α being the inverse of the stored 1/α.
    ///
    /// # Errors
    /// [`Error::Invalid`] where that is more than a window is made for: one is some ten square roots wide, and its
    /// weights are held.
    pub fn lambda(&self, t: f64) -> Result<f64> {
        // No Poisson probability is computed of less; the difference is in the bound on rounding.
        let time = t / self.scale;
        let lambda = match T::PRECISION {
            Precision::Q64 => time * self.divisor,
            _ => time / self.inverse_alpha.wide(),
        };
        let lambda = lambda.max(f64::MIN_POSITIVE);
        if lambda > MOST_ALPHA_T {
            return Err(Error::Invalid(format!(
                "time {t:e} is out of range: it needs {lambda:.1e} multiplications, and at most \
                 {MOST_ALPHA_T:e} are supported; for the steady state, give the time inf"
            )));
        }
        Ok(lambda)
    }

    /// The inverse of the largest stored exit rate, in the unit of time.
    pub fn mean_holding(&self) -> f64 {
        match T::PRECISION {
            Precision::Q64 => self.scale / self.divisor,
            _ => self.inverse_alpha.wide() * self.scale,
        }
    }

    /// Weights of a window at a time: in fixed point at most the exact ones.
    pub(crate) fn weights(&self, window: &Window, t: f64) -> Weights {
        match T::PRECISION {
            Precision::Q64 => {
                let lambda = window.lambda;
                window.weights_below((t / self.scale).mul_add(self.divisor, -lambda))
            }
            _ => window.weights(),
        }
    }

    /// The rounding of these weights.
    pub(crate) fn weights_rounding(&self, window: &Window) -> f64 {
        if T::PRECISION == Precision::Q64 { window.rounding_below() } else { window.rounding() }
    }

    /// Bound on the rounding of a sum over Poisson(λ) terms with a window of `len`, weights' own rounding aside, of which
    /// the last iterate is the one after `steps` steps.
    pub(crate) fn rounding(&self, lambda: f64, len: u64, steps: u64) -> f64 {
        self.rounding_at_speed(lambda, f64::INFINITY, len, steps)
    }

    /// Bound on the rounding of such a sum whose derivative by λ has an l1 norm of at most `speed`.
    pub(crate) fn rounding_at_speed(&self, lambda: f64, speed: f64, len: u64, steps: u64) -> f64 {
        sum_rounding::<T>((self.step, self.vector), (lambda, drift(lambda, speed)), len, steps)
    }
}

/// Multiplies rates by a power of two.
pub fn scale_rates(row: &mut [(u32, f64)], scale: f64) {
    row.iter_mut().for_each(|(_, rate)| *rate *= scale);
}

/// The power of two that brings a number above 0 into [1, 2); 2¹⁰²² for what is smaller than 2⁻¹⁰²², 1 for 0.
pub(crate) fn scale_of(alpha: f64) -> f64 {
    // Exponents of doubles are biased by 1023; that of a power of two's inverse lies as far on the other side.
    let exponent = (alpha.to_bits() >> 52).max(1);
    match alpha > 0.0 {
        // 2⁻¹⁰²³ is subnormal.
        true if exponent == 2046 => f64::from_bits(1 << 51),
        true => f64::from_bits((2046 - exponent) << 52),
        false => 1.0,
    }
}
