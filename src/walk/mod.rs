//! Components of the solution of A x = b by quasi-random walks, each with a confidence interval.
//!
//! Users find the method, shapes, errors and sources on the page of the crate `kolmo`.

pub mod bicgstab;
mod context;
pub mod control_variate;
pub mod convergence;
mod error;
pub(crate) mod options;
pub mod sampling;
pub mod sequence;
mod solution;
mod solve;
pub mod splitting;
pub mod table;

pub use control_variate::takes_longer_than_krylov;
pub use options::PILOT;
pub use options::{ControlVariate, Count, Length, Options, Problem, Splitting};
pub use sequence::{Scramble, Sequence};
pub use solution::{Bound, Component, Jacobi, Quantity, Seconds, Solution};
pub use solve::solve;

pub use crate::Status;

/// Kernels of walks and of their preparation.
pub(crate) fn kernels() -> impl Iterator<Item = &'static crate::kernel::Kernel> {
    let walks = [&sampling::kernels::WALK, &sampling::kernels::WALK_COLUMNS];
    walks.into_iter().chain(bicgstab::kernels::ALL)
}
