//! Exploration of a model's states, and the resulting chain.

mod assemble;
mod dense_index;
mod derivatives;
mod endless;
mod layout;
mod program;
mod rate_classes;
mod rerate;
mod search;
mod state_table;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::bytecode::{Code, Term};
use crate::instance::{InitialDefinition, Instance};
use crate::properties::StateFormula;
use crate::syntax::{Rewarded, Type, Value};
use crate::threads::start_threads;
use crate::values::PerState;
use crate::{Error, Result};
use assemble::{Assembled, assemble};
use dense_index::Cells;
pub use derivatives::ModelDerivatives;
use layout::{Packing, StateKey};
use program::{CompiledModel, Scratch};
use rate_classes::RateClasses;
use search::{SearchLimits, search};
use state_table::VisitedSet;

/// Numbers of states and transitions found so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of states.
    pub states: u64,
    /// Number of transitions between different states.
    pub transitions: u64,
    /// Index of a variable without a range, and its extreme value; `None` for few states.
    pub reached: Option<(usize, i64)>,
}

/// Memory limit and progress callback of an exploration.
///
/// It uses the current rayon thread pool.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Maximum number of bytes for states and transitions.
    pub memory_limit: Option<u64>,
    /// Progress callback, called about ten times a second on any thread.
    ///
    /// Returning false interrupts the exploration.
    pub progress: Option<&'a (dyn Fn(Progress) -> bool + Sync)>,
}

impl Options<'_> {
    /// Fails if `bytes` is above the limit. `reached` adds a suggestion to the message.
    fn check_memory(
        &self,
        bytes: usize,
        (states, transitions): (u64, u64),
        reached: impl FnOnce() -> String,
    ) -> Result<()> {
        let Some(limit) = self.memory_limit.filter(|limit| bytes as u64 > *limit) else { return Ok(()) };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Err(Error::Size(format!(
            "{states} states with {transitions} transitions take {:.1} MiB, and the limit is {:.1} MiB; \
             {}raise it, choose smaller constants, or `truncate` the model",
            mib(bytes as u64),
            mib(limit),
            reached()
        )))
    }
}

/// State of the progress reports, which are given about ten times a second.
struct News<'a> {
    options: &'a Options<'a>,
    told: Mutex<Instant>,
    reached: Mutex<Option<(usize, i64)>>,
}

impl<'a> News<'a> {
    fn new(options: &'a Options<'a>) -> Self {
        Self { options, told: Mutex::new(Instant::now()), reached: Mutex::new(None) }
    }

    /// Reports progress if it is due, and fails if the caller interrupts.
    fn tell(&self, states: u64, transitions: u64) -> Result<()> {
        let Some(progress) = self.options.progress else { return Ok(()) };
        if let Ok(mut told) = self.told.try_lock()
            && told.elapsed() >= Duration::from_millis(100)
        {
            *told = Instant::now();
            let reached = *self.reached.lock().unwrap_or_else(PoisonError::into_inner);
            if !progress(Progress { states, transitions, reached }) {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

/// Transitions between different states, row by row.
///
/// Rates of transitions between the same two states are added. In discrete time they are
/// probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct TransitionMatrix {
    /// Index of each row's first entry, followed by the number of entries.
    pub offsets: Arc<Vec<u64>>,
    /// Target states, ascending within a row.
    pub columns: Arc<Vec<u32>>,
    /// Rates of the entries, all positive.
    pub rates: Vec<f64>,
}

impl TransitionMatrix {
    /// Target states and rates of the transitions out of a state.
    pub fn row(&self, state: usize) -> impl ExactSizeIterator<Item = (u32, f64)> {
        let range = self.offsets[state] as usize..self.offsets[state + 1] as usize;
        self.columns[range.clone()].iter().copied().zip(self.rates[range].iter().copied())
    }
}

/// Reachable states of an instance, numbered in the order of their variables' values.
#[derive(Clone, Debug)]
pub struct StateSpace {
    instance: Instance,
    layout: Packing,
    stride: usize,
    keys: Vec<u64>,
    found: Assembled,
    overlaps: u64,
    /// Truth of formulas over variables, for use with other rates; `None` before the first such
    /// use.
    truths: Option<Arc<Mutex<FormulaTruths>>>,
    /// Classes of transitions with equal rates, if known; set with `truths`.
    classes: Option<Arc<RateClasses>>,
}

/// Formulas, each with its truth in every state.
type FormulaTruths = Vec<(Term, Vec<bool>)>;

/// Largest number of formulas with known truth values.
const TRUTHS: usize = 32;

/// States of a partial exploration, from which it can be continued.
#[derive(Clone, Debug)]
pub struct PartialExploration {
    keys: Vec<u64>,
    stride: usize,
    edge: Vec<u32>,
}

impl PartialExploration {
    /// Number of states.
    pub fn states(&self) -> usize {
        self.keys.len() / self.stride
    }

    /// Boundary states: known but not explored, ascending.
    pub fn edge(&self) -> &[u32] {
        &self.edge
    }

    /// Limits that explore the boundary states `from`, and then levels up to `least` states.
    ///
    /// The remaining boundary states are not explored.
    fn limits<const W: usize>(&self, from: &[u32], least: u64) -> SearchLimits<W> {
        let mut limits = SearchLimits { first: Vec::new(), closed: Vec::new(), least };
        let (mut edge, mut from) = (self.edge.iter().peekable(), from.iter().peekable());
        for (state, key) in (0u32..).zip(self.keys.as_chunks::<W>().0) {
            let at_edge = edge.next_if_eq(&&state).is_some();
            let chosen = from.next_if_eq(&&state).is_some();
            if at_edge && !chosen { limits.closed.push(*key) } else { limits.first.push(*key) }
        }
        limits
    }
}

/// Calls a generic function with the number of words of packed states: 1, 2, or a power of four.
macro_rules! by_width {
    ($words:expr, $own:ident.$run:ident($($argument:expr),*)) => {
        match $words {
            1 => $own.$run::<1>($($argument),*),
            2 => $own.$run::<2>($($argument),*),
            3 | 4 => $own.$run::<4>($($argument),*),
            5..=16 => $own.$run::<16>($($argument),*),
            _ => $own.$run::<{ $crate::explore::WORDS }>($($argument),*),
        }
    };
}
use by_width;

/// Maximum number of words of a packed state.
const WORDS: usize = 64;

/// Known part with its boundary states to explore, and the number of states to reach.
type Sought<'a> = (Option<(&'a PartialExploration, &'a [u32])>, u64);

impl Instance {
    /// Explores all reachable states and the transitions between them.
    pub fn explore(&self, options: &Options<'_>) -> Result<StateSpace> {
        self.explore_as(None, options)
    }

    /// Explores states level by level until there are at least `least`.
    ///
    /// It begins at the initial states, or at some boundary states of a known part. States of the
    /// last level are not explored: they are the new boundary and have no transitions.
    pub fn explore_part(
        &self,
        known: Option<(&PartialExploration, &[u32])>,
        least: u64,
        options: &Options<'_>,
    ) -> Result<StateSpace> {
        self.explore_as(Some((known, least)), options)
    }

    fn explore_as(&self, part: Option<Sought<'_>>, options: &Options<'_>) -> Result<StateSpace> {
        start_threads();
        // The width is checked before tables of commands are built for it.
        let layout = Packing::new(&self.variables);
        let words = layout.words;
        if words > WORDS {
            return Err(self.too_wide(words));
        }
        let program = CompiledModel::new(self, layout);
        by_width!(words, self.explored(&program, part, options))
    }

    #[cold]
    fn too_wide(&self, words: usize) -> Error {
        let (bits, most) = (words * 64, WORDS * 64);
        let mut names: Vec<&str> = self.variables.iter().filter(|v| v.unbounded).map(|v| &*v.name).collect();
        let count = names.len();
        if count > 5 {
            names.truncate(5);
            names[4] = "…";
        }
        let remedy = match count {
            0 => "give its variables smaller ranges".to_owned(),
            _ => format!(
                "give ranges to those that have none and take 32 bits each, {count}: {}",
                names.join(", ")
            ),
        };
        Error::Size(format!(
            "a state of this model takes {bits} bits, and at most {most} are supported; {remedy}"
        ))
    }

    fn explored<const W: usize>(
        &self,
        program: &CompiledModel<'_>,
        part: Option<Sought<'_>>,
        options: &Options<'_>,
    ) -> Result<StateSpace> {
        let first = self.initial_states::<W>(&program.layout, options)?;
        let cells = Cells::new(self, &program.layout, &first);
        let store = VisitedSet::new(cells, rayon::current_num_threads());
        let limits = part.map(|(known, least)| match known {
            None => SearchLimits { first: Vec::new(), closed: Vec::new(), least },
            Some((part, from)) => part.limits::<W>(from, least),
        });
        let news = News::new(options);
        let searched = search(program, &store, &first, limits.as_ref(), &news)?;
        drop(limits);
        let overlaps = program.overlaps.load(Ordering::Relaxed);
        let (states, found) = assemble(program, store, searched, &news)?;
        Ok(StateSpace {
            instance: self.clone(),
            layout: program.layout.clone(),
            stride: W,
            keys: states.into_flattened(),
            found,
            overlaps,
            truths: None,
            classes: None,
        })
    }

    fn initial_states<const W: usize>(
        &self,
        layout: &Packing,
        options: &Options<'_>,
    ) -> Result<Vec<StateKey<W>>> {
        let condition = match &self.initial {
            InitialDefinition::State(values) => {
                let mut key = [0; W];
                layout.pack(values, &mut key);
                return Ok(vec![key]);
            }
            InitialDefinition::Condition(condition) => condition,
        };
        // Conjuncts of the condition are checked as soon as their variables have values.
        let mut conjuncts = Vec::new();
        condition.clone().conjuncts(&mut conjuncts);
        let mut checks: Vec<Vec<Code>> = vec![Vec::new(); self.variables.len() + 1];
        for conjunct in conjuncts {
            let mut behind = 0;
            conjunct.each_variable(&mut |v| behind = behind.max(v + 1));
            checks[behind].push(Code::new(&conjunct));
        }
        let mut found = Vec::new();
        let mut values: Vec<i64> = self.variables.iter().map(|v| v.low).collect();
        let mut stack = Vec::new();
        let mut tried = 0_u64;
        let mut level = 0;
        let fault = |values: &[i64], what: &dyn std::fmt::Display| {
            Error::State(format!("the condition of initial states, in {}: {what}", self.describe(values)))
        };
        loop {
            let mut holds = true;
            for code in &checks[level] {
                holds = holds && code.run(&values, &mut stack).map_err(|f| fault(&values, &f))? != 0;
            }
            if holds && level < self.variables.len() {
                values[level] = self.variables[level].low;
                level += 1;
                continue;
            }
            if holds {
                let mut key = [0; W];
                layout.pack(&values, &mut key);
                found.push(key);
                options.check_memory(
                    found.len() * size_of::<StateKey<W>>(),
                    (found.len() as u64, 0),
                    String::new,
                )?;
            }
            tried += 1;
            if tried > 1 << 32 {
                let message =
                    "the condition of initial states takes too long to search: state ranges within it";
                return Err(Error::Size(message.into()));
            }
            while level > 0 && values[level - 1] == self.variables[level - 1].high {
                level -= 1;
            }
            if level == 0 {
                break;
            }
            values[level - 1] += 1;
        }
        if found.is_empty() {
            return Err(Error::State("no state satisfies 'init' … 'endinit'; relax the condition".into()));
        }
        Ok(found)
    }
}

impl StateSpace {
    /// Instance to which the states belong.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.found.chain.offsets.len() - 1
    }

    /// Transitions between different states.
    pub fn chain(&self) -> &TransitionMatrix {
        &self.found.chain
    }

    /// Returns the chain alone and frees the packed states.
    pub fn into_chain(self) -> TransitionMatrix {
        self.found.chain
    }

    /// States with a self-loop and its rate, ascending. Deadlocks are not included.
    pub fn self_loops(&self) -> &[(u32, f64)] {
        &self.found.self_loops
    }

    /// States without any transition, ascending. As in PRISM, they are absorbing.
    pub fn deadlocks(&self) -> &[u32] {
        &self.found.deadlocks
    }

    /// Number of states of a chain in discrete time that enable several choices of commands.
    ///
    /// These choices are equally likely, as in PRISM.
    pub fn overlaps(&self) -> u64 {
        self.overlaps
    }

    /// Boundary states: known but not explored, ascending.
    ///
    /// They have no transitions. Only a partial exploration has them.
    pub fn edge(&self) -> &[u32] {
        &self.found.edge
    }

    /// Copies the states from which the exploration can be continued.
    pub fn part(&self) -> PartialExploration {
        PartialExploration { keys: self.keys.clone(), stride: self.stride, edge: self.found.edge.clone() }
    }

    /// Numbers of transitions without self-loops, and with them.
    ///
    /// The second number counts a self-loop for each deadlock.
    pub fn transitions(&self) -> (u64, u64) {
        let others = self.found.chain.columns.len() as u64;
        (others, others + (self.found.self_loops.len() + self.found.deadlocks.len()) as u64)
    }

    /// Initial states, ascending. They are equally likely.
    pub fn initial(&self) -> &[u32] {
        &self.found.initial
    }

    /// Values of the variables in a state. Booleans are 0 and 1.
    pub fn values(&self, state: usize) -> Vec<i64> {
        let mut values = Vec::new();
        self.unpack(state, &mut values);
        values
    }

    fn unpack(&self, state: usize, values: &mut Vec<i64>) {
        self.layout.unpack(&self.keys[state * self.stride..(state + 1) * self.stride], values);
    }

    /// Formats a state by its variables, as in `(q=2, up=true)`.
    pub fn describe(&self, state: usize) -> String {
        self.instance.describe(&self.values(state))
    }

    /// Truth of a label in each state. "init" and "deadlock" are built in.
    pub fn label(&self, name: &str) -> Result<Vec<bool>> {
        let listed = |list: &[u32]| {
            let mut all = vec![false; self.states()];
            list.iter().for_each(|state| all[*state as usize] = true);
            Ok(all)
        };
        match (name, self.instance.meaning.labels.get(name)) {
            ("init", _) => listed(&self.found.initial),
            ("deadlock", _) if !self.found.edge.is_empty() => Err(Error::Name(
                "deadlocks are not known among the boundary states of a truncated model: expected a condition on variables"
                    .into(),
            )),
            ("deadlock", _) => listed(&self.found.deadlocks),
            (_, Some(label)) => self.truth(&label.term),
            (_, None) => Err(Error::Name(format!("the model has no label \"{name}\""))),
        }
    }

    /// Reward rate of each state, from state and transition rewards.
    ///
    /// A transition reward is multiplied by the rate of its transitions, or by their probability in
    /// discrete time. `None` selects the first structure.
    pub fn rewards(&self, name: Option<&str>) -> Result<Vec<f64>> {
        self.earned(name, true)
    }

    /// Reward rate of each state from state rewards alone, which PRISM's `I=t` uses.
    pub fn state_rewards(&self, name: Option<&str>) -> Result<Vec<f64>> {
        self.earned(name, false)
    }

    fn earned(&self, name: Option<&str>, at_transitions: bool) -> Result<Vec<f64>> {
        let number = self.instance.reward_structure(name)?;
        let program = CompiledModel::new(&self.instance, self.layout.clone());
        let parts: Vec<_> = (self.instance.rewards(number)?.into_iter())
            .filter(|part| at_transitions || matches!(part.of, Rewarded::States))
            .map(|part| {
                let groups = match part.of {
                    Rewarded::States => None,
                    Rewarded::Transitions(action) => Some(program.seen_as(action.as_ref().map(|a| &*a.text))),
                };
                (Code::new(&part.guard), Code::new(&part.value), groups)
            })
            .collect();
        self.each(|values, scratch, stack| {
            let mut total = 0.0;
            scratch.values.clear();
            scratch.values.extend_from_slice(values);
            for (guard, value, groups) in &parts {
                let run = |code: &Code, stack: &mut Vec<u64>| {
                    code.run(values, stack).map_err(|fault| {
                        Error::State(format!(
                            "a reward in the state {}: {fault}",
                            self.instance.describe(values)
                        ))
                    })
                };
                if run(guard, stack)? == 0 {
                    continue;
                }
                let value = f64::from_bits(run(value, stack)?);
                let rate = match groups {
                    None => 1.0,
                    Some(groups) => {
                        let found = program.total_rate(groups, &[], scratch);
                        found.map_err(|trouble| trouble.error(&program, values))?.0
                    }
                };
                if !value.is_finite() {
                    let state = self.instance.describe(values);
                    let message =
                        format!("a reward in the state {state} is {value}; guard it by a condition");
                    return Err(Error::State(message));
                }
                total += value * rate;
            }
            Ok(total)
        })
    }

    /// Evaluates a formula over variables in all states.
    pub fn evaluate(&self, formula: &StateFormula) -> Result<PerState> {
        let term = &formula.0;
        if term.ty() == Type::Bool {
            return self.truth(term).map(PerState::Truth);
        }
        let code = Code::new(&term.clone().double());
        let values = self.each(|values, _, stack| self.run(&code, values, stack).map(f64::from_bits));
        values.map(PerState::Numbers)
    }

    fn run(&self, code: &Code, values: &[i64], stack: &mut Vec<u64>) -> Result<u64> {
        code.run(values, stack).map_err(|fault| {
            Error::State(format!("in the state {}: {fault}", self.instance.describe(values)))
        })
    }

    fn truth(&self, term: &Term) -> Result<Vec<bool>> {
        if let Term::Value(Value::Bool(value)) = term {
            return Ok(vec![*value; self.states()]);
        }
        let known = || Some(self.truths.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(known) = known()
            && let Some((_, truth)) = known.iter().find(|(own, _)| own == term)
        {
            return Ok(truth.clone());
        }
        let code = Code::new(term);
        let truth = self.each(|values, _, stack| Ok(self.run(&code, values, stack)? != 0))?;
        if let Some(mut known) = known() {
            let first = known.len().saturating_sub(TRUTHS - 1);
            known.drain(..first);
            known.push((term.clone(), truth.clone()));
        }
        Ok(truth)
    }

    /// Computes a value for each state, in parallel.
    fn each<T: Copy + Default + Send>(
        &self,
        f: impl Fn(&[i64], &mut Scratch, &mut Vec<u64>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        const TASK: usize = 1 << 13;
        start_threads();
        let mut all = vec![T::default(); self.states()];
        all.par_chunks_mut(TASK).enumerate().try_for_each(|(task, part)| {
            let (mut values, mut scratch, mut stack) = (Vec::new(), Scratch::default(), Vec::new());
            for (k, value) in part.iter_mut().enumerate() {
                self.unpack(task * TASK + k, &mut values);
                *value = f(&values, &mut scratch, &mut stack)?;
            }
            Ok(())
        })?;
        Ok(all)
    }
}
