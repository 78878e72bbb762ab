//! Reduced blocks: runs of rows, seen from outside.

use super::number::{Number, fma};

/// The two interface equations of a run of rows whose interior is eliminated, its Schur complement: with the interface
/// values x_left and x_right, x_first = u0 − u1·x_left − u2·x_right and x_last = u3 − u4·x_left − u5·x_right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReducedBlock<T> {
    /// u0 … u5.
    pub u: [T; 6],
}

impl<T: Number> ReducedBlock<T> {
    /// No row: what it shows to the left is what lies to its right, and the other way round.
    pub(crate) const EMPTY: Self =
        Self { u: [T::ZERO, T::ZERO, T::MINUS_ONE, T::ZERO, T::MINUS_ONE, T::ZERO] };

    /// From six numbers.
    pub(crate) fn of(u: &[T]) -> Self {
        Self { u: std::array::from_fn(|k| u[k]) }
    }

    /// This block and the one to its right as one; what gives the two unknowns between them (y = u0 − u1·x_left −
    /// u2·x_right on the left side, z = u3 − u4·x_left − u5·x_right on the right); the determinant divided by.
    #[inline(always)]
    pub(crate) fn join<const LEVEL: u8>(&self, right: &Self) -> (Self, Self, T) {
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

    /// Both unknowns, from the interface values.
    #[inline(always)]
    pub(crate) fn between<const LEVEL: u8>(&self, left: T, right: T) -> (T, T) {
        let [u0, u1, u2, u3, u4, u5] = self.u;
        (
            fma::<T, LEVEL>(-u2, right, fma::<T, LEVEL>(-u1, left, u0)),
            fma::<T, LEVEL>(-u5, right, fma::<T, LEVEL>(-u4, left, u3)),
        )
    }

    /// The interface values (x_last, x_first) of a block that is its own neighbour on both sides, and the determinant
    /// divided by.
    pub(crate) fn closed(&self) -> ([T; 2], T) {
        let [u0, u1, u2, u3, u4, u5] = self.u;
        let one = T::of(1.0);
        let det = (one + u2) * (one + u4) - u1 * u5;
        let last = ((one + u2) * u3 - u5 * u0) / det;
        let first = ((one + u4) * u0 - u1 * u3) / det;
        ([last, first], det)
    }
}
