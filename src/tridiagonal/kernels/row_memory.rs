//! A lane's memory for rows.

use std::sync::Arc;

use super::number::Number;
use crate::Result;
use crate::lane::{Buffer, HostArray, Lane};

/// Names of the five arrays in errors.
const NAMES: [&str; 5] =
    ["the lower diagonal", "the diagonal", "the upper diagonal", "the right-hand side", "the unknowns"];

/// Numbers of an array of `rows` rows: a thread reads and writes all rows that it could have, whether the last of them
/// exist or not.
pub(crate) fn padded(rows: usize) -> usize {
    rows.next_multiple_of(8) + 8
}

/// A chunk's numbers on a lane.
#[derive(Debug)]
pub struct Arrays<T> {
    /// Lower diagonal; its element 0 belongs to the chunk's first row.
    pub dl: Buffer<T>,
    /// Diagonal.
    pub d: Buffer<T>,
    /// Upper diagonal.
    pub du: Buffer<T>,
    /// Right-hand sides, one behind the other, each as long as a diagonal.
    pub b: Buffer<T>,
    /// Unknowns, in the same way. Before they are there it may have what rows are reduced to.
    pub x: Arc<Buffer<T>>,
}

impl<T: Number> Arrays<T> {
    /// Arrays of `rows` rows with so many right-hand sides.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, rows: usize, rhs: usize) -> Result<Self> {
        let of = |array: usize| if array < 3 { 1 } else { rhs };
        let alloc = |array: usize| lane.alloc(NAMES[array], of(array) * padded(rows));
        Ok(Self { dl: alloc(0)?, d: alloc(1)?, du: alloc(2)?, b: alloc(3)?, x: Arc::new(alloc(4)?) })
    }

    /// The host's arrays themselves, where the lane can work there.
    fn adopt(lane: &Lane, arrays: &[HostArray<T>; 5]) -> Result<Option<Self>> {
        let own = NAMES.into_iter().zip(arrays).map(|(what, array)| lane.adopt(what, array).transpose());
        let Some(own) = own.collect::<Option<Result<Vec<_>>>>() else { return Ok(None) };
        let [dl, d, du, b, x] = <[_; 5]>::try_from(own?).expect("five arrays");
        Ok(Some(Self { dl, d, du, b, x: Arc::new(x) }))
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        [&self.dl, &self.d, &self.du, &self.b, &*self.x].iter().map(|b| b.bytes()).sum()
    }
}

/// The rows that a lane holds at once.
#[derive(Debug)]
pub(crate) struct RowMemory<T> {
    pub(crate) arrays: Arrays<T>,
    /// Right-hand sides.
    pub(crate) rhs: usize,
    /// Numbers that blocks keep for the way back.
    pub(crate) kept: Option<Buffer<T>>,
    /// Whether several runs of rows go through it.
    pub(crate) shared: bool,
    /// Whether these are the host's arrays themselves, which nobody may look at while launches run.
    pub(crate) adopted: bool,
}

impl<T: Number> RowMemory<T> {
    /// Memory for so many rows and right-hand sides, and for what blocks keep of them.
    pub(crate) fn new(lane: &Lane, rows: usize, rhs: usize, in_blocks: bool, shared: bool) -> Result<Self> {
        let arrays = Arrays::new(lane, rows, rhs)?;
        let kept = in_blocks.then(|| lane.alloc("what blocks keep for the way back", 3 * rows));
        Ok(Self { arrays, rhs, kept: kept.transpose()?, shared, adopted: false })
    }

    /// The host's arrays themselves, where the lane can work there.
    pub(crate) fn adopt(lane: &Lane, arrays: &[HostArray<T>; 5], rhs: usize) -> Result<Option<Self>> {
        Ok(Arrays::adopt(lane, arrays)?.map(|arrays| Self {
            arrays,
            rhs,
            kept: None,
            shared: false,
            adopted: true,
        }))
    }

    /// Numbers between two right-hand sides.
    pub(crate) fn stride(&self) -> usize {
        self.arrays.d.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.arrays.bytes() + self.kept.as_ref().map_or(0, Buffer::bytes)
    }
}
