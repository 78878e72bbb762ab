//! Coefficients and error terms of the methods, independent of chains.
//!
//! [`poisson`] computes the truncation windows and weights of uniformization, and
//! [`chebyshev_coefficients`] the coefficients of the Chebyshev method. [`fixed_point`] measures
//! the probability lost in q64.

pub(super) mod chebyshev_coefficients;
pub(super) mod fixed_point;
pub mod poisson;
