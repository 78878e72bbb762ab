//! Standard error, help texts, progress display and Ctrl-C.

pub(crate) mod help;
pub(crate) mod interrupt;
pub(crate) mod progress;

use std::fmt::Display;
use std::io::Write;

use crate::report::painted;

/// Writes a line of text to stderr. Errors of writing are ignored.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{}", painted(&text.to_string()));
}
