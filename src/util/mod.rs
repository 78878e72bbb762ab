//! Small helpers without a domain: arrays in registers, counts and sizes.

pub(crate) mod inline_array;
pub(crate) mod options;
pub(crate) mod quantity;
