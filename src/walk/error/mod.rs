//! Error bounds of walks.
//!
//! They are bounds of truncation and rounding for every component, and a-priori estimates of the
//! number of chains and of their length.

pub mod a_priori;
pub(crate) mod bounds;
