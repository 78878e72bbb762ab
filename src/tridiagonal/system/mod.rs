//! Tridiagonal systems on the host.
//!
//! A [`System`] owns its arrays; the other files hold borrowed matrices, views of both, and the
//! rows that one rank has of a distributed system.

pub(crate) mod borrowed;
pub(crate) mod distributed;
pub(crate) mod row_range;
pub(crate) mod view;

use std::borrow::Cow;

use self::borrowed::{Matrix, transpose_each};
use self::row_range::RowSpan;
use self::view::{View, expect_lengths};
use crate::{Invalid, Result};

/// Systems a_i·x_{i−1} + d_i·x_i + c_i·x_{i+1} = b_i of equal size, concatenated, i = 0 … n−1.
///
/// They have a lower diagonal a (`dl`), a diagonal `d`, an upper diagonal c (`du`) and any number
/// of right-hand sides. Each diagonal has n elements per system. `dl[0]` and `du[n−1]` may have any
/// value and are ignored, unless the system is cyclic: then `dl[0]` multiplies x_{n−1} and
/// `du[n−1]` multiplies x_0.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Rows of one system.
    pub n: usize,
    /// Number of systems.
    pub batch: usize,
    /// Lower diagonals, `batch · n` numbers.
    pub dl: Vec<f64>,
    /// Diagonals.
    pub d: Vec<f64>,
    /// Upper diagonals.
    pub du: Vec<f64>,
    /// Right-hand sides, each of `batch · n` numbers.
    pub b: Vec<Vec<f64>>,
    /// True if the ends of the off-diagonals couple the first and the last unknown.
    pub cyclic: bool,
}

impl System {
    /// Creates a system from diagonals of n elements each. Their unused ends may have any value,
    /// and off-diagonals may have n − 1 elements as in LAPACK.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if there is no row, or array lengths do not match.
    pub fn new(dl: Vec<f64>, d: Vec<f64>, du: Vec<f64>, b: Vec<f64>) -> Result<Self> {
        Self::batched(1, dl, d, du, vec![b])
    }

    /// Creates concatenated systems of equal size, each with equally many right-hand sides.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if there is no row or no system, or array lengths do not match.
    pub fn batched(batch: usize, dl: Vec<f64>, d: Vec<f64>, du: Vec<f64>, b: Vec<Vec<f64>>) -> Result<Self> {
        let system = Self::matrix(batch, dl, d, du)?;
        expect_lengths(system.rows(), &b)?;
        Ok(Self { b, ..system })
    }

    /// Creates concatenated matrices of equal size without right-hand sides, see
    /// [`Factor`](super::Factor).
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if there is no row or no system, or array lengths do not match.
    pub fn matrix(batch: usize, dl: Vec<f64>, d: Vec<f64>, du: Vec<f64>) -> Result<Self> {
        let Matrix { n, dl: wide_dl, du: wide_du, .. } = Matrix::new(batch, &dl, &d, &du)?;
        let widened = |diagonal| if let Cow::Owned(wide) = diagonal { Some(wide) } else { None };
        let (wide_dl, wide_du) = (widened(wide_dl), widened(wide_du));
        let (dl, du) = (wide_dl.unwrap_or(dl), wide_du.unwrap_or(du));
        Ok(Self { n, batch, dl, d, du, b: Vec::new(), cyclic: false })
    }

    /// Concatenates systems of any sizes to one, without couplings between them.
    ///
    /// Elimination on the host and the test for singular matrices treat each of them separately.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for cyclic systems, and for different numbers of right-hand sides.
    pub fn joined(systems: &[Self]) -> Result<Self> {
        let count = systems.first().map_or(0, |system| system.b.len());
        if systems.iter().any(|system| system.cyclic) {
            return Invalid::Unsupported.fail("cyclic systems cannot be joined");
        }
        if let Some(other) = systems.iter().find(|system| system.b.len() != count) {
            return Invalid::Shape.fail(format!(
                "{} right-hand sides, but {count} of the first system: expected equal numbers",
                other.b.len()
            ));
        }
        let [mut dl, mut d, mut du] = [const { Vec::new() }; 3];
        for system in systems {
            let first = dl.len();
            dl.extend(&system.dl);
            d.extend(&system.d);
            du.extend(&system.du);
            for start in (first..dl.len()).step_by(system.n) {
                (dl[start], du[start + system.n - 1]) = (0.0, 0.0);
            }
        }
        let of = |k: usize| systems.iter().flat_map(|system| &system.b[k]).copied().collect();
        let b = (0..count).map(of).collect();
        Ok(Self { b, ..Self::matrix(1, dl, d, du)? })
    }

    /// Makes the first and the last unknown of each system neighbours.
    #[must_use]
    pub fn cyclic(mut self) -> Self {
        self.cyclic = true;
        self
    }

    /// Returns the system with the transposed matrix.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        transpose_each(self.n, &mut self.dl, &mut self.du);
        self
    }

    /// Total number of rows.
    pub fn rows(&self) -> usize {
        self.d.len()
    }

    /// Returns an error that names the first number that is used and is NaN or infinite.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`].
    pub fn check(&self) -> Result<()> {
        View::from(self).check()
    }
}

impl<'a> From<&'a System> for View<'a> {
    fn from(system: &'a System) -> Self {
        let System { n, batch, dl, d, du, b, cyclic } = system;
        Self { span: RowSpan::whole(*n, *batch, *cyclic), dl, d, du, b: b.iter().map(|b| &b[..]).collect() }
    }
}
