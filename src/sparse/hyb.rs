//! The HYB format (ELL + COO) of N. Bell and M. Garland, for a range of rows.
//!
//! ELL entries are stored in slices of 64 rows, column-major inside a slice: entry k of row r of
//! slice s is element 64·(start(s) + k) + r. Neighbouring threads read neighbouring elements, and a
//! CPU vectorises across rows. Padding has the value 0 and a column that its row, or the one
//! before, reads anyway: no branch, no stray access.
//!
//! Entries beyond a slice's width form its COO part. It follows all ELL entries in the same arrays
//! and is sorted by row, with one pointer per row instead of row indices. A slice without a COO
//! part has no pointers and costs nothing. Columns ascend within a row, over ELL and COO together,
//! and are added in that order on every lane.

use std::ops::Range;

use super::{BLOCK, CsrMatrix, HybLayout, SLICE};
use crate::kernel::Number;
use crate::parallel::*;
use crate::util::memory::zeroed;

/// Number of words that describe a slice.
///
/// These are the start of its ELL entries in groups of 64, its width, and the position of its 65
/// COO pointers in the same array (0 if it has no COO part).
pub const HEADER: usize = 3;

/// A range of rows of a sparse matrix.
#[derive(Debug, Clone)]
pub struct Hyb<T> {
    /// Number of rows.
    pub rows: usize,
    /// [`HEADER`] words per slice, then the COO pointers of slices that have a COO part.
    ///
    /// Pointers are element numbers in `columns` and `values`.
    pub slices: Vec<u32>,
    /// Column of each stored entry.
    pub columns: Vec<u32>,
    /// Value of each stored entry.
    pub values: Vec<T>,
}

/// Callback that appends the (column, value) pairs of a row, columns ascending.
pub type RowSource<'a, T> = &'a (dyn Fn(usize, &mut Vec<(u32, T)>) + Sync);

/// Splits slices into chunks of at most `most_entries` stored entries.
///
/// Chunks begin at multiples of [`BLOCK`] rows, and so must the first slice. A single block may
/// exceed the limit.
pub fn cut(layout: &HybLayout, slices: Range<usize>, most_entries: u64) -> Vec<Range<usize>> {
    const SLICES: usize = BLOCK / SLICE;
    let mut chunks = Vec::new();
    let (mut first, mut held) = (slices.start, 0u64);
    let (widths, tails) = (&layout.widths[slices.clone()], &layout.tails[slices.clone()]);
    for (block, (widths, tails)) in widths.chunks(SLICES).zip(tails.chunks(SLICES)).enumerate() {
        let start = slices.start + block * SLICES;
        let entries: u64 = widths.iter().map(|&w| u64::from(w) * SLICE as u64).sum::<u64>()
            + tails.iter().map(|&t| u64::from(t)).sum::<u64>();
        if held + entries > most_entries && held > 0 {
            chunks.push(first..start);
            (first, held) = (start, 0);
        }
        held += entries;
    }
    if first < slices.end {
        chunks.push(first..slices.end);
    }
    chunks
}

/// Arrays to which entries are written, independent of the form of an entry.
pub(super) trait EntryStore<T>: Send + Sized {
    fn split_off(&mut self, entries: usize) -> Self;
    /// Writes entry `at` with this column and value; value 0 is padding.
    fn set(&mut self, at: usize, column: u32, value: T);
}

struct PlainStore<'a, T> {
    columns: &'a mut [u32],
    values: &'a mut [T],
}

impl<T: Number> EntryStore<T> for PlainStore<'_, T> {
    fn split_off(&mut self, entries: usize) -> Self {
        Self {
            columns: self.columns.split_off_mut(..entries).unwrap_or_default(),
            values: self.values.split_off_mut(..entries).unwrap_or_default(),
        }
    }

    fn set(&mut self, at: usize, column: u32, value: T) {
        self.columns[at] = column;
        self.values[at] = value;
    }
}

/// Arrangement of a range of slices in memory.
#[derive(Debug)]
pub(super) struct SliceLayout {
    slices: Range<usize>,
    pub(super) rows: usize,
    /// [`HEADER`] words per slice, and space for COO pointers.
    pub(super) words: Vec<u32>,
    /// Number of elements of the ELL part, including padding.
    ell: usize,
    pub(super) entries: usize,
}

/// Parts of the arrays that one task fills, for a range of slices.
struct FillTask<'a, S> {
    slices: Range<usize>,
    pointers: &'a mut [u32],
    ell: S,
    tail: S,
    /// Index in the arrays of the first COO entry of these slices.
    tail_start: usize,
}

impl SliceLayout {
    /// Computes the arrangement of the given slices of a matrix of `total` rows.
    ///
    /// # Panics
    /// If the chunk has 2³² entries or more (see [`cut`]).
    pub(super) fn new(layout: &HybLayout, slices: Range<usize>, total: usize) -> Self {
        let (widths, tails) = (&layout.widths[slices.clone()], &layout.tails[slices.clone()]);
        let rows = (slices.end * SLICE).min(total) - slices.start * SLICE;
        let ell: usize = widths.iter().map(|&w| w as usize * SLICE).sum();
        let entries = ell + tails.iter().map(|&t| t as usize).sum::<usize>();
        assert!(entries < u32::MAX as usize, "a chunk of {entries} entries; entries are counted in 32 bits");
        let with_tail = tails.iter().filter(|&&t| t > 0).count();
        let mut words = vec![0u32; HEADER * widths.len() + (SLICE + 1) * with_tail];
        let (mut start, mut pointers) = (0, HEADER * widths.len());
        for ((header, &width), &tail) in words.chunks_mut(HEADER).zip(widths).zip(tails) {
            header[0] = start;
            header[1] = width;
            header[2] = if tail > 0 { pointers as u32 } else { 0 };
            start += width;
            pointers += if tail > 0 { SLICE + 1 } else { 0 };
        }
        Self { slices, rows, words, ell, entries }
    }

    /// Writes the entries of all rows, and the COO pointers.
    ///
    /// `row` appends the (column, value) pairs of a row, columns ascending.
    ///
    /// # Panics
    /// If a row's length differs from the layout's.
    pub(super) fn fill<T: Number, S: EntryStore<T>>(
        &mut self,
        layout: &HybLayout,
        mut all: S,
        row: RowSource<'_, T>,
    ) {
        // Some thousands of rows per task, each with its own parts of the arrays.
        const SLICES: usize = 64;
        let (widths, tails) = (&layout.widths[self.slices.clone()], &layout.tails[self.slices.clone()]);
        let mut tasks = Vec::new();
        let mut pointers = &mut self.words[HEADER * widths.len()..];
        let mut ell = all.split_off(self.ell);
        let mut tail_start = self.ell;
        for first in (0..widths.len()).step_by(SLICES) {
            let some = first..(first + SLICES).min(widths.len());
            let here_ell: usize = widths[some.clone()].iter().map(|&w| w as usize * SLICE).sum();
            let here_tail: usize = tails[some.clone()].iter().map(|&t| t as usize).sum();
            let here_pointers = (SLICE + 1) * tails[some.clone()].iter().filter(|&&t| t > 0).count();
            tasks.push(FillTask {
                slices: some,
                pointers: pointers.split_off_mut(..here_pointers).unwrap_or_default(),
                ell: ell.split_off(here_ell),
                tail: all.split_off(here_tail),
                tail_start,
            });
            tail_start += here_tail;
        }
        let (base, rows) = (self.slices.start * SLICE, self.rows);
        tasks.into_par_iter().for_each(|task| fill(task, widths, tails, base, rows, row));
    }
}

impl<T: Number> Hyb<T> {
    /// Builds the rows of the given slices of a matrix of `total` rows.
    ///
    /// `row` appends the (column, value) pairs of a row, columns ascending. The layout must have
    /// been made from the lengths of these rows.
    ///
    /// # Panics
    /// If a row's length differs from the layout's, or the chunk has 2³² entries or more (see
    /// [`cut`]).
    pub fn build(layout: &HybLayout, slices: Range<usize>, total: usize, row: RowSource<'_, T>) -> Self {
        let mut shape = SliceLayout::new(layout, slices, total);
        let (mut columns, mut values) = (zeroed::<u32>(shape.entries), zeroed::<T>(shape.entries));
        shape.fill(layout, PlainStore { columns: &mut columns, values: &mut values }, row);
        Self { rows: shape.rows, slices: shape.words, columns, values }
    }

    /// Appends matrices with the same number of rows, each in slices of its own.
    ///
    /// The slices of a part follow those before it in `slices`. Their offsets count entries from
    /// the start of `columns` and `values`. The last words of `slices` are the positions of the
    /// parts.
    pub(crate) fn append_parts(&mut self, parts: impl Iterator<Item = Self>) {
        let mut positions = Vec::new();
        for part in parts {
            let first = self.columns.len().next_multiple_of(SLICE);
            self.columns.resize(first, 0);
            self.values.resize(first, T::ZERO);
            positions.push(self.slices.len() as u32);
            let headers = HEADER * part.rows.div_ceil(SLICE);
            self.slices.extend(part.slices.iter().enumerate().map(|(i, word)| match i % HEADER {
                _ if i >= headers => word + first as u32,
                0 => word + (first / SLICE) as u32,
                _ => *word,
            }));
            self.columns.extend(part.columns);
            self.values.extend(part.values);
        }
        self.slices.extend(positions);
    }

    /// Appends some rows of another matrix: pointers to the slices, and entries to the others.
    pub(crate) fn append(&mut self, matrix: &CsrMatrix, rows: Range<usize>) {
        let starts = &matrix.starts()[rows.start..=rows.end];
        let (entries, first) = (starts[0]..starts[rows.len()], self.columns.len());
        self.slices.extend(starts.iter().map(|start| (first + start - entries.start) as u32));
        self.columns.extend_from_slice(&matrix.column()[entries.clone()]);
        self.values.extend(matrix.value()[entries].iter().map(|&value| T::entry(value, 1.0)));
    }
}

fn fill<T: Number, S: EntryStore<T>>(
    task: FillTask<'_, S>,
    widths: &[u32],
    tails: &[u32],
    base: usize,
    rows: usize,
    row: RowSource<'_, T>,
) {
    let FillTask { slices, mut pointers, mut ell, mut tail, tail_start } = task;
    let mut next = tail_start;
    let mut entries = Vec::new();
    // Column for the padding of empty rows: one that the previous row reads.
    let mut near = 0;
    for slice in slices {
        let width = widths[slice] as usize;
        let mut ell = ell.split_off(width * SLICE);
        let pointers = match tails[slice] {
            0 => &mut [][..],
            _ => pointers.split_off_mut(..SLICE + 1).unwrap_or_default(),
        };
        let end = next + tails[slice] as usize;
        for lane in 0..SLICE {
            let place = base + slice * SLICE + lane;
            entries.clear();
            if slice * SLICE + lane < rows {
                row(place, &mut entries);
            }
            let in_ell = entries.len().min(width);
            near = entries.last().map_or(near, |&(column, _)| column);
            for k in 0..width {
                let (column, value) = entries.get(k).copied().unwrap_or((near, T::ZERO));
                ell.set(k * SLICE + lane, column, value);
            }
            if !pointers.is_empty() {
                pointers[lane] = next as u32;
                for (i, &(column, value)) in entries[in_ell..].iter().enumerate() {
                    tail.set(next - tail_start + i, column, value);
                }
                next += entries.len() - in_ell;
            } else {
                assert_eq!(entries.len(), in_ell, "row {place} is longer than it was");
            }
        }
        if let Some(last) = pointers.last_mut() {
            *last = next as u32;
        }
        assert_eq!(next, end, "slice {slice} has as many COO entries as were counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matrix of Fig. 1 of Karwacki, Bylina, Bylina (FedCSIS 2012).
    ///
    /// M. Karwacki, B. Bylina, J. Bylina, "Multi-GPU Implementation of the Uniformization Method
    /// for Solving Markov Models".
    fn figure() -> Vec<Vec<(u32, f64)>> {
        vec![
            vec![(0, 4.0), (4, 1.0)],
            vec![(1, 2.0), (3, 9.0)],
            vec![(3, 5.0)],
            vec![(0, 1.0), (1, 3.0), (3, 2.0), (4, 1.0)],
            vec![(4, 8.0)],
        ]
    }

    type Rows = Vec<Vec<(u32, f64)>>;

    fn build(rows: &[Vec<(u32, f64)>], layout: &HybLayout, slices: Range<usize>) -> Hyb<f64> {
        Hyb::build(layout, slices, rows.len(), &|i, row| row.extend_from_slice(&rows[i]))
    }

    /// Returns the ELL entries of each row, without padding, and its COO entries.
    fn read(hyb: &Hyb<f64>) -> (Rows, Rows) {
        let entries = |places: &mut dyn Iterator<Item = usize>| -> Vec<(u32, f64)> {
            places.map(|e| (hyb.columns[e], hyb.values[e])).filter(|&(_, value)| value != 0.0).collect()
        };
        let row = |row: usize| {
            let (lane, header) = (row % SLICE, &hyb.slices[HEADER * (row / SLICE)..][..HEADER]);
            let (start, width, pointers) = (header[0] as usize, header[1] as usize, header[2] as usize);
            let ends = if pointers == 0 { &[0, 0] } else { &hyb.slices[pointers + lane..][..2] };
            let ell = entries(&mut (start..start + width).map(|k| SLICE * k + lane));
            (ell, entries(&mut (ends[0] as usize..ends[1] as usize)))
        };
        (0..hyb.rows).map(row).unzip()
    }

    #[test]
    fn figures_1_and_3_are_stored_as_printed() {
        // Fig. 1 prints column 0 for the entry 8 of the last row; the matrix above it has column
        // 4. Fig. 3 divides ELL and COO after the second row, and counts rows of a part from its
        // first.
        let (ell, coo) = (
            [
                vec![(0, 4.0), (4, 1.0)],
                vec![(1, 2.0), (3, 9.0)],
                vec![(3, 5.0)],
                vec![(0, 1.0), (1, 3.0)],
                vec![(4, 8.0)],
            ],
            [vec![], vec![], vec![], vec![(3, 2.0), (4, 1.0)], vec![]],
        );
        for rows in [0..5, 0..2, 2..5] {
            let part = &figure()[rows.clone()];
            let tail = part.iter().map(|row| row.len() as u32 - row.len().min(2) as u32).sum();
            let layout = HybLayout { widths: vec![2], tails: vec![tail] };
            let stored = read(&build(part, &layout, 0..1));
            assert_eq!(stored, (ell[rows.clone()].to_vec(), coo[rows].to_vec()));
        }
    }
}
