//! Vectors of elements at given indices, by a load of each element.
//!
//! Gather instructions of AMD processors, and of Intel processors with a microcode against leaks of
//! data, take longer than these loads.

#![expect(unsafe_code, reason = "SIMD intrinsics")]

use std::arch::x86_64::*;

use crate::kernel::Q64;

/// # Safety
/// The processor has AVX2, and `x` has an element at every index.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn four(x: *const f64, at: __m128i) -> __m256d {
    let pair = |at: i64| {
        let at = at.cast_unsigned();
        // SAFETY: guaranteed by the caller.
        unsafe { _mm_loadh_pd(_mm_load_sd(x.add(at as u32 as usize)), x.add((at >> 32) as usize)) }
    };
    _mm256_set_m128d(pair(_mm_extract_epi64::<1>(at)), pair(_mm_cvtsi128_si64(at)))
}

/// # Safety
/// The processor has AVX-512 F, and `x` has an element at every index.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
pub(super) unsafe fn eight(x: *const f64, at: __m256i) -> __m512d {
    let (low, high) = (_mm256_castsi256_si128(at), _mm256_extracti128_si256::<1>(at));
    // SAFETY: guaranteed by the caller.
    unsafe { _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(four(x, low)), four(x, high)) }
}

/// # Safety
/// As for `four`; a fraction is an integer.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn four_fractions(x: *const Q64, at: __m128i) -> __m256i {
    // SAFETY: guaranteed by the caller; loads keep every bit.
    unsafe { _mm256_castpd_si256(four(x.cast(), at)) }
}

/// # Safety
/// As for `eight`; a fraction is an integer.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
pub(super) unsafe fn eight_fractions(x: *const Q64, at: __m256i) -> __m512i {
    // SAFETY: guaranteed by the caller; loads keep every bit.
    unsafe { _mm512_castpd_si512(eight(x.cast(), at)) }
}

/// # Safety
/// As for `four`.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn eight_singles(x: *const f32, at: __m256i) -> __m256 {
    let pair = |at: i64| {
        let at = at.cast_unsigned();
        // SAFETY: guaranteed by the caller.
        unsafe { [*x.add(at as u32 as usize), *x.add((at >> 32) as usize)] }
    };
    let ([a, b], [c, d]) = (pair(_mm256_extract_epi64::<0>(at)), pair(_mm256_extract_epi64::<1>(at)));
    let ([e, f], [g, h]) = (pair(_mm256_extract_epi64::<2>(at)), pair(_mm256_extract_epi64::<3>(at)));
    _mm256_setr_ps(a, b, c, d, e, f, g, h)
}

/// # Safety
/// As for `eight`.
#[target_feature(enable = "avx512f,avx2")]
#[inline]
pub(super) unsafe fn sixteen_singles(x: *const f32, at: __m512i) -> __m512 {
    let (low, high) = (_mm512_castsi512_si256(at), _mm512_extracti64x4_epi64::<1>(at));
    // SAFETY: guaranteed by the caller; the halves are moved as doubles, bit by bit.
    let (low, high) = unsafe { (eight_singles(x, low), eight_singles(x, high)) };
    let low = _mm512_castps_pd(_mm512_castps256_ps512(low));
    _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, _mm256_castps_pd(high)))
}
