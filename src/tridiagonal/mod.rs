//! Tridiagonal systems by the partition method.

pub mod block_kernels;
pub mod blocks;
pub mod kernels;
pub mod lane_count;
pub mod partition;
pub mod pivot;
pub mod plan;
mod solve;
pub mod system;
pub mod unit;

pub use plan::{Plan, PlanOptions, Send, Stages};
pub use solve::{Interface, Method, Options, Pivot, Refine, Solution, Status, solve};
pub use system::{Residual, System};
pub use unit::Number;
