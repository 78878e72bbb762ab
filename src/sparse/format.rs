//! Formats of a matrix.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// A format of a matrix's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatrixFormat {
    /// That which moves the fewest bytes.
    #[default]
    Auto,
    /// A column and a value an entry: any matrix.
    Hyb,
    /// A word an entry: few distinct values.
    Packed,
    /// A byte an entry: few distinct pairs (column − row, value).
    Pair,
    /// A byte or two a row: few distinct rows.
    Pattern,
}

impl MatrixFormat {
    /// All that a matrix can be stored in, the largest entries first.
    pub const STORED: [Self; 4] = [Self::Hyb, Self::Packed, Self::Pair, Self::Pattern];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Hyb => "hyb",
            Self::Packed => "packed",
            Self::Pair => "pair",
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
            Error::Invalid(format!("'{s}' is no matrix format; give {}", names.join(", ")))
        })
    }
}

impl fmt::Display for MatrixFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
