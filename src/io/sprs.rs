//! Conversions from and to matrices of [sprs](https://docs.rs/sprs), with the feature `sprs`.
//!
//! A [`CsrMatrix`] is viewed as a [`CsMatViewI`] without a copy. A matrix of sprs becomes a
//! [`CsrMatrix`] or a chain. For a chain it holds either the rates R or the generator Q = R −
//! diag(R·1).

use ::sprs::{CsMatI, CsMatViewI, SpIndex};

use super::*;
use crate::transient::Chain;

/// Name of a matrix of sprs in error messages.
const NAME: &str = "sprs matrix";

/// Returns the entries of a matrix stored by rows or by columns.
fn entries<I: SpIndex, P: SpIndex>(matrix: &CsMatViewI<'_, f64, I, P>) -> Result<Coo> {
    let (rows, columns) = matrix.shape();
    expect_size(rows, columns, MOST_STATES).map_err(|reason| Error::file(Path::new(NAME), reason))?;
    let entry = |(&value, (i, j)): (&f64, (I, I))| (i.index() as u32, j.index() as u32, value);
    let (row, column, value) = matrix.iter().map(entry).collect();
    Ok(Coo { rows, columns, row, column, value })
}

impl<I: SpIndex, P: SpIndex> TryFrom<CsMatViewI<'_, f64, I, P>> for CsrMatrix {
    type Error = Error;

    /// Copies a matrix of sprs, stored by rows or by columns.
    ///
    /// # Errors
    /// [`Error::File`] for more than 2³² − 2 rows or columns.
    fn try_from(matrix: CsMatViewI<'_, f64, I, P>) -> Result<Self> {
        Ok(Self::from_entries(entries(&matrix)?))
    }
}

impl<'a> From<&'a CsrMatrix> for CsMatViewI<'a, f64, u32, usize> {
    fn from(matrix: &'a CsrMatrix) -> Self {
        let shape = (matrix.rows(), matrix.columns());
        Self::new(shape, matrix.starts(), matrix.column(), matrix.value())
    }
}

impl<I: SpIndex, P: SpIndex> TryFrom<CsMatViewI<'_, f64, I, P>> for Chain {
    type Error = Error;

    /// Reads a matrix of sprs as a chain; entry (i, j) is the rate from state i to state j.
    ///
    /// A negative diagonal entry makes it a generator.
    ///
    /// # Errors
    /// [`Error::File`] for a matrix that is not square or is empty, and for rates that are negative
    /// or not finite. Also for a generator with a row sum other than zero.
    fn try_from(matrix: CsMatViewI<'_, f64, I, P>) -> Result<Self> {
        let file = rate_matrix_kind::chain(Path::new(NAME), entries(&matrix)?)?;
        Ok(Self::new(NAME, Box::new(Csr::from_list(file.states, file.transitions)?)))
    }
}

impl From<&Chain> for CsMatI<f64, u32, usize> {
    /// Copies the rates R into compressed rows.
    fn from(chain: &Chain) -> Self {
        let n = chain.transitions.states();
        let rates = CsrMatrix::from_rows(n, n, |state, row| chain.transitions.outgoing(state, row));
        Self::new((n, n), rates.starts().to_vec(), rates.column().to_vec(), rates.value().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use ::sprs::{CsMat, TriMat};

    use super::*;

    fn matrix() -> CsMat<f64> {
        let mut list = TriMat::new((3, 3));
        for (i, j, x) in [(0, 1, 2.0), (1, 0, 0.5), (1, 2, 0.25), (2, 1, 4.0)] {
            list.add_triplet(i, j, x);
        }
        list.to_csr()
    }

    #[test]
    fn matrices_come_back_as_they_were() {
        let ours = CsrMatrix::try_from(matrix().view()).expect("a matrix");
        assert_eq!(ours.row(1), (&[0, 2][..], &[0.5, 0.25][..]));
        assert_eq!(CsrMatrix::try_from(matrix().to_csc().view()).expect("by columns"), ours);
        let view: CsMatViewI<'_, f64, u32, usize> = (&ours).into();
        assert_eq!(CsrMatrix::try_from(view).expect("its own view"), ours);
    }

    #[test]
    fn rates_and_generators_are_chains() {
        let rates = matrix();
        let chain = Chain::try_from(rates.view()).expect("a chain");
        let back: CsMatI<f64, u32, usize> = (&chain).into();
        assert_eq!(back.to_dense(), rates.to_dense());
        let mut generator = TriMat::new((2, 2));
        for (i, j, x) in [(0, 0, -3.0), (0, 1, 3.0), (1, 0, 1.0), (1, 1, -1.0)] {
            generator.add_triplet(i, j, x);
        }
        let chain = Chain::try_from(generator.to_csr::<usize>().view()).expect("a generator");
        let mut row = Vec::new();
        chain.transitions.outgoing(0, &mut row);
        assert_eq!(row, [(1, 3.0)]);
        let wide = CsMat::<f64>::zero((2, 3));
        let refused = Chain::try_from(wide.view()).expect_err("not square");
        assert!(refused.to_string().contains("2 rows and 3 columns"), "{refused}");
    }
}
