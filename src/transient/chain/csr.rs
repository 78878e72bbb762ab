//! Transitions of a chain in memory, sorted by source and by target.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytemuck::Zeroable;
use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::transitions::{TransitionList, Transitions};
use crate::parallel::*;
use crate::sparse::{CsrMatrix, Offset, group};
use crate::util::memory::zeroed;
use crate::{Invalid, Result};

/// Transitions sorted by target and by source.
#[derive(Debug)]
pub struct Csr {
    states: usize,
    orders: Orders,
}

/// Outgoing and incoming rows, in the representation that takes the least memory.
#[derive(Debug)]
enum Orders {
    /// Two CSR matrices with a rate per transition: outgoing rows, then incoming rows.
    Rates([CsrMatrix; 2]),
    /// Outgoing and incoming rows with 16-bit indices into a table of pairs with offset 0 and a
    /// rate.
    Numbers([CsrMatrix<u16, u32>; 2], Vec<OffsetRate>),
    /// Row starts and 16-bit indices into a table of pairs: outgoing, then incoming rows.
    Pairs([(Vec<u32>, Vec<u16>); 2], Vec<OffsetRate>),
}

/// Pair (target − source modulo 2³², rate), shared by transitions with equal values.
type OffsetRate = (u32, f64);

/// Order of the transitions: row i lists transitions out of state i, or into it.
#[derive(Clone, Copy)]
enum TransitionOrder {
    Out,
    Into,
}

impl Orders {
    /// Builds the outgoing and incoming rows from the outgoing matrix: row i leaves state i.
    fn new(out: CsrMatrix) -> Self {
        fn both<V: Copy + Zeroable + Send + Sync, P: Offset>(out: CsrMatrix<V, P>) -> [CsrMatrix<V, P>; 2] {
            let into = out.transposed();
            [out, into]
        }
        // Indices have 16 bits, starts 32.
        let few = |far| u32::try_from(out.nnz()).ok().and_then(|_| numbered(&out, far));
        if let Some((pairs, numbers)) = few(true) {
            return Self::Pairs(both(out.with_values(numbers)).map(CsrMatrix::into_values), pairs);
        }
        match few(false) {
            Some((rates, numbers)) => Self::Numbers(both(out.with_values(numbers)), rates),
            None => Self::Rates(both(out)),
        }
    }

    fn append(&self, direction: TransitionOrder, state: usize, row: &mut Vec<(u32, f64)>) {
        let order = direction as usize;
        match self {
            Self::Rates(both) => both[order].append(state, row),
            Self::Numbers(both, rates) => {
                let (states, numbers) = both[order].row(state);
                row.extend(states.iter().zip(numbers).map(|(&other, &k)| (other, rates[k as usize].1)));
            }
            Self::Pairs(both, pairs) => {
                let (starts, numbers) = &both[order];
                let numbers = &numbers[starts[state] as usize..starts[state + 1] as usize];
                let pairs = numbers.iter().map(|&k| pairs[k as usize]);
                let state = state as u32;
                row.extend(pairs.map(|(offset, rate)| match direction {
                    TransitionOrder::Out => (state.wrapping_add(offset), rate),
                    TransitionOrder::Into => (state.wrapping_sub(offset), rate),
                }));
            }
        }
    }
}

/// First pair of states that a list contains twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// Source state.
    pub from: u32,
    /// Target state.
    pub to: u32,
}

impl Csr {
    /// Sorts a list of transitions between `n` states; self-loops and zero rates are dropped.
    ///
    /// The error is the first pair of states that is listed twice.
    pub fn new(n: usize, list: TransitionList) -> std::result::Result<Self, Duplicate> {
        let mut out = departures(n, list);
        if out.sort_rows().is_none() {
            return Ok(Self::of_departures(out));
        }
        let (to, from) = out.transposed().sort_rows().expect("duplicates of a matrix are in its transpose");
        Err(Duplicate { from, to: to as u32 })
    }

    /// Sorts a list as [`Csr::new`]; rates of duplicates are added in the order of the list.
    pub fn added_up(n: usize, list: TransitionList) -> Self {
        let mut out = departures(n, list);
        out.ascend();
        Self::of_departures(out)
    }

    /// Builds a chain from its rate matrix, row i out of state i; drops zero rates and the
    /// diagonal.
    pub fn from_rates(rates: &CsrMatrix) -> Self {
        let n = rates.rows();
        let moves = |piece| rates.entries_of(piece).filter(|&(from, to, rate)| from != to && rate != 0.0);
        Self::of_departures(CsrMatrix::grouped(n, n, (rates.pieces(), moves)))
    }

    /// Builds a chain from its outgoing matrix: row i is the transitions out of state i.
    fn of_departures(out: CsrMatrix) -> Self {
        Self { states: out.rows(), orders: Orders::new(out) }
    }

    /// Builds the chain of `n` states from its transitions by source, as in [`NumberedRows`].
    pub(crate) fn of_rows(n: usize, rows: NumberedRows) -> Self {
        let NumberedRows { mut starts, numbers, pairs: Numbering { met, .. }, .. } = rows;
        starts.resize(n + 1, numbers.len() as u32);
        let pairs = pairs(met);
        let row = |i: usize| &numbers[starts[i] as usize..starts[i + 1] as usize];
        let target = |i: usize, number: u16| (i as u32).wrapping_add(pairs[number as usize].0);
        let part = |k: usize| {
            let rows = k * ROWS..n.min((k + 1) * ROWS);
            rows.flat_map(|i| row(i).iter().map(move |&number| (target(i, number), (), number)))
        };
        let (into, _, turned) = group(n, (n.div_ceil(ROWS), part));
        Self { states: n, orders: Orders::Pairs([(starts, numbers), (into, turned)], pairs) }
    }

    /// Sorts a list as [`Csr::new`]; for lists that are not from files.
    ///
    /// A duplicate is an error that names its two states.
    pub fn from_list(n: usize, list: TransitionList) -> Result<Self> {
        Self::new(n, list).map_err(|Duplicate { from, to }| {
            Invalid::Number("rates")
                .error(format!("duplicate transition {from} -> {to}; add its rates into one"))
        })
    }
}

impl Extend<(u32, u32, f64)> for TransitionList {
    fn extend<I: IntoIterator<Item = (u32, u32, f64)>>(&mut self, transitions: I) {
        for (from, to, rate) in transitions {
            self.from.push(from);
            self.to.push(to);
            self.rate.push(rate);
        }
    }
}

impl FromIterator<(u32, u32, f64)> for TransitionList {
    fn from_iter<I: IntoIterator<Item = (u32, u32, f64)>>(transitions: I) -> Self {
        let mut list = Self::default();
        list.extend(transitions);
        list
    }
}

/// Transitions listed by source, targets ascending, each as the number of its [`OffsetRate`].
///
/// Self-loops and zero rates are dropped.
#[derive(Debug, Default)]
pub(crate) struct NumberedRows {
    /// Starts of the rows, up to the last row with a transition.
    starts: Vec<u32>,
    numbers: Vec<u16>,
    pairs: Numbering,
    /// Target of the transition that was added last.
    last: u32,
}

impl NumberedRows {
    /// Returns the number of transitions.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Adds transitions until one is out of order or cannot be numbered; returns how many it read.
    pub(crate) fn push(&mut self, from: &[u32], to: &[u32], rate: &[f64]) -> usize {
        for (k, ((&from, &to), &rate)) in from.iter().zip(to).zip(rate).enumerate() {
            if from == to || rate == 0.0 {
                continue;
            }
            let (row, at) = (from as usize + 1, self.numbers.len() as u32);
            let late = row > self.starts.len() || row == self.starts.len() && to > self.last;
            // A number in a file must not determine the memory use.
            if !late || at == u32::MAX || row > MOST_ROWS * (self.numbers.len() + ROWS) {
                return k;
            }
            let Some(number) = self.pairs.number((to.wrapping_sub(from), rate.to_bits())) else { return k };
            if row > self.starts.len() {
                self.starts.resize(row, at);
            }
            self.numbers.push(number);
            self.last = to;
        }
        rate.len()
    }

    /// Returns the transitions as a list.
    pub(crate) fn list(&self) -> TransitionList {
        let mut list = TransitionList::with_capacity(self.len());
        let ends = self.starts.iter().skip(1).map(|&end| end as usize).chain([self.len()]);
        let row = |((from, &start), end): ((u32, &u32), usize)| {
            let pairs =
                self.numbers[start as usize..end].iter().map(|&number| self.pairs.met[number as usize]);
            pairs.map(move |(offset, bits)| (from, from.wrapping_add(offset), f64::from_bits(bits)))
        };
        list.extend((0u32..).zip(&self.starts).zip(ends).flat_map(row));
        list
    }
}

/// Numbers of distinct [`PairKey`]s, in order of first occurrence, with a cache of recent keys.
#[derive(Debug)]
struct Numbering {
    met: IndexSet<PairKey, FixedState>,
    lately: Box<[(PairKey, u16); PLACES]>,
}

impl Default for Numbering {
    fn default() -> Self {
        Self { met: IndexSet::default(), lately: Box::new([(NONE, 0); PLACES]) }
    }
}

impl Numbering {
    /// Returns the number of a key; `None` if it exceeds 16 bits.
    #[inline]
    fn number(&mut self, key: PairKey) -> Option<u16> {
        let known = &mut self.lately[place(key)];
        if known.0 != key {
            let (found, _) = self.met.insert_full(key);
            *known = (key, u16::try_from(found).ok()?);
        }
        Some(known.1)
    }
}

/// Converts each [`PairKey`] to the pair of its offset and its rate.
fn pairs(keys: impl IntoIterator<Item = PairKey>) -> Vec<OffsetRate> {
    keys.into_iter().map(|(offset, bits)| (offset, f64::from_bits(bits))).collect()
}

/// Number of rows that a thread processes at once.
const ROWS: usize = 1 << 14;

/// Largest number of rows of [`NumberedRows`] per transition, to limit the memory of empty rows.
const MOST_ROWS: usize = 16;

/// Key of an [`OffsetRate`] in hash tables: offset (0 if rates alone are numbered), rate bits.
type PairKey = (u32, u64);

/// Returns the [`PairKey`] of each entry in some rows; offsets are 0 unless `far` is true.
fn keys(out: &CsrMatrix, rows: Range<usize>, far: bool) -> impl Iterator<Item = PairKey> {
    rows.flat_map(move |i| {
        let (to, rates) = out.row(i);
        let offset = move |to: u32| if far { to.wrapping_sub(i as u32) } else { 0 };
        to.iter().zip(rates).map(move |(&to, &rate)| (offset(to), rate.to_bits()))
    })
}

/// Number of cache slots of [`Numbering`]; `NONE`: empty slot, `place`: slot of a key.
const PLACES: usize = 1 << 10;
const NONE: PairKey = (0, u64::MAX);
fn place((offset, bits): PairKey) -> usize {
    let mixed = (u64::from(offset) << 32 ^ bits).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - PLACES.trailing_zeros())) as usize
}

/// Returns the distinct pairs and the number of each entry's pair; `None` above 2¹⁶ pairs.
///
/// Pairs are (offset, rate) if `far`, else (0, rate).
fn numbered(out: &CsrMatrix, far: bool) -> Option<(Vec<OffsetRate>, Vec<u16>)> {
    const MOST: usize = 1 << 16;
    let mut numbers = zeroed(out.nnz());
    let (mut rest, mut pieces) = (&mut numbers[..], Vec::new());
    for first in (0..out.rows()).step_by(ROWS) {
        let rows = first..out.rows().min(first + ROWS);
        let (piece, behind) = rest.split_at_mut(out.starts()[rows.end] - out.starts()[rows.start]);
        rest = behind;
        pieces.push((rows, piece));
    }
    // Each piece first numbers its own pairs, in order of first occurrence.
    let all = Mutex::new(HashSet::<PairKey, FixedState>::default());
    let many = AtomicBool::new(false);
    let own = pieces.into_par_iter().map(|(rows, numbers)| {
        let mut own = Numbering::default();
        for (number, key) in numbers.iter_mut().zip(keys(out, rows, far)) {
            let Some(found) = own.number(key).filter(|_| !many.load(Ordering::Relaxed)) else {
                many.store(true, Ordering::Relaxed);
                break;
            };
            *number = found;
        }
        let met = own.met;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(&met);
        many.fetch_or(all.len() > MOST, Ordering::Relaxed);
        (numbers, met)
    });
    let pieces: Vec<_> = own.collect();
    if many.into_inner() {
        return None;
    }
    let mut keys: Vec<PairKey> =
        all.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
    keys.sort_unstable();
    pieces.into_par_iter().for_each(|(numbers, met)| {
        let number = |key| keys.binary_search(key).expect("every piece's pairs are among all") as u16;
        let of: Vec<u16> = met.iter().map(number).collect();
        numbers.iter_mut().for_each(|number| *number = of[*number as usize]);
    });
    Some((pairs(keys), numbers))
}

/// Returns the transitions of a list by source, without self-loops and zero rates.
fn departures(n: usize, mut list: TransitionList) -> CsrMatrix {
    list.drop_still();
    CsrMatrix::of_lists(n, n, list.from, list.to, list.rate)
}

impl Transitions for Csr {
    fn states(&self) -> usize {
        self.states
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.orders.append(TransitionOrder::Into, state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.orders.append(TransitionOrder::Out, state, row);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::transitions::exit_rate;
    use super::*;

    /// Returns a chain of `n` states with these transitions.
    pub(crate) fn chain(n: usize, entries: &[(u32, u32, f64)]) -> Csr {
        Csr::from_list(n, entries.iter().copied().collect()).unwrap()
    }

    fn list(entries: &[(u32, u32, f64)]) -> TransitionList {
        entries.iter().copied().collect()
    }

    #[test]
    fn rows_ascend_and_self_loops_and_zeros_are_gone() {
        let csr = chain(3, &[(2, 0, 5.0), (0, 2, 1.0), (0, 1, 0.5), (1, 1, 9.0), (1, 0, 2.0), (2, 1, 0.0)]);

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
    fn all_storage_forms_give_equal_rows() {
        let n = 70_001u32;
        let (far, near) = (|i: u32| (7 * i) % 70_001, |i: u32| (i + 1 + i % 3) % 70_001);
        let (few, many) = (|i: u32| f64::from(1 + i % 300), |i: u32| 1.0 + f64::from(i));
        for (to, rate, kept) in
            [(near as fn(u32) -> u32, few as fn(u32) -> f64, 2), (far, few, 1), (near, many, 0)]
        {
            let entries: Vec<_> = (1..n).map(|i| (i, to(i), rate(i))).collect();
            let csr = chain(n as usize, &entries);

            let found = match csr.orders {
                Orders::Rates(_) => 0,
                Orders::Numbers(..) => 1,
                Orders::Pairs(..) => 2,
            };
            assert_eq!(found, kept);
            let (mut out, mut into) = (Vec::new(), Vec::new());
            for state in 0..n {
                let mut row = Vec::new();
                csr.outgoing(state as usize, &mut row);
                out.extend(row.iter().map(|&(to, rate)| (state, to, rate)));
                let row = csr.entering(state as usize, &mut row);
                into.extend(row.iter().map(|&(from, rate)| (from, state, rate)));
            }
            assert_eq!(out, entries);
            into.sort_by_key(|&(from, ..)| from);
            assert_eq!(into, entries);
        }
    }

    #[test]
    fn rows_numbered_in_order_of_arrival_equal_those_of_the_list() {
        let n = 50_000u32;
        let entries: Vec<_> = (0..n)
            .flat_map(|i| [(i, i / 2, 1.0 + f64::from(i % 7)), (i, i, 9.0), (i, (i + 5).min(n - 1), 0.5)])
            .filter(|&(i, to, _)| i % 11 != 3 && (i == to || i / 2 != (i + 5).min(n - 1)))
            .collect();
        let moves: Vec<_> = entries.iter().copied().filter(|&(i, to, _)| i != to).collect();
        let all = list(&entries);
        let rows = |csr: &Csr| {
            let mut row = Vec::new();
            (0..n as usize).for_each(|i| (csr.outgoing(i, &mut row), csr.incoming(i, &mut row)).0);
            row
        };

        let mut numbered = NumberedRows::default();
        for k in (0..entries.len()).step_by(999) {
            let piece = k..entries.len().min(k + 999);
            let pushed =
                numbered.push(&all.from[piece.clone()], &all.to[piece.clone()], &all.rate[piece.clone()]);
            assert_eq!(pushed, piece.len());
        }
        assert_eq!(numbered.list(), list(&moves));
        let csr = Csr::of_rows(n as usize, numbered);

        assert!(matches!(csr.orders, Orders::Pairs(..)));
        assert_eq!(rows(&csr), rows(&Csr::new(n as usize, all).unwrap()));
    }

    #[test]
    fn numbering_ends_at_what_is_out_of_order_or_cannot_be_named() {
        let pushed = |entries: &[(u32, u32, f64)]| {
            let TransitionList { from, to, rate } = list(entries);
            NumberedRows::default().push(&from, &to, &rate)
        };

        for (entries, count, why) in [
            (&[(0, 1, 1.0), (0, 2, 1.0), (2, 0, 1.0), (2, 2, 1.0)][..], 4, "all in order"),
            (&[(0, 2, 1.0), (0, 1, 1.0)], 1, "targets descend"),
            (&[(0, 1, 1.0), (0, 1, 1.0)], 1, "twice"),
            (&[(0, 1, 1.0), (0, 1, 0.0)], 2, "not twice: a rate of 0 is none"),
            (&[(1, 0, 1.0), (0, 1, 1.0)], 1, "sources descend"),
            (&[(0, 1, 1.0), (4_000_000_000, 1, 1.0)], 1, "rows for nothing"),
        ] {
            assert_eq!(pushed(entries), count, "{why}");
        }
        let many: Vec<_> = (0..70_000).map(|i| (i, i + 1, 1.0 + f64::from(i))).collect();
        assert_eq!(pushed(&many), 1 << 16);
    }

    #[test]
    fn exit_rates_have_the_bits_of_the_canonical_sum_in_any_file_order() {
        let rates: Vec<f64> = (1..40).map(|i| 1.0 / f64::from(i)).collect();
        let ascending: Vec<_> = rates.iter().zip(1u32..).map(|(&r, to)| (0, to, r)).collect();
        let mut shuffled = ascending.clone();
        shuffled.reverse();

        for entries in [ascending, shuffled] {
            let mut exit = [0.0];
            chain(40, &entries).exit_rates(0..1, &mut exit);
            assert_eq!(exit[0].to_bits(), exit_rate(rates.iter().copied()).to_bits());
        }
    }

    #[test]
    fn a_pair_listed_twice_is_named() {
        let found = Csr::new(3, list(&[(0, 2, 1.0), (0, 1, 1.0), (2, 1, 1.0), (0, 2, 1.0), (0, 1, 1.0)]))
            .unwrap_err();

        assert_eq!(found, Duplicate { from: 0, to: 1 });
    }
}
