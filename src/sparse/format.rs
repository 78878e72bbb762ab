//! Formats of a matrix.

use strum::{Display, EnumString, IntoStaticStr, VariantNames};

use crate::{Error, Invalid};

/// Format of a matrix's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Display, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase", parse_err_ty = Error, parse_err_fn = unknown)]
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

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

fn unknown(name: &str) -> Error {
    Invalid::name::<MatrixFormat>("matrix_format", name)
}
