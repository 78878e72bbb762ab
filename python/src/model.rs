//! `kolmo.Model`: models in PRISM's language, their chains, and properties.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kolmo::transient::{self, Options, Transitions};
use kolmo::{Error, Machine, Result, Status};
use kolmo_check::{Answers, Assigned, Found, Questions, Row, Source, Subject, language};
use kolmo_model::constants::Given;
use kolmo_model::{StateSpace, Value};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::chain::Chain;
use crate::errors::exception;
use crate::machine::{Place, expect_own_process, names};
use crate::watch::{Stop, Stoppable, Told, watched};

/// The value of a constant. Python's truth values are numbers, too, and come first.
#[derive(FromPyObject, IntoPyObject, Clone, Copy)]
pub(crate) enum Constant {
    Bool(bool),
    Int(i64),
    Double(f64),
}

impl From<Constant> for Value {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Bool(value) => Self::Bool(value),
            Constant::Int(value) => Self::Int(value),
            Constant::Double(value) => Self::Double(value),
        }
    }
}

impl From<Value> for Constant {
    fn from(value: Value) -> Self {
        match value {
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(value),
            Value::Double(value) => Self::Double(value),
        }
    }
}

/// Constants, each with one value or several.
type Constants = Vec<(String, Vec<Constant>)>;

fn given(constants: Constants) -> Vec<Given> {
    let one = |(name, values): (String, Vec<Constant>)| Given {
        name,
        values: values.into_iter().map(Value::from).collect(),
    };
    constants.into_iter().map(one).collect()
}

/// A model's text, or a chain's file.
#[pyclass(frozen, module = "kolmo._kolmo")]
pub(crate) struct Model {
    path: String,
    subject: Subject,
}

/// Reads a model.
#[pyfunction]
pub(crate) fn read_model(py: Python<'_>, path: &str) -> PyResult<Model> {
    let subject = py.detach(|| match language::is_model(path) {
        true => language::read(path).map(Subject::Language),
        false => Err(Error::Invalid(format!(
            "{} is no model in PRISM's language by its ending; give .sm or .prism, or read a chain with kolmo.read",
            Path::new(path).display()
        ))),
    });
    let subject = subject.map_err(|error| exception(py, &error))?;
    Ok(Model { path: path.to_owned(), subject })
}

impl Model {
    /// Finds the states.
    fn explore(&self, values: &Assigned, told: &mut Told<'_>) -> Result<StateSpace> {
        let Subject::Language(model) = &self.subject else { unreachable!("no other is made") };
        // Nobody knows how many there will be: nothing is told but that it goes on.
        let told = Mutex::new(told);
        let tell = |_| told.lock().is_ok_and(|mut told| told(0, 0).is_ok());
        language::explore(model, values, None, &tell)
    }
}

/// Answers about all chains of a model, the number of states of each, and where they come from.
struct Checked {
    answers: Vec<Answers>,
    states: Vec<usize>,
    device: String,
    seconds: f64,
}

#[pymethods]
impl Model {
    /// Constants without a value, with their types.
    #[getter]
    fn constants(&self) -> Vec<(String, String)> {
        let Subject::Language(model) = &self.subject else { return Vec::new() };
        model.undefined_constants().map(|(name, ty)| (name.to_owned(), ty.to_string())).collect()
    }

    /// The chain with these constants.
    fn chain(&self, py: Python<'_>, constants: Vec<(String, Constant)>) -> PyResult<Chain> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let values: Vec<(String, Value)> =
            constants.into_iter().map(|(name, value)| (name, value.into())).collect();
        let chain = watched(py, None, &Stop::default(), |told| {
            language::chain(&self.path, self.explore(&values, told)?)
        })?;
        Ok(Chain::from(chain))
    }

    /// Answers properties, of every combination of the values of constants.
    fn check<'py>(
        &self,
        py: Python<'py>,
        properties: Vec<String>,
        constants: Constants,
        place: Place,
        epsilon: f64,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let given = given(constants);
        let options = Options { epsilon, ..Options::default() };
        let stop = Stop::default();
        let checked = watched(py, progress.as_ref(), &stop, |told| {
            let mut questions = Questions::read(&properties, &self.subject)?;
            let began = Instant::now();
            let wanted = place.wanted()?;
            let (mut answers, mut states) = (Vec::new(), Vec::new());
            let device = wanted.with(|machine: &Machine| {
                for values in questions.take(&given, &self.subject)? {
                    let Subject::Language(model) = &self.subject else { unreachable!("no other is made") };
                    let instance = model.with_constants(&values).map_err(language::refused)?;
                    questions.expect_sound(&instance)?;
                    let space = self.explore(&values, told)?;
                    let asked = questions.plan(Source::Explored(&space), &values)?;
                    states.push(space.states());
                    let chain = language::bare(&self.path, space)?;
                    let inner: Arc<dyn Transitions> = chain.transitions.into();
                    let transitions = Box::new(Stoppable { inner, stop: stop.clone() });
                    let chain = transient::Chain { transitions, ..chain };
                    answers.push(asked.answer(chain, machine, &options, &mut |done, all| told(done, all))?);
                }
                Ok(names(machine))
            })?;
            Ok(Checked { answers, states, device, seconds: began.elapsed().as_secs_f64() })
        })?;
        checked.told(py)
    }
}

impl Checked {
    fn told(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let rows =
            self.answers.iter().zip(&self.states).flat_map(|(all, n)| all.rows.iter().map(|row| (row, *n)));
        let rows: Vec<_> = rows.map(|(row, states)| told(py, row, states)).collect::<PyResult<_>>()?;
        let answer = PyDict::new(py);
        answer.set_item("answers", rows)?;
        answer.set_item("met", self.answers.iter().all(|all| all.status == Status::Met))?;
        answer.set_item("states", self.states.iter().sum::<usize>())?;
        answer.set_item("sweeps", self.answers.iter().map(|all| all.sweeps).sum::<usize>())?;
        answer.set_item("terms", self.answers.iter().map(|all| all.terms).sum::<u64>())?;
        answer.set_item("device", self.device)?;
        answer.set_item("seconds", self.seconds)?;
        Ok(answer)
    }
}

fn told<'py>(py: Python<'py>, row: &Row, states: usize) -> PyResult<Bound<'py, PyDict>> {
    let constants = PyDict::new(py);
    for (name, value) in &row.constants {
        constants.set_item(name, Constant::from(*value))?;
    }
    let answer = PyDict::new(py);
    answer.set_item("property", &row.text)?;
    answer.set_item("name", &row.name)?;
    match row.found {
        Found::Number(found) => answer.set_item("value", found.value)?,
        Found::Truth(truth, _) => answer.set_item("value", truth)?,
    }
    answer.set_item("number", row.value())?;
    answer.set_item("bound", row.error())?;
    answer.set_item("constants", constants)?;
    answer.set_item("states", states)?;
    Ok(answer)
}
