//! Derivatives of values from every state in the long run.
//!
//! Values v with −Qv = b on transient states have derivatives v' with −Qv' = db + dQ v, which the
//! levels of v solve for. `docs/certificate.md` has the proofs of the bounds.

use super::{Parameter, check_parameter};
use crate::numerics::double_double::UNIT;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::transient::backward::values::TransientSystem;
use crate::transient::chain::transitions::Transitions;
use crate::transient::multilevel::Values;
use crate::transient::rate_derivative::{others, signed_sum};
use crate::transient::solution::{FromStates, status};
use crate::{Invalid, Progress, Result};

/// Fails for derivatives of another shape, and for those of rates that are 0.
pub(in crate::transient) fn check_rates(
    transitions: &dyn Transitions,
    parameters: &[Parameter],
) -> Result<()> {
    let mut row = Vec::new();
    for parameter @ Parameter { name, rates, .. } in parameters {
        check_parameter(parameter, transitions.states())?;
        for state in 0..transitions.states() {
            row.clear();
            transitions.outgoing(state, &mut row);
            row.retain(|(_, rate)| *rate > 0.0);
            row.sort_unstable_by_key(|(to, _)| *to);
            let is_allowed = |(to, change): &(u32, f64)| {
                *change == 0.0 || row.binary_search_by_key(to, |(other, _)| *other).is_ok()
            };
            if let Some((to, change)) = others(rates, state).find(|change| !is_allowed(change)) {
                return Invalid::Number("gradient").fail(format!(
                    "the derivative of the rate {state} -> {to} by '{name}' is {change}, but the rate is 0: \
                     expected a positive rate; a new transition may change the long run abruptly"
                ));
            }
        }
    }
    Ok(())
}

/// Computes the derivatives of values from each state by each parameter.
///
/// Each of `values` solves −Qv = b on the states of `system`; all other values are constants.
/// `rewards` has db for each of the first parameters, if b depends on it. The requested error is at
/// most ε times the largest derivative, or ε times `scale` if that is larger.
pub(in crate::transient) fn of_values(
    system: &mut TransientSystem<'_>,
    values: &[FromStates],
    (parameters, rewards): (&[Parameter], &[Option<&[f64]>]),
    (epsilon, scale): (f64, f64),
    observer: &mut dyn Progress,
) -> Result<Vec<Vec<FromStates>>> {
    if parameters.is_empty() {
        return Ok(vec![Vec::new(); values.len()]);
    }
    let by = || parameters.iter().zip(rewards.iter().chain(std::iter::repeat(&None)));
    let all = || values.iter().flat_map(|of| by().map(move |by| (of, by)));
    let (mut columns, mut sizes) = (Vec::new(), Vec::new());
    // Errors of all columns, each divided by its largest one: one column bounds their effects.
    // Subnormal quotients and products have no relative error, and are raised to normal numbers.
    let mut lacks = vec![f64::MIN_POSITIVE; system.passing.len()];
    for (of, (parameter, reward)) in all() {
        let change = |&state: &u32| change(of, &parameter.rates, *reward, state as usize);
        let found: Vec<(f64, f64)> = system.passing.par_iter().map(change).collect();
        let (mut column, errors): (Vec<f64>, Vec<f64>) = found.into_iter().unzip();
        let mut size = errors.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        if column.iter().zip(&errors).all(|(f, error)| (f.abs() + error).is_finite()) {
            lacks.iter_mut().zip(errors).for_each(|(lack, error)| *lack = lack.max(error / size));
        } else {
            // The equations of all others keep their bounds.
            (column, size) = (vec![0.0; column.len()], f64::INFINITY);
        }
        columns.push(column);
        sizes.push(size);
    }
    // The errors of the column with the largest one: a small column needs few cycles.
    let most = sizes.iter().copied().fold(f64::MIN_POSITIVE, f64::max).min(1.0);
    columns.push(lacks.into_iter().map(|lack| (lack * most).max(f64::MIN_POSITIVE)).collect());
    let mut found = system.solve(columns, (epsilon, scale), observer)?;
    let (lost, more) = found.pop().unwrap_or_default();
    let derivative = |((own, size), (of, (_, reward))): ((Values, f64), (&FromStates, (_, &Option<_>)))| {
        // Values that are infinite have no derivative.
        let exact = |value: &f64| if value.is_finite() { 0.0 } else { f64::NAN };
        let (mut values, mut bounds) = (of.values.iter().map(exact).collect::<Vec<f64>>(), of.bounds.clone());
        let (mut largest, ratio) = (scale, (size / most).max(f64::MIN_POSITIVE));
        // The graph alone determines exact values.
        let depends = |&(_, state): &(usize, &u32)| reward.is_some() || of.bounds[*state as usize] > 0.0;
        for (k, &state) in system.passing.iter().enumerate().filter(depends) {
            let bound = own.1[k] + 1.001 * ratio * (lost[k].abs() + more[k]) + f64::MIN_POSITIVE;
            (values[state as usize], largest) = (own.0[k], largest.max(own.0[k].abs()));
            // An unknown error of the value has an infinite size.
            bounds[state as usize] = if bound.is_nan() { f64::INFINITY } else { bound };
        }
        let met = bounds.iter().all(|bound| *bound <= epsilon * largest);
        FromStates { values, bounds, status: status(met) }
    };
    let mut all = found.into_iter().zip(sizes).zip(all()).map(derivative);
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
