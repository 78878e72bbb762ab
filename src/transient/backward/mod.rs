//! Expectations until absorption, and values of every initial state.
//!
//! [`values`] computes E_i f(X_t) for all states i, [`reachability`] the probabilities of ever
//! reaching a set, and [`absorption`] rewards until absorption from one distribution. [`envelope`]
//! eliminates the transient states if that is shorter. [`hitting_time`] bounds expected numbers of
//! steps for steady states on several ranks.

pub(super) mod absorption;
pub(super) mod envelope;
pub(super) mod hitting_time;
pub(super) mod reachability;
pub(super) mod values;
