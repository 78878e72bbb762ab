//! Standard error, help texts, progress display and Ctrl-C.

pub(crate) mod help;
pub(crate) mod interrupt;
pub(crate) mod option_names;
pub(crate) mod progress;

use option_names::with_options;
use std::fmt::Display;
use std::io::Write;

use crate::report::painted;

/// Writes a line to stderr, with settings as options of the command; ignores errors of writing.
pub(crate) fn say(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{}", painted(&with_options(&text.to_string())));
}
