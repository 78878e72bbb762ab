//! Values of `--const` that may change with time.

use crate::cli::input::explore::{self, Constants};
use crate::cli::prelude::*;

/// Values of `--const`, some of which change with time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timed {
    /// Constants that do not change with time.
    pub(crate) fixed: Constants,
    pub(crate) changing: Vec<Changing>,
}

/// Constant with its values, each with the time from which it holds.
#[derive(Debug, Clone)]
pub(crate) struct Changing {
    pub(crate) name: String,
    values: Vec<(f64, Constants)>,
    /// Time after which the values repeat.
    period: Option<f64>,
}

/// Maximum number of phases.
const PHASES: usize = 100_000;

/// Parses `--const`: NAME=V, or NAME=V@TIME,V@TIME…, with %PERIOD after the last time.
pub(crate) fn constants(text: &str) -> Result<Timed> {
    let (mut fixed, mut all) = (Vec::new(), Timed::default());
    for part in text.split(',').map(str::trim) {
        let Some((value, at)) = part.split_once('@') else {
            fixed.push(part);
            continue;
        };
        let refused = |why: &str| Error::invalid(format!("'{part}': {why}"));
        let (at, period) = at.split_once('%').map_or((at, None), |(at, period)| (at, Some(period)));
        let time =
            |text: &str| text.trim().parse::<f64>().ok().filter(|time| *time >= 0.0 && time.is_finite());
        let from = time(at).ok_or_else(|| refused("expected VALUE@TIME, with a time of at least 0"))?;
        let value = match value.split_once('=') {
            Some((new, value)) => {
                all.changing.push(Changing { name: new.trim().to_owned(), values: Vec::new(), period: None });
                value
            }
            None => value,
        };
        let changing = all.changing.last_mut().ok_or_else(|| refused("expected NAME=VALUE@TIME"))?;
        let after = changing.values.last().map_or(from == 0.0, |(before, _)| from > *before);
        if !after || changing.period.is_some() {
            return Err(refused("times begin at 0 and increase, and a period follows the last one"));
        }
        changing.values.push((from, explore::constants(&format!("{}={value}", changing.name))?));
        if let Some(period) = period {
            let period = time(period).filter(|period| *period > from);
            changing.period = Some(period.ok_or_else(|| refused("the period is after the last time"))?);
        }
    }
    all.fixed = explore::constants(&fixed.join(","))?;
    let mut names: Vec<&str> = all.changing.iter().map(|changing| &*changing.name).collect();
    names.extend(all.fixed.iter().map(|given| &*given.name));
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::invalid(format!("'{}' is given twice", pair[0]))),
        None => Ok(all),
    }
}

impl Changing {
    /// Returns the values with their times up to `horizon`.
    fn until(&self, horizon: f64) -> Result<Vec<(f64, &Constants)>> {
        let own = self.values.iter().map(|(from, value)| (*from, value));
        let Some(period) = self.period else { return Ok(own.collect()) };
        if horizon / period * self.values.len() as f64 > PHASES as f64 {
            return Err(Error::invalid(format!(
                "a period of {period} up to time {horizon} makes more than {PHASES} phases; give shorter times"
            )));
        }
        let starts = (0..).map(|k| f64::from(k) * period).take_while(|start| *start <= horizon);
        Ok(starts.flat_map(|start| own.clone().map(move |(from, value)| (start + from, value))).collect())
    }
}

impl Timed {
    /// Returns the phases up to `horizon`: the end of each, and values of the changing constants.
    pub(crate) fn phases(&self, horizon: f64) -> Result<Vec<(f64, Constants)>> {
        let all: Vec<Vec<(f64, &Constants)>> =
            self.changing.iter().map(|one| one.until(horizon)).collect::<Result<_>>()?;
        let mut starts: Vec<f64> = all.iter().flatten().map(|(from, _)| *from).collect();
        starts.sort_by(f64::total_cmp);
        starts.dedup();
        let phase = |(k, &start): (usize, &f64)| {
            let current = |values: &Vec<(f64, &Constants)>| {
                values[values.partition_point(|(from, _)| *from <= start) - 1].1.clone()
            };
            let end = starts.get(k + 1).copied().unwrap_or(f64::INFINITY);
            (end, all.iter().flat_map(current).collect())
        };
        Ok(starts.iter().enumerate().map(phase).collect())
    }
}
