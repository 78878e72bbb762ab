//! `kolmo.read`: chains from files, and those that kolmo has built in.

use std::path::Path;
use std::sync::Arc;

use kolmo::io::generator::Content;
use kolmo::transient::{self, Transitions};
use kolmo::{io, models};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::exception;
use crate::transient::{Begin, Question, answer};
use crate::watch::{Stop, Stoppable, aside};

/// A chain that the library holds.
#[pyclass(frozen, module = "kolmo._kolmo")]
pub(crate) struct Chain {
    /// Without its transitions.
    about: transient::Chain,
    transitions: Arc<dyn Transitions>,
}

impl From<transient::Chain> for Chain {
    fn from(chain: transient::Chain) -> Self {
        let transitions: Arc<dyn Transitions> = chain.transitions.into();
        Self { about: transient::Chain { transitions: Box::new(transitions.clone()), ..chain }, transitions }
    }
}

/// The chain of a file, or a built-in.
#[pyfunction]
pub(crate) fn read(py: Python<'_>, spec: &str) -> PyResult<Chain> {
    let read = aside(py, || match models::parse(spec) {
        Some(model) => model.map(transient::Chain::from),
        None => io::read_chain(Path::new(spec), None),
    });
    read.map(Chain::from)
}

#[pymethods]
impl Chain {
    #[getter]
    fn name(&self) -> &str {
        &self.about.name
    }

    #[getter]
    fn states(&self) -> usize {
        self.transitions.states()
    }

    #[getter]
    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let labels = PyDict::new(py);
        for (name, states) in &self.about.labels.sets {
            labels.set_item(name, PyArray1::from_slice(py, states))?;
        }
        Ok(labels)
    }

    #[getter]
    fn rewards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let rewards = PyDict::new(py);
        for reward in &self.about.rewards {
            rewards.set_item(&reward.name, PyArray1::from_slice(py, &reward.values))?;
        }
        Ok(rewards)
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.about.warnings.clone()
    }

    /// The probability of each state at the beginning.
    #[getter]
    fn initial<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let p = self.about.initial.probabilities(self.states()).map_err(|error| exception(py, &error))?;
        Ok(PyArray1::from_vec(py, p))
    }

    /// The values of the model's variables in a state, where a file has them.
    fn state_name(&self, state: usize) -> Option<String> {
        self.about.names.as_ref().map(|names| names.name(state))
    }

    /// The rates in compressed rows: values, indices, and where rows begin.
    #[expect(clippy::type_complexity, reason = "three arrays")]
    fn rates<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>) {
        let (values, states, starts) = py.detach(|| {
            let (mut values, mut states, mut starts) = (Vec::new(), Vec::new(), vec![0]);
            let mut row = Vec::new();
            for state in 0..self.states() {
                row.clear();
                self.transitions.outgoing(state, &mut row);
                states.extend(row.iter().map(|&(target, _)| i64::from(target)));
                values.extend(row.iter().map(|&(_, rate)| rate));
                starts.push(values.len() as i64);
            }
            (values, states, starts)
        });
        (PyArray1::from_vec(py, values), PyArray1::from_vec(py, states), PyArray1::from_vec(py, starts))
    }

    /// Probabilities at some times, `absorbing` states without a way out.
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
        let states: Vec<u32> = (0u32..).zip(mask).filter(|(_, stays)| **stays).map(|(s, _)| s).collect();
        let stop = Stop::default();
        answer(py, self.states(), &initial, &question, &stop, || {
            let shared = Stoppable { inner: self.transitions.clone(), stop: stop.clone() };
            let chain = transient::Chain::new("", Box::new(shared));
            let chain = if states.is_empty() { chain } else { chain.absorbing(&states) };
            Ok((chain.transitions, Content::Rates))
        })
    }
}
