//! Transient probabilities of continuous-time Markov chains by uniformization, on the CPU and on any wgpu adapter.
//!
//! # Problem
//! A chain of n states moves from state i to state j ≠ i at rate r_ij ≥ 0 and leaves i at rate E_i = Σ_j r_ij. Its
//! generator is Q = R − diag(E). Started from the distribution π(0), a row vector, it has at time t the distribution
//!
//! π(t) = π(0) e^{Qt}, which solves dπ/dt = π Q.
//!
//! Let α = max_i E_i and P = I + Q/α, and let N be a Poisson variable of mean αt. Then
//!
//! π(t) = Σ_k P(N = k) x_k, x_0 = π(0), x_{k+1} = x_k P,
//!
//! and P, a stochastic matrix, lengthens no vector in l1, so that terms left out cost no more than their Poisson mass
//! (Jensen 1953). One sweep over the x_k serves any number of times t. For a reward that state i earns at the rate
//! ρ_i,
//!
//! E ρ(t) = Σ_k P(N = k) ρ·x_k, and ∫ E ρ(s) ds from 0 to t = (1/α) Σ_k P(N > k) ρ·x_k.
//!
//! The limit π(∞) is the last x_k of a sweep whose distance to the limit is certified; see [`transient`].
//!
//! # Shapes and units
//! | name | shape | unit |
//! |---|---|---|
//! | π, x_k, initial distributions | n values, one a state, in the model's own order | probability |
//! | rates, exit rates, α | | 1 / unit of time |
//! | times | any number, in any order, 0 … ∞ | unit of time: the inverse of the rates' |
//! | rewards | n values each | reward / unit of time |
//! | `nnz` | entries of Q, its diagonal included | |
//! | ε, bounds | l1 norm over all states, at each time | probability |
//!
//! A run has at most 2³² − 2 states and αt < 4.25·10⁹. Its cost is about αt + 5√(αt) multiplications, each of
//! 12·nnz + 32·n useful bytes in f64 and 8·nnz + 16·n in f32.
//!
//! # Answers and errors
//! [`transient::solve`] gives every time's probabilities to an [`Observer`](transient::Observer) and returns a
//! [`Solution`](transient::Solution): for each time a [`Bound`](transient::Bound) on the l1 error of the
//! probabilities as delivered (truncation + steady state + rounding), and a [`Status`](transient::Status) that says
//! whether ε is met. A bound that is not met is a status, never an error. [`Error`] is for input, environment and
//! devices; its messages name the object, the number and the remedy. A broken contract between functions of this
//! crate is a panic.
//!
//! # Where things are
//! | module | holds |
//! |---|---|
//! | [`transient`] | chains, Poisson windows and weights, bounds, the sweep |
//! | [`walk`] | chosen components of A x = b by quasi-random walks, with intervals |
//! | [`lane`] | devices: [`lane::open`] makes the [`Lane`](lane::Lane) that a run works on |
//! | [`sparse`] | the HYB format (ELL + COO) |
//! | [`kernel`] | kernels: a WGSL text and a CPU twin each |
//! | [`models`] | built-in chains |
//! | [`io`] | file formats; [`io::read_chain`] reads a chain in any of them |
//! | [`report`], [`bench`](mod@bench) | summaries, JSON reports, measurements |
//! | `cli` | the command line, with the feature `cli` |
//!
//! The feature `wgpu` adds lanes on Vulkan, Metal and DX12 adapters; without it and `cli` the crate is the CPU lane
//! and the file formats.
//!
//! # Example
//! A machine fails once in 50 hours and is repaired in 4 hours on average, both times exponential. With the failure
//! rate f and the repair rate g, it is down at time t with probability f/(f+g) · (1 − e^{−(f+g)t}).
//!
//! ```
//! use kolmo::lane::{DeviceSpec, OpenOptions, open};
//! use kolmo::transient::chain::TransitionList;
//! use kolmo::transient::csr::Csr;
//! use kolmo::transient::{Initial, Observer, Options, Problem, Status, solve};
//!
//! /// Keeps the probability of state 1, "down", at each time.
//! struct Down(Vec<f64>);
//!
//! impl Observer for Down {
//!     fn progress(&mut self, _done: u64, _all: u64) -> kolmo::Result<()> {
//!         Ok(()) // an error here would stop the run
//!     }
//!     fn result(&mut self, index: usize, probabilities: &[f64]) -> kolmo::Result<()> {
//!         self.0[index] = probabilities[1];
//!         Ok(())
//!     }
//! }
//!
//! let (f, g) = (1.0 / 50.0, 1.0 / 4.0); // per hour
//! let machine = Csr::from_list(2, &TransitionList { from: vec![0, 1], to: vec![1, 0], rate: vec![f, g] })?;
//! let times = [1.0, 8.0, f64::INFINITY]; // hours
//!
//! let (lanes, precision) = open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
//! let problem = Problem {
//!     transitions: &machine,
//!     initial: &Initial::State(0),
//!     times: &times,
//!     rewards: &[],
//!     vectors: true,
//! };
//! let options = Options { epsilon: 1e-9, ..Options::default() };
//! let mut down = Down(vec![0.0; times.len()]);
//! let solution = solve(&lanes, precision, &problem, &options, &mut down)?;
//!
//! assert_eq!(solution.status, Status::Met);
//! for (i, t) in times.iter().enumerate() {
//!     let exact = f / (f + g) * (1.0 - (-(f + g) * t).exp());
//!     let bound = solution.times[i].bound.total();
//!     assert!((down.0[i] - exact).abs() <= bound && bound <= 1e-9);
//! }
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! With [`DeviceSpec::Auto`](lane::DeviceSpec::Auto) in the place of `DeviceSpec::Cpu` the same program runs on a GPU
//! where there is one. [`io::read_chain`] and [`models::parse`] give chains that need not be listed by hand.
//!
//! # Sources
//! * A. Jensen, "Markoff chains as an aid in the study of Markoff processes", Skandinavisk Aktuarietidskrift 36, 1953.
//! * B. L. Fox, P. W. Glynn, "Computing Poisson probabilities", Communications of the ACM 31(4), 1988,
//!   doi:10.1145/42404.42409. The windows here are exact quantiles; see [`transient::poisson`].
//! * N. Bell, M. Garland, "Efficient sparse matrix-vector multiplication on CUDA", NVIDIA Technical Report
//!   NVR-2008-004, 2008.
//! * M. Karwacki, B. Bylina, J. Bylina, "Multi-GPU implementation of the uniformization method for solving Markov
//!   models", FedCSIS 2012.

pub mod bench;
#[cfg(feature = "cli")]
pub mod cli;
pub mod error;
pub mod io;
pub mod kernel;
pub mod lane;
pub mod models;
pub mod report;
pub mod sparse;
pub mod transient;
pub mod tridiagonal;
pub mod walk;

pub use error::{Error, Result};

/// The README's example, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
