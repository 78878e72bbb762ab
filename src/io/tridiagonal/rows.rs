//! A rank's rows of a system in a file, read at their offset if the format allows it.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use super::{Array, Order, extension, misshapen, read, read_array, size};
use crate::io::npy::Header;
use crate::io::npz;
use crate::tridiagonal::{Rows, Span};
use crate::{Error, Result};

/// Rows of systems from a file, with the shape of the unknowns of all rows.
#[derive(Debug, Clone)]
pub struct RowsFile {
    /// The rows.
    pub rows: Rows,
    /// Shape of b.
    pub shape: Vec<usize>,
    /// Order of the numbers in that shape.
    pub order: Order,
    /// True if the file has a right-hand side; otherwise it is 1 in every row.
    pub has_b: bool,
    /// File that had to be read completely to get these rows, if any.
    pub through: Option<String>,
}

/// An array in a file or in memory.
enum Source<'p> {
    Stored { path: &'p Path, at: u64, header: Header },
    Read(Array),
}

impl Source<'_> {
    fn shape(&self) -> Vec<usize> {
        match self {
            Self::Stored { header, .. } => header.shape.iter().map(|&k| k as usize).collect(),
            Self::Read(array) => array.shape.clone(),
        }
    }

    fn part(&self, range: Range<usize>) -> Result<Vec<f64>> {
        match self {
            Self::Read(array) => Ok(array.values[range].to_vec()),
            Self::Stored { path, at, header } => {
                let fail = |reason| Error::File { path: path.to_path_buf(), reason };
                let io = |source| Error::Io { path: path.to_path_buf(), source };
                let bytes = header.element_bytes().map_err(fail)?;
                let mut file = File::open(path).map_err(io)?;
                file.seek(SeekFrom::Start(at + bytes * range.start as u64)).map_err(io)?;
                header.some(&mut BufReader::new(file), range.len() as u64).map_err(fail)
            }
        }
    }
}

/// Returns the array at `start` in a file; `bytes` includes its header.
fn stored<'p>(path: &'p Path, name: &str, (start, bytes): (u64, u64)) -> Result<Source<'p>> {
    let io = |source| Error::Io { path: path.into(), source };
    let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let fail = |reason: String| Error::File { path: path.into(), reason: format!("{name}{reason}") };
    let mut file = File::open(path).map_err(io)?;
    file.seek(SeekFrom::Start(start)).map_err(io)?;
    let header = Header::read(&mut file).map_err(fail)?;
    let at = file.stream_position().map_err(io)?;
    if header.is_fortran() {
        let array = Array::read(&header, &mut BufReader::new(file.take((start + bytes).saturating_sub(at))));
        return array.map(Source::Read).map_err(fail);
    }
    let data = header.len().map_err(fail)?.saturating_mul(header.element_bytes().map_err(fail)?);
    match (at - start).checked_add(data) {
        Some(all) if all == bytes => Ok(Source::Stored { path, at, header }),
        _ => Err(fail(format!(
            "{} bytes after the header: expected an array of shape {} and type {}, which takes \
             {data}",
            bytes.saturating_sub(at - start),
            header.shape(),
            header.descr
        ))),
    }
}

/// Opens a separate file of right-hand sides; sets `through` if it is read completely.
fn given<'p>(path: &'p Path, through: &mut Option<String>) -> Result<Source<'p>> {
    if extension(path) == "npy" {
        let bytes = path.metadata().map_err(|source| Error::Io { path: path.into(), source })?.len();
        return stored(path, "", (0, bytes));
    }
    *through = Some(path.display().to_string());
    read_array(path).map(Source::Read)
}

/// Reads a rank's rows of a system; parameters as in [`read`].
///
/// `share(n, batch)` returns this rank's part of `batch` systems of n rows.
///
/// # Errors
/// Errors of [`read`].
pub fn read_rows(
    path: &Path,
    cyclic: bool,
    interleaved: bool,
    b: Option<&Path>,
    share: impl Fn(usize, usize) -> Span,
) -> Result<RowsFile> {
    let named = |e| match e {
        Error::Invalid(reason) => Error::File { path: path.into(), reason },
        e => e,
    };
    let names = ["dl", "d", "du", "b"];
    // In interleaved arrays, consecutive numbers belong to different systems.
    let places = if extension(path) == "npz" && !interleaved {
        npz::places(path, &names[..3], &names[3..])?
    } else {
        None
    };
    let Some(places) = places else {
        let array = b.map(read_array).transpose()?;
        let file = read(path, cyclic, interleaved, array)?;
        let span = share(file.system.n, file.system.batch);
        let part = |all: &[f64]| all[span.range()].to_vec();
        let system = &file.system;
        let rows = Rows {
            span,
            dl: part(&system.dl),
            d: part(&system.d),
            du: part(&system.du),
            b: system.b.iter().map(|b| part(b)).collect(),
        };
        let through = Some(path.display().to_string());
        return Ok(RowsFile { rows, shape: file.shape, order: file.order, has_b: file.has_b, through });
    };
    let mut through = None;
    let mut sources = names
        .into_iter()
        .zip(places)
        .map(|(name, place)| place.map(|place| stored(path, name, place)).transpose());
    let mut next = || sources.next().unwrap_or(Ok(None));
    let (dl, d, du, own) = (next()?, next()?, next()?, next()?);
    let (Some(dl), Some(d), Some(du)) = (dl, d, du) else { unreachable!("needed members exist") };
    let b = match b {
        Some(file) => Some(given(file, &mut through)?),
        None => own,
    };
    let shapes = [dl.shape(), d.shape(), du.shape()];
    let (batch, n) = size([&shapes[0], &shapes[1], &shapes[2]], cyclic).map_err(named)?;
    if n == 0 || batch == 0 {
        return Err(named(Error::Invalid(format!(
            "{batch} systems of {n} rows: expected at least 1 of each"
        ))));
    }
    let span = share(n, batch);
    let (has_b, d_shape) = (b.is_some(), &shapes[1]);
    let (b, shape, order) = right_hand_sides(d_shape, b.as_ref(), &span).map_err(named)?;
    let rows = Rows {
        span,
        dl: off_diagonal(&dl, &span, true)?,
        d: d.part(span.range())?,
        du: off_diagonal(&du, &span, false)?,
        b: if has_b { b } else { vec![vec![1.0; span.rows]] },
    };
    Ok(RowsFile { rows, shape, order, has_b, through })
}

/// Reads this rank's rows of separate right-hand sides.
///
/// Returns the right-hand sides, the shape of all of them, the order of numbers in that shape, and
/// the file if it had to be read completely.
///
/// # Errors
/// Errors of the format's reader, and [`Error::Invalid`] for a shape that does not fit.
#[expect(clippy::type_complexity, reason = "what one file says")]
pub fn read_right_hand_sides(
    b: &Path,
    interleaved: bool,
    span: &Span,
) -> Result<(Vec<Vec<f64>>, Vec<usize>, Order, Option<String>)> {
    let d = [span.batch, span.n];
    let d = &d[usize::from(span.batch == 1)..];
    if interleaved && span.batch > 1 {
        let (all, shape, order) = super::right_hand_sides(d, Some(read_array(b)?), true)?;
        let own = all.iter().map(|b| b[span.range()].to_vec()).collect();
        return Ok((own, shape, order, Some(b.display().to_string())));
    }
    let mut through = None;
    let source = given(b, &mut through)?;
    let (b, shape, order) = right_hand_sides(d, Some(&source), span)?;
    Ok((b, shape, order, through))
}

/// Reads rows of an off-diagonal, which may have one number fewer per system.
fn off_diagonal(source: &Source<'_>, span: &Span, front: bool) -> Result<Vec<f64>> {
    let n = span.n;
    let shape = source.shape();
    if shape[shape.len() - 1] == n {
        return source.part(span.range());
    }
    let place = |row: usize| match (row % n, front) {
        (0, true) => None,
        (at, false) if at + 1 == n => None,
        (at, front) => Some(row / n * (n - 1) + at - usize::from(front)),
    };
    let mut used = span.range().filter_map(place);
    let Some(first) = used.next() else { return Ok(vec![0.0; span.rows]) };
    let last = used.next_back().unwrap_or(first);
    let values = source.part(first..last + 1)?;
    Ok(span.range().map(|row| place(row).map_or(0.0, |at| values[at - first])).collect())
}

/// Reads rows of right-hand sides for diagonals of the shape `d`; none without `b`.
fn right_hand_sides(
    d: &[usize],
    b: Option<&Source<'_>>,
    span: &Span,
) -> Result<(Vec<Vec<f64>>, Vec<usize>, Order)> {
    let Some(source) = b else { return Ok((Vec::new(), d.to_vec(), Order::Systems)) };
    let (shape, n, rows) = (source.shape(), span.n, span.range());
    match (d, &shape[..]) {
        _ if shape == d => Ok((vec![source.part(rows)?], shape, Order::Systems)),
        ([..], [front @ .., rhs]) if front == d && *rhs > 0 => {
            let all = source.part(rows.start * rhs..rows.end * rhs)?;
            let every = |k: usize| all.iter().skip(k).step_by(*rhs).copied().collect();
            Ok(((0..*rhs).map(every).collect(), shape, Order::Systems))
        }
        ([_], &[systems, own]) if own == n && systems > 0 => {
            let one = |k: usize| source.part(k * n + rows.start..k * n + rows.end);
            Ok(((0..systems).map(one).collect::<Result<_>>()?, shape, Order::Shared))
        }
        _ => Err(misshapen(&shape, d, n)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::Ranks;

    /// Writes an archive without compression, like `numpy.savez`.
    fn archive(path: &Path, members: &[(&str, &[u64], &[f64])]) {
        use std::io::Write;
        let options =
            zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        let mut archive = zip::ZipWriter::new(File::create(path).unwrap());
        for (name, shape, values) in members {
            archive.start_file(format!("{name}.npy"), options).unwrap();
            archive.write_all(&crate::io::npy::header("<f8", shape)).unwrap();
            archive.write_all(&crate::io::npy::data(values)).unwrap();
        }
        archive.finish().unwrap();
    }

    #[test]
    fn shapes_are_compared_before_anything_is_unpacked() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.npz");
        for (members, words) in [
            // The data promised by the headers are missing.
            ([("dl", 7), ("d", 3), ("du", 3)], "invalid shape [7] of dl: expected [3]"),
            ([("dl", 1 << 50), ("d", 1 << 50), ("du", 1 << 50)], "available"),
        ] {
            archive(&path, &members.each_ref().map(|(name, n)| (*name, std::slice::from_ref(n), &[][..])));

            let error = read(&path, false, false, None).unwrap_err().to_string();

            assert!(error.contains(words), "{error}");
        }
        archive(&path, &[("dl", &[3], &[]), ("d", &[3], &[]), ("du", &[3], &[]), ("b", &[4], &[])]);
        let error = read(&path, false, false, None).unwrap_err().to_string();
        assert!(error.contains("invalid shape [4] of b: expected [3]"), "{error}");
    }

    #[test]
    fn rows_at_their_place_are_those_of_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.npz");
        let numbers = |count: u64, from: f64| (0..count).map(|k| from + k as f64).collect::<Vec<f64>>();
        for (systems, n, rhs, short) in
            [(1, 100, 1, false), (1, 100, 3, true), (7, 13, 1, true), (7, 13, 2, false)]
        {
            let lead = if systems > 1 { vec![systems] } else { vec![] };
            let shape = |rest: &[u64]| [&lead[..], rest].concat();
            let off = n - u64::from(short);
            let (dl, d) = (numbers(systems * off, 1.0), numbers(systems * n, 2000.0));
            let (du, b) = (numbers(systems * off, 4000.0), numbers(systems * n * rhs, 8000.0));
            let b_shape = if rhs > 1 { shape(&[n, rhs]) } else { shape(&[n]) };
            let off = shape(&[off]);
            archive(
                &path,
                &[("dl", &off, &dl), ("d", &shape(&[n]), &d), ("du", &off, &du), ("b", &b_shape, &b)],
            );
            let whole = read(&path, false, false, None).unwrap();
            for range in [0..30, 30..30, 30..77, 77..(systems * n) as usize] {
                let share = |n, batch| {
                    let (first, rows) = (range.start, range.len());
                    Span { first, rows, ranks: Ranks::ALONE, ..Span::whole(n, batch, false) }
                };

                let file = read_rows(&path, false, false, None, share).unwrap();

                assert!(file.through.is_none() && file.has_b);
                assert_eq!((&file.shape, file.order), (&whole.shape, whole.order));
                // Off-diagonals of n − 1 numbers are padded: with NaN in the whole file, with 0 in
                // parts.
                let number = |value: &f64| if value.is_nan() { 0.0 } else { *value };
                let part = |all: &[f64]| all[range.clone()].iter().map(number).collect::<Vec<f64>>();
                assert_eq!(file.rows.dl, part(&whole.system.dl));
                assert_eq!(file.rows.d, part(&whole.system.d));
                assert_eq!(file.rows.du, part(&whole.system.du));
                let right: Vec<Vec<f64>> = whole.system.b.iter().map(|b| part(b)).collect();
                assert_eq!(file.rows.b, right);
            }
        }
    }

    #[test]
    fn an_array_that_ends_early_is_refused_before_any_row_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.npy");
        let bytes = [crate::io::npy::header("<f8", &[10]), vec![0; 72]].concat();
        std::fs::write(&path, bytes).unwrap();

        let error = read_right_hand_sides(&path, false, &Span::whole(10, 1, false)).unwrap_err().to_string();

        assert!(error.contains("72 bytes") && error.contains("80"), "{error}");
    }
}
