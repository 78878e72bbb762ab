//! Output files of the command: reports, values, charts, files of all ranks.

pub(crate) mod collective_file;
pub(crate) mod output_conflicts;
pub(crate) mod plot_series;
pub(crate) mod values;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use kolmo::io::npy::NpyWriter;
use kolmo::output::OutputFile;
use kolmo::{Error, Result};

/// Writes a file and completes it.
pub(crate) fn complete(
    mut file: OutputFile,
    write: impl FnOnce(&mut OutputFile) -> io::Result<()>,
) -> Result<()> {
    write(&mut file).map_err(|e| file.error(e))?;
    file.commit()
}

/// Writes an output file that [`finish`] gives its name.
pub(crate) fn written(path: &Path, write: &dyn Fn(&mut OutputFile) -> io::Result<()>) -> Result<OutputFile> {
    let mut file = OutputFile::create(path)?;
    write(&mut file).and_then(|()| file.flush()).map_err(|e| file.error(e))?;
    Ok(file)
}

/// Gives the files their names, once all of them are complete.
pub(crate) fn finish(files: Vec<OutputFile>) -> Result<()> {
    files.into_iter().try_for_each(OutputFile::commit)
}

/// Writes an array as `.npy`, its rows one after another.
pub(crate) fn npy<'a>(
    file: &mut OutputFile,
    shape: &[usize],
    rows: impl IntoIterator<Item = &'a [f64]>,
) -> io::Result<()> {
    let mut writer = NpyWriter::new(file, shape)?;
    rows.into_iter().try_for_each(|row| writer.write(row))?;
    writer.finish().map(drop)
}

/// Prints a text to stdout.
pub(crate) fn print(text: impl Display) -> Result<()> {
    complete(OutputFile::stdout(), |out| write!(out, "{text}"))
}

/// Writes the object of `--report` with the version, if there is a file.
pub(crate) fn write_object(file: Option<OutputFile>, object: &Value) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let mut object = object.clone();
    object["version"] = env!("CARGO_PKG_VERSION").into();
    complete(file, |file| writeln!(file, "{object:#}"))
}

/// Writes the lines of `--report`, one JSON object a record, if there is a file.
pub(crate) fn write_records(file: Option<OutputFile>, records: &[impl Serialize]) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    complete(file, |file| {
        records.iter().try_for_each(|record| writeln!(file, "{}", serde_json::json!(record)))
    })
}

/// Returns the extension of an output file of `what`; an error unless it is one of `formats`.
///
/// `formats` is a text such as `.mtx or .npz`.
pub(crate) fn extension<'a>(path: &'a Path, what: &str, formats: &str) -> Result<&'a str> {
    let given = path.extension().and_then(|e| e.to_str());
    let mut known = formats.split([' ', ',']).filter_map(|word| word.strip_prefix('.'));
    if let Some(given) = given.filter(|given| known.any(|known| known == *given)) {
        return Ok(given);
    }
    let reason = match path.extension() {
        Some(given) => {
            format!("format '.{}' is not supported for {what}: expected {formats}", given.display())
        }
        None => format!("has no extension to name the format of {what}; use {formats}"),
    };
    Err(Error::File { path: path.into(), reason })
}
