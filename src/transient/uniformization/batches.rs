//! One uniformization run for all finite times, or several if accumulators do not fit.

use super::run::{RunOutcome, Uniformization};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::transient::checkpoint::Checkpointer;
use crate::transient::context::{Context, DEFAULT_VECTORS, scaled, unscaled, vector_capacity, windows};
use crate::transient::iteration::Iteration;
use crate::transient::iteration::schedule::{ErrorBudget, LastIterate, Planned};
use crate::transient::problem::Observer;
use crate::transient::profile::Activity;
use crate::transient::solution::{Bound, Expansion, TimeResult};

/// Totals over the uniformization runs for all finite times.
pub struct UniformizationOutcome {
    /// Number of matrix–vector products.
    pub terms: u64,
    /// Result of Chebyshev's or Krylov's method, if it took over.
    pub(crate) expansion: Option<Expansion>,
    /// Last iterate of the last run, if the steady state continues from it.
    pub(crate) last: Option<LastIterate>,
}

/// Computes the results for finite times in as few runs as memory for accumulators allows.
pub fn uniformize<T: Number>(
    context: &Context<'_, T>,
    which: &[usize],
    times: &mut [Option<TimeResult>],
    observer: &mut dyn Observer,
    checkpointer: &mut Checkpointer<'_>,
) -> Result<UniformizationOutcome> {
    let (problem, epsilon) = (context.problem, context.options.epsilon);
    let mut planned = Vec::with_capacity(which.len());
    for &index in which {
        let lambda = context.statistics.lambda(problem.times[index])?;
        let (window, steady_allowance) = windows(&context.statistics, epsilon, lambda);
        let budget = |(terms, speed): (u64, f64), weights: f64, truncation: f64| {
            let steps = context.statistics.rounding_at_speed(lambda, speed, terms, 0);
            let rounded = steps + weights + context.initial_error;
            ErrorBudget { left: epsilon - truncation - rounded, rounded }
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
            summed: budget(
                (window.terms(), f64::INFINITY),
                context.statistics.weights_rounding(&window),
                window.truncation(),
            ),
            averaged: budget((0, 0.0), 0.0, 0.0),
            window,
            steady_state: 0.0,
            termination_rounding: 0.0,
            stopped: None,
            speed: None,
            normalisation: 0.0,
            rewards: vec![(0.0, 0.0); problem.rewards.len()],
        });
    }
    // Windows open in this order, which may differ from that of times: shares of ε differ.
    planned.sort_by_key(|time| time.window.left);
    let mut resumed = checkpointer.uniformization()?;
    let mut terms = resumed.as_ref().map_or(0, |resumed| resumed.state.before);
    let rewards = scaled(context);
    let (mut all, mut ended): (Option<Expansion>, _) = (None, None);
    while !planned.is_empty() {
        let most = planned.iter().map(Planned::right).max().unwrap_or(0);
        let progress = (terms, terms + most);
        let inverse_alpha = context.statistics.inverse_alpha;
        let clock = &context.parts.clock;
        let mut iteration = clock.time(Activity::Start, || {
            Iteration::new(&context.machine.lanes, &context.parts, inverse_alpha, &rewards, progress)
        })?;
        let capacity = vector_capacity(context, DEFAULT_VECTORS).clamp(1, planned.len());
        let mut run = match resumed.take() {
            None => {
                clock.time(Activity::Start, || iteration.start_in(&context.initial, context.beginning()))?;
                Uniformization::new(context, iteration, &mut planned, capacity, terms)
            }
            Some(kept)
                if kept.state.fits(&planned, &kept.vectors, context.initial.len(), problem.vectors) =>
            {
                Uniformization::resume(context, iteration, &mut planned, kept)?
            }
            Some(_) => return Err(checkpointer.unusable()),
        };
        // An expansion that has given up is not tried again.
        if all.is_some_and(|expansion| expansion.given_up > 0) {
            (run.expands, run.krylov) = (false, None);
        }
        let RunOutcome { steps, left_over, expansion, mut expanded, last } =
            run.run(observer, checkpointer)?;
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
                let result = finish(context, &time, &rewards);
                checkpointer.finished(time.index, &result);
                times[time.index] = Some(result);
            }
        }
        planned = again;
    }
    Ok(UniformizationOutcome { terms, expansion: all, last: ended })
}

fn finish<T: Number>(context: &Context<'_, T>, time: &Planned, rewards: &[(&[f64], f64)]) -> TimeResult {
    let len = if time.is_averaged() { 0 } else { time.window.terms() };
    let weights = if time.is_averaged() { 0.0 } else { context.statistics.weights_rounding(&time.window) };
    // The masses by which weights were divided are known to ten roundings or better.
    let measured = match T::PRECISION {
        Precision::F32 => time.normalisation + 10.0 * T::PRECISION.unit_roundoff(),
        Precision::F64 | Precision::Q64 => 0.0,
    };
    TimeResult {
        time: context.problem.times[time.index],
        alpha_t: time.lambda,
        window: (time.window.left, time.window.right),
        bound: Bound {
            truncation: time.truncation,
            steady_state: time.steady_state,
            rounding: context.statistics.rounding_at_speed(
                time.lambda,
                time.speed.unwrap_or(f64::INFINITY),
                len,
                time.steps,
            ) + weights
                + time.termination_rounding
                + measured
                + context.initial_error,
            ..Bound::default()
        },
        rewards: unscaled(context, &time.rewards, rewards),
        stopped: time.stopped,
        ..TimeResult::default()
    }
}
