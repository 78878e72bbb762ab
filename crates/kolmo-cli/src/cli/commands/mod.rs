//! Commands of `kolmo`: the options and the run of each.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod transient;
pub(crate) mod tridiagonal;
pub(crate) mod tune;
pub(crate) mod walk;
