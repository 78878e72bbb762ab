//! `kolmo.transient(gradient=…)`, `kolmo.torch` and `kolmo.jax`: derivatives of probabilities.

use crate::prelude::*;
use kolmo::internals::alone;
use kolmo::sparse::CsrMatrix;
use kolmo::transient::gradient::adjoint::{Adjoint, Functional};
use kolmo::transient::gradient::{Bounded, Parameter, TimeGradient, adjoint as pull_back, forward};
use kolmo::transient::{Options, Problem};
use numpy::{PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods};

use crate::machine::names;
use crate::matrix::{Arrays, Matrix};
use crate::transient::{Begin, FEW, Numbers, Question, is_short};
use crate::watch::brief;

/// Name of a parameter, dQ, and the derivative of the initial probabilities if they depend on it.
pub(crate) type Derivative<'py> = (String, Arrays<'py>, Option<PyReadonlyArray1<'py, f64>>);

/// A [`Derivative`] whose arrays are borrowed.
pub(crate) type Borrowed<'a> = (&'a String, Matrix<'a>, Option<&'a [f64]>);

/// Returns the matrices and vectors of derivatives.
pub(crate) fn borrowed<'a>(derivatives: &'a [Derivative<'_>]) -> PyResult<Vec<Borrowed<'a>>> {
    let one = |(name, d, initial): &'a Derivative<'_>| {
        Ok((name, d.matrix()?, initial.as_ref().map(|values| values.as_slice()).transpose()?))
    };
    derivatives.iter().map(one).collect()
}

/// Computes probabilities and their derivatives by parameters.
#[pyfunction]
pub(crate) fn gradient<'py>(
    py: Python<'py>,
    q: Arrays<'py>,
    begin: Begin<'py>,
    absorbing: Option<PyReadonlyArray1<'py, bool>>,
    question: Question<'py>,
    derivatives: Vec<Derivative<'py>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (at, initial, rewards, stop) =
        (Instant::now(), begin.initial()?, question.rewards()?, Stop::default());
    let absorbing = absorbing.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let matrix = q.matrix()?;
    let derivatives = borrowed(&derivatives)?;
    let (n, times) = (matrix.states(), &question.times[..]);
    let options = Options::default().epsilon(question.epsilon);
    let failed = |error| exception(py, &error);
    let short = is_brief(&matrix, times, &stop).map_err(failed)?;
    let (wanted, short) = question.place.wanted().map_err(failed)?.briefly(short);
    let work = |told: &mut dyn Progress| {
        let (transitions, _) = matrix.chain(absorbing, true, &stop)?;
        let pattern = matrix.csr(&stop)?;
        let parameter = |(name, rates, initial): &Borrowed<'_>| {
            let rates = on_pattern(name, &rates.csr(&stop)?, &pattern, absorbing)?;
            Ok(Parameter { name: (*name).clone(), rates, initial: initial.map(<[f64]>::to_vec) })
        };
        let parameters: Vec<Parameter> = derivatives.iter().map(parameter).collect::<Result<_>>()?;
        let problem = Problem::new(&*transitions, &initial, times).rewards(&rewards);
        let found = wanted.with(|machine| {
            let integrals = !rewards.is_empty();
            let mut solve = || forward(machine, &problem, &parameters, &options, integrals, &mut *told);
            let found = if short { alone(solve) } else { solve() };
            Ok((found?, names(machine)))
        });
        found.map(|(found, device)| (found, parameters, device))
    };
    let (found, parameters, device) = match &question.progress {
        None if short => brief(py, work)?,
        progress => watched(py, progress.as_ref(), &stop, work)?,
    };
    let (answer, all) = (PyDict::new(py), &found.times);
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
        for reward in &rewards {
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
    for (k, Parameter { name, .. }) in parameters.iter().enumerate() {
        let own: Vec<&Bounded> = all.iter().map(|time| &time.derivatives[k]).collect();
        dicts[0].set_item(name, rows(py, n, &own)?)?;
        dicts[1].set_item(name, bounds(&own))?;
        dicts[2].set_item(name, earned(&own)?)?;
        dicts[3].set_item(name, earned(&integrals().map(|(_, by)| &by[k]).collect::<Vec<_>>())?)?;
    }
    items.iter().zip(dicts).try_for_each(|(name, dict)| answer.set_item(name, dict))?;
    let met = |bounded: &Bounded| bounded.is_within(question.epsilon);
    let all_met = all.iter().all(|time| met(&time.probabilities) && time.derivatives.iter().all(met));
    answer.set_item("met", all_met)?;
    answer.set_item("alpha", found.alpha)?;
    answer.set_item("terms", found.terms)?;
    answer.set_item("device", device)?;
    answer.set_item("seconds", at.elapsed().as_secs_f64())?;
    Ok(answer)
}

/// True for a run of at most milliseconds, which needs no other thread.
fn is_brief(matrix: &Matrix<'_>, times: &[f64], stop: &Stop) -> Result<bool> {
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

/// Returns derivatives of rates that Q stores, without those of absorbing states.
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
/// `values` has a row for each time. Also returns the bounds of both.
#[pyfunction]
pub(crate) fn adjoint<'py>(
    py: Python<'py>,
    q: Arrays<'py>,
    begin: Begin<'py>,
    times: Vec<f64>,
    values: PyReadonlyArray2<'py, f64>,
    place: Place,
    epsilon: f64,
) -> PyResult<(Numbers<'py>, Numbers<'py>, f64, f64)> {
    let (initial, stop, matrix) = (begin.initial()?, Stop::default(), q.matrix()?);
    let (n, numbers) = (matrix.states(), values.as_slice()?);
    if values.shape() != [times.len(), n] {
        let error =
            Error::invalid(format!("values has the shape {:?}; give ({}, {n})", values.shape(), times.len()));
        return Err(exception(py, &error));
    }
    let failed = |error| exception(py, &error);
    let short = is_brief(&matrix, &times, &stop).map_err(failed)?;
    let (wanted, short) = place.wanted().map_err(failed)?.briefly(short);
    let work = |told: &mut dyn Progress| {
        let rates = matrix.csr(&stop)?;
        let functional = |(&time, values)| Functional { time, values, accumulated: false };
        let functionals: Vec<_> = times.iter().zip(numbers.chunks(n)).map(functional).collect();
        let options = Options::default().epsilon(epsilon);
        wanted.with(|machine| {
            pull_back::adjoint(machine, &rates, &initial, &functionals, &options, None, &mut *told)
        })
    };
    let found = if short { brief(py, work) } else { watched(py, None, &stop, work) };
    let Adjoint { rates, initial, .. } = found?;
    let arrays = [rates.values, initial.values].map(|values| PyArray1::from_vec(py, values));
    let [by_rates, by_initial] = arrays;
    Ok((by_rates, by_initial, rates.bound, initial.bound))
}
