//! `kolmo.transient`, `transient_batch`, `transition_matrices`: probabilities of chains at times.

use crate::prelude::*;
use kolmo::internals::alone;
use kolmo::io::rate_matrix_kind::Content;
use kolmo::lane::DeviceSpec;
use kolmo::transient::{
    Initial, Options, Problem, Reward, Solution, TimeResult, Transitions, estimate, in_lockstep, solve,
};
use numpy::{PyArray2, PyArray3, PyArrayMethods};
use pyo3::types::PyList;
use std::sync::{Mutex, PoisonError};

use crate::matrix::{AsChain, SparseArrays};
use crate::watch::brief;

/// Initial state or distribution.
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

/// A transient request, without its chain.
#[derive(FromPyObject)]
pub(crate) struct Question<'py> {
    pub(crate) times: Vec<f64>,
    rewards: Vec<(String, PyReadonlyArray1<'py, f64>)>,
    pub(crate) place: DeviceChoice,
    pub(crate) epsilon: f64,
    pub(crate) progress: Option<Bound<'py, PyAny>>,
}

impl Question<'_> {
    pub(crate) fn rewards(&self) -> PyResult<Vec<Reward>> {
        let reward = |(name, values): &(String, PyReadonlyArray1<'_, f64>)| {
            Ok(Reward { name: name.clone(), values: values.as_slice()?.to_vec() })
        };
        self.rewards.iter().map(reward).collect()
    }
}

/// NumPy array of numbers.
pub(crate) type FloatArray<'py> = Bound<'py, PyArray1<f64>>;

/// Computes P(t) of many chains: returns them, the bounds and the seconds.
#[pyfunction]
pub(crate) fn transition_matrices<'py>(
    py: Python<'py>,
    n: usize,
    q: PyReadonlyArray1<'py, f64>,
    times: PyReadonlyArray1<'py, f64>,
    place: DeviceChoice,
    progress: Option<Bound<'py, PyAny>>,
) -> PyResult<(FloatArray<'py>, FloatArray<'py>, f64)> {
    let (at, q, times) = (Instant::now(), q.as_slice()?, times.as_slice()?);
    let wanted = place.wanted().map_err(|error| exception(py, &error))?;
    let p = PyArray1::<f64>::zeros(py, q.len(), false);
    let mut room = p.try_readwrite()?;
    let values = room.as_slice_mut()?;
    let bounds = watched(py, progress.as_ref(), &Stop::default(), |told| {
        wanted.with(|machine| kolmo::transient::transition_matrices(machine, n, q, times, values, told))
    })?;
    drop(room);
    Ok((p, PyArray1::from_vec(py, bounds), at.elapsed().as_secs_f64()))
}

/// Solves for many chains of one pattern, whose rates `q` stores one after another.
///
/// Returns a dict with leading axes for chains. Chains that fail have an entry in `errors`.
#[pyfunction]
pub(crate) fn transient_batch<'py>(
    py: Python<'py>,
    q: SparseArrays<'py>,
    begin: Begin<'py>,
    question: Question<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let (initial, rewards, stop) = (begin.initial()?, question.rewards()?, Stop::default());
    let (matrices, times) = (q.batch()?, &question.times[..]);
    let (count, n) = (matrices.len(), matrices.first().map_or(0, |matrix| matrix.states()));
    let p = PyArray3::<f64>::zeros(py, [count, times.len(), n], false);
    let mut held = p.try_readwrite()?;
    let rooms: Vec<_> = held.as_slice_mut()?.chunks_mut((times.len() * n).max(1)).map(Mutex::new).collect();
    let options = Options::default().epsilon(question.epsilon);
    let wanted = question.place.wanted().map_err(|error| exception(py, &error))?;
    let work = |told: &mut dyn Progress| {
        wanted.with(|machine: &Machine| {
            let solved = each(count, n, told, |k, watch| {
                let (transitions, _) = matrices[k].chain(None, true, &stop)?;
                let problem = Problem::new(&*transitions, &initial, times).rewards(&rewards);
                let rows = |index: usize, probabilities: &[f64]| {
                    let mut room = rooms[k].lock().unwrap_or_else(PoisonError::into_inner);
                    room[index * n..][..n].copy_from_slice(probabilities);
                    Ok(())
                };
                solve(machine, &problem, &options, &mut (watch, rows))
            })?;
            Ok((solved, names(machine)))
        })
    };
    let begun = Instant::now();
    let (solved, device) = watched(py, question.progress.as_ref(), &stop, work)?;
    drop(rooms);
    drop(held);
    let (answer, chains, errors) = (PyDict::new(py), PyList::empty(py), PyDict::new(py));
    for (k, one) in solved.iter().enumerate() {
        match one {
            Ok(solution) => chains.append(told(py, solution)?)?,
            Err(error) => {
                chains.append(py.None())?;
                errors.set_item(k, error.to_string())?;
            }
        }
    }
    answer.set_item("p", p)?;
    answer.set_item("chains", chains)?;
    answer.set_item("errors", errors)?;
    answer.set_item("device", device)?;
    answer.set_item("seconds", begun.elapsed().as_secs_f64())?;
    Ok(answer)
}

/// Solves `count` chains of at most `n` states, and reports how many are done.
///
/// An interruption is an error, and so is the first error if no chain is solved.
pub(crate) fn each<R: Send>(
    count: usize,
    n: usize,
    told: &mut dyn Progress,
    solve: impl Fn(usize, &mut dyn Progress) -> Result<R> + Sync,
) -> Result<Vec<Result<R>>> {
    let told = Mutex::new((told, 0));
    let mut solved = in_lockstep(count, n, |k| {
        let report = |more: u64| {
            let (told, done) = &mut *told.lock().unwrap_or_else(PoisonError::into_inner);
            *done += more;
            told.progress(*done, count as u64)
        };
        report(0)?;
        let solved = solve(k, &mut |_: u64, _: u64| report(0));
        report(1).and(solved)
    });
    let interrupted = |one: &Result<R>| matches!(one, Err(Error::Interrupted));
    let all = || (!solved.is_empty() && solved.iter().all(Result::is_err)).then_some(0);
    match solved.iter().position(interrupted).or_else(all) {
        Some(k) => solved.swap_remove(k).and(Err(Error::Interrupted)),
        None => Ok(solved),
    }
}

/// Solves for the chain of SciPy's matrix `q`, with `absorbing` states made absorbing.
#[pyfunction]
pub(crate) fn transient<'py>(
    py: Python<'py>,
    q: SparseArrays<'py>,
    begin: Begin<'py>,
    absorbing: Option<PyReadonlyArray1<'py, bool>>,
    question: Question<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let initial = begin.initial()?;
    let absorbing = absorbing.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let matrix = q.matrix()?;
    let stop = Stop::default();
    answer(py, matrix.states(), &initial, &question, &stop, || matrix.chain(absorbing, true, &stop))
}

/// Solves for the chain of `n` states that `chain` makes, and returns a dict.
pub(crate) fn answer<'py, 'a>(
    py: Python<'py>,
    n: usize,
    initial: &Initial,
    question: &Question<'py>,
    stop: &Stop,
    chain: impl FnOnce() -> Result<AsChain<'a>> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let rewards = question.rewards()?;
    let times = &question.times[..];
    let p = PyArray2::<f64>::zeros(py, [times.len(), n], false);
    let mut held = p.try_readwrite()?;
    let room = held.as_slice_mut()?;
    let options = Options::default().epsilon(question.epsilon);
    let failed = |error| exception(py, &error);
    let wanted = question.place.wanted().map_err(failed)?;
    let made = if n <= FEW { Ok(chain().map_err(failed)?) } else { Err(chain) };
    let short = made.as_ref().is_ok_and(|(transitions, _)| is_short(&**transitions, times));
    let (mut wanted, brief_work) = wanted.briefly(short);
    let work = |told: &mut dyn Progress| {
        let (transitions, content) = match made {
            Ok(made) => made,
            Err(chain) => chain()?,
        };
        let problem = Problem::new(&*transitions, initial, times).rewards(&rewards);
        if wanted.is(&DeviceSpec::Auto)
            && estimate::seconds_on_cores(&problem, &options, None)?
                .is_some_and(|seconds| seconds < estimate::GPU_START)
        {
            wanted = wanted.on(DeviceSpec::Cpu);
        }
        wanted.with(|machine: &Machine| {
            let rows = |index: usize, probabilities: &[f64]| {
                room[index * n..][..n].copy_from_slice(probabilities);
                Ok(())
            };
            let solve = || solve(machine, &problem, &options, &mut (&mut *told, rows));
            let solution = if brief_work { alone(solve) } else { solve() };
            Ok((solution?, names(machine), content))
        })
    };
    // Starting a thread takes as long as a short solve.
    let (solution, device, content) = match &question.progress {
        None if brief_work => brief(py, work)?,
        progress => watched(py, progress.as_ref(), stop, work)?,
    };
    drop(held);
    let answer = told(py, &solution)?;
    answer.set_item("p", p)?;
    answer.set_item("device", device)?;
    answer.set_item("stochastic", content == Content::Stochastic)?;
    Ok(answer)
}

/// Maximum number of states of a short solve, by default on the CPU without another thread.
pub(crate) const FEW: usize = 256;

/// True if αt < 1000 for all times t (α: largest exit rate): a run of at most milliseconds.
pub(crate) fn is_short(transitions: &dyn Transitions, times: &[f64]) -> bool {
    let alpha = transitions.largest_exit_rate();
    times.iter().all(|time| alpha * time < 1000.0)
}

/// Converts a solution to a dict, without its probabilities.
pub(crate) fn told<'py>(py: Python<'py>, solution: &Solution) -> PyResult<Bound<'py, PyDict>> {
    let answer = PyDict::new(py);
    let each = |fact: fn(&TimeResult) -> f64| PyArray1::from_iter(py, solution.times.iter().map(fact));
    answer.set_item("met", solution.status == Status::Met)?;
    answer.set_item("times", each(|time| time.time))?;
    answer.set_item("bound", each(|time| time.bound.total()))?;
    answer.set_item("truncation", each(|time| time.bound.truncation))?;
    answer.set_item("steady_state", each(|time| time.bound.steady_state))?;
    answer.set_item("rounding", each(|time| time.bound.rounding))?;
    answer.set_item("loss", each(|time| time.bound.loss))?;
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
