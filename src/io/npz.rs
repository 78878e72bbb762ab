//! SciPy's `.npz`: a zip archive of `.npy` members, as `scipy.sparse.save_npz` writes it.

use std::io::{BufReader, Seek, SeekFrom};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::npy::{Array, NpyHeader};
use super::text::expect_unpacked;
use super::write::write_in_blocks;
use super::*;
use crate::parallel::at_once;

/// Size from which members get 64-bit sizes, below the limit 2^32 − 1 of 32-bit sizes.
const LARGE: u64 = 1 << 31;

const STORED: CompressionMethod = CompressionMethod::Stored;
/// Compression of matrix members: deflate at level 1, which shrinks indices and text a lot.
const PACKED: CompressionMethod = CompressionMethod::Deflated;

/// Names of the members that a matrix archive can have.
const MATRIX: [&str; 8] = ["format", "shape", "indptr", "indices", "data", "row", "col", "_is_array"];

/// Reads a CSR, CSC or COO matrix of `scipy.sparse.save_npz`, compressed or not.
///
/// Members are `format`, `shape`, `data` (f8, f4 or integers), and the integers `indptr`, `indices`
/// or `row`, `col`. The second value holds a note if the matrix was converted to rows.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened. [`Error::File`], with the member, for all other
/// errors, including a member that no matrix has.
pub fn read_matrix(path: impl AsRef<Path>) -> Result<(Coo, Vec<String>)> {
    let path = path.as_ref();
    open_archive(path)?;
    let open = || File::open(path).map(BufReader::new).map_err(|e| e.to_string());
    let (matrix, format) = matrix(open).map_err(|reason| Error::file(path, reason))?;
    let converted = (format != "csr").then(|| {
        let format = format.to_ascii_uppercase();
        format!("{}: a {format} matrix, converted to rows", path.display())
    });
    Ok((matrix, converted.into_iter().collect()))
}

/// Opens a file of which any part can be read at any time.
///
/// Opening a pipe a second time would wait for a writer that may have ended.
fn open_archive(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(Error::io(path))?;
    match file.metadata().map_err(Error::io(path))?.file_type() {
        kind if kind.is_file() || kind.is_dir() => Ok(file),
        _ => fail(path, "is no regular file: an archive is not read in order; copy it to a file"),
    }
}

fn opened<R: Read + Seek>(reader: R) -> Result<ZipArchive<R>, String> {
    ZipArchive::new(reader).map_err(|e| format!("invalid .npz file: {e}; write it with numpy.savez"))
}

fn matrix<R: Read + Seek + Send>(
    open: impl Fn() -> Result<R, String> + Sync,
) -> Result<(Coo, String), String> {
    let mut archive = opened(open()?)?;
    let format = format(&mut archive)?;
    // Checked before the members, which differ between formats.
    if !["csr", "csc", "coo"].contains(&&format[..]) {
        return Err(format!(
            "matrix format {format} is not supported: expected CSR, CSC or COO; write save_npz(…, \
             matrix.tocsr())"
        ));
    }
    expect_members(&archive, &MATRIX, "a matrix")?;
    expect_length(&mut archive, "shape", 2, "a matrix has")?;
    let shape = integers(&mut archive, "shape", |_, k| Ok(k))?;
    let &[rows, columns] = &shape[..] else {
        return Err("invalid shape: expected 2 dimensions".to_owned());
    };
    let (rows, columns) = expect_size(rows, columns, MOST_STATES).map_err(|why| format!("shape: {why}"))?;
    // Lengths in headers are compared before anything is unpacked.
    let listed = if format == "coo" { "row" } else { "indices" };
    if let (Ok(entries), Ok(data)) = (length(&mut archive, listed), length(&mut archive, "data")) {
        if entries != data {
            return Err(format!("data: {data} numbers, but {listed} has {entries}"));
        }
        expect_unpacked(data.saturating_mul(20).saturating_add(8 * rows as u64), || {
            format!("a matrix of {rows} rows and {data} entries")
        })
        .map_err(|e| e.to_string())?;
    }
    let places = || match &format[..] {
        "csr" => compressed(&mut archive, ["row", "column"], [rows, columns]),
        "csc" => {
            let (column, row) = compressed(&mut archive, ["column", "row"], [columns, rows])?;
            Ok((row, column))
        }
        _ => {
            let [row, column] = [length(&mut archive, "row")?, length(&mut archive, "col")?];
            if row != column {
                return Err(format!("row: {row} numbers, but col has {column}"));
            }
            let row = indices(&mut archive, "row", "row", rows)?;
            let column = indices(&mut archive, "col", "column", columns)?;
            Ok((row, column))
        }
    };
    // Most files are compressed: one thread unpacks the indices and another the values.
    let values = || read_member(&mut opened(open()?)?, "data", |header, member| header.vector(member));
    let (places, values) = join(places, values);
    let ((row, column), value) = (places?, values?);
    if value.len() != column.len() {
        return Err(format!("data: {} numbers for {} entries", value.len(), column.len()));
    }
    Ok((Coo { rows, columns, row, column, value }, format))
}

/// Reads the indices of a CSR or CSC matrix; `names` is ["row", "column"] for CSR.
///
/// Returns for each entry its line (CSR: row) and its index within that line (CSR: column).
fn compressed(
    archive: &mut ZipArchive<impl Read + Seek>,
    names: [&str; 2],
    [lines, across]: [usize; 2],
) -> Result<(Vec<u32>, Vec<u32>), String> {
    let line = names[0];
    expect_length(archive, "indptr", lines as u64 + 1, &format!("{lines} {line}s need"))?;
    let indptr = integers(archive, "indptr", |_, at| Ok(at))?;
    let minor = indices(archive, "indices", names[1], across)?;
    if indptr[0] != 0 {
        return Err(format!("indptr: invalid first number {}: expected 0", indptr[0]));
    }
    if let Some(i) = (0..lines).find(|&i| indptr[i] > indptr[i + 1]) {
        return Err(format!(
            "indptr: {} after {} in {line} {i}: expected ascending numbers",
            indptr[i + 1],
            indptr[i]
        ));
    }
    if indptr[lines] != minor.len() as i64 {
        return Err(format!("indptr: ends with {}, but indices has {} numbers", indptr[lines], minor.len()));
    }
    let mut major = Vec::with_capacity(minor.len());
    for i in 0..lines {
        major.resize(indptr[i + 1] as usize, i as u32);
    }
    Ok((major, minor))
}

/// Reads row or column indices, which are below `count`.
fn indices(
    archive: &mut ZipArchive<impl Read + Seek>,
    member: &str,
    what: &str,
    count: usize,
) -> Result<Vec<u32>, String> {
    integers(archive, member, |k, j| match u32::try_from(j) {
        Ok(index) if (index as usize) < count => Ok(index),
        _ => Err(format!("{what} {j} of entry {k} is out of range: the matrix has {count} {what}s")),
    })
}

/// Returns the names of an archive's members.
fn names_of(archive: &ZipArchive<impl Read + Seek>) -> Vec<String> {
    archive.file_names().flatten().map(|name| name.trim_end_matches(".npy").to_string()).collect()
}

/// Returns an error for an unknown member.
fn expect_members(archive: &ZipArchive<impl Read + Seek>, known: &[&str], what: &str) -> Result<(), String> {
    match names_of(archive).iter().find(|name| !known.contains(&&name[..])) {
        Some(name) => Err(format!(
            "unknown member '{}'; {what} has {}: rename or remove it",
            name.chars().take(60).collect::<String>().escape_debug(),
            known.join(", ")
        )),
        None => Ok(()),
    }
}

/// Returns the kind of sparse matrix: `csr`, `csc`, ….
fn format(archive: &mut ZipArchive<impl Read + Seek>) -> Result<String, String> {
    let names = names_of(archive);
    let mut member = archive.by_name("format.npy").map_err(|_| {
        format!(
            "no member 'format', only {}; write a chain with scipy.sparse.save_npz",
            if names.is_empty() { "nothing".into() } else { names.join(", ") }
        )
    })?;
    let wrong = |reason: String| format!("format: {reason}");
    let header = NpyHeader::read(&mut member).map_err(wrong)?;
    if header.shape.iter().any(|&k| k != 1) {
        return Err(wrong(format!("an array of shape {}: expected one string", header.shape())));
    }
    let mut bytes = Vec::new();
    member.by_ref().take(64).read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
    // Bytes (`|S3`) or UTF-32 (`<U3`), which has zero bytes within ASCII text.
    bytes.retain(|&byte| byte != 0);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads an array of integers from an archive; `of` converts each element from index and value.
fn integers<T>(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
    of: impl Fn(usize, i64) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    read_member(archive, name, |header, member| {
        let mut values = Vec::new();
        header.integers(member, |value| {
            npy::grow(&mut values, 1)?;
            values.push(of(values.len(), value)?);
            Ok(())
        })?;
        Ok(values)
    })
}

/// Returns the length of a 1-D member from its header.
fn length(archive: &mut ZipArchive<impl Read + Seek>, name: &str) -> Result<u64, String> {
    read_member(archive, name, |header, _| Ok(header.shape[0]))
}

/// Checks the length of a 1-D member in its header, before anything is unpacked.
fn expect_length(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
    needed: u64,
    who: &str,
) -> Result<(), String> {
    let given = length(archive, name)?;
    if given == needed { Ok(()) } else { Err(format!("{name}: {given} numbers; {who} {needed}")) }
}

/// Opens a 1-D member and passes it to `read` with its header.
fn read_member<T>(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
    read: impl FnOnce(&NpyHeader, &mut dyn Read) -> Result<T, String>,
) -> Result<T, String> {
    read_any(archive, name, |header, member| match header.shape[..] {
        [_] => read(header, member),
        _ => Err(format!("an array of shape {}: expected one dimension", header.shape())),
    })
}

/// Opens a member of any shape; an error names it.
fn read_any<T>(
    archive: &mut ZipArchive<impl Read + Seek>,
    name: &str,
    read: impl FnOnce(&NpyHeader, &mut dyn Read) -> Result<T, String>,
) -> Result<T, String> {
    let wrong = |reason: String| format!("{name}: {reason}");
    let mut member =
        archive.by_name(&format!("{name}.npy")).map_err(|e| wrong(format!("cannot be opened: {e}")))?;
    let header = NpyHeader::read(&mut member).map_err(wrong)?;
    read(&header, &mut member).map_err(wrong)
}

/// Returns the names of the members of a file.
pub(super) fn members(path: &Path) -> Result<Vec<String>> {
    let archive = opened(BufReader::new(open_archive(path)?)).map_err(|reason| Error::file(path, reason))?;
    Ok(names_of(&archive))
}

/// Reads arrays of numbers by name: all of `needed`, and the existing ones of `wanted`.
///
/// Other members are an error. `fits` checks the shapes before anything is unpacked.
pub(super) fn read_arrays(
    path: &Path,
    needed: &[&str],
    wanted: &[&str],
    fits: impl FnOnce(&[Option<Vec<usize>>]) -> Result<(), String>,
) -> Result<Vec<Option<Array>>> {
    let fail = |reason: String| Error::file(path, reason);
    let open = || opened(BufReader::new(open_archive(path)?)).map_err(fail);
    let mut archive = open()?;
    let (names, known) = (names_of(&archive), [needed, wanted].concat());
    if let Some(name) = needed.iter().find(|needed| !names.iter().any(|name| name == *needed)) {
        let (names, needed) = (names.join(", "), needed.join(", "));
        return Err(fail(format!("no member '{name}', only {names}; expected {needed}")));
    }
    expect_members(&archive, &known, "it").map_err(fail)?;
    let there = |name: &str| names.iter().any(|n| n == name);
    let (mut shapes, mut bytes) = (Vec::new(), 0u64);
    for name in &known {
        let shape = |header: &NpyHeader, _: &mut dyn Read| Ok((header.len()?, header.shape.clone()));
        shapes.push(match there(name) {
            true => {
                let (len, shape) = read_any(&mut archive, name, shape).map_err(fail)?;
                bytes = bytes.saturating_add(len.saturating_mul(8));
                Some(shape.iter().map(|&k| k as usize).collect())
            }
            false => None,
        });
    }
    fits(&shapes).map_err(fail)?;
    expect_unpacked(bytes, || format!("the arrays of {}", path.display()))?;
    // One thread per array: many files are compressed.
    let arrays = at_once(known, |name| match there(name) {
        true => {
            let read = |header: &NpyHeader, member: &mut dyn Read| Array::read(header, member);
            read_any(&mut open()?, name, read).map(Some).map_err(fail)
        }
        false => Ok(None),
    });
    arrays.into_iter().collect()
}

/// Target of an archive: a writer that can seek back to complete member headers.
pub trait WriteSeek: Write + Seek {}

impl<T: Write + Seek> WriteSeek for T {}

/// Writes arrays of f64 for `numpy.load`: name, shape and elements.
///
/// Numbers are not compressed, as in `numpy.savez`: compression takes seconds and rarely saves
/// space.
pub fn write_arrays(writer: &mut dyn WriteSeek, arrays: &[(&str, Vec<u64>, &[f64])]) -> io::Result<()> {
    let mut archive = ZipWriter::new(FirstError::new(writer));
    for (name, shape, values) in arrays {
        start(&mut archive, name, "<f8", shape, 8 * values.len() as u64, STORED)?;
        archive.write_all(&npy::data(values))?;
    }
    archive.finish()?.flush()
}

/// Writes a chain's rates R for `scipy.sparse.load_npz`.
///
/// The matrix is in CSR format with ascending columns, lightly compressed. Indices have 32 bits if
/// that suffices. Every row is requested three times.
pub fn write_chain(writer: &mut dyn WriteSeek, chain: &dyn Transitions) -> io::Result<()> {
    write_csr(writer, chain.states(), &|i, row| chain.outgoing(i, row))
}

/// Writes a square matrix for `scipy.sparse.load_npz`.
pub fn write_matrix(writer: &mut dyn WriteSeek, matrix: &CsrMatrix) -> io::Result<()> {
    assert_eq!(matrix.rows(), matrix.columns(), "square matrices are written");
    write_csr(writer, matrix.rows(), &|i, row| {
        let (columns, values) = matrix.row(i);
        row.extend(columns.iter().copied().zip(values.iter().copied()));
    })
}

/// Writer that returns only the first error, and success afterwards.
///
/// An abandoned archive writes its end when it is dropped. Without this wrapper, that would print
/// another error to stderr.
struct FirstError<'a> {
    inner: &'a mut dyn WriteSeek,
    failed: bool,
    /// Offset in the output of the next byte to write.
    at: u64,
}

impl<'a> FirstError<'a> {
    fn new(inner: &'a mut dyn WriteSeek) -> Self {
        Self { inner, failed: false, at: 0 }
    }
}

impl Write for FirstError<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = if self.failed { Ok(bytes.len()) } else { self.inner.write(bytes) };
        // Interrupted writes are retried.
        self.failed |= written.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted);
        self.at += written.as_ref().map_or(0, |&count| count as u64);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = if self.failed { Ok(()) } else { self.inner.flush() };
        self.failed |= flushed.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted);
        flushed
    }
}

impl Seek for FirstError<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match (self.failed, to) {
            (false, to) => self.inner.seek(to),
            (true, SeekFrom::Start(place)) => Ok(place),
            (true, SeekFrom::Current(by) | SeekFrom::End(by)) => Ok(self.at.saturating_add_signed(by)),
        };
        self.failed |= place.is_err();
        self.at = place.as_ref().map_or(self.at, |&place| place);
        place
    }
}

/// Callback that appends the entries of a row.
type RowOf<'a> = &'a (dyn Fn(usize, &mut Vec<(u32, f64)>) + Sync);

fn write_csr(writer: &mut dyn WriteSeek, n: usize, row_of: RowOf<'_>) -> io::Result<()> {
    let mut indptr = vec![0i64; n + 1];
    indptr[1..].par_iter_mut().enumerate().for_each_init(Vec::new, |row, (state, len)| {
        row.clear();
        row_of(state, row);
        *len = row.len() as i64;
    });
    for i in 0..n {
        indptr[i + 1] += indptr[i];
    }
    let nnz = indptr[n] as u64;
    let wide = nnz.max(n as u64) > i32::MAX as u64;
    let (index, index_size) = if wide { ("<i8", 8) } else { ("<i4", 4) };
    let push_index = |bytes: &mut Vec<u8>, index: u64| {
        bytes.extend_from_slice(&index.to_le_bytes()[..index_size]);
    };

    let mut archive = ZipWriter::new(FirstError::new(writer));
    start(&mut archive, "indices", index, &[nnz], nnz * index_size as u64, PACKED)?;
    write_rows(&mut archive, n, row_of, |bytes, &(target, _)| {
        push_index(bytes, u64::from(target));
    })?;
    start(&mut archive, "indptr", index, &[n as u64 + 1], (n as u64 + 1) * index_size as u64, PACKED)?;
    write_in_blocks(&mut archive, n + 1, |states, bytes| {
        indptr[states].iter().for_each(|&at| push_index(bytes, at as u64));
    })?;
    start(&mut archive, "format", "|S3", &[], 3, PACKED)?;
    archive.write_all(b"csr")?;
    start(&mut archive, "shape", "<i8", &[2], 16, PACKED)?;
    archive.write_all(&[(n as u64).to_le_bytes(); 2].concat())?;
    start(&mut archive, "data", "<f8", &[nnz], nnz * 8, PACKED)?;
    write_rows(&mut archive, n, row_of, |bytes, &(_, rate)| {
        bytes.extend_from_slice(&rate.to_le_bytes());
    })?;
    archive.finish()?.flush()
}

fn start(
    archive: &mut ZipWriter<FirstError<'_>>,
    name: &str,
    descr: &str,
    shape: &[u64],
    bytes: u64,
    method: CompressionMethod,
) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(method)
        .compression_level((method == CompressionMethod::Deflated).then_some(1))
        .large_file(bytes >= LARGE);
    archive.start_file(format!("{name}.npy"), options)?;
    archive.write_all(&npy::header(descr, shape))
}

fn write_rows(
    writer: &mut dyn Write,
    n: usize,
    row_of: RowOf<'_>,
    push: impl Fn(&mut Vec<u8>, &(u32, f64)) + Sync,
) -> io::Result<()> {
    write_in_blocks(writer, n, |states, bytes| {
        let mut row = Vec::new();
        for state in states {
            row.clear();
            row_of(state, &mut row);
            row.iter().for_each(|entry| push(bytes, entry));
        }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Cursor;

    use super::*;

    /// Member of an archive: (name, element type, shape, data).
    type ArchiveMember<'a> = (&'a str, &'a str, &'a [u64], Vec<u8>);

    pub(in crate::io) fn archive(members: &[ArchiveMember<'_>], method: CompressionMethod) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, descr, shape, data) in members {
            let options = SimpleFileOptions::default().compression_method(method);
            archive.start_file(format!("{name}.npy"), options).unwrap();
            archive.write_all(&npy::header(descr, shape)).unwrap();
            archive.write_all(data).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    fn longs(values: &[i64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// Members of the matrix [[0, 2], [3, 0]].
    fn members() -> Vec<ArchiveMember<'static>> {
        vec![
            ("indices", "<i8", &[2], longs(&[1, 0])),
            ("indptr", "<i8", &[3], longs(&[0, 1, 2])),
            ("format", "|S3", &[], b"csr".to_vec()),
            ("shape", "<i8", &[2], longs(&[2, 2])),
            ("data", "<f4", &[2], [2f32, 3.0].map(f32::to_le_bytes).concat()),
        ]
    }

    fn matrix(bytes: Cursor<Vec<u8>>) -> Result<(Coo, String), String> {
        super::matrix(|| Ok(bytes.clone()))
    }

    fn reason(change: impl Fn(&mut Vec<ArchiveMember<'static>>)) -> String {
        let mut members = members();
        change(&mut members);
        matrix(Cursor::new(archive(&members, CompressionMethod::Stored))).unwrap_err()
    }

    #[test]
    fn stored_and_compressed() {
        let mut unicode = members();
        let format = "csr".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        unicode[2] = ("format", "<U3", &[], format);
        for (members, method) in [
            (members(), CompressionMethod::Stored),
            (members(), CompressionMethod::Deflated),
            (unicode, CompressionMethod::Stored),
        ] {
            let (matrix, _) = matrix(Cursor::new(archive(&members, method))).unwrap();
            assert_eq!((matrix.rows, matrix.columns), (2, 2));
            assert_eq!((&matrix.row[..], &matrix.column[..]), (&[0, 1][..], &[1, 0][..]));
            assert_eq!(matrix.value, [2.0, 3.0]);
        }
    }

    #[test]
    fn members_that_do_not_fit_are_named() {
        type ArchiveEdit = fn(&mut Vec<ArchiveMember<'static>>);
        let cases: [(ArchiveEdit, &str); 15] = [
            (
                |m| m.push(("rhs", "<f8", &[1], vec![0; 8])),
                "unknown member 'rhs'; a matrix has format, shape",
            ),
            // A header without data, which is never unpacked.
            (|m| m[4] = ("data", "<f8", &[400_000_000], vec![]), "data: 400000000 numbers, but indices has"),
            (|m| m[0].3 = longs(&[1, 2]), "indices: column 2 of entry 1"),
            (|m| m[0].3 = longs(&[-1, 0]), "indices: column -1"),
            (|m| m[1].3 = longs(&[0, 2, 1]), "indptr: 1 after 2 in row 1"),
            (|m| m[1].3 = longs(&[1, 1, 2]), "indptr: invalid first number 1"),
            (|m| m[1].3 = longs(&[0, 1, 3]), "indptr: ends with 3"),
            (|m| m[3].3 = longs(&[3, 2]), "3 rows need 4"),
            (|m| m[3].3 = longs(&[-2, 2]), "-2 rows"),
            (|m| m[4] = ("data", "<f8", &[1], vec![0; 8]), "data: 1 numbers"),
            (|m| m[4] = ("data", "<c16", &[2], vec![0; 32]), "<c16"),
            (|m| m[0] = ("indices", "<f8", &[2], vec![0; 16]), "expected integers"),
            // Equal lengths in the headers, but no member has as many numbers.
            (|m| (m[0].2, m[4].2) = (&[1 << 20], &[1 << 20]), "ends after 2 of"),
            (|m| drop(m.remove(4)), "data: "),
            (
                |m| drop(m.remove(2)),
                "only indices, indptr, shape, data; write a chain with scipy.sparse.save_npz",
            ),
        ];
        for (change, words) in cases {
            let reason = reason(change);
            assert!(reason.contains(words), "{words}: {reason}");
        }
    }
}
