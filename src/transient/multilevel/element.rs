//! Elements of vectors for one equation, or for two that share a matrix, which is read once.

use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;

/// Element of a vector: one number for each of the equations that are solved together.
pub(super) trait Element:
    Copy
    + Zeroable
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// Number of components.
    const NUMBERS: usize;

    /// Creates an element with the components `of(k)`.
    fn of(of: impl Fn(usize) -> f64) -> Self;
    /// Returns component k.
    fn number(self, k: usize) -> f64;

    /// Creates an element with equal components.
    #[inline]
    fn all(number: f64) -> Self {
        Self::of(|_| number)
    }

    /// Divides by component; 0 if the divisor is not positive or the quotient not finite.
    fn over(self, by: Self) -> Self {
        let ratio = |k| Some(self.number(k) / by.number(k)).filter(|r| by.number(k) > 0.0 && r.is_finite());
        Self::of(|k| ratio(k).unwrap_or(0.0))
    }

    /// Returns the maximum component; NaN if a component is NaN.
    fn largest(self) -> f64 {
        let larger = |most: f64, number: f64| if number > most || number.is_nan() { number } else { most };
        (1..Self::NUMBERS).fold(self.number(0), |most, k| larger(most, self.number(k)))
    }

    /// Sets element i of a shared vector.
    #[inline]
    fn store(self, shared: &[AtomicU64], i: usize) {
        let place = |k| &shared[Self::NUMBERS * i + k];
        (0..Self::NUMBERS).for_each(|k| place(k).store(self.number(k).to_bits(), Ordering::Relaxed));
    }

    /// Returns element i of a shared vector.
    #[inline]
    fn load(shared: &[AtomicU64], i: usize) -> Self {
        Self::of(|k| f64::from_bits(shared[Self::NUMBERS * i + k].load(Ordering::Relaxed)))
    }
}

impl Element for f64 {
    const NUMBERS: usize = 1;

    #[inline]
    fn of(of: impl Fn(usize) -> Self) -> Self {
        of(0)
    }

    #[inline]
    fn number(self, _: usize) -> f64 {
        self
    }
}

/// One number for each of two right-hand sides that are solved together.
#[derive(Debug, Clone, Copy, Zeroable)]
pub(super) struct Two([f64; 2]);

impl Element for Two {
    const NUMBERS: usize = 2;

    #[inline]
    fn of(of: impl Fn(usize) -> f64) -> Self {
        Self([of(0), of(1)])
    }

    #[inline]
    fn number(self, k: usize) -> f64 {
        self.0[k]
    }
}

impl Sum for Two {
    fn sum<I: Iterator<Item = Self>>(elements: I) -> Self {
        elements.fold(Self::all(0.0), Self::add)
    }
}

macro_rules! each {
    ($($operation:ident $name:ident $sign:tt),*) => {$(
        impl $operation for Two {
            type Output = Self;

            #[inline]
            fn $name(self, by: Self) -> Self {
                Self::of(|k| self.0[k] $sign by.0[k])
            }
        }
    )*};
}
each!(Add add +, Sub sub -, Mul mul *, Div div /);
