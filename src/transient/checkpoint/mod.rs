//! Runs that outlive their process: the state of a long run in a file, from which another process goes on.
//!
//! [`solve_resumable`](super::solve_resumable) writes the state every so often and when the observer interrupts the
//! work, under a temporary name that is given the file's own once the bytes are on the disk: whenever the process
//! ends, the file holds a complete state, the newest or the one before. What is kept are the last iterate, the sums of
//! open windows, results already delivered, and every number that later decisions depend on, so that the run which
//! goes on gives the bits of a run that was never interrupted, on as many lanes and ranks as it likes. On a device of
//! another kind it stays within the bound, and [`Checkpoint::note`] says so. Ranks write one file, each its rows, in a
//! directory that all of them have.
//!
//! The file names what it belongs to: version of the crate, precision, a hash of chain and initial distribution, times,
//! ε, rewards, method. A run that asks for anything else is refused.
//!
//! | bytes | |
//! |---|---|
//! | 16 | `kolmo-checkpoint` |
//! | 4 | number of the layout |
//! | 4 and as many as they say | version of the crate |
//! | 8 and as many as they say | identity, state, numbers of vectors, hashes of their segments (XXH3), by `postcard` |
//! | 16 | XXH3 of all bytes before |
//! | 8 n each | results delivered |
//! | 4 n or 8 n each | iterate and open sums, in the run's precision |
//!
//! Numbers are little-endian.

mod checkpointer;
mod file;
mod identity;
mod state;
mod store;

#[doc(hidden)]
pub use checkpointer::Checkpointer;
pub(super) use checkpointer::Resumed;
pub(super) use state::{
    Certificate, Phase, StationaryState, SubdividedState, TimeProgress, UniformizationState,
};
pub use store::{Checkpoint, Summary, busy, inspect};
