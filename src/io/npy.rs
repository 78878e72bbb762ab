//! NumPy's `.npy`: one array with its element type and shape.
//!
//! Format versions 1.0 to 3.0 are read, 1.0 is written.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use super::rate_matrix_kind::{self, MOST_STATES};
use crate::lane::cpu::expect_memory;
use crate::sparse::Coo;
use crate::transient::chain::ChainFile;
use crate::util::quantity::{Size, power};
use crate::{Error, Result};

/// Longest header accepted; element type and shape of plain arrays take less than 200 bytes.
const LONGEST_HEADER: usize = 1 << 16;

/// Bytes read at a time.
const BLOCK: usize = 1 << 16;

/// Elements reserved before reading; beyond that, vectors grow with the data actually read.
const RESERVED: u64 = 1 << 20;

/// Largest number of vectors in one array.
const MOST_COLUMNS: u64 = 1 << 16;

/// Reads a vector: a 1-D array of f8, f4, f2, integers or booleans, of either byte order.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened. [`Error::File`] for another shape or element type,
/// which the message names, and for a file of another length than its header requires.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Vec<f64>> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
    vector(&mut file).map_err(|reason| Error::File { path: path.into(), reason })
}

fn vector(reader: &mut (impl Read + ?Sized)) -> Result<Vec<f64>, String> {
    let header = Header::read(reader)?;
    let [_] = header.shape[..] else {
        return Err(format!(
            "an array of shape {} and type {}: expected a vector, with one dimension",
            header.shape(),
            header.descr
        ));
    };
    header.vector(reader)
}

/// Reads vectors of one length, one per column of an array of shape `[n, count]`.
///
/// A 1-D array is one vector.
///
/// # Errors
/// Errors of [`read_vector`].
pub fn read_columns(path: impl AsRef<Path>) -> Result<Vec<Vec<f64>>> {
    let path = path.as_ref();
    let mut file = File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
    columns(&mut file).map_err(|reason| Error::File { path: path.into(), reason })
}

fn columns(reader: &mut (impl Read + ?Sized)) -> Result<Vec<Vec<f64>>, String> {
    let header = Header::read(reader)?;
    let count = match header.shape[..] {
        [_] => 1,
        [_, count] if (1..=MOST_COLUMNS).contains(&count) => count as usize,
        _ => {
            return Err(format!(
                "an array of shape {} and type {}: expected right-hand sides of shape [n] or [n, \
                 count], with a count of 1 to {MOST_COLUMNS}",
                header.shape(),
                header.descr
            ));
        }
    };
    let rows = header.shape[0];
    // In C order consecutive elements belong to different columns; in Fortran order columns are
    // contiguous.
    let mut columns =
        vec![Vec::with_capacity(rows.min(RESERVED / count.min(1 << 10) as u64) as usize); count];
    let mut at = 0;
    header.floats(reader, |value| {
        let column = if header.fortran { at / rows.max(1) as usize } else { at % count };
        columns[column].push(value);
        at += 1;
    })?;
    Ok(columns)
}

/// Reads a chain: rates R (row: source) or a generator Q, see [`rate_matrix_kind::chain`].
///
/// # Errors
/// Errors of [`read_matrix`] and [`rate_matrix_kind::chain`].
pub fn read_chain(path: impl AsRef<Path>) -> Result<ChainFile> {
    let (matrix, notes) = read_matrix(&path)?;
    let mut chain = rate_matrix_kind::chain(path.as_ref(), matrix)?;
    chain.warnings.splice(0..0, notes);
    Ok(chain)
}

/// Reads the nonzero elements of a 2-D array as a matrix.
///
/// The second value is a note for the user: the array was dense.
///
/// # Errors
/// Errors of [`read_vector`], and [`Error::File`] for more than 2³² − 2 rows or columns.
pub fn read_matrix(path: impl AsRef<Path>) -> Result<(Coo, Vec<String>)> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let matrix =
        matrix(&mut BufReader::new(file)).map_err(|reason| Error::File { path: path.into(), reason })?;
    let Coo { rows, columns, .. } = matrix;
    let note = format!(
        "{}: a dense array of shape ({rows}, {columns}), converted to a sparse one of {} entries",
        path.display(),
        matrix.value.len()
    );
    Ok((matrix, vec![note]))
}

fn matrix(reader: &mut (impl Read + ?Sized)) -> Result<Coo, String> {
    let header = Header::read(reader)?;
    let size = |k: u64| usize::try_from(k).ok().filter(|&k| k as u64 <= MOST_STATES);
    let &[rows, columns] = &header.shape[..] else {
        return Err(format!("an array of shape {}: expected a matrix, with two dimensions", header.shape()));
    };
    let (Some(rows), Some(columns)) = (size(rows), size(columns)) else {
        return Err(format!(
            "{rows} rows and {columns} columns are out of range: expected at most {MOST_STATES}"
        ));
    };
    let (mut matrix, mut at) = (Coo { rows, columns, ..Coo::default() }, 0);
    let whole = header.len()?.saturating_mul(8);
    expect_memory(whole, || format!("a dense matrix of shape {}", header.shape()))
        .map_err(|e| e.to_string())?;
    header.floats(reader, |value| {
        if value != 0.0 {
            let (i, j) = match header.fortran {
                true => (at % rows, at / rows),
                false => (at / columns, at % columns),
            };
            matrix.row.push(i as u32);
            matrix.column.push(j as u32);
            matrix.value.push(value);
        }
        at += 1;
    })?;
    Ok(matrix)
}

/// Supported element types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    F64,
    F32,
    F16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
}

/// Header of an `.npy` file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Header {
    /// NumPy's name of the element type, or the text of another description.
    pub(crate) descr: String,
    pub(crate) shape: Vec<u64>,
    /// True for Fortran order: the first index varies fastest.
    pub(crate) fortran: bool,
}

impl Header {
    /// Reads the header, up to the first byte of data.
    pub(crate) fn read(reader: &mut (impl Read + ?Sized)) -> Result<Self, String> {
        let mut start = [0; 8];
        fill(reader, &mut start).map_err(|short| match short {
            Ok(_) => "not an .npy file, as numpy.save writes it: shorter than its first 8 bytes".to_string(),
            Err(e) => e.to_string(),
        })?;
        if start[..6] != *b"\x93NUMPY" {
            return Err("not an .npy file: its first bytes are not \\x93NUMPY".into());
        }
        let mut len = [0; 4];
        let width = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => {
                return Err(format!(".npy version {version} is not supported: expected 1 to 3"));
            }
        };
        let cut = |_| "ends inside the .npy header".to_string();
        fill(reader, &mut len[..width]).map_err(cut)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > LONGEST_HEADER {
            return Err(format!(
                "an .npy header of {len} bytes is not supported: expected at most {LONGEST_HEADER}"
            ));
        }
        let mut text = vec![0; len];
        fill(reader, &mut text).map_err(cut)?;
        Self::parse(&text).ok_or_else(|| {
            let text = String::from_utf8_lossy(&text);
            format!("invalid .npy header: {:?}", text.trim().chars().take(200).collect::<String>())
        })
    }

    /// Parses `{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }`; ignores other keys.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let mut rest = text.strip_prefix('{')?.strip_suffix('}')?.trim();
        let (mut descr, mut shape, mut fortran) = (None, None, false);
        while !rest.is_empty() {
            let (key, after) = string_literal(rest)?;
            let after = after.trim_start().strip_prefix(':')?.trim_start();
            let end = value_end(after)?;
            let (value, after) = (after[..end].trim(), &after[end..]);
            match key {
                "descr" => descr = Some(string_literal(value).map_or(value, |(text, _)| text).to_string()),
                "shape" => shape = Some(integers(value)?),
                "fortran_order" => fortran = value == "True",
                _ => {}
            }
            rest = after.strip_prefix(',').unwrap_or(after).trim_start();
        }
        Some(Self { descr: descr?, shape: shape?, fortran })
    }

    /// True if the elements are stored in another order than in C.
    pub(crate) fn is_fortran(&self) -> bool {
        self.fortran && self.shape.iter().filter(|&&k| k != 1).count() > 1
    }

    /// Formats the shape as NumPy does: `(3,)`, `(2, 3)`.
    pub(crate) fn shape(&self) -> String {
        let mut text: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        if text.len() == 1 {
            text.push(String::new());
        }
        format!("({})", text.join(", ").trim_end())
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> Result<u64, String> {
        self.shape
            .iter()
            .try_fold(1u64, |len, &k| len.checked_mul(k))
            .ok_or_else(|| format!("an array of shape {} is larger than any file", self.shape()))
    }

    fn element(&self) -> Option<(Element, bool)> {
        let mut characters = self.descr.chars();
        let big = match characters.next()? {
            '>' => true,
            '<' | '|' => false,
            '=' => cfg!(target_endian = "big"),
            _ => return None,
        };
        let element = match characters.as_str() {
            "f8" => Element::F64,
            "f4" => Element::F32,
            "f2" => Element::F16,
            "i8" => Element::I64,
            "i4" => Element::I32,
            "i2" => Element::I16,
            "i1" => Element::I8,
            "u8" => Element::U64,
            "u4" => Element::U32,
            "u2" => Element::U16,
            "u1" | "b1" => Element::U8,
            _ => return None,
        };
        Some((element, big))
    }

    /// Reads all elements as f64 and checks that nothing follows.
    ///
    /// Integers beyond 2^53 are rounded.
    pub(crate) fn floats(
        &self,
        reader: &mut (impl Read + ?Sized),
        mut each: impl FnMut(f64),
    ) -> Result<(), String> {
        self.blocks(&mut &mut *reader, false, &mut |block| {
            block.floats.iter().for_each(|&value| each(value));
            Ok(())
        })
    }

    /// Reads all elements into a vector; an error reports that memory ran out.
    ///
    /// The vector grows with the data actually read.
    pub(crate) fn vector(&self, reader: &mut (impl Read + ?Sized)) -> Result<Vec<f64>, String> {
        let mut values = Vec::new();
        self.blocks(&mut &mut *reader, false, &mut |block| {
            grow(&mut values, block.floats.len())?;
            values.extend_from_slice(&block.floats);
            Ok(())
        })?;
        Ok(values)
    }

    /// Returns the size of an element in bytes, or an error for an unsupported type.
    fn element_bytes(&self) -> Result<u64, String> {
        match self.element() {
            Some((Element::F64 | Element::I64 | Element::U64, _)) => Ok(8),
            Some((Element::F32 | Element::I32 | Element::U32, _)) => Ok(4),
            Some((Element::F16 | Element::I16 | Element::U16, _)) => Ok(2),
            Some((Element::I8 | Element::U8, _)) => Ok(1),
            None => Err(format!(
                "an array of shape {} and type {}: expected the type f8, f4, f2, an integer type \
                 or bool",
                self.shape(),
                self.descr
            )),
        }
    }

    /// Reads all elements, which have to be integers; values above `i64::MAX` become `i64::MAX`.
    pub(crate) fn integers(
        &self,
        reader: &mut (impl Read + ?Sized),
        mut each: impl FnMut(i64) -> Result<(), String>,
    ) -> Result<(), String> {
        self.blocks(&mut &mut *reader, true, &mut |block| {
            block.integers.iter().try_for_each(|&value| each(value))
        })
    }

    /// Reads all elements and passes them to `take` block by block.
    fn blocks(&self, reader: &mut dyn Read, integers: bool, take: Take<'_>) -> Result<(), String> {
        let size = self.element_bytes()? as usize;
        let (element, big) = self.element().expect("an element has bytes");
        if integers && matches!(element, Element::F64 | Element::F32 | Element::F16) {
            return Err(format!("an array of type {}: expected integers", self.descr));
        }
        let (len, mut block) = (self.len()?, Block::default());
        let (mut buffer, mut left) = (vec![0; BLOCK], len);
        while left > 0 {
            let count = left.min((BLOCK / size) as u64) as usize;
            let bytes = &mut buffer[..count * size];
            fill(reader, bytes).map_err(|got| match got {
                Ok(got) => format!("ends after {} of {len} elements", len - left + (got / size) as u64),
                Err(e) => format!("element {} of {len}: {e}", len - left),
            })?;
            block.decode(element, big, integers, bytes);
            take(&block)?;
            left -= count as u64;
        }
        match fill(reader, &mut [0]) {
            Ok(()) => Err(format!("more data than the {len} elements of shape {}", self.shape())),
            Err(_) => Ok(()),
        }
    }
}

/// Reserves memory for `more` further elements; a reallocation at least doubles the capacity.
pub(crate) fn grow<T>(values: &mut Vec<T>, more: usize) -> Result<(), String> {
    if values.capacity() - values.len() >= more {
        return Ok(());
    }
    let bytes = ((values.len() + more) * size_of::<T>()) as u64;
    let lacking = |_| format!("no memory for the {} read so far", Size(bytes));
    values.try_reserve(more.max(values.len())).or_else(|_| values.try_reserve_exact(more)).map_err(lacking)
}

/// Callback that receives a block of elements.
type Take<'a> = &'a mut dyn FnMut(&Block) -> Result<(), String>;

/// Some elements, as floats or as integers.
#[derive(Default)]
struct Block {
    floats: Vec<f64>,
    integers: Vec<i64>,
}

impl Block {
    fn decode(&mut self, element: Element, big: bool, integers: bool, bytes: &[u8]) {
        macro_rules! numbers {
            ($type:ty) => {
                bytes.as_chunks().0.iter().map(|&bytes| match big {
                    true => <$type>::from_be_bytes(bytes),
                    false => <$type>::from_le_bytes(bytes),
                })
            };
        }
        macro_rules! integers {
            ($type:ty) => {
                match integers {
                    true => {
                        self.integers.extend(numbers!($type).map(|v| i64::try_from(v).unwrap_or(i64::MAX)))
                    }
                    false => self.floats.extend(numbers!($type).map(|v| v as f64)),
                }
            };
        }
        self.floats.clear();
        self.integers.clear();
        match element {
            Element::F64 => self.floats.extend(numbers!(f64)),
            Element::F32 => self.floats.extend(numbers!(f32).map(f64::from)),
            Element::F16 => self.floats.extend(numbers!(u16).map(of_half)),
            Element::I64 => integers!(i64),
            Element::I32 => integers!(i32),
            Element::I16 => integers!(i16),
            Element::I8 => integers!(i8),
            Element::U64 => integers!(u64),
            Element::U32 => integers!(u32),
            Element::U16 => integers!(u16),
            Element::U8 => integers!(u8),
        }
    }
}

/// Converts a half-precision number to the double of equal value.
fn of_half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * power(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * power(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// Returns the text of a Python string literal without escapes, and the text after it.
fn string_literal(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Returns the end of a Python value: the first comma outside brackets and strings, if any.
fn value_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0u32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (depth == 0 && quote.is_none()).then_some(text.len())
}

/// Parses a Python tuple of integers.
fn integers(text: &str) -> Option<Vec<u64>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?.trim();
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    // Python 2 wrote long integers with an L.
    inner.split(',').map(|entry| entry.trim().trim_end_matches('L').parse().ok()).collect()
}

/// Fills `bytes`; the error is the number of bytes read, or the reader's error.
fn fill(reader: &mut (impl Read + ?Sized), bytes: &mut [u8]) -> Result<(), Result<usize, io::Error>> {
    let mut got = 0;
    while got < bytes.len() {
        match reader.read(&mut bytes[got..]) {
            Ok(0) => return Err(Ok(got)),
            Ok(n) => got += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Err(e)),
        }
    }
    Ok(())
}

/// Returns the header of an array in C order: version 1.0, padded to a multiple of 64 bytes.
pub fn header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let shape = Header { descr: String::new(), shape: shape.to_vec(), fortran: false }.shape();
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let before = 10;
    let total = (before + text.len() + 1).next_multiple_of(64);
    let len = u16::try_from(total - before).expect("few dimensions give a short header");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(total - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// Converts an array's elements to bytes in little-endian order.
pub fn data(values: &[f64]) -> Cow<'_, [u8]> {
    match cfg!(target_endian = "little") {
        true => bytemuck::cast_slice(values).into(),
        false => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Writer of an array of f64 in C order, in parts.
#[derive(Debug)]
pub struct NpyWriter<W: Write> {
    writer: W,
    shape: Vec<u64>,
    written: u64,
    len: u64,
}

impl<W: Write> NpyWriter<W> {
    /// Writes the header of an array of shape `[n]` or `[times, n]`.
    ///
    /// # Errors
    /// Errors of `writer`.
    ///
    /// # Panics
    /// If the number of elements exceeds 2^64.
    pub fn new(mut writer: W, shape: &[usize]) -> io::Result<Self> {
        let shape: Vec<u64> = shape.iter().map(|&k| k as u64).collect();
        let len = shape
            .iter()
            .try_fold(1u64, |len, &k| len.checked_mul(k))
            .expect("an array that fits into memory");
        writer.write_all(&header("<f8", &shape))?;
        Ok(Self { writer, shape, written: 0, len })
    }

    /// Writes the next elements, any number of them.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&mut self, values: &[f64]) -> io::Result<()> {
        self.written += values.len() as u64;
        self.writer.write_all(&data(values))
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    /// Errors of the writer.
    ///
    /// # Panics
    /// If the number of elements written differs from the shape's.
    pub fn finish(mut self) -> io::Result<W> {
        assert_eq!(self.written, self.len, "elements written to an array of shape {:?}", self.shape);
        self.writer.flush()?;
        Ok(self.writer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_precision_is_exact() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333251953125),
            (0x7bff, 65504.0),
            (0x0001, 5.960464477539063e-8),
            (0x0400, 6.103515625e-5),
            (0x7c00, f64::INFINITY),
        ] {
            assert_eq!(of_half(bits), value, "{bits:#x}");
        }
        assert!(of_half(0x7c01).is_nan() && of_half(0x8000).is_sign_negative());
    }

    fn array(descr: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
        [&header(descr, shape)[..], data].concat()
    }

    #[test]
    fn header_is_padded_and_reads_back() {
        for shape in [&[3][..], &[2, 3], &[], &[0], &[u64::MAX]] {
            let bytes = header("<f8", shape);
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(bytes.last(), Some(&b'\n'));
            assert_eq!(Header::read(&mut &bytes[..]).unwrap().shape, shape);
        }
    }

    #[test]
    fn every_numeric_type_of_either_byte_order() {
        macro_rules! check {
            ($($type:ty: $code:literal),*) => {$(
                for (order, bytes) in [
                    ('<', [3 as $type, 100 as $type].map(<$type>::to_le_bytes).concat()),
                    ('>', [3 as $type, 100 as $type].map(<$type>::to_be_bytes).concat()),
                ] {
                    let array = array(&format!("{order}{}", $code), &[2], &bytes);
                    assert_eq!(vector(&mut &array[..]).unwrap(), [3.0, 100.0]);
                }
            )*};
        }
        check!(f64: "f8", f32: "f4", i64: "i8", i32: "i4", i16: "i2", i8: "i1", u64: "u8", u32: "u4", u16: "u2", u8: "u1");
        assert_eq!(vector(&mut &array("|b1", &[2], &[0, 1])[..]).unwrap(), [0.0, 1.0]);
    }

    #[test]
    fn columns_of_either_order() {
        let data: Vec<u8> = [1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0].map(f64::to_le_bytes).concat();
        let c = array("<f8", &[3, 2], &data);
        assert_eq!(columns(&mut &c[..]).unwrap(), [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]);
        let place = c.windows(5).position(|w| w == b"False").unwrap();
        let mut fortran = c.clone();
        fortran[place..place + 5].copy_from_slice(b"True ");
        assert_eq!(columns(&mut &fortran[..]).unwrap(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        assert_eq!(columns(&mut &array("<f8", &[6], &data)[..]).unwrap(), [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]);
        for shape in [&[][..], &[6, 0], &[1, 2, 3], &[1, u64::MAX]] {
            let reason = columns(&mut &array("<f8", shape, &data)[..]).unwrap_err();
            assert!(reason.contains("shape [n] or [n, count]"), "{reason}");
        }
        assert!(columns(&mut &array("<f8", &[2, 2], &data)[..]).is_err(), "elements too many");
    }

    #[test]
    fn dense_matrices_lose_their_zeros() {
        let data: Vec<u8> = [0f64, 2.0, 0.0, 3.0, 0.0, 4.0].into_iter().flat_map(f64::to_le_bytes).collect();
        let rows = array("<f8", &[2, 3], &data);
        let read = matrix(&mut &rows[..]).unwrap();
        assert_eq!((read.row, read.column, read.value), (vec![0, 1, 1], vec![1, 0, 2], vec![2.0, 3.0, 4.0]));
        // In Fortran order these numbers are another matrix: [[0, 0, 0], [2, 3, 4]].
        let place = rows.windows(5).position(|w| w == b"False").unwrap();
        let mut columns = rows.clone();
        columns[place..place + 5].copy_from_slice(b"True ");
        let read = matrix(&mut &columns[..]).unwrap();
        assert_eq!((read.row, read.column), (vec![1, 1, 1], vec![0, 1, 2]));
        assert!(matrix(&mut &array("<f8", &[6], &data)[..]).unwrap_err().contains("expected a matrix"));
    }

    #[test]
    fn other_shapes_and_types_are_named() {
        let reason =
            |descr, shape: &[u64], data: &[u8]| vector(&mut &array(descr, shape, data)[..]).unwrap_err();
        let two = reason("<f8", &[1, 2], &[0; 16]);
        assert!(two.contains("(1, 2)") && two.contains("<f8"), "{two}");
        let complex = reason("<c16", &[1], &[0; 16]);
        assert!(complex.contains("(1,)") && complex.contains("<c16"), "{complex}");
        assert!(reason("<f8", &[2], &[0; 12]).contains("1 of 2"));
        assert!(reason("<f8", &[1], &[0; 12]).contains("more data"));
        assert!(reason("<f8", &[1 << 60], &[0; 12]).contains("ends after 1 of"));
        let record = "{'descr': [('a', '<f8'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,), }";
        assert_eq!(Header::parse(record.as_bytes()).unwrap().descr, "[('a', '<f8'), ('b', '<i4')]");
    }

    #[test]
    fn several_rows_are_one_array() {
        let mut writer = NpyWriter::new(Vec::new(), &[2, 3]).unwrap();
        writer.write(&[1.0, 2.0, 3.0]).unwrap();
        writer.write(&[4.0, 5.0]).unwrap();
        writer.write(&[6.0]).unwrap();
        let bytes = writer.finish().unwrap();
        let header = Header::read(&mut &bytes[..]).unwrap();
        assert_eq!(header.shape, [2, 3]);
        let mut values = Vec::new();
        header.floats(&mut &bytes[bytes.len() - 48..], |value| values.push(value)).unwrap();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    #[should_panic(expected = "array of shape [2]")]
    fn missing_values_are_a_broken_contract() {
        let mut writer = NpyWriter::new(Vec::new(), &[2]).unwrap();
        writer.write(&[1.0]).unwrap();
        let _ = writer.finish();
    }

    proptest! {
        #[test]
        fn vectors_come_back(values in prop::collection::vec(any::<f64>(), 0..300)) {
            let mut writer = NpyWriter::new(Vec::new(), &[values.len()]).unwrap();
            writer.write(&values).unwrap();
            let read = vector(&mut &writer.finish().unwrap()[..]).unwrap();
            let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&read), bits(&values));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,80}") {
            let _ = vector(&mut &bytes[..]);
            let _ = Header::parse(text.as_bytes());
            let _ = Header::parse(format!("{{'descr': {text}, 'shape': ({text}), }}").as_bytes());
            let _ = vector(&mut &[b"\x93NUMPY\x01\x00", &bytes[..]].concat()[..]);
        }

        #[test]
        fn a_damaged_file_is_read_or_refused(at in 0usize..144, byte in any::<u8>(), cut in 0usize..144) {
            let mut bytes = array("<f8", &[2], &[0; 16]);
            bytes[at] = byte;
            let _ = vector(&mut &bytes[..]);
            let _ = vector(&mut &bytes[..cut]);
        }
    }
}
