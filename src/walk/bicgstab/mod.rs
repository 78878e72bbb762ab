//! BiCGSTAB on one lane, for the control variate and for the certificate of convergence.
//!
//! The solver keeps all vectors on the device. Its kernels have CPU implementations.

pub(crate) mod kernels;
pub mod solver;
