//! Text files as bytes: gzip, lines, chunks for parallel work, and a scanner for numbers.

mod pieces;
mod triples;

use std::fmt::{self, Display, Formatter};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use super::*;

pub(super) use self::pieces::Pieces;
pub(super) use self::triples::{LineError, TripleSpace, Triples};
use crate::Limit;
use crate::error::Size;

/// Magic number of gzip files.
const GZIP: &[u8] = b"\x1f\x8b";

/// UTF-8 byte order mark.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Approximate largest size of a chunk of parallel work, in bytes.
const CHUNK: usize = 1 << 18;
/// Approximate smallest size of a chunk, in bytes.
const LEAST_CHUNK: usize = 1 << 16;
/// Number of chunks per thread, if their size is between [`LEAST_CHUNK`] and [`CHUNK`].
const SHARES: usize = 4;

/// Magic numbers of binary formats, each with a message and a suggestion.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "looks like a ZIP archive, as .npz files are: give it the extension .npz, or unpack it"),
    (b"\x93NUMPY", "looks like a NumPy array, not text: give it the extension .npy"),
    (b"\xfd7zXZ\0", "looks xz-compressed: unpack it with `xz -d`, or compress it with gzip"),
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

/// Limit of the unpacked size of one file, in bytes.
static MOST_UNPACKED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the unpacked size of each file that this process reads from now on.
///
/// This applies a user's memory limit. Files that are read piece by piece are not held in memory
/// and may be longer.
pub fn limit_unpacked(bytes: u64) {
    MOST_UNPACKED.store(bytes, Ordering::Relaxed);
}

/// Checks that `bytes` unpacked bytes fit into the limit and into the available memory.
pub(super) fn expect_unpacked(bytes: u64, what: impl Fn() -> String) -> Result<()> {
    let most = MOST_UNPACKED.load(Ordering::Relaxed);
    if bytes > most {
        return Err(Error::OutOfMemory {
            device: "the host".to_owned(),
            what: what(),
            asked: bytes,
            limit: Limit::User(format!("the limit is {}; raise it", Size(most))),
        });
    }
    expect_memory(bytes, what)
}

/// Reader for data that is held whole; returns an error when memory runs out.
///
/// The length of compressed data, or of a pipe, is known only at its end.
#[derive(Debug)]
pub struct CheckedReader<R> {
    inner: R,
    count: u64,
    /// Number of bytes read up to which the available memory is known to suffice.
    checked: u64,
}

impl<R: Read> CheckedReader<R> {
    /// Bytes between two checks of the available memory.
    const STEP: u64 = 1 << 24;
    /// Bytes of a block, within which the reader may initialise memory ahead of the data.
    const BLOCK: u64 = 1 << 20;

    /// Creates a reader of `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, count: 0, checked: 0 }
    }
}

impl<R: Read> Read for CheckedReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.count += read as u64;
        let most = MOST_UNPACKED.load(Ordering::Relaxed);
        let lacking = |held: u64, limit: &str| {
            let reason = format!("holds more than {} once it is unpacked: {limit}", Size(held));
            io::Error::new(ErrorKind::OutOfMemory, reason)
        };
        if self.count > most {
            return Err(lacking(most, "that is the limit; raise it, or split the file"));
        }
        if self.count > self.checked {
            // Twice the step: a growing vector may be copied.
            let enough = expect_memory(2 * Self::STEP, String::new);
            enough.map_err(|_| lacking(self.checked, "there is no memory for more"))?;
            self.checked = self.count + Self::STEP;
        }
        Ok(read)
    }

    fn read_to_end(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let before = bytes.len();
        while self.by_ref().take(Self::BLOCK).read_to_end(bytes)? > 0 {}
        Ok(bytes.len() - before)
    }
}

/// Reads a text file, without a UTF-8 byte order mark.
///
/// Gzip is recognised by its first two bytes, and unpacked. The text is read into memory instead of
/// mapped: if a file is shortened while it is read, this gives an error, whereas a mapping would
/// end the process.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read. [`Error::File`] for a directory, binary data, or a
/// gzip stream that is truncated or corrupt. [`Error::OutOfMemory`] if the file exceeds the memory.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = load(path)?;
    if bytes.starts_with(GZIP) {
        bytes = gunzip(&bytes, path)?;
    }
    if let Some(reason) = binary(&bytes) {
        return fail(path, reason);
    }
    if bytes.starts_with(MARK) {
        bytes.drain(..MARK.len());
    }
    Ok(bytes)
}

fn load(path: &Path) -> Result<Vec<u8>> {
    let io = Error::io(path);
    let mut file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return fail(path, "is a directory: name a file in it");
    }
    // Pipes and pseudo-files report length 0.
    let length = if metadata.is_file() { metadata.len() } else { 0 };
    expect_memory(length, || path.display().to_string())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length as usize).map_err(|e| io(e.into()))?;
    match metadata.is_file() {
        true => file.read_to_end(&mut bytes),
        false => CheckedReader::new(file).read_to_end(&mut bytes),
    }
    .map_err(io)?;
    Ok(bytes)
}

fn gunzip(packed: &[u8], path: &Path) -> Result<Vec<u8>> {
    // The last four bytes of gzip data are the length of its last member modulo 2³². Text is rarely
    // compressed by more than 1 : 16, and a forged length must not reserve more than that.
    let stated = packed.last_chunk().map_or(0, |&tail| u32::from_le_bytes(tail)) as usize;
    let mut bytes = Vec::with_capacity(stated.min(packed.len().saturating_mul(16)));
    let file = |reason: String| Error::file(path, reason);
    match CheckedReader::new(MultiGzDecoder::new(packed)).read_to_end(&mut bytes) {
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
        Err(source) => Err(Error::io(path)(source)),
    }
}

/// Returns the reason why these bytes are not text, or `None` for text.
fn binary(bytes: &[u8]) -> Option<String> {
    if let Some((_, reason)) = SIGNATURES.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Some((*reason).into());
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Some("looks like a tar archive, as UMB models are; give the chain as .tra or .drn".into());
    }
    let chunk = bytes.par_chunks(CHUNK).position_first(|chunk| chunk.contains(&0))?;
    let offset = chunk * CHUNK + bytes[chunk * CHUNK..].iter().position(|&b| b == 0)?;
    Some(format!("byte {offset} is NUL: this looks like a binary file, not text; name the model's text file"))
}

/// Returns the error for a line of a file, counted from 1.
pub(super) fn error(path: &Path, line: u64, reason: impl Into<String>) -> Error {
    Error::Parse { path: path.into(), line, reason: reason.into() }
}

/// Quotes bytes of a file for a message: shortened, without control characters.
pub(super) fn quote(bytes: &[u8]) -> String {
    const MOST: usize = 40;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MOST)])
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let text = text.trim();
    if text.chars().count() > MOST {
        format!("'{}...'", text.chars().take(MOST).collect::<String>())
    } else {
        format!("'{text}'")
    }
}

/// A line without its line end and without surrounding blanks; displayed like [`quote`].
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLine<'a> {
    /// File that has the line.
    pub(super) path: &'a Path,
    /// Line number, counted from 1.
    pub(super) number: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> TextLine<'a> {
    pub(super) fn fields(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        fields(self.bytes)
    }

    /// True for blank lines and for comments, which start with `#`.
    pub(super) fn is_comment(&self) -> bool {
        self.bytes.is_empty() || self.bytes.starts_with(b"#")
    }

    /// Returns the error for this line.
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        error(self.path, self.number, reason)
    }

    /// Converts the name of a label or reward to a string, if it is UTF-8.
    pub(super) fn name(&self, bytes: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(bytes).map(str::to_owned);
        name.map_err(|_| self.error(format!("name {} is not UTF-8: save the file as UTF-8", quote(bytes))))
    }
}

impl Display for TextLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(self.bytes))
    }
}

/// Iterates over the fields of a text, which are separated by blanks.
pub(super) fn fields(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty())
}

/// Returns the message about a state that a chain of `states` states lacks, in its `content`.
pub(super) fn out_of_range(number: u64, states: usize, content: &str) -> String {
    format!(
        "state {number} is out of range: the chain has {states} states, 0 to {}; are these another \
         model's {content}?",
        states.saturating_sub(1)
    )
}

/// Iterator over the lines of a text, including blank ones.
#[derive(Debug, Clone)]
pub(super) struct TextLines<'a> {
    pub(super) path: &'a Path,
    bytes: &'a [u8],
    /// Offset of the first byte after the lines returned so far.
    pub(super) offset: usize,
    /// Number of lines returned so far.
    pub(super) number: u64,
}

impl<'a> TextLines<'a> {
    /// Iterates over all lines of `bytes`; `path` is named in messages.
    pub(super) fn new(bytes: &'a [u8], path: &'a Path) -> Self {
        Self { path, bytes, offset: 0, number: 0 }
    }
}

impl<'a> Iterator for TextLines<'a> {
    type Item = TextLine<'a>;

    fn next(&mut self) -> Option<TextLine<'a>> {
        let rest = &self.bytes[self.offset..];
        if rest.is_empty() {
            return None;
        }
        let (line, behind) = first_line(rest);
        self.offset = self.bytes.len() - behind.len();
        self.number += 1;
        Some(TextLine { path: self.path, number: self.number, bytes: line.trim_ascii() })
    }
}

/// Splits a text at the first line end, which is dropped.
pub(super) fn first_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == b'\n') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

/// Splits a text into chunks of whole lines, several per thread, of about 256 KiB at most.
pub(super) fn chunks(bytes: &[u8]) -> Vec<&[u8]> {
    blocks(bytes, |_| true)
}

/// Splits a text like [`chunks`], but only before lines that `begins` accepts.
pub(super) fn blocks(bytes: &[u8], begins: fn(&[u8]) -> bool) -> Vec<&[u8]> {
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

/// Returns the number of lines, including a last one without a line end.
pub(super) fn count_lines(bytes: &[u8]) -> usize {
    // A sum over 255 bytes fits into a byte.
    let ends = |few: &[u8]| usize::from(few.iter().map(|&b| u8::from(b == b'\n')).sum::<u8>());
    let ends: usize = bytes.chunks(255).map(ends).sum();
    ends + usize::from(bytes.last().is_some_and(|&b| b != b'\n'))
}

/// Powers of ten up to 10¹⁵; integers of at most 15 digits are exact in double precision.
const POWERS: [u64; 16] = {
    let mut powers = [1; 16];
    let mut k = 1;
    while k < powers.len() {
        powers[k] = 10 * powers[k - 1];
        k += 1;
    }
    powers
};

/// A word with all bytes equal to 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Returns the value of the leading decimal digits and their number.
#[inline]
fn leading_digits(bytes: [u8; 8]) -> (u64, usize) {
    // The first byte is the lowest. Digits become 0 to 9; adding 0x76 to them leaves bit 7 clear.
    let value = u64::from_le_bytes(bytes) ^ (ONES * 0x30);
    let other = (((value & (ONES * 0x7f)) + ONES * 0x76) | value) & (ONES * 0x80);
    let count = other.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Shifts zeros before the digits, then combines pairs, groups of four and all eight.
    let value = value << (64 - 8 * count);
    let pairs = (value * 10 + (value >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    ((fours * 10_000 + (fours >> 32)) & 0xffff_ffff, count)
}

/// Text of a word of at most 24 bytes, zero-padded: the key of [`KnownNumbers`].
type WordKey = [u64; 3];

/// Returns the first word, padded with zeros, and its length; `None` if it is empty or too long.
#[inline]
fn first_word(bytes: &[u8; size_of::<WordKey>()]) -> Option<(WordKey, usize)> {
    let words: WordKey = bytemuck::cast(*bytes);
    let mut key = [0; 3];
    for (k, word) in words.map(u64::from_le).into_iter().enumerate() {
        // Sets the high bit of the first byte below `!`, and of no byte before it.
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

/// Cache from text to number: a chain has few distinct rates, each repeated many times.
#[derive(Debug, Clone)]
pub(super) struct KnownNumbers([(WordKey, f64); 256]);

impl Default for KnownNumbers {
    fn default() -> Self {
        Self([([0; 3], 0.0); 256])
    }
}

/// Reads numbers and words from bytes, from left to right.
#[derive(Debug, Clone)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Returns the bytes read since `offset`.
    pub(super) fn since(&self, offset: usize) -> &'a [u8] {
        &self.bytes[offset..self.at]
    }

    /// Skips spaces, tabs, carriage returns and form feeds: all word delimiters except line ends.
    #[inline]
    pub(super) fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\x0c') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips `byte` if it is the next one; returns true if so.
    #[inline]
    pub(super) fn byte(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// True before a blank, before a line end and at the end.
    #[inline]
    pub(super) fn is_delimited(&self) -> bool {
        matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\x0c' | b'\n'))
    }

    /// Skips `bytes` bytes, or up to the end.
    #[inline]
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at = self.bytes.len().min(self.at + bytes);
    }

    /// Skips the rest of the line and its end.
    pub(super) fn skip_line(&mut self) {
        self.at = self.bytes.len() - first_line(self.rest()).1.len();
    }

    /// Reads decimal digits; returns their value modulo 2⁶⁴ and their number.
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

    /// Reads an unsigned integer of at most 18 decimal digits.
    #[inline]
    pub(super) fn unsigned(&mut self) -> Option<u64> {
        let (value, digits) = self.digits();
        (1..=18).contains(&digits).then_some(value)
    }

    /// Reads a finite number, or a quotient such as `1/4000`, that is not rounded to 0.
    #[inline]
    pub(super) fn number(&mut self) -> Option<f64> {
        let from = self.at;
        let mut value = self.decimal()?;
        if self.byte(b'/') {
            value /= self.decimal()?;
        }
        (value.is_finite() && !(value == 0.0 && quantity::is_not_zero(self.since(from)))).then_some(value)
    }

    /// Reads a decimal number, also with Fortran's exponent (`1.5D0`), as the nearest double.
    #[inline]
    pub(super) fn decimal(&mut self) -> Option<f64> {
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

    /// Reads a number at `from` with a Fortran exponent: a `D` after `length` bytes.
    #[cold]
    fn fortran(&mut self, from: usize, length: usize) -> Option<f64> {
        let mut text = self.bytes[from..].iter().take(length + 8).copied().collect::<Vec<u8>>();
        text[length] = b'e';
        let (value, read) = fast_float2::parse_partial(&text).ok()?;
        // A `D` without digits after it is not an exponent.
        self.at = from + read;
        Some(value)
    }

    /// Reads a number of at most 15 digits: a quotient of two exact integers, hence rounded once.
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

    /// Reads a number like [`number`](Self::number), using the cache `known`.
    #[inline]
    pub(super) fn known_number(&mut self, known: &mut KnownNumbers) -> Option<f64> {
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

    /// Reads the bytes up to the next blank or line end; empty directly before one.
    pub(super) fn word(&mut self) -> &'a [u8] {
        let rest = self.rest();
        let length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }
}

/// Parses a field that consists of an unsigned integer only.
pub(super) fn unsigned(field: &[u8]) -> Option<u64> {
    let mut scanner = Scanner::new(field);
    scanner.unsigned().filter(|_| scanner.rest().is_empty())
}

/// Parses a field that consists of a finite number only.
pub(super) fn number(field: &[u8]) -> Option<f64> {
    let mut scanner = Scanner::new(field);
    scanner.number().filter(|_| scanner.rest().is_empty())
}

/// Reads a vector from a text file: one finite number per line, in order.
///
/// Blank lines and lines that start with `#` are ignored. Shape `[numbers in the file]`. Fails like
/// [`read`]; with [`Error::Parse`] for a line that is not one finite number; and with
/// [`Error::File`] for a file without numbers.
pub fn read_vector(path: &Path) -> Result<Vec<f64>> {
    parse_vector(&read(path)?, path)
}

fn parse_vector(bytes: &[u8], path: &Path) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    for line in TextLines::new(bytes, path).filter(|line| !line.is_comment()) {
        let fault =
            || line.error(format!("{line} {}; write one number in each line", quantity::fault(line.bytes)));
        values.push(number(line.bytes).ok_or_else(fault)?);
    }
    if values.is_empty() {
        return fail(path, "contains no number; write one number in each line");
    }
    Ok(values)
}

#[cfg(test)]
pub(super) mod tests;
