//! Memory that a lane needs for its rows.

use crate::error::Size;
use crate::{Error, Limit, Result};

/// Memory requirement of a lane.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct MemoryRequirement {
    /// Specification of the lane's device, such as `cpu`.
    pub device: String,
    /// Name of the device.
    pub name: String,
    /// Number of rows.
    pub rows: usize,
    /// Number of entries of the rows, without the diagonal.
    pub entries: u64,
    /// Format of the matrix.
    pub format: &'static str,
    /// Bytes of the matrix, including exit rates.
    pub matrix: u64,
    /// Bytes of two iterates with their halos, and of one accumulator.
    pub vectors: u64,
    /// Free bytes of the device, if known.
    pub free: Option<u64>,
}

impl MemoryRequirement {
    /// Returns the total number of bytes.
    pub fn total(&self) -> u64 {
        self.matrix + self.vectors
    }

    /// Returns true if the free memory suffices, or is unknown.
    pub fn fits(&self) -> bool {
        self.free.is_none_or(|free| self.total() <= free)
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.rows += more.rows;
        self.entries += more.entries;
        self.matrix += more.matrix;
        self.vectors += more.vectors;
    }

    /// Returns an error if the free memory does not suffice.
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
            limit: Limit::Free(format!(
                "{} are free; share the rows over more devices with `device`, or use `precision` \
                 f32 where that is enough{}",
                Size(self.free.unwrap_or(0)),
                if self.device == "cpu" { "" } else { ", or `device` cpu" }
            )),
        })
    }
}
