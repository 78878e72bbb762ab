//! Error type of the crate: errors of input, environment and devices.
//!
//! Numerical outcomes are a [`Status`](crate::transient::Status) inside a result, never an error.

use std::path::{Path, PathBuf};

/// Error of this crate; each message names the object, the number and a suggestion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text in a file that does not follow the file's format.
    #[error("{}:{line}: {reason}", path.display())]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Line number, counted from 1.
        line: u64,
        /// Problem and suggestion.
        reason: String,
    },
    /// A file that is unusable as a whole.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Problem and suggestion.
        reason: String,
    },
    /// Failed input or output.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A system with random walks that diverge, or that have unbounded variance.
    #[error(
        "{what}: row {row}, counted from 0, has the sum {sum} of |l_ij|; the spectral radius of {matrix} lies in [{lower:.6}, {upper:.6}]{and}; {remedy}"
    )]
    Divergent {
        /// Consequence for the walks, with which the message begins.
        what: &'static str,
        /// Row of the iteration matrix L with the largest sum of |l_ij|, counted from 0.
        row: usize,
        /// Sum of |l_ij| over that row of L.
        sum: f64,
        /// Name of the matrix that the bounds refer to: |L|, or the second moments of walks.
        matrix: &'static str,
        /// Lower bound of the spectral radius of `matrix`.
        lower: f64,
        /// Upper bound of the spectral radius of `matrix`.
        upper: f64,
        /// Conclusion from the bounds, appended to them in the message; may be empty.
        and: &'static str,
        /// Suggestion for the user.
        remedy: String,
    },
    /// Invalid argument or unsolvable problem: its kind, and the message.
    #[error("{1}")]
    Invalid(Invalid, String),
    /// Device that does not exist, cannot be opened or computes incorrectly.
    #[error("{0}")]
    Device(String),
    /// Device or build that lacks a requested capability.
    #[error("{0}")]
    Capability(String),
    /// Memory of a device, or a limit of one allocation, is insufficient.
    #[error("{device}: {} were requested for {what}; {limit}", Size(*asked))]
    OutOfMemory {
        /// Name of the device.
        device: String,
        /// Purpose of the allocation.
        what: String,
        /// Requested bytes.
        asked: u64,
        /// Limit that was exceeded.
        limit: Limit,
    },
    /// Device that was lost during the work.
    #[error("{device} was lost during {during}: {reason}")]
    DeviceLost {
        /// Name of the device.
        device: String,
        /// Operation in progress.
        during: String,
        /// Reason given by the driver.
        reason: String,
    },
    /// Interrupt by the user.
    #[error("interrupted")]
    Interrupted,
    /// Error of this rank; remote ranks have been notified.
    #[error("{}{source}", on_rank(*.rank, *.failed, *.of))]
    OnRank {
        /// Number of this rank, counted from 0.
        rank: usize,
        /// Number of ranks with an error.
        failed: usize,
        /// Number of all ranks.
        of: usize,
        /// Error of this rank.
        source: Box<Self>,
    },
    /// Error of a remote rank, which reports it.
    #[error("another rank failed")]
    Elsewhere,
}

/// A number of bytes, displayed with a unit.
#[derive(Debug, Clone, Copy)]
pub struct Size(pub u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match units.into_iter().find(|(_, bytes)| self.0 >= *bytes) {
            Some((unit, bytes)) => write!(f, "{:.1} {unit}", self.0 as f64 / bytes as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Kind of an [`Error::Invalid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// Invalid value of this option or argument.
    Argument(&'static str),
    /// Time that is missing, negative or NaN, or that needs too many steps.
    Time,
    /// Invalid initial distribution.
    Distribution,
    /// Invalid rewards, or rewards with a value that is infinite or unknown.
    Reward,
    /// States, nodes or components that are missing, out of range, duplicate or unreachable.
    States,
    /// Lengths or shapes of arrays that do not fit together.
    Shape,
    /// Number in this array that is invalid, not finite or out of range.
    Number(&'static str),
    /// Size or amount of work above a limit of the method.
    TooLarge,
    /// Combination of options, problem and machine that is not supported.
    Unsupported,
    /// Requested method that does not reach the solution.
    NotConverged,
    /// Any other kind.
    Other,
}

impl Invalid {
    /// Returns an error of this kind.
    pub fn error(self, reason: impl Into<String>) -> Error {
        Error::Invalid(self, reason.into())
    }

    /// Returns the error for an invalid name of a variant of `T`.
    pub(crate) fn name<T: strum::VariantNames>(argument: &'static str, value: &str) -> Error {
        let (what, names) = (argument.replace('_', " "), T::VARIANTS.join(", "));
        Self::Argument(argument).error(format!("invalid {what} '{value}': expected one of {names}"))
    }

    /// Fails with an error of this kind unless a condition holds.
    pub(crate) fn unless(self, holds: bool, reason: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { self.fail(reason()) }
    }

    /// Fails with an error of this kind.
    ///
    /// # Errors
    /// Always.
    pub fn fail<T>(self, reason: impl Into<String>) -> Result<T> {
        Err(self.error(reason))
    }
}

/// Limit of an [`Error::OutOfMemory`], with its description and a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{0}")]
pub enum Limit {
    /// Memory that is free on the device or the host.
    Free(String),
    /// Largest allocation of the device, or largest supported array.
    Allocation(String),
    /// Limit set by the user.
    User(String),
}

impl Error {
    /// Returns an error of the kind [`Invalid::Other`].
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid(Invalid::Other, reason.into())
    }

    /// Returns the error for a lack of memory; the arguments are its fields.
    pub(crate) fn memory(device: &str, what: impl Into<String>, asked: u64, limit: Limit) -> Self {
        Self::OutOfMemory { device: device.to_owned(), what: what.into(), asked, limit }
    }

    /// Returns the error for a lost device; the arguments are its fields.
    pub(crate) fn lost(device: &str, during: &str, reason: impl Into<String>) -> Self {
        Self::DeviceLost { device: device.to_owned(), during: during.to_owned(), reason: reason.into() }
    }

    /// Returns the error for a file that is unusable as a whole.
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self::File { path: path.into(), reason: reason.into() }
    }

    /// Returns a function that adds the path of a file to an error of the operating system.
    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| Self::Io { path: path.into(), source }
    }
}

/// Returns a message prefix with the rank; empty if all ranks have an error.
fn on_rank(rank: usize, failed: usize, of: usize) -> String {
    if failed == of { String::new() } else { format!("rank {rank} ({failed} of {of} ranks): ") }
}

/// `Result` with the crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
