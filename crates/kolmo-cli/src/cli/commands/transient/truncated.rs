//! `kolmo transient --truncate`: explores a model until the truncation error is small enough.

use super::{Posed, Transient, pose, rewards};
use crate::cli::input::explore;
use crate::cli::output::values::Selection;
use crate::cli::planning::tuning_store;
use crate::cli::prelude::*;
use kolmo::transient::{Chain, Options, Reward, Solution, solve};
use kolmo_check::truncation::{Edge, exceeding, expect_truncatable, looks};
use kolmo_check::until::Until;
use kolmo_check::{Truncation, language, state_sets};
use kolmo_model::Instance;

/// Returns a truncation with nothing explored yet; an error for options that it does not support.
pub(super) fn truncated(args: &Transient, allowed: f64, times: &[f64], ranks: Ranks) -> Result<Truncation> {
    let refused = |why: &str| format!("--truncate {allowed:e}: {why}");
    expect(!ranks.is_distributed(), refused("ranks are not supported; use one process"))?;
    let conditions = args.states.as_ref().is_none_or(|list| state_sets::is_comparison(list));
    let why = "states have no numbers before they are explored; name them by their variables";
    expect(conditions, refused(why))?;
    let sets = args.label.iter().chain(&args.absorbing).chain(args.until.iter().flatten());
    expect_truncatable(times, sets.map(String::as_str))?;
    let constants = args.constants.as_ref().map(|constants| &constants.fixed);
    explore::truncation(&args.model, constants, allowed, args.epsilon)
}

/// Explores the model in growing parts until at most the allowed probability is lost.
pub(super) fn enlarge(
    args: &Transient,
    mut truncation: Truncation,
    common: &Common,
    open: &dyn Fn() -> Result<Machine>,
    times: &[f64],
    options: &mut Options,
) -> Result<(Machine, bool, Posed, Option<Probe>)> {
    let mut small = common.leaves_device_open();
    let mut machine = if small { common.open(&[DeviceSpec::Cpu])? } else { open()? };
    let asked = *options;
    loop {
        *options = asked;
        let chain = part(args, &mut truncation)?;
        let mut posed = pose(args, chain, Some(&truncation))?;
        if small && !posed.is_for_cores(&machine, tuning_store::gpu_start(), times, options)? {
            (small, machine) = (false, open()?);
        }
        posed.begin(args, &machine, options)?;
        let (probe, left) = probe(&posed, &machine, times, options, truncation.allowed, common.quiet)?;
        if !truncation.is_enough(&left) {
            continue;
        }
        if let (Selection::States(states), Some(list)) = (&posed.selection, &args.states)
            && states.is_empty()
        {
            return fail(format!(
                "--states: no state that is explored has {list}; the others have at most {:.1e} together",
                truncation.lost
            ));
        }
        if !common.quiet {
            explore::say_enough(&truncation, posed.chain.transitions.states());
        }
        return Ok((machine, small, posed, probe));
    }
}

/// Explores the next part of a truncated model and returns its chain.
fn part(args: &Transient, truncation: &mut Truncation) -> Result<Chain> {
    let Common { memory_limit, quiet, .. } = args.solving.common;
    language::chain(&args.model, explore::part(truncation, memory_limit, quiet)?)
}

/// Solution and probabilities at the last time.
pub(super) struct Probe {
    pub(super) solution: Solution,
    pub(super) probabilities: Vec<f64>,
}

/// Solves up to the last time, unless the loss is too large at an earlier one.
///
/// Returns the solution, if it was completed, and the probability of each boundary state.
fn probe(
    posed: &Posed,
    machine: &Machine,
    times: &[f64],
    options: &Options,
    allowed: f64,
    quiet: bool,
) -> Result<(Option<Probe>, Vec<f64>)> {
    let last = times.iter().copied().fold(0.0, f64::max);
    let mut times = vec![last];
    times.extend(looks(&*posed.chain.transitions, last));
    let progress = ProgressDisplay::new(quiet, "building the matrix");
    let before = posed.until.as_ref().map_or(&[][..], Until::left);
    // Of the last time, or of the one at which the loss became too large.
    let (mut left, mut probabilities) = (Vec::new(), Vec::new());
    let keep = |index: usize, found: &[f64]| {
        let mut here = Vec::new();
        posed.edge.taken(found, &mut here);
        if let (Some(exceeding), true) = (exceeding(&here, before, allowed), index > 0) {
            left = exceeding;
            return Err(Error::Interrupted);
        }
        if index == 0 {
            here.iter_mut().zip(before).for_each(|(here, before)| *here += before);
            (left, probabilities) = (here, found.to_vec());
        }
        Ok(())
    };
    let watch = &mut (&mut progress.of("multiplications"), keep);
    let solution = solve(machine, &posed.problem(&times, true), options, watch);
    if probabilities.is_empty() && !left.is_empty() {
        return Ok((None, left));
    }
    let mut solution = solution?;
    solution.times.truncate(1);
    solution.bound = solution.times[0].bound;
    Ok((Some(Probe { solution, probabilities }), left))
}

/// Returns the rewards of a truncated model, which must be bounded; boundary states earn none.
pub(super) fn rewards_within(
    args: &Transient,
    chain: &mut Chain,
    instance: &Instance,
    edge: &Edge,
) -> Result<Vec<Reward>> {
    let unknown = |name: &&String| {
        chain.rewards.iter().all(|r| r.name != **name) && language::missing(chain, name).is_none()
    };
    if let Some(file) = args.rewards.iter().find(unknown) {
        return fail(format!(
            "--rewards {file}: a model that is truncated has its own rewards, by their names; it has no such"
        ));
    }
    let mut all = rewards(args, chain)?;
    for reward in &mut all {
        language::expect_limit(instance, &reward.name)?;
        edge.open().for_each(|state| reward.values[state as usize] = 0.0);
    }
    Ok(all)
}
