//! Transient probabilities of a continuous-time Markov chain, by uniformization.
//!
//! A chain with generator Q and initial distribution π(0) has π(t) = π(0) e^{Qt}. With α at least every exit rate
//! and P = I + Q/α,
//!
//! π(t) = Σ_k e^{−αt} (αt)^k / k! · π(0) Pᵏ,
//!
//! and as P is a contraction in l1, leaving out terms errs by their Poisson mass (A. Jensen, "Markoff chains as an
//! aid in the study of Markoff processes", Skandinavisk Aktuarietidskrift 36, 1953). One sweep over x_k = π(0) Pᵏ
//! serves any number of times.
//!
//! | symbol | identifier | in Karwacki, Bylina, Bylina 2012 |
//! |---|---|---|
//! | α | `alpha` | (2) |
//! | Pᵀ x = x + (Rᵀx − E x)/α | [`kernels::STEP`] | lines 2, 3, 9 of Algorithm 1 |
//! | p_k = e^{−αt}(αt)^k/k! | [`poisson::Weights`] | (5) |
//! | left … right | [`poisson::Window`] | L of (6) |
//! | Θ, l | [`Method::Subdivided`] | line 4 |
//!
//! # Bounds
//!
//! Every answer comes with a bound on its l1 error that is a sum of proved terms: the Poisson mass left out, the
//! price of a steady-state stop, and rounding ([`bound`]).

pub mod bound;
pub mod chain;
pub mod csr;
mod exchange;
pub(crate) mod iteration;
pub mod kernels;
pub mod matrix;
pub mod order;
pub mod parts;
mod pattern;
pub mod poisson;
#[cfg(feature = "cuda")]
mod push;
mod solve;
pub mod split;
mod stationary;
mod step;
mod subdivided;
mod sweep;

pub use chain::{Chain, Initial};
pub use solve::{
    Bound, Method, Observer, Options, Problem, RewardValue, Seconds, Solution, Status, TimeResult, solve,
};
