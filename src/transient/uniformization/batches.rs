//! The sweep for all finite times, or as many as memory for the accumulators asks for.

use super::run::{Sweep, Swept};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::transient::checkpoint::Checkpointer;
use crate::transient::context::{Built, UNKNOWN, room, scaled, unscaled, windows};
use crate::transient::iteration::Iteration;
use crate::transient::iteration::schedule::{LastIterate, Planned, Room};
use crate::transient::problem::Observer;
use crate::transient::profile::Activity;
use crate::transient::solution::{Bound, Expansion, TimeResult};

/// What the sweeps of all finite times came to.
pub struct AllSwept {
    /// Their multiplications.
    pub terms: u64,
    /// What Chebyshev's expansion did, if it took over.
    pub(crate) expansion: Option<Expansion>,
    /// Where the last has ended, if the steady state goes on from there.
    pub(crate) last: Option<LastIterate>,
}

/// The one sweep, or as many as memory for the accumulators asks for.
pub fn sweep<T: Number>(
    built: &Built<'_, T>,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<AllSwept> {
    let (problem, epsilon) = (built.problem, built.options.epsilon);
    let mut planned = Vec::with_capacity(which.len());
    for &index in which {
        let lambda = built.statistics.lambda(problem.times[index])?;
        let (window, steady_allowance) = windows(&built.statistics, epsilon, lambda);
        let room = |terms: u64, weights: f64, truncation: f64| {
            let rounded = built.statistics.rounding(lambda, terms, 0) + weights + built.initial_error;
            Room { left: epsilon - truncation - rounded, rounded }
        };
        planned.push(Planned {
            index,
            epsilon,
            lambda,
            weights: None,
            tails: Vec::new(),
            steps: window.right + 1,
            truncation: window.truncation(),
            steady_allowance,
            summed: room(window.terms(), built.statistics.weights_rounding(&window), window.truncation()),
            averaged: room(0, 0.0, 0.0),
            window,
            steady_state: 0.0,
            stop_rounding: 0.0,
            stopped: None,
            is_averaged: false,
            normalisation: 0.0,
            rewards: vec![(0.0, 0.0); problem.rewards.len()],
        });
    }
    // In the order in which windows open, which is not always that of times: shares of ε differ.
    planned.sort_by_key(|time| time.window.left);
    let mut resumed = checkpointer.sweep()?;
    let mut terms = resumed.as_ref().map_or(0, |resumed| resumed.state.before);
    let rewards = scaled(built);
    let (mut all, mut ended): (Option<Expansion>, _) = (None, None);
    while !planned.is_empty() {
        let most = planned.iter().map(Planned::right).max().unwrap_or(0);
        let progress = (terms, terms + most);
        let inverse_alpha = built.statistics.inverse_alpha;
        let clock = &built.parts.clock;
        let mut iteration = clock.time(Activity::Start, || {
            Iteration::new(&built.machine.lanes, &built.parts, inverse_alpha, &rewards, progress)
        })?;
        let room = room(built, UNKNOWN).clamp(1, planned.len());
        let mut sweep = match resumed.take() {
            None => {
                clock.time(Activity::Start, || iteration.start_in(&built.initial, built.beginning()))?;
                Sweep::new(built, iteration, &mut planned, room, terms)
            }
            Some(kept) if kept.state.fits(&planned, &kept.vectors, built.initial.len(), problem.vectors) => {
                Sweep::resume(built, iteration, &mut planned, kept)?
            }
            Some(_) => return Err(checkpointer.unusable()),
        };
        // What gave up would give up again.
        if all.is_some_and(|expansion| expansion.given_up > 0) {
            (sweep.expands, sweep.krylov) = (false, None);
        }
        let Swept { steps, left_over, expansion, mut expanded, last } = sweep.run(observer, checkpointer)?;
        ended = last;
        terms += steps + expansion.map_or(0, |expansion| expansion.terms);
        all = match (all, expansion) {
            (Some(all), Some(more)) => Some(all.and(more)),
            (all, more) => all.or(more),
        };
        let mut again = Vec::new();
        for (place, time) in planned.into_iter().enumerate() {
            if let Some(result) = expanded[time.index].take() {
                times[time.index] = Some(result);
            } else if left_over.contains(&place) {
                again.push(Planned {
                    rewards: vec![(0.0, 0.0); problem.rewards.len()],
                    steady_state: 0.0,
                    ..time
                });
            } else {
                let result = finish(built, &time, &rewards);
                checkpointer.finished(time.index, &result);
                times[time.index] = Some(result);
            }
        }
        planned = again;
    }
    Ok(AllSwept { terms, expansion: all, last: ended })
}

fn finish<T: Number>(built: &Built<'_, T>, time: &Planned, rewards: &[(&[f64], f64)]) -> TimeResult {
    let len = if time.is_averaged { 0 } else { time.window.terms() };
    let weights = if time.is_averaged { 0.0 } else { built.statistics.weights_rounding(&time.window) };
    // Masses that weights were divided by are known to ten roundings or better.
    let measured = match T::PRECISION {
        Precision::F32 => time.normalisation + 10.0 * T::PRECISION.unit_roundoff(),
        Precision::F64 | Precision::Q64 => 0.0,
    };
    TimeResult {
        time: built.problem.times[time.index],
        alpha_t: time.lambda,
        window: (time.window.left, time.window.right),
        bound: Bound {
            truncation: time.truncation,
            steady_state: time.steady_state,
            rounding: built.statistics.rounding(time.lambda, len, time.steps)
                + weights
                + time.stop_rounding
                + measured
                + built.initial_error,
            ..Bound::default()
        },
        rewards: unscaled(built, &time.rewards, rewards),
        stopped: time.stopped,
        ..TimeResult::default()
    }
}
