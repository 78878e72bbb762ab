//! One call: systems in, unknowns out, with the proof of how well they solve them.

use std::time::Instant;

use serde::Serialize;

use super::arithmetic::Number;
use super::chunk::Upload;
use super::kernels::{NOT_DOMINANT, all_flags, both};
use super::options::{Interface, Options, Pivot, PlanOptions, Refine};
use super::pivot::{self, Improved};
use super::plan::{Plan, Stages};
use super::range;
use super::residual::Residual;
use super::rows::Rows;
use super::span::Span;
use super::system::System;
use super::view::View;
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::number::{exponent, times_power_of_two};
use crate::{Error, Machine, Result, Status};

/// The method that solved a system in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Windows around tiles, each solved by itself and certified, in one pass over the rows.
    OnePass,
    /// The partition method without pivoting.
    Partition,
    /// The partition method with scaled partial pivoting.
    Pivoted,
    /// Elimination with partial pivoting on the host.
    Host,
}

/// Unknowns, and proof of how well they solve the systems.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Solution {
    /// Unknowns, for each right-hand side as many as rows.
    pub x: Vec<Vec<f64>>,
    /// Whether the residual is within the tolerance, see [`Residual::within`].
    pub status: Status,
    /// Residual of x.
    pub residual: Residual,
    /// max |x| / max |b|: how much larger the unknowns are than the right-hand sides, up to the largest double; infinite
    /// where an unknown is beyond that.
    pub growth: f64,
    /// Whether every row is dominant.
    pub dominant: bool,
    /// Pivots that were next to nothing against their row, in the partition method.
    pub small_pivots: u32,
    /// The system and row where the matrix was found singular.
    pub singular: Option<(usize, usize)>,
    /// Whether the answer may be worth less than its residual says: pivots were next to nothing, and the host of rank 0
    /// lacks the memory for elimination with pivoting, which would tell whether the matrix is singular.
    pub unproved: bool,
    /// Rows of a block or tile.
    pub block: usize,
    /// The place where the interface system was solved.
    pub interface: Interface,
    /// The method that solved it.
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
/// [`crate::Error::Invalid`] for numbers that are not finite; devices' errors. A matrix that is singular, and unknowns
/// beyond the range of doubles, are outcomes.
pub fn solve(machine: &Machine, system: &System, options: &Options) -> Result<Solution> {
    let view = View::from(system);
    view.check()?;
    match machine.precision {
        Precision::F64 => run::<f64>(&machine.lanes, &view, options),
        Precision::F32 => run::<f32>(&machine.lanes, &view, options),
    }
}

/// Solves systems whose rows ranks share; every rank calls this, with lanes of the same precision and the same options,
/// and gets the unknowns of its rows. What else a solution says is said of all rows. The bits are those of [`solve`] on
/// lanes like rank 0's first one.
///
/// # Errors
/// Those of [`solve`], on all ranks if on one.
pub fn solve_rows(machine: &Machine, rows: &Rows, options: &Options) -> Result<Solution> {
    assert_eq!(machine.ranks, rows.span.ranks, "the ranks of a machine are those that share the rows");
    let view = View::from(rows);
    rows.span.ranks.all_ok(view.check())?;
    match machine.precision {
        Precision::F64 => run::<f64>(&machine.lanes, &view, options),
        Precision::F32 => run::<f32>(&machine.lanes, &view, options),
    }
}

/// One way through the systems: unknowns, the flags of stage 1, and the residual.
struct Pass {
    x: Vec<Vec<f64>>,
    /// True while one pass over the rows was enough for each solution.
    one_pass: bool,
    flags: u32,
    residual: Residual,
    refinements: u32,
    stages: Stages,
    device_bytes: u64,
    chunks: usize,
}

/// Solves everything in one way; stops after the first system if `stop` does not like what stage 1 finds.
fn pass<T: Number>(
    lanes: &[Lane],
    view: &View<'_>,
    options: &Options,
    how: &PlanOptions,
    seconds: &mut f64,
    stop: impl Fn(u32) -> bool,
) -> Result<Pass> {
    let Span { n, rows, batch, cyclic, ranks, .. } = view.span;
    let mut done = Pass {
        x: vec![vec![0.0; rows]; view.b.len()],
        one_pass: true,
        flags: 0,
        residual: Residual::default(),
        refinements: 0,
        stages: Stages::default(),
        device_bytes: 0,
        chunks: 0,
    };
    if !(cyclic && batch > 1) {
        let mut plan = Plan::<T>::of(lanes, view.span, how)?;
        solve_part(&mut plan, view, 0, options, &mut done, seconds, &stop)?;
        return Ok(done);
    }
    // Each cyclic system is solved by itself. Where ranks share systems, whole ones.
    let mut each = || {
        let mut plan = match rows {
            0 => return Ok(()),
            _ => Plan::<T>::of(lanes, Span::whole(n, 1, true), how)?,
        };
        for number in 0..rows / n {
            if solve_part(&mut plan, &view.system(number), number * n, options, &mut done, seconds, &stop)? {
                break;
            }
        }
        Ok(())
    };
    let each = each();
    ranks.all_ok(each)?;
    if ranks.is_distributed() {
        done.flags = all_flags(ranks.all_gather(&[done.flags]).into_iter().flatten());
        let residuals = ranks.all_gather(&[done.residual.normwise, done.residual.componentwise]);
        let residual = |pair: &Vec<f64>| Residual { normwise: pair[0], componentwise: pair[1] };
        done.residual = residuals.iter().map(residual).fold(Residual::default(), Residual::max);
        done.refinements = ranks.all_reduce_max(f64::from(done.refinements)) as u32;
    }
    Ok(done)
}

/// Solves what a plan takes at a time, whose unknowns begin at `first`; whether `stop` stopped it.
fn solve_part<T: Number>(
    plan: &mut Plan<'_, T>,
    view: &View<'_>,
    first: usize,
    options: &Options,
    done: &mut Pass,
    seconds: &mut f64,
    stop: &impl Fn(u32) -> bool,
) -> Result<bool> {
    (done.device_bytes, done.chunks) = (plan.device_bytes(), plan.chunks());
    let here = first..first + view.span.rows;
    let mut r = vec![0.0; here.len()];
    let mut dominant = false;
    let inputs = plan.inputs();
    range::convert(view.dl, inputs.dl);
    range::convert(view.d, inputs.d);
    range::convert(view.du, inputs.du);
    for (k, &b) in view.b.iter().enumerate() {
        let largest = view.span.ranks.all_reduce_max(range::largest(b));
        let shift = range::shift(largest, range::roomy(T::PRECISION));
        range::convert_times(b, plan.inputs().b, shift);
        let at = Instant::now();
        let stages = plan.solve(if k == 0 { Upload::All } else { Upload::RightHandSide })?;
        *seconds += at.elapsed().as_secs_f64();
        if k == 0 {
            let flags = plan.flags()?;
            (done.flags, dominant) = (both(done.flags, flags), flags & NOT_DOMINANT == 0);
            if first == 0 {
                done.stages = stages;
            }
            if stop(done.flags) {
                return Ok(true);
            }
        }
        let x = &mut done.x[k][here.clone()];
        range::convert_times(plan.x(), x, -shift);
        let (found, steps) = refine(plan, view, b, x, &mut r, (options.refine, dominant), seconds)?;
        done.one_pass &= plan.is_one_pass();
        done.residual = done.residual.max(found);
        done.refinements = done.refinements.max(steps);
    }
    Ok(false)
}

/// The partition method, with exchanges where they are asked for, or where stage 1 finds a reason for them.
fn partition<T: Number>(
    lanes: &[Lane],
    view: &View<'_>,
    options: &Options,
    seconds: &mut f64,
) -> Result<(Method, PlanOptions, Pass)> {
    let (plain, pivoted) = (options.plain(), PlanOptions::from(options.pivoted()));
    // Cyclic systems are solved in tiles, in which no rows are exchanged.
    let exchange = !view.span.cyclic;
    if options.pivot == Pivot::Scaled && exchange {
        let done = pass::<T>(lanes, view, options, &pivoted, seconds, |_| false)?;
        return Ok((Method::Pivoted, pivoted, done));
    }
    let stop = |flags| flags != 0 && options.pivot == Pivot::Auto && exchange;
    let done = pass::<T>(lanes, view, options, &plain, seconds, stop)?;
    if !stop(done.flags) {
        let method = if done.one_pass { Method::OnePass } else { Method::Partition };
        return Ok((method, plain, done));
    }
    let again = pass::<T>(lanes, view, options, &pivoted, seconds, |_| false)?;
    // What the first way says of the rows holds for the second.
    let flags = (done.flags & NOT_DOMINANT) | (again.flags & !NOT_DOMINANT);
    Ok((Method::Pivoted, pivoted, Pass { flags, ..again }))
}

/// Elimination with pivoting on the host where it is needed; what became of the systems there, and whether it was needed
/// and the memory for it is not there.
fn elimination(
    lane: &Lane,
    view: &View<'_>,
    options: &Options,
    done: &mut Pass,
    seconds: &mut f64,
) -> (Improved, bool) {
    let proof = done.flags & !NOT_DOMINANT != 0;
    let needed = proof || !done.residual.within(options.tolerance);
    let dominant = done.flags & NOT_DOMINANT == 0;
    // Corrections that end above what they should leave are a sign that rows had to be exchanged in another way.
    if !needed && (options.refine != Refine::Auto || done.residual.fine(dominant)) {
        return (Improved::default(), false);
    }
    let asked = |residual: Residual| match options.refine {
        _ if proof => true,
        Refine::Auto => !residual.fine(dominant),
        Refine::Steps(_) => !residual.within(options.tolerance),
    };
    let at = Instant::now();
    let improved = last_resort(lane, view, &mut done.x, asked);
    let host = improved.unwrap_or_default();
    if host.changed {
        let residuals = view.b.iter().zip(&done.x).map(|(b, x)| view.residual(b, x, &mut []));
        done.residual = residuals.fold(Residual::default(), Residual::max);
        done.refinements = host.corrections;
    }
    *seconds += at.elapsed().as_secs_f64();
    (host, improved.is_none() && needed)
}

fn run<T: Number>(lanes: &[Lane], view: &View<'_>, options: &Options) -> Result<Solution> {
    let mut seconds = 0.0;
    let Span { cyclic, ranks, .. } = view.span;
    if cyclic && options.plain().block.is_some() {
        return ranks.all_ok(Err(Error::Invalid(
            "--cyclic with --block or --interface host: a cyclic system is solved in tiles; leave both out"
                .to_owned(),
        )));
    }
    let (method, used, mut done) = partition::<T>(lanes, view, options, &mut seconds)?;
    let (host, unproved) = elimination(&lanes[0], view, options, &mut done, &mut seconds);
    let method = if host.changed { Method::Host } else { method };
    let singular = host.singular;
    let largest = |all: &mut dyn Iterator<Item = &[f64]>| {
        ranks.all_reduce_max(all.map(range::largest).fold(0.0, f64::max))
    };
    let xs = largest(&mut done.x.iter().map(|x| &x[..]));
    let bs = largest(&mut view.b.iter().copied());
    let met = done.residual.within(options.tolerance) && singular.is_none() && !unproved;
    // Of finite numbers the quotient may not be.
    let growth = if xs.is_finite() { (xs / bs).min(f64::MAX) } else { xs };
    Ok(Solution {
        status: if met { Status::Met } else { Status::NotMet },
        residual: done.residual,
        growth: if bs > 0.0 { growth } else { 0.0 },
        dominant: done.flags & NOT_DOMINANT == 0,
        small_pivots: done.flags & !NOT_DOMINANT,
        singular,
        unproved,
        block: used.block.unwrap_or(super::kernels::UNIT),
        interface: if used.interface_on_host { Interface::Host } else { Interface::Device },
        method,
        refinements: done.refinements,
        stages: done.stages,
        device_bytes: ranks.all_reduce_sum(done.device_bytes),
        chunks: ranks.all_reduce_sum(done.chunks as u64) as usize,
        solve_seconds: ranks.all_reduce_max(seconds),
        x: done.x,
    })
}

/// Numbers a row that elimination with pivoting holds beside what it has of each right-hand side: the matrix as given and
/// with rows and columns of size 1, what becomes of it, and the exponents of these factors.
const PIVOTING: usize = 3 + 3 + 3 + 1;
/// Numbers a row of each right-hand side: b, x as given and as eliminated twice, the residual, and a correction.
const PIVOTING_EACH: usize = 8;

/// Elimination with pivoting on the host of the systems whose residual is `asked` for; of ranks on that of rank 0, which
/// is sent all rows. None where that host has no memory for them.
fn last_resort(
    lane: &Lane,
    view: &View<'_>,
    x: &mut [Vec<f64>],
    asked: impl Fn(Residual) -> bool + Sync + Send,
) -> Option<Improved> {
    let Span { n, batch, cyclic, first, rows, ranks } = view.span;
    if !ranks.is_distributed() {
        return Some(lane.host(|| pivot::improve(view, x, asked)));
    }
    let numbers = (PIVOTING + PIVOTING_EACH * view.b.len()) as u64 * view.span.all() as u64;
    let room = ranks.all_gather(&[crate::lane::cpu::available_memory()])[0][0];
    if 8 * numbers > room {
        return None;
    }
    let [dl, d, du] = [view.dl, view.d, view.du].map(|own| ranks.gather_to_root(own));
    let b: Vec<Vec<f64>> = view.b.iter().map(|b| ranks.gather_to_root(b)).collect();
    let mut all: Vec<Vec<f64>> = x.iter().map(|x| ranks.gather_to_root(x)).collect();
    let improved = ranks.is_root().then(|| {
        let b = b.iter().map(|b| &b[..]).collect();
        let whole = View { span: Span::whole(n, batch, cyclic), dl: &dl, d: &d, du: &du, b };
        lane.host(|| pivot::improve(&whole, &mut all, asked))
    });
    // What the first rank knows.
    let Improved { changed, singular, corrections } = improved.unwrap_or_default();
    let (system, row) = singular.unwrap_or_default();
    let told =
        [u64::from(changed), u64::from(singular.is_some()), system as u64, row as u64, corrections.into()];
    let told = &ranks.all_gather(&told)[0];
    let improved = Improved {
        changed: told[0] == 1,
        singular: (told[1] == 1).then_some((told[2] as usize, told[3] as usize)),
        corrections: told[4] as u32,
    };
    let shares = ranks.all_gather(&[first as u64, rows as u64]);
    let of = |x: &[f64], rank: usize| {
        let [first, rows] = [shares[rank][0], shares[rank][1]].map(|number| number as usize);
        x[first..first + rows].to_vec()
    };
    for (x, all) in x.iter_mut().zip(&all).filter(|_| improved.changed) {
        *x = ranks.scatter_from_root(rows, |rank| of(all, rank));
    }
    Some(improved)
}

/// Corrects x by solutions for the residual, which is computed in double precision, and gives what is left of it.
fn refine<T: Number>(
    plan: &mut Plan<'_, T>,
    view: &View<'_>,
    b: &[f64],
    x: &mut [f64],
    r: &mut [f64],
    (corrections, dominant): (Refine, bool),
    seconds: &mut f64,
) -> Result<(Residual, u32)> {
    let mut residual = view.residual(b, x, r);
    let most = match corrections {
        Refine::Auto => MOST_CORRECTIONS,
        Refine::Steps(steps) => steps,
    };
    let done = |residual: Residual, dominant| match corrections {
        Refine::Auto => residual.settled(dominant),
        Refine::Steps(_) => residual.componentwise == 0.0,
    };
    let mut steps = 0;
    let mut better = vec![];
    while steps < most && !done(residual, dominant && steps == 0) {
        // A power of two brings the residual into the range of single precision, without rounding.
        let largest = view.span.ranks.all_reduce_max(range::largest(r));
        if !(largest > 0.0 && largest.is_finite()) {
            break;
        }
        let scale = -exponent(largest);
        range::convert_times(r, plan.inputs().b, scale);
        let at = Instant::now();
        plan.solve(Upload::RightHandSide)?;
        *seconds += at.elapsed().as_secs_f64();
        better.clear();
        better.extend(x.iter().zip(plan.x()).map(|(x, e)| x + times_power_of_two(e.wide(), -scale)));
        let next = view.residual(b, &better, r);
        // Less than half a step's work is a sign that rounding has the last word.
        if corrections == Refine::Auto && next.excess() >= 0.5 * residual.excess() {
            if next.excess() < residual.excess() {
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
