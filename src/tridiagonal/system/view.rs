//! Views: borrowed rows and right-hand sides of systems.

use std::ops::Range;

use super::row_range::RowSpan;
use crate::parallel::*;
use crate::{Invalid, Progress, Result};

/// Number of rows between two calls of the progress callback: some milliseconds of work.
pub(crate) const PIECE: usize = 1 << 22;

/// Borrowed rows and right-hand sides of systems, all of them or those of a rank.
#[derive(Debug, Clone)]
pub(crate) struct View<'a> {
    pub(crate) span: RowSpan,
    pub(crate) dl: &'a [f64],
    pub(crate) d: &'a [f64],
    pub(crate) du: &'a [f64],
    pub(crate) b: Vec<&'a [f64]>,
}

/// Returns an error unless there are right-hand sides, each with a number per row.
pub(crate) fn expect_lengths(rows: usize, b: &[impl AsRef<[f64]>]) -> Result<()> {
    if b.is_empty() {
        return Invalid::Shape.fail("no right-hand side: expected at least one");
    }
    match b.iter().map(|b| b.as_ref().len()).find(|&len| len != rows) {
        Some(len) => Invalid::Shape.fail(format!("b has {len} numbers, but d has {rows}")),
        None => Ok(()),
    }
}

impl<'a> View<'a> {
    /// Returns a view of system `number` alone; all its rows are local.
    pub(crate) fn system(&self, number: usize) -> Self {
        let n = self.span.n;
        self.part(number * n..(number + 1) * n)
    }

    /// Returns local rows as a system of their own; they must not be coupled to other rows.
    pub(crate) fn part(&self, here: Range<usize>) -> Self {
        Self {
            span: RowSpan::whole(here.len(), 1, self.span.cyclic),
            dl: &self.dl[here.clone()],
            d: &self.d[here.clone()],
            du: &self.du[here.clone()],
            b: self.b.iter().map(|b| &b[here.clone()]).collect(),
        }
    }

    /// Returns an error that names the first local number that is used and is NaN or infinite.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_watched(&mut ())
    }

    /// Checks as [`Self::check`] does, and calls `watch` every [`PIECE`] numbers.
    pub(crate) fn check_watched(&self, watch: &mut dyn Progress) -> Result<()> {
        self.find(("dl", ""), self.dl, Some(0), watch)?;
        self.find(("d", ""), self.d, None, watch)?;
        self.find(("du", ""), self.du, Some(self.span.n - 1), watch)?;
        self.check_right_hand_sides(watch)
    }

    /// Checks the right-hand sides, and calls `watch` every [`PIECE`] numbers.
    pub(crate) fn check_right_hand_sides(&self, watch: &mut dyn Progress) -> Result<()> {
        match &self.b[..] {
            [b] => self.find(("b", ""), b, None, watch),
            several => several
                .iter()
                .enumerate()
                .try_for_each(|(k, b)| self.find(("b", &format!(" (right-hand side {k})")), b, None, watch)),
        }
    }

    /// Returns an error for the first number that is NaN or infinite; index `unused` of each system
    /// is ignored.
    fn find(
        &self,
        name: (&'static str, &str),
        values: &[f64],
        unused: Option<usize>,
        watch: &mut dyn Progress,
    ) -> Result<()> {
        let RowSpan { n, batch, cyclic, first, .. } = self.span;
        for (piece, part) in values.chunks(PIECE).enumerate() {
            watch.progress(0, 0)?;
            let at = first + piece * PIECE;
            let bad = part.par_iter().enumerate().position_first(|(i, v)| {
                !v.is_finite() && (cyclic || unused.is_none_or(|unused| (at + i) % n != unused))
            });
            if let Some(i) = bad {
                return not_finite(name, [at + i, n, batch], part[i]);
            }
        }
        Ok(())
    }
}

/// Returns an error that names the array, row, system (if `batch` > 1) and value of a number.
pub(crate) fn not_finite(
    (array, side): (&'static str, &str),
    [row, n, batch]: [usize; 3],
    value: f64,
) -> Result<()> {
    let of = if batch > 1 { format!(" of system {}", row / n) } else { String::new() };
    let row = if batch > 1 { row % n } else { row };
    Invalid::Number(array)
        .fail(format!("{array}{side} of row {row}{of} is {value}: expected a finite number"))
}
