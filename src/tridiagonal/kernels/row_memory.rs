//! Memory of a lane for rows.

use std::sync::Arc;

use super::number::Number;
use crate::Result;
use crate::lane::{Buffer, HostArray, Lane};

const NAMES: [&str; 5] =
    ["the lower diagonal", "the diagonal", "the upper diagonal", "the right-hand side", "the unknowns"];

/// Padded length of an array of `rows` rows: threads also access their rows after the last one.
pub(crate) fn padded(rows: usize) -> usize {
    rows.next_multiple_of(8) + 8
}

/// Arrays of a chunk on a lane.
#[derive(Debug)]
pub struct Arrays<T> {
    /// Lower diagonal; its element 0 belongs to the chunk's first row.
    pub dl: Buffer<T>,
    /// Diagonal.
    pub d: Buffer<T>,
    /// Upper diagonal.
    pub du: Buffer<T>,
    /// Right-hand sides, concatenated, each as long as a diagonal.
    pub b: Buffer<T>,
    /// Unknowns, laid out as `b`. Before stage 3 this array may hold reduced blocks.
    pub x: Arc<Buffer<T>>,
}

impl<T: Number> Arrays<T> {
    /// Allocates arrays of `rows` rows with `rhs` right-hand sides.
    pub fn new(lane: &Lane, rows: usize, rhs: usize) -> Result<Self> {
        let of = |array: usize| if array < 3 { 1 } else { rhs };
        let alloc = |array: usize| lane.alloc(NAMES[array], of(array) * padded(rows));
        Ok(Self { dl: alloc(0)?, d: alloc(1)?, du: alloc(2)?, b: alloc(3)?, x: Arc::new(alloc(4)?) })
    }

    /// Uses the host's arrays in place; `None` if the lane cannot work in host memory.
    fn adopt(lane: &Lane, arrays: &[HostArray<T>; 5]) -> Result<Option<Self>> {
        let own = NAMES.into_iter().zip(arrays).map(|(what, array)| lane.adopt(what, array).transpose());
        let Some(own) = own.collect::<Option<Result<Vec<_>>>>() else { return Ok(None) };
        let [dl, d, du, b, x] = <[_; 5]>::try_from(own?).expect("five arrays");
        Ok(Some(Self { dl, d, du, b, x: Arc::new(x) }))
    }

    /// Device memory in bytes.
    pub fn bytes(&self) -> u64 {
        [&self.dl, &self.d, &self.du, &self.b, &*self.x].iter().map(|b| b.bytes()).sum()
    }
}

/// Memory of a lane for the rows that it holds at once.
#[derive(Debug)]
pub(crate) struct RowMemory<T> {
    pub(crate) arrays: Arrays<T>,
    pub(crate) rhs: usize,
    /// Three values per row for back substitution. `None` unless rows are reduced in blocks.
    pub(crate) kept: Option<Buffer<T>>,
    /// True if several runs of rows share this memory, one after another.
    pub(crate) shared: bool,
    /// True if these are the host's arrays, which must not be read while launches run.
    pub(crate) adopted: bool,
}

impl<T: Number> RowMemory<T> {
    /// Allocates memory for `rows` rows and `rhs` right-hand sides, and for back substitution if
    /// `in_blocks`.
    pub(crate) fn new(lane: &Lane, rows: usize, rhs: usize, in_blocks: bool, shared: bool) -> Result<Self> {
        let arrays = Arrays::new(lane, rows, rhs)?;
        let kept = in_blocks.then(|| lane.alloc("what blocks keep for the way back", 3 * rows));
        Ok(Self { arrays, rhs, kept: kept.transpose()?, shared, adopted: false })
    }

    pub(crate) fn adopt(lane: &Lane, arrays: &[HostArray<T>; 5], rhs: usize) -> Result<Option<Self>> {
        let arrays = Arrays::adopt(lane, arrays)?;
        Ok(arrays.map(|arrays| Self { arrays, rhs, kept: None, shared: false, adopted: true }))
    }

    /// Distance between two right-hand sides in elements.
    pub(crate) fn stride(&self) -> usize {
        self.arrays.d.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.arrays.bytes() + self.kept.as_ref().map_or(0, Buffer::bytes)
    }
}
