//! Interface equations on a lane by levels: reduced blocks in tiles, reduced systems in blocks.

use std::sync::Arc;

use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Buffer, Lane, Launch};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::{NOT_DOMINANT, all_flags};

/// Layout of an item: a reduced block in tiles, a row of the reduced system in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of arrays (columns) that hold the equations, one after another in one buffer.
    pub columns: usize,
    /// Number of elements per item in each of the `columns` arrays.
    pub width: usize,
    /// Number of 32-bit flags per item that are sent with it.
    pub flags: usize,
    /// Number of interface values (unknowns of the reduced system) per item.
    pub values: usize,
    /// Number of interface values after those of the last item.
    pub behind: usize,
}

impl Shape {
    /// Layout in tiles: six numbers and two adjacent unknowns (values) of each `ReducedBlock`.
    pub const REDUCED_BLOCKS: Self = Self { columns: 1, width: 6, flags: 1, values: 2, behind: 0 };
    /// Layout in blocks: arrays dl, d, du and b of a reduced system; the values are its unknowns
    /// and the one after them. The flags, one per 256 blocks, stay on the lane.
    pub const REDUCED_SYSTEM: Self = Self { columns: 4, width: 1, flags: 0, values: 1, behind: 1 };
    /// Layout for systems that are not coupled by interface equations: no data.
    pub const NOTHING: Self = Self { columns: 0, width: 0, flags: 0, values: 0, behind: 0 };
}

/// Interface equations of one level, and their values.
#[derive(Debug)]
pub struct Level<T> {
    /// Number of items (see [`Shape`]).
    pub count: usize,
    /// Number of elements per item in each column (see [`Shape`]).
    width: usize,
    /// Columns of the equations, possibly in an array that is also used otherwise.
    pub equations: Arc<Buffer<T>>,
    /// Flags of the blocks: [`NOT_DOMINANT`] in the top bit, the number of negligible pivots below.
    pub flags: Buffer<u32>,
    /// Interface values of the items (see [`Shape`]).
    pub values: Buffer<T>,
}

impl<T: Number> Level<T> {
    /// Allocates a level of `count` items.
    pub fn new(lane: &Lane, shape: Shape, count: usize) -> Result<Self> {
        let equations = lane.alloc("the interface system", shape.columns * shape.width * count)?;
        Self::within(lane, shape, count, Arc::new(equations))
    }

    /// Allocates a level with its equations in an existing array that is long enough.
    pub(crate) fn within(lane: &Lane, shape: Shape, count: usize, equations: Arc<Buffer<T>>) -> Result<Self> {
        let Shape { columns, width, flags, values, behind } = shape;
        assert!(equations.len() >= columns * width * count, "{count} items in {} numbers", equations.len());
        let flags = if flags > 0 { flags * count } else { (count / 2).div_ceil(Kernel::GROUP as usize) };
        Ok(Self {
            count,
            width,
            equations,
            flags: lane.alloc("the interface system", flags)?,
            values: lane.alloc("the interface system", values * count + behind)?,
        })
    }

    fn bytes(&self) -> u64 {
        // A shared array is counted by its other owner.
        let own = if Arc::strong_count(&self.equations) > 1 { 0 } else { self.equations.bytes() };
        own + self.flags.bytes() + self.values.bytes()
    }

    /// Uploads this level's equations from host arrays, one per column (see [`Shape`]).
    ///
    /// Only the first `width` · `count` numbers of each host array are read.
    pub(crate) fn send<'c>(&self, lane: &Lane, columns: impl Iterator<Item = &'c [T]>) -> Result<()> {
        let len = self.width * self.count;
        let mut columns = columns.enumerate();
        columns.try_for_each(|(k, column)| lane.send(&column[..len], &self.equations, k * len))
    }

    /// Downloads this level's equations to host arrays, one per column (see [`Shape`]).
    ///
    /// Only the first `width` · `count` numbers of each host array are written.
    pub(crate) fn fetch<'c>(&self, lane: &Lane, columns: impl Iterator<Item = &'c mut [T]>) -> Result<()> {
        let len = self.width * self.count;
        let mut columns = columns.enumerate();
        columns.try_for_each(|(k, column)| lane.fetch(&self.equations, k * len, &mut column[..len]))
    }
}

/// Levels of equations, each reduced from the one before.
#[derive(Debug)]
pub(crate) struct Levels<T> {
    /// All levels, beginning with the one that the others are reduced from.
    pub(crate) all: Vec<Arc<Level<T>>>,
    pub(crate) up: Vec<Launch>,
    /// Launches that compute the values of each level from those of the level above, the last level
    /// first.
    pub(crate) down: Vec<Launch>,
    /// Scaled rows that block elimination stores for back substitution, three values per row.
    ///
    /// All levels share this memory. `None` if the levels are in tiles or there is only one.
    pub(crate) kept: Option<Buffer<T>>,
}

impl<T: Number> Levels<T> {
    pub(crate) fn new(first: Arc<Level<T>>) -> Self {
        Self { all: vec![first], up: Vec::new(), down: Vec::new(), kept: None }
    }

    pub(crate) fn first(&self) -> &Arc<Level<T>> {
        &self.all[0]
    }

    pub(crate) fn last(&self) -> &Arc<Level<T>> {
        &self.all[self.all.len() - 1]
    }

    /// Adds a level with the launches that compute its equations, and the values one level below.
    pub(crate) fn push(&mut self, level: Level<T>, [up, down]: [Launch; 2]) {
        self.all.push(Arc::new(level));
        self.up.push(up);
        self.down.insert(0, down);
    }

    /// Device memory in bytes, without the first level.
    pub(crate) fn bytes_above(&self) -> u64 {
        let levels = self.all[1..].iter().map(|level| level.bytes()).sum::<u64>();
        levels + self.kept.as_ref().map_or(0, Buffer::bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.first().bytes() + self.bytes_above()
    }

    /// Number of small pivots above the first level. Dominance is checked in the given rows only.
    pub(crate) fn flags_above(&self, lane: &Lane) -> Result<u32> {
        let flags = self.all[1..].iter().map(|level| Ok(download_flags(lane, &level.flags)? & !NOT_DOMINANT));
        Ok(all_flags(flags.collect::<Result<Vec<_>>>()?))
    }
}

pub(crate) fn download_flags(lane: &Lane, flags: &Buffer<u32>) -> Result<u32> {
    let mut all = vec![0; flags.len()];
    lane.download(flags, 0, &mut all)?;
    Ok(all_flags(all))
}
