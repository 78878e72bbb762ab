//! Precisions of a run.

/// Number type of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Precision {
    /// Single precision, 32 bits.
    F32,
    /// Double precision, 64 bits.
    F64,
    /// Fractions of 2⁶⁴, rounded down: [`Q64`](super::Q64).
    Q64,
}

impl Precision {
    /// Unit roundoff u: half the distance from 1 to the next number. For `Q64` it is that of `f64`,
    /// the type of its results.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Self::F32 => 0.5 * f32::EPSILON as f64,
            Self::F64 | Self::Q64 => 0.5 * f64::EPSILON,
        }
    }

    /// Returns the size of a number in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 | Self::Q64 => 8,
        }
    }
}
