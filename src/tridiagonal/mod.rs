//! Tridiagonal systems by the partition method.

pub mod kernels;
pub mod partition;
pub mod unit;
