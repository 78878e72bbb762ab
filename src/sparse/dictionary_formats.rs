//! HYB with a word instead of column and value. Slices, widths and values equal those of HYB.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

use super::hyb::{EntryStore, SliceLayout};
use super::{HybLayout, RowSource};
use crate::kernel::Number;
use crate::util::memory::zeroed;

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

/// Writer of codes, each made from column and value.
struct Codes<'a, F> {
    entries: &'a mut [u32],
    code: F,
}

impl<T: Number, F: Fn(u32, T) -> u32 + Copy + Send> EntryStore<T> for Codes<'_, F> {
    fn split_off(&mut self, entries: usize) -> Self {
        Self { entries: self.entries.split_off_mut(..entries).unwrap_or_default(), ..*self }
    }

    fn set(&mut self, at: usize, column: u32, value: T) {
        self.entries[at] = (self.code)(column, value);
    }
}

impl Coded {
    /// Builds the given slices like [`Hyb::build`](super::Hyb::build), with one word per entry.
    ///
    /// A word has the column in its low `bits` bits, and the value's number above them.
    pub fn packed<T: Number>(
        layout: &HybLayout,
        slices: Range<usize>,
        total: usize,
        bits: u32,
        dictionary: &Dictionary<T>,
        row: RowSource<'_, T>,
    ) -> Self {
        let mut shape = SliceLayout::new(layout, slices, total);
        let mut entries: Vec<u32> = zeroed(shape.entries);
        let code = |column: u32, value: T| dictionary.numbers[&value.bits()] << bits | column;
        shape.fill(layout, Codes { entries: &mut entries, code }, row);
        Self { rows: shape.rows, slices: shape.words, entries }
    }
}
