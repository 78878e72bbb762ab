//! Sparse matrices as lists of entries.

/// A sparse matrix as a list of entries, in any order; duplicates may be present.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Coo {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// Row of each entry, from 0.
    pub row: Vec<u32>,
    /// Column of each entry, from 0.
    pub column: Vec<u32>,
    /// Value of each entry.
    pub value: Vec<f64>,
}
