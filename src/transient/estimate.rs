//! Estimates of the memory and time of a run, and of the available memory, before any work.

use super::chain::scan::statistics;
use super::chain::statistics::MatrixStatistics;
use super::context::{matrix_statistics, windows};
use super::memory::expect_host_share;
use super::numerics::chebyshev_coefficients::{RANGE, products};
use super::partition::{LaneExchange, LanePlan, row_bytes, split};
use super::problem::{Method, Options, Problem, check};
use super::step::matrix::MatrixSource;
pub use super::step::memory_requirement::MemoryRequirement;
use crate::kernel::Number;
use crate::sparse::HybLayout;
use crate::{Machine, Result};

/// Predicted memory and time of a run.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Plan {
    /// Number of states.
    pub n: usize,
    /// Entries of the generator, including its diagonal.
    pub nnz: u64,
    /// Uniformization rate.
    pub alpha: f64,
    /// Memory requirement of each lane.
    pub lanes: Vec<MemoryRequirement>,
    /// Rows and predicted cost of each lane; empty for one lane.
    pub plan: Vec<LanePlan>,
    /// Number of steps between two exchanges of halos.
    pub halo_depth: usize,
    /// Transport of halo values between lanes.
    pub exchange: LaneExchange,
    /// Upper bound of the matrix–vector products; `None` if unknown, as for the steady state.
    pub terms: Option<u64>,
    /// Predicted seconds of a matrix–vector product, from measured bandwidth.
    pub step: f64,
}

impl Plan {
    /// True if the memory of every lane suffices.
    pub fn fits(&self) -> bool {
        self.lanes.iter().all(MemoryRequirement::fits)
    }
}

/// Predicts the memory and time of solving the problem on the machine.
/// Fails like [`super::solve()`], except for lack of memory on a lane, which the plan reports.
pub fn plan(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<Plan> {
    check(problem, options)?;
    by_precision!(machine.precision, plan_in(machine, problem, options))
}

fn plan_in<T: Number>(machine: &Machine, problem: &Problem<'_>, options: &Options) -> Result<Plan> {
    let (transitions, lanes, real) = (problem.transitions, &machine.lanes, machine.precision.bytes());
    let choices = options.partitioning();
    // The host's memory is needed now; the plan reports on the lanes' memory.
    expect_host_share(machine, transitions.states(), 0)?;
    let mut statistics = matrix_statistics::<T>(machine, transitions, options.format)?;
    let partition = split(machine, transitions, &statistics.shares, choices, options.format)?;
    let computed = partition.computed(&statistics.rows);
    statistics.widen(transitions, computed);
    let layout = HybLayout::new(&statistics.lengths, real);
    let (mut needs, mut at): (Vec<MemoryRequirement>, usize) = (Vec::new(), 0);
    for region in partition.own_regions() {
        let lane = &lanes[region.lane - partition.first];
        let (regions, depth) = (&partition.regions, partition.halo_depth);
        let source = MatrixSource::new(lane, transitions, &statistics, &layout, region, regions, depth);
        let need = source.plan(options.format)?;
        // Needs of the parts of one lane are added.
        match needs.last_mut() {
            Some(last) if region.lane == at => last.add(need),
            _ => needs.push(need),
        }
        at = region.lane;
    }
    let step = match &partition.plan[..] {
        [] => {
            let bytes: u64 = statistics.lengths.iter().map(|&length| row_bytes(length, real)).sum();
            bytes as f64 / lanes[0].bandwidth()?
        }
        plan => plan.iter().map(|lane| lane.step).fold(0.0, f64::max),
    };
    Ok(Plan {
        n: transitions.states(),
        nnz: statistics.nnz,
        alpha: statistics.alpha,
        lanes: on_lanes(problem, needs),
        plan: partition.plan,
        halo_depth: partition.halo_depth,
        exchange: partition.exchange,
        terms: terms(&statistics, problem, options)?,
        step,
    })
}

/// Returns the lanes' memory requirement: none if only π(∞) is requested, found on the host.
fn on_lanes(problem: &Problem<'_>, mut needs: Vec<MemoryRequirement>) -> Vec<MemoryRequirement> {
    if problem.times.iter().all(|time| time.is_infinite()) {
        needs.iter_mut().for_each(|need| (need.matrix, need.vectors) = (0, 0));
    }
    needs
}

/// Default seconds to open a GPU, compile for it and close it, if not measured.
///
/// Values of CUDA with one hardware queue, and of Vulkan on an H200.
pub const GPU_START: f64 = 0.25;

/// Predicts the seconds of all products on the host's cores, for a small chain at finite times.
///
/// `None` if there is no quick prediction. A product takes 2 µs at least. `speed` is the measured
/// throughput of the cores in bytes per second. By default each thread moves 2.5 GB/s, and all
/// threads together at most 40 GB/s. Fails like [`plan`].
pub fn seconds_on_cores(problem: &Problem<'_>, options: &Options, speed: Option<f64>) -> Result<Option<f64>> {
    const MOST_STATES: usize = 1 << 18;
    let speed = speed.unwrap_or_else(|| (2.5e9 * crate::parallel::threads() as f64).min(40e9));
    const LEAST: f64 = 2e-6;
    if problem.transitions.states() > MOST_STATES {
        return Ok(None);
    }
    check(problem, options)?;
    let seconds = |statistics: &MatrixStatistics<f64>| -> Result<Option<f64>> {
        let bytes: u64 = statistics.lengths.iter().map(|&length| row_bytes(length, 8)).sum();
        let terms = terms(statistics, problem, options)?;
        Ok(terms.map(|terms| terms as f64 * (bytes as f64 / speed + LEAST)))
    };
    match problem.transitions.prescan().and_then(|prescan| prescan.with_statistics(seconds)) {
        Some(found) => found,
        None => seconds(&statistics(problem.transitions)?),
    }
}

fn terms<T: Number>(
    statistics: &MatrixStatistics<T>,
    problem: &Problem<'_>,
    options: &Options,
) -> Result<Option<u64>> {
    if problem.times.iter().any(|t| t.is_infinite()) && statistics.alpha > 0.0 {
        return Ok(None);
    }
    let mut last = 0;
    for &t in problem.times.iter().filter(|&&t| t > 0.0 && statistics.alpha > 0.0) {
        let lambda = statistics.lambda(t)?;
        match options.method {
            Method::Chebyshev { .. } if RANGE.contains(&lambda) => {
                last = products(lambda, options.epsilon).max(last);
            }
            Method::Auto | Method::Uniformization | Method::Chebyshev { .. } | Method::Krylov { .. } => {
                last = windows(statistics, options.epsilon, lambda).0.right.max(last);
            }
        }
    }
    Ok(Some(last))
}
