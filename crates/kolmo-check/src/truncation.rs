//! Models with infinitely many states, or too many: explored as far as probability comes.
//!
//! States at the edge of what is explored keep whoever comes there, so that their probability at a time is what has been lost until
//! then. Where that is too much, the search goes on from the states of the edge that have it.

use std::borrow::Cow;

use crate::compensated;
use crate::language::refused;
use kolmo::transient::{Solution, Transitions};
use kolmo::{Error, Result};
use kolmo_model::{Instance, Options, Part, Progress, StateSpace};

/// States of the first part.
const FIRST: u64 = 256;

/// What may be lost, and what is explored so far.
pub struct Truncation {
    instance: Instance,
    allowed: f64,
    /// What is explored, and the states of its edge to go on from.
    known: Option<(Part, Vec<u32>)>,
    lost: f64,
    rounds: usize,
    /// Of each part that lost too much.
    seen: Vec<Seen>,
}

/// Size of a part that is explored, its largest exit rate, and the probability that it loses.
#[derive(Debug, Clone, Copy)]
struct Seen {
    states: f64,
    rate: f64,
    lost: f64,
}

/// Parts over which the loss has to fall by half where the largest rate grows faster than the number of
/// states, as it does where infinitely many are passed in finite time; and by a tenth elsewhere.
const FEW_PARTS: usize = 4;
const MANY_PARTS: usize = 32;

/// A loss above which a part may end before the states where the probability comes to rest: it is compared
/// over twice as many parts.
const ALMOST_ALL: f64 = 0.9;

/// Number of parts before the last with which its loss is compared, if the loss did not fall since then.
fn parts_in_vain(seen: &[Seen]) -> Option<usize> {
    let last = seen.last()?;
    let since = |parts: usize| seen.len().checked_sub(1 + parts).map(|place| seen[place]);
    let outruns = |before: &Seen| last.rate / before.rate > 2.0 * (last.states / before.states).max(1.0);
    let is_fast = |parts: usize, before: Seen| {
        last.lost > 0.5 * before.lost && outruns(&before) && (parts > FEW_PARTS || before.lost <= ALMOST_ALL)
    };
    let fast = [FEW_PARTS, 2 * FEW_PARTS]
        .into_iter()
        .find(|parts| since(*parts).is_some_and(|before| is_fast(*parts, before)));
    let is_slow = since(MANY_PARTS).is_some_and(|before| last.lost > 0.9 * before.lost);
    fast.or(is_slow.then_some(MANY_PARTS))
}

impl Truncation {
    /// Nothing is explored yet.
    ///
    /// # Errors
    /// What may be lost does not lie between 0 and `epsilon`.
    pub fn new(instance: Instance, allowed: f64, epsilon: f64) -> Result<Self> {
        if allowed > 0.0 && allowed < epsilon {
            return Ok(Self { instance, allowed, known: None, lost: 1.0, rounds: 0, seen: Vec::new() });
        }
        Err(Error::Invalid(format!(
            "`truncate` {allowed:e} is out of range: expected a number between 0 and `epsilon` {epsilon:e}, which bounds all errors \
             together"
        )))
    }

    /// Explores the first part, or half as many states again.
    ///
    /// # Errors
    /// As [`language::explore`](crate::language::explore); parts that grow and lose as much as before.
    pub fn explore(
        &mut self,
        limit: Option<u64>,
        tell: &(dyn Fn(Progress) -> bool + Sync),
    ) -> Result<StateSpace> {
        if let Some(parts) = parts_in_vain(&self.seen) {
            let states = |seen: Option<&Seen>| seen.map_or(0.0, |seen| seen.states);
            return Err(Error::Invalid(format!(
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
                Error::Invalid(why) if self.rounds > 0 => Error::Invalid(format!(
                    "{why}; up to the states before, {:.1e} may be lost, and `truncate` allows {:e}",
                    self.lost, self.allowed
                )),
                other => other,
            })?;
        let of_state = |state| space.chain().row(state).map(|(_, rate)| rate).sum();
        let rate = (0..space.states()).map(of_state).fold(0.0, f64::max);
        self.seen.push(Seen { states: space.states() as f64, rate, lost: 1.0 });
        self.known = Some((space.part(), Vec::new()));
        self.rounds += 1;
        Ok(space)
    }

    /// Takes the probabilities of the edge, in its order; true if they are little enough. Else it notes the states to go on from: all but
    /// those that together have a fourth of what may be lost.
    ///
    /// # Panics
    /// Without a part that is explored, or with another number of states.
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

    /// The model.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// States of the edge, ascending.
    pub fn edge(&self) -> &[u32] {
        self.known.as_ref().map_or(&[], |(part, _)| part.edge())
    }

    /// What may be lost.
    pub fn allowed(&self) -> f64 {
        self.allowed
    }

    /// Upper bound on the probability that left the states explored.
    pub fn lost(&self) -> f64 {
        self.lost
    }

    /// How often it was explored.
    pub fn rounds(&self) -> usize {
        self.rounds
    }
}

/// States that are not explored and that somebody could leave.
#[derive(Debug)]
pub struct Edge {
    states: Vec<u32>,
    /// Which of them are made absorbing: who is there stays there, wherever they would lead.
    settled: Vec<bool>,
}

impl Edge {
    /// The edge of a chain some of whose states are made absorbing; each of those sets is ascending.
    pub fn new(edge: &[u32], absorbing: &[&[u32]]) -> Self {
        let settled = |state: &u32| absorbing.iter().any(|set| set.binary_search(state).is_ok());
        Self { states: edge.to_vec(), settled: edge.iter().map(settled).collect() }
    }

    /// The states of the edge, without those that are made absorbing.
    pub fn open(&self) -> impl Iterator<Item = u32> {
        self.states.iter().zip(&self.settled).filter(|(_, settled)| !**settled).map(|(state, _)| *state)
    }

    /// The probabilities without those of the edge, which go to `left`.
    pub fn taken<'a>(&self, p: &'a [f64], left: &mut Vec<f64>) -> Cow<'a, [f64]> {
        left.clear();
        if self.states.is_empty() {
            return Cow::Borrowed(p);
        }
        let mut all = p.to_vec();
        left.extend(self.states.iter().zip(&self.settled).map(|(state, settled)| match settled {
            true => 0.0,
            // Polynomials may come to less than nothing.
            false => std::mem::take(&mut all[*state as usize]).max(0.0),
        }));
        Cow::Owned(all)
    }
}

/// Times before the last at which a sweep of a part of a model looks whether too much is lost already, which never comes back: a quarter
/// of the last, again and again while a look is a small part of what leads to it.
pub fn looks(transitions: &dyn Transitions, last: f64) -> Vec<f64> {
    let mut exit = vec![0.0; transitions.states()];
    transitions.exit_rates(0..exit.len(), &mut exit);
    let alpha = exit.into_iter().fold(0.0, f64::max);
    let quarters = std::iter::successors(Some(0.25 * last), |time| Some(0.25 * time));
    quarters.take_while(|time| alpha * time >= LOOK && time.is_finite()).collect()
}

/// The probability in each state of the edge, `before` an interval and in it, if that is more than may be lost.
pub fn exceeding(left: &[f64], before: &[f64], allowed: f64) -> Option<Vec<f64>> {
    let mut all = left.to_vec();
    all.iter_mut().zip(before).for_each(|(left, before)| *left += before);
    (sum(&all) > allowed).then_some(all)
}

/// The least αt of a look.
const LOOK: f64 = 16384.0;

/// Adds what is lost at each time to the bounds: `before` at the beginning of an interval, `left` since then. Gives both together, at
/// the last time.
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

/// An upper bound on the sum of numbers of 0 or more: compensated sums err by two units.
pub(crate) fn sum(left: &[f64]) -> f64 {
    compensated(left.iter().copied()) * (1.0 + 4.0 * f64::EPSILON)
}
