//! Expressions with resolved names and folded constants, and stack code to evaluate them.

use std::collections::HashMap;
use std::fmt;

use crate::syntax::{Expression, Kind, Operation, Type, Value};

/// Errors of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvalError {
    Overflow,
    Modulus,
    Power,
    Rounding,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "a whole number leaves 64 bits; write a factor with a point to have doubles",
            Self::Modulus => "mod(i, n) with n = 0 or less has no value; guard it by a condition",
            Self::Power => "pow(i, n) of whole numbers with n < 0 has no value; write pow(1.0*i, n)",
            Self::Rounding => "floor, ceil and round: the result does not fit 64 bits",
        })
    }
}

/// Operations on 64-bit cells: integers, bits of doubles, and booleans as 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Not,
    NegateInt,
    AddInt,
    SubtractInt,
    TimesInt,
    MinInt,
    MaxInt,
    PowerInt,
    Mod,
    EqualInt,
    LessInt,
    LessEqualInt,
    ToDouble,
    Negate,
    Add,
    Subtract,
    Times,
    Divide,
    Min,
    Max,
    Power,
    Log,
    Equal,
    Less,
    LessEqual,
    Floor,
    Ceil,
    Round,
}

impl Op {
    fn arguments(self) -> usize {
        match self {
            Self::Not | Self::NegateInt | Self::ToDouble | Self::Negate => 1,
            Self::Floor | Self::Ceil | Self::Round => 1,
            _ => 2,
        }
    }

    fn ty(self) -> Type {
        match self {
            Self::Not | Self::EqualInt | Self::LessInt | Self::LessEqualInt => Type::Bool,
            Self::Equal | Self::Less | Self::LessEqual => Type::Bool,
            Self::NegateInt | Self::AddInt | Self::SubtractInt | Self::TimesInt => Type::Int,
            Self::MinInt | Self::MaxInt | Self::PowerInt | Self::Mod => Type::Int,
            Self::Floor | Self::Ceil | Self::Round => Type::Int,
            _ => Type::Double,
        }
    }

    #[inline]
    fn one(self, a: u64) -> Result<u64, EvalError> {
        let double = f64::from_bits(a);
        Ok(match self {
            Self::Not => a ^ 1,
            Self::NegateInt => (a as i64).checked_neg().ok_or(EvalError::Overflow)? as u64,
            Self::ToDouble => (a as i64 as f64).to_bits(),
            Self::Negate => (-double).to_bits(),
            Self::Floor => whole(double.floor())?,
            Self::Ceil => whole(double.ceil())?,
            // Halves are rounded up, as in PRISM.
            _ => whole((double + 0.5).floor())?,
        })
    }

    #[inline]
    fn two(self, a: u64, b: u64) -> Result<u64, EvalError> {
        let (i, j) = (a as i64, b as i64);
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        let int = |value: Option<i64>| value.map(|v| v as u64).ok_or(EvalError::Overflow);
        Ok(match self {
            Self::AddInt => int(i.checked_add(j))?,
            Self::SubtractInt => int(i.checked_sub(j))?,
            Self::TimesInt => int(i.checked_mul(j))?,
            Self::MinInt => i.min(j) as u64,
            Self::MaxInt => i.max(j) as u64,
            Self::PowerInt => match u32::try_from(j) {
                Ok(exponent) => int(i.checked_pow(exponent))?,
                Err(_) if j < 0 => return Err(EvalError::Power),
                Err(_) if i == 0 || i == 1 => a,
                Err(_) if i == -1 => (1 - 2 * (j & 1)) as u64,
                Err(_) => return Err(EvalError::Overflow),
            },
            Self::Mod if j > 0 => i.rem_euclid(j) as u64,
            Self::Mod => return Err(EvalError::Modulus),
            Self::EqualInt => u64::from(i == j),
            Self::LessInt => u64::from(i < j),
            Self::LessEqualInt => u64::from(i <= j),
            Self::Add => (x + y).to_bits(),
            Self::Subtract => (x - y).to_bits(),
            Self::Times => (x * y).to_bits(),
            Self::Divide => (x / y).to_bits(),
            // NaN is kept, which `f64::min` would drop.
            Self::Min if x.is_nan() || x < y => a,
            Self::Max if x.is_nan() || x > y => a,
            Self::Min | Self::Max => b,
            Self::Power => x.powf(y).to_bits(),
            Self::Log => (x.ln() / y.ln()).to_bits(),
            Self::Equal => u64::from(x == y),
            Self::Less => u64::from(x < y),
            _ => u64::from(x <= y),
        })
    }
}

fn whole(x: f64) -> Result<u64, EvalError> {
    // 2^63 itself does not fit.
    let fits = (-(2f64.powi(63))..2f64.powi(63)).contains(&x);
    if fits { Ok(x as i64 as u64) } else { Err(EvalError::Rounding) }
}

impl Value {
    pub(crate) fn cell(self) -> u64 {
        match self {
            Self::Int(i) => i as u64,
            Self::Double(d) => d.to_bits(),
            Self::Bool(b) => u64::from(b),
        }
    }

    pub(crate) fn of_cell(cell: u64, ty: Type) -> Self {
        match ty {
            Type::Int => Self::Int(cell as i64),
            Type::Double => Self::Double(f64::from_bits(cell)),
            Type::Bool => Self::Bool(cell != 0),
        }
    }
}

/// An expression over variables by index. Constant parts are folded unless they fail.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    Value(Value),
    Variable(usize, Type),
    Apply(Op, Vec<Self>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    If(Box<[Self; 3]>),
}

impl Term {
    pub(crate) fn ty(&self) -> Type {
        match self {
            Self::Value(value) => value.ty(),
            Self::Variable(_, ty) => *ty,
            Self::Apply(op, _) => op.ty(),
            Self::And(_) | Self::Or(_) => Type::Bool,
            Self::If(all) => all[1].ty(),
        }
    }

    fn parts(&self) -> &[Self] {
        match self {
            Self::Value(_) | Self::Variable(..) => &[],
            Self::Apply(_, parts) => parts,
            Self::And(parts) | Self::Or(parts) => &parts[..],
            Self::If(parts) => &parts[..],
        }
    }

    pub(crate) fn each_variable(&self, f: &mut impl FnMut(usize)) {
        if let Self::Variable(v, _) = self {
            f(*v);
        }
        self.parts().iter().for_each(|part| part.each_variable(f));
    }

    /// True if the term depends on a variable.
    pub(crate) fn has_variable(&self, v: usize) -> bool {
        let mut found = false;
        self.each_variable(&mut |other| found |= other == v);
        found
    }

    /// Returns the derivative by variable `v`, which is of type double.
    ///
    /// Where the arguments of min or max are equal, but not their derivatives, it is NaN. Fails
    /// with the name of an operation without a derivative, such as a condition or a rounding.
    pub(crate) fn derivative(&self, v: usize) -> Result<Self, &'static str> {
        let number = |value: f64| Self::Value(Value::Double(value));
        if !self.has_variable(v) {
            return Ok(number(0.0));
        }
        // Simplifies operations with 0 and 1.
        let two = |op: Op, a: &Self, b: &Self| match (op, a, b) {
            (Op::Times, Self::Value(Value::Double(0.0)), _)
            | (Op::Times, _, Self::Value(Value::Double(0.0))) => number(0.0),
            (Op::Times | Op::Divide | Op::Power, a, Self::Value(Value::Double(1.0))) => a.clone(),
            (Op::Times, Self::Value(Value::Double(1.0)), other) => other.clone(),
            (Op::Add, Self::Value(Value::Double(0.0)), other)
            | (Op::Add | Op::Subtract, other, Self::Value(Value::Double(0.0))) => other.clone(),
            _ => Self::apply(op, vec![a.clone(), b.clone()]),
        };
        let choice = |condition: Self, a: Self, b: Self| Self::If(Box::new([condition, a, b]));
        match self {
            Self::Variable(..) => Ok(number(1.0)),
            Self::If(parts) if parts[0].has_variable(v) => Err("a condition"),
            Self::If(parts) => Ok(choice(parts[0].clone(), parts[1].derivative(v)?, parts[2].derivative(v)?)),
            Self::Apply(op, parts) => {
                let [a, b] = [&parts[0], parts.last().unwrap_or(&parts[0])];
                let changes = || Ok((a.derivative(v)?, b.derivative(v)?));
                Ok(match op {
                    Op::Negate => Self::apply(Op::Negate, vec![a.derivative(v)?]),
                    Op::Add | Op::Subtract => changes().map(|(da, db)| two(*op, &da, &db))?,
                    Op::Times => changes()
                        .map(|(da, db)| two(Op::Add, &two(Op::Times, &da, b), &two(Op::Times, a, &db)))?,
                    Op::Divide => {
                        let (da, db) = changes()?;
                        two(Op::Divide, &two(Op::Subtract, &da, &two(Op::Times, self, &db)), b)
                    }
                    Op::Power => {
                        let (da, db) = changes()?;
                        let base = two(Op::Power, a, &two(Op::Subtract, b, &number(1.0)));
                        let base = two(Op::Times, &two(Op::Times, b, &base), &da);
                        let ln = Self::apply(Op::Log, vec![a.clone(), number(std::f64::consts::E)]);
                        two(Op::Add, &base, &two(Op::Times, &two(Op::Times, self, &ln), &db))
                    }
                    Op::Log => {
                        // log(a, b) = ln a / ln b
                        let (da, db) = changes()?;
                        let ln = Self::apply(Op::Log, vec![b.clone(), number(std::f64::consts::E)]);
                        let by_base = two(Op::Divide, &two(Op::Times, self, &db), b);
                        two(Op::Divide, &two(Op::Subtract, &two(Op::Divide, &da, a), &by_base), &ln)
                    }
                    Op::Min | Op::Max => {
                        let (da, db) = changes()?;
                        let (da, db) = if *op == Op::Min { (da, db) } else { (db, da) };
                        let less = |a: &Self, b: &Self| Self::apply(Op::Less, vec![a.clone(), b.clone()]);
                        // Equal arguments with unequal derivatives have none.
                        let equal = Self::apply(Op::Equal, vec![da.clone(), db.clone()]);
                        let tied = choice(equal, da.clone(), number(f64::NAN));
                        choice(less(a, b), da, choice(less(b, a), db, tied))
                    }
                    Op::Floor | Op::Ceil | Op::Round | Op::ToDouble => return Err("floor, ceil or round"),
                    _ => return Err("a condition"),
                })
            }
            _ => Err("a condition"),
        }
    }

    /// Index of the only variable that the term depends on, if it is exactly one.
    pub(crate) fn only_variable(&self) -> Option<usize> {
        let mut found = None;
        let mut several = false;
        self.each_variable(&mut |v| several |= found.replace(v).is_some_and(|other| other != v));
        found.filter(|_| !several)
    }

    /// Converts the term to a double.
    pub(crate) fn double(self) -> Self {
        match self.ty() {
            Type::Int => Self::apply(Op::ToDouble, vec![self]),
            _ => self,
        }
    }

    /// Appends the conjuncts of a condition to `all`, in the order of the text.
    pub(crate) fn conjuncts(self, all: &mut Vec<Self>) {
        match self {
            Self::And(parts) => parts.into_iter().for_each(|part| part.conjuncts(all)),
            Self::Value(Value::Bool(true)) => {}
            other => all.push(other),
        }
    }

    /// Applies an operation, and evaluates it if its operands are constant.
    fn apply(op: Op, parts: Vec<Self>) -> Self {
        let cells: Option<Vec<u64>> =
            parts.iter().map(|p| if let Self::Value(v) = p { Some(v.cell()) } else { None }).collect();
        let value = cells.map(|c| if op.arguments() == 1 { op.one(c[0]) } else { op.two(c[0], c[1]) });
        match value {
            Some(Ok(cell)) => Self::Value(Value::of_cell(cell, op.ty())),
            _ => Self::Apply(op, parts),
        }
    }

    fn and(a: Self, b: Self) -> Self {
        match (a, b) {
            (Self::Value(Value::Bool(true)), other) | (other, Self::Value(Value::Bool(true))) => other,
            (Self::Value(Value::Bool(false)), _) => Self::Value(Value::Bool(false)),
            (a, b) => Self::And(Box::new([a, b])),
        }
    }

    fn or(a: Self, b: Self) -> Self {
        match (a, b) {
            (Self::Value(Value::Bool(false)), other) | (other, Self::Value(Value::Bool(false))) => other,
            (Self::Value(Value::Bool(true)), _) => Self::Value(Value::Bool(true)),
            (a, b) => Self::Or(Box::new([a, b])),
        }
    }
}

/// A term with its size and depth, which limit the growth of formulas.
#[derive(Clone, Debug)]
pub(crate) struct SizedTerm {
    pub(crate) term: Term,
    size: usize,
    depth: usize,
}

/// Maximum number of nodes and levels of an expression with all formulas expanded.
const SIZE: usize = 1_000_000;
const DEPTH: usize = 1500;

/// Definitions of the names in expressions: constants, variables, formulas and labels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meaning {
    pub(crate) values: HashMap<String, Value>,
    pub(crate) variables: HashMap<String, (usize, Type)>,
    pub(crate) formulas: HashMap<String, SizedTerm>,
    pub(crate) labels: HashMap<String, SizedTerm>,
}

impl Meaning {
    /// Resolves an expression with checked types. Fails if it is too large, or has `P`, `R` or `S`.
    pub(crate) fn formula(&self, e: &Expression) -> Result<SizedTerm, String> {
        let parts: Vec<SizedTerm> = match &e.kind {
            Kind::Literal(_) | Kind::Operator(_) | Kind::Path(_) => Vec::new(),
            Kind::Name(name) => self.formulas.get(name).cloned().into_iter().collect(),
            Kind::Label(name) => self.labels.get(name).cloned().into_iter().collect(),
            Kind::Apply(_, parts) => parts.iter().map(|e| self.formula(e)).collect::<Result<_, _>>()?,
        };
        let mut size = 1 + parts.iter().map(|f| f.size).sum::<usize>();
        let depth = 1 + parts.iter().map(|f| f.depth).max().unwrap_or(0);
        if size > SIZE || depth > DEPTH {
            return Err(format!("an expression grows beyond {SIZE} parts or {DEPTH} levels by its formulas"));
        }
        let mut terms = parts.into_iter().map(|f| f.term);
        let term = match &e.kind {
            Kind::Literal(value) => Term::Value(*value),
            Kind::Name(name) => match (self.values.get(name), self.variables.get(name)) {
                (Some(value), _) => Term::Value(*value),
                (None, Some((v, ty))) => Term::Variable(*v, *ty),
                (None, None) => terms.next().ok_or_else(|| no_constant(name))?,
            },
            Kind::Label(name) => terms.next().ok_or_else(|| no_constant(name))?,
            Kind::Operator(_) | Kind::Path(_) => {
                return Err("P, R and S have no value within one state".into());
            }
            Kind::Apply(operation, _) => applied(*operation, terms.collect()),
        };
        if let Term::Value(_) = term {
            size = 1;
        }
        Ok(SizedTerm { term, size, depth })
    }

    /// Resolves an expression to its term, without size and depth.
    pub(crate) fn term(&self, e: &Expression) -> Result<Term, String> {
        Ok(self.formula(e)?.term)
    }

    /// Evaluates an expression without variables.
    pub(crate) fn value(&self, e: &Expression) -> Result<Value, String> {
        let term = self.term(e)?;
        match term {
            Term::Value(value) => Ok(value),
            term => {
                let (ty, mut variable) = (term.ty(), false);
                term.each_variable(&mut |_| variable = true);
                if variable {
                    return Err("a variable has no value here: expected constants alone".to_owned());
                }
                let cell = Code::new(&term).run(&[], &mut Vec::new()).map_err(|fault| fault.to_string())?;
                Ok(Value::of_cell(cell, ty))
            }
        }
    }
}

/// Returns the reason why a name has no value where constants are expected.
fn no_constant(name: &str) -> String {
    format!("'{name}' has no value here: expected constants, and no formula or label")
}

/// Applies an operation to operands with checked types. Next to a double, integers become doubles.
fn applied(operation: Operation, mut parts: Vec<Term>) -> Term {
    use Operation as O;
    if operation == O::If {
        let [condition, yes, no] = <[Term; 3]>::try_from(parts).expect("a condition and two values");
        let (yes, no) = if yes.ty() == no.ty() { (yes, no) } else { (yes.double(), no.double()) };
        return match condition {
            Term::Value(Value::Bool(true)) => yes,
            Term::Value(Value::Bool(false)) => no,
            condition => Term::If(Box::new([condition, yes, no])),
        };
    }
    let ints =
        parts.iter().all(|part| part.ty() != Type::Double) && ![O::Divide, O::Log].contains(&operation);
    if !ints {
        parts = parts.into_iter().map(Term::double).collect();
    }
    if let O::Greater | O::GreaterEqual = operation {
        parts.reverse();
    }
    let pick = |int: Op, double: Op| if ints { int } else { double };
    let op = match operation {
        // An integer is its own floor.
        O::Floor | O::Ceil | O::Round if ints => return parts.remove(0),
        O::Floor => Op::Floor,
        O::Ceil => Op::Ceil,
        O::Round => Op::Round,
        O::Not => Op::Not,
        O::Negate => pick(Op::NegateInt, Op::Negate),
        O::And => return Term::and(parts.remove(0), parts.remove(0)),
        O::Or => return Term::or(parts.remove(0), parts.remove(0)),
        O::Implies => return Term::or(Term::apply(Op::Not, vec![parts.remove(0)]), parts.remove(0)),
        O::Iff | O::Equal => pick(Op::EqualInt, Op::Equal),
        O::NotEqual => return Term::apply(Op::Not, vec![applied(O::Equal, parts)]),
        O::Less | O::Greater => pick(Op::LessInt, Op::Less),
        O::LessEqual | O::GreaterEqual => pick(Op::LessEqualInt, Op::LessEqual),
        O::Plus => pick(Op::AddInt, Op::Add),
        O::Minus => pick(Op::SubtractInt, Op::Subtract),
        O::Times => pick(Op::TimesInt, Op::Times),
        O::Min => pick(Op::MinInt, Op::Min),
        O::Max => pick(Op::MaxInt, Op::Max),
        O::Pow => pick(Op::PowerInt, Op::Power),
        O::Divide => Op::Divide,
        O::Mod => Op::Mod,
        O::Log => Op::Log,
        O::If => unreachable!("it has returned"),
    };
    if op.arguments() == 1 {
        return Term::apply(op, parts);
    }
    parts.into_iter().reduce(|all, next| Term::apply(op, vec![all, next])).expect("two operands or more")
}

#[derive(Clone, Copy, Debug)]
enum Instruction {
    Push(u64),
    Load(u32),
    LoadDouble(u32),
    Apply1(Op),
    Apply2(Op),
    /// Applies an operation to the top cell and a constant.
    WithValue(Op, u64),
    /// Jumps if the top cell is 0 (`IfTrue`: not 0) and keeps it, else pops it.
    IfFalse(u32),
    IfTrue(u32),
    /// Pops the top cell, and jumps if it is 0.
    Unless(u32),
    Jump(u32),
}

/// Stack code of a term.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    code: Vec<Instruction>,
}

impl Code {
    pub(crate) fn new(term: &Term) -> Self {
        let mut code = Self { code: Vec::new() };
        code.add(term);
        code
    }

    fn add(&mut self, term: &Term) {
        match term {
            Term::Value(value) => self.code.push(Instruction::Push(value.cell())),
            Term::Variable(v, _) => self.code.push(Instruction::Load(*v as u32)),
            Term::Apply(op, parts) => {
                if let (Op::ToDouble, Term::Variable(v, _)) = (op, &parts[0]) {
                    return self.code.push(Instruction::LoadDouble(*v as u32));
                }
                self.add(&parts[0]);
                match parts.get(1) {
                    None => self.code.push(Instruction::Apply1(*op)),
                    Some(Term::Value(value)) => self.code.push(Instruction::WithValue(*op, value.cell())),
                    Some(second) => {
                        self.add(second);
                        self.code.push(Instruction::Apply2(*op));
                    }
                }
            }
            Term::And(parts) => self.jumping(&parts[0], &parts[1], Instruction::IfFalse, 0),
            Term::Or(parts) => self.jumping(&parts[0], &parts[1], Instruction::IfTrue, 0),
            Term::If(parts) => {
                // The jump over the other value follows.
                self.jumping(&parts[0], &parts[1], Instruction::Unless, 1);
                let jump = self.code.len();
                self.code.push(Instruction::Jump(0));
                self.add(&parts[2]);
                self.code[jump] = Instruction::Jump(self.code.len() as u32);
            }
        }
    }

    /// Adds the code of two terms and, between them, a jump to `behind` instructions after the end.
    fn jumping(&mut self, first: &Term, second: &Term, jump: fn(u32) -> Instruction, behind: usize) {
        self.add(first);
        let place = self.code.len();
        self.code.push(jump(0));
        self.add(second);
        self.code[place] = jump((self.code.len() + behind) as u32);
    }

    /// Evaluates the code for the cells `variables`, with `stack` as scratch memory.
    #[inline]
    pub(crate) fn run(&self, variables: &[i64], stack: &mut Vec<u64>) -> Result<u64, EvalError> {
        // Top cell of the stack. The cells below it are in `stack`.
        let mut top = 0;
        let mut at = 0;
        stack.clear();
        while let Some(instruction) = self.code.get(at) {
            at += 1;
            match *instruction {
                Instruction::Push(cell) => stack.push(std::mem::replace(&mut top, cell)),
                Instruction::Load(v) => stack.push(std::mem::replace(&mut top, variables[v as usize] as u64)),
                Instruction::LoadDouble(v) => {
                    stack.push(std::mem::replace(&mut top, (variables[v as usize] as f64).to_bits()));
                }
                Instruction::Apply1(op) => top = op.one(top)?,
                Instruction::Apply2(op) => top = op.two(stack.pop().unwrap_or(0), top)?,
                Instruction::WithValue(op, cell) => top = op.two(top, cell)?,
                Instruction::IfFalse(end) if top == 0 => at = end as usize,
                Instruction::IfTrue(end) if top != 0 => at = end as usize,
                Instruction::IfFalse(_) | Instruction::IfTrue(_) => top = stack.pop().unwrap_or(0),
                Instruction::Unless(end) => {
                    if std::mem::replace(&mut top, stack.pop().unwrap_or(0)) == 0 {
                        at = end as usize;
                    }
                }
                Instruction::Jump(end) => at = end as usize,
            }
        }
        Ok(top)
    }
}
