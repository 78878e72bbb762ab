//! Lazy walks, which read A in compressed rows without any preparation.
//!
//! They use no table, row order, sweeps or certificate, so that their cost does not depend on the
//! size of the system. Only the rows that walks met are known. The intervals are conditional on all
//! other rows being no worse.

mod functional;
mod kernel;
mod observed;

use std::cell::Cell;
use std::time::Instant;

use functional::Start;
pub(crate) use kernel::WALK_LAZY;
use kernel::{LazyTables, sums};
use observed::{ObservedNorms, SystemView, least_in_f32, pilot_exponent, pilot_norms};

use super::confidence::unseen;
use super::context::{BatchResult, Run};
use super::convergence::certificate::Certificate;
use super::error::a_priori;
use super::options::{ControlVariate, Length, MOST_LENGTH, Options, Problem, Splitting};
use super::sampling::adaptive::{AdaptiveSampling, RunningEstimate};
use super::sampling::kernels::BLOCK;
use super::sampling::launcher::Launcher;
use super::sequence::{PointSource, Points, Sequence};
use super::solution::{Bound, Component, Quantity, Solution};
use super::splitting::powers_of_two;
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::util::quantity::times_power_of_two;
use crate::{Invalid, Progress, Result};

/// Estimates as [`solve`](super::solve()) does, but without preparation.
pub(super) fn solve(mut run: Run<'_>, watch: &mut dyn Progress) -> Result<Solution> {
    let Run { machine, problem, options, .. } = run;
    let precision = machine.precision;
    let given = check(problem, options)?;
    let (starts, extended) = functional::starts(problem, given)?;
    let (matrix, rhs) = match &extended {
        Some(extended) => (&extended.matrix, &extended.rhs[..]),
        None => (problem.matrix, &problem.rhs[0][..]),
    };
    // Below 2^−126 f32 has gaps of 2^−149; entries of the right-hand side may be that small.
    let underflow = match precision {
        Precision::F32 => f64::from(f32::from_bits(1)) / least_in_f32(matrix)?,
        Precision::F64 | Precision::Q64 => 0.0,
    };
    let view = SystemView { matrix, rhs, given, powers: [1.0; 3] };
    let rows: Vec<u32> = starts.iter().flat_map(|start| start.rows.iter().copied()).collect();
    let exponent = pilot_exponent(&view, &rows, options.seed)?;
    let view = SystemView { powers: powers_of_two(-exponent), ..view };
    let known = pilot_norms(&view, &rows, options.seed)?;
    let limits: Vec<WalkLimits> =
        starts.iter().map(|start| WalkLimits::new(options, start, known, exponent)).collect::<Result<_>>()?;
    let chains = |limits: &WalkLimits| a_priori::chains(limits.epsilon, known.f, known.norm);
    let per_replicate = run.points(|_| limits.iter().map(chains).fold(0.0, f64::max))?;
    let dimensions = limits.iter().map(WalkLimits::steps).max().expect("at least one quantity");
    let points = Points::new(options.sequence, run.scramble, dimensions, options.seed)?;
    if !matches!(options.sequence, Sequence::Sobol | Sequence::Philox) {
        return Invalid::Unsupported.fail(format!(
            "sequence {} is not supported with `lazy`, which computes points as needed: expected \
             sobol or philox",
            options.sequence
        ));
    }
    let source = PointSource::by_access(points.clone());
    let at = Instant::now();
    let tables = |lane: &Lane| LazyTables::new(lane, precision, view, &points);
    let launcher = Launcher::new(machine, &source, tables)?;
    let upload = at.elapsed().as_secs_f64();

    let observed = Cell::new(known);
    let most = (per_replicate.1 * u64::from(run.replicates)) as f64;
    let mut result = BatchResult { tabled: source.tabled(), upload, ..BatchResult::default() };
    for (limits, start) in limits.iter().zip(&starts) {
        let bounds = ConditionalBounds { run: &run, given, underflow, limits };
        let sampling = AdaptiveSampling {
            run: &run,
            rows: &start.rows,
            rhs: 1,
            columns: 1,
            points: per_replicate,
            length: limits.steps(),
            cut: limits.cut * 0.5f32.powi(limits.levels as i32),
        };
        result.add(sampling.run(
            |tasks, round, watch| {
                let (sums, here) = sums(&launcher, tasks, round, watch)?;
                observed.set(observed.get().and(here));
                Ok(sums)
            },
            |_, estimate| {
                let c = bounds.component(observed.get(), estimate);
                c.settled(limits.epsilon, || {
                    unseen(range(observed.get(), c.estimate), most, options.confidence)
                })
            },
            |_, estimate| limits.unscaled(bounds.component(observed.get(), estimate), start, exponent),
            watch,
        )?);
    }
    let splitting = if given { Splitting::Given } else { Splitting::Jacobi };
    // No certificate: the norm is the largest one of the rows met.
    Ok(run.finish(&Certificate::of_norm(splitting, observed.get().norm, 0), result))
}

/// Returns true if the matrix is L itself, or an error for options that lazy walks do not support.
fn check(problem: &Problem<'_>, options: &Options) -> Result<bool> {
    let (n, columns, sides) = (problem.matrix.rows(), problem.matrix.columns(), problem.rhs.len());
    if n != columns {
        return Invalid::Shape
            .fail(format!("{n} rows and {columns} columns of the matrix: expected a square matrix"));
    }
    if sides != 1 {
        return Invalid::Unsupported
            .fail(format!("{sides} right-hand sides are not supported with `lazy`: expected one"));
    }
    let entries = problem.rhs[0].len();
    if entries != n {
        return Invalid::Shape.fail(format!(
            "the right-hand side has {entries} entries, but the matrix {n} rows: expected equal \
             numbers"
        ));
    }
    let (splitting, asked) = (options.splitting, options.control);
    if !matches!(splitting, Splitting::Auto | Splitting::Jacobi | Splitting::Given) {
        return Invalid::Argument("splitting")
            .fail(format!("`splitting` {splitting} is not supported with `lazy`: expected jacobi or given"));
    }
    if !matches!(asked, ControlVariate::Auto | ControlVariate::Sweeps(0)) {
        return Invalid::Argument("control").fail(format!(
            "`control` {asked} is not supported with `lazy`, which prepares nothing; leave out one \
             of them"
        ));
    }
    if options.grid.is_some() || options.ahead {
        return Invalid::Argument("groups")
            .fail("`groups` and `points_ahead` are not supported with `lazy`; leave them out");
    }
    Ok(splitting == Splitting::Given)
}

/// Limits of walks from a start: ε, length and smallest weight.
struct WalkLimits {
    /// ε of a component or of a functional's mean, in the system scaled by 2^−exponent.
    epsilon: f64,
    /// Requested or default ε, in the units of the caller.
    wanted: f64,
    levels: u32,
    /// Largest number of steps through the system, and the weight at which walks end.
    length: u32,
    cut: f32,
}

impl WalkLimits {
    fn new(options: &Options, start: &Start, known: ObservedNorms, exponent: i32) -> Result<Self> {
        if known.norm >= 1.0 && !matches!(options.length, Length::Steps(_)) {
            return Invalid::TooLarge.fail(format!(
                "walks met a row sum of |L| of {}, which gives no bound of their length; set \
                 `length`, or leave out `lazy` to prove their convergence",
                known.norm
            ));
        }
        let scaled = |x: f64| {
            let of_mean = times_power_of_two(start.of_mean(x), -exponent);
            of_mean.clamp(f64::MIN_POSITIVE, f64::MAX)
        };
        let default = if known.f > 0.0 { 1e-3 * known.most() } else { 1e-3 };
        let default = if default.is_finite() { default } else { 1e-3 * known.f };
        let epsilon = options.epsilon.map_or(default, scaled);
        let of_default = times_power_of_two(default * start.norm, exponent + start.exponent);
        let delta = options.delta.map_or(0.1 * epsilon, scaled);
        let share = (delta / known.most()).min(0.5) as f32;
        let (length, cut) = match options.length {
            Length::Steps(length) => (f64::from(length), 0.0),
            _ if known.f == 0.0 => (0.0, 0.0),
            _ if known.norm == 0.0 => (1.0, 0.0),
            Length::Bound => (a_priori::length(delta, known.f, known.norm), share),
            Length::Printed => (a_priori::length_as_printed(delta, known.f, known.norm), share),
        };
        if length > f64::from(MOST_LENGTH - start.levels) {
            return Invalid::TooLarge.fail(format!(
                "chains of {length} steps are out of range: expected at most {MOST_LENGTH}; give a \
                 larger `epsilon` or a `length`"
            ));
        }
        let wanted = options.epsilon.unwrap_or(of_default);
        Ok(Self { epsilon, wanted, levels: start.levels, length: length as u32, cut })
    }

    /// Largest number of steps of a walk.
    fn steps(&self) -> u32 {
        self.length + self.levels
    }

    /// Converts an estimate of the scaled system to the units of the caller.
    fn unscaled(&self, c: Component, start: &Start, exponent: i32) -> Result<Component> {
        let c = Component { epsilon: self.wanted, ..c };
        let Some(component) = start.functional else { return c.times_power_of_two(exponent) };
        let Bound { statistical, truncation, rounding } = c.bound;
        // The product is rounded, as are the sums of the norm, several per level.
        let off = (20.0 * f64::from(self.levels) + 4.0) * f64::EPSILON;
        let times = |x: f64| x * start.norm * (1.0 + off);
        let rounding = times(rounding + off * c.estimate.abs());
        let bound = Bound { statistical: times(statistical), truncation: times(truncation), rounding };
        let (quantity, estimate) = (Quantity::Functional, c.estimate * start.norm);
        Component { quantity, component, estimate, bound, ..c }.times_power_of_two(exponent + start.exponent)
    }
}

/// Error bounds that hold if no row is worse than those that walks met.
struct ConditionalBounds<'a> {
    run: &'a Run<'a>,
    given: bool,
    limits: &'a WalkLimits,
    /// Relative error of f32 numbers below the normal range.
    underflow: f64,
}

impl ConditionalBounds<'_> {
    /// Returns a component of the scaled system, or the mean of a functional, with its bounds.
    fn component(&self, observed: ObservedNorms, estimate: &RunningEstimate) -> Component {
        let confidence = self.run.options.confidence;
        let (value, student) = estimate.interval(0, 0.0, f64::from(self.limits.levels).exp2(), confidence);
        // Chains have no step if the time limit came before them.
        let length = self.limits.steps().min(estimate.length);
        // If no row offers a choice, all walks are equal.
        let statistical = match length > 0 && observed.longest > if self.given { 1.0 } else { 2.0 } {
            true => student.max(unseen(range(observed, value), estimate.chains() as f64, confidence)),
            false => 0.0,
        };
        let (truncation, rounding) = match observed.f {
            0.0 => (0.0, 0.0),
            _ => self.certain(observed, estimate.points, length),
        };
        estimate.component(value, Bound { statistical, truncation, rounding }, length)
    }

    /// Returns bounds of truncation and rounding.
    fn certain(&self, observed: ObservedNorms, points: u64, length: u32) -> (f64, f64) {
        let u = self.run.machine.precision.unit_roundoff();
        let u64 = Precision::F64.unit_roundoff();
        let (rho, sum, d) = (observed.norm, observed.most(), observed.longest);
        if rho >= 1.0 {
            return (f64::INFINITY, f64::INFINITY);
        }
        let (steps, levels) = (f64::from(length), self.limits.levels);
        let slack = (d + 4.0) * u * steps + (steps + 16.0) * f64::EPSILON;
        // Steps through the system: a walk that ends before it has none, and is all truncation.
        let tail = match length.checked_sub(levels) {
            Some(inside) => rho.powi(inside.saturating_add(1).min(i32::MAX as u32) as i32),
            None => 1.0,
        };
        let truncation = sum * f64::from(self.limits.cut).max(tail) * (1.0 + slack);
        // Rounding of f and of the sums: over a chain, a block, blocks on the host, and replicates.
        let host = points as f64 / BLOCK as f64 + f64::from(self.run.replicates) + 8.0;
        let adding = (steps + 13.0) * u + host * u64 + self.underflow;
        // A row of L: its entries, their sum and its quotient. Probabilities are compared as sums
        // of up to d entries with a 32-bit number times the whole sum.
        let row = (d + 5.0) * u + d * (d + 11.0) * u + d / 4_294_967_296.0;
        (truncation, sum * (adding + row / (1.0 - rho) + row * f64::from(levels)))
    }
}

/// Upper bound of the distance between a walk's sum and its mean.
fn range(observed: ObservedNorms, estimate: f64) -> f64 {
    observed.most() + estimate.abs()
}
