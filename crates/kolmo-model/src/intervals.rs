//! Interval analysis of expressions: bounds of rewards in states that are not explored.

use crate::Result;
use crate::bytecode::{Op, Term};
use crate::instance::Instance;
use crate::syntax::{Rewarded, Type, Value};

/// Interval: least and largest value.
pub(crate) type Interval = (f64, f64);

const ANY: Interval = (f64::NEG_INFINITY, f64::INFINITY);

impl Instance {
    /// Returns an upper bound of the absolute reward rate, for any values of the variables.
    ///
    /// The result is infinite if no bound is found. With `at_transitions` it includes transition
    /// rewards times the rates of their transitions.
    pub fn reward_limit(&self, name: Option<&str>, at_transitions: bool) -> Result<f64> {
        let whole = |v: &crate::VariableInfo| if v.unbounded { ANY } else { (v.low as f64, v.high as f64) };
        let ranges: Vec<Interval> = self.variables.iter().map(whole).collect();
        let (mut low, mut high) = (0.0, 0.0);
        for part in self.rewards(self.reward_structure(name)?)? {
            let Some(ranges) = within(&part.guard, &ranges) else { continue };
            let rate = match &part.of {
                Rewarded::States => (1.0, 1.0),
                Rewarded::Transitions(_) if !at_transitions => continue,
                Rewarded::Transitions(action) => {
                    (0.0, self.largest_rate(action.as_ref().map(|a| &*a.text), &ranges))
                }
            };
            let earned = applied(Op::Times, |k| if k == 0 { range(&part.value, &ranges) } else { rate });
            low += earned.0.min(0.0);
            high += earned.1.max(0.0);
        }
        Ok(high.max(-low))
    }

    /// Returns an upper bound of the total rate of an action, for variables within `ranges`.
    fn largest_rate(&self, action: Option<&str>, ranges: &[Interval]) -> f64 {
        let of_command = |c: usize| {
            let command = &self.commands[c];
            within(&command.guard, ranges).map_or(0.0, |ranges| {
                command.updates.iter().map(|(rate, _)| range(rate, &ranges).1.max(0.0)).sum::<f64>()
            })
        };
        let of_group = |part: &(usize, Option<String>)| {
            self.groups.get(part).cloned().unwrap_or(0..0).map(of_command).sum::<f64>()
        };
        let together = self.model.0.together.iter().filter(|t| t.seen.as_deref() == action);
        together.map(|t| t.parts.iter().map(of_group).fold(1.0, times)).sum()
    }
}

/// Product of interval ends, with 0 · ∞ = 0.
fn times(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// Narrows the variables' ranges to a condition. Returns `None` if the condition never holds.
fn within(guard: &Term, ranges: &[Interval]) -> Option<Vec<Interval>> {
    let mut ranges = ranges.to_vec();
    let mut conjuncts = Vec::new();
    guard.clone().conjuncts(&mut conjuncts);
    for conjunct in &conjuncts {
        let Term::Apply(op @ (Op::LessInt | Op::LessEqualInt | Op::EqualInt), sides) = conjunct else {
            match conjunct {
                Term::Value(Value::Bool(false)) => return None,
                _ => continue,
            }
        };
        let step = if *op == Op::LessInt { 1.0 } else { 0.0 };
        match &sides[..] {
            [Term::Variable(v, Type::Int), Term::Value(value)] => {
                let limit = value.number()?;
                ranges[*v].1 = ranges[*v].1.min(limit - step);
                if *op == Op::EqualInt {
                    ranges[*v].0 = ranges[*v].0.max(limit);
                }
            }
            [Term::Value(value), Term::Variable(v, Type::Int)] => {
                let limit = value.number()?;
                ranges[*v].0 = ranges[*v].0.max(limit + step);
                if *op == Op::EqualInt {
                    ranges[*v].1 = ranges[*v].1.min(limit);
                }
            }
            _ => {}
        }
    }
    ranges.iter().all(|(low, high)| low <= high).then_some(ranges)
}

/// Returns an interval that contains a term's value, with inexact results rounded outwards.
pub(crate) fn range(term: &Term, ranges: &[Interval]) -> Interval {
    let found = match term {
        Term::Value(value) => {
            let value = value.number().unwrap_or(if *value == Value::Bool(true) { 1.0 } else { 0.0 });
            (value, value)
        }
        Term::Variable(v, _) => ranges[*v],
        Term::And(parts) => {
            let (a, b) = (range(&parts[0], ranges), range(&parts[1], ranges));
            (a.0.min(b.0), a.1.min(b.1))
        }
        Term::Or(parts) => {
            let (a, b) = (range(&parts[0], ranges), range(&parts[1], ranges));
            (a.0.max(b.0), a.1.max(b.1))
        }
        Term::If(parts) => {
            let (yes, no) = (range(&parts[1], ranges), range(&parts[2], ranges));
            match range(&parts[0], ranges) {
                (1.0, _) => yes,
                (_, 0.0) => no,
                _ => (yes.0.min(no.0), yes.1.max(no.1)),
            }
        }
        Term::Apply(op, parts) => {
            let of = |k: usize| range(&parts[k], ranges);
            applied(*op, of)
        }
    };
    if found.0.is_nan() || found.1.is_nan() {
        return ANY;
    }
    match term.ty() {
        Type::Int if found.0.abs().max(found.1.abs()) >= 2f64.powi(53) => {
            (found.0.next_down(), found.1.next_up())
        }
        Type::Int => (found.0.ceil(), found.1.floor()),
        _ => found,
    }
}

fn applied(op: Op, of: impl Fn(usize) -> Interval) -> Interval {
    match op {
        Op::Not => (1.0 - of(0).1, 1.0 - of(0).0),
        Op::EqualInt | Op::Equal => match (of(0), of(1)) {
            (a, b) if a.0 == a.1 && a == b => (1.0, 1.0),
            (a, b) if a.1 < b.0 || b.1 < a.0 => (0.0, 0.0),
            _ => (0.0, 1.0),
        },
        Op::LessInt | Op::Less => compared(of(0), of(1), |a, b| a < b),
        Op::LessEqualInt | Op::LessEqual => compared(of(0), of(1), |a, b| a <= b),
        Op::ToDouble => of(0),
        Op::NegateInt | Op::Negate => (-of(0).1, -of(0).0),
        Op::AddInt | Op::Add => corners(of(0), of(1), plus),
        Op::SubtractInt | Op::Subtract => corners(of(0), of(1), |a, b| plus(a, -b)),
        Op::TimesInt | Op::Times => corners(of(0), of(1), |a, b| {
            let product = times(a, b);
            let zero = a == 0.0 || b == 0.0;
            let error = if product == 0.0 { f64::from(u8::from(!zero)) } else { a.mul_add(b, -product) };
            outwards(product, error, (a, b))
        }),
        Op::MinInt | Op::Min => (of(0).0.min(of(1).0), of(0).1.min(of(1).1)),
        Op::MaxInt | Op::Max => (of(0).0.max(of(1).0), of(0).1.max(of(1).1)),
        Op::Divide if of(1).0 > 0.0 || of(1).1 < 0.0 => corners(of(0), of(1), |a, b| {
            let quotient = a / b;
            outwards(quotient, quotient.mul_add(b, -a), (a, b))
        }),
        Op::Mod => (0.0, of(1).1.max(0.0)),
        Op::Floor => (of(0).0.floor(), of(0).1.floor()),
        Op::Ceil => (of(0).0.ceil(), of(0).1.ceil()),
        Op::Round => ((of(0).0 + 0.5).floor(), (of(0).1 + 0.5).floor()),
        // Powers and logarithms are not correctly rounded. Libraries have relative errors below
        // 1e-12.
        Op::Power | Op::PowerInt if of(0).0 > 0.0 || of(0).0 == 0.0 && of(1).0 > 0.0 => {
            corners(of(0), of(1), |a, b| about(a.powf(b)))
        }
        Op::PowerInt if of(0).0 == of(0).1 && of(1).0 == of(1).1 => {
            corners(of(0), of(1), |a, b| about(a.powf(b)))
        }
        Op::Log if of(0).0 > 0.0 && (of(1).0 > 1.0 || (of(1).0 > 0.0 && of(1).1 < 1.0)) => {
            corners(of(0), of(1), |a, b| about(a.ln() / b.ln()))
        }
        Op::Power | Op::PowerInt | Op::Log | Op::Divide => ANY,
    }
}

/// Interval of a comparison's truth value: (1, 1) true, (0, 0) false, (0, 1) unknown.
///
/// An operand that may be NaN has the interval [`ANY`], and NaN compares as false.
fn compared(a: Interval, b: Interval, holds: impl Fn(f64, f64) -> bool) -> Interval {
    let any = a == ANY || b == ANY;
    (f64::from(u8::from(!any && holds(a.1, b.0))), f64::from(u8::from(any || holds(a.0, b.1))))
}

/// Interval of an operation that is monotone in each of its two operands, from its rounded values.
fn corners(a: Interval, b: Interval, f: impl Fn(f64, f64) -> Interval) -> Interval {
    let all = [f(a.0, b.0), f(a.0, b.1), f(a.1, b.0), f(a.1, b.1)];
    if all.iter().any(|value| value.0.is_nan() || value.1.is_nan()) {
        return ANY;
    }
    let low = all.iter().fold(f64::INFINITY, |low, value| low.min(value.0));
    (low, all.iter().fold(f64::NEG_INFINITY, |high, value| high.max(value.1)))
}

/// Interval around the rounded result of an operation. It is exact if an operand is infinite.
fn outwards(value: f64, error: f64, (a, b): (f64, f64)) -> Interval {
    let exact = error == 0.0 && (value == 0.0 || value.abs() > 1e-280);
    if exact || a.is_infinite() || b.is_infinite() {
        return (value, value);
    }
    (value.next_down(), value.next_up())
}

/// Sum of two numbers, whose rounding error is known exactly.
fn plus(a: f64, b: f64) -> Interval {
    let sum = a + b;
    let rest = sum - a;
    outwards(sum, (a - (sum - rest)) + (b - rest), (a, b))
}

/// Interval of a value with a relative error below 10⁻¹².
fn about(value: f64) -> Interval {
    let error = 1e-12 * value.abs() + f64::MIN_POSITIVE;
    (value - error, value + error)
}
