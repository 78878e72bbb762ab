//! Internals for the crates of this workspace; not part of the public API.
//!
//! They change without notice.

pub use crate::lane::window::Window;
pub use crate::largest::{larger_first, largest};
pub use crate::number::{Size, count, out_of_range};
pub use crate::parallel::{alone, interruptible, threads};
pub use crate::transient::bound::{MatrixStatistics, expect_room, scale_rates, statistics};
pub use crate::transient::built::Built;
pub use crate::transient::clock::ActivitySeconds;
pub use crate::transient::cost::Costs;
pub use crate::transient::csr::Csr;
pub use crate::transient::halo::{HaloTransfer, WindowEnd, windows};
pub use crate::transient::iteration::{Iteration, Target};
pub use crate::transient::kernels::SWEEP_ROWS;
pub use crate::transient::partitioning::bandwidths;
pub use crate::transient::parts::Parts;
pub use crate::transient::rewards::kept;
pub use crate::transient::subdivided;
pub use crate::transient::sweeps::sweep;
pub use crate::transient::timeline::{Moment, PHASES, Timeline};
pub use crate::transient::transitions::{add_rates, add_states};
pub use crate::tridiagonal::host::scaling::convert;
