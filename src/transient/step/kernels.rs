//! The step y = x + (Qᵀx)/α in every format of the matrix, with CPU implementations.
//!
//! | kernel | an entry of the matrix |
//! |---|---|
//! | [`STEP`] | column and value |
//! | [`STEP_PACKED`] | one word: column, number of the value |
//! | [`STEP_PATTERN`][pattern] | none: a row numbers a list of pairs (column − row, value) |
//!
//! All formats add identical numbers in the same order, so on a lane their results are bitwise
//! equal. The ELL entries of a row are added one by one. Entry t of its COO part is added to
//! partial sum t mod 4, since in a single chain each addition would wait for the one before.
//!
//! [pattern]: super::pattern_kernel::STEP_PATTERN

use super::rows::{StepArgs, StepRows, each, steps};
use crate::kernel::cpu::Call;
use crate::kernel::cpu::gather::{Columns, prefetch};
use crate::kernel::cpu::simd::{At, Body, SLICE, dispatch};
use crate::kernel::{Kernel, Number, Precision, kernel};
use crate::sparse::HEADER;
use crate::sparse::spmv_cpu::{ChunkMatrix, Entries, Plain, ell, plus_product, tails};
use crate::util::inline_array::array;

steps! {
    /// One step y = x + (Qᵀx)/α with a matrix in HYB format: columns and values.
    static STEP, STEP_SOME, STEP_RECURRENCE = step + hyb + slices(derivatives)(
        slices: &[u32], columns: &[u32], values: &[T]
    ).with_cuda_groups(6);
    /// One step y = x + (Qᵀx)/α with a packed matrix: column and number of the value in a word.
    static STEP_PACKED, STEP_PACKED_SOME, STEP_PACKED_RECURRENCE =
        step_packed + entries + slices(column_bits)(slices: &[u32], entries: &[u32], values: &[T]);
}

/// One step of 2, 4 or 8 vectors side by side, with a matrix in HYB format.
///
/// Element (i, c) of an array is at index k i + c. Parameters count elements, not rows. Each vector
/// gets the bits of [`STEP`].
pub(crate) static STEP_COLUMNS: [Kernel; 3] =
    [STEP.with(&[("COLUMNS", 2.0)]), STEP.with(&[("COLUMNS", 4.0)]), STEP.with(&[("COLUMNS", 8.0)])];

/// Chebyshev's recurrence for 2, 4 or 8 vectors side by side: y becomes 2 x P − y.
pub(crate) static RECURRENCE_COLUMNS: [Kernel; 3] = [
    STEP.with(&[("COLUMNS", 2.0), ("RECURRENCE", 1.0)]),
    STEP.with(&[("COLUMNS", 4.0), ("RECURRENCE", 1.0)]),
    STEP.with(&[("COLUMNS", 8.0), ("RECURRENCE", 1.0)]),
];

/// One step of a distribution and of its derivatives, side by side.
///
/// Element (i, c) has entries of its own, which add their products with column 0. They follow the
/// matrix in `columns` and `values`, and their pointers are in `slices` from `derivatives` on. On a
/// CPU, the entries of each column of derivatives are stored as a matrix of their own, in slices
/// whose position is there. Their columns are indices of elements. The second three run on a CPU
/// alone.
pub(crate) static STEP_DERIVATIVES: [Kernel; 6] = [
    STEP.with(&[("COLUMNS", 2.0), ("DERIVATIVES", 1.0)]),
    STEP.with(&[("COLUMNS", 4.0), ("DERIVATIVES", 1.0)]),
    STEP.with(&[("COLUMNS", 8.0), ("DERIVATIVES", 1.0)]),
    STEP.with(&[("COLUMNS", 3.0), ("DERIVATIVES", 1.0)]),
    STEP.with(&[("COLUMNS", 5.0), ("DERIVATIVES", 1.0)]),
    STEP.with(&[("COLUMNS", 6.0), ("DERIVATIVES", 1.0)]),
];

#[derive(Clone, Copy)]
struct Packed<'a, T> {
    slices: &'a [u32],
    entries: Columns<'a>,
    values: &'a [T],
    column_bits: u32,
}

impl<T: Number> ChunkMatrix<T> for Packed<'_, T> {
    #[inline(always)]
    fn ell<const LEVEL: u8>(self, slice: usize, x: &[T], sums: &mut [T::Sum; SLICE]) {
        let words = self.entries.of(ell(self.slices, slice));
        let entries = Entries::Packed { words, bits: self.column_bits, table: self.values };
        T::slice_sums(At::<LEVEL>::of_body(), entries, x, sums);
    }

    #[inline(always)]
    fn slices(&self) -> &[u32] {
        self.slices
    }

    #[inline(always)]
    fn coo(&self, entry: usize) -> (usize, T) {
        let word = self.entries.words()[entry];
        let column = word & ((1 << self.column_bits) - 1);
        (column as usize, self.values[(word >> self.column_bits) as usize])
    }
}

/// Rows of a chunk in slices, from `first` on, a multiple of the slice length.
pub(super) struct Sliced<'a, T, M> {
    pub(crate) matrix: M,
    pub(crate) first: usize,
    pub(crate) x: &'a [T],
    pub(crate) rows: StepRows<'a, T>,
}

impl<T: Number, M: ChunkMatrix<T>> Body for Sliced<'_, T, M> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let mut sums = [T::NONE; SLICE];
        let rows = self.rows.y.len();
        for start in (0..rows).step_by(SLICE) {
            let slice = (self.first + start) / SLICE;
            self.matrix.sums::<LEVEL>(slice, self.x, &mut sums);
            let here = start..(start + SLICE).min(rows);
            let exit = &self.rows.exit[here.clone()];
            self.rows.finish::<LEVEL>(here, &sums, exit);
        }
    }
}

fn step<T: Number>(call: &Call<'_>, p: step::Params, b: step::Bindings<'_, T>) {
    let step::Bindings { slices, columns, values, .. } = b;
    let matrix = Plain { slices, columns: call.columns(columns, 32), values };
    let own = call.is("DERIVATIVES").then(|| &slices[p.derivatives as usize..]);
    match call.constant("COLUMNS") as usize {
        0 => sliced(call, matrix, b.shared(&p)),
        2 => interleaved::<T, 2, 8>(call, matrix, own, b.shared(&p)),
        4 => interleaved::<T, 4, 8>(call, matrix, own, b.shared(&p)),
        3 if const { matches!(T::PRECISION, Precision::F64) } => {
            interleaved::<T, 3, 8>(call, matrix, own, b.shared(&p));
        }
        5 if const { matches!(T::PRECISION, Precision::F64) } => {
            interleaved::<T, 5, 4>(call, matrix, own, b.shared(&p));
        }
        6 if const { matches!(T::PRECISION, Precision::F64) } => {
            interleaved::<T, 6, 4>(call, matrix, own, b.shared(&p));
        }
        _ => interleaved::<T, 8, 4>(call, matrix, own, b.shared(&p)),
    }
}

/// Rows of a chunk in slices, from `first` on, times `K` vectors side by side, `ROWS` at a time.
struct Interleaved<'a, T, const K: usize, const ROWS: usize> {
    matrix: Plain<'a, T>,
    first: usize,
    /// Positions of the slices of derivatives, which multiply column 0.
    derivatives: Option<&'a [u32]>,
    x: &'a [[T; K]],
    /// Exit rates of the rows.
    exit: &'a [T],
    /// Elements of the rows, without exit rates.
    rows: StepRows<'a, T>,
}

impl<T: Number, const K: usize, const ROWS: usize> Body for Interleaved<'_, T, K, ROWS> {
    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let Self { matrix, x, derivatives, .. } = self;
        let (words, last) = (matrix.columns.words(), x.len() - 1);
        let product = |value: T, column: u32, s: &[T::Sum; K]| -> [T::Sum; K] {
            let x = &x[(column as usize).min(last)];
            array(|c| plus_product::<T, LEVEL>(value, x[c], s[c]))
        };
        let mut sums = [[T::NONE; K]; SLICE];
        for start in (0..self.exit.len()).step_by(SLICE) {
            let here = start..(start + SLICE).min(self.exit.len());
            let slice = (self.first + start) / SLICE;
            let ell = ell(matrix.slices, slice);
            let (columns, values) = (&words[ell.clone()], &matrix.values[ell]);
            for (first, sums) in (0..).step_by(ROWS).zip(sums.chunks_exact_mut(ROWS)) {
                // Some rows at a time, so that their sums stay in registers.
                let mut s = [[T::NONE; K]; ROWS];
                for (columns, values) in columns.chunks_exact(SLICE).zip(values.chunks_exact(SLICE)) {
                    let (columns, values) = (&columns[first..][..ROWS], &values[first..][..ROWS]);
                    // Once for each cache line of f64 and of columns.
                    if first % 8 == 0 {
                        prefetch(values);
                    }
                    if first % 16 == 0 {
                        prefetch(columns);
                    }
                    for (r, s) in s.iter_mut().enumerate() {
                        *s = product(values[r], columns[r], s);
                    }
                }
                sums.copy_from_slice(&s);
            }
            if let Some(pointers) = tails(matrix.slices, slice) {
                for (sum, ends) in
                    sums.iter_mut().zip(pointers.windows(2)).filter(|(_, ends)| ends[0] < ends[1])
                {
                    // COO entry t is added to partial sum t mod 4, as for a single vector.
                    let mut p = [[T::NONE; K]; 4];
                    for (t, e) in (ends[0] as usize..ends[1] as usize).enumerate() {
                        p[t % 4] = product(matrix.values[e], words[e], &p[t % 4]);
                    }
                    let pair = |a: [T::Sum; K], b: [T::Sum; K]| array(|c| T::plus_sum(a[c], b[c]));
                    *sum = pair(*sum, pair(pair(p[0], p[2]), pair(p[1], p[3])));
                }
            }
            for (c, &position) in (1..K).zip(derivatives.unwrap_or_default()) {
                let matrix = Plain { slices: &matrix.slices[position as usize..], ..matrix };
                if matrix.slices[HEADER * slice + 1..][..2] == [0, 0] {
                    continue;
                }
                let mut change = [T::NONE; SLICE];
                matrix.ell::<LEVEL>(slice, x.as_flattened(), &mut change);
                if let Some(pointers) = tails(matrix.slices, slice) {
                    for (change, ends) in change.iter_mut().zip(pointers.windows(2)) {
                        let tail = ends[0] as usize..ends[1] as usize;
                        for (&element, &value) in words[tail.clone()].iter().zip(&matrix.values[tail]) {
                            let x = x.as_flattened()[element as usize];
                            *change = plus_product::<T, LEVEL>(value, x, *change);
                        }
                    }
                }
                sums.iter_mut().zip(change).for_each(|(sum, change)| sum[c] = T::plus_sum(sum[c], change));
            }
            let mut exit = [[T::ZERO; K]; SLICE];
            exit.iter_mut().zip(&self.exit[here.clone()]).for_each(|(to, &rate)| *to = [rate; K]);
            let elements = here.start * K..here.end * K;
            self.rows.finish::<LEVEL>(elements, sums.as_flattened(), exit.as_flattened());
        }
    }
}

fn interleaved<T: Number, const K: usize, const ROWS: usize>(
    call: &Call<'_>,
    matrix: Plain<'_, T>,
    derivatives: Option<&[u32]>,
    shared: StepArgs<'_, T>,
) {
    let exit = &shared.exit[shared.p.first_row as usize / K..];
    let (x, elements) = (shared.x.as_chunks::<K>().0, StepArgs { exit: &[], ..shared });
    // Whole slices.
    each(call, BLOCK.next_multiple_of(SLICE * K), elements, |first, rows| {
        let (first, count) = (first / K, rows.y.len() / K);
        let exit = &exit[first..first + count];
        dispatch(Interleaved::<T, K, ROWS> { matrix, first, derivatives, x, exit, rows });
    });
}

fn step_packed<T: Number>(call: &Call<'_>, p: step_packed::Params, b: step_packed::Bindings<'_, T>) {
    let step_packed::Bindings { slices, entries, values, .. } = b;
    let entries = call.columns(entries, p.column_bits);
    sliced(call, Packed { slices, entries, values, column_bits: p.column_bits }, b.shared(&p));
}

fn sliced<T: Number>(call: &Call<'_>, matrix: impl ChunkMatrix<T>, shared: StepArgs<'_, T>) {
    let x = shared.x;
    each(call, BLOCK, shared, |first, rows| dispatch(Sliced { matrix, first, x, rows }));
}

/// Number of rows per unit of parallel work.
const BLOCK: usize = 1024;
