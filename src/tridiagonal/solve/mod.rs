//! Solution of tridiagonal systems, with residuals that prove its quality.
//!
//! The files of this folder hold the refinement of several right-hand sides with one plan, the
//! solution in place on the host's cores, and factors for repeated solutions.

pub(crate) mod factor;
mod in_place;
pub(crate) mod refinement;

use std::time::Instant;

use self::refinement::{SystemGroup, solution_of};
use super::host::pivoted_lu::{self, Improved};
use super::host::scaling;
use super::kernels::alignment::opens_cyclic;
use super::kernels::number::Number;
use super::kernels::tiles::{NOT_DOMINANT, all_flags};
use super::options::{Options, Pivot, PlanOptions, Refine};
use super::residual::Residual;
use super::solution::{Method, Pass, Solution};
use super::system::System;
use super::system::borrowed::Matrix;
use super::system::distributed::Rows;
use super::system::row_range::RowSpan;
use super::system::view::{self, View};
use crate::kernel::Precision;
use crate::lane::Lane;
use crate::util::memory::{expect_memory, try_zeroed};
use crate::{Invalid, Machine, Progress, Result};

/// Solves systems on lanes of one precision.
///
/// # Errors
/// [`crate::Error::Invalid`] for numbers that are not finite; errors of devices. A singular matrix
/// and unknowns beyond the range of doubles are no errors but outcomes.
pub fn solve(machine: &Machine, system: &System, options: &Options) -> Result<Solution> {
    let view = View::from(system);
    view.check()?;
    machine.expect_floating(SYSTEMS)?;
    AnySolver::new(machine, options).solve(&view)
}

/// Solves into the caller's arrays: `x` has an array for each right-hand side of `b`, of equal
/// length, that is overwritten.
///
/// The bits are those of [`solve`]. If the machine is one CPU lane in double precision and one pass
/// over the rows suffices, as for dominant rows, nothing is copied. `watch` is then called after
/// every few million rows, and its error ends the work. Otherwise `watch` is called before the
/// solution only.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::tridiagonal::{Matrix, Options, Status, solve_into};
///
/// let machine = Machine::best()?;
/// let n = 10_000;
/// let (side, d, b) = (vec![-1.0; n], vec![4.0; n], vec![2.0; n]);
/// let mut x = vec![0.0; n];
/// let matrix = Matrix::new(1, &side, &d, &side)?;
/// let options = Options::default();
/// let solution = solve_into(&machine, &matrix, &[&b], &mut [&mut x], &options, &mut ())?;
/// assert_eq!(solution.status, Status::Met);
/// assert!((x[n / 2] - 1.0).abs() < 1e-14);
/// # Ok::<(), kolmo::Error>(())
/// ```
///
/// # Errors
/// The errors of [`solve`]; [`crate::Error::Invalid`] for arrays of wrong length; errors of
/// `watch`.
pub fn solve_into(
    machine: &Machine,
    matrix: &Matrix<'_>,
    b: &[&[f64]],
    x: &mut [&mut [f64]],
    options: &Options,
    watch: &mut dyn Progress,
) -> Result<Solution> {
    expect_lengths(matrix.rows(), b, x)?;
    let view = matrix.view(b);
    machine.expect_floating(SYSTEMS)?;
    AnySolver::new(machine, options).solve_into(&view, x, watch, true)
}

/// Returns an error unless there are right-hand sides, each with a number per row and an array for
/// its unknowns.
pub(super) fn expect_lengths(rows: usize, b: &[&[f64]], x: &[&mut [f64]]) -> Result<()> {
    view::expect_lengths(rows, b)?;
    match x.iter().find(|x| x.len() != rows) {
        Some(x) => Invalid::Shape.fail(format!("x has {} numbers, but d has {rows}", x.len())),
        None if x.len() != b.len() => Invalid::Shape.fail(format!(
            "{} arrays of unknowns for {} right-hand sides: expected equal numbers",
            x.len(),
            b.len()
        )),
        None => Ok(()),
    }
}

/// Solves systems with rows shared by ranks, and returns the unknowns of the local rows.
///
/// Every rank calls this, with lanes of equal precision and with equal options. All other fields of
/// the solution refer to the rows of all ranks. The bits are those of [`solve`] on lanes like the
/// first one of rank 0. A single process copies no rows if [`solve_into`] copies none.
///
/// # Errors
/// The errors of [`solve`]; an error on one rank is an error on all ranks.
pub fn solve_rows(machine: &Machine, rows: &Rows, options: &Options) -> Result<Solution> {
    assert_eq!(machine.ranks, rows.span.ranks, "the ranks of a machine are those that share the rows");
    let view = View::from(rows);
    rows.span.ranks.all_ok(view.check().and_then(|()| machine.expect_floating(SYSTEMS)))?;
    let mut solver = AnySolver::new(machine, options);
    // Rows that do not fit the memory of a lane pass through it in chunks.
    let held = (8 * view.span.rows * (3 + 2 * view.b.len())) as u64;
    let fits = machine.lanes[0].free_bytes().is_none_or(|free| held <= free);
    if fits && let Ok(mut x) = unknowns(&view) {
        let mut places: Vec<&mut [f64]> = x.iter_mut().map(Vec::as_mut_slice).collect();
        if let Some(solution) = solver.solve_directly(&view, &mut places, &mut ())? {
            return Ok(Solution { x, ..solution });
        }
    }
    solver.solve(&view)
}

/// Returns zeroed arrays for the unknowns of each right-hand side.
fn unknowns(view: &View<'_>) -> Result<Vec<Vec<f64>>> {
    view.b.iter().map(|b| try_zeroed(b.len(), || solution_of(b.len()))).collect()
}

/// Subject of the error message for a machine in fixed-point precision.
pub(super) const SYSTEMS: &str = "tridiagonal systems";

/// Solver in the precision of a machine.
#[derive(Debug)]
pub(super) enum AnySolver<'a> {
    Single(Solver<'a, f32>),
    Double(Solver<'a, f64>),
}

impl<'a> AnySolver<'a> {
    pub(super) fn new(machine: &'a Machine, options: &Options) -> Self {
        match machine.precision {
            Precision::F64 | Precision::Q64 => Self::Double(Solver::new(&machine.lanes, options)),
            Precision::F32 => Self::Single(Solver::new(&machine.lanes, options)),
        }
    }

    /// Solves systems without NaN or infinite numbers. The matrix must be the same in all calls.
    pub(super) fn solve(&mut self, view: &View<'_>) -> Result<Solution> {
        match self {
            Self::Single(solver) => solver.run(view),
            Self::Double(solver) => solver.run(view),
        }
    }

    /// Solves into `x`, without copies if possible. If `check` is set, the numbers may be NaN or
    /// infinite, which is an error.
    pub(super) fn solve_into(
        &mut self,
        view: &View<'_>,
        x: &mut [&mut [f64]],
        watch: &mut dyn Progress,
        check: bool,
    ) -> Result<Solution> {
        // The residual of a one-pass solution shows that all its numbers are finite.
        if let Some(solution) = self.solve_directly(view, x, watch)? {
            return Ok(solution);
        }
        if check {
            view.check_watched(watch)?;
        }
        let mut solution = self.solve(view)?;
        x.iter_mut().zip(solution.x.drain(..)).for_each(|(to, from)| scaling::convert(&from, to));
        Ok(solution)
    }

    /// Solves into `x` if that needs no copies, for any numbers; otherwise `None`, with `x`
    /// undefined.
    fn solve_directly(
        &mut self,
        view: &View<'_>,
        x: &mut [&mut [f64]],
        watch: &mut dyn Progress,
    ) -> Result<Option<Solution>> {
        watch.progress(0, 0)?;
        let Self::Double(solver) = self else { return Ok(None) };
        if solver.indirect {
            return Ok(None);
        }
        let solved = in_place::solve(solver.lanes, view, &solver.options, x, watch)?;
        solver.indirect = solved.is_none();
        Ok(solved)
    }
}

/// Solver for one matrix, with the state between solutions: the plan, which has the diagonals on
/// the devices, and the method that the matrix requires.
#[derive(Debug)]
pub(super) struct Solver<'a, T> {
    lanes: &'a [Lane],
    options: Options,
    group: Option<SystemGroup<'a, T>>,
    /// Flags of the solution without row exchanges, if they require exchanges.
    exchange: Option<u32>,
    /// True if several cyclic systems cannot be solved as open ones.
    closed: bool,
    /// True if one pass over the caller's arrays does not suffice.
    indirect: bool,
}

impl<'a, T: Number> Solver<'a, T> {
    fn new(lanes: &'a [Lane], options: &Options) -> Self {
        Self { lanes, options: *options, group: None, exchange: None, closed: false, indirect: false }
    }

    /// Solves all systems with one plan; ends after the first solution if `stop` returns true for
    /// the flags of stage 1.
    fn pass(&mut self, view: &View<'_>, how: &PlanOptions, stop: impl Fn(u32) -> bool) -> Result<Pass> {
        let RowSpan { n, rows, batch, cyclic, ranks, .. } = view.span;
        let mut done = Pass::new(ranks.all_ok(unknowns(view))?, how);
        let given = self.group.take().filter(|group| group.fits(view, how));
        let several_cyclic = cyclic && batch > 1;
        if !several_cyclic || (opens_cyclic(n) && !self.closed) {
            let mut group = given.map_or_else(|| SystemGroup::new(self.lanes, view, how), Ok)?;
            self.closed = several_cyclic && !group.open(view, &mut done.solution.solve_seconds)?;
            if !self.closed {
                group.solve(view, 0, &self.options, &mut done, &stop)?;
                self.group = Some(group);
                return Ok(done);
            }
        }
        // Each cyclic system is solved separately. If ranks share the systems, each rank has whole
        // ones.
        let mut each = || {
            if rows == 0 {
                return Ok(());
            }
            let mut group = SystemGroup::<T>::new(self.lanes, &view.system(0), how)?;
            for number in 0..rows / n {
                group.renew();
                if group.solve(&view.system(number), number * n, &self.options, &mut done, &stop)? {
                    break;
                }
            }
            Ok(())
        };
        let each = each();
        ranks.all_ok(each)?;
        if ranks.is_distributed() {
            done.flags = all_flags(ranks.all_gather(&[done.flags]).into_iter().flatten());
            done.doubt = ranks.all_reduce_max(f64::from(u8::from(done.doubt))) > 0.0;
            for own in &mut done.solution.residuals {
                let all = ranks.all_gather(&[own.normwise, own.componentwise]);
                let residual = |pair: &Vec<f64>| Residual { normwise: pair[0], componentwise: pair[1] };
                *own = all.iter().map(residual).fold(Residual::default(), Residual::max);
            }
            let refinements = &mut done.solution.refinements;
            *refinements = ranks.all_reduce_max(f64::from(*refinements)) as u32;
        }
        Ok(done)
    }

    /// Solves by the partition method, with row exchanges if requested or if stage 1 finds that
    /// they are needed.
    fn partition(&mut self, view: &View<'_>) -> Result<Pass> {
        let options = self.options;
        let (plain, pivoted) = (PlanOptions::default(), PlanOptions::default().pivot(true));
        // Cyclic systems are solved in tiles, without row exchanges.
        let exchange = !view.span.cyclic;
        if options.pivot == Pivot::Scaled && exchange {
            return self.pass(view, &pivoted, |_| false);
        }
        let stop = |flags| flags != 0 && options.pivot == Pivot::Auto && exchange;
        let (first, seconds) = match self.exchange {
            Some(flags) => (flags, 0.0),
            None => {
                let done = self.pass(view, &plain, stop)?;
                if !stop(done.flags) {
                    return Ok(done);
                }
                (*self.exchange.insert(done.flags), done.solution.solve_seconds)
            }
        };
        let mut again = self.pass(view, &pivoted, |_| false)?;
        // The dominance flag of the first solution refers to the given rows, and is kept.
        again.flags = (first & NOT_DOMINANT) | (again.flags & !NOT_DOMINANT);
        again.solution.solve_seconds += seconds;
        Ok(again)
    }

    fn run(&mut self, view: &View<'_>) -> Result<Solution> {
        let (options, ranks) = (self.options, view.span.ranks);
        // Host arrays of the plan, unknowns, the residual and a correction. No page is allocated
        // before it is written.
        let bytes = view.span.rows * (5 * size_of::<T>() + 8 * (view.b.len() + 2));
        let room = expect_memory(bytes as u64, || solution_of(view.span.rows));
        ranks.all_ok(room)?;
        let mut done = self.partition(view)?;
        eliminate(view, &options, &mut done)?;
        Ok(done.finish(&view.b, ranks, options.tolerance))
    }
}

fn eliminate(view: &View<'_>, options: &Options, done: &mut Pass) -> Result<()> {
    let proof = done.flags & !NOT_DOMINANT != 0;
    let needed = proof || done.doubt || !done.residual().within(options.tolerance);
    let dominant = done.flags & NOT_DOMINANT == 0;
    // Refinement that ends above its limits suggests that other row exchanges are needed.
    if !needed && (options.refine != Refine::Auto || done.residual().fine(dominant)) {
        return Ok(());
    }
    let asked = |residual: Residual| match options.refine {
        _ if proof => true,
        Refine::Auto => !residual.fine(dominant),
        Refine::Steps(_) => !residual.within(options.tolerance),
    };
    let at = Instant::now();
    let solution = &mut done.solution;
    let improved = last_resort(view, &mut solution.x, asked, proof || done.doubt)?;
    let Improved { changed, singular, corrections } = improved.unwrap_or_default();
    if changed {
        let residuals = view.b.iter().zip(&solution.x).map(|(b, x)| view.residual(b, x, &mut []));
        solution.residuals = residuals.collect();
        (solution.method, solution.refinements) = (Method::Host, corrections);
    }
    (solution.singular, solution.unproved) = (singular, improved.is_none() && needed);
    solution.solve_seconds += at.elapsed().as_secs_f64();
    Ok(())
}

/// Numbers per row that elimination with pivoting stores, without those of right-hand sides.
///
/// They are the matrix as given, the matrix with rows and columns of size 1, its factors, the
/// exponents of the scaling, and for the test for singular matrices double-double factors and a
/// solution.
const PIVOTING: usize = 3 + 3 + 3 + 1 + 17;
/// Numbers per row and right-hand side: b, x as given and from two eliminations, residual,
/// correction.
const PIVOTING_EACH: usize = 8;

/// Eliminates with pivoting on the host for the systems with a residual that `asked` selects, and
/// tests their matrices, or all if there is `doubt`, for singularity.
///
/// With several ranks, the host of rank 0 does so for the rows of all ranks. Returns `None` if that
/// host lacks the memory for them.
fn last_resort(
    view: &View<'_>,
    x: &mut [Vec<f64>],
    asked: impl Fn(Residual) -> bool + Sync + Send,
    doubt: bool,
) -> Result<Option<Improved>> {
    let RowSpan { n, batch, cyclic, first, rows, ranks } = view.span;
    let of_a_row = (PIVOTING + PIVOTING_EACH * view.b.len()) as u64;
    if !ranks.is_distributed() {
        let at_once = n as u64 * batch.min(rayon::current_num_threads()) as u64;
        expect_memory(8 * of_a_row * at_once, || format!("elimination with pivoting of {n} rows"))?;
        return Ok(Some(pivoted_lu::improve(view, x, asked, doubt)));
    }
    let numbers = of_a_row * view.span.all() as u64;
    let room = ranks.all_gather(&[crate::util::memory::available_memory()])[0][0];
    if 8 * numbers > room {
        return Ok(None);
    }
    let [dl, d, du] = [view.dl, view.d, view.du].map(|own| ranks.gather_to_root(own));
    let b: Vec<Vec<f64>> = view.b.iter().map(|b| ranks.gather_to_root(b)).collect();
    let mut all: Vec<Vec<f64>> = x.iter().map(|x| ranks.gather_to_root(x)).collect();
    let improved = ranks.is_root().then(|| {
        let b = b.iter().map(|b| &b[..]).collect();
        let whole = View { span: RowSpan::whole(n, batch, cyclic), dl: &dl, d: &d, du: &du, b };
        pivoted_lu::improve(&whole, &mut all, asked, doubt)
    });
    // All ranks take the outcome of rank 0.
    let Improved { changed, singular, corrections } = improved.unwrap_or_default();
    let (system, row) = singular.unwrap_or_default();
    let packed =
        [u64::from(changed), u64::from(singular.is_some()), system as u64, row as u64, corrections.into()];
    let packed = &ranks.all_gather(&packed)[0];
    let improved = Improved {
        changed: packed[0] == 1,
        singular: (packed[1] == 1).then_some((packed[2] as usize, packed[3] as usize)),
        corrections: packed[4] as u32,
    };
    let shares = ranks.all_gather(&[first as u64, rows as u64]);
    let of = |x: &[f64], rank: usize| {
        let [first, rows] = [shares[rank][0], shares[rank][1]].map(|number| number as usize);
        x[first..first + rows].to_vec()
    };
    for (x, all) in x.iter_mut().zip(&all).filter(|_| improved.changed) {
        *x = ranks.scatter_from_root(rows, |rank| of(all, rank));
    }
    Ok(Some(improved))
}
