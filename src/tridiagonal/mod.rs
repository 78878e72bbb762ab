//! Tridiagonal systems by the partition method, on devices and from the host through several lanes.
//!
//! Users find the method, shapes, errors and sources on the page of the crate `kolmo`.

pub(crate) mod banded;
mod chunk;
mod extended_range;
pub(crate) mod host;
pub mod kernels;
pub mod lane_count;
mod one_pass;
mod options;
pub(crate) mod plan;
pub mod reduction;
mod resident;
mod residual;
mod scheme;
mod sherman_morrison;
mod solution;
mod solve;
pub(crate) mod system;

pub use banded::{BandedPlan, BandedSystem, Form, solve_banded};
pub use chunk::Upload;
pub use kernels::number::Number;
pub use kernels::row_memory::Arrays;
pub use options::{Options, Pivot, PlanOptions, Refine};
pub use plan::{Plan, Stages};
pub use resident::Resident;
pub use residual::Residual;
pub use solution::{Method, Solution};
pub use solve::factor::Factor;
pub use solve::{solve, solve_into, solve_rows};
pub use system::System;
pub use system::borrowed::Matrix;
pub use system::distributed::Rows;
pub use system::row_range::RowSpan;

pub use crate::Status;

/// Kernels of tridiagonal systems.
pub(crate) static KERNELS: [&crate::kernel::Kernel; 13] = [
    &kernels::tiles::REDUCE,
    &kernels::tiles::MERGE,
    &kernels::tiles::INTERFACE,
    &kernels::tiles::EXPAND,
    &kernels::tiles::SOLVE,
    &kernels::blocks::BLOCK_REDUCE,
    &kernels::blocks::BLOCK_SOLVE,
    &reduction::whole_systems::BATCH,
    &kernels::windows::WINDOW,
    &kernels::windows::SEAM,
    &resident::RESIDUAL,
    &banded::kernels::PENTADIAGONAL_WINDOW,
    &banded::kernels::BLOCK_WINDOW,
];
