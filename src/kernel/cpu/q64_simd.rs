//! Vector instructions for [`Q64`]: sums of products, and the end of a step.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "SIMD intrinsics"))]

#[cfg(target_arch = "x86_64")]
use super::simd::{AVX2, PORTABLE};
use crate::kernel::{Number, Q64};
use crate::util::inline_array::array;

/// Computes [`Number::stepped`] for N rows. LEVEL must be at most this processor's level.
#[inline(always)]
pub(crate) fn stepped<const LEVEL: u8, const N: usize>(
    sums: &[u128; N],
    leave: &[Q64; N],
    own: &[Q64; N],
) -> [Q64; N] {
    #[cfg(target_arch = "x86_64")]
    if LEVEL > PORTABLE && N.is_multiple_of(8) {
        let mut y = [Q64::ZERO; N];
        let (s, leave, own, to) = (sums.as_ptr(), leave.as_ptr(), own.as_ptr(), y.as_mut_ptr());
        for i in (0..N).step_by(if LEVEL == AVX2 { 4 } else { 8 }) {
            // SAFETY: the caller guarantees a level that this processor has; N is a multiple of the
            // vector length.
            unsafe {
                match LEVEL {
                    AVX2 => avx2::step(s.add(i), leave.add(i), own.add(i), to.add(i)),
                    _ => avx512::step(s.add(i), leave.add(i), own.add(i), to.add(i)),
                }
            }
        }
        return y;
    }
    array(|i| Q64::stepped::<false>(sums[i], leave[i], own[i], Q64::ZERO))
}

/// Computes [`Number::weighted`] for N numbers. LEVEL must be at most this processor's level.
#[inline(always)]
pub(crate) fn weighted<const LEVEL: u8, const N: usize>(w: Q64, a: &[Q64; N], sum: &[Q64; N]) -> [Q64; N] {
    #[cfg(target_arch = "x86_64")]
    if LEVEL > PORTABLE && N.is_multiple_of(8) {
        let mut sums = *sum;
        let (a, to) = (a.as_ptr(), sums.as_mut_ptr());
        for i in (0..N).step_by(if LEVEL == AVX2 { 4 } else { 8 }) {
            // SAFETY: as in `stepped`.
            unsafe {
                match LEVEL {
                    AVX2 => avx2::add_weighted(w, a.add(i), to.add(i)),
                    _ => avx512::add_weighted(w, a.add(i), to.add(i)),
                }
            }
        }
        return sums;
    }
    array(|i| Q64::weighted::<false>(w, a[i], sum[i]))
}

/// Defines sums in three parts, as `shaders/lib/q64.wgsl` does, with vectors of one instruction
/// set. [`store`](avx512::store) makes the parts disjoint.
#[cfg(target_arch = "x86_64")]
macro_rules! parts {
    ($name:ident, $features:literal, $vector:ident, zero: $zero:ident, load: $load:ident, store: $store:ident,
     set: $set:ident, and: $and:ident, xor: $xor:ident, add: $add:ident, multiply: $multiply:ident, up: $up:ident,
     down: $down:ident, joined: |$high:ident, $low:ident| $joined:expr,
     parted: |$first:ident, $second:ident| $parted:expr) => {
        pub(super) mod $name {
            use std::arch::x86_64::*;

            use crate::kernel::Q64;

            /// Sums of multiples of 2⁻¹²⁸: the upper 64 bits, and a sum for each of the lower two
            /// words.
            #[derive(Clone, Copy)]
            pub(in super::super) struct WordSums {
                high: $vector,
                middle: $vector,
                low: $vector,
            }

            /// Loads a vector of numbers.
            ///
            /// # Safety
            /// The processor has the features, and `from` points to a vector of numbers.
            #[target_feature(enable = $features)]
            #[inline]
            pub(in super::super) unsafe fn load(from: *const Q64) -> $vector {
                // SAFETY: guaranteed by the caller; a fraction is an integer.
                unsafe { $load(from.cast()) }
            }

            #[target_feature(enable = $features)]
            #[inline]
            pub(in super::super) fn none() -> WordSums {
                WordSums { high: $zero(), middle: $zero(), low: $zero() }
            }

            #[target_feature(enable = $features)]
            #[inline]
            pub(in super::super) fn add_product(a: $vector, b: $vector, s: WordSums) -> WordSums {
                let word = $set(0xffff_ffff);
                let (a1, b1) = ($down::<32>(a), $down::<32>(b));
                let low = $multiply(a, b);
                // No addition wraps: (2³² − 1)² + 2³² − 1 < 2⁶⁴.
                let one = $add($multiply(a1, b), $down::<32>(low));
                let other = $add($multiply(a, b1), $and(one, word));
                let high = $add($multiply(a1, b1), $add($down::<32>(one), $down::<32>(other)));
                WordSums {
                    high: $add(s.high, high),
                    middle: $add(s.middle, $and(other, word)),
                    low: $add(s.low, $and(low, word)),
                }
            }

            /// Writes a vector of sums.
            ///
            /// # Safety
            /// The processor has the features, and `to` points to space for a vector of sums.
            #[target_feature(enable = $features)]
            #[inline]
            pub(in super::super) unsafe fn store(to: *mut u128, s: WordSums) {
                let middle = $add(s.middle, $down::<32>(s.low));
                let high = $add(s.high, $down::<32>(middle));
                let low = $add($up::<32>(middle), $and(s.low, $set(0xffff_ffff)));
                let ($high, $low) = (high, low);
                let joined: [$vector; 2] = $joined;
                // SAFETY: guaranteed by the caller.
                unsafe { to.cast::<[$vector; 2]>().write_unaligned(joined) };
            }

            /// Next probabilities y = s + own − leave·own of a vector of rows, with inflow s.
            ///
            /// In integers, 2⁶⁴·own − leave·own = (2⁶⁴ − 1 − leave)·own + own, and the factor in
            /// parentheses is the complement of `leave`.
            ///
            /// # Safety
            /// The processor has the features, and every pointer is to a vector of elements.
            #[target_feature(enable = $features)]
            #[inline]
            pub(super) unsafe fn step(s: *const u128, leave: *const Q64, own: *const Q64, y: *mut Q64) {
                // SAFETY: guaranteed by the caller.
                let [$first, $second] = unsafe { s.cast::<[$vector; 2]>().read_unaligned() };
                // SAFETY: guaranteed by the caller.
                let (leave, own) = unsafe { (load(leave), load(own)) };
                let (high, low): ($vector, $vector) = $parted;
                let word = $set(0xffff_ffff);
                let stays = WordSums {
                    high,
                    middle: $add($down::<32>(low), $down::<32>(own)),
                    low: $add($and(low, word), $and(own, word)),
                };
                let all = add_product($xor(leave, $set(-1)), own, stays);
                let middle = $add(all.middle, $down::<32>(all.low));
                // SAFETY: guaranteed by the caller.
                unsafe { $store(y.cast(), $add(all.high, $down::<32>(middle))) };
            }

            /// Adds w·a to `sum`, for a vector of numbers.
            ///
            /// # Safety
            /// The processor has the features, and `a` and `sum` point to vectors of numbers.
            #[target_feature(enable = $features)]
            #[inline]
            pub(super) unsafe fn add_weighted(w: Q64, a: *const Q64, sum: *mut Q64) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let product = add_product($set(w.0 as i64), load(a), none());
                    $store(sum.cast(), $add(load(sum), product.high));
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
parts!(
    avx512, "avx512f,avx512vl,avx2,fma", __m512i, zero: _mm512_setzero_si512, load: _mm512_loadu_epi64,
    store: _mm512_storeu_epi64, set: _mm512_set1_epi64, and: _mm512_and_si512, xor: _mm512_xor_si512,
    add: _mm512_add_epi64, multiply: _mm512_mul_epu32, up: _mm512_slli_epi64, down: _mm512_srli_epi64,
    joined: |high, low| {
        let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        let second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
        [_mm512_permutex2var_epi64(low, first, high), _mm512_permutex2var_epi64(low, second, high)]
    },
    parted: |first, second| {
        let high = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let low = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        (_mm512_permutex2var_epi64(first, high, second), _mm512_permutex2var_epi64(first, low, second))
    }
);
#[cfg(target_arch = "x86_64")]
parts!(
    avx2, "avx2,fma", __m256i, zero: _mm256_setzero_si256, load: _mm256_loadu_si256,
    store: _mm256_storeu_si256, set: _mm256_set1_epi64x, and: _mm256_and_si256, xor: _mm256_xor_si256,
    add: _mm256_add_epi64, multiply: _mm256_mul_epu32, up: _mm256_slli_epi64, down: _mm256_srli_epi64,
    joined: |high, low| {
        let (even, odd) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
        [_mm256_permute2x128_si256::<0x20>(even, odd), _mm256_permute2x128_si256::<0x31>(even, odd)]
    },
    parted: |first, second| {
        let even = _mm256_permute2x128_si256::<0x20>(first, second);
        let odd = _mm256_permute2x128_si256::<0x31>(first, second);
        (_mm256_unpackhi_epi64(even, odd), _mm256_unpacklo_epi64(even, odd))
    }
);
