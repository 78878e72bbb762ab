//! One uniformization run for all finite times, or several if accumulators do not fit.

use super::run::{RunOutcome, Uniformization};
use crate::Result;
use crate::kernel::{Number, Precision};
use crate::transient::checkpoint::{RunPhase, TimeProgress};
use crate::transient::context::{Context, DEFAULT_VECTORS, DueTime, scaled, unscaled, vector_capacity};
use crate::transient::iteration::Iteration;
use crate::transient::iteration::schedule::PlannedTime;
use crate::transient::session::RunSession;
use crate::transient::solution::{Bound, Expansion, TimeResult};

/// Totals over the uniformization runs for all finite times.
pub(crate) struct UniformizationOutcome {
    /// Number of matrix–vector products.
    pub terms: u64,
    /// Result of Chebyshev's or Krylov's method, if it took over.
    pub(crate) expansion: Option<Expansion>,
}

/// Computes the results for finite times in as few runs as memory for accumulators allows.
pub(crate) fn uniformize<T: Number>(
    context: &Context<'_, T>,
    times: &[DueTime],
    session: &mut RunSession<'_, '_>,
) -> Result<UniformizationOutcome> {
    let problem = context.problem;
    let mut planned: Vec<PlannedTime> = times.iter().map(|&due| PlannedTime::new(context, due)).collect();
    // Windows open in this order, which may differ from that of times: shares of ε differ.
    planned.sort_by_key(|time| time.window.left);
    let of = |phase| if let RunPhase::Uniformization(state) = phase { Some(state) } else { None };
    let mut resumed = session.checkpointer.resume(of)?;
    let mut terms = resumed.as_ref().map_or(0, |resumed| resumed.state.before);
    let rewards = scaled(context);
    let mut all: Option<Expansion> = None;
    while !planned.is_empty() {
        let most = planned.iter().map(PlannedTime::right).max().unwrap_or(0);
        let progress = (terms, terms + most);
        let inverse_alpha = context.statistics.inverse_alpha;
        let mut iteration =
            Iteration::new(&context.machine.lanes, &context.parts, inverse_alpha, &rewards, progress, false)?;
        let capacity = vector_capacity(context, DEFAULT_VECTORS).clamp(1, planned.len());
        let mut run = match resumed.take() {
            None => {
                iteration.start(&context.initial, context.beginning())?;
                Uniformization::new(context, iteration, &mut planned, capacity, terms)
            }
            Some(kept)
                if kept.state.fits(&planned, &kept.vectors, context.initial.len(), problem.vectors) =>
            {
                Uniformization::resume(context, iteration, &mut planned, kept)?
            }
            Some(_) => return Err(session.checkpointer.unusable()),
        };
        // An expansion that has given up is not tried again.
        if all.is_some_and(|expansion| expansion.given_up > 0) {
            (run.expands, run.krylov) = (false, None);
        }
        let RunOutcome { steps, left_over, expansion } = run.run(session)?;
        terms += steps + expansion.map_or(0, |expansion| expansion.terms);
        all = match (all, expansion) {
            (Some(all), Some(more)) => Some(all.and(more)),
            (all, more) => all.or(more),
        };
        let mut again = Vec::new();
        for (place, time) in planned.into_iter().enumerate() {
            if session.is_served(time.due.index) {
                continue;
            }
            if left_over.contains(&place) {
                let rewards = vec![(0.0, 0.0); problem.rewards.len()];
                let progress = TimeProgress { rewards, steady_state: 0.0, ..time.progress };
                again.push(PlannedTime { progress, ..time });
            } else {
                session.serve(time.due.index, finish(context, &time, &rewards));
            }
        }
        planned = again;
    }
    Ok(UniformizationOutcome { terms, expansion: all })
}

fn finish<T: Number>(context: &Context<'_, T>, time: &PlannedTime, rewards: &[(&[f64], f64)]) -> TimeResult {
    let len = if time.is_averaged() { 0 } else { time.window.terms() };
    let weights = if time.is_averaged() { 0.0 } else { context.statistics.weights_rounding(&time.window) };
    // The masses by which weights were divided are known to ten roundings or better.
    let measured = match T::PRECISION {
        Precision::F32 => time.progress.normalisation + 10.0 * T::PRECISION.unit_roundoff(),
        Precision::F64 | Precision::Q64 => 0.0,
    };
    let lambda = time.due.lambda;
    TimeResult {
        window: (time.window.left, time.window.right),
        bound: Bound {
            truncation: time.progress.truncation,
            steady_state: time.progress.steady_state,
            rounding: context.statistics.rounding_at_speed(
                lambda,
                time.speed.unwrap_or(f64::INFINITY),
                len,
                time.progress.steps,
            ) + weights
                + time.termination_rounding
                + measured
                + context.initial_error,
            ..Bound::default()
        },
        rewards: unscaled(context, &time.progress.rewards, rewards),
        stopped: time.stopped,
        ..time.due.result()
    }
}
