//! Chain that properties refer to, and its rewards.

use crate::errors::refused;
use kolmo::transient::{Chain, Initial};
use kolmo::{Error, Result};
use kolmo_model::properties::{Formula, PathFormula, RewardKind};
use kolmo_model::{FilterKind, StateSpace};

/// Chain that properties refer to.
#[derive(Clone, Copy)]
pub enum ChainRef<'a> {
    /// Explored states of a model.
    Explored(&'a StateSpace),
    /// A chain from a file.
    File(&'a Chain),
}

pub(crate) fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::invalid(why.into()))
}

/// True if a formula has operators, so that variables and labels alone do not give its value.
pub(crate) fn asks(formula: &Formula) -> bool {
    match formula {
        Formula::State(_) | Formula::Label(_) => false,
        Formula::Combination(_, parts) => parts.iter().any(asks),
        _ => true,
    }
}

/// True if a formula is an operator that asks for a number.
pub(crate) fn is_operator(formula: &Formula) -> bool {
    match formula {
        Formula::Probability { bound, path, .. } => {
            bound.is_none() && matches!(path, PathFormula::Until { .. })
        }
        Formula::Reward { goal: RewardKind::Ltl(_), .. } => false,
        Formula::SteadyState { bound, .. } | Formula::Reward { bound, .. } => bound.is_none(),
        _ => false,
    }
}

/// True if the value of a formula is true or false, not a number.
pub(crate) fn is_truth(formula: &Formula) -> bool {
    match formula {
        Formula::State(state) => state.is_truth(),
        Formula::Label(_) => true,
        Formula::Combination(combination, _) => combination.is_truth(),
        Formula::Probability { bound, .. }
        | Formula::SteadyState { bound, .. }
        | Formula::Reward { bound, .. } => bound.is_some(),
        Formula::Filter { kind: FilterKind::ForAll | FilterKind::Exists, .. } => true,
        Formula::Filter { kind: FilterKind::Count, .. } => false,
        Formula::Filter { formula, .. } => is_truth(formula),
    }
}

/// Lists the possible initial states.
pub(crate) fn listed(initial: &Initial) -> Vec<u32> {
    match initial {
        Initial::State(state) => vec![*state as u32],
        Initial::Uniform(states) => states.clone(),
        Initial::Distribution(p) => (0u32..).zip(p).filter(|(_, p)| **p > 0.0).map(|(s, _)| s).collect(),
    }
}

/// Reward rates of all states, with `of_states` from state rewards alone.
pub(crate) fn cumulative_rewards(
    source: ChainRef<'_>,
    structure: Option<&str>,
    of_states: bool,
) -> Result<Vec<f64>> {
    match source {
        ChainRef::Explored(space) if of_states => space.state_rewards(structure).map_err(refused),
        ChainRef::Explored(space) => space.rewards(structure).map_err(refused),
        ChainRef::File(chain) => {
            // The first structure of the files may be one of those that are left out.
            if structure.is_none()
                && let Some((_, why)) = chain.left_out.first()
            {
                return refuse(why);
            }
            let found = chain.rewards.iter().find(|r| structure.is_none_or(|name| r.name == name));
            // Structures are also numbered, from 1.
            let number = structure.and_then(|name| name.parse::<usize>().ok()?.checked_sub(1));
            match found.or_else(|| chain.rewards.get(number?)) {
                Some(reward) => Ok(reward.values.clone()),
                None => refuse("the chain has no such rewards; give a .srew or .trew file next to it"),
            }
        }
    }
}
