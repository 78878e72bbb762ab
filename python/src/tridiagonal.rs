//! `kolmo.solve_tridiagonal`: systems in, unknowns out.

use kolmo::tridiagonal::{Options, System, solve};
use kolmo::{Machine, Status};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::machine::{Place, names};
use crate::watch::watched;

/// `batch` systems one behind the other, with each right-hand side in an array of its own.
#[derive(FromPyObject)]
pub(crate) struct Systems<'py> {
    dl: PyReadonlyArray1<'py, f64>,
    d: PyReadonlyArray1<'py, f64>,
    du: PyReadonlyArray1<'py, f64>,
    b: Vec<PyReadonlyArray1<'py, f64>>,
    batch: usize,
    cyclic: bool,
    transpose: bool,
    tolerance: f64,
}

/// Solves tridiagonal systems.
#[pyfunction]
pub(crate) fn solve_tridiagonal<'py>(
    py: Python<'py>,
    systems: Systems<'py>,
    place: Place,
) -> PyResult<Bound<'py, PyDict>> {
    let [dl, d, du] = [&systems.dl, &systems.d, &systems.du].map(PyReadonlyArray1::as_slice);
    let (dl, d, du) = (dl?, d?, du?);
    let b: Vec<&[f64]> = systems.b.iter().map(|b| b.as_slice()).collect::<Result<_, _>>()?;
    let Systems { batch, cyclic, transpose, tolerance, .. } = systems;
    // Corrections follow one another without a word: a signal is heard when they are done.
    let (solution, device) = watched(py, None, |_| {
        let b = b.iter().map(|b| b.to_vec()).collect();
        let mut system = System::batched(batch, dl.to_vec(), d.to_vec(), du.to_vec(), b)?;
        system.cyclic = cyclic;
        if transpose {
            system = system.transposed();
        }
        let options = Options { tolerance, ..Options::default() };
        place.wanted()?.with(|machine: &Machine| Ok((solve(machine, &system, &options)?, names(machine))))
    })?;
    let answer = PyDict::new(py);
    answer.set_item("met", solution.status == Status::Met)?;
    answer.set_item("normwise", solution.residual.normwise)?;
    answer.set_item("componentwise", solution.residual.componentwise)?;
    answer.set_item("singular", solution.singular)?;
    answer.set_item("device", device)?;
    answer.set_item("seconds", solution.solve_seconds)?;
    let x: Vec<_> = solution.x.into_iter().map(|x| PyArray1::from_vec(py, x)).collect();
    answer.set_item("x", x)?;
    Ok(answer)
}
