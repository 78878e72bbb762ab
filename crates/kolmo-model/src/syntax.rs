//! Syntax trees of models and properties, as the parser leaves them: names are not resolved yet.

use std::fmt;
use std::str::FromStr;

use crate::diagnostics::{Diagnostic, Span};

/// A value of a constant or of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of type `int`.
    Int(i64),
    /// Of type `double`.
    Double(f64),
    /// Of type `bool`.
    Bool(bool),
}

/// The type of a constant, a variable or an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Whole numbers of 64 bits, checked.
    Int,
    /// Binary64.
    Double,
    /// `true` and `false`.
    Bool,
}

impl Value {
    /// The type.
    pub fn ty(self) -> Type {
        match self {
            Self::Int(_) => Type::Int,
            Self::Double(_) => Type::Double,
            Self::Bool(_) => Type::Bool,
        }
    }

    /// The value as one of this type; whole numbers become doubles, nothing else changes.
    pub fn to(self, ty: Type) -> Option<Self> {
        match (self, ty) {
            (Self::Int(i), Type::Double) => Some(Self::Double(i as f64)),
            (value, ty) => (value.ty() == ty).then_some(value),
        }
    }

    /// The number, if it is one.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(i as f64),
            Self::Double(d) => Some(d),
            Self::Bool(_) => None,
        }
    }
}

impl Value {
    /// The number of a text that is no integer's: 1e5 is one all the same, which serves for a double, too.
    fn of_double(value: f64) -> Self {
        let whole = value.fract() == 0.0 && value.abs() <= 2f64.powi(53);
        if whole { Self::Int(value as i64) } else { Self::Double(value) }
    }
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "true" => Ok(Self::Bool(true)),
            "false" => Ok(Self::Bool(false)),
            text => (text.parse().map(Self::Int))
                .or_else(|_| text.parse().map(Self::of_double))
                .ok()
                .filter(|value| value.number().is_none_or(f64::is_finite))
                .ok_or_else(|| format!("'{text}' is no number and neither true nor false")),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(i) => i.fmt(f),
            Self::Double(d) => d.fmt(f),
            Self::Bool(b) => b.fmt(f),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Int => "int",
            Self::Double => "double",
            Self::Bool => "bool",
        })
    }
}

/// A name where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// Levels of the tree, which is walked by recursion.
    pub(crate) depth: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Value),
    Name(String),
    /// A label, or in a properties file a property, by its name in quotation marks.
    Label(String),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    /// `a ? b : c`.
    If(Box<[Expression; 3]>),
    Call(Function, Vec<Expression>),
    /// `P`, `R`, `S` or a filter.
    Operator(Box<Operator>),
}

impl Expression {
    /// Calls `f` with the expressions that it is made of.
    pub(crate) fn each_part<'a>(&'a self, f: &mut dyn FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Name(_) | Kind::Label(_) => {}
            Kind::Unary(_, a) => f(a),
            Kind::Binary(_, a, b) => [a, b].into_iter().for_each(|e| f(e)),
            Kind::If(all) => all.iter().for_each(f),
            Kind::Call(_, all) => all.iter().for_each(f),
            Kind::Operator(operator) => operator.each_part(f),
        }
    }
}

impl Operator {
    fn each_part<'a>(&'a self, f: &mut dyn FnMut(&'a Expression)) {
        let (bound, mut parts, times) = match self {
            Self::Probability(bound, path) => match path {
                Path::Next(a) => (bound, vec![a], None),
                Path::Until(a, b, times) => (bound, vec![a, b], Some(times)),
                Path::Finally(a, times) | Path::Globally(a, times) => (bound, vec![a], Some(times)),
            },
            Self::Reward(_, _, bound, goal) => match goal {
                Goal::Cumulative(e) | Goal::Instantaneous(e) | Goal::Reach(e) | Goal::Time(e) => {
                    (bound, vec![e], None)
                }
                Goal::SteadyState => (bound, vec![], None),
            },
            Self::SteadyState(bound, a) => (bound, vec![a], None),
            Self::Filter(_, a, states) => (&None, [a].into_iter().chain(states).collect(), None),
        };
        parts.extend(bound.iter().map(|bound| &bound.limit));
        parts.extend(times.iter().flat_map(|times| times.from.iter().chain(&times.to)));
        parts.into_iter().for_each(f);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Minus,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Implies,
    Iff,
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Plus,
    Minus,
    Times,
    Divide,
}

impl Binary {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Implies => "=>",
            Self::Iff => "<=>",
            Self::Or => "|",
            Self::And => "&",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Divide => "/",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Min,
    Max,
    Floor,
    Ceil,
    Round,
    Pow,
    Mod,
    Log,
}

impl Function {
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "min" => Self::Min,
            "max" => Self::Max,
            "floor" => Self::Floor,
            "ceil" => Self::Ceil,
            "round" => Self::Round,
            "pow" => Self::Pow,
            "mod" => Self::Mod,
            "log" => Self::Log,
            _ => return None,
        })
    }
}

/// `P`, `R`, `S` or a filter within a property.
#[derive(Clone, Debug)]
pub(crate) enum Operator {
    Probability(Option<Bound>, Path),
    Reward(Option<String>, Span, Option<Bound>, Goal),
    SteadyState(Option<Bound>, Expression),
    Filter(FilterKind, Expression, Option<Expression>),
}

/// `>= p`; none stands for `=?`.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) comparison: Binary,
    pub(crate) limit: Expression,
}

#[derive(Clone, Debug)]
pub(crate) enum Path {
    Next(Expression),
    Until(Expression, Expression, Times),
    Finally(Expression, Times),
    Globally(Expression, Times),
}

/// Times at which a path formula may come true: from (0) and to (without end).
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) from: Option<Expression>,
    pub(crate) to: Option<Expression>,
}

#[derive(Clone, Debug)]
pub(crate) enum Goal {
    Cumulative(Expression),
    Instantaneous(Expression),
    Reach(Expression),
    Time(Expression),
    SteadyState,
}

/// What a filter makes of the values of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// The least value.
    Min,
    /// The largest value.
    Max,
    /// The mean value.
    Average,
    /// The sum of the values.
    Sum,
    /// How many states it is true in.
    Count,
    /// The value of the first state.
    First,
    /// The value of the one state.
    State,
    /// The range of the values.
    Range,
    /// True in all states.
    ForAll,
    /// True in some state.
    Exists,
    /// Every value that is not zero or false, state by state.
    Print,
    /// Every value, state by state.
    PrintAll,
    /// The states with the least value.
    ArgMin,
    /// The states with the largest value.
    ArgMax,
}

impl FilterKind {
    pub(crate) const NAMES: [(&'static str, Self); 15] = [
        ("min", Self::Min),
        ("max", Self::Max),
        ("avg", Self::Average),
        ("sum", Self::Sum),
        ("count", Self::Count),
        ("first", Self::First),
        ("state", Self::State),
        ("range", Self::Range),
        ("forall", Self::ForAll),
        ("exists", Self::Exists),
        ("print", Self::Print),
        ("printall", Self::PrintAll),
        ("argmin", Self::ArgMin),
        ("argmax", Self::ArgMax),
        ("average", Self::Average),
    ];
}

/// `const double mu = 2;`; without a value if it is to be given.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) name: Name,
    pub(crate) ty: Type,
    pub(crate) value: Option<Expression>,
}

/// `formula f = e;` or `label "f" = e;`.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: Name,
    pub(crate) body: Expression,
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Name,
    pub(crate) range: Range,
    pub(crate) init: Option<Expression>,
}

#[derive(Clone, Debug)]
pub(crate) enum Range {
    Bool,
    Int(Expression, Expression),
    Unbounded,
}

#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) name: Name,
    pub(crate) variables: Vec<Variable>,
    pub(crate) commands: Vec<Command>,
}

#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) action: Option<Name>,
    pub(crate) guard: Expression,
    pub(crate) updates: Vec<Update>,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// None stands for 1.
    pub(crate) rate: Option<Expression>,
    pub(crate) assignments: Vec<(Name, Expression)>,
}

/// `module B = A [ x=y, … ] endmodule`.
#[derive(Clone, Debug)]
pub(crate) struct Renaming {
    pub(crate) name: Name,
    pub(crate) original: Name,
    pub(crate) pairs: Vec<(Name, Name)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Rewards {
    pub(crate) name: Option<Name>,
    pub(crate) items: Vec<RewardItem>,
}

#[derive(Clone, Debug)]
pub(crate) struct RewardItem {
    pub(crate) of: Rewarded,
    pub(crate) guard: Expression,
    pub(crate) value: Expression,
}

/// States, or transitions with this action (none: those without).
#[derive(Clone, Debug)]
pub(crate) enum Rewarded {
    States,
    Transitions(Option<Name>),
}

/// `system … endsystem`.
#[derive(Clone, Debug)]
pub(crate) enum System {
    Module(Name),
    /// `A || B`: together on the actions that both have.
    Parallel(Vec<Self>),
    /// `A ||| B`: together on none.
    Interleaved(Vec<Self>),
    /// `A |[a, b]| B`.
    On(Box<Self>, Vec<Name>, Box<Self>),
    /// `A / {a, b}`.
    Hide(Box<Self>, Vec<Name>),
    /// `A {a<-b}`.
    Rename(Box<Self>, Vec<(Name, Name)>),
}

/// What stands in a model, in the order of the text within each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelText {
    pub(crate) constants: Vec<Constant>,
    pub(crate) formulas: Vec<Definition>,
    pub(crate) labels: Vec<Definition>,
    pub(crate) globals: Vec<Variable>,
    pub(crate) modules: Vec<Part>,
    pub(crate) rewards: Vec<Rewards>,
    pub(crate) init: Option<Expression>,
    pub(crate) system: Option<(System, Span)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Module(Module),
    Renaming(Renaming),
}

/// What stands in a properties file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropertiesText {
    pub(crate) constants: Vec<Constant>,
    pub(crate) labels: Vec<Definition>,
    pub(crate) properties: Vec<Entry>,
}

/// A property as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Option<Name>,
    pub(crate) span: Span,
    /// Its formula, or why it is none.
    pub(crate) body: Result<Expression, Vec<Diagnostic>>,
}
