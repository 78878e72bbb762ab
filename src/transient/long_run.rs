//! Long-run questions: stationary distribution, visits, absorption, hitting times, rewards.
//!
//! | function | computes | equation on T |
//! |---|---|---|
//! | [`stationary`] | one distribution | π Q = 0, Σ π = 1 |
//! | [`visits`] | time in each state, from one initial distribution p | v Q = −p |
//! | [`absorption`] | probabilities from every initial state | Q x = −b, b the rates into a set |
//! | [`expected_reward`] | expectations from every initial state | Q h = −ρ |
//!
//! T are the states with values that the graph of the chain does not determine. All other values
//! are exact: 0, 1 or infinite. A stochastic matrix P has the rates Q = P − I. A step then takes
//! one unit of time on average, so that a time is a number of steps.

use super::backward::predecessors::Predecessors;
use super::backward::values::{Equations, StateValues, TransientSystem};
use super::chain::csr::Csr;
use super::chain::recurrent_classes::ClosedClasses;
use super::chain::transitions::{TransitionList, Transitions, exit_rate, places};
use super::chain::{Absorbing, Chain, Initial, Reward};
use super::gradient::Parameter;
use super::gradient::long_run::{check_rates, of_values};
use super::multilevel::{self, Values, near_order};
use super::problem::{Options, Problem, check};
use super::rate_derivative::signed_sum;
pub use super::solution::FromStates;
use super::solution::{Bounded, status};
use super::solve::solve;
use crate::lane::{DeviceSpec, OpenOptions};
use crate::parallel::*;
use crate::{Invalid, Iterate, Machine, Progress, Result, Status};

/// Probabilities of all states, or times in them, with a bound on the sum of the errors.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Occupancy {
    /// Probability of each state, or expected time spent in it.
    pub values: Vec<f64>,
    /// Bound on the sum of the errors of all finite values.
    pub bound: f64,
    /// `Met` if the bound is at most ε times the sum of all finite values.
    pub status: Status,
}

impl Chain {
    /// Computes the stationary distribution on the best device; see [`stationary`].
    ///
    /// # Errors
    /// As [`stationary`]; and if the device does not open.
    pub fn stationary(&self, options: &Options) -> Result<Occupancy> {
        stationary(&Machine::best()?, &*self.transitions, None, options, &mut ())
    }

    /// Computes the expected time in each state, from the initial distribution; see [`visits`].
    ///
    /// # Errors
    /// As [`visits`]; and if the device does not open.
    pub fn visits(&self, until: Option<&[u32]>, options: &Options) -> Result<Occupancy> {
        visits(&Machine::best()?, &*self.transitions, &self.initial, until, options, &mut ())
    }

    /// Computes the probability of reaching each set first, from every state; see [`absorption`].
    ///
    /// # Errors
    /// As [`absorption`].
    ///
    /// # Example
    /// ```
    /// use kolmo::transient::Chain;
    ///
    /// // A gambler with 1 or 2 coins wins or loses one with equal odds, until 0 or 3 are left.
    /// let game = Chain::from_csr(4, &[0, 0, 2, 4, 4], &[0, 2, 1, 3], &[0.5; 4])?;
    /// let found = game.absorption(&[("ruined", &[0]), ("rich", &[3])], &Default::default())?;
    /// assert!((found[0].values[1] - 2.0 / 3.0).abs() <= found[0].bounds[1] + 1e-15);
    /// # Ok::<(), kolmo::Error>(())
    /// ```
    pub fn absorption(&self, sets: &[(&str, &[u32])], options: &Options) -> Result<Vec<FromStates>> {
        absorption(&*self.transitions, sets, options, &mut ())
    }

    /// Computes the expected time until a state of `target`, from every state.
    ///
    /// It is infinite from states that may never reach `target`.
    ///
    /// # Errors
    /// As [`expected_reward`].
    pub fn hitting_time(&self, target: &[u32], options: &Options) -> Result<FromStates> {
        hitting_time(&*self.transitions, target, options, &mut ())
    }

    /// Computes the expected reward until a state of `until`, from every state.
    ///
    /// See [`expected_reward`].
    ///
    /// # Errors
    /// As [`expected_reward`].
    pub fn expected_reward(
        &self,
        rewards: &[f64],
        until: Option<&[u32]>,
        options: &Options,
    ) -> Result<FromStates> {
        expected_reward(&*self.transitions, rewards, until, options, &mut ())
    }
}

/// Computes the stationary distribution, or the limit from an initial distribution.
///
/// The values are probabilities, and exactly 0 in transient states.
///
/// # Errors
/// [`Invalid`] if there are several closed classes and no initial distribution; errors of
/// [`solve`].
pub fn stationary(
    machine: &Machine,
    transitions: &dyn Transitions,
    initial: Option<&Initial>,
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Occupancy> {
    expect_one_process(machine)?;
    check(&limit_of(transitions, &Initial::State(0)), options)?;
    if let Some(initial) = initial {
        return limit(machine, transitions, initial, options, observer);
    }
    let n = transitions.states();
    let even = vec![1.0; n];
    let classes = ClosedClasses::new(transitions, &even, &even);
    let representative = only_class(&classes)?;
    let class = classes.of_states(transitions);
    let members: Vec<u32> =
        (0u32..).zip(&class).filter(|(_, class)| class.is_some()).map(|(s, _)| s).collect();
    if members.len() == n {
        return limit(machine, transitions, &Initial::State(representative), options, observer);
    }
    // Transient states have probability 0; without them the uniformization rate may be smaller.
    let (list, _) = renumbered(transitions, &members);
    let chain = Csr::added_up(members.len(), list);
    let found = limit(machine, &chain, &Initial::State(0), options, observer)?;
    let mut values = vec![0.0; n];
    members.iter().zip(&found.values).for_each(|(&state, value)| values[state as usize] = *value);
    Ok(Occupancy { values, ..found })
}

/// Returns a state of the only closed class, or an error that names states of several.
fn only_class(classes: &ClosedClasses) -> Result<usize> {
    if let &[representative] = &classes.representatives[..] {
        return Ok(representative);
    }
    let mut some: Vec<usize> = classes.representatives.iter().copied().take(3).collect();
    some.sort_unstable();
    Invalid::Distribution.fail(format!(
        "the chain has {} closed classes, which contain the states {some:?} among others, so its \
         stationary distribution is not unique: expected one closed class; give an initial state or distribution",
        classes.representatives.len()
    ))
}

/// Computes the stationary distribution, and its derivative by each parameter.
///
/// The computation runs on the host. [`Bounded::is_within`] compares the bounds with ε. The bounds
/// of derivatives are infinite if the multilevel method finds no error bound of the distribution.
/// Derivatives of initial probabilities count if there is an initial distribution.
///
/// # Errors
/// As [`stationary`] and [`forward`](super::gradient::forward); [`Invalid`] for the derivative of a
/// rate that is 0, and for more than 64 closed classes that are reachable from `initial`.
pub fn stationary_gradient(
    transitions: &dyn Transitions,
    initial: Option<&Initial>,
    parameters: &[Parameter],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<(Bounded, Vec<Bounded>)> {
    check(&limit_of(transitions, initial.unwrap_or(&Initial::State(0))), options)?;
    check_rates(transitions, parameters)?;
    let n = transitions.states();
    let start = initial.map_or_else(|| Ok(vec![1.0; n]), |initial| initial.probabilities(n))?;
    let changes = || parameters.iter().filter_map(|parameter| parameter.initial.as_ref());
    let mut begins = start.clone();
    changes().for_each(|by| begins.iter_mut().zip(by).for_each(|(p, change)| *p += change.abs()));
    let classes = ClosedClasses::new(transitions, &begins, &begins);
    if initial.is_none() {
        only_class(&classes)?;
    }
    let class = classes.of_states(transitions);
    let depends = changes().next().is_some() || classes.representatives.len() > 1;
    if let Some(initial) = initial.filter(|_| depends) {
        let mut sets = vec![Vec::new(); classes.representatives.len()];
        for (state, class) in (0u32..).zip(class) {
            class.into_iter().for_each(|class| sets[class].push(state));
        }
        return of_several(transitions, (initial, &start), &sets, parameters, options, observer);
    }
    let own: Vec<u32> = (0u32..).zip(class).filter(|(_, class)| class.is_some()).map(|(s, _)| s).collect();
    let bound = if own.len() == 1 { 0.0 } else { f64::INFINITY };
    let mut all = vec![Bounded { values: vec![0.0; n], bound }; parameters.len() + 1];
    if let [state] = own[..] {
        all[0].values[state as usize] = 1.0;
    } else {
        let mut own = near_order(transitions, own);
        // Levels suit drifts to earlier states, in this order or in the opposite one.
        for _ in 0..2 {
            let (place, epsilon) = (places(n, &own), finer(options, parameters));
            let class = multilevel::Stationary::new(transitions, own.clone(), &place, epsilon, observer)?;
            if let Some(mut class) = class.filter(|class| class.bound < all[0].bound) {
                let mut pi = vec![0.0; n];
                class.states().iter().zip(&class.values).for_each(|(&s, value)| pi[s as usize] = *value);
                for (parameter, found) in parameters.iter().zip(&mut all[1..]) {
                    let by = class.derivative(&parameter.rates, options.epsilon, observer)?;
                    *found = by.unwrap_or_else(|| found.clone());
                }
                all[0] = Bounded { values: pi, bound: class.bound };
            }
            let met = all.iter().all(|found| found.is_within(options.epsilon));
            if met || !observer.iterate(Iterate::default())? {
                break;
            }
            own.reverse();
        }
    }
    if !all[0].is_within(options.epsilon) {
        let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
        let Occupancy { values, bound, .. } = stationary(&machine, transitions, initial, options, observer)?;
        if bound < all[0].bound {
            all[0] = Bounded { values, bound };
        }
    }
    Ok((all.remove(0), all))
}

/// Computes the limit of a chain with the given closed classes, and its derivatives.
///
/// The limit is Σ p_C π_C: p_C is the probability of reaching class C, and π_C the stationary
/// distribution of C. Both factors are differentiated.
fn of_several(
    transitions: &dyn Transitions,
    (initial, start): (&Initial, &[f64]),
    classes: &[Vec<u32>],
    parameters: &[Parameter],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<(Bounded, Vec<Bounded>)> {
    if classes.len() > 64 {
        return Invalid::Distribution.fail(format!(
            "the initial distribution reaches {} closed classes: expected at most 64 for derivatives; \
             ask for the probabilities of reaching some sets instead",
            classes.len()
        ));
    }
    let named: Vec<(&str, &[u32])> = classes.iter().map(|states| ("class", &states[..])).collect();
    let reached = first_reached(transitions, &named, false, parameters, options, observer)?;
    let norm = |values: &[f64]| values.iter().map(|value| value.abs()).sum::<f64>();
    let fixed = |parameter: &Parameter| Parameter { initial: None, ..parameter.clone() };
    let fixed: Vec<Parameter> = parameters.iter().map(fixed).collect();
    let mut all = vec![Bounded { values: vec![0.0; start.len()], bound: 0.0 }; parameters.len() + 1];
    for (states, (probability, by)) in classes.iter().zip(&reached) {
        let from = Initial::State(states[0] as usize);
        let (pi, changes) = stationary_gradient(transitions, Some(&from), &fixed, options, observer)?;
        // Sum of values, weighted with probabilities, and the bound of its error.
        let sum = |weights: &[f64], of: &FromStates| {
            let reached =
                || (weights.iter().zip(of.values.iter().zip(&of.bounds))).filter(|(p, _)| **p != 0.0);
            let terms = || reached().map(|(p, (value, _))| p * value);
            let given: f64 = reached().map(|(p, (_, bound))| p.abs() * bound).sum();
            let size: f64 = terms().map(f64::abs).sum();
            (signed_sum(terms()), given + 2.0 * f64::EPSILON * size)
        };
        let mean = |of: &FromStates| {
            let most = of.values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            let (mean, error) = sum(start, of);
            (mean, error + initial.rounding() * most)
        };
        let slope = |(by, parameter): (&FromStates, &Parameter)| {
            let initial = parameter.initial.as_ref().map(|change| sum(change, probability));
            let ((slope, error), (more, lost)) = (mean(by), initial.unwrap_or_default());
            (slope + more, error + lost + f64::EPSILON * (slope + more).abs())
        };
        let (p, slopes) = (mean(probability), by.iter().zip(parameters).map(slope));
        let parts = std::iter::once((p, None)).chain(slopes.zip(changes.iter().map(Some)));
        for (found, (slope, change)) in all.iter_mut().zip(parts) {
            let mut add = |(share, error): (f64, f64), vector: &Bounded| {
                let size = norm(&vector.values);
                let rounding = 2.0 * f64::EPSILON * share.abs() * size + f64::MIN_POSITIVE;
                found.bound +=
                    1.001 * (error * (size + vector.bound) + share.abs() * vector.bound + rounding);
                for &state in states {
                    found.values[state as usize] += share * vector.values[state as usize];
                }
            };
            add(slope, &pi);
            change.into_iter().for_each(|change| add(p, change));
        }
    }
    // A product of 0 and an infinite bound is unknown.
    all.iter_mut().filter(|found| found.bound.is_nan()).for_each(|found| found.bound = f64::INFINITY);
    Ok((all.remove(0), all))
}

/// Returns the problem of the limit distribution.
fn limit_of<'a>(transitions: &'a dyn Transitions, initial: &'a Initial) -> Problem<'a> {
    Problem::new(transitions, initial, &[f64::INFINITY])
}

/// Computes the limit distribution from an initial distribution.
fn limit(
    machine: &Machine,
    transitions: &dyn Transitions,
    initial: &Initial,
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Occupancy> {
    let mut values = Vec::new();
    let mut keep = (observer, |_, probabilities: &[f64]| {
        values = probabilities.to_vec();
        Ok(())
    });
    let solution = solve(machine, &limit_of(transitions, initial), options, &mut keep)?;
    values.iter_mut().for_each(|value| *value = probability(*value));
    Ok(Occupancy { values, bound: solution.bound.total(), status: solution.status })
}

/// Clamps to [0, 1], and replaces −0 by 0. This cannot increase the error of a probability.
fn probability(value: f64) -> f64 {
    value.clamp(0.0, 1.0) + 0.0
}

fn expect_one_process(machine: &Machine) -> Result<()> {
    match machine.ranks.is_distributed() {
        true => Invalid::Unsupported
            .fail("long-run questions are not supported on several ranks: expected one process"),
        false => Ok(()),
    }
}

/// Lists the transitions out of `states`, which are numbered by position.
///
/// All other states get the number `states.len()`. Also returns the number of each state.
fn renumbered(transitions: &dyn Transitions, states: &[u32]) -> (TransitionList, Vec<u32>) {
    let mut place = vec![states.len() as u32; transitions.states()];
    states.iter().zip(0..).for_each(|(&state, k)| place[state as usize] = k);
    let (mut list, mut row) = (TransitionList::default(), Vec::new());
    for (&state, from) in states.iter().zip(0u32..) {
        let row = transitions.leaving(state as usize, &mut row);
        list.extend(row.iter().map(|&(to, rate)| (from, place[to as usize], rate)));
    }
    (list, place)
}

/// Computes the expected time spent in each state until a state of `until` is reached.
///
/// By default the time ends in any closed class. The expectation is infinite in states of other
/// closed classes that may be reached, and 0 in states of `until`.
///
/// The chain is restarted: from the end e it returns to the initial distribution p at a rate r. The
/// stationary distribution π of this chain has π_T Q = −r π_e p on the states T before the end, so
/// v = π_T / (r π_e). Let ‖π̂ − π‖₁ ≤ d and a = π̂_e. Then ‖v̂ − v‖₁ ≤ d / (a r) ·
/// max(1, (1 − a + d) / (a − d)). With r the inverse of the expected time to the end, π_e is 1/2.
///
/// A relative error δ of every p_i changes every v_i by at most δ v_i. Rates of a state to several
/// ends are added, with a relative error δ. By the Markov chain tree theorem this changes every v_i
/// by at most about 2 m δ v_i if T has m states. The sum changes by at most δ times the largest
/// expected time to the end. The smaller of the two bounds counts.
///
/// # Errors
/// [`Invalid`] for an invalid distribution or set, and errors of [`solve`].
pub fn visits(
    machine: &Machine,
    transitions: &dyn Transitions,
    initial: &Initial,
    until: Option<&[u32]>,
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Occupancy> {
    expect_one_process(machine)?;
    check(&limit_of(transitions, initial), options)?;
    let n = transitions.states();
    let start = initial.probabilities(n)?;
    let (ends, _) = ends_of(transitions, until)?;
    let list: Vec<u32> = (0u32..).zip(&ends).filter(|(_, end)| **end).map(|(s, _)| s).collect();
    let stopped = Absorbing::new(transitions, &list);
    let classes = ClosedClasses::new(&stopped, &start, &start);
    let class = classes.of_states(&stopped);
    let stuck = |s: usize| class[s].is_some() && !ends[s];
    let mut values: Vec<f64> = (0..n).map(|s| if stuck(s) { f64::INFINITY } else { 0.0 }).collect();
    let open = |&s: &u32| classes.reached[s as usize] && class[s as usize].is_none();
    let passing: Vec<u32> = (0..n as u32).filter(open).collect();
    if passing.is_empty() {
        return Ok(Occupancy { values, bound: 0.0, status: Status::Met });
    }
    let mut over = vec![true; n];
    passing.iter().for_each(|&s| over[s as usize] = false);
    let ones = vec![1.0; n];
    let equations = Equations::new(transitions);
    let mut system = TransientSystem::of_transient(&equations, &over)?;
    let found = system.totals(&over, &vec![0.0; n], &[&ones], options.epsilon, observer)?;
    let times = &found[0];
    let longest =
        times.values.iter().zip(&times.bounds).map(|(time, bound)| time + bound).fold(0.0, f64::max);
    let mean = exit_rate(passing.iter().map(|&s| start[s as usize] * times.values[s as usize]));
    let (end, rate) = (passing.len(), 1.0 / mean);
    let (mut list, _) = renumbered(transitions, &passing);
    let mut to_end = vec![0u32; end];
    let exits = list.from.iter().zip(&list.to).filter(|(_, to)| **to as usize == end);
    exits.for_each(|(from, _)| to_end[*from as usize] += 1);
    let added = f64::from(to_end.into_iter().fold(1, u32::max) - 1) * f64::EPSILON;
    list.extend(passing.iter().zip(0..).map(|(&s, k)| (end as u32, k, rate * start[s as usize])));
    // Products that underflow have no bound on the relative error.
    let normal = passing.iter().all(|&s| start[s as usize] == 0.0 || (rate * start[s as usize]).is_normal());
    let again = Options { epsilon: 0.25 * options.epsilon, ..*options };
    let chain = Csr::added_up(end + 1, list);
    let found = limit(machine, &chain, &Initial::State(end), &again, observer)?;
    let (at_end, error) = (found.values[end], found.bound);
    let scale = 1.0 / (rate * at_end);
    for (&state, value) in passing.iter().zip(&found.values) {
        values[state as usize] = value * scale;
    }
    let sum = exit_rate(values.iter().copied().filter(|value| value.is_finite()));
    let least = (at_end - error).max(0.0);
    // Error of added rates (tree theorem): (1 + δ)^m / (1 − δ)^m − 1 < 3 m δ for m δ < 1/10.
    let by_trees = end as f64 * added;
    let by_trees = if by_trees < 0.1 { 3.0 * by_trees * sum } else { f64::INFINITY };
    let bound = error * scale * ((1.0 - at_end + error) / least).max(1.0)
        + (initial.rounding() + 8.0 * f64::EPSILON) * sum
        + by_trees.min(added * longest);
    let bound = if bound.is_nan() || !normal { f64::INFINITY } else { bound };
    Ok(Occupancy { values, bound, status: status(bound <= options.epsilon * sum) })
}

/// Computes the probability of reaching each set before all others, from every state.
///
/// The sets are disjoint and named. A state from which no set is reached has probability 0 of each.
///
/// # Errors
/// [`Invalid`] for sets that are empty or overlap, and for a set that no other state
/// reaches; errors of `observer`.
pub fn absorption(
    transitions: &dyn Transitions,
    sets: &[(&str, &[u32])],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Vec<FromStates>> {
    let found = absorption_gradient(transitions, sets, &[], options, observer)?;
    Ok(found.into_iter().map(|found| found.0).collect())
}

/// Computes the probability of reaching each set before all others, and its derivatives.
///
/// A derivative is `Met` if all bounds are at most ε, or ε times the largest derivative.
///
/// # Errors
/// As [`absorption`] and [`stationary_gradient`].
pub fn absorption_gradient(
    transitions: &dyn Transitions,
    sets: &[(&str, &[u32])],
    parameters: &[Parameter],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Vec<(FromStates, Vec<FromStates>)>> {
    first_reached(transitions, sets, true, parameters, options, observer)
}

/// Computes the results of [`absorption_gradient`]; `expects`: other states must reach each set.
fn first_reached(
    transitions: &dyn Transitions,
    sets: &[(&str, &[u32])],
    expects: bool,
    parameters: &[Parameter],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<Vec<(FromStates, Vec<FromStates>)>> {
    check(&limit_of(transitions, &Initial::State(0)), options)?;
    if sets.is_empty() {
        return Invalid::States.fail("no target set given: expected at least one");
    }
    check_rates(transitions, parameters)?;
    let n = transitions.states();
    // The number of the set of each state, counted from 1; 0 outside of all sets.
    let mut owner = vec![0u32; n];
    for ((name, set), k) in sets.iter().zip(1..) {
        let mask = mask_of(&format!("target set '{name}'"), set, n)?;
        for s in (0..n).filter(|&s| mask[s]) {
            let other = std::mem::replace(&mut owner[s], k) as usize;
            if other > 0 {
                return Invalid::States.fail(format!(
                    "state {s} is in the target sets '{}' and '{name}': expected disjoint sets",
                    sets[other - 1].0
                ));
            }
        }
    }
    let passing: Vec<bool> = owner.iter().map(|owner| *owner == 0).collect();
    let back = Predecessors::new(transitions);
    let owned = |k: usize| owner.iter().map(|owner| *owner as usize == k + 1).collect::<Vec<bool>>();
    let reaching = |k: usize| back.may_reach(&owned(k), &passing);
    // True for each set and state from which the set may be reached first.
    let may: Vec<Vec<bool>> = (0..sets.len()).into_par_iter().map(reaching).collect();
    for ((name, _), may) in sets.iter().zip(&may).filter(|_| expects) {
        expect_reached(&format!("target set '{name}' first"), may, &passing)?;
    }
    let reached: Vec<usize> = (0..n).map(|s| may.iter().filter(|may| may[s]).count()).collect();
    let lost: Vec<bool> = reached.iter().map(|reached| *reached == 0).collect();
    // True for states from which states are reached that reach no set.
    let fails = back.may_reach(&lost, &passing);
    drop(back);
    let open: Vec<bool> = (0..n).map(|s| passing[s] && !lost[s]).collect();
    let open = near_order(transitions, (0..n as u32).filter(|&s| open[s as usize]).collect());
    let equations = Equations::new(transitions);
    let into = |k: usize| equations.rates_times(&open, |to| f64::from(u8::from(owner[to] as usize == k + 1)));
    let columns = (0..sets.len()).map(into).collect();
    let mut system = TransientSystem::new(&equations, open.clone())?;
    let found = system.solve(columns, (finer(options, parameters), 0.0), observer)?;
    let of = |(k, (own, own_bounds)): (usize, Values)| {
        let misses = |s: usize| fails[s] || reached[s] > usize::from(may[k][s]);
        let certain = |s: usize| f64::from(u8::from(may[k][s] && !misses(s)));
        let mut values: Vec<f64> = (0..n).map(certain).collect();
        let mut bounds = vec![0.0; n];
        for ((&state, value), bound) in open.iter().zip(own).zip(own_bounds) {
            let s = state as usize;
            if may[k][s] && misses(s) {
                (values[s], bounds[s]) = (probability(value), bound.min(1.0));
            }
        }
        let met = bounds.iter().all(|bound| *bound <= options.epsilon);
        FromStates { values, bounds, status: status(met) }
    };
    let values: Vec<FromStates> = found.into_iter().enumerate().map(of).collect();
    let all = of_values(&mut system, &values, (parameters, &[]), (options.epsilon, 1.0), observer)?;
    Ok(values.into_iter().zip(all).collect())
}

/// Returns the requested error of values: a smaller one if derivatives depend on them.
fn finer(options: &Options, parameters: &[Parameter]) -> f64 {
    let share = if parameters.is_empty() { 1.0 } else { 1e-3 };
    (share * options.epsilon).max(options.epsilon.min(1e-14))
}

/// Computes the expected time until a state of `target`, from every state.
///
/// # Errors
/// As [`expected_reward`].
pub fn hitting_time(
    transitions: &dyn Transitions,
    target: &[u32],
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<FromStates> {
    expected_reward(transitions, &vec![1.0; transitions.states()], Some(target), options, observer)
}

/// Computes the expected reward until a state of `until` is reached, from every state.
///
/// It is infinite from states that may never reach `until`. Without `until` the reward is
/// accumulated for ever.
///
/// # Errors
/// [`Invalid`] for rewards that are not finite, and for a set that is empty or that no other
/// state reaches. Also without `until`, if a state of a closed class has a reward. Errors of the
/// observer.
pub fn expected_reward(
    transitions: &dyn Transitions,
    rewards: &[f64],
    until: Option<&[u32]>,
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<FromStates> {
    expected_reward_gradient(transitions, rewards, until, (&[], &[]), options, observer).map(|found| found.0)
}

/// Computes the expected reward until a state of `until` is reached, and its derivatives.
///
/// `changes` has the derivatives of the rewards by each parameter, if they depend on it. A
/// derivative is `Met` if all bounds are at most ε times the largest derivative or value. It is NaN
/// for an infinite value.
///
/// # Errors
/// As [`expected_reward`] and [`stationary_gradient`].
pub fn expected_reward_gradient(
    transitions: &dyn Transitions,
    rewards: &[f64],
    until: Option<&[u32]>,
    (parameters, changes): (&[Parameter], &[Option<&[f64]>]),
    options: &Options,
    observer: &mut dyn Progress,
) -> Result<(FromStates, Vec<FromStates>)> {
    let all = changes.iter().flatten().copied().chain([rewards]);
    let given: Vec<Reward> =
        all.map(|values| Reward { name: "reward".to_owned(), values: values.to_vec() }).collect();
    check(&Problem { rewards: &given, ..limit_of(transitions, &Initial::State(0)) }, options)?;
    check_rates(transitions, parameters)?;
    let n = transitions.states();
    let (targets, endless) = ends_of(transitions, until)?;
    if until.is_none()
        && let Some(state) = (0..n).find(|&s| targets[s] && given.iter().any(|r| r.values[s] != 0.0))
    {
        return Invalid::Reward.fail(format!(
            "the total reward is infinite: state {state}, in a closed class, has the reward {}: \
             expected 0 in closed classes; give the states where the reward ends",
            rewards[state]
        ));
    }
    let ends: Vec<bool> = targets.iter().zip(&endless).map(|(target, endless)| *target || *endless).collect();
    let part = |sign: f64| -> Vec<f64> { rewards.iter().map(|reward| (sign * reward).max(0.0)).collect() };
    let (gains, losses, none) = (part(1.0), part(-1.0), vec![0.0; n]);
    let signed = (0..n).any(|s| !ends[s] && losses[s] > 0.0);
    let rewards = &[&gains[..], &losses][..1 + usize::from(signed)];
    let equations = Equations::new(transitions);
    let mut system = TransientSystem::of_transient(&equations, &ends)?;
    let found = system.totals(&ends, &none, rewards, finer(options, parameters), observer)?;
    let scale = found.iter().flat_map(|column| &column.values).copied().fold(0.0, f64::max);
    let mut found = found.into_iter();
    let StateValues { mut values, mut bounds } = found.next().expect("gains");
    if let Some(losses) = found.next() {
        for s in 0..n {
            values[s] -= losses.values[s];
            bounds[s] += losses.bounds[s] + f64::EPSILON * values[s].abs();
        }
    }
    let met = bounds.iter().all(|bound| *bound <= options.epsilon * scale);
    (0..n).filter(|&s| endless[s]).for_each(|s| (values[s], bounds[s]) = (f64::INFINITY, 0.0));
    values.iter_mut().for_each(|value| *value += 0.0);
    let value = FromStates { values, bounds, status: status(met) };
    let errors = (options.epsilon, scale);
    let all = of_values(&mut system, std::slice::from_ref(&value), (parameters, changes), errors, observer)?;
    Ok((value, all.into_iter().flatten().collect()))
}

/// Returns the states of `until`, and the states that may never reach them.
///
/// Without `until` these are the states of all closed classes, which are always reached.
fn ends_of(transitions: &dyn Transitions, until: Option<&[u32]>) -> Result<(Vec<bool>, Vec<bool>)> {
    let n = transitions.states();
    let Some(set) = until else {
        let even = vec![1.0; n];
        let class = ClosedClasses::new(transitions, &even, &even).of_states(transitions);
        return Ok((class.iter().map(Option::is_some).collect(), vec![false; n]));
    };
    let targets = mask_of("the target set", set, n)?;
    let passing: Vec<bool> = targets.iter().map(|target| !target).collect();
    let back = Predecessors::new(transitions);
    let may = back.may_reach(&targets, &passing);
    expect_reached("the target set", &may, &passing)?;
    let never: Vec<bool> = may.iter().map(|may| !may).collect();
    let endless = back.may_reach(&never, &passing);
    Ok((targets, endless))
}

fn mask_of(name: &str, states: &[u32], n: usize) -> Result<Vec<bool>> {
    if states.is_empty() {
        return Invalid::States.fail(format!("{name} is empty: expected at least one state"));
    }
    let mut mask = vec![false; n];
    for &state in states {
        let Some(member) = mask.get_mut(state as usize) else {
            return Invalid::States.fail(format!("{name} has the state {state}: expected 0 to {}", n - 1));
        };
        *member = true;
    }
    Ok(mask)
}

/// Fails unless a state outside of all sets (`passing`), if any, `may` reach the set `name`.
fn expect_reached(name: &str, may: &[bool], passing: &[bool]) -> Result<()> {
    if passing.contains(&true) && !may.iter().zip(passing).any(|(may, passing)| *may && *passing) {
        return Invalid::States.fail(format!(
            "no other state reaches {name}: expected a path into it; check that the matrix holds \
             rates from the row's state to the column's, and that states count from 0"
        ));
    }
    Ok(())
}
