//! Elimination on the host, for interface systems and as the last resort of every scheme.
//!
//! LU factorization with partial pivoting of tridiagonal, cyclic and banded matrices. Scaling by
//! powers of two, and the test for matrices that are singular to working precision, belong to it.

pub(crate) mod banded_lu;
pub(crate) mod eliminate;
pub(crate) mod lu;
pub(crate) mod pivoted_lu;
pub(crate) mod scaling;
pub(crate) mod singularity;
