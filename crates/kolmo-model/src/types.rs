//! Types of expressions, and the names that expressions may use.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::diagnostics::{Diagnostic, PRINTED, Span};
use crate::syntax::{Expression, FilterKind, Kind, Modality, Operation, Operator, Type};

/// Kind and type of a name. The type is `None` if the definition has an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entity {
    Constant(Option<Type>),
    Variable(Option<Type>),
    Formula(Option<Type>),
}

impl Entity {
    fn ty(self) -> Option<Type> {
        match self {
            Self::Constant(ty) | Self::Variable(ty) | Self::Formula(ty) => ty,
        }
    }
}

/// Names that properties may use: those of a model, or of a chain from a file.
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(crate) entities: BTreeMap<String, Entity>,
    pub(crate) labels: BTreeSet<String>,
    /// Names of the reward structures in their order, "" for an unnamed structure.
    pub(crate) rewards: Vec<String>,
    /// Index of each reward structure of a model by its name.
    ///
    /// A structure is also found by its number, from 1, and the first unnamed one by "".
    pub(crate) structures: HashMap<String, usize>,
    /// Variables of a chain from a file, in the order of their values. `None` for a model.
    pub(crate) of_file: Option<Vec<(String, Type)>>,
    /// True for a chain in discrete time, in which times are numbers of steps.
    pub(crate) discrete: bool,
}

impl Names {
    /// Names of a chain from a file: labels, reward structures and variables.
    ///
    /// The name of an unnamed structure is "".
    pub fn bare<L: Into<String>, R: Into<String>>(
        labels: impl IntoIterator<Item = L>,
        rewards: impl IntoIterator<Item = R>,
        variables: Vec<(String, Type)>,
    ) -> Self {
        let entity = |(name, ty): &(String, Type)| (name.clone(), Entity::Variable(Some(*ty)));
        Self {
            entities: variables.iter().map(entity).collect(),
            of_file: Some(variables),
            labels: labels.into_iter().map(Into::into).chain(["init".into(), "deadlock".into()]).collect(),
            rewards: rewards.into_iter().map(Into::into).collect(),
            structures: HashMap::new(),
            discrete: false,
        }
    }

    /// Sets whether time is discrete, so that times in properties are numbers of steps.
    #[must_use]
    pub fn discrete(self, discrete: bool) -> Self {
        Self { discrete, ..self }
    }
}

/// Formats at most ten names for a message.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).take(11).collect();
    if names.len() > 10 {
        names[10] = "…";
    }
    names.join(", ")
}

/// Returns "did you mean x?" for a known name close to `name`, else `otherwise`.
pub(crate) fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    known
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(|| otherwise.to_owned(), |(_, other)| format!("did you mean '{other}'?"))
}

/// Type checker, which collects errors.
pub(crate) struct Checker<'a> {
    pub(crate) names: &'a Names,
    pub(crate) errors: &'a mut Vec<Diagnostic>,
    /// Role of an expression that must be constant, for messages. Variables are errors in it.
    pub(crate) constant: Option<&'static str>,
    /// Types of the labels and properties defined in the properties file so far, by name.
    pub(crate) properties: HashMap<String, Option<Type>>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(names: &'a Names, errors: &'a mut Vec<Diagnostic>) -> Self {
        Self { names, errors, constant: None, properties: HashMap::new() }
    }

    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.errors.push(Diagnostic::new(span, message, help));
    }

    /// Checks that an expression has a type. Integers are accepted as doubles.
    pub(crate) fn expect(&mut self, e: &Expression, ty: Type, what: &str) {
        let Some(found) = self.check(e) else { return };
        let fits = found == ty || (ty == Type::Double && found == Type::Int);
        if !fits {
            let help = match (ty, found) {
                (Type::Int, Type::Double) => "use floor(…), ceil(…) or round(…); '/' always gives a double",
                (Type::Bool, _) => "compare it with something: x > 0",
                (_, Type::Bool) => "write condition ? 1 : 0",
                _ => "",
            };
            let wanted = match ty {
                Type::Int => "a whole number",
                Type::Double => "a number",
                Type::Bool => "true or false",
            };
            self.error(e.span, format!("{what} must be {wanted}, but this is of type {found}"), help);
        }
    }

    /// Checks as [`expect`](Self::expect) does, and rejects variables.
    pub(crate) fn expect_constant(&mut self, e: &Expression, ty: Type, what: &'static str) {
        self.constant = Some(what);
        self.expect(e, ty, what);
        self.constant = None;
    }

    /// Returns the type, or `None` after reporting an error.
    pub(crate) fn check(&mut self, e: &Expression) -> Option<Type> {
        match &e.kind {
            Kind::Literal(value) => Some(value.ty()),
            Kind::Name(name) => self.name(name, e.span),
            Kind::Label(name) => self.label(name, e.span),
            Kind::Apply(operation, parts) => self.apply(*operation, parts, e.span),
            Kind::Operator(operator) => self.operator(operator),
            Kind::Path(operator) => self.operator(operator).map(|_| Type::Bool),
        }
    }

    /// Returns a suggestion by [`similar`]; without names if there are many errors, to save time.
    fn near<'k>(&self, name: &str, known: impl Iterator<Item = &'k str>, otherwise: &str) -> String {
        let looked_at = self.errors.len() < PRINTED;
        similar(name, known.take(if looked_at { usize::MAX } else { 0 }), otherwise)
    }

    fn name(&mut self, name: &str, span: Span) -> Option<Type> {
        let Some(entity) = self.names.entities.get(name) else {
            if self.names.labels.contains(name) || self.properties.contains_key(name) {
                let what = if self.names.labels.contains(name) { "label" } else { "property" };
                let message = format!("'{name}' is a {what}: put its name in quotation marks");
                self.error(span, message, format!("write \"{name}\""));
                return None;
            }
            let known = self.names.entities.keys().map(String::as_str);
            let otherwise = match &self.names.of_file {
                None => "declare it as a constant, a variable or a formula".to_owned(),
                Some(all) if all.is_empty() => format!(
                    "the states of this chain have no variables; name labels in quotation marks: {}",
                    listed(self.names.labels.iter().map(String::as_str))
                ),
                Some(all) => format!("the chain has: {}", listed(all.iter().map(|(name, _)| &**name))),
            };
            let help = match name.to_ascii_lowercase().as_str() {
                "inf" | "infinity" => "times without an end are written >=t, or left out".to_owned(),
                _ => self.near(name, known, &otherwise),
            };
            self.error(span, format!("the name '{name}' is not known"), help);
            return None;
        };
        if let (Some(what), Entity::Variable(_)) = (self.constant, entity) {
            let message = format!("{what} must be a constant, but '{name}' is a variable");
            self.error(span, message, "use constants and numbers only");
            return None;
        }
        entity.ty()
    }

    fn label(&mut self, name: &str, span: Span) -> Option<Type> {
        if let Some(ty) = self.properties.get(name) {
            return *ty;
        }
        if self.names.labels.contains(name) && self.constant.is_none() {
            return Some(Type::Bool);
        }
        let known = || self.names.labels.iter().map(String::as_str);
        let otherwise = match &self.names.of_file {
            _ if self.names.entities.contains_key(name) => format!("write {name} without quotation marks"),
            None => "labels are written label \"name\" = condition;".to_owned(),
            Some(_) => format!("the chain has: {}", listed(known())),
        };
        let help = self.near(name, known(), &otherwise);
        self.error(span, format!("the label \"{name}\" is not known here"), help);
        None
    }

    fn numeric(&mut self, e: &Expression, what: &str) -> Option<Type> {
        let ty = self.check(e)?;
        if ty == Type::Bool {
            let message = format!("{what} must be a number, but this is of type bool");
            self.error(e.span, message, "write condition ? 1 : 0");
            return None;
        }
        Some(ty)
    }

    /// Checks all parts of an operation as numbers, and returns their common type.
    fn numbers(&mut self, parts: &[Expression], what: &str) -> Option<Type> {
        let types: Vec<Option<Type>> = parts.iter().map(|part| self.numeric(part, what)).collect();
        types.into_iter().reduce(|a, b| Some(joined(a?, b?)))?
    }

    fn apply(&mut self, operation: Operation, parts: &[Expression], span: Span) -> Option<Type> {
        use Operation as O;
        let operand = || format!("each operand of '{}'", operation.sign());
        match operation {
            O::Not => {
                self.expect(&parts[0], Type::Bool, "the operand of '!'");
                Some(Type::Bool)
            }
            O::Negate => self.numeric(&parts[0], "the operand of '-'"),
            O::Implies | O::Iff | O::Or | O::And => {
                parts.iter().for_each(|part| self.expect(part, Type::Bool, &operand()));
                Some(Type::Bool)
            }
            O::Equal | O::NotEqual => {
                let (left, right) = (self.check(&parts[0]), self.check(&parts[1]));
                let (left, right) = (left?, right?);
                if (left == Type::Bool) != (right == Type::Bool) {
                    let message = format!("a value of type {left} is compared with one of type {right}");
                    self.error(span, message, "compare numbers with numbers; '&' binds less than '='");
                    return None;
                }
                Some(Type::Bool)
            }
            O::Less | O::LessEqual | O::Greater | O::GreaterEqual => {
                self.numbers(parts, &operand());
                Some(Type::Bool)
            }
            O::Plus | O::Minus | O::Times => self.numbers(parts, &operand()),
            O::Divide => self.numbers(parts, &operand()).map(|_| Type::Double),
            O::If => {
                self.expect(&parts[0], Type::Bool, "the condition of '?'");
                let (yes, no) = (self.check(&parts[1]), self.check(&parts[2]));
                let (yes, no) = (yes?, no?);
                if (yes == Type::Bool) != (no == Type::Bool) {
                    let message = format!("the values of this choice are of types {yes} and {no}");
                    self.error(span, message, "both have to be numbers, or both true or false");
                    return None;
                }
                Some(joined(yes, no))
            }
            O::Mod => {
                parts.iter().for_each(|part| self.expect(part, Type::Int, "each argument of mod"));
                Some(Type::Int)
            }
            O::Min | O::Max | O::Pow | O::Log | O::Floor | O::Ceil | O::Round => {
                let ty = self.numbers(parts, "each argument of a function")?;
                Some(match operation {
                    O::Floor | O::Ceil | O::Round => Type::Int,
                    O::Log => Type::Double,
                    _ => ty,
                })
            }
        }
    }

    fn operator(&mut self, operator: &Operator) -> Option<Type> {
        let what = match operator.form {
            Modality::Next | Modality::Step => "the operand of X",
            Modality::Finally | Modality::Globally => "the operand of F or G",
            Modality::Until | Modality::NotUntil => "each operand of U, W or R",
            Modality::Ltl | Modality::Exists => "a path formula",
            Modality::SteadyState => "the operand of S",
            Modality::Reach
            | Modality::Time
            | Modality::Cumulative
            | Modality::Instantaneous
            | Modality::LongRun => "the operand of F",
            Modality::Filter(kind) => {
                if let Some(states) = operator.parts.get(1) {
                    self.expect(states, Type::Bool, "the set of states of a filter");
                }
                return self.filter(kind, &operator.parts[0]);
            }
        };
        if operator.form.is_reward() && operator.form != Modality::Time {
            self.structure(&operator.structure);
        }
        let operand = if operator.form == Modality::Step { Type::Double } else { Type::Bool };
        operator.parts.iter().for_each(|part| self.expect(part, operand, what));
        operator.times.each().for_each(|time| self.expect_constant(time, Type::Double, "a time"));
        let Some(bound) = &operator.bound else { return Some(Type::Double) };
        self.expect_constant(&bound.limit, Type::Double, "a bound");
        Some(Type::Bool)
    }

    fn structure(&mut self, (name, span): &(Option<String>, Span)) {
        let (known, span) = (&self.names.rewards, *span);
        let of_file = self.names.of_file.is_some();
        match name {
            None if known.is_empty() && of_file => {
                let help = "a .tra has them in a .srew or .trew next to it, a .drn inside";
                self.error(span, "the chain has no rewards", help);
            }
            None if known.is_empty() => {
                self.error(span, "the model has no rewards", "add rewards … endrewards");
            }
            Some(name)
                if !known.contains(name)
                    && !name.parse::<usize>().is_ok_and(|k| (1..=known.len()).contains(&k)) =>
            {
                let names = || known.iter().map(String::as_str);
                let otherwise = match of_file {
                    false => "add rewards \"name\" … endrewards".to_owned(),
                    true if known.is_empty() => {
                        "the chain has none; a .tra has them in a .srew or .trew next to it".to_owned()
                    }
                    true => format!("the chain has: {}", listed(names())),
                };
                let help = self.near(name, names(), &otherwise);
                self.error(span, format!("the reward structure \"{name}\" is not known"), help);
            }
            _ => {}
        }
    }

    fn filter(&mut self, kind: FilterKind, property: &Expression) -> Option<Type> {
        use FilterKind as F;
        match kind {
            F::Count | F::ForAll | F::Exists => {
                self.expect(property, Type::Bool, "the property of this filter");
                Some(if kind == F::Count { Type::Int } else { Type::Bool })
            }
            F::First | F::State | F::Print | F::PrintAll => self.check(property),
            F::Min | F::Max | F::Sum | F::Range | F::ArgMin | F::ArgMax => {
                self.numeric(property, "the property of this filter")
            }
            F::Average => self.numeric(property, "the property of this filter").map(|_| Type::Double),
        }
    }
}

/// Common type of two numbers.
fn joined(a: Type, b: Type) -> Type {
    if a == b { a } else { Type::Double }
}

/// Calls `f` with every name in an expression, including those of labels and properties.
pub(crate) fn each_name<'a>(e: &'a Expression, f: &mut dyn FnMut(&'a str)) {
    if let Kind::Name(name) | Kind::Label(name) = &e.kind {
        f(name);
    }
    e.each_part(&mut |part| each_name(part, f));
}

/// Calls `f` with the name of every label and property in an expression.
pub(crate) fn each_label<'a>(e: &'a Expression, f: &mut dyn FnMut(&'a str)) {
    if let Kind::Label(name) = &e.kind {
        f(name);
    }
    e.each_part(&mut |part| each_label(part, f));
}

/// Sorts definitions topologically: each follows those that it uses.
///
/// Returns their indices, and separately those of definitions that depend on a cycle.
///
/// `each` calls a function with each name in an expression that may be one of theirs.
pub(crate) fn ordered<'a>(
    definitions: &[(&'a str, Option<&'a Expression>)],
    each: fn(&'a Expression, &mut dyn FnMut(&'a str)),
) -> (Vec<usize>, Vec<usize>) {
    let numbers: HashMap<&str, usize> = definitions.iter().enumerate().map(|(k, d)| (d.0, k)).collect();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); definitions.len()];
    let mut missing = vec![0_usize; definitions.len()];
    for (k, (_, body)) in definitions.iter().enumerate() {
        let Some(body) = body else { continue };
        let mut used: BTreeSet<usize> = BTreeSet::new();
        each(body, &mut |name| used.extend(numbers.get(name)));
        missing[k] = used.len();
        used.into_iter().for_each(|other| users[other].push(k));
    }
    let mut order: Vec<usize> = (0..definitions.len()).filter(|k| missing[*k] == 0).collect();
    let mut at = 0;
    while let Some(&done) = order.get(at) {
        at += 1;
        for &user in &users[done] {
            missing[user] -= 1;
            if missing[user] == 0 {
                order.push(user);
            }
        }
    }
    let circles = (0..definitions.len()).filter(|k| missing[*k] > 0).collect();
    (order, circles)
}
