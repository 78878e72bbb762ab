//! Run-time choice of instructions, and the gathers of a slice of ELL rows.
//!
//! A body is written once, generic in its [`Level`], and compiled for every level by [`dispatch`]; the level of
//! this processor is looked up once.

#![expect(
    unsafe_code,
    reason = "SIMD intrinsics and functions compiled for a level that the processor was asked for"
)]

use std::sync::OnceLock;

/// Rows in a slice of ELL entries.
pub const SLICE: usize = 64;

/// Instruction sets that bodies are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// What the build's target has.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F and VL.
    Avx512,
}

/// [`Level::Portable`] as a const parameter.
pub const PORTABLE: u8 = 0;
/// [`Level::Avx2`] as a const parameter.
pub const AVX2: u8 = 1;
/// [`Level::Avx512`] as a const parameter.
pub const AVX512: u8 = 2;

/// Whether a level's multiply and add round once.
pub const fn fused(level: u8) -> bool {
    level != PORTABLE || cfg!(target_arch = "aarch64") || cfg!(target_feature = "fma")
}

/// The best level of this processor.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        {
            let fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if fma && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                return Level::Avx512;
            }
            if fma {
                return Level::Avx2;
            }
        }
        Level::Portable
    })
}

/// A computation compiled once for every level. `run` must be `#[inline(always)]`, so that its code takes on
/// the features of the function that it is inlined into.
pub trait Body {
    /// Runs at that level, one of [`PORTABLE`], [`AVX2`], [`AVX512`].
    fn run<const LEVEL: u8>(self);
}

/// Runs a body at this processor's level.
pub fn dispatch<B: Body>(body: B) {
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: level() found every feature that the function is compiled for.
        Level::Avx512 => unsafe { avx512(body) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { avx2(body) },
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

/// Asks for the cache lines with 96 bytes of `data` from element `at` on, as far as there are any, and does not wait.
#[inline(always)]
pub fn prefetch<T>(data: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(here) = data.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let here: *const i8 = std::ptr::from_ref(here).cast();
        // SAFETY: a prefetch reads nothing, whatever the address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(here);
            _mm_prefetch::<_MM_HINT_T0>(here.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, at);
}

/// Gathers of a slice's columns, the one operation that compilers do not vectorise well by themselves.
pub trait Gather: Sized {
    /// `sums[r]` = sum over k of `values[64k + r] · x[columns[64k + r]]`, k ascending, for the 64 rows r of one slice.
    /// Each term rounds once, at [`PORTABLE`] possibly twice. A column beyond the end of `x`
    /// reads its last element. LEVEL must be at most this processor's level.
    fn slice_sums<const LEVEL: u8>(columns: &[u32], values: &[Self], x: &[Self], sums: &mut [Self; SLICE]);
}

macro_rules! gather {
    ($t:ty, $avx512:ident, $avx2:ident) => {
        impl Gather for $t {
            #[inline(always)]
            fn slice_sums<const LEVEL: u8>(
                columns: &[u32],
                values: &[Self],
                x: &[Self],
                sums: &mut [Self; SLICE],
            ) {
                assert!(
                    columns.len() == values.len() && columns.len() % SLICE == 0 && !x.is_empty(),
                    "a slice of {} columns, {} values, a vector of {}",
                    columns.len(),
                    values.len(),
                    x.len()
                );
                #[cfg(target_arch = "x86_64")]
                if LEVEL != PORTABLE && x.len() <= i32::MAX as usize {
                    // SAFETY: the caller runs at a level that this processor has; lengths were checked above, and
                    // indices are clamped to the last element of x, which fits the gathers' signed 32 bits.
                    unsafe {
                        if LEVEL == AVX512 {
                            x86::$avx512(columns, values, x, sums);
                        } else {
                            x86::$avx2(columns, values, x, sums);
                        }
                    }
                    return;
                }
                *sums = [0.0; SLICE];
                let last = x.len() - 1;
                for (c, v) in columns.chunks_exact(SLICE).zip(values.chunks_exact(SLICE)) {
                    for ((s, &c), &v) in sums.iter_mut().zip(c).zip(v) {
                        let x = x[(c as usize).min(last)];
                        *s = if fused(LEVEL) { v.mul_add(x, *s) } else { v * x + *s };
                    }
                }
            }
        }
    };
}
gather!(f64, f64_avx512, f64_avx2);
gather!(f32, f32_avx512, f32_avx2);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::SLICE;
    use std::arch::x86_64::*;

    /// One pass of rows over all columns of a slice: `$regs` accumulators of `$lanes` rows each.
    macro_rules! sums {
        ($name:ident, $features:literal, $t:ty, $lanes:literal, $regs:literal, $zero:ident, $load:ident,
         $store:ident, $fma:ident, |$index:ident, $base:ident| $gather:expr, $load_index:expr, $last:expr, $min:ident) => {
            #[target_feature(enable = $features)]
            #[inline]
            pub(super) unsafe fn $name(columns: &[u32], values: &[$t], x: &[$t], sums: &mut [$t; SLICE]) {
                // SAFETY: every pointer stays inside its slice: k·64 + first + j·lanes + lanes ≤ columns.len() =
                // values.len(), and gathered indices are at most x.len() − 1.
                unsafe {
                    let last = $last(x.len() as i32 - 1);
                    let $base = x.as_ptr();
                    let (c, v) = (columns.as_ptr(), values.as_ptr());
                    let mut first = 0;
                    while first < SLICE {
                        let mut acc = [$zero(); $regs];
                        let mut at = first;
                        while at < columns.len() {
                            for (j, a) in acc.iter_mut().enumerate() {
                                let $index = $min($load_index(c.add(at + j * $lanes).cast()), last);
                                *a = $fma($load(v.add(at + j * $lanes)), $gather, *a);
                            }
                            at += SLICE;
                        }
                        for (j, a) in acc.iter().enumerate() {
                            $store(sums.as_mut_ptr().add(first + j * $lanes), *a);
                        }
                        first += $regs * $lanes;
                    }
                }
            }
        };
    }

    sums!(
        f64_avx512,
        "avx512f,avx512vl,avx2,fma",
        f64,
        8,
        8,
        _mm512_setzero_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_fmadd_pd,
        |i, base| _mm512_i32gather_pd::<8>(i, base),
        _mm256_loadu_si256,
        _mm256_set1_epi32,
        _mm256_min_epu32
    );
    sums!(
        f64_avx2,
        "avx2,fma",
        f64,
        4,
        8,
        _mm256_setzero_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_fmadd_pd,
        |i, base| _mm256_i32gather_pd::<8>(base, i),
        _mm_loadu_si128,
        _mm_set1_epi32,
        _mm_min_epu32
    );
    sums!(
        f32_avx512,
        "avx512f,avx512vl,avx2,fma",
        f32,
        16,
        4,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        |i, base| _mm512_i32gather_ps::<4>(i, base),
        _mm512_loadu_si512,
        _mm512_set1_epi32,
        _mm512_min_epu32
    );
    sums!(
        f32_avx2,
        "avx2,fma",
        f32,
        8,
        8,
        _mm256_setzero_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        |i, base| _mm256_i32gather_ps::<4>(base, i),
        _mm256_loadu_si256,
        _mm256_set1_epi32,
        _mm256_min_epu32
    );
}
