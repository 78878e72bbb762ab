//! Checkpoint file of a run: created or resumed, and written as the run proceeds.

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::file::{self, CheckpointHeader, Contents, StoredCheckpoint};
use super::state::RunPhase;
use crate::output::OutputFile;
use crate::ranks::Ranks;
use crate::{Error, Result};

/// Default minimum time between two checkpoints.
const LEAST: Duration = Duration::from_secs(5);
/// Largest share of the run's time spent on writing checkpoints.
const SHARE: f64 = 0.01;

/// File in which the state of a run is saved.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) every: Option<Duration>,
    /// File to resume from, from which each rank reads its rows once they are known.
    pub(super) resumable: Option<StoredCheckpoint<File>>,
    /// End of the last write, or the start of the run.
    pub(super) last: Instant,
    pub(super) written: u64,
    pub(super) spent: Duration,
    pub(super) longest: Duration,
    pub(super) resumed: Option<u64>,
    pub(super) note: Option<String>,
    pub(super) trouble: Option<Error>,
    pub(super) complain: fn(&Error),
}

/// Number of threads of this process that are saving a state.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// True while a state is being saved; a process should not exit before that ends.
pub fn busy() -> bool {
    BUSY.load(Ordering::Acquire) > 0
}

/// Marks the process as [`busy`] until it is dropped.
pub(super) struct BusyGuard;

impl BusyGuard {
    pub(super) fn new() -> Self {
        BUSY.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Checkpoint {
    /// Starts a new run that saves its state in the file `path`, and replaces the checkpoint there.
    ///
    /// # Errors
    /// If the file cannot be written, or if it exists and is not a checkpoint.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        file::replaceable(&path)?;
        Self::writable(path)
    }

    fn writable(path: PathBuf) -> Result<Self> {
        // Fails now instead of after the first minute's work.
        drop(OutputFile::create(&path)?);
        Ok(Self::at(path))
    }

    fn at(path: PathBuf) -> Self {
        Self {
            path,
            every: None,
            resumable: None,
            last: Instant::now(),
            written: 0,
            spent: Duration::ZERO,
            longest: Duration::ZERO,
            resumed: None,
            note: None,
            trouble: None,
            complain: |_| {},
        }
    }

    /// Resumes a run from the file `path`, or starts a new one if it does not exist.
    ///
    /// # Errors
    /// If the file cannot be written; if it is not a checkpoint, is damaged, or is of another
    /// version.
    pub fn resume(path: impl Into<PathBuf>) -> Result<Self> {
        let mut checkpoint = Self::writable(path.into())?;
        checkpoint.resumable = file::open(&checkpoint.path)?;
        if let Some(stored) = &mut checkpoint.resumable {
            stored.check()?;
        }
        Ok(checkpoint)
    }

    /// Calls [`create`](Self::create) or [`resume`](Self::resume) on every rank.
    ///
    /// All ranks must see one file, or no file.
    ///
    /// # Errors
    /// As these methods; and if the file on a rank differs from that on rank 0.
    pub fn on_ranks(path: impl Into<PathBuf>, resume: bool, ranks: Ranks) -> Result<Self> {
        let path = path.into();
        if !ranks.is_distributed() {
            return if resume { Self::resume(path) } else { Self::create(path) };
        }
        // Rank 0 creates the file that all ranks write.
        let made = match (ranks.is_root(), resume) {
            (true, true) => Self::writable(path),
            (true, false) => Self::create(path),
            (false, _) => Ok(Self::at(path)),
        };
        let mut checkpoint = ranks.all_ok(made)?;
        if resume {
            let stored = ranks.all_ok(file::open(&checkpoint.path))?;
            let name = stored.as_ref().map_or("missing".to_owned(), |s| format!("{:032x}", s.hash));
            ranks.expect_same("checkpoint", &name)?;
            checkpoint.resumable = stored;
        }
        Ok(checkpoint)
    }

    /// Sets a fixed time between two writes, at any cost.
    ///
    /// By default it is a hundred times the duration of a write, and at least five seconds.
    #[must_use]
    pub fn every(mut self, time: Duration) -> Self {
        self.every = Some(time);
        self
    }

    /// Calls `complain` if a write fails and the write before did not.
    ///
    /// The run continues: its result is worth more than a state that may never be needed.
    #[must_use]
    pub fn complain(mut self, complain: fn(&Error)) -> Self {
        self.complain = complain;
        self
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the matrix–vector products done before this run resumed; `None` for a new run.
    pub fn resumed(&self) -> Option<u64> {
        self.resumed
    }

    /// Returns the number of checkpoints written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the seconds spent on writing.
    pub fn seconds(&self) -> f64 {
        self.spent.as_secs_f64()
    }

    /// Returns a note for the user about a resumed run.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns the error of the last write, if it failed; the run continues without it.
    pub fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// True if a checkpoint is due.
    pub(super) fn due(&self) -> bool {
        let pause = self.every.unwrap_or_else(|| LEAST.max(self.longest.div_f64(SHARE)));
        self.last.elapsed() >= pause
    }

    pub(super) fn write(&mut self, contents: &Contents, ranks: Ranks) {
        let from = Instant::now();
        match file::write(&self.path, contents, ranks) {
            Ok(()) => {
                self.written += 1;
                self.trouble = None;
            }
            Err(error) => {
                if self.trouble.is_none() && ranks.is_root() {
                    (self.complain)(&error);
                }
                self.trouble = Some(error);
            }
        }
        let took = from.elapsed();
        self.spent += took;
        self.longest = self.longest.max(took);
        self.last = Instant::now();
    }
}

/// Progress of a checkpoint, for tools and tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Precision of the run: `f64`, `f32` or `q64`.
    pub precision: String,
    /// Number of states.
    pub states: u64,
    /// Matrix–vector products done.
    pub terms: u64,
    /// True if the run is complete.
    pub complete: bool,
}

/// Reads a checkpoint from `bytes` as a resuming run does; messages name `path`.
///
/// # Errors
/// If the bytes are not a checkpoint, are damaged, or are of another version.
pub fn inspect(path: &Path, bytes: &[u8]) -> Result<Summary> {
    let mut stored = StoredCheckpoint::open(path, Cursor::new(bytes), bytes.len() as u64)?;
    stored.check()?;
    let CheckpointHeader { identity, state, .. } = stored.head;
    Ok(Summary {
        precision: identity.precision,
        states: identity.states,
        terms: state.terms(),
        complete: matches!(state.phase, RunPhase::Done),
    })
}
