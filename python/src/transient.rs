//! `kolmo.transient`: probabilities of a chain at some times.

use kolmo::io::generator::Content;
use kolmo::lane::DeviceSpec;
use kolmo::transient::{
    Initial, Observer, Options, Problem, Reward, Solution, TimeResult, Transitions, capacity, solve,
};
use kolmo::{Machine, Result, Status};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::machine::{Place, names};
use crate::matrix::Arrays;
use crate::watch::{Told, brief, watched};

/// Where a chain begins: in a state, or with these probabilities.
#[derive(FromPyObject)]
pub(crate) enum Begin<'py> {
    State(usize),
    Distribution(PyReadonlyArray1<'py, f64>),
}

impl Begin<'_> {
    pub(crate) fn initial(&self) -> PyResult<Initial> {
        Ok(match self {
            Self::State(state) => Initial::State(*state),
            Self::Distribution(p) => Initial::Distribution(p.as_slice()?.to_vec()),
        })
    }
}

/// What is asked of a chain, but for the chain.
#[derive(FromPyObject)]
pub(crate) struct Question<'py> {
    times: Vec<f64>,
    rewards: Vec<(String, PyReadonlyArray1<'py, f64>)>,
    place: Place,
    epsilon: f64,
    progress: Option<Bound<'py, PyAny>>,
}

/// The chain of SciPy's matrix `q`, `absorbing` states without a way out.
#[pyfunction]
pub(crate) fn transient<'py>(
    py: Python<'py>,
    q: Arrays<'py>,
    begin: Begin<'py>,
    absorbing: Option<PyReadonlyArray1<'py, bool>>,
    question: Question<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let initial = begin.initial()?;
    let absorbing = absorbing.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let matrix = q.matrix()?;
    let chain = py.detach(|| matrix.chain(absorbing));
    let (chain, content) = chain.map_err(|error| exception(py, &error))?;
    let answer = answer(py, &*chain, &initial, &question)?;
    answer.set_item("stochastic", content == Content::Stochastic)?;
    Ok(answer)
}

/// Rows of probabilities, written where NumPy has them.
struct Rows<'a, 'b> {
    n: usize,
    p: &'a mut [f64],
    told: &'a mut Told<'b>,
}

impl Observer for Rows<'_, '_> {
    fn progress(&mut self, done: u64, all: u64) -> Result<()> {
        (self.told)(done, all)
    }

    fn result(&mut self, index: usize, probabilities: &[f64]) -> Result<()> {
        self.p[index * self.n..][..self.n].copy_from_slice(probabilities);
        Ok(())
    }
}

/// Solves, and puts everything into a dict.
pub(crate) fn answer<'py>(
    py: Python<'py>,
    transitions: &dyn Transitions,
    initial: &Initial,
    question: &Question<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut rewards = Vec::with_capacity(question.rewards.len());
    for (name, values) in &question.rewards {
        rewards.push(Reward { name: name.clone(), values: values.as_slice()?.to_vec() });
    }
    let (times, n) = (&question.times[..], transitions.states());
    let p = PyArray2::<f64>::zeros(py, [times.len(), n], false);
    let mut held = p.try_readwrite()?;
    let room = held.as_slice_mut()?;
    let problem = Problem { transitions, initial, times, rewards: &rewards, vectors: true };
    let options = Options { epsilon: question.epsilon, ..Options::default() };
    let failed = |error| exception(py, &error);
    let mut wanted = question.place.wanted().map_err(failed)?;
    let short = is_short(&problem);
    if wanted.is(&DeviceSpec::Auto) {
        let seconds = || py.detach(|| capacity::seconds_on_cores(&problem, &options)).map_err(failed);
        if short || seconds()?.is_some_and(|seconds| seconds < capacity::GPU_START) {
            wanted = wanted.on(DeviceSpec::Cpu);
        }
    }
    let work = |told: &mut Told<'_>| {
        wanted.with(|machine: &Machine| {
            let mut rows = Rows { n, p: room, told };
            Ok((solve(machine, &problem, &options, &mut rows)?, names(machine)))
        })
    };
    // A thread of its own costs as much as many a solve.
    let (solution, device) = match &question.progress {
        None if short && wanted.is(&DeviceSpec::Cpu) => brief(py, work)?,
        progress => watched(py, progress.as_ref(), work)?,
    };
    drop(held);
    let answer = told(py, &solution)?;
    answer.set_item("p", p)?;
    answer.set_item("device", device)?;
    Ok(answer)
}

/// True for a few states and some hundred multiplications, which the cores do in milliseconds.
fn is_short(problem: &Problem<'_>) -> bool {
    let n = problem.transitions.states();
    if n > 256 {
        return false;
    }
    let mut exit = vec![0.0; n];
    problem.transitions.exit_rates(0..n, &mut exit);
    let alpha = exit.into_iter().fold(0.0, f64::max);
    problem.times.iter().all(|time| alpha * time < 1000.0)
}

/// A solution's facts, but for the probabilities.
fn told<'py>(py: Python<'py>, solution: &Solution) -> PyResult<Bound<'py, PyDict>> {
    let answer = PyDict::new(py);
    let each = |fact: fn(&TimeResult) -> f64| PyArray1::from_iter(py, solution.times.iter().map(fact));
    answer.set_item("met", solution.status == Status::Met)?;
    answer.set_item("times", each(|time| time.time))?;
    answer.set_item("bound", each(|time| time.bound.total()))?;
    answer.set_item("truncation", each(|time| time.bound.truncation))?;
    answer.set_item("steady_state", each(|time| time.bound.steady_state))?;
    answer.set_item("rounding", each(|time| time.bound.rounding))?;
    let contradictions = solution.times.iter().filter_map(|time| time.contradiction.clone());
    answer.set_item("contradictions", contradictions.collect::<Vec<_>>())?;
    let (rewards, accumulated) = (PyDict::new(py), PyDict::new(py));
    for (place, reward) in solution.times[0].rewards.iter().enumerate() {
        let of = |time: &TimeResult| time.rewards[place].instantaneous;
        rewards.set_item(&reward.name, PyArray1::from_iter(py, solution.times.iter().map(of)))?;
        let of = |time: &TimeResult| time.rewards[place].cumulative;
        accumulated.set_item(&reward.name, PyArray1::from_iter(py, solution.times.iter().map(of)))?;
    }
    answer.set_item("rewards", rewards)?;
    answer.set_item("accumulated", accumulated)?;
    answer.set_item("alpha", solution.alpha)?;
    answer.set_item("terms", solution.terms)?;
    answer.set_item("seconds", solution.seconds.total)?;
    Ok(answer)
}
