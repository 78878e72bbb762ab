//! Tridiagonal systems by the partition method, on devices and from the host through several lanes.
//!
//! # Problem
//! a_i·x_{i−1} + d_i·x_i + c_i·x_{i+1} = b_i for i = 0 … n−1. In a cyclic system a_0 belongs to
//! x_{n−1} and c_{n−1} to x_0; otherwise they are not used. There may be one system or many of
//! equal size ([`System`]), with any number of right-hand sides.
//!
//! # Method
//! Rows are cut into runs. Only the two unknowns at the ends of a run matter to other runs (stage
//! 1). They solve an interface system that is tridiagonal again (stage 2). The unknowns inside of a
//! run follow (stage 3). There are four schemes:
//!
//! * **Tiles** (`kernels/reduced_block.rs`, `reduction/merge_tree.rs`): a unit of 128 rows leaves a
//!   reduced block, x_first = u0 − u1·x_left − u2·x_right and x_last = u3 − u4·x_left − u5·x_right.
//!   Two neighbours are joined to one by a 2 × 2 system. One binary tree over units of 128 rows
//!   joins the blocks of threads (16 of 8 rows each), of the chunks on lanes, and of ranks. Each
//!   row is read twice and written once, 72 bytes in f64. No rows are exchanged: the scheme for
//!   dominant systems.
//! * **Windows** (`one_pass/`): if couplings decay fast enough, a tile is solved together with the
//!   surrounding rows that still matter (overlapping tiles of truncated SPIKE). This takes one
//!   pass, 40 bytes a row. A solution counts if the residual is small in the rows where truncation
//!   errors would appear. Otherwise the system is solved in tiles.
//! * **Whole systems** of up to 2048 rows: a tile holds some of them, and each row is read once.
//! * **Blocks** (`kernels/blocks.rs`): one thread per block. Its two interface equations are rows
//!   of a reduced system. This scheme has scaled partial pivoting, for systems that are not
//!   dominant.
//!
//! A cyclic system closes its one reduced block: (1 + u2)·x_first + u1·x_last = u0 and
//! u5·x_first + (1 + u4)·x_last = u3. Many small cyclic systems are opened
//! (`sherman_morrison.rs`). Many systems are concatenated, with zero coefficients where one ends.
//!
//! Stage 1 checks every row for dominance and counts negligible pivots. [`solve`] then decides on
//! row exchanges, refines with the residual in f64, and reports the residual of the unknowns that
//! it returns. If that residual is too large, it eliminates with partial pivoting on the host
//! (`host/pivoted_lu.rs`), which also detects singular matrices.
//!
//! Symbols of the published method:
//!
//! | symbol | identifier | published (Veneva, Imamura 2024) |
//! |---|---|---|
//! | n | [`System::n`] | SLAE size |
//! | T₂H | `interface` | stage 2 |
//! | num_str | lanes | number of streams |
//!
//! # Shapes and cost
//! Diagonals and right-hand sides have `batch · n` numbers each, with concatenated systems
//! ([`System`]). A solution on devices moves 72 bytes per row in f64, or 40 if windows suffice (19
//! per right-hand side if there are several). From host to host, 40 bytes per row cross the bus.
//! With several ranks ([`Rows`]), each sends at most 64 reduced blocks to rank 0, or about 1000
//! rows of a reduced system, for any number of rows.
//!
//! [`solve_into`] borrows diagonals and right-hand sides and writes unknowns into the caller's
//! array. On the CPU, if one pass suffices, it copies nothing.
//!
//! [`Factor`] keeps a matrix for any number of solutions, and solves for several right-hand sides
//! together. [`Resident`] solves systems whose arrays are on a device and stay there.
//!
//! # Residual and errors
//! A [`Solution`] has the [`Residual`] of its unknowns, computed on the host in f64 from the system
//! as given. It has two backward errors: the normwise one, and the componentwise one (Oettli,
//! Prager 1964). Only the componentwise one shows that a row with small numbers is not solved. The
//! status is met if the normwise error is at most [`Options::tolerance`] (1e-12) and the
//! componentwise one at most that, or 1e-8 if that is more ([`Residual::within`]).
//!
//! Refinement stops when the errors are 2 ε and 8 ε, or no longer fall by half. A first solution
//! with dominant rows may have 64 ε. If the componentwise error remains larger, the host eliminates
//! with partial pivoting and refines: first the matrix as it is, then with rows and columns scaled
//! to a maximum near 1. It does so for each system of a batch separately, and keeps the better
//! unknowns. Very large or small right-hand sides are multiplied by a power of two, and their
//! unknowns divided by it.
//!
//! A singular matrix is a status, with the row in which it shows. [`solve`] fails with
//! [`Error::Invalid`](crate::Error::Invalid) for arrays of wrong length, with
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
//! * T. M. Austin, M. Berndt, J. D. Moulton, "A memory efficient parallel tridiagonal solver",
//!   preprint, 2004.
//! * C. Klein, R. Strzodka, scaled partial pivoting inside of partitions, ACM TOPC 10(1), 2023,
//!   doi:10.1145/3580373.
//! * M. Veneva, T. Imamura, "ML-based optimum number of CUDA streams for the GPU implementation of
//!   the tridiagonal partition method", MMCP 2024.

#[doc(inline)]
pub use kolmo_core::tridiagonal::{
    Arrays, BandedSystem, Factor, Form, Matrix, Method, Number, Options, Pivot, Refine, Resident, Residual,
    Rows, Solution, Status, System, solve, solve_banded, solve_into, solve_rows,
};
