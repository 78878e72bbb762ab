//! `kolmo.walk`: components of linear systems, by quasi-random walks.

use kolmo::walk::{Component, Options, Problem, solve};
use kolmo::{Machine, Status};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::machine::{Place, names};
use crate::matrix::Arrays;
use crate::watch::{Stop, watched};

/// What is asked of a system, and how.
#[derive(FromPyObject)]
pub(crate) struct Wish<'py> {
    b: Vec<PyReadonlyArray1<'py, f64>>,
    components: Vec<u32>,
    epsilon: Option<f64>,
    confidence: f64,
    seed: u64,
    splitting: String,
    lazy: bool,
    progress: Option<Bound<'py, PyAny>>,
}

/// Estimates components of x in A x = b.
#[pyfunction]
pub(crate) fn walk<'py>(
    py: Python<'py>,
    a: Arrays<'py>,
    wish: Wish<'py>,
    place: Place,
) -> PyResult<Bound<'py, PyDict>> {
    let matrix = a.matrix()?;
    let b: Vec<&[f64]> = wish.b.iter().map(|b| b.as_slice()).collect::<Result<_, _>>()?;
    let Wish { components, epsilon, confidence, seed, splitting, lazy, .. } = wish;
    let stop = Stop::default();
    let (solution, device) = watched(py, wish.progress.as_ref(), &stop, |told| {
        let matrix = matrix.csr(&stop)?;
        let rhs: Vec<Vec<f64>> = b.iter().map(|b| b.to_vec()).collect();
        let splitting = splitting.parse()?;
        let options = Options { epsilon, confidence, seed, splitting, lazy, ..Options::default() };
        let problem = Problem { matrix: &matrix, rhs: &rhs, components: &components, functionals: &[] };
        place.wanted()?.with(|machine: &Machine| {
            Ok((solve(machine, &problem, &options, &mut |done, all| told(done, all))?, names(machine)))
        })
    })?;
    let each = |fact: fn(&Component) -> f64| PyArray1::from_iter(py, solution.components.iter().map(fact));
    let answer = PyDict::new(py);
    answer.set_item("met", solution.status == Status::Met)?;
    answer.set_item("estimate", each(|component| component.estimate))?;
    answer.set_item("half_width", each(|component| component.half_width))?;
    answer.set_item("statistical", each(|component| component.bound.statistical))?;
    answer.set_item("truncation", each(|component| component.bound.truncation))?;
    answer.set_item("rounding", each(|component| component.bound.rounding))?;
    answer.set_item("epsilon", solution.epsilon)?;
    answer.set_item("warnings", solution.warnings)?;
    answer.set_item("device", device)?;
    answer.set_item("seconds", solution.seconds.total)?;
    Ok(answer)
}
