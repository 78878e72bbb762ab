//! Output files of the command: reports, values, charts, files of all ranks.

pub(crate) mod collective_file;
pub(crate) mod output_conflicts;
pub(crate) mod plot_series;
pub(crate) mod values;

use std::fmt::Display;
use std::io::Write;
use std::path::Path;

use kolmo::{Error, Result};

/// Writes the lines of `--report` and completes the file; does nothing without a file.
pub(crate) fn write_report(
    file: Option<kolmo::output::OutputFile>,
    lines: impl IntoIterator<Item = impl Display>,
) -> Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    for line in lines {
        writeln!(file, "{line}").map_err(|e| file.error(e))?;
    }
    file.commit()
}

/// Error for an output file with an extension that is not a supported format of `what`.
pub(crate) fn no_format(path: &Path, what: &str, formats: &str) -> Error {
    let reason = match path.extension() {
        Some(extension) => format!("'.{}' is no format of {what}; use {formats}", extension.display()),
        None => format!("has no extension to name the format of {what}; use {formats}"),
    };
    Error::File { path: path.into(), reason }
}
