//! Syntax trees of models and properties, with unresolved names.

use std::fmt;
use std::str::FromStr;

use crate::diagnostics::{Diagnostic, Span};

/// Value of a constant or an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A value of type `int`.
    Int(i64),
    /// A value of type `double`.
    Double(f64),
    /// A value of type `bool`.
    Bool(bool),
}

/// Type of a constant, a variable or an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Type {
    /// 64-bit integers, checked for overflow.
    Int,
    /// IEEE 754 binary64.
    Double,
    /// `true` and `false`.
    Bool,
}

impl Value {
    /// Type of the value.
    pub fn ty(self) -> Type {
        match self {
            Self::Int(_) => Type::Int,
            Self::Double(_) => Type::Double,
            Self::Bool(_) => Type::Bool,
        }
    }

    /// Converts to a type. Integers become doubles; other changes of type give `None`.
    pub fn to(self, ty: Type) -> Option<Self> {
        match (self, ty) {
            (Self::Int(i), Type::Double) => Some(Self::Double(i as f64)),
            (value, ty) => (value.ty() == ty).then_some(value),
        }
    }

    /// The value as a number, or `None` for a boolean.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(i as f64),
            Self::Double(d) => Some(d),
            Self::Bool(_) => None,
        }
    }
}

impl Value {
    /// Value of a number that is not written as an integer.
    ///
    /// `1e5` becomes an integer, since integers also serve as doubles.
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
                .ok_or_else(|| format!("invalid value '{text}': expected a number, true or false")),
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

/// A name and its position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// Number of levels of the tree, which is walked by recursion.
    pub(crate) depth: u16,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Literal(Value),
    Name(String),
    /// A label by its name in quotation marks. In a properties file, also a property.
    Label(String),
    Apply(Operation, Vec<Expression>),
    Operator(Box<Operator>),
    /// Path formula, in `P`, `R` and formulas of LTL.
    Path(Box<Operator>),
}

impl Expression {
    pub(crate) fn operator(operator: Operator, span: Span) -> Self {
        Self { kind: Kind::Operator(Box::new(operator)), span, depth: 1 }
    }

    /// True if the expression contains a path formula.
    pub(crate) fn has_path(&self) -> bool {
        match &self.kind {
            Kind::Path(_) => true,
            Kind::Apply(_, parts) => parts.iter().any(Self::has_path),
            _ => false,
        }
    }

    /// Calls `f` with each direct subexpression.
    pub(crate) fn each_part<'a>(&'a self, f: &mut dyn FnMut(&'a Self)) {
        match &self.kind {
            Kind::Literal(_) | Kind::Name(_) | Kind::Label(_) => {}
            Kind::Apply(_, parts) => parts.iter().for_each(f),
            Kind::Operator(operator) | Kind::Path(operator) => {
                let bound = operator.bound.iter().map(|bound| &bound.limit);
                operator.parts.iter().chain(bound).chain(operator.times.each()).for_each(f);
            }
        }
    }

    /// Negates the expression.
    pub(crate) fn negated(&self) -> Self {
        Self { kind: Kind::Apply(Operation::Not, vec![self.clone()]), span: self.span, depth: self.depth + 1 }
    }

    /// Conjunction with another expression.
    pub(crate) fn and(self, other: Self) -> Self {
        let (span, depth) = (self.span.to(other.span), self.depth.max(other.depth) + 1);
        Self { kind: Kind::Apply(Operation::And, vec![self, other]), span, depth }
    }
}

/// Operation on one or more values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Not,
    Negate,
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
    /// `a ? b : c`.
    If,
    Min,
    Max,
    Floor,
    Ceil,
    Round,
    Pow,
    Mod,
    Log,
}

impl Operation {
    /// Signs between two operands, with their precedences.
    const SIGNS: [(&'static str, Self, u8); 14] = [
        ("=>", Self::Implies, 1),
        ("<=>", Self::Iff, 2),
        ("|", Self::Or, 3),
        ("&", Self::And, 4),
        ("=", Self::Equal, 6),
        ("!=", Self::NotEqual, 6),
        ("<", Self::Less, 7),
        ("<=", Self::LessEqual, 7),
        (">", Self::Greater, 7),
        (">=", Self::GreaterEqual, 7),
        ("+", Self::Plus, 8),
        ("-", Self::Minus, 8),
        ("*", Self::Times, 9),
        ("/", Self::Divide, 9),
    ];

    const FUNCTIONS: [(&'static str, Self); 8] = [
        ("min", Self::Min),
        ("max", Self::Max),
        ("floor", Self::Floor),
        ("ceil", Self::Ceil),
        ("round", Self::Round),
        ("pow", Self::Pow),
        ("mod", Self::Mod),
        ("log", Self::Log),
    ];

    /// Operation of a sign between two operands, and its precedence.
    pub(crate) fn of_sign(sign: &str) -> Option<(Self, u8)> {
        Self::SIGNS
            .iter()
            .find(|known| known.0 == sign)
            .map(|(_, operation, strength)| (*operation, *strength))
    }

    /// Sign between two operands, "" for other operations.
    pub(crate) fn sign(self) -> &'static str {
        Self::SIGNS.iter().find(|known| known.1 == self).map_or("", |known| known.0)
    }

    pub(crate) fn of_function(name: &str) -> Option<Self> {
        Self::FUNCTIONS.iter().find(|known| known.0 == name).map(|known| known.1)
    }
}

/// Operator in a property: `P`, `R`, `S`, `T` or a filter.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) form: Modality,
    pub(crate) bound: Option<ParsedThreshold>,
    /// Operands. Of a filter, the property and optionally the states.
    pub(crate) parts: Vec<Expression>,
    /// Times of a path formula. For a reward at or until a time, `to` is the time.
    pub(crate) times: Times,
    /// Name of the reward structure, if it has one, and the place for errors about it.
    pub(crate) structure: (Option<String>, Span),
}

impl Operator {
    /// Operator without a threshold and times.
    pub(crate) fn new(form: Modality, parts: Vec<Expression>, span: Span) -> Self {
        Self { form, bound: None, parts, times: Times::default(), structure: (None, span) }
    }
}

/// Modality of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modality {
    /// Path formulas of `P`: `X a`, `a U b`, `F a` and `G a`.
    Next,
    /// `X p` for a path formula `p`: the operand is the probability of `p`.
    Step,
    /// Probability of a formula of LTL, and `E` of one.
    Ltl,
    Exists,
    Until,
    Finally,
    Globally,
    /// One minus the probability of `a U b`: weak until and release.
    NotUntil,
    /// `S=? [ a ]`.
    SteadyState,
    /// Reward accumulated up to a time, `C<=t`, or for ever, `C`.
    Cumulative,
    /// Reward rate at a time, `I=t`.
    Instantaneous,
    /// Reward accumulated until a state is reached, `F a`.
    Reach,
    /// Reward rate in the long run, `S`.
    LongRun,
    /// `T=? [ F a ]`.
    Time,
    Filter(FilterKind),
}

impl Modality {
    /// True for the forms of `R` and `T`.
    pub(crate) fn is_reward(self) -> bool {
        matches!(self, Self::Cumulative | Self::Instantaneous | Self::Reach | Self::LongRun | Self::Time)
    }
}

/// Threshold such as `>= p`.
#[derive(Clone, Debug)]
pub(crate) struct ParsedThreshold {
    pub(crate) comparison: Operation,
    pub(crate) limit: Expression,
}

/// Time interval of a path formula. `from` defaults to 0 and `to` to infinity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) from: Option<Expression>,
    pub(crate) to: Option<Expression>,
    /// True for `<t` and `>t`, which only differ from `<=t` and `>=t` in discrete time.
    pub(crate) strict: bool,
}

impl Times {
    pub(crate) fn each(&self) -> impl Iterator<Item = &Expression> {
        self.from.iter().chain(&self.to)
    }
}

/// Aggregation that a filter applies to the values of its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum FilterKind {
    /// Least value.
    Min,
    /// Largest value.
    Max,
    /// Mean of the values.
    #[strum(to_string = "avg", serialize = "average")]
    Average,
    /// Sum of the values.
    Sum,
    /// Number of states in which the property is true.
    Count,
    /// Value of the first state.
    First,
    /// Value of the only state.
    State,
    /// Interval from the least to the largest value.
    Range,
    /// True if the property is true in all states.
    ForAll,
    /// True if the property is true in at least one state.
    Exists,
    /// Values of all states, except zeros and `false`.
    Print,
    /// Value of each state.
    PrintAll,
    /// States with the least value.
    ArgMin,
    /// States with the largest value.
    ArgMax,
}

/// `const double mu = 2;`. The value is `None` if the user has to give it.
#[derive(Clone, Debug)]
pub(crate) struct ConstantDeclaration {
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
    pub(crate) range: VariableRange,
    pub(crate) init: Option<Expression>,
}

impl Variable {
    pub(crate) fn ty(&self) -> Type {
        if matches!(self.range, VariableRange::Bool) { Type::Bool } else { Type::Int }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum VariableRange {
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
    /// Rate of the update. `None` means 1.
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

/// Target of a reward: states, or transitions with this action (`None`: without an action).
#[derive(Clone, Debug)]
pub(crate) enum Rewarded {
    States,
    Transitions(Option<Name>),
}

/// Composition `system … endsystem`.
#[derive(Clone, Debug)]
pub(crate) enum Composition {
    Module(Name),
    /// `A || B`: synchronised on the actions that `A` and `B` share.
    Parallel(Vec<Self>),
    /// `A ||| B`: interleaved without synchronisation.
    Interleaved(Vec<Self>),
    /// `A |[a, b]| B`: synchronised on the listed actions.
    On(Box<Self>, Vec<Name>, Box<Self>),
    /// `A / {a, b}`: hides actions.
    Hide(Box<Self>, Vec<Name>),
    /// `A {a<-b}`: renames actions.
    Rename(Box<Self>, Vec<(Name, Name)>),
}

/// Contents of a model text. Items of each kind are in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelText {
    /// True for a chain in discrete time.
    pub(crate) discrete: bool,
    pub(crate) constants: Vec<ConstantDeclaration>,
    pub(crate) formulas: Vec<Definition>,
    pub(crate) labels: Vec<Definition>,
    pub(crate) globals: Vec<Variable>,
    pub(crate) modules: Vec<ModuleDefinition>,
    pub(crate) rewards: Vec<Rewards>,
    pub(crate) init: Option<Expression>,
    pub(crate) system: Option<Composition>,
}

#[derive(Clone, Debug)]
pub(crate) enum ModuleDefinition {
    Module(Module),
    Renaming(Renaming),
}

/// Contents of a properties file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PropertiesText {
    pub(crate) constants: Vec<ConstantDeclaration>,
    pub(crate) labels: Vec<Definition>,
    pub(crate) properties: Vec<ParsedProperty>,
}

/// Syntax tree of a property.
#[derive(Clone, Debug)]
pub(crate) struct ParsedProperty {
    pub(crate) name: Option<Name>,
    pub(crate) span: Span,
    /// Formula of the property, or its errors.
    pub(crate) body: Result<Expression, Vec<Diagnostic>>,
}
