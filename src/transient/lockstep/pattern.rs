//! Common pattern of transitions of several chains, and the distinct rates of each chain.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

use crate::kernel::Number;
use crate::kernel::cpu::interleaved::{ClassifiedEntries, GROUP};
use crate::sparse::{HybLayout, SLICE};
use crate::transient::chain::scan::append_entries;
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;

/// Sparsity pattern of Qᵀ by groups of [`GROUP`] rows, which are padded to equal lengths.
///
/// Row lengths that vary from row to row would cost mispredicted branches. A padding entry has
/// rate 0, and adds 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    states: usize,
    /// Index of each group's first entry, then the number of entries of all groups.
    groups: Vec<u32>,
    /// Index of the first COO entry of each row, then the number of all entries.
    tails: Vec<u32>,
    /// Column of each entry, first of groups, then of the COO part.
    ///
    /// A group has the diagonals of its rows, then their first ELL entries, and so on.
    pub(super) columns: Vec<u32>,
}

impl Pattern {
    /// Returns the pattern of a chain, and the values of its entries.
    ///
    /// The value of a diagonal entry is the exit rate, positive. `None` for 2³² entries or more.
    pub(super) fn read<T: Number>(
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
    ) -> Option<(Self, Vec<f64>)> {
        let (states, lengths) = (transitions.states(), &statistics.lengths);
        // The ELL widths determine the order of additions in a row.
        let HybLayout { widths, tails: longer } = HybLayout::new(lengths, T::PRECISION.bytes());
        let width = |row: usize| widths[row / SLICE];
        let (mut groups, mut padded) = (vec![0], 0);
        for (group, lengths) in lengths.chunks(GROUP).enumerate() {
            let longest = lengths.iter().copied().max().unwrap_or(0).min(width(group * GROUP));
            padded += GROUP * (1 + longest as usize);
            groups.push(u32::try_from(padded).ok()?);
        }
        let all = padded + longer.iter().map(|&tail| tail as usize).sum::<usize>();
        u32::try_from(all).ok()?;
        let (mut columns, mut rates) = (Vec::with_capacity(all), Vec::with_capacity(all));
        columns.resize(padded, 0);
        rates.resize(padded, 0.0);
        let (mut tails, mut entries) = (Vec::with_capacity(states + GROUP), Vec::new());
        for row in 0..states {
            tails.push(columns.len() as u32);
            entries.clear();
            append_entries(transitions, statistics, row, |column| column, &mut entries);
            let place = |k: usize| groups[row / GROUP] as usize + k * GROUP + row % GROUP;
            (columns[place(0)], rates[place(0)]) = (row as u32, statistics.exit[row].wide());
            let (ell, tail) = entries.split_at(entries.len().min(width(row) as usize));
            for (k, (column, rate)) in (1..).zip(ell) {
                (columns[place(k)], rates[place(k)]) = (*column, rate.wide());
            }
            columns.extend(tail.iter().map(|(column, _)| column));
            rates.extend(tail.iter().map(|(_, rate)| rate.wide()));
        }
        tails.resize(states.next_multiple_of(GROUP) + 1, columns.len() as u32);
        Some((Self { states, groups, tails, columns }, rates))
    }

    /// Returns the number of rows: the number of states, rounded up to a multiple of [`GROUP`].
    pub(super) fn rows(&self) -> usize {
        self.states.next_multiple_of(GROUP)
    }

    /// Returns the entries of the diagonals and the ELL part of the group that begins with a row.
    #[inline(always)]
    pub(super) fn group(&self, first: usize) -> Range<usize> {
        self.groups[first / GROUP] as usize..self.groups[first / GROUP + 1] as usize
    }

    /// Returns the COO entries of some rows.
    #[inline(always)]
    pub(super) fn tails(&self, rows: Range<usize>) -> Range<usize> {
        self.tails[rows.start] as usize..self.tails[rows.end] as usize
    }
}

/// Classes of entries: within each chain, all entries of a class have equal rates.
#[derive(Debug)]
pub(super) struct EntryClasses {
    /// Column and class of each entry.
    pub(super) of: ClassifiedEntries,
    /// Index of one entry of each class.
    entries: Vec<u32>,
}

impl EntryClasses {
    /// Creates a single class with all entries, which have the given columns.
    pub(super) fn new(columns: &[u32]) -> Self {
        Self { of: ClassifiedEntries::new(columns), entries: vec![0] }
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
        self.of.reclassify(|entry, class| {
            let rate = rates[entry];
            if own[class as usize].to_bits() == rate.to_bits() {
                return class;
            }
            *split.entry((class, rate.to_bits())).or_insert_with(|| {
                others.iter_mut().for_each(|rates| rates.push(rates[class as usize]));
                own.push(rate);
                self.entries.push(entry as u32);
                self.entries.len() as u32 - 1
            })
        });
        own
    }
}
