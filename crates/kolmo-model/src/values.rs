//! Values of formulas.

/// Values of a formula in all states.
#[derive(Clone, Debug, PartialEq)]
pub enum PerState {
    /// Values of a formula of type `bool`.
    Truth(Vec<bool>),
    /// Values of a formula of type `int` or `double`.
    Numbers(Vec<f64>),
}
