//! Chosen components of the solution of A x = b, by quasi-random walks, each with an interval.
//!
//! # Problem
//! A is n × n and sparse, b one right-hand side or several; wanted are x_m for a few rows m, or functionals ⟨h, x⟩, each
//! within a half-width ε, without the other unknowns.
//!
//! # Method
//! A x = b becomes x = L x + f (`splitting.rs`), of which x_m = Σ_k (L^k f)_m. A chain starts at the row s_0 = m with the
//! weight W_0 = 1 and goes from row i to row j with the probability p_ij; W is multiplied by l_ij / p_ij. The mean of
//! θ = Σ_k W_k f_{s_k} is x_m. Probabilities are almost optimal, p_ij = |l_ij| / Σ_j |l_ij|, so that |l_ij / p_ij| is the
//! sum of the row, whatever j.
//!
//! Here walks start from points of a low-discrepancy sequence (`sequence/`), one coordinate a step, and rows list their
//! entries in the order of what they lead to (`table/`); they tally the residual r of some sweeps in the place of f
//! (`control_variate.rs`). R independently scrambled replicates give a Student interval, widened where values that no chain has shown
//! may matter more (`confidence.rs`); certain bounds of truncation and rounding are added. Before the first step a
//! certificate of convergence (`convergence/certificate.rs`) proves that walks converge and have a variance, or says why not. Walks of
//! a functional draw the row that they start at (`table/functional.rs`).
//!
//! | paper | here |
//! |---|---|
//! | L, f (2.1) | [`Split`](splitting::Split) |
//! | P, B (2.5), (2.14) | a record of a [`Table`](table::Table): distribution function, signs, row sum |
//! | θ (2.10) | what a thread of the kernel `walk` adds up |
//! | T (2.16) | [`length`](error::a_priori::length), [`length_as_printed`](error::a_priori::length_as_printed) |
//! | N (2.20) | [`chains`](error::a_priori::chains) |
//! | number of blocks and threads (3.3) | [`Grid`] |
//!
//! # Example: PageRank of one page
//! x = 0.85 P x + 0.15 with the probability P_ij that a reader of page i goes on to page j: L and f are given.
//!
//! ```
//! use kolmo::Machine;
//! use kolmo::sparse::CsrMatrix;
//! use kolmo::walk::{Options, Problem, Splitting, solve};
//!
//! // 1000 pages, each of which links to the next and to page 0.
//! let n = 1000;
//! let l = CsrMatrix::from_rows(n, n, |i, row| match i {
//!     999 => row.push((0, 0.85)),
//!     _ => row.extend([(0, 0.425), (i as u32 + 1, 0.425)]),
//! });
//! let f = vec![vec![0.15; n]];
//! let machine = Machine::best()?;
//! let problem = Problem { matrix: &l, rhs: &f, components: &[500], functionals: &[] };
//! let options = Options { splitting: Splitting::Given, epsilon: Some(1e-6), ..Options::default() };
//! let solution = solve(&machine, &problem, &options, &mut |_done, _all| Ok(()))?;
//! // Every row of P sums to 1, so that x = 1 in every entry.
//! let x = &solution.components[0];
//! assert!((x.estimate - 1.0).abs() <= x.half_width && x.half_width <= 1e-6);
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! # Shapes, units, cost
//! A is a [`CsrMatrix`](crate::sparse::CsrMatrix), right-hand sides are vectors of n numbers, components are rows counted
//! from 0. A walk of T steps reads T records of some tens of bytes, wherever they lie: its cost does not depend on n, that
//! of the preparation (some sweeps over A, one record a row) does. [`Options::lazy`] walks without any preparation.
//!
//! # Bounds and errors
//! The half-width of a [`Component`] is the sum of its [`Bound`]: a Student interval of the probability
//! [`Options::confidence`], and certain bounds of what is left out when walks end and of rounding. The solution's status is
//! met where every half-width is at most ε. [`solve`] fails with [`Error::Divergent`](crate::Error::Divergent) where walks
//! would diverge or have no variance, naming the row, its sum and the bounds of the spectral radius; with
//! [`Error::Invalid`](crate::Error::Invalid) for input without an answer; with errors of lanes, and with what the callback
//! returns.
//!
//! Where components are many, or intervals short, sweeps over the whole system are faster; a
//! [`Solution`] says what they would take.
//!
//! # Sources
//! * J. H. Curtiss, "Monte Carlo methods for the iteration of linear operators", Journal of Mathematics and Physics 32,
//!   1953, doi:10.1002/sapm1953321209.
//! * S. Lai, J. Jin, M. Guo, X. Lin, "GPU-based Monte Carlo methods for solving linear algebraic equations", ISCC 2015.
//! * The sequences have theirs: [`sequence`].

#[doc(hidden)]
pub mod bicgstab;
pub(crate) mod confidence;
mod context;
#[doc(hidden)]
pub mod control_variate;
#[doc(hidden)]
pub mod convergence;
#[doc(hidden)]
pub mod error;
pub(crate) mod lazy;
mod options;
#[doc(hidden)]
pub mod sampling;
#[doc(hidden)]
pub mod sequence;
mod solution;
mod solve;
#[doc(hidden)]
pub mod splitting;
#[doc(hidden)]
pub mod table;

#[doc(hidden)]
pub use control_variate::takes_longer_than_krylov;
#[doc(hidden)]
pub use convergence::certificate::default_epsilon;
#[doc(hidden)]
pub use options::PILOT;
pub use options::{ControlVariate, Count, Grid, Length, Options, Problem, RowOrder, Splitting};
pub use sequence::{Scramble, Sequence};
pub use solution::{Bound, Component, Jacobi, Quantity, Seconds, Solution};
pub use solve::solve;

pub use crate::Status;

/// The kernels of walks and of what is before them, but for those of sequences.
pub(crate) fn kernels() -> impl Iterator<Item = &'static crate::kernel::Kernel> {
    let walks = [
        &sampling::kernels::WALK,
        &sampling::kernels::WALK_COLUMNS,
        &sampling::published_grid::WALK_GRID,
        &lazy::WALK_LAZY,
    ];
    walks.into_iter().chain(bicgstab::kernels::ALL)
}
