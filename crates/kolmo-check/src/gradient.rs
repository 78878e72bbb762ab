//! Derivatives of answers by constants of a model.

use std::collections::HashMap;
use std::sync::Arc;

use crate::answer::Answer;
use crate::compensated;
use crate::errors::refused;
use crate::source::refuse;
use crate::state_sets::mask;
use crate::uniformization::{Measure, TimedMeasure, UniformizationRun};
use kolmo::sparse::CsrMatrix;
use kolmo::transient::gradient::{Bounded, Parameter, TimeGradient, forward};
use kolmo::transient::long_run::{
    FromStates, absorption_gradient, expected_reward_gradient, stationary_gradient,
};
use kolmo::transient::{Chain, Initial, Options, Problem, Reward, Status, Transitions};
use kolmo::{Error, Machine, Progress, Result};

/// Derivative of an answer by a constant, or the reason why it is not available.
pub type Derivative = std::result::Result<Answer, String>;

/// Derivatives of each answer by all constants. Keys are indices of answers.
pub(crate) type AnswerDerivatives = HashMap<usize, Vec<Derivative>>;

/// Derivatives of the rates and rewards of a chain by a constant.
#[derive(Debug)]
pub(crate) struct RateDerivatives {
    /// Name of the constant.
    name: String,
    rates: CsrMatrix,
    /// Derivative of each reward, or the reason why it has none.
    rewards: Vec<std::result::Result<Vec<f64>, String>>,
}

/// Rewards of a chain, and derivatives of its rates and rewards by the constants of the gradient.
#[derive(Clone, Copy)]
pub(crate) struct Differentiated<'a> {
    pub(crate) rewards: &'a [Reward],
    pub(crate) gradient: &'a [RateDerivatives],
}

/// Evaluates the derivatives of all rates and rewards of one chain by some constants.
///
/// A reward structure is given by its name, `None` for the first one. The flag is true if its
/// transition rewards are ignored. Fails for rates without a derivative.
pub(crate) fn evaluated(
    all: &[kolmo_model::ModelDerivatives<'_>],
    structures: &[(Option<String>, bool)],
) -> Result<Vec<RateDerivatives>> {
    let of = |derivatives: &kolmo_model::ModelDerivatives<'_>| {
        let (chain, rates) = (derivatives.space.chain(), derivatives.rates().map_err(refused)?);
        let starts: Vec<usize> = chain.offsets.iter().map(|&offset| offset as usize).collect();
        let (n, rewards) = (starts.len() - 1, structures.iter());
        let rewards = rewards.map(|(structure, of_states)| {
            derivatives.rewards(structure.as_deref(), *of_states).map_err(|why| why.to_string())
        });
        Ok(RateDerivatives {
            name: derivatives.name.clone(),
            rates: CsrMatrix::from_csr(n, n, &starts, &chain.columns, &rates)?,
            rewards: rewards.collect(),
        })
    };
    all.iter().map(of).collect()
}

/// Makes states of a chain absorbing, and selects the derivatives of the other rates.
fn absorbed(
    transitions: &Arc<dyn Transitions>,
    absorbing: &[u32],
    needs: Differentiated<'_>,
) -> (Chain, Vec<Parameter>) {
    let chain = Chain::new("", Box::new(transitions.clone()));
    let chain = if absorbing.is_empty() { chain } else { chain.absorbing(absorbing) };
    let stays = mask(absorbing, transitions.states());
    let parameter = |derivatives: &RateDerivatives| {
        let rates = CsrMatrix::from_rows(stays.len(), stays.len(), |state, row| {
            let (to, values) = derivatives.rates.row(state);
            let moves = to.iter().copied().zip(values.iter().copied());
            row.extend(moves.filter(|(_, change)| !stays[state] && *change != 0.0));
        });
        Parameter { name: derivatives.name.clone(), rates, initial: None }
    };
    (chain, needs.gradient.iter().map(parameter).collect())
}

/// Returns the derivatives of several answers, or the same reason for each if one is invalid.
fn kept(
    found: Result<(Status, AnswerDerivatives)>,
    answers: impl Iterator<Item = usize>,
    needs: Differentiated<'_>,
) -> Result<(Status, AnswerDerivatives)> {
    match found {
        Err(Error::Invalid(_, why)) => {
            let all = vec![Err(why); needs.gradient.len()];
            Ok((Status::Met, answers.map(|answer| (answer, all.clone())).collect()))
        }
        other => other,
    }
}

/// Computes the derivatives of all answers of a uniformization run for finite or `endless` times.
///
/// Answers with a lower time bound get a reason instead. The status tells if the bounds of all
/// derivatives of probabilities are within the requested error. If the l1 norm of a derivative
/// exceeds 1, its bound is relative to that norm.
pub(crate) fn solve(
    (run, endless): (&UniformizationRun, bool),
    transitions: &Arc<dyn Transitions>,
    needs: Differentiated<'_>,
    (machine, options): (&Machine, &Options),
    watch: &mut dyn Progress,
) -> Result<(Status, AnswerDerivatives)> {
    let asked: Vec<_> = run.asked.iter().filter(|asked| asked.time.is_infinite() == endless).collect();
    let (chain, parameters) = absorbed(transitions, &run.absorbing, needs);
    let mut solved = || {
        if asked.is_empty() {
            return Ok((Status::Met, AnswerDerivatives::new()));
        }
        if run.later.is_some() {
            return refuse(
                "derivatives are not supported for lower time bounds: expected an upper time bound alone",
            );
        }
        let mut times: Vec<f64> = asked.iter().map(|asked| asked.time).collect();
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        let problem = Problem::new(&*chain.transitions, &run.initial, &times);
        let integrals = asked.iter().any(|asked| matches!(asked.what, Measure::Cumulative(_)));
        let found = if endless {
            let initial = Some(&run.initial);
            let (probabilities, derivatives) =
                stationary_gradient(&*chain.transitions, initial, &parameters, options, watch)?;
            vec![TimeGradient { probabilities, derivatives, ..TimeGradient::default() }]
        } else {
            forward(machine, &problem, &parameters, options, integrals, watch)?.times
        };
        let met = |vector: &Bounded| vector.is_within(options.epsilon);
        let met = found.iter().all(|time| time.derivatives.iter().all(met));
        let of = |asked: &&TimedMeasure| {
            let time = &found[times.partition_point(|time| *time < asked.time)];
            let derivative = |k: usize| of_request(asked, time, k, needs);
            (asked.answer, (0..parameters.len()).map(derivative).collect())
        };
        Ok((if met { Status::Met } else { Status::NotMet }, asked.iter().map(of).collect()))
    };
    kept(solved(), asked.iter().map(|asked| asked.answer), needs)
}

/// Computes the derivatives of an answer for unbounded time.
///
/// It is a probability of ever reaching a set, or without one a reward or time until absorption.
pub(crate) fn solve_ever(
    (answer, set, reward, absorbing, initial): (usize, Option<&[u32]>, Option<usize>, &[u32], &Initial),
    transitions: &Arc<dyn Transitions>,
    needs: Differentiated<'_>,
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<(Status, AnswerDerivatives)> {
    let (chain, parameters) = absorbed(transitions, absorbing, needs);
    let mut solved = || {
        let (_, found) = match set {
            Some(set) => {
                absorption_gradient(&*chain.transitions, &[("", set)], &parameters, options, watch)?.remove(0)
            }
            None if absorbing.is_empty() => {
                return Err(Error::invalid("the value is infinite, and has no derivative"));
            }
            None => {
                let change = |of: &RateDerivatives| reward.map(|k| of.rewards[k].clone()).transpose();
                let changes = needs.gradient.iter().map(change).collect::<std::result::Result<Vec<_>, _>>();
                let changes = changes.map_err(Error::invalid)?;
                let changes: Vec<Option<&[f64]>> = changes.iter().map(Option::as_deref).collect();
                let ones = vec![1.0; transitions.states()];
                let values = reward.map_or(&ones, |k| &needs.rewards[k].values);
                let by = (&parameters[..], &changes[..]);
                expected_reward_gradient(&*chain.transitions, values, Some(absorbing), by, options, watch)?
            }
        };
        let weights = initial.probabilities(transitions.states())?;
        let mean = |own: &FromStates| {
            let reached =
                || weights.iter().zip(own.values.iter().zip(&own.bounds)).filter(|(p, _)| **p > 0.0);
            let given = reached().map(|(p, (_, bound))| p * bound).sum();
            match reached().any(|(_, (value, _))| value.is_nan()) {
                true => Err("the value is infinite, and has no derivative".to_owned()),
                false => Ok(sum(reached().map(|(p, (value, _))| p * value), given)),
            }
        };
        let met = found.iter().all(|own| own.status == Status::Met);
        let all = found.iter().map(mean).collect();
        Ok((if met { Status::Met } else { Status::NotMet }, AnswerDerivatives::from([(answer, all)])))
    };
    kept(solved(), [answer].into_iter(), needs)
}

/// Returns the derivative of a requested quantity by constant number `k`.
fn of_request(asked: &TimedMeasure, time: &TimeGradient, k: usize, needs: Differentiated<'_>) -> Derivative {
    let (own, derivative) = (&time.probabilities, &time.derivatives[k]);
    let reward = |place: usize, own: &Bounded, derivative: &Bounded| {
        let (rewards, derivatives) =
            (&needs.rewards[place].values, needs.gradient[k].rewards[place].as_ref()?);
        let most = |weights: &[f64]| weights.iter().fold(0.0f64, |most, w| w.abs().max(most));
        let of = |(weights, vector): (&Vec<f64>, &Bounded)| {
            weights.iter().zip(&vector.values).map(|(w, v)| w * v).collect::<Vec<f64>>()
        };
        let given = most(rewards) * derivative.bound + most(derivatives) * own.bound;
        Ok(sum([(rewards, derivative), (derivatives, own)].into_iter().flat_map(of), given))
    };
    let answer: std::result::Result<Answer, &String> = match &asked.what {
        Measure::States(states) => {
            Ok(sum(states.iter().map(|&state| derivative.values[state as usize]), derivative.bound))
        }
        Measure::Instantaneous(place) => reward(*place, own, derivative),
        Measure::Cumulative(place) => {
            let Some((own, all)) = time.integrals.as_ref() else {
                return Err("derivatives of rewards over all time are not supported".to_owned());
            };
            reward(*place, own, &all[k])
        }
    };
    answer.map_err(Clone::clone)
}

/// Computes a sum of products, with a bound that counts their given error and rounding.
fn sum(products: impl Iterator<Item = f64>, given: f64) -> Answer {
    let products: Vec<f64> = products.collect();
    let part = |sign: f64| compensated(products.iter().map(|p| sign * p).filter(|p| *p > 0.0));
    let (plus, minus) = (part(1.0), part(-1.0));
    Answer::new(plus - minus, 1.001 * given + 4.0 * f64::EPSILON * (plus + minus))
}
