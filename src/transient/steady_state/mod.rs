//! The steady state π(∞), with a proved bound of its error.
//!
//! [`power_iteration`] iterates until the distance to π(∞) is small. [`hitting_time`] bounds that distance by
//! expected times to reach one state of each closed class. [`gth`] eliminates the states of small or banded
//! chains instead.

mod gth;
pub(super) mod hitting_time;
pub(super) mod power_iteration;
