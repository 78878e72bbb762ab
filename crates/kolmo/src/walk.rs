//! Single components of the solution of A x = b by quasi-random walks, each with an interval.
//!
//! # Problem
//! A is n × n and sparse, and b is one right-hand side or several. Requested are x_m for a few rows
//! m, or functionals ⟨h, x⟩, each within a half-width ε. No other unknowns are computed.
//!
//! # Method
//! A x = b becomes x = L x + f (`splitting.rs`), for which x_m = Σ_k (L^k f)_m. A chain starts at
//! the row s_0 = m with the weight W_0 = 1. It goes from row i to row j with the probability p_ij,
//! and W is multiplied by l_ij / p_ij. The mean of θ = Σ_k W_k f_{s_k} is x_m. The almost optimal
//! probabilities p_ij = |l_ij| / Σ_j |l_ij| are used. For these, |l_ij / p_ij| is the sum of row i
//! for each j.
//!
//! The implementation adds to this:
//!
//! * Walks use points of a low-discrepancy sequence (`sequence/`), one coordinate per step. The
//!   entries of a row are sorted by the values of the rows they lead to (`table/`).
//! * Walks sample the residual r of an approximate solution instead of f (`control_variate.rs`).
//! * R independently scrambled replicates give a Student interval. It is widened if values too rare
//!   to occur in the chains may matter more (`confidence.rs`). Proved bounds of truncation and
//!   rounding are added.
//! * Before the first step, a certificate (`convergence/certificate.rs`) proves that walks converge
//!   and have a finite variance. Otherwise the error has the reason.
//! * Walks of a functional draw their start row (`table/functional.rs`).
//!
//! # Example: expected discounted reward
//! x = 0.85 P x + 0.15 for a random surfer with the transition matrix P. x_i is the discounted sum
//! of rewards of 0.15 per step from node i. L and f are given.
//!
//! ```
//! use kolmo::Machine;
//! use kolmo::sparse::CsrMatrix;
//! use kolmo::walk::{Options, Problem, Splitting, solve};
//!
//! // 1000 nodes with edges to the next one and to node 0.
//! let n = 1000;
//! let l = CsrMatrix::from_rows(n, n, |i, row| match i {
//!     999 => row.push((0, 0.85)),
//!     _ => row.extend([(0, 0.425), (i as u32 + 1, 0.425)]),
//! });
//! let f = vec![vec![0.15; n]];
//! let machine = Machine::best()?;
//! let problem = Problem::new(&l, &f, &[500]);
//! let options =
//!     Options::default().splitting(Splitting::Given).epsilon(Some(1e-6));
//! let solution = solve(&machine, &problem, &options, &mut ())?;
//! // Every row of P sums to 1, so that x = 1 in every entry.
//! let x = &solution.components[0];
//! assert!((x.estimate - 1.0).abs() <= x.half_width && x.half_width <= 1e-6);
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! # Shapes, units, cost
//! A is a [`CsrMatrix`](crate::sparse::CsrMatrix), right-hand sides are vectors of n numbers, and
//! components are rows counted from 0. A walk of T steps reads T records of some tens of bytes
//! each, at a cost that does not depend on n. The preparation does: it takes some sweeps over A,
//! and makes one record per row.
//!
//! # Bounds and errors
//! The half-width of a [`Component`] is the sum of its [`Bound`]: a Student interval for the
//! probability [`Options::confidence`], and proved bounds of truncation and rounding. The
//! solution's status is met if every half-width is at most ε.
//!
//! Errors of [`solve`]:
//!
//! * [`Error::Divergent`](crate::Error::Divergent) if walks would diverge or have an infinite
//!   variance, with the row, its sum and the bounds of the spectral radius;
//! * [`Error::Invalid`](crate::Error::Invalid) for invalid input;
//! * errors of lanes, and of the callback.
//!
//! For many components, or short intervals, sweeps over the whole system are faster. A [`Solution`]
//! has their predicted cost.
//!
//! # Sources
//! * J. H. Curtiss, "Monte Carlo methods for the iteration of linear operators", Journal of
//!   Mathematics and Physics 32, 1953, doi:10.1002/sapm1953321209.
//! * S. Lai, J. Jin, M. Guo, X. Lin, "GPU-based Monte Carlo methods for solving linear algebraic
//!   equations", ISCC 2015.
//! * Sources of the sequences: [`Sequence`].

#[doc(inline)]
pub use kolmo_core::walk::{
    Bound, Component, ControlVariate, Count, Jacobi, Length, Options, Problem, Quantity, Scramble, Seconds,
    Sequence, Solution, Splitting, Status, solve,
};
