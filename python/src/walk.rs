//! `kolmo.walk`: components of linear systems by quasi-random walks.

use crate::prelude::*;
use std::time::Duration;

use kolmo::walk::{Component, Options, Problem, solve};

use crate::matrix::SparseArrays;

/// A request for components of a linear system.
#[derive(FromPyObject)]
pub(crate) struct Wish<'py> {
    b: Vec<PyReadonlyArray1<'py, f64>>,
    components: Vec<u32>,
    functionals: Vec<PyReadonlyArray1<'py, f64>>,
    epsilon: Option<f64>,
    confidence: f64,
    seed: u64,
    splitting: String,
    time_limit: Option<f64>,
    progress: Option<Bound<'py, PyAny>>,
}

/// Converts seconds to a duration.
pub(crate) fn limit(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds > 0.0).ok_or_else(|| {
        Error::invalid(format!("time_limit is {seconds}; give a finite number of seconds above 0"))
    })
}

/// Estimates components of x in A x = b, and functionals of x.
#[pyfunction]
pub(crate) fn walk<'py>(
    py: Python<'py>,
    a: SparseArrays<'py>,
    wish: Wish<'py>,
    place: DeviceChoice,
) -> PyResult<Bound<'py, PyDict>> {
    let matrix = a.matrix()?;
    let b: Vec<&[f64]> = wish.b.iter().map(|b| b.as_slice()).collect::<std::result::Result<_, _>>()?;
    let h: Vec<&[f64]> =
        wish.functionals.iter().map(|h| h.as_slice()).collect::<std::result::Result<_, _>>()?;
    let Wish { components, epsilon, confidence, seed, splitting, time_limit, .. } = wish;
    let stop = Stop::default();
    let (solution, device) = watched(py, wish.progress.as_ref(), &stop, |told| {
        let matrix = matrix.csr(&stop)?;
        let [rhs, functionals] = [&b, &h].map(|all| all.iter().map(|one| one.to_vec()).collect::<Vec<_>>());
        let time_limit = time_limit.map(limit).transpose()?;
        let splitting = splitting.parse()?;
        let options = Options::default()
            .epsilon(epsilon)
            .confidence(confidence)
            .seed(seed)
            .splitting(splitting)
            .time_limit(time_limit);
        let problem = Problem::new(&matrix, &rhs, &components).functionals(&functionals);
        place
            .wanted()?
            .with(|machine: &Machine| Ok((solve(machine, &problem, &options, told)?, names(machine))))
    })?;
    let told = |all: &[Component]| {
        let each = |fact: fn(&Component) -> f64| PyArray1::from_iter(py, all.iter().map(fact));
        let facts = PyDict::new(py);
        facts.set_item("estimate", each(|component| component.estimate))?;
        facts.set_item("half_width", each(|component| component.half_width))?;
        facts.set_item("statistical", each(|component| component.bound.statistical))?;
        facts.set_item("truncation", each(|component| component.bound.truncation))?;
        facts.set_item("rounding", each(|component| component.bound.rounding))?;
        PyResult::Ok(facts)
    };
    let answer = PyDict::new(py);
    answer.set_item("met", solution.status == Status::Met)?;
    answer.set_item("components", told(&solution.components)?)?;
    answer.set_item("functionals", told(&solution.functionals)?)?;
    answer.set_item("epsilon", solution.epsilon)?;
    answer.set_item("warnings", solution.warnings)?;
    answer.set_item("device", device)?;
    answer.set_item("seconds", solution.seconds.total)?;
    Ok(answer)
}
