//! Derivatives of stationary distributions, and of values from every state in the long run.
//!
//! * π Q = 0 has the derivative y = dπ/dθ with yQ = −π dQ and Σ y = 0.
//! * −Qv = b on transient states has the derivative v' with −Qv' = db + dQ v.
//!
//! Both are solved like π and v, with the same elimination or levels. `docs/certificate.md` has the
//! proofs of the bounds.

use super::matrix::{others, signed_sum};
use super::{Bounded, Parameter, check_parameter};
use crate::numerics::double_double::{Exact, UNIT};
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::backward::values::System;
use crate::transient::chain::recurrent_classes::Classes;
use crate::transient::chain::statistics::scale_of;
use crate::transient::chain::transitions::Transitions;
use crate::transient::long_run::{FromStates, status};
use crate::transient::multilevel::{Stationary, near_order, places};
use crate::transient::steady_state::gth::{Given, MOST_BANDED, Plan};
use crate::{Invalid, Progress, Result};

/// Fails for derivatives of another shape, and for those of rates that are 0.
///
/// A rate that becomes positive may change the long run abruptly.
pub(in crate::transient) fn check_rates(
    transitions: &dyn Transitions,
    parameters: &[Parameter],
) -> Result<()> {
    let mut row = Vec::new();
    for parameter in parameters {
        check_parameter(parameter, transitions.states())?;
        for state in 0..transitions.states() {
            row.clear();
            transitions.outgoing(state, &mut row);
            let is_positive = |to: u32| row.iter().any(|&(other, rate)| other == to && rate > 0.0);
            let mut changed = others(&parameter.rates, state).filter(|(_, change)| *change != 0.0);
            if let Some((to, change)) = changed.find(|(to, _)| !is_positive(*to)) {
                return Invalid::Number("gradient").fail(format!(
                    "the derivative of the rate {state} -> {to} by '{}' is {change}, but the rate is 0: \
                     expected a positive rate; a new transition may change the long run abruptly",
                    parameter.name
                ));
            }
        }
    }
    Ok(())
}

/// Computes π dQ, and a bound of the error of each element.
///
/// `relative` bounds the relative error of the probability of a state.
pub(in crate::transient) fn flow(
    rates: &CsrMatrix,
    pi: &[f64],
    relative: impl Fn(usize) -> f64,
) -> (Vec<f64>, Vec<f64>) {
    let (mut sums, mut lacks) = (vec![Exact::default(); pi.len()], vec![0.0; pi.len()]);
    for (state, &p) in pi.iter().enumerate() {
        for (to, change) in others(rates, state) {
            let (amount, error) = (p * change, relative(state) + 8.0 * UNIT);
            for (place, amount) in [(to as usize, amount), (state, -amount)] {
                sums[place].add(amount);
                lacks[place] += amount.abs() * error + f64::MIN_POSITIVE;
            }
        }
    }
    (sums.into_iter().map(Exact::value).collect(), lacks.into_iter().map(|lack| 1.001 * lack).collect())
}

/// Computes the stationary distribution of a chain that is one closed class, and its derivatives.
///
/// `rates` has the derivatives of the rates. Without a result the bounds are infinite.
pub(in crate::transient) fn of_class(
    transitions: &dyn Transitions,
    rates: &[CsrMatrix],
    epsilon: f64,
    observer: &mut dyn Progress,
) -> Result<(Bounded, Vec<Bounded>)> {
    let n = transitions.states();
    let none = |bound| Bounded { values: vec![0.0; n], bound };
    if n == 1 {
        return Ok((Bounded { values: vec![1.0], bound: 0.0 }, vec![none(0.0); rates.len()]));
    }
    let even = vec![1.0; n];
    let plan = if n <= MOST_BANDED {
        Plan::new(transitions, &Classes::new(transitions, &even, &even))
    } else {
        None
    };
    let mut exits = vec![0.0; n];
    transitions.exit_rates(0..n, &mut exits);
    let scale = scale_of(exits.into_iter().fold(0.0, f64::max));
    let from = Given { transitions, scale, enough: epsilon };
    let is_met = |(pi, all): &(Bounded, Vec<Bounded>)| all.iter().chain([pi]).all(|y| y.is_within(epsilon));
    let short = plan.as_ref().is_some_and(Plan::is_short);
    let mut found = None;
    for eliminates in [short, !short] {
        let next = match (eliminates, &plan) {
            (true, Some(plan)) => plan.derivatives(from, rates, &mut || observer.progress(0, 0))?,
            (true, None) => None,
            (false, _) => by_levels(transitions, rates, epsilon, observer)?,
        };
        if next.as_ref().is_some_and(is_met) {
            return Ok(next.expect("a result"));
        }
        found = found.or(next);
    }
    Ok(found.unwrap_or_else(|| (none(f64::INFINITY), vec![none(f64::INFINITY); rates.len()])))
}

/// Solves by multilevel aggregation; `None` if no bound is found.
pub(in crate::transient) fn by_levels(
    transitions: &dyn Transitions,
    rates: &[CsrMatrix],
    epsilon: f64,
    observer: &mut dyn Progress,
) -> Result<Option<(Bounded, Vec<Bounded>)>> {
    let n = transitions.states();
    let states = near_order(transitions, (0..n as u32).collect());
    let place = places(n, &states);
    let Some(mut class) = Stationary::new(transitions, states, &place, epsilon, observer)? else {
        return Ok(None);
    };
    let mut pi = Bounded { values: vec![0.0; n], bound: class.bound };
    class.states().iter().zip(&class.values).for_each(|(&state, x)| pi.values[state as usize] = *x);
    let mut all = Vec::with_capacity(rates.len());
    for rates in rates {
        let (s, lacks) = flow(rates, &pi.values, |_| 0.0);
        let Some(found) = class.derivative((&s, &lacks), rates, epsilon, observer)? else { return Ok(None) };
        all.push(found);
    }
    Ok(Some((pi, all)))
}

/// Computes the derivatives of values from each state by each parameter.
///
/// Each of `values` solves −Qv = b on the states of `system`; all other values are exact and do not
/// depend on parameters. `rewards` has db for each parameter, if b depends on it. The requested
/// error is at most ε times the largest derivative, or ε times `scale` if that is larger.
pub(in crate::transient) fn of_values(
    system: &mut System<'_>,
    values: &[&FromStates],
    (parameters, rewards): (&[Parameter], &[Option<&[f64]>]),
    (epsilon, scale): (f64, f64),
    observer: &mut dyn Progress,
) -> Result<Vec<Vec<FromStates>>> {
    if parameters.is_empty() {
        return Ok(vec![Vec::new(); values.len()]);
    }
    let (mut columns, mut sizes) = (Vec::new(), Vec::new());
    // Errors of all columns, each divided by its largest one: one column bounds their effects.
    let mut lacks = vec![0.0f64; system.passing.len()];
    for of in values {
        for (parameter, reward) in parameters.iter().zip(rewards) {
            let change = |&state: &u32| change(of, &parameter.rates, *reward, state as usize);
            let found: Vec<(f64, f64)> = system.passing.par_iter().map(change).collect();
            let (column, errors): (Vec<f64>, Vec<f64>) = found.into_iter().unzip();
            let size = errors.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            lacks.iter_mut().zip(errors).for_each(|(lack, error)| *lack = lack.max(error / size));
            columns.push(column);
            sizes.push(size);
        }
    }
    columns.push(lacks);
    let mut found = system.solve(columns, (epsilon, scale), observer)?;
    let (lost, more) = found.pop().unwrap_or_default();
    let lost: Vec<f64> = lost.iter().zip(more).map(|(lost, more)| 1.001 * (lost.abs() + more)).collect();
    let all = values.iter().flat_map(|of| parameters.iter().map(move |_| *of));
    let derivative = |(((own, own_bounds), size), of): ((_, f64), &FromStates)| {
        let (own, own_bounds): (Vec<f64>, Vec<f64>) = (own, own_bounds);
        let n = of.values.len();
        // Values that are infinite have no derivative.
        let exact = |value: &f64| if value.is_finite() { 0.0 } else { f64::NAN };
        let (mut values, mut bounds) = (of.values.iter().map(exact).collect::<Vec<f64>>(), vec![0.0; n]);
        let mut largest = scale;
        for (k, &state) in system.passing.iter().enumerate() {
            values[state as usize] = own[k];
            bounds[state as usize] = own_bounds[k] + size * lost[k];
            largest = largest.max(own[k].abs());
        }
        let met = bounds.iter().all(|bound| *bound <= epsilon * largest);
        FromStates { values, bounds, status: status(met) }
    };
    let mut all = found.into_iter().zip(sizes).zip(all).map(derivative);
    Ok(values.iter().map(|_| all.by_ref().take(parameters.len()).collect()).collect())
}

/// Computes (db + dQ v)_i for a state i, and bounds its error.
fn change(of: &FromStates, rates: &CsrMatrix, reward: Option<&[f64]>, i: usize) -> (f64, f64) {
    let FromStates { values: v, bounds, .. } = of;
    let moves = || others(rates, i).filter(|(_, d)| *d != 0.0).map(|(j, d)| (j as usize, d));
    let earned = reward.map_or(0.0, |reward| reward[i]);
    let terms = moves().map(|(j, d)| d * (v[j] - v[i])).chain([earned]);
    let size: f64 = terms.clone().map(f64::abs).sum();
    let given: f64 = moves().map(|(j, d)| d.abs() * (bounds[j] + bounds[i])).sum();
    (signed_sum(terms), 1.001 * (given + 6.0 * UNIT * size) + f64::MIN_POSITIVE)
}
