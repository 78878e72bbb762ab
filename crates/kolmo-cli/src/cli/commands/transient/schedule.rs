//! Schedules: rates that change at given times, by a file or by the constants of a model.

use std::rc::Rc;

use super::{Transient, explored, model, rewards};
use crate::cli::input::explore::{self, Constants};
use crate::cli::prelude::*;
use kolmo::transient::{Chain, Phase, Problem, Reward};
use kolmo_check::{language, state_sets};

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

/// Phase of a schedule: a model up to a time.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    end: f64,
    model: String,
    /// True for one step of a chain in discrete time, at the time `end`.
    jump: bool,
    constants: Option<Constants>,
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

/// Returns the phases of the command's schedule, if it has one.
pub(super) fn entries(args: &Transient, times: &[f64]) -> Result<Option<Vec<Entry>>> {
    let timed = args.constants.as_ref().filter(|constants| !constants.changing.is_empty());
    let entries = match (&args.schedule, timed) {
        (Some(file), _) => read(file, args)?,
        (None, None) => return Ok(None),
        (None, Some(timed)) => {
            let phase = |(end, own): (f64, Constants)| {
                let constants = Some([&timed.fixed[..], &own].concat());
                Entry { end, model: args.model.clone(), jump: false, constants }
            };
            let horizon = times.iter().copied().fold(0.0, f64::max);
            timed.phases(horizon)?.into_iter().map(phase).collect()
        }
    };
    if let (Some(_), Some(model)) = (&args.schedule, &args.given) {
        return Err(Error::invalid(format!(
            "--schedule names the chains, and so does {model}; leave one out"
        )));
    }
    for (given, option) in [
        (args.until.is_some(), "--until"),
        (args.truncate.is_some(), "--truncate"),
        (args.checkpoint.is_some(), "--checkpoint"),
        (args.solving.dry_run, "--dry-run"),
        (args.steps.is_some() || args.discrete, "discrete time"),
    ] {
        if given {
            return Err(Error::invalid(format!("{option} is not supported with a schedule; leave it out")));
        }
    }
    Ok(Some(entries))
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

/// Reads a file of phases: lines `until,model` after that header; `jump:` precedes a jump's model.
///
/// Names of files are relative to the folder of the file.
fn read(file: &Path, args: &Transient) -> Result<Vec<Entry>> {
    let wrong = |line, reason: String| Error::Parse { path: file.into(), line, reason };
    let mut records = explore::records(file)?.into_iter();
    if records.next().is_none_or(|(_, head)| head != ["until", "model"]) {
        return Err(wrong(1, "expected the first line until,model".to_owned()));
    }
    let entry = |(line, fields): (u64, Vec<String>)| {
        let end = |text: &str| text.parse::<f64>().ok().filter(|end| *end >= 0.0);
        let (Some(end), [_, model]) = (end(&fields[0]), &fields[..]) else {
            let reason =
                format!("invalid phase '{}': expected a time or inf, a comma and a model", fields.join(","));
            return Err(wrong(line, reason));
        };
        let jump = model.strip_prefix("jump:");
        let model = jump.unwrap_or(model).trim();
        let near = file.parent().unwrap_or(Path::new("")).join(model);
        let model = if near.exists() { near.to_string_lossy().into_owned() } else { model.to_owned() };
        let constants = args.constants.as_ref().filter(|_| language::is_model(&model));
        Ok(Entry { end, model, jump: jump.is_some(), constants: constants.map(|c| c.fixed.clone()) })
    };
    records.map(entry).collect()
}

/// Returns the command's arguments for the first phase that is not a jump.
pub(super) fn first(args: &Transient, entries: &[Entry]) -> Result<Transient> {
    let Some(first) = entries.iter().find(|entry| !entry.jump) else {
        return Err(Error::invalid("the schedule has no phase but jumps; give at least one"));
    };
    Ok(first.arguments(args))
}

impl Entry {
    fn arguments(&self, args: &Transient) -> Transient {
        let fixed = |fixed: &Constants| Timed { fixed: fixed.clone(), changing: Vec::new() };
        Transient {
            model: self.model.clone(),
            constants: self.constants.as_ref().map(fixed),
            discrete: self.jump,
            ..args.clone()
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.jump == other.jump && self.model == other.model && self.constants == other.constants
    }
}

/// Chain of a phase and its rewards; `None` for those of the first phase.
type Held = Option<Rc<(Chain, Vec<Reward>)>>;

/// Chains of the phases, each with its end; equal phases share theirs.
pub(super) struct Phases(Vec<(f64, Held)>);

impl Phases {
    /// Reads the chains of a schedule, whose states must be those of the `first` phase's chain.
    ///
    /// `args` are the arguments for the first phase.
    pub(super) fn read(args: &Transient, entries: &[Entry], first: &Chain) -> Result<Self> {
        let mut all: Vec<(f64, Held)> = Vec::new();
        let begin = entries.iter().position(|entry| !entry.jump);
        for (k, entry) in entries.iter().enumerate() {
            let known = entries[..k].iter().position(|other| other.is_like(entry));
            let held = match known {
                Some(known) => all[known].1.clone(),
                None if begin == Some(k) => None,
                None => Some(Rc::new(entry.chain(args, first)?)),
            };
            all.push((entry.end, held));
        }
        Ok(Self(all))
    }

    /// Returns the phases, given the problem of the first one.
    pub(super) fn all<'a>(&'a self, first: &Problem<'a>) -> Vec<Phase<'a>> {
        let phase = |&(end, ref held): &'a (f64, Held)| match held {
            Some(held) => Phase { end, transitions: &*held.0.transitions, rewards: &held.1 },
            None => Phase { end, transitions: first.transitions, rewards: first.rewards },
        };
        self.0.iter().map(phase).collect()
    }
}

impl Entry {
    /// Reads the phase's chain, with absorbing states, and its rewards.
    fn chain(&self, args: &Transient, first: &Chain) -> Result<(Chain, Vec<Reward>)> {
        let args = &self.arguments(args);
        let mut chain = match language::is_model(&self.model) {
            true => explored(args)?,
            false => model(&self.model, args.labels.as_deref(), self.jump)?,
        };
        if chain.names.is_some() && first.names.is_some() && chain.names != first.names {
            return Err(Error::invalid(format!(
                "{}: the states differ from those of the first phase; change constants in rates and rewards alone",
                self.model
            )));
        }
        let mut absorbing = Vec::new();
        for set in &args.absorbing {
            absorbing.extend(state_sets::states(set, &chain)?);
        }
        absorbing.sort_unstable();
        let rewards = rewards(args, &mut chain)?;
        Ok((if absorbing.is_empty() { chain } else { chain.absorbing(&absorbing) }, rewards))
    }
}
