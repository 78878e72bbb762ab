//! The rows that a rank has of systems.

use super::borrowed::transpose_each;
use super::row_range::Span;
use super::view::View;
use crate::Result;

/// The rows that a rank has of systems, see [`System`](crate::tridiagonal::System).
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Their place in the systems.
    pub span: Span,
    /// Their lower diagonal.
    pub dl: Vec<f64>,
    /// Their diagonal.
    pub d: Vec<f64>,
    /// Their upper diagonal.
    pub du: Vec<f64>,
    /// Their right-hand sides.
    pub b: Vec<Vec<f64>>,
}

impl Rows {
    /// Looks for a number that is NaN or infinite and is used.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) with its array, row and system.
    pub fn check(&self) -> Result<()> {
        View::from(self).check()
    }

    /// The rows of the transposed matrix. Every rank calls this.
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
