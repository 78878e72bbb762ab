//! Arithmetic of single and double precision.

use crate::kernel::Real;
use crate::kernel::cpu::simd::fused;

/// Floating-point precision with its arithmetic.
pub trait Number: Real {
    /// Returns |x|.
    #[inline(always)]
    fn size(self) -> Self {
        self.abs()
    }
}

impl<T: Real> Number for T {}

/// Returns a·b + c, with one rounding if the SIMD level has a fused instruction.
#[inline(always)]
pub(crate) fn fma<T: Real, const LEVEL: u8>(a: T, b: T, c: T) -> T {
    if fused(LEVEL) { T::fma::<true>(a, b, c) } else { T::fma::<false>(a, b, c) }
}
