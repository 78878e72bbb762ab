//! Expectations until absorption, and values of every initial state.
//!
//! [`values`] computes E_i f(X_t) for all states i, [`reachability`] the probabilities of ever
//! reaching a set, and [`absorption`] rewards until absorption from one distribution. [`envelope`]
//! eliminates the transient states if that is shorter. [`predecessors`] finds the states from which
//! a set can be reached.

pub(super) mod absorption;
pub(super) mod predecessors;
pub(super) mod reachability;
pub(super) mod values;
