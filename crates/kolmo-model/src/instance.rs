//! Models with values of all constants.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::Arc;

use crate::bytecode::{Meaning, Term};
use crate::diagnostics::{Diagnostic, Diagnostics, Span};
use crate::model::Checked;
use crate::syntax::{self, Expression, Rewarded, Type, Value, Variable};
use crate::{Error, PrismModel, Result};

/// Index range of the commands of each (module, action).
type Groups = HashMap<(usize, Option<String>), Range<usize>>;

/// A model with values of all constants.
#[derive(Clone, Debug)]
pub struct Instance {
    pub(crate) model: PrismModel,
    pub(crate) meaning: Meaning,
    pub(crate) variables: Vec<VariableInfo>,
    /// Commands, grouped by module and action.
    pub(crate) commands: Vec<GuardedCommand>,
    pub(crate) groups: Groups,
    pub(crate) initial: InitialDefinition,
    /// Instances whose transitions are explored with the rate 0.
    pub(crate) others: Vec<Self>,
}

/// A variable of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableInfo {
    /// Name of the variable.
    pub name: String,
    /// `bool` or `int`.
    pub ty: Type,
    /// Least value; false is 0.
    pub low: i64,
    /// Largest value; true is 1.
    pub high: i64,
    /// True if the model gives no range. Values then have 32 bits.
    pub unbounded: bool,
}

impl VariableInfo {
    /// Number of bits of a value.
    pub(crate) fn bits(&self) -> u32 {
        64 - self.high.wrapping_sub(self.low).cast_unsigned().leading_zeros()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct GuardedCommand {
    pub(crate) guard: Term,
    /// Rate of each update as a double, and the next values that it assigns to variables (index).
    pub(crate) updates: Vec<(Term, Vec<(usize, Term)>)>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InitialDefinition {
    State(Vec<i64>),
    Condition(Term),
}

/// One item of a reward structure.
pub(crate) struct RewardTerm {
    pub(crate) of: Rewarded,
    pub(crate) guard: Term,
    pub(crate) value: Term,
}

impl PrismModel {
    /// Creates an instance from values of the constants that the text leaves undefined.
    ///
    /// Fails for constants that have a value in the text.
    pub fn with_constants(&self, given: &[(String, Value)]) -> Result<Instance> {
        self.instance(given, None)
    }

    /// Creates an instance in which one constant of type double has no value.
    ///
    /// This symbol is an additional variable after those of the model. Constants of type double
    /// that depend on it become formulas. Fails if a range, an initial value or a constant of
    /// another type depends on it.
    pub(crate) fn with_symbol(&self, given: &[(String, Value)], symbol: &str) -> Result<Instance> {
        self.instance(given, Some(symbol))
    }

    fn instance(&self, given: &[(String, Value)], symbol: Option<&str>) -> Result<Instance> {
        let checked = &*self.0;
        let mut meaning =
            Meaning { values: values(&checked.constants, given, |_| true)?, ..Meaning::default() };
        let number = checked.variables.len();
        if let Some(symbol) = symbol {
            meaning.values.remove(symbol);
            meaning.variables.insert(symbol.to_owned(), (number, Type::Double));
        }
        let mut builder = Builder { checked, errors: Vec::new() };
        for constant in &checked.constants {
            let Some(e) = &constant.value else { continue };
            if symbol == Some(&constant.name.text) {
                continue;
            }
            if symbol.is_some()
                && constant.ty == Type::Double
                && let Ok(mut formula) = meaning.formula(e)
                && formula.term.has_variable(number)
            {
                formula.term = formula.term.double();
                meaning.formulas.insert(constant.name.text.clone(), formula);
                continue;
            }
            let value = builder.value(&meaning, e, constant.ty);
            meaning.values.insert(constant.name.text.clone(), value.unwrap_or(Value::Int(0)));
            if value.is_none() {
                return Err(builder.refused());
            }
        }
        let mut variables = Vec::new();
        let mut first = Vec::new();
        for v in &checked.variables {
            let (info, init) = builder.variable(&meaning, v);
            let ty = info.ty;
            meaning.variables.insert(info.name.clone(), (variables.len(), ty));
            variables.push(info);
            first.push(init);
        }
        for f in &checked.formulas {
            let formula = builder.keep(f.body.span, meaning.formula(&f.body));
            let Some(formula) = formula else { return Err(builder.refused()) };
            meaning.formulas.insert(f.name.text.clone(), formula);
        }
        for label in &checked.labels {
            if let Some(formula) = builder.keep(label.body.span, meaning.formula(&label.body)) {
                meaning.labels.insert(label.name.text.clone(), formula);
            }
        }
        let (commands, groups) = builder.commands(&meaning);
        let initial = match &checked.init {
            None => InitialDefinition::State(first),
            Some(e) => InitialDefinition::Condition(builder.term(&meaning, e)),
        };
        if !builder.errors.is_empty() {
            return Err(builder.refused());
        }
        let (model, others) = (self.clone(), Vec::new());
        Ok(Instance { model, meaning, variables, commands, groups, initial, others })
    }
}

/// Converts values to the types of their constants. Fails if a `needed` constant has no value.
pub(crate) fn values(
    constants: &[syntax::ConstantDeclaration],
    given: &[(String, Value)],
    needed: impl Fn(&str) -> bool,
) -> Result<HashMap<String, Value>> {
    let refused = |message: String| Err(Error::Constant(message));
    let mut values = HashMap::new();
    for (name, value) in given {
        let Some(constant) = constants.iter().find(|c| c.name.text == *name) else {
            let known = constants.iter().map(|c| &*c.name.text);
            let help = crate::types::similar(name, known, "give constants that are declared");
            return refused(format!("there is no constant '{name}'; {help}"));
        };
        if constant.value.is_some() {
            let why = "has its value in the text already; do not give it";
            return refused(format!("the constant '{name}' {why}"));
        }
        let Some(value) = value.to(constant.ty) else {
            return refused(format!("the constant '{name}' is of type {}, and {value} is not", constant.ty));
        };
        values.insert(name.clone(), value);
    }
    let missing: Vec<String> = (constants.iter())
        .filter(|c| c.value.is_none() && !values.contains_key(&c.name.text) && needed(&c.name.text))
        .map(|c| format!("{} {}", c.ty, c.name.text))
        .collect();
    if missing.is_empty() {
        return Ok(values);
    }
    refused(format!("constants without a value: {}; give them, such as N=3", missing.join(", ")))
}

struct Builder<'a> {
    checked: &'a Checked,
    errors: Vec<Diagnostic>,
}

impl Builder<'_> {
    fn refused(&mut self) -> Error {
        Error::Text(Diagnostics::new(&self.checked.source, std::mem::take(&mut self.errors)))
    }

    fn keep<T>(&mut self, span: Span, result: std::result::Result<T, String>) -> Option<T> {
        result.map_err(|message| self.errors.push(Diagnostic::new(span, message, ""))).ok()
    }

    fn term(&mut self, meaning: &Meaning, e: &Expression) -> Term {
        self.keep(e.span, meaning.term(e)).unwrap_or(Term::Value(Value::Bool(false)))
    }

    fn value(&mut self, meaning: &Meaning, e: &Expression, ty: Type) -> Option<Value> {
        self.keep(e.span, meaning.value(e)).and_then(|value| value.to(ty))
    }

    fn variable(&mut self, meaning: &Meaning, v: &Variable) -> (VariableInfo, i64) {
        let whole = |value: Option<Value>| match value {
            Some(Value::Int(i)) => i,
            Some(Value::Bool(b)) => i64::from(b),
            _ => 0,
        };
        let mut end = |e: &Expression| whole(self.value(meaning, e, Type::Int));
        let (low, high) = match &v.range {
            syntax::VariableRange::Bool => (0, 1),
            syntax::VariableRange::Int(low, high) => (end(low), end(high)),
            syntax::VariableRange::Unbounded => (i64::from(i32::MIN), i64::from(i32::MAX)),
        };
        let (unbounded, ty) = (matches!(v.range, syntax::VariableRange::Unbounded), v.ty());
        if low > high && self.errors.is_empty() {
            let message = format!("the range [{low}..{high}] of '{}' is empty", v.name.text);
            self.errors.push(Diagnostic::new(v.name.span, message, "the lower end comes first"));
        }
        let init = match &v.init {
            Some(e) => whole(self.value(meaning, e, ty)),
            None if unbounded => 0,
            None => low,
        };
        if !(low..=high).contains(&init) && self.errors.is_empty() {
            let name = &v.name.text;
            let message = format!("the initial value {init} of '{name}' is outside of {low}..{high}");
            self.errors.push(Diagnostic::new(v.name.span, message, "widen the range"));
        }
        (VariableInfo { name: v.name.text.clone(), ty, low, high, unbounded }, init)
    }

    fn commands(&mut self, meaning: &Meaning) -> (Vec<GuardedCommand>, Groups) {
        let (mut commands, mut groups) = (Vec::new(), Groups::new());
        for (m, module) in self.checked.modules.iter().enumerate() {
            let mut numbers = HashMap::new();
            let mut list = Vec::new();
            for command in &module.commands {
                let next = numbers.len();
                let action = command.action.as_ref().map(|a| &*a.text);
                list.push((*numbers.entry(action).or_insert(next), command));
            }
            // The sort is stable: commands of an action keep their order.
            list.sort_by_key(|(number, _)| *number);
            for (_, command) in list {
                let guard = self.term(meaning, &command.guard);
                let mut updates = Vec::new();
                for update in &command.updates {
                    let rate = update.rate.as_ref().map(|e| self.term(meaning, e).double());
                    let assignments = (update.assignments.iter())
                        .map(|(name, e)| (meaning.variables[&name.text].0, self.term(meaning, e)))
                        .collect();
                    updates.push((rate.unwrap_or(Term::Value(Value::Double(1.0))), assignments));
                }
                let action = command.action.as_ref().map(|a| a.text.clone());
                groups.entry((m, action)).or_insert(commands.len()..0).end = commands.len() + 1;
                commands.push(GuardedCommand { guard, updates, span: command.span });
            }
        }
        (commands, groups)
    }
}

impl Instance {
    /// Model of the instance.
    pub fn model(&self) -> &PrismModel {
        &self.model
    }

    /// Variables in the order that numbers the states: the first one changes slowest.
    pub fn variables(&self) -> &[VariableInfo] {
        &self.variables
    }

    /// Value of a constant.
    pub fn constant(&self, name: &str) -> Option<Value> {
        self.meaning.values.get(name).copied()
    }

    /// Returns the instance with further transitions: those of other instances, with the rate 0.
    ///
    /// An exploration then finds all states that the instances reach together, as rates that change
    /// with time require. Instances with other variables are left out.
    #[must_use]
    pub fn alongside(self, others: &[Self]) -> Self {
        let others = others.iter().filter(|other| other.variables == self.variables).cloned().collect();
        Self { others, ..self }
    }

    /// True if another instance of the model can only differ in rates, rewards and labels.
    ///
    /// Variables, initial states, guards and updates are compared after constants are inserted.
    pub fn has_structure_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.model.0, &other.model.0) && self.parts() == other.parts()
    }

    /// Returns a hash of the parts that [`has_structure_of`](Self::has_structure_of) compares.
    pub fn structure(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(format!("{:?}", self.parts()))
    }

    /// Returns variables, initial states, guards and updates, without rates.
    fn parts(&self) -> impl PartialEq + std::fmt::Debug {
        let updates = |c: &GuardedCommand| c.updates.iter().map(|(_, next)| next.clone()).collect::<Vec<_>>();
        let commands = self.commands.iter().map(|own| (&own.guard, updates(own)));
        (&self.variables, &self.initial, commands.collect::<Vec<_>>())
    }

    /// Formats a state by its variables, as in `(q=2, up=true)`.
    pub(crate) fn describe(&self, values: &[i64]) -> String {
        let mut text = String::from("(");
        for (variable, value) in self.variables.iter().zip(values) {
            let comma = if text.len() > 1 { ", " } else { "" };
            let _ = match variable.ty {
                Type::Bool => write!(text, "{comma}{}={}", variable.name, *value != 0),
                _ => write!(text, "{comma}{}={value}", variable.name),
            };
        }
        text + ")"
    }

    /// Index of a reward structure. `None` selects the first one.
    pub(crate) fn reward_structure(&self, name: Option<&str>) -> Result<usize> {
        let names = &self.model.0.names;
        let number = match name {
            None => Some(0).filter(|_| !names.rewards.is_empty()),
            Some(name) => names.structures.get(name).copied(),
        };
        number.ok_or_else(|| {
            Error::Name(format!("the model has no reward structure \"{}\"", name.unwrap_or_default()))
        })
    }

    /// Items of a reward structure, by its index.
    pub(crate) fn rewards(&self, number: usize) -> Result<Vec<RewardTerm>> {
        let term = |e: &Expression| self.meaning.term(e).map_err(Error::Size);
        let mut all = Vec::new();
        for item in &self.model.0.rewards[number].items {
            let (guard, value) = (term(&item.guard)?, term(&item.value)?.double());
            all.push(RewardTerm { of: item.of.clone(), guard, value });
        }
        Ok(all)
    }
}
