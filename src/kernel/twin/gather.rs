//! The gathers of a slice of ELL rows, the one operation that compilers do not vectorise well by themselves.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "SIMD intrinsics"))]

#[cfg(target_arch = "x86_64")]
use super::simd::PORTABLE;
use super::simd::{SLICE, fused};
use crate::kernel::{Number, Q64};

#[cfg(target_arch = "x86_64")]
use super::simd::AVX512;

/// Sums over the entries of 64 rows. In each function `sums[r]` = sum over k of value(64k + r) · x\[column(64k + r)\], k
/// ascending. Each term rounds once, at [`PORTABLE`] possibly twice. A column beyond the end of `x` reads its last
/// element, a number beyond a table the table's last. LEVEL must be at most this processor's level.
pub trait Gather: Sized {
    /// What sums are made in.
    type Total;

    /// Values and columns as they are.
    fn slice_sums<const LEVEL: u8>(
        columns: &[u32],
        values: &[Self],
        x: &[Self],
        sums: &mut [Self::Total; SLICE],
    );

    /// Entries of which the low `bits` bits, at most 31, are a column, the others the number of a value in `table`.
    fn packed_sums<const LEVEL: u8>(
        entries: &[u32],
        bits: u32,
        table: &[Self],
        x: &[Self],
        sums: &mut [Self::Total; SLICE],
    );

    /// Entries that are the number of a pair (column − r, value), r counted from `base` for the slice's first row.
    fn pair_sums<const LEVEL: u8>(
        entries: &[u8],
        offsets: &[u32],
        values: &[Self],
        base: u32,
        x: &[Self],
        sums: &mut [Self::Total; SLICE],
    );

    /// Sums of N neighbouring rows, eight or sixteen, of which the first is `x[at]`: entry k of row r is `values[k][r]` times
    /// `x[at + offsets[k] + r]`. Panics beyond the ends of `x`.
    fn tile_sums<const LEVEL: u8, const N: usize>(
        offsets: &[i32],
        values: &[[Self; N]],
        x: &[Self],
        at: i64,
    ) -> [Self::Total; N];
}

/// Whether indices into an array of this length fit the gathers' signed 32 bits.
#[cfg(target_arch = "x86_64")]
fn reachable(len: usize) -> bool {
    len <= i32::MAX as usize
}

macro_rules! gather {
    ($t:ty, $total:ty, $avx512:ident, $avx2:ident, $portable:ident, $tiles:expr) => {
        impl Gather for $t {
            type Total = $total;

            #[inline(always)]
            fn slice_sums<const LEVEL: u8>(
                columns: &[u32],
                values: &[Self],
                x: &[Self],
                sums: &mut [$total; SLICE],
            ) {
                assert!(
                    columns.len() == values.len() && columns.len() % SLICE == 0 && !x.is_empty(),
                    "a slice of {} columns, {} values, a vector of {}",
                    columns.len(),
                    values.len(),
                    x.len()
                );
                #[cfg(target_arch = "x86_64")]
                if LEVEL != PORTABLE && reachable(x.len()) {
                    // SAFETY: the caller runs at a level that this processor has; lengths were checked above, and
                    // indices are clamped to the last element of x, which fits the gathers' signed 32 bits.
                    unsafe {
                        if LEVEL == AVX512 {
                            x86::$avx512::plain(columns, values, x, sums);
                        } else {
                            x86::$avx2::plain(columns, values, x, sums);
                        }
                    }
                    return;
                }
                let entry = |e: usize| (columns[e] as usize, values[e]);
                $portable::<Self, LEVEL>(columns.len(), entry, x, sums);
            }

            #[inline(always)]
            fn packed_sums<const LEVEL: u8>(
                entries: &[u32],
                bits: u32,
                table: &[Self],
                x: &[Self],
                sums: &mut [$total; SLICE],
            ) {
                assert!(
                    entries.len() % SLICE == 0 && bits < 32 && !table.is_empty() && !x.is_empty(),
                    "a slice of {} entries, {bits} bits, a table of {}, a vector of {}",
                    entries.len(),
                    table.len(),
                    x.len()
                );
                #[cfg(target_arch = "x86_64")]
                if LEVEL != PORTABLE && reachable(x.len()) && reachable(table.len()) {
                    // SAFETY: as in slice_sums, the table's indices clamped to its last element.
                    unsafe {
                        if LEVEL == AVX512 {
                            x86::$avx512::packed(entries, bits, table, x, sums);
                        } else {
                            x86::$avx2::packed(entries, bits, table, x, sums);
                        }
                    }
                    return;
                }
                let (mask, last) = ((1u32 << bits) - 1, table.len() - 1);
                let entry = |e: usize| {
                    let word = entries[e];
                    ((word & mask) as usize, table[((word >> bits) as usize).min(last)])
                };
                $portable::<Self, LEVEL>(entries.len(), entry, x, sums);
            }

            #[inline(always)]
            fn pair_sums<const LEVEL: u8>(
                entries: &[u8],
                offsets: &[u32],
                values: &[Self],
                base: u32,
                x: &[Self],
                sums: &mut [$total; SLICE],
            ) {
                assert!(
                    entries.len() % SLICE == 0
                        && offsets.len() == values.len()
                        && !values.is_empty()
                        && !x.is_empty(),
                    "a slice of {} entries, {} offsets, {} values, a vector of {}",
                    entries.len(),
                    offsets.len(),
                    values.len(),
                    x.len()
                );
                #[cfg(target_arch = "x86_64")]
                if LEVEL != PORTABLE && reachable(x.len()) && reachable(values.len()) {
                    // SAFETY: as in slice_sums, the tables' indices clamped to their last element.
                    unsafe {
                        if LEVEL == AVX512 {
                            x86::$avx512::pairs(entries, offsets, values, base, x, sums);
                        } else {
                            x86::$avx2::pairs(entries, offsets, values, base, x, sums);
                        }
                    }
                    return;
                }
                let last = values.len() - 1;
                let entry = |e: usize| {
                    let (id, row) = ((entries[e] as usize).min(last), base.wrapping_add((e % SLICE) as u32));
                    (row.wrapping_add(offsets[id]) as usize, values[id])
                };
                $portable::<Self, LEVEL>(entries.len(), entry, x, sums);
            }

            #[inline(always)]
            fn tile_sums<const LEVEL: u8, const N: usize>(
                offsets: &[i32],
                values: &[[Self; N]],
                x: &[Self],
                at: i64,
            ) -> [$total; N] {
                assert!(offsets.len() == values.len() && (N == 8 || N == 16), "a tile of {N} rows");
                $tiles(offsets, values, x, at)
            }
        }
    };
}
gather!(f64, f64, f64_avx512, f64_avx2, portable, by_tiles::<Self, LEVEL, N>);
gather!(f32, f32, f32_avx512, f32_avx2, portable, by_tiles::<Self, LEVEL, N>);
gather!(Q64, u128, q64_avx512, q64_avx2, by_rows, by_tiles_of_integers::<LEVEL, N>);

/// Four rows at a time, whose sums stay in registers.
#[inline(always)]
fn by_rows<T: Number, const LEVEL: u8>(
    entries: usize,
    entry: impl Fn(usize) -> (usize, T),
    x: &[T],
    sums: &mut [T::Sum; SLICE],
) {
    const ROWS: usize = 4;
    let last = x.len() - 1;
    for (group, sums) in sums.chunks_exact_mut(ROWS).enumerate() {
        let mut s = [T::NONE; ROWS];
        for at in (group * ROWS..entries).step_by(SLICE) {
            for (r, s) in s.iter_mut().enumerate() {
                let (column, value) = entry(at + r);
                *s = plus_product::<T, LEVEL>(value, x[column.min(last)], *s);
            }
        }
        sums.copy_from_slice(&s);
    }
}

#[inline(always)]
fn portable<T: Number, const LEVEL: u8>(
    entries: usize,
    entry: impl Fn(usize) -> (usize, T),
    x: &[T],
    sums: &mut [T::Sum; SLICE],
) {
    *sums = [T::NONE; SLICE];
    let last = x.len() - 1;
    for first in (0..entries).step_by(SLICE) {
        for (r, s) in sums.iter_mut().enumerate() {
            let (column, value) = entry(first + r);
            *s = plus_product::<T, LEVEL>(value, x[column.min(last)], *s);
        }
    }
}

#[inline(always)]
fn by_tiles<T: Number, const LEVEL: u8, const N: usize>(
    offsets: &[i32],
    values: &[[T; N]],
    x: &[T],
    at: i64,
) -> [T::Sum; N] {
    let mut sums = [T::NONE; N];
    for (&offset, values) in offsets.iter().zip(values) {
        let x = &x[(at + i64::from(offset)) as usize..][..N];
        for ((s, &value), &x) in sums.iter_mut().zip(values).zip(x) {
            *s = plus_product::<T, LEVEL>(value, x, *s);
        }
    }
    sums
}

/// The same with vector instructions where there are some.
#[inline(always)]
fn by_tiles_of_integers<const LEVEL: u8, const N: usize>(
    offsets: &[i32],
    values: &[[Q64; N]],
    x: &[Q64],
    at: i64,
) -> [u128; N] {
    #[cfg(target_arch = "x86_64")]
    if LEVEL != PORTABLE {
        let mut sums = [0; N];
        let runs = offsets.iter().map(|&offset| &x[(at + i64::from(offset)) as usize..][..N]);
        // SAFETY: the caller runs at a level that this processor has.
        unsafe {
            match LEVEL {
                AVX512 => x86::tile_avx512(values, runs, &mut sums),
                _ => x86::tile_avx2(values, runs, &mut sums),
            }
        }
        return sums;
    }
    by_tiles::<Q64, LEVEL, N>(offsets, values, x, at)
}

/// s + a·b.
#[inline(always)]
pub(crate) fn plus_product<T: Number, const LEVEL: u8>(a: T, b: T, s: T::Sum) -> T::Sum {
    if fused(LEVEL) { T::plus_product::<true>(a, b, s) } else { T::plus_product::<false>(a, b, s) }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Q64;
    use std::arch::x86_64::*;

    /// One pass of rows over all entries of a slice: `$regs` accumulators of `$lanes` rows each.
    macro_rules! level {
        ($name:ident, $features:literal, $t:ty, $total:ty, $lanes:literal, $regs:literal, $index:ty, $vector:ty,
         $zero:ident, $load:ident, $store:ident, $fma:ident, $set:ident, $load_index:ident, $add:ident, $min:ident,
         $and:ident, $shift:ident, bytes: $load_bytes:expr, gather: $gather:expr, offsets: $offsets:expr,
         small: $small:literal, tables: |$table:ident| $tables:expr, pick: |$both:ident, $id:ident| $pick:expr) => {
            pub(super) mod $name {
                use super::super::SLICE;
                use super::*;

                /// # Safety
                /// The processor has the features; columns and values are equally many, whole slices; x is not
                /// empty and has at most 2³¹ − 1 elements.
                #[target_feature(enable = $features)]
                #[inline]
                pub(in super::super) unsafe fn plain(
                    columns: &[u32],
                    values: &[$t],
                    x: &[$t],
                    sums: &mut [$total; SLICE],
                ) {
                    let last = $set(x.len() as i32 - 1);
                    let (c, v, x) = (columns.as_ptr(), values.as_ptr(), x.as_ptr());
                    // SAFETY: every pointer stays inside its slice, e + lanes ≤ columns.len() = values.len(), and
                    // gathered indices are at most x.len() − 1.
                    rows(columns.len(), sums, |e, _, sum| unsafe {
                        let column = $min($load_index(c.add(e).cast()), last);
                        $fma($load(v.add(e)), $gather(x, column), sum)
                    });
                }

                /// # Safety
                /// As for `plain`; bits < 32; the table is not empty and has at most 2³¹ − 1 elements.
                #[target_feature(enable = $features)]
                #[inline]
                pub(in super::super) unsafe fn packed(
                    entries: &[u32],
                    bits: u32,
                    table: &[$t],
                    x: &[$t],
                    sums: &mut [$total; SLICE],
                ) {
                    let (last, most) = ($set(x.len() as i32 - 1), $set(table.len() as i32 - 1));
                    let (mask, bits) = ($set(((1u32 << bits) - 1) as i32), _mm_cvtsi32_si128(bits as i32));
                    let (w, t, x) = (entries.as_ptr(), table.as_ptr(), x.as_ptr());
                    // SAFETY: as in `plain`.
                    let word = |e: usize| -> $index { unsafe { $load_index(w.add(e).cast()) } };
                    if table.len() <= $small {
                        // A table of a few registers needs no second gather.
                        let mut padded = [<$t as crate::kernel::Number>::ZERO; $small];
                        padded[..table.len()].copy_from_slice(table);
                        let $table = padded.as_ptr();
                        // SAFETY: the whole of `padded`.
                        let $both = unsafe { $tables };
                        // SAFETY: as in `plain`.
                        rows(entries.len(), sums, |e, _, sum| unsafe {
                            let word = word(e);
                            let $id = $shift(word, bits);
                            $fma($pick, $gather(x, $min($and(word, mask), last)), sum)
                        });
                    } else {
                        // SAFETY: as in `plain`, and indices into the table are at most its length − 1.
                        rows(entries.len(), sums, |e, _, sum| unsafe {
                            let word = word(e);
                            let value = $gather(t, $min($shift(word, bits), most));
                            $fma(value, $gather(x, $min($and(word, mask), last)), sum)
                        });
                    }
                }

                /// # Safety
                /// As for `plain`; offsets and values are equally many, at least one and at most 2³¹ − 1.
                #[target_feature(enable = $features)]
                #[inline]
                pub(in super::super) unsafe fn pairs(
                    entries: &[u8],
                    offsets: &[u32],
                    values: &[$t],
                    base: u32,
                    x: &[$t],
                    sums: &mut [$total; SLICE],
                ) {
                    let (last, most) = ($set(x.len() as i32 - 1), $set(values.len() as i32 - 1));
                    let (b, x) = (entries.as_ptr(), x.as_ptr());
                    let (o, v) = (offsets.as_ptr(), values.as_ptr());
                    let numbers: [i32; $lanes] = crate::array::array(|i| i as i32);
                    // SAFETY: `$lanes` numbers.
                    let numbers: $index = unsafe { $load_index(numbers.as_ptr().cast()) };
                    // SAFETY: as in `plain`, and indices into the tables are at most their length − 1.
                    rows(entries.len(), sums, |e, row, sum| unsafe {
                        let id = $min($load_bytes(b.add(e)), most);
                        let row = $add($set(base.wrapping_add(row as u32) as i32), numbers);
                        let column = $min($add(row, $offsets(o.cast(), id)), last);
                        $fma($gather(v, id), $gather(x, column), sum)
                    });
                }

                /// Runs `term(element, row, sum)` over the entries of all rows.
                #[target_feature(enable = $features)]
                #[inline]
                fn rows(
                    entries: usize,
                    sums: &mut [$total; SLICE],
                    term: impl Fn(usize, usize, $vector) -> $vector,
                ) {
                    for (first, sums) in
                        (0..SLICE).step_by($regs * $lanes).zip(sums.chunks_mut($regs * $lanes))
                    {
                        let mut acc = [$zero(); $regs];
                        let mut at = first;
                        while at < entries {
                            for (j, a) in acc.iter_mut().enumerate() {
                                *a = term(at + j * $lanes, first + j * $lanes, *a);
                            }
                            at += SLICE;
                        }
                        for (a, sums) in acc.iter().zip(sums.chunks_mut($lanes)) {
                            // SAFETY: `$lanes` numbers.
                            unsafe { $store(sums.as_mut_ptr(), *a) };
                        }
                    }
                }
            }
        };
    }

    level!(
        f64_avx512,
        "avx512f,avx512vl,avx2,fma",
        f64,
        f64,
        8,
        8,
        __m256i,
        __m512d,
        _mm512_setzero_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_fmadd_pd,
        _mm256_set1_epi32,
        _mm256_loadu_si256,
        _mm256_add_epi32,
        _mm256_min_epu32,
        _mm256_and_si256,
        _mm256_srl_epi32,
        bytes: |b: *const u8| _mm256_cvtepu8_epi32(_mm_loadl_epi64(b.cast())),
        gather: |x: *const f64, i: __m256i| _mm512_i32gather_pd::<8>(i, x),
        offsets: |o: *const i32, i: __m256i| _mm256_i32gather_epi32::<4>(o, i),
        small: 16,
        tables: |t| (_mm512_loadu_pd(t), _mm512_loadu_pd(t.add(8))),
        pick: |both, id| _mm512_permutex2var_pd(both.0, _mm512_cvtepu32_epi64(id), both.1)
    );
    level!(
        f64_avx2,
        "avx2,fma",
        f64,
        f64,
        4,
        8,
        __m128i,
        __m256d,
        _mm256_setzero_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_fmadd_pd,
        _mm_set1_epi32,
        _mm_loadu_si128,
        _mm_add_epi32,
        _mm_min_epu32,
        _mm_and_si128,
        _mm_srl_epi32,
        bytes: |b: *const u8| _mm_cvtepu8_epi32(_mm_cvtsi32_si128(b.cast::<i32>().read_unaligned())),
        gather: |x: *const f64, i: __m128i| _mm256_i32gather_pd::<8>(x, i),
        offsets: |o: *const i32, i: __m128i| _mm_i32gather_epi32::<4>(o, i),
        small: 2,
        tables: |t| (_mm256_set1_pd(*t), _mm256_set1_pd(*t.add(1))),
        pick: |both, id| {
            let second = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_sub_epi32(_mm_setzero_si128(), id)));
            _mm256_blendv_pd(both.0, both.1, second)
        }
    );
    level!(
        f32_avx512,
        "avx512f,avx512vl,avx2,fma",
        f32,
        f32,
        16,
        4,
        __m512i,
        __m512,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_set1_epi32,
        _mm512_loadu_si512,
        _mm512_add_epi32,
        _mm512_min_epu32,
        _mm512_and_si512,
        _mm512_srl_epi32,
        bytes: |b: *const u8| _mm512_cvtepu8_epi32(_mm_loadu_si128(b.cast())),
        gather: |x: *const f32, i: __m512i| _mm512_i32gather_ps::<4>(i, x),
        offsets: |o: *const i32, i: __m512i| _mm512_i32gather_epi32::<4>(i, o),
        small: 32,
        tables: |t| (_mm512_loadu_ps(t), _mm512_loadu_ps(t.add(16))),
        pick: |both, id| _mm512_permutex2var_ps(both.0, id, both.1)
    );
    level!(
        f32_avx2,
        "avx2,fma",
        f32,
        f32,
        8,
        8,
        __m256i,
        __m256,
        _mm256_setzero_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        _mm256_set1_epi32,
        _mm256_loadu_si256,
        _mm256_add_epi32,
        _mm256_min_epu32,
        _mm256_and_si256,
        _mm256_srl_epi32,
        bytes: |b: *const u8| _mm256_cvtepu8_epi32(_mm_loadl_epi64(b.cast())),
        gather: |x: *const f32, i: __m256i| _mm256_i32gather_ps::<4>(x, i),
        offsets: |o: *const i32, i: __m256i| _mm256_i32gather_epi32::<4>(o, i),
        small: 8,
        tables: |t| _mm256_loadu_ps(t),
        pick: |both, id| _mm256_permutevar8x32_ps(both, id)
    );

    /// Products of fractions, added up in parts as in `shaders/lib/q64.wgsl`, and what stores them as sums.
    macro_rules! parts {
        ($features:literal, $vector:ident, $parts:ident, $lanes:literal, $load:ident, $none:ident, $add_product:ident,
         $store:ident, $tile:ident, zero: $zero:ident, loaded: $loaded:ident, set: $set:ident, and: $and:ident,
         add: $add:ident, multiply: $multiply:ident, up: $up:ident, down: $down:ident,
         ordered: |$high:ident, $low:ident| $ordered:expr) => {
            #[derive(Clone, Copy)]
            struct $parts {
                high: $vector,
                middle: $vector,
                low: $vector,
            }

            /// # Safety
            /// The processor has the features, and there are as many numbers from `from` on.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn $load(from: *const Q64) -> $vector {
                // SAFETY: the caller's; a fraction is an integer.
                unsafe { $loaded(from.cast()) }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn $none() -> $parts {
                $parts { high: $zero(), middle: $zero(), low: $zero() }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn $add_product(a: $vector, b: $vector, s: $parts) -> $parts {
                let word = $set(0xffff_ffff);
                let (a1, b1) = ($down::<32>(a), $down::<32>(b));
                let low = $multiply(a, b);
                // Neither wraps: (2³² − 1)² + 2³² − 1 < 2⁶⁴.
                let one = $add($multiply(a1, b), $down::<32>(low));
                let other = $add($multiply(a, b1), $and(one, word));
                let high = $add($multiply(a1, b1), $add($down::<32>(one), $down::<32>(other)));
                $parts {
                    high: $add(s.high, high),
                    middle: $add(s.middle, $and(other, word)),
                    low: $add(s.low, $and(low, word)),
                }
            }

            /// # Safety
            /// The processor has the features, and there is room for as many sums from `to` on.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn $store(to: *mut u128, s: $parts) {
                let middle = $add(s.middle, $down::<32>(s.low));
                let $high = $add(s.high, $down::<32>(middle));
                let $low = $add($up::<32>(middle), $and(s.low, $set(0xffff_ffff)));
                let ordered: [$vector; 2] = $ordered;
                // SAFETY: the caller's.
                unsafe { to.cast::<[$vector; 2]>().write_unaligned(ordered) };
            }

            /// `sums[r]` = the sum of `values[k][r]` times number r of run k; N is 8 or 16.
            ///
            /// # Safety
            /// The processor has the features.
            #[target_feature(enable = $features)]
            #[inline]
            pub(super) unsafe fn $tile<'a, const N: usize>(
                values: &[[Q64; N]],
                runs: impl Iterator<Item = &'a [Q64]>,
                sums: &mut [u128; N],
            ) {
                const MOST: usize = 16 / $lanes;
                let mut acc = [$none(); MOST];
                for (values, x) in values.iter().zip(runs) {
                    for (j, acc) in acc.iter_mut().enumerate().take(N / $lanes) {
                        let (value, x) = (&values[j * $lanes..][..$lanes], &x[j * $lanes..][..$lanes]);
                        // SAFETY: `$lanes` numbers each.
                        *acc = unsafe { $add_product($load(value.as_ptr()), $load(x.as_ptr()), *acc) };
                    }
                }
                for (acc, sums) in acc.iter().zip(sums.chunks_exact_mut($lanes)) {
                    // SAFETY: room for `$lanes` sums.
                    unsafe { $store(sums.as_mut_ptr(), *acc) };
                }
            }
        };
    }

    parts!(
        "avx512f,avx512vl,avx2,fma",
        __m512i,
        Parts512,
        8,
        load_512,
        none_512,
        add_product_512,
        store_512,
        tile_avx512,
        zero: _mm512_setzero_si512,
        loaded: _mm512_loadu_epi64,
        set: _mm512_set1_epi64,
        and: _mm512_and_si512,
        add: _mm512_add_epi64,
        multiply: _mm512_mul_epu32,
        up: _mm512_slli_epi64,
        down: _mm512_srli_epi64,
        ordered: |high, low| {
            let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
            let second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
            [_mm512_permutex2var_epi64(low, first, high), _mm512_permutex2var_epi64(low, second, high)]
        }
    );
    parts!(
        "avx2,fma",
        __m256i,
        Parts256,
        4,
        load_256,
        none_256,
        add_product_256,
        store_256,
        tile_avx2,
        zero: _mm256_setzero_si256,
        loaded: _mm256_loadu_si256,
        set: _mm256_set1_epi64x,
        and: _mm256_and_si256,
        add: _mm256_add_epi64,
        multiply: _mm256_mul_epu32,
        up: _mm256_slli_epi64,
        down: _mm256_srli_epi64,
        ordered: |high, low| {
            let (odd, even) = (_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
            [_mm256_permute2x128_si256::<0x20>(odd, even), _mm256_permute2x128_si256::<0x31>(odd, even)]
        }
    );
    level!(
        q64_avx512,
        "avx512f,avx512vl,avx2,fma",
        Q64,
        u128,
        8,
        4,
        __m256i,
        Parts512,
        none_512,
        load_512,
        store_512,
        add_product_512,
        _mm256_set1_epi32,
        _mm256_loadu_si256,
        _mm256_add_epi32,
        _mm256_min_epu32,
        _mm256_and_si256,
        _mm256_srl_epi32,
        bytes: |b: *const u8| _mm256_cvtepu8_epi32(_mm_loadl_epi64(b.cast())),
        gather: |x: *const Q64, i: __m256i| _mm512_i32gather_epi64::<8>(i, x.cast()),
        offsets: |o: *const i32, i: __m256i| _mm256_i32gather_epi32::<4>(o, i),
        small: 16,
        tables: |t| (load_512(t), load_512(t.add(8))),
        pick: |both, id| _mm512_permutex2var_epi64(both.0, _mm512_cvtepu32_epi64(id), both.1)
    );
    level!(
        q64_avx2,
        "avx2,fma",
        Q64,
        u128,
        4,
        4,
        __m128i,
        Parts256,
        none_256,
        load_256,
        store_256,
        add_product_256,
        _mm_set1_epi32,
        _mm_loadu_si128,
        _mm_add_epi32,
        _mm_min_epu32,
        _mm_and_si128,
        _mm_srl_epi32,
        bytes: |b: *const u8| _mm_cvtepu8_epi32(_mm_cvtsi32_si128(b.cast::<i32>().read_unaligned())),
        gather: |x: *const Q64, i: __m128i| _mm256_i32gather_epi64::<8>(x.cast(), i),
        offsets: |o: *const i32, i: __m128i| _mm_i32gather_epi32::<4>(o, i),
        small: 2,
        tables: |t| (_mm256_set1_epi64x((*t).0 as i64), _mm256_set1_epi64x((*t.add(1)).0 as i64)),
        pick: |both, id| {
            let second = _mm256_cvtepi32_epi64(_mm_sub_epi32(_mm_setzero_si128(), id));
            _mm256_blendv_epi8(both.0, both.1, second)
        }
    );
}
