//! Checkpoints: the state of a long run in a file, from which another process can resume.
//!
//! [`solve_resumable`](super::solve_resumable) writes the state periodically, and when the observer
//! interrupts the run. It writes a temporary file and renames it once the bytes are on disk. So the
//! file always holds a complete state, the newest or the previous one.
//!
//! The state consists of the last iterate, the sums of open windows, delivered results, and every
//! number on which later decisions depend. A resumed run therefore gives the bits of an
//! uninterrupted run, on any number of lanes and ranks. On a device of another kind it stays within
//! the bound, and [`Checkpoint::note`] reports that. All ranks write one file, each its rows, in a
//! directory that all of them can access.
//!
//! The file identifies its run: version of the crate, precision, a hash of chain and initial
//! distribution, times, ε, rewards, method. A run with a different identity is rejected.
//!
//! | bytes | |
//! |---|---|
//! | 16 | `kolmo-checkpoint` |
//! | 4 | version of the layout |
//! | 4, and as many as they specify | version of the crate |
//! | 8, and as many as they specify | identity, state, vector counts, XXH3 hashes, by `postcard` |
//! | 16 | XXH3 of all bytes before |
//! | 8 n each | delivered results |
//! | 4 n or 8 n each | iterate and accumulators of open windows, in the run's precision |
//!
//! Numbers are little-endian.

mod checkpointer;
mod file;
mod identity;
mod state;
mod store;

pub use checkpointer::Checkpointer;
pub(super) use checkpointer::Resumed;
pub(super) use state::{RunPhase, TimeProgress, UniformizationState};
pub use store::{Checkpoint, Summary, busy, inspect};
