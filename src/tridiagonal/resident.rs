//! Systems with arrays that stay on a device: solution and backward error without the host.
//!
//! The device computes the componentwise backward error of every row (Oettli, Prager 1964), and
//! downloads the maximum of each 2048 rows. This reads 40 bytes per row, in addition to the 40 or
//! 72 of the solution. Rows are not exchanged and unknowns not refined. Systems that require either
//! need [`solve`](super::solve) on the host.

use super::kernels::number::{Number, fma};
use super::kernels::row_memory::Arrays;
use super::kernels::tiles::Diagonals;
use super::one_pass::windows;
use super::options::PlanOptions;
use super::plan::Plan;
use super::residual::Residual;
use crate::kernel::cpu::Call;
use crate::kernel::cpu::simd::{Body, dispatch};
use crate::kernel::{Kernel, Precision, kernel};
use crate::lane::{Buffer, Lane, Launch};
use crate::parallel::*;
use crate::{Invalid, Machine, Result};

kernel! {
    /// Computes the maximum backward error of each group of 2048 rows.
    pub(super) static RESIDUAL = tridiagonal_residual + tree + pivots(rows, n, cyclic, tiny)(
        dl: &[T], d: &[T], du: &[T], rhs: &[T], x: &[T], errors: &mut [T],
    );
}

/// Rows of a group, for which the kernel returns the maximum backward error.
const ROWS: usize = 2048;

/// Group of [`ROWS`] rows, to compute the maximum backward error.
struct RowGroup<'a, T> {
    p: tridiagonal_residual::Params,
    rows: Diagonals<'a, T>,
    x: &'a [T],
    first: usize,
    error: &'a mut T,
}

impl<T: Number> Body for RowGroup<'_, T> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let [rows, n] = [self.p.rows, self.p.n].map(|number| number as usize);
        let least = T::of(crate::util::quantity::power(-16 * self.p.tiny as i32));
        let (open, Diagonals { dl, d, du, rhs }) = (self.p.cyclic == 0, self.rows);
        let mut worst = T::ZERO;
        for row in self.first..rows.min(self.first + ROWS) {
            let place = row % n;
            let (begins, ends) = (place == 0, place + 1 == n);
            let before = if begins { row + n - 1 } else { row - 1 };
            let behind = if ends { row - place } else { row + 1 };
            let unless = |beyond: bool, of: &[T], at: usize| if beyond && open { T::ZERO } else { of[at] };
            let k = [unless(begins, dl, row), d[row], unless(ends, du, row)];
            let at = [unless(begins, self.x, before), self.x[row], unless(ends, self.x, behind)];
            let b = rhs[row];
            let left = fma::<T, LEVEL>(-k[0], at[0], b);
            let left = fma::<T, LEVEL>(-k[1], at[1], fma::<T, LEVEL>(-k[2], at[2], left)).size();
            let scale = (k[0] * at[0]).size() + (k[1] * at[1]).size() + (k[2] * at[2]).size() + b.size();
            let known = left <= scale && scale >= least && scale * least <= T::of(1.0);
            let none = || k.iter().zip(&at).all(|(&k, &x)| k == T::ZERO || x == T::ZERO) && b == T::ZERO;
            let error = if known { left / scale } else { T::of(f64::from(u8::from(!none()))) };
            worst = if error > worst { error } else { worst };
        }
        *self.error = worst;
    }
}

fn tridiagonal_residual<T: Number>(
    _: &Call<'_>,
    p: tridiagonal_residual::Params,
    b: tridiagonal_residual::Bindings<'_, T>,
) {
    let tridiagonal_residual::Bindings { dl, d, du, rhs, x, errors, .. } = b;
    let rows = Diagonals { dl, d, du, rhs };
    let groups = (p.rows as usize).div_ceil(ROWS);
    errors[..groups].par_iter_mut().enumerate().for_each(|(group, error)| {
        dispatch(RowGroup { p, rows, x, first: group * ROWS, error });
    });
}

/// Tridiagonal matrices in the memory of a lane, for any number of right-hand sides that are also
/// there.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::tridiagonal::Resident;
///
/// let machine = Machine::best()?;
/// let (lane, n) = (&machine.lanes[0], 1000);
/// # if machine.precision != kolmo::kernel::Precision::F64 { return Ok(()); }
/// let mut resident = Resident::new(&machine, n, 1, false)?;
/// let arrays = resident.arrays();
/// lane.upload(&vec![-1.0; n], &arrays.dl, 0)?;
/// lane.upload(&vec![4.0; n], &arrays.d, 0)?;
/// lane.upload(&vec![-1.0; n], &arrays.du, 0)?;
/// lane.upload(&vec![2.0; n], &arrays.b, 0)?;
/// let residual = resident.solve(1e-12)?.expect("rows are dominant");
/// assert!(residual.componentwise < 1e-14);
/// let mut x = [0.0];
/// lane.download(&resident.arrays().x, n / 2, &mut x)?;
/// assert!((x[0] - 1.0).abs() < 1e-14);
/// # Ok::<(), kolmo::Error>(())
/// ```
#[derive(Debug)]
pub struct Resident<'a> {
    machine: &'a Machine,
    plan: Plan<'a, f64>,
    shape: (usize, usize, bool),
    residual: Launch,
    errors: Buffer<f64>,
}

impl<'a> Resident<'a> {
    /// Allocates memory on the machine's first lane for `batch` concatenated systems of `n` rows.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] without a row, for several cyclic systems, which need the host,
    /// and for a machine with a precision other than double; [`crate::Error::OutOfMemory`].
    pub fn new(machine: &'a Machine, n: usize, batch: usize, cyclic: bool) -> Result<Self> {
        if machine.precision != Precision::F64 {
            return Invalid::Unsupported.fail(
                "this precision is not supported for numbers on a device: expected f64; leave it \
                 out",
            );
        }
        if cyclic && batch > 1 {
            return Invalid::Unsupported.fail(format!(
                "{batch} cyclic systems on a device are not supported: expected one, or numbers on \
                 the host"
            ));
        }
        let lane = &machine.lanes[0];
        let options = PlanOptions { resident: true, ..PlanOptions::default() };
        let mut plan = Plan::<f64>::with(std::slice::from_ref(lane), n, batch, cyclic, &options)?;
        let (rows, Arrays { dl, d, du, b, x }) = (plan.rows(), plan.on_device());
        let groups = rows.div_ceil(ROWS);
        let errors = lane.alloc("errors of rows", groups)?;
        let (dl, d, du, rhs, x) = (dl.arg(), d.arg(), du.arg(), b.arg(), x.arg());
        let args = tridiagonal_residual::Args { dl, d, du, rhs, x, errors: errors.arg() };
        let params = tridiagonal_residual::Params {
            step: 0,
            rows: rows as u32,
            n: n as u32,
            cyclic: u32::from(cyclic),
            tiny: windows::tiny(Precision::F64),
        };
        let items = groups * Kernel::GROUP as usize;
        let residual = lane.bind(&RESIDUAL, Precision::F64, items, params, args)?;
        Ok(Self { machine, plan, shape: (n, batch, cyclic), residual, errors })
    }

    /// Returns a copy with the transposed matrices, in new memory.
    ///
    /// # Errors
    /// The errors of [`Resident::new`], and [`crate::Error::Device`] on a lane that cannot copy
    /// part of an array.
    pub fn transposed(&mut self) -> Result<Self> {
        let (n, batch, cyclic) = self.shape;
        let (machine, rows) = (self.machine, n * batch);
        let mut other = Self::new(machine, n, batch, cyclic)?;
        let (from, to, lane) = (self.plan.on_device(), other.plan.on_device(), &machine.lanes[0]);
        lane.copy_part(&from.d, 0..rows, &to.d, 0)?;
        // Elements between two systems are not used.
        lane.copy_part(&from.du, 0..rows - 1, &to.dl, 1)?;
        lane.copy_part(&from.dl, 1..rows, &to.du, 0)?;
        if cyclic {
            lane.copy_part(&from.du, rows - 1..rows, &to.dl, 0)?;
            lane.copy_part(&from.dl, 0..1, &to.du, rows - 1)?;
        }
        Ok(other)
    }

    /// Lane that has the arrays.
    pub fn lane(&self) -> &'a Lane {
        &self.machine.lanes[0]
    }

    /// Arrays on the lane: diagonals and right-hand side, to be filled before the first solution,
    /// and unknowns.
    pub fn arrays(&mut self) -> &Arrays<f64> {
        self.plan.on_device()
    }

    /// Solves for the right-hand side on the lane.
    ///
    /// Returns the componentwise backward error, which is at least the normwise one, if it is
    /// within `tolerance` in the sense of [`Residual::within`]. Returns `None` if rows have to be
    /// exchanged or unknowns refined, or if a number is not finite. The unknowns are then
    /// undefined.
    pub fn solve(&mut self, tolerance: f64) -> Result<Option<Residual>> {
        self.plan.solve_resident(1)?;
        if self.plan.flags()? != 0 {
            return Ok(None);
        }
        let lane = &self.machine.lanes[0];
        lane.launch(&[&self.residual], 0)?;
        let mut errors = vec![0.0; self.errors.len()];
        lane.download(&self.errors, 0, &mut errors)?;
        let error = errors.into_iter().fold(0.0, f64::max);
        let residual = Residual { normwise: error, componentwise: error };
        Ok(residual.within(tolerance).then_some(residual))
    }
}
