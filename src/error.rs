//! The one error type: input, environment and device trouble. Numerical outcomes are a
//! [`Status`](crate::transient::Status) inside a result, never an error.

use std::path::PathBuf;

/// What can go wrong; each message names the object, the number and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text file does not say what its format asks for.
    #[error("{}:{line}: {reason}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// What is wrong and what to do about it.
        reason: String,
    },
    /// A file as a whole is not usable.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do about it.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A system whose random walks would diverge, or vary without bound.
    #[error(
        "{what}: row {row}, counted from 0, has the sum {sum} of |l_ij|; the spectral radius of {matrix} lies in [{lower:.6}, {upper:.6}]{and}; {remedy}"
    )]
    Divergent {
        /// What would happen.
        what: &'static str,
        /// The row of L with the largest sum.
        row: usize,
        /// That sum.
        sum: f64,
        /// The matrix whose spectral radius decides.
        matrix: &'static str,
        /// Bounds of it.
        lower: f64,
        /// Bounds of it.
        upper: f64,
        /// What follows from the bounds.
        and: &'static str,
        /// What to do.
        remedy: String,
    },
    /// A chain, distribution or option that has no answer.
    #[error("{0}")]
    Invalid(String),
    /// No such device, or one that cannot do what was asked.
    #[error("{0}")]
    Device(String),
    /// A device's memory, or a limit of one of its allocations, does not suffice.
    #[error("{device}: {} were asked for {what}; {limit}", crate::number::Size(*asked))]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// What the bytes were for.
        what: String,
        /// Bytes asked for.
        asked: u64,
        /// The limit that was met, and the remedy.
        limit: String,
    },
    /// The device went away in the middle of the work.
    #[error("{device} was lost during {during}: {reason}")]
    DeviceLost {
        /// The device's name.
        device: String,
        /// What was going on.
        during: String,
        /// What the driver said.
        reason: String,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// An error of this rank, that the others know of.
    #[error("{}{source}", on_rank(*.rank, *.failed, *.of))]
    OnRank {
        /// Its number.
        rank: usize,
        /// How many ranks have an error.
        failed: usize,
        /// How many ranks there are.
        of: usize,
        /// What it is.
        source: Box<Self>,
    },
    /// An error that another rank tells.
    #[error("another rank failed")]
    Elsewhere,
}

/// What all ranks alike find wrong is no rank's own error.
fn on_rank(rank: usize, failed: usize, of: usize) -> String {
    if failed == of { String::new() } else { format!("rank {rank} ({failed} of {of} ranks): ") }
}

/// `Result` with the crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
