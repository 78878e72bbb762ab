//! Algorithm 1 of Karwacki, Bylina, Bylina (FedCSIS 2012): intervals of αt ≤ Θ.
//!
//! Kept to reproduce that algorithm, with three kernels per term. The uniformization run needs
//! fewer matrix–vector products and one kernel per term. Two errors are corrected: the number of
//! intervals is ⌈αt/Θ⌉ (a real quotient loses the last part of an interval), and ε is shared over
//! the intervals, since their errors add. The factor e^{−αt} is applied to the sum at the end of an
//! interval, as in the paper. So Θ is limited by the range of the number type.

use super::chain::statistics::MatrixStatistics;
use super::checkpoint::{Phase, SubdividedState};
use super::context::{Context, Due};
use super::iteration::MOST_STEPS;
use super::numerics::poisson::Window;
use super::profile::Activity;
use super::session::Session;
use super::solution::{Bound, TimeResult};
use super::step::chunk::Sum;
use super::step::stages::Stage;
use super::step::vector_kernels::{ADD, SCALE, add, scale};
use crate::kernel::{Number, Precision};
use crate::lane::Buffer;
use crate::{Invalid, Progress, Result};
/// Returns the largest αt of an interval, Θ, for which e^Θ and sums do not overflow.
fn largest_theta(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 80.0,
        // Q64 is rejected earlier, since it cannot represent e^Θ.
        Precision::F64 | Precision::Q64 => 700.0,
    }
}

/// Returns the number of intervals, and the Poisson window of each for its share of ε.
fn intervals<T: Number>(
    statistics: &MatrixStatistics<T>,
    epsilon: f64,
    theta: f64,
    lambda: f64,
) -> (f64, Window) {
    let intervals = (lambda / theta).ceil().max(1.0);
    let share = (epsilon - statistics.rounding(lambda, 3 * lambda as u64, u64::MAX)).max(0.5 * epsilon);
    (intervals, Window::new(lambda / intervals, (share / intervals).max(1e-300)))
}

/// Returns the number of matrix–vector products for one time.
///
/// # Errors
/// [`Invalid`] above the limit of a uniformization run, since this method never ends early.
pub fn terms<T: Number>(
    statistics: &MatrixStatistics<T>,
    epsilon: f64,
    theta: f64,
    lambda: f64,
) -> Result<u64> {
    let (intervals, window) = intervals(statistics, epsilon, theta, lambda);
    let terms = intervals * window.right as f64;
    if terms > MOST_STEPS as f64 {
        return Invalid::TooLarge.fail(format!(
            "the subdivided method needs {terms:.1e} multiplications, but at most {MOST_STEPS} are \
             supported; use `method` auto or a shorter time"
        ));
    }
    Ok(terms as u64)
}

/// Runs the method for all times, and returns the matrix–vector products.
pub fn run<T: Number>(
    context: &Context<'_, T>,
    theta: f64,
    times: &[Due],
    session: &mut Session<'_, '_>,
) -> Result<u64> {
    let largest = largest_theta(T::PRECISION);
    if theta > largest {
        return Invalid::Argument("theta").fail(format!(
            "`theta` {theta} is out of range: expected at most {largest} in {}, where e^theta is \
             finite",
            T::PRECISION
        ));
    }
    if !context.problem.rewards.is_empty() {
        return Invalid::Unsupported
            .fail("rewards are not supported by the subdivided method; use `method` auto");
    }
    for due in times {
        terms(&context.statistics, context.options.epsilon, theta, due.lambda)?;
    }
    let (lanes, parts, precision) = (&context.machine.lanes, &context.parts, T::PRECISION);
    let each_lane = |values: &[T]| -> Result<Vec<Buffer<T>>> {
        lanes.iter().map(|lane| lane.alloc_with("factors", values)).collect()
    };
    let pt: Vec<Buffer<T>> = (parts.parts.iter())
        .map(|p| lanes[p.lane].alloc("an accumulator", p.rows.len()))
        .collect::<Result<_>>()?;
    let nothing: Vec<Buffer<T>> = each_lane(&[T::ZERO])?;
    let inverse = each_lane(&[context.statistics.inverse_alpha])?;
    let n = context.initial.len();
    let of = |phase| if let Phase::Subdivided(state) = phase { Some(state) } else { None };
    let mut resumed = session.resume(of)?;
    let mut terms = 0;
    if let Some(kept) = &resumed {
        let whole = kept.vectors.len() == 1 && kept.vectors[0].len() == n;
        if times.first().map(|due| due.index) != Some(kept.state.index) || !whole {
            return Err(session.unusable());
        }
        terms = kept.state.terms;
    }
    // Downloads the sum, in the order of states.
    let collect = || -> Result<Vec<f64>> {
        let mut sum = Vec::with_capacity(n);
        for (part, pt) in parts.parts.iter().zip(&pt) {
            let mut own = vec![T::ZERO; part.rows.len()];
            lanes[part.lane].download(pt, 0, &mut own)?;
            sum.extend(own.iter().map(|p| p.wide()));
        }
        Ok(sum)
    };
    for due in times {
        let (index, lambda) = (due.index, due.lambda);
        let (intervals, window) = intervals(&context.statistics, context.options.epsilon, theta, lambda);
        let each = lambda / intervals;
        let last = window.right;

        // e^{−αt/l} for the end of the interval, then (αt/l)/k to scale term k.
        let mut factors: Vec<T> = vec![T::of((-each).exp())];
        factors.extend((1..=last).map(|k| T::of(each / k as f64)));
        let factors = each_lane(&factors)?;
        let scale = |lane: usize, vector: &Buffer<T>, rows: usize, own: usize| {
            let params = scale::Params { step: 0, first: 0, rows: rows as u32, own: own as u32 };
            let args = scale::Args { factors: factors[lane].arg(), y: vector.arg() };
            lanes[lane].bind(&SCALE, precision, rows, params, args)
        };
        // Term k: r = P m, m = (αt/k) r, pt = pt + m. Three kernels; m is x[source], r the other
        // iterate.
        let term = |lane: usize, source: usize, stage: Stage| {
            let mut launches = Vec::new();
            // A term is complete only after its scaling, so the boundary stage takes all of it.
            if stage != Stage::Boundary {
                return Ok(launches);
            }
            for (p, part) in parts.of(lane) {
                let r = &part.x[1 - source];
                for chunk in &part.chunks {
                    let (scalars, acc) = (inverse[lane].arg(), nothing[lane].arg());
                    let sum = Sum { scalars, acc, window: 0..0, weights: 0, recurrence: false };
                    launches.push(chunk.step(&lanes[lane], part, source, &sum, 0..chunk.rows)?);
                }
                let rows = part.rows.len();
                launches.push(scale(lane, r, rows, part.own)?);
                let params = add::Params { step: 0, rows: rows as u32, own: part.own as u32 };
                let args = add::Args { x: r.arg(), acc: pt[p].arg() };
                launches.push(lanes[lane].bind(&ADD, precision, rows, params, args)?);
            }
            Ok(launches)
        };
        let resumed = resumed.take();
        let (from, begin) = match &resumed {
            Some(kept) => (kept.state.interval, &kept.vectors[0]),
            None => (0, &context.initial),
        };
        for (part, pt) in parts.parts.iter().zip(&pt) {
            let own: Vec<T> = begin[parts.own(part)].iter().map(|&p| T::of(p)).collect();
            lanes[part.lane].upload(&own, pt, 0)?;
        }
        for interval in from..intervals as u64 {
            session.save_if_due(|| {
                Ok((Phase::Subdivided(SubdividedState { index, interval, terms }), vec![collect()?]))
            })?;
            for (part, pt) in parts.parts.iter().zip(&pt) {
                lanes[part.lane].copy(pt, &part.x[0], part.own, 1)?;
            }
            parts.exchange(lanes, 0)?;
            let all = terms + (intervals as u64 - interval) * last;
            let mut watch = |done: u64| session.progress(terms + done, all);
            // Steps have the numbers of the terms, 1 … last.
            parts.clock.time(Activity::Products, || parts.run(lanes, 1..last + 1, 0, &term, &mut watch))?;
            for (part, pt) in parts.parts.iter().zip(&pt) {
                lanes[part.lane].launch(&[&scale(part.lane, pt, part.rows.len(), 0)?], 0)?;
            }
            terms += last;
        }
        let result = parts.clock.time(Activity::Results, collect)?;
        session.result(index, &result)?;
        // Each term has one more scaling and addition than in a uniformization run. e^{−x} is
        // rounded once per interval.
        let u = precision.unit_roundoff();
        let rounding =
            context.statistics.rounding(lambda, 0, u64::MAX) + u * intervals * (3.0 * last as f64 + 4.0);
        let bound = Bound { truncation: intervals * window.truncation(), rounding, ..Bound::default() };
        session.serve(index, TimeResult { window: (0, last), bound, ..due.result() });
    }
    Ok(terms)
}
