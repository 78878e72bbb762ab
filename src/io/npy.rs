//! NumPy's `.npy`: one array with its element type and shape.
//!
//! Format versions 1.0 to 3.0 are read, 1.0 is written.

use std::borrow::Cow;
use std::io::BufReader;

use super::*;
use crate::error::Size;

/// Longest accepted header in bytes; that of a plain array has less than 200.
const LONGEST_HEADER: usize = 1 << 16;

/// Bytes read at a time.
const BLOCK: usize = 1 << 16;

/// Largest number of vectors in one array.
const MOST_COLUMNS: u64 = 1 << 16;

/// Opens a file and passes it to `read`; an error of `read` gets the path.
fn from_file<T>(path: &Path, read: impl FnOnce(&mut BufReader<File>) -> Result<T, String>) -> Result<T> {
    let file = File::open(path).map_err(Error::io(path))?;
    read(&mut BufReader::new(file)).map_err(|reason| Error::file(path, reason))
}

/// Reads a vector: a 1-D array of f8, f4, f2, integers or booleans, of either byte order.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened. [`Error::File`] for another shape or element type,
/// which the message names, and for a file of another length than its header requires.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Vec<f64>> {
    from_file(path.as_ref(), vector)
}

fn vector(reader: &mut (impl Read + ?Sized)) -> Result<Vec<f64>, String> {
    let header = NpyHeader::read(reader)?;
    match header.shape[..] {
        [_] => header.vector(reader),
        _ => Err(header.unfit("expected a vector, with one dimension")),
    }
}

/// Reads vectors of one length, one per column of an array of shape `[n, count]`.
///
/// A 1-D array is one vector. Fails like [`read_vector`].
pub fn read_columns(path: impl AsRef<Path>) -> Result<Vec<Vec<f64>>> {
    from_file(path.as_ref(), columns)
}

fn columns(reader: &mut (impl Read + ?Sized)) -> Result<Vec<Vec<f64>>, String> {
    let header = NpyHeader::read(reader)?;
    let count = match header.shape[..] {
        [_] => 1,
        [_, count] if (1..=MOST_COLUMNS).contains(&count) => count as usize,
        _ => {
            return Err(header.unfit(&format!(
                "expected right-hand sides of shape [n] or [n, count], with a count of 1 to \
                 {MOST_COLUMNS}"
            )));
        }
    };
    let Array { values, .. } = Array::read(&header, reader)?;
    Ok(match count {
        1 => vec![values],
        _ => (0..count).map(|k| values.iter().skip(k).step_by(count).copied().collect()).collect(),
    })
}

/// An array with its shape, in C order.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// Elements; the last index varies fastest.
    pub values: Vec<f64>,
}

impl Array {
    pub(super) fn vector(values: Vec<f64>) -> Self {
        Self { shape: vec![values.len()], values }
    }

    pub(super) fn from_file(path: &Path) -> Result<Self> {
        from_file(path, |reader| Self::read(&NpyHeader::read(reader)?, reader))
    }

    /// Reads the elements after a header and converts them to C order.
    pub(super) fn read(header: &NpyHeader, reader: &mut (impl Read + ?Sized)) -> Result<Self, String> {
        let mut values = header.vector(reader)?;
        let shape: Vec<usize> = header.shape.iter().map(|&k| k as usize).collect();
        if header.fortran && shape.iter().filter(|&&k| k != 1).count() > 1 {
            // Fortran order: the first index varies fastest.
            let mut steps = vec![1; shape.len()];
            (1..shape.len()).for_each(|k| steps[k] = steps[k - 1] * shape[k - 1]);
            let place = |mut at: usize| {
                let digits = shape.iter().zip(&steps).rev().map(|(&len, &step)| {
                    let digit = at % len;
                    at /= len;
                    digit * step
                });
                digits.sum::<usize>()
            };
            values = (0..values.len()).map(|at| values[place(at)]).collect();
        }
        Ok(Self { shape, values })
    }
}

/// Reads the nonzero elements of a 2-D array as a matrix.
///
/// The second value is a note for the user: the array was dense. Fails like [`read_vector`], and
/// with [`Error::File`] for more than 2³² − 2 rows or columns.
pub fn read_matrix(path: impl AsRef<Path>) -> Result<(Coo, Vec<String>)> {
    let path = path.as_ref();
    let matrix = from_file(path, matrix)?;
    let Coo { rows, columns, .. } = matrix;
    let note = format!(
        "{}: a dense array of shape ({rows}, {columns}), converted to a sparse one of {} entries",
        path.display(),
        matrix.value.len()
    );
    Ok((matrix, vec![note]))
}

fn matrix(reader: &mut (impl Read + ?Sized)) -> Result<Coo, String> {
    let header = NpyHeader::read(reader)?;
    let &[rows, columns] = &header.shape[..] else {
        return Err(format!("an array of shape {}: expected a matrix, with two dimensions", header.shape()));
    };
    let (rows, columns) = expect_size(rows, columns, MOST_STATES)?;
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

/// Header of an `.npy` file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NpyHeader {
    /// NumPy's name of the element type, or the text of another description.
    pub(crate) descr: String,
    pub(crate) shape: Vec<u64>,
    /// True for Fortran order: the first index varies fastest.
    pub(crate) fortran: bool,
}

impl NpyHeader {
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

    /// Parses `{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }`, with keys in any order.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim().strip_prefix('{')?.strip_suffix('}')?;
        let value = |key: &str| {
            let quoted =
                ['\'', '"'].into_iter().find_map(|quote| text.split_once(&format!("{quote}{key}{quote}")));
            Some(quoted?.1.trim_start().strip_prefix(':')?.trim_start())
        };
        let descr = value("descr")?;
        let descr = match descr.chars().next().filter(|c| matches!(c, '\'' | '"')) {
            Some(quote) => descr[1..].split_once(quote)?.0,
            // A record, which is not supported.
            None => &descr[..descr.rfind(']')? + 1],
        };
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        let shape = shape.trim().trim_end_matches(',');
        // Python 2 wrote long integers with an L.
        let length = |entry: &str| entry.trim().trim_end_matches('L').parse().ok();
        let shape = if shape.is_empty() { Some(Vec::new()) } else { shape.split(',').map(length).collect() };
        let fortran = value("fortran_order").is_some_and(|value| value.starts_with("True"));
        Some(Self { descr: descr.to_owned(), shape: shape?, fortran })
    }

    /// Returns the error about an array of another shape or type.
    fn unfit(&self, expected: &str) -> String {
        format!("an array of shape {} and type {}: {expected}", self.shape(), self.descr)
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

    /// Returns kind (`f`, `i` or `u`) and bytes of an element, and true for big-endian order.
    fn element(&self) -> Result<(u8, usize, bool), String> {
        let (order, name) = self.descr.split_at_checked(1).unwrap_or_default();
        let big = match order {
            ">" => Some(true),
            "<" | "|" => Some(false),
            "=" => Some(cfg!(target_endian = "big")),
            _ => None,
        };
        let element = match *name.as_bytes() {
            [b'b', b'1'] => Some((b'u', b'1')),
            [kind @ b'f', bytes @ (b'2' | b'4' | b'8')]
            | [kind @ (b'i' | b'u'), bytes @ (b'1' | b'2' | b'4' | b'8')] => Some((kind, bytes)),
            _ => None,
        };
        let known = element.zip(big).map(|((kind, bytes), big)| (kind, usize::from(bytes - b'0'), big));
        known.ok_or_else(|| self.unfit("expected the type f8, f4, f2, an integer type or bool"))
    }

    /// Reads all elements as f64, rounding integers beyond 2^53, and checks that nothing follows.
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

    /// Reads all elements into a vector that grows with them; an error reports that memory ran out.
    pub(crate) fn vector(&self, reader: &mut (impl Read + ?Sized)) -> Result<Vec<f64>, String> {
        let mut values = Vec::new();
        self.blocks(&mut &mut *reader, false, &mut |block| {
            grow(&mut values, block.floats.len())?;
            values.extend_from_slice(&block.floats);
            Ok(())
        })?;
        Ok(values)
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
        let (kind, size, big) = self.element()?;
        if integers && kind == b'f' {
            return Err(format!("an array of type {}: expected integers", self.descr));
        }
        let (len, mut block) = (self.len()?, ElementBlock::default());
        let (mut buffer, mut left) = (vec![0; BLOCK], len);
        while left > 0 {
            let count = left.min((BLOCK / size) as u64) as usize;
            let bytes = &mut buffer[..count * size];
            fill(reader, bytes).map_err(|got| match got {
                Ok(got) => format!("ends after {} of {len} elements", len - left + (got / size) as u64),
                Err(e) => format!("element {} of {len}: {e}", len - left),
            })?;
            block.decode((kind, size), big, integers, bytes);
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
type Take<'a> = &'a mut dyn FnMut(&ElementBlock) -> Result<(), String>;

/// Block of consecutive elements, as floats or as integers.
#[derive(Default)]
struct ElementBlock {
    floats: Vec<f64>,
    integers: Vec<i64>,
}

impl ElementBlock {
    fn decode(&mut self, element: (u8, usize), big: bool, integers: bool, bytes: &[u8]) {
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
            (b'f', 8) => self.floats.extend(numbers!(f64)),
            (b'f', 4) => self.floats.extend(numbers!(f32).map(f64::from)),
            (b'f', _) => self.floats.extend(numbers!(u16).map(|bits| half::f16::from_bits(bits).to_f64())),
            (b'i', 8) => integers!(i64),
            (b'i', 4) => integers!(i32),
            (b'i', 2) => integers!(i16),
            (b'i', _) => integers!(i8),
            (_, 8) => integers!(u64),
            (_, 4) => integers!(u32),
            (_, 2) => integers!(u16),
            _ => integers!(u8),
        }
    }
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
    let shape = NpyHeader { descr: String::new(), shape: shape.to_vec(), fortran: false }.shape();
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
    /// # Panics
    /// If the number of elements exceeds 2^64.
    pub fn new(mut writer: W, shape: &[usize]) -> io::Result<Self> {
        let shape: Vec<u64> = shape.iter().map(|&k| k as u64).collect();
        let len = shape.iter().try_fold(1u64, |len, &k| len.checked_mul(k));
        let len = len.expect("an array that fits into memory");
        writer.write_all(&header("<f8", &shape))?;
        Ok(Self { writer, shape, written: 0, len })
    }

    /// Writes the next elements, any number of them.
    pub fn write(&mut self, values: &[f64]) -> io::Result<()> {
        self.written += values.len() as u64;
        self.writer.write_all(&data(values))
    }

    /// Flushes and returns the writer.
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
    use super::*;

    fn array(descr: &str, shape: &[u64], data: &[u8]) -> Vec<u8> {
        [&header(descr, shape)[..], data].concat()
    }

    #[test]
    fn header_is_padded_and_reads_back() {
        for shape in [&[3][..], &[2, 3], &[], &[0], &[u64::MAX]] {
            let bytes = header("<f8", shape);
            assert_eq!(bytes.len() % 64, 0);
            assert_eq!(bytes.last(), Some(&b'\n'));
            assert_eq!(NpyHeader::read(&mut &bytes[..]).unwrap().shape, shape);
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
        let halves = array(">f2", &[2], &[0x35, 0x55, 0xc0, 0x00]);
        assert_eq!(vector(&mut &halves[..]).unwrap(), [0.333251953125, -2.0]);
    }

    /// Array in Fortran order.
    fn fortran(c: &[u8]) -> Vec<u8> {
        let place = c.windows(5).position(|w| w == b"False").unwrap();
        let mut bytes = c.to_vec();
        bytes[place..place + 5].copy_from_slice(b"True ");
        bytes
    }

    #[test]
    fn columns_of_either_order() {
        let data = data(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let read = |shape: &[u64]| columns(&mut &array("<f8", shape, &data)[..]);
        assert_eq!(read(&[3, 2]).unwrap(), [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]);
        let turned = fortran(&array("<f8", &[3, 2], &data));
        assert_eq!(columns(&mut &turned[..]).unwrap(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        assert_eq!(read(&[6]).unwrap(), [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]);
        for shape in [&[][..], &[6, 0], &[1, 2, 3], &[1, u64::MAX]] {
            let reason = read(shape).unwrap_err();
            assert!(reason.contains("shape [n] or [n, count]"), "{reason}");
        }
        assert!(read(&[2, 2]).is_err(), "elements too many");
    }

    #[test]
    fn three_dimensions_of_fortran_order() {
        // Contents of numpy.asfortranarray(numpy.arange(24.).reshape(2, 3, 4)), by its definition.
        let (a, b, c) = (2, 3, 4);
        let mut stored = vec![0.0; a * b * c];
        for at in 0..a * b * c {
            let (i, j, k) = (at / (b * c), at / c % b, at % c);
            stored[i + a * (j + b * k)] = at as f64;
        }
        let header = NpyHeader { descr: "<f8".into(), shape: vec![2, 3, 4], fortran: true };
        let array = Array::read(&header, &mut &data(&stored)[..]).unwrap();
        assert_eq!((array.shape, array.values), (vec![a, b, c], (0..24).map(f64::from).collect()));
    }

    #[test]
    fn dense_matrices_lose_their_zeros() {
        let data = data(&[0.0, 2.0, 0.0, 3.0, 0.0, 4.0]);
        let rows = array("<f8", &[2, 3], &data);
        let read = matrix(&mut &rows[..]).unwrap();
        assert_eq!((read.row, read.column, read.value), (vec![0, 1, 1], vec![1, 0, 2], vec![2.0, 3.0, 4.0]));
        // In Fortran order these numbers are another matrix: [[0, 0, 0], [2, 3, 4]].
        let read = matrix(&mut &fortran(&rows)[..]).unwrap();
        assert_eq!((read.row, read.column), (vec![1, 1, 1], vec![0, 1, 2]));
        assert!(matrix(&mut &array("<f8", &[6], &data)[..]).unwrap_err().contains("expected a matrix"));
    }

    #[test]
    fn other_shapes_and_types_are_named() {
        for (descr, shape, bytes, words) in [
            ("<f8", &[1, 2][..], 16, "shape (1, 2) and type <f8"),
            ("<c16", &[1], 16, "shape (1,) and type <c16"),
            ("<f8", &[2], 12, "1 of 2"),
            ("<f8", &[1], 12, "more data"),
            ("<f8", &[1 << 60], 12, "ends after 1 of"),
        ] {
            let reason = vector(&mut &array(descr, shape, &vec![0; bytes])[..]).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
        let record = "{'descr': [('a', '<f8'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,), }";
        assert_eq!(NpyHeader::parse(record.as_bytes()).unwrap().descr, "[('a', '<f8'), ('b', '<i4')]");
    }

    #[test]
    fn rows_are_written_as_one_array() {
        let mut writer = NpyWriter::new(Vec::new(), &[2, 3]).unwrap();
        writer.write(&[1.0, 2.0, 3.0]).unwrap();
        writer.write(&[4.0, 5.0]).unwrap();
        writer.write(&[6.0]).unwrap();
        let bytes = writer.finish().unwrap();
        assert_eq!(columns(&mut &bytes[..]).unwrap(), [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    }

    #[test]
    #[should_panic(expected = "array of shape [2]")]
    fn an_incomplete_array_panics() {
        let mut writer = NpyWriter::new(Vec::new(), &[2]).unwrap();
        writer.write(&[1.0]).unwrap();
        let _ = writer.finish();
    }
}
