//! Conversion of the library's errors to the exceptions of `kolmo.errors`.

use kolmo::Error;
use pyo3::prelude::*;

/// Converts an error to an exception with its text.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::OnRank { source, .. } => return exception(py, source),
        Error::Invalid(_) => "InvalidInput",
        Error::Divergent { .. } => "Divergent",
        Error::Device(_) => "DeviceError",
        Error::DeviceLost { .. } => "DeviceLost",
        Error::OutOfMemory { .. } => "OutOfMemory",
        _ => "Error",
    };
    let module = py.import("kolmo.errors");
    let text = error.to_string();
    // Constants are keywords here, not an option.
    let text = as_keywords(text.strip_prefix("--const: ").unwrap_or(&text));
    let value = module.and_then(|module| match error {
        Error::Parse { path, .. } | Error::File { path, .. } | Error::Io { path, .. } => {
            let code = match error {
                Error::Io { source, .. } => source.raw_os_error(),
                _ => None,
            };
            module.getattr("file_error")?.call1((text, code, path))
        }
        _ => module.getattr(name)?.call1((text,)),
    });
    value.map_or_else(|error| error, PyErr::from_value)
}

/// Replaces options by keywords: `--time-limit` becomes time_limit.
///
/// Commands in backquotes stay as they are.
fn as_keywords(text: &str) -> String {
    let mut parts = Vec::new();
    for (number, part) in text.split('`').enumerate() {
        if number % 2 == 1 {
            parts.push(part.to_owned());
            continue;
        }
        let mut pieces = part.split("--");
        let mut told = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let end = piece.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(piece.len());
            match piece.starts_with(|c: char| c.is_ascii_lowercase()) {
                true => told.push_str(&piece[..end].replace('-', "_")),
                false => {
                    told.push_str("--");
                    told.push_str(&piece[..end]);
                }
            }
            told.push_str(&piece[end..]);
        }
        parts.push(told);
    }
    parts.join("`")
}
