//! Tridiagonal systems by the partition method.

pub mod lane_count;
