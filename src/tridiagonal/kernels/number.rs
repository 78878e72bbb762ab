//! Arithmetic of single and double precision.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::kernel::Real;
use crate::kernel::cpu::simd::fused;

/// Floating-point precision with its arithmetic.
pub trait Number:
    Real + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// −1.
    const MINUS_ONE: Self;
    /// |x|.
    fn size(self) -> Self;
}

impl Number for f32 {
    const MINUS_ONE: Self = -1.0;

    #[inline(always)]
    fn size(self) -> Self {
        self.abs()
    }
}

impl Number for f64 {
    const MINUS_ONE: Self = -1.0;

    #[inline(always)]
    fn size(self) -> Self {
        self.abs()
    }
}

/// Returns a·b + c, with one rounding if the SIMD level has a fused instruction.
#[inline(always)]
pub(crate) fn fma<T: Real, const LEVEL: u8>(a: T, b: T, c: T) -> T {
    if fused(LEVEL) { T::fma::<true>(a, b, c) } else { T::fma::<false>(a, b, c) }
}
