//! Errors of the library as the exceptions of `kolmo.errors`.

use kolmo::Error;
use pyo3::prelude::*;

/// The exception of an error, with its text.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::OnRank { source, .. } => return exception(py, source),
        Error::Invalid(_) => "InvalidInput",
        Error::Divergent { .. } => "Divergent",
        Error::Parse { .. } | Error::File { .. } | Error::Io { .. } => "FileError",
        Error::Device(_) => "DeviceError",
        Error::DeviceLost { .. } => "DeviceLost",
        Error::OutOfMemory { .. } => "OutOfMemory",
        _ => "Error",
    };
    let class = py.import("kolmo.errors").and_then(|module| module.getattr(name));
    let text = error.to_string();
    // Constants are no option here.
    let text = text.strip_prefix("--const: ").unwrap_or(&text);
    match class.and_then(|class| class.call1((text,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}
