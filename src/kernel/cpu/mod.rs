//! CPU implementations of kernels: launches and vector instructions.

mod call;
pub(super) mod fractions;
pub(crate) mod gather;
pub(crate) mod simd;

pub(crate) use call::{Call, Memory, PARALLEL_ITEMS, Run, blocks};
