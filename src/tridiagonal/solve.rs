//! One call: systems in, unknowns out, with the proof of how well they solve them.

use std::time::Instant;

use serde::Serialize;

use super::kernels::NOT_DOMINANT;
use super::pivot;
use super::plan::{Plan, Send, Stages, convert};
use super::system::{Residual, System};
use super::unit::Number;
use crate::Result;
use crate::kernel::Precision;
use crate::lane::Lane;

/// Which rows may be exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pivot {
    /// None.
    None,
    /// Scaled partial pivoting.
    Scaled,
    /// None where stage 1 finds every row dominant, |d| ≥ |dl| + |du|, and scaled partial pivoting otherwise.
    #[default]
    Auto,
}

/// How many corrections follow a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refine {
    /// While the residual is above what double precision can hold, and falls.
    #[default]
    Auto,
    /// So many.
    Steps(u32),
}

/// Where the interface system is solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interface {
    /// On the host, by one sweep.
    Host,
    /// On the device, by the same method.
    Device,
    /// Where it is faster.
    #[default]
    Auto,
}

/// Settings of [`solve`].
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Rows of a block that one thread eliminates; `None`: tiles of 2048 rows that a workgroup shares.
    pub block: Option<usize>,
    /// Where the interface system is solved.
    pub interface: Interface,
    /// Rows that may be exchanged.
    pub pivot: Pivot,
    /// Corrections.
    pub refine: Refine,
    /// Relative residual that counts as met.
    pub tolerance: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block: None,
            interface: Interface::Auto,
            pivot: Pivot::Auto,
            refine: Refine::Auto,
            tolerance: 1e-12,
        }
    }
}

/// How a solution ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The relative residual is within the tolerance.
    Met,
    /// It is not.
    NotMet,
}

/// What solved a system in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The partition method without pivoting.
    Partition,
    /// The partition method with scaled partial pivoting.
    Pivoted,
    /// Elimination with partial pivoting on the host.
    Host,
}

/// Unknowns and what is known of them.
#[derive(Debug, Clone)]
pub struct Solution {
    /// Unknowns, for each right-hand side as many as rows.
    pub x: Vec<Vec<f64>>,
    /// Whether the residual is within the tolerance.
    pub status: Status,
    /// Residual of x.
    pub residual: Residual,
    /// max |x| / max |b|: how much larger the unknowns are than the right-hand sides.
    pub growth: f64,
    /// Whether every row is dominant.
    pub dominant: bool,
    /// Pivots that were next to nothing against their row, in the partition method.
    pub small_pivots: u32,
    /// The system and row where the matrix was found singular.
    pub singular: Option<(usize, usize)>,
    /// Rows of a block or tile.
    pub block: usize,
    /// Where the interface system was solved.
    pub interface: Interface,
    /// What solved it.
    pub method: Method,
    /// Corrections made, the largest number of all right-hand sides.
    pub refinements: u32,
    /// Stages of the first solution.
    pub stages: Stages,
    /// Bytes on the devices.
    pub device_bytes: u64,
    /// Chunks that the rows were cut into.
    pub chunks: usize,
    /// Seconds of all solutions, without residuals.
    pub solve_seconds: f64,
}

/// Corrections at most, where nobody says how many.
const MOST_CORRECTIONS: u32 = 12;

/// Solves systems on lanes of one precision.
///
/// # Errors
/// [`crate::Error::Invalid`] for numbers that are not finite; devices' errors. A matrix that is singular is an
/// outcome.
pub fn solve(lanes: &[Lane], precision: Precision, system: &System, options: &Options) -> Result<Solution> {
    system.check()?;
    match precision {
        Precision::F64 => run::<f64>(lanes, system, options),
        Precision::F32 => run::<f32>(lanes, system, options),
    }
}

/// The systems that one plan takes at a time: all of them, but for cyclic ones, which close a ring each.
fn parts(system: &System) -> (usize, usize) {
    if system.cyclic { (1, system.batch) } else { (system.batch, 1) }
}

fn run<T: Number>(lanes: &[Lane], system: &System, options: &Options) -> Result<Solution> {
    let (batch, times) = parts(system);
    let mut plan = Plan::<T>::new(lanes, system.n, batch, system.cyclic)?;
    let (mut flags, mut stages, mut seconds) = (0, Stages::default(), 0.0);
    let mut x: Vec<Vec<f64>> = vec![vec![0.0; system.rows()]; system.b.len()];
    let mut residual = Residual::default();
    let mut refinements = 0;
    let mut r = vec![0.0; plan.rows()];
    for part in 0..times {
        let here = part * plan.rows()..(part + 1) * plan.rows();
        let own = if times == 1 { None } else { Some(system.part(here.clone())) };
        let own = own.as_ref().unwrap_or(system);
        let inputs = plan.inputs();
        convert(&own.dl, inputs.dl);
        convert(&own.d, inputs.d);
        convert(&own.du, inputs.du);
        for (k, (b, x)) in own.b.iter().zip(&mut x).enumerate() {
            let x = &mut x[here.clone()];
            convert(b, plan.inputs().b);
            let at = Instant::now();
            let first = plan.solve(if k == 0 { Send::All } else { Send::RightHandSide })?;
            seconds += at.elapsed().as_secs_f64();
            if k == 0 {
                flags = super::kernels::both(flags, plan.flags()?);
                if part == 0 {
                    stages = first;
                }
                if options.pivot == Pivot::Scaled || (options.pivot == Pivot::Auto && flags != 0) {
                    break;
                }
            }
            convert(plan.x(), x);
            let (found, steps) = refine(&mut plan, own, b, x, &mut r, options, &mut seconds)?;
            residual = residual.max(found);
            refinements = refinements.max(steps);
        }
    }
    let pivoted = match options.pivot {
        Pivot::Scaled => true,
        Pivot::Auto => flags != 0 || residual.normwise > options.tolerance,
        Pivot::None => flags & !NOT_DOMINANT != 0 && !(residual.normwise <= options.tolerance),
    };
    let mut singular = None;
    if pivoted {
        let at = Instant::now();
        let solved = lanes[0].host(|| pivot::solve(system, &system.b));
        match solved {
            Ok(solved) => x = solved,
            Err(place) => {
                singular = Some(place);
                x.iter_mut().for_each(|x| x.fill(f64::NAN));
            }
        }
        seconds += at.elapsed().as_secs_f64();
        residual = lanes[0].host(|| {
            let residuals = system.b.iter().zip(&x).map(|(b, x)| system.residual(b, x, &mut []));
            residuals.fold(Residual::default(), Residual::max)
        });
        refinements = 0;
    }
    let largest =
        |v: &[Vec<f64>]| v.iter().flatten().fold(0.0f64, |m, v| if v.abs() > m { v.abs() } else { m });
    let (xs, bs) = (largest(&x), largest(&system.b));
    Ok(Solution {
        status: if residual.normwise <= options.tolerance && singular.is_none() {
            Status::Met
        } else {
            Status::NotMet
        },
        residual,
        growth: if bs > 0.0 { xs / bs } else { 0.0 },
        dominant: flags & NOT_DOMINANT == 0,
        small_pivots: flags & !NOT_DOMINANT,
        singular,
        block: options.block.unwrap_or(super::kernels::TILE),
        interface: Interface::Device,
        method: if pivoted { Method::Host } else { Method::Partition },
        refinements,
        stages,
        device_bytes: plan.device_bytes(),
        chunks: plan.chunks(),
        solve_seconds: seconds,
        x,
    })
}

/// Corrects x by solutions for the residual, which is computed in double precision, and gives what is left of it.
fn refine<T: Number>(
    plan: &mut Plan<'_, T>,
    system: &System,
    b: &[f64],
    x: &mut [f64],
    r: &mut [f64],
    options: &Options,
    seconds: &mut f64,
) -> Result<(Residual, u32)> {
    let mut residual = system.residual(b, x, r);
    let (most, goal) = match options.refine {
        Refine::Auto => (MOST_CORRECTIONS, 2.0 * f64::EPSILON),
        Refine::Steps(steps) => (steps, 0.0),
    };
    let mut steps = 0;
    let mut better = vec![];
    while steps < most && residual.normwise > goal {
        // A power of two brings the residual into the range of single precision, without rounding.
        let largest = r.iter().fold(0.0f64, |m, v| if v.abs() > m { v.abs() } else { m });
        if !(largest > 0.0 && largest.is_finite()) {
            break;
        }
        let scale = (-largest.log2().floor()).exp2();
        r.iter_mut().for_each(|r| *r *= scale);
        convert(r, plan.inputs().b);
        let at = Instant::now();
        plan.solve(Send::RightHandSide)?;
        *seconds += at.elapsed().as_secs_f64();
        better.clear();
        better.extend(x.iter().zip(plan.x()).map(|(x, e)| x + e.wide() / scale));
        let next = system.residual(b, &better, r);
        // Less than half a step's work is a sign that rounding has the last word.
        if options.refine == Refine::Auto && !(next.normwise < 0.5 * residual.normwise) {
            if next.normwise < residual.normwise {
                x.copy_from_slice(&better);
                residual = next;
                steps += 1;
            }
            break;
        }
        x.copy_from_slice(&better);
        residual = next;
        steps += 1;
    }
    Ok((residual, steps))
}
