//! Schedules: rates that change at given times, by a file or by the constants of a model.

use std::rc::Rc;

use super::{Posed, Transient, absorbing, model_on, rewards};
use crate::cli::input::changing_constants::TimedConstants;
use crate::cli::input::explore::{self, Constants};
use crate::cli::prelude::*;
use kolmo::transient::{Chain, Phase, Problem, Reward};
use kolmo_check::{PhaseEnd, joint, language, phases};
use kolmo_model::Instance;
use kolmo_model::constants::ConstValues;

/// Phase of a schedule: a model up to a time.
#[derive(Debug, Clone)]
pub(super) struct PhaseSpec {
    end: PhaseEnd,
    model: String,
    /// True for one step of a chain in discrete time, at the time `end`.
    jump: bool,
    constants: Option<Constants>,
    /// Instances of all phases, if the states are explored together.
    joint: Rc<Vec<Instance>>,
}

/// Returns the phases of the command's schedule, if it has one.
pub(super) fn entries(args: &Transient, times: &[f64]) -> Result<Option<Vec<PhaseSpec>>> {
    let timed = args.constants.as_ref().filter(|constants| !constants.changing.is_empty());
    let entries = match (&args.schedule, timed) {
        (Some(file), _) => read(file, args)?,
        (None, None) => return Ok(None),
        (None, Some(timed)) => {
            let given = |(name, value)| ConstValues { name, values: vec![value], ..ConstValues::default() };
            let horizon = times.iter().copied().fold(0.0, f64::max);
            let changes = phases(&timed.changing, horizon)?;
            let fixed = explore::single(Some(&timed.fixed))?;
            let joint = Rc::new(joint(&language::read(&args.model)?, &fixed, &changes)?);
            let phase = |(end, own): (PhaseEnd, Vec<_>)| {
                let all = timed.fixed.iter().cloned().chain(own.into_iter().map(given));
                let constants = Some(all.collect());
                PhaseSpec { end, model: args.model.clone(), jump: false, constants, joint: joint.clone() }
            };
            changes.into_iter().map(phase).collect()
        }
    };
    if let (Some(_), Some(model)) = (&args.schedule, &args.given) {
        return fail(format!("--schedule names the chains, and so does {model}; leave one out"));
    }
    for (given, option) in [
        (args.within.is_some(), "--within"),
        (args.truncate.is_some(), "--truncate"),
        (args.checkpoint.is_some(), "--checkpoint"),
        (args.steps.is_some() || args.discrete, "discrete time"),
    ] {
        expect(!given, format_args!("{option} is not supported with a schedule; leave it out"))?;
    }
    Ok(Some(entries))
}

/// Reads a file of phases: the header `until,model`, then one phase per line; `jump:` before the
/// model marks a jump.
///
/// Names of files are relative to the folder of the file.
fn read(file: &Path, args: &Transient) -> Result<Vec<PhaseSpec>> {
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
        let (end, jump) = ((end, 0.0), jump.is_some());
        let constants = constants.map(|constants| constants.fixed.clone());
        Ok(PhaseSpec { end, model, jump, constants, joint: Rc::default() })
    };
    records.map(entry).collect()
}

/// Returns the command's arguments for the first phase that is not a jump.
pub(super) fn first(args: &Transient, entries: &[PhaseSpec]) -> Result<Transient> {
    match entries.iter().find(|entry| !entry.jump) {
        Some(first) => Ok(first.arguments(args)),
        None => fail("invalid schedule: all phases are jumps, expected at least one in continuous time"),
    }
}

impl PhaseSpec {
    fn arguments(&self, args: &Transient) -> Transient {
        let joint = self.joint.to_vec();
        let fixed = |fixed: &Constants| TimedConstants { fixed: fixed.clone(), changing: Vec::new(), joint };
        Transient {
            model: self.model.clone(),
            constants: self.constants.as_ref().map(fixed),
            discrete: self.jump,
            ..args.clone()
        }
    }
}

/// Chain of a phase and its rewards; `None` for those of the first phase.
type PhaseChain = Option<Rc<(Chain, Vec<Reward>)>>;

/// Chains of the phases, each with its end; equal phases share theirs.
pub(super) struct Phases(Vec<(PhaseEnd, PhaseChain)>);

impl Phases {
    /// Reads the chains of a schedule, whose states must be those of the first phase's chain.
    ///
    /// `args` are the arguments for the first phase, whose chain is in `posed`.
    pub(super) fn read(args: &Transient, entries: &[PhaseSpec], posed: &Posed, ranks: Ranks) -> Result<Self> {
        let mut all: Vec<(PhaseEnd, PhaseChain)> = Vec::new();
        let begin = entries.iter().position(|entry| !entry.jump);
        for (k, entry) in entries.iter().enumerate() {
            let (jump, model, constants) = (entry.jump, &entry.model, &entry.constants);
            let same =
                |other: &PhaseSpec| (other.jump, &other.model, &other.constants) == (jump, model, constants);
            let known = entries[..k].iter().position(same);
            let held = match known {
                Some(known) => all[known].1.clone(),
                None if begin == Some(k) => None,
                None => {
                    let args = &entry.arguments(args);
                    let chain = model_on(args, ranks)?;
                    Some(Rc::new(ranks.all_ok(pose_like(args, chain, posed))?))
                }
            };
            all.push((entry.end, held));
        }
        Ok(Self(all))
    }

    /// Returns the phases, given the problem of the first one.
    pub(super) fn all<'a>(&'a self, first: &Problem<'a>) -> Vec<Phase<'a>> {
        let phase = |&((end, late), ref held): &'a (PhaseEnd, PhaseChain)| match held {
            Some(held) => Phase { end, late, transitions: &*held.0.transitions, rewards: &held.1 },
            None => Phase { end, late, transitions: first.transitions, rewards: first.rewards },
        };
        self.0.iter().map(phase).collect()
    }
}

/// Makes states of a phase's chain absorbing as in the first phase, and reads its rewards.
fn pose_like(args: &Transient, mut chain: Chain, first: &Posed) -> Result<(Chain, Vec<Reward>)> {
    let (names, first_names) = (&chain.names, &first.chain.names);
    if names.is_some() && first_names.is_some() && names != first_names {
        return fail(format!(
            "{}: the states differ from those of the first phase; keep initial values and ranges of variables",
            args.model
        ));
    }
    let absorbing = absorbing(args, &chain)?;
    let rewards = rewards(args, &mut chain)?;
    chain = match &first.until {
        Some(until) if chain.transitions.states() == first.chain.transitions.states() => until.bounded(chain),
        _ if absorbing.is_empty() => chain,
        _ => chain.absorbing(&absorbing),
    };
    Ok((chain, rewards))
}
