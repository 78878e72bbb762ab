//! Sparse matrices: compressed rows, the HYB format, and formats that exploit repetition.
//!
//! HYB stores ELL rows in slices of 64, and the rest of long rows separately.

mod compact;
mod coo;
mod csr;
mod format;
mod hyb;
pub mod patterns;
mod repeats;
pub mod repetition;
pub(crate) mod slices;
pub mod tiles;
mod width;

pub use crate::kernel::twin::simd::SLICE;
pub use compact::{Dictionary, Packed, PairTable, Pairs, column_bits};
pub use coo::Coo;
pub(crate) use coo::returned;
pub(crate) use csr::group;
pub use csr::{CsrMatrix, Place};
pub use format::MatrixFormat;
pub use hyb::{HEADER, Hyb, RowSource, cut};
pub use repeats::{Repeat, Repeats};
pub use width::{Layout, WidthRule};

/// Row ranges are split at multiples of this number of rows.
///
/// This keeps slices, and the blocks of reductions on every lane, whole.
pub const BLOCK: usize = 256;
