//! Chain with its transitions distributed over several ranks.
//!
//! Each rank reads some part of a file. The transitions into and out of a state are then sent to
//! its home: the rank whose share of blocks contains the state. When the rows are later distributed
//! by the speed of the devices, each rank fetches the missing ones of its rows from their homes.

use std::ops::Range;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::csr::Duplicate;
use super::transitions::{Distributed, Take, TransitionList, Transitions};
use crate::ranks::Ranks;
use crate::sparse::{BLOCK, CsrMatrix};

/// Number of rows that all ranks together request in a round; more if there are over `ROUNDS`
/// rounds.
const AT_ONCE: usize = 1 << 14;
const ROUNDS: usize = 64;

/// Chain with its transitions stored on several ranks.
#[derive(Debug)]
pub(crate) struct Shared {
    n: usize,
    ranks: Ranks,
    homes: Vec<Range<usize>>,
    into: CsrMatrix,
    /// `None` while it is not needed.
    out: RwLock<Option<CsrMatrix>>,
    remote: RwLock<RemoteRows>,
}

/// Rows of a rank that are at home on remote ranks.
#[derive(Debug, Default)]
struct RemoteRows {
    /// States in ascending order.
    states: Vec<u32>,
    into: CsrMatrix,
    out: CsrMatrix,
}

impl Shared {
    /// Sends the transitions that ranks have read to their homes, and drops self-loops and zero
    /// rates.
    ///
    /// Also returns the first pair of states that this rank has twice. Collective.
    ///
    /// Memory: besides the list a rank stores the columns that it receives. Once the list's sources
    /// are dropped, it stores the values too, and once the list is dropped, the second order. So it
    /// never needs more than the two orders together, and the pieces in transit.
    pub(crate) fn new(n: usize, mut list: TransitionList, ranks: Ranks) -> (Self, Option<Duplicate>) {
        let blocks = n.div_ceil(BLOCK) as u64;
        let mine = ranks.share(blocks);
        let cuts = ranks.all_gather(&[mine.start, mine.end]);
        let rows = |cut: &Vec<u64>| (cut[0] as usize * BLOCK).min(n)..(cut[1] as usize * BLOCK).min(n);
        let homes: Vec<Range<usize>> = cuts.iter().map(rows).collect();
        let home = homes[ranks.rank()].clone();
        list.drop_still();
        let TransitionList { from, to, rate } = list;
        let count = rate.len();
        let mut into = Arriving::new(&homes, ranks, count, to.iter().copied());
        into.columns(to.iter().copied().zip(from.iter().copied()));
        drop(from);
        into.values(to.iter().copied().zip(rate.iter().copied()));
        drop((to, rate));
        let mut into = into.rows;
        let duplicate = into.sort_rows().map(|(to, from)| Duplicate { from, to: (home.start + to) as u32 });
        let out = RwLock::new(Some(turned(&homes, ranks, &into)));
        (Self { n, ranks, homes, into, out, remote: RwLock::default() }, duplicate)
    }

    fn home(&self) -> &Range<usize> {
        &self.homes[self.ranks.rank()]
    }

    /// Returns the index of a remote state among those that this rank has acquired.
    fn place(&self, remote: &RemoteRows, state: usize) -> usize {
        let place = remote.states.binary_search(&(state as u32));
        place.unwrap_or_else(|_| panic!("rank {} does not know state {state}", self.ranks.rank()))
    }

    fn append_out(&self, out: &Option<CsrMatrix>, state: usize, row: &mut Vec<(u32, f64)>) {
        if self.home().contains(&state) {
            let out = out.as_ref().expect("transitions out of states are asked for after rows are acquired");
            return out.append(state - self.home().start, row);
        }
        let remote = read(&self.remote);
        remote.out.append(self.place(&remote, state), row);
    }

    /// Fetches the rows of `states`, ascending, from their homes: incoming if `into`, else
    /// outgoing.
    fn fetched(&self, states: &[u32], into: bool) -> CsrMatrix {
        let size = self.ranks.size();
        let most = self.ranks.all_reduce_max(states.len() as f64) as usize;
        let piece = (AT_ONCE / size).max(most / ROUNDS).max(1);
        let mut rows = CsrMatrix::default();
        for round in 0..most.div_ceil(piece) {
            let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); size];
            let states = &states[(round * piece).min(states.len())..((round + 1) * piece).min(states.len())];
            states.iter().for_each(|&state| wanted[owner(&self.homes, state)].push(state));
            let (mut lengths, mut words) = (Vec::new(), Vec::new());
            for asked in self.ranks.all_to_all(wanted) {
                let (mut ends, mut entries, mut row) = (Vec::new(), Vec::new(), Vec::new());
                for state in asked {
                    row.clear();
                    match into {
                        true => self.incoming(state as usize, &mut row),
                        false => self.outgoing(state as usize, &mut row),
                    }
                    ends.push(row.len() as u32);
                    for &(column, rate) in &row {
                        entries.push(column);
                        entries.extend(halves(rate));
                    }
                }
                lengths.push(ends);
                words.push(entries);
            }
            // Homes ascend with the states.
            let lengths = self.ranks.all_to_all(lengths).concat();
            let words = self.ranks.all_to_all(words).concat();
            let mut entries = words.as_chunks::<3>().0.iter();
            for len in lengths {
                let row = entries.by_ref().take(len as usize);
                rows.push(row.map(|&[column, low, high]| (column, whole(low, high))));
            }
        }
        rows
    }
}

fn read<V>(lock: &RwLock<V>) -> RwLockReadGuard<'_, V> {
    lock.read().unwrap_or_else(|e| e.into_inner())
}

fn write<V>(lock: &RwLock<V>) -> RwLockWriteGuard<'_, V> {
    lock.write().unwrap_or_else(|e| e.into_inner())
}

/// Transposes the incoming transitions of all ranks: returns those out of this rank's home states.
fn turned(homes: &[Range<usize>], ranks: Ranks, into: &CsrMatrix) -> CsrMatrix {
    let (first, count) = (homes[ranks.rank()].start as u32, into.nnz());
    let mut out = Arriving::new(homes, ranks, count, into.entries().map(|(_, from, _)| from));
    out.columns(into.entries().map(|(to, from, _)| (from, first + to)));
    out.values(into.entries().map(|(_, from, rate)| (from, rate)));
    let mut out = out.rows;
    // Pairs that occur twice were found in the incoming rows.
    let _ = out.sort_rows();
    out
}

fn halves(rate: f64) -> [u32; 2] {
    let bits = rate.to_bits();
    [bits as u32, (bits >> 32) as u32]
}

fn whole(low: u32, high: u32) -> f64 {
    f64::from_bits(u64::from(low) | u64::from(high) << 32)
}

fn owner(homes: &[Range<usize>], state: u32) -> usize {
    homes.partition_point(|home| home.end <= state as usize)
}

/// Rows of this rank's home, filled with entries from all ranks piece by piece.
struct Arriving<'a> {
    homes: &'a [Range<usize>],
    ranks: Ranks,
    /// Number of entries that this rank sends.
    count: usize,
    rows: CsrMatrix,
}

impl<'a> Arriving<'a> {
    /// Counts the entries of each row.
    fn new(homes: &'a [Range<usize>], ranks: Ranks, count: usize, rows: impl Iterator<Item = u32>) -> Self {
        let home = &homes[ranks.rank()];
        let mut lengths = vec![0; home.len() + 1];
        let rows = rows.map(|row| (owner(homes, row), [row]));
        ranks.all_to_all_in_rounds(count, rows, |&[row]| lengths[row as usize - home.start + 1] += 1);
        Self { homes, ranks, count, rows: CsrMatrix::of_lengths(homes[homes.len() - 1].end, lengths) }
    }

    /// Receives the columns of all entries; `entries` are this rank's (row, column).
    fn columns(&mut self, entries: impl Iterator<Item = (u32, u32)>) {
        let (homes, first) = (self.homes, self.homes[self.ranks.rank()].start);
        let entries = entries.map(|(row, column)| (owner(homes, row), [row, column]));
        self.rows.fill_columns(|place| {
            self.ranks.all_to_all_in_rounds(self.count, entries, |&[row, column]| {
                place(row as usize - first, column);
            });
        });
    }

    /// Receives the values of all entries; `entries` are this rank's (row, value), in the order of
    /// `columns`.
    fn values(&mut self, entries: impl Iterator<Item = (u32, f64)>) {
        let (homes, first) = (self.homes, self.homes[self.ranks.rank()].start);
        let entries = entries.map(|(row, value)| {
            let [low, high] = halves(value);
            (owner(homes, row), [row, low, high])
        });
        self.rows.fill_values(|place| {
            self.ranks.all_to_all_in_rounds(self.count, entries, |&[row, low, high]| {
                place(row as usize - first, whole(low, high));
            });
        });
    }
}

impl Transitions for Shared {
    fn states(&self) -> usize {
        self.n
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        if self.home().contains(&state) {
            return self.into.append(state - self.home().start, row);
        }
        let remote = read(&self.remote);
        remote.into.append(self.place(&remote, state), row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append_out(&read(&self.out), state, row);
    }

    fn distributed(&self) -> Option<&dyn Distributed> {
        Some(self)
    }
}

impl Distributed for Shared {
    fn each_outgoing(&self, states: Range<usize>, take: &mut Take<'_>) {
        let (out, mut row) = (read(&self.out), Vec::new());
        for state in states {
            row.clear();
            self.append_out(&out, state, &mut row);
            take(state, &row);
        }
    }

    fn release_outgoing(&self) {
        *write(&self.out) = None;
        write(&self.remote).out = CsrMatrix::default();
    }

    fn acquire_rows(&self, states: &Range<usize>) {
        // The outgoing rows are stored on all ranks or on none.
        if read(&self.out).is_none() {
            let out = turned(&self.homes, self.ranks, &self.into);
            *write(&self.out) = Some(out);
        }
        let home = self.home();
        let foreign = |state: &u32| !home.contains(&(*state as usize));
        let own: Vec<u32> = states.clone().map(|state| state as u32).filter(foreign).collect();
        let (into, out) = (self.fetched(&own, true), self.fetched(&own, false));
        *write(&self.remote) = RemoteRows { states: own, into, out };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_rank_is_home_to_all_states() {
        let list = TransitionList {
            from: vec![0, 2, 1, 1, 2],
            to: vec![1, 0, 1, 2, 0],
            rate: vec![1.5, 2.0, 7.0, 0.0, 3.0],
        };

        let (chain, duplicate) = Shared::new(3, list, Ranks::ALONE);

        assert_eq!(duplicate, Some(Duplicate { from: 2, to: 0 }));
        // Releases the outgoing rows and builds them again.
        chain.release_outgoing();
        chain.acquire_rows(&(0..3));
        let (mut into, mut out) = (Vec::new(), Vec::new());
        chain.incoming(1, &mut into);
        chain.outgoing(1, &mut out);
        assert_eq!((into, out), (vec![(0, 1.5)], vec![]));
    }
}
