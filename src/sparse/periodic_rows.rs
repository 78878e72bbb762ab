//! Periodically repeated rows: their properties are computed once and copied to the repeats.

use std::ops::Range;

use super::SLICE;
use crate::parallel::*;
use crate::util::quantity::gcd;

/// Consecutive rows that each repeat the row one period before, with columns shifted alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// Rows, each of which repeats the row `period` rows before.
    pub rows: Range<usize>,
    /// Number of rows from a row to the one that repeats it.
    pub period: usize,
    /// Largest distance of a column from its row.
    pub reach: usize,
}

/// Rows of a matrix and their repeats, all aligned to slices (64 rows).
#[derive(Debug, Clone, Default)]
pub struct Repeats {
    rows: usize,
    repeats: Vec<Repeat>,
}

impl Repeats {
    /// Creates rows with these repeats, which are ascending and disjoint.
    ///
    /// Periods are extended to whole slices.
    pub fn new(rows: usize, repeats: impl IntoIterator<Item = Repeat>) -> Self {
        let whole = |repeat: Repeat| {
            let Repeat { rows, period, reach } = repeat;
            let slices = period.max(1) / gcd(period.max(1), SLICE) * SLICE;
            // A row repeats the one `slices` rows before if all rows a multiple of the period
            // before it, after that one, are repeats, too.
            let start = (rows.start + slices - period).max(slices).next_multiple_of(SLICE);
            Repeat { rows: start..rows.end / SLICE * SLICE, period: slices, reach }
        };
        let repeats: Vec<Repeat> = repeats.into_iter().map(whole).filter(|r| !r.rows.is_empty()).collect();
        let ends = repeats.iter().map(|r| r.rows.end).chain([rows]).skip(1);
        assert!(
            repeats.iter().zip(ends).all(|(r, next)| r.rows.end <= next),
            "repeats lie apart: {repeats:?}"
        );
        Self { rows, repeats }
    }

    /// Returns the number of rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the rows that are not repeats, ascending, in ranges of at most `size`.
    pub fn looked_at(&self, size: usize) -> Vec<Range<usize>> {
        let starts = std::iter::once(0).chain(self.repeats.iter().map(|r| r.rows.end));
        let ends = self.repeats.iter().map(|r| r.rows.start).chain([self.rows]);
        let cut = |(start, end): (usize, usize)| {
            (start..end).step_by(size).map(move |first| first..first.saturating_add(size).min(end))
        };
        starts.zip(ends).flat_map(cut).collect()
    }

    /// Splits off the parts of `values` in the ranges of [`looked_at`](Self::looked_at).
    ///
    /// `values` has one value per row. Each part is preceded by its first row.
    pub fn places<'a, T>(&self, mut values: &'a mut [T], size: usize) -> Vec<(usize, &'a mut [T])> {
        assert_eq!(values.len(), self.rows, "one value a row");
        let mut at = 0;
        let take = |rows: Range<usize>| {
            let _ = values.split_off_mut(..rows.start - at);
            at = rows.end;
            (rows.start, values.split_off_mut(..rows.len()).unwrap_or_default())
        };
        self.looked_at(size).into_iter().map(take).collect()
    }

    /// Copies the values of repeated rows to their repeats.
    pub fn copy<T: Copy + Send + Sync>(&self, values: &mut [T]) {
        const ROWS: usize = 1 << 16;
        for Repeat { rows, period, .. } in &self.repeats {
            let (before, here) = values[..rows.end].split_at_mut(rows.start);
            let source = &before[rows.start - period..];
            here.par_chunks_mut(ROWS).enumerate().for_each(|(k, mut here)| {
                let mut at = k * ROWS % period;
                while !here.is_empty() {
                    let (now, behind) = here.split_at_mut(here.len().min(period - at));
                    now.copy_from_slice(&source[at..at + now.len()]);
                    (here, at) = (behind, 0);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inspected_and_copied_rows_are_all_rows() {
        for (n, all) in [
            (1000, vec![]),
            (1000, vec![Repeat { rows: 7..1000, period: 7, reach: 7 }]),
            (200_000, vec![Repeat { rows: 100..150_003, period: 48, reach: 1 }]),
            (
                100_000,
                vec![
                    Repeat { rows: 3..40_000, period: 1, reach: 1 },
                    Repeat { rows: 50_500..99_999, period: 500, reach: 1 },
                ],
            ),
        ] {
            // First row of which each row is a repeat.
            let mut like: Vec<usize> = (0..n).collect();
            for Repeat { rows, period, .. } in &all {
                rows.clone().for_each(|row| like[row] = like[row - period]);
            }
            let repeats = Repeats::new(n, all);
            let mut found = vec![usize::MAX; n];
            for (first, places) in repeats.places(&mut found, 300) {
                assert!(places.len() <= 300);
                places.iter_mut().zip(&like[first..]).for_each(|(place, like)| *place = *like);
            }
            let left = found.iter().filter(|&&place| place == usize::MAX).count();
            repeats.copy(&mut found);

            assert_eq!(found, like);
            assert_eq!(left > n / 2, !repeats.repeats.is_empty(), "{left} of {n} rows are copied");
        }
    }
}
