//! Interface equations on a lane, level by level: reduced blocks in tiles, reduced systems in blocks.

use std::sync::Arc;

use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Buffer, Lane, Launch};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::{NOT_DOMINANT, all_flags};

/// Numbers of an item: a reduced block in tiles, a row of the reduced system in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Arrays that equations lie in, one behind the other.
    pub columns: usize,
    /// Numbers of an item in each.
    pub width: usize,
    /// Flags of an item that go with it.
    pub flags: usize,
    /// Interface values of an item.
    pub values: usize,
    /// Interface values behind the last item.
    pub behind: usize,
}

impl Shape {
    /// Six numbers of each [`ReducedBlock`](crate::tridiagonal::kernels::reduced_block::ReducedBlock), and the two unknowns next to it.
    pub const REDUCED_BLOCKS: Self = Self { columns: 1, width: 6, flags: 1, values: 2, behind: 0 };
    /// dl, d, du and b of a reduced system; its unknowns and the one behind. Flags stay on the lane, one of 256 blocks.
    pub const REDUCED_SYSTEM: Self = Self { columns: 4, width: 1, flags: 0, values: 1, behind: 1 };
    /// Systems that ask nothing of one another.
    pub const NOTHING: Self = Self { columns: 0, width: 0, flags: 0, values: 0, behind: 0 };
}

/// Interface equations of one level, and their values.
#[derive(Debug)]
pub struct Level<T> {
    /// Number of items.
    pub count: usize,
    /// Numbers of an item in a column.
    width: usize,
    /// The columns, which an array of other use may have room for.
    pub equations: Arc<Buffer<T>>,
    /// [`NOT_DOMINANT`] and numbers of small pivots.
    pub flags: Buffer<u32>,
    /// Interface values.
    pub values: Buffer<T>,
}

impl<T: Number> Level<T> {
    /// Room for so many items.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, shape: Shape, count: usize) -> Result<Self> {
        let equations = lane.alloc("the interface system", shape.columns * shape.width * count)?;
        Self::within(lane, shape, count, Arc::new(equations))
    }

    /// The same with equations in an array that has room for them.
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
        // Others know of an array that they have as well.
        let own = if Arc::strong_count(&self.equations) > 1 { 0 } else { self.equations.bytes() };
        own + self.flags.bytes() + self.values.bytes()
    }

    /// Brings the equations, which columns begin with.
    pub(crate) fn send<'c>(&self, lane: &Lane, columns: impl Iterator<Item = &'c [T]>) -> Result<()> {
        let len = self.width * self.count;
        let mut columns = columns.enumerate();
        columns.try_for_each(|(k, column)| lane.send(&column[..len], &self.equations, k * len))
    }

    /// Takes the equations away, to where columns begin.
    pub(crate) fn fetch<'c>(&self, lane: &Lane, columns: impl Iterator<Item = &'c mut [T]>) -> Result<()> {
        let len = self.width * self.count;
        let mut columns = columns.enumerate();
        columns.try_for_each(|(k, column)| lane.fetch(&self.equations, k * len, &mut column[..len]))
    }
}

/// Levels of equations, each made of the one below.
#[derive(Debug)]
pub(crate) struct Levels<T> {
    /// The first level and those above it.
    pub(crate) all: Vec<Arc<Level<T>>>,
    /// From each level to the next.
    pub(crate) up: Vec<Launch>,
    /// From each level's values to those of the level below, the last level first.
    pub(crate) down: Vec<Launch>,
    /// Numbers that blocks keep for the way back.
    pub(crate) kept: Option<Buffer<T>>,
}

impl<T: Number> Levels<T> {
    /// The first level alone.
    pub(crate) fn new(first: Arc<Level<T>>) -> Self {
        Self { all: vec![first], up: Vec::new(), down: Vec::new(), kept: None }
    }

    pub(crate) fn first(&self) -> &Arc<Level<T>> {
        &self.all[0]
    }

    pub(crate) fn last(&self) -> &Arc<Level<T>> {
        &self.all[self.all.len() - 1]
    }

    /// Adds a level with the launches that lead to it and back.
    pub(crate) fn push(&mut self, level: Level<T>, [up, down]: [Launch; 2]) {
        self.all.push(Arc::new(level));
        self.up.push(up);
        self.down.insert(0, down);
    }

    /// Bytes on the device, without the first level.
    pub(crate) fn bytes_above(&self) -> u64 {
        let levels = self.all[1..].iter().map(|level| level.bytes()).sum::<u64>();
        levels + self.kept.as_ref().map_or(0, Buffer::bytes)
    }

    /// Bytes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.first().bytes() + self.bytes_above()
    }

    /// The number of small pivots above the first level. Dominance is asked of given rows alone.
    pub(crate) fn flags_above(&self, lane: &Lane) -> Result<u32> {
        let flags = self.all[1..].iter().map(|level| Ok(download_flags(lane, &level.flags)? & !NOT_DOMINANT));
        Ok(all_flags(flags.collect::<Result<Vec<_>>>()?))
    }
}

/// All flags together.
pub(crate) fn download_flags(lane: &Lane, flags: &Buffer<u32>) -> Result<u32> {
    let mut all = vec![0; flags.len()];
    lane.download(flags, 0, &mut all)?;
    Ok(all_flags(all))
}
