//! File formats, one file each.

pub mod drn;
pub mod lab;
pub mod srew;
pub mod text;
pub mod tra;
pub mod generator;
pub mod mtx;
pub mod npy;
pub mod npz;
pub mod output;
pub mod umb;
pub mod write;
