//! File formats, one file each.

pub mod drn;
pub mod lab;
pub mod srew;
pub mod text;
pub mod tra;
