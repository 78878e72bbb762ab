//! General sparse matrices in compressed rows.

use bytemuck::Zeroable;

use super::coo::Coo;
use crate::parallel::*;
use crate::util::memory::zeroed;
use crate::{Invalid, Result};

/// Rows or entries that one thread processes at a time.
const BLOCK: usize = 1 << 12;

/// Largest number of shares of the rows in [`EntryPieces`].
const MOST_SHARES: usize = 16;

/// A sparse matrix in compressed rows, with ascending, distinct columns in each row.
///
/// `P` is the type of the rows' offsets.
#[derive(Debug, Clone, PartialEq)]
pub struct CsrMatrix<V = f64, P = usize> {
    columns: usize,
    starts: Vec<P>,
    column: Vec<u32>,
    value: Vec<V>,
}

impl Default for CsrMatrix {
    fn default() -> Self {
        Self { columns: 0, starts: vec![0], column: Vec::new(), value: Vec::new() }
    }
}

/// Offset of an entry: `u32` if it can count all of them, else `usize`.
pub trait Offset: Copy + Default + Send + Sync {
    /// Converts an offset, which must fit.
    fn of(place: usize) -> Self;
    /// Returns the offset as `usize`.
    fn at(self) -> usize;
}

impl Offset for usize {
    #[inline]
    fn of(place: usize) -> Self {
        place
    }

    #[inline]
    fn at(self) -> usize {
        self
    }
}

impl Offset for u32 {
    #[inline]
    fn of(place: usize) -> Self {
        place as Self
    }

    #[inline]
    fn at(self) -> usize {
        self as usize
    }
}

/// Entries of a matrix in pieces, for parallel loops over shares of the rows.
///
/// The thread of a share reads all pieces with entries in these rows.
pub(crate) struct EntryPieces<E> {
    pieces: usize,
    of_piece: E,
    /// Number of rows per share.
    share: usize,
    /// First and last share with entries of each piece.
    reaches: Vec<(usize, usize)>,
}

impl<E: Fn(usize) -> I + Sync, I: Iterator<Item = (u32, C, V)>, C, V> EntryPieces<E> {
    /// Prepares loops over the entries of `pieces` pieces; `of_piece` returns those of each.
    pub(crate) fn new(rows: usize, pieces: usize, of_piece: E) -> Self {
        // Several shares of one piece would each read all of it.
        let shares = if AtHand::now().alone { 1 } else { threads().min(MOST_SHARES).min(pieces) };
        let share = rows.div_ceil(shares.max(1)).max(1);
        let reach = |piece: usize| {
            let rows = of_piece(piece).map(|(row, ..)| row);
            let (least, most) =
                rows.fold((u32::MAX, 0), |(least, most), row| (least.min(row), most.max(row)));
            (least as usize / share, most as usize / share)
        };
        // Two threads read all entries in less time than their extent.
        let reaches = match pieces > 1 && threads() > 2 {
            true => (0..pieces).into_par_iter().map(reach).collect(),
            false => vec![(0, usize::MAX); pieces],
        };
        Self { pieces, of_piece, share, reaches }
    }

    /// Returns the entries of all pieces that may have some in share number `k`, in order.
    fn near(&self, k: usize) -> impl Iterator<Item = I::Item> {
        let near = (0..self.pieces)
            .filter(move |&piece| (self.reaches[piece].0..=self.reaches[piece].1).contains(&k));
        near.flat_map(&self.of_piece)
    }

    /// Adds each entry to the element of its row in `sums`, in the order of the entries.
    pub(crate) fn add_to<S: Send>(&self, sums: &mut [S], add: impl Fn(&mut S, C, V) + Sync) {
        sums.par_chunks_mut(self.share).enumerate().for_each(|(k, sums)| {
            self.near(k).for_each(|(row, column, value)| {
                if let Some(sum) = sums.get_mut((row as usize).wrapping_sub(k * self.share)) {
                    add(sum, column, value);
                }
            });
        });
    }
}

/// Groups entries by row, keeping their order within a row.
///
/// `entries` returns each of `pieces` parts of the entries. Returns the rows' offsets, and columns
/// and values of all entries.
pub(crate) fn group<P: Offset, C: Copy + Zeroable + Send, V: Copy + Zeroable + Send, I>(
    rows: usize,
    (pieces, entries): (usize, impl Fn(usize) -> I + Sync),
) -> (Vec<P>, Vec<C>, Vec<V>)
where
    I: Iterator<Item = (u32, C, V)>,
{
    let mut starts = vec![P::default(); rows + 1];
    let entries = EntryPieces::new(rows, pieces, entries);
    entries.add_to(&mut starts[1..], |length, _, _| *length = P::of(length.at() + 1));
    add_up(&mut starts);
    let nnz = starts[rows].at();
    let (mut column, mut value) = (zeroed::<C>(nnz), zeroed::<V>(nnz));
    let (mut column_rest, mut value_rest) = (&mut column[..], &mut value[..]);
    let (mut start_rest, mut parts) = (&mut starts[..], Vec::new());
    while start_rest.len() > 1 {
        let share = entries.share.min(start_rest.len() - 1);
        let first = start_rest[0].at();
        let count = start_rest[share].at() - first;
        let starts = start_rest.split_off_mut(..share).unwrap_or_default();
        let column = column_rest.split_off_mut(..count).unwrap_or_default();
        parts.push((first, starts, column, value_rest.split_off_mut(..count).unwrap_or_default()));
    }
    parts.into_par_iter().enumerate().for_each(|(k, (first, starts, columns, values))| {
        entries.near(k).for_each(|(row, column, value)| {
            if let Some(next) = starts.get_mut((row as usize).wrapping_sub(k * entries.share)) {
                (columns[next.at() - first], values[next.at() - first]) = (column, value);
                *next = P::of(next.at() + 1);
            }
        });
    });
    rewind(&mut starts);
    (starts, column, value)
}

/// Converts lengths, after a leading 0, to offsets.
fn add_up<P: Offset>(lengths: &mut [P]) {
    for i in 1..lengths.len() {
        lengths[i] = P::of(lengths[i].at() + lengths[i - 1].at());
    }
}

/// Resets counters, which are at the rows' ends, to the rows' starts.
fn rewind<P: Offset>(starts: &mut [P]) {
    starts.copy_within(..starts.len() - 1, 1);
    starts[0] = P::default();
}

impl<V: Copy + Zeroable + Send + Sync, P: Offset> CsrMatrix<V, P> {
    /// Groups entries by row, keeping their order within a row.
    ///
    /// `pieces` is a number of pieces, and a function that returns the entries of each. Threads
    /// call it several times, with equal results.
    pub fn grouped<I: Iterator<Item = (u32, u32, V)>>(
        rows: usize,
        columns: usize,
        pieces: (usize, impl Fn(usize) -> I + Sync),
    ) -> Self {
        let (starts, column, value) = group(rows, pieces);
        Self { columns, starts, column, value }
    }

    /// Returns the transpose; columns ascend in each of its rows.
    pub(crate) fn transposed(&self) -> Self {
        let turned = |piece| self.entries_of(piece).map(|(i, column, value)| (column, i, value));
        Self::grouped(self.columns, self.rows(), (self.pieces(), turned))
    }

    /// Returns the number of pieces of rows for [`Self::entries_of`].
    pub(crate) fn pieces(&self) -> usize {
        self.rows().div_ceil(BLOCK)
    }

    /// Returns the entries of a piece of rows, for loops over threads.
    pub(crate) fn entries_of(&self, piece: usize) -> impl Iterator<Item = (u32, u32, V)> {
        self.entries_in(piece * BLOCK..self.rows().min((piece + 1) * BLOCK))
    }

    /// Replaces the values, one for each of fewer than 2³² entries.
    pub(crate) fn with_values<W>(self, value: Vec<W>) -> CsrMatrix<W, u32> {
        assert!(
            value.len() == self.column.len() && u32::try_from(value.len()).is_ok(),
            "{} values for {} entries",
            value.len(),
            self.column.len()
        );
        let starts = self.starts.iter().map(|start| start.at() as u32).collect();
        CsrMatrix { columns: self.columns, starts, column: self.column, value }
    }

    pub(crate) fn into_values(self) -> (Vec<P>, Vec<V>) {
        (self.starts, self.value)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, u32, V)> {
        self.entries_in(0..self.rows())
    }

    fn entries_in(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = (u32, u32, V)> {
        rows.flat_map(move |i| {
            (self.starts[i].at()..self.starts[i + 1].at())
                .map(move |e| (i as u32, self.column[e], self.value[e]))
        })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the number of entries, including explicit zeros.
    pub fn nnz(&self) -> usize {
        self.column.len()
    }

    /// Returns columns and values of a row.
    #[inline]
    pub fn row(&self, i: usize) -> (&[u32], &[V]) {
        let row = self.starts[i].at()..self.starts[i + 1].at();
        (&self.column[row.clone()], &self.value[row])
    }

    /// Returns the offset of each row, followed by the number of entries.
    pub fn starts(&self) -> &[P] {
        &self.starts
    }

    /// Returns the columns of all entries, row by row.
    pub fn column(&self) -> &[u32] {
        &self.column
    }

    /// Returns the values of all entries, row by row.
    pub fn value(&self) -> &[V] {
        &self.value
    }
}

impl CsrMatrix {
    /// Sorts a list of entries by row and column; duplicates are added in the order of the list.
    pub fn from_entries(entries: Coo) -> Self {
        let Coo { rows, columns, row, column, value } = entries;
        let mut matrix = Self::of_lists(rows, columns, row, column, value);
        matrix.ascend();
        matrix
    }

    /// Converts a matrix in compressed rows, in SciPy's form.
    ///
    /// The entries of row i are `values[indptr[i]..indptr[i + 1]]`, with columns in the same range
    /// of `indices`. Columns of a row may be in any order; duplicates are added.
    ///
    /// # Errors
    /// [`Invalid`] for arrays that do not fit together.
    pub fn from_csr(
        rows: usize,
        columns: usize,
        indptr: &[usize],
        indices: &[u32],
        values: &[f64],
    ) -> Result<Self> {
        let count = indices.len();
        if rows.max(columns) >= u32::MAX as usize {
            return Invalid::TooLarge.fail(format!(
                "{rows} rows and {columns} columns are out of range: expected at most {}",
                u32::MAX - 1
            ));
        }
        if indptr.len() != rows + 1 || indptr[0] != 0 || indptr[rows] != count || !indptr.is_sorted() {
            return Invalid::Shape.fail(format!(
                "indptr has {} numbers for {rows} rows and {count} indices: expected {} that \
                 ascend from 0 to {count}",
                indptr.len(),
                rows + 1
            ));
        }
        if values.len() != count {
            return Invalid::Shape
                .fail(format!("{} values for {count} indices: expected one for each", values.len()));
        }
        if let Some(k) = indices.iter().position(|&column| column as usize >= columns) {
            return Invalid::Shape.fail(format!(
                "index {k} is {}, out of range: the matrix has {columns} columns",
                indices[k]
            ));
        }
        let (starts, column, value) = (indptr.to_vec(), indices.to_vec(), values.to_vec());
        let mut matrix = Self { columns, starts, column, value };
        matrix.ascend();
        Ok(matrix)
    }

    /// Groups entries by row, keeping their order within a row; sorted lists are not copied.
    pub(crate) fn of_lists(
        rows: usize,
        columns: usize,
        row: Vec<u32>,
        column: Vec<u32>,
        value: Vec<f64>,
    ) -> Self {
        let sorted = |k: usize| row[k..row.len().min(k + BLOCK + 1)].is_sorted();
        if !(0..row.len().div_ceil(BLOCK)).into_par_iter().all(|k| sorted(k * BLOCK)) {
            let entries =
                |k: usize| (k * BLOCK..row.len().min((k + 1) * BLOCK)).map(|e| (row[e], column[e], value[e]));
            return Self::grouped(rows, columns, (row.len().div_ceil(BLOCK), entries));
        }
        let mut starts = vec![0; rows + 1];
        starts[1..].par_chunks_mut(BLOCK).enumerate().for_each(|(k, ends)| {
            let mut at = row.partition_point(|&row| (row as usize) < k * BLOCK);
            for (end, i) in ends.iter_mut().zip(k * BLOCK..) {
                at += row[at..].iter().take_while(|&&row| row as usize == i).count();
                *end = at;
            }
        });
        Self { columns, starts, column, value }
    }

    /// Builds a square matrix from compressed rows with distinct columns in any order.
    pub(crate) fn of_rows(columns: usize, starts: Vec<usize>, column: Vec<u32>, value: Vec<f64>) -> Self {
        Self { columns, starts, column, value }
    }

    /// Builds a matrix from rows that `fill` appends, in any order and from any thread.
    ///
    /// `fill` is called twice for each row: first for its length, so that no copies are needed.
    /// Columns of a row ascend and are distinct.
    pub fn from_rows(rows: usize, columns: usize, fill: impl Fn(usize, &mut Vec<(u32, f64)>) + Sync) -> Self {
        let filled = |row: &mut Vec<(u32, f64)>, i: usize| {
            row.clear();
            fill(i, row);
            row.len()
        };
        let mut starts = vec![0; rows + 1];
        starts[1..].par_chunks_mut(BLOCK).enumerate().for_each(|(block, lengths)| {
            let mut row = Vec::new();
            lengths.iter_mut().zip(block * BLOCK..).for_each(|(length, i)| *length = filled(&mut row, i));
        });
        add_up(&mut starts);
        let (mut column, mut value) = (zeroed(starts[rows]), zeroed(starts[rows]));
        let (mut column_rest, mut value_rest, mut parts) = (&mut column[..], &mut value[..], Vec::new());
        for first in (0..rows).step_by(BLOCK) {
            let own = first..rows.min(first + BLOCK);
            let count = starts[own.end] - starts[first];
            let column = column_rest.split_off_mut(..count).unwrap_or_default();
            parts.push((own, column, value_rest.split_off_mut(..count).unwrap_or_default()));
        }
        parts.into_par_iter().for_each(|(own, column, value)| {
            let (mut row, mut places) = (Vec::new(), column.iter_mut().zip(value));
            for i in own {
                assert_eq!(filled(&mut row, i), starts[i + 1] - starts[i], "length of row {i}");
                assert!(row.windows(2).all(|w| w[0].0 < w[1].0), "row {i} ascends");
                row.iter().zip(&mut places).for_each(|(entry, (column, value))| (*column, *value) = *entry);
            }
        });
        Self { columns, starts, column, value }
    }

    /// Sorts rows that do not ascend, and adds duplicate entries.
    pub(crate) fn ascend(&mut self) {
        if self.sort_rows().is_none() {
            return;
        }
        let (mut read, mut kept) = (0, 0);
        for i in 0..self.rows() {
            let row = read..self.starts[i + 1];
            read = row.end;
            let first = kept;
            for e in row {
                let (column, value) = (self.column[e], self.value[e]);
                if kept > first && self.column[kept - 1] == column {
                    self.value[kept - 1] += value;
                } else {
                    (self.column[kept], self.value[kept]) = (column, value);
                    kept += 1;
                }
            }
            self.starts[i + 1] = kept;
        }
        self.column.truncate(kept);
        self.value.truncate(kept);
    }

    /// Sorts each row by column, stably; returns row and column of the first duplicate, if any.
    pub(crate) fn sort_rows(&mut self) -> Option<(usize, u32)> {
        let ascends = |i: usize| self.row(i).0.is_sorted_by(|a, b| a < b);
        if (0..self.rows()).into_par_iter().all(ascends) {
            return None;
        }
        let (mut pairs, mut twice) = (Vec::new(), None);
        for i in 0..self.rows() {
            let row = self.starts[i]..self.starts[i + 1];
            let (columns, values) = (&mut self.column[row.clone()], &mut self.value[row]);
            if !columns.is_sorted() {
                pairs.clear();
                pairs.extend(columns.iter().copied().zip(values.iter().copied()));
                pairs.sort_by_key(|&(column, _)| column);
                for ((column, value), &pair) in columns.iter_mut().zip(values).zip(&pairs) {
                    (*column, *value) = pair;
                }
            }
            if twice.is_none() {
                twice = columns.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| (i, pair[0]));
            }
        }
        twice
    }

    pub(crate) fn append(&self, i: usize, row: &mut Vec<(u32, f64)>) {
        let (columns, values) = self.row(i);
        row.extend(columns.iter().copied().zip(values.iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_those_at_one_place_added() {
        let entries = Coo {
            rows: 3,
            columns: 4,
            row: vec![2, 0, 2, 0, 2],
            column: vec![3, 1, 0, 0, 3],
            value: vec![1.0, 2.0, 3.0, 4.0, 5.0],
        };
        let matrix = CsrMatrix::from_entries(entries);
        assert_eq!(matrix.starts(), [0, 2, 2, 4]);
        assert_eq!(matrix.row(0), (&[0, 1][..], &[4.0, 2.0][..]));
        assert_eq!(matrix.row(1), (&[][..], &[][..]));
        assert_eq!(matrix.row(2), (&[0, 3][..], &[3.0, 6.0][..]));
        assert_eq!((matrix.rows(), matrix.columns(), matrix.nnz()), (3, 4, 4));
    }

    #[test]
    fn arrays_as_of_scipy_are_sorted_and_entries_at_one_place_added() {
        let matrix = CsrMatrix::from_csr(2, 3, &[0, 3, 4], &[2, 0, 2, 1], &[1.0, 2.0, 0.5, 4.0]).unwrap();

        assert_eq!(matrix.row(0), (&[0, 2][..], &[2.0, 1.5][..]));
        assert_eq!(matrix.row(1), (&[1][..], &[4.0][..]));
        assert_eq!(matrix.transposed().row(2), (&[0][..], &[1.5][..]));
        let refused = CsrMatrix::from_csr(2, 2, &[0, 1, 1], &[2], &[1.0]).unwrap_err().to_string();
        assert!(refused.contains("index 0 is 2, out of range: the matrix has 2 columns"), "{refused}");
    }

    #[test]
    fn generated_rows_come_in_order() {
        let n = 3 * BLOCK + 5;
        let matrix = CsrMatrix::from_rows(n, n, |i, row| {
            if i % 3 > 0 {
                row.push((i as u32, i as f64));
            }
        });
        assert_eq!(matrix.nnz(), (0..n).filter(|i| i % 3 > 0).count());
        assert_eq!(matrix.row(n - 1), (&[n as u32 - 1][..], &[(n - 1) as f64][..]));
        assert_eq!(matrix.row(0), (&[][..], &[][..]));
    }
}
