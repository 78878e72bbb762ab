//! Matrix–vector products of slices of rows, as the CPU implementation computes them.
//!
//! All formats on all lanes add equal numbers in equal order. The ELL entries of a row are added
//! one after another, and entry t of its COO part is added to partial sum t mod 4.

use std::ops::Range;

use super::{HEADER, SLICE};
use crate::kernel::Number;
use crate::kernel::cpu::gather::Columns;
pub(crate) use crate::kernel::cpu::gather::{Entries, plus_product};
use crate::kernel::cpu::simd::At;

/// Matrix of a chunk for the CPU implementation; rows are counted in the chunk.
pub(crate) trait ChunkMatrix<T: Number>: Copy + Sync {
    /// Sets `sums[r]` to the ELL entries of row r of a slice times x.
    fn ell<const LEVEL: u8>(self, slice: usize, x: &[T], sums: &mut [T::Sum; SLICE]);
    /// Returns the words with the slices.
    fn slices(&self) -> &[u32];
    /// Returns column and value of a COO entry.
    fn coo(&self, entry: usize) -> (usize, T);

    /// Sets `sums[r]` to the product of row r of a slice, ELL and COO part, with x.
    #[inline(always)]
    fn sums<const LEVEL: u8>(self, slice: usize, x: &[T], sums: &mut [T::Sum; SLICE]) {
        self.ell::<LEVEL>(slice, x, sums);
        if let Some(pointers) = tails(self.slices(), slice) {
            let mut with_tail = with_tail(pointers);
            while with_tail != 0 {
                let r = with_tail.trailing_zeros() as usize;
                let coo = |e: usize| self.coo(e);
                let tail = tail::<T, LEVEL>(pointers[r] as usize, pointers[r + 1] as usize, coo, x);
                sums[r] = T::plus_sum(sums[r], tail);
                with_tail &= with_tail - 1;
            }
        }
    }
}

/// Returns a bit for each row of a slice, 1 if the row has COO entries.
///
/// Rows with a COO part are few and irregular. A branch for each row would be predicted wrongly.
#[inline(always)]
fn with_tail(pointers: &[u32]) -> u64 {
    let (starts, ends) = (&pointers[..SLICE], &pointers[1..=SLICE]);
    (0..SLICE).fold(0, |bits, r| bits | u64::from(starts[r] != ends[r]) << r)
}

/// Returns the boundaries of the COO entries of a slice's rows, if it has any.
pub(crate) fn tails(slices: &[u32], slice: usize) -> Option<&[u32]> {
    let pointers = slices[HEADER * slice + 2] as usize;
    (pointers != 0).then(|| &slices[pointers..=pointers + SLICE])
}

pub(crate) fn ell(slices: &[u32], slice: usize) -> Range<usize> {
    let header = &slices[HEADER * slice..];
    let (start, width) = (header[0] as usize * SLICE, header[1] as usize * SLICE);
    start..start + width
}

/// Matrix in the format of [`Hyb`](super::Hyb).
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a, T> {
    pub(crate) slices: &'a [u32],
    pub(crate) columns: Columns<'a>,
    pub(crate) values: &'a [T],
}

impl<T: Number> ChunkMatrix<T> for Plain<'_, T> {
    #[inline(always)]
    fn ell<const LEVEL: u8>(self, slice: usize, x: &[T], sums: &mut [T::Sum; SLICE]) {
        let ell = ell(self.slices, slice);
        let entries = Entries::Plain(self.columns.of(ell.clone()), &self.values[ell]);
        T::slice_sums(At::<LEVEL>::of_body(), entries, x, sums);
    }

    #[inline(always)]
    fn slices(&self) -> &[u32] {
        self.slices
    }

    #[inline(always)]
    fn coo(&self, entry: usize) -> (usize, T) {
        (self.columns.words()[entry] as usize, self.values[entry])
    }
}

/// Sums the products of a row's COO entries with x.
#[inline(always)]
pub(crate) fn tail<T: Number, const LEVEL: u8>(
    mut entry: usize,
    end: usize,
    coo: impl Fn(usize) -> (usize, T),
    x: &[T],
) -> T::Sum {
    let mut p = [T::NONE; 4];
    let add = |entry: usize, p: &mut T::Sum| {
        let (column, value) = coo(entry);
        *p = plus_product::<T, LEVEL>(value, x[column], *p);
    };
    while entry + 4 <= end {
        for (i, p) in p.iter_mut().enumerate() {
            add(entry + i, p);
        }
        entry += 4;
    }
    // Unrolled: a loop would keep the sums in memory.
    if entry < end {
        add(entry, &mut p[0]);
    }
    if entry + 1 < end {
        add(entry + 1, &mut p[1]);
    }
    if entry + 2 < end {
        add(entry + 2, &mut p[2]);
    }
    T::plus_sum(T::plus_sum(p[0], p[2]), T::plus_sum(p[1], p[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_coo_entries_are_found() {
        let mut random = fastrand::Rng::with_seed(7);
        let masks: Vec<u64> = (0..100).map(|_| random.u64(..)).chain([0, 1, u64::MAX, 1 << 63]).collect();
        for expected in masks {
            let mut pointers = vec![5; SLICE + 1];
            for r in 0..SLICE {
                pointers[r + 1] = pointers[r] + (expected >> r & 1) as u32 * random.u32(1..9);
            }
            assert_eq!(with_tail(&pointers), expected);
        }
    }
}
