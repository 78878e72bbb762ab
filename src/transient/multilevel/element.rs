//! Elements of vectors: numbers, or pairs of numbers of two equations that are solved together.
//!
//! Two equations read the matrix once. Each operation acts on each number alone.

use std::iter::Sum;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Zeroable;

/// A number, or a pair of numbers.
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
    /// Number of numbers.
    const NUMBERS: usize;

    /// Returns the element whose number k is `of(k)`.
    fn of(of: impl Fn(usize) -> f64) -> Self;
    /// Returns number k.
    fn number(self, k: usize) -> f64;

    /// Returns the element with equal numbers.
    #[inline]
    fn all(number: f64) -> Self {
        Self::of(|_| number)
    }

    /// Returns self / by, and 0 where this is not finite, or `by` is not above 0.
    fn over(self, by: Self) -> Self {
        let ratio = |k| Some(self.number(k) / by.number(k)).filter(|r| by.number(k) > 0.0 && r.is_finite());
        Self::of(|k| ratio(k).unwrap_or(0.0))
    }

    /// Returns the largest number, or NaN.
    fn largest(self) -> f64 {
        let larger = |most: f64, number: f64| if number <= most { most } else { number };
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

/// Two numbers.
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
