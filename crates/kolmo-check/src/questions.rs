//! Questions in CSL about one chain: what each needs, in as few sweeps as possible, and what follows from their results.

use std::sync::Arc;

use crate::Watch;
use crate::language::refused;
use crate::sets::{self, members};
use crate::until::{Until, compensated};
use kolmo::kernel::Precision;
use kolmo::transient::{
    Chain, Initial, Observer, Options, Problem, Reward, Solution, Status, TimeResult, solve,
};
use kolmo::{Error, Machine, Result};
use kolmo_model::properties::{Bound, Combination, Formula, Goal, Path};
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
    Number { asked: usize, bound: Option<Bound>, complement: bool, probability: bool },
    Combination(Combination, Vec<Self>),
}

/// What a property has come to: a number, or true, false or neither with the number that decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// A number was asked for.
    Number(Answer),
    /// True, false or neither, and the number that decides.
    Truth(Option<bool>, Option<Answer>),
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
    source: Source<'a>,
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
    rewards: Vec<Reward>,
    answers: Vec<Answer>,
}

/// The numbers, and how they came about.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) answers: Vec<Answer>,
    pub(crate) status: Status,
    pub(crate) sweeps: usize,
    pub(crate) terms: u64,
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(why.into()))
}

/// True where a value needs more than a look at the state.
fn asks(formula: &Formula) -> bool {
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
    pub(crate) fn new(source: Source<'a>) -> Self {
        let initial = match source {
            Source::Explored(space) => Initial::Uniform(space.initial().to_vec()),
            Source::File(chain) => chain.initial.clone(),
        };
        let start = Start { initial, mean: false };
        Self { source, start, sets: Vec::new(), needs: Needs::default(), known: Vec::new() }
    }

    /// Takes in a property, asked of the states that the chain begins in.
    pub(crate) fn add(&mut self, formula: &Formula) -> Result<Planned> {
        self.plan(formula, &self.start.clone())
    }

    pub(crate) fn needs(self) -> Needs {
        self.needs
    }

    fn states(&self) -> usize {
        match self.source {
            Source::Explored(space) => space.states(),
            Source::File(chain) => chain.transitions.states(),
        }
    }

    fn values(&self, formula: &Formula) -> Result<Values> {
        match (formula, self.source) {
            (Formula::State(state), Source::Explored(space)) => space.evaluate(state).map_err(refused),
            (Formula::State(state), Source::File(_)) => match state.constant() {
                Some(Value::Bool(truth)) => Ok(Values::Truth(vec![truth; self.states()])),
                Some(value) => Ok(Values::Numbers(vec![value.number().unwrap_or(0.0); self.states()])),
                None => refuse("a file of a chain has labels, and no variables"),
            },
            (Formula::Label(name), Source::Explored(space)) => {
                space.label(name).map(Values::Truth).map_err(refused)
            }
            (Formula::Label(name), Source::File(chain)) => {
                let mut all = vec![false; self.states()];
                sets::states(name, chain)?.iter().for_each(|state| all[*state as usize] = true);
                Ok(Values::Truth(all))
            }
            (Formula::Combination(combination, parts), _) => {
                let parts: Vec<Values> = parts.iter().map(|part| self.values(part)).collect::<Result<_>>()?;
                combination.values(&parts).map_err(refused)
            }
            _ => refuse(
                "an operator inside of another one is asked for in every state, and kolmo answers from the first \
                 states alone; name its states by a label instead",
            ),
        }
    }

    fn truth(&self, formula: &Formula) -> Result<Vec<bool>> {
        match self.values(formula)? {
            Values::Truth(all) => Ok(all),
            Values::Numbers(_) => refuse("states are named by what is true or false in them, not by numbers"),
        }
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
        let number = |asked, bound: &Option<Bound>, complement, probability| {
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
                let states = self.truth(states)?;
                let what = Quantity::States(self.set(states.into_iter()));
                number(self.plain(start, f64::INFINITY, what)?, bound, false, true)
            }
            Formula::Reward { structure, bound, goal } => {
                number(self.reward(structure.as_deref(), goal, start)?, bound, false, false)
            }
            Formula::Filter { kind, formula, states } => self.filter(*kind, formula, states.as_deref()),
            Formula::State(_) | Formula::Label(_) => refuse("it has no value"),
        }
    }

    /// The value of a formula over variables where the chain begins.
    fn look(&self, formula: &Formula, start: &Start) -> Result<Value> {
        let states = listed(&start.initial);
        match self.values(formula)? {
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
        let among = match states {
            Some(states) => self.truth(states)?,
            None => vec![true; self.states()],
        };
        let among = members(&among);
        let Some(&first) = among.first() else { return refuse("no state is in the filter") };
        let (initial, mean) = match kind {
            FilterKind::State if among.len() > 1 => {
                return refuse(format!("filter(state, …) is of one state, and {} are named", among.len()));
            }
            FilterKind::State | FilterKind::First => (Initial::State(first as usize), false),
            FilterKind::Average if asks(formula) => (Initial::Uniform(among), true),
            FilterKind::ForAll | FilterKind::Exists | FilterKind::Count if !asks(formula) => {
                let all = self.truth(formula)?;
                let count = among.iter().filter(|state| all[**state as usize]).count();
                return Ok(Planned::Known(match kind {
                    FilterKind::ForAll => Value::Bool(count == among.len()),
                    FilterKind::Exists => Value::Bool(count > 0),
                    _ => Value::Int(count as i64),
                }));
            }
            _ => {
                return refuse(
                    "this filter needs a value of every state, and kolmo answers from the first states alone; there \
                     are filter(state, …), filter(first, …) and filter(avg, …)",
                );
            }
        };
        self.plan(formula, &Start { initial, mean })
    }

    /// Asks for a number of the chain with these absorbing states.
    fn ask(&mut self, absorbing: &Set, start: &Start, time: f64, what: Quantity) -> Result<usize> {
        self.ask_later(absorbing, None, start, time, what)
    }

    fn ask_later(
        &mut self,
        absorbing: &Set,
        later: Option<(Set, f64)>,
        start: &Start,
        time: f64,
        what: Quantity,
    ) -> Result<usize> {
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
        let answer = self.needs.answers.len();
        self.needs.answers.push(Answer { value: f64::NAN, error: f64::INFINITY });
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

    fn path(&mut self, path: &Path, start: &Start) -> Result<usize> {
        let (left, right, from, to) = match path {
            Path::Next(next) => return self.next(next, start),
            Path::Until { left, right, from, to } => (left, self.truth(right)?, *from, *to),
        };
        let left = match left {
            Some(left) => self.truth(left)?,
            None => vec![true; right.len()],
        };
        let lost = self.set(left.iter().map(|left| !left));
        let reached = self.set(right.iter().copied());
        if from == 0.0 {
            let over = self.set(left.iter().zip(&right).map(|(left, right)| !left || *right));
            self.ask(&over, start, to, Quantity::States(reached))
        } else if from == to {
            // Whoever is there at that time through states of the left side alone has not left them.
            let there = self.set(left.iter().zip(&right).map(|(left, right)| *left && *right));
            self.ask(&lost, start, to, Quantity::States(there))
        } else {
            let what = Quantity::States(reached.clone());
            self.ask_later(&lost, Some((reached, from)), start, to - from, what)
        }
    }

    /// The probability that the next state is one of these.
    fn next(&mut self, next: &Formula, start: &Start) -> Result<usize> {
        let next = self.truth(next)?;
        let Source::Explored(space) = self.source else {
            return refuse(
                "X asks for self-loops, which files of chains are read without; give the model itself",
            );
        };
        let states = listed(&start.initial);
        let [state] = states[..] else {
            return refuse("X is answered from one state; name one with filter(state, …, CONDITION)");
        };
        let own = space.self_loops().binary_search_by_key(&state, |(state, _)| *state);
        let own = own.ok().map(|k| space.self_loops()[k]);
        let mut row: Vec<(u32, f64)> = space.chain().row(state as usize).chain(own).collect();
        if row.is_empty() {
            // A deadlock stays.
            row.push((state, 1.0));
        }
        let all = compensated(row.iter().map(|(_, rate)| *rate));
        let those = compensated(row.iter().filter(|(to, _)| next[*to as usize]).map(|(_, rate)| *rate));
        // Two sums whose terms have one sign, and a quotient.
        let error = if those == 0.0 || those == all { 0.0 } else { 4.0 * f64::EPSILON };
        self.needs.answers.push(Answer { value: those / all, error });
        Ok(self.needs.answers.len() - 1)
    }

    fn reward(&mut self, structure: Option<&str>, goal: &Goal, start: &Start) -> Result<usize> {
        let (time, of_states) = match goal {
            Goal::Cumulative(time) => (*time, false),
            Goal::Instantaneous(time) => (*time, true),
            Goal::SteadyState => (f64::INFINITY, false),
            Goal::Reach(_) => {
                return refuse("R=? [ F … ], what is earned on the way to states, is not computed yet");
            }
        };
        let key = (structure.map(str::to_owned), of_states);
        let place = match self.known.iter().position(|known| *known == key) {
            Some(place) => place,
            None => {
                let values = self.earned(structure, of_states)?;
                self.known.push(key);
                self.needs.rewards.push(Reward { name: structure.unwrap_or_default().to_owned(), values });
                self.known.len() - 1
            }
        };
        self.plain(
            start,
            time,
            match goal {
                Goal::Cumulative(_) => Quantity::Cumulative(place),
                _ => Quantity::Instantaneous(place),
            },
        )
    }

    fn earned(&self, structure: Option<&str>, of_states: bool) -> Result<Vec<f64>> {
        match self.source {
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
        let Self { sweeps, rewards, answers } = self;
        let transitions: Arc<dyn kolmo::transient::Transitions> = chain.transitions.into();
        let mut solved = Solved { answers, status: Status::Met, sweeps: 0, terms: 0 };
        for sweep in &sweeps {
            let own = Chain::new(&*chain.name, Box::new(transitions.clone()));
            let found = sweep.solve(own, &rewards, machine, options, watch)?;
            solved.sweeps += 1 + usize::from(sweep.later.is_some());
            solved.terms += found.solution.terms;
            if found.solution.status == Status::NotMet {
                solved.status = Status::NotMet;
            }
            for ((asked, sum), place) in sweep.asked.iter().zip(&found.sums).zip(&found.places) {
                let result = &found.solution.times[*place];
                let most = |k: usize| rewards[k].values.iter().fold(0.0f64, |most, r| most.max(r.abs()));
                let rounding = rounding(&found.solution, result, machine.precision);
                let value = |k: usize| &result.rewards[found.reward_place(k)];
                solved.answers[asked.answer] = match asked.what {
                    Quantity::States(_) => {
                        // No probability is outside, and the nearer end is nearer to what it is.
                        let value = (sum - found.early).clamp(0.0, 1.0);
                        Answer { value, error: result.bound.total() }
                    }
                    Quantity::Instantaneous(k) => Answer {
                        value: value(k).instantaneous,
                        error: most(k) * (result.bound.total() + rounding),
                    },
                    Quantity::Cumulative(k) => Answer {
                        value: value(k).cumulative,
                        error: most(k) * cumulative_error(result, rounding),
                    },
                };
            }
        }
        Ok(solved)
    }
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
        false => n / 256.0 + (result.window.1 - result.window.0) as f64,
    };
    16.0 * unit + in_turn * f64::EPSILON
}

/// Bound on the error of what is earned at rates of at most 1: that of the probabilities, which grows with time, over the time;
/// and the tail Σ P(N > k)/α behind the window's last term R, whose terms shrink by αt/(R + 2) or faster.
fn cumulative_error(result: &TimeResult, rounding: f64) -> f64 {
    let (t, mean, last) = (result.time, result.alpha_t, result.window.1 as f64);
    if t == 0.0 || mean == 0.0 {
        return t * rounding;
    }
    let tail = match last + 2.0 - mean {
        room if room > 0.0 => result.bound.truncation * (last + 2.0) / room * t / mean,
        _ => f64::INFINITY,
    };
    t * (result.bound.total() + rounding) + tail
}

/// Results of a sweep.
struct Swept {
    solution: Solution,
    /// Probability of each set that is asked for.
    sums: Vec<f64>,
    early: f64,
    /// Numbers of the times asked for.
    places: Vec<usize>,
    /// Rewards that it was given.
    rewards: Vec<usize>,
}

impl Swept {
    fn reward_place(&self, reward: usize) -> usize {
        self.rewards.iter().position(|r| *r == reward).expect("the sweep was given what it is asked for")
    }
}

impl Sweep {
    fn solve(
        &self,
        chain: Chain,
        rewards: &[Reward],
        machine: &Machine,
        options: &Options,
        watch: &mut Watch<'_>,
    ) -> Result<Swept> {
        let mut times: Vec<f64> = Vec::new();
        let mut places = Vec::new();
        let mut own = Vec::new();
        for asked in &self.asked {
            let place = times.iter().position(|time| *time == asked.time);
            places.push(place.unwrap_or(times.len()));
            if place.is_none() {
                times.push(asked.time);
            }
            if let Quantity::Instantaneous(k) | Quantity::Cumulative(k) = asked.what
                && !own.contains(&k)
            {
                own.push(k);
            }
        }
        let mut options = *options;
        let epsilon = options.epsilon;
        let mut initial = self.initial.clone();
        let mut until = None;
        let chain = match &self.later {
            Some((reached, from)) => {
                let mut first = Until::between(String::new(), self.absorbing.to_vec(), reached.to_vec());
                let (chain, later) = first.first(chain, &initial, *from, machine, &mut options, watch)?;
                initial = later;
                until = Some(first);
                chain
            }
            None if self.absorbing.is_empty() => chain,
            None => chain.absorbing(&self.absorbing),
        };
        let given: Vec<Reward> = own.iter().map(|k| rewards[*k].clone()).collect();
        let problem = Problem {
            transitions: &*chain.transitions,
            initial: &initial,
            times: &times,
            rewards: &given,
            vectors: self.asked.iter().any(|asked| matches!(asked.what, Quantity::States(_))),
        };
        let sums = vec![0.0; self.asked.len()];
        let mut summing = Summing { sweep: self, places: &places, sums, watch };
        let mut solution = solve(machine, &problem, &options, &mut summing)?;
        let sums = summing.sums;
        if let Some(until) = &until {
            until.add_to(&mut solution, &times, epsilon);
        }
        let early = until.as_ref().map_or(0.0, Until::early);
        Ok(Swept { solution, sums, early, places, rewards: own })
    }
}

/// Sums probabilities of sets while a sweep goes on.
struct Summing<'a, 'b> {
    sweep: &'a Sweep,
    places: &'a [usize],
    sums: Vec<f64>,
    watch: &'a mut Watch<'b>,
}

impl Observer for Summing<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        (self.watch)(done, all)
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        for ((asked, place), sum) in self.sweep.asked.iter().zip(self.places).zip(&mut self.sums) {
            if let (Quantity::States(states), true) = (&asked.what, *place == index) {
                *sum = compensated(states.iter().map(|state| probabilities[*state as usize]));
            }
        }
        Ok(())
    }
}

impl Planned {
    /// What follows from the numbers.
    pub(crate) fn found(&self, answers: &[Answer]) -> Result<Found> {
        match self {
            Self::Known(Value::Bool(truth)) => Ok(Found::Truth(Some(*truth), None)),
            Self::Known(value) => {
                Ok(Found::Number(Answer { value: value.number().unwrap_or(f64::NAN), error: 0.0 }))
            }
            Self::Number { asked, bound, complement, probability } => {
                let Answer { value, error } = answers[*asked];
                let answer = match complement {
                    false => Answer { value, error },
                    true => Answer { value: 1.0 - value, error: error + f64::EPSILON / 2.0 },
                };
                let Answer { value, error } = answer;
                let Some(bound) = bound else { return Ok(Found::Number(answer)) };
                let (mut low, mut high) = (value - error, value + error);
                if *probability {
                    (low, high) = (low.max(0.0), high.min(1.0));
                }
                // What is no number decides nothing.
                let truth = if low <= high { bound.decide(low, high) } else { None };
                Ok(Found::Truth(truth, Some(answer)))
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
            })
            .collect();
        all.push(combination.value(&values).map_err(refused)?);
    }
    Ok(match (all.iter().all(|value| *value == all[0]), all[0]) {
        (true, Value::Bool(truth)) => Found::Truth(Some(truth), None),
        (true, value) => Found::Number(Answer { value: value.number().unwrap_or(f64::NAN), error: 0.0 }),
        (false, _) => Found::Truth(None, None),
    })
}
