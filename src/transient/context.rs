//! Data of a run that all methods share: the chain on its lanes, statistics and options.

use super::chain::scan::statistics_of_rows;
use super::chain::statistics::{MatrixStatistics, scale_of};
use super::chain::transitions::{Transitions, add_rates};
use super::chain::{Initial, Reward};
use super::cost_model::Costs;
use super::exchange::parts::ChainParts;
use super::numerics::poisson::Window;
use super::partition::{rows_of, share};
use super::problem::{Options, Partitioning, Problem};
use super::solution::{RewardValue, TimeResult};
use crate::kernel::{Number, Precision};
use crate::lane::Lane;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::{BLOCK, MatrixFormat};
use crate::{Machine, Result};

/// A chain built on its lanes, and the data that all methods share.
pub(crate) struct Context<'a, T> {
    /// Machine with the lanes.
    pub machine: &'a Machine,
    /// Problem; its rewards are restricted to this rank's rows.
    pub problem: &'a Problem<'a>,
    /// Options of the run.
    pub options: &'a Options,
    /// Statistics of the chain's matrix, from the scan of all transitions.
    pub statistics: MatrixStatistics<T>,
    /// Costs of convergence checks and Krylov steps, relative to a step of uniformization.
    pub costs: Costs,
    /// Matrix rows and vectors on the lanes.
    pub parts: ChainParts<T>,
    /// Initial probabilities of this rank's rows.
    pub initial: Vec<f64>,
    /// Bound of the l1 error of the initial probabilities from their rounding when stored.
    pub initial_error: f64,
    /// True if a run may switch to the Chebyshev or Krylov method.
    ///
    /// This requires that the lanes exchange halos at every step, and that no checkpoint is kept.
    pub expands: bool,
}

/// Finite requested time at which probabilities are to be computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueTime {
    /// Index among the requested times.
    pub(super) index: usize,
    pub(super) time: f64,
    /// Mean number αt of steps until the time.
    pub(super) lambda: f64,
}

impl DueTime {
    /// Returns a result at this time that still lacks bound and rewards.
    pub(super) fn result(&self) -> TimeResult {
        TimeResult { time: self.time, alpha_t: self.lambda, ..TimeResult::default() }
    }
}

impl<'a, T: Number> Context<'a, T> {
    /// Prepares a run: builds the matrix on the lanes, unless `parts` has it there already.
    #[expect(clippy::too_many_arguments, reason = "the data of a run, from several passes")]
    pub(super) fn build(
        machine: &'a Machine,
        problem: &'a Problem<'a>,
        options: &'a Options,
        mut statistics: MatrixStatistics<T>,
        initial: Vec<f64>,
        expands: bool,
        split: Partitioning,
        parts: Option<ChainParts<T>>,
    ) -> Result<Self> {
        let transitions = problem.transitions;
        let finite = problem.times.iter().copied().filter(|time| time.is_finite());
        statistics.steps = finite.fold(0.0, f64::max) * statistics.alpha;
        let parts = match parts {
            Some(parts) => parts,
            None => ChainParts::build(machine, transitions, &statistics, options.format, split)?,
        };
        (statistics.lengths, statistics.exit) = (Vec::new(), Vec::new());
        let costs = Costs::new(&statistics, transitions.states(), machine);
        let initial_error = problem.initial.rounding();
        Ok(Self { machine, problem, options, statistics, costs, parts, initial, initial_error, expands })
    }

    /// Returns requested times by their indices.
    /// Fails with [`Error::Invalid`](crate::Error::Invalid) for a time that takes too many steps.
    pub(crate) fn due(&self, indices: impl IntoIterator<Item = usize>) -> Result<Vec<DueTime>> {
        let due = |index: usize| {
            let time = self.problem.times[index];
            Ok(DueTime { index, time, lambda: self.statistics.lambda(time)? })
        };
        indices.into_iter().map(due).collect()
    }

    /// Returns the state that has all initial probability, if the problem names one.
    pub(super) fn beginning(&self) -> Option<usize> {
        match self.problem.initial {
            Initial::State(state) => Some(*state),
            _ => None,
        }
    }
}

/// Returns the statistics of this rank's rows for a matrix format.
pub(super) fn matrix_statistics<T: Number>(
    machine: &Machine,
    transitions: &dyn Transitions,
    format: MatrixFormat,
) -> Result<MatrixStatistics<T>> {
    let (lanes, ranks) = (&machine.lanes, machine.ranks);
    if !ranks.is_distributed() {
        let scan = || statistics_of_rows::<T>(transitions, 0..transitions.states(), Ranks::ALONE);
        let repeats = format != MatrixFormat::Hyb && lanes.len() == 1;
        let found = transitions.prescan().and_then(|prescan| prescan.take(repeats));
        let mut statistics = match found {
            Some(found) => found,
            None => scan()?,
        };
        statistics.shares = share(machine, transitions, Some(&statistics.lengths))?;
        return Ok(statistics);
    }
    let shares = share(machine, transitions, None)?;
    let counts = ranks.all_gather(&[lanes.len() as u64]).concat();
    let before = counts[..ranks.rank()].iter().sum::<u64>() as usize;
    let rows = rows_of(&shares, before, lanes.len());
    // Sums over ranks are computed by the calling thread, not in a lane's thread.
    Ok(MatrixStatistics { shares, ..statistics_of_rows::<T>(transitions, rows, ranks)? })
}

/// Returns the Poisson window for αt = `lambda`, and the part of ε for early termination.
pub(super) fn windows<T: Number>(
    statistics: &MatrixStatistics<T>,
    epsilon: f64,
    lambda: f64,
) -> (Window, f64) {
    // The part of ε that rounding leaves is shared between truncation and early termination. If
    // nothing is left, the bound cannot be met, and half of ε is as good as any share.
    let len = 12.0 * lambda.sqrt() + 64.0;
    let left = epsilon - statistics.rounding(lambda, len as u64, u64::MAX);
    let left = if left > 0.0 { left } else { 0.5 * epsilon };
    let share = if lambda > 256.0 { 0.8 } else { 0.999 };
    (statistics.window(lambda, share * left), (1.0 - share) * left)
}

/// Returns the sum of the values of all ranks, with bits independent of ranks and threads.
///
/// Blocks are summed first, and then the block sums in the order of states.
pub(super) fn total<T: Number>(values: &[T], ranks: Ranks) -> f64 {
    let block = |values: &[T]| {
        let mut sum = [0.0; 2];
        add_rates(&mut sum, values.iter().map(|value| value.wide()));
        sum
    };
    let blocks: Vec<[f64; 2]> = values.par_chunks(BLOCK).with_min_len(64).map(block).collect();
    let mut sum = [0.0; 2];
    ranks.ordered_reduce(&mut sum, |sum| {
        let mut state = [sum[0], sum[1]];
        for &[block, lost] in &blocks {
            add_rates(&mut state, [block]);
            state[1] += lost;
        }
        sum.copy_from_slice(&state);
    });
    sum[0] + sum[1]
}

/// Returns for each reward this rank's values, and a power of two by which to scale them.
pub(super) fn scaled<'a, T: Number>(context: &Context<'a, T>) -> Vec<(&'a [f64], f64)> {
    let scale = |r: &'a Reward| {
        let most = r.values.iter().fold(0.0, |most, v| v.abs().max(most));
        let scale = scale_of(context.parts.ranks.all_reduce_max(most));
        // Q64 represents fractions below 1.
        (&r.values[..], if T::PRECISION == Precision::Q64 { 0.5 * scale } else { scale })
    };
    context.problem.rewards.iter().map(scale).collect()
}

/// Number of accumulators assumed to fit on a lane that does not report its free memory.
pub(super) const DEFAULT_VECTORS: u64 = 16;

/// Returns the number of vectors that fit into the free memory of every lane.
///
/// A tenth of the free memory is kept for weights and the driver. `unknown` is used for lanes that
/// do not report their free memory.
pub(super) fn vector_capacity<T: Number>(context: &Context<'_, T>, unknown: u64) -> usize {
    let vector_capacity = |(l, lane): (usize, &Lane)| {
        let rows: usize = context.parts.of(l).map(|(_, part)| part.rows.len()).sum();
        let vector = rows as u64 * T::PRECISION.bytes();
        lane.free_bytes().map_or(unknown, |free| free / 10 * 9 / vector.max(1))
    };
    let vector_capacity = context.machine.lanes.iter().enumerate().map(vector_capacity).min().unwrap_or(1);
    context.parts.ranks.all_reduce_min(vector_capacity) as usize
}

/// Computes rewards from sums over scaled values: at a time, and α times the accumulated ones.
pub(super) fn unscaled<T: Number>(
    context: &Context<'_, T>,
    sums: &[(f64, f64)],
    rewards: &[(&[f64], f64)],
) -> Vec<RewardValue> {
    let holding = context.statistics.mean_holding();
    let all = context.problem.rewards.iter().zip(sums).zip(rewards);
    all.map(|((reward, sum), (_, scale))| RewardValue {
        name: reward.name.clone(),
        instantaneous: sum.0 / scale,
        cumulative: sum.1 * holding / scale,
    })
    .collect()
}
