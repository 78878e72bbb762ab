//! Kernels of tridiagonal systems with their CPU implementations.
//!
//! Each kernel is declared next to the Rust function that computes the same bits on the host.
//! Further files have code that kernels share: numbers and their arithmetic, places and alignments
//! of rows, reduced blocks, and the arrays of a lane.

pub(crate) mod alignment;
pub(crate) mod blocks;
pub(crate) mod number;
pub(crate) mod reduced_block;
pub(crate) mod row_memory;
pub mod tiles;
pub mod windows;
