//! A chain's transitions in memory, from files.

use std::collections::HashSet;

use super::transitions::{TransitionList, Transitions};
use crate::parallel::*;
use crate::sparse::{CsrMatrix, Place};
use crate::{Error, Result};

/// Transitions sorted by target and by source.
#[derive(Debug)]
pub struct Csr {
    states: usize,
    orders: Orders,
}

/// Both orders; where there are few distinct rates, their numbers in a table stand for them.
#[derive(Debug)]
enum Orders {
    Rates(Both<f64, usize>),
    Bytes(Both<u8, u32>, Vec<f64>),
    Words(Both<u16, u32>, Vec<f64>),
}

#[derive(Debug)]
struct Both<V, P> {
    /// Row i: the transitions into state i.
    into: CsrMatrix<V, P>,
    /// Row i: the transitions out of state i.
    out: CsrMatrix<V, P>,
}

impl<V: Copy + Default + Send + Sync, P: Place> Both<V, P> {
    fn new(out: CsrMatrix<V, P>) -> Self {
        Self { into: out.transposed(), out }
    }

    /// Appends a row of an order, the rates those that `rate` tells.
    fn append(&self, way: Way, state: usize, row: &mut Vec<(u32, f64)>, rate: impl Fn(V) -> f64) {
        let (states, values) = match way {
            Way::Into => self.into.row(state),
            Way::Out => self.out.row(state),
        };
        row.extend(states.iter().zip(values).map(|(&state, &value)| (state, rate(value))));
    }
}

#[derive(Clone, Copy)]
enum Way {
    Into,
    Out,
}

impl Orders {
    fn append(&self, way: Way, state: usize, row: &mut Vec<(u32, f64)>) {
        match self {
            Self::Rates(both) => both.append(way, state, row, |rate| rate),
            Self::Bytes(both, rates) => both.append(way, state, row, |number| rates[number as usize]),
            Self::Words(both, rates) => both.append(way, state, row, |number| rates[number as usize]),
        }
    }
}

/// The first pair of states that a list has twice.
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
        let (to, from) = out.transposed().sort_rows().expect("what a list has twice its transpose has");
        Err(Duplicate { from, to: to as u32 })
    }

    /// The same, with the rates of what is listed twice added in the order of the list.
    pub fn added_up(n: usize, list: TransitionList) -> Self {
        let mut out = departures(n, list);
        out.ascend();
        Self::of_departures(out)
    }

    /// The chain with these rates, row i out of state i; those of 0 and on the diagonal are dropped.
    pub fn from_rates(rates: &CsrMatrix) -> Self {
        let n = rates.rows();
        let moves = rates.entries().filter(|&(from, to, rate)| from != to && rate != 0.0);
        Self::of_departures(CsrMatrix::grouped(n, n, moves))
    }

    /// The chain whose transitions out of state i are row i.
    fn of_departures(out: CsrMatrix) -> Self {
        let states = out.rows();
        let few = u32::try_from(out.nnz()).ok().and_then(|_| distinct(out.value()));
        let orders = match few {
            None => Orders::Rates(Both::new(out)),
            Some(rates) if rates.len() <= 1 << 8 => {
                let numbers = numbers(out.value(), &rates, |number| number as u8);
                Orders::Bytes(Both::new(out.with_values(numbers)), rates)
            }
            Some(rates) => {
                let numbers = numbers(out.value(), &rates, |number| number as u16);
                Orders::Words(Both::new(out.with_values(numbers)), rates)
            }
        };
        Self { states, orders }
    }

    /// [`Csr::new`] for lists that are not files; a duplicate is an error with both states.
    pub fn from_list(n: usize, list: TransitionList) -> Result<Self> {
        Self::new(n, list).map_err(|Duplicate { from, to }| {
            Error::Invalid(format!("the transition {from} -> {to} is listed twice; add its rates into one"))
        })
    }
}

/// Rates that a thread looks at at once.
const PIECE: usize = 1 << 16;

/// Places where a rate that was met lately is looked for first, and that of a rate.
const PLACES: usize = 1 << 10;
fn place(bits: u64) -> usize {
    (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PLACES.trailing_zeros())) as usize
}

/// The distinct rates, by their bits; none if they are more than 2¹⁶.
fn distinct(rates: &[f64]) -> Option<Vec<f64>> {
    const MOST: usize = 1 << 16;
    let of = |piece: &[f64]| {
        let (mut lately, mut found) = ([u64::MAX; PLACES], HashSet::new());
        for bits in piece.iter().map(|rate| rate.to_bits()) {
            if std::mem::replace(&mut lately[place(bits)], bits) != bits {
                found.insert(bits);
            }
        }
        Some(found)
    };
    let join = |a: Option<HashSet<u64>>, b: Option<HashSet<u64>>| {
        let (mut a, b) = (a?, b?);
        a.extend(b);
        (a.len() <= MOST).then_some(a)
    };
    // Rates that are all apart show in few of them.
    let (first, others) = rates.split_at(rates.len().min(PIECE));
    let first = of(first).filter(|found| 2 * found.len() <= first.len() + 1 << 8)?;
    let all = join(Some(first), others.par_chunks(PIECE).map(of).reduce(|| Some(HashSet::new()), join))?;
    let mut bits: Vec<u64> = all.into_iter().collect();
    bits.sort_unstable();
    Some(bits.into_iter().map(f64::from_bits).collect())
}

/// The number of each rate among `distinct` ones, which ascend by their bits.
fn numbers<V: Copy + Default + Send>(rates: &[f64], distinct: &[f64], short: fn(usize) -> V) -> Vec<V> {
    let mut numbers = vec![V::default(); rates.len()];
    numbers.par_chunks_mut(PIECE).zip(rates.par_chunks(PIECE)).for_each(|(numbers, rates)| {
        let mut lately = [(u64::MAX, V::default()); PLACES];
        for (number, bits) in numbers.iter_mut().zip(rates.iter().map(|rate| rate.to_bits())) {
            let known = &mut lately[place(bits)];
            if known.0 != bits {
                let found = distinct.binary_search_by_key(&bits, |rate| rate.to_bits());
                *known = (bits, short(found.expect("every rate is among the distinct ones")));
            }
            *number = known.1;
        }
    });
    numbers
}

/// The transitions of a list by source, without self-loops and zero rates.
fn departures(n: usize, mut list: TransitionList) -> CsrMatrix {
    list.drop_still();
    CsrMatrix::of_lists(n, n, list.from, list.to, list.rate)
}

impl Transitions for Csr {
    fn states(&self) -> usize {
        self.states
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.orders.append(Way::Into, state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.orders.append(Way::Out, state, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::transitions::exit_rate;

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
            list(&[(2, 0, 5.0), (0, 2, 1.0), (0, 1, 0.5), (1, 1, 9.0), (1, 0, 2.0), (2, 1, 0.0)]),
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
            Csr::new(40, list(&entries)).unwrap().exit_rates(0..1, &mut exit);
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
