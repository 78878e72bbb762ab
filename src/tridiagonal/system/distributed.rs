//! Rows of systems that one rank has.

use super::borrowed::transpose_each;
use super::row_range::RowSpan;
use super::view::View;
use crate::Result;

/// Rows of systems that one rank has, see [`System`](crate::tridiagonal::System).
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Position of the rows in the systems.
    pub span: RowSpan,
    /// Lower diagonal of the rows.
    pub dl: Vec<f64>,
    /// Diagonal of the rows.
    pub d: Vec<f64>,
    /// Upper diagonal of the rows.
    pub du: Vec<f64>,
    /// Right-hand sides of the rows.
    pub b: Vec<Vec<f64>>,
}

impl Rows {
    /// Returns an error if a number that is used is NaN or infinite.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with its array, row and system.
    pub fn check(&self) -> Result<()> {
        View::from(self).check()
    }

    /// Returns the rows of the transposed matrix. Every rank calls this.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        let ends = |own: &[f64]| own.first().zip(own.last()).map(|(&first, &last)| [first, last]);
        if self.span.cyclic && self.span.batch > 1 {
            transpose_each(self.span.n, &mut self.dl, &mut self.du);
            return self;
        }
        let [before, _] = self.span.adjacent_values(ends(&self.du));
        let [_, behind] = self.span.adjacent_values(ends(&self.dl));
        if let (Some(first), Some(last)) = (self.dl.first_mut(), self.du.last_mut()) {
            (*first, *last) = (behind, before);
        }
        let rows = self.dl.len().max(1);
        transpose_each(rows, &mut self.dl, &mut self.du);
        self
    }
}

impl<'a> From<&'a Rows> for View<'a> {
    fn from(rows: &'a Rows) -> Self {
        let Rows { span, dl, d, du, b } = rows;
        Self { span: *span, dl, d, du, b: b.iter().map(|b| &b[..]).collect() }
    }
}
