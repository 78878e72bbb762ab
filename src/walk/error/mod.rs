//! Error bounds of walks.
//!
//! Bounds of truncation and rounding that hold for every component, and the a-priori estimates of
//! the number of chains and of their length.

pub mod a_priori;
pub(crate) mod bounds;
