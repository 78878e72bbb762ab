//! kolmo runs three solvers on any GPU, and on the CPU where there is none. This version holds the first:
//! transient probabilities of continuous-time Markov chains.

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

pub use error::{Error, Result};
