//! File formats, one file each.

pub mod generator;
pub mod mtx;
pub mod npy;
pub mod npz;
pub mod output;
pub mod umb;
pub mod write;
