//! Constants that change at given times, and answers for models with such constants.

use std::sync::Arc;

use crate::Assigned;
use crate::language::{self, refused};
use crate::query::{Answers, Asked, Case, Questions};
use crate::source::{ChainRef, refuse};
use crate::study::Explore;
use crate::uniformization::{PhaseEnd, PhaseRates};
use kolmo::transient::{Chain, Options, Transitions};
use kolmo::{Machine, Progress, Result};
use kolmo_model::{Instance, PrismModel, StateSpace, Value};

/// Constant with its values, each with the time from which it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Changing {
    /// Name of the constant.
    pub name: String,
    values: Vec<(f64, Value)>,
    /// Time after which the values repeat.
    period: Option<f64>,
}

/// Phases of a schedule: values of the changing constants, and the time until which they hold.
pub type Changes = Vec<(PhaseEnd, Vec<(String, Value)>)>;

/// Returns `k * period + from` as the nearest double, with its rounding error.
fn start(k: f64, period: f64, from: f64) -> PhaseEnd {
    let (product, nearest) = (k * period, k.mul_add(period, from));
    let sum = product + from;
    let other = sum - product;
    let lost = (product - (sum - other)) + (from - other) + k.mul_add(period, -product);
    (nearest, (sum - nearest) + lost)
}

/// Maximum number of phases.
const PHASES: usize = 100_000;

impl Changing {
    /// Creates a constant that has each value from its time on.
    ///
    /// # Errors
    /// No values; times that do not begin at 0, or do not increase; a period that does not exceed
    /// the last time.
    pub fn new(name: &str, values: Vec<(f64, Value)>, period: Option<f64>) -> Result<Self> {
        let times: Vec<f64> = values.iter().map(|(from, _)| *from).chain(period).collect();
        let expected = if times.iter().any(|time| !(*time >= 0.0 && time.is_finite())) {
            "finite numbers of at least 0"
        } else if values.first().is_none_or(|(from, _)| *from != 0.0) {
            "a value from time 0 on"
        } else if times.windows(2).any(|pair| pair[0] >= pair[1]) {
            "increasing times, and a period after the last one"
        } else {
            return Ok(Self { name: name.to_owned(), values, period });
        };
        let (times, repeats) = times.split_at(values.len());
        let repeats: String = repeats.iter().map(|period| format!(" and the period {period}")).collect();
        refuse(format!("the constant '{name}' has the times {times:?}{repeats}: expected {expected}"))
    }

    /// Returns the values with their times up to `horizon`.
    fn until(&self, horizon: f64) -> Result<Vec<(PhaseEnd, Value)>> {
        let Some(period) = self.period else {
            return Ok(self.values.iter().map(|&(from, v)| ((from, 0.0), v)).collect());
        };
        // Invalid times are reported by the solver.
        let horizon = horizon.max(0.0);
        if horizon / period * self.values.len() as f64 > PHASES as f64 {
            return refuse(format!(
                "a period of {period} up to time {horizon} makes more than {PHASES} phases; give shorter times"
            ));
        }
        let periods = (0..).map(f64::from).take_while(|k| k * period <= horizon);
        let values = |k| self.values.iter().map(move |&(from, v)| (start(k, period, from), v));
        Ok(periods.flat_map(values).collect())
    }
}

/// Returns the phases up to `horizon`; the last one has no end.
/// Fails for a period that makes too many phases.
pub fn phases(changing: &[Changing], horizon: f64) -> Result<Changes> {
    let all: Vec<_> = changing.iter().map(|one| one.until(horizon)).collect::<Result<_>>()?;
    let mut starts: Vec<PhaseEnd> = all.iter().flatten().map(|(from, _)| *from).collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    starts.dedup();
    let mut last = 0.0;
    let phase = |(k, &start): (usize, &PhaseEnd)| {
        let current = |(one, values): (&Changing, &Vec<(PhaseEnd, Value)>)| {
            (one.name.clone(), values[values.partition_point(|(from, _)| *from <= start) - 1].1)
        };
        let (next, rest) = starts.get(k + 1).copied().unwrap_or((f64::INFINITY, 0.0));
        // Changes within the rounding of a time follow each other. The rest is itself rounded.
        last = next.max(f64::next_up(last));
        let late = 2.0 * rest.abs() + if last > next { last - next } else { 0.0 };
        ((last, late), changing.iter().zip(&all).map(current).collect())
    };
    Ok(starts.iter().enumerate().map(phase).collect())
}

/// Returns the instances of all phases, if they have to be explored together; otherwise none.
///
/// This is the case if a constant is 0 or false in only some phases, or if guards differ. Each
/// phase is then explored with [`Instance::alongside`], so that all phases have the same states.
///
/// `fixed` are the constants that do not change. Fails for invalid constants.
pub fn joint(model: &PrismModel, fixed: &Assigned, changes: &Changes) -> Result<Vec<Instance>> {
    let mut distinct: Vec<&Assigned> = Vec::new();
    for (_, own) in changes {
        if !distinct.contains(&&own[..]) {
            distinct.push(own);
        }
    }
    let instance = |own: &&Assigned| model.with_constants(&[fixed, own].concat()).map_err(refused);
    let all = distinct.iter().map(instance).collect::<Result<Vec<_>>>()?;
    let off = |own: &Assigned| -> Vec<bool> {
        own.iter().map(|(_, value)| *value == Value::Bool(false) || value.number() == Some(0.0)).collect()
    };
    let same = |(own, instance): (&&Assigned, &Instance)| {
        off(own) == off(distinct[0]) && instance.has_structure_of(&all[0])
    };
    let needless = distinct.iter().zip(&all).all(same);
    Ok(if needless { Vec::new() } else { all })
}

/// Fails for a model in discrete time, and if `same` is false: a phase has other states.
/// The error states which of the two holds.
pub fn expect_phase(model: &PrismModel, same: bool) -> Result<()> {
    match same {
        _ if model.is_discrete() => {
            refuse("constants that change with time need a model in continuous time, such as ctmc")
        }
        false => refuse(
            "constants that change with time must not change the states; \
             keep initial values and the ranges of variables",
        ),
        true => Ok(()),
    }
}

/// Maximum number of explored state spaces that are kept for further phases and cases.
const SPACES: usize = 2;

/// Model with constants that change with time, and its properties.
///
/// All phases must have the same states, or are explored together ([`joint`]). Phases and cases
/// that change only rates share an exploration.
pub struct Scheduled<'a> {
    name: &'a str,
    model: &'a PrismModel,
    questions: &'a Questions,
    changing: &'a [Changing],
    /// Explored states by pattern of transitions, the last used one at the end.
    known: Vec<StateSpace>,
}

impl<'a> Scheduled<'a> {
    /// Creates the model. [`Questions::timed`] must be true; `name` is the name of its chains.
    pub fn new(
        (name, model): (&'a str, &'a PrismModel),
        questions: &'a Questions,
        changing: &'a [Changing],
    ) -> Self {
        Self { name, model, questions, changing, known: Vec::new() }
    }

    /// Answers the properties of a case; the first phase determines the initial state.
    ///
    /// Explored states are kept for further cases if there are `more`. Fails for chains in discrete
    /// time, for phases with other states, and like [`Questions::plan`] and
    /// [`kolmo::transient::solve_phases`].
    pub fn answer(
        &mut self,
        case: &Case,
        more: bool,
        explore: Explore<'_>,
        (machine, options): (&Machine, &Options),
        watch: &mut dyn Progress,
    ) -> Result<Answers> {
        if let Some(why) = &case.invalid {
            return refuse(&**why);
        }
        expect_phase(self.model, true)?;
        let first = phases(self.changing, 0.0)?.swap_remove(0).1;
        let (mut asked, mut transitions) = self.planned(case, &first, false, explore, watch)?;
        let changes = phases(self.changing, asked.needs.horizon())?;
        let all = joint(self.model, &case.model, &changes)?;
        let rated = |space: &mut StateSpace, own| space.rerate(own, &Default::default()).unwrap_or(false);
        let space = self.known.last_mut().expect("the states of the first phase");
        if !all.iter().all(|own| rated(space, own)) {
            self.known = vec![explore(&all[0].clone().alongside(&all[1..]), watch)?];
            (asked, transitions) = self.planned(case, &first, false, explore, watch)?;
        }
        let mut known = vec![(first, transitions, Arc::new(asked.needs.rewards.clone()))];
        let mut stages = Vec::new();
        for (end, values) in changes {
            let place = known.iter().position(|(known, ..)| *known == values);
            if place.is_none() {
                let (own, transitions) = self.planned(case, &values, true, explore, watch)?;
                asked.expect_equal(&own);
                known.push((values, transitions, Arc::new(own.needs.rewards)));
            }
            let (_, transitions, rewards) = &known[place.unwrap_or(known.len() - 1)];
            stages.push(PhaseRates { end, transitions: transitions.clone(), rewards: rewards.clone() });
        }
        if !more {
            self.known.clear();
        }
        let chain = Chain::new(self.name, Box::new(stages[0].transitions.clone()));
        asked.needs.phases = stages;
        let mut answers = asked.answer(chain, machine, options, watch)?;
        let changes = |name: &String| self.changing.iter().any(|one| one.name == *name);
        answers.rows.iter_mut().for_each(|row| row.constants.retain(|(name, _)| !changes(name)));
        Ok(answers)
    }

    /// Plans the properties of a phase; a `later` one must have the states of the phase before.
    fn planned(
        &mut self,
        case: &Case,
        values: &Assigned,
        later: bool,
        explore: Explore<'_>,
        watch: &mut dyn Progress,
    ) -> Result<(Asked, Arc<dyn Transitions>)> {
        let case = Case { model: [&case.model[..], values].concat(), ..case.clone() };
        let instance = self.model.with_constants(&case.model).map_err(refused)?;
        self.questions.expect_sound(&instance, &case)?;
        let rated = |space: &mut StateSpace| space.rerate(&instance, &Default::default()).unwrap_or(false);
        let equal = self.known.iter_mut().rposition(rated);
        let space = match equal {
            Some(place) => self.known.remove(place),
            None => explore(&instance, watch)?,
        };
        let states = space.states();
        let differs = |before: &StateSpace| {
            before.states() != states || (0..states).any(|s| space.values(s) != before.values(s))
        };
        // The last space is that of the phase before, unless it is this one.
        let own = equal == Some(self.known.len());
        let same = !later || own || !self.known.last().is_some_and(differs);
        expect_phase(self.model, same)?;
        if self.known.len() == SPACES {
            self.known.remove(0);
        }
        self.known.push(space);
        let space = &self.known[self.known.len() - 1];
        let asked = self.questions.plan(ChainRef::Explored(space), &case, watch)?;
        let transitions = language::joined(self.name, space.chain().clone(), None)?.transitions;
        Ok((asked, transitions.into()))
    }
}
