//! Formats of a matrix.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Invalid, Result};

/// Format of a matrix's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatrixFormat {
    /// Format with the fastest step in a trial on a CPU, or the fewest bytes on a GPU.
    #[default]
    Auto,
    /// One column and one value per entry, for any matrix.
    Hyb,
    /// One word per entry, for matrices with few distinct values.
    Packed,
    /// One or two bytes per row, for matrices with few distinct rows.
    Pattern,
}

impl MatrixFormat {
    /// All storage formats, the largest entries first.
    pub const STORED: [Self; 3] = [Self::Hyb, Self::Packed, Self::Pattern];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hyb => "hyb",
            Self::Packed => "packed",
            Self::Pattern => "pattern",
        }
    }
}

impl FromStr for MatrixFormat {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let known = [Self::Auto].into_iter().chain(Self::STORED);
        known.clone().find(|f| f.name() == s).ok_or_else(|| {
            let names: Vec<_> = known.map(Self::name).collect();
            Invalid::Argument("matrix_format")
                .error(format!("invalid matrix format '{s}': expected {}", names.join(", ")))
        })
    }
}

impl fmt::Display for MatrixFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
