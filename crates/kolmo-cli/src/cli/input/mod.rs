//! Input that only the command has: exploration of models, stdin, suggestions for misspelt names.

pub(crate) mod explore;
pub(crate) mod stdin;
pub(crate) mod suggest;
