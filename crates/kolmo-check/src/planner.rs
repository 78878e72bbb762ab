//! Planning and evaluation of CSL properties of one chain, with shared solver runs.

use std::sync::Arc;

use crate::Watch;
use crate::compensated;
use crate::language::{refused, reward_limit};
use crate::qualitative::Decided;
use crate::sets::members;
use crate::state_values::{EachState, Everywhere, Truths, decide, next_from};
use crate::sums;
use crate::truncation::{self, Edge};
use crate::until::Until;
use kolmo::kernel::Precision;
use kolmo::transient::poisson::expected_excess;
use kolmo::transient::{
    Bound as Parts, Chain, Initial, Observer, Options, Problem, Reward, Solution, Status, TimeResult, Total,
    Transitions, may_reach, reachability, solve, until_absorption,
};
use kolmo::{Error, Machine, Result};
use kolmo_model::properties::{self, Bound, Combination, Formula, Goal};
use kolmo_model::{FilterKind, StateSpace, Value, Values};

/// Set of states, shared by queries.
type Set = Arc<Vec<u32>>;

/// A number with its error bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Computed number.
    pub value: f64,
    /// Bound of its error.
    pub error: f64,
    /// Part of the error bound that is due to unexplored states.
    pub loss: f64,
    /// True for a probability that is proved to be strictly between 0 and 1.
    pub inside: bool,
}

impl Answer {
    pub(crate) fn new(value: f64, error: f64) -> Self {
        Self { value, error, loss: 0.0, inside: false }
    }

    /// Limits the error bound of a probability to a half, by the midpoint of its possible values.
    fn probable(self) -> Self {
        if self.error < 0.5 {
            return self;
        }
        // Without a result these are NaN, and `max` and `min` return 0 and 1.
        let low = (self.value - self.error).max(0.0);
        let high = (self.value + self.error).min(1.0);
        let error = 0.5 * (high - low) + if low > 0.0 || high < 1.0 { f64::EPSILON } else { 0.0 };
        Self { value: 0.5 * (low + high), error: error.min(0.5), ..self }
    }
}

/// Chain that properties refer to.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Explored states of a model.
    Explored(&'a StateSpace),
    /// A chain from a file.
    File(&'a Chain),
}

/// Plan of a property: its value in terms of the planned answers.
#[derive(Debug)]
pub(crate) enum Planned {
    Known(Value),
    Found(Found),
    /// One answer, or an interval between two answers (indices), with an optional threshold.
    Number {
        asked: (usize, Option<usize>),
        bound: Option<Bound>,
        complement: bool,
        probability: bool,
    },
    Combination(Combination, Vec<Self>),
    Refused,
}

/// Result of a property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// Value of a property that asks for a number.
    Number(Answer),
    /// Truth of a property (`None`: undecided), with the number that decides it.
    Truth(Option<bool>, Option<Answer>),
    /// The property is not answered.
    Refused,
}

/// Initial states of a query.
#[derive(Debug, Clone)]
struct Start {
    initial: Initial,
    /// True if the mean over the initial states is requested.
    mean: bool,
}

/// Quantities that one run computes: one chain, one initial distribution, one or more times.
#[derive(Debug)]
struct Sweep {
    absorbing: Set,
    initial: Initial,
    /// States to reach, and the time from which they count.
    ///
    /// A run of its own leads up to that time.
    later: Option<(Set, f64)>,
    asked: Vec<Asked>,
}

/// Expected rewards and times until one of the states `ends` is reached.
#[derive(Debug)]
struct Absorbed {
    ends: Set,
    initial: Initial,
    /// Answer indices, each with the index of its reward. `None` for the expected time.
    asked: Vec<(usize, Option<usize>)>,
}

/// Probabilities of ever reaching some sets of states.
#[derive(Debug)]
struct Reached {
    absorbing: Set,
    initial: Initial,
    asked: Vec<(usize, Set)>,
}

/// Path formula that the graph may decide.
#[derive(Debug)]
struct Path {
    answer: usize,
    initial: Initial,
    left: Set,
    right: Set,
    times: (f64, f64),
}

#[derive(Debug)]
struct Asked {
    answer: usize,
    time: f64,
    what: Quantity,
}

#[derive(Debug, Clone)]
enum Quantity {
    States(Set),
    Instantaneous(usize),
    Cumulative(usize),
}

/// Plan of all properties of one chain.
pub(crate) struct Plan<'a> {
    each: EachState<'a>,
    start: Start,
    sets: Vec<Set>,
    needs: Needs,
    /// Reward structures in use: name, and true for state rewards alone.
    known: Vec<(Option<String>, bool)>,
}

/// Computations to run, and the answers known so far.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    sweeps: Vec<Sweep>,
    absorbed: Vec<Absorbed>,
    reached: Vec<Reached>,
    paths: Vec<Path>,
    rewards: Vec<Reward>,
    /// Upper bound of each reward structure's absolute values in any state.
    limits: Vec<f64>,
    answers: Vec<Answer>,
    /// Boundary states. `allowed` is the probability that may be lost in them.
    edge: Vec<u32>,
    allowed: f64,
}

/// Answers, and statistics of the computations.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) answers: Vec<Answer>,
    /// Reason why an answer is not available, by answer.
    pub(crate) refused: Vec<Option<String>>,
    pub(crate) status: Status,
    pub(crate) sweeps: usize,
    pub(crate) terms: u64,
    /// Maximum of each error term over all runs.
    pub(crate) bound: Parts,
    /// Maximum probability in each boundary state over all runs.
    pub(crate) left: Vec<f64>,
}

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(why.into()))
}

/// True if a formula has operators, so that variables and labels alone do not give its value.
pub(crate) fn asks(formula: &Formula) -> bool {
    match formula {
        Formula::State(_) | Formula::Label(_) => false,
        Formula::Combination(_, parts) => parts.iter().any(asks),
        _ => true,
    }
}

/// Lists the possible initial states.
fn listed(initial: &Initial) -> Vec<u32> {
    match initial {
        Initial::State(state) => vec![*state as u32],
        Initial::Uniform(states) => states.clone(),
        Initial::Distribution(p) => (0u32..).zip(p).filter(|(_, p)| **p > 0.0).map(|(s, _)| s).collect(),
    }
}

impl<'a> Plan<'a> {
    /// Starts a plan. `allowed` is the probability that may be lost in boundary states.
    pub(crate) fn new(each: EachState<'a>, allowed: f64) -> Self {
        let initial = match each.source {
            Source::Explored(space) => Initial::Uniform(space.initial().to_vec()),
            Source::File(chain) => chain.initial.clone(),
        };
        let start = Start { initial, mean: false };
        let needs = Needs { edge: each.edge().to_vec(), allowed, ..Needs::default() };
        Self { each, start, sets: Vec::new(), needs, known: Vec::new() }
    }

    /// Plans a property for the initial states of the chain.
    pub(crate) fn add(&mut self, formula: &Formula) -> Result<Planned> {
        self.plan(formula, &self.start.clone())
    }

    /// Values of a formula in every state: numbers, or 1 for true, 0 for false, NaN for undecided.
    pub(crate) fn column(&self, formula: &Formula) -> Result<Vec<f64>> {
        let of = |state: usize, truths: &Truths| match (truths.must[state], truths.may[state]) {
            (true, _) => 1.0,
            (false, false) => 0.0,
            _ => f64::NAN,
        };
        match formula {
            Formula::Probability { bound: None, .. }
            | Formula::SteadyState { bound: None, .. }
            | Formula::Reward { bound: None, .. } => {
                let found = self.each.numbers(formula)?;
                let worst = found.bounds.iter().copied().fold(0.0, f64::max);
                self.each.note(format!("values of every state err by at most {worst:.2e}"));
                Ok(found.values)
            }
            formula if !asks(formula) => Ok(self.each.numbers(formula)?.values),
            Formula::Filter { .. } => refuse("a filter has one value; --all-states is of properties without"),
            _ => {
                let truths = self.each.truths(formula)?;
                Ok((0..truths.must.len()).map(|state| of(state, &truths)).collect())
            }
        }
    }

    /// Returns the computations to run, and the outcome of those from every state.
    pub(crate) fn needs(self) -> (Needs, (bool, usize, Vec<String>)) {
        (self.needs, self.each.ended())
    }

    fn truth(&self, formula: &Formula) -> Result<Vec<bool>> {
        self.each.sure(formula)
    }

    /// Set of the states where `truth` is true. Equal sets are one `Arc`, compared by address.
    fn set(&mut self, truth: impl Iterator<Item = bool>) -> Set {
        let set = members(&truth.collect::<Vec<bool>>());
        match self.sets.iter().find(|known| ***known == set) {
            Some(known) => known.clone(),
            None => {
                self.sets.push(Arc::new(set));
                self.sets[self.sets.len() - 1].clone()
            }
        }
    }

    fn plan(&mut self, formula: &Formula, start: &Start) -> Result<Planned> {
        if !asks(formula) {
            return self.look(formula, start).map(Planned::Known);
        }
        // With several initial states a threshold has to hold in each of them.
        let several = listed(&start.initial);
        if several.len() > 1
            && !start.mean
            && let Formula::Probability { bound: Some(_), .. }
            | Formula::SteadyState { bound: Some(_), .. }
            | Formula::Reward { bound: Some(_), .. } = formula
        {
            return self.over(FilterKind::ForAll, formula, &several);
        }
        let number = |asked: (usize, Option<usize>), bound: &Option<Bound>, complement, probability| {
            if start.mean && bound.is_some() {
                return refuse(
                    "the mean of what is true or false is not asked for in CSL; leave out the bound",
                );
            }
            Ok(Planned::Number { asked, bound: *bound, complement, probability })
        };
        match formula {
            Formula::Combination(combination, parts) => {
                let parts: Vec<Planned> =
                    parts.iter().map(|part| self.plan(part, start)).collect::<Result<_>>()?;
                if parts.iter().any(|part| matches!(part, Planned::Number { bound: None, .. })) {
                    return refuse(
                        "arithmetic with answers is not computed, since its error is not bounded; ask for each by itself",
                    );
                }
                Ok(Planned::Combination(combination.clone(), parts))
            }
            Formula::Probability { bound, path, complement } => {
                number(self.path(path, start)?, bound, *complement, true)
            }
            Formula::SteadyState { bound, states } => {
                let states = self.each.truths(states)?;
                let open = self.noted(states.open());
                let may = states.may;
                let what = Quantity::States(self.set(states.must.into_iter()));
                let low = self.plain(start, f64::INFINITY, what)?;
                let mut asked = (low, None);
                if open {
                    let what = Quantity::States(self.set(may.into_iter()));
                    asked.1 = Some(self.plain(start, f64::INFINITY, what)?);
                }
                number(asked, bound, false, true)
            }
            Formula::Reward { structure, bound, goal } => {
                number((self.reward(structure.as_deref(), goal, start)?, None), bound, false, false)
            }
            Formula::Filter { kind, formula, states } => self.filter(*kind, formula, states.as_deref()),
            Formula::State(_) | Formula::Label(_) => refuse("it has no value"),
        }
    }

    /// Evaluates a formula without operators in the initial states.
    fn look(&self, formula: &Formula, start: &Start) -> Result<Value> {
        let states = listed(&start.initial);
        match self.each.values(formula)? {
            Values::Truth(all) => Ok(Value::Bool(states.iter().all(|state| all[*state as usize]))),
            Values::Numbers(all) => {
                let first = states.first().map_or(0.0, |state| all[*state as usize]);
                match states.iter().all(|state| all[*state as usize] == first) {
                    true => Ok(Value::Double(first)),
                    false => refuse("it has several values in the states that the chain begins in"),
                }
            }
        }
    }

    fn filter(&mut self, kind: FilterKind, formula: &Formula, states: Option<&Formula>) -> Result<Planned> {
        self.each.expect_whole("a filter looks at states that are not explored")?;
        let among = match states {
            Some(states) => self.truth(states)?,
            None => vec![true; self.each.states()],
        };
        let among = members(&among);
        let Some(&first) = among.first() else { return refuse("no state is in the filter") };
        let (initial, mean) = match kind {
            FilterKind::State if among.len() > 1 => {
                return refuse(format!("filter(state, …) is of one state, and {} are named", among.len()));
            }
            FilterKind::State | FilterKind::First => (Initial::State(first as usize), false),
            FilterKind::Average if asks(formula) => (Initial::Uniform(among), true),
            _ => return self.over(kind, formula, &among),
        };
        self.plan(formula, &Start { initial, mean })
    }

    /// Aggregates the values of several states.
    fn over(&self, kind: FilterKind, formula: &Formula, among: &[u32]) -> Result<Planned> {
        let count = |set: &[bool]| among.iter().filter(|state| set[**state as usize]).count();
        match kind {
            FilterKind::ForAll | FilterKind::Exists | FilterKind::Count => {
                let truths = self.each.truths(formula)?;
                let (must, may) = (count(&truths.must), count(&truths.may));
                let truth = |sure: bool, possible: bool| {
                    let truth = if sure { Some(true) } else { Some(false).filter(|_| !possible) };
                    Ok(Planned::Found(Found::Truth(truth, None)))
                };
                match kind {
                    FilterKind::ForAll => truth(must == among.len(), may == among.len()),
                    FilterKind::Exists => truth(must > 0, may > 0),
                    _ if must == may => Ok(Planned::Known(Value::Int(must as i64))),
                    _ => {
                        let (value, error) = (0.5 * (must + may) as f64, 0.5 * (may - must) as f64);
                        Ok(Planned::Found(Found::Number(Answer::new(value, error))))
                    }
                }
            }
            FilterKind::Min | FilterKind::Max | FilterKind::Sum | FilterKind::Average => {
                let found = self.each.numbers(formula)?;
                Ok(Planned::Found(Found::Number(filtered(kind, &found, among))))
            }
            _ => refuse(
                "this filter has no single number for an answer; --all-states -o FILE writes the values of every state, and there \
                 are the filters min, max, sum, avg, count, forall, exists, state and first",
            ),
        }
    }

    /// Adds a note about undecided states. Returns true if there are any.
    fn noted(&self, open: Option<(usize, usize)>) -> bool {
        if let Some(open) = open {
            self.each.note(format!("{}; answers enclose both ways", self.each.undecided(open)));
        }
        open.is_some()
    }

    /// Requests a quantity of the chain with these absorbing states.
    fn ask(&mut self, absorbing: &Set, start: &Start, time: f64, what: Quantity) -> Result<usize> {
        self.ask_later(absorbing, None, start, time, what)
    }

    /// Reserves an answer. It needs a single initial state, or the mean over several.
    fn answer(&mut self, start: &Start) -> Result<usize> {
        let several = match &start.initial {
            Initial::State(_) => 1,
            other => listed(other).len(),
        };
        if several != 1 && !start.mean {
            return refuse(format!(
                "the chain begins in {several} states, each with an answer of its own; name one with \
                 filter(state, …, CONDITION), or ask for their mean with filter(avg, …, \"init\")"
            ));
        }
        self.needs.answers.push(Answer::new(f64::NAN, f64::INFINITY));
        Ok(self.needs.answers.len() - 1)
    }

    /// Requests the expected reward (or, without one, the expected time) until `ends` is reached.
    fn ask_until(&mut self, ends: &Set, start: &Start, reward: Option<usize>) -> Result<usize> {
        self.each.expect_whole("there is no bound on the time until then")?;
        let answer = self.answer(start)?;
        let same =
            |absorbed: &&mut Absorbed| Arc::ptr_eq(&absorbed.ends, ends) && absorbed.initial == start.initial;
        match self.needs.absorbed.iter_mut().find(same) {
            Some(absorbed) => absorbed.asked.push((answer, reward)),
            None => {
                let (ends, initial) = (ends.clone(), start.initial.clone());
                self.needs.absorbed.push(Absorbed { ends, initial, asked: vec![(answer, reward)] });
            }
        }
        Ok(answer)
    }

    /// Requests the probability of ever reaching a set, where `absorbing` states are absorbing.
    fn ask_ever(&mut self, absorbing: &Set, start: &Start, set: Set) -> Result<usize> {
        self.each.expect_whole("what is lost grows with time")?;
        let answer = self.answer(start)?;
        let same = |reached: &&mut Reached| {
            Arc::ptr_eq(&reached.absorbing, absorbing) && reached.initial == start.initial
        };
        match self.needs.reached.iter_mut().find(same) {
            Some(reached) => reached.asked.push((answer, set)),
            None => {
                let (absorbing, initial) = (absorbing.clone(), start.initial.clone());
                self.needs.reached.push(Reached { absorbing, initial, asked: vec![(answer, set)] });
            }
        }
        Ok(answer)
    }

    fn ask_later(
        &mut self,
        absorbing: &Set,
        later: Option<(Set, f64)>,
        start: &Start,
        time: f64,
        what: Quantity,
    ) -> Result<usize> {
        if time.is_infinite() {
            self.each.expect_whole("what is lost grows with time")?;
        }
        let answer = self.answer(start)?;
        let asked = Asked { answer, time, what };
        let same = |sweep: &&mut Sweep| {
            let later = match (&sweep.later, &later) {
                (None, None) => true,
                (Some((a, from)), Some((b, other))) => Arc::ptr_eq(a, b) && from == other,
                _ => false,
            };
            later && Arc::ptr_eq(&sweep.absorbing, absorbing) && sweep.initial == start.initial
        };
        match self.needs.sweeps.iter_mut().find(same) {
            Some(sweep) => sweep.asked.push(asked),
            None => {
                let initial = start.initial.clone();
                let sweep = Sweep { absorbing: absorbing.clone(), initial, later, asked: vec![asked] };
                self.needs.sweeps.push(sweep);
            }
        }
        Ok(answer)
    }

    /// Requests a quantity of the chain without further absorbing states.
    fn plain(&mut self, start: &Start, time: f64, what: Quantity) -> Result<usize> {
        let none = self.set(std::iter::empty());
        self.ask(&none, start, time, what)
    }

    fn path(&mut self, path: &properties::Path, start: &Start) -> Result<(usize, Option<usize>)> {
        let (left, right, from, to) = match path {
            properties::Path::Next(next) => return Ok((self.next(next, start)?, None)),
            properties::Path::Until { left, right, from, to } => (left, self.each.truths(right)?, *from, *to),
        };
        let left = match left {
            Some(left) => self.each.truths(left)?,
            None => Truths { must: vec![true; right.may.len()], may: vec![true; right.may.len()] },
        };
        let low = self.until((&left.must, &right.must), (from, to), start)?;
        let high = match self.noted(left.open().or(right.open())) {
            true => Some(self.until((&left.may, &right.may), (from, to), start)?),
            false => None,
        };
        Ok((low, high))
    }

    fn until(
        &mut self,
        (left, right): (&[bool], &[bool]),
        (from, to): (f64, f64),
        start: &Start,
    ) -> Result<usize> {
        let lost = self.set(left.iter().map(|left| !left));
        let reached = self.set(right.iter().copied());
        let answer = if from == 0.0 {
            let over = self.set(left.iter().zip(right).map(|(left, right)| !left || *right));
            match to.is_infinite() {
                true => self.ask_ever(&over, start, reached.clone()),
                false => self.ask(&over, start, to, Quantity::States(reached.clone())),
            }
        } else if from == to {
            // Lost states are absorbing: a path that is in `left` at that time has always been
            // there.
            let there = self.set(left.iter().zip(right).map(|(left, right)| *left && *right));
            self.ask(&lost, start, to, Quantity::States(there))
        } else {
            let what = Quantity::States(reached.clone());
            self.ask_later(&lost, Some((reached.clone(), from)), start, to - from, what)
        }?;
        let left = self.set(left.iter().copied());
        let initial = start.initial.clone();
        self.needs.paths.push(Path { answer, initial, left, right: reached, times: (from, to) });
        Ok(answer)
    }

    /// Computes the probability that the next state satisfies a formula.
    fn next(&mut self, next: &Formula, start: &Start) -> Result<usize> {
        let next = self.truth(next)?;
        let Source::Explored(space) = self.each.source else {
            return refuse(
                "X asks for self-loops, which files of chains are read without; give the model itself",
            );
        };
        let place = self.answer(start)?;
        // All initial states are equally likely.
        let states = listed(&start.initial);
        let found: Vec<Answer> = states.iter().map(|&state| next_from(space, state, &next)).collect();
        let (sum, rounding) = sums::sum(found.iter().map(|answer| answer.value));
        let errors = sums::at_most(found.iter().map(|answer| answer.error).chain([rounding]));
        let (value, rounding) = sums::quotient(sum, states.len() as f64);
        self.needs.answers[place] = Answer {
            inside: value > 0.0 && found.iter().any(|answer| answer.inside || answer.value == 0.0),
            ..Answer::new(
                value.min(1.0),
                errors / states.len() as f64 * (1.0 + 4.0 * f64::EPSILON) + rounding,
            )
        };
        Ok(place)
    }

    fn reward(&mut self, structure: Option<&str>, goal: &Goal, start: &Start) -> Result<usize> {
        let (time, of_states) = match goal {
            Goal::Cumulative(time) => (*time, false),
            Goal::Instantaneous(time) => (*time, true),
            Goal::SteadyState | Goal::Reach(_) => (f64::INFINITY, false),
            Goal::Time(ends) => {
                let ends = self.truth(ends)?;
                let ends = self.set(ends.into_iter());
                return self.ask_until(&ends, start, None);
            }
        };
        let place = self.known_reward(structure, of_states)?;
        if let Goal::Reach(ends) = goal {
            let ends = self.truth(ends)?;
            let ends = self.set(ends.into_iter());
            return self.ask_until(&ends, start, Some(place));
        }
        let what = match goal {
            Goal::Cumulative(_) => Quantity::Cumulative(place),
            _ => Quantity::Instantaneous(place),
        };
        self.plain(start, time, what)
    }

    /// Index of a reward structure among those of the runs.
    fn known_reward(&mut self, structure: Option<&str>, of_states: bool) -> Result<usize> {
        let key = (structure.map(str::to_owned), of_states);
        Ok(match self.known.iter().position(|known| *known == key) {
            Some(place) => place,
            None => {
                let mut values = cumulative_rewards(self.each.source, structure, of_states)?;
                let limit = match self.each.source {
                    Source::Explored(space) if !self.needs.edge.is_empty() => {
                        reward_limit(space.instance(), structure, structure.unwrap_or_default(), !of_states)?
                    }
                    _ => values.iter().fold(0.0f64, |most, r| most.max(r.abs())),
                };
                // Boundary states have no reward: their probability is lost.
                self.needs.edge.iter().for_each(|state| values[*state as usize] = 0.0);
                self.needs.limits.push(limit);
                self.known.push(key);
                self.needs.rewards.push(Reward { name: structure.unwrap_or_default().to_owned(), values });
                self.known.len() - 1
            }
        })
    }
}

/// Minimum, maximum, sum or mean of the values of some states.
fn filtered(kind: FilterKind, found: &Everywhere, among: &[u32]) -> Answer {
    let all = || among.iter().map(|&state| (found.values[state as usize], found.bounds[state as usize]));
    let (value, error) = match kind {
        FilterKind::Min | FilterKind::Max => {
            let pick = |values: &mut dyn Iterator<Item = f64>| match kind {
                FilterKind::Min => values.fold(f64::INFINITY, f64::min),
                _ => values.fold(f64::NEG_INFINITY, f64::max),
            };
            let value = pick(&mut all().map(|(value, _)| value));
            let low = pick(&mut all().map(|(value, bound)| value - bound));
            let high = pick(&mut all().map(|(value, bound)| value + bound));
            let exact = value.is_infinite() || (low == high && all().all(|(_, bound)| bound == 0.0));
            let rounding = f64::EPSILON * (low.abs() + high.abs());
            (value, if exact { 0.0 } else { (value - low).max(high - value) + rounding })
        }
        _ => {
            let (value, rounding) = sums::sum(all().map(|(value, _)| value));
            let errors = sums::at_most(all().map(|(_, bound)| bound).chain([rounding]));
            match kind {
                FilterKind::Average => {
                    let count = among.len() as f64;
                    let (mean, rounding) = sums::quotient(value, count);
                    (mean, errors / count * (1.0 + 4.0 * f64::EPSILON) + rounding)
                }
                _ => (value, errors),
            }
        }
    };
    match all().any(|(value, _)| value.is_infinite()) {
        true if value.is_infinite() => Answer::new(value, 0.0),
        _ if value.is_finite() && !error.is_nan() => Answer::new(value, error),
        // The sum of finite numbers overflows.
        _ => Answer::new(value.clamp(-f64::MAX, f64::MAX), f64::INFINITY),
    }
}

/// Reward rates of all states, with `of_states` from state rewards alone.
pub(crate) fn cumulative_rewards(
    source: Source<'_>,
    structure: Option<&str>,
    of_states: bool,
) -> Result<Vec<f64>> {
    match source {
        Source::Explored(space) if of_states => space.state_rewards(structure).map_err(refused),
        Source::Explored(space) => space.rewards(structure).map_err(refused),
        Source::File(chain) => {
            let found = chain.rewards.iter().find(|r| structure.is_none_or(|name| r.name == name));
            match found {
                Some(reward) => Ok(reward.values.clone()),
                None => refuse("the chain has no such rewards; give a .srew or .trew file beside it"),
            }
        }
    }
}

impl Needs {
    /// Runs the planned computations, and returns all answers with statistics.
    pub(crate) fn solve(
        self,
        chain: Chain,
        machine: &Machine,
        options: &Options,
        watch: &mut Watch<'_>,
    ) -> Result<Solved> {
        let Self { mut sweeps, absorbed, mut reached, paths, rewards, limits, answers, edge, allowed } = self;
        let transitions: Arc<dyn Transitions> = chain.transitions.into();
        let left = vec![0.0; edge.len()];
        let bound = Parts::default();
        let refused = vec![None; answers.len()];
        let mut solved = Solved { answers, refused, status: Status::Met, sweeps: 0, terms: 0, bound, left };
        let decided = decide_paths(&paths, &*transitions, &edge, &mut solved.answers);
        let open = |answer: usize| solved.answers[answer].error > 0.0;
        sweeps.iter_mut().for_each(|sweep| sweep.asked.retain(|asked| open(asked.answer)));
        sweeps.retain(|sweep| !sweep.asked.is_empty());
        reached.iter_mut().for_each(|reached| reached.asked.retain(|(answer, _)| open(*answer)));
        reached.retain(|reached| !reached.asked.is_empty());
        for reached in reached {
            let reached = reached.narrowed(&paths, &decided);
            let chain = Chain::new("a chain", Box::new(transitions.clone())).absorbing(&reached.absorbing);
            let found = reached.solve(&*chain.transitions, machine, options, watch, &mut solved);
            let all = reached.asked.iter().map(|(answer, _)| *answer);
            if solved.kept(found, all)? == Some(false) {
                reached.sweep_with(&mut sweeps);
            }
        }
        for sweep in &sweeps {
            let own = Chain::new(&*chain.name, Box::new(transitions.clone()));
            let found = sweep.solve(own, &rewards, (&edge, allowed), machine, options, watch);
            let found = match solved.kept(found, sweep.asked.iter().map(|asked| asked.answer))? {
                None => continue,
                Some(Ok(found)) => found,
                Some(Err(left)) => {
                    solved.left = left;
                    return Ok(solved);
                }
            };
            solved.left.iter_mut().zip(&found.left).for_each(|(most, left)| *most = most.max(*left));
            solved.bound = solved.bound.worst(&found.solution.bound);
            solved.sweeps += 1 + usize::from(sweep.later.is_some());
            solved.terms += found.solution.terms;
            if found.solution.status == Status::NotMet {
                solved.status = Status::NotMet;
            }
            for ((asked, sum), place) in sweep.asked.iter().zip(&found.sums).zip(&found.places) {
                let result = &found.solution.times[*place];
                let (total, loss) = (result.bound.total(), result.bound.loss);
                let rounding = rounding(&found.solution, result, machine.precision);
                let value = |k: usize| &result.rewards[found.reward_place(k)];
                solved.answers[asked.answer] = match asked.what {
                    Quantity::States(_) => {
                        // Clamping to [0, 1] brings the value closer to the exact probability.
                        let value = (sum - found.early).clamp(0.0, 1.0);
                        // A sum of several probabilities is rounded, and so is a difference.
                        let rounded = asked.is_sum() || found.early > 0.0;
                        let rounding = if rounded { f64::EPSILON * (sum + found.early) } else { 0.0 };
                        Answer { value, error: total + rounding, loss, inside: false }
                    }
                    Quantity::Instantaneous(k) => Answer {
                        value: if found.vectors { *sum } else { value(k).instantaneous },
                        error: limits[k] * (total + rounding),
                        loss: limits[k] * loss,
                        inside: false,
                    },
                    Quantity::Cumulative(k) => Answer {
                        value: value(k).cumulative,
                        error: limits[k]
                            * cumulative_error(result, rounding, &found.solution, machine.precision),
                        loss: limits[k] * asked.time * loss,
                        inside: false,
                    },
                };
            }
        }
        for absorbed in &absorbed {
            let chain = Chain::new("a chain", Box::new(transitions.clone())).absorbing(&absorbed.ends);
            let found = absorbed.solve(&*chain.transitions, &rewards, machine, options, watch, &mut solved);
            solved.kept(found, absorbed.asked.iter().map(|(answer, _)| *answer))?;
        }
        for (path, decided) in paths.iter().zip(&decided) {
            let answer = &mut solved.answers[path.answer];
            answer.inside = answer.error > 0.0 && decided.others;
        }
        Ok(solved)
    }
}

impl Solved {
    /// Returns the result, or `None` after recording why these answers are rejected.
    fn kept<T>(&mut self, found: Result<T>, answers: impl Iterator<Item = usize>) -> Result<Option<T>> {
        match found {
            Err(Error::Invalid(why)) => {
                answers.for_each(|answer| self.refused[answer] = Some(why.clone()));
                Ok(None)
            }
            other => other.map(Some),
        }
    }
}

impl Asked {
    /// True for the probability of several states.
    fn is_sum(&self) -> bool {
        matches!(&self.what, Quantity::States(states) if states.len() > 1)
    }
}

/// Decides path formulas by the graph, in their order, and sets answers that are 0 or 1.
fn decide_paths(
    paths: &[Path],
    transitions: &dyn Transitions,
    edge: &[u32],
    answers: &mut [Answer],
) -> Vec<Arc<Decided>> {
    let mut all: Vec<Arc<Decided>> = Vec::new();
    for (k, path) in paths.iter().enumerate() {
        let (from, to) = path.times;
        let kind = |(from, to): (f64, f64)| (from > 0.0, from == to, to == 0.0, to.is_infinite());
        let same = |other: &Path| {
            Arc::ptr_eq(&other.left, &path.left)
                && Arc::ptr_eq(&other.right, &path.right)
                && kind(other.times) == kind(path.times)
        };
        let decided = match paths[..k].iter().position(same) {
            Some(place) => all[place].clone(),
            None => {
                let whole = |set: &[u32]| {
                    let mut all = vec![false; transitions.states()];
                    set.iter().for_each(|&state| all[state as usize] = true);
                    all
                };
                let search = |targets: &[bool], through: &[bool]| may_reach(transitions, targets, through);
                let (left, right) = (whole(&path.left), whole(&path.right));
                Arc::new(Decided::until(&search, (&left, &right), (from, to), edge))
            }
        };
        let begins = listed(&path.initial);
        let in_all = |set: &[bool]| begins.iter().all(|&state| set[state as usize]);
        if in_all(&decided.never) || in_all(&decided.surely) {
            answers[path.answer] = Answer::new(f64::from(u8::from(in_all(&decided.surely))), 0.0);
        }
        all.push(decided);
    }
    all
}

impl Reached {
    /// Computes the answers by linear systems. Returns false if this takes too long.
    fn solve(
        &self,
        transitions: &dyn Transitions,
        machine: &Machine,
        options: &Options,
        watch: &mut Watch<'_>,
        solved: &mut Solved,
    ) -> Result<bool> {
        let sets: Vec<&[u32]> = self.asked.iter().map(|(_, set)| &set[..]).collect();
        let mut told = Told(watch);
        let found = reachability(machine, transitions, &self.initial, &sets, options.epsilon, &mut told)?;
        let Some(found) = found else { return Ok(false) };
        solved.sweeps += 1;
        solved.terms += found.sweeps;
        for ((answer, _), Total { value, bound }) in self.asked.iter().zip(found.probabilities) {
            let bound = bound.min(1.0);
            if bound > options.epsilon {
                solved.status = Status::NotMet;
            }
            solved.bound = solved.bound.worst(&Parts { steady_state: bound, ..Parts::default() });
            solved.answers[*answer] = Answer::new(value.clamp(0.0, 1.0), bound);
        }
        Ok(true)
    }

    /// Makes states absorbing from which all requested probabilities are decided.
    fn narrowed(self, paths: &[Path], decided: &[Arc<Decided>]) -> Self {
        let of = |(answer, _): &(usize, Set)| {
            let place = paths.iter().position(|path| path.answer == *answer);
            &*decided[place.expect("a path of each probability that is asked for")]
        };
        let all: Vec<&Decided> = self.asked.iter().map(of).collect();
        let over = |s: usize| all.iter().all(|decided| decided.never[s] || decided.surely[s]);
        let ends: Vec<bool> = (0..all[0].never.len()).map(over).collect();
        let surely = |decided: &Decided| {
            let both: Vec<bool> = decided.surely.iter().zip(&ends).map(|(a, b)| *a && *b).collect();
            Arc::new(members(&both))
        };
        let asked = self.asked.iter().zip(&all).map(|((answer, _), decided)| (*answer, surely(decided)));
        Self { asked: asked.collect(), absorbing: Arc::new(members(&ends)), ..self }
    }

    /// Requests the limit of uniformization instead.
    fn sweep_with(self, sweeps: &mut Vec<Sweep>) {
        let Self { absorbing, initial, asked } = self;
        let asked = asked.into_iter().map(|(answer, set)| Asked {
            answer,
            time: f64::INFINITY,
            what: Quantity::States(set),
        });
        let same = |sweep: &&mut Sweep| {
            sweep.later.is_none() && Arc::ptr_eq(&sweep.absorbing, &absorbing) && sweep.initial == initial
        };
        match sweeps.iter_mut().find(same) {
            Some(sweep) => sweep.asked.extend(asked),
            None => sweeps.push(Sweep { absorbing, initial, later: None, asked: asked.collect() }),
        }
    }
}

impl Absorbed {
    fn solve(
        &self,
        transitions: &dyn Transitions,
        rewards: &[Reward],
        machine: &Machine,
        options: &Options,
        watch: &mut Watch<'_>,
        solved: &mut Solved,
    ) -> Result<()> {
        let own: Vec<Reward> =
            self.asked.iter().filter_map(|(_, reward)| reward.map(|k| rewards[k].clone())).collect();
        let mut told = Told(watch);
        let found =
            until_absorption(machine, transitions, &self.initial, &self.ends, &own, options, &mut told)?;
        solved.sweeps += 1;
        solved.terms += found.terms;
        if found.status == Status::NotMet {
            solved.status = Status::NotMet;
        }
        let mut totals = found.rewards.into_iter();
        for (answer, reward) in &self.asked {
            let total = if reward.is_some() { totals.next() } else { Some(found.time) };
            let Total { value, bound } = total.expect("a total of each reward");
            solved.answers[*answer] = Answer::new(value, bound);
        }
        Ok(())
    }
}

/// Mean l1 norm of the summed vectors. Those of an expansion may have norms above 1.
fn norm(solution: &Solution) -> f64 {
    solution.expansion.map_or(1.0, |expansion| expansion.weighted_norm.max(1.0))
}

/// Bound of the rounding error of a dot product with rewards of at most 1.
///
/// Sums are trees within blocks; blocks and terms are added one by one.
fn rounding(solution: &Solution, result: &TimeResult, precision: Precision) -> f64 {
    let unit = match precision {
        Precision::F64 | Precision::Q64 => f64::EPSILON,
        Precision::F32 => f64::from(f32::EPSILON),
    };
    let n = solution.n as f64;
    // The limit adds all states one by one.
    let in_turn = match result.time.is_infinite() {
        true => n,
        // After early termination no Poisson term is added.
        false => n / 256.0 + steps(result).min(result.window.1 - result.window.0) as f64,
    };
    norm(solution) * (16.0 * unit + in_turn * f64::EPSILON)
}

/// Index of the last Poisson term that is added.
fn steps(result: &TimeResult) -> u64 {
    result.stopped.map_or(result.window.1, |stopped| stopped.step + 1)
}

/// Bound of the error of a cumulative reward, for reward rates of at most 1.
///
/// * Errors of the probabilities grow with time, and cost at most their product with t.
/// * A uniformization run sums Σ P(N > k)/α, where N is Poisson with mean αt. Before the window
///   L … R it takes P(N > k) as 1.
/// * Beyond R the sum lacks E (N − R − 1)⁺/α.
/// * Before L it is too large by at most t P(N < L) / (αt − L + 1), since
///   P(N < k − 1) ≤ (k − 1)/αt · P(N < k).
/// * After early termination the extrapolation is taken to lack all of t P(N < L).
/// * A Chebyshev or Krylov expansion ends long before αt. Its integrals have an error of 10⁻⁹ of
///   its terms.
/// * In fixed point, truncation cannot be separated from the other missing mass.
fn cumulative_error(result: &TimeResult, rounding: f64, solution: &Solution, precision: Precision) -> f64 {
    let (t, mean, (first, last)) = (result.time, result.alpha_t, result.window);
    if t == 0.0 || mean == 0.0 {
        return t * rounding;
    }
    let truncation = result.bound.truncation;
    // Poisson terms are added one by one.
    let kept = result.bound.total() - truncation + rounding + f64::EPSILON * steps(result) as f64;
    let room = last as f64 + 2.0 - mean;
    match solution.expansion {
        None if room > 0.0 && precision != Precision::Q64 => {
            let before = match (first, result.stopped) {
                // The sums of the extrapolation have no terms before the window.
                (_, Some(_)) => truncation,
                (0, None) => 0.0,
                _ => truncation / (mean - first as f64 + 1.0),
            };
            t * (kept + (before + expected_excess(mean, last + 1) / mean) * (1.0 + 1e-9))
        }
        _ if room > 0.0 => t * (kept + truncation * (1.0 + (last as f64 + 2.0) / room / mean)),
        _ => t * (kept + truncation + 1.001e-9 * norm(solution)),
    }
}

/// Results of a [`Sweep`].
struct Swept {
    solution: Solution,
    /// Probability of each requested set, and each requested instantaneous reward.
    sums: Vec<f64>,
    early: f64,
    /// Probability in each boundary state at the last time.
    left: Vec<f64>,
    /// Index of each requested quantity's time.
    places: Vec<usize>,
    /// Indices of the rewards that the run computes.
    rewards: Vec<usize>,
    /// True if the run returned all probabilities, from which instantaneous rewards are computed.
    vectors: bool,
}

impl Swept {
    fn reward_place(&self, reward: usize) -> usize {
        self.rewards.iter().position(|r| *r == reward).expect("the sweep was given what it is asked for")
    }
}

impl Sweep {
    /// Runs the sweep. Returns the boundary probabilities instead as soon as too much is lost.
    fn solve(
        &self,
        chain: Chain,
        rewards: &[Reward],
        (edge, allowed): (&[u32], f64),
        machine: &Machine,
        options: &Options,
        watch: &mut Watch<'_>,
    ) -> Result<std::result::Result<Swept, Vec<f64>>> {
        let mut times: Vec<f64> = Vec::new();
        let mut places = Vec::new();
        let mut own = Vec::new();
        let vectors =
            !edge.is_empty() || self.asked.iter().any(|asked| matches!(asked.what, Quantity::States(_)));
        for asked in &self.asked {
            let place = times.iter().position(|time| *time == asked.time);
            places.push(place.unwrap_or(times.len()));
            if place.is_none() {
                times.push(asked.time);
            }
            match asked.what {
                // It is computed from the probabilities.
                Quantity::Instantaneous(_) if vectors => {}
                Quantity::Instantaneous(k) | Quantity::Cumulative(k) if !own.contains(&k) => own.push(k),
                _ => {}
            }
        }
        let mut options = *options;
        let epsilon = options.epsilon;
        let mut initial = self.initial.clone();
        let mut until = None;
        let chain = match &self.later {
            Some((reached, from)) => {
                let first = Until::between(String::new(), self.absorbing.to_vec(), reached.to_vec());
                let mut first = first.truncated(edge);
                let (chain, later) = first.first(chain, &initial, *from, machine, &mut options, watch)?;
                initial = later;
                until = Some(first);
                chain
            }
            None if self.absorbing.is_empty() => chain,
            None => chain.absorbing(&self.absorbing),
        };
        if !edge.is_empty() {
            let last = times.iter().copied().fold(0.0, f64::max);
            times.extend(truncation::looks(&*chain.transitions, last));
        }
        let given: Vec<Reward> = own.iter().map(|k| rewards[*k].clone()).collect();
        let problem = Problem {
            transitions: &*chain.transitions,
            initial: &initial,
            times: &times,
            rewards: &given,
            vectors,
        };
        let reached = self.later.as_ref().map_or(&[][..], |(reached, _)| &reached[..]);
        let edge = Edge::new(edge, &[&self.absorbing, reached]);
        let sums = vec![0.0; self.asked.len()];
        let mut summing = Summing {
            sweep: self,
            rewards,
            places: &places,
            sums,
            edge,
            left: vec![Vec::new(); times.len()],
            before: until.as_ref().map_or(&[], Until::left),
            allowed,
            exceeded: None,
            watch,
        };
        let solution = solve(machine, &problem, &options, &mut summing);
        let Summing { sums, left, exceeded, .. } = summing;
        if let Some(left) = exceeded {
            return Ok(Err(left));
        }
        let mut solution = solution?;
        if let Some(until) = &until {
            until.add_to(&mut solution, &times, epsilon);
        }
        let left = truncation::add_losses(&mut solution, until.as_ref().map_or(&[], Until::left), left);
        let early = until.as_ref().map_or(0.0, Until::early);
        Ok(Ok(Swept { solution, sums, early, left, places, rewards: own, vectors }))
    }
}

/// Observer that forwards progress reports.
struct Told<'a, 'b>(&'a mut Watch<'b>);

impl Observer for Told<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        (self.0)(done, all)
    }
}

/// Observer that computes set probabilities and instantaneous rewards during a run.
struct Summing<'a, 'b> {
    sweep: &'a Sweep,
    rewards: &'a [Reward],
    places: &'a [usize],
    sums: Vec<f64>,
    edge: Edge,
    /// Probability in each boundary state, at each time.
    left: Vec<Vec<f64>>,
    /// Probability in each boundary state after the run up to an interval.
    ///
    /// `allowed` limits the sum of both runs. `exceeded` has the probabilities once they are above
    /// it.
    before: &'a [f64],
    allowed: f64,
    exceeded: Option<Vec<f64>>,
    watch: &'a mut Watch<'b>,
}

impl Observer for Summing<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        (self.watch)(done, all)
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        let probabilities = &*self.edge.taken(probabilities, &mut self.left[index]);
        self.exceeded = truncation::exceeding(&self.left[index], self.before, self.allowed);
        if self.exceeded.is_some() {
            return Err(Error::Interrupted);
        }
        for ((asked, place), sum) in self.sweep.asked.iter().zip(self.places).zip(&mut self.sums) {
            if *place != index {
                continue;
            }
            match &asked.what {
                Quantity::States(states) => {
                    *sum = compensated(states.iter().map(|state| probabilities[*state as usize]));
                }
                Quantity::Instantaneous(k) => {
                    let earned = self.rewards[*k].values.iter().zip(probabilities);
                    *sum = compensated(earned.map(|(reward, p)| reward * p));
                }
                Quantity::Cumulative(_) => {}
            }
        }
        Ok(())
    }
}

impl Planned {
    /// Reason why the property has no answer, given the reasons of its numbers.
    pub(crate) fn refusal<'a>(&self, refused: &'a [Option<String>]) -> Option<&'a str> {
        match self {
            Self::Number { asked: (low, high), .. } => {
                [Some(*low), *high].into_iter().flatten().find_map(|number| refused[number].as_deref())
            }
            Self::Combination(_, parts) => parts.iter().find_map(|part| part.refusal(refused)),
            _ => None,
        }
    }

    /// Evaluates the property from the answers.
    pub(crate) fn found(&self, answers: &[Answer]) -> Result<Found> {
        match self {
            Self::Known(Value::Bool(truth)) => Ok(Found::Truth(Some(*truth), None)),
            Self::Known(value) => Ok(Found::Number(Answer::new(value.number().unwrap_or(f64::NAN), 0.0))),
            Self::Found(found) => Ok(*found),
            Self::Refused => Ok(Found::Refused),
            Self::Number { asked: (low, high), bound, complement, probability } => {
                let mut answer = answers[*low];
                if let Some(high) = high.map(|high| answers[high]) {
                    // The value is between the two answers.
                    answer = Answer {
                        value: 0.5 * (answer.value + high.value),
                        error: 0.5 * (high.value - answer.value).max(0.0)
                            + answer.error.max(high.error)
                            + f64::EPSILON * high.value.max(1.0),
                        loss: answer.loss.max(high.loss),
                        inside: answer.inside && high.inside,
                    };
                }
                if *complement {
                    let exact = answer.error == 0.0 && [0.0, 0.5, 1.0].contains(&answer.value);
                    answer.value = 1.0 - answer.value;
                    answer.error += if exact { 0.0 } else { 0.5 * f64::EPSILON };
                }
                if *probability {
                    answer = answer.probable();
                }
                let Some(bound) = bound else { return Ok(Found::Number(answer)) };
                Ok(Found::Truth(decide(bound, &answer, *probability), Some(answer)))
            }
            Self::Combination(combination, parts) => {
                let parts: Vec<Found> =
                    parts.iter().map(|part| part.found(answers)).collect::<Result<_>>()?;
                combined(combination, &parts)
            }
        }
    }
}

/// Evaluates a combination for both truth values of each undecided operand.
fn combined(combination: &Combination, parts: &[Found]) -> Result<Found> {
    let open = parts.iter().filter(|part| matches!(part, Found::Truth(None, _))).count();
    if open > 16 {
        return Ok(Found::Truth(None, None));
    }
    let mut all = Vec::new();
    for case in 0..1u32 << open {
        let mut seen = 0;
        let values: Vec<Value> = (parts.iter())
            .map(|part| match part {
                Found::Truth(Some(truth), _) => Value::Bool(*truth),
                Found::Truth(None, _) => {
                    seen += 1;
                    Value::Bool(case >> (seen - 1) & 1 == 1)
                }
                Found::Number(answer) => Value::Double(answer.value),
                Found::Refused => unreachable!("a property is refused as a whole"),
            })
            .collect();
        all.push(combination.value(&values).map_err(refused)?);
    }
    Ok(match (all.iter().all(|value| *value == all[0]), all[0]) {
        (true, Value::Bool(truth)) => Found::Truth(Some(truth), None),
        (true, value) => Found::Number(Answer::new(value.number().unwrap_or(f64::NAN), 0.0)),
        (false, _) => Found::Truth(None, None),
    })
}
