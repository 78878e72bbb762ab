//! Transition matrices P(t) = e^{Qt} of many small chains, computed on a device.

use std::ops::Range;

use super::kernels::{
    EXIT_RATES, EXPONENTIAL_STEP, LARGEST_EXIT_RATES, exit_rates, exponential, exponential_step, kernel_for,
    largest_exit_rates,
};
use super::{MATRICES, Step, bounds, checked_exit_rates, coefficients, expect_shape, squarings_of, steps};
use crate::kernel::{Kernel, Precision};
use crate::lane::{Buffer, Lane};
use crate::parallel::*;
use crate::util::memory::zeroed;
use crate::{Invalid, Result};

/// Maximum number of states of a chain for [`transition_matrices_on`].
pub const MOST_STATES_ON_DEVICES: usize = 1024;

/// Maximum number of states for which the matrices of a chain fit into registers.
const IN_REGISTERS: usize = 64;
/// Maximum memory for the matrices of larger chains, in bytes.
const MATRIX_BYTES: u64 = 1 << 29;

/// Returns the maximum size of an array of matrices in bytes.
pub(super) fn most_bytes(lane: &Lane) -> u64 {
    let limits = &lane.device().limits;
    MATRIX_BYTES.min(limits.binding).min(limits.buffer)
}

/// Copies generators to a device, computes P(t) there and copies it back.
///
/// Messages number the chains from `first`. Exit rates are computed on the host, since drivers
/// other than CUDA may optimize compensated summation away.
pub(super) fn copied(
    lane: &Lane,
    n: usize,
    first: usize,
    q: &[f64],
    times: &[f64],
    p: &mut [f64],
) -> Result<Vec<f64>> {
    let exit = q.par_chunks(n * n).enumerate().map(|(k, q)| checked_exit_rates(first + k, n, q));
    let exit = exit.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>>>()?;
    let largest: Vec<f64> = exit.iter().map(|exit| exit.iter().copied().fold(0.0, f64::max)).collect();
    let q = lane.alloc_with("generators", q)?;
    let exit = lane.alloc_with("exit rates", &exit.concat())?;
    let alpha = lane.alloc_with("largest exit rates", &largest)?;
    let matrices = lane.alloc_unset("transition matrices", p.len())?;
    compute(lane, n, [&q, &exit, &alpha, &matrices], times, &largest)?;
    let bounds = bounds(first, n, &largest, times)?;
    lane.download(&matrices, 0, p)?;
    Ok(bounds)
}

/// Computes P(t) of each chain on a device; returns a bound on the l1 error of each row.
///
/// Avoids the copies of [`transition_matrices`](super::transition_matrices): generators `q` and
/// matrices `p` are in the memory of `lane`, in double precision. Their shape is
/// `[times.len(), n, n]`. A workgroup computes one or more chains of up to 64 states, with all
/// matrices in registers. Matrices of larger chains are computed by tiles, in at most 512 MiB of
/// device memory. Results are bitwise those of the host.
///
/// # Errors
/// * Errors of [`transition_matrices`](super::transition_matrices) and of the device.
/// * More than [`MOST_STATES_ON_DEVICES`] states, or 2³² or more elements of `q`.
/// * A lane that is neither a CUDA device nor the CPU.
pub fn transition_matrices_on(
    lane: &Lane,
    n: usize,
    q: &Buffer<f64>,
    times: &[f64],
    p: &Buffer<f64>,
) -> Result<Vec<f64>> {
    expect_shape(n, q.len(), times.len(), p.len())?;
    if n > MOST_STATES_ON_DEVICES || u32::try_from(q.len()).is_err() {
        return Invalid::Unsupported.fail(format!(
            "{} chains of {n} states are not supported on a device: expected at most \
             {MOST_STATES_ON_DEVICES} states and 2^32 numbers; use the CPU, or fewer chains at a time",
            times.len()
        ));
    }
    if !matches!(lane.device().backend, "cpu" | "cuda") {
        return Invalid::Unsupported.fail(format!(
            "chains in the memory of {} are not supported: expected a CUDA device, or arrays of the \
             host, which are copied",
            lane.device().spec
        ));
    }
    if times.is_empty() {
        return Ok(Vec::new());
    }
    let exit = lane.alloc_unset("exit rates", n * times.len())?;
    let alpha = lane.alloc_unset("largest exit rates", times.len())?;
    let (states, chains) = (exit.len(), times.len());
    let args = exit_rates::Args { q: q.arg(), exit: exit.arg() };
    let params = exit_rates::Params { step: 0, n: n as u32, states: states as u32 };
    let rates = lane.bind(&EXIT_RATES, Precision::F64, states, params, args)?;
    let args = largest_exit_rates::Args { exit: exit.arg(), alpha: alpha.arg() };
    let params = largest_exit_rates::Params { step: 0, n: n as u32, chains: chains as u32 };
    let maxima = lane.bind(&LARGEST_EXIT_RATES, Precision::F64, chains, params, args)?;
    lane.enqueue(&[&rates, &maxima])?;
    let mut largest = zeroed(times.len());
    lane.download(&alpha, 0, &mut largest)?;
    compute(lane, n, [q, &exit, &alpha, p], times, &largest)?;
    if let Some(k) = largest.iter().position(|alpha: &f64| alpha.is_nan() || *alpha < 0.0) {
        let mut matrix = vec![0.0; n * n];
        lane.download(q, k * n * n, &mut matrix)?;
        checked_exit_rates(k, n, &matrix)?;
        return Invalid::Number("q").fail(format!("chain {k} is no generator on {}", lane.device().spec));
    }
    // The host computes bounds while the device computes P(t).
    bounds(0, n, &largest, times)
}

/// Launches the computation of P(t) of at least one chain into the last array, from rates, exit
/// rates and the largest exit rates, which the host has, too.
fn compute(
    lane: &Lane,
    n: usize,
    [q, exit, alpha, p]: [&Buffer<f64>; 4],
    times: &[f64],
    largest: &[f64],
) -> Result<()> {
    let squarings = |chains: Range<usize>| {
        let jumps = chains.map(|k| largest[k] * times[k]);
        squarings_of(jumps.fold(0.0, f64::max))
    };
    let count = times.len();
    let times = lane.alloc_with("times", times)?;
    let coefficients = lane.alloc_with("coefficients", &coefficients())?;
    if n <= IN_REGISTERS {
        let (kernel, threads) = kernel_for(n);
        let params = exponential::Params { step: 0, n: n as u32, chains: count as u32 };
        let args = exponential::Args {
            q: q.arg(),
            exit: exit.arg(),
            alpha: alpha.arg(),
            times: times.arg(),
            coefficients: coefficients.arg(),
            transition: p.arg(),
        };
        return lane.enqueue(&[&lane.bind(kernel, Precision::F64, count * threads, params, args)?]);
    }
    let own = MATRICES * n * n;
    let bytes = most_bytes(lane).min(lane.free_bytes().map_or(MATRIX_BYTES, |free| free / 2));
    let together = (bytes as usize / (8 * own)).clamp(1, count);
    let matrices = lane.alloc_unset::<f64>("work matrices of small chains", together * own)?;
    let args = exponential_step::Args {
        q: q.arg(),
        exit: exit.arg(),
        alpha: alpha.arg(),
        times: times.arg(),
        coefficients: coefficients.arg(),
        matrices: matrices.arg(),
        transition: p.arg(),
    };
    // Each step of several chains is one launch.
    for first in (0..count).step_by(together) {
        let chains = together.min(count - first);
        let items = chains * n.div_ceil(64).pow(2) * Kernel::GROUP as usize;
        let bind = |step: &Step| {
            let params = Step { n: n as u32, first: first as u32, chains: chains as u32, ..*step };
            lane.bind(&EXPONENTIAL_STEP, Precision::F64, items, params, args)
        };
        let steps = steps(squarings(first..first + chains));
        let launches = steps.iter().map(bind).collect::<Result<Vec<_>>>()?;
        lane.launch(&launches.iter().collect::<Vec<_>>(), 0)?;
    }
    Ok(())
}
