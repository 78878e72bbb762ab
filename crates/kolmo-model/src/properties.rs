//! CSL properties in PRISM's syntax, such as `P=? [ F<=10 "full" ]` or `S>=0.9 [ q < 3 ]`.
//!
//! [`parse`] checks a text against the names of a model or of a chain from a file.
//! [`Properties::with_constants`] resolves its properties into [`Formula`]s, whose times and
//! thresholds are numbers.

use std::collections::{HashMap, HashSet};

use crate::bytecode::{Code, EvalError, Meaning, Term};
use crate::diagnostics::{Diagnostic, Diagnostics, SourceText, Span};
use crate::instance::values;
use crate::intervals::range;
use crate::model::{check_circles, in_order, source};
use crate::syntax::{
    self, ConstantDeclaration, Definition, Expression, FilterKind, Kind, Modality, Name, Operation, Operator,
    ParsedProperty, Type, Value,
};
use crate::types::{Checker, Entity, Names, each_label, each_name, ordered};
use crate::values::PerState;
use crate::{Error, Instance, Result, parser};

/// Properties with checked names and types. Constants may be undefined.
#[derive(Clone, Debug)]
pub struct Properties {
    source: SourceText,
    constants: Vec<ConstantDeclaration>,
    labels: Vec<Definition>,
    properties: Vec<ParsedProperty>,
    /// Indices of the properties: each follows those that it names.
    order: Vec<usize>,
    names: Names,
}

/// A property with values of its constants.
#[derive(Clone, Debug)]
pub struct Property {
    /// Name of the property, if the text gives one.
    pub name: Option<String>,
    /// Text of the property.
    pub text: String,
    /// Place of the property as `name:line`, with the name of its text.
    pub place: String,
    /// Type of the property's value.
    pub ty: Type,
    /// Resolved formula.
    pub formula: Formula,
}

/// A property with errors.
#[derive(Clone, Debug)]
pub struct Wrong {
    /// Name of the property, if the text gives one.
    pub name: Option<String>,
    /// Text of the property.
    pub text: String,
    /// Errors with their places.
    pub why: Diagnostics,
}

/// A formula that has a value in every state.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// An expression over variables and constants.
    State(StateFormula),
    /// A label without a formula in the model: "init", "deadlock", or a label of a file.
    Label(String),
    /// An operation on the values of other formulas.
    Combination(Combination, Vec<Self>),
    /// Probability of a path formula, `P`.
    Probability {
        /// Threshold of the probability. `None` for `=?`.
        bound: Option<Threshold>,
        /// The path formula.
        path: PathFormula,
        /// True if the value is one minus the probability: `G a` is 1 − `F !a`.
        complement: bool,
    },
    /// Expected reward, `R`, or mean time, `T`.
    Reward {
        /// Name of the reward structure. `None` selects the first one.
        structure: Option<String>,
        /// Threshold of the reward. `None` for `=?`.
        bound: Option<Threshold>,
        /// Kind of the reward.
        goal: RewardKind,
    },
    /// Long-run probability, `S`.
    SteadyState {
        /// Threshold of the probability. `None` for `=?`.
        bound: Option<Threshold>,
        /// Formula that selects the states.
        states: Box<Self>,
    },
    /// Aggregation of the values of several states.
    Filter {
        /// Kind of the aggregation.
        kind: FilterKind,
        /// Formula whose values are aggregated.
        formula: Box<Self>,
        /// Formula that selects the states. `None` selects all.
        states: Option<Box<Self>>,
    },
}

/// Path formula.
#[derive(Clone, Debug, PartialEq)]
pub enum PathFormula {
    /// `X a`: the next state satisfies a.
    Next(Box<Formula>),
    /// A formula of LTL.
    Ltl(Ltl),
    /// 1 if some path satisfies a formula of LTL, `E` of CTL*; else 0.
    Exists(Ltl),
    /// `X p` for a path formula p: expectation of p's probability in the next state.
    Step(Box<Formula>),
    /// `a U[from,to] b`; `F b` is `true U b`.
    Until {
        /// Formula a, which holds until b does. `None` means true.
        left: Option<Box<Formula>>,
        /// Formula b, which becomes true.
        right: Box<Formula>,
        /// Start of the time interval.
        from: f64,
        /// End of the time interval, possibly infinite.
        to: f64,
    },
}

/// Formula of LTL in negation normal form.
#[derive(Clone, Debug, PartialEq)]
pub enum Ltl {
    /// A condition on the first state of the path.
    State(Box<Formula>),
    /// Conjunction; true if it is empty.
    And(Vec<Self>),
    /// Disjunction; false if it is empty.
    Or(Vec<Self>),
    /// `X a`.
    Next(Box<Self>),
    /// `a U[from,to] b`, or its dual `a R[from,to] b`.
    Until {
        /// True for `R`.
        release: bool,
        /// Formulas a and b.
        operands: Box<[Self; 2]>,
        /// First and last step, possibly infinite.
        times: (f64, f64),
    },
}

/// Kind of a reward property.
#[derive(Clone, Debug, PartialEq)]
pub enum RewardKind {
    /// `C<=t`: reward accumulated until time t.
    Cumulative(f64),
    /// `C`: reward accumulated for ever.
    Total,
    /// `I=t`: reward rate at time t.
    Instantaneous(f64),
    /// `F a`: reward accumulated until a holds.
    Reach(Box<Formula>),
    /// Reward accumulated until a formula of LTL is sure to hold.
    Ltl(Ltl),
    /// `T=? [ F a ]`: mean time until a holds.
    Time(Box<Formula>),
    /// `S`: long-run reward rate.
    SteadyState,
}

/// Threshold with its comparison, such as `>= 0.9`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Comparison of a value (left) with the threshold (right).
    pub comparison: Comparison,
    /// The threshold.
    pub limit: f64,
}

/// Comparison operator of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Threshold {
    /// Truth of the comparison for all values in `low..=high`; `None` if it differs between them.
    pub fn decide(&self, low: f64, high: f64) -> Option<bool> {
        let holds = |value: f64| match self.comparison {
            Comparison::Less => value < self.limit,
            Comparison::LessEqual => value <= self.limit,
            Comparison::Greater => value > self.limit,
            Comparison::GreaterEqual => value >= self.limit,
        };
        (holds(low) == holds(high)).then(|| holds(low))
    }
}

/// A formula over variables.
///
/// [`StateSpace::evaluate`](crate::StateSpace::evaluate) computes its values.
#[derive(Clone, Debug, PartialEq)]
pub struct StateFormula(pub(crate) Term);

impl StateFormula {
    /// True if the value is true or false, not a number.
    pub fn is_truth(&self) -> bool {
        self.0.ty() == Type::Bool
    }

    /// Evaluates the formula in the states 0 to `states` − 1.
    ///
    /// `variables` appends a state's values, in the order of the variables of
    /// [`Names::bare`](crate::Names::bare).
    pub fn values(&self, states: usize, variables: impl FnMut(usize, &mut Vec<Value>)) -> Result<PerState> {
        let failed = |state: usize, fault: EvalError| Error::State(format!("in the state {state}: {fault}"));
        values_of(&self.0, states, variables, failed)
    }
}

/// Evaluates a term in the states 0 to `states` − 1, with the variables that `given` appends.
fn values_of(
    term: &Term,
    states: usize,
    mut given: impl FnMut(usize, &mut Vec<Value>),
    failed: impl Fn(usize, EvalError) -> Error,
) -> Result<PerState> {
    let (code, ty) = (Code::new(term), term.ty());
    let (mut values, mut cells, mut stack) = (Vec::new(), Vec::new(), Vec::new());
    let mut all = Vec::with_capacity(states);
    for state in 0..states {
        values.clear();
        given(state, &mut values);
        cells.clear();
        cells.extend(values.iter().map(|value| value.cell().cast_signed()));
        all.push(code.run(&cells, &mut stack).map_err(|fault| failed(state, fault))?);
    }
    if ty == Type::Bool {
        return Ok(PerState::Truth(all.into_iter().map(|cell| cell != 0).collect()));
    }
    let number = |cell| Value::of_cell(cell, ty).number().unwrap_or(f64::NAN);
    Ok(PerState::Numbers(all.into_iter().map(number).collect()))
}

/// Operation on the values of other formulas, such as `1 - a` or `a & !b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    term: Term,
    types: Vec<Type>,
}

impl Combination {
    /// True if the value is true or false, not a number.
    pub fn is_truth(&self) -> bool {
        self.term.ty() == Type::Bool
    }

    /// Interval that contains the value for all operands within their intervals.
    ///
    /// Truth values are 0 and 1.
    pub fn range(&self, parts: &[(f64, f64)]) -> (f64, f64) {
        range(&self.term, parts)
    }

    /// Computes the values in all states from those of the operands, which have equal lengths.
    pub fn values(&self, parts: &[PerState]) -> Result<PerState> {
        let states = parts.first().map_or(0, |part| match part {
            PerState::Truth(all) => all.len(),
            PerState::Numbers(all) => all.len(),
        });
        let given = |state: usize, values: &mut Vec<Value>| {
            values.extend(parts.iter().zip(&self.types).map(|(part, ty)| match (part, ty) {
                (PerState::Truth(all), _) => Value::Bool(all[state]),
                (PerState::Numbers(all), Type::Int) => Value::Int(all[state] as i64),
                (PerState::Numbers(all), _) => Value::Double(all[state]),
            }));
        };
        values_of(&self.term, states, given, |_, fault| Error::State(fault.to_string()))
    }
}

/// Parses properties, constants and labels. `name` identifies the text in messages.
///
/// Properties with errors are kept next to valid ones. Fails only for errors outside of them.
pub fn parse(name: &str, text: &str, names: &Names) -> Result<Properties> {
    let source = source(name, text)?;
    let (mut parsed, mut errors) = parser::properties(text);
    let mut names = names.clone();
    for constant in &parsed.constants {
        let entity = Entity::Constant(Some(constant.ty));
        if names.entities.insert(constant.name.text.clone(), entity).is_some() {
            let (span, help) = (constant.name.span, "the model or these properties have it");
            let message = format!("the name '{}' is declared twice", constant.name.text);
            errors.push(Diagnostic::new(span, message, help));
        }
    }
    let list = parsed.constants.iter().map(|c| (&c.name, c.value.as_ref()));
    check_circles("constant", list.collect(), &mut errors);
    let mut checker = Checker::new(&names, &mut errors);
    for constant in &parsed.constants {
        if let Some(value) = &constant.value {
            checker.expect_constant(value, constant.ty, "the value of a constant");
        }
    }
    for label in &parsed.labels {
        checker.expect(&label.body, Type::Bool, "a label");
        define(&mut checker, &label.name, Some(Type::Bool));
    }
    let bodies = parsed.properties.iter().map(|entry| {
        let name = entry.name.as_ref().map_or("", |name| &*name.text);
        (name, entry.body.as_ref().ok())
    });
    let (mut order, circles) = ordered(&bodies.collect::<Vec<_>>(), each_label);
    order.extend(circles);
    for &place in &order {
        let entry = &mut parsed.properties[place];
        let known = checker.errors.len();
        let ty = entry.body.as_ref().ok().and_then(|property| checker.check(property));
        if let Some(name) = &entry.name {
            define(&mut checker, name, ty);
        }
        let wrong = checker.errors.split_off(known);
        match &mut entry.body {
            Err(errors) => errors.extend(wrong),
            Ok(_) if wrong.is_empty() => {}
            body => *body = Err(wrong),
        }
    }
    if !errors.is_empty() {
        errors.extend(parsed.properties.into_iter().filter_map(|entry| entry.body.err()).flatten());
        return Err(Error::Text(Diagnostics::new(&source, errors)));
    }
    let constants = in_order(parsed.constants, |c| (&c.name.text, c.value.as_ref()));
    Ok(Properties { source, constants, labels: parsed.labels, properties: parsed.properties, order, names })
}

/// Declares the name of a label or a property for the properties that follow.
fn define(checker: &mut Checker<'_>, name: &Name, ty: Option<Type>) {
    let known = checker.names.labels.contains(&name.text);
    if known || checker.properties.insert(name.text.clone(), ty).is_some() {
        let message = format!("the name \"{}\" is given twice", name.text);
        checker.error(name.span, message, "a label or a property has it: choose another one");
    }
}

impl Properties {
    /// Constants without a value in this text, which the user has to give.
    pub fn undefined_constants(&self) -> impl Iterator<Item = (&str, Type)> {
        self.constants.iter().filter(|c| c.value.is_none()).map(|c| (&*c.name.text, c.ty))
    }

    /// Number of properties.
    pub fn len(&self) -> usize {
        self.properties.len()
    }

    /// True if there are no properties.
    pub fn is_empty(&self) -> bool {
        self.properties.is_empty()
    }

    /// Name of each property, if it has one.
    pub fn property_names(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.properties.iter().map(|entry| entry.name.as_ref().map(|name| &*name.text))
    }

    /// Text of each property.
    pub fn property_texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.properties.iter().map(|entry| self.text(entry))
    }

    fn text(&self, entry: &ParsedProperty) -> &str {
        let span = entry.body.as_ref().map_or(entry.span, |e| e.span);
        self.source.text[span.range()].trim().trim_end_matches(';')
    }

    /// Names that the properties at `wanted` indices use, directly or through other definitions.
    fn used<'a>(&'a self, wanted: &dyn Fn(usize) -> bool) -> HashSet<&'a str> {
        let mut bodies: HashMap<&str, &Expression> = HashMap::new();
        bodies.extend(self.constants.iter().filter_map(|c| Some((&*c.name.text, c.value.as_ref()?))));
        bodies.extend(self.labels.iter().map(|label| (&*label.name.text, &label.body)));
        let of_entry = |own: &'a ParsedProperty| Some((&*own.name.as_ref()?.text, own.body.as_ref().ok()?));
        bodies.extend(self.properties.iter().filter_map(of_entry));
        let all = self.properties.iter().enumerate().filter(|(k, _)| wanted(*k));
        let mut open: Vec<&Expression> = all.filter_map(|(_, entry)| entry.body.as_ref().ok()).collect();
        let mut used = HashSet::new();
        while let Some(e) = open.pop() {
            each_name(e, &mut |name| {
                if used.insert(name) {
                    open.extend(bodies.get(name));
                }
            });
        }
        used
    }

    /// Resolves the properties at `wanted` indices with values of the constants that they use.
    ///
    /// `instance` belongs to the model to which their names refer; `None` for a chain from a file.
    /// Each property has its own result; an error in a constant fails the call.
    pub fn with_constants(
        &self,
        instance: Option<&Instance>,
        given: &[(String, Value)],
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<std::result::Result<Property, Wrong>>> {
        let used = self.used(wanted);
        let mut meaning = instance.map_or_else(Meaning::default, |instance| instance.meaning.clone());
        for (v, (name, ty)) in self.names.of_file.iter().flatten().enumerate() {
            meaning.variables.insert(name.clone(), (v, *ty));
        }
        meaning.values.extend(values(&self.constants, given, |name| used.contains(name))?);
        let mut resolver = Resolver {
            names: &self.names,
            meaning,
            definitions: HashMap::new(),
            types: HashMap::new(),
            level: 0,
            left: 1_000_000,
        };
        let refused = |error| Error::Text(Diagnostics::new(&self.source, vec![error]));
        for constant in self.constants.iter().filter(|constant| used.contains(&*constant.name.text)) {
            if let Some(e) = &constant.value {
                let value = resolver.value(e, constant.ty).map_err(refused)?;
                resolver.meaning.values.insert(constant.name.text.clone(), value);
            }
        }
        for label in &self.labels {
            resolver.define(&label.name.text, &label.body, Type::Bool);
        }
        let mut all = Vec::new();
        for &place in &self.order {
            let ParsedProperty { name, body, .. } = &self.properties[place];
            let own = name.as_ref().map(|name| name.text.clone());
            let text = self.text(&self.properties[place]).to_owned();
            let wrong = |list: Vec<Diagnostic>| Wrong {
                name: own.clone(),
                text: text.clone(),
                why: Diagnostics::new(&self.source, list),
            };
            let e = match body {
                Ok(e) => e,
                Err(errors) => {
                    all.extend(wanted(place).then(|| (place, Err(wrong(errors.clone())))));
                    continue;
                }
            };
            let ty = resolver.ty(e);
            if wanted(place) {
                let found = resolver.formula(e).map_err(|error| wrong(vec![error]));
                resolver.level = 0;
                let line = self.source.place(e.span);
                let property = |formula| Property { name: own, text, place: line, ty, formula };
                all.push((place, found.map(property)));
            }
            if let Some(name) = name {
                resolver.define(&name.text, e, ty);
            }
        }
        all.sort_by_key(|(place, _)| *place);
        Ok(all.into_iter().map(|(_, found)| found).collect())
    }
}

type Resolved<T> = std::result::Result<T, Diagnostic>;

struct Resolver<'a> {
    names: &'a Names,
    meaning: Meaning,
    /// Labels and properties of the text, by name.
    definitions: HashMap<&'a str, &'a Expression>,
    types: HashMap<String, Option<Type>>,
    level: u16,
    left: usize,
}

impl<'a> Resolver<'a> {
    fn define(&mut self, name: &'a str, body: &'a Expression, ty: Type) {
        self.definitions.insert(name, body);
        self.types.insert(name.to_owned(), Some(ty));
    }

    fn ty(&mut self, e: &Expression) -> Type {
        let mut errors = Vec::new();
        let mut checker = Checker::new(self.names, &mut errors);
        checker.properties = std::mem::take(&mut self.types);
        let ty = checker.check(e).unwrap_or(Type::Double);
        self.types = checker.properties;
        ty
    }

    fn value(&self, e: &Expression, ty: Type) -> Resolved<Value> {
        let value = self.meaning.value(e).map_err(|message| Diagnostic::new(e.span, message, ""))?;
        value.to(ty).ok_or_else(|| Diagnostic::new(e.span, format!("{value} is not of type {ty}"), ""))
    }

    fn number(&self, e: &Expression, what: &str, range: std::ops::RangeInclusive<f64>) -> Resolved<f64> {
        let number = self.value(e, Type::Double)?.number().unwrap_or(f64::NAN);
        if range.contains(&number) {
            return Ok(number);
        }
        let help = match range.end().is_finite() {
            true => format!("it must be from {} to {}", range.start(), range.end()),
            false => format!("it must be {} or more", range.start()),
        };
        Err(Diagnostic::new(e.span, format!("{what} is {number}"), help))
    }

    /// True for an expression without operators. Its labels must have formulas in the model.
    fn is_of_variables(&self, e: &Expression) -> bool {
        match &e.kind {
            Kind::Literal(_) | Kind::Name(_) => true,
            Kind::Label(name) => {
                !self.definitions.contains_key(&**name) && self.meaning.labels.contains_key(name)
            }
            Kind::Operator(_) | Kind::Path(_) => false,
            Kind::Apply(_, parts) => parts.iter().all(|e| self.is_of_variables(e)),
        }
    }

    fn boxed(&mut self, e: &Expression) -> Resolved<Box<Formula>> {
        self.formula(e).map(Box::new)
    }

    fn formula(&mut self, e: &Expression) -> Resolved<Formula> {
        self.left = self.left.saturating_sub(1);
        if self.level > 200 || self.left == 0 {
            return Err(Diagnostic::new(e.span, "properties name one another too often", "write them out"));
        }
        self.level += 1;
        let result = self.of_kind(e);
        self.level -= 1;
        result
    }

    fn of_kind(&mut self, e: &Expression) -> Resolved<Formula> {
        match &e.kind {
            Kind::Operator(operator) => self.operator(operator),
            Kind::Label(name) => match self.definitions.get(&**name) {
                Some(body) => self.formula(body),
                None if self.is_of_variables(e) => self.of_variables(e),
                None => Ok(Formula::Label(name.clone())),
            },
            _ if self.is_of_variables(e) => self.of_variables(e),
            _ => {
                let mut parts = Vec::new();
                let outline = self.outline(e, &mut parts)?;
                let mut meaning = Meaning { values: self.meaning.values.clone(), ..Meaning::default() };
                let types: Vec<Type> = parts.iter().map(|(_, ty)| *ty).collect();
                for (k, ty) in types.iter().enumerate() {
                    meaning.variables.insert(format!("\"{k}"), (k, *ty));
                }
                let term = meaning.term(&outline).map_err(|message| Diagnostic::new(e.span, message, ""))?;
                let formulas = parts.into_iter().map(|(formula, _)| formula).collect();
                Ok(Formula::Combination(Combination { term, types }, formulas))
            }
        }
    }

    fn of_variables(&self, e: &Expression) -> Resolved<Formula> {
        let term = self.meaning.term(e).map_err(|message| Diagnostic::new(e.span, message, ""))?;
        Ok(Formula::State(StateFormula(term)))
    }

    /// Replaces subformulas by placeholder names, and appends them to `parts`.
    ///
    /// Subformulas are operators, labels and the largest expressions over variables.
    fn outline(&mut self, e: &Expression, parts: &mut Vec<(Formula, Type)>) -> Resolved<Expression> {
        let kind = match &e.kind {
            Kind::Literal(_) => e.kind.clone(),
            Kind::Apply(operation, all) if !self.is_of_variables(e) => {
                let all = all.iter().map(|e| self.outline(e, parts)).collect::<Resolved<_>>()?;
                Kind::Apply(*operation, all)
            }
            _ => {
                parts.push((self.formula(e)?, self.ty(e)));
                Kind::Name(format!("\"{}", parts.len() - 1))
            }
        };
        Ok(Expression { kind, span: e.span, depth: e.depth })
    }

    fn bound(&self, bound: Option<&syntax::ParsedThreshold>, most: f64) -> Resolved<Option<Threshold>> {
        let Some(bound) = bound else { return Ok(None) };
        let comparison = match bound.comparison {
            Operation::Less => Comparison::Less,
            Operation::LessEqual => Comparison::LessEqual,
            Operation::Greater => Comparison::Greater,
            _ => Comparison::GreaterEqual,
        };
        let least = if most.is_finite() { 0.0 } else { f64::NEG_INFINITY };
        Ok(Some(Threshold { comparison, limit: self.number(&bound.limit, "the bound", least..=most)? }))
    }

    /// Resolves a time between 0 and `most`, or `otherwise` if it is missing.
    fn time(&self, e: Option<&Expression>, otherwise: f64, most: f64) -> Resolved<f64> {
        let Some(e) = e else { return Ok(otherwise) };
        let time = self.number(e, "the time", 0.0..=most)?;
        if self.names.discrete && time.is_finite() && time.fract() != 0.0 {
            let message = format!("the number of steps is {time}");
            return Err(Diagnostic::new(e.span, message, "time is discrete: it must be a whole number"));
        }
        Ok(time)
    }

    fn until(&mut self, operator: &Operator) -> Resolved<PathFormula> {
        let part = |part: &Expression| match operator.form {
            Modality::Globally => self.boxed(&part.negated()),
            _ => self.boxed(part),
        };
        let mut parts = operator.parts.iter().map(part).collect::<Resolved<Vec<_>>>()?;
        let (right, left) = (parts.pop().expect("one operand or two"), parts.pop());
        let (from, to) = self.interval(&operator.times)?;
        Ok(PathFormula::Until { left, right, from, to })
    }

    /// Resolves the times of a path formula.
    fn interval(&self, times: &syntax::Times) -> Resolved<(f64, f64)> {
        let mut from = self.time(times.from.as_ref(), 0.0, f64::INFINITY)?;
        let mut to = self.time(times.to.as_ref(), f64::INFINITY, f64::INFINITY)?;
        if times.strict && self.names.discrete {
            from += f64::from(u8::from(times.from.is_some()));
            to -= f64::from(u8::from(times.to.is_some()));
        }
        if from > to || from == f64::INFINITY {
            let span = times.each().next().map_or(Span::default(), |e| e.span);
            let message = format!("the interval [{from},{to}] is empty");
            return Err(Diagnostic::new(span, message, "the earlier time comes first"));
        }
        Ok((from, to))
    }

    /// Resolves a formula of LTL, or its negation.
    fn ltl(&mut self, e: &Expression, not: bool) -> Resolved<Ltl> {
        use Operation as O;
        if !e.has_path() {
            return self.boxed(&if not { e.negated() } else { e.clone() }).map(Ltl::State);
        }
        let junction = |and: bool, parts| if and != not { Ltl::And(parts) } else { Ltl::Or(parts) };
        match &e.kind {
            Kind::Apply(O::Not, parts) => self.ltl(&parts[0], !not),
            Kind::Apply(operation @ (O::And | O::Or | O::Implies), parts) => {
                let first = self.ltl(&parts[0], not != (*operation == O::Implies))?;
                Ok(junction(*operation == O::And, vec![first, self.ltl(&parts[1], not)?]))
            }
            Kind::Apply(O::If | O::Iff, parts) => {
                // a <=> b is a ? b : !b.
                let (yes, other) = (self.ltl(&parts[1], not)?, parts.get(2).unwrap_or(&parts[1]));
                let other = self.ltl(other, not != (parts.len() == 2))?;
                let (holds, fails) = (self.ltl(&parts[0], false)?, self.ltl(&parts[0], true)?);
                Ok(Ltl::Or(vec![Ltl::And(vec![holds, yes]), Ltl::And(vec![fails, other])]))
            }
            Kind::Path(path) => self.ltl_path(path, not),
            _ => Err(parser::ltl(e.span)),
        }
    }

    fn ltl_path(&mut self, path: &Operator, not: bool) -> Resolved<Ltl> {
        let Operator { form, parts, times, .. } = path;
        if *form == Modality::Next {
            return self.ltl(&parts[0], not).map(|then| Ltl::Next(Box::new(then)));
        }
        if let Some(time) = times.each().next().filter(|_| !self.names.discrete) {
            return Err(parser::ltl(time.span));
        }
        // G a is false R a, and the negation of F !a.
        let release = not != matches!(form, Modality::Globally | Modality::NotUntil);
        let negated = if *form == Modality::Globally { not } else { release };
        let right = self.ltl(&parts[parts.len() - 1], negated)?;
        let left = match &parts[..parts.len() - 1] {
            [left] => self.ltl(left, negated)?,
            _ if release => Ltl::Or(Vec::new()),
            _ => Ltl::And(Vec::new()),
        };
        Ok(Ltl::Until { release, operands: Box::new([left, right]), times: self.interval(times)? })
    }

    fn operator(&mut self, operator: &Operator) -> Resolved<Formula> {
        let (form, parts) = (operator.form, &operator.parts);
        let most = if form.is_reward() { f64::INFINITY } else { 1.0 };
        let bound = self.bound(operator.bound.as_ref(), most)?;
        let time = || self.time(operator.times.to.as_ref(), 0.0, f64::MAX);
        let reward = |goal| Formula::Reward { structure: operator.structure.0.clone(), bound, goal };
        Ok(match form {
            Modality::Cumulative if operator.times.to.is_none() => reward(RewardKind::Total),
            Modality::Cumulative => reward(RewardKind::Cumulative(time()?)),
            Modality::Instantaneous => reward(RewardKind::Instantaneous(time()?)),
            Modality::Reach if parts[0].has_path() => reward(RewardKind::Ltl(self.ltl(&parts[0], false)?)),
            Modality::Reach => reward(RewardKind::Reach(self.boxed(&parts[0])?)),
            Modality::Time => reward(RewardKind::Time(self.boxed(&parts[0])?)),
            Modality::LongRun => reward(RewardKind::SteadyState),
            Modality::SteadyState => Formula::SteadyState { bound, states: self.boxed(&parts[0])? },
            Modality::Ltl | Modality::Exists | Modality::Step | Modality::Next => {
                let path = match form {
                    Modality::Ltl => PathFormula::Ltl(self.ltl(&parts[0], false)?),
                    Modality::Exists => PathFormula::Exists(self.ltl(&parts[0], false)?),
                    Modality::Step => PathFormula::Step(self.boxed(&parts[0])?),
                    _ => PathFormula::Next(self.boxed(&parts[0])?),
                };
                Formula::Probability { bound, path, complement: false }
            }
            Modality::Until | Modality::Finally | Modality::Globally | Modality::NotUntil => {
                let path = self.until(operator)?;
                let complement = matches!(form, Modality::Globally | Modality::NotUntil);
                Formula::Probability { bound, path, complement }
            }
            Modality::Filter(kind) => Formula::Filter {
                kind,
                formula: self.boxed(&parts[0])?,
                states: parts.get(1).map(|states| self.boxed(states)).transpose()?,
            },
        })
    }
}
