//! A text file that ranks read by parts.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::ranks::Ranks;
use crate::{Error, Result};

/// Bytes that are read to find what stands before the lines.
const HEAD: usize = 1 << 16;

/// A file that is not compressed, and how it begins.
pub(in crate::io) struct Parted<'a> {
    path: &'a Path,
    file: File,
    /// Bytes of it.
    pub(in crate::io) length: u64,
    /// Whole lines from the first on, ASCII.
    pub(in crate::io) start: Vec<u8>,
}

impl<'a> Parted<'a> {
    /// None for what has to be read whole: what is no regular file, is compressed, has a byte order mark, or begins with
    /// a line longer than a head may be.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::io) fn open(path: &'a Path) -> Result<Option<Self>> {
        let failed = |source| Error::Io { path: path.into(), source };
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?;
        if !length.is_file() {
            return Ok(None);
        }
        let mut start = Vec::new();
        file.by_ref().take(HEAD as u64).read_to_end(&mut start).map_err(failed)?;
        // Whole lines, the last one aside.
        if start.len() == HEAD {
            start.truncate(start.iter().rposition(|&b| b == b'\n').unwrap_or(0));
        }
        Ok(start.is_ascii().then_some(Self { path, file, length: length.len(), start }))
    }

    /// This rank's lines of those from byte `body` on: the ones whose first byte lies in its share.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::io) fn lines(mut self, body: usize, ranks: Ranks) -> Result<Vec<u8>> {
        let failed = |source| Error::Io { path: self.path.into(), source };
        let (body, length) = (body as u64, self.length);
        let mine = ranks.share(length - body);
        // An empty share has no line.
        if mine.is_empty() {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        let first = body + mine.start;
        let from = if mine.start == 0 { first } else { first - 1 };
        self.file.seek(SeekFrom::Start(from)).map_err(failed)?;
        bytes.reserve_exact((body + mine.end - from) as usize + 256);
        self.file.by_ref().take(body + mine.end - from).read_to_end(&mut bytes).map_err(failed)?;
        if mine.end < length - body && bytes.last().is_some_and(|&b| b != b'\n') {
            let mut rest = BufReader::new(self.file);
            rest.read_until(b'\n', &mut bytes).map_err(failed)?;
        }
        if mine.start > 0 {
            let skipped = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |end| end + 1);
            bytes.drain(..skipped);
        }
        Ok(bytes)
    }
}
