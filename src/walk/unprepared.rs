//! Components by walks straight from A.

use std::time::Instant;

use super::chains::{Round, Task};
use super::control::Sweeps;
use super::growth::{Growing, Growth};
use super::interval::unseen;
use super::kernels::BLOCK;
use super::lazy::{self, LazyChains, Rough};
use super::options::{MOST_LENGTH, Options, Problem, points, replicates};
use super::published::{self, Length};
use super::sequence::Points;
use super::solution::{Bound, Component, Seconds, Solution, largest, met};
use super::splitting::{Splitting, powers_of_two};
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::number::times_power_of_two;
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
    // Below 2^−126 numbers of f32 have gaps of 2^−149; those of the right-hand side may lie there.
    let underflow = match precision {
        Precision::F32 => f64::from(f32::from_bits(1)) / lazy::least_in_f32(problem.matrix)?,
        Precision::F64 => 0.0,
    };
    let rough = Rough { matrix: problem.matrix, rhs, given, powers: [1.0; 3] };
    let exponent = lazy::size(&rough, problem.components, options.seed)?;
    let rough = Rough { powers: powers_of_two(-exponent), ..rough };
    let scaled = |x: f64| times_power_of_two(x, -exponent).clamp(f64::MIN_POSITIVE, f64::MAX);
    let mut known = lazy::first_look(&rough, problem.components, options.seed)?;
    let mut warnings = vec![
        "nothing is known of rows that no walk met: the intervals hold if their row sums of |L| and their |f| are no \
         larger than those that were met"
            .to_owned(),
    ];
    let (scramble, replicates) = replicates(options, &mut warnings);
    if known.norm >= 1.0 && !matches!(options.length, Length::Steps(_)) {
        return fail(format!(
            "walks met a row sum of |L| of {}: nothing says where they may end; give their length with --length, or leave \
             out --lazy, which looks for a proof that they converge",
            known.norm
        ));
    }
    let scale = |met: lazy::Met| if met.norm < 1.0 { met.f / (1.0 - met.norm) } else { f64::INFINITY };
    let default = if known.f > 0.0 { 1e-3 * scale(known) } else { 1e-3 };
    let epsilon = options.epsilon.map_or(if default.is_finite() { default } else { 1e-3 * known.f }, scaled);
    let delta = options.delta.map_or(0.1 * epsilon, scaled);
    let share = (delta / scale(known)).min(0.5) as f32;
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
    let by_norm = |_: bool| published::chains(epsilon, known.f, known.norm);
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
    let seen = std::cell::Cell::new(known);
    let mut steps = 0;
    let u = precision.unit_roundoff();
    let u64 = Precision::F64.unit_roundoff();
    let range = |c: &Component| scale(seen.get()) + c.estimate.abs();
    let component = |growing: &Growing| {
        let met = seen.get();
        let (estimate, student) = growing.interval(0, 0.0, 1.0, options.confidence);
        let (rho, sum, d, steps) = (met.norm, scale(met), met.longest, f64::from(length));
        let slack = (d + 4.0) * u * steps + (steps + 16.0) * f64::EPSILON;
        let truncation = match met.f {
            0.0 => 0.0,
            _ => {
                let tail = rho.powi(length.saturating_add(1).min(i32::MAX as u32) as i32);
                sum * f64::from(cut).max(tail) * (1.0 + slack)
            }
        };
        // f, and what adds it up: a chain, a block, blocks on the host and replicates.
        let host = growing.points as f64 / BLOCK as f64 + f64::from(replicates) + 8.0;
        let adding = (steps + 13.0) * u + host * u64 + underflow;
        // A row of L: its entries, their sum and its quotient; and probabilities, which end where sums of up to d entries
        // exceed a number of 32 bits times all of them.
        let row = (d + 5.0) * u + d * (d + 11.0) * u + d / 4_294_967_296.0;
        let rounding = match met.f {
            0.0 => 0.0,
            _ => sum * (adding + row / (1.0 - rho)),
        };
        let mut c = Component {
            component: growing.component,
            rhs: 0,
            estimate,
            half_width: 0.0,
            bound: Bound { statistical: 0.0, truncation, rounding },
            chains: growing.points * u64::from(replicates),
            length,
        };
        // Walks without a choice are all the same.
        if met.longest > if given { 1.0 } else { 2.0 } {
            c.bound.statistical = student.max(unseen(range(&c), c.chains as f64, options.confidence));
        }
        c.half_width = c.bound.total();
        c
    };
    let sums = |tasks: &[Task], points: (u32, u32)| {
        steps += u64::from(points.1 - points.0) * tasks.len() as u64 * u64::from(length);
        let (sums, here) = chains.sums(tasks, Round { points, length, cut }, watch)?;
        known = known.and(here);
        seen.set(known);
        Ok(sums)
    };
    let (mut rounds, mut failed) = (Vec::new(), Ok(()));
    let original = |growing: &Growing| component(growing).times_power_of_two(exponent);
    let noted = |growing: &Growing| match original(growing) {
        Ok(c) => rounds.push(c),
        Err(error) => failed = Err(error),
    };
    // A component is done with where its interval is short enough, and where no number of chains makes it so.
    let most = (points_of.1 * u64::from(replicates)) as f64;
    let done = |growing: &Growing| {
        let c = component(growing);
        let left = epsilon - c.bound.truncation - c.bound.rounding;
        let least = if c.bound.statistical > 0.0 { unseen(range(&c), most, options.confidence) } else { 0.0 };
        c.half_width <= epsilon || least > left || left < 0.0
    };
    let growing = growth.run(sums, done, noted)?;
    failed?;
    seconds.solve = at.elapsed().as_secs_f64();
    let all: Vec<Component> = growing.iter().map(original).collect::<Result<_>>()?;
    let epsilon = options.epsilon.unwrap_or_else(|| times_power_of_two(epsilon, exponent));
    let worst = largest(&all);
    seconds.download = downloads() - before;
    seconds.total = started.elapsed().as_secs_f64();
    Ok(Solution {
        status: met(&all, epsilon),
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
