//! Benchmarks of tridiagonal systems, from host to host on several numbers of lanes, and on the
//! device.

use super::*;
use crate::lane::available_memory;
use crate::tridiagonal::host::scaling::convert;
use crate::tridiagonal::lane_count::SizeTimes;
use crate::tridiagonal::lane_count::measure::{Effort, measure};
use crate::tridiagonal::{Plan, PlanOptions, Upload};

/// Maximum share of free memory for a measurement.
const ROOM: f64 = 0.8;

/// Returns the largest number of rows, up to `wanted`, with arrays that fit the host and the
/// device.
pub fn largest_system(lane: &Lane, precision: Precision, wanted: usize) -> usize {
    let device = lane.device();
    // dl, d, du, b and x on host and device; the interface system is small.
    let row = 5 * precision.bytes();
    let free = lane.free_bytes().unwrap_or(u64::MAX);
    let host = available_memory() / if device.limits.unified { 2 } else { 1 };
    let room = (host.min(free) as f64 * ROOM) as u64 / row;
    let binding = device.limits.binding.min(device.limits.buffer) / precision.bytes();
    // Arrays are padded by up to the rows of two threads.
    wanted.min(usize::try_from(room.min(binding.saturating_sub(16))).unwrap_or(usize::MAX))
}

/// Beginning of the error for fixed point, in which tridiagonal systems are not solved.
const SYSTEMS: &str = "tridiagonal systems";

/// Measures systems of `sizes` rows, ascending, on each of the `sets` of lanes.
///
/// The sets are ascending in their number of lanes, beginning with one lane. `before` is called
/// before each size; its error ends the work.
pub fn lane_times(
    sets: &[Machine],
    sizes: &[usize],
    effort: Effort,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<SizeTimes>> {
    sets[0].expect_floating(SYSTEMS)?;
    by_floating!(sets[0].precision, run(sets, sizes, effort, before))
}

/// Returns the set with `count` lanes.
fn of(sets: &[Machine], count: usize) -> &[Lane] {
    let mut lanes = sets.iter().map(|set| &set.lanes);
    lanes.find(|lanes| lanes.len() == count).expect("a count is that of a set")
}

fn counts(sets: &[Machine]) -> Vec<usize> {
    sets.iter().map(|set| set.lanes.len()).collect()
}

fn run<T: Number>(
    sets: &[Machine],
    sizes: &[usize],
    effort: Effort,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<SizeTimes>> {
    let Some(&largest) = sizes.last() else { return Ok(Vec::new()) };
    let mut plan = Plan::<T>::new(&sets[0].lanes, largest, 1, false)?;
    // The first n rows of a dominant system are a dominant system again.
    let inputs = plan.inputs();
    let wave = |i: usize, k: u32| T::of(((i as u32).wrapping_mul(0x9E37_79B9) >> k & 0xFF) as f64 / 256.0);
    for (array, k) in [(inputs.dl, 3), (inputs.du, 11), (inputs.b, 19)] {
        array.par_iter_mut().enumerate().for_each(|(i, v)| *v = wave(i, k));
    }
    inputs.d.par_iter_mut().for_each(|d| *d = T::of(3.0));
    let mut all = Vec::new();
    for &n in sizes {
        before(n)?;
        plan.reshape(&sets[0].lanes, n)?;
        let mut now = 1;
        let runs = measure(&counts(sets), effort, &mut |count| {
            if count != now {
                plan.reshape(of(sets, count), n)?;
                now = count;
            }
            plan.solve(Upload::All).map(|stages| stages.total)
        })?;
        check(&plan)?;
        all.push(SizeTimes { n, runs });
    }
    Ok(all)
}

/// Times of solving a system from host to host.
#[derive(Debug, Clone)]
pub struct HostTimes {
    /// Times for each number of lanes, ascending from one lane.
    pub runs: Vec<LaneTime>,
    /// Largest relative residual of the solutions.
    pub residual: f64,
    /// True if the rows are in page-locked memory.
    pub locked: bool,
    /// Device memory in addition to the rows with one lane, as a share of the rows' bytes.
    pub extra_memory: f64,
}

/// Measures `system` from host to host on each of the `sets` of lanes.
///
/// The sets are ascending in their number of lanes, beginning with one lane. If `pageable` is true,
/// the rows are in memory that is not page-locked.
pub fn system_lane_times(
    sets: &[Machine],
    system: &System,
    pageable: bool,
    effort: Effort,
) -> Result<HostTimes> {
    sets[0].expect_floating(SYSTEMS)?;
    by_floating!(sets[0].precision, system_times(sets, system, pageable, effort))
}

/// Returns a plan that holds the rows of a system and all its right-hand sides.
fn filled<'a, T: Number>(lanes: &'a [Lane], system: &System, pageable: bool) -> Result<Plan<'a, T>> {
    system.check()?;
    if system.b.is_empty() {
        return Err(Error::invalid("a system without a right-hand side cannot be timed"));
    }
    let options = PlanOptions::default().pageable(pageable).rhs(system.b.len());
    let mut plan = Plan::<T>::with(lanes, system.n, system.batch, system.cyclic, &options)?;
    let inputs = plan.inputs();
    for (from, to) in [(&system.dl, inputs.dl), (&system.d, inputs.d), (&system.du, inputs.du)] {
        convert(from, to);
    }
    system.b.iter().enumerate().for_each(|(k, b)| convert(b, plan.b(k)));
    Ok(plan)
}

/// Largest relative residual of a plan's unknowns.
fn left<T: Number>(plan: &Plan<'_, T>, system: &System) -> f64 {
    let mut x = vec![0.0; system.rows()];
    let one = |(k, b): (usize, &Vec<f64>)| {
        convert(plan.x_of(k), &mut x);
        system.residual(b, &x, &mut []).normwise
    };
    system.b.iter().enumerate().map(one).fold(0.0, f64::max)
}

fn extra_memory<T: Number>(plan: &Plan<'_, T>, rhs: usize) -> f64 {
    plan.device_bytes() as f64 / ((3 + 2 * rhs) * size_of::<T>() * plan.rows()) as f64 - 1.0
}

fn system_times<T: Number>(
    sets: &[Machine],
    system: &System,
    pageable: bool,
    effort: Effort,
) -> Result<HostTimes> {
    let mut plan = filled::<T>(&sets[0].lanes, system, pageable)?;
    let (extra_memory, locked) = (extra_memory(&plan, system.b.len()), plan.locked());
    let (mut now, mut solved, mut residual) = (sets[0].lanes.len(), false, 0.0f64);
    let runs = measure(&counts(sets), effort, &mut |count| {
        if count != now {
            if solved {
                residual = residual.max(left(&plan, system));
            }
            plan.relane(of(sets, count))?;
            (now, solved) = (count, false);
        }
        let stages = plan.solve(Upload::All)?;
        solved = true;
        Ok(stages.total)
    })?;
    Ok(HostTimes { runs, residual: residual.max(left(&plan, system)), locked, extra_memory })
}

/// Times of solving a system with rows and unknowns on the device.
#[derive(Debug, Clone, Copy)]
pub struct ResidentTimes {
    /// Seconds of one solution.
    pub seconds: Spread,
    /// True if one pass over the rows was sufficient.
    pub one_pass: bool,
    /// Relative residual of the solution.
    pub residual: f64,
    /// Device memory in addition to the rows, as a share of the rows' bytes.
    pub extra_memory: f64,
}

/// Times solves of `system` with all data in the memory of one lane, `repeat` times.
/// Fails if the lane cannot hold all rows at once.
pub fn resident_times(machine: &Machine, system: &System, repeat: usize) -> Result<ResidentTimes> {
    machine.expect_floating(SYSTEMS)?;
    by_floating!(machine.precision, resident(&machine.lanes, system, repeat))
}

fn resident<T: Number>(lane: &[Lane], system: &System, repeat: usize) -> Result<ResidentTimes> {
    let mut plan = filled::<T>(lane, system, true)?;
    plan.solve(Upload::All)?;
    let seconds = resident_seconds(repeat, |count| plan.solve_resident(count))?;
    let one_pass = plan.is_one_pass();
    plan.fetch()?;
    let (residual, extra_memory) = (left(&plan, system), extra_memory(&plan, system.b.len()));
    Ok(ResidentTimes { seconds, one_pass, residual, extra_memory })
}

/// Measures the seconds of a solution on the device; `solve(k)` computes k solutions.
///
/// A measurement takes at least 20 ms, so that the host's launch overhead is negligible.
pub(super) fn resident_seconds(repeat: usize, mut solve: impl FnMut(u64) -> Result<f64>) -> Result<Spread> {
    let count = (0.02 / solve(2)?).clamp(1.0, 1000.0) as u64;
    Spread::measure(repeat, || solve(count))
}

/// Returns an error if the unknowns do not solve the system of [`run`].
///
/// Each row has 3 on the diagonal and two neighbours below 1. No unknown exceeds 1, and a residual
/// is a dozen roundings of terms with the sum 5.
fn check<T: Number>(plan: &Plan<'_, T>) -> Result<()> {
    let (x, [dl, d, du, b]) = (plan.x(), plan.given());
    let epsilon = 2.0 * T::PRECISION.unit_roundoff();
    let residual = |i: usize| {
        let term = |a: T, j: Option<usize>| j.and_then(|j| x.get(j)).map_or(0.0, |x| a.wide() * x.wide());
        term(dl[i], i.checked_sub(1)) + term(d[i], Some(i)) + term(du[i], Some(i + 1)) - b[i].wide()
    };
    let wrong = |i: usize| residual(i).is_nan() || residual(i).abs() > 64.0 * epsilon;
    let first = (0..x.len()).into_par_iter().map(|i| if wrong(i) { i } else { x.len() });
    match first.reduce(|| x.len(), usize::min) {
        i if i == x.len() => Ok(()),
        i => Err(Error::Device(format!(
            "row {i} of {} is left with the residual {:e}; do not trust this device or its driver",
            x.len(),
            residual(i)
        ))),
    }
}
