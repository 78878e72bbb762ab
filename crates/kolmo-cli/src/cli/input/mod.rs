//! Input that only the command has: constants that change with time, exploration of models, stdin,
//! lists of numbers, suggestions for misspelt names.

pub(crate) mod changing_constants;
pub(crate) mod explore;
pub(crate) mod numbers;
pub(crate) mod stdin;
pub(crate) mod suggest;
