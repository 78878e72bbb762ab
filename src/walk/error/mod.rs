//! Bounds of truncation and rounding of walks, for every component.

pub(crate) mod bounds;
