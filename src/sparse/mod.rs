//! Sparse matrices: compressed rows, the HYB format, and formats that exploit repetition.
//!
//! HYB stores ELL rows in slices of 64, and the rest of long rows separately.

mod coo;
pub(crate) mod csr;
mod dictionary_formats;
pub mod dictionary_search;
mod format;
mod hyb;
pub mod pattern_tiles;
pub mod patterns;
mod periodic_rows;
pub(crate) mod spmv_cpu;
mod width;

pub use crate::kernel::cpu::simd::SLICE;
pub use coo::Coo;
pub(crate) use coo::returned;
pub(crate) use csr::group;
pub use csr::{CsrMatrix, Offset};
pub use dictionary_formats::{Coded, Dictionary, column_bits};
pub use format::MatrixFormat;
pub use hyb::{HEADER, Hyb, RowSource, cut};
pub use periodic_rows::{Repeat, Repeats};
pub use width::HybLayout;

/// Row ranges are split at multiples of this number, which keeps slices and blocks whole.
pub const BLOCK: usize = 256;
