//! Components by walks straight from A.

use std::time::Instant;

use super::chains::{Round, Task};
use super::control::Sweeps;
use super::growth::{Growing, Growth};
use super::lazy::{self, LazyChains, Rough};
use super::options::{MOST_LENGTH, Options, Problem, points, replicates};
use super::published::{self, Length};
use super::sequence::Points;
use super::solution::{Bound, Component, Seconds, Solution, largest};
use super::splitting::Splitting;
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::transient::Status;
use crate::{Error, Result};

/// [`solve`](super::solve()) without any preparation.
pub(super) fn unprepared(
    lanes: &[Lane],
    precision: Precision,
    problem: &Problem<'_>,
    options: &Options,
    watch: &mut (dyn FnMut(u64, u64) -> Result<()> + Send),
) -> Result<Solution> {
    let started = Instant::now();
    let fail = |reason: String| Err(Error::Invalid(reason));
    let n = problem.matrix.rows();
    if n != problem.matrix.columns() {
        return fail(format!(
            "the matrix has {n} rows and {} columns; give a square one",
            problem.matrix.columns()
        ));
    }
    let [rhs] = problem.rhs else {
        return fail(format!("--lazy walks for one right-hand side, not {}", problem.rhs.len()));
    };
    if rhs.len() != n {
        return fail(format!(
            "the right-hand side has {} entries and the matrix {n} rows; give as many",
            rhs.len()
        ));
    }
    let given = match options.splitting {
        Splitting::Auto | Splitting::Jacobi => false,
        Splitting::Given => true,
        other => return fail(format!("--lazy has the splittings jacobi and given, not {other}")),
    };
    if let Sweeps::Fixed(k @ 1..) = options.sweeps {
        return fail(format!("--lazy prepares nothing, and {k} sweeps are asked for; leave out one of them"));
    }
    if options.grid.is_some() || options.ahead {
        return fail("--lazy walks in blocks of its own; leave out --groups and --points-ahead".to_owned());
    }
    let rough = Rough { matrix: problem.matrix, rhs, given };
    let mut met = lazy::scout(&rough, problem.components, options.seed)?;
    let mut warnings = vec![
        "nothing is known of rows that no walk met: the intervals hold if their row sums of |L| and their |f| are no \
         larger than those that were met"
            .to_owned(),
    ];
    let (scramble, replicates) = replicates(options, &mut warnings);
    if met.norm >= 1.0 && !matches!(options.length, Length::Steps(_)) {
        return fail(format!(
            "walks met a row sum of |L| of {}: nothing says where they may end; give their length with --length, or leave \
             out --lazy, which looks for a proof that they converge",
            met.norm
        ));
    }
    let scale = |met: lazy::Met| if met.norm < 1.0 { met.f / (1.0 - met.norm) } else { f64::INFINITY };
    let default = if met.f > 0.0 { 1e-3 * scale(met) } else { 1e-3 };
    let epsilon = options.epsilon.unwrap_or(if default.is_finite() { default } else { 1e-3 * met.f });
    let delta = options.delta.unwrap_or(0.1 * epsilon);
    let share = (delta / scale(met)).min(0.5) as f32;
    let (length, cut) = match options.length {
        Length::Steps(length) => (f64::from(length), 0.0),
        _ if met.f == 0.0 => (0.0, 0.0),
        _ if met.norm == 0.0 => (1.0, 0.0),
        Length::Bound => (published::length(delta, met.f, met.norm), share),
        Length::Printed => (published::length_as_printed(delta, met.f, met.norm), share),
    };
    if length > f64::from(MOST_LENGTH) {
        return fail(format!(
            "chains of {length} steps, more than {MOST_LENGTH}; give a larger --epsilon or a --length"
        ));
    }
    let by_norm = |_: bool| published::chains(epsilon, met.f, met.norm);
    let length = length as u32;
    let points_of = points(options, replicates, by_norm, &mut warnings)?;
    let points = Points::new(options.sequence, scramble, length, options.seed)?;
    let downloads = || -> f64 { lanes.iter().map(|lane| lane.transfer_seconds().1).sum() };
    let before = downloads();
    let mut seconds = Seconds { build: started.elapsed().as_secs_f64(), ..Seconds::default() };
    let at = Instant::now();
    let chains = LazyChains::new(lanes, precision, rough, &points, options.ranks)?;
    seconds.upload = at.elapsed().as_secs_f64();

    let at = Instant::now();
    let growth = Growth {
        components: problem.components,
        replicates,
        columns: 1,
        shared: options.shared,
        points: points_of,
    };
    let seen = std::cell::Cell::new(met);
    let mut steps = 0;
    let u = precision.unit_roundoff();
    let component = |growing: &Growing| {
        let met = seen.get();
        let (estimate, statistical) = growing.interval(0, 0.0, 1.0, options.confidence);
        let (rho, sum) = (met.norm, scale(met));
        let truncation = match met.f {
            0.0 => 0.0,
            _ => sum * f64::from(cut).max(rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32)),
        };
        // Of a step: f, the row's sum of up to 256 entries and the choice by it; and the additions.
        let rounding = match met.f {
            0.0 => 0.0,
            _ => sum * u * (f64::from(length) + 9.0 + 2.0 * 256.0 / (1.0 - rho)),
        };
        let bound = Bound { statistical, truncation, rounding };
        Component {
            component: growing.component,
            rhs: 0,
            estimate,
            half_width: bound.total(),
            bound,
            chains: growing.points * u64::from(replicates),
            length,
        }
    };
    let sums = |tasks: &[Task], points: (u32, u32)| {
        steps += u64::from(points.1 - points.0) * tasks.len() as u64 * u64::from(length);
        let (sums, here) = chains.sums(tasks, Round { points, length, cut }, watch)?;
        met = met.and(here);
        seen.set(met);
        Ok(sums)
    };
    let mut rounds = Vec::new();
    let met = |growing: &Growing| component(growing).half_width <= epsilon;
    let growing = growth.run(sums, met, |growing| rounds.push(component(growing)))?;
    seconds.solve = at.elapsed().as_secs_f64();
    let all: Vec<Component> = growing.iter().map(component).collect();
    let worst = largest(&all);
    seconds.download = downloads() - before;
    seconds.total = started.elapsed().as_secs_f64();
    Ok(Solution {
        status: if worst.total() <= epsilon { Status::Met } else { Status::NotMet },
        components: all,
        rounds,
        bound: worst,
        epsilon,
        n,
        nnz: problem.matrix.nnz(),
        splitting: if given { Splitting::Given } else { Splitting::Jacobi },
        norm: seen.get().norm,
        row_norm: (seen.get().norm, 0),
        products: 0,
        sweeps: 0,
        sequence: (options.sequence, scramble),
        tabled: points.tabled(),
        replicates,
        steps,
        table_bytes: 0,
        jacobi: None,
        warnings,
        seconds,
    })
}
