//! Reads a model in a text format from stdin.

use std::io::Read;

use crate::cli::prelude::*;
use kolmo::io::read_chain;
use kolmo::io::text::CheckedReader;
use kolmo::transient::Chain;

/// Name of the model in messages.
const NAME: &str = "stdin";

/// Reads a chain from stdin in Matrix Market, DRN or PRISM's format, recognised by its first bytes.
pub(crate) fn read(labels: Option<&Path>, discrete: bool) -> Result<Chain> {
    let failed = |source| Error::Io { path: NAME.into(), source };
    let mut bytes = Vec::new();
    CheckedReader::new(std::io::stdin().lock()).read_to_end(&mut bytes).map_err(failed)?;
    let folder = tempfile::tempdir().map_err(failed)?;
    // Readers take files, and some read them twice.
    let path = folder.path().join(NAME).with_extension(extension(&bytes));
    std::fs::write(&path, &bytes).map_err(failed)?;
    drop(bytes);
    let mut chain = read_chain(&path, labels, discrete).map_err(|e| named(e, &path))?;
    let shown = path.display().to_string();
    chain.warnings.iter_mut().for_each(|warning| *warning = warning.replace(&shown, NAME));
    chain.name = NAME.to_owned();
    Ok(chain)
}

fn extension(bytes: &[u8]) -> &'static str {
    let begins = |text: &str| bytes.trim_ascii_start().starts_with(text.as_bytes());
    if begins("%%MatrixMarket") {
        "mtx"
    } else if begins("@") || begins("//") {
        "drn"
    } else {
        "tra"
    }
}

/// Replaces the name of the temporary file in an error by `stdin`.
fn named(error: Error, file: &Path) -> Error {
    let name = |path: PathBuf| if path == file { NAME.into() } else { path };
    match error {
        Error::Parse { path, line, reason } => Error::Parse { path: name(path), line, reason },
        Error::File { path, reason } => Error::File { path: name(path), reason },
        other => other,
    }
}
