//! The steady state π(∞), with a proved bound of its error.
//!
//! [`limit`] computes it by [multilevel aggregation](super::multilevel). [`gth`] eliminates the
//! states of small or banded chains instead.

pub(super) mod gth;
pub(super) mod limit;
