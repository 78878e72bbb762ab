//! Common pattern of transitions of several chains, and the distinct rates of each chain.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

use crate::kernel::Number;
use crate::sparse::{Layout, SLICE};
use crate::transient::chain::scan::append_entries;
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;

/// Sparsity pattern of Qᵀ by rows; the first entry of each row is its diagonal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Index of the first entry of each row, then the number of all entries.
    starts: Vec<u32>,
    /// Column of each entry.
    pub(super) columns: Vec<u32>,
    /// ELL width of each slice of rows, which determines the order of additions in a row.
    widths: Vec<u32>,
}

impl Pattern {
    /// Returns the pattern of a chain, and the values of its entries.
    ///
    /// The value of a diagonal entry is the exit rate, positive. `None` for 2³² entries or more.
    pub(super) fn read<T: Number>(
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
    ) -> Option<(Self, Vec<f64>)> {
        let n = transitions.states();
        let count = u32::try_from(n as u64 + statistics.nnz).ok()? as usize;
        let (mut columns, mut rates) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut starts, mut entries) = (Vec::with_capacity(n + 1), Vec::new());
        for row in 0..n {
            starts.push(columns.len() as u32);
            entries.clear();
            append_entries(transitions, statistics, row, |column| column, &mut entries);
            columns.push(row as u32);
            rates.push(statistics.exit[row].wide());
            columns.extend(entries.iter().map(|(column, _)| column));
            rates.extend(entries.iter().map(|(_, rate)| rate.wide()));
        }
        starts.push(columns.len() as u32);
        let widths = Layout::new(&statistics.lengths, T::PRECISION.bytes()).widths;
        Some((Self { starts, columns, widths }, rates))
    }

    /// Returns the number of states.
    pub(super) fn states(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the entry range of a row's diagonal and ELL entries, and that of its COO entries.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> [Range<usize>; 2] {
        let (first, end) = (self.starts[row] as usize, self.starts[row + 1] as usize);
        let tail = end.min(first + 1 + self.widths[row / SLICE] as usize);
        [first..tail, tail..end]
    }
}

/// Classes of entries: within each chain, all entries of a class have equal rates.
#[derive(Debug)]
pub(super) struct Classes {
    /// Class of each entry.
    pub(super) of: Vec<u32>,
    /// Index of one entry of each class.
    entries: Vec<u32>,
}

impl Classes {
    /// Creates a single class with all `count` entries.
    pub(super) fn new(count: usize) -> Self {
        Self { of: vec![0; count], entries: vec![0] }
    }

    /// Returns the number of classes.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Splits classes in which rates of a new chain differ; returns its rate per class.
    ///
    /// `rates` has one element per entry. `others` has the rates per class of the chains added
    /// before; those of new classes are appended.
    pub(super) fn add<'a>(
        &mut self,
        rates: &[f64],
        others: impl Iterator<Item = &'a mut Vec<f64>>,
    ) -> Vec<f64> {
        let mut others: Vec<_> = others.collect();
        let mut own: Vec<f64> = self.entries.iter().map(|&entry| rates[entry as usize]).collect();
        let mut split: HashMap<(u32, u64), u32, FixedState> = HashMap::default();
        for (entry, (class, &rate)) in self.of.iter_mut().zip(rates).enumerate() {
            if own[*class as usize].to_bits() == rate.to_bits() {
                continue;
            }
            *class = *split.entry((*class, rate.to_bits())).or_insert_with(|| {
                others.iter_mut().for_each(|rates| rates.push(rates[*class as usize]));
                own.push(rate);
                self.entries.push(entry as u32);
                self.entries.len() as u32 - 1
            });
        }
        own
    }
}
