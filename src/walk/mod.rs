//! Chosen components of the solution of A x = b, by quasi-random walks.

pub mod chains;
pub mod control;
pub mod gate;
pub mod interval;
pub mod kernels;
pub mod sequence;
mod solve;
pub mod splitting;
pub mod table;

pub use control::Sweeps;
pub use solve::{Bound, Component, Jacobi, Options, Problem, Seconds, Solution, solve};
pub use splitting::Splitting;
pub use table::RowOrder;
