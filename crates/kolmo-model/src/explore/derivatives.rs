//! Derivatives of rates and rewards by a constant, on explored states.

use rayon::prelude::*;

use super::assemble::{TASK, shares};
use super::layout::StateKey;
use super::program::{CompiledModel, Scratch};
use super::{StateSpace, TransitionMatrix, by_width};
use crate::bytecode::{Code, Term};
use crate::diagnostics::{Diagnostic, Diagnostics, Span};
use crate::instance::{GuardedCommand, InitialDefinition, Instance};
use crate::syntax::{Rewarded, Type, Value};
use crate::threads::start_threads;
use crate::{Error, Result};

/// Derivatives of a model's rates and rewards by one of its constants.
#[derive(Debug)]
pub struct ModelDerivatives<'a> {
    /// Explored states.
    pub space: &'a StateSpace,
    /// Name of the constant.
    pub name: String,
    /// Instance in which the constant is a symbol.
    ///
    /// A formula depends on the constant if it differs in this instance, or has no value in it.
    pub symbolic: Instance,
    /// Value of the constant.
    value: f64,
}

impl StateSpace {
    /// Prepares derivatives by a constant of type double that changes only rates and rewards.
    ///
    /// # Errors
    /// * Constants that are unknown, of another type, or that change states, guards, updates or
    ///   labels; the error has the place in the text.
    /// * Models in discrete time, and truncated models.
    pub fn derivatives(&self, name: &str) -> Result<ModelDerivatives<'_>> {
        let model = self.instance.model();
        let constants = &model.0.constants;
        let known = || constants.iter().map(|constant| &*constant.name.text);
        let Some(constant) = constants.iter().find(|constant| constant.name.text == name) else {
            let help = crate::types::similar(name, known(), "give constants that the model declares");
            return Err(Error::Name(format!("there is no constant '{name}'; {help}")));
        };
        let (Type::Double, Some(Value::Double(value))) = (constant.ty, self.instance.constant(name)) else {
            let why = format!("the constant '{name}' is of type {}: expected double", constant.ty);
            return Err(Error::Name(format!("{why} for a derivative")));
        };
        if model.is_discrete() || !self.found.edge.is_empty() {
            let why = "derivatives of models in discrete time and of truncated models are not supported";
            return Err(Error::Name(why.to_owned()));
        }
        let given = constants.iter().filter(|constant| constant.value.is_none());
        let given = given.filter_map(|c| Some((c.name.text.clone(), self.instance.constant(&c.name.text)?)));
        let refused = |why: Error| {
            Error::Name(format!("the constant '{name}' has no derivative, since states depend on it:\n{why}"))
        };
        let symbolic = model.with_symbol(&given.collect::<Vec<_>>(), name).map_err(refused)?;
        let derivatives = ModelDerivatives { space: self, name: name.to_owned(), symbolic, value };
        derivatives.expect_structure().map_err(refused)?;
        Ok(derivatives)
    }
}

impl ModelDerivatives<'_> {
    /// Index of the symbol, which follows the variables.
    fn symbol(&self) -> usize {
        self.symbolic.variables.len()
    }

    fn error(&self, span: Span, message: String) -> Error {
        let source = &self.symbolic.model.0.source;
        Error::Text(Diagnostics::new(source, vec![Diagnostic::new(span, message, "")]))
    }

    /// Fails if a guard, an update, a label or the set of initial states depends on the constant.
    fn expect_structure(&self) -> Result<()> {
        let (v, name) = (self.symbol(), &self.name);
        let has = |term: &Term| term.has_variable(v);
        for command in &self.symbolic.commands {
            let next = command.updates.iter().flat_map(|(_, all)| all).any(|(_, next)| has(next));
            if has(&command.guard) || next {
                let what = if next { "an update" } else { "the guard" };
                return Err(self.error(command.span, format!("{what} of this command depends on '{name}'")));
            }
        }
        for label in &self.symbolic.model.0.labels {
            if self.symbolic.meaning.labels.get(&label.name.text).is_some_and(|formula| has(&formula.term)) {
                return Err(self.error(label.body.span, format!("this label depends on '{name}'")));
            }
        }
        match &self.symbolic.initial {
            InitialDefinition::Condition(term) if has(term) => {
                Err(Error::Name(format!("the initial states depend on '{name}'")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the derivative of each rate, in the order of [`StateSpace::chain`].
    ///
    /// # Errors
    /// * Rates without a derivative, such as `floor(x)`.
    /// * States in which a rate is 0 and its derivative is not, or a derivative is not finite.
    pub fn rates(&self) -> Result<Vec<f64>> {
        start_threads();
        by_width!(self.space.stride, self.rows(&self.tangents()?))
    }

    /// Returns the derivative of each update's rate, by command.
    fn tangents(&self) -> Result<Vec<Vec<Code>>> {
        let of_command = |command: &GuardedCommand| {
            let tangent = |(rate, _): &(Term, _)| match rate.derivative(self.symbol()) {
                Ok(tangent) => Ok(Code::new(&tangent)),
                Err(what) => {
                    let message = format!("{what} in a rate has no derivative by '{}'", self.name);
                    Err(self.error(command.span, message))
                }
            };
            command.updates.iter().map(tangent).collect()
        };
        self.symbolic.commands.iter().map(of_command).collect()
    }

    /// Evaluates the derivatives of all rates; `tangents` are those of each update, by command.
    fn rows<const W: usize>(&self, tangents: &[Vec<Code>]) -> Result<Vec<f64>> {
        let space = self.space;
        let program = CompiledModel::new(&space.instance, space.layout.clone());
        let (keys, _) = space.keys.as_chunks::<W>();
        let TransitionMatrix { offsets, columns, .. } = &space.found.chain;
        let mut derivatives = vec![0.0; columns.len()];
        let symbol = self.value.to_bits().cast_signed();
        let work = |(task, (states, out)): (usize, (&[StateKey<W>], &mut [f64]))| {
            let (mut scratch, mut row) = (Scratch::default(), Vec::new());
            let first = offsets[task * TASK] as usize;
            for (state, key) in (task * TASK..).zip(states) {
                row.clear();
                program.tangents(key, (tangents, symbol), &mut scratch, &mut row).map_err(|trouble| {
                    scratch.values.truncate(self.symbol());
                    trouble.error(&program, &scratch.values)
                })?;
                let own = offsets[state] as usize..offsets[state + 1] as usize;
                let targets = &columns[own.clone()];
                for (target, change) in &row {
                    // Self-loops change no probability, and are not among the targets.
                    if let Ok(at) = targets.binary_search_by_key(&target, |to| &keys[*to as usize]) {
                        out[own.start - first + at] += change;
                    }
                }
            }
            Ok(())
        };
        let tasks: Vec<_> = keys.chunks(TASK).zip(shares(offsets, &mut derivatives)).enumerate().collect();
        tasks.into_par_iter().map(work).collect::<Result<Vec<()>>>()?;
        Ok(derivatives)
    }

    /// Returns the derivative of each state's reward rate; `None` selects the first structure.
    ///
    /// With `of_states`, transition rewards are ignored. Fails for rewards without a derivative,
    /// and for transition rewards of rates without one.
    pub fn rewards(&self, structure: Option<&str>, of_states: bool) -> Result<Vec<f64>> {
        let program = CompiledModel::new(&self.space.instance, self.space.layout.clone());
        let mut parts = Vec::new();
        for reward in self.symbolic.rewards(self.symbolic.reward_structure(structure)?)? {
            let groups = match &reward.of {
                Rewarded::States => None,
                Rewarded::Transitions(_) if of_states => continue,
                Rewarded::Transitions(action) => {
                    Some(program.seen_as(action.as_ref().map(|action| &*action.text)))
                }
            };
            let tangent = match reward.value.derivative(self.symbol()) {
                Ok(tangent) if !reward.guard.has_variable(self.symbol()) => tangent,
                Ok(_) => return Err(Error::Name(format!("a guard of rewards depends on '{}'", self.name))),
                Err(what) => {
                    return Err(Error::Name(format!(
                        "{what} in rewards has no derivative by '{}'",
                        self.name
                    )));
                }
            };
            parts.push((Code::new(&reward.guard), [&reward.value, &tangent].map(Code::new), groups));
        }
        let of_rates = parts.iter().any(|(.., groups)| groups.is_some());
        let tangents = if of_rates { self.tangents()? } else { Vec::new() };
        let symbol = self.value.to_bits().cast_signed();
        self.space.each(|values, scratch, stack| {
            scratch.values.clear();
            scratch.values.extend(values.iter().chain([&symbol]));
            let mut total = 0.0;
            for (guard, [value, tangent], groups) in &parts {
                let mut run = |code: &Code, scratch: &Scratch| {
                    code.run(&scratch.values, stack).map_err(|fault| {
                        let state = self.symbolic.describe(values);
                        Error::State(format!("a reward in the state {state}: {fault}"))
                    })
                };
                if run(guard, scratch)? == 0 {
                    continue;
                }
                let change = f64::from_bits(run(tangent, scratch)?);
                let Some(groups) = groups else {
                    total += change;
                    continue;
                };
                let (rate, rate_change) = (program.total_rate(groups, &tangents, scratch))
                    .map_err(|trouble| trouble.error(&program, values))?;
                total += rate * change + rate_change * f64::from_bits(run(value, scratch)?);
            }
            if !total.is_finite() {
                let state = self.symbolic.describe(values);
                return Err(Error::State(format!(
                    "the derivative of a reward by '{}' is {total} in the state {state}: expected a finite \
                     number; guard the reward, or give another value",
                    self.name
                )));
            }
            Ok(total)
        })
    }
}
