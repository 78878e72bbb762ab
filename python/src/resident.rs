//! Tridiagonal systems with arrays on a device: unknowns stay there, too.

use crate::prelude::*;
use std::sync::{Mutex, PoisonError};

use kolmo::lane::{Buffer, Foreign, Lane};
use kolmo::transient::transition_matrices_on;
use kolmo::tridiagonal::{Matrix, Options, Resident, Residual, Solution, solve_into};
use self_cell::self_cell;

use crate::dlpack::{Borrowed, DlDevice, Lent, compact};
use crate::machine::Held;

/// Size of a number in bytes.
const NUMBER: usize = size_of::<f64>();

/// Device that holds arrays of other libraries, kept open as long as this object lives.
#[pyclass(frozen, module = "kolmo._kolmo")]
pub(crate) struct DeviceLane {
    pub(crate) held: Held,
    pub(crate) device: DlDevice,
}

/// Argument: an array of another library on the device, or one on the host.
#[derive(FromPyObject)]
pub(crate) enum ArrayArg<'py> {
    There(Bound<'py, Borrowed>),
    Here(PyReadonlyArray1<'py, f64>),
}

/// Source of a copy to the device: an array on the device or on the host.
#[derive(Clone, Copy)]
pub(crate) enum CopySource<'a> {
    /// Array on the device. Its rows are systems if `of_systems`, else parts of one system.
    There { rows: Foreign, of_systems: bool },
    /// All numbers of all systems, on the host.
    Here(&'a [f64]),
}

impl ArrayArg<'_> {
    /// Locates the numbers and checks their device and strides. `name` is for errors.
    pub(crate) fn source(&self, name: &str, device: DlDevice, lane: &Lane) -> PyResult<CopySource<'_>> {
        let (borrowed, py) = match self {
            Self::Here(numbers) => return Ok(CopySource::Here(numbers.as_slice()?)),
            Self::There(borrowed) => (borrowed.get(), borrowed.py()),
        };
        let refuse = |why: String| Err(exception(py, &Error::invalid(format!("{name} {why}"))));
        if borrowed.device != device {
            let DlDevice { kind, number } = borrowed.device;
            return refuse(format!("is on device {number} of DLPack's kind {kind}; give all arrays on one"));
        }
        let (height, width, apart) = match (&borrowed.shape[..], &borrowed.strides[..]) {
            (&[n], &[1]) => (1, n, n as isize),
            (&[n], &[apart]) => (n, 1, apart),
            (&[batch, n], &[apart, within]) if within == 1 || n == 1 => (batch, n, apart),
            (shape, strides) if strides == compact(shape) => (1, shape.iter().product(), 1),
            _ => return refuse("has rows that are not contiguous; give a contiguous copy".to_owned()),
        };
        // With one row, the distance to the next row is arbitrary.
        let apart = if height <= 1 { width as isize } else { apart };
        let Some(pitch) = usize::try_from(apart).ok().filter(|&apart| apart >= width.max(1)) else {
            return refuse(
                "repeats its numbers, or has them in opposite order; give a contiguous copy".to_owned(),
            );
        };
        if let Some(stream) = borrowed.stream {
            #[expect(unsafe_code, reason = "a stream of another library")]
            // SAFETY: `__cuda_array_interface__` guarantees a stream of the array's device, which
            // is this lane's (compared above).
            unsafe { lane.wait_for(stream) }.map_err(|error| exception(py, &error))?;
        }
        let rows =
            Foreign { address: borrowed.address, width: width * NUMBER, height, pitch: pitch * NUMBER };
        Ok(CopySource::There { rows, of_systems: borrowed.shape.len() == 2 })
    }
}

impl CopySource<'_> {
    /// Copies the numbers of systems with `n` rows to `dst`.
    ///
    /// If each system lacks one number and `front` is true, its first place stays free.
    pub(crate) fn copy(self, lane: &Lane, dst: &Buffer<f64>, n: usize, front: bool) -> Result<()> {
        match self {
            Self::Here(numbers) => lane.upload(numbers, dst, 0),
            Self::There { rows, of_systems } => {
                let of_system =
                    if of_systems { rows.width / NUMBER } else { rows.height * (rows.width / NUMBER) };
                let offset = usize::from(front && of_system < n);
                let pitch = if of_systems { n } else { rows.width / NUMBER };
                #[expect(unsafe_code, reason = "memory of another library")]
                // SAFETY: the producer of the array guarantees that these rows are memory of its
                // device, which is this lane's (`source`), and `Borrowed` keeps them alive until
                // the call is over. By the protocol the numbers are complete when the lane's queue
                // reaches them: the producer was given the lane's stream, or the lane waits for the
                // producer's.
                unsafe {
                    lane.copy_from(rows, dst, offset, pitch)
                }
            }
        }
    }
}

/// Matrices on a device, and their transposes once these are needed.
struct Both<'a> {
    given: Resident<'a>,
    transposed: Option<Resident<'a>>,
}

self_cell!(
    /// Matrices with the machine that they are on.
    struct KeptMatrices {
        owner: Held,
        #[not_covariant]
        dependent: Both,
    }
);

/// Tridiagonal matrices that stay on a device, for any number of right-hand sides.
///
/// One call is solved at a time.
#[pyclass(frozen, module = "kolmo._kolmo")]
pub(crate) struct ResidentFactor {
    kept: Mutex<KeptMatrices>,
    /// Lane of the machine.
    lane: Lane,
    device: DlDevice,
    batch: usize,
    n: usize,
    cyclic: bool,
    tolerance: f64,
}

#[pymethods]
impl DeviceLane {
    /// Opens the lane of a device, given by DLPack's kind and number.
    #[new]
    fn new(py: Python<'_>, place: DeviceChoice, device: (i32, i32)) -> PyResult<Self> {
        let wanted = place.wanted().map_err(|error| exception(py, &error))?;
        // Opened in another thread, since the device's context becomes current in the thread.
        let open = || watched(py, None, &Stop::default(), |_| wanted.hold());
        let held = wanted.hold_idle().map_or_else(open, Ok)?;
        Ok(Self { held, device: DlDevice { kind: device.0, number: device.1 } })
    }

    /// Stream of the lane. Other libraries let it wait for their work.
    #[getter]
    fn stream(&self) -> Option<u64> {
        self.held.machine().lanes[0].stream()
    }

    /// Computes P(t) of chains of `n` states.
    ///
    /// Returns P(t), on the device, the bounds and the seconds.
    fn transition_matrices<'py>(
        &self,
        py: Python<'py>,
        n: usize,
        q: ArrayArg<'py>,
        times: PyReadonlyArray1<'py, f64>,
        shape: Vec<usize>,
    ) -> PyResult<(Bound<'py, Lent>, Bound<'py, PyArray1<f64>>, f64)> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let (at, lane, times) = (Instant::now(), &self.held.machine().lanes[0], times.as_slice()?);
        let source = q.source("Q", self.device, lane)?;
        let (p, address, bounds) = watched(py, None, &Stop::default(), |_| {
            let q = lane.alloc_unset("generators", times.len() * n * n)?;
            let p = lane.alloc_unset("transition matrices", q.len())?;
            source.copy(lane, &q, n, false)?;
            let bounds = self.held.ended(transition_matrices_on(lane, n, &q, times, &p))?;
            let address = lane.address(&p).expect("a lane that reads others' memory has addresses");
            Ok((p, address, bounds))
        })?;
        let strides = compact(&shape);
        let lent = Bound::new(py, Lent::new(p, address, self.device, shape, strides))?;
        Ok((lent, PyArray1::from_vec(py, bounds), at.elapsed().as_secs_f64()))
    }

    /// Copies matrices of `n` rows to the device, where they stay.
    #[expect(clippy::too_many_arguments, reason = "three diagonals, and how they are meant")]
    fn factor(
        &self,
        py: Python<'_>,
        dl: ArrayArg<'_>,
        d: ArrayArg<'_>,
        du: ArrayArg<'_>,
        batch: usize,
        n: usize,
        cyclic: bool,
        tolerance: f64,
    ) -> PyResult<ResidentFactor> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let lane = &self.held.machine().lanes[0];
        let diagonals = [("dl", &dl), ("d", &d), ("du", &du)];
        let sources = diagonals.map(|(name, numbers)| numbers.source(name, self.device, lane));
        let [dl, d, du] = sources;
        let (dl, d, du) = (dl?, d?, du?);
        let held = self.held.clone();
        let kept = watched(py, None, &Stop::default(), move |_| {
            KeptMatrices::try_new(held, |held| {
                let mut given = Resident::new(held.machine(), n, batch, cyclic)?;
                let (lane, arrays) = (given.lane(), given.arrays());
                dl.copy(lane, &arrays.dl, n, true)?;
                d.copy(lane, &arrays.d, n, false)?;
                du.copy(lane, &arrays.du, n, false)?;
                Ok(Both { given, transposed: None })
            })
        })?;
        let (kept, lane) = (Mutex::new(kept), lane.clone());
        Ok(ResidentFactor { kept, lane, device: self.device, batch, n, cyclic, tolerance })
    }
}

#[pymethods]
impl ResidentFactor {
    /// Solves for each array of `b`.
    ///
    /// The unknowns are in one array on the device. `shape` is the shape that Python sees.
    fn solve<'py>(
        &self,
        py: Python<'py>,
        b: Vec<ArrayArg<'py>>,
        transpose: bool,
        shape: Vec<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let sources =
            b.iter().map(|b| b.source("b", self.device, &self.lane)).collect::<PyResult<Vec<_>>>()?;
        let solved = watched(py, None, &Stop::default(), |told| {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.with_dependent_mut(|held, both| {
                held.ended(self.solve_there(held.machine(), both, &sources, transpose, told))
            })
        })?;
        let (unknowns, address, (met, residual, singular), device, seconds) = solved;
        // Columns of a matrix are contiguous.
        let strides = match (&shape[..], b.len()) {
            (&[n, count], several) if several > 1 || (self.batch == 1 && count == 1) => vec![1, n as isize],
            (&[_, n], _) => vec![n as isize, 1],
            _ => vec![1],
        };
        let answer = PyDict::new(py);
        answer.set_item("met", met)?;
        answer.set_item("normwise", residual.normwise)?;
        answer.set_item("componentwise", residual.componentwise)?;
        answer.set_item("singular", singular)?;
        answer.set_item("device", device)?;
        answer.set_item("seconds", seconds)?;
        answer.set_item("x", Bound::new(py, Lent::new(unknowns, address, self.device, shape, strides))?)?;
        Ok(answer)
    }
}

/// True if all right-hand sides are met, their largest residuals, and the first singular row.
type SolveOutcome = (bool, Residual, Option<(usize, usize)>);

impl ResidentFactor {
    /// Solves for the right-hand sides one by one.
    ///
    /// Returns the unknowns, their address on the device, their outcome, the names of the devices,
    /// and the seconds that it took.
    fn solve_there(
        &self,
        machine: &Machine,
        both: &mut Both<'_>,
        sources: &[CopySource<'_>],
        transpose: bool,
        watch: &mut dyn Progress,
    ) -> Result<(Buffer<f64>, u64, SolveOutcome, String, f64)> {
        let began = Instant::now();
        let (lane, rows) = (&machine.lanes[0], self.batch * self.n);
        let resident = match (transpose, &mut both.transposed) {
            (false, _) => &mut both.given,
            (true, Some(transposed)) => transposed,
            (true, none) => none.insert(both.given.transposed()?),
        };
        let unknowns = lane.alloc::<f64>("unknowns", sources.len() * rows)?;
        let mut outcome: SolveOutcome = (true, Residual::default(), None);
        for (k, source) in sources.iter().enumerate() {
            watch.progress(0, 0)?;
            source.copy(lane, &resident.arrays().b, self.n, false)?;
            let (status, residual, singular) = match resident.solve(self.tolerance)? {
                Some(residual) => {
                    lane.copy_part(&resident.arrays().x, 0..rows, &unknowns, k * rows)?;
                    (Status::Met, residual, None)
                }
                None => {
                    let (x, solution) = self.on_the_host(machine, resident)?;
                    lane.upload(&x, &unknowns, k * rows)?;
                    (solution.status, solution.residual, solution.singular)
                }
            };
            let (met, largest, first) = outcome;
            outcome = (met && status == Status::Met, largest.max(residual), first.or(singular));
        }
        lane.finish()?;
        let address = lane.address(&unknowns).expect("a lane that reads others' memory has addresses");
        Ok((unknowns, address, outcome, names(machine), began.elapsed().as_secs_f64()))
    }

    /// Downloads system and right-hand side and solves on the host, which may pivot and refine.
    fn on_the_host(&self, machine: &Machine, resident: &mut Resident<'_>) -> Result<(Vec<f64>, Solution)> {
        let (rows, lane) = (self.batch * self.n, resident.lane());
        let arrays = resident.arrays();
        let read = |array: &Buffer<f64>| {
            let mut numbers = vec![0.0; rows];
            lane.download(array, 0, &mut numbers).map(|()| numbers)
        };
        let (dl, d, du, b) = (read(&arrays.dl)?, read(&arrays.d)?, read(&arrays.du)?, read(&arrays.b)?);
        let matrix = Matrix::new(self.batch, &dl, &d, &du)?;
        let matrix = if self.cyclic { matrix.cyclic() } else { matrix };
        let options = Options::default().tolerance(self.tolerance);
        let mut x = vec![0.0; rows];
        let solution = solve_into(machine, &matrix, &[&b], &mut [&mut x], &options, &mut ())?;
        Ok((x, solution))
    }
}
