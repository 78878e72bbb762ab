//! CPU implementations of kernels: launches and vector instructions.

mod call;
pub(crate) mod gather;
pub(crate) mod interleaved;
#[cfg(target_arch = "x86_64")]
mod loads;
pub(super) mod q64_simd;
pub(crate) mod simd;

pub use call::BindingView;
pub(crate) use call::{BindingMemory, BoundKernel, Call, PARALLEL_ITEMS, blocks};
