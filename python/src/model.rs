//! `kolmo.Model`: models in the PRISM language, their chains and properties.

use crate::prelude::*;
use std::sync::Mutex;

use kolmo::transient::{self, Options, Problem, Reward, Solution, Transitions};
use kolmo_check::truncation::{Edge, add_losses, expect_truncatable};
use kolmo_check::{
    Answers, Case, ChainRef, Changing, PhaseEnd, PropertyAnswer, Questions, Scheduled, Study, Subject,
    Truncation, Verdict, language, phases, state_sets,
};
use kolmo_model::constants::ConstValues;
use kolmo_model::{Instance, StateSpace, Value};
use numpy::PyArrayMethods;
use pyo3::types::IntoPyDict;

use crate::chain::PyChain;
use crate::watch::Stoppable;

/// Value of a constant. `Bool` comes first, since booleans of Python are also integers.
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

/// Constants, each with one or more values.
type ConstantLists = Vec<(String, Vec<Constant>)>;

fn given(constants: ConstantLists) -> Vec<ConstValues> {
    let one = |(name, values): (String, Vec<Constant>)| ConstValues {
        name,
        range: values.len() > 1,
        values: values.into_iter().map(Value::from).collect(),
        malformed: Vec::new(),
    };
    constants.into_iter().map(one).collect()
}

fn assigned(constants: Vec<(String, Constant)>) -> Vec<(String, Value)> {
    constants.into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// Constants that change with time: name, values with their times, and period.
type Schedules = Vec<(String, Vec<(f64, Constant)>, Option<f64>)>;

fn changing(schedules: Schedules) -> Result<Vec<Changing>> {
    let value = |(from, value): (f64, Constant)| (from, value.into());
    let one = |(name, values, period): (String, Vec<_>, _)| {
        Changing::new(&name, values.into_iter().map(value).collect(), period)
    };
    schedules.into_iter().map(one).collect()
}

/// A model in the PRISM language.
#[pyclass(frozen, name = "Model", module = "kolmo._kolmo")]
pub(crate) struct PyModel {
    path: String,
    subject: Subject,
}

/// Reads a model from a file.
#[pyfunction]
pub(crate) fn read_model(py: Python<'_>, path: &str) -> PyResult<PyModel> {
    let subject = py.detach(|| match language::is_model(path) {
        true => language::read(path).map(Subject::Language),
        false => Err(Error::invalid(format!(
            "{} is no model in PRISM's language by its ending; give .sm or .prism, or read a chain with kolmo.read",
            Path::new(path).display()
        ))),
    });
    let subject = subject.map_err(|error| exception(py, &error))?;
    Ok(PyModel { path: path.to_owned(), subject })
}

/// Makes a model from its text, which was read from `path`.
#[pyfunction]
pub(crate) fn model_of_text(py: Python<'_>, path: &str, text: &str) -> PyResult<PyModel> {
    let model = py.detach(|| kolmo_model::PrismModel::parse(path, text).map_err(language::refused));
    let model = model.map_err(|error| exception(py, &error))?;
    Ok(PyModel { path: path.to_owned(), subject: Subject::Language(model) })
}

impl PyModel {
    fn model(&self) -> &kolmo_model::PrismModel {
        let Subject::Language(model) = &self.subject else { unreachable!("no other is made") };
        model
    }
}

/// Explores the states of a model.
fn explore(instance: &Instance, told: &mut dyn Progress) -> Result<StateSpace> {
    // The number of states is not known in advance. The calls allow interrupts.
    let told = Mutex::new(told);
    let tell = |_| told.lock().is_ok_and(|mut told| told.progress(0, 0).is_ok());
    language::explore(instance, None, &tell)
}

/// Explores the next part of a truncated model.
fn part(truncation: &mut Truncation, told: &mut dyn Progress) -> Result<StateSpace> {
    let told = Mutex::new(told);
    truncation.explore(None, &|_| told.lock().is_ok_and(|mut told| told.progress(0, 0).is_ok()))
}

/// Answers for each chain, or the error of a chain.
struct CheckResult {
    answers: Vec<Result<Answers>>,
    explorations: usize,
    device: String,
    seconds: f64,
}

#[pymethods]
impl PyModel {
    /// Constants without a value, with their types.
    #[getter]
    fn constants(&self) -> Vec<(String, String)> {
        self.model().undefined_constants().map(|(name, ty)| (name.to_owned(), ty.to_string())).collect()
    }

    /// Text of the model.
    #[getter]
    fn text(&self) -> &str {
        self.model().text()
    }

    /// Pickles a model by its text.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let module = py.import("kolmo._kolmo")?;
        Ok((module.getattr("model_of_text")?, (&self.path, self.text()).into_pyobject(py)?))
    }

    /// Returns the object itself, which is immutable.
    fn __deepcopy__<'py>(own: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        own
    }

    /// Explores the chain with these constants.
    fn chain(&self, py: Python<'_>, constants: Vec<(String, Constant)>) -> PyResult<PyChain> {
        expect_own_process().map_err(|error| exception(py, &error))?;
        let values = assigned(constants);
        let chain = watched(py, None, &Stop::default(), |told| {
            let instance = self.model().with_constants(&values).map_err(language::refused)?;
            language::chain(&self.path, explore(&instance, told)?)
        })?;
        Ok(PyChain::from(chain))
    }

    /// Explores the chains of the phases up to a time, each with its end; equal phases share one.
    fn phases(
        &self,
        py: Python<'_>,
        constants: Vec<(String, Constant)>,
        schedules: Schedules,
        horizon: f64,
    ) -> PyResult<Vec<(PhaseEnd, Py<PyChain>)>> {
        let values = assigned(constants);
        let (places, chains) = watched(py, None, &Stop::default(), |told| {
            let (mut known, mut places) = (Vec::new(), Vec::new());
            let mut chains = Vec::<transient::Chain>::new();
            let changes = phases(&changing(schedules)?, horizon)?;
            let joint = kolmo_check::joint(self.model(), &values, &changes)?;
            for (end, own) in changes {
                let place = known.iter().position(|known| *known == own).unwrap_or(known.len());
                places.push((end, place));
                if place == known.len() {
                    let all = [&values[..], &own].concat();
                    let instance = self.model().with_constants(&all).map_err(language::refused)?;
                    let space = explore(&instance.alongside(&joint), told)?;
                    chains.push(language::chain(&self.path, space)?);
                    kolmo_check::expect_phase(self.model(), chains[place].names == chains[0].names)?;
                    known.push(own);
                }
            }
            Ok((places, chains))
        })?;
        let object = |chain| Py::new(py, PyChain::from(chain));
        let chains: Vec<Py<PyChain>> = chains.into_iter().map(object).collect::<PyResult<_>>()?;
        Ok(places.into_iter().map(|(end, place)| (end, chains[place].clone_ref(py))).collect())
    }

    /// Computes probabilities of a truncated model.
    ///
    /// The model is explored until at most `allowed` is lost. Absorbing states are given by labels
    /// and variables, and rewards by the model, since states have no numbers in advance. Also
    /// returns the explored chain.
    #[expect(clippy::too_many_arguments, reason = "what is asked of a model")]
    fn transient<'py>(
        &self,
        py: Python<'py>,
        constants: Vec<(String, Constant)>,
        times: Vec<f64>,
        absorbing: Option<&str>,
        place: DeviceChoice,
        epsilon: f64,
        allowed: f64,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(PyChain, Bound<'py, PyDict>)> {
        let values = assigned(constants);
        let stop = Stop::default();
        let truncated = watched(py, progress.as_ref(), &stop, |told| {
            expect_truncatable(&times, absorbing)?;
            let instance = self.model().with_constants(&values).map_err(language::refused)?;
            let truncation = Truncation::new(instance, allowed, epsilon)?;
            place.wanted()?.with(|machine: &Machine| {
                let options = Options::default().epsilon(epsilon - allowed);
                let enlarged =
                    self.enlarged(machine, truncation, absorbing, &times, &options, &stop, told)?;
                Ok((enlarged, names(machine)))
            })
        })?;
        let (Enlarged { chain, solution, p }, device) = truncated;
        let answer = crate::transient::told(py, &solution)?;
        let rows = PyArray1::from_vec(py, p).reshape([times.len(), chain.transitions.states()])?;
        answer.set_item("p", rows)?;
        answer.set_item("device", device)?;
        Ok((PyChain::from(chain), answer))
    }

    /// Answers properties for each combination of the constants' values, or for each sample.
    ///
    /// `how` is (samples, strict). Sample k has value k of each constant, or its only value. If
    /// strict, or with `truncate`, an error of one chain or property is an error of the call.
    #[expect(clippy::too_many_arguments, reason = "what is asked of a model")]
    fn check<'py>(
        &self,
        py: Python<'py>,
        properties: Vec<String>,
        constants: ConstantLists,
        schedules: Schedules,
        how: (bool, bool),
        place: DeviceChoice,
        epsilon: f64,
        truncate: Option<f64>,
        gradient: Vec<String>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (given, (samples, strict)) = (given(constants), how);
        // The allowed loss is a part of epsilon.
        let options = Options::default().epsilon(epsilon - truncate.unwrap_or(0.0));
        let stop = Stop::default();
        let checked = watched(py, progress.as_ref(), &stop, |told| {
            let mut questions = Questions::read(&properties, &self.subject)?;
            questions.allowed = truncate.unwrap_or(f64::INFINITY);
            let changing = changing(schedules)?;
            questions.timed = !changing.is_empty();
            questions.gradient.clone_from(&gradient);
            let began = Instant::now();
            let cases = match samples {
                false => questions.cases(&given, &self.subject)?,
                true => self.samples(&questions, &given)?,
            };
            let mut explorations = 0;
            let (mut answers, device) = place.wanted()?.with(|machine: &Machine| {
                questions.machine = Some(machine.clone());
                let mut all = Vec::new();
                let kept = |answers| match answers {
                    Err(error @ (Error::Invalid(..) | Error::OutOfMemory { .. })) if !strict => {
                        Ok(Err(error))
                    }
                    answers => answers.map(Ok),
                };
                if truncate.is_some() || questions.timed {
                    let solver = (machine, &options);
                    let mut scheduled = Scheduled::new((&self.path, self.model()), &questions, &changing);
                    let mut explored = |instance: &Instance, told: &mut dyn Progress| {
                        explorations += 1;
                        explore(instance, told)
                    };
                    for (index, case) in cases.iter().enumerate() {
                        let more = index + 1 < cases.len();
                        let answers = match truncate.map(|allowed| (allowed, epsilon)) {
                            Some(limits) => self.truncated(&questions, case, limits, solver, &stop, told),
                            None => scheduled.answer(case, more, &mut explored, solver, told),
                        };
                        all.push((index, kept(answers)?));
                    }
                    return Ok((all, names(machine)));
                }
                let mut study = Study::new((&self.path, self.model()), &questions, &cases, None);
                while let Some(mut batch) = study.next(&mut explore, told) {
                    for ready in batch.iter_mut().filter_map(|(_, ready)| ready.as_mut().ok()) {
                        explorations += usize::from(ready.explored);
                        if let Some(why) = ready.asked.refused().filter(|_| strict) {
                            return Err(Error::invalid(why.to_owned()));
                        }
                        ready.chain.transitions = stoppable(&mut ready.chain, &stop)?;
                    }
                    for (case, answers) in study.answer(batch, machine, &options, told) {
                        all.push((case, kept(answers)?));
                    }
                }
                Ok((all, names(machine)))
            })?;
            answers.sort_by_key(|(case, _)| *case);
            let answers: Vec<_> = answers.into_iter().map(|(_, answers)| answers).collect();
            if strict {
                expect_answered(&answers)?;
            }
            Ok(CheckResult { answers, explorations, device, seconds: began.elapsed().as_secs_f64() })
        })?;
        checked.told(py)
    }
}

/// Returns the first reason why a property or one of its derivatives has no answer, as an error.
fn expect_answered(answers: &[Result<Answers>]) -> Result<()> {
    let mut rows = answers.iter().flatten().flat_map(|answers| &answers.rows);
    let refused = |row: &PropertyAnswer| {
        let derivative = || row.gradient.iter().find_map(|(_, found)| found.as_ref().err());
        row.refused.as_ref().or_else(derivative).cloned()
    };
    rows.find_map(refused).map_or(Ok(()), |why| Err(Error::invalid(why)))
}

/// Takes the transitions of a chain, to wrap them so that they check for cancellation.
fn stoppable(chain: &mut transient::Chain, stop: &Stop) -> Result<Box<dyn Transitions>> {
    let empty = transient::Chain::from_csr(1, &[0, 0], &[], &[])?;
    let inner: Arc<dyn Transitions> = std::mem::replace(&mut chain.transitions, empty.transitions).into();
    Ok(Box::new(Stoppable { inner, stop: stop.clone() }))
}

impl PyModel {
    /// Cases of samples: each constant has one value, or a value for each sample.
    fn samples(&self, questions: &Questions, given: &[ConstValues]) -> Result<Vec<Case>> {
        let count = given.iter().map(|given| given.values.len()).max().unwrap_or(1);
        let mut cases = Vec::new();
        for sample in 0..count {
            let one = |given: &ConstValues| {
                let value = given.values[if given.values.len() == 1 { 0 } else { sample }];
                let name = given.name.clone();
                ConstValues { name, values: vec![value], range: true, malformed: Vec::new() }
            };
            let given: Vec<ConstValues> = given.iter().map(one).collect();
            cases.extend(questions.cases(&given, &self.subject)?);
        }
        Ok(cases)
    }

    /// Answers for a truncated model, which is explored until little enough is lost.
    fn truncated(
        &self,
        questions: &Questions,
        case: &Case,
        (allowed, epsilon): (f64, f64),
        (machine, options): (&Machine, &Options),
        stop: &Stop,
        told: &mut dyn Progress,
    ) -> Result<Answers> {
        let instance = self.model().with_constants(&case.model).map_err(language::refused)?;
        questions.expect_sound(&instance, case)?;
        let mut truncation = Truncation::new(instance, allowed, epsilon)?;
        loop {
            let space = part(&mut truncation, told)?;
            let asked = questions.plan(ChainRef::Explored(&space), case, told)?;
            if let Some(why) = asked.refused() {
                return Err(Error::invalid(why.to_owned()));
            }
            let mut chain = language::bare(&self.path, space)?;
            chain.transitions = stoppable(&mut chain, stop)?;
            let answers = asked.answer(chain, machine, options, told)?;
            if truncation.is_enough(&answers.left) {
                return Ok(answers);
            }
        }
    }
}

/// Explored part of a model, and its probabilities: one row per time.
struct Enlarged {
    chain: transient::Chain,
    solution: Solution,
    p: Vec<f64>,
}

impl PyModel {
    /// Explores until the truncation error at the last time is allowed; solves for all times.
    #[expect(clippy::too_many_arguments, reason = "what is asked of a model")]
    fn enlarged(
        &self,
        machine: &Machine,
        mut truncation: Truncation,
        absorbing: Option<&str>,
        times: &[f64],
        options: &Options,
        stop: &Stop,
        told: &mut dyn Progress,
    ) -> Result<Enlarged> {
        let last = times.iter().copied().fold(0.0, f64::max);
        loop {
            let chain = language::chain(&self.path, part(&mut truncation, told)?)?;
            let absorbed = absorbing.map_or(Ok(Vec::new()), |set| state_sets::states(set, &chain))?;
            let edge = Edge::new(truncation.edge(), &[&absorbed]);
            // Boundary states have no reward: their probability is lost.
            let mut rewards = chain.rewards.clone();
            for reward in &mut rewards {
                language::expect_limit(&truncation.instance, &reward.name)?;
                edge.open().for_each(|state| reward.values[state as usize] = 0.0);
            }
            let chain = if absorbed.is_empty() { chain } else { chain.absorbing(&absorbed) };
            let inner: Arc<dyn Transitions> = chain.transitions.into();
            let (n, initial) = (inner.states(), chain.initial.clone());
            let transitions = &Stoppable { inner: inner.clone(), stop: stop.clone() };
            let mut solved = |times: &[f64], rewards: &[Reward]| {
                let problem = Problem::new(transitions, &initial, times).rewards(rewards);
                let (mut p, mut left) = (vec![0.0; times.len() * n], vec![Vec::new(); times.len()]);
                let keep = |index: usize, probabilities: &[f64]| {
                    let taken = edge.taken(probabilities, &mut left[index]);
                    p[index * n..][..n].copy_from_slice(&taken);
                    Ok(())
                };
                let solution = transient::solve(machine, &problem, options, &mut (&mut *told, keep))?;
                Ok((solution, p, left))
            };
            let (.., left) = solved(&[last], &[])?;
            if truncation.is_enough(&left[0]) {
                let (mut solution, p, left) = solved(times, &rewards)?;
                add_losses(&mut solution, &[], left);
                let chain = transient::Chain { transitions: Box::new(inner), ..chain };
                return Ok(Enlarged { chain, solution, p });
            }
        }
    }
}

impl CheckResult {
    fn told(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let all = || self.answers.iter().flatten();
        let rows = all().flat_map(|all| all.rows.iter().map(|row| (row, all.states)));
        let rows: Vec<_> = rows.map(|(row, states)| told(py, row, states)).collect::<PyResult<_>>()?;
        let errors: Vec<Option<String>> =
            self.answers.iter().map(|all| all.as_ref().err().map(ToString::to_string)).collect();
        let answer = PyDict::new(py);
        answer.set_item("answers", rows)?;
        answer.set_item("errors", errors)?;
        let counts = self.answers.iter().map(|all| all.as_ref().map_or(0, |all| all.rows.len()));
        answer.set_item("counts", counts.collect::<Vec<_>>())?;
        answer.set_item("met", all().all(|all| all.status == Status::Met))?;
        answer.set_item("states", all().map(|all| all.states).sum::<usize>())?;
        answer.set_item("explorations", self.explorations)?;
        answer.set_item("sweeps", all().map(|all| all.sweeps).sum::<usize>())?;
        answer.set_item("terms", all().map(|all| all.terms).sum::<u64>())?;
        answer.set_item("device", self.device)?;
        answer.set_item("seconds", self.seconds)?;
        Ok(answer)
    }
}

fn told<'py>(py: Python<'py>, row: &PropertyAnswer, states: usize) -> PyResult<Bound<'py, PyDict>> {
    let constants = row.constants.iter().map(|(name, value)| (name, Constant::from(*value)));
    let answer = PyDict::new(py);
    answer.set_item("property", &row.text)?;
    answer.set_item("name", &row.name)?;
    match row.found {
        Verdict::Number(found) => answer.set_item("value", found.value)?,
        Verdict::Truth(truth, _) => answer.set_item("value", truth)?,
        Verdict::Refused => answer.set_item("refused", &row.refused)?,
    }
    answer.set_item("number", row.value())?;
    answer.set_item("bound", row.error())?;
    answer.set_item("loss", row.loss())?;
    answer.set_item("constants", constants.into_py_dict(py)?)?;
    answer.set_item("states", states)?;
    let derivatives = row.gradient.iter().filter_map(|(name, found)| Some((name, found.as_ref().ok()?)));
    let of = |part: fn(&kolmo_check::Answer) -> f64| {
        derivatives.clone().map(|(name, found)| (name, part(found))).into_py_dict(py)
    };
    answer.set_item("gradient", of(|found| found.value)?)?;
    answer.set_item("gradient_bound", of(|found| found.error)?)?;
    Ok(answer)
}
