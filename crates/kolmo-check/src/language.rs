//! Models in the PRISM language where a file of a chain may stand: read, given constants, explored.

use std::path::Path;
use std::sync::Arc;

use crate::Assigned;
use crate::sets::members;
use kolmo::internals::Csr;
use kolmo::lane::{available_memory, expect_memory};
use kolmo::transient::{Chain, Initial, Labels, Reward, StateNames, TransitionList};
use kolmo::{Error, Result};
use kolmo_model::{Model, Options, StateSpace, Type};

/// Endings of such models. Those of other kinds than `ctmc` are refused by what their text says.
const ENDINGS: [&str; 4] = ["sm", "prism", "pm", "nm"];

/// True for a model in the language, by its name.
pub fn is_model(spec: &str) -> bool {
    let extension = Path::new(spec).extension().and_then(|e| e.to_str()).unwrap_or("");
    ENDINGS.iter().any(|ending| extension.eq_ignore_ascii_case(ending))
}

/// An error of the language as one of kolmo.
pub fn refused(error: kolmo_model::Error) -> Error {
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
///
/// # Errors
/// A file that cannot be read; a text that is wrong, with its places.
pub fn read(path: &str) -> Result<Model> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    Model::parse(path, &text).map_err(refused)
}

/// Finds the states of a model with these constants, in at most so many bytes; `tell` stops it by giving false.
///
/// # Errors
/// Constants that are missing or unknown, what goes wrong in a state, and more states than there is memory for.
pub fn explore(
    model: &Model,
    values: &Assigned,
    limit: Option<u64>,
    tell: &(dyn Fn(kolmo_model::Progress) -> bool + Sync),
) -> Result<StateSpace> {
    let instance = model.with_constants(values).map_err(refused)?;
    let available = available_memory();
    let memory_limit = Some(limit.map_or(available, |limit| limit.min(available)));
    instance.explore(&Options { memory_limit, progress: Some(tell) }).map_err(refused)
}

/// The chain of explored states, which have names.
///
/// # Errors
/// A lack of memory; rewards that are no numbers.
pub fn chain(path: &str, space: StateSpace) -> Result<Chain> {
    let names = names(&space);
    let rewards = rewards(&space)?;
    Ok(Chain { names: Some(Arc::new(names)), rewards, ..bare(path, space)? })
}

/// The chain of explored states with its labels, without names and rewards.
///
/// # Errors
/// A lack of memory.
pub fn bare(name: &str, space: StateSpace) -> Result<Chain> {
    let n = space.states();
    let initial = match space.initial() {
        [state] => Initial::State(*state as usize),
        several => Initial::Uniform(several.to_vec()),
    };
    let mut warnings = Vec::new();
    if !space.deadlocks().is_empty() {
        let count = space.deadlocks().len();
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

/// Every state by the values of its variables.
pub(crate) fn names(space: &StateSpace) -> StateNames {
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
