//! Text files that are read piece by piece and divided among ranks.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::{CHUNK, GZIP, MARK, binary};
use crate::ranks::Ranks;
use crate::{Error, Result};

/// Bytes that are read to parse a file's header.
const HEAD: usize = 1 << 16;

/// Bytes that are unpacked at once.
const BUFFER: usize = 1 << 18;

/// Number of pieces in a rank's share, unless the limits of a piece's size apply.
const PIECES: u64 = 64;

/// Assumed compression ratio, for estimates of the text's length.
const PACKED: u64 = 8;

/// Largest number of chunks per thread in a piece.
const CHUNKS: usize = 8;
/// Largest number of chunks in a piece of plain text.
const MOST_CHUNKS: usize = 64;
/// Largest number of chunks in a piece of compressed text.
///
/// One thread unpacks the text, which takes longer than parsing. Its pieces are small so that the
/// memory they reuse stays in that thread's cache.
const PACKED_CHUNKS: usize = 4;

/// Bytes of the longest line of a text that is read by pieces.
const LONGEST_LINE: u64 = 1 << 26;

/// Appends the next line to `bytes`, like [`BufRead::read_until`].
///
/// # Errors
/// Errors of the reader. A line of more than 64 MiB is an error, because pieces with such lines
/// take too much memory; the text then has to be read whole.
fn read_line(text: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let read = text.take(LONGEST_LINE).read_until(b'\n', bytes)?;
    match read as u64 {
        LONGEST_LINE => Err(io::Error::new(io::ErrorKind::OutOfMemory, "holds a line of more than 64 MiB")),
        _ => Ok(read),
    }
}

/// A text file and its first lines.
///
/// Compressed text cannot be split. Each of several ranks unpacks all of it twice: once for the
/// length of the text, once for its lines. It keeps only its own lines.
pub(in crate::io) struct Parted<'a> {
    path: &'a Path,
    packed: bool,
    /// Bytes of the file.
    size: u64,
    /// Bytes of the text; `u64::MAX` if a single process unpacks it.
    pub(in crate::io) length: u64,
    /// First whole lines of the text; empty if the first line is too long.
    pub(in crate::io) start: Vec<u8>,
}

impl<'a> Parted<'a> {
    /// Opens a file; `None` if it has to be read whole.
    ///
    /// This is the case for files that are not regular or not text, or that have a byte order mark.
    ///
    /// # Errors
    /// [`Error::Io`], also for a gzip stream that is corrupt or ends early.
    pub(in crate::io) fn open(path: &'a Path, ranks: Ranks) -> Result<Option<Self>> {
        let failed = |source| Error::Io { path: path.into(), source };
        // Before opening: a pipe has one reader.
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let size = metadata.len();
        let mut start = Vec::new();
        File::open(path).and_then(|file| file.take(HEAD as u64).read_to_end(&mut start)).map_err(failed)?;
        let packed = start.starts_with(GZIP);
        let mut parted = Self { path, packed, size, length: size, start };
        if packed {
            let mut text = parted.text(0)?;
            parted.start.clear();
            text.by_ref().take(HEAD as u64).read_to_end(&mut parted.start).map_err(failed)?;
            parted.length = match ranks.is_distributed() {
                true => parted.start.len() as u64 + io::copy(&mut text, &mut io::sink()).map_err(failed)?,
                false => u64::MAX,
            };
        }
        let start = &mut parted.start;
        // Keeps whole lines only; the last one may be incomplete.
        if start.len() == HEAD {
            start.truncate(start.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1));
        }
        Ok((binary(start).is_none() && !start.starts_with(MARK)).then_some(parted))
    }

    /// Returns a reader of the text from byte `from` on.
    fn text(&self, from: u64) -> Result<Box<dyn BufRead + Send>> {
        let failed = |source| Error::Io { path: self.path.into(), source };
        let mut file = File::open(self.path).map_err(failed)?;
        if !self.packed {
            file.seek(SeekFrom::Start(from)).map_err(failed)?;
            return Ok(Box::new(BufReader::new(file)));
        }
        let unpacked = MultiGzDecoder::new(BufReader::with_capacity(BUFFER, file));
        let mut text = BufReader::with_capacity(BUFFER, unpacked);
        io::copy(&mut text.by_ref().take(from), &mut io::sink()).map_err(failed)?;
        Ok(Box::new(text))
    }

    /// Returns this rank's lines after byte `body`: the lines that begin in its share.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::io) fn lines(&self, body: usize, ranks: Ranks) -> Result<Pieces<'a>> {
        self.blocks(body, ranks, |_| true)
    }

    /// Returns this rank's blocks of lines after byte `body`: the blocks that begin in its share.
    ///
    /// `begins` recognises the first line of a block. Lines before the first block belong to the
    /// first rank. Concatenated over all ranks, the blocks are the text from `body` on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(in crate::io) fn blocks(
        &self,
        body: usize,
        ranks: Ranks,
        begins: fn(&[u8]) -> bool,
    ) -> Result<Pieces<'a>> {
        let failed = |source| Error::Io { path: self.path.into(), source };
        let body = body as u64;
        let mine = ranks.share(self.length - body);
        let (first, end) = (body + mine.start, body + mine.end);
        let guess = if self.packed { PACKED.saturating_mul(self.size) } else { self.size };
        let mut pieces =
            Pieces { path: self.path, begins, text: None, before: Vec::new(), left: 0, piece: 0, guess };
        // An empty share has no line.
        if mine.is_empty() {
            return Ok(pieces);
        }
        let mut at = first;
        let mut text;
        if mine.start == 0 {
            text = self.text(first)?;
        } else {
            // Starts one byte earlier, which may be a line end.
            text = self.text(first - 1)?;
            at += read_line(&mut text, &mut pieces.before).map_err(failed)? as u64 - 1;
            loop {
                pieces.before.clear();
                if at >= end {
                    return Ok(pieces);
                }
                let length = read_line(&mut text, &mut pieces.before).map_err(failed)?;
                at += length as u64;
                if length == 0 || begins(&pieces.before) {
                    break;
                }
            }
        }
        pieces.left = end.saturating_sub(at);
        let most = if self.packed { PACKED_CHUNKS } else { MOST_CHUNKS };
        let many = (CHUNKS * crate::parallel::threads()).min(most) * CHUNK;
        pieces.piece = (pieces.left / PIECES).clamp(CHUNK as u64, many as u64);
        pieces.text = Some(text);
        Ok(pieces)
    }
}

/// A rank's part of a text, of which two pieces are in memory at a time.
///
/// A piece is 1/64 of the part, within limits that depend on the number of threads.
pub(in crate::io) struct Pieces<'a> {
    path: &'a Path,
    begins: fn(&[u8]) -> bool,
    /// Reader of the remaining text; `None` at the end.
    text: Option<Box<dyn BufRead + Send>>,
    /// First line of the next piece, if already read.
    before: Vec<u8>,
    /// Remaining bytes of the share.
    left: u64,
    /// Bytes of a piece, without the rest of its last line.
    piece: u64,
    /// Estimated number of bytes of the whole text.
    guess: u64,
}

impl Pieces<'_> {
    /// Estimates the number of remaining lines if each has `line` bytes.
    pub(in crate::io) fn about(&self, line: u64) -> usize {
        (self.left.min(self.guess) / line) as usize
    }

    /// Passes each piece to `take` while the next one is read; `None` if one holds a NUL byte.
    ///
    /// # Errors
    /// [`Error::Io`], and errors of `take`.
    pub(in crate::io) fn each(
        mut self,
        take: &mut (dyn FnMut(&[u8]) -> Result<()> + Send),
    ) -> Result<Option<()>> {
        let (mut piece, mut ahead) = (Vec::new(), Vec::new());
        let mut more = self.next(&mut piece)?;
        while more == Some(true) {
            let (read, taken) = crate::parallel::join(|| self.next(&mut ahead), || take(&piece));
            taken?;
            more = read?;
            std::mem::swap(&mut piece, &mut ahead);
        }
        Ok(more.map(drop))
    }

    /// Reads the next piece into `bytes`: false at the end, `None` if it holds a NUL byte.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<bool>> {
        let failed = |source| Error::Io { path: self.path.into(), source };
        bytes.clear();
        let Some(text) = &mut self.text else { return Ok(Some(false)) };
        bytes.append(&mut self.before);
        let now = self.left.min(self.piece);
        bytes.reserve(now as usize + 256);
        text.take(now).read_to_end(bytes).map_err(failed)?;
        self.left -= now;
        if bytes.last().is_some_and(|&b| b != b'\n') {
            let rest = read_line(text, bytes).map_err(failed)?;
            self.left = self.left.saturating_sub(rest as u64);
        }
        // Lines after the share belong to its last block; a block longer than a piece is read in
        // parts.
        while self.left == 0 && (bytes.len() as u64) < 2 * self.piece {
            let before = bytes.len();
            read_line(text, bytes).map_err(failed)?;
            if bytes.len() == before || (self.begins)(&bytes[before..]) {
                bytes.truncate(before);
                self.text = None;
                break;
            }
        }
        Ok((!bytes.contains(&0)).then_some(!bytes.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    /// Returns each rank's pieces, concatenated; `piece` overrides the bytes of a piece.
    fn parts(path: &Path, size: usize, begins: fn(&[u8]) -> bool, piece: Option<u64>) -> Vec<Vec<u8>> {
        let part = |rank| {
            let parted = Parted::open(path, Ranks::simulated(0, size)).unwrap().expect("a text");
            let mut pieces = parted.blocks(5, Ranks::simulated(rank, size), begins).unwrap();
            pieces.piece = piece.unwrap_or(pieces.piece);
            let (mut all, mut bytes) = (Vec::new(), Vec::new());
            while pieces.next(&mut bytes).unwrap().expect("no NUL") {
                // At most a piece and the rest of its last line; the last piece may be twice as
                // long.
                assert!(bytes.len() <= 2 * (pieces.piece as usize + 13), "{bytes:?}");
                assert!(piece.is_none() || bytes.ends_with(b"\n") || rank + 1 == size || pieces.left == 0);
                all.append(&mut bytes);
            }
            all
        };
        (0..size).map(part).collect()
    }

    #[test]
    fn blocks_of_all_ranks_are_the_text_wherever_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let (path, packed) = (folder.path().join("t"), folder.path().join("t.gz"));
        for text in [
            "head\n<1\na\nbb\n<2\n\nccc\n\n<3\n<4\nd",
            "head\nnone\nof\nthese begins\n",
            "head\n<1\n<2\n<3\n",
            "head\n",
            "head\n<",
        ] {
            std::fs::write(&path, text).unwrap();
            // Two gzip members, as parallel compressors write them.
            let members = [&text[..7.min(text.len())], &text[7.min(text.len())..]].map(|text| {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text.as_bytes()).unwrap();
                encoder.finish().unwrap()
            });
            std::fs::write(&packed, members.concat()).unwrap();
            // With as many ranks as bytes the text is split at every byte; with more, some ranks
            // get nothing.
            for size in 1..text.len() + 3 {
                let begins: fn(&[u8]) -> bool = |line| line.starts_with(b"<");
                let blocks = parts(&path, size, begins, None);

                assert_eq!(blocks.concat(), text.as_bytes()[5..], "{text:?} on {size} ranks");
                for block in blocks.iter().filter(|block| !block.is_empty()).skip(1) {
                    assert!(block.starts_with(b"<"), "{text:?} on {size} ranks: {block:?}");
                }
                assert_eq!(parts(&packed, size, begins, None), blocks, "{text:?}");
                for piece in 1..9 {
                    assert_eq!(parts(&path, size, begins, Some(piece)), blocks, "{text:?} in {piece}s");
                }
                let lines = parts(&path, size, |_| true, None);
                assert_eq!(parts(&path, size, |_| true, Some(2)), lines, "{text:?}");
                assert_eq!(lines.concat(), text.as_bytes()[5..], "{text:?} on {size} ranks");
                assert!(
                    lines.iter().all(|part| part.is_empty() || text.len() < 12 || part.len() < text.len())
                );
            }
        }
    }

    #[test]
    fn what_is_no_text_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        for bytes in [&b"\xef\xbb\xbfhead\n"[..], b"head\n\0", b"PK\x03\x04", b"\xff\xfeh\0"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(Parted::open(&path, Ranks::ALONE).unwrap().is_none(), "{bytes:?}");
        }
        // NUL after the head.
        let late = ["head\n", &"0123456\n".repeat(HEAD / 8), "\0\n"].concat();
        std::fs::write(&path, late).unwrap();
        let parted = Parted::open(&path, Ranks::ALONE).unwrap().expect("a text as it begins");
        assert_eq!((parted.start.len(), parted.start.last()), (5 + 8 * (HEAD / 8 - 1), Some(&b'\n')));
        let lines = |rank| {
            let mut pieces = parted.lines(5, Ranks::simulated(rank, 2)).unwrap();
            let mut bytes = Vec::new();
            loop {
                match pieces.next(&mut bytes).unwrap() {
                    Some(true) => {}
                    end => return end.is_some(),
                }
            }
        };
        assert_eq!([lines(0), lines(1)], [true, false]);
        // A gzip stream that ends early.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"head\nbody\n").unwrap();
        let packed = encoder.finish().unwrap();
        std::fs::write(&path, &packed[..packed.len() - 9]).unwrap();
        assert!(Parted::open(&path, Ranks::ALONE).is_err());
        assert!(Parted::open(folder.path(), Ranks::ALONE).is_ok_and(|parted| parted.is_none()), "a folder");
    }
}
