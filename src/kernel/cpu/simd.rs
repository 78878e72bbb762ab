//! Run-time choice of the instruction set.
//!
//! A body is written once, generic in its level. [`dispatch`] compiles it for every level and
//! runs it at the level of this processor, which is detected once.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "functions compiled for a level that the processor was asked for")
)]
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other processors have no levels"))]

use std::sync::OnceLock;

use crate::util::inline_array::each;

/// Rows in a slice of ELL entries.
pub const SLICE: usize = 64;
/// Rows of a tile; vector instructions compute them together.
pub const TILE: usize = 16;

/// Level of code outside of bodies, with two roundings of a multiply-add on every processor.
pub(crate) const UNFUSED: u8 = 0;
/// Level of the instruction set of the build target.
pub(crate) const PORTABLE: u8 = 1;
/// Level with AVX2 and FMA.
pub(crate) const AVX2: u8 = 2;
/// Level with AVX-512 F and VL.
pub(crate) const AVX512: u8 = 3;

/// Permission to run code of a level; a zero-sized type that only this crate can construct.
#[derive(Debug, Clone, Copy)]
pub struct At<const LEVEL: u8>(());

impl<const LEVEL: u8> At<LEVEL> {
    /// Returns the permission within a [`Body`]. [`dispatch`] runs bodies at most at this
    /// processor's level.
    #[inline(always)]
    pub(crate) fn of_body() -> Self {
        Self(())
    }
}

/// Returns true if multiply-adds of a level round once.
pub(crate) const fn fused(level: u8) -> bool {
    let by_target = cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma");
    level > PORTABLE || (level == PORTABLE && by_target)
}

/// Returns the best level of this processor.
pub(crate) fn level() -> u8 {
    static LEVEL: OnceLock<u8> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            // For tests and measurements of other processors, and of adapters that round like them.
            let most = match std::env::var("KOLMO_LEVEL").as_deref() {
                Ok("portable") => return PORTABLE,
                Ok("avx2") => AVX2,
                _ => AVX512,
            };
            let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if fma
                && most > AVX2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
            {
                return AVX512;
            }
            if fma {
                return AVX2;
            }
        }
        PORTABLE
    })
}

/// A computation that is compiled for every level.
///
/// `run` must be `#[inline(always)]`, so that its code uses the features of the function that it is
/// inlined into.
pub(crate) trait Body {
    /// Runs at a level: [`PORTABLE`], [`AVX2`] or [`AVX512`].
    fn run<const LEVEL: u8>(self);
}

/// Runs a body at this processor's level.
pub(crate) fn dispatch<B: Body>(body: B) {
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: level() detected every feature that the function is compiled for.
        AVX512 => unsafe { avx512(body) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: level() detected every feature that the function is compiled for.
        AVX2 => unsafe { avx2(body) },
        _ => body.run::<PORTABLE>(),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
unsafe fn avx512<B: Body>(body: B) {
    body.run::<AVX512>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<B: Body>(body: B) {
    body.run::<AVX2>();
}

/// Stores eight numbers, past the caches if the level can and `to` is aligned. Call [`streamed`]
/// after the last one.
#[inline(always)]
pub(crate) fn stream<const LEVEL: u8, T: bytemuck::Pod>(to: &mut [T; 8], from: &[T; 8]) {
    #[cfg(target_arch = "x86_64")]
    if LEVEL >= AVX512 && size_of::<T>() == 8 && to.as_ptr().addr().is_multiple_of(64) {
        use std::arch::x86_64::{_mm512_loadu_pd, _mm512_stream_pd};
        // SAFETY: a body runs at a level that the processor has; source and target have 64 bytes,
        // and the target is aligned.
        unsafe { _mm512_stream_pd(to.as_mut_ptr().cast(), _mm512_loadu_pd(from.as_ptr().cast())) };
        return;
    }
    *to = *from;
}

/// Transposes eight rows of eight numbers.
#[inline(always)]
pub(crate) fn transpose<const LEVEL: u8, T: bytemuck::Pod>(rows: [&[T; 8]; 8], columns: &mut [[T; 8]; 8]) {
    #[cfg(target_arch = "x86_64")]
    if LEVEL >= AVX512 && size_of::<T>() == 8 {
        use std::arch::x86_64::{
            __m512d, _mm512_loadu_pd, _mm512_shuffle_f64x2, _mm512_storeu_pd, _mm512_unpackhi_pd,
            _mm512_unpacklo_pd,
        };
        // SAFETY: a body runs at a level that the processor has; every row and every column has 64
        // bytes.
        unsafe {
            let row: [__m512d; 8] = each(rows, |row| _mm512_loadu_pd(row.as_ptr().cast()));
            let halves = |a, b| [_mm512_shuffle_f64x2::<0x88>(a, b), _mm512_shuffle_f64x2::<0xdd>(a, b)];
            // Rows are interleaved in pairs by even or odd columns, then split by quarters of a
            // vector.
            for odd in 0..2 {
                let pair = |k: usize| match odd {
                    0 => _mm512_unpacklo_pd(row[2 * k], row[2 * k + 1]),
                    _ => _mm512_unpackhi_pd(row[2 * k], row[2 * k + 1]),
                };
                let ([a, b], [c, d]) = (halves(pair(0), pair(1)), halves(pair(2), pair(3)));
                let ([first, third], [second, fourth]) = (halves(a, c), halves(b, d));
                for (k, column) in [first, second, third, fourth].into_iter().enumerate() {
                    _mm512_storeu_pd(columns[2 * k + odd].as_mut_ptr().cast(), column);
                }
            }
        }
        return;
    }
    for (k, column) in columns.iter_mut().enumerate() {
        *column = each(rows, |row| row[k]);
    }
}

/// Orders the stores of [`stream`] before later stores of this thread (store fence).
#[inline(always)]
pub(crate) fn streamed() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction, and it touches no memory.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches the cache line of `data[at]`, if that element exists.
#[inline(always)]
pub(crate) fn prefetch_line<T>(data: &[T], at: usize) {
    prefetch_lines::<1, T>(data, at);
}

/// Prefetches `LINES` cache lines from `data[at]` on, if that element exists.
#[inline(always)]
pub(crate) fn prefetch_lines<const LINES: usize, T>(data: &[T], at: usize) {
    if let Some(here) = data.get(at) {
        prefetch_from(here, LINES);
    }
}

/// Prefetches `lines` cache lines from an address on; any address is allowed.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only x86 has the instruction"))]
#[inline(always)]
pub(super) fn prefetch_from<T>(here: *const T, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory; any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(here.wrapping_byte_add(64 * line).cast()) };
    }
}
