//! Walks straight from A in compressed rows, without a table, an order, sweeps or a certificate: what they cost does not
//! depend on the size of the system. What is known of L is what the rows that walks met say; their intervals are
//! conditional on the others being no worse.

mod kernel;
mod view;

use std::cell::Cell;
use std::time::Instant;

pub(crate) use kernel::WALK_LAZY;
use kernel::{LazyTables, sums};
use view::{ObservedNorms, SystemView, least_in_f32, pilot_exponent, pilot_norms};

use super::certificate::Certificate;
use super::control::ControlVariate;
use super::interval::unseen;
use super::kernels::BLOCK;
use super::launcher::{Launcher, Watch};
use super::options::{MOST_LENGTH, Options, Problem};
use super::published::{self, Length};
use super::run::{BatchResult, Run};
use super::sampling::{AdaptiveSampling, RunningEstimate};
use super::sequence::{PointSource, Points, Sequence};
use super::solution::{Bound, Component, Solution};
use super::splitting::{Splitting, powers_of_two};
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::number::times_power_of_two;
use crate::{Error, Result};

/// [`solve`](super::solve()) without any preparation.
pub(super) fn solve(mut run: Run<'_>, watch: Watch<'_>) -> Result<Solution> {
    let Run { machine, problem, options, .. } = run;
    let precision = machine.precision;
    let given = check(problem, options)?;
    // Below 2^−126 numbers of f32 have gaps of 2^−149; those of the right-hand side may lie there.
    let underflow = match precision {
        Precision::F32 => f64::from(f32::from_bits(1)) / least_in_f32(problem.matrix)?,
        Precision::F64 | Precision::Q64 => 0.0,
    };
    let view = SystemView { matrix: problem.matrix, rhs: &problem.rhs[0], given, powers: [1.0; 3] };
    let exponent = pilot_exponent(&view, problem.components, options.seed)?;
    let view = SystemView { powers: powers_of_two(-exponent), ..view };
    let known = pilot_norms(&view, problem.components, options.seed)?;
    let (epsilon, length, cut) = target(options, known, exponent)?;
    let per_replicate = run.points(|_| published::chains(epsilon, known.f, known.norm))?;
    let points = Points::new(options.sequence, run.scramble, length, options.seed)?;
    if !matches!(options.sequence, Sequence::Sobol | Sequence::Philox) {
        return Err(Error::Invalid(format!(
            "--lazy makes the points of sobol and philox as it goes; {} needs a buffer of them",
            options.sequence
        )));
    }
    let source = PointSource::by_access(points.clone());
    let at = Instant::now();
    let tables = |lane: &Lane| LazyTables::new(lane, precision, view, &points);
    let launcher = Launcher::new(machine, &source, tables)?;
    let upload = at.elapsed().as_secs_f64();

    let wanted = options.epsilon.unwrap_or_else(|| times_power_of_two(epsilon, exponent));
    let observed = Cell::new(known);
    let bounds = ConditionalBounds { run: &run, given, underflow, length, cut };
    let most = (per_replicate.1 * u64::from(run.replicates)) as f64;
    let sampling = AdaptiveSampling {
        run: &run,
        rows: problem.components,
        rhs: 1,
        columns: 1,
        points: per_replicate,
        length,
        cut,
    };
    let walked = sampling.run(
        |tasks, round, watch| {
            let (sums, here) = sums(&launcher, tasks, round, watch)?;
            observed.set(observed.get().and(here));
            Ok(sums)
        },
        |_, estimate| {
            let c = bounds.component(observed.get(), estimate);
            c.settled(epsilon, || unseen(range(observed.get(), c.estimate), most, options.confidence))
        },
        |_, estimate| {
            let c = bounds.component(observed.get(), estimate).times_power_of_two(exponent)?;
            Ok(Component { epsilon: wanted, ..c })
        },
        watch,
    )?;
    let result = BatchResult { tabled: source.tabled(), upload, ..walked };
    let splitting = if given { Splitting::Given } else { Splitting::Jacobi };
    // Nothing is certified: the norm is that of rows that were met.
    let (norm, vector, scaled) = (observed.get().norm, None, false);
    let observed = Certificate { splitting, row_norm: norm, worst_row: 0, vector, scaled, norm, products: 0 };
    Ok(run.finish(&observed, result))
}

/// Whether the matrix is L itself; an error for what lazy walks have no answer to.
fn check(problem: &Problem<'_>, options: &Options) -> Result<bool> {
    let fail = |reason: String| Err(Error::Invalid(reason));
    let (n, columns, sides) = (problem.matrix.rows(), problem.matrix.columns(), problem.rhs.len());
    if n != columns {
        return fail(format!("the matrix has {n} rows and {columns} columns; give a square one"));
    }
    if !problem.functionals.is_empty() {
        return fail("--lazy walks for components alone; leave out --lazy or --functional".to_owned());
    }
    if sides != 1 {
        return fail(format!("--lazy walks for one right-hand side, not {sides}"));
    }
    let entries = problem.rhs[0].len();
    if entries != n {
        return fail(format!(
            "the right-hand side has {entries} entries and the matrix {n} rows; give as many"
        ));
    }
    let given = match options.splitting {
        Splitting::Auto | Splitting::Jacobi => false,
        Splitting::Given => true,
        other => return fail(format!("--lazy has the splittings jacobi and given, not {other}")),
    };
    if !matches!(options.control, ControlVariate::Auto | ControlVariate::Sweeps(0)) {
        let asked = options.control;
        return fail(format!(
            "--lazy prepares nothing, and --control {asked} is asked for; leave out one of them"
        ));
    }
    if options.grid.is_some() || options.ahead {
        return fail("--lazy walks in blocks of its own; leave out --groups and --points-ahead".to_owned());
    }
    Ok(given)
}

/// ε of a system over 2^exponent, the steps of its walks at most, and the weight at which they end.
fn target(options: &Options, known: ObservedNorms, exponent: i32) -> Result<(f64, u32, f32)> {
    let fail = |reason: String| Err(Error::Invalid(reason));
    if known.norm >= 1.0 && !matches!(options.length, Length::Steps(_)) {
        return fail(format!(
            "walks met a row sum of |L| of {}: nothing says where they may end; give their length with --length, or \
             leave out --lazy, which looks for a proof that they converge",
            known.norm
        ));
    }
    let scaled = |x: f64| times_power_of_two(x, -exponent).clamp(f64::MIN_POSITIVE, f64::MAX);
    let default = if known.f > 0.0 { 1e-3 * known.most() } else { 1e-3 };
    let epsilon = options.epsilon.map_or(if default.is_finite() { default } else { 1e-3 * known.f }, scaled);
    let delta = options.delta.map_or(0.1 * epsilon, scaled);
    let share = (delta / known.most()).min(0.5) as f32;
    let (length, cut) = match options.length {
        Length::Steps(length) => (f64::from(length), 0.0),
        _ if known.f == 0.0 => (0.0, 0.0),
        _ if known.norm == 0.0 => (1.0, 0.0),
        Length::Bound => (published::length(delta, known.f, known.norm), share),
        Length::Printed => (published::length_as_printed(delta, known.f, known.norm), share),
    };
    if length > f64::from(MOST_LENGTH) {
        return fail(format!(
            "chains of {length} steps, more than {MOST_LENGTH}; give a larger --epsilon or a --length"
        ));
    }
    Ok((epsilon, length as u32, cut))
}

/// Bounds that hold if no row is worse than those that walks met.
struct ConditionalBounds<'a> {
    run: &'a Run<'a>,
    given: bool,
    length: u32,
    cut: f32,
    /// Relative error of numbers of f32 that are too small for all of their digits.
    underflow: f64,
}

impl ConditionalBounds<'_> {
    /// A component of the scaled system.
    fn component(&self, observed: ObservedNorms, estimate: &RunningEstimate) -> Component {
        let confidence = self.run.options.confidence;
        let (value, student) = estimate.interval(0, 0.0, 1.0, confidence);
        // Where time was up chains have taken no step.
        let length = self.length.min(estimate.length);
        // Walks without a choice are all the same.
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

    /// Bounds of truncation and rounding.
    fn certain(&self, observed: ObservedNorms, points: u64, length: u32) -> (f64, f64) {
        let u = self.run.machine.precision.unit_roundoff();
        let u64 = Precision::F64.unit_roundoff();
        let (rho, sum, d) = (observed.norm, observed.most(), observed.longest);
        if rho >= 1.0 {
            return (f64::INFINITY, f64::INFINITY);
        }
        let steps = f64::from(length);
        let slack = (d + 4.0) * u * steps + (steps + 16.0) * f64::EPSILON;
        let tail = rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
        let truncation = sum * f64::from(self.cut).max(tail) * (1.0 + slack);
        // f, and what adds it up: a chain, a block, blocks on the host and replicates.
        let host = points as f64 / BLOCK as f64 + f64::from(self.run.replicates) + 8.0;
        let adding = (steps + 13.0) * u + host * u64 + self.underflow;
        // A row of L: its entries, their sum and its quotient; and probabilities, which end where sums of up to d entries
        // exceed a number of 32 bits times all of them.
        let row = (d + 5.0) * u + d * (d + 11.0) * u + d / 4_294_967_296.0;
        (truncation, sum * (adding + row / (1.0 - rho)))
    }
}

/// How far what a walk adds up lies from its mean at most.
fn range(observed: ObservedNorms, estimate: f64) -> f64 {
    observed.most() + estimate.abs()
}
