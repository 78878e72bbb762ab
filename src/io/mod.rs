//! File formats, one file each, and the reading of a chain whatever its format.

pub mod drn;
pub mod generator;
pub mod lab;
mod model;
pub mod mtx;
pub mod npy;
pub mod npz;
pub mod output;
pub mod srew;
mod system;
pub mod text;
pub mod tra;
pub mod tridiagonal;
pub mod umb;
pub mod write;

pub use model::{read_chain, read_distribution};
pub use system::{read_matrix, read_rhs};
