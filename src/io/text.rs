//! Text files as bytes, unzipped where they are packed, cut into lines and chunks, with a scanner for the numbers in them.

mod part;
mod triples;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

pub(super) use self::part::Parted;
pub(super) use self::triples::{Room, Triples, Trouble};
use crate::lane::cpu::expect_memory;
use crate::parallel::*;
use crate::{Error, Result, number};

/// The first bytes of gzip files.
const GZIP: &[u8] = b"\x1f\x8b";

/// The optional first bytes of UTF-8 files.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes that a chunk of parallel work has, about, at most and of a text of few; and how many of those each thread has then.
const CHUNK: usize = 1 << 18;
const LEAST_CHUNK: usize = 1 << 16;
const SHARES: usize = 4;

/// The first bytes of binary files, and the remedy for each.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "looks like a ZIP archive, as .npz files are: give it the extension .npz, or unpack it"),
    (b"\x93NUMPY", "looks like a NumPy array, not text: give it the extension .npy"),
    (
        b"\xfd7zXZ\0",
        "looks xz-compressed: unpack it with `xz -d`, or give it the extension .umb if it is a UMB model",
    ),
    (b"\x28\xb5\x2f\xfd", "looks zstd-compressed: unpack it with `zstd -d`, or compress it with gzip"),
    (b"BZh", "looks bzip2-compressed: unpack it with `bzip2 -d`, or compress it with gzip"),
    (b"\x1f\x8b", "is compressed with gzip twice: unpack it once with `gzip -d`"),
    (b"\x89HDF", "looks like an HDF5 file, not text: export it as Matrix Market or .npz"),
    (b"MATLAB 5.0", "looks like a MATLAB .mat file, not text: export it as Matrix Market or .npz"),
    (b"\xff\xfe", "looks like UTF-16 text: save it as UTF-8"),
    (b"\xfe\xff", "looks like UTF-16 text: save it as UTF-8"),
    (b"\x7fELF", "looks like a program, not text: name the model's file"),
    (b"%PDF", "looks like a PDF, not a model: name the model's file"),
];

/// A whole text file; derefs to its bytes, without a UTF-8 byte order mark. In memory, not mapped: a file that is
/// shortened while it is read is an error here, and the end of a process that maps it.
#[derive(Debug)]
pub struct Text {
    bytes: Vec<u8>,
    /// Where the text starts (3 behind a byte order mark).
    start: usize,
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Bytes that one file may have once it is unpacked.
static MOST_UNPACKED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the unpacked size of each file that this process reads from now on, such as by a user's limit of memory.
/// Files that are read piece by piece are not held, and may be longer.
pub fn limit_unpacked(bytes: u64) {
    MOST_UNPACKED.store(bytes, Ordering::Relaxed);
}

/// An error unless this many unpacked bytes fit into the limit and into the memory that is there.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(super) fn expect_unpacked(bytes: u64, what: impl Fn() -> String) -> Result<()> {
    let most = MOST_UNPACKED.load(Ordering::Relaxed);
    if bytes > most {
        return Err(Error::OutOfMemory {
            device: "the host".to_owned(),
            what: what(),
            asked: bytes,
            limit: format!("the limit is {}; raise it", number::Size(most)),
        });
    }
    expect_memory(bytes, what)
}

/// Reads what has to be held whole: an error takes the place of bytes for which there is no memory.
///
/// The length of packed data, or of a pipe, is known only at its end.
#[derive(Debug)]
pub struct Bounded<R> {
    inner: R,
    count: u64,
    /// Bytes up to which there was memory.
    checked: u64,
}

impl<R: Read> Bounded<R> {
    /// Bytes between two looks at the memory that is available.
    const STEP: u64 = 1 << 24;

    /// Reads from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, count: 0, checked: 0 }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.count += read as u64;
        let most = MOST_UNPACKED.load(Ordering::Relaxed);
        let lacking = |held: u64, limit: &str| {
            let reason = format!("holds more than {} once it is unpacked: {limit}", number::Size(held));
            io::Error::new(ErrorKind::OutOfMemory, reason)
        };
        if self.count > most {
            return Err(lacking(most, "that is the limit; raise it, or split the file"));
        }
        if self.count > self.checked {
            // Twice the step: a vector that grows may be copied.
            let enough = expect_memory(2 * Self::STEP, String::new);
            enough.map_err(|_| lacking(self.checked, "there is no memory for more"))?;
            self.checked = self.count + Self::STEP;
        }
        Ok(read)
    }
}

/// The bytes of a text file; gzip, recognised by its first two bytes, is unpacked.
///
/// # Errors
/// [`Error::Io`] when the file cannot be read, [`Error::File`] when it is a directory, holds binary data or a gzip
/// stream that is truncated or corrupt.
pub fn read(path: &Path) -> Result<Text> {
    let mut bytes = load(path)?;
    if bytes.starts_with(GZIP) {
        bytes = gunzip(&bytes, path)?;
    }
    if let Some(reason) = binary(&bytes) {
        return Err(Error::File { path: path.into(), reason });
    }
    let start = if bytes.starts_with(MARK) { 3 } else { 0 };
    Ok(Text { bytes, start })
}

fn load(path: &Path) -> Result<Vec<u8>> {
    let io = |source| Error::Io { path: path.into(), source };
    let mut file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(Error::File { path: path.into(), reason: "is a directory: name a file in it".into() });
    }
    // Pipes and pseudo-files say length 0.
    let length = if metadata.is_file() { metadata.len() } else { 0 };
    expect_memory(length, || path.display().to_string())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize).map_err(|e| io(e.into()))?;
    match metadata.is_file() {
        true => file.read_to_end(&mut bytes),
        false => Bounded::new(file).read_to_end(&mut bytes),
    }
    .map_err(io)?;
    Ok(bytes)
}

fn gunzip(packed: &[u8], path: &Path) -> Result<Vec<u8>> {
    // The last four bytes hold the length modulo 2³² of the last member; text rarely packs better than 1 : 16, and a
    // forged length must not reserve more than that.
    let stated = packed.last_chunk().map_or(0, |&tail| u32::from_le_bytes(tail)) as usize;
    let mut bytes = Vec::with_capacity(stated.min(packed.len().saturating_mul(16)));
    let file = |reason: String| Error::File { path: path.into(), reason };
    match Bounded::new(MultiGzDecoder::new(packed)).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(file(format!(
            "the gzip stream ends early, after {} bytes of text: the file is truncated; copy or write it again",
            bytes.len()
        ))),
        Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput) => Err(file(format!(
            "the gzip stream is corrupt after {} bytes of text ({e}): copy or write the file again",
            bytes.len()
        ))),
        Err(e) if e.kind() == ErrorKind::OutOfMemory => Err(file(e.to_string())),
        Err(source) => Err(Error::Io { path: path.into(), source }),
    }
}

/// Why these bytes are no text, if they are not.
fn binary(bytes: &[u8]) -> Option<String> {
    if let Some((_, reason)) = SIGNATURES.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some((*reason).into());
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Some(
            "looks like a tar archive, as UMB models are: give it the extension .umb, or unpack it".into(),
        );
    }
    let chunk = bytes.par_chunks(CHUNK).position_first(|chunk| chunk.contains(&0))?;
    let offset = chunk * CHUNK + bytes[chunk * CHUNK..].iter().position(|&b| b == 0)?;
    Some(format!("byte {offset} is NUL: this looks like a binary file, not text; name the model's text file"))
}

/// The error for a line of a file, counted from 1.
pub fn error(path: &Path, line: u64, reason: impl Into<String>) -> Error {
    Error::Parse { path: path.into(), line, reason: reason.into() }
}

/// Bytes of a file as they can stand in a message: shortened, without control characters.
pub fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)])
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let text = text.trim();
    if text.chars().count() > MOST {
        format!("`{}...`", text.chars().take(MOST).collect::<String>())
    } else {
        format!("`{text}`")
    }
}

/// A name (of a label, reward or action) as a string.
///
/// # Errors
/// [`Error::Parse`] when it is not UTF-8.
pub fn name(bytes: &[u8], path: &Path, line: u64) -> Result<String> {
    match std::str::from_utf8(bytes) {
        Ok(name) => Ok(name.into()),
        Err(_) => {
            Err(error(path, line, format!("name {} is not UTF-8: save the file as UTF-8", quote(bytes))))
        }
    }
}

/// A line without its line end and without surrounding blanks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Line, counted from 1.
    pub number: u64,
    /// The text of the line.
    pub bytes: &'a [u8],
}

impl<'a> Line<'a> {
    /// The fields between its blanks.
    pub fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.split(|b| b.is_ascii_whitespace()).filter(|field| !field.is_empty())
    }
}

/// The lines of a text, blank ones included.
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    number: u64,
}

impl<'a> Lines<'a> {
    /// All lines of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::behind(0, bytes)
    }

    /// The same behind so many others.
    pub fn behind(lines: u64, bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, number: lines }
    }

    /// Offset of the first byte that is not in a line given out yet.
    pub fn offset(&self) -> usize {
        self.at
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let end = rest.iter().position(|&b| b == b'\n');
        self.at += end.map_or(rest.len(), |end| end + 1);
        self.number += 1;
        Some(Line { number: self.number, bytes: rest[..end.unwrap_or(rest.len())].trim_ascii() })
    }
}

/// Cuts a text into pieces of whole lines, some for each thread, of 256 KiB at most.
pub fn chunks(bytes: &[u8]) -> Vec<&[u8]> {
    blocks(bytes, |_| true)
}

/// The same in front of lines that `begins` accepts.
pub fn blocks(bytes: &[u8], begins: fn(&[u8]) -> bool) -> Vec<&[u8]> {
    let size = (bytes.len() / (SHARES * threads())).clamp(LEAST_CHUNK, CHUNK);
    let mut chunks = Vec::with_capacity(bytes.len() / size + 1);
    let mut rest = bytes;
    while !rest.is_empty() {
        let line = |from: usize| {
            rest[from..].iter().position(|&b| b == b'\n').map_or(rest.len(), |end| from + end + 1)
        };
        let mut end = line(rest.len().min(size));
        while end < rest.len() && !begins(&rest[end..line(end)]) {
            end = line(end);
        }
        let (chunk, behind) = rest.split_at(end);
        chunks.push(chunk);
        rest = behind;
    }
    chunks
}

/// Number of lines, a last one without a line end included.
pub fn count_lines(bytes: &[u8]) -> usize {
    // Sums of so few fit a byte each.
    let ends = |few: &[u8]| usize::from(few.iter().map(|&b| u8::from(b == b'\n')).sum::<u8>());
    let ends: usize = bytes.chunks(255).map(ends).sum();
    ends + usize::from(bytes.last().is_some_and(|&b| b != b'\n'))
}

/// Powers of ten: numbers of as many digits as the last one has zeros are exact in double precision.
const POWERS: [u64; 16] = {
    let mut powers = [1; 16];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = 10 * powers[k - 1];
        k += 1;
    }
    powers
};

/// A word whose bytes are 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The number that leading decimal digits are, and how many they are.
#[inline]
fn leading_digits(bytes: [u8; 8]) -> (u64, usize) {
    // The first byte is the lowest; digits are 0 to 9 in it, and 6 more stay below 16.
    let value = u64::from_le_bytes(bytes) ^ (ONES * 0x30);
    let other = (((value & (ONES * 0x7f)) + ONES * 0x76) | value) & (ONES * 0x80);
    let count = other.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Zeros in front of the digits; then pairs, fours and all eight are added up.
    let value = value << (64 - 8 * count);
    let pairs = (value * 10 + (value >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    ((fours * 10_000 + (fours >> 32)) & 0xffff_ffff, count)
}

/// The words of text that a key holds.
type Key = [u64; 3];

/// The first word of so many bytes, with zeros behind it, and its length; none if it is empty or longer.
#[inline]
fn first_word(bytes: &[u8; size_of::<Key>()]) -> Option<(Key, usize)> {
    let words: Key = bytemuck::cast(*bytes);
    let mut key = [0; 3];
    for (k, word) in words.map(u64::from_le).into_iter().enumerate() {
        // The high bit of the first byte below `!`, and of none before it.
        let blank = word.wrapping_sub(ONES * 0x21) & !word & (ONES * 0x80);
        if blank != 0 {
            let count = blank.trailing_zeros() / 8;
            key[k] = word & ((1 << (8 * count)) - 1);
            return Some((key, 8 * k + count as usize)).filter(|&(_, length)| length > 0);
        }
        key[k] = word;
    }
    None
}

/// Some of the numbers that were read, by their text: a chain has few rates, a million times each.
#[derive(Debug, Clone)]
pub struct KnownNumbers([(Key, f64); 256]);

impl Default for KnownNumbers {
    fn default() -> Self {
        Self([([0; 3], 0.0); 256])
    }
}

/// Reads numbers and words off bytes, from left to right.
#[derive(Debug, Clone)]
pub struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// A scanner at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next byte.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Offset of the next byte.
    #[inline]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The part that is not read yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// What was read from an offset on.
    pub fn since(&self, offset: usize) -> &'a [u8] {
        &self.bytes[offset..self.at]
    }

    /// Passes over spaces, tabs, carriage returns and form feeds: whatever ends a word but for line ends.
    #[inline]
    pub fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\x0c') = self.peek() {
            self.at += 1;
        }
    }

    /// Passes over this byte, if it is the next.
    #[inline]
    pub fn byte(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// True before a blank, a line end and the end.
    #[inline]
    pub fn is_delimited(&self) -> bool {
        matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\x0c' | b'\n'))
    }

    /// Passes over that many bytes, at most all.
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        self.at = self.bytes.len().min(self.at + bytes);
    }

    /// Goes on at an offset, or at the end.
    pub fn skip_to(&mut self, offset: usize) {
        self.at = offset.min(self.bytes.len());
    }

    /// Passes over the rest of the line and its end.
    pub fn skip_line(&mut self) {
        let end = self.rest().iter().position(|&b| b == b'\n');
        self.at = end.map_or(self.bytes.len(), |end| self.at + end + 1);
    }

    /// The decimal digits that come next, as a number that wraps, and how many they are.
    #[inline]
    fn digits(&mut self) -> (u64, usize) {
        let (start, mut value) = (self.at, 0u64);
        while let Some(eight) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) {
            let (more, count) = leading_digits(*eight);
            value = value.wrapping_mul(POWERS[count]).wrapping_add(more);
            self.at += count;
            if count < 8 {
                return (value, self.at - start);
            }
        }
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
            self.at += 1;
        }
        (value, self.at - start)
    }

    /// An unsigned integer: decimal digits, below 10¹⁸.
    #[inline]
    pub fn unsigned(&mut self) -> Option<u64> {
        let (value, digits) = self.digits();
        (1..=18).contains(&digits).then_some(value)
    }

    /// A finite number that is not rounded to 0: decimal, with or without exponent, or a quotient of two such (`1/4000`).
    #[inline]
    pub fn number(&mut self) -> Option<f64> {
        let from = self.at;
        let mut value = self.decimal()?;
        if self.byte(b'/') {
            value /= self.decimal()?;
        }
        (value.is_finite() && !(value == 0.0 && number::is_not_zero(self.since(from)))).then_some(value)
    }

    /// A decimal number, with or without exponent (also Fortran's `1.5D0`), rounded to whatever double is next.
    #[inline]
    pub fn decimal(&mut self) -> Option<f64> {
        let from = self.at;
        self.short().or_else(|| {
            let (value, length) = fast_float2::parse_partial(&self.bytes[from..]).ok()?;
            self.at = from + length;
            match self.peek() {
                Some(b'd' | b'D') => self.fortran(from, length),
                _ => Some(value),
            }
        })
    }

    /// A number whose exponent begins with `D` behind so many bytes.
    #[cold]
    fn fortran(&mut self, from: usize, length: usize) -> Option<f64> {
        let mut text = self.bytes[from..].iter().take(length + 8).copied().collect::<Vec<u8>>();
        text[length] = b'e';
        let (value, read) = fast_float2::parse_partial(&text).ok()?;
        // A `D` without digits behind it is no exponent.
        self.at = from + read;
        Some(value)
    }

    /// One of few digits: the quotient of two integers that are exact, and so rounded once.
    #[inline]
    fn short(&mut self) -> Option<f64> {
        let (mut value, mut digits) = self.digits();
        let mut behind = 0;
        if digits > 0 && self.byte(b'.') {
            let fraction;
            (fraction, behind) = self.digits();
            digits += behind;
            value = value.wrapping_mul(*POWERS.get(behind)?).wrapping_add(fraction);
        }
        let exact = (1..POWERS.len()).contains(&digits) && self.is_delimited();
        exact.then(|| value as f64 / POWERS[behind] as f64)
    }

    /// [`number`](Self::number), looked up where it was read before.
    #[inline]
    pub fn known_number(&mut self, known: &mut KnownNumbers) -> Option<f64> {
        let start = self.at;
        let Some((key, length)) = self.bytes[start..].first_chunk().and_then(first_word) else {
            return self.number();
        };
        let mixed = key[0].wrapping_add(key[1].rotate_left(23)).wrapping_add(key[2].rotate_left(47));
        let (text, value) = &mut known.0[(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize];
        if *text == key {
            self.at += length;
            return Some(*value);
        }
        let found = self.number()?;
        if self.at - start == length {
            (*text, *value) = (key, found);
        }
        Some(found)
    }

    /// The bytes up to the next blank or line end; empty before one.
    pub fn word(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }
}

/// A field that is an unsigned integer and nothing else.
pub fn unsigned(field: &[u8]) -> Option<u64> {
    let mut scanner = Scanner::new(field);
    scanner.unsigned().filter(|_| scanner.rest().is_empty())
}

/// A field that is a finite number and nothing else.
pub fn number(field: &[u8]) -> Option<f64> {
    let mut scanner = Scanner::new(field);
    scanner.number().filter(|_| scanner.rest().is_empty())
}

/// A vector from a text file: one finite number a line, in order; blank lines and lines that start with `#` are
/// passed over. Shape `[numbers in the file]`.
///
/// # Errors
/// Those of [`read`]; [`Error::Parse`] for a line that is not one finite number, [`Error::File`] when there is none.
pub fn read_vector(path: &Path) -> Result<Vec<f64>> {
    parse_vector(&read(path)?, path)
}

/// As [`read_vector`], from bytes; `path` is for the messages.
pub fn parse_vector(bytes: &[u8], path: &Path) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    for line in Lines::new(bytes) {
        if line.bytes.is_empty() || line.bytes.starts_with(b"#") {
            continue;
        }
        let Some(value) = number(line.bytes) else {
            return Err(error(
                path,
                line.number,
                format!("{} {}; write one number a line", quote(line.bytes), number::fault(line.bytes)),
            ));
        };
        values.push(value);
    }
    if values.is_empty() {
        return Err(Error::File {
            path: path.into(),
            reason: "holds no number; write one number a line".into(),
        });
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
