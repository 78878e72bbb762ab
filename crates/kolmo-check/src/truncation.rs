//! Truncation of models with infinitely or too many states (finite state projection).
//!
//! Boundary states are known but not explored, and have no transitions. Their probability at a time
//! is thus the truncation error until then. If it is too large, exploration continues from the
//! boundary states that hold most of it.

use std::borrow::Cow;
use std::ops::Range;

use crate::compensated;
use crate::errors::refused;
use kolmo::transient::{Solution, Transitions};
use kolmo::{Error, Result};
use kolmo_model::{Instance, Options, PartialExploration, Progress, StateSpace};

/// Minimum number of states of the first part.
const FIRST: u64 = 256;

/// Truncated model: the part explored so far, and the truncation error that is allowed.
pub struct Truncation {
    /// Instance that is truncated.
    pub instance: Instance,
    /// Allowed truncation error.
    pub allowed: f64,
    /// Upper bound of the probability that left the explored states.
    pub lost: f64,
    /// Number of explored parts.
    pub rounds: usize,
    /// Explored part, and the boundary states from which exploration continues.
    known: Option<(PartialExploration, Vec<u32>)>,
    /// Statistics of all parts explored so far.
    seen: Vec<PartStatistics>,
}

/// Number of states of an explored part, its largest exit rate, and its truncation error.
#[derive(Debug, Clone, Copy)]
struct PartStatistics {
    states: f64,
    rate: f64,
    /// Largest exit rate in the first two thirds of the states, in their numbering.
    rate_before: f64,
    lost: f64,
}

/// Exponent p: the largest rate grows too fast if it exceeds (number of states)^p.
///
/// The truncation error then has to fall by a hundredth with each enlargement of the explored part.
const STEEP: f64 = 2.5;

/// Number of enlargements that have to halve the truncation error if the chain may explode.
///
/// A chain may explode (pass infinitely many states in finite time) if its largest rate grows more
/// than twice as fast as the number of states.
const FEW_PARTS: usize = 4;

/// Number of enlargements that have to reduce the truncation error by a tenth in any chain.
const MANY_PARTS: usize = 32;

/// Truncation error above which twice as many enlargements are allowed: likely states are missing.
const ALMOST_ALL: f64 = 0.9;

/// Number of enlargements over which the truncation error did not fall enough, if so.
fn parts_in_vain(seen: &[PartStatistics]) -> Option<usize> {
    let last = seen.last()?;
    let since = |parts: usize| seen.len().checked_sub(1 + parts).map(|place| seen[place]);
    let outruns =
        |before: &PartStatistics| last.rate / before.rate > 2.0 * (last.states / before.states).max(1.0);
    let is_fast = |parts: usize, before: PartStatistics| {
        last.lost > 0.5 * before.lost && outruns(&before) && (parts > FEW_PARTS || before.lost <= ALMOST_ALL)
    };
    let fast = [FEW_PARTS, 2 * FEW_PARTS]
        .into_iter()
        .find(|parts| since(*parts).is_some_and(|before| is_fast(*parts, before)));
    let is_steep = |before: &PartStatistics| {
        let [more, most] = [last.states / before.states, 1.5].map(|states: f64| states.max(1.0).powf(STEEP));
        last.rate > more * before.rate
            && [before, last].iter().all(|part| part.rate > most * part.rate_before)
    };
    let in_vain = |before: &PartStatistics| last.lost > 0.99 * before.lost && before.lost <= ALMOST_ALL;
    if since(1).is_some_and(|before| in_vain(&before) && is_steep(&before)) {
        return Some(1);
    }
    let is_slow = since(MANY_PARTS).is_some_and(|before| last.lost > 0.9 * before.lost);
    fast.or(is_slow.then_some(MANY_PARTS))
}

/// Fails for times and sets of states that truncated models do not support.
///
/// # Errors
/// An infinite time, or a set that refers to deadlocks.
pub fn expect_truncatable<'a>(times: &[f64], sets: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let deadlock = |text: &str| text.split(|c| !word(c)).any(|name| name == "deadlock");
    let why = if times.contains(&f64::INFINITY) {
        "the lost probability grows with time, so a truncated model has no steady state: expected finite times"
    } else if sets.into_iter().any(deadlock) {
        "deadlocks are not known among the boundary states of a truncated model: expected a condition on variables"
    } else {
        return Ok(());
    };
    Err(Error::invalid(format!("`truncate`: {why}")))
}

impl Truncation {
    /// Prepares a truncation. Nothing is explored yet.
    /// Fails if `allowed` is not between 0 and `epsilon`.
    pub fn new(instance: Instance, allowed: f64, epsilon: f64) -> Result<Self> {
        if allowed > 0.0 && allowed < epsilon {
            return Ok(Self { instance, allowed, known: None, lost: 1.0, rounds: 0, seen: Vec::new() });
        }
        Err(Error::invalid(format!(
            "`truncate` {allowed:e} is out of range: expected a number between 0 and `epsilon` {epsilon:e}, which bounds all errors \
             together"
        )))
    }

    /// Explores the first part, or a part with half as many states more.
    /// Fails like [`language::explore`](crate::language::explore), and if the truncation error does
    /// not fall with the number of states.
    pub fn explore(
        &mut self,
        limit: Option<u64>,
        tell: &(dyn Fn(Progress) -> bool + Sync),
    ) -> Result<StateSpace> {
        if let Some(parts) = parts_in_vain(&self.seen) {
            let states = |seen: Option<&PartStatistics>| seen.map_or(0.0, |seen| seen.states);
            return Err(Error::invalid(format!(
                "the model loses {:.1e} of its probability from {} states, about as much as from the {} before, and \
                 `truncate` allows {:e}; it may pass infinitely many states in finite time: ask for a shorter time, or \
                 allow a larger loss",
                self.lost,
                states(self.seen.last()),
                states(self.seen.iter().rev().nth(parts)),
                self.allowed
            )));
        }
        let options = Options { memory_limit: Some(crate::language::memory(limit)), progress: Some(tell) };
        let known = self.known.as_ref().map(|(part, from)| (part, &from[..]));
        let least = known.map_or(FIRST, |(part, _)| part.states() as u64 * 3 / 2);
        let space =
            self.instance.explore_part(known, least, &options).map_err(|error| match refused(error) {
                Error::Invalid(kind, why) if self.rounds > 0 => kind.error(format!(
                    "{why}; up to the states before, {:.1e} may be lost, and `truncate` allows {:e}",
                    self.lost, self.allowed
                )),
                other => other,
            })?;
        let of_state = |state| space.chain().row(state).map(|(_, rate)| rate).sum();
        let rate = |states: Range<usize>| states.map(of_state).fold(0.0, f64::max);
        let (states, middle) = (space.states(), 2 * space.states() / 3);
        let rate_before = rate(0..middle);
        let rate = rate(middle..states).max(rate_before);
        self.seen.push(PartStatistics { states: states as f64, rate, rate_before, lost: 1.0 });
        self.known = Some((space.part(), Vec::new()));
        self.rounds += 1;
        Ok(space)
    }

    /// Records the probabilities of the boundary states. Returns true if their sum is allowed.
    ///
    /// Otherwise it selects the boundary states from which exploration continues. Left out are the
    /// least likely ones, up to a quarter of the allowed error.
    ///
    /// # Panics
    /// If nothing is explored, or if `left` has another length than the boundary.
    pub fn is_enough(&mut self, left: &[f64]) -> bool {
        self.lost = sum(left);
        if let Some(seen) = self.seen.last_mut() {
            seen.lost = self.lost;
        }
        let (part, from) = self.known.as_mut().expect("a part is explored");
        assert_eq!(left.len(), part.edge().len(), "a probability for each state of the edge");
        if self.lost <= self.allowed {
            return true;
        }
        let mut order: Vec<usize> = (0..left.len()).collect();
        order.sort_unstable_by(|a, b| left[*a].total_cmp(&left[*b]));
        let mut kept = 0.0;
        let few = order.iter().take_while(|place| {
            kept += left[**place];
            kept <= self.allowed / 4.0
        });
        let few = few.count();
        *from = order[few..].iter().map(|place| part.edge()[*place]).collect();
        from.sort_unstable();
        false
    }

    /// Boundary states, ascending.
    pub fn edge(&self) -> &[u32] {
        self.known.as_ref().map_or(&[], |(part, _)| part.edge())
    }
}

/// Boundary states of a chain in which a property makes further states absorbing.
#[derive(Debug)]
pub struct Edge {
    states: Vec<u32>,
    /// True for boundary states that the property makes absorbing: their transitions do not matter.
    settled: Vec<bool>,
}

impl Edge {
    /// Marks the boundary states in any of the `absorbing` sets, which are ascending.
    pub fn new(edge: &[u32], absorbing: &[&[u32]]) -> Self {
        let settled = |state: &u32| absorbing.iter().any(|set| set.binary_search(state).is_ok());
        Self { states: edge.to_vec(), settled: edge.iter().map(settled).collect() }
    }

    /// Boundary states that are not made absorbing by the property.
    pub fn open(&self) -> impl Iterator<Item = u32> {
        self.states.iter().zip(&self.settled).filter(|(_, settled)| !**settled).map(|(state, _)| *state)
    }

    /// Sets the probabilities of open boundary states to 0, and moves them to `left`.
    pub fn taken<'a>(&self, p: &'a [f64], left: &mut Vec<f64>) -> Cow<'a, [f64]> {
        left.clear();
        if self.states.is_empty() {
            return Cow::Borrowed(p);
        }
        let mut all = p.to_vec();
        left.extend(self.states.iter().zip(&self.settled).map(|(state, settled)| match settled {
            true => 0.0,
            // Polynomial approximations may be slightly negative.
            false => std::mem::take(&mut all[*state as usize]).max(0.0),
        }));
        Cow::Owned(all)
    }
}

/// Times before `last` at which a run checks its truncation error, which never decreases.
///
/// They are `last` times powers of 1/4. They end where a check is no longer cheap compared with the
/// steps before it.
pub fn looks(transitions: &dyn Transitions, last: f64) -> Vec<f64> {
    let alpha = transitions.largest_exit_rate();
    let whole = |time: f64| if transitions.is_discrete() { time.floor() } else { time };
    let quarters = std::iter::successors(Some(0.25 * last), |time| Some(0.25 * time));
    quarters.take_while(|time| alpha * time >= LOOK && time.is_finite()).map(whole).collect()
}

/// Returns the probability in each boundary state if their sum is above `allowed`.
///
/// `before` has the probabilities at the start of an interval, `left` those added since then.
pub fn exceeding(left: &[f64], before: &[f64], allowed: f64) -> Option<Vec<f64>> {
    let mut all = left.to_vec();
    all.iter_mut().zip(before).for_each(|(left, before)| *left += before);
    (sum(&all) > allowed).then_some(all)
}

/// Minimum number of steps αt (rate α of uniformization) before a check.
const LOOK: f64 = 16384.0;

/// Adds the truncation error at each time to the bounds.
///
/// `before` has the probabilities of boundary states at the start of an interval, and `left` those
/// since then. Returns their sum per state, at the time of the largest error.
pub fn add_losses(solution: &mut Solution, before: &[f64], left: Vec<Vec<f64>>) -> Vec<f64> {
    let before_all = sum(before);
    for (time, left) in solution.times.iter_mut().zip(&left) {
        time.bound.loss = before_all + sum(left);
        solution.bound.loss = solution.bound.loss.max(time.bound.loss);
    }
    let worst = left.into_iter().max_by(|a, b| sum(a).total_cmp(&sum(b))).unwrap_or_default();
    match before {
        [] => worst,
        before => worst.iter().zip(before).map(|(left, before)| left + before).collect(),
    }
}

/// Upper bound of a sum of nonnegative numbers: compensated sums have an error of two units.
pub(crate) fn sum(left: &[f64]) -> f64 {
    compensated(left.iter().copied()) * (1.0 + 4.0 * f64::EPSILON)
}
