//! Factor: a matrix that is kept for any number of solutions.

use super::{AnySolver, SYSTEMS, expect_lengths};
use crate::tridiagonal::Options;
use crate::tridiagonal::solution::Solution;
use crate::tridiagonal::system::System;
use crate::tridiagonal::system::borrowed::transpose_each;
use crate::tridiagonal::system::view::{self, View};
use crate::{Machine, Progress, Result};

/// Matrix for any number of solutions, with its diagonals on the devices and properties of its
/// rows.
///
/// A solution uploads right-hand sides and downloads unknowns, 16 bytes per row in double
/// precision. Each right-hand side has the certificate of [`solve`](crate::tridiagonal::solve()).
///
/// No factorization is stored: it would have as many numbers as the matrix. Instead up to 8
/// right-hand sides of large systems are solved together, more of small ones, so that the diagonals
/// are read once. If one pass suffices, this takes 16 + 24 / 8 = 19 bytes per row and right-hand
/// side, compared with 40 for a single right-hand side.
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

#[derive(Debug)]
struct Transposed<'a> {
    dl: Vec<f64>,
    du: Vec<f64>,
    solver: AnySolver<'a>,
}

impl<'a> Factor<'a> {
    /// Keeps a matrix, and ignores its right-hand sides.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for numbers that are not finite.
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

    /// Solves A·x = b for each of these right-hand sides, each with as many numbers as the matrix
    /// has rows.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for right-hand sides of wrong length and numbers that are not
    /// finite; errors of devices.
    pub fn solve(&mut self, b: &[&[f64]]) -> Result<Solution> {
        let (solver, view) = self.asked(b, false)?;
        solver.solve(&view)
    }

    /// Solves Aᵀ·x = b for each of these right-hand sides. The first call allocates memory for the
    /// transposed matrix on the devices.
    ///
    /// # Errors
    /// The errors of [`Factor::solve`].
    pub fn solve_transposed(&mut self, b: &[&[f64]]) -> Result<Solution> {
        let (solver, view) = self.asked(b, true)?;
        solver.solve(&view)
    }

    /// Solves into the caller's arrays as [`solve_into`](crate::tridiagonal::solve_into) does, with
    /// the transposed matrix if `transposed` is set.
    ///
    /// # Errors
    /// The errors of [`Factor::solve`]; [`crate::Error::Invalid`] for arrays of wrong length;
    /// errors of `watch`.
    pub fn solve_into(
        &mut self,
        b: &[&[f64]],
        transposed: bool,
        x: &mut [&mut [f64]],
        watch: &mut dyn Progress,
    ) -> Result<Solution> {
        expect_lengths(self.matrix.rows(), b, x)?;
        let (solver, view) = self.asked(b, transposed)?;
        solver.solve_into(&view, x, watch, false)
    }

    /// Returns the solver of the matrix or its transpose, and a view of that matrix with the
    /// checked right-hand sides `b`.
    fn asked<'v>(
        &'v mut self,
        b: &[&'v [f64]],
        transposed: bool,
    ) -> Result<(&'v mut AnySolver<'a>, View<'v>)> {
        view::expect_lengths(self.matrix.rows(), b)?;
        let b = b.to_vec();
        View { b: b.clone(), ..View::from(&self.matrix) }.check_right_hand_sides(&mut ())?;
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
}
