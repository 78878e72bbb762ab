//! General matrices and right-hand sides in any supported format.

use std::path::PathBuf;

use super::*;
use crate::walk::splitting::MOST_UNKNOWNS;

/// Returns the extension in lower case, without `.gz`.
pub(super) fn extension(path: &Path) -> String {
    bare(path).extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase()
}

/// Returns the path without `.gz`.
pub(super) fn bare(path: &Path) -> PathBuf {
    match path.extension() {
        Some(e) if e.eq_ignore_ascii_case("gz") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

/// Reads a matrix: Matrix Market `.mtx`, SciPy's `.npz` or a dense `.npy`.
///
/// Entries with the same row and column are added. The second value lists warnings for the user.
///
/// # Errors
/// Errors of the format's reader; [`Error::File`] for another extension.
pub fn read_matrix(path: &Path) -> Result<(CsrMatrix, Vec<String>)> {
    let (entries, notes) = entries(path)?;
    // Memory is checked first: the size line alone must not decide how much is allocated.
    let (rows, columns) = (entries.rows, entries.columns);
    expect_size(rows, columns, MOST_UNKNOWNS as u64).map_err(|why| Error::file(path, why))?;
    expect_memory(16 * rows as u64 + 12 * entries.value.len() as u64, || {
        format!("{}: a matrix of {rows} rows and {} entries", path.display(), entries.value.len())
    })?;
    Ok((CsrMatrix::from_entries(entries), notes))
}

/// Reads the entries of a matrix, in the order of the file, and warnings for the user.
pub(super) fn entries(path: &Path) -> Result<(Coo, Vec<String>)> {
    match &extension(path)[..] {
        "mtx" => Ok((mtx::read_matrix(path)?, Vec::new())),
        "npz" => npz::read_matrix(path),
        "npy" => npy::read_matrix(path),
        _ => {
            let built_in = crate::models::SYSTEMS;
            let expected =
                format!("expected a matrix (.mtx, .mtx.gz, .npz or .npy) or a built-in: {built_in}");
            fail(path, format!("has an unknown extension: {expected}"))
        }
    }
}

/// Reads right-hand sides, one per column of a Matrix Market or `.npy` file.
///
/// A 1-D array is one right-hand side. Text holds one right-hand side, with one number per line.
///
/// # Errors
/// Errors of the format's reader; [`Error::File`] for an `.npz` archive.
pub fn read_rhs(path: &Path) -> Result<Vec<Vec<f64>>> {
    match &extension(path)[..] {
        "npy" => npy::read_columns(path),
        "mtx" => mtx::read_columns(path),
        "npz" => fail(path, "is an .npz archive, which holds a matrix; give a vector as .npy, .mtx or text"),
        _ => Ok(vec![text::read_vector(path)?]),
    }
}
