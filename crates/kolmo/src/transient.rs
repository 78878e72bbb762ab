//! Transient probabilities of a continuous-time Markov chain, by uniformization.
//!
//! # Problem
//! A chain of n states moves from state i to state j ≠ i at rate r_ij ≥ 0 and leaves i at rate
//! E_i = Σ_j r_ij. Its generator is Q = R − diag(E). Started from the distribution π(0), a row
//! vector, it has at time t the distribution
//!
//! π(t) = π(0) e^{Qt}, which solves dπ/dt = π Q.
//!
//! # Method
//! Let α = max_i E_i and P = I + Q/α, and let N be a Poisson variable of mean αt. Then
//!
//! π(t) = Σ_k P(N = k) x_k, x_0 = π(0), x_{k+1} = x_k P.
//!
//! P is an l1 contraction, so the error of omitted terms is their Poisson mass (Jensen 1953). One
//! uniformization run over the x_k serves any number of times t. For a reward at rate ρ_i in state
//! i,
//!
//! E ρ(t) = Σ_k P(N = k) ρ·x_k, and ∫ E ρ(s) ds from 0 to t = (1/α) Σ_k P(N > k) ρ·x_k.
//!
//! The limit π(∞) is computed on the host: by elimination for small or banded chains, otherwise by
//! multilevel aggregation. Its error bound follows from the number of roundings in an
//! elimination, or from residuals and expected hitting times.
//!
//! | symbol | identifier | in Karwacki, Bylina, Bylina 2012 |
//! |---|---|---|
//! | α | `alpha` | (2) |
//! | Pᵀ x = x + (Rᵀx − E x)/α | `shaders/step.wgsl` | lines 2, 3, 9 of Algorithm 1 |
//! | p_k = e^{−αt}(αt)^k/k! | [`poisson::Weights`] | (5) |
//! | left … right | [`poisson::Window`] | L of (6) |
//!
//! [`Method::Chebyshev`] takes about √(2αt ln 1/ε) matrix–vector products instead if the chain is
//! nearly reversible.
//!
//! # Shapes, units, cost
//! A chain is a [`Transitions`]: it returns any row of Rᵀ or R on request, with rates in 1 / unit
//! of time. [`Chain::from_csr`] stores a chain, [`models`](crate::models) generates chains,
//! [`read_chain`](crate::io::read_chain) reads files. Times are in the unit of time, and
//! `f64::INFINITY` is the steady state. Probabilities are n values per time, in the chain's own
//! order. [`solve`] passes them to an [`Observer`] time by time, [`Chain::transient`] stores them
//! in the [`Solution`].
//!
//! A run has at most 2³² − 2 states and 2³² − 2 matrix–vector products. Rates, times and rewards
//! may have any size that f64 holds, in single and double precision. A run takes about αt + 5√(αt)
//! products. Each moves 12·nnz + 32·n useful bytes in f64 and 8·nnz + 16·n in f32, where nnz counts
//! the diagonal.
//!
//! # Bounds and errors
//! Every result has a [`Bound`] on its l1 error, a sum of proved terms: the omitted Poisson mass,
//! the error of early termination, and rounding. The [`Status`] reports whether it is at most
//! [`Options::epsilon`]. If probabilities are not finite or do not sum to the initial mass, the
//! result has a [`contradiction`](TimeResult::contradiction), and its bound is not met.
//!
//! [`solve`] returns these errors:
//!
//! * [`Error::Invalid`](crate::Error::Invalid) for invalid input: a distribution that does not sum
//!   to 1, a time below 0, an exit rate above the largest double.
//! * [`Error::OutOfMemory`](crate::Error::OutOfMemory), before the work begins if that is known.
//! * [`Error::DeviceLost`](crate::Error::DeviceLost).
//! * Any error that the observer returns.
//!
//! # Example
//! An M/M/1 queue with a capacity of two has 1 arrival and 2 services an hour. The example computes
//! its state half an hour after it was empty, and the expected number of customers.
//!
//! ```
//! use kolmo::Machine;
//! use kolmo::transient::{Chain, Options, Reward, Status};
//!
//! let queue = kolmo::models::parse("birth-death:3,1,2").expect("a built-in")?;
//! let customers = Reward { name: "customers".to_owned(), values: vec![0.0, 1.0, 2.0] };
//! let chain = Chain { rewards: vec![customers], ..queue.into() };
//! let options = Options::default().epsilon(1e-10);
//! let solution = chain.transient_on(&Machine::best()?, &[0.5], &options)?;
//! let p = &solution.probabilities[0];
//!
//! assert_eq!(solution.status, Status::Met);
//! // Q has the eigenvalues 0, −3 − √2 and −3 + √2; its eigenvectors give π₀(t) in closed form.
//! let r = 2f64.sqrt();
//! let mode = |a: f64, rate: f64| a / 14.0 * (-rate * 0.5).exp();
//! let exact = 4.0 / 7.0 + mode(3.0 + r, 3.0 - r) + mode(3.0 - r, 3.0 + r);
//! assert!((p[0] - exact).abs() <= solution.times[0].bound.total());
//! let customers = &solution.times[0].rewards[0];
//! assert!((customers.instantaneous - (p[1] + 2.0 * p[2])).abs() < 1e-12);
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! # Sources
//! * A. Jensen, "Markoff chains as an aid in the study of Markoff processes", Skandinavisk
//!   Aktuarietidskrift 36, 1953.
//! * B. L. Fox, P. W. Glynn, "Computing Poisson probabilities", Communications of the ACM 31(4),
//!   1988, doi:10.1145/42404.42409. The windows here are exact quantiles; see [`poisson`].
//! * N. Bell, M. Garland, "Efficient sparse matrix-vector multiplication on CUDA", NVIDIA Technical
//!   Report NVR-2008-004, 2008.
//! * M. Karwacki, B. Bylina, J. Bylina, "Multi-GPU implementation of the uniformization method for
//!   solving Markov models", FedCSIS 2012.

/// Files from which an interrupted run continues.
pub mod checkpoint {
    #[doc(inline)]
    pub use kolmo_core::transient::checkpoint::{Checkpoint, Summary, inspect};
}

/// Derivatives of probabilities, with bounds: by parameters, or by every rate.
pub mod gradient {
    #[doc(inline)]
    pub use kolmo_core::transient::gradient::adjoint::{Adjoint, Functional, adjoint};
    #[doc(inline)]
    pub use kolmo_core::transient::gradient::device_chain::{DeviceChain, Rates};
    #[doc(inline)]
    pub use kolmo_core::transient::gradient::{Bounded, Gradients, Parameter, TimeGradient, forward};
}

/// Long-run questions: stationary distribution, visits, absorption, hitting times, rewards.
pub mod long_run {
    #[doc(inline)]
    pub use kolmo_core::transient::long_run::{
        FromStates, Occupancy, absorption, absorption_gradient, expected_reward, expected_reward_gradient,
        hitting_time, stationary, stationary_gradient, visits,
    };
}

/// Windows and weights of Poisson distributions, with proved bounds.
pub mod poisson {
    #[doc(inline)]
    pub use kolmo_core::transient::poisson::{Weights, Window};
}

#[doc(inline)]
pub use kolmo_core::transient::{
    Absorption, Action, Backward, Bound, Chain, ChainFile, Direction, EPSILON, Expanded, Expansion, Initial,
    Labels, LaneExchange, LanePlan, MatrixInfo, Method, Observer, Options, Partitioning, Phase, Problem,
    Reachability, Reward, RewardValue, Seconds, Solution, StateNames, StateValues, Status, Stopped,
    TimeResult, Total, TransitionList, Transitions, exit_rate, exponential_action, in_lockstep, reachability,
    solve, solve_phases, solve_resumable, until_absorption,
};
