//! Outcome of a command, and the summary that ends it.

use crate::cli::arguments::Common;
use crate::cli::terminal::say;
use crate::report::Summary;
use kolmo::Status;
use kolmo::ranks::Ranks;

/// Outcome of a command that completed without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The requested bound is met.
    Met,
    /// Done, but the requested bound is not met.
    NotMet,
}

/// Prints the summary of a run; with `--quiet` only the line of a bound that is not met.
pub(crate) fn conclude(
    run: &dyn Summary,
    status: Status,
    common: &Common,
    verbose: bool,
    ranks: Ranks,
) -> Outcome {
    match (status, common.quiet) {
        _ if !ranks.is_root() => {}
        (_, false) => say(run.text(verbose).trim_end()),
        (Status::NotMet, true) => say(run.bound()),
        (Status::Met, true) => {}
    }
    match status {
        Status::Met => Outcome::Met,
        Status::NotMet => Outcome::NotMet,
    }
}
