//! A matrix that is kept for any number of solutions.

use super::{AnySolver, SYSTEMS, expect_lengths};
use crate::tridiagonal::Options;
use crate::tridiagonal::solution::Solution;
use crate::tridiagonal::system::System;
use crate::tridiagonal::system::borrowed::transpose_each;
use crate::tridiagonal::system::view::{View, Watch};
use crate::{Error, Machine, Result};

/// A matrix and all that is kept of it between solutions: what was found of its rows, and the diagonals on the devices.
///
/// A solution brings right-hand sides there and unknowns back, 16 bytes a row in double precision. It has the same
/// certificate as that of [`solve`](crate::tridiagonal::solve()), for each right-hand side.
///
/// Nothing of an elimination is stored: its numbers would be as many as the matrix has. Instead up to 8 right-hand sides of
/// large systems go through the devices together, more of small ones, with the diagonals read once: 16 + 24 / 8 = 19 bytes a
/// row and right-hand side where one pass is enough, against 40 for one alone.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::tridiagonal::{Factor, Options, System};
///
/// let machine = Machine::best()?;
/// let n = 1000;
/// let matrix = System::matrix(1, vec![-1.0; n], vec![4.0; n], vec![-2.0; n])?;
/// let mut factor = Factor::new(&machine, matrix, &Options::default())?;
/// let (x, y) = (vec![1.0; n], vec![2.0; n]);
/// let given = factor.solve(&[&x, &y])?;
/// let transposed = factor.solve_transposed(&[&x])?;
/// // xᵀ A⁻¹ y, both ways.
/// let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
/// assert!((product(&x, &given.x[1]) - product(&transposed.x[0], &y)).abs() < 1e-9);
/// # Ok::<(), kolmo::Error>(())
/// ```
#[derive(Debug)]
pub struct Factor<'a> {
    machine: &'a Machine,
    options: Options,
    matrix: System,
    solver: AnySolver<'a>,
    transposed: Option<Transposed<'a>>,
}

/// The transposed matrix, but for its diagonal.
#[derive(Debug)]
struct Transposed<'a> {
    dl: Vec<f64>,
    du: Vec<f64>,
    solver: AnySolver<'a>,
}

impl<'a> Factor<'a> {
    /// Keeps a matrix; right-hand sides that come with it are left out.
    ///
    /// # Errors
    /// [`Error::Invalid`] for numbers that are not finite.
    pub fn new(machine: &'a Machine, matrix: System, options: &Options) -> Result<Self> {
        let matrix = System { b: Vec::new(), ..matrix };
        matrix.check()?;
        machine.expect_floating(SYSTEMS)?;
        let solver = AnySolver::new(machine, options);
        Ok(Self { machine, options: *options, matrix, solver, transposed: None })
    }

    /// The matrix.
    pub fn matrix(&self) -> &System {
        &self.matrix
    }

    /// Solves A·x = b for each of these right-hand sides, of as many numbers as the matrix has rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for right-hand sides that do not fit, and for numbers that are not finite; devices' errors.
    pub fn solve(&mut self, b: &[&[f64]]) -> Result<Solution> {
        let (solver, view) = self.asked(b, false)?;
        solver.solve(&view)
    }

    /// Solves Aᵀ·x = b for each of these right-hand sides. The first time, the transposed matrix gets its own place on the
    /// devices.
    ///
    /// # Errors
    /// As [`Factor::solve`].
    pub fn solve_transposed(&mut self, b: &[&[f64]]) -> Result<Solution> {
        let (solver, view) = self.asked(b, true)?;
        solver.solve(&view)
    }

    /// Solves into the caller's arrays, as [`solve_into`](crate::tridiagonal::solve_into) does; with the transposed matrix where that is
    /// asked for.
    ///
    /// # Errors
    /// As [`Factor::solve`]; for arrays that do not fit, and those of `watch`.
    pub fn solve_into(
        &mut self,
        b: &[&[f64]],
        transposed: bool,
        x: &mut [&mut [f64]],
        watch: &mut Watch<'_>,
    ) -> Result<Solution> {
        expect_lengths(self.matrix.rows(), b, x)?;
        let (solver, view) = self.asked(b, transposed)?;
        solver.solve_into(&view, x, watch)
    }

    /// A solver of the matrix or the transposed one, and its view with right-hand sides that fit.
    fn asked<'v>(
        &'v mut self,
        b: &[&'v [f64]],
        transposed: bool,
    ) -> Result<(&'v mut AnySolver<'a>, View<'v>)> {
        let b = self.checked(b)?;
        if !transposed {
            return Ok((&mut self.solver, View { b, ..View::from(&self.matrix) }));
        }
        let Transposed { dl, du, solver } = self.transposed.get_or_insert_with(|| {
            let (mut dl, mut du) = (self.matrix.dl.clone(), self.matrix.du.clone());
            transpose_each(self.matrix.n, &mut dl, &mut du);
            Transposed { dl, du, solver: AnySolver::new(self.machine, &self.options) }
        });
        Ok((solver, View { b, dl, du, ..View::from(&self.matrix) }))
    }

    /// Right-hand sides that fit.
    fn checked<'b>(&self, b: &[&'b [f64]]) -> Result<Vec<&'b [f64]>> {
        let rows = self.matrix.rows();
        if b.is_empty() {
            return Err(Error::Invalid("no right-hand side: expected at least one".to_owned()));
        }
        if let Some(b) = b.iter().find(|b| b.len() != rows) {
            return Err(Error::Invalid(format!("b has {} numbers, but d has {rows}", b.len())));
        }
        View { b: b.to_vec(), ..View::from(&self.matrix) }.check_right_hand_sides(&mut || Ok(()))?;
        Ok(b.to_vec())
    }
}
