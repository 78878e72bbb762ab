//! One step x + (Qᵀx)/α on a lane: the matrix in memory and the kernels that read it.
//!
//! [`matrix`] chooses a format and cuts the rows of a lane into the [`chunk`]s that it stores.
//! [`stages`] launches a step as boundary rows, interior rows and rows to send. [`kernels`] has the
//! step in every format, [`vector_kernels`] the operations on vectors; both with CPU
//! implementations. [`time_tiles`] orders several steps for the caches of a CPU.

pub(super) mod chunk;
pub(super) mod kernels;
pub(super) mod matrix;
pub(super) mod memory_requirement;
mod pattern_kernel;
mod rows;
pub(super) mod stages;
pub(super) mod time_tiles;
mod trial;
pub(crate) mod vector_kernels;
