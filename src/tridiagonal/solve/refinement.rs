//! Right-hand sides that a plan solves together, and their refinement.

use std::ops::Range;
use std::time::Instant;

use crate::lane::Lane;
use crate::parallel::*;
use crate::tridiagonal::chunk::Upload;
use crate::tridiagonal::host::scaling;
use crate::tridiagonal::host::singularity::{clear, is_definite, largest_size, noise};
use crate::tridiagonal::kernels::alignment::TILE;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::{NOT_DOMINANT, both};
use crate::tridiagonal::one_pass::windows;
use crate::tridiagonal::options::{Options, PlanOptions, Refine};
use crate::tridiagonal::plan::Plan;
use crate::tridiagonal::residual::Residual;
use crate::tridiagonal::scheme::Scheme;
use crate::tridiagonal::sherman_morrison::ShermanMorrison;
use crate::tridiagonal::solution::{Method, Pass};
use crate::tridiagonal::system::row_range::RowSpan;
use crate::tridiagonal::system::view::View;
use crate::util::memory::try_zeroed;
use crate::util::quantity::{exponent, times_power_of_two};
use crate::{Error, Result};

/// Description of the memory for a solution, for error messages.
pub(super) fn solution_of(rows: usize) -> String {
    format!("the solution of {rows} rows")
}

/// Right-hand sides of large systems per plan. Each then moves 19 bytes per row, alone 40.
const OF_LARGE: usize = 8;
/// Minimum number of small systems in a plan, reached by copies: a CPU solves 8 side by side.
const TOGETHER: usize = 8;
/// Rows of all right-hand sides of small systems per plan, enough to keep a device busy.
const OF_SMALL: usize = 1 << 22;
const MOST_CORRECTIONS: u32 = 12;

/// Capacity of a plan in right-hand sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlanCapacity {
    rhs: usize,
    /// Copies of small systems that fill a tile; each copy solves for another right-hand side.
    copies: usize,
}

impl PlanCapacity {
    const ONE: Self = Self { rhs: 1, copies: 1 };

    /// Capacity for the right-hand sides of a view: all together if that is faster and they fit.
    fn of(view: &View<'_>, how: &PlanOptions) -> Result<Self> {
        let (all, RowSpan { n, rows, batch, cyclic, ranks, .. }) = (view.b.len(), view.span);
        if all < 2 || rows == 0 || (cyclic && batch == 1) || ranks.is_distributed() || how.pivot {
            return Ok(Self::ONE);
        }
        let (copies, most) = match Scheme::of(n, rows, false, false) {
            Scheme::Batch { .. } => {
                let copies = (TILE / rows).max(TOGETHER / batch).clamp(1, all);
                (copies, (OF_SMALL / (copies * rows)).max(OF_LARGE))
            }
            _ => {
                let read =
                    |rows: Range<usize>| Ok([view.dl, view.d, view.du].map(|v| v[rows.clone()].to_vec()));
                match windows::overlap(n, rows, read)? {
                    Some(_) => (1, OF_LARGE),
                    None => return Ok(Self::ONE),
                }
            }
        };
        // Equal numbers for each solution.
        let slots = all.div_ceil(copies);
        Ok(Self { rhs: slots.div_ceil(slots.div_ceil(most)), copies })
    }

    fn all(self) -> usize {
        self.rhs * self.copies
    }
}

#[derive(Debug)]
pub(crate) struct SystemGroup<'a, T> {
    plan: Plan<'a, T>,
    how: PlanOptions,
    room: PlanCapacity,
    /// True once the devices have the diagonals.
    filled: bool,
    /// True if the matrix may be singular; `None` before the test.
    doubt: Option<bool>,
    /// Correction of the unknowns, if several cyclic systems are solved as open ones.
    sherman_morrison: Option<ShermanMorrison>,
}

impl<'a, T: Number> SystemGroup<'a, T> {
    /// Creates a plan for the right-hand sides of a view, or for one if memory does not suffice.
    pub(crate) fn new(lanes: &'a [Lane], view: &View<'_>, how: &PlanOptions) -> Result<Self> {
        let made = |room: PlanCapacity| {
            let RowSpan { n, batch, .. } = view.span;
            let span = match room.copies {
                // Several cyclic systems are opened.
                1 => RowSpan { cyclic: view.span.cyclic && batch == 1, ..view.span },
                copies => RowSpan::whole(n, copies * batch, false),
            };
            let plan = Plan::of(lanes, span, &PlanOptions { rhs: room.rhs, ..*how })?;
            Ok(Self { plan, how: *how, room, filled: false, doubt: None, sherman_morrison: None })
        };
        match PlanCapacity::of(view, how)? {
            PlanCapacity::ONE => made(PlanCapacity::ONE),
            room => made(room).or_else(|e| match e {
                Error::OutOfMemory { .. } => made(PlanCapacity::ONE),
                e => Err(e),
            }),
        }
    }

    pub(crate) fn renew(&mut self) {
        (self.filled, self.doubt) = (false, None);
    }

    /// True if the matrix may be singular, judged by a solution for a random right-hand side.
    ///
    /// Each element of that side is the sum of the row's absolute values times a random factor.
    /// Every rank calls this.
    fn is_doubtful(&mut self, view: &View<'_>, seconds: &mut f64) -> Result<bool> {
        let RowSpan { n, first, rows, cyclic, ranks, .. } = view.span;
        (0..self.room.all()).for_each(|k| self.b(k, rows).fill(T::ZERO));
        let row = |(i, b): (usize, &mut T)| {
            let place = (first + i) % n;
            let left = if place > 0 || cyclic { view.dl[i].abs() } else { 0.0 };
            let right = if place + 1 < n || cyclic { view.du[i].abs() } else { 0.0 };
            *b = T::of(noise(first + i, 0) * (left + view.d[i].abs() + right));
        };
        self.b(0, rows).par_iter_mut().enumerate().for_each(row);
        self.solve_plan(seconds)?;
        let x = self.x(0, rows);
        let growth = match &self.sherman_morrison {
            None => largest_size(x),
            Some(sherman_morrison) => {
                let mut closed = vec![0.0; rows];
                scaling::convert(x, &mut closed);
                sherman_morrison.close(&mut closed);
                largest_size(&closed)
            }
        };
        Ok(ranks.all_reduce_max(growth) > clear(T::PRECISION))
    }

    /// True if this plan suits a view, which uses at least half of its capacity.
    pub(crate) fn fits(&self, view: &View<'_>, how: &PlanOptions) -> bool {
        let wanted = PlanCapacity::of(view, how).map_or(0, PlanCapacity::all);
        self.how == *how && (wanted..=2 * wanted).contains(&self.room.all())
    }

    /// Position of a right-hand side in the plan: its number there, and its rows.
    fn place(&self, number: usize, rows: usize) -> (usize, Range<usize>) {
        let copy = number % self.room.copies;
        (number / self.room.copies, copy * rows..(copy + 1) * rows)
    }

    fn b(&mut self, number: usize, rows: usize) -> &mut [T] {
        let (number, here) = self.place(number, rows);
        &mut self.plan.b(number)[here]
    }

    fn x(&self, number: usize, rows: usize) -> &[T] {
        let (number, here) = self.place(number, rows);
        &self.plan.x_of(number)[here]
    }

    /// Solves for the right-hand sides in the plan, and uploads the diagonals at the first call.
    fn solve_plan(&mut self, seconds: &mut f64) -> Result<crate::tridiagonal::Stages> {
        let at = Instant::now();
        let stages = self.plan.solve(if self.filled { Upload::RightHandSide } else { Upload::All })?;
        self.filled = true;
        *seconds += at.elapsed().as_secs_f64();
        Ok(stages)
    }

    /// Copies the diagonals to the plan, unless it has them.
    fn fill(&mut self, view: &View<'_>) {
        if self.filled {
            return;
        }
        let inputs = self.plan.inputs();
        for (from, to) in [(view.dl, inputs.dl), (view.d, inputs.d), (view.du, inputs.du)] {
            to.chunks_mut(from.len().max(1)).for_each(|to| scaling::convert(from, to));
        }
        if view.span.cyclic && view.span.batch > 1 {
            let d = self.plan.inputs().d;
            d.chunks_mut(view.d.len().max(1))
                .for_each(|d| ShermanMorrison::put_ends(view, |at, [end, _]| d[at] = T::of(end)));
        }
    }

    /// Prepares to solve cyclic systems as open ones; false if not possible. Every rank calls this.
    pub(crate) fn open(&mut self, view: &View<'_>, seconds: &mut f64) -> Result<bool> {
        let (ranks, rows) = (view.span.ranks, view.span.rows);
        if self.sherman_morrison.is_some() {
            return Ok(true);
        }
        if ranks.all_reduce_min(u64::from(ShermanMorrison::open(view))) == 0 {
            return Ok(false);
        }
        self.fill(view);
        (0..self.room.all()).for_each(|k| self.b(k, rows).fill(T::ZERO));
        let b = self.b(0, rows);
        ShermanMorrison::put_ends(view, |at, [_, number]| b[at] = T::of(number));
        self.solve_plan(seconds)?;
        let mut z = vec![0.0; rows];
        scaling::convert(self.x(0, rows), &mut z);
        let dominant = self.plan.flags()? == 0;
        self.sherman_morrison = ShermanMorrison::new(view, z);
        Ok(ranks.all_reduce_min(u64::from(dominant && self.sherman_morrison.is_some())) == 1)
    }

    /// Copies the unknowns of right-hand side `number`, times 2^k, to `to`.
    fn unknowns(&self, number: usize, to: &mut [f64], k: i32) {
        let x = self.x(number, to.len());
        match &self.sherman_morrison {
            None => scaling::convert_times(x, to, k),
            Some(sherman_morrison) => {
                scaling::convert(x, to);
                sherman_morrison.close(to);
                if k != 0 {
                    to.iter_mut().for_each(|x| *x = times_power_of_two(*x, k));
                }
            }
        }
    }

    /// Solves for all right-hand sides of a view, with unknowns from row `first` on; true if `stop`
    /// ended it.
    pub(crate) fn solve(
        &mut self,
        view: &View<'_>,
        first: usize,
        options: &Options,
        done: &mut Pass,
        stop: &impl Fn(u32) -> bool,
    ) -> Result<bool> {
        let solution = &mut done.solution;
        (solution.device_bytes, solution.chunks) = (self.plan.device_bytes(), self.plan.chunks());
        let (ranks, rows) = (view.span.ranks, view.span.rows);
        let (mut dominant, mut infinite) = (false, false);
        self.fill(view);
        for (group, bs) in view.b.chunks(self.room.all()).enumerate() {
            let from = group * self.room.all();
            let mut shifts = Vec::with_capacity(bs.len());
            for (k, b) in bs.iter().enumerate() {
                let largest = ranks.all_reduce_max(scaling::largest(b));
                shifts.push(scaling::shift(largest, scaling::headroom(T::PRECISION)));
                scaling::convert_times(b, self.b(k, rows), shifts[k]);
            }
            (bs.len()..self.room.all()).for_each(|k| self.b(k, rows).fill(T::ZERO));
            let stages = self.solve_plan(&mut solution.solve_seconds)?;
            if group == 0 {
                let flags = self.plan.flags()?;
                let pivots = (flags & !NOT_DOMINANT) / self.room.copies as u32;
                done.flags = both(done.flags, flags & NOT_DOMINANT | pivots);
                dominant = flags & NOT_DOMINANT == 0;
                if first == 0 {
                    solution.stages = stages;
                }
                if stop(done.flags) {
                    return Ok(true);
                }
            }
            let mut xs = Vec::with_capacity(bs.len());
            for (k, x) in solution.x[from..].iter_mut().take(bs.len()).enumerate() {
                let x = &mut x[first..first + rows];
                self.unknowns(k, x, -shifts[k]);
                xs.push(x);
            }
            let seconds = &mut solution.solve_seconds;
            let refined = self.refine(view, bs, &mut xs, (options.refine, dominant), seconds)?;
            if solution.method == Method::OnePass && !self.plan.is_one_pass() {
                solution.method = Method::Partition;
            }
            for (residual, Refined { residual: found, steps, .. }) in
                solution.residuals[from..].iter_mut().zip(refined)
            {
                *residual = residual.max(found);
                infinite |= found.is_infinite();
                solution.refinements = solution.refinements.max(steps);
            }
        }
        done.doubt |= match self.doubt {
            Some(doubt) => doubt,
            // A single system with unknowns that are not finite goes to the host in any case.
            None if infinite && view.span.batch == 1 => true,
            None => {
                // Dominant rows without small pivots are those of a regular matrix.
                let regular = dominant && done.flags == 0 && !self.how.pivot;
                let doubt =
                    !regular && !is_definite(view) && self.is_doubtful(view, &mut solution.solve_seconds)?;
                *self.doubt.insert(doubt)
            }
        };
        Ok(false)
    }

    /// Refines x with solutions for the residuals, which are computed in double precision.
    fn refine(
        &mut self,
        view: &View<'_>,
        bs: &[&[f64]],
        xs: &mut [&mut [f64]],
        how: (Refine, bool),
        seconds: &mut f64,
    ) -> Result<Vec<Refined>> {
        let rows = view.span.rows;
        let array = || try_zeroed(rows, || solution_of(rows));
        let arrays = array().and_then(|r| Ok((r, array()?)));
        let (mut r, mut better) = view.span.ranks.all_ok(arrays)?;
        let largest = |r: &[f64]| view.span.ranks.all_reduce_max(scaling::largest(r));
        let mut all: Vec<Refined> = Vec::with_capacity(bs.len());
        for (k, (b, x)) in bs.iter().zip(&*xs).enumerate() {
            let one = Refined::new(how, view.residual(b, x, &mut r), || largest(&r));
            if let Some(scale) = one.scale {
                scaling::convert_times(&r, self.b(k, rows), scale);
            }
            all.push(one);
        }
        while all.iter().any(|one| one.scale.is_some()) {
            for k in 0..self.room.all() {
                if all.get(k).is_none_or(|one| one.scale.is_none()) {
                    self.b(k, rows).fill(T::ZERO);
                }
            }
            self.solve_plan(seconds)?;
            for (k, one) in all.iter_mut().enumerate() {
                let (Some(scale), b, x) = (one.scale, bs[k], &mut *xs[k]) else { continue };
                self.unknowns(k, &mut better, -scale);
                better.iter_mut().zip(&*x).for_each(|(e, x)| *e += x);
                one.correct(view.residual(b, &better, &mut r), x, &better, || largest(&r));
                if let Some(scale) = one.scale {
                    scaling::convert_times(&r, self.b(k, rows), scale);
                }
            }
        }
        Ok(all)
    }
}

pub(crate) struct Refined {
    refine: Refine,
    dominant: bool,
    pub(crate) residual: Residual,
    pub(crate) steps: u32,
    /// Exponent of the power of two that scales the residual to size 1 for the next correction;
    /// `None` if no correction follows.
    pub(crate) scale: Option<i32>,
}

impl Refined {
    /// Starts a refinement from the residual of a solution. `largest` returns the maximum of |r|.
    pub(crate) fn new(
        (refine, dominant): (Refine, bool),
        residual: Residual,
        largest: impl FnOnce() -> f64,
    ) -> Self {
        let mut own = Self { refine, dominant, residual, steps: 0, scale: None };
        own.decide(largest);
        own
    }

    fn decide(&mut self, largest: impl FnOnce() -> f64) {
        let (residual, steps) = (self.residual, self.steps);
        let done = match self.refine {
            Refine::Auto => {
                let settled = residual.settled(self.dominant && steps == 0) || residual.is_infinite();
                settled || steps >= MOST_CORRECTIONS
            }
            Refine::Steps(most) => residual.componentwise == 0.0 || steps >= most,
        };
        let largest = if done { 0.0 } else { largest() };
        self.scale = (largest > 0.0 && largest.is_finite()).then(|| -exponent(largest));
    }

    /// Replaces x by the unknowns `better`, with the residual `after`, unless they are worse.
    pub(crate) fn correct(
        &mut self,
        after: Residual,
        x: &mut [f64],
        better: &[f64],
        largest: impl FnOnce() -> f64,
    ) {
        // A reduction by less than half means that rounding errors dominate.
        let last = self.refine == Refine::Auto && after.excess() >= 0.5 * self.residual.excess();
        if !last || after.excess() < self.residual.excess() {
            x.copy_from_slice(better);
            (self.residual, self.steps) = (after, self.steps + 1);
        }
        self.scale = None;
        if !last {
            self.decide(largest);
        }
    }
}
