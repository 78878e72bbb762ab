//! Report and summary that end a command.

use crate::cli::arguments::Solving;
use crate::cli::prelude::*;
use crate::report::RunReport;

/// Writes the report of a run and prints its summary (with `--quiet` only a bound that is not met).
pub(crate) fn conclude(
    run: &dyn RunReport,
    report: Option<OutputFile>,
    solving: &Solving,
    ranks: Ranks,
) -> Result<Status> {
    write_object(report, &run.json())?;
    match run.status() {
        _ if !ranks.is_root() => {}
        _ if !solving.common.quiet => say(run.text(solving.verbose).trim_end()),
        Status::NotMet => say(run.bound()),
        Status::Met => {}
    }
    Ok(run.status())
}
