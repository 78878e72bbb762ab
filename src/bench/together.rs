//! Cost of the exchange between lanes that share one chain.

use super::*;
use crate::kernel::Number;

/// Measured exchange between lanes that share one chain.
#[derive(Debug, Clone, Serialize)]
pub struct ExchangeMeasurement {
    /// Steps between two exchanges.
    pub halo_depth: usize,
    /// Seconds of a step on these lanes without any exchange.
    pub alone: f64,
    /// Share of a step's time that the exchange adds.
    pub communication_share: f64,
}

/// Measures seconds per step with the accumulator, in `repeat` runs of `steps` steps from `x`.
pub(super) fn step_seconds<T: Number>(
    lanes: &[Lane],
    parts: &ChainParts<T>,
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
    parts: &mut ChainParts<T>,
    statistics: &MatrixStatistics<T>,
    x: &[f64],
    steps: u64,
    repeat: usize,
) -> Result<ExchangeMeasurement> {
    let with = step_seconds(lanes, parts, statistics, x, steps, repeat)?.median;
    let transfers = std::mem::take(&mut parts.between_lanes);
    let alone = step_seconds(lanes, parts, statistics, x, steps, repeat)?.median;
    parts.between_lanes = transfers;
    Ok(ExchangeMeasurement {
        halo_depth: parts.matrix.halo_depth,
        alone,
        communication_share: (1.0 - alone / with).max(0.0),
    })
}
