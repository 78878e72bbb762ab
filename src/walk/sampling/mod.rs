//! Sampling: sums over walks on lanes, in rounds until intervals are short enough.
//!
//! The launcher distributes the walks of a round over lanes and ranks. Kernels walk on chain
//! tables, in blocks of 256.

pub(crate) mod adaptive;
pub(crate) mod kernels;
pub mod launcher;
pub mod walk_sums;
