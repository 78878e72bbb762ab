//! Values from every state: nested operators, filters over states, and `--all-states`.

use std::cell::{Cell, OnceCell, RefCell};

use crate::answer::Answer;
use crate::language::{self, refused};
use crate::qualitative::Decided;
use crate::source::{ChainRef, asks, cumulative_rewards, is_truth, refuse};
use crate::state_sets::{self, mask, members};
use crate::{compensated, sums};
use kolmo::kernel::Precision;
use kolmo::lane::{DeviceSpec, OpenOptions, expect_memory};
use kolmo::transient::{
    Backward, Chain, Initial, Options, Problem, StateValues, Transitions, exit_rate, solve,
};
use kolmo::{Machine, Progress, Result};
use kolmo_model::properties::{Formula, PathFormula, RewardKind, Threshold};
use kolmo_model::{PerState, Type, Value};

/// Relative error of a reward rate: products and sums of rewards and rates.
const REWARD: f64 = 8.0 * f64::EPSILON;
/// Maximum number of closed classes with several states. Each needs a run of its own.
const MOST_CLASSES: usize = 64;

/// Truth of a condition in each state: it certainly holds (`must`), or possibly (`may`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Truths {
    pub(crate) must: Vec<bool>,
    pub(crate) may: Vec<bool>,
}

impl Truths {
    fn known(truth: Vec<bool>) -> Self {
        Self { must: truth.clone(), may: truth }
    }

    /// First undecided state, and the number of undecided states. `None` if all are decided.
    pub(crate) fn open(&self) -> Option<(usize, usize)> {
        let mut open = (0..self.must.len()).filter(|&state| self.must[state] != self.may[state]);
        open.next().map(|first| (first, 1 + open.count()))
    }
}

/// Numbers from every state, with error bounds.
pub(crate) struct Everywhere {
    pub(crate) values: Vec<f64>,
    /// Error bounds of the values.
    pub(crate) bounds: Vec<f64>,
    /// True for a probability that is proved to be strictly between 0 and 1.
    inside: Vec<bool>,
}

impl From<StateValues> for Everywhere {
    fn from(StateValues { values, bounds }: StateValues) -> Self {
        Self { inside: vec![false; values.len()], values, bounds }
    }
}

impl Everywhere {
    fn of(answers: impl Iterator<Item = Answer>) -> Self {
        let mut all = Self { values: Vec::new(), bounds: Vec::new(), inside: Vec::new() };
        for Answer { value, error, inside, .. } in answers {
            all.values.push(value);
            all.bounds.push(error);
            all.inside.push(inside);
        }
        all
    }

    /// Exact values 1 and 0.
    pub(crate) fn exact(values: impl Iterator<Item = bool>) -> Self {
        Self::of(values.map(|value| Answer::new(f64::from(u8::from(value)), 0.0)))
    }

    /// Values in some states.
    pub(crate) fn at(&self, states: impl Iterator<Item = usize>) -> Self {
        let all: Vec<Answer> = self.answers().collect();
        Self::of(states.map(|state| all[state]))
    }

    fn answers(&self) -> impl Iterator<Item = Answer> {
        let numbers = self.values.iter().zip(&self.bounds).zip(&self.inside);
        numbers.map(|((value, error), inside)| Answer { inside: *inside, ..Answer::new(*value, *error) })
    }
}

/// Evaluation of formulas in every state of one chain.
pub(crate) struct EachState<'a> {
    pub(crate) source: ChainRef<'a>,
    pub(crate) epsilon: f64,
    pub(crate) told: RefCell<&'a mut dyn Progress>,
    /// Transitions of a model's chain, built when they are first needed.
    chain: OnceCell<Chain>,
    backward: OnceCell<Backward>,
    /// Indices and types of the variables of a chain from a file.
    variables: OnceCell<Vec<(usize, Type)>>,
    /// False as soon as a bound is larger than requested.
    met: Cell<bool>,
    /// Number of computations so far, each for all states.
    sweeps: Cell<usize>,
    notes: RefCell<Vec<String>>,
    /// True if rates change with time; values from every state are then not supported.
    pub(crate) timed: bool,
    /// Machine for values at a time. Without one in double precision, the CPU is opened.
    pub(crate) given: Option<Machine>,
    own: OnceCell<Machine>,
}

impl<'a> EachState<'a> {
    pub(crate) fn new(source: ChainRef<'a>, epsilon: f64, watch: &'a mut dyn Progress) -> Self {
        Self {
            source,
            epsilon,
            told: RefCell::new(watch),
            chain: OnceCell::new(),
            backward: OnceCell::new(),
            variables: OnceCell::new(),
            met: Cell::new(true),
            sweeps: Cell::new(0),
            notes: RefCell::new(Vec::new()),
            timed: false,
            given: None,
            own: OnceCell::new(),
        }
    }

    /// Returns a machine in double precision.
    fn machine(&self) -> Result<&Machine> {
        if let Some(machine) = self.given.as_ref().filter(|machine| machine.precision == Precision::F64) {
            return Ok(machine);
        }
        if self.own.get().is_none() {
            let _ = self.own.set(Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?);
        }
        Ok(self.own.get().expect("a machine was opened"))
    }

    pub(crate) fn states(&self) -> usize {
        match self.source {
            ChainRef::Explored(space) => space.states(),
            ChainRef::File(chain) => chain.transitions.states(),
        }
    }

    /// Boundary states, which are known but not explored.
    pub(crate) fn edge(&self) -> &'a [u32] {
        match self.source {
            ChainRef::Explored(space) => space.edge(),
            ChainRef::File(_) => &[],
        }
    }

    /// Fails if the model is truncated, or if its rates change with time.
    pub(crate) fn expect_whole(&self, why: &str) -> Result<()> {
        match self.edge() {
            [] if self.timed => refuse(
                "rates that change with time are supported for P with an upper bound on time, \
                 R{…}=? [ C<=t ] and R{…}=? [ I=t ] from the initial state; ask one of them, or give constant rates",
            ),
            [] => Ok(()),
            _ => refuse(format!(
                "a truncated model answers P, R{{…}}=? [ C<=t ] and R{{…}}=? [ I=t ] with bounds on time, from its initial \
                 state: {why}"
            )),
        }
    }

    /// Returns true if all bounds were met, the number of runs, and notes for the user.
    pub(crate) fn ended(self) -> (bool, usize, Vec<String>) {
        (self.met.get(), self.sweeps.get(), self.notes.into_inner())
    }

    /// Evaluates a formula without operators in every state.
    pub(crate) fn values(&self, formula: &Formula) -> Result<PerState> {
        match (formula, self.source) {
            (Formula::State(state), ChainRef::Explored(space)) => space.evaluate(state).map_err(refused),
            (Formula::State(state), ChainRef::File(chain)) => {
                let names = chain.names.as_deref();
                let variables =
                    self.variables.get_or_init(|| names.map(language::variables).unwrap_or_default());
                let given = |state: usize, all: &mut Vec<Value>| {
                    names.iter().for_each(|names| language::values_of(names, variables, state, all));
                };
                state.values(self.states(), given).map_err(refused)
            }
            (Formula::Label(name), ChainRef::Explored(space)) => {
                space.label(name).map(PerState::Truth).map_err(refused)
            }
            (Formula::Label(name), ChainRef::File(chain)) => {
                Ok(PerState::Truth(mask(&state_sets::states(name, chain)?, self.states())))
            }
            (Formula::Combination(combination, parts), _) => {
                let parts: Vec<_> = parts.iter().map(|part| self.values(part)).collect::<Result<_>>()?;
                combination.values(&parts).map_err(refused)
            }
            _ => refuse("values of every state cannot be combined with other values"),
        }
    }

    /// Evaluates a condition in every state. It may be undecided in some.
    pub(crate) fn truths(&self, formula: &Formula) -> Result<Truths> {
        if !asks(formula) {
            return match self.values(formula)? {
                PerState::Truth(all) => Ok(Truths::known(all)),
                PerState::Numbers(_) => refuse("expected a condition, found a number"),
            };
        }
        self.expect_whole("an operator inside of another is answered from every state")?;
        let (bound, probability) = match formula {
            Formula::Probability { bound, .. } | Formula::SteadyState { bound, .. } => (bound, true),
            Formula::Reward { bound, .. } => (bound, false),
            _ if !is_truth(formula) => (&None, false),
            _ => {
                let ranges = self.ranges(formula)?;
                let must = ranges.iter().map(|range| range.0 == 1.0).collect();
                return Ok(Truths { must, may: ranges.iter().map(|range| range.1 == 1.0).collect() });
            }
        };
        let Some(bound) = bound else {
            return refuse("expected a set of states, found a number: add a bound, such as P>=0.5");
        };
        let found = self.numbers(formula)?;
        let mut truths = Truths { must: Vec::new(), may: Vec::new() };
        for answer in found.answers() {
            let truth = decide(bound, &answer, probability);
            truths.must.push(truth == Some(true));
            truths.may.push(truth != Some(false));
        }
        Ok(truths)
    }

    /// Evaluates a condition that must be decided in every state.
    pub(crate) fn sure(&self, formula: &Formula) -> Result<Vec<bool>> {
        let truths = self.truths(formula)?;
        match truths.open() {
            None => Ok(truths.must),
            Some(open) => {
                refuse(format!("{}; give a smaller `epsilon`, or change the threshold", self.undecided(open)))
            }
        }
    }

    /// Name of a state by its variables, or its number.
    pub(crate) fn name_of(&self, state: usize) -> String {
        match self.source {
            ChainRef::Explored(space) => space.describe(state),
            ChainRef::File(_) => state.to_string(),
        }
    }

    /// Describes the undecided states in a message.
    pub(crate) fn undecided(&self, (first, count): (usize, usize)) -> String {
        let state = self.name_of(first);
        format!(
            "a condition inside of an operator cannot be decided within the bound in {count} states, such as {state}"
        )
    }

    pub(crate) fn note(&self, note: String) {
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Computes an interval of a formula's value in every state. Truth values are 0 and 1.
    pub(crate) fn ranges(&self, formula: &Formula) -> Result<Vec<(f64, f64)>> {
        match formula {
            Formula::Combination(combination, parts) => {
                let parts: Vec<_> = parts.iter().map(|part| self.ranges(part)).collect::<Result<_>>()?;
                let mut own = Vec::new();
                let of_state = |state: usize| {
                    own.clear();
                    own.extend(parts.iter().map(|part| part[state]));
                    combination.range(&own)
                };
                Ok((0..self.states()).map(of_state).collect())
            }
            Formula::Filter { kind, formula, states } => {
                let among = self.among(*kind, states.as_deref())?;
                Ok(vec![self.over(*kind, formula, &among)?.range(); self.states()])
            }
            _ if is_truth(formula) => {
                let Truths { must, may } = self.truths(formula)?;
                let number = |truth: bool| f64::from(u8::from(truth));
                Ok(must.into_iter().zip(may).map(|(must, may)| (number(must), number(may))).collect())
            }
            _ => Ok(self.numbers(formula)?.answers().map(|answer| answer.range()).collect()),
        }
    }

    fn transitions(&self) -> Result<&dyn Transitions> {
        let space = match self.source {
            ChainRef::File(chain) => return Ok(&*chain.transitions),
            ChainRef::Explored(space) => space,
        };
        if let Some(chain) = self.chain.get() {
            return Ok(&*chain.transitions);
        }
        let entries = space.chain().columns.len() as u64;
        expect_memory(entries * 32, || format!("{entries} transitions, to be followed backwards"))?;
        let loops = self.is_discrete().then(|| space.self_loops().to_vec());
        let chain = language::joined("a chain", space.chain().clone(), loops)?;
        Ok(&*self.chain.get_or_init(|| chain).transitions)
    }

    /// True if times count steps.
    pub(crate) fn is_discrete(&self) -> bool {
        match self.source {
            ChainRef::Explored(space) => space.instance().model().is_discrete(),
            ChainRef::File(chain) => chain.transitions.is_discrete(),
        }
    }

    pub(crate) fn backward(&self) -> Result<&Backward> {
        if let Some(backward) = self.backward.get() {
            return Ok(backward);
        }
        let backward = Backward::new(self.transitions()?)?;
        Ok(self.backward.get_or_init(|| backward))
    }

    /// Computes the value of an operator from every state. Its threshold is not used.
    pub(crate) fn numbers(&self, formula: &Formula) -> Result<Everywhere> {
        self.expect_whole("answers from every state are not known")?;
        let mut found = match formula {
            Formula::Probability { path, complement, .. } => {
                let mut found = self.path(path)?;
                if *complement {
                    for (value, bound) in found.values.iter_mut().zip(&mut found.bounds) {
                        let exact = *bound == 0.0 && (*value == 0.0 || *value == 1.0);
                        *bound += if exact { 0.0 } else { 0.5 * f64::EPSILON };
                        *value = 1.0 - *value;
                    }
                }
                found
            }
            Formula::SteadyState { states, .. } => {
                let among = self.truths(states)?;
                self.enclosed(among, |set| {
                    let values: Vec<f64> = set.iter().map(|member| f64::from(u8::from(*member))).collect();
                    self.in_the_long_run(&values, 0.0).map(Everywhere::from)
                })?
            }
            Formula::Reward { structure, goal, .. } => self.reward(structure.as_deref(), goal)?.into(),
            _ if !asks(formula) => {
                let values = match self.values(formula)? {
                    PerState::Numbers(values) => values,
                    PerState::Truth(all) => all.into_iter().map(|truth| f64::from(u8::from(truth))).collect(),
                };
                StateValues { bounds: vec![0.0; values.len()], values }.into()
            }
            _ => {
                let ranges = self.ranges(formula)?;
                let answers: Vec<Answer> = ranges.into_iter().map(Answer::within).collect();
                let bounds = answers.iter().map(|answer| answer.error).collect();
                StateValues { values: answers.iter().map(|answer| answer.value).collect(), bounds }.into()
            }
        };
        if matches!(formula, Formula::Probability { .. } | Formula::SteadyState { .. }) {
            found.values.iter_mut().for_each(|value| *value = value.clamp(0.0, 1.0));
            let most = found.bounds.iter().copied().fold(0.0, f64::max);
            self.expect(most, 1.0);
        }
        Ok(found)
    }

    /// Counts a computation, and clears `met` if its error bound is above ε times `scale`.
    fn expect(&self, bound: f64, scale: f64) {
        self.sweeps.set(self.sweeps.get() + 1);
        if bound.is_nan() || bound > self.epsilon * scale {
            self.met.set(false);
        }
    }

    /// Computes a quantity that is monotone in a set: an interval if some states are undecided.
    fn enclosed(&self, set: Truths, of: impl Fn(&[bool]) -> Result<Everywhere>) -> Result<Everywhere> {
        let Some(open) = set.open() else { return of(&set.must) };
        self.note(format!("{}; answers are intervals covering both cases", self.undecided(open)));
        let (low, high) = (of(&set.must)?, of(&set.may)?);
        Ok(between(low, high))
    }

    fn path(&self, path: &PathFormula) -> Result<Everywhere> {
        let (left, right, from, to) = match path {
            PathFormula::Next(next) => {
                let next = self.truths(next)?;
                return self.enclosed(next, |next| self.expected(&Everywhere::exact(next.iter().copied())));
            }
            PathFormula::Ltl(ltl) => return self.ltl(ltl),
            PathFormula::Exists(ltl) => return self.exists(ltl),
            PathFormula::Step(later) => return self.expected(&self.numbers(later)?),
            PathFormula::Until { left, right, from, to } => (left, self.truths(right)?, *from, *to),
        };
        let left = match left {
            Some(left) => self.truths(left)?,
            None => Truths::known(vec![true; self.states()]),
        };
        let low = self.until(&left.must, &right.must, from, to)?;
        match left.open().or(right.open()) {
            None => Ok(low),
            Some(open) => {
                self.note(format!("{}; answers are intervals covering both cases", self.undecided(open)));
                Ok(between(low, self.until(&left.may, &right.may, from, to)?))
            }
        }
    }

    pub(crate) fn until(&self, left: &[bool], right: &[bool], from: f64, to: f64) -> Result<Everywhere> {
        let backward = self.backward()?;
        let search = |targets: &[bool], through: &[bool]| backward.may_reach(targets, through);
        let decided = Decided::until(&search, (left, right), (from, to), (&[], self.is_discrete()));
        let found = self.until_by_numbers(left, right, (from, to), &decided)?;
        let mut found = Everywhere::from(found);
        for s in 0..left.len() {
            match (decided.never[s], decided.surely[s]) {
                (false, false) => found.inside[s] = decided.others,
                (_, surely) => (found.values[s], found.bounds[s]) = (f64::from(u8::from(surely)), 0.0),
            }
        }
        Ok(found)
    }

    /// Computes the probabilities of an until formula, except in states that the graph decides.
    fn until_by_numbers(
        &self,
        left: &[bool],
        right: &[bool],
        (from, to): (f64, f64),
        decided: &Decided,
    ) -> Result<StateValues> {
        let (n, backward) = (left.len(), self.backward()?);
        let epsilon = 0.5 * self.epsilon;
        let numbers =
            |of: &dyn Fn(usize) -> bool| -> Vec<f64> { (0..n).map(|s| f64::from(u8::from(of(s)))).collect() };
        if (0..n).all(|s| decided.never[s] || decided.surely[s]) {
            return Ok(StateValues { values: vec![0.0; n], bounds: vec![0.0; n] });
        }
        let told = &mut **self.told.borrow_mut();
        let lost: Vec<bool> = left.iter().map(|left| !left).collect();
        let discrete = self.is_discrete();
        if from > 0.0 && from == to && !discrete {
            // Lost states are absorbing: a path that is in `left` at that time has always been
            // there.
            let values = numbers(&|s| left[s] && right[s]);
            return backward.at(self.machine()?, &values, &lost, to, epsilon, told);
        }
        let over: Vec<bool> = (0..n).map(|s| !left[s] || right[s]).collect();
        let length = to - from;
        let found = if length.is_infinite() {
            let search = |targets: &[bool], through: &[bool]| backward.may_reach(targets, through);
            let own =
                (from > 0.0).then(|| Decided::until(&search, (left, right), (0.0, to), (&[], discrete)));
            let decided = own.as_ref().unwrap_or(decided);
            let ends: Vec<bool> = (0..n).map(|s| decided.never[s] || decided.surely[s]).collect();
            let values = numbers(&|s| decided.surely[s]);
            backward.total(&ends, &values, &vec![0.0; n], epsilon, told)?
        } else {
            backward.at(self.machine()?, &numbers(&|s| right[s]), &over, length, epsilon, told)?
        };
        if from == 0.0 {
            return Ok(found);
        }
        // Paths that leave `left` before `from` are lost. In discrete time the step to `from` may
        // lead to a state of `right` outside of `left`.
        let largest = |bounds: &[f64]| bounds.iter().copied().fold(0.0, f64::max);
        let (mut start, mut worst, mut before) = (found.values, largest(&found.bounds), from);
        if discrete {
            let step = backward.at(self.machine()?, &start, &vec![false; n], 1.0, epsilon, told)?;
            (start, before) = (step.values, from - 1.0);
            worst += largest(&step.bounds);
        }
        start.iter_mut().zip(left).for_each(|(v, left)| *v = if *left { *v } else { 0.0 });
        let mut found = backward.at(self.machine()?, &start, &lost, before, epsilon, told)?;
        found.bounds.iter_mut().for_each(|bound| *bound += worst);
        Ok(found)
    }

    /// Computes the expectation of probabilities in the next state, from every state.
    fn expected(&self, later: &Everywhere) -> Result<Everywhere> {
        expect_loops(self.source)?;
        let states = 0..self.states() as u32;
        Ok(Everywhere::of(states.map(|state| expected(self.source, state, later))))
    }

    /// Computes the long-run mean of `values`, whose relative error is `relative`.
    fn in_the_long_run(&self, values: &[f64], relative: f64) -> Result<StateValues> {
        if values.iter().all(|value| *value == values[0]) {
            let bounds = vec![values[0].abs() * relative; values.len()];
            return Ok(StateValues { values: values.to_vec(), bounds });
        }
        let backward = self.backward()?;
        let classes = backward.closed_classes();
        let large = classes.iter().filter(|class| class.len() > 1).count();
        if large > MOST_CLASSES {
            return refuse(format!(
                "the chain may end in {large} closed classes of several states; at most {MOST_CLASSES} are looked at one by one"
            ));
        }
        let n = values.len();
        let (mut ends, mut there, mut worst) = (vec![false; n], vec![0.0; n], 0.0f64);
        let transitions = self.transitions()?;
        let machine = if large == 0 { None } else { Some(self.machine()?) };
        let options = Options::default().epsilon(self.epsilon);
        for class in &classes {
            let (value, error) = match (&class[..], machine) {
                ([state], _) => {
                    let value = values[*state as usize];
                    (value, value.abs() * relative)
                }
                (_, None) => unreachable!("a machine is opened for large classes"),
                (_, Some(machine)) => {
                    let initial = Initial::State(class[0] as usize);
                    let problem = Problem::new(transitions, &initial, &[f64::INFINITY]);
                    let mut sum = 0.0;
                    let weigh = |_, probabilities: &[f64]| {
                        sum = compensated(values.iter().zip(probabilities).map(|(v, p)| v * p));
                        Ok(())
                    };
                    let told = &mut **self.told.borrow_mut();
                    let solution = solve(machine, &problem, &options, &mut (told, weigh))?;
                    let most = values.iter().fold(0.0f64, |most, v| v.abs().max(most));
                    (sum, most * (solution.bound.total() + relative + 8.0 * f64::EPSILON))
                }
            };
            for &state in class {
                (ends[state as usize], there[state as usize]) = (true, value);
            }
            worst = worst.max(error);
        }
        let told = &mut **self.told.borrow_mut();
        let mut found = backward.total(&ends, &there, &vec![0.0; n], self.epsilon, told)?;
        found.bounds.iter_mut().for_each(|bound| *bound += worst);
        Ok(found)
    }

    /// Returns the states of closed classes without a reward, where a total reward ends.
    pub(crate) fn without_reward(&self, rewards: &[f64]) -> Result<Vec<bool>> {
        self.expect_whole("there is no bound on the reward until then")?;
        let mut ends = vec![false; rewards.len()];
        for class in self.backward()?.closed_classes() {
            let values = || class.iter().map(|&state| rewards[state as usize]);
            if values().any(|reward| reward < 0.0) {
                return refuse("the total reward for ever needs rewards ≥ 0 in closed classes");
            }
            if values().all(|reward| reward == 0.0) {
                class.iter().for_each(|&state| ends[state as usize] = true);
            }
        }
        Ok(ends)
    }

    fn reward(&self, structure: Option<&str>, goal: &RewardKind) -> Result<StateValues> {
        let of_states = matches!(goal, RewardKind::Instantaneous(_));
        let rewards = match goal {
            RewardKind::Time(_) => vec![1.0; self.states()],
            _ => cumulative_rewards(self.source, structure, of_states)?,
        };
        let most = rewards.iter().fold(0.0f64, |most, r| r.abs().max(most));
        let (backward, epsilon) = (self.backward()?, self.epsilon);
        let largest = |of: &[f64]| of.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let (found, scale) = match goal {
            RewardKind::Cumulative(time) => {
                let told = &mut **self.told.borrow_mut();
                let mut found = backward.until(self.machine()?, &rewards, *time, epsilon, told)?;
                // The graph decides where nothing is earned.
                let earns: Vec<bool> = rewards.iter().map(|reward| *reward != 0.0).collect();
                let may = backward.may_reach(&earns, &vec![true; earns.len()]);
                for state in (0..may.len()).filter(|state| !may[*state]) {
                    (found.values[state], found.bounds[state]) = (0.0, 0.0);
                }
                (found, most * time)
            }
            RewardKind::Instantaneous(time) => {
                let told = &mut **self.told.borrow_mut();
                let none = vec![false; rewards.len()];
                (backward.at(self.machine()?, &rewards, &none, *time, epsilon, told)?, most)
            }
            RewardKind::SteadyState => (self.in_the_long_run(&rewards, REWARD)?, most),
            RewardKind::Ltl(ltl) => {
                let Everywhere { values, bounds, .. } = self.reward_until_ltl(ltl, &rewards)?;
                let scale = largest(&values);
                (StateValues { values, bounds }, scale)
            }
            RewardKind::Reach(_) | RewardKind::Time(_) | RewardKind::Total => {
                let reached = match goal {
                    RewardKind::Reach(states) | RewardKind::Time(states) => self.sure(states)?,
                    _ => self.without_reward(&rewards)?,
                };
                let found = self.reward_until(&reached, &rewards)?;
                let scale = largest(&found.values);
                (found, scale)
            }
        };
        self.expect(largest(&found.bounds), scale);
        Ok(found)
    }

    /// Computes rewards until states are reached, infinite unless that is sure.
    pub(crate) fn reward_until(&self, reached: &[bool], rewards: &[f64]) -> Result<StateValues> {
        let backward = self.backward()?;
        let passing: Vec<bool> = reached.iter().map(|reached| !reached).collect();
        let may = backward.may_reach(reached, &passing);
        let never: Vec<bool> = may.iter().map(|may| !may).collect();
        let endless = backward.may_reach(&never, &passing);
        let ends: Vec<bool> = reached.iter().zip(&endless).map(|(a, b)| *a || *b).collect();
        let told = &mut **self.told.borrow_mut();
        let mut found = backward.total(&ends, &vec![0.0; ends.len()], rewards, self.epsilon, told)?;
        for state in members(&endless) {
            found.values[state as usize] = f64::INFINITY;
        }
        Ok(found)
    }
}

/// Compares a number with a threshold. Returns `None` if the error leaves the result open.
pub(crate) fn decide(bound: &Threshold, answer: &Answer, probability: bool) -> Option<bool> {
    let (mut low, mut high) = (answer.value - answer.error, answer.value + answer.error);
    if probability {
        (low, high) = (low.max(0.0), high.min(1.0));
        if answer.inside && (bound.limit == 0.0 || bound.limit == 1.0) {
            return bound.decide(0.5, 0.5);
        }
    }
    // NaN decides nothing.
    if low <= high { bound.decide(low, high) } else { None }
}

/// Encloses numbers that lie between `low` and `high`, with the error bounds of each.
fn between(low: Everywhere, high: Everywhere) -> Everywhere {
    let mut found = low;
    for (k, (value, bound)) in found.values.iter_mut().zip(&mut found.bounds).enumerate() {
        let (top, error) = (high.values[k], high.bounds[k]);
        *bound = 0.5 * (top - *value) + bound.max(error) + f64::EPSILON;
        *value = 0.5 * (*value + top);
        found.inside[k] &= high.inside[k];
    }
    found
}

/// Fails for chains that are read without self-loops.
pub(crate) fn expect_loops(source: ChainRef<'_>) -> Result<()> {
    match source {
        ChainRef::File(chain) if !chain.transitions.is_discrete() => {
            refuse("X counts self-loops, which files of continuous-time chains lack; check the model file")
        }
        _ => Ok(()),
    }
}

/// Transitions from a state, with self-loops, and true if they have probabilities instead of rates.
pub(crate) fn row_of(source: ChainRef<'_>, state: u32) -> (Vec<(u32, f64)>, bool) {
    let mut row: Vec<(u32, f64)> = Vec::new();
    let discrete = match source {
        ChainRef::Explored(space) => {
            let own = space.self_loops().binary_search_by_key(&state, |(state, _)| *state);
            row.extend(space.chain().row(state as usize).chain(own.ok().map(|k| space.self_loops()[k])));
            space.instance().model().is_discrete()
        }
        ChainRef::File(chain) => {
            chain.transitions.outgoing(state as usize, &mut row);
            let stay = 1.0 - exit_rate(row.iter().map(|(_, p)| *p));
            row.extend((chain.transitions.is_discrete() && stay > 0.0).then_some((state, stay)));
            chain.transitions.is_discrete()
        }
    };
    if row.is_empty() {
        // A deadlock has a self-loop.
        row.push((state, 1.0));
    }
    (row, discrete)
}

/// Expectation of probabilities in the next state, with self-loops counted as transitions.
pub(crate) fn expected(source: ChainRef<'_>, state: u32, later: &Everywhere) -> Answer {
    let (row, discrete) = row_of(source, state);
    let of = |to: u32| (later.values[to as usize], later.bounds[to as usize]);
    if let Some(sure) = [0.0, 1.0].into_iter().find(|sure| row.iter().all(|(to, _)| of(*to) == (*sure, 0.0)))
    {
        return Answer::new(sure, 0.0);
    }
    let known = |to: u32| of(to).1 == 0.0 || later.inside[to as usize];
    let is_truth = |to: u32| of(to) == (0.0, 0.0) || of(to) == (1.0, 0.0);
    let (sum, rounding) = sums::sum(row.iter().map(|(to, rate)| rate * of(*to).0));
    let mut error = sums::at_most(row.iter().map(|(to, rate)| rate * of(*to).1).chain([rounding]));
    if !row.iter().all(|(to, _)| is_truth(*to)) {
        // Errors of products.
        error += 4.0 * f64::EPSILON * (sum + error);
    }
    let inside = row.iter().all(|(to, _)| known(*to));
    if discrete {
        // Probabilities sum to 1, and one of a model alone is exact. Those of a file are quotients.
        let quotients = if matches!(source, ChainRef::File(_)) { 4.0 * f64::EPSILON } else { 0.0 };
        return Answer { inside, ..Answer::new(sum, error + quotients) };
    }
    // Errors of two sums of positive terms and a quotient.
    let all = compensated(row.iter().map(|(_, rate)| *rate));
    Answer { inside, ..Answer::new(sum / all, error / all * (1.0 + 4.0 * f64::EPSILON) + 4.0 * f64::EPSILON) }
}
