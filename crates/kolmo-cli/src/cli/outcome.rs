//! Outcome of a command, and the report and summary that end it.

use crate::cli::arguments::Solving;
use crate::cli::prelude::*;
use crate::report::Summary;
use kolmo::Status;

/// Outcome of a command that completed without an error.
#[derive(PartialEq)]
pub(crate) enum Outcome {
    /// The requested bound is met.
    Met,
    /// Done, but the requested bound is not met.
    NotMet,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        if status == Status::Met { Self::Met } else { Self::NotMet }
    }
}

/// Writes the report of a run and prints its summary (with `--quiet` only a bound that is not met).
pub(crate) fn conclude(
    run: &dyn Summary,
    report: Option<OutputFile>,
    solving: &Solving,
    ranks: Ranks,
) -> Result<Outcome> {
    write_object(report, &run.json())?;
    match run.status() {
        _ if !ranks.is_root() => {}
        _ if !solving.common.quiet => say(run.text(solving.verbose).trim_end()),
        Status::NotMet => say(run.bound()),
        Status::Met => {}
    }
    Ok(run.status().into())
}
