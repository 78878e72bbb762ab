//! `kolmo transient --dry-run --ranks N` of a built-in chain too large to be looked at.

use std::io::Write;

use super::transient::{Outputs, Transient, outputs};
use super::{Outcome, say};
use crate::ranks::Ranks;
use crate::report::plan::{scale_json, scale_text};
use crate::transient::scale::predict;
use crate::{Result, models};

/// Most rows of a rank that are looked at; each takes some tens of bytes meanwhile.
const MOST_ROWS: u128 = 1 << 26;

/// The family of the chain asked for, if no process numbers so many states or looks at so many rows of a rank.
pub(super) fn family(args: &Transient) -> Option<(models::Family, usize)> {
    let count = args.ranks.filter(|_| args.dry_run)?;
    let family = models::family(&args.model)?.ok()?;
    let states = family.states(family.size);
    (states >= u128::from(u32::MAX) || states / count.max(1) as u128 > MOST_ROWS).then_some((family, count))
}

/// Says what the ranks would take.
pub(super) fn run(args: &Transient, family: &models::Family, count: usize, ranks: Ranks) -> Result<Outcome> {
    let (times, options, Outputs { report_file, .. }) = ranks.agree(outputs(args, ranks))?;
    let (lanes, precision) = args.common.open_on(ranks)?;
    super::tuned::recall(&lanes, precision, args.common.quiet || !ranks.first());
    let scale = ranks.agree(predict(&lanes, precision, family, &times, &options, count))?;
    if let Some(mut file) = report_file {
        writeln!(file, "{:#}", scale_json(&scale, precision)).map_err(|e| file.error(e))?;
        file.commit()?;
    }
    if ranks.first() {
        say(scale_text(&scale, precision).trim_end());
    }
    // What is missing here need not be missing where the ranks will be; the report says what is free.
    Ok(Outcome::Met)
}
