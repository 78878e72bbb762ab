//! Values of properties in terms of planned answers.

use crate::answer::{Answer, Verdict};
use crate::gradient::{AnswerDerivatives, Derivative};
use crate::state_values::decide;
use kolmo::Result;
use kolmo_model::properties::{Combination, Threshold};

/// Plan of a property: its value in terms of the planned answers.
#[derive(Debug, PartialEq)]
pub(crate) enum ValuePlan {
    Found(Verdict),
    /// One answer, or an interval between two answers (indices), with an optional threshold.
    Number {
        asked: (usize, Option<usize>),
        bound: Option<Threshold>,
        complement: bool,
        probability: bool,
    },
    Combination(Combination, Vec<Self>),
}

impl ValuePlan {
    /// Reason why the property has no answer. `refused` has the reason per planned answer.
    pub(crate) fn refusal<'a>(&self, refused: &'a [Option<String>]) -> Option<&'a str> {
        match self {
            Self::Number { asked: (low, high), .. } => {
                [Some(*low), *high].into_iter().flatten().find_map(|number| refused[number].as_deref())
            }
            Self::Combination(_, parts) => parts.iter().find_map(|part| part.refusal(refused)),
            _ => None,
        }
    }

    /// Returns the derivative of the property by constant number `k`.
    pub(crate) fn derivative(&self, all: &AnswerDerivatives, k: usize) -> Derivative {
        let Self::Number { asked: (answer, None), bound: None, complement, .. } = self else {
            return Err(
                "derivatives exist for the number of one operator alone: expected P=?, R=?, S=? or T=?"
                    .to_owned(),
            );
        };
        let Some(found) = all.get(answer) else {
            return Err("derivatives are not supported for X, LTL formulas and exact answers: \
                        expected a path formula with F, G, U or W"
                .to_owned());
        };
        let sign = |of: Answer| if *complement { Answer { value: 0.0 - of.value, ..of } } else { of };
        found[k].clone().map(sign)
    }

    /// Evaluates the property from the answers.
    pub(crate) fn found(&self, answers: &[Answer]) -> Result<Verdict> {
        match self {
            Self::Found(found) => Ok(*found),
            Self::Number { asked: (low, high), bound, complement, probability } => {
                let mut answer = answers[*low];
                if let Some(high) = high.map(|high| answers[high]) {
                    // The value is between the two answers.
                    answer = Answer {
                        value: 0.5 * (answer.value + high.value),
                        error: 0.5 * (high.value - answer.value).max(0.0)
                            + answer.error.max(high.error)
                            + f64::EPSILON * high.value.max(1.0),
                        loss: answer.loss.max(high.loss),
                        inside: answer.inside && high.inside,
                    };
                }
                if *complement {
                    let exact = answer.error == 0.0 && [0.0, 0.5, 1.0].contains(&answer.value);
                    answer.value = 1.0 - answer.value;
                    answer.error += if exact { 0.0 } else { 0.5 * f64::EPSILON };
                }
                if *probability {
                    answer = answer.probable();
                }
                let Some(bound) = bound else { return Ok(Verdict::Number(answer)) };
                Ok(Verdict::Truth(decide(bound, &answer, *probability), Some(answer)))
            }
            Self::Combination(combination, parts) => {
                let parts: Vec<Verdict> =
                    parts.iter().map(|part| part.found(answers)).collect::<Result<_>>()?;
                Ok(combined(combination, &parts))
            }
        }
    }
}

/// Evaluates a combination from the intervals of its operands.
fn combined(combination: &Combination, parts: &[Verdict]) -> Verdict {
    let ranges: Vec<(f64, f64)> = parts.iter().map(Verdict::range).collect();
    let range = combination.range(&ranges);
    if combination.is_truth() {
        return Verdict::truth(range);
    }
    let answer = Answer::within(range);
    let lost = parts.iter().any(|part| matches!(part, Verdict::Number(part) if part.loss > 0.0));
    Verdict::Number(Answer { loss: if lost { answer.error } else { 0.0 }, ..answer })
}
