//! Arithmetic of single and double precision.

use crate::kernel::Real;
pub(crate) use crate::kernel::fma;

/// Floating-point precision with its arithmetic.
pub trait Number: Real {
    /// Returns |x|.
    #[inline(always)]
    fn size(self) -> Self {
        self.abs()
    }
}

impl<T: Real> Number for T {}
