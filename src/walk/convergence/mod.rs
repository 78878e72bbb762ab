//! Convergence of walks.
//!
//! A certificate proves that walks converge and bounds their norm. If the whole system has none,
//! the unknowns that walks can reach are certified as a system of their own.

pub mod certificate;
pub(crate) mod reachable;
