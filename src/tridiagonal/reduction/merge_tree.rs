//! Merge tree: joins reduced blocks level by level up to the root solve, and computes the interface
//! values back down.

use std::sync::Arc;

use super::levels::{Level, Levels, Shape, download_flags};
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Buffer, Lane, Launch};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::kernels::tiles::{
    EXPAND, FAN, INTERFACE, MERGE, small_exponent, tridiagonal_expand, tridiagonal_interface,
    tridiagonal_merge,
};

/// Maximum number of blocks that the workgroup of the root solve joins, a few per thread.
const MOST_BLOCKS: usize = 8 * FAN;

impl<T: Number> Levels<T> {
    /// Adds a level on which each reduced block joins up to 2^levels blocks, at most 256.
    pub(crate) fn merge(&mut self, lane: &Lane, levels: u32) -> Result<()> {
        assert!(1 << levels <= FAN, "{levels} levels of a tree at once");
        let below = self.last();
        let above = Level::new(lane, Shape::REDUCED_BLOCKS, below.count.div_ceil(1 << levels))?;
        let (items, count) = (below.count.next_multiple_of(FAN), below.count as u32);
        let small = small_exponent(T::PRECISION);
        let params = tridiagonal_merge::Params { step: 0, count, small, levels };
        let args = tridiagonal_merge::Args {
            units: below.equations.arg(),
            flags: below.flags.arg(),
            above: above.equations.arg(),
            flags_above: above.flags.arg(),
        };
        let merge = lane.bind(&MERGE, T::PRECISION, items, params, args)?;
        let params = tridiagonal_expand::Params { step: 0, count, levels };
        let (units, values) = (below.equations.arg(), below.values.arg());
        let args = tridiagonal_expand::Args { units, above: above.values.arg(), values };
        let expand = lane.bind(&EXPAND, T::PRECISION, items, params, args)?;
        self.push(above, [merge, expand]);
        Ok(())
    }

    /// Adds levels until each reduced block joins up to 2^levels blocks of the current last level.
    pub(crate) fn reduce_levels(&mut self, lane: &Lane, levels: u32) -> Result<()> {
        let most = FAN.ilog2();
        let mut steps = (0..levels).step_by(most as usize).map(|done| most.min(levels - done));
        steps.try_for_each(|levels| self.merge(lane, levels))
    }
}

/// Stage 2 in tiles: joins the reduced blocks of all rows to the root, and computes their interface
/// values.
#[derive(Debug)]
pub struct RootSolve<T> {
    interface: Launch,
    flag: Buffer<u32>,
    // Buffers that the launches use.
    tree: Levels<T>,
    nodes: Buffer<T>,
    ends: Buffer<T>,
    root: Buffer<T>,
}

impl<T: Number> RootSolve<T> {
    /// Creates the root solve for the reduced blocks of all rows. If `cyclic`, the first and the
    /// last block are neighbours.
    pub fn new(lane: &Lane, blocks: Arc<Level<T>>, cyclic: bool) -> Result<Self> {
        let mut tree = Levels::new(blocks);
        while tree.last().count > MOST_BLOCKS {
            tree.merge(lane, FAN.ilog2())?;
        }
        let top = tree.last();
        let ends = lane.alloc("the interface system", 2)?;
        let root = lane.alloc("the interface system", 6)?;
        let flag = lane.alloc("the interface system", 1)?;
        let nodes = lane.alloc("the interface system", 6 * top.count)?;
        // One level over all blocks ends the tree, so that its depth does not depend on earlier
        // merges.
        let share = top.count.div_ceil(FAN).next_power_of_two();
        let width = top.count.next_power_of_two() / share;
        let params = tridiagonal_interface::Params {
            step: 0,
            count: top.count as u32,
            share: share as u32,
            width: width as u32,
            cyclic: u32::from(cyclic),
            small: small_exponent(T::PRECISION),
        };
        let args = tridiagonal_interface::Args {
            units: top.equations.arg(),
            flags: top.flags.arg(),
            ends: ends.arg(),
            nodes: nodes.arg(),
            values: top.values.arg(),
            above: root.arg(),
            flags_above: flag.arg(),
        };
        let interface = lane.bind(&INTERFACE, T::PRECISION, Kernel::GROUP as usize, params, args)?;
        Ok(Self { interface, flag, tree, nodes, ends, root })
    }

    /// Device memory in bytes, without the given blocks.
    pub fn bytes(&self) -> u64 {
        let rest = self.ends.bytes() + self.root.bytes() + self.flag.bytes() + self.nodes.bytes();
        rest + self.tree.bytes_above()
    }

    /// Launches that compute the interface values of each block from the reduced blocks.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.tree.up.iter().chain([&self.interface]).chain(&self.tree.down)
    }

    /// [`NOT_DOMINANT`](crate::tridiagonal::kernels::tiles::NOT_DOMINANT) and the number of small
    /// pivots of all rows; called after the launches.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        download_flags(lane, &self.flag)
    }
}
