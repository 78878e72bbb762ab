//! Krylov's method: e^{tQ} applied to a vector by small projected equations.
//!
//! [`arnoldi`] builds a basis on the lanes, and [`projected_ode`] solves the projected equation
//! with an error bound. [`exponential`] restarts from one basis to the next until all times are
//! reached.

mod arnoldi;
pub(super) mod exponential;
mod projected_ode;
