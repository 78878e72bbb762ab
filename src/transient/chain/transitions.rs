//! Interface of the transitions of a chain, stored or generated.

use std::ops::Range;
use std::sync::Arc;

use super::prescan::Prescan;
use crate::parallel::*;
use crate::sparse::{Repeat, Repeats, returned};
use crate::{Invalid, Result};

/// Number of states per range of a parallel loop over exit rates.
const ROWS: usize = 1 << 14;

/// Source of a chain's transitions, read in any order and by several threads.
///
/// A transition is (state, rate) with rate > 0; there are no self-loops and no duplicates. In
/// [discrete time](Self::is_discrete) it is (state, probability).
pub trait Transitions: Send + Sync {
    /// Returns the number of states n.
    fn states(&self) -> usize;

    /// Appends the transitions *into* `state` to `row`: row `state` of Rᵀ, R the rate matrix.
    ///
    /// Entries are (source, rate), sources ascending.
    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>);

    /// Appends the transitions *out of* `state` to `row`: row `state` of the rate matrix R.
    ///
    /// Entries are (target, rate), targets ascending.
    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>);

    /// Replaces `row` by the transitions out of `state`, and returns them.
    fn leaving<'a>(&self, state: usize, row: &'a mut Vec<(u32, f64)>) -> &'a [(u32, f64)] {
        row.clear();
        self.outgoing(state, row);
        row
    }

    /// Replaces `row` by the transitions into `state`, and returns them.
    fn entering<'a>(&self, state: usize, row: &'a mut Vec<(u32, f64)>) -> &'a [(u32, f64)] {
        row.clear();
        self.incoming(state, row);
        row
    }

    /// Writes the exit rates of `states`, each the [`exit_rate`] of its rates by ascending target.
    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        out.par_chunks_mut(ROWS).enumerate().for_each(|(k, out)| {
            let mut row = Vec::new();
            for (state, rate) in (states.start + k * ROWS..).zip(out) {
                *rate = exit_rate(self.leaving(state, &mut row).iter().map(|&(_, rate)| rate));
            }
        });
    }

    /// Returns ranges of states that repeat with a fixed period, ascending and disjoint; default:
    /// none.
    ///
    /// A state in such a range has the same rates in and out as the state one period before it,
    /// from and to states at the same offsets. The states at these offsets also have as many
    /// incoming transitions as those one period before. Only the first period is scanned; its
    /// results are copied.
    fn repeats(&self) -> Vec<Repeat> {
        Vec::new()
    }

    /// True in discrete time: rates are the probabilities of a step, and times count steps.
    ///
    /// The probabilities of a state sum to at most 1. It stays with the rest of 1.
    fn is_discrete(&self) -> bool {
        false
    }

    /// Returns the background scan of the rows, if one was started; a wrapper forwards it.
    fn prescan(&self) -> Option<&Prescan> {
        None
    }
}

/// Forwards the methods about rows to a chain inside, given by an expression of `self`.
macro_rules! forward_rows {
    ($self:ident: $inner:expr) => {
        fn states(&$self) -> usize {
            $inner.states()
        }

        fn incoming(&$self, state: usize, row: &mut Vec<(u32, f64)>) {
            $inner.incoming(state, row);
        }

        fn outgoing(&$self, state: usize, row: &mut Vec<(u32, f64)>) {
            $inner.outgoing(state, row);
        }

        fn exit_rates(&$self, states: std::ops::Range<usize>, out: &mut [f64]) {
            $inner.exit_rates(states, out);
        }

        fn repeats(&$self) -> Vec<$crate::sparse::Repeat> {
            $inner.repeats()
        }
    };
}
pub(super) use forward_rows;

/// Lets several problems share one chain.
impl<T: Transitions + ?Sized> Transitions for Arc<T> {
    forward_rows!(self: (**self));

    fn is_discrete(&self) -> bool {
        (**self).is_discrete()
    }

    fn prescan(&self) -> Option<&Prescan> {
        (**self).prescan()
    }
}

/// Chain in discrete time with these probabilities of a step.
pub(super) struct Discrete(pub(super) Box<dyn Transitions>);

impl Transitions for Discrete {
    forward_rows!(self: self.0);

    fn is_discrete(&self) -> bool {
        true
    }
}

/// Chain in discrete time with self-loops in its rows.
pub(super) struct WithLoops(pub(super) Box<dyn Transitions>);

impl WithLoops {
    /// Adds the self-loop of `state` to the row that begins at `first`.
    fn add(&self, state: usize, first: usize, row: &mut Vec<(u32, f64)>) {
        let mut leave = [0.0];
        self.0.exit_rates(state..state + 1, &mut leave);
        if leave[0] < 1.0 {
            row.push((state as u32, 1.0 - leave[0]));
            row[first..].sort_unstable_by_key(|&(other, _)| other);
        }
    }
}

impl Transitions for WithLoops {
    fn states(&self) -> usize {
        self.0.states()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let first = row.len();
        self.0.incoming(state, row);
        self.add(state, first, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        let first = row.len();
        self.0.outgoing(state, row);
        self.add(state, first, row);
    }

    fn is_discrete(&self) -> bool {
        true
    }
}

/// Tolerance of a sum of probabilities, which files may print with six digits.
const SUM_TOLERANCE: f64 = 1e-6;

/// Factor that brings a sum of probabilities, rounded to 1, below 1: 1 − 2⁻⁵¹.
const BELOW: f64 = 1.0 - 2.0 * f64::EPSILON;

/// Returns the sum of a state's rates with Neumaier's compensation, in the given order.
///
/// Targets ascend, so every source of one chain gives the same bits.
pub fn exit_rate(rates: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = [0.0; 2];
    add_rates(&mut sum, rates);
    sum[0] + sum[1]
}

/// Adds `rates` to a compensated sum, as [`exit_rate`] does; its value is
/// `sum_and_lost[0]` + `sum_and_lost[1]`.
pub(crate) fn add_rates(sum_and_lost: &mut [f64; 2], rates: impl IntoIterator<Item = f64>) {
    let [sum, lost] = sum_and_lost;
    for rate in rates {
        let next = *sum + rate;
        *lost += if *sum >= rate { (*sum - next) + rate } else { (rate - next) + *sum };
        *sum = next;
    }
}

/// Adds those `values` that belong to `states` to a compensated sum, as [`exit_rate`] does.
///
/// `values` has one value for each of `rows`; states outside of `rows` are skipped.
pub fn add_states(sum_and_lost: &mut [f64; 2], states: &[u32], rows: &Range<usize>, values: &[f64]) {
    let here = states.iter().map(|&state| state as usize).filter(|state| rows.contains(state));
    add_rates(sum_and_lost, here.map(|state| values[state - rows.start]));
}

/// Transitions in the order of a file, with rates R.
///
/// It may contain self-loops and zero rates. Duplicates have not been checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransitionList {
    /// Source state of each transition.
    pub from: Vec<u32>,
    /// Target state of each transition.
    pub to: Vec<u32>,
    /// Rate of each transition, finite and ≥ 0.
    pub rate: Vec<f64>,
}

impl TransitionList {
    /// Returns an empty list with memory for about `count` transitions.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self { from: returned(count), to: returned(count), rate: returned(count) }
    }

    /// Removes self-loops and zero rates.
    pub(crate) fn drop_still(&mut self) {
        let moves = |k: usize| self.from[k] != self.to[k] && self.rate[k] != 0.0;
        let Some(first) = (0..self.rate.len()).into_par_iter().position_first(|k| !moves(k)) else {
            return;
        };
        let mut kept = first;
        for k in first..self.rate.len() {
            if self.from[k] != self.to[k] && self.rate[k] != 0.0 {
                (self.from[kept], self.to[kept], self.rate[kept]) = (self.from[k], self.to[k], self.rate[k]);
                kept += 1;
            }
        }
        self.from.truncate(kept);
        self.to.truncate(kept);
        self.rate.truncate(kept);
    }

    /// Divides the probabilities of each of `n` states by their sum, self-loops included.
    ///
    /// Rows whose rounded sum is 1 stay as they are. Then the probabilities of leaving a state sum
    /// to at most 1, without rounding. A state without transitions stays for ever. Fails with
    /// [`Invalid`] for a state with probabilities that do not sum to 1, within 10⁻⁶.
    pub fn normalise(&mut self, n: usize) -> Result<()> {
        let mut sums = vec![[0.0; 2]; n];
        self.from.iter().zip(&self.rate).for_each(|(&from, &p)| add_rates(&mut sums[from as usize], [p]));
        for (state, [sum, lost]) in sums.iter().enumerate() {
            let sum = sum + lost;
            if sum != 0.0 && (sum.is_nan() || (sum - 1.0).abs() > SUM_TOLERANCE) {
                return Invalid::Number("probabilities").fail(format!(
                    "the probabilities of state {state} sum to {sum}: expected 1; rates belong to a \
                     chain in continuous time"
                ));
            }
        }
        for (from, p) in self.from.iter().zip(&mut self.rate) {
            let [sum, lost] = sums[*from as usize];
            *p = if sum + lost == 1.0 { *p } else { *p / (sum + lost) };
        }
        sums.fill([0.0; 2]);
        for ((&from, &to), &p) in self.from.iter().zip(&self.to).zip(&self.rate) {
            add_rates(&mut sums[from as usize], (from != to).then_some(p));
        }
        for (from, p) in self.from.iter().zip(&mut self.rate) {
            let [sum, lost] = sums[*from as usize];
            *p *= if sum - 1.0 + lost > 0.0 { BELOW } else { 1.0 };
        }
        Ok(())
    }

    /// Appends the transitions of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        self.from.extend_from_slice(&other.from);
        self.to.extend_from_slice(&other.to);
        self.rate.extend_from_slice(&other.rate);
    }
}

impl dyn Transitions + '_ {
    /// Returns the largest exit rate.
    pub fn largest_exit_rate(&self) -> f64 {
        let mut rates = vec![0.0; self.states()];
        self.exit_rates(0..rates.len(), &mut rates);
        rates.into_iter().fold(0.0, f64::max)
    }

    /// Returns the [`Repeats`] in a range of rows, with rows counted from the start of the range.
    ///
    /// They exclude rows that may have columns outside of the range.
    pub(crate) fn repeats_among(&self, rows: &Range<usize>) -> Repeats {
        let whole = *rows == (0..self.states());
        let among = |repeat: Repeat| {
            let beyond = if whole { 0 } else { repeat.reach };
            let start = repeat.rows.start.max(rows.start + beyond + repeat.period);
            let end = repeat.rows.end.min(rows.end.saturating_sub(beyond));
            (start < end).then(|| Repeat { rows: start - rows.start..end - rows.start, ..repeat })
        };
        Repeats::new(rows.len(), self.repeats().into_iter().filter_map(among))
    }

    /// Calls `take` for each of `states`, ascending, with the transitions out of it.
    pub(crate) fn each_outgoing(&self, states: Range<usize>, mut take: impl FnMut(usize, &[(u32, f64)])) {
        let mut row = Vec::new();
        for state in states {
            take(state, self.leaving(state, &mut row));
        }
    }
}

/// Returns the index of each state of a chain in `states`, and `u32::MAX` for all other states.
pub(in crate::transient) fn places(count: usize, states: &[u32]) -> Vec<u32> {
    let mut place = vec![u32::MAX; count];
    states.iter().zip(0..).for_each(|(&state, i)| place[state as usize] = i);
    place
}
