//! Transient analysis of Markov chains and two linear solvers, on any GPU or CPU.
//!
//! | engine | computes | method |
//! |---|---|---|
//! | [`transient`] | π(t) = π(0) e^{Qt} of a continuous-time Markov chain | uniformization |
//! | [`walk`] | chosen entries of x in A x = b | quasi-random walks |
//! | [`tridiagonal`] | x in T x = b, T tridiagonal | the partition method |
//!
//! Each engine is a function `solve`, which takes a [`Machine`], a problem and options. It returns
//! a `Solution` with the result, a bound or residual as a measure of its accuracy, a `Status`, and
//! times. The pages of the three modules describe the problem in formulas, the method, shapes,
//! units, errors and sources, with a tested example.
//!
//! # Lanes and precisions
//! A [`Lane`](lane::Lane) is an in-order queue of work on one device. The device is a pool of CPU
//! threads, an adapter of [wgpu](https://wgpu.rs) (Vulkan, Metal or DX12), or a CUDA stream. A
//! [`Machine`] is the lanes of a run. [`Machine::open`] opens them by the names of devices and
//! chooses the precision: f64, unless a named device only has f32. Engines work on any number of
//! lanes, of one device or of several different ones. Results have identical bits for any division
//! of the work, on lanes that round alike.
//!
//! # Shapes and units
//! | name | shape | unit |
//! |---|---|---|
//! | π, initial distributions | n values, one per state, in the model's order | probability |
//! | rates, exit rates, α | | 1 / unit of time |
//! | times | any number, in any order, 0 … ∞ | unit of time: inverse of the rates' |
//! | rewards | n values each | reward / unit of time |
//! | A, L | n × n, compressed rows ([`sparse::CsrMatrix`]) | |
//! | components | any number of rows 0 … n−1 | |
//! | dl, d, du | batch · n values; dl\[0\] and du\[n−1\] only count in cyclic systems | |
//! | b, x | as many values as rows, for each right-hand side | |
//! | `nnz` | entries of a matrix, including its diagonal | |
//! | `seconds` | wall clock | s |
//!
//! # Bounds, statuses, errors
//! | engine | bound | status |
//! |---|---|---|
//! | transient | l1 error of all probabilities at a time | met if at most ε |
//! | walk | half-width of an interval | met if all are at most ε |
//! | tridiagonal | normwise and componentwise relative residual | met if at most their tolerances |
//!
//! The bound of `transient` adds truncation, steady-state and rounding errors, all proved. That of
//! `walk` adds a statistical error (Student) to truncation and rounding errors, which are proved.
//! The residuals of `tridiagonal` are computed.
//!
//! A bound that is not met is a status, never an error. [`Error`] is for input, environment and
//! devices; its messages name the object, the number and a suggestion. Its variants, [`Invalid`]
//! and [`Limit`] are for programs. A broken contract between functions of this crate is a panic.
//! Long computations report to a [`Progress`], whose error stops them.
//!
//! # Modules
//! | module | holds |
//! |---|---|
//! | [`transient`] | chains, Poisson windows and weights, bounds, uniformization |
//! | [`walk`] | splittings, the certificate of convergence, chain tables, sequences, intervals |
//! | [`tridiagonal`] | systems, the partition method, plans over lanes, the number of lanes |
//! | [`pagerank`] | PageRank of graphs, with bounds of each node |
//! | [`lane`] | devices, each used by a [`Lane`](lane::Lane) |
//! | [`sparse`] | compressed rows, the HYB format (ELL + COO), formats for repeated entries |
//! | [`kernel`] | kernels: a WGSL source and a CPU implementation each |
//! | [`ranks`] | processes of `mpirun` that share a problem |
//! | [`models`] | built-in chains and systems |
//! | [`io`] | file formats; [`io::read_chain`] reads a chain in any of them |
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `io` (default) | file formats: module [`io`] |
//! | `wgpu` (default) | lanes on Vulkan, Metal and DX12 adapters |
//! | `cuda` | lanes on CUDA devices; libraries are opened at run time, building needs none |
//! | `mpi` | ranks under `mpirun`; a build needs an MPI library and libclang |
//! | `sprs` | conversions from and to the matrices of the crate sprs |
//!
//! Without features, the crate consists of the CPU lane and the engines. The command is the crate
//! `kolmo-cli`.
//!
//! # Example
//! A machine fails once in 50 hours and is repaired in 4 hours on average, with exponential
//! times. With the failure rate f and the repair rate g, it is down at time t with probability
//! f/(f+g) · (1 − e^{−(f+g)t}).
//!
//! ```
//! use kolmo::transient::Chain;
//!
//! let (f, g) = (1.0 / 50.0, 1.0 / 4.0); // per hour
//! let chain = Chain::from_csr(2, &[0, 1, 2], &[1, 0], &[f, g])?;
//! let times = [1.0, 8.0, f64::INFINITY]; // hours
//! let solution = chain.transient(&times)?;
//!
//! for (t, p) in times.iter().zip(&solution.probabilities) {
//!     let exact = f / (f + g) * (1.0 - (-(f + g) * t).exp());
//!     assert!((p[1] - exact).abs() <= solution.bound.total());
//! }
//! # Ok::<(), kolmo::Error>(())
//! ```
//!
//! It runs on a GPU if there is one. [`Chain::transient_on`](transient::Chain::transient_on) takes
//! a [`Machine`] and [`Options`](transient::Options). [`io::read_chain`] and [`models::parse`]
//! return chains from files and built-in models.
//!
//! # Sources
//! The pages of the engines list their sources. kolmo began with three papers:
//!
//! * M. Karwacki, B. Bylina, J. Bylina, "Multi-GPU implementation of the uniformization method for
//!   solving Markov models", FedCSIS 2012.
//! * S. Lai, J. Jin, M. Guo, X. Lin, "GPU-based Monte Carlo methods for solving linear algebraic
//!   equations", ISCC 2015.
//! * M. Veneva, T. Imamura, "ML-based optimum number of CUDA streams for the GPU implementation of
//!   the tridiagonal partition method", MMCP 2024, doi:10.48550/arXiv.2501.05938.
//!
//! `kolmo bench walk` and `kolmo bench tridiagonal` repeat measurements of the last two.

pub mod pagerank;
pub mod transient;
pub mod tridiagonal;
pub mod walk;

#[doc(inline)]
pub use kolmo_core::{Error, Invalid, Iterate, Limit, Machine, Progress, Result, Status};

/// Devices: their names, and the lanes opened on them.
pub mod lane {
    #[doc(inline)]
    pub use kolmo_core::lane::{
        Buffer, Device, DeviceSpec, HostArray, Lane, Limits, Listing, OpenOptions, list,
    };
}

/// Precisions of computations, and the numbers stored in them.
pub mod kernel {
    #[doc(inline)]
    pub use kolmo_core::kernel::{Number, Precision, Q64, Real};
}

/// Sparse matrices in compressed rows, and the formats that devices store.
pub mod sparse {
    #[doc(inline)]
    pub use kolmo_core::sparse::{CsrMatrix, MatrixFormat, Repeat, Repeats};
}

/// Processes that share a problem, started by an MPI launcher.
pub mod ranks {
    #[doc(inline)]
    pub use kolmo_core::ranks::{Ranks, Session};
}

/// Built-in chains, systems and graphs by their specifications, such as `tandem:5`.
pub mod models {
    #[doc(inline)]
    pub use kolmo_core::models::{
        Links, Model, System, Tridiagonal, banded, graph, links, parse, system, tridiagonal,
    };
}

/// File formats: every function chooses the format by the extension of the file's name.
#[cfg(feature = "io")]
pub mod io {
    #[doc(inline)]
    pub use kolmo_core::io::{read_chain, read_distribution, read_graph, read_matrix, read_rhs};
    #[doc(inline)]
    pub use kolmo_core::io::{tridiagonal, write};
}

/// The examples of docs/library.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("library.md")]
struct LibraryPage;
