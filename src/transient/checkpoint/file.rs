//! File format of a checkpoint.
//!
//! There is one file for any number of ranks. Each rank writes its rows of every vector at their
//! offsets, under a temporary name. Rank 0 renames the file when all rows are on disk.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::identity::Identity;
use super::state::RunState;
use crate::output::OutputFile;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::{Error, Invalid, Result};

const MAGIC: &[u8; 16] = b"kolmo-checkpoint";
/// Version of the file layout, part of the file's head.
const LAYOUT: u32 = 7;
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Largest size of the head: a run has at most ten million times, each with some hundred bytes.
const MOST_HEAD: u64 = 1 << 32;
/// Largest number of states of a vector per hash.
const SEGMENT: usize = 1 << 20;
/// Number of values converted to bytes at once.
const PIECE: usize = 1 << 14;

/// Content of this rank's part of a checkpoint.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) identity: Identity,
    pub(super) state: RunState,
    /// States of this rank, for which the vectors have values.
    pub(super) rows: Range<usize>,
    /// Delivered results: (index of the time, probabilities).
    pub(super) delivered: Vec<(usize, Vec<f64>)>,
    /// Current iterate, then the accumulator of each time with an open window.
    pub(super) vectors: Vec<Vec<f64>>,
}

impl Contents {
    /// Returns all vectors, with true for those stored in single precision.
    fn all(&self) -> impl Iterator<Item = (&[f64], bool)> {
        let single = single(&self.identity);
        let results = self.delivered.iter().map(|(_, values)| (&values[..], false));
        results.chain(self.vectors.iter().map(move |values| (&values[..], single)))
    }
}

fn single(identity: &Identity) -> bool {
    identity.precision == "f32"
}

fn bytes_of(single: bool) -> u64 {
    if single { 4 } else { 8 }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CheckpointHeader<I, S> {
    pub(super) identity: I,
    pub(super) state: S,
    /// Indices of the times that were delivered.
    pub(super) delivered: Vec<usize>,
    vectors: usize,
    /// First state of each segment, at most [`SEGMENT`] states with one hash.
    starts: Vec<u64>,
    /// Hash of each segment of each vector, in the order of the bytes in the file.
    hashes: Vec<u128>,
}

/// Converts numbers to bytes and passes them to `sink` in pieces.
fn each_piece(values: &[f64], single: bool, mut sink: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(8 * PIECE.min(values.len()));
    for values in values.chunks(PIECE) {
        bytes.clear();
        match single {
            true => bytes.extend(values.iter().flat_map(|v| (*v as f32).to_le_bytes())),
            false => bytes.extend(values.iter().flat_map(|v| v.to_le_bytes())),
        }
        sink(&bytes)?;
    }
    Ok(())
}

fn hash(values: &[f64], single: bool) -> u128 {
    let mut hasher = XxHash3_128::new();
    let _ = each_piece(values, single, |bytes| {
        hasher.write(bytes);
        Ok(())
    });
    hasher.finish_128()
}

/// Writes a temporary file, syncs it to disk and renames it. Collective; all ranks return an error
/// if one fails.
pub(super) fn write(path: &Path, contents: &Contents, ranks: Ranks) -> Result<()> {
    // Each segment belongs to one rank.
    let mine: Vec<u64> = contents.rows.clone().step_by(SEGMENT).map(|start| start as u64).collect();
    let hashes: Vec<u128> = contents
        .all()
        .flat_map(|(values, single)| {
            let hash = move |values: &[f64]| hash(values, single);
            values.par_chunks(SEGMENT).map(hash).collect::<Vec<_>>()
        })
        .collect();
    let starts = ranks.all_gather(&mine);
    let known = ranks.all_gather(&hashes);
    // Each rank orders its hashes by vector; the file needs all ranks' hashes of one vector
    // together.
    let mut hashes = Vec::with_capacity(known.iter().map(Vec::len).sum());
    for vector in 0..contents.delivered.len() + contents.vectors.len() {
        for (starts, hashed) in starts.iter().zip(&known) {
            hashes.extend(&hashed[vector * starts.len()..][..starts.len()]);
        }
    }
    let head = CheckpointHeader {
        identity: &contents.identity,
        state: &contents.state,
        delivered: contents.delivered.iter().map(|(index, _)| *index).collect(),
        vectors: contents.vectors.len(),
        starts: starts.concat(),
        hashes,
    };
    let io = Error::io(path);
    let head = encoded(&head).map_err(io);
    if !ranks.is_distributed() {
        let (head, mut file) = (head?, OutputFile::create(path)?);
        let mut put = || {
            file.write_all(&head)?;
            contents
                .all()
                .try_for_each(|(values, single)| each_piece(values, single, |bytes| file.write_all(bytes)))
        };
        return put().map_err(io).and_then(|()| file.commit_durably());
    }
    // Returns the error of the first rank that failed, if any.
    let agreed = |mine: Result<()>| -> Result<()> {
        let texts = ranks.all_gather_text(&mine.err().map_or(String::new(), |e| e.to_string()));
        match texts.into_iter().enumerate().find(|(_, text)| !text.is_empty()) {
            None => Ok(()),
            Some((rank, text)) => Err(Error::file(path, format!("on rank {rank}: {text}"))),
        }
    };
    let file = match ranks.is_root() {
        true => head.and_then(|head| {
            let mut file = OutputFile::create_shared(path)?;
            file.write_all(&head).and_then(|()| file.flush()).map_err(io)?;
            Ok(Some((file, head.len() as u64)))
        }),
        false => Ok(None),
    };
    let (file, failed) = file.map_or_else(|e| (None, Err(e)), |file| (file, Ok(())));
    agreed(failed)?;
    let (temporary, data) = file.as_ref().map_or((String::new(), 0), |(file, data)| {
        (file.temporary().map_or(String::new(), |path| path.to_string_lossy().into_owned()), *data)
    });
    let (temporary, data) =
        (ranks.all_gather_text(&temporary).swap_remove(0), ranks.all_gather(&[data])[0][0]);
    agreed(rows_into(&temporary, data, contents))?;
    agreed(file.map_or(Ok(()), |(file, _)| file.commit_durably()))
}

fn encoded(head: &CheckpointHeader<&Identity, &RunState>) -> io::Result<Vec<u8>> {
    let head = postcard::to_stdvec(head).map_err(io::Error::other)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(LAYOUT.to_le_bytes());
    bytes.extend((VERSION.len() as u32).to_le_bytes());
    bytes.extend(VERSION.as_bytes());
    bytes.extend((head.len() as u64).to_le_bytes());
    bytes.extend(head);
    let hash = XxHash3_128::oneshot(&bytes);
    bytes.extend(hash.to_le_bytes());
    Ok(bytes)
}

/// Writes a rank's rows into the file that rank 0 has created, and syncs them to disk.
fn rows_into(name: &str, data: u64, contents: &Contents) -> Result<()> {
    let path = PathBuf::from(name);
    let failed = Error::io(&path);
    if name.is_empty() {
        let reason = "a pipe or device cannot hold a checkpoint of several ranks: expected a file";
        return Invalid::Unsupported.fail(reason.to_owned());
    }
    let mut file = File::options().write(true).open(&path).map_err(|e| {
        Error::invalid(format!(
            "rank 0 has opened the checkpoint, but this rank does not find it ({e}); name a file \
             in a directory that all ranks share"
        ))
    })?;
    let mut at = data;
    for (values, single) in contents.all() {
        let bytes = bytes_of(single);
        file.seek(SeekFrom::Start(at + bytes * contents.rows.start as u64)).map_err(failed)?;
        each_piece(values, single, |bytes| file.write_all(bytes)).map_err(failed)?;
        at += bytes * contents.identity.states;
    }
    file.sync_all().map_err(failed)
}

/// Checkpoint file, opened, with its head read.
#[derive(Debug)]
pub(super) struct StoredCheckpoint<I> {
    path: PathBuf,
    input: I,
    pub(super) head: CheckpointHeader<Identity, RunState>,
    /// Offset in bytes of the vectors in the file.
    data: u64,
    /// Hash of the head, and thereby of the whole file.
    pub(super) hash: u128,
}

/// Returns an error if a file exists and is not a checkpoint.
pub(super) fn replaceable(path: &Path) -> Result<()> {
    let failed = Error::io(path);
    if !path.is_file() {
        return Ok(());
    }
    let mut start = Vec::new();
    File::open(path).map_err(failed)?.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(failed)?;
    if start.is_empty() || start == MAGIC {
        return Ok(());
    }
    let reason = "is not a checkpoint, but would be replaced by one; name another file, or delete this one";
    Err(Error::file(path, reason))
}

/// Opens the file; `None` if it does not exist.
pub(super) fn open(path: &Path) -> Result<Option<StoredCheckpoint<File>>> {
    let failed = Error::io(path);
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let length = file.metadata().map_err(failed)?;
    if !length.is_file() {
        return Err(damaged(path, "it is not a file"));
    }
    StoredCheckpoint::open(path, file, length.len()).map(Some)
}

fn damaged(path: &Path, why: &str) -> Error {
    let remedy = "delete it or name another to start afresh";
    Error::file(path, format!("not a checkpoint that can be resumed: {why}; {remedy}"))
}

const CHANGED: &str = "its bytes have changed";

/// Reader of the head, which hashes its bytes.
struct HeadReader<'a, I> {
    path: &'a Path,
    input: I,
    hasher: XxHash3_128,
    /// Number of bytes not yet read.
    left: u64,
}

impl<I: Read> HeadReader<'_, I> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.left = match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => left,
            None => return Err(damaged(self.path, "it ends too early")),
        };
        exactly(self.path, &mut self.input, bytes)?;
        self.hasher.write(bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads `count` bytes, if the file has them.
    fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        // The number may be damaged: it must not determine the memory.
        let mut bytes = vec![0; count.min(self.left + 1) as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}

fn exactly(path: &Path, input: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    match input.read_exact(bytes) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(damaged(path, "it ends too early")),
        done => done.map_err(Error::io(path)),
    }
}

impl<I: Read + Seek> StoredCheckpoint<I> {
    /// Reads the head of a checkpoint of `length` bytes.
    pub(super) fn open(path: &Path, input: I, length: u64) -> Result<Self> {
        let mut input = HeadReader { path, input, hasher: XxHash3_128::new(), left: length };
        if !input.array::<16>().is_ok_and(|magic| magic == *MAGIC) {
            return Err(damaged(path, "its start is invalid"));
        }
        let layout = u32::from_le_bytes(input.array()?);
        let version_length = u32::from_le_bytes(input.array()?).into();
        let version = match version_length {
            0..=64 => String::from_utf8_lossy(&input.bytes(version_length)?).into_owned(),
            _ => return Err(damaged(path, "its version has no end")),
        };
        if version != VERSION || layout != LAYOUT {
            let reason = format!(
                "the checkpoint of kolmo {version} (layout {layout}) is not supported by {VERSION} (layout \
                 {LAYOUT}); finish it with that version, or delete it or name another to start afresh"
            );
            return Err(Error::file(path, reason));
        }
        let head_length = u64::from_le_bytes(input.array()?);
        if head_length > MOST_HEAD {
            return Err(damaged(path, "its head has no end"));
        }
        let head = input.bytes(head_length)?;
        let hash = input.hasher.clone().finish_128();
        if u128::from_le_bytes(input.array()?) != hash {
            return Err(damaged(path, CHANGED));
        }
        let head: CheckpointHeader<Identity, RunState> = postcard::from_bytes(&head)
            .map_err(|e| damaged(path, &format!("its head cannot be read ({e})")))?;
        if !matches!(&head.identity.precision[..], "f32" | "f64" | "q64") {
            return Err(damaged(path, "its precision is invalid"));
        }
        let n = head.identity.states;
        let expected = (|| {
            let results = (head.delivered.len() as u64).checked_mul(8)?.checked_mul(n)?;
            let each = bytes_of(single(&head.identity));
            let vectors = (head.vectors as u64).checked_mul(each)?.checked_mul(n)?;
            results.checked_add(vectors)
        })();
        if n > u64::from(u32::MAX) || expected != Some(input.left) {
            return Err(damaged(path, "its length differs from that in its head"));
        }
        let starts = &head.starts;
        let ends = starts[1.min(starts.len())..].iter().copied().chain([n]);
        let sound = starts.first().is_none_or(|&first| first == 0)
            && starts.iter().zip(ends).all(|(&start, end)| start < end && end - start <= SEGMENT as u64)
            && (n == 0) == starts.is_empty()
            && (head.delivered.len().checked_add(head.vectors))
                .and_then(|vectors| vectors.checked_mul(starts.len()))
                == Some(head.hashes.len());
        if !sound {
            return Err(damaged(path, "its segments do not match its states"));
        }
        let data = length - input.left;
        Ok(Self { path: path.into(), input: input.input, head, data, hash })
    }

    /// Reads all vectors and checks their hashes.
    pub(super) fn check(&mut self) -> Result<()> {
        let all = 0..self.head.identity.states as usize;
        (0..self.head.delivered.len() + self.head.vectors).try_for_each(|k| self.vector(k, &all).map(drop))
    }

    /// Reads the content for some states, and checks the hashes of their segments.
    pub(super) fn rows(mut self, rows: Range<usize>) -> Result<Contents> {
        let results = self.head.delivered.len();
        let delivered = (0..results).map(|k| Ok((self.head.delivered[k], self.vector(k, &rows)?)));
        let delivered = delivered.collect::<Result<_>>()?;
        let vectors = (results..results + self.head.vectors).map(|k| self.vector(k, &rows));
        let vectors = vectors.collect::<Result<_>>()?;
        Ok(Contents { identity: self.head.identity, state: self.head.state, rows, delivered, vectors })
    }

    /// Reads the elements `rows` of a vector, numbered in the order of the file.
    ///
    /// The delivered results come first, then the iterate and the accumulators.
    fn vector(&mut self, number: usize, rows: &Range<usize>) -> Result<Vec<f64>> {
        let results = self.head.delivered.len();
        let single = number >= results && single(&self.head.identity);
        let each = bytes_of(single);
        let before = 8 * number.min(results) as u64 + each * number.saturating_sub(results) as u64;
        let at = self.data + before * self.head.identity.states;
        let starts = &self.head.starts;
        let first = starts.partition_point(|&start| start <= rows.start as u64).saturating_sub(1);
        let last = if rows.is_empty() { first } else { starts.partition_point(|&s| s < rows.end as u64) };
        let mut values = Vec::with_capacity(rows.len());
        let mut bytes = Vec::new();
        for segment in first..last {
            let (start, end) =
                (starts[segment], starts.get(segment + 1).copied().unwrap_or(self.head.identity.states));
            bytes.resize(((end - start) * each) as usize, 0);
            self.input.seek(SeekFrom::Start(at + start * each)).map_err(Error::io(&self.path))?;
            exactly(&self.path, &mut self.input, &mut bytes)?;
            if XxHash3_128::oneshot(&bytes) != self.head.hashes[number * starts.len() + segment] {
                return Err(damaged(&self.path, CHANGED));
            }
            let wanted = (rows.start as u64).max(start) - start..(rows.end as u64).min(end) - start;
            let wanted = &bytes[(wanted.start * each) as usize..(wanted.end * each) as usize];
            match single {
                true => values.extend(wanted.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b)))),
                false => values.extend(wanted.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b))),
            }
        }
        Ok(values)
    }
}
