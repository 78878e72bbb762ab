//! File formats, one module each, and readers that choose the format by the file's extension.
//!
//! | module | files | holds |
//! |---|---|---|
//! | [`tra`], [`lab`], [`sta`] | `.tra`, `.lab`, `.sta` | chains, labels, states (PRISM, Storm) |
//! | [`srew`], [`trew`] | `.srew`, `.trew` | rewards of states, transitions (PRISM, Storm) |
//! | [`drn`] | `.drn` | chains of Storm, with labels and rewards |
//! | [`mtx`], [`npz`] | `.mtx`, `.npz` | rates, [generators](rate_matrix_kind), general matrices |
//! | [`edge_list`] | `.txt`, `.mtx`, `.npz` | graphs of [`crate::pagerank`] |
//! | [`npy`] | `.npy` | vectors |
//! | [`tridiagonal`] | `.npz`, `.csv`, `.mtx` | tridiagonal systems |
//! | `sprs` | | matrices of the crate sprs, with the feature of that name |
//! | [`mod@write`] | | output; a file gets its name when it is complete ([`crate::output`]) |
//!
//! Text may be gzipped. States and rows count from 0, except where a format counts from 1. An
//! invalid line is reported as [`Error::Parse`] with the path and the line.
//!
//! ```
//! let folder = tempfile::tempdir().expect("a folder");
//! let file = folder.path().join("machine.tra");
//! // states, transitions; from, to, rate
//! std::fs::write(&file, "2 2\n0 1 0.02\n1 0 0.25\n").expect("a file");
//! let labels = "0=\"init\" 1=\"down\"\n0: 0\n1: 1\n";
//! std::fs::write(file.with_extension("lab"), labels).expect("a file");
//!
//! let chain = kolmo::io::read_chain(&file, None, false)?;
//! assert_eq!(chain.transitions.states(), 2);
//! assert_eq!(chain.labels.get("down"), Some(&[1][..]));
//! # Ok::<(), kolmo::Error>(())
//! ```

pub mod drn;
pub mod edge_list;
pub mod lab;
mod model;
pub mod mtx;
pub mod npy;
pub mod npz;
pub mod rate_matrix_kind;
#[cfg(feature = "sprs")]
mod sprs;
pub mod srew;
pub mod sta;
mod system;
pub mod text;
pub mod tra;
pub mod trew;
pub mod tridiagonal;
pub mod write;

pub use edge_list::read_graph;
pub use model::{read_chain, read_distribution};
pub use system::{read_matrix, read_rhs};

// Imports that most formats share.
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::Path;

use text::{Scanner, TextLine, TextLines, out_of_range, quote};
use write::{push_integer, write_lines};

use crate::parallel::*;
use crate::sparse::{Coo, CsrMatrix};
use crate::transient::chain::csr::Csr;
use crate::transient::chain::transitions::{TransitionList, Transitions};
use crate::transient::chain::{ChainFile, MOST_STATES, Reward};
use crate::util::memory::expect_memory;
use crate::util::quantity;
use crate::{Error, Result};

/// Returns the error for a file that is unusable as a whole.
fn fail<T>(path: &Path, reason: impl Into<String>) -> Result<T> {
    Err(Error::file(path, reason))
}

/// Turns an error of invalid input into one of this file.
fn in_file(path: &Path) -> impl Fn(Error) -> Error {
    move |error| match error {
        Error::Invalid(_, reason) => Error::file(path, reason),
        other => other,
    }
}

/// Returns the numbers of rows and columns, or the reason if one exceeds `most`.
fn expect_size<N: Copy + fmt::Display>(rows: N, columns: N, most: u64) -> Result<(usize, usize), String>
where
    usize: TryFrom<N>,
{
    let size = |count: N| usize::try_from(count).ok().filter(|&count| count as u64 <= most);
    size(rows)
        .zip(size(columns))
        .ok_or_else(|| format!("{rows} rows and {columns} columns are out of range: expected at most {most}"))
}
