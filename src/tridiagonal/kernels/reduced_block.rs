//! Reduced blocks: Schur complements of runs of rows.

use super::number::{Number, fma};

/// The two interface equations of a run of rows after elimination of its interior (Schur
/// complement).
///
/// With the adjacent unknowns x_left and x_right, x_first = u0 − u1·x_left − u2·x_right and x_last
/// = u3 − u4·x_left − u5·x_right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReducedBlock<T> {
    /// Coefficients u0 … u5.
    pub u: [T; 6],
}

impl<T: Number> ReducedBlock<T> {
    /// Reduced block of no row: x_first = x_right and x_last = x_left.
    pub(crate) fn empty() -> Self {
        let (zero, minus) = (T::ZERO, T::of(-1.0));
        Self { u: [zero, zero, minus, zero, minus, zero] }
    }

    pub(crate) fn of(u: &[T]) -> Self {
        Self { u: std::array::from_fn(|k| u[k]) }
    }

    /// Joins this block with the one to its right. Returns three results:
    ///
    /// * the joined block;
    /// * a block that gives the two unknowns between them: y = u0 − u1·x_left − u2·x_right on the
    ///   left side, z = u3 − u4·x_left − u5·x_right on the right side;
    /// * the determinant that was divided by.
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

    /// Returns the left sides of the two equations for x_left = `left` and x_right = `right`.
    #[inline(always)]
    pub(crate) fn between<const LEVEL: u8>(&self, left: T, right: T) -> (T, T) {
        let [u0, u1, u2, u3, u4, u5] = self.u;
        (
            fma::<T, LEVEL>(-u2, right, fma::<T, LEVEL>(-u1, left, u0)),
            fma::<T, LEVEL>(-u5, right, fma::<T, LEVEL>(-u4, left, u3)),
        )
    }

    /// Interface values (x_last, x_first) of a block that is its own neighbour on either side, and
    /// the determinant that was divided by.
    pub(crate) fn closed(&self) -> ([T; 2], T) {
        let [u0, u1, u2, u3, u4, u5] = self.u;
        let one = T::of(1.0);
        let det = (one + u2) * (one + u4) - u1 * u5;
        let last = ((one + u2) * u3 - u5 * u0) / det;
        let first = ((one + u4) * u0 - u1 * u3) / det;
        ([last, first], det)
    }
}
