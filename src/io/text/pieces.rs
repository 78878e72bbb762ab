//! Text files that are read piece by piece.

use std::io::{BufRead, BufReader};

use flate2::read::MultiGzDecoder;

use super::*;

/// Bytes that are read to parse a file's header.
const HEAD: usize = 1 << 16;

/// Bytes that are unpacked at once.
const BUFFER: usize = 1 << 18;

/// Number of pieces of a text, unless the limits of a piece's size apply.
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

/// Largest length in bytes of a line of a text that is read by pieces.
const LONGEST_LINE: u64 = 1 << 26;

/// Appends the next line to `bytes`, like [`BufRead::read_until`].
///
/// A line of more than 64 MiB is an error, because pieces with such lines take too much memory; the
/// text then has to be read whole.
fn read_line(text: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<()> {
    match text.take(LONGEST_LINE).read_until(b'\n', bytes)? as u64 {
        LONGEST_LINE => Err(io::Error::new(ErrorKind::OutOfMemory, "holds a line of more than 64 MiB")),
        _ => Ok(()),
    }
}

/// A text file, of which two pieces are in memory at a time.
///
/// A piece is 1/64 of the text, within limits that depend on the number of threads.
pub(in crate::io) struct Pieces<'a> {
    path: &'a Path,
    text: Box<dyn BufRead + Send>,
    /// Text that is already read: the beginning of the first piece.
    ahead: Vec<u8>,
    /// Number of bytes of whole lines in `ahead`; 0 if the first line is too long.
    lines: usize,
    /// Target size of a piece in bytes; a piece also has the rest of its last line.
    piece: usize,
    /// Estimated number of bytes of the whole text.
    guess: u64,
}

impl<'a> Pieces<'a> {
    /// Opens a file; `None` if it has to be read whole.
    ///
    /// This is the case for files that are not regular or not text, or that have a byte order mark.
    pub(in crate::io) fn open(path: &'a Path) -> Result<Option<Self>> {
        let failed = Error::io(path);
        // Before opening: a pipe has one reader.
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let mut file = BufReader::with_capacity(BUFFER, File::open(path).map_err(failed)?);
        let packed = file.fill_buf().map_err(failed)?.starts_with(GZIP);
        let mut text: Box<dyn BufRead + Send> = match packed {
            true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file))),
            false => Box::new(file),
        };
        let mut ahead = Vec::new();
        text.by_ref().take(HEAD as u64).read_to_end(&mut ahead).map_err(failed)?;
        let lines = match ahead.len() {
            // The last line may be incomplete.
            HEAD => ahead.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1),
            all => all,
        };
        let (most, ratio) = if packed { (PACKED_CHUNKS, PACKED) } else { (MOST_CHUNKS, 1) };
        let many = (CHUNKS * threads()).min(most) * CHUNK;
        let guess = metadata.len().saturating_mul(ratio);
        // The length of compressed text is unknown.
        let piece = if packed { many } else { (guess / PIECES).clamp(CHUNK as u64, many as u64) as usize };
        let is_text = binary(&ahead).is_none() && !ahead.starts_with(MARK);
        Ok(is_text.then_some(Self { path, text, ahead, lines, piece, guess }))
    }

    /// Returns the first whole lines of the text; empty if the first line is too long.
    pub(in crate::io) fn start(&self) -> &[u8] {
        &self.ahead[..self.lines]
    }

    /// Skips bytes of [`start`](Self::start): a file's header.
    pub(in crate::io) fn skip(&mut self, bytes: usize) {
        self.ahead.drain(..bytes);
        self.lines -= bytes;
    }

    /// Estimates the number of lines if each has `line` bytes.
    pub(in crate::io) fn about(&self, line: u64) -> usize {
        (self.guess / line) as usize
    }

    /// Passes each piece to `take` while the next one is read; `None` if one holds a NUL byte.
    pub(in crate::io) fn each(
        mut self,
        take: &mut (dyn FnMut(&[u8]) -> Result<()> + Send),
    ) -> Result<Option<()>> {
        let (mut piece, mut next) = (Vec::new(), Vec::new());
        let mut more = self.next(&mut piece)?;
        while more == Some(true) {
            let (read, taken) = join(|| self.next(&mut next), || take(&piece));
            taken?;
            more = read?;
            std::mem::swap(&mut piece, &mut next);
        }
        Ok(more.map(drop))
    }

    /// Reads the next piece into `bytes`: false at the end, `None` if it holds a NUL byte.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<bool>> {
        let failed = Error::io(self.path);
        bytes.clear();
        bytes.append(&mut self.ahead);
        let more = self.piece.saturating_sub(bytes.len());
        bytes.reserve(more + 256);
        self.text.by_ref().take(more as u64).read_to_end(bytes).map_err(failed)?;
        if bytes.last().is_some_and(|&b| b != b'\n') {
            read_line(&mut self.text, bytes).map_err(failed)?;
        }
        Ok((!bytes.contains(&0)).then_some(!bytes.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gzip;
    use super::*;

    /// Concatenates the pieces after the first line; `piece` is their target size in bytes.
    fn pieces(path: &Path, piece: usize) -> Vec<u8> {
        let mut pieces = Pieces::open(path).unwrap().expect("a text");
        assert!(pieces.start().starts_with(b"head\n"));
        pieces.skip(5);
        pieces.piece = piece;
        // The first piece has all that was read for the header.
        let (mut all, mut bytes) = (Vec::new(), Vec::new());
        while pieces.next(&mut bytes).unwrap().expect("no NUL") {
            assert!(all.is_empty() || bytes.len() < piece + 13, "{bytes:?}");
            all.append(&mut bytes);
        }
        all
    }

    #[test]
    fn pieces_together_are_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let (path, packed) = (folder.path().join("t"), folder.path().join("t.gz"));
        let long = ["head\n", &"01234567\n".repeat(20_000), "no end"].concat();
        for text in ["head\n<1\na\nbb\n<2\n\nccc\n\n<3\n<4\nd", "head\nnone\n", "head\n", &long] {
            std::fs::write(&path, text).unwrap();
            // Two gzip members, as parallel compressors write them.
            let members = [&text[..4], &text[4..]].map(|text| gzip(text.as_bytes()));
            std::fs::write(&packed, members.concat()).unwrap();
            for piece in [1, 2, 7, 1000, CHUNK] {
                assert!(pieces(&path, piece) == text.as_bytes()[5..], "{} bytes in {piece}s", text.len());
                assert!(pieces(&packed, piece) == text.as_bytes()[5..], "{} bytes in {piece}s", text.len());
            }
        }
    }

    #[test]
    fn binary_files_are_not_cut_into_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        for bytes in [&b"\xef\xbb\xbfhead\n"[..], b"head\n\0", b"PK\x03\x04", b"\xff\xfeh\0"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(Pieces::open(&path).unwrap().is_none(), "{bytes:?}");
        }
        // NUL after the head.
        std::fs::write(&path, ["head\n", &"0123456\n".repeat(HEAD / 8), "\0\n"].concat()).unwrap();
        let pieces = Pieces::open(&path).unwrap().expect("a text as it begins");
        assert_eq!((pieces.start().len(), pieces.start().last()), (5 + 8 * (HEAD / 8 - 1), Some(&b'\n')));
        assert_eq!(pieces.each(&mut |_| Ok(())).unwrap(), None);
        // A gzip stream that ends early.
        let packed = gzip(b"head\nbody\n");
        std::fs::write(&path, &packed[..packed.len() - 9]).unwrap();
        assert!(Pieces::open(&path).is_err());
        assert!(Pieces::open(folder.path()).is_ok_and(|pieces| pieces.is_none()), "a folder");
    }
}
