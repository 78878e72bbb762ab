//! Answers for models whose constants change at given times.

use std::sync::Arc;

use crate::Assigned;
use crate::language::{self, refused};
use crate::query::{Answers, Asked, Case, Questions};
use crate::source::{Source, refuse};
use crate::study::Explore;
use crate::uniformization::Rates;
use kolmo::transient::{Chain, Options, Transitions};
use kolmo::{Machine, Progress, Result};
use kolmo_model::{Model, StateSpace, Value};

/// Phases of a schedule: values of the changing constants, and the time until which they hold.
pub type Changes = Vec<(f64, Vec<(String, Value)>)>;

/// Answers properties of a model with constants that change with time.
///
/// `changes` returns the phases up to a time. [`Questions::timed`] must be true. All phases must
/// have the same states. Phases with equal values share an exploration. The first phase determines
/// the initial state.
///
/// # Errors
/// Chains in discrete time; phases with other states; those of [`Questions::plan`] and of
/// [`kolmo::transient::solve_phases`].
pub fn scheduled(
    (name, model): (&str, &Model),
    (questions, case): (&Questions, &Case),
    changes: &dyn Fn(f64) -> Result<Changes>,
    explore: Explore<'_>,
    (machine, options): (&Machine, &Options),
    watch: &mut dyn Progress,
) -> Result<Answers> {
    if let Some(why) = &case.invalid {
        return refuse(&**why);
    }
    if model.is_discrete() {
        return refuse("constants that change with time need a model in continuous time, such as ctmc");
    }
    let mut planned = |values: &Assigned, watch: &mut dyn Progress| -> Result<(StateSpace, Asked)> {
        let case = Case { model: [&case.model[..], values].concat(), ..case.clone() };
        let instance = model.with_constants(&case.model).map_err(refused)?;
        questions.expect_sound(&instance, &case)?;
        let space = explore(&instance, watch)?;
        let asked = questions.plan(Source::Explored(&space), &case, watch)?;
        Ok((space, asked))
    };
    let transitions = |space: &StateSpace| -> Result<Arc<dyn Transitions>> {
        Ok(language::joined(name, space.chain().clone(), None)?.transitions.into())
    };
    let first = changes(0.0)?.swap_remove(0).1;
    let (space, mut asked) = planned(&first, watch)?;
    let mut known = vec![(first, transitions(&space)?, Arc::new(asked.needs.rewards.clone()))];
    let mut phases = Vec::new();
    for (end, values) in changes(asked.needs.horizon())? {
        let place = known.iter().position(|(known, ..)| *known == values);
        if place.is_none() {
            let (other, own) = planned(&values, watch)?;
            let states = space.states();
            if other.states() != states || (0..states).any(|s| space.values(s) != other.values(s)) {
                return refuse("constants that change with time must not change the states, only rates");
            }
            asked.expect_equal(&own);
            known.push((values, transitions(&other)?, Arc::new(own.needs.rewards)));
        }
        let (_, transitions, rewards) = &known[place.unwrap_or(known.len() - 1)];
        phases.push(Rates { end, transitions: transitions.clone(), rewards: rewards.clone() });
    }
    drop(space);
    let chain = Chain::new(name, Box::new(phases[0].transitions.clone()));
    asked.needs.phases = phases;
    let mut answers = asked.answer(chain, machine, options, watch)?;
    let changing = |name: &String| known[0].0.iter().any(|(own, _)| own == name);
    answers.rows.iter_mut().for_each(|row| row.constants.retain(|(name, _)| !changing(name)));
    Ok(answers)
}
