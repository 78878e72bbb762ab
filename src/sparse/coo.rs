//! Sparse matrices as lists of entries.

/// A sparse matrix as a list of entries (coordinate format), in any order.
///
/// Several entries of one row and column are allowed;
/// [`CsrMatrix::from_entries`](super::CsrMatrix::from_entries) adds them.
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

/// Smallest allocation in bytes that glibc returns to the system whenever it is dropped.
const RETURNED: usize = (32 << 20) + 1;

/// Returns an empty vector for about `count` values; dropping it frees all of its memory.
///
/// Vectors below 1 MiB are exempt. Capacity beyond `count` takes no physical memory until it is
/// written.
pub(crate) fn returned<V>(count: usize) -> Vec<V> {
    let least = if count * size_of::<V>() < 1 << 20 { 0 } else { RETURNED.div_ceil(size_of::<V>()) };
    Vec::with_capacity(count.max(least))
}
