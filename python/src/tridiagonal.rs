//! `kolmo.solve_tridiagonal` and `kolmo.TridiagonalFactor`.

use crate::prelude::*;
use std::sync::{Mutex, PoisonError};

use kolmo::lane::DeviceSpec;
use kolmo::tridiagonal::{Factor, Matrix, Options, Solution, System, solve_into};
use numpy::{PyArray2, PyArrayMethods};
use self_cell::self_cell;

use crate::watch::brief;

/// `batch` matrices, stored one after another.
#[derive(FromPyObject)]
pub(crate) struct DiagonalArrays<'py> {
    dl: PyReadonlyArray1<'py, f64>,
    d: PyReadonlyArray1<'py, f64>,
    du: PyReadonlyArray1<'py, f64>,
    batch: usize,
    cyclic: bool,
    tolerance: f64,
}

impl DiagonalArrays<'_> {
    fn matrix(&self) -> PyResult<Result<Matrix<'_>>> {
        let matrix = Matrix::new(self.batch, self.dl.as_slice()?, self.d.as_slice()?, self.du.as_slice()?);
        Ok(matrix.map(|matrix| if self.cyclic { matrix.cyclic() } else { matrix }))
    }

    fn options(&self) -> Options {
        Options::default().tolerance(self.tolerance)
    }
}

/// Total number of rows up to which a solve is faster than starting a thread.
const FEW: usize = 20_000;

/// Solves for each array of `b` into a row of a new array.
///
/// `solve` also returns the names of the devices.
fn answer<'py>(
    py: Python<'py>,
    b: &[PyReadonlyArray1<'py, f64>],
    rows: usize,
    on_cpu: bool,
    solve: impl FnOnce(&[&[f64]], &mut [&mut [f64]], &mut dyn Progress) -> Result<(Solution, String)> + Send,
) -> PyResult<Bound<'py, PyDict>> {
    let b: Vec<&[f64]> = b.iter().map(|b| b.as_slice()).collect::<Result<_, _>>()?;
    // The system provides zeroed pages when they are first written.
    let x = PyArray2::<f64>::zeros(py, [b.len(), rows], false);
    let mut held = x.try_readwrite()?;
    let mut room: Vec<&mut [f64]> = held.as_slice_mut()?.chunks_mut(rows.max(1)).collect();
    let brief_work = on_cpu && b.len() * rows <= FEW;
    let work = |told: &mut dyn Progress| solve(&b, &mut room, told);
    let (solution, device) =
        if brief_work { brief(py, work)? } else { watched(py, None, &Stop::default(), work)? };
    drop(room);
    drop(held);
    let answer = PyDict::new(py);
    answer.set_item("met", solution.status == Status::Met)?;
    answer.set_item("normwise", solution.residual.normwise)?;
    answer.set_item("componentwise", solution.residual.componentwise)?;
    answer.set_item("singular", solution.singular)?;
    answer.set_item("device", device)?;
    answer.set_item("seconds", solution.solve_seconds)?;
    answer.set_item("x", x)?;
    Ok(answer)
}

/// Solves tridiagonal systems.
#[pyfunction]
pub(crate) fn solve_tridiagonal<'py>(
    py: Python<'py>,
    diagonals: DiagonalArrays<'py>,
    b: Vec<PyReadonlyArray1<'py, f64>>,
    transpose: bool,
    place: DeviceChoice,
) -> PyResult<Bound<'py, PyDict>> {
    let (matrix, options) = (diagonals.matrix()?, diagonals.options());
    let wanted = place.wanted().map_err(|error| exception(py, &error))?;
    let rows = diagonals.d.as_slice()?.len();
    answer(py, &b, rows, wanted.is(&DeviceSpec::Cpu), |b, x, told| {
        let matrix = matrix?;
        let matrix = if transpose { matrix.transposed() } else { matrix };
        wanted.with(|machine| {
            let solution = solve_into(machine, &matrix, b, x, &options, told)?;
            Ok((solution, names(machine)))
        })
    })
}

self_cell!(
    /// Factorized matrices with the machine that they borrow.
    struct KeptFactor {
        owner: Machine,
        #[not_covariant]
        dependent: Factor,
    }
);

/// Matrices kept for any number of solves, one at a time.
#[pyclass(frozen, module = "kolmo._kolmo")]
pub(crate) struct TridiagonalFactor {
    kept: Mutex<KeptFactor>,
    rows: usize,
    on_cpu: bool,
}

#[pymethods]
impl TridiagonalFactor {
    #[new]
    fn new(py: Python<'_>, diagonals: DiagonalArrays<'_>, place: DeviceChoice) -> PyResult<Self> {
        let options = diagonals.options();
        let (dl, d, du) = (diagonals.dl.as_slice()?, diagonals.d.as_slice()?, diagonals.du.as_slice()?);
        let (batch, cyclic) = (diagonals.batch, diagonals.cyclic);
        let made = py.detach(|| {
            let wanted = place.wanted()?;
            let system = System::matrix(batch, dl.to_vec(), d.to_vec(), du.to_vec())?;
            let system = if cyclic { system.cyclic() } else { system };
            let kept = KeptFactor::try_new(wanted.open()?, |machine| Factor::new(machine, system, &options))?;
            Ok((kept, wanted.is(&DeviceSpec::Cpu)))
        });
        let (kept, on_cpu) = made.map_err(|error| exception(py, &error))?;
        Ok(Self { kept: Mutex::new(kept), rows: d.len(), on_cpu })
    }

    /// Copies the diagonals below, on and above the main one.
    fn diagonals<'py>(&self, py: Python<'py>) -> [Bound<'py, PyArray1<f64>>; 3] {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.with_dependent(|_, factor| {
            let matrix = factor.matrix();
            [&matrix.dl, &matrix.d, &matrix.du].map(|diagonal| PyArray1::from_slice(py, diagonal))
        })
    }

    fn solve<'py>(
        &self,
        py: Python<'py>,
        b: Vec<PyReadonlyArray1<'py, f64>>,
        transpose: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        answer(py, &b, self.rows, self.on_cpu, |b, x, told| {
            // After a panic in an earlier solve, this solve overwrites its results.
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.with_dependent_mut(|machine, factor| {
                Ok((factor.solve_into(b, transpose, x, told)?, names(machine)))
            })
        })
    }
}
