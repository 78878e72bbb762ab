//! HYB with smaller entries: a word or a byte instead of column and value.
//!
//! Slices, widths, COO parts and values equal those of HYB to the bit.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

use super::hyb::{Shape, Store};
use super::{Layout, RowSource};
use crate::kernel::Number;

/// HYB with one code per entry instead of column and value.
#[derive(Debug)]
pub struct Coded {
    /// Number of rows.
    pub rows: usize,
    /// Slices as in [`Hyb`](super::Hyb).
    pub slices: Vec<u32>,
    /// Words with the codes of the entries.
    pub entries: Vec<u32>,
}

/// Returns the number of bits of a column index of a vector of `len` elements.
pub fn column_bits(len: usize) -> u32 {
    (usize::BITS - (len.max(2) - 1).leading_zeros()).max(1)
}

/// Distinct values, numbered by their bits; number 0 is 0.0, the value of padding.
#[derive(Debug)]
pub struct Dictionary<T> {
    /// Values, indexed by their numbers.
    pub values: Vec<T>,
    numbers: HashMap<u64, u32, FixedState>,
}

impl<T: Number> Dictionary<T> {
    /// Creates a dictionary of distinct values, the first of which has to be 0.
    pub fn new(values: Vec<T>) -> Self {
        let numbers = (0..).zip(&values).map(|(i, v)| (v.bits(), i)).collect();
        Self { values, numbers }
    }
}

/// Distinct pairs (column − row, value); number 0 is (0, 0.0), the pair of padding.
#[derive(Debug)]
pub struct PairTable<T> {
    /// Column minus row of each pair, modulo 2³².
    pub offsets: Vec<u32>,
    /// Value of each pair.
    pub values: Vec<T>,
    numbers: HashMap<(u32, u64), u8, FixedState>,
}

impl<T: Number> PairTable<T> {
    /// Creates a table of at most 256 distinct pairs, the first of which has to be (0, 0).
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

/// Writer of codes, each made from row, column and value.
struct Codes<'a, E, F> {
    entries: &'a mut [E],
    code: F,
}

impl<T: Number, E: Send, F: Fn(usize, u32, T) -> E + Copy + Send> Store<T> for Codes<'_, E, F> {
    fn split_off(&mut self, entries: usize) -> Self {
        Self { entries: self.entries.split_off_mut(..entries).unwrap_or_default(), ..*self }
    }

    fn set(&mut self, at: usize, row: usize, column: u32, value: T) {
        self.entries[at] = (self.code)(row, column, value);
    }
}

impl Coded {
    /// Builds the given slices like [`Hyb::build`](super::Hyb::build), with one word per entry.
    ///
    /// A word has the column in its low `bits` bits, and the value's number above them.
    pub fn packed<T: Number>(
        layout: &Layout,
        slices: Range<usize>,
        total: usize,
        bits: u32,
        dictionary: &Dictionary<T>,
        row: RowSource<'_, T>,
    ) -> Self {
        let mut shape = Shape::new(layout, slices, total);
        let mut entries = vec![0u32; shape.entries];
        let code = |_: usize, column: u32, value: T| dictionary.numbers[&value.bits()] << bits | column;
        shape.fill(layout, Codes { entries: &mut entries, code }, row);
        Self { rows: shape.rows, slices: shape.words, entries }
    }

    /// Builds the given slices like [`Hyb::build`](super::Hyb::build), with one byte per entry.
    ///
    /// A byte is the number of a pair (column − row, value). Row 0 of the matrix corresponds to
    /// element `own` of the vector.
    pub fn pairs<T: Number>(
        layout: &Layout,
        slices: Range<usize>,
        total: usize,
        own: usize,
        table: &PairTable<T>,
        row: RowSource<'_, T>,
    ) -> Self {
        let mut shape = Shape::new(layout, slices, total);
        let mut words = vec![0u32; shape.entries.div_ceil(4)];
        let entries = &mut bytemuck::cast_slice_mut(&mut words)[..shape.entries];
        let code = |row: usize, column: u32, value: T| match value == T::ZERO {
            true => 0u8,
            false => table.numbers[&(column.wrapping_sub((own + row) as u32), value.bits())],
        };
        shape.fill(layout, Codes { entries, code }, row);
        Self { rows: shape.rows, slices: shape.words, entries: words }
    }
}
