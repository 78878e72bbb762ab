//! A chain's transitions in memory, from files.

use std::ops::Range;
use std::sync::OnceLock;

use super::chain::{TransitionList, Transitions, returned};
use crate::{Error, Result};

/// Transitions sorted by target, and by source when somebody asks.
#[derive(Debug)]
pub struct Csr {
    /// Row i: the transitions into state i.
    into: Rows,
    /// Row i: the transitions out of state i. Solving needs it for bounds alone, so it is made on demand.
    out: OnceLock<Rows>,
    exit: Vec<f64>,
}

/// Entries by rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// The first pair of states that a list has twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// Source state.
    pub from: u32,
    /// Target state.
    pub to: u32,
}

impl Rows {
    fn row(&self, i: usize) -> Range<usize> {
        self.starts[i]..self.starts[i + 1]
    }

    /// Appends a row's entries.
    pub(super) fn append(&self, i: usize, row: &mut Vec<(u32, f64)>) {
        let e = self.row(i);
        row.extend(self.columns[e.clone()].iter().copied().zip(self.values[e].iter().copied()));
    }

    /// Rows of these lengths, which stand behind a 0, without columns and values.
    pub(super) fn of_lengths(mut lengths: Vec<usize>) -> Self {
        for i in 1..lengths.len() {
            lengths[i] += lengths[i - 1];
        }
        Self { starts: lengths, columns: Vec::new(), values: Vec::new() }
    }

    /// Has `entries` call what it is given with a row and a column for each entry, in any order.
    pub(super) fn fill_columns(&mut self, entries: impl FnOnce(&mut dyn FnMut(usize, u32))) {
        let count = self.starts[self.starts.len() - 1];
        self.columns = returned(count);
        self.columns.resize(count, 0);
        let (starts, columns) = (&mut self.starts, &mut self.columns);
        entries(&mut |row, column| columns[next(starts, row)] = column);
        self.rewind();
    }

    /// The same with values, in the order that the columns had.
    pub(super) fn fill_values(&mut self, entries: impl FnOnce(&mut dyn FnMut(usize, f64))) {
        self.values = returned(self.columns.len());
        self.values.resize(self.columns.len(), 0.0);
        let (starts, values) = (&mut self.starts, &mut self.values);
        entries(&mut |row, value| values[next(starts, row)] = value);
        self.rewind();
    }

    /// Where each row ended the next one starts.
    fn rewind(&mut self) {
        let n = self.starts.len() - 1;
        self.starts.copy_within(..n, 1);
        self.starts[0] = 0;
    }

    /// Adds a row behind the others.
    pub(super) fn push(&mut self, row: impl Iterator<Item = (u32, f64)>) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        row.for_each(|(column, value)| {
            self.columns.push(column);
            self.values.push(value);
        });
        self.starts.push(self.columns.len());
    }

    /// The number of entries.
    pub(super) fn count(&self) -> usize {
        self.columns.len()
    }

    /// All entries: row, column, value.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u32, f64)> + Clone {
        let rows = 0..self.starts.len().saturating_sub(1);
        rows.flat_map(move |i| self.row(i).map(move |e| (i as u32, self.columns[e], self.values[e])))
    }

    /// Sorts entries by `row`, keeping their order within one.
    fn sorted(n: usize, entries: impl Iterator<Item = (u32, u32, f64)> + Clone) -> Self {
        let mut lengths = vec![0usize; n + 1];
        for (row, _, _) in entries.clone() {
            lengths[row as usize + 1] += 1;
        }
        let mut rows = Self::of_lengths(lengths);
        (rows.columns, rows.values) = (vec![0; rows.starts[n]], vec![0.0; rows.starts[n]]);
        for (row, column, value) in entries {
            let at = next(&mut rows.starts, row as usize);
            rows.columns[at] = column;
            rows.values[at] = value;
        }
        rows.rewind();
        rows
    }

    fn transposed(&self) -> Self {
        Self::sorted(self.starts.len() - 1, self.entries().map(|(i, column, value)| (column, i, value)))
    }

    /// Sorts each row by column and returns the first column that a row has twice.
    pub(super) fn ascend(&mut self) -> Option<(usize, u32)> {
        let mut pairs = Vec::new();
        for i in 0..self.starts.len() - 1 {
            let row = self.row(i);
            if !self.columns[row.clone()].is_sorted() {
                pairs.clear();
                pairs.extend(
                    self.columns[row.clone()].iter().copied().zip(self.values[row.clone()].iter().copied()),
                );
                pairs.sort_by_key(|&(column, _)| column);
                for (e, &(column, value)) in row.clone().zip(&pairs) {
                    self.columns[e] = column;
                    self.values[e] = value;
                }
            }
            if let Some(pair) = self.columns[row].windows(2).find(|pair| pair[0] == pair[1]) {
                return Some((i, pair[0]));
            }
        }
        None
    }
}

/// The place of a row's next entry, which its start keeps until all are there.
fn next(starts: &mut [usize], row: usize) -> usize {
    starts[row] += 1;
    starts[row] - 1
}

impl Csr {
    /// Sorts a list of transitions between `n` states; self-loops and zero rates are dropped.
    ///
    /// The error is the first pair of states that is listed twice.
    pub fn new(n: usize, list: &TransitionList) -> std::result::Result<Self, Duplicate> {
        let entries = (list.from.iter().zip(&list.to).zip(&list.rate))
            .map(|((&from, &to), &rate)| (to, from, rate))
            .filter(|&(to, from, rate)| to != from && rate != 0.0);
        let mut into = Rows::sorted(n, entries);
        if let Some((to, from)) = into.ascend() {
            return Err(Duplicate { from, to: to as u32 });
        }
        // Neumaier's sum of each source's rates in ascending order of targets, all sources side by side.
        let (mut exit, mut lost) = (vec![0.0f64; n], vec![0.0f64; n]);
        for (&from, &rate) in into.columns.iter().zip(&into.values) {
            let (sum, lost) = (&mut exit[from as usize], &mut lost[from as usize]);
            let next = *sum + rate;
            *lost += if *sum >= rate { (*sum - next) + rate } else { (rate - next) + *sum };
            *sum = next;
        }
        for (sum, lost) in exit.iter_mut().zip(lost) {
            *sum += lost;
        }
        Ok(Self { into, out: OnceLock::new(), exit })
    }

    /// [`Csr::new`] for lists that are not files; a duplicate is an error with both states.
    pub fn from_list(n: usize, list: &TransitionList) -> Result<Self> {
        Self::new(n, list).map_err(|Duplicate { from, to }| {
            Error::Invalid(format!("the transition {from} -> {to} is listed twice; add its rates into one"))
        })
    }

    fn out(&self) -> &Rows {
        self.out.get_or_init(|| self.into.transposed())
    }
}

impl Transitions for Csr {
    fn states(&self) -> usize {
        self.exit.len()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.into.append(state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.out().append(state, row);
    }

    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        out.copy_from_slice(&self.exit[states]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::exit_rate;

    fn list(entries: &[(u32, u32, f64)]) -> TransitionList {
        TransitionList {
            from: entries.iter().map(|e| e.0).collect(),
            to: entries.iter().map(|e| e.1).collect(),
            rate: entries.iter().map(|e| e.2).collect(),
        }
    }

    #[test]
    fn rows_ascend_and_self_loops_and_zeros_are_gone() {
        let csr = Csr::new(
            3,
            &list(&[(2, 0, 5.0), (0, 2, 1.0), (0, 1, 0.5), (1, 1, 9.0), (1, 0, 2.0), (2, 1, 0.0)]),
        )
        .unwrap();

        let (mut into, mut out) = (Vec::new(), Vec::new());
        csr.incoming(0, &mut into);
        csr.outgoing(0, &mut out);
        assert_eq!(into, [(1, 2.0), (2, 5.0)]);
        assert_eq!(out, [(1, 0.5), (2, 1.0)]);
        let mut exit = [0.0; 3];
        csr.exit_rates(0..3, &mut exit);
        assert_eq!(exit, [1.5, 2.0, 5.0]);
    }

    #[test]
    fn exit_rates_have_the_bits_of_the_canonical_sum_whatever_the_order_of_the_file() {
        let rates: Vec<f64> = (1..40).map(|i| 1.0 / f64::from(i)).collect();
        let ascending: Vec<_> = rates.iter().zip(1u32..).map(|(&r, to)| (0, to, r)).collect();
        let mut shuffled = ascending.clone();
        shuffled.reverse();

        for entries in [ascending, shuffled] {
            let mut exit = [0.0];
            Csr::new(40, &list(&entries)).unwrap().exit_rates(0..1, &mut exit);
            assert_eq!(exit[0].to_bits(), exit_rate(rates.iter().copied()).to_bits());
        }
    }

    #[test]
    fn a_pair_listed_twice_is_named() {
        let found = Csr::new(3, &list(&[(0, 1, 1.0), (2, 1, 1.0), (0, 1, 1.0)])).unwrap_err();

        assert_eq!(found, Duplicate { from: 0, to: 1 });
    }
}
