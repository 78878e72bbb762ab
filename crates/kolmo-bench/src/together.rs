//! Cost of the exchange between lanes that share one chain.

use std::time::Instant;

use serde::Serialize;

use super::Spread;
use kolmo::Result;
use kolmo::internals::{Iteration, MatrixStatistics, Moment, PHASES, Parts, Timeline};
use kolmo::kernel::Number;
use kolmo::lane::Lane;

/// Measured exchange between lanes that share one chain.
#[derive(Debug, Clone, Serialize)]
pub struct Together {
    /// Steps between two exchanges.
    pub halo_depth: usize,
    /// Seconds of a step on these lanes without any exchange.
    pub alone: f64,
    /// Share of a step's time that the exchange adds.
    pub communication_share: f64,
    /// Phases of each lane's thread between two exchanges through the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseTime>,
}

/// A phase of an exchange on one lane; times are medians over many exchanges.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseTime {
    /// Number of the lane.
    pub lane: usize,
    /// Name of the phase.
    pub phase: &'static str,
    /// Start of the phase, in seconds after the beginning of the exchange.
    pub start: f64,
    /// Duration of the phase in seconds.
    pub seconds: f64,
}

/// Measures seconds per step with the accumulator, in `repeat` runs of `steps` steps from `x`.
pub(super) fn step_seconds<T: Number>(
    lanes: &[Lane],
    parts: &Parts<T>,
    statistics: &MatrixStatistics<T>,
    x: &[f64],
    steps: u64,
    repeat: usize,
) -> Result<Spread> {
    let mut iteration = Iteration::new(lanes, parts, statistics.inverse_alpha, &[], (0, 0), false)?;
    let mut target = iteration.target(steps as usize, iteration.accumulators()?)?;
    iteration.weigh(&mut target, 0, &vec![1e-4; steps as usize], 1.0)?;
    Spread::measure(repeat, || {
        iteration.start(x, None)?;
        let at = Instant::now();
        iteration.advance(steps, &[&target], &mut ())?;
        Ok(at.elapsed().as_secs_f64() / steps as f64)
    })
}

/// Measures the cost of the exchange: runs of `steps` steps with and without it.
pub(super) fn together<T: Number>(
    lanes: &[Lane],
    parts: &mut Parts<T>,
    statistics: &MatrixStatistics<T>,
    x: &[f64],
    steps: u64,
    repeat: usize,
) -> Result<Together> {
    parts.timeline = Some(Timeline::default());
    lanes.iter().for_each(Lane::trace);
    let with = step_seconds(lanes, parts, statistics, x, steps, repeat)?.median;
    let moments = parts.timeline.take().map_or_else(Vec::new, |timeline| timeline.take());
    let mut phases = phases(lanes.len(), &moments);
    // Only batches of the first run: two per exchange, boundary and interior. The last batch of a
    // run has no interior.
    let first = 2 * (steps as usize).div_ceil(parts.matrix.halo_depth);
    for (number, lane) in lanes.iter().enumerate() {
        phases.extend(device_phases(number, lane.traced()?.get(2..).unwrap_or_default(), first));
    }
    let transfers = std::mem::take(&mut parts.between_lanes);
    let alone = step_seconds(lanes, parts, statistics, x, steps, repeat)?.median;
    parts.between_lanes = transfers;
    Ok(Together {
        halo_depth: parts.matrix.halo_depth,
        alone,
        communication_share: (1.0 - alone / with).max(0.0),
        phases,
    })
}

fn phases(lanes: usize, moments: &[Moment]) -> Vec<PhaseTime> {
    let mut all = Vec::new();
    for lane in 0..lanes {
        // For each phase: start and duration in each exchange.
        let mut found: [Vec<(f64, f64)>; PHASES.len()] = Default::default();
        let mut own: Vec<&Moment> = moments.iter().filter(|m| m.lane == lane).collect();
        own.sort_by(|a, b| a.from.total_cmp(&b.from));
        for exchange in own.chunk_by(|a, b| a.step == b.step) {
            for (phase, found) in PHASES.iter().zip(&mut found) {
                let mut here = exchange.iter().filter(|m| m.phase == *phase).peekable();
                if let Some(first) = here.peek() {
                    let start = first.from - exchange[0].from;
                    found.push((start, here.map(|m| m.to - m.from).sum()));
                }
            }
        }
        for (phase, found) in PHASES.iter().zip(found).filter(|(_, found)| !found.is_empty()) {
            let median = |of: fn(&(f64, f64)) -> f64| Spread::of(found.iter().map(of).collect()).median;
            let (start, seconds) = (median(|f| f.0), median(|f| f.1));
            all.push(PhaseTime { lane, phase: phase.name(), start, seconds });
        }
    }
    all.sort_by(|a, b| {
        (a.lane, a.start).partial_cmp(&(b.lane, b.start)).unwrap_or(std::cmp::Ordering::Equal)
    });
    all
}

/// Start and end of a batch on the device.
type Batch = (f64, f64);

/// Times at which the device works on batches of the boundary and of the interior, which alternate.
fn device_phases(lane: usize, batches: &[Batch], first: usize) -> Vec<PhaseTime> {
    let batches = &batches[..batches.len().min(first)];
    let cycles: Vec<&[Batch]> = batches.windows(3).step_by(2).collect();
    if cycles.is_empty() {
        return Vec::new();
    }
    let median = |of: fn(&[Batch]) -> f64| Spread::of(cycles.iter().map(|c| of(c)).collect()).median;
    let phase = |phase, start, seconds| PhaseTime { lane, phase, start, seconds };
    vec![
        phase("device: boundary", 0.0, median(|c| c[0].1 - c[0].0)),
        phase("device: interior", median(|c| c[1].0 - c[0].0), median(|c| c[1].1 - c[1].0)),
        phase("device: next boundary", median(|c| c[2].0 - c[0].0), 0.0),
    ]
}
