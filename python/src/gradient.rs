//! Derivatives of probabilities: `gradient=` of `kolmo.transient` and `kolmo.transient_batch`,
//! `kolmo.torch` and `kolmo.jax`.

use crate::prelude::*;
use kolmo::internals::alone;
use kolmo::lane::available_memory;
use kolmo::sparse::CsrMatrix;
use kolmo::transient::gradient::adjoint::{Adjoint, Functional};
use kolmo::transient::gradient::{
    Bounded, Gradients, Parameter, TimeGradient, adjoint as pull_back, forward,
};
use kolmo::transient::{Initial, Options, Problem, Reward};
use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray2, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::types::PyList;

use crate::matrix::{SparseArrays, SparseMatrix};
use crate::transient::{Begin, FEW, Question, each, is_short};
use crate::watch::brief;

/// Name of a parameter, dQ, and the derivative of the initial probabilities if they depend on it.
pub(crate) type ParameterArg<'py> = (String, SparseArrays<'py>, Option<PyReadonlyArray1<'py, f64>>);

/// A [`ParameterArg`] whose arrays are borrowed.
pub(crate) type BorrowedParameter<'a> = (&'a String, SparseMatrix<'a>, Option<&'a [f64]>);

/// Returns the matrices and vectors of derivatives.
pub(crate) fn borrowed<'a>(derivatives: &'a [ParameterArg<'_>]) -> PyResult<Vec<BorrowedParameter<'a>>> {
    let one = |(name, d, initial): &'a ParameterArg<'_>| {
        Ok((name, d.matrix()?, initial.as_ref().map(|values| values.as_slice()).transpose()?))
    };
    derivatives.iter().map(one).collect()
}

/// Computes probabilities and their derivatives by parameters, for one chain or a batch of chains.
///
/// Returns the answers, `None` for chains of a batch with an error, and these errors by index.
#[pyfunction]
pub(crate) fn gradient<'py>(
    py: Python<'py>,
    q: SparseArrays<'py>,
    begin: Begin<'py>,
    absorbing: Option<PyReadonlyArray1<'py, bool>>,
    question: Question<'py>,
    derivatives: Vec<ParameterArg<'py>>,
    batch: bool,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyDict>)> {
    let (at, initial, rewards, stop) =
        (Instant::now(), begin.initial()?, question.rewards()?, Stop::default());
    let absorbing = absorbing.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let matrices = q.batch()?;
    let changes = derivatives.iter().map(|(_, d, _)| d.batch()).collect::<PyResult<Vec<_>>>()?;
    let initials = derivatives.iter().map(|(.., initial)| initial.as_ref().map(|v| v.as_slice()).transpose());
    let initials = initials.collect::<std::result::Result<Vec<_>, _>>()?;
    let names: Vec<&String> = derivatives.iter().map(|(name, ..)| name).collect();
    let (count, n, times) = (matrices.len(), matrices[0].states(), &question.times[..]);
    let options = Options::default().epsilon(question.epsilon);
    let failed = |error| exception(py, &error);
    let wanted = question.place.wanted().map_err(failed)?;
    let short = !batch && is_brief(&matrices[0], times, &stop).map_err(failed)?;
    let (wanted, short) = wanted.briefly(short);
    let one = |machine: &Machine, k: usize, told: &mut dyn Progress| {
        let (transitions, _) = matrices[k].chain(absorbing, true, &stop)?;
        let pattern = matrices[k].csr(&stop)?;
        let parameter = |((name, change), initial): ((&&String, &Vec<SparseMatrix<'_>>), &Option<&[f64]>)| {
            let rates = on_pattern(name, &change[k].csr(&stop)?, &pattern, absorbing)?;
            Ok(Parameter { name: (*name).clone(), rates, initial: initial.map(<[f64]>::to_vec) })
        };
        let parameters =
            names.iter().zip(&changes).zip(&initials).map(parameter).collect::<Result<Vec<_>>>()?;
        let problem = Problem::new(&*transitions, &initial, times).rewards(&rewards);
        forward(machine, &problem, &parameters, &options, !rewards.is_empty(), told)
    };
    let work = |told: &mut dyn Progress| {
        wanted.with(|machine| {
            let found = match batch {
                true => each(count, n, told, |k, told| one(machine, k, told))?,
                false if short => vec![Ok(alone(|| one(machine, 0, told))?)],
                false => vec![Ok(one(machine, 0, told)?)],
            };
            Ok((found, crate::machine::names(machine)))
        })
    };
    let (found, device) = match &question.progress {
        None if short => brief(py, work)?,
        progress => watched(py, progress.as_ref(), &stop, work)?,
    };
    let (answers, errors) = (PyList::empty(py), PyDict::new(py));
    for (k, found) in found.iter().enumerate() {
        match found {
            Ok(found) => answers.append(to_dict(py, found, &names, times, &rewards, question.epsilon)?)?,
            Err(error) => {
                answers.append(py.None())?;
                errors.set_item(k, error.to_string())?;
            }
        }
    }
    for answer in answers.iter().filter(|answer| !answer.is_none()) {
        answer.set_item("device", &device)?;
        answer.set_item("seconds", at.elapsed().as_secs_f64())?;
    }
    Ok((answers, errors))
}

/// Returns probabilities and derivatives by `names`, for Python.
fn to_dict<'py>(
    py: Python<'py>,
    found: &Gradients,
    names: &[&String],
    times: &[f64],
    rewards: &[Reward],
    epsilon: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let (all, answer) = (&found.times, PyDict::new(py));
    let n = all.first().map_or(0, |time| time.probabilities.values.len());
    let each = |values: &mut dyn Iterator<Item = f64>| PyArray1::from_iter(py, values);
    let zeros = each(&mut times.iter().map(|_| 0.0));
    let bounds = |vectors: &[&Bounded]| each(&mut vectors.iter().map(|vector| vector.bound));
    let probabilities: Vec<&Bounded> = all.iter().map(|time| &time.probabilities).collect();
    answer.set_item("times", each(&mut times.iter().copied()))?;
    answer.set_item("bound", bounds(&probabilities))?;
    answer.set_item("truncation", each(&mut all.iter().map(|time| time.truncation)))?;
    let rounding = |time: &TimeGradient| time.probabilities.bound - time.truncation;
    answer.set_item("rounding", each(&mut all.iter().map(rounding)))?;
    answer.set_item("steady_state", &zeros)?;
    answer.set_item("loss", &zeros)?;
    answer.set_item("contradictions", Vec::<String>::new())?;
    answer.set_item("p", rows(py, n, &probabilities)?)?;
    let dot = |values: &[f64], of: &Bounded| values.iter().zip(&of.values).map(|(r, p)| r * p).sum::<f64>();
    let earned = |vectors: &[&Bounded]| -> PyResult<_> {
        let dict = PyDict::new(py);
        for reward in rewards {
            let values = each(&mut vectors.iter().map(|vector| dot(&reward.values, vector)));
            dict.set_item(&reward.name, values)?;
        }
        Ok(dict)
    };
    // Without rewards there are no integrals.
    let integrals = || all.iter().filter_map(|time| time.integrals.as_ref());
    answer.set_item("rewards", earned(&probabilities)?)?;
    answer.set_item("accumulated", earned(&integrals().map(|(own, _)| own).collect::<Vec<_>>())?)?;
    let items = ["gradient", "gradient_bound", "gradient_rewards", "gradient_accumulated"];
    let dicts = items.map(|_| PyDict::new(py));
    for (k, name) in names.iter().enumerate() {
        let own: Vec<&Bounded> = all.iter().map(|time| &time.derivatives[k]).collect();
        dicts[0].set_item(name, rows(py, n, &own)?)?;
        dicts[1].set_item(name, bounds(&own))?;
        dicts[2].set_item(name, earned(&own)?)?;
        dicts[3].set_item(name, earned(&integrals().map(|(_, by)| &by[k]).collect::<Vec<_>>())?)?;
    }
    items.iter().zip(dicts).try_for_each(|(name, dict)| answer.set_item(name, dict))?;
    let met = |bounded: &Bounded| bounded.is_within(epsilon);
    let all_met = all.iter().all(|time| met(&time.probabilities) && time.derivatives.iter().all(met));
    answer.set_item("met", all_met)?;
    answer.set_item("alpha", found.alpha)?;
    answer.set_item("terms", found.terms)?;
    Ok(answer)
}

/// True for a run of at most milliseconds, which needs no other thread.
fn is_brief(matrix: &SparseMatrix<'_>, times: &[f64], stop: &Stop) -> Result<bool> {
    Ok(matrix.states() <= FEW && is_short(&*matrix.chain(None, true, stop)?.0, times))
}

/// Copies vectors to the rows of an array.
fn rows<'py>(py: Python<'py>, n: usize, vectors: &[&Bounded]) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let array = PyArray2::<f64>::zeros(py, [vectors.len(), n], false);
    let mut held = array.try_readwrite()?;
    for (row, vector) in held.as_slice_mut()?.chunks_mut(n).zip(vectors) {
        row.copy_from_slice(&vector.values);
    }
    drop(held);
    Ok(array)
}

/// Checks that Q stores all rates with derivatives, and drops the rows of absorbing states.
fn on_pattern(
    name: &str,
    derivatives: &CsrMatrix,
    pattern: &CsrMatrix,
    absorbing: Option<&[bool]>,
) -> Result<CsrMatrix> {
    if derivatives.rows() != pattern.rows() {
        return Err(Error::invalid(format!(
            "gradient['{name}'] has {} rows; give {}, one for each state of Q",
            derivatives.rows(),
            pattern.rows()
        )));
    }
    for i in 0..pattern.rows() {
        let known = pattern.row(i).0;
        for (j, value) in derivatives.row(i).0.iter().zip(derivatives.row(i).1) {
            if *value != 0.0 && *j as usize != i && known.binary_search(j).is_err() {
                return Err(Error::invalid(format!(
                    "gradient['{name}'][{i}, {j}] is {value}, but Q stores no rate there; a sparse Q may store zeros"
                )));
            }
        }
    }
    Ok(CsrMatrix::from_rows(pattern.rows(), pattern.rows(), |i, row| {
        if absorbing.is_none_or(|mask| !mask[i]) {
            let (columns, values) = derivatives.row(i);
            row.extend(columns.iter().copied().zip(values.iter().copied()));
        }
    }))
}

/// Computes the derivatives of Σ values · p by every stored rate, and by the initial probabilities.
///
/// Each chain of a batch has a row of initial probabilities, a row of times, and a row of `values`
/// for each time. Also returns the bounds of both.
#[pyfunction]
pub(crate) fn adjoint<'py>(
    py: Python<'py>,
    q: SparseArrays<'py>,
    begin: PyReadonlyArray2<'py, f64>,
    times: PyReadonlyArray2<'py, f64>,
    values: PyReadonlyArray3<'py, f64>,
    place: DeviceChoice,
    epsilon: f64,
) -> PyResult<[Bound<'py, PyArray2<f64>>; 3]> {
    let (matrices, stop) = (q.batch()?, Stop::default());
    let (n, count, due) = (matrices[0].states(), times.shape()[0], times.shape()[1]);
    let shapes = (begin.shape(), times.shape(), values.shape());
    // A pattern without transitions has one matrix for all chains.
    let matrix = |k: usize| &matrices[k.min(matrices.len() - 1)];
    if shapes != (&[count, n], &[count, due], &[count, due, n]) || ![1, count].contains(&matrices.len()) {
        let error =
            Error::invalid(format!("arrays of {count} chains with {n} states have the shapes {shapes:?}"));
        return Err(exception(py, &error));
    }
    let (begin, times, values) = (begin.as_slice()?, times.as_slice()?, values.as_slice()?);
    let failed = |error| exception(py, &error);
    let wanted = place.wanted().map_err(failed)?;
    let short = count == 1 && is_brief(&matrices[0], times, &stop).map_err(failed)?;
    let (wanted, short) = wanted.briefly(short);
    let options = Options::default().epsilon(epsilon);
    // Chains that run side by side share the memory.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = count.min(cores.max(8)) as u64;
    let memory = (count > 1).then(|| available_memory() / (2 * workers));
    let one = |machine: &Machine, k: usize, told: &mut dyn Progress| {
        let rates = matrix(k).csr(&stop)?;
        let initial = Initial::Distribution(begin[k * n..][..n].to_vec());
        let rows = values[k * due * n..].chunks(n);
        let functional = |(&time, values)| Functional { time, values, accumulated: false };
        let functionals: Vec<_> = times[k * due..][..due].iter().zip(rows).map(functional).collect();
        pull_back::adjoint(machine, &rates, &initial, &functionals, &options, memory, told)
    };
    let work = |told: &mut dyn Progress| {
        wanted.with(|machine| {
            let found = each(count, n, told, |k, told| one(machine, k, told))?;
            found.into_iter().collect::<Result<Vec<_>>>()
        })
    };
    let found = if short { brief(py, work) } else { watched(py, None, &stop, work) }?;
    let bounds: Vec<_> = found.iter().map(|found| vec![found.rates.bound, found.initial.bound]).collect();
    let (rates, initial): (Vec<_>, Vec<_>) =
        found.into_iter().map(|Adjoint { rates, initial, .. }| (rates.values, initial.values)).unzip();
    let [rates, initial, bounds] = [rates, initial, bounds].map(|rows| PyArray2::from_vec2(py, &rows));
    Ok([rates?, initial?, bounds?])
}
