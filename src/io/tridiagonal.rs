//! Tridiagonal, pentadiagonal and block tridiagonal systems in files.
//!
//! Tridiagonal systems are `.npz` archives with members dl, d, du and b, `.csv` files with these
//! columns, or tridiagonal `.mtx` files. Pentadiagonal systems also have dl2 and du2. Block
//! tridiagonal systems are `.npz` archives with lower, diagonal and upper.

pub use super::npy::Array;
use super::system::extension;
use super::write::{push_integer, push_number, push_triple, write_lines, write_text};
use super::*;
use crate::Invalid;
use crate::output::OutputFile;
use crate::tridiagonal::{BandedSystem, Form as Elements, System};

/// A system from a file, and the shape of its unknowns, which is that of b.
#[derive(Debug, Clone)]
pub struct SystemFile<S = System> {
    /// The system.
    pub system: S,
    /// Shape of the unknowns: `[n]`, `[n, rhs]`, `[batch, n]` or `[batch, n, rhs]`.
    ///
    /// Interleaved systems have `[n, batch]` or `[n, batch, rhs]`, and right-hand sides that share
    /// one matrix have `[rhs, n]`.
    pub shape: Vec<usize>,
    /// Order of the indices in an array of b or x.
    pub order: Order,
    /// True if the file has a right-hand side; otherwise it is 1 in every row.
    pub has_b: bool,
}

/// Order of systems s, rows i and right-hand sides k in an array of b or x, last one fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// One system after another: index `[s, i, k]` for system s, row i and right-hand side k.
    ///
    /// The index k varies fastest.
    Systems,
    /// Row i of all systems s before row i + 1: index `[i, s, k]`, k fastest.
    Interleaved,
    /// One matrix with several right-hand sides k, one after another: index `[k, i]`.
    Shared,
}

impl Order {
    /// Returns the row (counted over all systems) and right-hand side of array element `at`.
    fn place(self, form: &UnknownsLayout<'_>, at: usize) -> (usize, usize) {
        let (rows, rhs) = (form.n * form.batch, form.rhs);
        match self {
            Self::Systems => (at / rhs, at % rhs),
            Self::Interleaved => {
                let (row, k) = (at / rhs, at % rhs);
                (row % form.batch * form.n + row / form.batch, k)
            }
            Self::Shared => (at % rows, at / rows),
        }
    }
}

/// Layout in which unknowns are written.
#[derive(Debug, Clone, Copy)]
pub struct UnknownsLayout<'a> {
    /// Number of rows of one system.
    pub n: usize,
    /// Number of systems.
    pub batch: usize,
    /// Number of right-hand sides per system.
    pub rhs: usize,
    /// Shape of b.
    pub shape: &'a [usize],
    /// Order of the indices in an array of b or x.
    pub order: Order,
}

/// Tile size of a transposition, so that source and destination stay in cache.
const TILE: usize = 32;

/// Transposes `from`, which has rows of `columns` numbers, into `to`.
fn transpose(from: &[f64], columns: usize, to: &mut [f64]) {
    let rows = to.len() / columns;
    to.par_chunks_mut(rows * TILE).enumerate().for_each(|(tile, to)| {
        for first in (0..rows).step_by(TILE) {
            for (j, to) in to.chunks_mut(rows).enumerate() {
                let column = tile * TILE + j;
                for i in first..rows.min(first + TILE) {
                    to[i] = from[i * columns + column];
                }
            }
        }
    });
}

/// Converts an array of shape [n, batch, …] to [batch, n, …].
fn systems_first(array: Array) -> Array {
    match array.shape[..] {
        [n, batch] if n * batch > 0 => {
            let mut values = vec![0.0; n * batch];
            transpose(&array.values, batch, &mut values);
            Array { shape: vec![batch, n], values }
        }
        [n, batch, rhs] => {
            let from = |at: usize| (at / rhs % n * batch + at / rhs / n) * rhs + at % rhs;
            let values = (0..array.values.len()).map(|at| array.values[from(at)]).collect();
            Array { shape: vec![batch, n, rhs], values }
        }
        _ => array,
    }
}

/// Converts b into right-hand sides for diagonals of the shape `d`, `[n]` or `[batch, n]`.
///
/// Returns the right-hand sides, none without b, the shape of the unknowns and their order.
///
/// # Errors
/// [`Error::Invalid`] for shapes that do not fit.
pub fn right_hand_sides(
    d: &[usize],
    b: Option<Array>,
    interleaved: bool,
) -> Result<(Vec<Vec<f64>>, Vec<usize>, Order)> {
    let (n, order) = match interleaved && d.len() == 2 {
        true => (d[1], Order::Interleaved),
        false => (d[d.len() - 1], Order::Systems),
    };
    let turned = |shape: &[usize]| match (order, shape) {
        (Order::Interleaved, [batch, n, rest @ ..]) => [&[*n, *batch], rest].concat(),
        _ => shape.to_vec(),
    };
    let Some(b) = b else { return Ok((Vec::new(), turned(d), order)) };
    let given = b.shape.clone();
    let b = if order == Order::Interleaved { systems_first(b) } else { b };
    let every = |k: usize, step: usize| b.values.iter().skip(k).step_by(step).copied().collect();
    match fit(d, &b.shape) {
        Some(Fit::Same) => Ok((vec![b.values], given, order)),
        Some(Fit::Several(rhs)) => Ok(((0..rhs).map(|k| every(k, rhs)).collect(), given, order)),
        Some(Fit::Shared) => {
            Ok((b.values.chunks_exact(n).map(<[f64]>::to_vec).collect(), b.shape, Order::Shared))
        }
        None => Err(misshapen(&given, &turned(d), n)),
    }
}

/// Relation of the shape of right-hand sides to that of the diagonals.
enum Fit {
    /// One right-hand side per system.
    Same,
    /// Several right-hand sides per system.
    Several(usize),
    /// Several right-hand sides for one matrix.
    Shared,
}

fn fit(d: &[usize], b: &[usize]) -> Option<Fit> {
    match (d, b) {
        _ if b == d => Some(Fit::Same),
        ([..], [front @ .., rhs]) if front == d && *rhs > 0 => Some(Fit::Several(*rhs)),
        ([n], [systems, own]) if own == n && *systems > 0 => Some(Fit::Shared),
        _ => None,
    }
}

/// A system of any kind from a file.
#[derive(Debug, Clone)]
pub enum AnyFile {
    /// Tridiagonal.
    Tridiagonal(SystemFile),
    /// Pentadiagonal, or block tridiagonal.
    Banded(BandedFile),
}

/// A pentadiagonal or block tridiagonal system from a file.
pub type BandedFile = SystemFile<BandedSystem>;

/// Reads a tridiagonal system.
///
/// With `cyclic`, corner entries of the matrix belong to the system. With `interleaved`, arrays
/// hold a system per column instead of per row. `b` replaces the file's own right-hand side.
///
/// # Errors
/// Errors of the format's reader. [`Error::File`] for shapes that do not fit, and for a matrix that
/// is not tridiagonal, with its first entry off the diagonals.
pub fn read(path: &Path, cyclic: bool, interleaved: bool, b: Option<Array>) -> Result<SystemFile> {
    match read_any(path, cyclic, interleaved, b)? {
        AnyFile::Tridiagonal(file) => Ok(file),
        AnyFile::Banded(_) => fail(path, "not tridiagonal: it has elements two off the diagonal"),
    }
}

/// Reads a system of any kind; parameters as in [`read`].
///
/// # Errors
/// Errors of [`read`].
pub fn read_any(path: &Path, cyclic: bool, interleaved: bool, b: Option<Array>) -> Result<AnyFile> {
    let (elements, arrays, own) = match extension(path).as_str() {
        "npz" => read_npz(path, cyclic, interleaved, b.as_ref())?,
        "csv" => read_csv(path)?,
        "mtx" => read_mtx(path, cyclic)?,
        other => {
            let built_in = crate::models::TRIDIAGONAL;
            let expected = format!("expected .npz, .csv or .mtx, or a built-in: {built_in}");
            return fail(path, format!("extension '.{other}' is not supported: {expected}"));
        }
    };
    let b = b.or(own);
    let file = match (elements, <[Array; 3]>::try_from(arrays)) {
        (None, Ok(diagonals)) => assemble(diagonals, b, cyclic, interleaved).map(AnyFile::Tridiagonal),
        (elements, arrays) => {
            let arrays = arrays.map_or_else(|all| all, Vec::from);
            let elements = elements.unwrap_or(Elements::Pentadiagonal);
            assemble_banded(elements, arrays, b, cyclic, interleaved).map(AnyFile::Banded)
        }
    };
    file.map_err(in_file(path))
}

/// Kind of a banded matrix (`None`: tridiagonal), its arrays, and its right-hand sides.
type FileArrays = (Option<Elements>, Vec<Array>, Option<Array>);

fn read_npz(path: &Path, cyclic: bool, interleaved: bool, b: Option<&Array>) -> Result<FileArrays> {
    let members = npz::members(path)?;
    let has = |name: &str| members.iter().any(|member| member == name);
    let elements = match (has("dl2") || has("du2"), has("lower") || has("upper")) {
        (true, _) => Some(Elements::Pentadiagonal),
        (false, true) => Some(Elements::Blocks),
        (false, false) => None,
    };
    let needed = elements.map_or(&["dl", "d", "du"][..], Elements::names);
    let fits = |shapes: &[Option<Vec<usize>>]| {
        let (matrix, own) = shapes.split_at(needed.len());
        let own = b.map(|b| &b.shape).or(own[0].as_ref());
        match (elements, matrix) {
            (None, [dl, d, du]) => {
                let diagonals = [dl, d, du].map(|shape| shape.as_deref().unwrap_or_default());
                fits(diagonals, own.map(Vec::as_slice), cyclic, interleaved).map_err(|e| e.to_string())
            }
            // Shapes of other systems are checked later, by `assemble_banded`.
            _ => Ok(()),
        }
    };
    let mut arrays = npz::read_arrays(path, needed, &["b"], fits)?;
    let own = arrays.pop().flatten();
    Ok((elements, arrays.into_iter().flatten().collect(), own))
}

/// Returns the number of systems and their rows, from the shapes of dl, d and du.
fn size([dl, d, du]: [&[usize]; 3], cyclic: bool) -> Result<(usize, usize)> {
    let (batch, n) = match *d {
        [n] => (1, n),
        [batch, n] => (batch, n),
        _ => {
            return Invalid::Shape.fail(format!("invalid shape {d:?} of d: expected [n] or [batch, n]"));
        }
    };
    for (name, shape) in [("dl", dl), ("du", du)] {
        let fits = shape.len() == d.len()
            && shape[..shape.len() - 1] == d[..d.len() - 1]
            && [n, n.wrapping_sub(1)].contains(&shape[shape.len() - 1]);
        if !fits {
            return Invalid::Shape.fail(format!(
                "invalid shape {shape:?} of {name}: expected {d:?}, as d has, or one element fewer \
                 in each system, as in LAPACK"
            ));
        }
        if cyclic && shape[shape.len() - 1] != n {
            return Invalid::Shape.fail(format!(
                "{name} lacks the corner elements of a cyclic system; give {n} elements for each \
                 system"
            ));
        }
    }
    Ok((batch, n))
}

/// Checks the shapes of a file's arrays.
fn fits(diagonals: [&[usize]; 3], b: Option<&[usize]>, cyclic: bool, interleaved: bool) -> Result<()> {
    let systems_first = |shape: &[usize]| match shape {
        [n, batch, rest @ ..] if interleaved => [&[*batch, *n], rest].concat(),
        _ => shape.to_vec(),
    };
    let [dl, d, du] = diagonals.map(systems_first);
    size([&dl, &d, &du], cyclic)?;
    // Converted as in [`right_hand_sides`].
    let turned = |b| if d.len() == 2 { systems_first(b) } else { b.to_vec() };
    match b {
        Some(b) if fit(&d, &turned(b)).is_none() => Err(misshapen(b, diagonals[1], d[d.len() - 1])),
        _ => Ok(()),
    }
}

/// Returns the error about right-hand sides with a shape that does not fit that of d.
fn misshapen(b: &[usize], d: &[usize], n: usize) -> Error {
    Invalid::Shape.error(format!(
        "invalid shape {b:?} of b: expected {d:?}, as d has, one more dimension for several \
         right-hand sides, or, where many systems share one matrix, [systems, {n}]"
    ))
}

/// Builds a system from arrays of a file. Without `b`, the right-hand side is 1 in every row.
fn assemble(diagonals: [Array; 3], b: Option<Array>, cyclic: bool, interleaved: bool) -> Result<SystemFile> {
    let [dl, d, du] = if interleaved { diagonals.map(systems_first) } else { diagonals };
    let (batch, _) = size([&dl.shape, &d.shape, &du.shape], cyclic)?;
    let has_b = b.is_some();
    let (mut b, shape, order) = right_hand_sides(&d.shape, b, interleaved)?;
    if !has_b {
        b.push(vec![1.0; d.values.len()]);
    }
    let mut system = System::batched(batch, dl.values, d.values, du.values, b)?;
    system.cyclic = cyclic;
    Ok(SystemFile { system, shape, order, has_b })
}

/// Builds a pentadiagonal or block tridiagonal system; without `b`, the right-hand side is 1.
fn assemble_banded(
    elements: Elements,
    arrays: Vec<Array>,
    b: Option<Array>,
    cyclic: bool,
    interleaved: bool,
) -> Result<BandedFile> {
    let names = elements.names();
    let (middle, shape) = (names[names.len() / 2], arrays[names.len() / 2].shape.clone());
    if cyclic {
        return Invalid::Unsupported.fail(format!(
            "{} of a cyclic system are not supported: only tridiagonal systems can be cyclic",
            names.join(", ")
        ));
    }
    if let Some((name, array)) = names.iter().zip(&arrays).find(|(_, array)| array.shape != shape) {
        return Invalid::Shape.fail(format!(
            "{name} has the shape {:?}, but {middle} has {shape:?}: expected equal shapes",
            array.shape
        ));
    }
    let arrays = match elements {
        Elements::Pentadiagonal if interleaved => arrays.into_iter().map(systems_first).collect(),
        Elements::Blocks if interleaved => {
            return Invalid::Argument("layout").fail(
                "`layout` interleaved is not supported for blocks: expected arrays of shape \
                 [batch, block rows, 2, 2]",
            );
        }
        _ => arrays,
    };
    let (batch, rows) = match (elements, &arrays[names.len() / 2].shape[..]) {
        (Elements::Pentadiagonal, &[n]) => (None, n),
        (Elements::Pentadiagonal, &[batch, n]) => (Some(batch), n),
        (Elements::Blocks, &[blocks, 2, 2]) => (None, 2 * blocks),
        (Elements::Blocks, &[batch, blocks, 2, 2]) => (Some(batch), 2 * blocks),
        (_, shape) => {
            let possible = match elements {
                Elements::Pentadiagonal => "[n] or [batch, n]",
                Elements::Blocks => "[block rows, 2, 2] or [batch, block rows, 2, 2]",
            };
            return Invalid::Shape.fail(format!("invalid shape {shape:?} of {middle}: expected {possible}"));
        }
    };
    let d: Vec<usize> = batch.into_iter().chain([rows]).collect();
    let (batch, has_b) = (batch.unwrap_or(1), b.is_some());
    let (mut b, shape, order) = right_hand_sides(&d, b, interleaved)?;
    if !has_b {
        b.push(vec![1.0; batch * rows]);
    }
    let arrays = arrays.into_iter().map(|array| array.values).collect();
    Ok(BandedFile { system: BandedSystem::new(elements, batch, arrays, b)?, shape, order, has_b })
}

/// Reads right-hand sides: `.npy` of any shape, `.mtx` columns, or text.
///
/// Text has one number per line.
///
/// # Errors
/// Errors of the format's reader.
pub fn read_array(path: &Path) -> Result<Array> {
    match extension(path).as_str() {
        "npy" => Array::from_file(path),
        "mtx" => {
            let columns = mtx::read_columns(path)?;
            let (n, rhs) = (columns.first().map_or(0, Vec::len), columns.len());
            Ok(Array {
                shape: [n, rhs][..if rhs == 1 { 1 } else { 2 }].to_vec(),
                values: side_by_side(&columns),
            })
        }
        _ => text::read_vector(path).map(Array::vector),
    }
}

/// Reads columns dl, d, du, optionally dl2, du2 and b. Unused ends of off-diagonals may be empty.
fn read_csv(path: &Path) -> Result<FileArrays> {
    let bytes = text::read(path)?;
    let mut lines = TextLines::new(&bytes, path);
    let Some(head) = lines.next() else {
        return fail(path, "is empty: expected a first line with the column names dl,d,du,b");
    };
    let cells = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes).split(',').map(|c| c.trim().to_owned()).collect()
    };
    // R's write.csv quotes names.
    let bare = |name: String| {
        let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        quoted.map_or(name.clone(), str::to_owned)
    };
    let names: Vec<String> = cells(head.bytes).into_iter().map(bare).collect();
    let place = |name: &str| names.iter().position(|n| n == name);
    let elements = (place("dl2").is_some() || place("du2").is_some()).then_some(Elements::Pentadiagonal);
    let needed = elements.map_or(&["dl", "d", "du"][..], Elements::names);
    let (last, others) = needed.split_last().expect("names are not empty");
    let others = others.join(", ");
    let Some(mut places) = needed.iter().map(|name| place(name)).collect::<Option<Vec<_>>>() else {
        let have = names.join(",");
        let reason = format!("invalid columns '{have}': expected {others} and {last}, and optionally b");
        return Err(head.error(reason));
    };
    for (at, name) in names.iter().enumerate() {
        // A first column without a name holds row numbers.
        let read = needed.contains(&name.as_str()) || name == "b" || (at == 0 && name.is_empty());
        if !read {
            return Err(head.error(format!(
                "unknown column '{name}': expected {others}, {last} and b; rename it or leave it out"
            )));
        }
        if place(name) != Some(at) {
            return Err(head.error(format!("duplicate column '{name}'; remove one of them")));
        }
    }
    places.extend(place("b"));
    let diagonal = needed.len() / 2;
    let mut columns = vec![Vec::new(); needed.len() + 1];
    for line in lines.filter(|line| !line.bytes.is_empty()) {
        let row = cells(line.bytes);
        if row.len() > names.len() {
            let (found, named) = (row.len(), names.len());
            return Err(line.error(format!("{found} cells, but the first line names {named} columns")));
        }
        for (k, &at) in places.iter().enumerate() {
            let cell = row.get(at).map_or("", |c| c.as_str());
            let column = &names[at];
            columns[k].push(match (cell.parse::<f64>(), quantity::out_of_range(cell.as_bytes())) {
                (Ok(value), None) => value,
                (Ok(_), Some(fault)) => {
                    return Err(line.error(format!("'{cell}' in column {column} {fault}")));
                }
                // Possibly an unused end of an off-diagonal; checked when all rows are known.
                _ if cell.is_empty() && k != diagonal && k < needed.len() => f64::NAN,
                _ => {
                    return Err(line.error(format!(
                        "invalid number '{cell}' in column {column}: expected a finite number"
                    )));
                }
            });
        }
    }
    if columns[diagonal].is_empty() {
        return fail(path, "has no row: expected at least 1");
    }
    let own = columns.pop().filter(|_| places.len() > needed.len()).map(Array::vector);
    Ok((elements, columns.into_iter().map(Array::vector).collect(), own))
}

fn read_mtx(path: &Path, cyclic: bool) -> Result<FileArrays> {
    let matrix = mtx::read_matrix(path)?;
    let n = matrix.rows;
    if matrix.columns != n || n == 0 {
        return fail(path, format!("{n} rows and {} columns: expected a square matrix", matrix.columns));
    }
    let place = |row: usize, column: usize| match row.abs_diff(column) {
        beside if beside <= if cyclic { 1 } else { 2 } => Some(column + 2 - row),
        _ => None,
    };
    let entries = || {
        let places = matrix.row.iter().zip(&matrix.column).map(|(&i, &j)| (i as usize, j as usize));
        places.zip(&matrix.value)
    };
    let mut off = entries().map(|((row, column), &value)| value != 0.0 && row.abs_diff(column) == 2);
    let elements = (!cyclic && off.any(|off| off)).then_some(Elements::Pentadiagonal);
    let mut diagonals: Vec<Vec<f64>> = vec![vec![0.0; n]; 5];
    let mut seen = vec![vec![false; n]; 5];
    for ((row, column), &value) in entries() {
        let which = match place(row, column) {
            _ if cyclic && (row, column) == (0, n - 1) && n > 1 => 1,
            _ if cyclic && (row, column) == (n - 1, 0) && n > 2 => 3,
            Some(which) => which,
            None if value == 0.0 => continue,
            None => {
                let distance = row.abs_diff(column);
                let hint = if distance == n - 1 { "; corner elements need `cyclic`" } else { "" };
                let reason = format!(
                    "not tridiagonal: entry ({}, {}) = {value} is {distance} off the diagonal{hint}; \
                     for any matrix, use random walks",
                    row + 1,
                    column + 1
                );
                return fail(path, reason);
            }
        };
        if std::mem::replace(&mut seen[which][row], true) {
            let lines = mtx::lines_of(&text::read(path)?, path, row as u32, column as u32)?;
            let reason = format!("duplicate entry ({}, {}); add both into one", row + 1, column + 1);
            return Err(text::error(path, lines.last().copied().unwrap_or(0), reason));
        }
        diagonals[which][row] = value;
    }
    if elements.is_none() {
        diagonals = diagonals.into_iter().skip(1).take(3).collect();
    }
    Ok((elements, diagonals.into_iter().map(Array::vector).collect(), None))
}

/// Writes unknowns: `.npy` in b's shape, `.csv` with a column per right-hand side, or `.txt`.
///
/// A `.txt` file has one number per line.
pub fn write(mut out: OutputFile, format: &str, form: &UnknownsLayout<'_>, x: &[Vec<f64>]) -> Result<()> {
    let UnknownsLayout { n, batch, shape, order, .. } = *form;
    let rows = n * batch;
    let written = match format {
        "npy" => (|| {
            let mut writer = npy::NpyWriter::new(&mut out, shape)?;
            if let ([x], Order::Systems | Order::Shared) = (x, order) {
                writer.write(x)?;
            } else {
                const BLOCK: usize = 1 << 12;
                let (mut block, all) = (Vec::new(), rows * x.len());
                for first in (0..all).step_by(BLOCK) {
                    let places = (first..all.min(first + BLOCK)).map(|at| order.place(form, at));
                    block.clear();
                    block.extend(places.map(|(row, k)| x[k][row]));
                    writer.write(&block)?;
                }
            }
            writer.finish().map(drop)
        })(),
        "txt" => x.iter().try_for_each(|x| write_text(&mut out, x)),
        _ => (|| {
            let several = batch > 1;
            let columns = match x {
                [_] => ",x".to_owned(),
                _ => (0..x.len()).map(|k| format!(",x{k}")).collect(),
            };
            writeln!(out, "{}row{columns}", if several { "system," } else { "" })?;
            write_lines(&mut out, rows, &|i, text| {
                if several {
                    push_integer(text, (i / n) as u64);
                    text.push(b',');
                }
                push_integer(text, (i % n) as u64);
                for x in x {
                    text.push(b',');
                    push_number(text, x[i]);
                }
                text.push(b'\n');
            })
        })(),
    };
    written.map_err(|e| out.error(e))?;
    out.commit()
}

/// Merges solutions row by row: the unknowns of row 0 for all right-hand sides, then row 1 ….
pub fn side_by_side(x: &[Vec<f64>]) -> Vec<f64> {
    let rows = x.first().map_or(0, Vec::len);
    (0..rows).flat_map(|row| x.iter().map(move |x| x[row])).collect()
}

/// Writes a pentadiagonal or block tridiagonal system as `.npz`.
pub fn write_banded(out: &mut dyn npz::WriteSeek, system: &BandedSystem) -> io::Result<()> {
    let (n, front) = (system.n() as u64, (system.batch() > 1).then_some(system.batch() as u64));
    let shape = |own: &[u64]| front.into_iter().chain(own.iter().copied()).collect::<Vec<u64>>();
    let of_matrix = match system.form() {
        Elements::Pentadiagonal => shape(&[n]),
        Elements::Blocks => shape(&[n / 2, 2, 2]),
    };
    let named = system.form().names().iter().zip(system.arrays());
    let mut arrays: Vec<_> = named.map(|(&name, values)| (name, of_matrix.clone(), &values[..])).collect();
    arrays.push(("b", shape(&[n]), &system.b[0]));
    npz::write_arrays(out, &arrays)
}

/// Writes a system of one right-hand side as `.npz`, `.csv`, or `.mtx` (without b).
///
/// Several systems are written as `.npz` only.
pub fn write_system(out: &mut dyn npz::WriteSeek, format: &str, system: &System) -> io::Result<()> {
    let n = system.n;
    match format {
        "npz" => {
            let arrays = [("dl", &system.dl), ("d", &system.d), ("du", &system.du), ("b", &system.b[0])];
            let shape = [system.batch as u64, n as u64];
            let shape = &shape[usize::from(system.batch == 1)..];
            npz::write_arrays(out, &arrays.map(|(name, values)| (name, shape.to_vec(), &values[..])))
        }
        "csv" => {
            out.write_all(b"dl,d,du,b\n")?;
            write_lines(out, n, &|i, text| {
                for values in [&system.dl, &system.d, &system.du] {
                    push_number(text, values[i]);
                    text.push(b',');
                }
                push_number(text, system.b[0][i]);
                text.push(b'\n');
            })
        }
        _ => {
            let entries = 3 * n as u64 - 2;
            writeln!(out, "%%MatrixMarket matrix coordinate real general\n{n} {n} {entries}")?;
            write_lines(out, n, &|i, text| {
                let row = i as u64 + 1;
                if i > 0 {
                    push_triple(text, row, row - 1, system.dl[i]);
                }
                push_triple(text, row, row, system.d[i]);
                if i + 1 < n {
                    push_triple(text, row, row + 1, system.du[i]);
                }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::npz::tests::archive;

    #[test]
    fn shapes_are_compared_before_anything_is_unpacked() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s.npz");
        for (members, words) in [
            // The data promised by the headers are missing.
            (&[("dl", 7), ("d", 3), ("du", 3)][..], "invalid shape [7] of dl: expected [3]"),
            (&[("dl", 1 << 50), ("d", 1 << 50), ("du", 1 << 50)], "available"),
            (&[("dl", 3), ("d", 3), ("du", 3), ("b", 4)], "invalid shape [4] of b: expected [3]"),
        ] {
            let shapes: Vec<(&str, [u64; 1])> = members.iter().map(|&(name, n)| (name, [n])).collect();
            let members: Vec<_> = shapes.iter().map(|(name, n)| (*name, "<f8", &n[..], vec![])).collect();
            std::fs::write(&path, archive(&members, zip::CompressionMethod::Stored)).unwrap();

            let error = read(&path, false, false, None).unwrap_err().to_string();

            assert!(error.contains(words), "{error}");
        }
    }
}
