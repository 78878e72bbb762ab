//! Models in the PRISM language where a file of a chain may stand: read, given constants, explored.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use super::progress::Progress;
use super::{interrupt, say};
use crate::report::{grouped, seconds};
use kolmo::internals::Csr;
use kolmo::lane::{available_memory, expect_memory};
use kolmo::transient::{Chain, Initial, Labels, Reward, StateNames, TransitionList};
use kolmo::{Error, Result};
use kolmo_model::constants::{self, Given};
use kolmo_model::{Model, Options, StateSpace, Type, Value};

/// Endings of such models. Those of other kinds than `ctmc` are refused by what their text says.
const ENDINGS: [&str; 4] = ["sm", "prism", "pm", "nm"];

/// Values of constants as options give them.
#[derive(Debug, Clone, Default)]
pub(super) struct Constants(pub(super) Vec<Given>);

impl FromStr for Constants {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        constants::parse(text).map(Self).map_err(refused)
    }
}

impl Constants {
    /// The one value of each.
    fn single(&self) -> Result<Vec<(String, Value)>> {
        let one = |given: &Given| match given.values[..] {
            [value] => Ok((given.name.clone(), value)),
            _ => Err(Error::Invalid(format!(
                "--const gives {} {} values, and this is about one chain; give one, or ask `kolmo check`",
                given.name,
                given.values.len()
            ))),
        };
        self.0.iter().map(one).collect()
    }
}

/// True for a model in the language, by its name.
pub(super) fn is_model(spec: &str) -> bool {
    let extension = Path::new(spec).extension().and_then(|e| e.to_str()).unwrap_or("");
    ENDINGS.iter().any(|ending| extension.eq_ignore_ascii_case(ending))
}

/// An error of the language as one of kolmo.
pub(super) fn refused(error: kolmo_model::Error) -> Error {
    match error {
        kolmo_model::Error::Interrupted => Error::Interrupted,
        kolmo_model::Error::Constant(why) => Error::Invalid(format!("--const: {why}")),
        error => {
            let text = error.to_string();
            // The first message of several begins as every error does.
            Error::Invalid(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
        }
    }
}

/// Reads a model.
pub(super) fn read(path: &str) -> Result<Model> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    Model::parse(path, &text).map_err(refused)
}

/// Finds the states of a model with these constants, in at most so many bytes.
pub(super) fn explore(
    model: &Model,
    values: &[(String, Value)],
    limit: Option<u64>,
    quiet: bool,
) -> Result<StateSpace> {
    let instance = model.with_constants(values).map_err(refused)?;
    let began = Instant::now();
    let progress = Progress::new(quiet, "exploring the model");
    let tell = |found: kolmo_model::Progress| {
        progress.found(found.states, found.transitions);
        interrupt::check().is_ok()
    };
    let available = available_memory();
    let memory_limit = Some(limit.map_or(available, |limit| limit.min(available)));
    let space = instance.explore(&Options { memory_limit, progress: Some(&tell) });
    drop(progress);
    let space = space.map_err(refused)?;
    if !quiet {
        let (others, all) = space.transitions();
        let took = began.elapsed().as_secs_f64();
        say(format_args!(
            "explored {} states, {} transitions ({} with self-loops) in {}, {} states a second",
            grouped(space.states() as u64),
            grouped(others),
            grouped(all),
            seconds(took),
            grouped((space.states() as f64 / took) as u64),
        ));
    }
    Ok(space)
}

/// The chain of a model, whose states have names.
pub(super) fn chain(
    path: &str,
    constants: Option<&Constants>,
    limit: Option<u64>,
    quiet: bool,
) -> Result<Chain> {
    let values = constants.map(Constants::single).transpose()?.unwrap_or_default();
    let space = explore(&read(path)?, &values, limit, quiet)?;
    let names = names(&space);
    let rewards = rewards(&space)?;
    Ok(Chain { names: Some(Arc::new(names)), rewards, ..bare(path, space)? })
}

/// The chain of explored states with its labels, without names and rewards.
pub(super) fn bare(name: &str, space: StateSpace) -> Result<Chain> {
    let n = space.states();
    let initial = match space.initial() {
        [state] => Initial::State(*state as usize),
        several => Initial::Uniform(several.to_vec()),
    };
    let mut warnings = Vec::new();
    if !space.deadlocks().is_empty() {
        let count = grouped(space.deadlocks().len() as u64);
        warnings.push(format!("states without a transition, which stay for ever: {count} (\"deadlock\")"));
    }
    let mut sets = Vec::new();
    for label in ["init", "deadlock"].into_iter().chain(space.instance().model().labels()) {
        sets.push((label.to_owned(), members(&space.label(label).map_err(refused)?)));
    }
    let kolmo_model::Chain { offsets, columns, rates } = space.into_chain();
    // Sources, and the transitions sorted by target.
    expect_memory(n as u64 * 24 + columns.len() as u64 * 16, || {
        format!("{name}: a chain of {n} states and {} transitions", columns.len())
    })?;
    let mut from = Vec::with_capacity(columns.len());
    for (state, row) in (0u32..).zip(offsets.windows(2)) {
        from.extend(std::iter::repeat_n(state, (row[1] - row[0]) as usize));
    }
    drop(offsets);
    let transitions = Csr::from_list(n, &TransitionList { from, to: columns, rate: rates })?;
    Ok(Chain {
        labels: Labels { sets },
        warnings,
        ..Chain::new(name, Box::new(transitions)).starting(initial)
    })
}

/// States of a set.
pub(super) fn members(set: &[bool]) -> Vec<u32> {
    (0u32..).zip(set).filter(|(_, member)| **member).map(|(state, _)| state).collect()
}

/// Every state by the values of its variables.
pub(super) fn names(space: &StateSpace) -> StateNames {
    let variables = space.instance().variables();
    let mut names = StateNames::new(variables.iter().map(|variable| variable.name.clone()).collect());
    for state in 0..space.states() {
        let text =
            space.values(state).into_iter().zip(variables).map(|(value, variable)| match variable.ty {
                Type::Bool => (value != 0).to_string(),
                _ => value.to_string(),
            });
        let values: Vec<String> = text.collect();
        names.push(values.iter().map(String::as_str));
    }
    names
}

/// Each reward structure; one without a name goes by its number, from 1.
fn rewards(space: &StateSpace) -> Result<Vec<Reward>> {
    let structures = space.instance().model().reward_structures().enumerate();
    let reward = |(k, name): (usize, &str)| {
        let values = space.rewards(Some(name)).map_err(refused)?;
        let name = if name.is_empty() { (k + 1).to_string() } else { name.to_owned() };
        Ok(Reward { name, values })
    };
    structures.map(reward).collect()
}
