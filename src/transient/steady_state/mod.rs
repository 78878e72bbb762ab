//! The steady state π(∞), with a proved bound of its error.
//!
//! [`power_iteration`] iterates until the distance to π(∞) is small. The bound multiplies the
//! residual by the expected number of steps to one state of each closed class. [`gth`] eliminates
//! the states of small or banded chains instead.

pub(super) mod gth;
pub(super) mod power_iteration;
