//! File formats, one file each, and the reading of a chain whatever its format.
//!
//! | module | files | holds |
//! |---|---|---|
//! | [`tra`], [`lab`], [`sta`], [`srew`], [`trew`] | `.tra`, `.lab`, `.sta`, `.srew`, `.trew` | chains, labels, states and rewards of PRISM, Storm, MRMC |
//! | [`drn`], [`umb`] | `.drn`, `.umb` | chains with both inside, of Storm and of PRISM |
//! | [`mtx`], [`npz`] | `.mtx`, `.npz` | rates, generators ([`generator`]), matrices of [`crate::walk`] |
//! | [`edges`] | `.txt`, `.mtx`, `.npz` | graphs of [`crate::pagerank`] |
//! | [`npy`] | `.npy` | vectors |
//! | [`tridiagonal`] | `.npz`, `.csv`, `.mtx` | tridiagonal systems |
//! | `sprs` | | matrices of the crate sprs, with the feature of that name |
//! | [`mod@write`] | | what goes out, under its name when it is complete ([`crate::output`]) |
//!
//! Text may be gzipped. States and rows count from 0, except where a format counts from 1. What a file says wrongly is
//! [`Error::Parse`](crate::Error::Parse) with the path and the line.
//!
//! ```
//! let folder = tempfile::tempdir().expect("a folder");
//! let file = folder.path().join("machine.tra");
//! std::fs::write(&file, "2 2\n0 1 0.02\n1 0 0.25\n").expect("a file"); // states, transitions; from, to, rate
//! std::fs::write(file.with_extension("lab"), "0=\"init\" 1=\"down\"\n0: 0\n1: 1\n").expect("a file");
//!
//! let chain = kolmo::io::read_chain(&file, None)?;
//! assert_eq!(chain.transitions.states(), 2);
//! assert_eq!(chain.labels.get("down"), Some(&[1][..]));
//! # Ok::<(), kolmo::Error>(())
//! ```

mod csv;
pub mod drn;
pub mod edges;
pub mod generator;
pub mod lab;
mod model;
pub mod mtx;
pub mod npy;
pub mod npz;
mod parts;
#[cfg(feature = "sprs")]
mod sprs;
pub mod srew;
pub mod sta;
mod system;
pub mod text;
pub mod tra;
pub mod trew;
pub mod tridiagonal;
pub mod umb;
pub mod write;

pub use edges::read_graph;
pub use model::{read_chain, read_distribution};
pub use parts::read_chain_on;
pub use system::{read_matrix, read_rhs};
