//! Values of `--const` that may change with time.

use crate::cli::input::explore::{self, Constants};
use crate::cli::prelude::*;
use kolmo_check::Changing;
use kolmo_model::{Instance, Value};

/// Values of `--const`, some of which change with time.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimedConstants {
    /// Constants that do not change with time.
    pub(crate) fixed: Constants,
    pub(crate) changing: Vec<Changing>,
    /// Instances of all phases, if the states are explored together.
    pub(crate) joint: Vec<Instance>,
}

/// Parses `--const`: NAME=V, or NAME=V@TIME,V@TIME…, with %PERIOD after the last time.
pub(crate) fn constants(text: &str) -> Result<TimedConstants> {
    type ConstantSchedule = (String, Vec<(f64, Value)>, Option<f64>);
    let (mut fixed, mut all) = (Vec::new(), Vec::<ConstantSchedule>::new());
    for part in text.split(',').map(str::trim) {
        let Some((value, at)) = part.split_once('@') else {
            fixed.push(part);
            continue;
        };
        let refused = |why: &str| Error::invalid(format!("'{part}': {why}"));
        let (at, period) = at.split_once('%').map_or((at, None), |(at, period)| (at, Some(period)));
        let time = |text: &str| {
            text.trim().parse::<f64>().map_err(|_| refused("expected VALUE@TIME or VALUE@TIME%PERIOD"))
        };
        let value = match value.split_once('=') {
            Some((new, value)) => {
                all.push((new.trim().to_owned(), Vec::new(), None));
                value
            }
            None => value,
        };
        let (name, values, repeats) = all.last_mut().ok_or_else(|| refused("expected NAME=VALUE@TIME"))?;
        if repeats.is_some() {
            return Err(refused("a period follows the last time"));
        }
        let own = explore::single(Some(&explore::constants(&format!("{name}={value}"))?))?;
        values.push((time(at)?, own[0].1));
        *repeats = period.map(time).transpose()?;
    }
    let fixed = explore::constants(&fixed.join(","))?;
    let mut names: Vec<&str> = all.iter().map(|(name, ..)| &**name).collect();
    names.extend(fixed.iter().map(|given| &*given.name));
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return fail(format!("'{}' is given twice", pair[0]));
    }
    let changing = |(name, values, period): ConstantSchedule| Changing::new(&name, values, period);
    let changing = all.into_iter().map(changing).collect::<Result<_>>()?;
    Ok(TimedConstants { changing, fixed, joint: Vec::new() })
}
