//! Units: runs of rows, seen from outside.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::kernel::Real;
use crate::lane::cpu::simd::fused;

/// A precision with its arithmetic.
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

/// a·b + c, rounded once where the level has an instruction for it.
#[inline(always)]
pub(super) fn fma<T: Real, const LEVEL: u8>(a: T, b: T, c: T) -> T {
    if fused(LEVEL) { T::fma::<true>(a, b, c) } else { T::fma::<false>(a, b, c) }
}

/// A run of rows, eliminated but for what its neighbours need to know: with the unknowns next to it,
/// x_first = u0 − u1·x_left − u2·x_right and x_last = u3 − u4·x_left − u5·x_right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit<T> {
    /// u0 … u5.
    pub u: [T; 6],
}

impl<T: Number> Unit<T> {
    /// No row: what it shows to the left is what lies to its right, and the other way round.
    pub const EMPTY: Self = Self { u: [T::ZERO, T::ZERO, T::MINUS_ONE, T::ZERO, T::MINUS_ONE, T::ZERO] };

    /// From six numbers.
    pub fn of(u: &[T]) -> Self {
        Self { u: std::array::from_fn(|k| u[k]) }
    }

    /// This unit and the one to its right as one; what gives the two unknowns between them (y = u0 − u1·x_left −
    /// u2·x_right on the left side, z = u3 − u4·x_left − u5·x_right on the right); the determinant divided by.
    #[inline(always)]
    pub fn join<const LEVEL: u8>(&self, right: &Self) -> (Self, Self, T) {
        let ([a0, a1, a2, a3, a4, a5], [b0, b1, b2, b3, b4, b5]) = (self.u, right.u);
        let det = fma::<T, LEVEL>(-a5, b1, T::of(1.0));
        let g = T::of(1.0) / det;
        let (y0, y1, y2) = (g * fma::<T, LEVEL>(-a5, b0, a3), g * a4, -g * a5 * b2);
        let (z0, z1, z2) = (g * fma::<T, LEVEL>(-b1, a3, b0), -g * b1 * a4, g * b2);
        let whole = [
            fma::<T, LEVEL>(-a2, z0, a0),
            fma::<T, LEVEL>(-a2, z1, a1),
            -a2 * z2,
            fma::<T, LEVEL>(-b4, y0, b3),
            -b4 * y1,
            fma::<T, LEVEL>(-b4, y2, b5),
        ];
        (Self { u: whole }, Self { u: [y0, y1, y2, z0, z1, z2] }, det)
    }

    /// Both unknowns, from those next to the unit.
    #[inline(always)]
    pub fn between<const LEVEL: u8>(&self, left: T, right: T) -> (T, T) {
        let [u0, u1, u2, u3, u4, u5] = self.u;
        (
            fma::<T, LEVEL>(-u2, right, fma::<T, LEVEL>(-u1, left, u0)),
            fma::<T, LEVEL>(-u5, right, fma::<T, LEVEL>(-u4, left, u3)),
        )
    }

    /// The unknowns next to a unit that is its own neighbour on both sides (x_last, x_first), and the determinant
    /// divided by.
    pub fn ring(&self) -> ([T; 2], T) {
        let [u0, u1, u2, u3, u4, u5] = self.u;
        let one = T::of(1.0);
        let det = (one + u2) * (one + u4) - u1 * u5;
        let last = ((one + u2) * u3 - u5 * u0) / det;
        let first = ((one + u4) * u0 - u1 * u3) / det;
        ([last, first], det)
    }
}
