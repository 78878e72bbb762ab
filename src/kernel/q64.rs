//! Fractions of 2⁶⁴ that round down, with equal bits on every device.
//!
//! Sums of products are fractions of 2¹²⁸, and a row is rounded once. `docs/certificate.md` proves
//! that nothing overflows. It also proves that lower bounds as inputs give lower bounds as results.

use super::Precision;
use super::cpu::q64_simd;
use super::cpu::simd::At;
use super::real::Number;

/// The number `self.0`·2⁻⁶⁴, from 0 to 1 − 2⁻⁶⁴.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Q64(pub u64);

/// Factor 2⁶⁴ from a fraction to the integer that stores it.
const ONE: f64 = 18_446_744_073_709_551_616.0;

/// Returns q = ⌊2⁶⁴ a/b⌋ for a ≥ 0 and b > 0, at most 2⁶⁴ − 1, and true if q < 2⁶⁴ a/b.
pub(crate) fn quotient(a: f64, b: f64) -> (u64, bool) {
    // A significand of 53 bits, the highest of which is set, and the biased exponent.
    let parts = |x: f64| {
        let (exponent, fraction) = ((x.to_bits() >> 52) as i32, x.to_bits() & ((1 << 52) - 1));
        match exponent {
            0 => {
                let shift = fraction.leading_zeros().min(63) as i32 - 11;
                (fraction << shift, 1 - shift)
            }
            _ => (fraction | 1 << 52, exponent),
        }
    };
    if a >= b {
        return (u64::MAX, true);
    }
    let ((a, of_a), (b, of_b)) = (parts(a), parts(b));
    match (a, of_b - of_a) {
        (0, _) => (0, false),
        (_, shift @ 0..=64) => {
            let (a, b) = (u128::from(a) << (64 - shift), u128::from(b));
            ((a / b) as u64, a % b != 0)
        }
        _ => (0, true),
    }
}

impl Q64 {
    /// Returns 2⁶⁴ times the number.
    #[inline(always)]
    fn long(self) -> u128 {
        u128::from(self.0)
    }
}

impl Number for Q64 {
    const PRECISION: Precision = Precision::Q64;
    const ZERO: Self = Self(0);
    const NEGLIGIBLE: Self = Self(0);
    type Sum = u128;
    const NONE: u128 = 0;

    #[inline(always)]
    fn of(value: f64) -> Self {
        Self((value * ONE) as u64)
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        let beyond = 11u32.saturating_sub(self.0.leading_zeros());
        (self.0 >> beyond << beyond) as f64 / ONE
    }

    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn entry(rate: f64, alpha: f64) -> Self {
        Self(quotient(rate, alpha).0)
    }

    /// Returns 1 − μ, since μ = 1 is not representable.
    #[inline(always)]
    fn factor(mu: f64) -> Self {
        Self::of(1.0 - mu)
    }

    #[inline(always)]
    fn whole(self) -> u128 {
        self.long() << 64
    }

    #[inline(always)]
    fn product(a: Self, b: Self) -> u128 {
        a.long() * b.long()
    }

    #[inline(always)]
    fn plus_product<const FUSED: bool>(a: Self, b: Self, s: u128) -> u128 {
        s.wrapping_add(Self::product(a, b))
    }

    #[inline(always)]
    fn plus_sum(a: u128, b: u128) -> u128 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn capped(a: u128, b: u128) -> u128 {
        a.saturating_add(b)
    }

    #[inline(always)]
    fn number(s: u128) -> Self {
        Self((s >> 64) as u64)
    }

    #[inline(always)]
    fn weighted<const FUSED: bool>(w: Self, a: Self, sum: Self) -> Self {
        Self(sum.0.wrapping_add(Self::number(Self::product(w, a)).0))
    }

    #[inline(always)]
    fn stepped<const FUSED: bool>(s: u128, leave: Self, own: Self, _: Self) -> Self {
        Self::number(s.wrapping_add(own.whole()).wrapping_sub(Self::product(leave, own)))
    }

    #[inline(always)]
    fn stepped_rows<const LEVEL: u8, const N: usize>(
        _: At<LEVEL>,
        sums: &[u128; N],
        leave: &[Self; N],
        own: &[Self; N],
        _: Self,
    ) -> [Self; N] {
        q64_simd::stepped::<LEVEL, N>(sums, leave, own)
    }

    #[inline(always)]
    fn weighted_rows<const LEVEL: u8, const N: usize>(
        _: At<LEVEL>,
        w: Self,
        a: &[Self; N],
        sums: &[Self; N],
    ) -> [Self; N] {
        q64_simd::weighted::<LEVEL, N>(w, a, sums)
    }

    /// Computes 2 next − before modulo 1, since fractions have no sign.
    #[inline(always)]
    fn recurred(next: Self, before: Self) -> Self {
        Self(next.0.wrapping_mul(2).wrapping_sub(before.0))
    }

    #[inline(always)]
    fn deviation(leak: Self, x: Self, y: Self) -> u128 {
        y.whole().abs_diff(x.whole() - Self::product(leak, x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact_and_rounded_down() {
        assert_eq!(quotient(1.0, 1.0), (u64::MAX, true));
        assert_eq!(quotient(1.0, 2.0), (1 << 63, false));
        assert_eq!(quotient(1.0, 3.0), (u64::MAX / 3, true));
        assert_eq!(quotient(2.0, 3.0), (u64::MAX / 3 * 2, true));
        assert_eq!(quotient(0.0, 3.0), (0, false));
        assert_eq!(quotient(1.0, 2f64.powi(64)), (1, false));
        assert_eq!(quotient(1.0, 2f64.powi(65)), (0, true));
        assert_eq!(quotient(f64::from_bits(3), 1.5), (0, true));
        assert_eq!(quotient(f64::from_bits(3), f64::MIN_POSITIVE), (3 << 12, false));
        // 0.1 is 3602879701896397 · 2⁻⁵⁵.
        assert_eq!(quotient(0.1, 1.0), (3_602_879_701_896_397 << 9, false));
    }

    #[test]
    fn numbers_are_read_as_doubles_rounded_down() {
        for bits in [0, 1, u64::MAX, 1 << 63, (1 << 53) + 1, 0x1234_5678_9abc_def1] {
            let number = Q64(bits);
            let read = Q64::of(number.wide());
            assert!(read <= number && number.0 - read.0 <= number.0 >> 52, "{bits}");
        }
        assert_eq!((Q64::of(1.0), Q64::of(0.5)), (Q64(u64::MAX), Q64(1 << 63)));
        assert_eq!(Q64::of(-0.25), Q64(0));
    }

    #[test]
    fn a_step_rounds_once() {
        let (third, half) = (Q64(u64::MAX / 3), Q64(1 << 63));
        let s = Q64::plus_product::<true>(third, half, Q64::product(third, half));
        assert_eq!(Q64::number(s), third);
        // A half, after a third of it has left.
        assert_eq!(Q64::stepped::<true>(0, third, half, Q64::ZERO).0, 6_148_914_691_236_517_205);
        assert_eq!(
            Q64::stepped::<true>(0, Q64::ZERO, half, Q64::ZERO),
            half,
            "nothing leaves an absorbing state"
        );
        assert_eq!(Q64::deviation(Q64::factor(1.0), half, third), Q64(half.0 - third.0).whole());
        assert_eq!(Q64::deviation(Q64::factor(0.5), half, Q64(1 << 62)), 0);
    }
}
