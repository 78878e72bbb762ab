//! A chain's transitions from files, each rank having its part of them.
//!
//! Whatever part of a file a rank has read, the transitions go to those who keep them: one into and out of a state to
//! the rank whose share of blocks the state lies in, its home. When rows are shared out by what devices can do, ranks
//! settle: they get from the homes what they lack of their rows, and what leads into the states behind the cuts.

use std::ops::Range;
use std::sync::RwLock;

use super::chain::{TransitionList, Transitions};
use super::csr::{Duplicate, Rows};
use crate::ranks::Ranks;
use crate::sparse::BLOCK;

/// Words of a transition under way: row, column, rate.
const WORDS: usize = 4;
/// Transitions that arrive at a rank at once, at most.
const AT_ONCE: usize = 1 << 26;

/// A chain whose transitions lie on several ranks.
#[derive(Debug)]
pub struct Shared {
    n: usize,
    ranks: Ranks,
    homes: Vec<Range<usize>>,
    into: Rows,
    out: Rows,
    beyond: RwLock<Beyond>,
}

/// What a rank knows of others' states.
#[derive(Debug, Default)]
struct Beyond {
    /// Ascending; those that only lead somewhere have no entries in `out`.
    states: Vec<u32>,
    into: Rows,
    out: Rows,
}

impl Shared {
    /// Brings the transitions that ranks have read to their homes; self-loops and zero rates are dropped. Every rank
    /// calls this at once. With what was found, the first pair of states that this rank has twice.
    pub fn new(n: usize, list: TransitionList, ranks: Ranks) -> (Self, Option<Duplicate>) {
        let blocks = n.div_ceil(BLOCK) as u64;
        let mine = ranks.share(blocks);
        let cuts = ranks.all(&[mine.start, mine.end]);
        let rows = |cut: &Vec<u64>| (cut[0] as usize * BLOCK).min(n)..(cut[1] as usize * BLOCK).min(n);
        let homes: Vec<Range<usize>> = cuts.iter().map(rows).collect();
        let home = homes[ranks.rank()].clone();
        let (from, to, rate) = (&list.from, &list.to, &list.rate);
        let kept = |&k: &usize| from[k] != to[k] && rate[k] != 0.0;
        let count = rate.len();
        let into = brought(&homes, ranks, count, |k| kept(&k).then_some((to[k], from[k], rate[k])));
        let mut into = sorted(&home, &into);
        let duplicate = into.ascend().map(|(to, from)| Duplicate { from, to: (home.start + to) as u32 });
        let out = brought(&homes, ranks, count, |k| kept(&k).then_some((from[k], to[k], rate[k])));
        let mut out = sorted(&home, &out);
        // The first of these is the same pair of states, met from its other end.
        let _ = out.ascend();
        (Self { n, ranks, homes, into, out, beyond: RwLock::default() }, duplicate)
    }

    /// Bytes of the transitions that this rank holds.
    pub fn bytes(&self) -> u64 {
        let beyond = self.beyond.read().unwrap_or_else(|e| e.into_inner());
        let others = beyond.into.bytes() + beyond.out.bytes() + 4 * beyond.states.len() as u64;
        self.into.bytes() + self.out.bytes() + others
    }

    fn home(&self) -> &Range<usize> {
        &self.homes[self.ranks.rank()]
    }

    fn append(&self, state: usize, row: &mut Vec<(u32, f64)>, into: bool) {
        if self.home().contains(&state) {
            let rows = if into { &self.into } else { &self.out };
            return rows.append(state - self.home().start, row);
        }
        let beyond = self.beyond.read().unwrap_or_else(|e| e.into_inner());
        let place = beyond.states.binary_search(&(state as u32));
        let place =
            place.unwrap_or_else(|_| panic!("rank {} does not know state {state}", self.ranks.rank()));
        if into { &beyond.into } else { &beyond.out }.append(place, row);
    }

    /// Gets the rows of some states, ascending, from their homes.
    fn fetched(&self, states: &[u32], into: bool) -> Rows {
        let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); self.ranks.size()];
        states.iter().for_each(|&state| wanted[owner(&self.homes, state)].push(state));
        let (mut lengths, mut words) = (Vec::new(), Vec::new());
        for asked in self.ranks.trade(wanted) {
            let (mut ends, mut entries, mut row) = (Vec::new(), Vec::new(), Vec::new());
            for state in asked {
                row.clear();
                self.append(state as usize, &mut row, into);
                ends.push(row.len() as u32);
                for &(column, rate) in &row {
                    entries.push(column);
                    entries.extend(halves(rate));
                }
            }
            lengths.push(ends);
            words.push(entries);
        }
        let lengths = self.ranks.trade(lengths).concat();
        let words = self.ranks.trade(words).concat();
        let rows =
            lengths.iter().enumerate().flat_map(|(row, &len)| std::iter::repeat_n(row as u32, len as usize));
        let entries: Vec<(u32, u32, f64)> = rows
            .zip(words.as_chunks::<3>().0)
            .map(|(row, &[column, low, high])| (row, column, whole(low, high)))
            .collect();
        Rows::sorted(states.len(), entries.iter().copied())
    }
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

fn sorted(home: &Range<usize>, entries: &[(u32, u32, f64)]) -> Rows {
    let first = home.start as u32;
    Rows::sorted(home.len(), entries.iter().map(|&(row, column, rate)| (row - first, column, rate)))
}

/// Sends entries (row, column, rate) to the homes of their rows, a bounded number at once.
fn brought(
    homes: &[Range<usize>],
    ranks: Ranks,
    count: usize,
    entry: impl Fn(usize) -> Option<(u32, u32, f64)>,
) -> Vec<(u32, u32, f64)> {
    let piece = (AT_ONCE / ranks.size()).max(1);
    let rounds = ranks.most(count.div_ceil(piece) as f64) as usize;
    let mut arrived = Vec::new();
    for round in 0..rounds {
        let mut leaving: Vec<Vec<u32>> = vec![Vec::new(); ranks.size()];
        for (row, column, rate) in
            ((round * piece).min(count)..((round + 1) * piece).min(count)).filter_map(&entry)
        {
            let list = &mut leaving[owner(homes, row)];
            list.extend([row, column]);
            list.extend(halves(rate));
        }
        for words in ranks.trade(leaving) {
            let entries = words.as_chunks::<WORDS>().0.iter();
            arrived.extend(entries.map(|&[row, column, low, high]| (row, column, whole(low, high))));
        }
    }
    arrived
}

impl Transitions for Shared {
    fn states(&self) -> usize {
        self.n
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append(state, row, true);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append(state, row, false);
    }

    fn whole(&self) -> bool {
        false
    }

    fn settle(&self, states: &Range<usize>) {
        let home = self.home();
        let foreign = |state: &u32| !home.contains(&(*state as usize));
        let own: Vec<u32> = states.clone().map(|state| state as u32).filter(foreign).collect();
        let out = self.fetched(&own, false);
        // Where these lead to, and where those lead to that lie at home.
        let mut known: Vec<u32> = own.clone();
        let mut row = Vec::new();
        let next = |known: &mut Vec<u32>, row: &mut Vec<(u32, f64)>| {
            known.extend(row.iter().map(|&(state, _)| state).filter(foreign));
            row.clear();
        };
        for place in 0..own.len() {
            out.append(place, &mut row);
            next(&mut known, &mut row);
        }
        for state in states.start.max(home.start)..states.end.min(home.end) {
            self.append(state, &mut row, false);
            next(&mut known, &mut row);
        }
        known.sort_unstable();
        known.dedup();
        let into = self.fetched(&known, true);
        // In the order of all that are known.
        let places = own.iter().map(|state| known.partition_point(|k| k < state) as u32);
        let mut entries = Vec::new();
        for (row_of, place) in places.enumerate() {
            row.clear();
            out.append(row_of, &mut row);
            entries.extend(row.iter().map(|&(column, rate)| (place, column, rate)));
        }
        let out = Rows::sorted(known.len(), entries.iter().copied());
        *self.beyond.write().unwrap_or_else(|e| e.into_inner()) = Beyond { states: known, into, out };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_a_rank_is_home_to_all() {
        let list = TransitionList {
            from: vec![0, 2, 1, 1, 2],
            to: vec![1, 0, 1, 2, 0],
            rate: vec![1.5, 2.0, 7.0, 0.0, 3.0],
        };

        let (chain, duplicate) = Shared::new(3, list, Ranks::ALONE);

        assert_eq!(duplicate, Some(Duplicate { from: 2, to: 0 }));
        chain.settle(&(0..3));
        let (mut into, mut out) = (Vec::new(), Vec::new());
        chain.incoming(1, &mut into);
        chain.outgoing(1, &mut out);
        assert_eq!((into, out), (vec![(0, 1.5)], vec![]));
    }
}
