//! Small helpers without a domain: arrays in registers, memory, counts and sizes, streams.

pub(crate) mod inline_array;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod quantity;
pub(crate) mod started;
