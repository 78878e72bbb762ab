//! Matrix Market files (Boisvert, Pozo, Remington, NISTIR 5935, 1996), plain or gzip.

use std::io::{self, Write};
use std::path::Path;

use super::rate_matrix_kind::{self, MOST_STATES};
use super::text::{self, Pieces, Room, Scanner, Triples, Trouble};
use super::write::{count_transitions, push_integer, push_number, write_in_blocks, write_transitions};
use crate::Result;
use crate::sparse::{Coo, CsrMatrix};
use crate::transient::chain::ChainFile;
use crate::transient::chain::transitions::Transitions;
use crate::util::quantity;

/// Reads a chain: rates R (row: source) or a generator Q, see [`rate_matrix_kind::chain`].
///
/// # Errors
/// Errors of [`read_matrix`] and [`rate_matrix_kind::chain`].
pub fn read_chain(path: impl AsRef<Path>) -> Result<ChainFile> {
    let path = path.as_ref();
    rate_matrix_kind::chain(path, read_matrix(path)?)
}

/// Reads a sparse matrix, or the nonzero numbers of a dense one (`array`).
///
/// Supported are `coordinate` files that are `real`, `integer` or `pattern` (every entry 1), and
/// `general` or `symmetric`. Mirrored entries follow the listed ones.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`](crate::Error::Parse) with the line for a file of
/// another form, and if the size line promises another number of entries than there are.
pub fn read_matrix(path: impl AsRef<Path>) -> Result<Coo> {
    let path = path.as_ref();
    // Errors are reported by the serial parser, which reads the whole file.
    match by_pieces(path) {
        Ok(Some(matrix)) => Ok(matrix),
        _ => {
            let bytes = text::read(path)?;
            let banner = banner(&bytes);
            let read = if is_array(&banner) { parse_dense(&bytes, &banner) } else { parse(&bytes) };
            read.map_err(|(line, reason)| text::error(path, line, reason))
        }
    }
}

/// Returns the words of the first line, in lower case.
fn banner(bytes: &[u8]) -> Vec<String> {
    words(next_line(bytes).0).map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect()
}

fn is_array(banner: &[String]) -> bool {
    banner.get(2).is_some_and(|format| format == "array")
}

/// Parses a dense matrix and drops its zeros.
fn parse_dense(bytes: &[u8], banner: &[String]) -> Result<Coo, Trouble> {
    let columns = parse_array(bytes, banner)?;
    let mut matrix =
        Coo { rows: columns.first().map_or(0, Vec::len), columns: columns.len(), ..Coo::default() };
    // By rows, as in other formats.
    for i in 0..matrix.rows {
        for (j, column) in columns.iter().enumerate().filter(|(_, column)| column[i] != 0.0) {
            matrix.row.push(i as u32);
            matrix.column.push(j as u32);
            matrix.value.push(column[i]);
        }
    }
    Ok(matrix)
}

/// Reads a file piece by piece; `None` if it has to be read whole, because of its form or an error.
fn by_pieces(path: &Path) -> Result<Option<Coo>> {
    let Some(mut pieces) = Pieces::open(path)? else { return Ok(None) };
    let start = pieces.start();
    let Ok(Head { kind, symmetric, promised, body, .. }) = head(start) else { return Ok(None) };
    let skipped = start.len() - body.len();
    pieces.skip(skipped);
    let mut found = Triples::with_room(kind.shortest(), promised as usize, pieces.about(1), path)?;
    let mut fits = true;
    let read = pieces.each(&mut |bytes| {
        fits &= found.parse(bytes, |text, room| scan(text, kind, room)).is_ok();
        Ok(())
    })?;
    let (matrix, listed) = together(found, kind, symmetric);
    Ok(read.filter(|()| fits && listed == promised).map(|()| matrix))
}

/// Reads the columns of a matrix as vectors.
///
/// The file is an `array` (`real` or `integer`), stored by columns, or `coordinate`; entries that
/// are not listed are 0.
///
/// # Errors
/// Errors of [`read_matrix`].
pub fn read_columns(path: impl AsRef<Path>) -> Result<Vec<Vec<f64>>> {
    let path = path.as_ref();
    let bytes = text::read(path)?;
    let banner = banner(&bytes);
    if is_array(&banner) {
        return parse_array(&bytes, &banner).map_err(|(line, reason)| text::error(path, line, reason));
    }
    let matrix = parse(&bytes).map_err(|(line, reason)| text::error(path, line, reason))?;
    crate::lane::cpu::expect_memory(8 * matrix.rows as u64 * matrix.columns as u64, || {
        format!("{}: {} columns of {} numbers", path.display(), matrix.columns, matrix.rows)
    })?;
    let mut columns = vec![vec![0.0; matrix.rows]; matrix.columns];
    for ((&i, &j), &x) in matrix.row.iter().zip(&matrix.column).zip(&matrix.value) {
        columns[j as usize][i as usize] += x;
    }
    Ok(columns)
}

/// Parses a dense matrix, one number per line, by columns.
fn parse_array(bytes: &[u8], banner: &[String]) -> Result<Vec<Vec<f64>>, Trouble> {
    let banner: Vec<&str> = banner.iter().map(String::as_str).collect();
    let &["%%matrixmarket", "matrix", "array", "real" | "integer", symmetry @ ("general" | "symmetric")] =
        &banner[..]
    else {
        let expected = "expected `%%MatrixMarket matrix array real general` (or integer, or symmetric)";
        return Err((1, expected.into()));
    };
    let symmetric = symmetry == "symmetric";
    let mut size: Option<(usize, usize)> = None;
    let mut values: Vec<f64> = Vec::new();
    let mut last = 1;
    for line in text::Lines::new(bytes).skip(1) {
        last = line.number;
        if is_comment(line.bytes) {
            continue;
        }
        match size {
            None => {
                let sizes: Option<Vec<u64>> = words(line.bytes).map(integer).collect();
                let Some(&[rows, columns]) = sizes.as_deref() else {
                    return Err((
                        line.number,
                        format!("invalid size line {}: expected `rows columns`", quoted(line.bytes)),
                    ));
                };
                if symmetric && rows != columns {
                    return Err((
                        line.number,
                        format!(
                            "a symmetric matrix of {rows} rows and {columns} columns: expected as \
                             many rows as columns"
                        ),
                    ));
                }
                if rows.checked_mul(columns).is_none_or(|all| all > MOST_STATES) {
                    return Err((line.number, format!("{rows} rows and {columns} columns are out of range")));
                }
                size = Some((rows as usize, columns as usize));
            }
            Some(_) => match text::number(line.bytes) {
                Some(value) => values.push(value),
                None => {
                    let fault = quantity::fault(line.bytes);
                    return Err((
                        line.number,
                        format!("{} {fault}; expected one number in each line", quoted(line.bytes)),
                    ));
                }
            },
        }
    }
    let Some((rows, columns)) = size else {
        return Err((last, "ends before the size line `rows columns`".into()));
    };
    // A symmetric file only lists the lower triangle.
    let promised = if symmetric { rows * (rows + 1) / 2 } else { rows * columns };
    if values.len() != promised {
        let half = if symmetric { ", halved by symmetry" } else { "" };
        return Err((
            last,
            format!("{} numbers: expected {rows} times {columns}{half} by the size line", values.len()),
        ));
    }
    if symmetric {
        // Column j lists its rows from j on.
        let place = |i: usize, j: usize| j * rows - j * (j + 1) / 2 + i;
        let value = |i: usize, j: usize| values[place(i.max(j), i.min(j))];
        return Ok((0..rows).map(|j| (0..rows).map(|i| value(i, j)).collect()).collect());
    }
    if rows == 0 {
        return Ok(vec![Vec::new(); columns]);
    }
    Ok(values.chunks_exact(rows).map(<[f64]>::to_vec).collect())
}

/// Finds the lines, counted from 1, that list an entry: for the message about duplicates.
///
/// Row and column count from 0.
///
/// # Errors
/// Errors of [`read_matrix`].
pub fn line_of(path: &Path, row: u32, column: u32) -> Result<Vec<u64>> {
    let bytes = text::read(path)?;
    let Head { kind, symmetric, line: mut at, body: mut rest, .. } =
        head(&bytes).map_err(|(line, reason)| text::error(path, line, reason))?;
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let (text, after) = next_line(rest);
        (at, rest) = (at + 1, after);
        if let Ok((i, j, _)) = entry(&mut Scanner::new(text), kind)
            && ((i, j) == (row, column) || symmetric && (j, i) == (row, column))
        {
            lines.push(at);
        }
    }
    Ok(lines)
}

/// Writes a chain's rates as `coordinate real general`; rows are sources, counted from 1.
///
/// Entries are ascending. Every row is requested twice.
///
/// # Errors
/// Errors of `writer`.
pub fn write_chain(writer: &mut dyn Write, chain: &dyn Transitions) -> io::Result<()> {
    let n = chain.states();
    writeln!(writer, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(writer, "% Entry (i, j) is the rate from state i to state j.")?;
    writeln!(writer, "{n} {n} {}", count_transitions(chain))?;
    write_transitions(writer, chain, 1)
}

/// Writes a matrix as `coordinate real general`, row by row.
///
/// # Errors
/// Errors of `writer`.
pub fn write_matrix(writer: &mut dyn Write, matrix: &CsrMatrix) -> io::Result<()> {
    writeln!(writer, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(writer, "{} {} {}", matrix.rows(), matrix.columns(), matrix.nnz())?;
    write_in_blocks(writer, matrix.rows(), |rows, text| {
        for i in rows {
            let (columns, values) = matrix.row(i);
            for (&j, &value) in columns.iter().zip(values) {
                push_integer(text, i as u64 + 1);
                text.push(b' ');
                push_integer(text, u64::from(j) + 1);
                text.push(b' ');
                push_number(text, value);
                text.push(b'\n');
            }
        }
    })
}

/// Form and range of entries, from the first line and the size line.
#[derive(Debug, Clone, Copy)]
struct Kind {
    pattern: bool,
    rows: u64,
    columns: u64,
}

impl Kind {
    /// Returns the fewest bytes of an entry's line, including its end: `1 1`, `1 1 0`.
    fn shortest(self) -> usize {
        if self.pattern { 4 } else { 6 }
    }
}

/// Lines before the entries.
struct Head<'a> {
    kind: Kind,
    symmetric: bool,
    promised: u64,
    /// Line number of the size line.
    line: u64,
    body: &'a [u8],
}

fn head(bytes: &[u8]) -> Result<Head<'_>, Trouble> {
    let (first, mut rest) = next_line(bytes);
    let (pattern, symmetric) = parse_banner(first).map_err(|reason| (1, reason))?;
    let mut line = 1;
    let size = loop {
        if rest.is_empty() {
            return Err((line, "ends before the size line `rows columns entries`".into()));
        }
        let (text, after) = next_line(rest);
        (line, rest) = (line + 1, after);
        if !is_comment(text) {
            break text;
        }
    };
    let sizes: Option<Vec<u64>> = words(size).map(integer).collect();
    let Some(&[rows, columns, promised]) = sizes.as_deref() else {
        return Err((line, format!("invalid size line {}: expected `rows columns entries`", quoted(size))));
    };
    if rows.max(columns) > MOST_STATES {
        return Err((
            line,
            format!("{rows} rows and {columns} columns are out of range: expected at most {MOST_STATES}"),
        ));
    }
    if symmetric && rows != columns {
        return Err((
            line,
            format!(
                "a symmetric matrix of {rows} rows and {columns} columns: expected as many rows as \
                 columns"
            ),
        ));
    }
    Ok(Head { kind: Kind { pattern, rows, columns }, symmetric, promised, line, body: rest })
}

fn parse(bytes: &[u8]) -> Result<Coo, Trouble> {
    let Head { kind, symmetric, promised, line, body: rest } = head(bytes)?;
    let mut found = Triples::new(kind.shortest());
    found
        .parse(rest, |text, room| scan(text, kind, room))
        .map_err(|(behind, reason)| (line + behind, reason))?;
    let (matrix, listed) = together(found, kind, symmetric);
    match listed == promised {
        true => Ok(matrix),
        false => Err((line, format!("expected {promised} entries by the size line, found {listed}"))),
    }
}

/// Builds the matrix of these entries; returns it and the number of listed entries.
///
/// For a symmetric matrix, the mirrored entries are appended.
fn together(found: Triples, kind: Kind, symmetric: bool) -> (Coo, u64) {
    let (mut row, mut column, mut value) = found.into_lists();
    let listed = value.len();
    if symmetric {
        for k in 0..listed {
            if row[k] != column[k] {
                row.push(column[k]);
                column.push(row[k]);
                value.push(value[k]);
            }
        }
    }
    (Coo { rows: kind.rows as usize, columns: kind.columns as usize, row, column, value }, listed as u64)
}

/// Parses the first line; returns (pattern, symmetric).
fn parse_banner(line: &[u8]) -> Result<(bool, bool), String> {
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let &["%%matrixmarket", object, format, field, symmetry] = &words[..] else {
        return Err(format!(
            "invalid header {}: expected `%%MatrixMarket matrix coordinate real general` or \
             another coordinate matrix",
            quoted(line)
        ));
    };
    if (object, format) != ("matrix", "coordinate") {
        return Err(format!(
            "'{object} {format}' is not supported; write a sparse matrix as `matrix coordinate`, a \
             dense one as `matrix array`"
        ));
    }
    let pattern = match field {
        "real" | "integer" => false,
        "pattern" => true,
        _ => {
            return Err(format!("field '{field}' is not supported: expected real, integer or pattern"));
        }
    };
    match symmetry {
        "general" => Ok((pattern, false)),
        "symmetric" => Ok((pattern, true)),
        _ => Err(format!("symmetry '{symmetry}' is not supported: expected general or symmetric")),
    }
}

/// Parses the entries of some lines.
fn scan(text: &[u8], kind: Kind, found: &mut Room) -> Result<(), Trouble> {
    let mut scanner = Scanner::new(text);
    let mut line = 0;
    while scanner.peek().is_some() {
        line += 1;
        let start = scanner.offset();
        match entry(&mut scanner, kind) {
            Ok((i, j, x)) => found.push(i, j, x),
            Err(fault) => {
                let (bytes, _) = next_line(&text[start..]);
                if !is_comment(bytes) {
                    return Err((line, fault.reason(bytes, kind)));
                }
                scanner.skip_to(start + bytes.len() + 1);
            }
        }
    }
    Ok(())
}

/// Kind of error in an entry's line; the message is only built when needed.
enum Fault {
    Form,
    Value,
    Row(u64),
    Column(u64),
}

impl Fault {
    fn reason(&self, line: &[u8], kind: Kind) -> String {
        let last = words(line).last().unwrap_or(line);
        let line = quoted(line);
        let outside = |what, index, most| {
            if index == 0 {
                format!("{line}: {what} 0 is out of range: expected at least 1")
            } else {
                format!(
                    "{line}: {what} {index} is out of range: the size line says {most}; correct \
                     one of them"
                )
            }
        };
        match *self {
            Self::Form if kind.pattern => format!("{line}: expected `row column`"),
            Self::Form => format!("{line}: expected `row column value`"),
            Self::Value => format!("{line}: the value {}", quantity::fault(last)),
            Self::Row(index) => outside("row", index, kind.rows),
            Self::Column(index) => outside("column", index, kind.columns),
        }
    }
}

/// Reads one line, `row column value`, and its end; row and column are returned from 0.
#[inline]
fn entry(scanner: &mut Scanner, kind: Kind) -> Result<(u32, u32, f64), Fault> {
    let i = index(scanner).ok_or(Fault::Form)?;
    let j = index(scanner).ok_or(Fault::Form)?;
    scanner.blanks();
    let mut x = 1.0;
    if !kind.pattern {
        let from = scanner.offset();
        x = scanner.decimal().ok_or(Fault::Form)?;
        if x == 0.0 && quantity::is_not_zero(scanner.since(from)) {
            return Err(Fault::Value);
        }
        scanner.blanks();
    }
    if !scanner.byte(b'\n') && scanner.peek().is_some() {
        return Err(Fault::Form);
    }
    if !x.is_finite() {
        return Err(Fault::Value);
    }
    if i == 0 || i > kind.rows {
        return Err(Fault::Row(i));
    }
    if j == 0 || j > kind.columns {
        return Err(Fault::Column(j));
    }
    Ok(((i - 1) as u32, (j - 1) as u32, x))
}

/// Reads an unsigned integer with optional `+`, after blanks and before a blank.
fn index(scanner: &mut Scanner) -> Option<u64> {
    scanner.blanks();
    let number = scanner.unsigned().or_else(|| scanner.byte(b'+').then(|| scanner.unsigned()).flatten());
    number.filter(|_| scanner.is_delimited())
}

/// Splits a text at the first line end, which is dropped.
fn next_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == b'\n') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

/// True for comments, which start with `%`, and for blank lines.
fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii().first().is_none_or(|&b| b == b'%')
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn integer(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Quotes the beginning of a line for messages.
fn quoted(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(200)]);
    let short: String = text.trim().chars().take(60).collect();
    format!("'{}'", short.escape_debug())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::write::arbitrary_rows;
    use super::*;
    use crate::Error;

    fn matrix(text: &str) -> Coo {
        parse(text.as_bytes()).unwrap()
    }

    fn trouble(text: &str) -> Trouble {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn real_general() {
        let text = "%%MatrixMarket matrix coordinate real general\n% comment\n\n 2 3 3 \n1 1 -1.5e0\r\n\n% more\n2\t3   7\n1 2 .5";
        let matrix = matrix(text);
        assert_eq!((matrix.rows, matrix.columns), (2, 3));
        assert_eq!(matrix.row, [0, 1, 0]);
        assert_eq!(matrix.column, [0, 2, 1]);
        assert_eq!(matrix.value, [-1.5, 7.0, 0.5]);
    }

    #[test]
    fn integer_pattern_and_symmetric() {
        let integers = matrix("%%matrixmarket MATRIX Coordinate Integer General\n1 1 1\n1 1 -3\n");
        assert_eq!(integers.value, [-3.0]);
        let pattern = matrix("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n1 1\n3 1\n");
        assert_eq!(pattern.row, [0, 2, 0]);
        assert_eq!(pattern.column, [0, 0, 2]);
        assert_eq!(pattern.value, [1.0; 3]);
    }

    #[test]
    fn kinds_that_are_not_read_are_named() {
        for (banner, name) in [
            ("matrix array real general", "array"),
            ("matrix coordinate complex general", "complex"),
            ("matrix coordinate real hermitian", "hermitian"),
            ("matrix coordinate real skew-symmetric", "skew-symmetric"),
            ("vector coordinate real general", "vector"),
        ] {
            let (line, reason) = trouble(&format!("%%MatrixMarket {banner}\n1 1 0\n"));
            assert_eq!(line, 1);
            assert!(
                reason.contains(&format!("'{name}")) || reason.contains(&format!(" {name}'")),
                "{reason}"
            );
        }
        assert_eq!(trouble("1 1 0\n").0, 1);
        assert_eq!(trouble("").0, 1);
    }

    #[test]
    fn troubles_name_the_line() {
        let banner = "%%MatrixMarket matrix coordinate real general\n";
        for (rest, line, word) in [
            ("", 1, "size line"),
            ("% only\n", 2, "size line"),
            ("2 2\n", 2, "rows columns entries"),
            ("2 2 1\n0 1 1\n", 3, "row 0 is out of range"),
            ("2 2 1\n3 1 1\n", 3, "row 3"),
            ("2 2 1\n\n1 9 1\n", 4, "column 9"),
            ("2 2 1\n1 1\n", 3, "row column value"),
            ("2 2 1\n1 1 x\n", 3, "row column value"),
            ("2 2 1\n1 1 1 1\n", 3, "row column value"),
            ("2 2 1\n1 1 nan\n", 3, "finite"),
            ("2 2 1\n1 1 1e999\n", 3, "above 1.8e308"),
            ("2 2 1\n1 1 -2e-400\n", 3, "below 4.9e-324"),
            ("2 2 2\n1 1 1\n", 2, "expected 2 entries by the size line, found 1"),
            ("2 2 1\n1 1 1\n2 2 1\n", 2, "expected 1 entries by the size line, found 2"),
            ("2 2 18446744073709551615\n", 2, "expected 18446744073709551615 entries"),
            ("4294967295 1 0\n", 2, "4294967294"),
        ] {
            let (at, reason) = trouble(&format!("{banner}{rest}"));
            assert_eq!(at, line, "{rest}: {reason}");
            assert!(reason.contains(word), "{rest}: {reason}");
        }
        let (_, reason) = trouble("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 1 1\n");
        assert!(reason.contains("`row column`"), "{reason}");
        assert_eq!(trouble("%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n").0, 2);
    }

    #[test]
    fn pieces_are_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mtx");
        let mut text = String::from("%%MatrixMarket matrix coordinate real general\n1000 1000 300000\n");
        (0..300_000).for_each(|k| text += &format!("{} {} {k}.5\n", k % 1000 + 1, k / 1000 + 1));
        assert!(text.len() > 4 << 20, "pieces have a MiB");
        fs::write(&path, &text).unwrap();
        assert_eq!(by_pieces(&path).unwrap(), Some(matrix(&text)));
    }

    #[test]
    fn lines_are_counted_through_chunks() {
        let mut text = String::from("%%MatrixMarket matrix coordinate real general\n9 9 1000001\n");
        text.push_str(&"1 2 3.5\n".repeat(1_000_000));
        assert!(text.len() > 3 << 20, "pieces have some MiB");
        let (line, reason) = trouble(&format!("{text}1 10 1\n"));
        assert_eq!(line, 1_000_003, "{reason}");
        assert_eq!(matrix(&format!("{text}9 9 1\n")).row.len(), 1_000_001);
    }

    #[test]
    fn gzip_is_recognised_by_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("q.mtx.gz");
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 -2\n1 2 2\n").unwrap();
        fs::write(&path, encoder.finish().unwrap()).unwrap();
        let chain = read_chain(&path).unwrap();
        assert_eq!(chain.states, 2);
        assert_eq!(chain.transitions.rate, [2.0]);
    }

    #[test]
    fn messages_start_with_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.mtx");
        fs::write(&path, "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 ?\n").unwrap();
        let message = read_chain(&path).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{}:3: ", path.display())), "{message}");
        fs::write(&path, "").unwrap();
        assert!(read_chain(&path).is_err());
        assert!(matches!(read_chain(directory.path().join("none")), Err(Error::Io { .. })));
    }

    proptest! {
        #[test]
        fn chains_come_back(chain in arbitrary_rows(30)) {
            let mut bytes = Vec::new();
            write_chain(&mut bytes, &chain).unwrap();
            let matrix = parse(&bytes).unwrap();
            prop_assert_eq!((matrix.rows, matrix.columns), (chain.states(), chain.states()));
            let list = chain.list();
            prop_assert_eq!((matrix.row, matrix.column, matrix.value), (list.from, list.to, list.rate));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9 .e%\n-]{0,80}") {
            let banner = b"%%MatrixMarket matrix coordinate real general\n";
            let _ = parse(&bytes);
            let _ = parse(&[banner, &bytes[..]].concat());
            let _ = parse(&[&banner[..], b"9 9 3\n", text.as_bytes()].concat());
        }
    }
}
