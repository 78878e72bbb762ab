//! Chains from models in the PRISM language: reading, constants, exploration.

use std::path::Path;
use std::sync::Arc;

pub use crate::errors::refused;
use crate::state_sets::members;
use kolmo::internals::Csr;
use kolmo::lane::{available_memory, expect_memory};
use kolmo::transient::{Chain, Initial, Labels, Reward, StateNames, TransitionList};
use kolmo::{Error, Result};
use kolmo_model::{Instance, Options, PrismModel, StateSpace, Type, Value, decoded};

/// File extensions of models. The parser rejects models of other types than `ctmc`.
const ENDINGS: [&str; 4] = ["sm", "prism", "pm", "nm"];

/// True if the extension is that of a model in the PRISM language.
pub fn is_model(spec: &str) -> bool {
    let extension = Path::new(spec).extension().and_then(|e| e.to_str()).unwrap_or("");
    ENDINGS.iter().any(|ending| extension.eq_ignore_ascii_case(ending))
}

/// Reads a model from a file.
/// Fails for an unreadable file, and for errors in the text, with their places.
pub fn read(path: &str) -> Result<PrismModel> {
    let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
    PrismModel::parse(path, &decoded(bytes)).map_err(refused)
}

/// Explores an instance of a model, within `limit` bytes.
///
/// `tell` interrupts the exploration by returning false. Fails for errors in a state, or too little
/// memory.
pub fn explore(
    instance: &Instance,
    limit: Option<u64>,
    tell: &(dyn Fn(kolmo_model::Progress) -> bool + Sync),
) -> Result<StateSpace> {
    instance.explore(&Options { memory_limit: Some(memory(limit)), progress: Some(tell) }).map_err(refused)
}

/// Memory limit in bytes: `limit`, but no more than available.
pub(crate) fn memory(limit: Option<u64>) -> u64 {
    let available = available_memory();
    limit.map_or(available, |limit| limit.min(available))
}

/// Builds the chain of explored states, with state names, labels and rewards.
///
/// Reward structures that are not finite in all states are left out with a warning. Fails for too
/// little memory, and for a label that cannot be evaluated in a state.
pub fn chain(path: &str, space: StateSpace) -> Result<Chain> {
    let names = Some(Arc::new(names(&space)));
    let (rewards, left_out) = rewards(&space);
    let mut sets = Vec::new();
    let built_in: &[&str] = if space.edge().is_empty() { &["init", "deadlock"] } else { &["init"] };
    for label in built_in.iter().copied().chain(space.instance().model().labels()) {
        sets.push((label.to_owned(), members(&space.label(label).map_err(refused)?)));
    }
    let labels = Labels { sets };
    let mut chain = Chain { names, labels, rewards, left_out, ..bare(path, space)? };
    chain.warnings.extend(chain.left_out.iter().map(|(_, warning)| warning.clone()));
    Ok(chain)
}

/// Builds the chain of explored states, without state names, labels and rewards.
/// Fails for too little memory.
pub fn bare(name: &str, space: StateSpace) -> Result<Chain> {
    let loops = space.instance().model().is_discrete().then(|| space.self_loops().to_vec());
    let Chain { initial, warnings, .. } = started(Chain::from_csr(1, &[0, 0], &[], &[])?, &space);
    Ok(Chain { warnings, ..joined(name, space.into_chain(), loops)?.starting(initial) })
}

/// Sets the initial states of a chain, and the warnings about its states.
pub(crate) fn started(chain: Chain, space: &StateSpace) -> Chain {
    let initial = match space.initial() {
        [state] => Initial::State(*state as usize),
        several => Initial::Uniform(several.to_vec()),
    };
    let mut warnings = Vec::new();
    if !space.deadlocks().is_empty() {
        let count = space.deadlocks().len();
        warnings.push(format!("states without a transition, which stay for ever: {count} (\"deadlock\")"));
    }
    if space.overlaps() > 0 {
        let count = space.overlaps();
        warnings.push(format!("states with several enabled commands, which are equally likely: {count}"));
    }
    Chain { warnings, ..chain.starting(initial) }
}

/// Builds a chain of explored rows; in discrete time, with the probabilities of self-loops.
/// Fails for too little memory.
pub(crate) fn joined(
    name: &str,
    rows: kolmo_model::TransitionMatrix,
    self_loops: Option<Vec<(u32, f64)>>,
) -> Result<Chain> {
    let (n, transitions) = (rows.offsets.len() - 1, rows.columns.len());
    // Source states, and the transitions sorted by target.
    expect_memory(n as u64 * 24 + transitions as u64 * 16, || {
        format!("{name}: a chain of {n} states and {transitions} transitions")
    })?;
    let discrete = self_loops.is_some();
    of_list(name, n, list(rows, &self_loops.unwrap_or_default()), discrete)
}

/// Lists transitions by source, followed by the self-loops.
fn list(rows: kolmo_model::TransitionMatrix, self_loops: &[(u32, f64)]) -> TransitionList {
    let kolmo_model::TransitionMatrix { offsets, columns, rates: mut rate } = rows;
    let mut to = Arc::unwrap_or_clone(columns);
    let mut from = Vec::with_capacity(to.len());
    for (state, row) in (0u32..).zip(offsets.windows(2)) {
        from.extend(std::iter::repeat_n(state, (row[1] - row[0]) as usize));
    }
    for &(state, p) in self_loops {
        from.push(state);
        to.push(state);
        rate.push(p);
    }
    TransitionList { from, to, rate }
}

/// Rates of the chain that [`bare`] builds, by source, then by target.
pub(crate) fn rates(space: &StateSpace) -> Result<Vec<f64>> {
    if !space.instance().model().is_discrete() {
        return Ok(space.chain().rates.clone());
    }
    let mut list = list(space.chain().clone(), space.self_loops());
    list.normalise(space.states())?;
    list.rate.truncate(space.chain().columns.len());
    Ok(list.rate)
}

/// Builds a chain of `n` states from its transitions; in discrete time, with all self-loops.
pub(crate) fn of_list(name: &str, n: usize, mut list: TransitionList, discrete: bool) -> Result<Chain> {
    if !discrete {
        return Ok(Chain::new(name, Box::new(Csr::from_list(n, list)?)));
    }
    list.normalise(n)?;
    Ok(Chain::new(name, Box::new(Csr::from_list(n, list)?)).discrete())
}

/// Names every state by the values of its variables.
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

/// Variables of a chain from a file that properties may use: indices and types.
///
/// In every state they have a boolean value, or a number.
pub(crate) fn variables(names: &StateNames) -> Vec<(usize, Type)> {
    let mut types = vec![[true; 3]; names.variables().len()];
    for state in 0..names.states() {
        for ([bool, int, double], text) in types.iter_mut().zip(names.values(state)) {
            *bool = *bool && text.parse::<bool>().is_ok();
            *int = *int && text.parse::<i64>().is_ok();
            *double = *double && (*int || text.parse().is_ok_and(f64::is_finite));
        }
    }
    let ty = |[bool, int, double]: [bool; 3]| match (bool, int) {
        (true, _) => Some(Type::Bool),
        (_, true) => Some(Type::Int),
        _ => Some(Type::Double).filter(|_| double),
    };
    types.into_iter().enumerate().filter_map(|(place, types)| Some((place, ty(types)?))).collect()
}

/// Appends the values of these variables in a state.
pub(crate) fn values_of(names: &StateNames, variables: &[(usize, Type)], state: usize, all: &mut Vec<Value>) {
    let mut texts = names.values(state).enumerate();
    all.extend(variables.iter().filter_map(|(place, ty)| {
        let (_, text) = texts.find(|(at, _)| at == place)?;
        Some(match ty {
            Type::Bool => Value::Bool(text == "true"),
            Type::Int => Value::Int(text.parse().unwrap_or(0)),
            Type::Double => Value::Double(text.parse().unwrap_or(f64::NAN)),
        })
    }));
}

/// Returns the reward structures, and warnings about those that are left out.
///
/// Left out are structures that are not finite in all states. The name of an unnamed one is its
/// number, from 1.
fn rewards(space: &StateSpace) -> (Vec<Reward>, Vec<(String, String)>) {
    let (mut all, mut left_out) = (Vec::new(), Vec::new());
    for (k, name) in space.instance().model().reward_structures().enumerate() {
        let name = if name.is_empty() { (k + 1).to_string() } else { name.to_owned() };
        match space.rewards(Some(&name)) {
            Ok(values) => all.push(Reward { name, values }),
            Err(why) => {
                let why = format!("the rewards \"{name}\" are left out: {why}");
                left_out.push((name, why));
            }
        }
    }
    (all, left_out)
}

/// Returns the warning about a reward structure, if it is left out of the chain.
pub fn missing<'a>(chain: &'a Chain, name: &str) -> Option<&'a str> {
    chain.left_out.iter().find(|(left, _)| left == name).map(|(_, warning)| &warning[..])
}

/// Fails unless a reward structure is bounded in all states, explored or not.
pub fn expect_limit(instance: &Instance, name: &str) -> Result<()> {
    reward_limit(instance, Some(name), name, true).map(drop)
}

/// Upper bound of a structure's absolute rewards, also in unexplored states.
pub(crate) fn reward_limit(
    instance: &Instance,
    structure: Option<&str>,
    name: &str,
    at_transitions: bool,
) -> Result<f64> {
    match instance.reward_limit(structure, at_transitions).map_err(refused)? {
        limit if limit.is_finite() => Ok(limit),
        _ => Err(Error::invalid(format!(
            "the rewards \"{name}\" have no bound in the states that are not explored, so that nothing is known of their \
             expectation; guard them by conditions, or give the variables ranges"
        ))),
    }
}
