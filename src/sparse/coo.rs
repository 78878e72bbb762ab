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

/// From how many bytes on an array goes back to the system when it is dropped, whatever was dropped before: glibc keeps
/// smaller ones once it has seen one go.
const RETURNED: usize = (32 << 20) + 1;

/// An empty array for about `count` values, of which nothing stays in memory when it is dropped; room beyond them is none
/// until it is written.
pub(crate) fn returned<V>(count: usize) -> Vec<V> {
    let least = if count * size_of::<V>() < 1 << 20 { 0 } else { RETURNED.div_ceil(size_of::<V>()) };
    Vec::with_capacity(count.max(least))
}
