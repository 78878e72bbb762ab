//! Tridiagonal systems by the partition method, on devices and from the host through several lanes.
//!
//! # Problem
//! a_i·x_{i−1} + d_i·x_i + c_i·x_{i+1} = b_i for i = 0 … n−1; a_0 and c_{n−1} are not used, or, in a cyclic system, belong
//! to x_{n−1} and x_0. One system or many of equal size ([`System`], [`Layout`]), any number of right-hand sides.
//!
//! # Method
//! Rows are cut into runs. Of each run only the two unknowns at its ends matter to the others (stage 1); they solve an
//! interface system that is tridiagonal again (stage 2); inside of a run the rest follows (stage 3). There are four schemes:
//!
//! * **Tiles** (`kernels/reduced_block.rs`, `reduction/merge_tree.rs`): a unit of 128 rows leaves a reduced block, x_first = u0 − u1·x_left −
//!   u2·x_right and x_last = u3 − u4·x_left − u5·x_right. Two neighbours join to one by a 2 × 2 system, so what 16 threads of
//!   8 rows leave, and what lanes' chunks and ranks leave, is joined in the same way, in one binary tree over units of 128
//!   rows. Each row is read twice and written once, 72 bytes in f64. No row is exchanged: the way of dominant systems.
//! * **Windows** (`one_pass/`): where couplings fall off fast enough, a tile is solved together with the rows around
//!   it that still matter, and with no others: one pass, 40 bytes a row. A solution counts if the
//!   rows in which it would show say that nothing else mattered; what is not certified is solved in tiles.
//! * **Whole systems** of up to 2048 rows: a tile holds some of them, and each row is read once.
//! * **Blocks** (`kernels/blocks.rs`): one thread a block, whose two interface equations are rows of a reduced system. With
//!   scaled partial pivoting for systems that are not dominant, and with the block of 10 rows and the sweep on the host as
//!   first published.
//! * A cyclic system closes its one reduced block, (1 + u2)·x_first + u1·x_last = u0, u5·x_first + (1 + u4)·x_last = u3;
//!   many small ones are opened (`sherman_morrison.rs`); many systems lie one behind the other, and where one ends a coefficient is zero.
//!
//! Stage 1 asks every row whether it is dominant and counts pivots that are next to nothing. [`solve`] then exchanges
//! rows or not, corrects by the residual in f64, and reports the residual of what it returns; if that is no good it
//! eliminates with partial pivoting on the host (`host/pivoted_lu.rs`), which also says what is singular.
//!
//! | symbol | identifier | published (Veneva, Imamura 2024) |
//! |---|---|---|
//! | n, m | [`System::n`], [`PlanOptions::block`] | SLAE size, sub-system size |
//! | T₁H2D, T₁COMP, T₁D2H | [`Stages::upload`], [`Stages::reduce`], [`Stages::units_down`] | stage 1 |
//! | T₂H | [`Stages::interface`] | stage 2 |
//! | T₃H2D, T₃COMP, T₃D2H | [`Stages::ends_up`], [`Stages::solve`], [`Stages::download`] | stage 3 |
//! | num_str | lanes of a [`Plan`] | number of streams |
//!
//! # Shapes and cost
//! Diagonals and right-hand sides are `batch · n` numbers each, systems one behind the other ([`System`]). A solution on
//! devices moves 72 bytes a row in f64, 40 where windows are enough (19 of several right-hand sides), host to host 40 bytes a row over the bus. Of several ranks ([`Rows`]) each sends 64
//! reduced blocks at most to rank 0, or some 1000 rows of a reduced system, however many rows it has.
//!
//! [`solve_into`] borrows diagonals and right-hand sides and writes unknowns where the caller has room for them: on the host's
//! cores, where one pass is enough, nothing is copied.
//!
//! [`Factor`] keeps a matrix for any number of solutions, with right-hand sides that go through the devices together.
//! [`Resident`] solves what is on a device and stays there.
//!
//! # Residual and errors
//! A [`Solution`] has the [`Residual`] of what it returns, computed on the host in f64 from the system as given, with two
//! backward errors: the normwise one, and the componentwise one (Oettli, Prager 1964), which alone sees that a row with
//! small numbers is not solved. The status is met where the normwise one is at most [`Options::tolerance`] (1e-12) and the
//! componentwise one at most that, or 1e-8 if that is more ([`Residual::within`]). Corrections go on until they are 2 ε and
//! 8 ε or no longer fall by half (a first answer where every row is dominant may have 64 ε); where the componentwise one ends above, the host eliminates with partial pivoting and
//! corrects in the same way, first with rows and columns as they are, then with all of size 1, each system of a batch for
//! itself, and the better unknowns are kept. Right-hand sides that are very large or small are multiplied by a power of two
//! and their unknowns divided by it. A singular matrix is a status with the row where it shows. [`solve`] fails with [`Error::Invalid`](crate::Error::Invalid) for arrays that do not fit together, with
//! [`Error::OutOfMemory`](crate::Error::OutOfMemory), and with errors of lanes.
//!
//! # Example
//! ```
//! use kolmo::Machine;
//! use kolmo::tridiagonal::{Options, Status, System, solve};
//!
//! let machine = Machine::best()?;
//! let n = 1000;
//! let system = System::new(vec![-1.0; n], vec![4.0; n], vec![-1.0; n], vec![2.0; n])?;
//! let solution = solve(&machine, &system, &Options::default())?;
//! assert_eq!(solution.status, Status::Met);
//! // Far from the ends every unknown is 2 / (4 − 1 − 1) = 1.
//! assert!((solution.x[0][n / 2] - 1.0).abs() < 1e-14);
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! # Sources
//! * T. M. Austin, M. Berndt, J. D. Moulton, "A memory efficient parallel tridiagonal solver", preprint, 2004.
//! * C. Klein, R. Strzodka, scaled partial pivoting inside of partitions, ACM TOPC 10(1), 2023, doi:10.1145/3580373.
//! * M. Veneva, T. Imamura, "ML-based optimum number of CUDA streams for the GPU implementation of the tridiagonal
//!   partition method", MMCP 2024.

pub(crate) mod banded;
mod chunk;
mod extended_range;
pub(crate) mod host;
#[doc(hidden)]
pub mod kernels;
#[doc(hidden)]
pub mod lane_count;
mod one_pass;
mod options;
pub(crate) mod plan;
#[doc(hidden)]
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
pub use options::{Interface, Options, Pivot, PlanOptions, Refine};
pub use plan::{Plan, Stages};
pub use resident::Resident;
pub use residual::Residual;
pub use solution::{Method, Solution};
pub use solve::factor::Factor;
pub use solve::{solve, solve_into, solve_rows};
pub use system::System;
pub use system::borrowed::Matrix;
pub use system::distributed::Rows;
pub use system::layout::Layout;
pub use system::row_range::Span;

pub use crate::Status;

/// The kernels of tridiagonal systems.
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
