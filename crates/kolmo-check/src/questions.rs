//! Questions in CSL about one chain: what each needs, in as few sweeps as possible, and what follows from their results.

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
    Transitions, may_reach, reaching, solve, until_absorption,
};
use kolmo::{Error, Machine, Result};
use kolmo_model::properties::{self, Bound, Combination, Formula, Goal};
use kolmo_model::{FilterKind, StateSpace, Value, Values};

/// States, which questions share.
type Set = Arc<Vec<u32>>;

/// A number with a bound on its error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The number.
    pub value: f64,
    /// Bound on its error.
    pub error: f64,
    /// The part of that bound which is due to states that are not explored.
    pub loss: f64,
    /// True for a probability that is proved to be neither 0 nor 1.
    pub inside: bool,
}

impl Answer {
    pub(crate) fn new(value: f64, error: f64) -> Self {
        Self { value, error, loss: 0.0, inside: false }
    }

    /// A probability whose bound is at most a half, in the middle of the values that it may have.
    fn probable(self) -> Self {
        if self.error < 0.5 {
            return self;
        }
        // Where nothing is known the error is no number.
        let low = (self.value - self.error).max(0.0);
        let high = (self.value + self.error).min(1.0);
        let error = 0.5 * (high - low) + if low > 0.0 || high < 1.0 { f64::EPSILON } else { 0.0 };
        Self { value: 0.5 * (low + high), error: error.min(0.5), ..self }
    }
}

/// The states that questions are about.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// States of a model.
    Explored(&'a StateSpace),
    /// States of a file, which have labels alone.
    File(&'a Chain),
}

/// A property whose numbers are asked for.
#[derive(Debug)]
pub(crate) enum Planned {
    Known(Value),
    Found(Found),
    /// A number, or one that lies between those of two answers.
    Number {
        asked: (usize, Option<usize>),
        bound: Option<Bound>,
        complement: bool,
        probability: bool,
    },
    Combination(Combination, Vec<Self>),
    Refused,
}

/// What a property has come to: a number, or true, false or neither with the number that decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// A number was asked for.
    Number(Answer),
    /// True, false or neither, and the number that decides.
    Truth(Option<bool>, Option<Answer>),
    /// It is not answered.
    Refused,
}

/// Where a question begins.
#[derive(Debug, Clone)]
struct Start {
    initial: Initial,
    /// The mean over several states is asked for.
    mean: bool,
}

/// Numbers at one time or more of one chain from one beginning.
#[derive(Debug)]
struct Sweep {
    absorbing: Set,
    initial: Initial,
    /// States to be reached from this time on, after a sweep of its own until then.
    later: Option<(Set, f64)>,
    asked: Vec<Asked>,
}

/// Rewards that are earned until the chain is in one of some states.
#[derive(Debug)]
struct Absorbed {
    ends: Set,
    initial: Initial,
    /// Answers, and the rewards that they are about; none for the time itself.
    asked: Vec<(usize, Option<usize>)>,
}

/// States that may ever be reached.
#[derive(Debug)]
struct Reached {
    absorbing: Set,
    initial: Initial,
    asked: Vec<(usize, Set)>,
}

/// A path formula, which the graph may decide.
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

/// What all questions need.
pub(crate) struct Plan<'a> {
    each: EachState<'a>,
    start: Start,
    sets: Vec<Set>,
    needs: Needs,
    /// Structures by their names, those of states alone apart.
    known: Vec<(Option<String>, bool)>,
}

/// Sweeps to be made, and the numbers already known.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    sweeps: Vec<Sweep>,
    absorbed: Vec<Absorbed>,
    reached: Vec<Reached>,
    paths: Vec<Path>,
    rewards: Vec<Reward>,
    /// Numbers that the rewards do not exceed in any state.
    limits: Vec<f64>,
    answers: Vec<Answer>,
    /// States that are not explored, and the probability that may be in them.
    edge: Vec<u32>,
    allowed: f64,
}

/// The numbers, and how they came about.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) answers: Vec<Answer>,
    /// Why an answer is refused.
    pub(crate) refused: Vec<Option<String>>,
    pub(crate) status: Status,
    pub(crate) sweeps: usize,
    pub(crate) terms: u64,
    /// Worst of each part.
    pub(crate) bound: Parts,
    /// Probability in each state that is not explored, the largest of all sweeps.
    pub(crate) left: Vec<f64>,
}

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(why.into()))
}

/// True where a value needs more than a look at the state.
pub(crate) fn asks(formula: &Formula) -> bool {
    match formula {
        Formula::State(_) | Formula::Label(_) => false,
        Formula::Combination(_, parts) => parts.iter().any(asks),
        _ => true,
    }
}

/// States that a chain may begin in.
fn listed(initial: &Initial) -> Vec<u32> {
    match initial {
        Initial::State(state) => vec![*state as u32],
        Initial::Uniform(states) => states.clone(),
        Initial::Distribution(p) => (0u32..).zip(p).filter(|(_, p)| **p > 0.0).map(|(s, _)| s).collect(),
    }
}

impl<'a> Plan<'a> {
    /// `allowed` may be lost at the edge of what is explored.
    pub(crate) fn new(each: EachState<'a>, allowed: f64) -> Self {
        let initial = match each.source {
            Source::Explored(space) => Initial::Uniform(space.initial().to_vec()),
            Source::File(chain) => chain.initial.clone(),
        };
        let start = Start { initial, mean: false };
        let needs = Needs { edge: each.edge().to_vec(), allowed, ..Needs::default() };
        Self { each, start, sets: Vec::new(), needs, known: Vec::new() }
    }

    /// Takes in a property, asked of the states that the chain begins in.
    pub(crate) fn add(&mut self, formula: &Formula) -> Result<Planned> {
        self.plan(formula, &self.start.clone())
    }

    /// The answer from every state: a number, or 1 and 0 for true and false and no number where neither is sure.
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
            Formula::Filter { .. } => {
                refuse("a filter has one value: `all_states` needs properties without filters")
            }
            _ => {
                let truths = self.each.truths(formula)?;
                Ok((0..truths.must.len()).map(|state| of(state, &truths)).collect())
            }
        }
    }

    /// What is left to be done, and how what was answered from every state has ended.
    pub(crate) fn needs(self) -> (Needs, (bool, usize, Vec<String>)) {
        (self.needs, self.each.ended())
    }

    fn truth(&self, formula: &Formula) -> Result<Vec<bool>> {
        self.each.sure(formula)
    }

    /// The states where it is true, or false. Equal sets are one.
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
        // Of several states a bound is to hold in each.
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

    /// The value of a formula over variables where the chain begins.
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

    /// A value made of those of several states.
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
                "this filter has no single number for an answer; `all_states` writes the values of every state, and there \
                 are the filters min, max, sum, avg, count, forall, exists, state and first",
            ),
        }
    }

    /// Notes what is not known; true if that is so anywhere.
    fn noted(&self, open: Option<(usize, usize)>) -> bool {
        if let Some(open) = open {
            self.each.note(format!("{}; answers enclose both ways", self.each.undecided(open)));
        }
        open.is_some()
    }

    /// Asks for a number of the chain with these absorbing states.
    fn ask(&mut self, absorbing: &Set, start: &Start, time: f64, what: Quantity) -> Result<usize> {
        self.ask_later(absorbing, None, start, time, what)
    }

    /// A place for an answer.
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

    /// Asks for what is earned, or with no reward for the time that passes, until the chain is in one of `ends`.
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

    /// Asks whether states of a set are ever reached, those of `absorbing` being never left.
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

    /// Asks for a number of the chain as it is.
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
            // Whoever is there at that time through states of the left side alone has not left them.
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

    /// The probability that the next state is one of these.
    fn next(&mut self, next: &Formula, start: &Start) -> Result<usize> {
        let next = self.truth(next)?;
        let Source::Explored(space) = self.each.source else {
            return refuse(
                "X asks for self-loops, which files of chains are read without; give the model itself",
            );
        };
        let place = self.answer(start)?;
        // Several states are as likely as each other.
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

    /// The place of a reward structure among those that sweeps are given.
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
                // Whoever is there has been lost.
                self.needs.edge.iter().for_each(|state| values[*state as usize] = 0.0);
                self.needs.limits.push(limit);
                self.known.push(key);
                self.needs.rewards.push(Reward { name: structure.unwrap_or_default().to_owned(), values });
                self.known.len() - 1
            }
        })
    }
}

/// The least, largest, total or mean of the values of some states.
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
        // The sum of finite numbers is no double.
        _ => Answer::new(value.clamp(-f64::MAX, f64::MAX), f64::INFINITY),
    }
}

/// The rates at which states earn, also by transitions unless rewards of states alone are asked for.
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
    /// Makes the sweeps.
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
                        // No probability is outside, and the nearer end is nearer to what it is.
                        let value = (sum - found.early).clamp(0.0, 1.0);
                        // The sum of several probabilities is rounded, and so is the difference.
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
    /// The result; none where these answers are refused, which is noted.
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

/// Decides paths by the graph, in the order given: answers are set where they are 0 or 1.
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
    /// Answers by sweeps backwards; false where these take too long.
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
        let found = reaching(machine, transitions, &self.initial, &sets, options.epsilon, &mut told)?;
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

    /// The same probabilities of a chain that ends wherever all of them are decided.
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

    /// Asks for the limit instead.
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

/// The mean l1 norm of a term: those of an expansion may be above 1.
fn norm(solution: &Solution) -> f64 {
    solution.expansion.map_or(1.0, |expansion| expansion.weighted_norm.max(1.0))
}

/// Bound on the rounding of a dot product with rewards of at most 1, by trees over blocks, blocks in turn, and terms in turn.
fn rounding(solution: &Solution, result: &TimeResult, precision: Precision) -> f64 {
    let unit = match precision {
        Precision::F64 | Precision::Q64 => f64::EPSILON,
        Precision::F32 => f64::from(f32::EPSILON),
    };
    let n = solution.n as f64;
    // In the limit all states are added in turn.
    let in_turn = match result.time.is_infinite() {
        true => n,
        // Behind a stop no term is added.
        false => n / 256.0 + steps(result).min(result.window.1 - result.window.0) as f64,
    };
    norm(solution) * (16.0 * unit + in_turn * f64::EPSILON)
}

/// The last term that is added.
fn steps(result: &TimeResult) -> u64 {
    result.stopped.map_or(result.window.1, |stopped| stopped.step + 1)
}

/// Bound on the error of what is earned at rates of at most 1. An error of the probabilities grows with time, so it costs its product
/// with the time at most. A sweep sums Σ P(N > k)/α, whose terms are 1 before the window: it lacks E (N − R − 1)⁺/α behind the last
/// term R, and has at most P(N < L) / (αt − L + 1) of the time too much before the first L, as P(N < k) grows by (k − 1)/αt at least.
/// A curve lacks all of what P(N < L) earns. An expansion, which ends long before αt, is a curve whose integrals are known to a billionth of its terms.
/// In fixed point what the mass lacks is not told apart.
fn cumulative_error(result: &TimeResult, rounding: f64, solution: &Solution, precision: Precision) -> f64 {
    let (t, mean, (first, last)) = (result.time, result.alpha_t, result.window);
    if t == 0.0 || mean == 0.0 {
        return t * rounding;
    }
    let truncation = result.bound.truncation;
    // Terms are added one after the other.
    let kept = result.bound.total() - truncation + rounding + f64::EPSILON * steps(result) as f64;
    let room = last as f64 + 2.0 - mean;
    match solution.expansion {
        None if room > 0.0 && precision != Precision::Q64 => {
            let before = match (first, result.stopped) {
                // Fewer steps than the window's have no part in the sums of a curve.
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

/// Results of a sweep.
struct Swept {
    solution: Solution,
    /// Probability of each set that is asked for, and each instantaneous reward.
    sums: Vec<f64>,
    early: f64,
    /// Probability in each state that is not explored, at the last time.
    left: Vec<f64>,
    /// Numbers of the times asked for.
    places: Vec<usize>,
    /// Rewards that it was given.
    rewards: Vec<usize>,
    /// True if it gave all probabilities, which instantaneous rewards are summed from then.
    vectors: bool,
}

impl Swept {
    fn reward_place(&self, reward: usize) -> usize {
        self.rewards.iter().position(|r| *r == reward).expect("the sweep was given what it is asked for")
    }
}

impl Sweep {
    /// The results; or, as soon as more than is allowed has come to the edge, the probability in each of its states.
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
                // It is summed from the probabilities.
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

/// Tells how far a sweep is.
struct Told<'a, 'b>(&'a mut Watch<'b>);

impl Observer for Told<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        (self.0)(done, all)
    }
}

/// Sums probabilities of sets, and what is earned with them, while a sweep goes on.
struct Summing<'a, 'b> {
    sweep: &'a Sweep,
    rewards: &'a [Reward],
    places: &'a [usize],
    sums: Vec<f64>,
    edge: Edge,
    /// Probability in each state that is not explored, at each time.
    left: Vec<Vec<f64>>,
    /// The same when a sweep before has ended; what may be lost together, and where it was more.
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
    /// Why it has no answer, given why numbers have none.
    pub(crate) fn refusal<'a>(&self, refused: &'a [Option<String>]) -> Option<&'a str> {
        match self {
            Self::Number { asked: (low, high), .. } => {
                [Some(*low), *high].into_iter().flatten().find_map(|number| refused[number].as_deref())
            }
            Self::Combination(_, parts) => parts.iter().find_map(|part| part.refusal(refused)),
            _ => None,
        }
    }

    /// What follows from the numbers.
    pub(crate) fn found(&self, answers: &[Answer]) -> Result<Found> {
        match self {
            Self::Known(Value::Bool(truth)) => Ok(Found::Truth(Some(*truth), None)),
            Self::Known(value) => Ok(Found::Number(Answer::new(value.number().unwrap_or(f64::NAN), 0.0))),
            Self::Found(found) => Ok(*found),
            Self::Refused => Ok(Found::Refused),
            Self::Number { asked: (low, high), bound, complement, probability } => {
                let mut answer = answers[*low];
                if let Some(high) = high.map(|high| answers[high]) {
                    // It lies between the two.
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

/// The value of a formula some of whose parts are undecided: that which it has either way.
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
