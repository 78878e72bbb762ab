//! The file of a run: opened, gone on from, and written as the run proceeds.

use std::fs::File;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::file::{self, Contents, Stored};
use super::identity::Identity;
use super::state::{Phase, State};
use crate::output::OutputFile;
use crate::ranks::Ranks;
use crate::{Error, Result};

/// Least time between two checkpoints, unless told otherwise.
const LEAST: Duration = Duration::from_secs(5);
/// Share of the time that writing takes, at most.
const SHARE: f64 = 0.01;

/// The file that a run's state is kept in.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) every: Option<Duration>,
    /// The content of the file, until the run takes it over.
    pub(super) resumable: Option<Resumable>,
    /// When the last write ended, or the run began.
    pub(super) last: Instant,
    pub(super) written: u64,
    pub(super) spent: Duration,
    pub(super) longest: Duration,
    pub(super) resumed: Option<u64>,
    pub(super) note: Option<String>,
    pub(super) trouble: Option<Error>,
    pub(super) complain: fn(&Error),
}

/// A checkpoint to go on from.
#[derive(Debug)]
pub(super) enum Resumable {
    /// Checked as a whole.
    Whole(Box<Contents>),
    /// Of which a rank reads its rows once it knows them.
    File(Box<Stored<File>>),
}

impl Resumable {
    pub(super) fn identity(&self) -> &Identity {
        match self {
            Self::Whole(contents) => &contents.identity,
            Self::File(stored) => stored.identity(),
        }
    }

    pub(super) fn state(&self) -> &State {
        match self {
            Self::Whole(contents) => &contents.state,
            Self::File(stored) => stored.state(),
        }
    }

    /// Places of the times that were delivered.
    pub(super) fn delivered(&self) -> Vec<usize> {
        match self {
            Self::Whole(contents) => contents.delivered.iter().map(|(place, _)| *place).collect(),
            Self::File(stored) => stored.delivered().to_vec(),
        }
    }

    pub(super) fn rows(self, rows: Range<usize>) -> Result<Contents> {
        match self {
            Self::Whole(contents) => Ok(contents.of(rows)),
            Self::File(stored) => stored.rows(rows),
        }
    }
}

/// Threads that keep a state now.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// True while a state is being kept: a process that is asked to stop should wait for it.
pub fn busy() -> bool {
    BUSY.load(Ordering::Acquire) > 0
}

/// Counts among those who are busy until dropped.
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
    /// A run that starts afresh and keeps its state in the file `path`, in place of the checkpoint that it holds now.
    ///
    /// # Errors
    /// If nothing can be written there, or the file holds something else.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        file::replaceable(&path)?;
        Self::writable(path)
    }

    fn writable(path: PathBuf) -> Result<Self> {
        // Said now and not after the first minute's work.
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

    /// A run that goes on from the file `path`, or starts afresh where there is none.
    ///
    /// # Errors
    /// If nothing can be written there; and if the file is no checkpoint, is damaged, or another version made it.
    pub fn resume(path: impl Into<PathBuf>) -> Result<Self> {
        let mut checkpoint = Self::writable(path.into())?;
        if let Some(stored) = file::open(&checkpoint.path)? {
            let n = stored.identity().states as usize;
            checkpoint.resumable = Some(Resumable::Whole(Box::new(stored.rows(0..n)?)));
        }
        Ok(checkpoint)
    }

    /// As [`create`](Self::create) or [`resume`](Self::resume) on every rank. All see the same file, or its absence.
    ///
    /// # Errors
    /// As theirs; on ranks that see another file than rank 0.
    pub fn on_ranks(path: impl Into<PathBuf>, resume: bool, ranks: Ranks) -> Result<Self> {
        let path = path.into();
        if !ranks.is_distributed() {
            return if resume { Self::resume(path) } else { Self::create(path) };
        }
        // Rank 0 makes the file that all write.
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
            checkpoint.resumable = stored.map(|stored| Resumable::File(Box::new(stored)));
        }
        Ok(checkpoint)
    }

    /// Writes every so often, whatever it costs. By default a hundred times as long passes as a write takes, and five
    /// seconds at least.
    #[must_use]
    pub fn every(mut self, time: Duration) -> Self {
        self.every = Some(time);
        self
    }

    /// Calls `complain` when a write fails after one that did not. The run goes on: its work is worth more than a
    /// state that may never be needed.
    #[must_use]
    pub fn complain(mut self, complain: fn(&Error)) -> Self {
        self.complain = complain;
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Multiplications that were done before this run went on; none if it started afresh.
    pub fn resumed(&self) -> Option<u64> {
        self.resumed
    }

    /// Checkpoints written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Seconds spent on them.
    pub fn seconds(&self) -> f64 {
        self.spent.as_secs_f64()
    }

    /// A note about the run that went on, for people.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The last write that failed. The run goes on without it.
    pub fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref()
    }

    /// True if it is time to write.
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

/// The progress of a checkpoint, for tools and tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// `f64`, `f32` or `q64`.
    pub precision: String,
    /// Number of states.
    pub states: u64,
    /// Multiplications done.
    pub terms: u64,
    /// True if nothing is left to do.
    pub complete: bool,
}

/// Reads a checkpoint's bytes as a run that resumes would. `path` is what messages name.
///
/// # Errors
/// If they are no checkpoint, damaged, or made by another version.
pub fn inspect(path: &Path, bytes: &[u8]) -> Result<Summary> {
    let stored = Stored::open(path, Cursor::new(bytes), bytes.len() as u64)?;
    let n = stored.identity().states as usize;
    let contents = stored.rows(0..n)?;
    Ok(Summary {
        precision: contents.identity.precision.clone(),
        states: contents.identity.states,
        terms: contents.state.terms(),
        complete: matches!(contents.state.phase, Phase::Done),
    })
}
