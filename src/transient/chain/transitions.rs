//! The transitions of a chain, whatever stores or generates them.

use std::ops::Range;
use std::sync::Arc;

use super::prescan::Prescan;
use crate::parallel::*;
use crate::sparse::{Repeat, Repeats, returned};

/// A source of a chain's transitions. Rows are asked for in any order and from several threads.
///
/// A transition is (state, rate) with rate > 0; there are no self-loops and no duplicates.
pub trait Transitions: Send + Sync {
    /// Number of states n.
    fn states(&self) -> usize;

    /// Appends the transitions *into* `state` to `row`, as (source, rate), sources ascending: row `state` of Rᵀ.
    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>);

    /// Appends the transitions *out of* `state` to `row`, as (target, rate), targets ascending: row `state` of R.
    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>);

    /// Writes the exit rates of `states` (their rates summed by [`exit_rate`] in ascending order of targets).
    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        let mut row = Vec::new();
        for (state, rate) in states.zip(out) {
            row.clear();
            self.outgoing(state, &mut row);
            *rate = exit_rate(row.iter().map(|&(_, r)| r));
        }
    }

    /// States that are like those a period before them, ascending and apart: the same rates in and out, from and to states
    /// as far away, which are like those before them in how many transitions lead into them. What is read off the first is
    /// copied. None unless a source says so.
    fn repeats(&self) -> Vec<Repeat> {
        Vec::new()
    }

    /// A look at the rows that began before a run.
    #[doc(hidden)]
    fn prescan(&self) -> Option<&Prescan> {
        None
    }

    /// The part that the ranks of a run have in a chain that none of them knows as a whole.
    #[doc(hidden)]
    fn distributed(&self) -> Option<&dyn Distributed> {
        None
    }
}

/// Several problems share one chain.
impl<T: Transitions + ?Sized> Transitions for Arc<T> {
    fn states(&self) -> usize {
        (**self).states()
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        (**self).incoming(state, row);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        (**self).outgoing(state, row);
    }

    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        (**self).exit_rates(states, out);
    }

    fn repeats(&self) -> Vec<Repeat> {
        (**self).repeats()
    }

    fn prescan(&self) -> Option<&Prescan> {
        (**self).prescan()
    }

    fn distributed(&self) -> Option<&dyn Distributed> {
        (**self).distributed()
    }
}

/// The sum of a state's rates, with Neumaier's compensation, in the order given (ascending targets), so that
/// every source of the same chain gives the same bits.
pub fn exit_rate(rates: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = [0.0; 2];
    add_rates(&mut sum, rates);
    sum[0] + sum[1]
}

/// Goes on with the sum of [`exit_rate`]: its value and what it lost, which together are the result.
pub fn add_rates(sum_and_lost: &mut [f64; 2], rates: impl IntoIterator<Item = f64>) {
    let [sum, lost] = sum_and_lost;
    for rate in rates {
        let next = *sum + rate;
        *lost += if *sum >= rate { (*sum - next) + rate } else { (rate - next) + *sum };
        *sum = next;
    }
}

/// Adds the values of those of `states` that lie in `rows`, of which `values` are, as [`add_rates`] does.
pub fn add_states(sum_and_lost: &mut [f64; 2], states: &[u32], rows: &Range<usize>, values: &[f64]) {
    let here = states.iter().map(|&state| state as usize).filter(|state| rows.contains(state));
    add_rates(sum_and_lost, here.map(|state| values[state - rows.start]));
}

/// Transitions as a file lists them: rates R, in the file's order. Self-loops and zero rates may be present;
/// duplicates not yet looked for.
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
    /// An empty list for about so many transitions.
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

    /// Adds another list's transitions behind its own.
    pub(crate) fn append(&mut self, other: &Self) {
        self.from.extend_from_slice(&other.from);
        self.to.extend_from_slice(&other.to);
        self.rate.extend_from_slice(&other.rate);
    }
}

/// Receives a state and the transitions out of it.
pub(crate) type Take<'a> = dyn FnMut(usize, &[(u32, f64)]) + 'a;

/// Transitions of which a rank knows those of the blocks of 256 states that [`Ranks::share`](crate::ranks::Ranks::share) gives it, and those that it
/// acquired.
pub trait Distributed {
    /// Gets to know `states`. Every rank calls this at once.
    fn acquire_rows(&self, states: &Range<usize>);

    /// Lets go of what is held for transitions out of states, until the next [`acquire_rows`](Self::acquire_rows). Every
    /// rank calls this at once.
    fn release_outgoing(&self);

    /// Gives `take` each of some states, ascending, with the transitions out of it.
    fn each_outgoing(&self, states: Range<usize>, take: &mut Take<'_>);
}

/// The same for every chain: one that a process knows as a whole has nothing to acquire or release.
impl dyn Transitions + '_ {
    /// True if this process may ask for any state at once.
    pub(crate) fn is_whole(&self) -> bool {
        self.distributed().is_none()
    }

    /// Some rows, counted from the first, those apart that are like others and whose columns are among the same rows.
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

    pub(crate) fn acquire_rows(&self, states: &Range<usize>) {
        if let Some(distributed) = self.distributed() {
            distributed.acquire_rows(states);
        }
    }

    pub(crate) fn release_outgoing(&self) {
        if let Some(distributed) = self.distributed() {
            distributed.release_outgoing();
        }
    }

    pub(crate) fn each_outgoing(&self, states: Range<usize>, take: &mut Take<'_>) {
        if let Some(distributed) = self.distributed() {
            return distributed.each_outgoing(states, take);
        }
        let mut row = Vec::new();
        for state in states {
            row.clear();
            self.outgoing(state, &mut row);
            take(state, &row);
        }
    }
}
