//! Right-hand sides that a plan solves together, and their refinement.

use std::ops::Range;
use std::time::Instant;

use super::pass::Pass;
use super::solution_of;
use crate::lane::Lane;
use crate::lane::cpu::try_zeroed;
use crate::parallel::*;
use crate::tridiagonal::chunk::Upload;
use crate::tridiagonal::host::scaling;
use crate::tridiagonal::host::singularity::{clear, noise};
use crate::tridiagonal::kernels::alignment::TILE;
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::{NOT_DOMINANT, both};
use crate::tridiagonal::one_pass::windows;
use crate::tridiagonal::options::{Options, PlanOptions, Refine};
use crate::tridiagonal::plan::Plan;
use crate::tridiagonal::residual::Residual;
use crate::tridiagonal::scheme::Scheme;
use crate::tridiagonal::sherman_morrison::ShermanMorrison;
use crate::tridiagonal::system::row_range::Span;
use crate::tridiagonal::system::view::View;
use crate::util::quantity::{exponent, times_power_of_two};
use crate::{Error, Result};

/// Right-hand sides of large systems per plan. The diagonals are 24 of 40 bytes per row; 19 remain.
const OF_LARGE: usize = 8;
/// Minimum number of small systems after repetition: the CPU implementation solves 8 side by side.
const TOGETHER: usize = 8;
/// Rows of all right-hand sides of small systems per plan, enough to keep a device busy.
const OF_SMALL: usize = 1 << 22;
/// Default maximum number of corrections.
pub(crate) const MOST_CORRECTIONS: u32 = 12;

/// Capacity of a plan in right-hand sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    /// Number of right-hand sides of the plan.
    rhs: usize,
    /// Copies of small systems that fill a tile; each copy solves for another right-hand side.
    copies: usize,
}

impl Room {
    const ONE: Self = Self { rhs: 1, copies: 1 };

    /// Capacity for the right-hand sides of a view: all together if that is faster and they fit.
    fn of(view: &View<'_>, how: &PlanOptions) -> Result<Self> {
        let (all, Span { n, rows, batch, cyclic, ranks, .. }) = (view.b.len(), view.span);
        if all < 2 || rows == 0 || (cyclic && batch == 1) || ranks.is_distributed() || how.block.is_some() {
            return Ok(Self::ONE);
        }
        let (copies, most) = match Scheme::of(n, rows, false, None) {
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

/// Plan with the diagonals of a matrix.
#[derive(Debug)]
pub(crate) struct Group<'a, T> {
    plan: Plan<'a, T>,
    how: PlanOptions,
    room: Room,
    /// True once the devices have the diagonals.
    filled: bool,
    /// True if the matrix may be singular; `None` before the test.
    doubt: Option<bool>,
    /// Correction of the unknowns, if several cyclic systems are solved as open ones.
    sherman_morrison: Option<ShermanMorrison>,
}

impl<'a, T: Number> Group<'a, T> {
    /// Creates a plan for the right-hand sides of a view, or for one if memory does not suffice.
    pub(crate) fn new(lanes: &'a [Lane], view: &View<'_>, how: &PlanOptions) -> Result<Self> {
        let made = |room: Room| {
            let Span { n, batch, .. } = view.span;
            let span = match room.copies {
                // Several cyclic systems are opened.
                1 => Span { cyclic: view.span.cyclic && batch == 1, ..view.span },
                copies => Span::whole(n, copies * batch, false),
            };
            let plan = Plan::of(lanes, span, &PlanOptions { rhs: room.rhs, ..*how })?;
            Ok(Self { plan, how: *how, room, filled: false, doubt: None, sherman_morrison: None })
        };
        match Room::of(view, how)? {
            Room::ONE => made(Room::ONE),
            room => made(room).or_else(|e| match e {
                Error::OutOfMemory { .. } => made(Room::ONE),
                e => Err(e),
            }),
        }
    }

    /// Prepares the plan for another matrix.
    pub(crate) fn renew(&mut self) {
        (self.filled, self.doubt) = (false, None);
    }

    /// True if a solution for a random right-hand side does not rule out that the matrix is
    /// singular. Each element is the sum of the row's absolute values times a random factor. Every
    /// rank calls this.
    fn is_doubtful(&mut self, view: &View<'_>, seconds: &mut f64) -> Result<bool> {
        let Span { n, first, rows, cyclic, ranks, .. } = view.span;
        (0..self.room.all()).for_each(|k| self.b(k, rows).fill(T::ZERO));
        let row = |(i, b): (usize, &mut T)| {
            let place = (first + i) % n;
            let left = if place > 0 || cyclic { view.dl[i].abs() } else { 0.0 };
            let right = if place + 1 < n || cyclic { view.du[i].abs() } else { 0.0 };
            *b = T::of(noise(first + i, 0) * (left + view.d[i].abs() + right));
        };
        self.b(0, rows).par_iter_mut().enumerate().for_each(row);
        self.solve_plan(seconds)?;
        let mut x = vec![0.0; rows];
        self.unknowns(0, &mut x, 0);
        let growth = x.par_iter().map(|x| if x.is_nan() { f64::INFINITY } else { x.abs() });
        let growth = growth.reduce(|| 0.0, f64::max);
        Ok(ranks.all_reduce_max(growth) > clear(T::PRECISION))
    }

    /// True if this plan suits a view, which uses at least half of its capacity.
    pub(crate) fn fits(&self, view: &View<'_>, how: &PlanOptions) -> bool {
        let wanted = Room::of(view, how).map_or(0, Room::all);
        self.how == *how && (wanted..=2 * wanted).contains(&self.room.all())
    }

    /// Position of a right-hand side in the plan: its number there, and its rows.
    fn place(&self, number: usize, rows: usize) -> (usize, Range<usize>) {
        let copy = number % self.room.copies;
        (number / self.room.copies, copy * rows..(copy + 1) * rows)
    }

    /// Right-hand side `number`, to be filled.
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
                .for_each(|d| ShermanMorrison::diagonal(view, |at, end| d[at] = T::of(end)));
        }
    }

    /// Opens several cyclic systems; false if they cannot be solved so. Every rank calls this.
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
        ShermanMorrison::right_hand_side(view, |at, number| b[at] = T::of(number));
        self.solve_plan(seconds)?;
        let mut z = vec![0.0; rows];
        scaling::convert(self.x(0, rows), &mut z);
        let dominant = self.plan.flags()? == 0;
        self.sherman_morrison = ShermanMorrison::new(view, z);
        Ok(ranks.all_reduce_min(u64::from(dominant && self.sherman_morrison.is_some())) == 1)
    }

    /// Copies the unknowns of a right-hand side times 2^k to `to`.
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
        seconds: &mut f64,
        stop: &impl Fn(u32) -> bool,
    ) -> Result<bool> {
        (done.device_bytes, done.chunks) = (self.plan.device_bytes(), self.plan.chunks());
        let (ranks, rows) = (view.span.ranks, view.span.rows);
        let mut dominant = false;
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
            let stages = self.solve_plan(seconds)?;
            if group == 0 {
                let flags = self.plan.flags()?;
                let pivots = (flags & !NOT_DOMINANT) / self.room.copies as u32;
                done.flags = both(done.flags, flags & NOT_DOMINANT | pivots);
                dominant = flags & NOT_DOMINANT == 0;
                if first == 0 {
                    done.stages = stages;
                }
                if stop(done.flags) {
                    return Ok(true);
                }
            }
            let mut xs = Vec::with_capacity(bs.len());
            for (k, x) in done.x[from..].iter_mut().take(bs.len()).enumerate() {
                let x = &mut x[first..first + rows];
                self.unknowns(k, x, -shifts[k]);
                xs.push(x);
            }
            let found = self.refine(view, bs, &mut xs, (options.refine, dominant), seconds)?;
            done.one_pass &= self.plan.is_one_pass();
            for (residual, (found, steps)) in done.residuals[from..].iter_mut().zip(found) {
                *residual = residual.max(found);
                done.refinements = done.refinements.max(steps);
            }
        }
        // Dominant rows without small pivots are those of a regular matrix.
        let regular = dominant && done.flags == 0 && self.how.block.is_none();
        let doubt = match self.doubt {
            Some(doubt) => doubt,
            None => !regular && self.is_doubtful(view, seconds)?,
        };
        self.doubt = Some(doubt);
        done.doubt |= doubt;
        Ok(false)
    }

    /// Refines x with solutions for the residuals, which are computed in double precision. Returns
    /// the final residuals and the numbers of corrections.
    fn refine(
        &mut self,
        view: &View<'_>,
        bs: &[&[f64]],
        xs: &mut [&mut [f64]],
        (corrections, dominant): (Refine, bool),
        seconds: &mut f64,
    ) -> Result<Vec<(Residual, u32)>> {
        let rows = view.span.rows;
        let most = match corrections {
            Refine::Auto => MOST_CORRECTIONS,
            Refine::Steps(steps) => steps,
        };
        let array = || try_zeroed(rows, || solution_of(rows));
        let arrays = array().and_then(|r| Ok((r, array()?)));
        let (mut r, mut better) = view.span.ranks.all_ok(arrays)?;
        // The residual, the corrections so far, and, if another correction follows, the power of
        // two that scales the residual to the range of single precision without rounding.
        let mut all: Vec<(Residual, u32, Option<i32>)> = Vec::with_capacity(bs.len());
        let scale_of = |residual: Residual, steps: u32, r: &[f64]| {
            let done = match corrections {
                Refine::Auto => residual.settled(dominant && steps == 0),
                Refine::Steps(_) => residual.componentwise == 0.0,
            };
            if steps >= most || done {
                return None;
            }
            let largest = view.span.ranks.all_reduce_max(scaling::largest(r));
            (largest > 0.0 && largest.is_finite()).then(|| -exponent(largest))
        };
        for (k, (b, x)) in bs.iter().zip(&*xs).enumerate() {
            let residual = view.residual(b, x, &mut r);
            let scale = scale_of(residual, 0, &r);
            if let Some(scale) = scale {
                scaling::convert_times(&r, self.b(k, rows), scale);
            }
            all.push((residual, 0, scale));
        }
        while all.iter().any(|(.., scale)| scale.is_some()) {
            for k in 0..self.room.all() {
                if all.get(k).is_none_or(|(.., scale)| scale.is_none()) {
                    self.b(k, rows).fill(T::ZERO);
                }
            }
            self.solve_plan(seconds)?;
            for (k, (residual, steps, next)) in all.iter_mut().enumerate() {
                let Some(scale) = next.take() else { continue };
                let (b, x) = (bs[k], &mut *xs[k]);
                self.unknowns(k, &mut better, -scale);
                better.iter_mut().zip(&*x).for_each(|(e, x)| *e += x);
                let (before, after) = (*residual, view.residual(b, &better, &mut r));
                // A reduction by less than half means that rounding errors dominate.
                let last = corrections == Refine::Auto && after.excess() >= 0.5 * before.excess();
                if !last || after.excess() < before.excess() {
                    x.copy_from_slice(&better);
                    (*residual, *steps) = (after, *steps + 1);
                }
                *next = if last { None } else { scale_of(*residual, *steps, &r) };
                if let Some(scale) = *next {
                    scaling::convert_times(&r, self.b(k, rows), scale);
                }
            }
        }
        Ok(all.into_iter().map(|(residual, steps, _)| (residual, steps)).collect())
    }
}
