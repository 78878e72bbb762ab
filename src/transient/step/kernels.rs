//! The step y = x + (Qᵀx)/α in every format of the matrix, with CPU implementations.
//!
//! | kernel | an entry of the matrix |
//! |---|---|
//! | [`STEP`] | column and value |
//! | [`STEP_PACKED`] | one word: column, number of the value |
//! | [`STEP_PAIR`] | one byte: number of a pair (column − row, value) |
//! | [`STEP_PATTERN`][pattern] | none: a row is the number of a list of such pairs |
//!
//! All formats add identical numbers in the same order, so on a lane their results are bitwise
//! equal. The ELL entries of a row are added one by one. Entry t of its COO part is added to
//! partial sum t mod 4, since in a single chain each addition would wait for the one before.
//!
//! [pattern]: super::pattern_kernel::STEP_PATTERN

use super::rows::{Rows, Shared, each, steps};
use crate::kernel::cpu::Call;
use crate::kernel::cpu::gather::Columns;
use crate::kernel::cpu::simd::{At, Body, SLICE, dispatch};
use crate::kernel::{Number, Precision, kernel};
use crate::sparse::spmv_cpu::{Entries, Matrix, Plain, ell, tails};

steps! {
    /// One step y = x + (Qᵀx)/α with a matrix in HYB format: columns and values.
    static STEP, STEP_SOME, STEP_RECURRENCE = step + hyb + slices()(
        slices: &[u32], columns: &[u32], values: &[T]
    ).with_cuda_groups(6);
    /// One step y = x + (Qᵀx)/α with a packed matrix: column and number of the value in a word.
    static STEP_PACKED, STEP_PACKED_SOME, STEP_PACKED_RECURRENCE =
        step_packed + step_row + entries + slices(column_bits)(slices: &[u32], entries: &[u32], values: &[T]);
    /// One step y = x + (Qᵀx)/α with a matrix of pairs: one byte per entry.
    static STEP_PAIR, STEP_PAIR_SOME, STEP_PAIR_RECURRENCE =
        step_pair + step_row + entries + slices(offsets)(slices: &[u32], entries: &[u8], values: &[T])
        .with_cuda_groups(8);
}

#[derive(Clone, Copy)]
struct Packed<'a, T> {
    slices: &'a [u32],
    entries: Columns<'a>,
    values: &'a [T],
    column_bits: u32,
}

impl<T: Number> Matrix<T> for Packed<'_, T> {
    #[inline(always)]
    fn ell<const LEVEL: u8>(self, slice: usize, x: &[T], sums: &mut [T::Sum; SLICE]) {
        let words = self.entries.of(ell(self.slices, slice));
        let entries = Entries::Packed { words, bits: self.column_bits, table: self.values };
        T::slice_sums(At::<LEVEL>::of_body(), entries, x, sums);
    }

    #[inline(always)]
    fn tails(&self, slice: usize) -> Option<&[u32]> {
        tails(self.slices, slice)
    }

    #[inline(always)]
    fn coo(&self, _: usize, entry: usize) -> (usize, T) {
        let word = self.entries.words()[entry];
        let column = word & ((1 << self.column_bits) - 1);
        (column as usize, self.values[(word >> self.column_bits) as usize])
    }
}

#[derive(Clone, Copy)]
struct Pair<'a, T> {
    slices: &'a [u32],
    entries: &'a [u8],
    values: &'a [T],
    offsets: &'a [u32],
    /// Index of the chunk's first row in x.
    base: u32,
}

impl<T: Number> Matrix<T> for Pair<'_, T> {
    #[inline(always)]
    fn ell<const LEVEL: u8>(self, slice: usize, x: &[T], sums: &mut [T::Sum; SLICE]) {
        let ids = &self.entries[ell(self.slices, slice)];
        let base = self.base.wrapping_add((slice * SLICE) as u32);
        let entries = Entries::Pairs { ids, offsets: self.offsets, values: self.values, base };
        T::slice_sums(At::<LEVEL>::of_body(), entries, x, sums);
    }

    #[inline(always)]
    fn tails(&self, slice: usize) -> Option<&[u32]> {
        tails(self.slices, slice)
    }

    #[inline(always)]
    fn coo(&self, row: usize, entry: usize) -> (usize, T) {
        let id = self.entries[entry] as usize;
        let column = self.base.wrapping_add(row as u32).wrapping_add(self.offsets[id]);
        (column as usize, self.values[id])
    }
}

/// Rows of a chunk in slices, from `first` on, a multiple of the slice length.
pub(super) struct Sliced<'a, T, M> {
    pub(crate) matrix: M,
    pub(crate) first: usize,
    pub(crate) x: &'a [T],
    pub(crate) rows: Rows<'a, T>,
}

impl<T: Number, M: Matrix<T>> Body for Sliced<'_, T, M> {
    const FRACTIONS: bool = matches!(T::PRECISION, Precision::Q64);

    #[inline(always)]
    fn run<const LEVEL: u8>(mut self) {
        let mut sums = [T::NONE; SLICE];
        let rows = self.rows.y.len();
        for start in (0..rows).step_by(SLICE) {
            let slice = (self.first + start) / SLICE;
            self.matrix.sums::<LEVEL>(slice, self.x, &mut sums);
            let here = start..(start + SLICE).min(rows);
            let exit = &self.rows.exit[here.clone()];
            self.rows.finish::<LEVEL>(here, &sums, |i| exit[i]);
        }
    }
}

fn step<T: Number>(call: &Call<'_>, p: step::Params, b: step::Bindings<'_, T>) {
    let step::Bindings { slices, columns, values, .. } = b;
    sliced(call, Plain { slices, columns: call.columns(columns, 32), values }, slices, b.shared(&p));
}

fn step_packed<T: Number>(call: &Call<'_>, p: step_packed::Params, b: step_packed::Bindings<'_, T>) {
    let step_packed::Bindings { slices, entries, values, .. } = b;
    let entries = call.columns(entries, p.column_bits);
    sliced(call, Packed { slices, entries, values, column_bits: p.column_bits }, slices, b.shared(&p));
}

fn step_pair<T: Number>(call: &Call<'_>, p: step_pair::Params, b: step_pair::Bindings<'_, T>) {
    let step_pair::Bindings { entries, values, .. } = b;
    let (slices, offsets) = b.slices.split_at(p.offsets as usize);
    let offsets = &offsets[..values.len()];
    let matrix = Pair { slices, entries, values, offsets, base: p.first_row + p.own };
    sliced(call, matrix, b.slices, b.shared(&p));
}

fn sliced<T: Number>(call: &Call<'_>, matrix: impl Matrix<T>, words: &[u32], shared: Shared<'_, T>) {
    let x = shared.x;
    each(call, BLOCK, words, shared, |first, rows| dispatch(Sliced { matrix, first, x, rows }));
}

/// Number of rows per unit of parallel work.
const BLOCK: usize = 1024;
