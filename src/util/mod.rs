//! Small helpers without a domain: waiting, arrays in registers, counts and sizes, selection.

pub(crate) mod backoff;
pub(crate) mod inline_array;
pub(crate) mod quantity;
pub(crate) mod top_k;
