//! Predicted time and memory of measurements.

use std::fmt::Display;

use crate::cli::arguments::Common;
use crate::cli::terminal::say;
use crate::report::seconds;
use kolmo::transient::{Chain, Options, Problem, estimate};
use kolmo::{Machine, Result};

/// Prints the predicted time and memory of a measurement.
pub(crate) fn forecast(common: &Common, what: impl Display, time: f64, bytes: u64) {
    if !common.quiet {
        say(format_args!("{what}: about {} and {}", seconds(time), crate::report::bytes(bytes)));
    }
}

/// Predicts a solution of a chain: seconds per step, seconds in total, and bytes on the lanes.
///
/// Returns `None` if the lanes lack memory; the measurement then reports the error.
pub(crate) fn of_chain(
    machine: &Machine,
    chain: &Chain,
    times: &[f64],
    epsilon: f64,
) -> Result<Option<(f64, f64, u64)>> {
    let problem = Problem::new(&*chain.transitions, &chain.initial, times).vectors(false);
    let plan = estimate::estimate(machine, &problem, &Options::default().epsilon(epsilon))?;
    let bytes: u64 = plan.lanes.iter().map(estimate::MemoryRequirement::total).sum();
    let terms = plan.terms.unwrap_or(0) as f64;
    Ok(plan.fits().then_some((plan.step, terms * plan.step, bytes)))
}
