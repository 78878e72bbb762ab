//! The two floating-point types that lanes hold.

use std::fmt;

/// Width of the floating-point numbers of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

impl Precision {
    /// Unit roundoff u: half the distance from 1 to the next number.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::F32 => 0.5 * f32::EPSILON as f64,
            Self::F64 => 0.5 * f64::EPSILON,
        }
    }

    /// Bytes of one number.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

/// `f32` or `f64`.
pub trait Real:
    bytemuck::Pod + Default + PartialOrd + Send + Sync + fmt::Debug + super::twin::gather::Gather
{
    /// This type's precision.
    const PRECISION: Precision;
    /// 0.
    const ZERO: Self;
    /// So small that as many of these as there are states and steps in any solve add up to less than a unit in the
    /// last place of a probability, and large enough that its product with a rate or a weight is a normal number.
    const NEGLIGIBLE: Self;
    /// The nearest number to `value`.
    fn of(value: f64) -> Self;
    /// This number in double precision, exact.
    fn wide(self) -> f64;
    /// a·b + c, rounded once if `FUSED` and twice otherwise.
    fn fma<const FUSED: bool>(a: Self, b: Self, c: Self) -> Self;
    /// a + b.
    fn plus(self, b: Self) -> Self;
    /// |a − b|.
    fn distance(self, b: Self) -> Self;
    /// a·b.
    fn times(self, b: Self) -> Self;
}

macro_rules! real {
    ($t:ty, $precision:ident, $negligible:expr) => {
        impl Real for $t {
            const PRECISION: Precision = Precision::$precision;
            const ZERO: Self = 0.0;
            const NEGLIGIBLE: Self = $negligible;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn fma<const FUSED: bool>(a: Self, b: Self, c: Self) -> Self {
                if FUSED { a.mul_add(b, c) } else { a * b + c }
            }

            #[inline(always)]
            fn plus(self, b: Self) -> Self {
                self + b
            }

            #[inline(always)]
            fn distance(self, b: Self) -> Self {
                (self - b).abs()
            }

            #[inline(always)]
            fn times(self, b: Self) -> Self {
                self * b
            }
        }
    };
}
real!(f32, F32, 1e-28);
real!(f64, F64, 1e-280);
