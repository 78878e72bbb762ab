//! The time and the memory that measurements are to take.

use std::fmt::Display;

use super::Common;
use crate::report::seconds;
use kolmo::transient::{Chain, Options, Problem, estimate};
use kolmo::{Machine, Result};

/// Says how long a measurement is to take, and how much memory.
pub(super) fn forecast(common: &Common, what: impl Display, time: f64, bytes: u64) {
    if !common.quiet {
        super::say(format_args!("{what}: about {} and {}", seconds(time), crate::report::bytes(bytes)));
    }
}

/// Seconds of one step and of all of a chain's at some times, and bytes on the lanes; none where they lack memory, which
/// the measurement itself says.
pub(super) fn of_chain(
    machine: &Machine,
    chain: &Chain,
    times: &[f64],
    epsilon: f64,
) -> Result<Option<(f64, f64, u64)>> {
    let problem = Problem {
        transitions: &*chain.transitions,
        initial: &chain.initial,
        times,
        rewards: &[],
        vectors: false,
    };
    let plan = estimate::estimate(machine, &problem, &Options { epsilon, ..Options::default() })?;
    let bytes: u64 = plan.lanes.iter().map(estimate::MemoryRequirement::total).sum();
    let terms = plan.terms.unwrap_or(0) as f64;
    Ok(plan.fits().then_some((plan.step, terms * plan.step, bytes)))
}
