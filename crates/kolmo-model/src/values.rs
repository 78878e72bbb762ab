//! Values of formulas.

/// Values of a formula in all states.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Of type `bool`.
    Truth(Vec<bool>),
    /// Numbers of either type.
    Numbers(Vec<f64>),
}
