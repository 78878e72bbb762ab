//! Derivatives of answers by constants of a model.

use std::collections::HashMap;
use std::sync::Arc;

use crate::answer::Answer;
use crate::compensated;
use crate::executor::Needs;
use crate::language::refused;
use crate::uniformization::{Quantity, Request, UniformizationRun};
use kolmo::sparse::CsrMatrix;
use kolmo::transient::gradient::{Bounded, Parameter, TimeGradient, forward};
use kolmo::transient::{Chain, Options, Problem, Status, Transitions};
use kolmo::{Error, Machine, Progress, Result};

/// Derivative of an answer by a constant, or the reason why it is not available.
pub type Derivative = std::result::Result<Answer, String>;

/// Derivatives of each answer by all constants. Keys are indices of answers.
pub(crate) type Derivatives = HashMap<usize, Vec<Derivative>>;

/// Derivatives of the rates and rewards of a chain by a constant.
#[derive(Debug)]
pub(crate) struct RateDerivatives {
    /// Name of the constant.
    name: String,
    rates: CsrMatrix,
    /// Derivative of each reward, or the reason why it has none.
    rewards: Vec<std::result::Result<Vec<f64>, String>>,
}

/// Evaluates the derivatives of all rates and rewards of one chain by some constants.
///
/// A reward structure is given by its name, `None` for the first one. The flag is true if its
/// transition rewards are ignored.
///
/// # Errors
/// Rates without a derivative.
pub(crate) fn evaluated(
    all: &[kolmo_model::Derivatives<'_>],
    structures: &[(Option<String>, bool)],
) -> Result<Vec<RateDerivatives>> {
    let of = |derivatives: &kolmo_model::Derivatives<'_>| {
        let (chain, rates) = (derivatives.space().chain(), derivatives.rates().map_err(refused)?);
        let starts: Vec<usize> = chain.offsets.iter().map(|&offset| offset as usize).collect();
        let (n, rewards) = (starts.len() - 1, structures.iter());
        let rewards = rewards.map(|(structure, of_states)| {
            derivatives.rewards(structure.as_deref(), *of_states).map_err(|why| why.to_string())
        });
        Ok(RateDerivatives {
            name: derivatives.name().to_owned(),
            rates: CsrMatrix::from_csr(n, n, &starts, &chain.columns, &rates)?,
            rewards: rewards.collect(),
        })
    };
    all.iter().map(of).collect()
}

/// Computes the derivatives of all answers of a uniformization run.
///
/// Answers with a lower time bound, or without an upper one, get a reason instead. The status tells
/// if the bounds of all derivatives of probabilities are within the requested error. If the l1 norm
/// of a derivative exceeds 1, its bound is relative to that norm.
pub(crate) fn solve(
    run: &UniformizationRun,
    transitions: &Arc<dyn Transitions>,
    needs: &Needs,
    (machine, options): (&Machine, &Options),
    watch: &mut dyn Progress,
) -> Result<(Status, Derivatives)> {
    let (bounded, unsupported): (Vec<&Request>, _) =
        run.asked.iter().partition(|asked| run.later.is_none() && asked.time.is_finite());
    let why = if run.later.is_some() { "lower time bounds" } else { "unbounded times" };
    let why = format!("derivatives are not supported for {why}: expected an upper time bound alone");
    let all = |answer: Derivative| vec![answer; needs.gradient.len()];
    let mut answers: Derivatives =
        unsupported.iter().map(|asked| (asked.answer, all(Err(why.clone())))).collect();
    if bounded.is_empty() {
        return Ok((Status::Met, answers));
    }
    let chain = Chain::new("", Box::new(transitions.clone()));
    let chain = if run.absorbing.is_empty() { chain } else { chain.absorbing(&run.absorbing) };
    let mut stays = vec![false; transitions.states()];
    run.absorbing.iter().for_each(|&state| stays[state as usize] = true);
    let parameter = |derivatives: &RateDerivatives| {
        let rates = CsrMatrix::from_rows(stays.len(), stays.len(), |state, row| {
            let (to, values) = derivatives.rates.row(state);
            let moves = to.iter().copied().zip(values.iter().copied());
            row.extend(moves.filter(|(_, change)| !stays[state] && *change != 0.0));
        });
        Parameter { name: derivatives.name.clone(), rates, initial: None }
    };
    let parameters: Vec<Parameter> = needs.gradient.iter().map(parameter).collect();
    let mut times: Vec<f64> = bounded.iter().map(|asked| asked.time).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    let problem = Problem::new(&*chain.transitions, &run.initial, &times);
    let integrals = bounded.iter().any(|asked| matches!(asked.what, Quantity::Cumulative(_)));
    let found = match forward(machine, &problem, &parameters, options, integrals, watch) {
        Ok(found) => found,
        Err(Error::Invalid(_, why)) => {
            answers.extend(bounded.iter().map(|asked| (asked.answer, all(Err(why.clone())))));
            return Ok((Status::Met, answers));
        }
        Err(error) => return Err(error),
    };
    let met = |vector: &Bounded| vector.is_within(options.epsilon);
    let met = found.times.iter().all(|time| time.derivatives.iter().all(met));
    for asked in bounded {
        let place = times.partition_point(|time| *time < asked.time);
        let derivative = |k: usize| of_request(asked, &found.times[place], k, needs);
        answers.insert(asked.answer, (0..parameters.len()).map(derivative).collect());
    }
    Ok((if met { Status::Met } else { Status::NotMet }, answers))
}

/// Returns the derivative of a requested quantity by constant number `k`.
fn of_request(asked: &Request, time: &TimeGradient, k: usize, needs: &Needs) -> Derivative {
    let (own, derivative) = (&time.probabilities, &time.derivatives[k]);
    let reward = |place: usize, own: &Bounded, derivative: &Bounded| {
        let (rewards, derivatives) =
            (&needs.rewards[place].values, needs.gradient[k].rewards[place].as_ref()?);
        Ok(sum(&[(rewards, derivative), (derivatives, own)]))
    };
    let answer: std::result::Result<Answer, &String> = match &asked.what {
        Quantity::States(states) => {
            let mut ones = vec![0.0; derivative.values.len()];
            states.iter().for_each(|&state| ones[state as usize] = 1.0);
            Ok(sum(&[(&ones, derivative)]))
        }
        Quantity::Instantaneous(place) => reward(*place, own, derivative),
        Quantity::Cumulative(place) => {
            let (own, all) = time.integrals.as_ref().expect("requested for accumulated rewards");
            reward(*place, own, &all[k])
        }
    };
    answer.map_err(Clone::clone)
}

/// Computes the sum of dot products of weights and vectors.
///
/// Its bound counts the errors of the vectors and the rounding of the sum.
fn sum(terms: &[(&Vec<f64>, &Bounded)]) -> Answer {
    let products = || {
        let of = |(weights, vector): &(&Vec<f64>, &Bounded)| {
            weights.iter().zip(&vector.values).map(|(w, v)| w * v).collect::<Vec<_>>()
        };
        terms.iter().flat_map(of)
    };
    let part = |sign: f64| compensated(products().map(|p| sign * p).filter(|p| *p > 0.0));
    let (plus, minus) = (part(1.0), part(-1.0));
    let most = |weights: &[f64]| weights.iter().fold(0.0f64, |most, w| w.abs().max(most));
    let given: f64 = terms.iter().map(|(weights, vector)| most(weights) * vector.bound).sum();
    Answer::new(plus - minus, 1.001 * given + 4.0 * f64::EPSILON * (plus + minus))
}
