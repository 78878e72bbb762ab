//! Matrix Market files (Boisvert, Pozo, Remington, NISTIR 5935, 1996), plain or gzip.

use super::text::{LineError, Pieces, Scanner, TextLine, TextLines, TripleSpace, Triples};
use super::write::{count_transitions, push_triple, write_lines, write_transitions};
use super::*;

/// Reads a sparse matrix, or the nonzero numbers of a dense one (`array`).
///
/// Supported are `coordinate` files that are `real`, `integer` or `pattern` (every entry 1), and
/// `general` or `symmetric`. Mirrored entries follow the listed ones.
///
/// # Errors
/// Errors of [`text::read`]. [`Error::Parse`] with the line for a file of
/// another form, and if the size line promises another number of entries than there are.
pub fn read_matrix(path: impl AsRef<Path>) -> Result<Coo> {
    let path = path.as_ref();
    // Errors are reported by the serial parser, which reads the whole file.
    if let Ok(Some(matrix)) = by_pieces(path) {
        return Ok(matrix);
    }
    let bytes = text::read(path)?;
    let Some(columns) = parse_array(&bytes, path)? else { return parse(&bytes, path) };
    let rows = columns.first().map_or(0, Vec::len);
    // By rows, as in other formats.
    let row = |i: usize| (0u32..).zip(&columns).map(move |(j, column)| (i as u32, j, column[i]));
    let (row, column, value) = (0..rows).flat_map(row).filter(|&(_, _, value)| value != 0.0).collect();
    Ok(Coo { rows, columns: columns.len(), row, column, value })
}

/// Parses a file while it is read in pieces; `None` if it has to be in memory as a whole.
pub(super) fn by_pieces(path: &Path) -> Result<Option<Coo>> {
    let Some(mut pieces) = Pieces::open(path)? else { return Ok(None) };
    let head = MatrixHead::read(pieces.start(), path)?;
    pieces.skip(head.body);
    let room = pieces.about(1);
    let mut found = Triples::with_room(head.kind.shortest(), head.promised as usize, room, path)?;
    let read = pieces.each(&mut |bytes| head.entries(bytes, &mut found, path))?;
    read.map(|()| head.matrix(found, path)).transpose()
}

fn parse(bytes: &[u8], path: &Path) -> Result<Coo> {
    let head = MatrixHead::read(bytes, path)?;
    let mut found = Triples::new(head.kind.shortest());
    head.entries(&bytes[head.body..], &mut found, path)?;
    head.matrix(found, path)
}

/// Reads the columns of a matrix as vectors.
///
/// The file is an `array` (`real` or `integer`), stored by columns, or `coordinate`; entries that
/// are not listed are 0. Fails like [`read_matrix`].
pub fn read_columns(path: impl AsRef<Path>) -> Result<Vec<Vec<f64>>> {
    let path = path.as_ref();
    let bytes = text::read(path)?;
    if let Some(columns) = parse_array(&bytes, path)? {
        return Ok(columns);
    }
    let matrix = parse(&bytes, path)?;
    expect_memory(8 * matrix.rows as u64 * matrix.columns as u64, || {
        format!("{}: {} columns of {} numbers", path.display(), matrix.columns, matrix.rows)
    })?;
    let mut columns = vec![vec![0.0; matrix.rows]; matrix.columns];
    for ((&i, &j), &x) in matrix.row.iter().zip(&matrix.column).zip(&matrix.value) {
        columns[j as usize][i as usize] += x;
    }
    Ok(columns)
}

/// Parses a dense matrix by columns, one number per line; `None` if it is no `array` file.
fn parse_array(bytes: &[u8], path: &Path) -> Result<Option<Vec<Vec<f64>>>> {
    let (lines, banner) = &mut banner(bytes, path);
    let banner: Vec<&str> = banner.iter().map(String::as_str).collect();
    let symmetric = match banner[..] {
        ["%%matrixmarket", "matrix", "array", "real" | "integer", symmetry @ ("general" | "symmetric")] => {
            symmetry == "symmetric"
        }
        [_, _, "array", ..] => {
            let expected = "expected `%%MatrixMarket matrix array real general` (or integer, or symmetric)";
            return Err(text::error(path, 1, expected));
        }
        _ => return Ok(None),
    };
    let (line, [rows, columns]) = size_line(lines, symmetric, "rows columns")?;
    if rows.checked_mul(columns).is_none_or(|all| all > MOST_STATES) {
        return Err(line.error(format!("{rows} rows and {columns} columns are out of range")));
    }
    let (rows, columns) = (rows as usize, columns as usize);
    let mut values: Vec<f64> = Vec::new();
    for line in lines.by_ref().filter(|line| !is_comment(line.bytes)) {
        let fault = || {
            line.error(format!("{line} {}; expected one number in each line", quantity::fault(line.bytes)))
        };
        values.push(text::number(line.bytes).ok_or_else(fault)?);
    }
    // A symmetric file only lists the lower triangle.
    let (promised, half) = match symmetric {
        true => (rows * (rows + 1) / 2, ", halved by symmetry"),
        false => (rows * columns, ""),
    };
    if values.len() != promised {
        let reason =
            format!("{} numbers: expected {rows} times {columns}{half} by the size line", values.len());
        return Err(text::error(path, lines.number, reason));
    }
    let value = |i: usize, j: usize| match symmetric {
        // Column j lists its rows from j on.
        true => values[i.min(j) * rows - i.min(j) * (i.min(j) + 1) / 2 + i.max(j)],
        false => values[j * rows + i],
    };
    Ok(Some((0..columns).map(|j| (0..rows).map(|i| value(i, j)).collect()).collect()))
}

/// Returns the lines after the first one, and the first line's words in lower case.
fn banner<'a>(bytes: &'a [u8], path: &'a Path) -> (TextLines<'a>, Vec<String>) {
    let mut lines = TextLines::new(bytes, path);
    let first = String::from_utf8_lossy(lines.next().map_or(b"", |line| line.bytes)).to_ascii_lowercase();
    (lines, first.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Reads the size line, which has N numbers; `names` describes them in messages.
fn size_line<'a, const N: usize>(
    lines: &mut TextLines<'a>,
    symmetric: bool,
    names: &str,
) -> Result<(TextLine<'a>, [u64; N])> {
    let Some(line) = lines.find(|line| !is_comment(line.bytes)) else {
        let reason = format!("ends before the size line `{names}`: the file is truncated");
        return Err(text::error(lines.path, lines.number.max(1), reason));
    };
    let integer = |word| std::str::from_utf8(word).ok()?.parse().ok();
    let sizes: Option<Vec<u64>> = line.fields().map(integer).collect();
    let Some(sizes) = sizes.and_then(|sizes| <[u64; N]>::try_from(sizes).ok()) else {
        return Err(line.error(format!("invalid size line {line}: expected `{names}`")));
    };
    if symmetric && sizes[0] != sizes[1] {
        return Err(line.error(format!(
            "a symmetric matrix of {} rows and {} columns: expected as many rows as columns",
            sizes[0], sizes[1]
        )));
    }
    Ok((line, sizes))
}

/// Finds the lines, counted from 1, that list an entry: for the message about duplicates.
///
/// Row and column count from 0.
pub(super) fn lines_of(bytes: &[u8], path: &Path, row: u32, column: u32) -> Result<Vec<u64>> {
    let MatrixHead { kind, symmetric, line, body, .. } = MatrixHead::read(bytes, path)?;
    let lists = |text: &[u8]| {
        entry(&mut Scanner::new(text), kind)
            .is_ok_and(|(i, j, _)| (i, j) == (row, column) || symmetric && (j, i) == (row, column))
    };
    let all = (line + 1..).zip(bytes[body..].split(|&b| b == b'\n'));
    Ok(all.filter(|(_, text)| lists(text)).map(|(line, _)| line).collect())
}

/// Writes a chain's rates as `coordinate real general`; rows are sources, counted from 1.
///
/// Entries are ascending. Every row is requested twice.
pub fn write_chain(writer: &mut dyn Write, chain: &dyn Transitions) -> io::Result<()> {
    let n = chain.states();
    writeln!(writer, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(writer, "% Entry (i, j) is the rate from state i to state j.")?;
    writeln!(writer, "{n} {n} {}", count_transitions(chain))?;
    write_transitions(writer, chain, 1)
}

/// Writes a matrix as `coordinate real general`, row by row.
pub fn write_matrix(writer: &mut dyn Write, matrix: &CsrMatrix) -> io::Result<()> {
    writeln!(writer, "%%MatrixMarket matrix coordinate real general")?;
    writeln!(writer, "{} {} {}", matrix.rows(), matrix.columns(), matrix.nnz())?;
    write_lines(writer, matrix.rows(), &|i, text| {
        let (columns, values) = matrix.row(i);
        columns.iter().zip(values).for_each(|(&j, &x)| push_triple(text, i as u64 + 1, u64::from(j) + 1, x));
    })
}

/// Form and range of entries, from the first line and the size line.
#[derive(Debug, Clone, Copy)]
struct MatrixKind {
    pattern: bool,
    rows: u64,
    columns: u64,
}

impl MatrixKind {
    /// Returns the length in bytes of the shortest entry line, `1 1` or `1 1 0` with its end.
    fn shortest(self) -> usize {
        if self.pattern { 4 } else { 6 }
    }
}

/// Content of the lines before the entries.
struct MatrixHead {
    kind: MatrixKind,
    symmetric: bool,
    promised: u64,
    /// Line number of the size line.
    line: u64,
    /// Offset of the first entry's line.
    body: usize,
}

impl MatrixHead {
    fn read(bytes: &[u8], path: &Path) -> Result<Self> {
        let (mut lines, banner) = banner(bytes, path);
        let wrong = |reason| text::error(path, 1, reason);
        let banner: Vec<&str> = banner.iter().map(String::as_str).collect();
        let &["%%matrixmarket", object, format, field, symmetry] = &banner[..] else {
            return Err(wrong(format!(
                "invalid header {}: expected `%%MatrixMarket matrix coordinate real general` or \
                 another coordinate matrix",
                quote(text::first_line(bytes).0)
            )));
        };
        if (object, format) != ("matrix", "coordinate") {
            return Err(wrong(format!(
                "'{object} {format}' is not supported; write a sparse matrix as `matrix \
                 coordinate`, a dense one as `matrix array`"
            )));
        }
        if !["real", "integer", "pattern"].contains(&field) {
            let expected = "expected real, integer or pattern";
            return Err(wrong(format!("field '{field}' is not supported: {expected}")));
        }
        if !["general", "symmetric"].contains(&symmetry) {
            let expected = "expected general or symmetric";
            return Err(wrong(format!("symmetry '{symmetry}' is not supported: {expected}")));
        }
        let symmetric = symmetry == "symmetric";
        let (line, [rows, columns, promised]) = size_line(&mut lines, symmetric, "rows columns entries")?;
        expect_size(rows, columns, MOST_STATES).map_err(|why| line.error(why))?;
        let kind = MatrixKind { pattern: field == "pattern", rows, columns };
        Ok(Self { kind, symmetric, promised, line: line.number, body: lines.offset })
    }

    /// Parses lines of entries, and appends the entries to `found`.
    fn entries(&self, bytes: &[u8], found: &mut Triples, path: &Path) -> Result<()> {
        let parsed = found.parse(bytes, |text, room| scan(text, self.kind, room));
        parsed.map_err(|(line, reason)| text::error(path, self.line + line, reason))
    }

    /// Builds the matrix; for a symmetric one, the mirrored entries are appended.
    fn matrix(&self, found: Triples, path: &Path) -> Result<Coo> {
        let (mut row, mut column, mut value) = found.into_lists();
        let listed = value.len();
        if listed as u64 != self.promised {
            let reason = format!("expected {} entries by the size line, found {listed}", self.promised);
            return Err(text::error(path, self.line, reason));
        }
        if self.symmetric {
            for k in 0..listed {
                if row[k] != column[k] {
                    row.push(column[k]);
                    column.push(row[k]);
                    value.push(value[k]);
                }
            }
        }
        let (rows, columns) = (self.kind.rows as usize, self.kind.columns as usize);
        Ok(Coo { rows, columns, row, column, value })
    }
}

/// Parses lines of entries, and pushes the entries to `found`.
fn scan(lines: &[u8], kind: MatrixKind, found: &mut TripleSpace) -> Result<(), LineError> {
    let mut scanner = Scanner::new(lines);
    let mut line = 0;
    while scanner.peek().is_some() {
        line += 1;
        let start = scanner.offset();
        match entry(&mut scanner, kind) {
            Ok((i, j, x)) => found.push(i, j, x),
            Err(fault) => {
                let (bytes, _) = text::first_line(&lines[start..]);
                if !is_comment(bytes) {
                    return Err((line, fault.reason(bytes, kind)));
                }
                scanner.skip_line();
            }
        }
    }
    Ok(())
}

/// Kind of error in an entry's line; the message is only built when needed.
enum EntryFault {
    Form,
    Value,
    Row(u64),
    Column(u64),
}

impl EntryFault {
    fn reason(&self, line: &[u8], kind: MatrixKind) -> String {
        let last = text::fields(line).last().unwrap_or(line);
        let line = quote(line);
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
fn entry(scanner: &mut Scanner, kind: MatrixKind) -> Result<(u32, u32, f64), EntryFault> {
    let i = index(scanner).ok_or(EntryFault::Form)?;
    let j = index(scanner).ok_or(EntryFault::Form)?;
    scanner.blanks();
    let mut x = 1.0;
    if !kind.pattern {
        let from = scanner.offset();
        x = scanner.decimal().ok_or(EntryFault::Form)?;
        if x == 0.0 && quantity::is_not_zero(scanner.since(from)) {
            return Err(EntryFault::Value);
        }
        scanner.blanks();
    }
    if !scanner.byte(b'\n') && scanner.peek().is_some() {
        return Err(EntryFault::Form);
    }
    if !x.is_finite() {
        return Err(EntryFault::Value);
    }
    if i == 0 || i > kind.rows {
        return Err(EntryFault::Row(i));
    }
    if j == 0 || j > kind.columns {
        return Err(EntryFault::Column(j));
    }
    Ok(((i - 1) as u32, (j - 1) as u32, x))
}

/// Reads an unsigned integer with optional `+`, after blanks and before a blank.
fn index(scanner: &mut Scanner) -> Option<u64> {
    scanner.blanks();
    let number = scanner.unsigned().or_else(|| scanner.byte(b'+').then(|| scanner.unsigned()).flatten());
    number.filter(|_| scanner.is_delimited())
}

/// True for comments, which start with `%`, and for blank lines.
fn is_comment(line: &[u8]) -> bool {
    line.trim_ascii().first().is_none_or(|&b| b == b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(text: &str) -> Coo {
        parse(text.as_bytes(), Path::new("m.mtx")).unwrap()
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
    fn lines_are_counted_through_chunks() {
        let mut text = String::from("%%MatrixMarket matrix coordinate real general\n9 9 1000001\n");
        text.push_str(&"1 2 3.5\n".repeat(1_000_000));
        assert!(text.len() > 3 << 20, "pieces have some MiB");
        let error = parse(format!("{text}1 10 1\n").as_bytes(), Path::new("m.mtx")).unwrap_err();
        assert!(matches!(error, Error::Parse { line: 1_000_003, .. }), "{error}");
        assert_eq!(matrix(&format!("{text}9 9 1\n")).row.len(), 1_000_001);
    }
}
