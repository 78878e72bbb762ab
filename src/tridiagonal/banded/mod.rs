//! Pentadiagonal systems, and block tridiagonal systems with blocks of 2 × 2.
//!
//! One scheme serves both forms: two rows of a pentadiagonal matrix are a block row.
//!
//! The rows are solved in overlapping tiles (windows, see `one_pass/windows.rs`) of block rows. A
//! tile is solved together with the surrounding rows that still matter, or consists of whole
//! systems. The same pass computes the componentwise backward error of every row from the stored
//! unknowns. A solution counts if that error is at most 64 ε in each row (32 ε in single
//! precision), which certifies it for any matrix.
//!
//! Banded elimination with partial pivoting on the host follows if couplings reach too far. A check
//! of sampled rows finds that, or a second solution with the widest windows that is not certified.

pub(crate) mod kernels;
mod plan;
mod solve;
mod windows;

use std::ops::Range;

use super::host::eliminate::Eliminate;
use super::residual::{self, AllNorms, Norms, Residual, joined};
use super::system::view::not_finite;
use crate::parallel::*;
use crate::{Invalid, Result};

pub use plan::BandedPlan;
pub use solve::solve_banded;

/// Storage of the matrix of a [`BandedSystem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Five diagonals.
    Pentadiagonal,
    /// Blocks of 2 × 2: three per block row.
    Blocks,
}

impl Form {
    /// Names of the arrays of this form.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Pentadiagonal => &["dl2", "dl", "d", "du", "du2"],
            Self::Blocks => &["lower", "diagonal", "upper"],
        }
    }

    /// Number of elements per row in each array of the matrix: 1 for diagonals, 2 for blocks.
    pub fn width(self) -> usize {
        if self == Self::Blocks { 2 } else { 1 }
    }
}

/// Pentadiagonal or block tridiagonal systems of equal size, concatenated.
#[derive(Debug, Clone, PartialEq)]
pub struct BandedSystem {
    form: Form,
    n: usize,
    batch: usize,
    arrays: Vec<Vec<f64>>,
    /// Right-hand sides, each of `batch · n` numbers.
    pub b: Vec<Vec<f64>>,
}

impl BandedSystem {
    /// Creates systems dl2_i·x_{i−2} + dl_i·x_{i−1} + d_i·x_i + du_i·x_{i+1} + du2_i·x_{i+2} = b_i.
    ///
    /// Each diagonal has one element per row. Elements beyond the ends of a system are ignored and
    /// may have any value.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if there is no row or no system, or array lengths do not match.
    ///
    /// ```
    /// use kolmo::Machine;
    /// use kolmo::tridiagonal::{BandedSystem, Options, Status, solve_banded};
    ///
    /// let n = 1000;
    /// let diagonals = [1.0, -4.0, 12.0, -4.0, 1.0].map(|v| vec![v; n]);
    /// let system = BandedSystem::pentadiagonal(1, diagonals, vec![vec![6.0; n]])?;
    /// let solution = solve_banded(&Machine::best()?, &system, &Options::default())?;
    /// assert_eq!(solution.status, Status::Met);
    /// // Far from the ends every unknown is 6 / (1 − 4 + 12 − 4 + 1) = 1.
    /// assert!((solution.x[0][n / 2] - 1.0).abs() < 1e-14);
    /// # Ok::<(), kolmo::Error>(())
    /// ```
    pub fn pentadiagonal(batch: usize, diagonals: [Vec<f64>; 5], b: Vec<Vec<f64>>) -> Result<Self> {
        Self::new(Form::Pentadiagonal, batch, diagonals.into(), b)
    }

    /// Creates block tridiagonal systems L_k·x_{k−1} + D_k·x_k + U_k·x_{k+1} = b_k.
    ///
    /// Each x_k is a vector of two unknowns. The arrays hold the lower, diagonal and upper blocks,
    /// each block row by row, so that two block rows have eight numbers in each array. The lower
    /// block of a system's first block row and the upper block of its last are ignored.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for the errors of [`BandedSystem::pentadiagonal`], and if a system
    /// has an odd number of rows.
    pub fn blocks(batch: usize, blocks: [Vec<f64>; 3], b: Vec<Vec<f64>>) -> Result<Self> {
        Self::new(Form::Blocks, batch, blocks.into(), b)
    }

    /// Creates systems of this form from arrays in the order of [`Form::names`].
    pub(crate) fn new(form: Form, batch: usize, arrays: Vec<Vec<f64>>, b: Vec<Vec<f64>>) -> Result<Self> {
        let (names, width) = (form.names(), form.width());
        let numbers = arrays[arrays.len() / 2].len();
        let rows = numbers / width;
        if batch == 0 || rows == 0 || !numbers.is_multiple_of(width) || !rows.is_multiple_of(batch) {
            return Invalid::Shape.fail(format!(
                "{rows} rows cannot be {batch} systems of equal size: expected a multiple of \
                 {batch}, and at least 1 row in each"
            ));
        }
        let n = rows / batch;
        if !n.is_multiple_of(width) {
            return Invalid::Shape.fail(format!("invalid system of {n} rows: expected blocks of 2 × 2"));
        }
        if rows >= 1 << 31 {
            return Invalid::TooLarge
                .fail(format!("{rows} rows are out of range: expected at most {}", (1u64 << 31) - 1));
        }
        for (name, array) in names.iter().zip(&arrays) {
            if array.len() != numbers {
                return Invalid::Shape.fail(format!(
                    "{name} has {} numbers, but {} has {numbers}: expected equal numbers",
                    array.len(),
                    names[names.len() / 2]
                ));
            }
        }
        let mut system = Self { form, n, batch, arrays, b };
        system.check_lengths()?;
        system.cut_ends();
        Ok(system)
    }

    /// Returns an error if there is no right-hand side, or one does not have an element per row.
    fn check_lengths(&self) -> Result<()> {
        let rows = self.rows();
        match self.b.iter().find(|b| b.len() != rows) {
            _ if self.b.is_empty() => Invalid::Shape.fail("no right-hand side: expected at least one"),
            Some(b) => Invalid::Shape.fail(format!("b has {} numbers, but there are {rows} rows", b.len())),
            None => Ok(()),
        }
    }

    /// Returns how many elements of a system in array `k` are unused, and true if they are its
    /// first elements, false if its last.
    fn beyond(&self, k: usize) -> (usize, bool) {
        let (middle, block) = (self.arrays.len() / 2, self.form.width().pow(2));
        ((block * k.abs_diff(middle)).min(self.form.width() * self.n), k < middle)
    }

    fn cut_ends(&mut self) {
        for k in 0..self.arrays.len() {
            let ((count, before), len) = (self.beyond(k), self.form.width() * self.n);
            for system in self.arrays[k].chunks_exact_mut(len) {
                let here = if before { 0..count } else { len - count..len };
                system[here].fill(0.0);
            }
        }
    }

    /// Storage form of the matrix.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Rows of one system.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Number of systems.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Total number of rows.
    pub fn rows(&self) -> usize {
        self.n * self.batch
    }

    /// Arrays of the matrix, with zeros beyond the ends of systems.
    pub fn arrays(&self) -> &[Vec<f64>] {
        &self.arrays
    }

    /// Returns the system with the transposed matrix.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        for k in 0..self.arrays.len() {
            if self.form == Form::Blocks {
                self.arrays[k].chunks_exact_mut(4).for_each(|block| block.swap(1, 2));
            }
            // Row i of the transpose has du2[i − 2], du[i − 1], d[i], dl[i + 1], dl2[i + 2].
            let ((count, before), len) = (self.beyond(k), self.form.width() * self.n);
            for system in self.arrays[k].chunks_exact_mut(len) {
                if before { system.rotate_left(count) } else { system.rotate_right(count) }
            }
        }
        self.arrays.reverse();
        self.cut_ends();
        self
    }

    /// Checks the lengths of right-hand sides, and that every number that is used is finite.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`]; for a number that is NaN or infinite, it names the first one.
    pub fn check(&self) -> Result<()> {
        self.check_lengths()?;
        let arrays =
            self.form.names().iter().zip(&self.arrays).map(|(name, array)| (*name, self.form.width(), array));
        for (name, width, values) in arrays.chain(self.b.iter().map(|b| ("b", 1, b))) {
            if let Some(at) = values.par_iter().position_first(|v| !v.is_finite()) {
                return not_finite((name, ""), [at / width, self.n, self.batch], values[at]);
            }
        }
        Ok(())
    }

    /// Computes r = b − A·x for one right-hand side, and returns its residual norms.
    ///
    /// `r` has the length of `b`, or is empty to compute the norms alone.
    pub fn residual(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> Residual {
        self.view().residual(b, x, r)
    }

    fn view(&self) -> Banded<'_> {
        let Self { form, n, batch, .. } = *self;
        let arrays = std::array::from_fn(|k| self.arrays.get(k).map_or(&[][..], |array| array));
        Banded { form, n, batch, arrays, b: self.b.iter().map(|b| &b[..]).collect() }
    }
}

/// Borrowed arrays of a [`BandedSystem`], of one of its systems, or of a scaled copy.
#[derive(Debug, Clone)]
struct Banded<'a> {
    form: Form,
    n: usize,
    batch: usize,
    /// Arrays of the matrix; block tridiagonal ones use the first three.
    arrays: [&'a [f64]; 5],
    b: Vec<&'a [f64]>,
}

const BLOCK: usize = 1 << 12;

impl Banded<'_> {
    fn rows(&self) -> usize {
        self.n * self.batch
    }

    /// Elements of row `i` in the six columns of its own block and of the two adjacent blocks.
    #[inline(always)]
    fn row(&self, i: usize) -> [f64; 6] {
        let [a, b, c, d, e] = self.arrays;
        match (self.form, i % 2) {
            (Form::Pentadiagonal, 0) => [a[i], b[i], c[i], d[i], e[i], 0.0],
            (Form::Pentadiagonal, _) => [0.0, a[i], b[i], c[i], d[i], e[i]],
            (Form::Blocks, _) => {
                let i = 2 * i;
                [a[i], a[i + 1], b[i], b[i + 1], c[i], c[i + 1]]
            }
        }
    }

    /// Returns (every row is weakly dominant, every row is strictly dominant by a relative margin
    /// of 2⁻³⁰). Strict dominance proves that the matrix is regular.
    fn dominance(&self) -> (bool, bool) {
        let row = |i: usize| {
            let (row, own) = (self.row(i), 2 + i % 2);
            let (diagonal, all) = (2.0 * row[own].abs(), row.iter().map(|v| v.abs()).sum::<f64>());
            (diagonal >= all, diagonal > all * (1.0 + crate::util::quantity::power(-30)))
        };
        (0..self.rows()).into_par_iter().map(row).reduce(|| (true, true), |a, b| (a.0 & b.0, a.1 & b.1))
    }

    /// Computes the residual of one system, in r unless that is empty, and returns its norms.
    fn norms(&self, b: &[f64], x: &[f64], r: &mut [f64]) -> AllNorms {
        let block = |here: Range<usize>, r: &mut [f64]| {
            let near = &x[here.start.saturating_sub(3)..self.n.min(here.end + 3)];
            let norms = self.each_row(here.clone(), b, x, r, residual::row);
            let norms = norms.fold(Norms::default(), Norms::join);
            if !norms.unsure(near) {
                return norms.wide();
            }
            let norms = self.each_row(here, b, x, r, residual::row_in_range);
            norms.fold(AllNorms::default(), AllNorms::with)
        };
        joined(0..self.n, BLOCK, r, block, AllNorms::with)
    }

    /// Returns the norms of each row from `row`, and stores its residual in r unless that is empty.
    #[inline(always)]
    fn each_row<'s, N>(
        &'s self,
        rows: Range<usize>,
        b: &'s [f64],
        x: &'s [f64],
        r: &'s mut [f64],
        row: impl Fn([f64; 6], f64, [f64; 6], usize) -> (f64, N) + 's,
    ) -> impl Iterator<Item = N> + 's {
        let start = rows.start;
        rows.map(move |i| {
            let first = i / 2 * 2;
            let near: [f64; 6] = match x.get(first.wrapping_sub(2)..first + 4) {
                Some(near) => near.try_into().expect("six unknowns"),
                None => std::array::from_fn(|k| x.get((first + k).wrapping_sub(2)).copied().unwrap_or(0.0)),
            };
            let (own, norms) = row(self.row(i), b[i], near, 2 + i % 2);
            if let Some(r) = r.get_mut(i - start) {
                *r = own;
            }
            norms
        })
    }
}
