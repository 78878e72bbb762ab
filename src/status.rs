//! Outcome of a solution.

/// Outcome of a solution: all tolerances met, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every bound, half-width or residual is within its tolerance.
    Met,
    /// At least one bound, half-width or residual exceeds its tolerance.
    NotMet,
}

impl Status {
    /// Returns the status of a solution by whether it meets all tolerances.
    pub(crate) fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::NotMet }
    }
}
