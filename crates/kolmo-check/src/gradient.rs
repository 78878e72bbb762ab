//! Derivatives of answers by constants of a model.

use std::collections::HashMap;
use std::sync::Arc;

use crate::answer::Answer;
use crate::compensated;
use crate::executor::{Absorbed, Needs, Reached};
use crate::language::refused;
use crate::uniformization::{Quantity, Request, UniformizationRun};
use kolmo::sparse::CsrMatrix;
use kolmo::transient::gradient::{Bounded, Parameter, TimeGradient, forward};
use kolmo::transient::long_run::{
    Differentiated, FromStates, Occupancy, absorption_gradient, expected_reward_gradient, stationary_gradient,
};
use kolmo::transient::{Chain, Initial, Options, Problem, Status, Transitions};
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

/// Chain with absorbing states, and the derivatives of its rates.
struct Subject<'a> {
    chain: Chain,
    parameters: Vec<Parameter>,
    needs: &'a Needs,
    options: &'a Options,
}

/// Status of the bounds of derivatives, and the derivatives of answers.
type Found = (Status, Derivatives);

impl<'a> Subject<'a> {
    fn new(
        transitions: &Arc<dyn Transitions>,
        absorbing: &[u32],
        needs: &'a Needs,
        options: &'a Options,
    ) -> Self {
        let chain = Chain::new("", Box::new(transitions.clone()));
        let chain = if absorbing.is_empty() { chain } else { chain.absorbing(absorbing) };
        let mut stays = vec![false; transitions.states()];
        absorbing.iter().for_each(|&state| stays[state as usize] = true);
        let parameter = |derivatives: &RateDerivatives| {
            let rates = CsrMatrix::from_rows(stays.len(), stays.len(), |state, row| {
                let (to, values) = derivatives.rates.row(state);
                let moves = to.iter().copied().zip(values.iter().copied());
                row.extend(moves.filter(|(_, change)| !stays[state] && *change != 0.0));
            });
            Parameter { name: derivatives.name.clone(), rates, initial: None }
        };
        Self { chain, parameters: needs.gradient.iter().map(parameter).collect(), needs, options }
    }

    /// Returns one derivative of each answer for each constant, all of which are equal.
    fn all(&self, answers: impl Iterator<Item = usize>, one: &Derivative) -> Derivatives {
        answers.map(|answer| (answer, vec![one.clone(); self.parameters.len()])).collect()
    }

    /// Returns derivatives, or their reason for all `answers` if the input is rejected.
    fn kept(&self, found: Result<Found>, answers: impl Iterator<Item = usize>) -> Result<Found> {
        match found {
            Err(Error::Invalid(_, why)) => Ok((Status::Met, self.all(answers, &Err(why)))),
            other => other,
        }
    }

    /// Computes derivatives at finite times.
    fn at_times(
        &self,
        initial: &Initial,
        asked: &[&Request],
        machine: &Machine,
        watch: &mut dyn Progress,
    ) -> Result<Found> {
        let mut times: Vec<f64> = asked.iter().map(|asked| asked.time).collect();
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        let problem = Problem::new(&*self.chain.transitions, initial, &times);
        let integrals = asked.iter().any(|asked| matches!(asked.what, Quantity::Cumulative(_)));
        let found = forward(machine, &problem, &self.parameters, self.options, integrals, watch)?;
        let met = |vector: &Bounded| vector.is_within(self.options.epsilon);
        let met = found.times.iter().all(|time| time.derivatives.iter().all(met));
        let of = |asked: &&Request| {
            let time = &found.times[times.partition_point(|time| *time < asked.time)];
            (asked.answer, self.of_request(asked, time))
        };
        Ok((if met { Status::Met } else { Status::NotMet }, asked.iter().map(of).collect()))
    }

    /// Computes derivatives of the limit distribution.
    fn of_limit(&self, initial: &Initial, asked: &[&Request], watch: &mut dyn Progress) -> Result<Found> {
        let transitions = &*self.chain.transitions;
        let Differentiated { value, derivatives, .. } =
            stationary_gradient(transitions, Some(initial), &self.parameters, self.options, watch)?;
        let status = worst(derivatives.iter().map(|own| own.status));
        let bounded = |Occupancy { values, bound, .. }| Bounded { values, bound };
        let time = TimeGradient {
            probabilities: bounded(value),
            derivatives: derivatives.into_iter().map(bounded).collect(),
            ..TimeGradient::default()
        };
        Ok((status, asked.iter().map(|asked| (asked.answer, self.of_request(asked, &time))).collect()))
    }

    fn of_request(&self, asked: &Request, time: &TimeGradient) -> Vec<Derivative> {
        (0..self.parameters.len()).map(|k| of_request(asked, time, k, self.needs)).collect()
    }

    /// Returns the means of derivatives from each state, by an initial distribution.
    fn means(
        &self,
        initial: &Initial,
        found: &Differentiated<FromStates>,
    ) -> Result<(Status, Vec<Derivative>)> {
        let weights = initial.probabilities(found.value.values.len())?;
        let mean = |own: &FromStates| {
            let given = weights.iter().zip(&own.bounds).map(|(p, bound)| p * bound).sum();
            let reached = || weights.iter().zip(&own.values).filter(|(p, _)| **p > 0.0);
            match reached().any(|(_, value)| value.is_nan()) {
                true => Err("the value is infinite, and has no derivative".to_owned()),
                false => Ok(sum(reached().map(|(p, value)| p * value), given)),
            }
        };
        let status = worst(found.derivatives.iter().map(|own| own.status));
        Ok((status, found.derivatives.iter().map(mean).collect()))
    }
}

fn worst(mut all: impl Iterator<Item = Status>) -> Status {
    if all.all(|status| status == Status::Met) { Status::Met } else { Status::NotMet }
}

/// Computes the derivatives of all answers of a uniformization run.
///
/// Answers with a lower time bound get a reason instead. The status tells if the bounds of all
/// derivatives of probabilities are within the requested error. If the l1 norm of a derivative
/// exceeds 1, its bound is relative to that norm.
pub(crate) fn solve(
    run: &UniformizationRun,
    transitions: &Arc<dyn Transitions>,
    needs: &Needs,
    (machine, options): (&Machine, &Options),
    watch: &mut dyn Progress,
) -> Result<Found> {
    let subject = Subject::new(transitions, &run.absorbing, needs, options);
    let answers = |asked: &[&Request]| asked.iter().map(|asked| asked.answer).collect::<Vec<_>>().into_iter();
    if run.later.is_some() {
        let why = "derivatives are not supported for lower time bounds: expected an upper time bound alone";
        return Ok((
            Status::Met,
            subject.all(run.asked.iter().map(|asked| asked.answer), &Err(why.to_owned())),
        ));
    }
    let (bounded, endless): (Vec<&Request>, Vec<&Request>) =
        run.asked.iter().partition(|asked| asked.time.is_finite());
    let mut found: Found = (Status::Met, Derivatives::new());
    if !bounded.is_empty() {
        found = subject.kept(subject.at_times(&run.initial, &bounded, machine, watch), answers(&bounded))?;
    }
    if !endless.is_empty() {
        let limit = subject.kept(subject.of_limit(&run.initial, &endless, watch), answers(&endless))?;
        found = (worst([found.0, limit.0].into_iter()), found.1.into_iter().chain(limit.1).collect());
    }
    Ok(found)
}

/// Computes the derivatives of probabilities of ever reaching sets of states.
pub(crate) fn of_reached(
    reached: &Reached,
    transitions: &Arc<dyn Transitions>,
    needs: &Needs,
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<Found> {
    let subject = Subject::new(transitions, &reached.absorbing, needs, options);
    let mut all: Found = (Status::Met, Derivatives::new());
    for (answer, set) in &reached.asked {
        let sets = [("the set of the property", &set[..])];
        let found =
            absorption_gradient(&*subject.chain.transitions, &sets, &subject.parameters, options, watch);
        let found = found.and_then(|found| subject.means(&reached.initial, &found[0]));
        let found = found.map(|(status, own)| (status, Derivatives::from([(*answer, own)])));
        let (status, own) = subject.kept(found, [*answer].into_iter())?;
        all.0 = worst([all.0, status].into_iter());
        all.1.extend(own);
    }
    Ok(all)
}

/// Computes the derivatives of rewards and times until absorption.
pub(crate) fn of_absorbed(
    absorbed: &Absorbed,
    transitions: &Arc<dyn Transitions>,
    needs: &Needs,
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<Found> {
    let subject = Subject::new(transitions, &absorbed.absorbing, needs, options);
    let ones = vec![1.0; transitions.states()];
    let mut all: Found = (Status::Met, Derivatives::new());
    for (answer, reward) in &absorbed.asked {
        let changes = |of: &RateDerivatives| reward.map(|k| of.rewards[k].clone()).transpose();
        let changes = needs.gradient.iter().map(changes).collect::<std::result::Result<Vec<_>, String>>();
        let found = changes.map_err(Error::invalid).and_then(|changes| {
            let changes: Vec<Option<&[f64]>> = changes.iter().map(Option::as_deref).collect();
            let values = reward.map_or(&ones, |k| &needs.rewards[k].values);
            let (until, by) = (Some(&absorbed.absorbing[..]), (&subject.parameters[..], &changes[..]));
            let found =
                expected_reward_gradient(&*subject.chain.transitions, values, until, by, options, watch)?;
            subject.means(&absorbed.initial, &found)
        });
        let found = found.map(|(status, own)| (status, Derivatives::from([(*answer, own)])));
        let (status, own) = subject.kept(found, [*answer].into_iter())?;
        all.0 = worst([all.0, status].into_iter());
        all.1.extend(own);
    }
    Ok(all)
}

/// Returns the derivative of a requested quantity by constant number `k`.
fn of_request(asked: &Request, time: &TimeGradient, k: usize, needs: &Needs) -> Derivative {
    let (own, derivative) = (&time.probabilities, &time.derivatives[k]);
    let reward = |place: usize, own: &Bounded, derivative: &Bounded| {
        let (rewards, derivatives) =
            (&needs.rewards[place].values, needs.gradient[k].rewards[place].as_ref()?);
        Ok(dot(&[(rewards, derivative), (derivatives, own)]))
    };
    let answer: std::result::Result<Answer, &String> = match &asked.what {
        Quantity::States(states) => {
            let terms = states.iter().map(|&state| derivative.values[state as usize]);
            Ok(sum(terms, derivative.bound))
        }
        Quantity::Instantaneous(place) => reward(*place, own, derivative),
        Quantity::Cumulative(place) => match time.integrals.as_ref() {
            Some((own, all)) => reward(*place, own, &all[k]),
            None => return Err("derivatives are not supported for rewards over all time".to_owned()),
        },
    };
    answer.map_err(Clone::clone)
}

/// Computes the dot products of weights and vectors, with the error of both.
fn dot(terms: &[(&Vec<f64>, &Bounded)]) -> Answer {
    let of = |(weights, vector): &(&Vec<f64>, &Bounded)| {
        weights.iter().zip(&vector.values).map(|(w, v)| w * v).collect::<Vec<_>>()
    };
    let most = |weights: &[f64]| weights.iter().fold(0.0f64, |most, w| w.abs().max(most));
    let given: f64 = terms.iter().map(|(weights, vector)| most(weights) * vector.bound).sum();
    sum(terms.iter().flat_map(of), given)
}

/// Computes a sum of products, with a bound that counts their given error and rounding.
fn sum(products: impl Iterator<Item = f64>, given: f64) -> Answer {
    let products: Vec<f64> = products.collect();
    let part = |sign: f64| compensated(products.iter().map(|p| sign * p).filter(|p| *p > 0.0));
    let (plus, minus) = (part(1.0), part(-1.0));
    Answer::new(plus - minus, 1.001 * given + 4.0 * f64::EPSILON * (plus + minus))
}
