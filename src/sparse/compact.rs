//! HYB with smaller entries: the same slices, widths and COO parts, a word or a byte in the place of column and
//! value. Values are those of HYB to the bit.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

use super::hyb::{Shape, Store};
use super::{Layout, RowSource};
use crate::kernel::Number;

/// Entries of one word: the column in the low bits, the number of the value in those above.
#[derive(Debug)]
pub struct Packed {
    /// Number of rows.
    pub rows: usize,
    /// As in [`Hyb`](super::Hyb).
    pub slices: Vec<u32>,
    /// The entries.
    pub entries: Vec<u32>,
}

/// Entries of one byte: the number of a pair (column − row, value).
#[derive(Debug)]
pub struct Pairs {
    /// Number of rows.
    pub rows: usize,
    /// As in [`Hyb`](super::Hyb).
    pub slices: Vec<u32>,
    /// The entries, four a word.
    pub entries: Vec<u32>,
}

/// Bits of a column of a vector of `len` elements.
pub fn column_bits(len: usize) -> u32 {
    (usize::BITS - (len.max(2) - 1).leading_zeros()).max(1)
}

/// Values by their bits. The number 0 is 0.0, which padding has.
#[derive(Debug)]
pub struct Dictionary<T> {
    /// The values.
    pub values: Vec<T>,
    numbers: HashMap<u64, u32, FixedState>,
}

impl<T: Number> Dictionary<T> {
    /// Of these distinct values; the first is 0.
    pub fn new(values: Vec<T>) -> Self {
        let numbers = (0..).zip(&values).map(|(i, v)| (v.bits(), i)).collect();
        Self { values, numbers }
    }
}

/// Pairs by offset and value. The number 0 is (0, 0.0), which padding has.
#[derive(Debug)]
pub struct PairTable<T> {
    /// Column minus row, modulo 2³².
    pub offsets: Vec<u32>,
    /// The values.
    pub values: Vec<T>,
    numbers: HashMap<(u32, u64), u8, FixedState>,
}

impl<T: Number> PairTable<T> {
    /// Of these distinct pairs, at most 256; the first is (0, 0).
    pub fn new(pairs: &[(u32, T)]) -> Self {
        assert!(pairs.len() <= 256, "{} pairs; a byte names 256", pairs.len());
        let number = |(i, &(offset, value)): (usize, &(u32, T))| ((offset, value.bits()), i as u8);
        Self {
            offsets: pairs.iter().map(|p| p.0).collect(),
            values: pairs.iter().map(|p| p.1).collect(),
            numbers: pairs.iter().enumerate().map(number).collect(),
        }
    }
}

struct PackedStore<'a, T> {
    entries: &'a mut [u32],
    bits: u32,
    dictionary: &'a Dictionary<T>,
}

impl<T: Number> Store<T> for PackedStore<'_, T> {
    fn split_off(&mut self, entries: usize) -> Self {
        Self { entries: self.entries.split_off_mut(..entries).unwrap_or_default(), ..*self }
    }

    fn set(&mut self, at: usize, _: usize, column: u32, value: T) {
        let number = self.dictionary.numbers[&value.bits()];
        self.entries[at] = number << self.bits | column;
    }
}

struct PairStore<'a, T> {
    entries: &'a mut [u8],
    /// Place of row 0 in the vector that columns count in.
    own: u32,
    table: &'a PairTable<T>,
}

impl<T: Number> Store<T> for PairStore<'_, T> {
    fn split_off(&mut self, entries: usize) -> Self {
        Self { entries: self.entries.split_off_mut(..entries).unwrap_or_default(), ..*self }
    }

    fn set(&mut self, at: usize, row: usize, column: u32, value: T) {
        self.entries[at] = match value == T::ZERO {
            true => 0,
            false => {
                let offset = column.wrapping_sub(self.own.wrapping_add(row as u32));
                self.table.numbers[&(offset, value.bits())]
            }
        };
    }
}

impl Packed {
    /// Builds the given slices, as [`Hyb::build`](super::Hyb::build) does; columns have `bits` bits.
    pub fn build<T: Number>(
        layout: &Layout,
        slices: Range<usize>,
        total: usize,
        bits: u32,
        dictionary: &Dictionary<T>,
        row: RowSource<'_, T>,
    ) -> Self {
        let mut shape = Shape::new(layout, slices, total);
        let mut entries = vec![0u32; shape.entries];
        shape.fill(layout, PackedStore { entries: &mut entries, bits, dictionary }, row);
        Self { rows: shape.rows, slices: shape.words, entries }
    }
}

impl Pairs {
    /// Builds the given slices, as [`Hyb::build`](super::Hyb::build) does; row 0 of the matrix is element `own` of the
    /// vector that columns count in.
    pub fn build<T: Number>(
        layout: &Layout,
        slices: Range<usize>,
        total: usize,
        own: usize,
        table: &PairTable<T>,
        row: RowSource<'_, T>,
    ) -> Self {
        let mut shape = Shape::new(layout, slices, total);
        let mut entries = vec![0u32; shape.entries.div_ceil(4)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut entries)[..shape.entries];
        shape.fill(layout, PairStore { entries: bytes, own: own as u32, table }, row);
        Self { rows: shape.rows, slices: shape.words, entries }
    }
}
