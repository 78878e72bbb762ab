//! The bytes of a checkpoint.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::identity::Identity;
use super::keeper::State;
use crate::io::output::OutputFile;
use crate::{Error, Result};

const MAGIC: &[u8; 16] = b"kolmo-checkpoint";
/// Number of the layout.
const LAYOUT: u32 = 1;
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Largest head: a run has at most ten million times, each with some hundred bytes.
const MOST_HEAD: u64 = 1 << 32;

/// What a checkpoint holds.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) identity: Identity,
    pub(super) state: State,
    /// Results delivered: (place of the time, probabilities).
    pub(super) delivered: Vec<(usize, Vec<f64>)>,
    /// Iterate and open sums.
    pub(super) vectors: Vec<Vec<f64>>,
}

#[derive(Serialize, Deserialize)]
struct Head<I, S> {
    identity: I,
    state: S,
    delivered: Vec<usize>,
    vectors: usize,
}

/// Passes bytes on and hashes them.
struct Hashed<I> {
    inner: I,
    hasher: XxHash3_128,
}

impl<I> Hashed<I> {
    fn new(inner: I) -> Self {
        Self { inner, hasher: XxHash3_128::new() }
    }
}

impl<I: Write> Hashed<I> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.write(bytes);
        self.inner.write_all(bytes)
    }
}

/// Writes under a temporary name, waits for the disk, and puts the file in its place.
pub(super) fn write(path: &Path, kept: &Kept) -> Result<()> {
    let mut file = OutputFile::create(path)?;
    put(&mut file, kept).map_err(|source| file.error(source))?;
    file.commit_durably()
}

fn put(file: &mut OutputFile, kept: &Kept) -> io::Result<()> {
    let head = Head {
        identity: &kept.identity,
        state: &kept.state,
        delivered: kept.delivered.iter().map(|(index, _)| *index).collect(),
        vectors: kept.vectors.len(),
    };
    let head = postcard::to_stdvec(&head).map_err(io::Error::other)?;
    let mut out = Hashed::new(&mut *file);
    out.put(MAGIC)?;
    out.put(&LAYOUT.to_le_bytes())?;
    out.put(&(VERSION.len() as u32).to_le_bytes())?;
    out.put(VERSION.as_bytes())?;
    out.put(&(head.len() as u64).to_le_bytes())?;
    out.put(&head)?;
    let mut bytes = Vec::new();
    let mut vector = |values: &[f64], single: bool| -> io::Result<()> {
        for values in values.chunks(1 << 14) {
            bytes.clear();
            match single {
                true => bytes.extend(values.iter().flat_map(|v| (*v as f32).to_le_bytes())),
                false => bytes.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            }
            out.put(&bytes)?;
        }
        Ok(())
    };
    for (_, values) in &kept.delivered {
        vector(values, false)?;
    }
    for values in &kept.vectors {
        vector(values, kept.identity.precision == "f32")?;
    }
    let hash = out.hasher.finish_128();
    file.write_all(&hash.to_le_bytes())
}

/// Reads the file; none if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Kept>> {
    let failed = |source| Error::Io { path: path.into(), source };
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let length = file.metadata().map_err(failed)?;
    if !length.is_file() {
        return Err(damaged(path, "it is no file"));
    }
    parse(path, BufReader::with_capacity(1 << 18, file), length.len()).map(Some)
}

fn damaged(path: &Path, why: &str) -> Error {
    let reason =
        format!("not a checkpoint that can be resumed: {why}; delete it or name another to start afresh");
    Error::File { path: path.into(), reason }
}

/// Reads `length` bytes.
pub(super) fn parse(path: &Path, input: impl Read, length: u64) -> Result<Kept> {
    let mut input = Input { path, input: Hashed::new(input), left: length };
    if input.array::<16>().is_ok_and(|magic| magic == *MAGIC) {
        input.rest()
    } else {
        Err(damaged(path, "it does not begin as one"))
    }
}

struct Input<'a, I> {
    path: &'a Path,
    input: Hashed<I>,
    /// Bytes that are still there.
    left: u64,
}

impl<I: Read> Input<'_, I> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.left = match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => left,
            None => return Err(damaged(self.path, "it ends too early")),
        };
        match self.input.inner.read_exact(bytes) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damaged(self.path, "it ends too early"));
            }
            done => done.map_err(|source| Error::Io { path: self.path.into(), source })?,
        }
        self.input.hasher.write(bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// So many bytes, of those that are there.
    fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        if count > self.left {
            return Err(damaged(self.path, "it ends too early"));
        }
        let mut bytes = vec![0; count as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn vector(&mut self, n: usize, single: bool) -> Result<Vec<f64>> {
        let bytes = self.bytes(n as u64 * if single { 4 } else { 8 })?;
        Ok(match single {
            true => bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            false => bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
        })
    }

    fn rest(mut self) -> Result<Kept> {
        let layout = u32::from_le_bytes(self.array()?);
        let length = u32::from_le_bytes(self.array()?).into();
        let version = match length {
            0..=64 => String::from_utf8_lossy(&self.bytes(length)?).into_owned(),
            _ => return Err(damaged(self.path, "its version has no end")),
        };
        if version != VERSION || layout != LAYOUT {
            return Err(Error::File {
                path: self.path.into(),
                reason: format!(
                    "the checkpoint is of kolmo {version} (layout {layout}), this is {VERSION} (layout {LAYOUT}); finish \
                     it with that version, or delete it or name another to start afresh"
                ),
            });
        }
        let length = u64::from_le_bytes(self.array()?);
        if length > MOST_HEAD {
            return Err(damaged(self.path, "its head has no end"));
        }
        let head = self.bytes(length)?;
        let head: Head<Identity, State> = postcard::from_bytes(&head)
            .map_err(|e| damaged(self.path, &format!("its head cannot be read ({e})")))?;
        let single = match &head.identity.precision[..] {
            "f32" => true,
            "f64" => false,
            _ => return Err(damaged(self.path, "its precision is none")),
        };
        let (n, counts) = (head.identity.states, [head.delivered.len() as u64, head.vectors as u64]);
        let expected = (|| {
            let results = counts[0].checked_mul(8)?.checked_mul(n)?;
            let vectors = counts[1].checked_mul(if single { 4 } else { 8 })?.checked_mul(n)?;
            results.checked_add(vectors)?.checked_add(16)
        })();
        if n > u64::from(u32::MAX) || expected != Some(self.left) {
            return Err(damaged(self.path, "its length is not what its head says"));
        }
        let mut delivered = Vec::with_capacity(head.delivered.len());
        for index in head.delivered {
            delivered.push((index, self.vector(n as usize, false)?));
        }
        let mut vectors = Vec::new();
        for _ in 0..head.vectors {
            vectors.push(self.vector(n as usize, single)?);
        }
        let computed = self.input.hasher.clone().finish_128();
        if u128::from_le_bytes(self.array()?) != computed {
            return Err(damaged(self.path, "its bytes are not those that were written"));
        }
        Ok(Kept { identity: head.identity, state: head.state, delivered, vectors })
    }
}
