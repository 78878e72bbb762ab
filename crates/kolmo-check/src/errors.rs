//! Errors of models as errors of kolmo.

use kolmo::{Error, Invalid};

/// Converts an error of the language to an error of kolmo.
pub fn refused(error: kolmo_model::Error) -> Error {
    match error {
        kolmo_model::Error::Interrupted => Error::Interrupted,
        kolmo_model::Error::Constant(why) => {
            Invalid::Argument("constants").error(format!("`constants`: {why}"))
        }
        kolmo_model::Error::Size(why) => Invalid::TooLarge.error(why),
        error => Error::invalid(unprefixed(&error.to_string())),
    }
}

/// Removes the "error: " from the start of a message, which is added to every error later.
pub(crate) fn unprefixed(text: &str) -> String {
    text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned()
}
