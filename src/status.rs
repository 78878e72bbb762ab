//! How a solution ended.

/// Whether everything that was asked for is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every bound, half-width or residual is within what was asked for.
    Met,
    /// One of them is not.
    NotMet,
}
