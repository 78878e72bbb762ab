//! Krylov's method: e^{tQ} applied to a vector by small projected equations.
//!
//! [`arnoldi`] builds a basis on the lanes, [`projected_ode`] solves the small equation with a bound of its
//! error, and [`exponential`] goes from one basis to the next until all times are reached.

mod arnoldi;
pub(super) mod exponential;
mod projected_ode;
