//! Sums of slices of ELL rows with vector instructions, which compilers do not generate well.
//!
//! Elements of x are gathered, or loaded one by one where that is faster.

#![expect(unsafe_code, reason = "SIMD intrinsics, and reads at indices that were checked together")]

#[cfg(target_arch = "x86_64")]
use super::simd::AVX2;
use super::simd::{At, PORTABLE, SLICE, TILE, fused, prefetch_from};
use crate::kernel::{Number, Q64};

/// Words that pack a column and a table index each, with upper bounds of all of them.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    words: &'a [u32],
    /// Number of low bits that hold the column; the high bits hold the index.
    bits: u32,
    /// Word with the largest column and the largest index.
    pub(super) most: u32,
}

impl<'a> Columns<'a> {
    /// Returns words with an upper bound: no column and no index exceeds the one packed in `most`.
    ///
    /// [`Call::columns`](super::Call::columns) finds it.
    pub(super) fn at_most(words: &'a [u32], bits: u32, most: u32) -> Self {
        Self { words, bits, most }
    }

    /// Returns the words.
    #[inline(always)]
    pub(crate) fn words(self) -> &'a [u32] {
        self.words
    }

    /// Returns some of the words.
    #[inline(always)]
    pub(crate) fn of(self, range: std::ops::Range<usize>) -> Self {
        Self { words: &self.words[range], ..self }
    }
}

/// Entries of a slice of 64 rows; entry k of row r is element 64k + r.
#[derive(Clone, Copy)]
pub enum Entries<'a, T> {
    /// Columns and values.
    Plain(Columns<'a>, &'a [T]),
    /// Words that pack a column and an index into `table`. The column is in the low `bits` bits, at
    /// most 31.
    Packed { words: Columns<'a>, bits: u32, table: &'a [T] },
}

impl<T> Entries<'_, T> {
    /// Returns true if all columns are within a vector of this length, and all indices within the
    /// table and below 2³¹. Panics if arrays do not fit together.
    #[inline(always)]
    fn within(&self, x: usize) -> bool {
        let (entries, values, fit, within) = match *self {
            Self::Plain(Columns { words, most, .. }, values) => {
                (words.len(), values.len(), words.len() == values.len(), (most as usize) < x)
            }
            Self::Packed { words: Columns { words, bits: known, most }, bits, table } => {
                let [column, index] = [most & !(u32::MAX << bits), most >> bits].map(|at| at as usize);
                let within = column < x && index < table.len() && bits > 0 && bits == known;
                (words.len(), table.len(), bits < 32 && !table.is_empty(), within)
            }
        };
        assert!(
            fit && entries % SLICE == 0 && x > 0,
            "a slice of {entries} entries, {values} values, a vector of {x}"
        );
        within
    }
}

/// Sums over the entries of 64 rows: `sums[r]` = Σ_k value(64k + r) · x\[column(64k + r)\], k
/// ascending.
///
/// Each multiply-add rounds once; at [`PORTABLE`] it may round twice. A column beyond the end of
/// `x` reads its last element. An index beyond the end of a table reads its last entry.
pub trait Gather: Sized {
    /// Type of the sums.
    type Total;

    /// Sums the entries of a slice.
    fn slice_sums<const LEVEL: u8>(
        level: At<LEVEL>,
        entries: Entries<'_, Self>,
        x: &[Self],
        sums: &mut [Self::Total; SLICE],
    );

    /// Returns the sums of the rows of a tile, the first of which is row `at`.
    ///
    /// Entry k of row r is `values[k][r]` times `x[at + offsets[k] + r]`. Panics beyond the ends of
    /// `x`.
    fn tile_sums<const LEVEL: u8>(
        level: At<LEVEL>,
        offsets: &[i32],
        values: &[[Self; TILE]],
        x: &[Self],
        at: i64,
    ) -> [Self::Total; TILE];
}

macro_rules! gather {
    (@level $avx512:ident, $avx2:ident, $function:ident$(::<$loads:tt>)?($($argument:expr),*)) => {
        match LEVEL {
            AVX2 => x86::$avx2::$function$(::<$loads>)?($($argument),*),
            _ => x86::$avx512::$function$(::<$loads>)?($($argument),*),
        }
    };
    (@either $loads:expr, $avx512:ident, $avx2:ident, $function:ident($($argument:tt)*)) => {
        match $loads {
            true => gather!(@level $avx512, $avx2, $function::<true>($($argument)*)),
            false => gather!(@level $avx512, $avx2, $function::<false>($($argument)*)),
        }
    };
    ($t:ty, $total:ty, $avx512:ident, $avx2:ident, rows: $rows:literal, $tile:literal) => {
        impl Gather for $t {
            type Total = $total;

            #[inline(always)]
            fn slice_sums<const LEVEL: u8>(
                _: At<LEVEL>,
                entries: Entries<'_, Self>,
                x: &[Self],
                sums: &mut [$total; SLICE],
            ) {
                let within = entries.within(x.len());
                // Columns have to fit the gathers' signed 32 bits.
                #[cfg(target_arch = "x86_64")]
                if LEVEL > PORTABLE && within && x.len() <= i32::MAX as usize {
                    let loads = x86::Loads::of_processor();
                    // SAFETY: the caller runs at a level that this processor has. `within` checked
                    // lengths, columns and indices.
                    unsafe {
                        match entries {
                            Entries::Plain(columns, values) => gather!(
                                @either loads.plain, $avx512, $avx2, plain(columns.words, values, x, sums)
                            ),
                            Entries::Packed { words, bits, table } => gather!(
                                @either loads.packed, $avx512, $avx2, packed(words.words, bits, table, x, sums)
                            ),
                        }
                    }
                    return;
                }
                // SAFETY: `within` checked that neither array is empty, and all columns and indices
                // where `WITHIN` is true.
                unsafe {
                    match LEVEL == PORTABLE && within {
                        true => portable::<true, $rows, Self, LEVEL>(entries, x, sums),
                        false => portable::<false, $rows, Self, LEVEL>(entries, x, sums),
                    }
                }
            }

            #[inline(always)]
            fn tile_sums<const LEVEL: u8>(
                _: At<LEVEL>,
                offsets: &[i32],
                values: &[[Self; TILE]],
                x: &[Self],
                at: i64,
            ) -> [$total; TILE] {
                #[cfg(target_arch = "x86_64")]
                if LEVEL > PORTABLE {
                    // SAFETY: the caller runs at a level that this processor has.
                    return unsafe {
                        gather!(@level $avx512, $avx2, tile(offsets, values, x, at))
                    };
                }
                by_tiles::<$tile, Self, LEVEL>(offsets, values, x, at)
            }
        }
    };
}
// Rows that are summed at once: enough to hide the latency of additions, few enough that their sums
// stay in registers.
gather!(f64, f64, f64_avx512, f64_avx2, rows: 8, 16);
gather!(f32, f32, f32_avx512, f32_avx2, rows: 8, 16);
gather!(Q64, u128, q64_avx512, q64_avx2, rows: 4, 4);

/// Returns element `at`, or the last one if there is none.
///
/// # Safety
/// The array is not empty. With `WITHIN` it has an element `at`.
#[inline(always)]
unsafe fn element<const WITHIN: bool, T: Copy>(numbers: &[T], at: u32) -> T {
    let at = if WITHIN { at as usize } else { (at as usize).min(numbers.len() - 1) };
    // SAFETY: promised by the caller for `WITHIN`, else at most the last index.
    unsafe { *numbers.get_unchecked(at) }
}

/// Sums a slice without vector instructions of a level.
///
/// # Safety
/// Neither `x` nor a table is empty. With `WITHIN`, `x` has an element at every column, and the
/// table at every index.
#[inline(always)]
unsafe fn portable<const WITHIN: bool, const ROWS: usize, T: Number, const LEVEL: u8>(
    entries: Entries<'_, T>,
    x: &[T],
    sums: &mut [T::Sum; SLICE],
) {
    // SAFETY: promised by the caller.
    let x = |column| unsafe { element::<WITHIN, T>(x, column) };
    match entries {
        Entries::Plain(Columns { words, .. }, values) => {
            by_rows::<ROWS, _, T, LEVEL>(words, values, |column, value| (value, x(column)), sums);
        }
        Entries::Packed { words: Columns { words, .. }, bits, table } => {
            // SAFETY: promised by the caller.
            let value = |index| unsafe { element::<WITHIN, T>(table, index) };
            let entry = |word, _| (value(word >> bits), x(word & ((1u32 << bits) - 1)));
            by_rows::<ROWS, _, T, LEVEL>(words, words, entry, sums);
        }
    }
}

/// Sums `ROWS` rows at a time; `entry` returns the factors of an entry, from its word and its
/// number in `b`.
#[inline(always)]
fn by_rows<const ROWS: usize, B: Copy, T: Number, const LEVEL: u8>(
    words: &[u32],
    b: &[B],
    entry: impl Fn(u32, B) -> (T, T),
    sums: &mut [T::Sum; SLICE],
) {
    for (first, sums) in (0..).step_by(ROWS).zip(sums.chunks_exact_mut(ROWS)) {
        let mut s = [T::NONE; ROWS];
        for (words, b) in words.chunks_exact(SLICE).zip(b.chunks_exact(SLICE)) {
            // Compared with the lengths once for all rows.
            let (words, b) = (&words[first..][..ROWS], &b[first..][..ROWS]);
            for (r, s) in s.iter_mut().enumerate() {
                let (value, x) = entry(words[r], b[r]);
                *s = plus_product::<T, LEVEL>(value, x, *s);
            }
        }
        sums.copy_from_slice(&s);
    }
}

#[inline(always)]
fn by_tiles<const ROWS: usize, T: Number, const LEVEL: u8>(
    offsets: &[i32],
    values: &[[T; TILE]],
    x: &[T],
    at: i64,
) -> [T::Sum; TILE] {
    let mut sums = [T::NONE; TILE];
    for (first, sums) in (0..).step_by(ROWS).zip(sums.chunks_exact_mut(ROWS)) {
        let mut s = [T::NONE; ROWS];
        for (&offset, values) in offsets.iter().zip(values) {
            let x = &x[(at + i64::from(offset)) as usize + first..][..ROWS];
            for ((s, &value), &x) in s.iter_mut().zip(&values[first..]).zip(x) {
                *s = plus_product::<T, LEVEL>(value, x, *s);
            }
        }
        sums.copy_from_slice(&s);
    }
    sums
}

/// s + a·b, rounded once if the level's multiply-adds are fused.
#[inline(always)]
pub(crate) fn plus_product<T: Number, const LEVEL: u8>(a: T, b: T, s: T::Sum) -> T::Sum {
    if fused(LEVEL) { T::plus_product::<true>(a, b, s) } else { T::plus_product::<false>(a, b, s) }
}

/// Prefetches `COUNT` numbers 2 KiB after `here`. Processors prefetch too few entries ahead.
#[inline(always)]
fn prefetch_lines<const COUNT: usize, T>(here: *const T) {
    prefetch_from(here.wrapping_byte_add(2048), (COUNT * size_of::<T>()).div_ceil(64));
}

/// Prefetches the cache line 2 KiB after these numbers.
#[inline(always)]
pub(crate) fn prefetch<T>(here: &[T]) {
    prefetch_lines::<1, T>(here.as_ptr());
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::sync::OnceLock;
    use std::time::Instant;

    use super::super::q64_simd::{avx2, avx512};
    use super::super::{loads, simd::level};
    use super::{AVX2, PORTABLE, Q64, SLICE, prefetch_lines};

    /// Kinds of entries whose elements of x this processor loads faster than it gathers them.
    #[derive(Clone, Copy)]
    pub(super) struct Loads {
        pub(super) plain: bool,
        pub(super) packed: bool,
    }

    impl Loads {
        /// Returns the faster way for each kind of entries, measured once in about 0.2 ms.
        pub(super) fn of_processor() -> Self {
            static LOADS: OnceLock<Loads> = OnceLock::new();
            *LOADS.get_or_init(|| {
                // For tests and measurements of both ways on any processor.
                if let Ok(way) = std::env::var("KOLMO_GATHER") {
                    return Self { plain: way == "loads", packed: way == "loads" };
                }
                assert_ne!(level(), PORTABLE, "a body runs at a level that the processor has");
                // x fits the second cache only, as for a chain of some ten thousand states.
                let x: Vec<f64> = (0..1 << 14).map(f64::from).collect();
                let columns: Vec<u32> = (0..16 * SLICE as u32).map(|e| e * 10_007 % (1 << 14)).collect();
                let words: Vec<u32> = columns.iter().map(|c| (c % 11) << 14 | c).collect();
                let (values, table) = (&x[..columns.len()], &x[..11]);
                let mut sums = [0.0; SLICE];
                let mut seconds = |kernel: &dyn Fn(&mut [f64; SLICE])| {
                    let mut least = f64::INFINITY;
                    for _ in 0..10 {
                        let began = Instant::now();
                        (0..16).for_each(|_| kernel(&mut sums));
                        least = least.min(began.elapsed().as_secs_f64());
                    }
                    least
                };
                macro_rules! faster {
                    ($function:ident: $($entries:expr),*) => {{
                        let kernel = |loads: bool, s: &mut [f64; SLICE]| {
                            // SAFETY: the processor has the level; indices are below the lengths.
                            unsafe {
                                match (level(), loads) {
                                    (AVX2, true) => f64_avx2::$function::<true>($($entries,)* &x, s),
                                    (AVX2, false) => f64_avx2::$function::<false>($($entries,)* &x, s),
                                    (_, true) => f64_avx512::$function::<true>($($entries,)* &x, s),
                                    (_, false) => f64_avx512::$function::<false>($($entries,)* &x, s),
                                }
                            }
                        };
                        seconds(&|s| kernel(true, s)) < seconds(&|s| kernel(false, s))
                    }};
                }
                Self { plain: faster!(plain: &columns, values), packed: faster!(packed: &words, 14, table) }
            })
        }
    }

    /// The functions of [`Gather`] at one level, with vectors of four, eight or sixteen rows.
    ///
    /// A pass over the entries of a slice sums `$regs` vectors.
    macro_rules! level {
        (four: $($rest:tt)*) => {
            level!(@ 4, __m128i, _mm_set1_epi32, _mm_loadu_si128, _mm_and_si128, _mm_srl_epi32, $($rest)*);
        };
        (eight: $($rest:tt)*) => {
            level!(@ 8, __m256i, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_and_si256,
                _mm256_srl_epi32, $($rest)*);
        };
        (sixteen: $($rest:tt)*) => {
            level!(@ 16, __m512i, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_and_si512,
                _mm512_srl_epi32, $($rest)*);
        };
        (@ $lanes:literal, $index:ty, $set:ident, $load_index:ident, $and:ident, $shift:ident,
         $name:ident, $features:literal, $t:ty, $total:ty, $regs:literal,
         $vector:ty, $zero:path, $load:path, $store:path, $fma:path, $elements:ty, gather: $gather:expr, loads: $loads:path,
         small: $small:literal,
         tables: |$table:ident| $tables:expr, pick: |$both:ident, $id:ident| $pick:expr) => {
            pub(super) mod $name {
                use super::super::{SLICE, TILE};
                use super::*;

                /// # Safety
                /// The processor has the features. Columns and values have equal lengths, multiples
                /// of 64. x has an element at every column, and at most 2³¹ − 1 elements.
                #[target_feature(enable = $features)]
                #[inline(never)]
                pub(in super::super) unsafe fn plain<const LOADS: bool>(
                    columns: &[u32],
                    values: &[$t],
                    x: &[$t],
                    sums: &mut [$total; SLICE],
                ) {
                    let (c, v, x) = (columns.as_ptr(), values.as_ptr(), x.as_ptr());
                    let ahead = |e: usize| {
                        prefetch_lines::<{ $regs * $lanes }, _>(c.wrapping_add(e));
                        prefetch_lines::<{ $regs * $lanes }, _>(v.wrapping_add(e));
                    };
                    // SAFETY: every pointer stays inside its slice, since e + lanes ≤ columns.len()
                    // = values.len(), and x has an element at every column.
                    rows(columns.len(), sums, ahead, |e, sum| unsafe {
                        let here = match LOADS {
                            true => $loads(x, c.add(e).cast::<[u64; $lanes / 2]>().read_unaligned(), u32::MAX),
                            false => $gather(x, $load_index(c.add(e).cast())),
                        };
                        $fma($load(v.add(e)), here, sum)
                    });
                }

                /// # Safety
                /// As for `plain`; bits < 32; the table has an entry at every index, and no index
                /// is above 2³¹ − 1.
                #[target_feature(enable = $features)]
                #[inline(never)]
                pub(in super::super) unsafe fn packed<const LOADS: bool>(
                    entries: &[u32],
                    bits: u32,
                    table: &[$t],
                    x: &[$t],
                    sums: &mut [$total; SLICE],
                ) {
                    let (low, bits) = ((1u32 << bits) - 1, _mm_cvtsi32_si128(bits as i32));
                    let mask = $set(low as i32);
                    let (w, t, x) = (entries.as_ptr(), table.as_ptr(), x.as_ptr());
                    // SAFETY: as in `plain`.
                    let word = |e: usize| -> $index { unsafe { $load_index(w.add(e).cast()) } };
                    let ahead = |e: usize| prefetch_lines::<{ $regs * $lanes }, _>(w.wrapping_add(e));
                    let here = |e: usize, word: $index| -> $elements {
                        // SAFETY: as in `plain`.
                        unsafe {
                            match LOADS {
                                true => $loads(x, w.add(e).cast::<[u64; $lanes / 2]>().read_unaligned(), low),
                                false => $gather(x, $and(word, mask)),
                            }
                        }
                    };
                    if table.len() <= $small {
                        // A table that fits in registers needs no second gather.
                        let mut padded = [<$t as crate::kernel::Number>::ZERO; $small];
                        padded[..table.len()].copy_from_slice(table);
                        let $table = padded.as_ptr();
                        // SAFETY: reads exactly the elements of `padded`.
                        let $both = unsafe { $tables };
                        rows(entries.len(), sums, ahead, |e, sum| {
                            let word = word(e);
                            let $id = $shift(word, bits);
                            $fma($pick, here(e, word), sum)
                        });
                    } else {
                        // SAFETY: as in `plain`; the table has an entry at every index.
                        rows(entries.len(), sums, ahead, |e, sum| unsafe {
                            let word = word(e);
                            let value = elements::<LOADS>(t, $shift(word, bits));
                            $fma(value, here(e, word), sum)
                        });
                    }
                }

                /// # Safety
                /// The processor has the features.
                #[target_feature(enable = $features)]
                #[inline]
                pub(in super::super) unsafe fn tile(
                    offsets: &[i32],
                    values: &[[$t; TILE]],
                    x: &[$t],
                    at: i64,
                ) -> [$total; TILE] {
                    let mut acc = [$zero(); TILE / $lanes];
                    for (&offset, values) in offsets.iter().zip(values) {
                        let x = &x[(at + i64::from(offset)) as usize..][..TILE];
                        for (j, a) in acc.iter_mut().enumerate() {
                            let (value, x) = (&values[j * $lanes..], &x[j * $lanes..]);
                            // SAFETY: `value` and `x` have at least `$lanes` elements each.
                            *a = unsafe { $fma($load(value.as_ptr()), $load(x.as_ptr()), *a) };
                        }
                    }
                    let mut sums = [<$t as crate::kernel::Number>::NONE; TILE];
                    for (a, sums) in acc.iter().zip(sums.chunks_mut($lanes)) {
                        // SAFETY: `sums` has `$lanes` elements.
                        unsafe { $store(sums.as_mut_ptr(), *a) };
                    }
                    sums
                }

                /// Returns the elements of `x` at these indices, by a gather or by loads.
                ///
                /// # Safety
                /// The processor has the features, and `x` has an element at every index.
                #[target_feature(enable = $features)]
                #[inline]
                unsafe fn elements<const LOADS: bool>(x: *const $t, at: $index) -> $elements {
                    // SAFETY: as for this function. Both types hold one index of 32 bits a lane.
                    unsafe {
                        match LOADS {
                            true => $loads(x, std::mem::transmute::<$index, [u64; $lanes / 2]>(at), u32::MAX),
                            false => $gather(x, at),
                        }
                    }
                }

                /// Sums `term(entry, sum)` over the entries of each row; a call handles
                /// `$lanes` rows. `ahead(entry)` prefetches the entries of a later slice.
                #[target_feature(enable = $features)]
                #[inline]
                fn rows(
                    entries: usize,
                    sums: &mut [$total; SLICE],
                    ahead: impl Fn(usize),
                    term: impl Fn(usize, $vector) -> $vector,
                ) {
                    for (first, sums) in
                        (0..SLICE).step_by($regs * $lanes).zip(sums.chunks_mut($regs * $lanes))
                    {
                        let mut acc = [$zero(); $regs];
                        let mut at = first;
                        while at < entries {
                            ahead(at);
                            for (j, a) in acc.iter_mut().enumerate() {
                                *a = term(at + j * $lanes, *a);
                            }
                            at += SLICE;
                        }
                        for (a, sums) in acc.iter().zip(sums.chunks_mut($lanes)) {
                            // SAFETY: `sums` has `$lanes` elements.
                            unsafe { $store(sums.as_mut_ptr(), *a) };
                        }
                    }
                }
            }
        };
    }

    level!(eight:
        f64_avx512, "avx512f,avx512vl,avx2,fma", f64, f64, 8,
        __m512d, _mm512_setzero_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd,
        __m512d, gather: |x: *const f64, i: __m256i| _mm512_i32gather_pd::<8>(i, x), loads: loads::eight,
        small: 16,
        tables: |t| (_mm512_loadu_pd(t), _mm512_loadu_pd(t.add(8))),
        pick: |both, id| _mm512_permutex2var_pd(both.0, _mm512_cvtepu32_epi64(id), both.1)
    );
    level!(four:
        f64_avx2, "avx2,fma", f64, f64, 8,
        __m256d, _mm256_setzero_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_fmadd_pd,
        __m256d, gather: |x: *const f64, i: __m128i| _mm256_i32gather_pd::<8>(x, i), loads: loads::four,
        small: 2,
        tables: |t| (_mm256_set1_pd(*t), _mm256_set1_pd(*t.add(1))),
        pick: |both, id| {
            let second = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm_sub_epi32(_mm_setzero_si128(), id)));
            _mm256_blendv_pd(both.0, both.1, second)
        }
    );
    level!(sixteen:
        f32_avx512, "avx512f,avx512vl,avx2,fma", f32, f32, 4,
        __m512, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps,
        __m512, gather: |x: *const f32, i: __m512i| _mm512_i32gather_ps::<4>(i, x), loads: loads::sixteen_singles,
        small: 32,
        tables: |t| (_mm512_loadu_ps(t), _mm512_loadu_ps(t.add(16))),
        pick: |both, id| _mm512_permutex2var_ps(both.0, id, both.1)
    );
    level!(eight:
        f32_avx2, "avx2,fma", f32, f32, 8,
        __m256, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps,
        __m256, gather: |x: *const f32, i: __m256i| _mm256_i32gather_ps::<4>(x, i), loads: loads::eight_singles,
        small: 8,
        tables: |t| _mm256_loadu_ps(t),
        pick: |both, id| _mm256_permutevar8x32_ps(both, id)
    );

    level!(eight:
        q64_avx512, "avx512f,avx512vl,avx2,fma", Q64, u128, 4,
        avx512::WordSums, avx512::none, avx512::load, avx512::store, avx512::add_product,
        __m512i, gather: |x: *const Q64, i: __m256i| _mm512_i32gather_epi64::<8>(i, x.cast()),
        loads: loads::eight_fractions,
        small: 16,
        tables: |t| (avx512::load(t), avx512::load(t.add(8))),
        pick: |both, id| _mm512_permutex2var_epi64(both.0, _mm512_cvtepu32_epi64(id), both.1)
    );
    level!(four:
        q64_avx2, "avx2,fma", Q64, u128, 4,
        avx2::WordSums, avx2::none, avx2::load, avx2::store, avx2::add_product,
        __m256i, gather: |x: *const Q64, i: __m128i| _mm256_i32gather_epi64::<8>(x.cast(), i),
        loads: loads::four_fractions,
        small: 2,
        tables: |t| (_mm256_set1_epi64x((*t).0 as i64), _mm256_set1_epi64x((*t.add(1)).0 as i64)),
        pick: |both, id| {
            let second = _mm256_cvtepi32_epi64(_mm_sub_epi32(_mm_setzero_si128(), id));
            _mm256_blendv_epi8(both.0, both.1, second)
        }
    );
}

#[cfg(test)]
#[test]
fn entries_beyond_an_array_are_not_within() {
    let (words, table) = ([0; SLICE], [1.0; 3]);
    let packed = |known, bits, most| {
        Entries::Packed { words: Columns::at_most(&words, known, most), bits, table: &table }.within(5)
    };
    assert!(packed(3, 3, 2 << 3 | 4));
    assert!(!packed(3, 3, 2 << 3 | 5) && !packed(3, 3, 3 << 3 | 4));
    assert!(!packed(0, 0, 2) && !packed(32, 3, 4));
    let plain = |most| Entries::Plain(Columns::at_most(&words, 32, most), &[0.0; SLICE]).within(5);
    assert!(plain(4) && !plain(5));
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::kernel::cpu::simd::{AVX512, level};
    use crate::util::inline_array::array;

    /// Random fractions; their words are often at the ends of the range.
    fn fractions(seed: u64, count: usize) -> Vec<Q64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut word = || [0, 1, u32::MAX, u32::MAX - 1, random.u32(..)][random.usize(..5)];
        (0..count).map(|_| Q64(u64::from(word()) << 32 | u64::from(word()))).collect()
    }

    /// Results of a tile and of the end of a step, on random input.
    fn all<const LEVEL: u8>(width: usize) -> Vec<u128> {
        let (x, values) = (fractions(1, 300), fractions(3, width * SLICE));
        let mut random = fastrand::Rng::with_seed(2);
        let offsets: Vec<i32> = (0..width).map(|_| random.i32(-50..200)).collect();
        let tile: Vec<[Q64; TILE]> = values.as_chunks::<TILE>().0[..width].to_vec();
        let tile = Q64::tile_sums(At::<LEVEL>::of_body(), &offsets, &tile, &x, 50);

        let ends = |from: &[Q64]| -> [Q64; TILE] { array(|i| from[i]) };
        let (leave, own) = (ends(&x[20..]), ends(&x));
        let next = Q64::stepped_rows(At::<LEVEL>::of_body(), &tile, &leave, &own, Q64::ZERO);
        let weighted = Q64::weighted_rows(At::<LEVEL>::of_body(), x[40], &own, &next);
        let fractions = next.into_iter().chain(weighted).map(|y| u128::from(y.0));
        tile.into_iter().chain(fractions).collect()
    }

    #[test]
    fn every_level_gives_the_same_bits() {
        for width in [0, 1, 7, 30, 1400] {
            let portable = all::<PORTABLE>(width);
            let levels = [(AVX2, all::<AVX2> as fn(_) -> _), (AVX512, all::<AVX512>)];
            for (at, all) in levels.into_iter().filter(|&(at, _)| at <= level()) {
                assert_eq!(all(width), portable, "level {at}, {width} entries a row");
            }
        }
    }

    /// Compares the sums of a kernel with those of [`portable`]: by gathers and by loads.
    macro_rules! expect_sums {
        ($t:ty, $number:expr, $($level:ident: $module:ident),*) => {
            for (width, distinct) in [(0, 1), (1, 2), (7, 9), (30, 40)] {
                let mut random = fastrand::Rng::with_seed(5);
                let number: fn(f64) -> $t = $number;
                let mut numbers = |count| -> Vec<$t> { (0..count).map(|_| number(random.f64())).collect() };
                let (x, values, table) = (numbers(300), numbers(width * SLICE), numbers(distinct));
                let columns: Vec<u32> = values.iter().map(|_| random.u32(..300)).collect();
                let words: Vec<u32> = columns.iter().map(|c| random.u32(..distinct as u32) << 9 | c).collect();
                let none = [<$t as Number>::NONE; SLICE];
                let all = |words| Columns::at_most(words, 9, u32::MAX);
                let packed = Entries::Packed { words: all(&words), bits: 9, table: &table };
                let forms = [Entries::Plain(all(&columns), &values), packed];
                $({
                    let (mut expected, mut unclamped) = ([none; 2], [none; 2]);
                    for (i, entries) in forms.into_iter().enumerate() {
                        // SAFETY: indices are below the lengths.
                        unsafe {
                            portable::<false, 4, $t, $level>(entries, &x, &mut expected[i]);
                            portable::<true, 8, $t, $level>(entries, &x, &mut unclamped[i]);
                        }
                    }
                    assert_eq!(unclamped, expected);
                    if $level <= level() {
                        let mut sums = [[none; 2]; 2];
                        let [[a, b], [c, d]] = &mut sums;
                        // SAFETY: the processor has the level; indices are below the lengths.
                        unsafe {
                            x86::$module::plain::<false>(&columns, &values, &x, a);
                            x86::$module::packed::<false>(&words, 9, &table, &x, b);
                            x86::$module::plain::<true>(&columns, &values, &x, c);
                            x86::$module::packed::<true>(&words, 9, &table, &x, d);
                        }
                        assert_eq!(sums, [expected; 2], "{}, {width} entries a row", stringify!($module));
                    }
                })*
            }
        };
    }

    #[test]
    fn gathers_and_loads_give_the_same_bits() {
        expect_sums!(f64, |v| v, AVX2: f64_avx2, AVX512: f64_avx512);
        expect_sums!(f32, |v| v as f32, AVX2: f32_avx2, AVX512: f32_avx512);
        expect_sums!(Q64, |v| Q64((v * 1e19) as u64), AVX2: q64_avx2, AVX512: q64_avx512);
    }
}
