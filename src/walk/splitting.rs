//! Splitting of A x = b into x = L x + f.

use super::options::Splitting;
use crate::kernel::cpu::simd::{Body, dispatch, prefetch_line};
use crate::lane::HostArray;
use crate::parallel::*;
use crate::sparse::CsrMatrix;
use crate::util::quantity::{exponent, power};
use crate::{Error, Invalid, Result};

/// Largest number of unknowns: one bit of a state's number is a sign.
pub const MOST_UNKNOWNS: usize = (1 << 31) - 1;

/// Number of rows that a thread processes at a time.
pub(super) const ROWS: usize = 1024;

/// Number of rows between prefetch and use of a row's operands, about the latency of memory.
pub(super) const AHEAD: usize = 6;
/// Number of columns of a row that are prefetched.
const PREFETCHED: usize = 16;

/// Returns three powers of 2 with the product 2^e, which may itself exceed the range of f64.
pub(super) fn powers_of_two(e: i32) -> [f64; 3] {
    let first = e.clamp(-1000, 1000);
    let second = (e - first).clamp(-1000, 1000);
    [power(first), power(second), power(e - first - second)]
}

/// The system x = L x + f of a matrix; rows of L are computed from those of A when needed.
#[derive(Debug)]
pub struct Split<'a> {
    pub(super) matrix: &'a CsrMatrix,
    /// Factor of the diagonal: 1 if the matrix is L itself, 0 for Jacobi.
    diagonal: f64,
    /// l_ij = factor_i · a_ij off the diagonal; f_i = ±factor_i · b_i.
    factor: HostArray<f64>,
    /// Number of entries of each row of L.
    counts: HostArray<u32>,
    pub(super) statistics: RowStatistics,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RowStatistics {
    /// True if entries are finite and no required diagonal entry is missing.
    sound: bool,
    /// Largest number of entries of a row of A.
    pub(super) longest: usize,
    /// Largest number of entries of a row of L.
    pub(super) branches: u32,
    /// First row with the largest Σ_j |l_ij|, and an upper bound of this sum.
    pub(super) worst: (usize, f64),
}

impl RowStatistics {
    const EMPTY: Self = Self { sound: true, longest: 0, branches: 0, worst: (usize::MAX, f64::NEG_INFINITY) };

    fn with(self, other: Self) -> Self {
        let (a, b) = (self.worst, other.worst);
        Self {
            sound: self.sound && other.sound,
            longest: self.longest.max(other.longest),
            branches: self.branches.max(other.branches),
            worst: if b.1 > a.1 || (b.1 == a.1 && b.0 < a.0) { b } else { a },
        }
    }
}

/// Returns an upper bound of a number ≥ 0 that was computed as `value` by `operations` operations.
#[inline(always)]
pub(super) fn up(value: f64, operations: usize) -> f64 {
    value * (1.0 + operations as f64 * f64::EPSILON)
}

impl<'a> Split<'a> {
    /// Scans the matrix and prepares its rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a matrix that
    ///
    /// * is not square, is empty or too large,
    /// * has an entry that is not finite,
    /// * has a zero or no diagonal entry that the splitting needs.
    pub fn new(matrix: &'a CsrMatrix, splitting: Splitting) -> Result<Self> {
        let (n, columns) = (matrix.rows(), matrix.columns());
        Invalid::Shape.unless(n == columns, || {
            format!("{n} rows and {columns} columns of the matrix: expected a square matrix")
        })?;
        Invalid::Shape.unless(n > 0, || "the matrix has no rows: expected at least one".to_owned())?;
        Invalid::TooLarge.unless(n <= MOST_UNKNOWNS, || {
            format!("{n} rows of the matrix are out of range: expected at most {MOST_UNKNOWNS}")
        })?;
        let diagonal = if splitting == Splitting::Given { 1.0 } else { 0.0 };
        // A single pass collects all statistics; the invalid row is searched only after a failure.
        let (mut factor, mut counts) = join(|| HostArray::large(n), || HostArray::<u32>::large(n));
        let blocks = factor.par_chunks_mut(ROWS).zip(counts.par_chunks_mut(ROWS)).enumerate();
        let scanned = blocks.map(|(block, (factor, counts))| {
            let mut statistics = RowStatistics::EMPTY;
            dispatch(RowScan {
                matrix,
                diagonal,
                first: block * ROWS,
                factor,
                counts,
                statistics: &mut statistics,
            });
            statistics
        });
        let statistics = scanned.reduce(|| RowStatistics::EMPTY, RowStatistics::with);
        if !statistics.sound {
            return Err(invalid_row(matrix));
        }
        let split = Self { matrix, diagonal, factor, counts, statistics };
        match statistics.worst {
            (i, f64::INFINITY) => Err(unfit(matrix, i)),
            _ => Ok(split),
        }
    }

    /// Number of unknowns.
    pub fn unknowns(&self) -> usize {
        self.matrix.rows()
    }

    /// Computes the vector f of x = L x + f from the right-hand side b of A x = b.
    /// Fails with [`Error::Invalid`] if the length of b is not the number of unknowns, or f is not
    /// finite.
    pub fn constant(&self, b: &[f64]) -> Result<HostArray<f64>> {
        self.constant_over(b, 0)
    }

    /// Returns f / 2^e for the vector f of x = L x + f, and e, with 1 ≤ max |f / 2^e| < 4.
    ///
    /// Squares of a walk's sum then neither overflow nor underflow, for any size of b. Only numbers
    /// far below max |f| are rounded by it.
    pub fn scaled_constant(&self, b: &[f64]) -> Result<(HostArray<f64>, i32)> {
        let size = |(b, factor): (&f64, &f64)| match *b {
            0.0 => i32::MIN,
            b => exponent(b) + if self.diagonal == 1.0 { 0 } else { exponent(*factor) },
        };
        let largest =
            b.par_iter().zip(&self.factor[..]).with_min_len(ROWS).map(size).reduce(|| i32::MIN, i32::max);
        let e = if largest == i32::MIN { 0 } else { largest };
        Ok((self.constant_over(b, e)?, e))
    }

    /// Returns f / 2^e for the vector f of x = L x + f.
    fn constant_over(&self, b: &[f64], e: i32) -> Result<HostArray<f64>> {
        let (entries, n) = (b.len(), self.unknowns());
        Invalid::Shape.unless(entries == n, || {
            format!(
                "the right-hand side has {entries} entries, but the matrix {n} rows: expected equal numbers"
            )
        })?;
        let mut f = HostArray::<f64>::large(b.len());
        let (diagonal, factor) = (self.diagonal, &self.factor);
        let [one, two, three] = powers_of_two(-e);
        let finite = |(block, f): (usize, &mut [f64])| {
            let here = block * ROWS..block * ROWS + f.len();
            let mut finite = true;
            for ((f, b), factor) in f.iter_mut().zip(&b[here.clone()]).zip(&factor[here]) {
                let b = b * one * two * three;
                *f = if diagonal == 1.0 { b } else { -factor * b };
                finite &= f.is_finite();
            }
            finite
        };
        if f.par_chunks_mut(ROWS).enumerate().map(finite).reduce(|| true, |a, b| a && b) {
            return Ok(f);
        }
        let i = f.iter().position(|f| !f.is_finite()).unwrap_or(0);
        Invalid::Number("rhs").fail(format!(
            "entry {i} of the right-hand side, counted from 0, is {}: its quotient by the diagonal entry is not \
             finite",
            b[i]
        ))
    }

    /// Nonzero entries of row i of L: (column, value), in ascending order of columns.
    #[inline]
    pub fn row(&self, i: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        self.each(i).filter(|&(_, l)| l != 0.0)
    }

    /// (j, l_ij) for all entries of row i of A. Zeros of L are included, since testing takes
    /// longer.
    #[inline(always)]
    pub(super) fn each(&self, i: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let (columns, values) = self.matrix.row(i);
        let (factor, diagonal) = (self.factor[i], self.diagonal);
        // One formula for all entries avoids a branch per entry; adding 0 avoids −0.
        let entry = move |own: bool, a: f64| if own { diagonal * a + 0.0 } else { factor * a };
        columns.iter().zip(values).map(move |(&j, &a)| (j, entry(j as usize == i, a)))
    }

    /// Prefetches x_j for the columns of row i, which may be far apart.
    #[inline(always)]
    pub(super) fn prefetch<T>(&self, i: usize, x: &[T]) {
        for &j in self.matrix.row(i).0.iter().take(PREFETCHED) {
            prefetch_line(x, j as usize);
        }
    }

    /// Returns entry i of the product L x, Σ_j l_ij x_j.
    #[inline(always)]
    pub fn times(&self, i: usize, x: &[f64]) -> f64 {
        self.each(i).map(|(j, l)| l * x[j as usize]).sum()
    }

    /// Returns the row sum Σ_j |l_ij| of |L|.
    pub fn row_sum(&self, i: usize) -> f64 {
        self.each(i).map(|(_, l)| l.abs()).sum()
    }

    /// Number of nonzero entries of row i of L, including those that underflow to 0.
    #[inline(always)]
    pub fn entries(&self, i: usize) -> usize {
        self.counts[i] as usize
    }

    /// Computes out = f + L h, a sweep of the system x = L x + f.
    pub fn sweep(&self, f: &[f64], h: &[f64], out: &mut [f64]) {
        assert_eq!(out.len(), self.unknowns(), "one value a row");
        out.par_chunks_mut(ROWS).enumerate().for_each(|(block, out)| {
            let value = |i: usize, product| f[i] + product;
            dispatch(Product::<false, _> { split: self, x: h, first: block * ROWS, out, value });
        });
    }

    /// Computes rows of |L| v, from row `first` on.
    pub fn absolute(&self, first: usize, v: &[f64], out: &mut [f64]) {
        dispatch(Product::<true, _> { split: self, x: v, first, out, value: |_, product| product });
    }
}

/// Products of some rows of L, or of |L|, with x.
pub(super) struct Product<'a, const ABSOLUTE: bool, F> {
    pub(super) split: &'a Split<'a>,
    pub(super) x: &'a [f64],
    pub(super) first: usize,
    pub(super) out: &'a mut [f64],
    /// Function of the row number and the product that gives the output.
    pub(super) value: F,
}

impl<const ABSOLUTE: bool, F: FnMut(usize, f64) -> f64> Body for Product<'_, ABSOLUTE, F> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Self { split, x, first, out, mut value } = self;
        let end = first + out.len();
        for (i, y) in (first..end).zip(out) {
            if i + AHEAD < end {
                split.prefetch(i + AHEAD, x);
            }
            let product = match ABSOLUTE {
                true => split.each(i).map(|(j, l)| l.abs() * x[j as usize]).sum(),
                false => split.times(i, x),
            };
            *y = value(i, product);
        }
    }
}

/// First pass over some rows of A, which computes factors, counts and statistics.
struct RowScan<'a> {
    matrix: &'a CsrMatrix,
    /// Factor of the diagonal: 1 if the matrix is L itself, 0 for Jacobi.
    diagonal: f64,
    first: usize,
    factor: &'a mut [f64],
    counts: &'a mut [u32],
    statistics: &'a mut RowStatistics,
}

impl Body for RowScan<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let mut statistics = RowStatistics::EMPTY;
        for (k, (factor, count)) in self.factor.iter_mut().zip(self.counts).enumerate() {
            let i = self.first + k;
            let (columns, values) = self.matrix.row(i);
            // The sum is not finite if an entry is not.
            let (mut own, mut others, mut entries) = (0.0, 0.0, 0);
            for (&j, &a) in columns.iter().zip(values) {
                let here = j as usize == i;
                own = if here { a } else { own };
                let other = if here { 0.0 } else { a.abs() };
                others += other;
                entries += u32::from(other != 0.0);
            }
            statistics.sound &= (own.abs() + others).is_finite() && (self.diagonal == 1.0 || own != 0.0);
            statistics.longest = statistics.longest.max(columns.len());
            let by = if self.diagonal == 1.0 { 1.0 } else { -1.0 / own };
            let corner = (self.diagonal * own).abs();
            let sum = corner + if others > 0.0 { by.abs() * others } else { 0.0 };
            entries += u32::from(corner != 0.0);
            statistics.branches = statistics.branches.max(entries);
            // Rounding of a sum of d terms, and of the terms.
            let sum = up(sum, entries as usize + 3);
            statistics.worst = if sum > statistics.worst.1 { (i, sum) } else { statistics.worst };
            (*factor, *count) = (by, entries);
        }
        *self.statistics = statistics;
    }
}

/// Returns the error of the first entry that is not finite, or of the first missing diagonal entry.
fn invalid_row(matrix: &CsrMatrix) -> Error {
    if let Some(e) = matrix.value().iter().position(|v| !v.is_finite()) {
        let row = matrix.starts().partition_point(|&s| s <= e) - 1;
        return Invalid::Number("matrix").error(format!(
            "entry ({row}, {}) of the matrix, counted from 0, is {}: expected a finite number",
            matrix.column()[e],
            matrix.value()[e]
        ));
    }
    let Some(i) = (0..matrix.rows()).find(|&i| diagonal(matrix, i) == 0.0) else {
        let large = |&i: &usize| matrix.row(i).1.iter().map(|a| a.abs()).sum::<f64>().is_infinite();
        return unfit(matrix, (0..matrix.rows()).find(large).unwrap_or(0));
    };
    let what = match matrix.row(i).0 {
        [] => "is empty, so the matrix is singular",
        columns if columns.binary_search(&(i as u32)).is_ok() => "has 0 on the diagonal",
        _ => "has no diagonal entry",
    };
    Invalid::Number("matrix").error(format!(
        "row {i} of the matrix, counted from 0, {what}: expected diagonal entries other than 0; \
         exchange rows so that large entries are on the diagonal, or give L and f with `splitting` \
         given"
    ))
}

/// Returns the error of a row of L that exceeds the range of f64.
fn unfit(matrix: &CsrMatrix, i: usize) -> Error {
    Invalid::Number("matrix").error(format!(
        "row {i} of the matrix, counted from 0: its entries over its diagonal entry {:e} are out of \
         range of f64; scale the rows of A and b",
        diagonal(matrix, i)
    ))
}

/// Returns a_ii, or 0 if there is no such entry.
fn diagonal(matrix: &CsrMatrix, i: usize) -> f64 {
    let (columns, values) = matrix.row(i);
    columns.binary_search(&(i as u32)).map_or(0.0, |k| values[k])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: &[&[(u32, f64)]], columns: usize) -> CsrMatrix {
        CsrMatrix::from_rows(rows.len(), columns, |i, row| row.extend_from_slice(rows[i]))
    }

    #[test]
    fn every_splitting_has_the_solution_as_its_fixed_point() {
        // A x = b with x = (1, −2, 3).
        let a = matrix(&[&[(0, 4.0), (1, -1.0)], &[(0, 1.0), (1, -5.0), (2, 2.0)], &[(1, 1.0), (2, 3.0)]], 3);
        let x = [1.0, -2.0, 3.0];
        let b = [6.0, 17.0, 7.0];
        for splitting in [Splitting::Jacobi, Splitting::ScaledJacobi] {
            let split = Split::new(&a, splitting).unwrap();
            let f = split.constant(&b).unwrap();
            let mut y = [0.0; 3];
            split.sweep(&f, &x, &mut y);
            for (x, y) in x.iter().zip(y) {
                // Five operations on numbers of at most 20.
                approx::assert_abs_diff_eq!(*x, y, epsilon = 5.0 * 20.0 * f64::EPSILON);
            }
        }
        let given = Split::new(&a, Splitting::Given).unwrap();
        assert_eq!(given.row(1).collect::<Vec<_>>(), [(0, 1.0), (1, -5.0), (2, 2.0)]);
        assert_eq!(given.constant(&b).unwrap()[..], b);
        assert_eq!(given.row_sum(1), 8.0);
        let error = given.constant(&[1.0, f64::INFINITY, 1.0]).unwrap_err().to_string();
        assert!(error.contains("entry 1 of the right-hand side, counted from 0, is inf"), "{error}");
        // A matrix without a diagonal may be given as L.
        assert!(Split::new(&matrix(&[&[], &[(0, 0.5)]], 2), Splitting::Given).is_ok());
    }
}
