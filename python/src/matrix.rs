//! SciPy's sparse matrices, borrowed without a copy.

use crate::prelude::*;
use std::ops::Range;
use std::sync::OnceLock;

use kolmo::internals::each_of;
use kolmo::io::rate_matrix_kind::{Content, content};
use kolmo::sparse::CsrMatrix;
use kolmo::transient::{Transitions, exit_rate};
use numpy::Element;
use pyo3::exceptions::PyTypeError;

/// Indices of one of SciPy's types.
#[derive(FromPyObject)]
pub(crate) enum Indices<'py> {
    I32(PyReadonlyArray1<'py, i32>),
    I64(PyReadonlyArray1<'py, i64>),
}

/// Values of a type that needs no conversion.
#[derive(FromPyObject)]
pub(crate) enum ValueArray<'py> {
    F64(PyReadonlyArray1<'py, f64>),
    F32(PyReadonlyArray1<'py, f32>),
}

/// Arrays of a square matrix in compressed rows or columns.
#[derive(FromPyObject)]
pub(crate) struct SparseArrays<'py> {
    n: usize,
    by_columns: bool,
    indptr: Indices<'py>,
    indices: Indices<'py>,
    data: ValueArray<'py>,
}

/// Slices of [`SparseArrays`], which other threads may read.
pub(crate) trait Slices: Send + Sync {
    fn states(&self) -> usize;

    /// Checks the matrix, and classifies it.
    fn content(&self, stop: &Stop) -> Result<Content>;

    /// Builds the chain of this matrix, with `absorbing` states made absorbing.
    ///
    /// If `both` is false, only outgoing transitions are built at once; incoming ones are built
    /// when they are first read.
    fn chain<'a>(&'a self, absorbing: Option<&'a [bool]>, both: bool, stop: &'a Stop) -> Result<AsChain<'a>>;

    /// Copies the matrix to compressed rows.
    fn csr(&self, stop: &Stop) -> Result<CsrMatrix>;
}

/// Slices of any of SciPy's types.
pub(crate) type SparseMatrix<'a> = Box<dyn Slices + 'a>;

impl SparseArrays<'_> {
    /// Returns the matrix.
    pub(crate) fn matrix(&self) -> PyResult<SparseMatrix<'_>> {
        Ok(self.batch()?.swap_remove(0))
    }

    /// Returns the matrices of a batch, whose values are stored one after another.
    pub(crate) fn batch(&self) -> PyResult<Vec<SparseMatrix<'_>>> {
        use {Indices::I32, Indices::I64, ValueArray::F32, ValueArray::F64};
        match (&self.indptr, &self.indices, &self.data) {
            (I32(starts), I32(minor), F64(values)) => self.matrices(starts, minor, values),
            (I32(starts), I32(minor), F32(values)) => self.matrices(starts, minor, values),
            (I64(starts), I64(minor), F64(values)) => self.matrices(starts, minor, values),
            (I64(starts), I64(minor), F32(values)) => self.matrices(starts, minor, values),
            _ => Err(PyTypeError::new_err("indptr and indices have different types")),
        }
    }

    fn matrices<'a, I: IndexType, V: ValueType>(
        &self,
        starts: &'a PyReadonlyArray1<'_, I>,
        minor: &'a PyReadonlyArray1<'_, I>,
        values: &'a PyReadonlyArray1<'_, V>,
    ) -> PyResult<Vec<SparseMatrix<'a>>> {
        let (starts, minor, values) = (starts.as_slice()?, minor.as_slice()?, values.as_slice()?);
        let (n, by_columns) = (self.n, self.by_columns);
        let of = |values| {
            Box::new(Compressed { n, by_columns, starts, minor, values, stop: None }) as SparseMatrix<'a>
        };
        let mut all: Vec<_> = values.chunks(minor.len().max(1)).map(of).collect();
        if all.is_empty() {
            all.push(of(values));
        }
        Ok(all)
    }
}

/// Matrix as a chain that borrows it, and the kind of the matrix.
pub(crate) type AsChain<'a> = (Box<dyn Transitions + 'a>, Content);

/// Number of rows that a thread reads at once.
const ROWS: usize = 1 << 12;

/// Borrowed matrix in compressed rows. If `by_columns`, a "row" below is a column.
#[derive(Clone, Copy)]
pub(crate) struct Compressed<'a, I, V> {
    n: usize,
    by_columns: bool,
    starts: &'a [I],
    minor: &'a [I],
    values: &'a [V],
    stop: Option<&'a Stop>,
}

/// Index types, `i32` and `i64`. Negative indices become `usize::MAX`, which is out of range.
pub(crate) trait IndexType: Element + Copy + Send + Sync + TryInto<usize> + std::fmt::Display {
    fn place(self) -> usize {
        self.try_into().unwrap_or(usize::MAX)
    }
}
impl IndexType for i32 {}
impl IndexType for i64 {}

/// Value types, `f32` and `f64`.
pub(crate) trait ValueType: Element + Copy + Send + Sync + Into<f64> {}
impl ValueType for f32 {}
impl ValueType for f64 {}

impl<I: IndexType, V: ValueType> Slices for Compressed<'_, I, V> {
    fn states(&self) -> usize {
        self.n
    }

    fn content(&self, stop: &Stop) -> Result<Content> {
        let given = Compressed { stop: Some(stop), ..*self };
        given.check()?;
        let found = content(self.n, self.n, (given.pieces(), |piece| given.entries(piece)));
        found.map_err(|reason| Error::invalid(format!("Q: {reason}")))
    }

    fn chain<'a>(&'a self, absorbing: Option<&'a [bool]>, both: bool, stop: &'a Stop) -> Result<AsChain<'a>> {
        let found = self.content(stop)?;
        let given = Compressed { stop: Some(stop), ..*self };
        let mut chain = BorrowedChain { given, absorbing, turned: OnceLock::new() };
        if both || self.by_columns {
            chain.turned = OnceLock::from(chain.turn());
        }
        Ok((Box::new(chain), found))
    }

    fn csr(&self, stop: &Stop) -> Result<CsrMatrix> {
        let given = Compressed { stop: Some(stop), ..*self };
        given.check()?;
        Ok(CsrMatrix::grouped(self.n, self.n, (given.pieces(), |piece| given.entries(piece))))
    }
}

impl<'a, I: IndexType, V: ValueType> Compressed<'a, I, V> {
    /// Unwinds if the work was cancelled.
    fn look(&self) {
        if let Some(stop) = self.stop {
            stop.look();
        }
    }

    /// Returns the number of pieces in which threads read the rows.
    fn pieces(&self) -> usize {
        self.n.div_ceil(ROWS)
    }

    /// Returns the rows of a piece.
    fn rows(&self, piece: usize) -> Range<usize> {
        piece * ROWS..self.n.min((piece + 1) * ROWS)
    }

    /// Fails unless indices are in range and ascend in each row (SciPy's canonical form).
    fn check(&self) -> Result<()> {
        if self.starts.len() != self.n + 1 || self.starts[0].place() != 0 {
            return Err(Error::invalid(format!(
                "indptr has {} numbers; give {} that begin with 0",
                self.starts.len(),
                self.n + 1
            )));
        }
        let checked = |piece: usize| self.rows(piece).try_for_each(|i| self.check_row(i));
        each_of(self.pieces(), checked).into_iter().collect()
    }

    fn check_row(&self, i: usize) -> Result<()> {
        self.look();
        let fail = |reason: String| Err(Error::invalid(reason));
        let (line, other) = if self.by_columns { ("column", "row") } else { ("row", "column") };
        let (from, to) = (self.starts[i].place(), self.starts[i + 1].place());
        if from > to || to > self.minor.len().min(self.values.len()) {
            return fail(format!(
                "indptr says that {line} {i} is {} to {} of {} indices and {} values",
                self.starts[i],
                self.starts[i + 1],
                self.minor.len(),
                self.values.len()
            ));
        }
        let mut least = 0;
        for &j in &self.minor[from..to] {
            if j.place() >= self.n {
                return fail(format!("{line} {i} has the index {j}; there are {} {other}s", self.n));
            }
            if j.place() < least {
                return fail(format!(
                    "{line} {i} lists {other} {j} after {other} {}; call sum_duplicates() first",
                    least - 1
                ));
            }
            least = j.place() + 1;
        }
        Ok(())
    }

    /// Indices and values of a row.
    fn line(self, i: usize) -> impl Iterator<Item = (u32, f64)> + 'a {
        self.look();
        let entries = self.starts[i].place()..self.starts[i + 1].place();
        let values = &self.values[entries.clone()];
        // `check` found all indices below n. If another thread writes to the array, `min` keeps
        // them in range.
        let last = self.n - 1;
        self.minor[entries]
            .iter()
            .zip(values)
            .map(move |(j, &value)| (j.place().min(last) as u32, value.into()))
    }

    /// Entries of a piece as (row, column, value).
    fn entries(self, piece: usize) -> impl Iterator<Item = (u32, u32, f64)> + 'a {
        let rows = self.rows(piece);
        let all = rows.flat_map(move |i| self.line(i).map(move |(j, value)| (i as u32, j, value)));
        all.map(move |(i, j, value)| if self.by_columns { (j, i, value) } else { (i, j, value) })
    }
}

/// Chain of a matrix Q or R: entry (i, j) is the rate from state i to state j.
///
/// The solver needs transitions by target for products, and by source for the error of a step. One
/// order is borrowed, and the other is built.
struct BorrowedChain<'a, I, V> {
    given: Compressed<'a, I, V>,
    /// States made absorbing.
    absorbing: Option<&'a [bool]>,
    /// Transitions by source for a matrix in columns, by target for a matrix in rows.
    turned: OnceLock<CsrMatrix>,
}

impl<I: IndexType, V: ValueType> BorrowedChain<'_, I, V> {
    fn stays(&self, state: usize) -> bool {
        self.absorbing.is_some_and(|absorbing| absorbing[state])
    }

    /// Transitions of a row or column, each with the state at the other end.
    fn line(&self, i: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let source = move |j: u32| if self.given.by_columns { j as usize } else { i };
        self.given.line(i).filter(move |&(j, rate)| j as usize != i && rate != 0.0 && !self.stays(source(j)))
    }

    fn turn(&self) -> CsrMatrix {
        let entries = |piece: usize| {
            self.given.rows(piece).flat_map(|i| self.line(i).map(move |(j, rate)| (j, i as u32, rate)))
        };
        CsrMatrix::grouped(self.given.n, self.given.n, (self.given.pieces(), entries))
    }

    /// Builds the matrix in the other order when it is first needed, without parallel loops.
    ///
    /// Rows are read in parallel loops. While a nested loop waits, its thread may take up another
    /// part of the outer loop. That part would wait for this initialisation forever.
    fn turned(&self) -> &CsrMatrix {
        self.turned.get_or_init(|| kolmo::internals::alone(|| self.turn()))
    }

    fn append(&self, i: usize, row: &mut Vec<(u32, f64)>, borrowed: bool) {
        if borrowed {
            return row.extend(self.line(i));
        }
        let (states, rates) = self.turned().row(i);
        row.extend(states.iter().copied().zip(rates.iter().copied()));
    }
}

impl<I: IndexType, V: ValueType> Transitions for BorrowedChain<'_, I, V> {
    fn states(&self) -> usize {
        self.given.n
    }

    fn incoming(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append(state, row, self.given.by_columns);
    }

    fn outgoing(&self, state: usize, row: &mut Vec<(u32, f64)>) {
        self.append(state, row, !self.given.by_columns);
    }

    fn exit_rates(&self, states: Range<usize>, out: &mut [f64]) {
        for (state, rate) in states.zip(out) {
            *rate = match self.given.by_columns {
                true => exit_rate(self.turned().row(state).1.iter().copied()),
                false => exit_rate(self.line(state).map(|(_, rate)| rate)),
            };
        }
    }
}
