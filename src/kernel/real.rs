//! Number types of lanes.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::Precision;
use super::cpu::gather::Gather;
use super::cpu::simd::{At, fused};
use crate::util::inline_array::array;

/// A number type for probabilities: `f32`, `f64` or [`Q64`](super::Q64).
///
/// The functions after [`Number::factor`] have the names and the meaning of those in
/// `shaders/lib/float.wgsl`. With `FUSED` they round a multiply-add once, otherwise twice.
pub trait Number:
    bytemuck::Pod + Default + PartialOrd + Send + Sync + fmt::Debug + Gather<Total = Self::Sum>
{
    /// The precision of this type.
    const PRECISION: Precision;
    /// Number 0.
    const ZERO: Self;
    /// Bound below which steps on the CPU set probabilities to 0.
    ///
    /// In total, over the states and steps of any solve, such probabilities are below a unit in the
    /// last place. The product of this number with a rate or a weight is a normal number.
    const NEGLIGIBLE: Self;
    /// Type in which products are summed.
    type Sum: Copy + Send + Sync + fmt::Debug;
    /// The empty sum.
    const NONE: Self::Sum;
    /// Converts a number, rounding to nearest (`f32`, `f64`) or down ([`Q64`](super::Q64)).
    fn of(value: f64) -> Self;
    /// Returns the number in double precision, exact or rounded down.
    fn wide(self) -> f64;
    /// Returns bits that identify the number; 0 for 0.
    fn bits(self) -> u64;
    /// Returns the number with these bits.
    fn from_bits(bits: u64) -> Self;
    /// Matrix entry of a rate: the rate, or rate/α for [`Q64`](super::Q64) (α: uniformization
    /// rate).
    fn entry(rate: f64, alpha: f64) -> Self;
    /// Encodes a factor μ, in [½, 1] or 0, for [`Number::deviation`]. The code is μ, or 1 − μ for
    /// [`Q64`](super::Q64).
    fn factor(mu: f64) -> Self;
    /// Converts the number to a sum.
    fn whole(self) -> Self::Sum;
    /// Returns the product a·b as a sum.
    fn product(a: Self, b: Self) -> Self::Sum;
    /// Returns s + a·b; floating-point types round once if `FUSED`, else twice.
    fn plus_product<const FUSED: bool>(a: Self, b: Self, s: Self::Sum) -> Self::Sum;
    /// Adds two sums: a + b.
    fn plus_sum(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// Adds two sums: a + b, saturating if the type is bounded.
    #[inline(always)]
    fn capped(a: Self::Sum, b: Self::Sum) -> Self::Sum {
        Self::plus_sum(a, b)
    }
    /// Rounds a sum to a number.
    fn number(s: Self::Sum) -> Self;
    /// Adds a weighted number: sum + w·a.
    fn weighted<const FUSED: bool>(w: Self, a: Self, sum: Self) -> Self;
    /// Next probability of a state: own + (s − leave·own)/α, with inflow s and exit rate `leave`.
    /// For [`Q64`](super::Q64), `s` and `leave` already contain the factor 1/α.
    fn stepped<const FUSED: bool>(s: Self::Sum, leave: Self, own: Self, inverse_alpha: Self) -> Self;
    /// Computes [`Number::stepped`] for `N` adjacent rows.
    #[inline(always)]
    fn stepped_rows<const LEVEL: u8, const N: usize>(
        _: At<LEVEL>,
        sums: &[Self::Sum; N],
        leave: &[Self; N],
        own: &[Self; N],
        inverse_alpha: Self,
    ) -> [Self; N] {
        array(|i| match fused(LEVEL) {
            true => Self::stepped::<true>(sums[i], leave[i], own[i], inverse_alpha),
            false => Self::stepped::<false>(sums[i], leave[i], own[i], inverse_alpha),
        })
    }
    /// Computes [`Number::weighted`] for `N` adjacent rows.
    #[inline(always)]
    fn weighted_rows<const LEVEL: u8, const N: usize>(
        _: At<LEVEL>,
        w: Self,
        a: &[Self; N],
        sums: &[Self; N],
    ) -> [Self; N] {
        array(|i| match fused(LEVEL) {
            true => Self::weighted::<true>(w, a[i], sums[i]),
            false => Self::weighted::<false>(w, a[i], sums[i]),
        })
    }
    /// Chebyshev recurrence 2 next − before: `next` is a step from iterate k, `before` iterate k−1.
    fn recurred(next: Self, before: Self) -> Self;
    /// Deviation |y − μ x|, with μ encoded by [`Number::factor`].
    fn deviation(factor: Self, x: Self, y: Self) -> Self::Sum;
}

/// A floating-point type: `f32` or `f64`.
pub trait Real:
    Number
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// a·b + c, rounded once if `FUSED` and twice otherwise.
    fn fma<const FUSED: bool>(a: Self, b: Self, c: Self) -> Self;
    /// Absolute value |a|.
    fn abs(self) -> Self;
}

/// Returns a·b + c, with one rounding if the SIMD level has a fused instruction.
#[inline(always)]
pub(crate) fn fma<T: Real, const LEVEL: u8>(a: T, b: T, c: T) -> T {
    if fused(LEVEL) { T::fma::<true>(a, b, c) } else { T::fma::<false>(a, b, c) }
}

macro_rules! real {
    ($t:ty, $precision:ident, $negligible:expr) => {
        impl Number for $t {
            const PRECISION: Precision = Precision::$precision;
            const ZERO: Self = 0.0;
            const NEGLIGIBLE: Self = $negligible;
            type Sum = Self;
            const NONE: Self = 0.0;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn bits(self) -> u64 {
                self.wide().to_bits()
            }

            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                Self::of(f64::from_bits(bits))
            }

            #[inline(always)]
            fn entry(rate: f64, _: f64) -> Self {
                Self::of(rate)
            }

            #[inline(always)]
            fn factor(mu: f64) -> Self {
                Self::of(mu)
            }

            #[inline(always)]
            fn whole(self) -> Self {
                self
            }

            #[inline(always)]
            fn product(a: Self, b: Self) -> Self {
                a * b
            }

            #[inline(always)]
            fn plus_product<const FUSED: bool>(a: Self, b: Self, s: Self) -> Self {
                Self::fma::<FUSED>(a, b, s)
            }

            #[inline(always)]
            fn plus_sum(a: Self, b: Self) -> Self {
                a + b
            }

            #[inline(always)]
            fn number(s: Self) -> Self {
                s
            }

            #[inline(always)]
            fn weighted<const FUSED: bool>(w: Self, a: Self, sum: Self) -> Self {
                Self::fma::<FUSED>(w, a, sum)
            }

            /// Sets probabilities below [`Number::NEGLIGIBLE`] to 0.
            ///
            /// Subnormal numbers slow a processor down a hundredfold, and a front that runs through
            /// a large chain has millions of them. GPUs have full speed and keep them.
            #[inline(always)]
            fn stepped<const FUSED: bool>(s: Self, leave: Self, own: Self, inverse_alpha: Self) -> Self {
                let y = Self::fma::<FUSED>(Self::fma::<FUSED>(-leave, own, s), inverse_alpha, own);
                if y.abs() < Self::NEGLIGIBLE { 0.0 } else { y }
            }

            #[inline(always)]
            fn recurred(next: Self, before: Self) -> Self {
                next + next - before
            }

            #[inline(always)]
            fn deviation(factor: Self, x: Self, y: Self) -> Self {
                (y - factor * x).abs()
            }
        }

        impl Real for $t {
            #[inline(always)]
            fn fma<const FUSED: bool>(a: Self, b: Self, c: Self) -> Self {
                if FUSED { a.mul_add(b, c) } else { a * b + c }
            }

            #[inline(always)]
            fn abs(self) -> Self {
                self.abs()
            }
        }
    };
}
real!(f32, F32, 1e-28);
real!(f64, F64, 1e-280);
