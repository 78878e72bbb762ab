//! `kolmo.expm_multiply`: the action of a matrix exponential on a block of vectors.

use crate::prelude::*;
use kolmo::internals::alone;
use kolmo::lane::DeviceSpec;
use kolmo::transient::estimate::GPU_START;
use kolmo::transient::{Direction, Options, Transitions, exponential_action};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};

use crate::matrix::SparseArrays;
use crate::transient::{FEW, FloatArray, Question};
use crate::watch::brief;

/// Computes e^{Qt} B, or if `forward` (e^{Qt})ᵀ B, for the generator Q of a chain.
///
/// Returns the results, in the order of times, states and columns, and bounds by times and columns.
#[pyfunction]
pub(crate) fn exponential<'py>(
    py: Python<'py>,
    q: SparseArrays<'py>,
    forward: bool,
    block: PyReadonlyArray2<'py, f64>,
    question: Question<'py>,
) -> PyResult<(FloatArray<'py>, FloatArray<'py>)> {
    let (matrix, stop, times) = (q.matrix()?, Stop::default(), &question.times[..]);
    let direction = if forward { Direction::Forward } else { Direction::Backward };
    let (values, columns) = (block.as_slice()?, block.shape()[1]);
    let failed = |error| exception(py, &error);
    let wanted = question.place.wanted().map_err(failed)?;
    let latest = times.iter().copied().fold(0.0, f64::max);
    let steps = |transitions: &dyn Transitions| transitions.largest_exit_rate() * latest;
    let chain = || matrix.chain(None, true, &stop);
    let made = (matrix.states() <= FEW).then(chain).transpose().map_err(failed)?;
    let short = made.as_ref().is_some_and(|(transitions, _)| steps(&**transitions) < 1000.0);
    let (mut wanted, brief_work) = wanted.briefly(short);
    let options = Options::default().epsilon(question.epsilon);
    let work = |told: &mut dyn Progress| {
        let (transitions, _) = made.map_or_else(chain, Ok)?;
        // A step moves about 100 bytes per row and column, and a core moves 2.5 GB/s.
        let seconds = steps(&*transitions) * (transitions.states() * columns) as f64 * 100.0 / 2.5e9;
        if wanted.is(&DeviceSpec::Auto) && seconds < GPU_START {
            wanted = wanted.on(DeviceSpec::Cpu);
        }
        wanted.with(|machine: &Machine| {
            let mut act =
                || exponential_action(machine, &*transitions, direction, values, times, &options, told);
            if brief_work { alone(act) } else { act() }
        })
    };
    let found = match &question.progress {
        None if brief_work => brief(py, work)?,
        progress => watched(py, progress.as_ref(), &stop, work)?,
    };
    let bounds: Vec<f64> = found.iter().flat_map(|action| action.bounds.iter().copied()).collect();
    let all: Vec<f64> = found.into_iter().flat_map(|action| action.values).collect();
    Ok((PyArray1::from_vec(py, all), PyArray1::from_vec(py, bounds)))
}
