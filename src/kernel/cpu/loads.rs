//! Vectors of elements at given indices, by a load of each element.
//!
//! These loads are faster than gather instructions on AMD processors, and on Intel processors with
//! the mitigation of the Downfall vulnerability. A `u64` packs two indices, the first one in its
//! low half; `mask` selects the bits of an index.

#![expect(unsafe_code, reason = "SIMD intrinsics")]

use std::arch::x86_64::*;

use crate::kernel::Q64;

// Closures and `array::map` lack the target features of their callers, so they may stay calls.

#[inline(always)]
fn index(at: u64, mask: u32) -> usize {
    (at & u64::from(mask)) as usize
}

/// # Safety
/// `x` has an element at every index.
#[inline(always)]
unsafe fn pair(x: *const f64, at: u64, mask: u32) -> __m128d {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm_loadh_pd(_mm_load_sd(x.add(index(at, mask))), x.add(index(at >> 32, mask))) }
}

/// # Safety
/// The processor has AVX2, and `x` has an element at every index.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn four(x: *const f64, [low, high]: [u64; 2], mask: u32) -> __m256d {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm256_set_m128d(pair(x, high, mask), pair(x, low, mask)) }
}

/// # Safety
/// The processor has AVX-512 F, and `x` has an element at every index.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
pub(super) unsafe fn eight(x: *const f64, [a, b, c, d]: [u64; 4], mask: u32) -> __m512d {
    // SAFETY: guaranteed by the caller.
    let (low, high) = unsafe { (four(x, [a, b], mask), four(x, [c, d], mask)) };
    _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(low), high)
}

/// # Safety
/// Conditions of `four`; a fraction is stored as an integer.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn four_fractions(x: *const Q64, at: [u64; 2], mask: u32) -> __m256i {
    // SAFETY: guaranteed by the caller; loads keep every bit.
    unsafe { _mm256_castpd_si256(four(x.cast(), at, mask)) }
}

/// # Safety
/// Conditions of `eight`; a fraction is stored as an integer.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
pub(super) unsafe fn eight_fractions(x: *const Q64, at: [u64; 4], mask: u32) -> __m512i {
    // SAFETY: guaranteed by the caller; loads keep every bit.
    unsafe { _mm512_castpd_si512(eight(x.cast(), at, mask)) }
}

/// # Safety
/// `x` has an element at every index.
#[inline(always)]
unsafe fn singles(x: *const f32, at: u64, mask: u32) -> [f32; 2] {
    // SAFETY: guaranteed by the caller.
    unsafe { [*x.add(index(at, mask)), *x.add(index(at >> 32, mask))] }
}

/// # Safety
/// Conditions of `four`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn eight_singles(x: *const f32, [a, b, c, d]: [u64; 4], mask: u32) -> __m256 {
    // SAFETY: guaranteed by the caller.
    let ([a, b], [c, d], [e, f], [g, h]) =
        unsafe { (singles(x, a, mask), singles(x, b, mask), singles(x, c, mask), singles(x, d, mask)) };
    _mm256_setr_ps(a, b, c, d, e, f, g, h)
}

/// # Safety
/// Conditions of `eight`.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
pub(super) unsafe fn sixteen_singles(x: *const f32, at: [u64; 8], mask: u32) -> __m512 {
    let [a, b, c, d, e, f, g, h] = at;
    // SAFETY: guaranteed by the caller; the halves are moved as doubles, bit by bit.
    let (low, high) = unsafe { (eight_singles(x, [a, b, c, d], mask), eight_singles(x, [e, f, g, h], mask)) };
    let low = _mm512_castps_pd(_mm512_castps256_ps512(low));
    _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, _mm256_castps_pd(high)))
}
