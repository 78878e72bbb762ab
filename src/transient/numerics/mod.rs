//! Numerical building blocks that know nothing of chains.
//!
//! [`poisson`] has the truncation windows and weights of uniformization, [`chebyshev_coefficients`] those of
//! Chebyshev's expansion. [`double_double`] sums with an error of 2⁻¹⁰⁶; [`fixed_point`] counts the probability
//! that q64 loses.

pub(super) mod chebyshev_coefficients;
pub(super) mod double_double;
pub(super) mod fixed_point;
pub mod poisson;
