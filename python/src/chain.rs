//! `kolmo.read`: chains from files, and built-in chains.

use crate::prelude::*;
use kolmo::internals::Csr;
use kolmo::io::rate_matrix_kind::Content;
use kolmo::sparse::CsrMatrix;
use kolmo::transient::{self, Initial, StateNames, Transitions};
use kolmo::{io, models};
use pyo3::types::IntoPyDict;

use crate::matrix::SparseArrays;
use crate::transient::{Begin, Question, answer};
use crate::watch::{Stoppable, aside};

/// Chain held by the library.
#[pyclass(frozen, name = "Chain", module = "kolmo._kolmo")]
pub(crate) struct PyChain {
    /// The chain. It shares its transitions with `transitions`.
    about: transient::Chain,
    transitions: Arc<dyn Transitions>,
    /// Specification of a built-in chain, which is stored instead of the rates in a pickle.
    built_in: Option<String>,
}

impl From<transient::Chain> for PyChain {
    fn from(chain: transient::Chain) -> Self {
        let transitions: Arc<dyn Transitions> = chain.transitions.into();
        Self {
            about: transient::Chain { transitions: Box::new(transitions.clone()), ..chain },
            transitions,
            built_in: None,
        }
    }
}

impl PyChain {
    pub(crate) fn transitions(&self) -> Arc<dyn Transitions> {
        self.transitions.clone()
    }

    /// Returns the transitions, with the states of a mask made absorbing, until `stop`.
    pub(crate) fn stoppable(&self, absorbing: &[bool], stop: &Stop) -> Box<dyn Transitions> {
        let states: Vec<u32> = (0u32..).zip(absorbing).filter(|(_, stays)| **stays).map(|(s, _)| s).collect();
        let shared = Stoppable { inner: self.transitions.clone(), stop: stop.clone() };
        let chain = transient::Chain::new("", Box::new(shared));
        if states.is_empty() { chain.transitions } else { chain.absorbing(&states).transitions }
    }

    pub(crate) fn initial_of(&self) -> &Initial {
        &self.about.initial
    }

    pub(crate) fn rewards_of(&self) -> &[transient::Reward] {
        &self.about.rewards
    }
}

/// Reads the chain of a file, or makes a built-in chain.
#[pyfunction]
#[pyo3(signature = (spec, discrete = false))]
pub(crate) fn read(py: Python<'_>, spec: &str, discrete: bool) -> PyResult<PyChain> {
    let read = aside(py, || match models::parse(spec) {
        Some(model) if !discrete => model.map(transient::Chain::from),
        _ => io::read_chain(Path::new(spec), None, discrete),
    });
    let chain = read.map(PyChain::from)?;
    Ok(PyChain { built_in: models::parse(spec).map(|_| spec.to_owned()), ..chain })
}

/// Makes a chain of a matrix: of probabilities of a step if `discrete`, otherwise of rates.
#[pyfunction]
pub(crate) fn chain_of_matrix(py: Python<'_>, q: SparseArrays<'_>, discrete: bool) -> PyResult<PyChain> {
    let (matrix, stop) = (q.matrix()?, Stop::default());
    let chain = aside(py, || {
        if discrete {
            return transient::Chain::of_probabilities(&matrix.csr(&stop)?);
        }
        // The matrix is classified and checked; a generator's diagonal has no effect.
        matrix.content(&stop)?;
        Ok(transient::Chain::new("a chain", Box::new(Csr::from_rates(&matrix.csr(&stop)?))))
    });
    chain.map(PyChain::from)
}

/// Compressed sparse rows: values, column indices, row starts.
type CsrArrays<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>);

/// Names of the variables, and their values in all states.
///
/// [`STATE`] separates states, and [`VALUE`] the values of a state.
type VariableValues = (Vec<String>, String);
const STATE: char = '\x1e';
const VALUE: char = '\x1f';

/// Makes a chain from its rates, without labels and rewards. Inverse of `Chain.__reduce__`.
#[pyfunction]
pub(crate) fn chain_of_rates(
    py: Python<'_>,
    name: &str,
    rates: CsrArrays<'_>,
    initial: PyReadonlyArray1<'_, f64>,
    names: Option<VariableValues>,
    discrete: bool,
) -> PyResult<PyChain> {
    let (values, states, starts) = (rates.0.as_slice()?, rates.1.as_slice()?, rates.2.as_slice()?);
    let p = initial.as_slice()?;
    let chain = aside(py, || {
        let wrong = |_| Error::invalid(format!("{name}: an index of a state is out of range"));
        let starts = starts.iter().map(|&k| usize::try_from(k)).collect::<Result<Vec<_>, _>>();
        let states = states.iter().map(|&k| u32::try_from(k)).collect::<Result<Vec<_>, _>>();
        let (starts, states) = (starts.map_err(wrong)?, states.map_err(wrong)?);
        let chain = transient::Chain::from_csr(p.len(), &starts, &states, values)?;
        let chain = if discrete { chain.discrete() } else { chain };
        // A single initial state is no distribution: its probability is exact.
        let initial = match p.iter().position(|&p| p == 1.0) {
            Some(state) => Initial::State(state),
            None => Initial::Distribution(p.to_vec()),
        };
        let names = names.map(|(variables, values)| {
            let mut names = StateNames::new(variables);
            values.split(STATE).take(p.len()).for_each(|state| {
                let values = state.split(VALUE).take(names.variables().len());
                names.push(values.collect::<Vec<_>>());
            });
            Arc::new(names)
        });
        Ok(transient::Chain { name: name.to_owned(), initial, names, ..chain })
    });
    chain.map(PyChain::from)
}

#[pymethods]
impl PyChain {
    #[getter]
    fn name(&self) -> &str {
        &self.about.name
    }

    #[getter]
    fn states(&self) -> usize {
        self.transitions.states()
    }

    #[getter]
    fn discrete(&self) -> bool {
        self.transitions.is_discrete()
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sets = self.about.labels.sets.iter();
        sets.map(|(name, states)| (name, PyArray1::from_slice(py, states))).into_py_dict(py)
    }

    #[getter]
    fn rewards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rewards = self.about.rewards.iter();
        rewards.map(|reward| (&reward.name, PyArray1::from_slice(py, &reward.values))).into_py_dict(py)
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.about.warnings.clone()
    }

    /// Initial probability of each state.
    #[getter]
    fn initial<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let p = self.about.initial.probabilities(self.states()).map_err(|error| exception(py, &error))?;
        Ok(PyArray1::from_vec(py, p))
    }

    /// Values of the model's variables in a state, if the file has them.
    fn state_name(&self, state: usize) -> Option<String> {
        self.about.names.as_ref().map(|names| names.name(state))
    }

    /// Rates in compressed sparse rows: values, column indices, row starts.
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn rates<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>) {
        let n = self.states();
        let fill = |state, row: &mut Vec<(u32, f64)>| self.transitions.outgoing(state, row);
        let rates = py.detach(|| CsrMatrix::from_rows(n, n, fill));
        let states = PyArray1::from_iter(py, rates.column().iter().map(|&target| i64::from(target)));
        let starts = PyArray1::from_iter(py, rates.starts().iter().map(|&start| start as i64));
        (PyArray1::from_slice(py, rates.value()), states, starts)
    }

    /// True if the rates and the names of states are equal.
    fn equals(&self, py: Python<'_>, other: &Self) -> bool {
        if Arc::ptr_eq(&self.transitions, &other.transitions) {
            return true;
        }
        py.detach(|| {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            self.states() == other.states()
                && self.discrete() == other.discrete()
                && self.about.names == other.about.names
                && (0..self.states()).all(|state| {
                    ours.clear();
                    theirs.clear();
                    self.transitions.outgoing(state, &mut ours);
                    other.transitions.outgoing(state, &mut theirs);
                    ours == theirs
                })
        })
    }

    /// Pickles a built-in by its specification, and any other chain by its rates.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let module = py.import("kolmo._kolmo")?;
        if let Some(spec) = &self.built_in {
            return Ok((module.getattr("read")?, (spec,).into_pyobject(py)?));
        }
        let names = self.about.names.as_ref().map(|names| {
            let values = |state| names.values(state).collect::<Vec<_>>().join(&VALUE.to_string());
            let states: Vec<String> = (0..names.states()).map(values).collect();
            (names.variables().to_vec(), states.join(&STATE.to_string()))
        });
        let arguments = (&self.about.name, self.rates(py), self.initial(py)?, names, self.discrete());
        Ok((module.getattr("chain_of_rates")?, arguments.into_pyobject(py)?))
    }

    /// Returns the object itself, which is immutable.
    fn __deepcopy__<'py>(own: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        own
    }

    /// Computes probabilities at some times, with `absorbing` states made absorbing.
    fn transient<'py>(
        &self,
        py: Python<'py>,
        begin: Option<Begin<'py>>,
        absorbing: Option<PyReadonlyArray1<'py, bool>>,
        question: Question<'py>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let initial = match begin {
            Some(begin) => begin.initial()?,
            None => self.about.initial.clone(),
        };
        let mask = absorbing.as_ref().map_or(Ok(&[][..]), |mask| mask.as_slice())?;
        let stop = Stop::default();
        let chain = || Ok((self.stoppable(mask, &stop), Content::Rates));
        answer(py, self.states(), &initial, &question, &stop, chain)
    }
}
