//! The memory that a lane needs for its rows.

use crate::util::quantity::Size;
use crate::{Error, Result};

/// The bytes that a lane is to hold.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct MemoryRequirement {
    /// The lane's device.
    pub device: String,
    /// The device's name.
    pub name: String,
    /// Rows.
    pub rows: usize,
    /// Entries of the rows, without the diagonal.
    pub entries: u64,
    /// Format of the matrix.
    pub format: &'static str,
    /// The matrix, exit rates included.
    pub matrix: u64,
    /// Two iterates with their halos, and one accumulator.
    pub vectors: u64,
    /// Free bytes, if they are known.
    pub free: Option<u64>,
}

impl MemoryRequirement {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.matrix + self.vectors
    }

    /// True if it is there.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.total() <= free)
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.rows += more.rows;
        self.entries += more.entries;
        self.matrix += more.matrix;
        self.vectors += more.vectors;
    }

    /// An error where it is not.
    pub fn expect(&self) -> Result<()> {
        if self.fits() {
            return Ok(());
        }
        Err(Error::OutOfMemory {
            device: format!("{} ({})", self.device, self.name),
            what: format!(
                "{} rows of the chain (matrix {}, vectors {})",
                self.rows,
                Size(self.matrix),
                Size(self.vectors)
            ),
            asked: self.total(),
            limit: format!(
                "{} are free; share the rows over more devices (--device LIST), or use --precision f32 where \
                 that is enough{}",
                Size(self.free.unwrap_or(0)),
                if self.device == "cpu" { "" } else { ", or --device cpu" }
            ),
        })
    }
}
