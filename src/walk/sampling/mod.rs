//! Sampling: sums over walks on lanes, in rounds until intervals are short enough.
//!
//! The launcher distributes the walks of a round over lanes and ranks. The kernels here walk on
//! chain tables, or on the launch grid of the published method. Lazy walks have their own kernel.

pub(crate) mod adaptive;
pub(crate) mod kernels;
pub mod launcher;
pub(crate) mod published_grid;
pub mod walk_sums;
