//! Sparse matrices: compressed rows, and the HYB format with ELL rows in slices of 64 and the rest of long rows
//! row by row.

mod csr;
mod hyb;
mod width;

pub use crate::lane::cpu::simd::SLICE;
pub use csr::CsrMatrix;
pub use hyb::{HEADER, Hyb, RowSource, cut};
pub use width::{Layout, WidthRule};

/// Row ranges are cut at multiples of this many rows: whole slices, and the blocks of reductions, on every lane.
pub const BLOCK: usize = 256;
