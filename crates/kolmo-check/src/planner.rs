//! Planning of CSL properties of one chain, with shared solver runs.

use std::sync::Arc;

use crate::answer::{Answer, Verdict};
use crate::executor::{AbsorbingRun, Needs, PathQuery};
use crate::gradient::evaluated;
use crate::language::reward_limit;
use crate::planned::ValuePlan;
use crate::source::{ChainRef, asks, cumulative_rewards, is_operator, is_truth, listed, refuse};
use crate::state_sets::{States, members};
use crate::state_values::{EachState, Everywhere, Truths, expect_loops, expected};
use crate::uniformization::{Measure, TimedMeasure, UniformizationRun};
use kolmo::Result;
use kolmo::transient::{Initial, Reward};
use kolmo_model::properties::{Formula, PathFormula, RewardKind, Threshold};
use kolmo_model::{FilterKind, ModelDerivatives, PerState};

/// Initial states of a query.
#[derive(Debug, Clone)]
struct InitialStates {
    initial: Initial,
    /// True if the mean over the initial states is requested.
    mean: bool,
}

/// Fails for several initial states, unless their mean is requested.
fn expect_one(start: &InitialStates) -> Result<()> {
    let several = match &start.initial {
        Initial::State(_) => 1,
        other => listed(other).len(),
    };
    if several == 1 || start.mean {
        return Ok(());
    }
    refuse(format!(
        "the chain begins in {several} states, each with an answer of its own; name one with \
         filter(state, …, CONDITION), or ask for their mean with filter(avg, …, \"init\")"
    ))
}

/// Adds a request to the run with these absorbing and initial states.
fn ask_run<T>(
    runs: &mut Vec<AbsorbingRun<T>>,
    absorbing: &States,
    InitialStates { initial, .. }: &InitialStates,
    asked: T,
) {
    let same = |run: &&mut AbsorbingRun<T>| Arc::ptr_eq(&run.absorbing, absorbing) && run.initial == *initial;
    match runs.iter_mut().find(same) {
        Some(run) => run.asked.push(asked),
        None => runs.push(AbsorbingRun {
            absorbing: absorbing.clone(),
            initial: initial.clone(),
            asked: vec![asked],
        }),
    }
}

/// Plan of all properties of one chain.
pub(crate) struct Plan<'a> {
    each: EachState<'a>,
    start: InitialStates,
    sets: Vec<States>,
    needs: Needs,
    /// Reward structures in use: name, and true for state rewards alone.
    known: Vec<(Option<String>, bool)>,
}

impl<'a> Plan<'a> {
    /// Starts a plan. `allowed` is the probability that may be lost in boundary states.
    pub(crate) fn new(each: EachState<'a>, allowed: f64) -> Self {
        let initial = match each.source {
            ChainRef::Explored(space) => Initial::Uniform(space.initial().to_vec()),
            ChainRef::File(chain) => chain.initial.clone(),
        };
        let start = InitialStates { initial, mean: false };
        let needs = Needs { edge: each.edge().to_vec(), allowed, ..Needs::default() };
        Self { each, start, sets: Vec::new(), needs, known: Vec::new() }
    }

    /// Plans a property for the initial states. A filter with several values has a named plan for
    /// each.
    pub(crate) fn add(&mut self, formula: &Formula) -> Result<Vec<(Option<String>, ValuePlan)>> {
        use FilterKind as F;
        if let Formula::Filter { kind, formula, states } = formula
            && let F::Range | F::Print | F::PrintAll | F::ArgMin | F::ArgMax = kind
        {
            let all = self.each.listed(*kind, formula, states.as_deref())?;
            return Ok(all.into_iter().map(|(name, found)| (Some(name), ValuePlan::Found(found))).collect());
        }
        Ok(vec![(None, self.plan(formula, &self.start.clone())?)])
    }

    /// Values of a formula in every state: numbers, or 1 for true, 0 for false, NaN for undecided.
    pub(crate) fn column(&self, formula: &Formula) -> Result<Vec<f64>> {
        let of = |state: usize, truths: &Truths| match (truths.must[state], truths.may[state]) {
            (true, _) => 1.0,
            (false, false) => 0.0,
            _ => f64::NAN,
        };
        match formula {
            Formula::Filter { .. } => {
                refuse("a filter has one value: `all_states` needs properties without filters")
            }
            _ if is_truth(formula) && asks(formula) => {
                let truths = self.each.truths(formula)?;
                Ok((0..truths.must.len()).map(|state| of(state, &truths)).collect())
            }
            _ => {
                let found = self.each.numbers(formula)?;
                let worst = found.bounds.iter().copied().fold(0.0, f64::max);
                if asks(formula) {
                    self.each.note(format!("values of every state err by at most {worst:.2e}"));
                }
                Ok(found.values)
            }
        }
    }

    /// Evaluates the derivatives of rates and rewards, for the runs.
    /// Fails for rates without a derivative.
    pub(crate) fn differentiate(&mut self, all: &[ModelDerivatives<'_>]) -> Result<()> {
        self.needs.gradient = evaluated(all, &self.known)?;
        Ok(())
    }

    /// Returns the computations to run. Also, for computations from every state, which are done:
    /// true if all bounds were met, the number of runs, and notes.
    pub(crate) fn needs(self) -> (Needs, (bool, usize, Vec<String>)) {
        (self.needs, self.each.ended())
    }

    fn truth(&self, formula: &Formula) -> Result<Vec<bool>> {
        self.each.sure(formula)
    }

    /// Set of the states where `truth` is true. Equal sets are one `Arc`, compared by address.
    fn set(&mut self, truth: impl Iterator<Item = bool>) -> States {
        let set = members(&truth.collect::<Vec<bool>>());
        match self.sets.iter().find(|known| ***known == set) {
            Some(known) => known.clone(),
            None => {
                self.sets.push(Arc::new(set));
                self.sets[self.sets.len() - 1].clone()
            }
        }
    }

    fn plan(&mut self, formula: &Formula, start: &InitialStates) -> Result<ValuePlan> {
        if !asks(formula) {
            return self.look(formula, start).map(ValuePlan::Found);
        }
        // With several initial states a threshold has to hold in each of them.
        let several = listed(&start.initial);
        if several.len() > 1 && !start.mean && is_truth(formula) {
            return self.over(FilterKind::ForAll, formula, &several);
        }
        let number = |asked: (usize, Option<usize>), bound: &Option<Threshold>, complement, probability| {
            if start.mean && bound.is_some() {
                return refuse("filter(avg) needs numbers, not true or false; leave out the bound");
            }
            Ok(ValuePlan::Number { asked, bound: *bound, complement, probability })
        };
        match formula {
            Formula::Combination(combination, parts) => {
                let parts: Vec<ValuePlan> =
                    parts.iter().map(|part| self.plan(part, start)).collect::<Result<_>>()?;
                Ok(ValuePlan::Combination(combination.clone(), parts))
            }
            Formula::Probability {
                path: PathFormula::Step(_) | PathFormula::Ltl(_) | PathFormula::Exists(_),
                ..
            }
            | Formula::Reward { goal: RewardKind::Ltl(_), .. } => {
                expect_one(start)?;
                self.over(FilterKind::State, formula, &several)
            }
            Formula::Probability { bound, path, complement } => {
                number(self.path(path, start)?, bound, *complement, true)
            }
            Formula::SteadyState { bound, states } => {
                let states = self.each.truths(states)?;
                let open = self.noted(states.open());
                let low = self.long_run(states.must, start)?;
                let high = if open { Some(self.long_run(states.may, start)?) } else { None };
                number((low, high), bound, false, true)
            }
            Formula::Reward { structure, bound, goal } => {
                number((self.reward(structure.as_deref(), goal, start)?, None), bound, false, false)
            }
            Formula::Filter { kind, formula, states } => self.filter(*kind, formula, states.as_deref()),
            Formula::State(_) | Formula::Label(_) => refuse("it has no value"),
        }
    }

    /// Evaluates a formula without operators in the initial states.
    fn look(&self, formula: &Formula, start: &InitialStates) -> Result<Verdict> {
        let states = listed(&start.initial);
        match self.each.values(formula)? {
            PerState::Truth(all) => {
                Ok(Verdict::Truth(Some(states.iter().all(|state| all[*state as usize])), None))
            }
            PerState::Numbers(all) => {
                let first = states.first().map_or(0.0, |state| all[*state as usize]);
                match states.iter().all(|state| all[*state as usize] == first) {
                    true => Ok(Verdict::Number(Answer::new(first, 0.0))),
                    false => refuse("it has several values in the states that the chain begins in"),
                }
            }
        }
    }

    fn filter(&mut self, kind: FilterKind, formula: &Formula, states: Option<&Formula>) -> Result<ValuePlan> {
        let among = self.each.among(kind, states)?;
        let first = among[0];
        let (initial, mean) = match kind {
            FilterKind::State | FilterKind::First => (Initial::State(first as usize), false),
            FilterKind::Average if is_operator(formula) => (Initial::Uniform(among), true),
            _ => return self.over(kind, formula, &among),
        };
        self.plan(formula, &InitialStates { initial, mean })
    }

    /// Aggregates the values of a formula over the states `among`, by a filter of this kind.
    fn over(&self, kind: FilterKind, formula: &Formula, among: &[u32]) -> Result<ValuePlan> {
        self.each.over(kind, formula, among).map(ValuePlan::Found)
    }

    /// Adds a note about undecided states. Returns true if there are any.
    fn noted(&self, open: Option<(usize, usize)>) -> bool {
        if let Some(open) = open {
            self.each
                .note(format!("{}; answers are intervals covering both cases", self.each.undecided(open)));
        }
        open.is_some()
    }

    /// Requests a quantity of the chain with these absorbing states; returns the answer's index.
    fn ask(&mut self, absorbing: &States, start: &InitialStates, time: f64, what: Measure) -> Result<usize> {
        self.ask_later(absorbing, None, start, time, what)
    }

    /// Reserves an answer, and returns its index. Fails for several states without `mean`.
    fn answer(&mut self, start: &InitialStates) -> Result<usize> {
        expect_one(start)?;
        self.needs.answers.push(Answer::new(f64::NAN, f64::INFINITY));
        Ok(self.needs.answers.len() - 1)
    }

    /// Requests the expected reward (or, without one, the expected time) until `ends` is reached.
    fn ask_until(&mut self, ends: &States, start: &InitialStates, reward: Option<usize>) -> Result<usize> {
        self.each.expect_whole("there is no bound on the time until then")?;
        let answer = self.answer(start)?;
        ask_run(&mut self.needs.absorbed, ends, start, (answer, reward));
        Ok(answer)
    }

    /// Requests the probability of ever reaching a set, where `absorbing` states are absorbing.
    fn ask_ever(&mut self, absorbing: &States, start: &InitialStates, set: States) -> Result<usize> {
        self.each.expect_whole("the lost probability grows with time")?;
        let answer = self.answer(start)?;
        ask_run(&mut self.needs.reached, absorbing, start, (answer, set));
        Ok(answer)
    }

    fn ask_later(
        &mut self,
        absorbing: &States,
        later: Option<(States, f64)>,
        start: &InitialStates,
        time: f64,
        what: Measure,
    ) -> Result<usize> {
        if time.is_infinite() {
            self.each.expect_whole("the lost probability grows with time")?;
        }
        let answer = self.answer(start)?;
        let asked = TimedMeasure { answer, time, what };
        let discrete = self.each.is_discrete();
        let same = |sweep: &&mut UniformizationRun| {
            let later = match (&sweep.later, &later) {
                (None, None) => true,
                (Some((a, from)), Some((b, other))) => Arc::ptr_eq(a, b) && from == other,
                _ => false,
            };
            // The steady state of a chain in discrete time has a run of its own.
            let apart = discrete && sweep.asked[0].time.is_infinite() != time.is_infinite();
            later && !apart && Arc::ptr_eq(&sweep.absorbing, absorbing) && sweep.initial == start.initial
        };
        match self.needs.sweeps.iter_mut().find(same) {
            Some(sweep) => sweep.asked.push(asked),
            None => {
                let initial = start.initial.clone();
                let sweep =
                    UniformizationRun { absorbing: absorbing.clone(), initial, later, asked: vec![asked] };
                self.needs.sweeps.push(sweep);
            }
        }
        Ok(answer)
    }

    /// Requests a quantity of the unchanged chain; returns the answer's index.
    fn plain(&mut self, start: &InitialStates, time: f64, what: Measure) -> Result<usize> {
        let none = self.set(std::iter::empty());
        self.ask(&none, start, time, what)
    }

    /// Requests the long-run probability of a set. For no or all states, it is exactly 0 or 1.
    fn long_run(&mut self, set: Vec<bool>, start: &InitialStates) -> Result<usize> {
        self.each.expect_whole("the lost probability grows with time")?;
        if set.iter().any(|state| *state != set[0]) {
            let what = Measure::States(self.set(set.into_iter()));
            return self.plain(start, f64::INFINITY, what);
        }
        let answer = self.answer(start)?;
        self.needs.answers[answer] = Answer::new(f64::from(u8::from(set[0])), 0.0);
        Ok(answer)
    }

    fn path(&mut self, path: &PathFormula, start: &InitialStates) -> Result<(usize, Option<usize>)> {
        let (left, right, from, to) = match path {
            PathFormula::Next(next) => return Ok((self.next(next, start)?, None)),
            PathFormula::Until { left, right, from, to } => (left, self.each.truths(right)?, *from, *to),
            _ => return refuse("its value is computed from every state"),
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
        start: &InitialStates,
    ) -> Result<usize> {
        let lost = self.set(left.iter().map(|left| !left));
        let reached = self.set(right.iter().copied());
        let answer = if from == 0.0 {
            let over = self.set(left.iter().zip(right).map(|(left, right)| !left || *right));
            match to.is_infinite() {
                true => self.ask_ever(&over, start, reached.clone()),
                false => self.ask(&over, start, to, Measure::States(reached.clone())),
            }
        } else if from == to && (lost.is_empty() || !self.each.is_discrete()) {
            // Lost states are absorbing: a path that is in `left` at that time has always been
            // there.
            let there = self.set(left.iter().zip(right).map(|(left, right)| *left && *right));
            self.ask(&lost, start, to, Measure::States(there))
        } else {
            let what = Measure::States(reached.clone());
            // With constant rates, a second run begins at the lower bound.
            let time = if self.each.timed { to } else { to - from };
            self.ask_later(&lost, Some((reached.clone(), from)), start, time, what)
        }?;
        let left = self.set(left.iter().copied());
        let initial = start.initial.clone();
        self.needs.paths.push(PathQuery { answer, initial, left, right: reached, times: (from, to) });
        Ok(answer)
    }

    /// Computes the probability that the next state satisfies a formula.
    fn next(&mut self, next: &Formula, start: &InitialStates) -> Result<usize> {
        let next = self.truth(next)?;
        if self.each.timed {
            self.each.expect_whole("")?;
        }
        expect_loops(self.each.source)?;
        let place = self.answer(start)?;
        let (state, next) = (listed(&start.initial)[0], Everywhere::exact(next.into_iter()));
        self.needs.answers[place] = expected(self.each.source, state, &next);
        Ok(place)
    }

    fn reward(&mut self, structure: Option<&str>, goal: &RewardKind, start: &InitialStates) -> Result<usize> {
        let (time, of_states) = match goal {
            RewardKind::Cumulative(time) => (*time, false),
            RewardKind::Instantaneous(time) => (*time, true),
            RewardKind::SteadyState | RewardKind::Reach(_) | RewardKind::Total | RewardKind::Ltl(_) => {
                (f64::INFINITY, false)
            }
            RewardKind::Time(ends) => {
                let ends = self.truth(ends)?;
                let ends = self.set(ends.into_iter());
                return self.ask_until(&ends, start, None);
            }
        };
        let place = self.known_reward(structure, of_states)?;
        let ends = match goal {
            RewardKind::Reach(ends) => Some(self.truth(ends)?),
            RewardKind::Total => Some(self.each.without_reward(&self.needs.rewards[place].values)?),
            _ => None,
        };
        if let Some(ends) = ends {
            let ends = self.set(ends.into_iter());
            return self.ask_until(&ends, start, Some(place));
        }
        let what = match goal {
            RewardKind::Cumulative(_) => Measure::Cumulative(place),
            _ => Measure::Instantaneous(place),
        };
        self.plain(start, time, what)
    }

    /// Returns the index of a reward structure among those that the runs compute.
    fn known_reward(&mut self, structure: Option<&str>, of_states: bool) -> Result<usize> {
        let key = (structure.map(str::to_owned), of_states);
        Ok(match self.known.iter().position(|known| *known == key) {
            Some(place) => place,
            None => {
                let mut values = cumulative_rewards(self.each.source, structure, of_states)?;
                let limit = match self.each.source {
                    ChainRef::Explored(space) if !self.needs.edge.is_empty() => {
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
