//! Conversion of the library's errors to the exceptions of `kolmo.errors`.

use kolmo::Error;
use pyo3::prelude::*;

/// Converts an error to an exception with its text.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::OnRank { source, .. } => return exception(py, source),
        Error::Invalid(..) => "InvalidInput",
        Error::Divergent { .. } => "Divergent",
        Error::Device(_) | Error::Capability(_) => "DeviceError",
        Error::DeviceLost { .. } => "DeviceLost",
        Error::OutOfMemory { .. } => "OutOfMemory",
        _ => "Error",
    };
    let module = py.import("kolmo.errors");
    let text = error.to_string();
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
