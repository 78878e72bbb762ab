//! Host-to-host solutions of tridiagonal systems on any number of lanes.

use rayon::prelude::*;

use crate::kernel::Precision;
use crate::lane::Lane;
use crate::lane::cpu::available_memory;
use crate::tridiagonal::System;
use crate::tridiagonal::lane_count::measure::{Effort, measure, median_stages};
use crate::tridiagonal::lane_count::{LaneTime, SizeTimes, StageTimes};
use crate::tridiagonal::plan::{Plan, Send, Stages, convert};
use crate::tridiagonal::unit::Number;
use crate::{Error, Result};

/// Solutions by stages of each size.
const STAGED: usize = 5;

/// Share of free memory that a measurement may take.
const ROOM: f64 = 0.8;

/// The largest system, up to `wanted` rows, whose arrays fit the host and the device of `lane`.
pub fn largest_system(lane: &Lane, precision: Precision, wanted: usize) -> usize {
    let device = lane.device();
    // dl, d, du, b and x on either side; the interface system of tiles is small beside them.
    let row = 5 * precision.bytes();
    let free = lane.free_bytes().unwrap_or(u64::MAX);
    let shared = device.limits.unified || device.software || device.backend == "cpu";
    let host = available_memory() / if shared { 2 } else { 1 };
    let room = (host.min(free) as f64 * ROOM) as u64 / row;
    let binding = device.limits.binding.min(device.limits.buffer) / precision.bytes();
    wanted.min(usize::try_from(room.min(binding)).unwrap_or(usize::MAX))
}

/// Measures systems of `sizes` rows, ascending, on each of `counts` lanes, one lane first. `before` is called before each
/// size; its error ends the work.
pub fn lane_times(
    lanes: &[Lane],
    precision: Precision,
    sizes: &[usize],
    counts: &[usize],
    effort: Effort,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<SizeTimes>> {
    match precision {
        Precision::F64 => run::<f64>(lanes, sizes, counts, effort, before),
        Precision::F32 => run::<f32>(lanes, sizes, counts, effort, before),
    }
}

fn run<T: Number>(
    lanes: &[Lane],
    sizes: &[usize],
    counts: &[usize],
    effort: Effort,
    before: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<SizeTimes>> {
    let Some(&largest) = sizes.last() else { return Ok(Vec::new()) };
    let mut plan = Plan::<T>::new(&lanes[..1], largest, 1, false)?;
    // The first rows of a dominant system are one again.
    let inputs = plan.inputs();
    let wave = |i: usize, k: u32| T::of(((i as u32).wrapping_mul(0x9E37_79B9) >> k & 0xFF) as f64 / 256.0);
    for (array, k) in [(inputs.dl, 3), (inputs.du, 11), (inputs.b, 19)] {
        array.par_iter_mut().enumerate().for_each(|(i, v)| *v = wave(i, k));
    }
    inputs.d.par_iter_mut().for_each(|d| *d = T::of(3.0));
    let mut all = Vec::new();
    for &n in sizes {
        before(n)?;
        plan.reshape(&lanes[..1], n)?;
        plan.solve_by_stages(Send::All)?;
        let stages: Vec<StageTimes> = (0..STAGED)
            .map(|_| plan.solve_by_stages(Send::All).map(|s| milliseconds(&s)))
            .collect::<Result<_>>()?;
        let mut now = 1;
        let runs = measure(counts, effort, &mut |count| {
            if count != now {
                plan.reshape(&lanes[..count], n)?;
                now = count;
            }
            plan.solve(Send::All).map(|stages| stages.total)
        })?;
        check(&plan)?;
        all.push(SizeTimes { n, stages: median_stages(&stages), runs });
    }
    Ok(all)
}

/// Measures `system` on each of `counts` lanes, one lane first; and the relative residual of what came out, the largest
/// of all counts.
pub fn system_lane_times(
    lanes: &[Lane],
    precision: Precision,
    system: &System,
    counts: &[usize],
    effort: Effort,
) -> Result<(Vec<LaneTime>, f64)> {
    match precision {
        Precision::F64 => system_times::<f64>(lanes, system, counts, effort),
        Precision::F32 => system_times::<f32>(lanes, system, counts, effort),
    }
}

fn system_times<T: Number>(
    lanes: &[Lane],
    system: &System,
    counts: &[usize],
    effort: Effort,
) -> Result<(Vec<LaneTime>, f64)> {
    system.check()?;
    let [b, ..] = &system.b[..] else {
        return Err(Error::Invalid("a system without a right-hand side cannot be timed".to_owned()));
    };
    let mut plan = Plan::<T>::new(&lanes[..1], system.n, system.batch, system.cyclic)?;
    let inputs = plan.inputs();
    for (from, to) in [(&system.dl, inputs.dl), (&system.d, inputs.d), (&system.du, inputs.du), (b, inputs.b)]
    {
        convert(from, to);
    }
    let (mut now, mut solved, mut worst) = (1, false, 0.0f64);
    let mut x = vec![0.0; system.rows()];
    let runs = measure(counts, effort, &mut |count| {
        if count != now {
            if solved {
                convert(plan.x(), &mut x);
                worst = worst.max(system.residual(b, &x, &mut []).normwise);
            }
            plan.relane(&lanes[..count])?;
            (now, solved) = (count, false);
        }
        let stages = plan.solve(Send::All)?;
        solved = true;
        Ok(stages.total)
    })?;
    convert(plan.x(), &mut x);
    Ok((runs, worst.max(system.residual(b, &x, &mut []).normwise)))
}

fn milliseconds(s: &Stages) -> StageTimes {
    StageTimes {
        h2d_1: 1e3 * s.upload,
        comp_1: 1e3 * s.reduce,
        d2h_1: 1e3 * s.units_down,
        stage_2: 1e3 * s.interface,
        h2d_3: 1e3 * s.ends_up,
        comp_3: 1e3 * s.solve,
        d2h_3: 1e3 * s.download,
    }
}

/// An error if what was timed does not solve the system. A row is 3 on the diagonal and two neighbours below 1, so that
/// no unknown exceeds 1, and a residual is a dozen roundings of terms that are 5 together.
fn check<T: Number>(plan: &Plan<'_, T>) -> Result<()> {
    let (x, [dl, d, du, b]) = (plan.x(), plan.given());
    let epsilon = match T::PRECISION {
        Precision::F64 => f64::EPSILON,
        Precision::F32 => f64::from(f32::EPSILON),
    };
    let residual = |i: usize| {
        let term = |a: T, j: Option<usize>| j.and_then(|j| x.get(j)).map_or(0.0, |x| a.wide() * x.wide());
        term(dl[i], i.checked_sub(1)) + term(d[i], Some(i)) + term(du[i], Some(i + 1)) - b[i].wide()
    };
    let wrong = |&i: &usize| residual(i).is_nan() || residual(i).abs() > 64.0 * epsilon;
    match (0..x.len()).into_par_iter().find_first(wrong) {
        None => Ok(()),
        Some(i) => Err(Error::Device(format!(
            "row {i} of {} is left with the residual {:e}; do not trust this device or its driver",
            x.len(),
            residual(i)
        ))),
    }
}
