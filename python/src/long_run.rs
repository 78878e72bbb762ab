//! `kolmo.stationary`, `absorption`, `hitting_time`, `expected_reward` and `visits`.

use crate::prelude::*;
use kolmo::Iterate;
use kolmo::io::rate_matrix_kind::Content;
use kolmo::transient::gradient::{Bounded, Parameter};
use kolmo::transient::long_run::{
    FromStates, absorption_gradient, expected_reward_gradient, stationary, stationary_gradient, visits,
};
use kolmo::transient::{Options, Transitions};
use numpy::PyArray2;

use crate::chain::PyChain;
use crate::gradient::{BorrowedParameter, ParameterArg, borrowed};
use crate::matrix::{self, SparseArrays, SparseMatrix};
use crate::transient::Begin;
use crate::walk::limit;
use crate::watch::Stoppable;

/// Maximum number of states for which `auto` does not open a GPU.
const FEW: usize = 1 << 12;

/// Matrix or chain that a long-run query refers to.
#[derive(FromPyObject)]
pub(crate) enum ChainArg<'py> {
    Matrix(SparseArrays<'py>),
    Chain(Bound<'py, PyChain>),
}

/// A long-run query (stationary distribution, absorption, …), without its chain.
#[derive(FromPyObject)]
pub(crate) struct LongRun<'py> {
    name: String,
    kind: Option<String>,
    sets: Vec<(String, PyReadonlyArray1<'py, u32>)>,
    begin: Option<Begin<'py>>,
    reward: Option<PyReadonlyArray1<'py, f64>>,
    place: DeviceChoice,
    epsilon: f64,
    time_limit: Option<f64>,
    /// Derivatives by each parameter.
    gradient: Vec<ParameterArg<'py>>,
    progress: Option<Bound<'py, PyAny>>,
}

/// Observer that ends iterations at a time, and keeps their last residual.
struct DeadlineObserver<'a> {
    told: &'a mut dyn Progress,
    end: Option<Instant>,
    /// Last residual, and last reason why a bound fell no further.
    residual: Option<f64>,
    limit: Option<&'static str>,
}

impl Progress for DeadlineObserver<'_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        self.told.progress(done, all)
    }

    fn iterate(&mut self, iterate: Iterate) -> Result<bool> {
        self.limit = iterate.limit.or(self.limit);
        self.residual = if iterate.steps > 0 { Some(iterate.residual) } else { self.residual };
        let goes_on = self.told.iterate(iterate)?;
        Ok(goes_on && self.end.is_none_or(|end| Instant::now() < end))
    }
}

/// True if bounds are met, with values and bounds: of the query, then of each derivative.
type QueryResults = Vec<(bool, [Vec<f64>; 2])>;

fn of_states((value, by): (FromStates, Vec<FromStates>)) -> QueryResults {
    let one = |FromStates { values, bounds, status, .. }| (status == Status::Met, [values, bounds]);
    std::iter::once(value).chain(by).map(one).collect()
}

/// Answers a long-run query, and returns a dict.
#[pyfunction]
pub(crate) fn long_run<'py>(
    py: Python<'py>,
    subject: ChainArg<'py>,
    question: LongRun<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let (at, failed) = (Instant::now(), |error: Error| exception(py, &error));
    let wanted = question.place.wanted().map_err(failed)?;
    let end = question.time_limit.map(limit).transpose().map_err(failed)?;
    let end = end.and_then(|limit| at.checked_add(limit));
    let begin = question.begin.as_ref().map(Begin::initial).transpose()?;
    let reward = question.reward.as_ref().map(|reward| reward.as_slice()).transpose()?;
    let sets = question.sets.iter().map(|(name, states)| Ok((&name[..], states.as_slice()?)));
    let sets = sets.collect::<PyResult<Vec<_>>>()?;
    let (matrix, held) = match &subject {
        ChainArg::Matrix(arrays) => (Some(arrays.matrix()?), None),
        ChainArg::Chain(chain) => (None, Some(chain.get())),
    };
    let (stop, kind) = (Stop::default(), question.kind.as_deref());
    let derivatives = borrowed(&question.gradient)?;
    let (asked, options) = (&question.name[..], Options::default().epsilon(question.epsilon));
    // Values from each state need outgoing transitions alone.
    let from_each = matches!(asked, "absorption" | "reward");
    let (mut device, mut residual, mut limit) = (None, None, None);
    let work = |told: &mut dyn Progress| -> Result<(Vec<QueryResults>, Content)> {
        let told = &mut DeadlineObserver { told, end, residual: None, limit: None };
        let (chain, content) = match (&matrix, held) {
            (Some(matrix), _) => chain_of(matrix, kind, !from_each, &stop)?,
            (None, Some(held)) => (held.shared(&stop), Content::Rates),
            (None, None) => unreachable!("a matrix or a chain"),
        };
        let initial = begin.as_ref().or(held.map(PyChain::initial_of));
        let until = sets.first().map(|(_, states)| *states);
        let parameter = |(name, rates, initial): &BorrowedParameter<'_>| {
            let initial = initial.map(<[f64]>::to_vec);
            Ok(Parameter { name: (*name).clone(), rates: rates.csr(&stop)?, initial })
        };
        let parameters: Vec<Parameter> = derivatives.iter().map(parameter).collect::<Result<_>>()?;
        let found = match (asked, reward) {
            ("absorption", _) => {
                let found = absorption_gradient(&*chain, &sets, &parameters, &options, told)?;
                found.into_iter().map(of_states).collect()
            }
            ("reward", Some(reward)) => {
                let by = (&parameters[..], &[][..]);
                vec![of_states(expected_reward_gradient(&*chain, reward, until, by, &options, told)?)]
            }
            ("stationary", _) if !parameters.is_empty() => {
                let (value, by) = stationary_gradient(&*chain, begin.as_ref(), &parameters, &options, told)?;
                device = Some("cpu".to_owned());
                let one = |own: Bounded| (own.is_within(options.epsilon), [own.values, vec![own.bound]]);
                vec![std::iter::once(value).chain(by).map(one).collect()]
            }
            _ => wanted.briefly(chain.states() <= FEW).0.with(|machine| {
                let value = match (asked, initial) {
                    ("visits", Some(initial)) => visits(machine, &*chain, initial, until, &options, told)?,
                    _ => stationary(machine, &*chain, begin.as_ref(), &options, told)?,
                };
                device = Some(names(machine));
                Ok(vec![vec![(value.status == Status::Met, [value.values, vec![value.bound]])]])
            })?,
        };
        (residual, limit) = (told.residual, told.limit);
        Ok((found, content))
    };
    let (found, content) = watched(py, question.progress.as_ref(), &stop, work)?;
    let answer = values_of(py, &found, question.gradient.iter().map(|(name, ..)| name))?;
    let met = found.iter().flatten().all(|of| of.0);
    if device.is_some() {
        answer.set_item("device", device)?;
    }
    answer.set_item("met", met)?;
    answer.set_item("kind", kind_of(content))?;
    answer.set_item("residual", residual)?;
    answer.set_item("limit", limit.filter(|_| !met))?;
    answer.set_item("seconds", at.elapsed().as_secs_f64())?;
    Ok(answer)
}

/// Returns a dict of the values, and of their derivatives by `names`.
fn values_of<'py, 'a>(
    py: Python<'py>,
    found: &[QueryResults],
    names: impl Iterator<Item = &'a String>,
) -> PyResult<Bound<'py, PyDict>> {
    let (answer, by, bounds) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    // The values of each set are followed by their derivatives.
    let array = |k: usize, part: usize| {
        PyArray2::from_vec2(py, &found.iter().map(|of| of[k].1[part].clone()).collect::<Vec<_>>())
    };
    answer.set_item("values", array(0, 0)?)?;
    answer.set_item("bound", array(0, 1)?)?;
    for (k, name) in (1..).zip(names) {
        by.set_item(name, array(k, 0)?)?;
        bounds.set_item(name, array(k, 1)?)?;
    }
    answer.set_item("gradient", by)?;
    answer.set_item("gradient_bound", bounds)?;
    Ok(answer)
}

fn kind_of(content: Content) -> &'static str {
    match content {
        Content::Rates => "rates",
        Content::Stochastic => "stochastic",
        Content::Generator => "generator",
    }
}

/// Builds the chain of a matrix, and checks that the matrix is of the requested kind.
fn chain_of<'a>(
    matrix: &'a SparseMatrix<'_>,
    kind: Option<&str>,
    both: bool,
    stop: &'a Stop,
) -> Result<matrix::AsChain<'a>> {
    let (chain, found) = matrix.chain(None, both, stop)?;
    let fail = |why: String| Err(Error::invalid(why));
    let content = match (kind, found) {
        (None, found) | (Some("generator"), found @ Content::Generator) => found,
        (Some("stochastic" | "rates"), Content::Generator) => {
            return fail(format!(
                "Q has a negative diagonal entry, as a generator has: expected kind 'generator', not '{}'; \
                 leave `kind` out",
                kind.unwrap_or_default()
            ));
        }
        (Some("rates"), _) => Content::Rates,
        (Some("stochastic"), _) => {
            let rows = matrix.csr(stop)?;
            let sums = (0..rows.rows()).map(|i| rows.row(i).1.iter().sum::<f64>());
            if let Some((i, sum)) = sums.enumerate().find(|(_, sum)| (sum - 1.0).abs() > 1e-3) {
                return fail(format!(
                    "row {i} of Q, counted from 0, sums to {sum}: expected 1 in a stochastic matrix; set \
                     the diagonal entry of an absorbing state to 1"
                ));
            }
            Content::Stochastic
        }
        (Some(kind), _) => {
            return fail(format!(
                "Q has no negative diagonal entry: expected the diagonal of a generator for kind \
                 '{kind}'; leave `kind` out for a matrix of rates"
            ));
        }
    };
    Ok((chain, content))
}

impl PyChain {
    /// Returns the chain's transitions, which check for cancellation at each row.
    fn shared(&self, stop: &Stop) -> Box<dyn Transitions> {
        Box::new(Stoppable { inner: self.transitions(), stop: stop.clone() })
    }
}
