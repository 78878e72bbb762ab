//! Internals for the crates of this workspace; not part of the public API.
//!
//! They change without notice.

pub use crate::error::Size;
pub use crate::parallel::top_k::{larger_first, largest};
pub use crate::parallel::{alone, each_of, interruptible, no_thread, threads};
pub use crate::transient::chain::csr::Csr;
pub use crate::transient::chain::scan::statistics;
pub use crate::transient::chain::transitions::add_states;
pub use crate::transient::exchange::parts::ChainParts;
pub use crate::transient::iteration::{IterateSum, Iteration};
pub use crate::transient::memory::expect_chain_memory;
pub use crate::transient::partition::bandwidths;
pub use crate::transient::step::vector_kernels::SWEEP_ROWS;
pub use crate::transient::transition_matrices::EXPONENTIAL_TERMS;
pub use crate::util::quantity::{count, out_of_range};
