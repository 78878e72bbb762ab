//! A chunk of rows on one lane: up to one unit, and from the unknowns next to it down to its own.

use super::kernels::{EXPAND, FAN, INTERFACE, MERGE, REDUCE, SOLVE, TILE, UNIT};
use super::kernels::{tridiagonal_expand, tridiagonal_interface, tridiagonal_merge};
use super::kernels::{tridiagonal_reduce, tridiagonal_solve};
use super::unit::Number;
use crate::Result;
use crate::kernel::{Kernel, Precision};
use crate::lane::{Buffer, HostArray, Lane, Launch};

/// Units that one workgroup of the interface system takes at most, a few to a thread.
const MOST_UNITS: usize = 8 * FAN;

/// Where a chunk lies in its systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Rows of one system; several lie one behind the other.
    pub n: usize,
    /// Number of the chunk's first row, counted from the beginning of all systems.
    pub first: usize,
    /// Whether the system is cyclic; there is one then.
    pub ring: bool,
}

impl Place {
    /// The rows of a system and the chunk's first row in it, as kernels are told: of systems that are too long for their
    /// counters one that has its ends where `rows` rows from there see them.
    pub fn params(self, rows: usize) -> (u32, u32) {
        const MOST: usize = (1 << 31) - 1;
        let (n, at) = (self.n, self.first % self.n);
        if n <= MOST {
            return (n as u32, at as u32);
        }
        let at_or_one = at.min(1);
        let seen = if at + rows == n { at_or_one + rows } else { MOST };
        (seen as u32, at_or_one as u32)
    }
}

/// Units of one level, and the unknowns next to each.
#[derive(Debug)]
pub struct Level<T> {
    /// How many.
    pub count: usize,
    /// Six numbers of each, see [`Unit`](super::unit::Unit).
    pub units: Buffer<T>,
    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots of each.
    pub flags: Buffer<u32>,
    /// The unknowns to the left and to the right of each.
    pub outer: Buffer<T>,
}

impl<T: Number> Level<T> {
    /// Room for so many units.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, count: usize) -> Result<Self> {
        Ok(Self {
            count,
            units: lane.alloc("the interface system", 6 * count)?,
            flags: lane.alloc("the interface system", count)?,
            outer: lane.alloc("the interface system", 2 * count)?,
        })
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.units.bytes() + self.flags.bytes() + self.outer.bytes()
    }
}

/// Units of a rank at least, where it has the rows for them: shares differ by one of so many.
pub(super) const OF_A_RANK: usize = 32;
/// Units of a chunk at least, which need not travel as far.
const OF_A_CHUNK: usize = 256;

/// Where rows may be cut, and what leaves a part of them. Units of 128 rows are the leaves of a binary tree, which depends
/// on the number of all rows alone; a part leaves nodes of it to be joined with those of others. In blocks the levels are
/// those of interface systems that a part goes through by itself beside the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// Rows between two places.
    pub rows: usize,
    /// Levels below what leaves a part: a unit is one of 128·2^levels rows.
    pub levels: u32,
}

impl Grain {
    /// Cuts at tiles, and units as stage 1 leaves them.
    pub const TILES: Self = Self { rows: TILE, levels: 0 };

    /// The grain for `rows` rows on so many ranks: the coarsest of which each has 32, and 64 at most, which it joins further
    /// before it sends them, see [`subtrees`](super::subtrees).
    pub fn of_ranks(rows: usize, ranks: usize) -> Self {
        let Self { levels, .. } = Self::coarsest(rows, OF_A_RANK * ranks);
        let levels = levels.max((TILE / UNIT).ilog2());
        Self { rows: UNIT << levels, levels }
    }

    /// The grain for `rows` rows in so many chunks: the coarsest of which each has 256.
    pub fn of_chunks(rows: usize, chunks: usize) -> Self {
        Self::coarsest(rows, OF_A_CHUNK * chunks)
    }

    /// With so many units at least, twice as many at most.
    fn coarsest(rows: usize, units: usize) -> Self {
        let levels = (rows.div_ceil(UNIT) / units).max(1).ilog2();
        Self { rows: TILE.max(UNIT << levels), levels }
    }

    /// Units of a run of `rows` rows that begins at a multiple of the grain.
    pub fn units(self, rows: usize) -> usize {
        rows.div_ceil(UNIT << self.levels)
    }
}

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
    /// Right-hand side.
    pub b: Buffer<T>,
    /// Unknowns.
    pub x: Buffer<T>,
}

impl<T: Number> Arrays<T> {
    /// Arrays of `rows` rows.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, rows: usize) -> Result<Self> {
        let padded = padded(rows);
        Ok(Self {
            dl: lane.alloc("the lower diagonal", padded)?,
            d: lane.alloc("the diagonal", padded)?,
            du: lane.alloc("the upper diagonal", padded)?,
            b: lane.alloc("the right-hand side", padded)?,
            x: lane.alloc("the unknowns", padded)?,
        })
    }

    /// Those of the host themselves, where the lane can work there.
    pub(super) fn adopt(lane: &Lane, arrays: &[HostArray<T>; 5]) -> Result<Option<Self>> {
        let names = [
            "the lower diagonal",
            "the diagonal",
            "the upper diagonal",
            "the right-hand side",
            "the unknowns",
        ];
        let mut own = Vec::with_capacity(5);
        for (what, array) in names.into_iter().zip(arrays) {
            match lane.adopt(what, array)? {
                Some(buffer) => own.push(buffer),
                None => return Ok(None),
            }
        }
        let [dl, d, du, b, x] = <[_; 5]>::try_from(own).expect("five arrays");
        Ok(Some(Self { dl, d, du, b, x }))
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        [&self.dl, &self.d, &self.du, &self.b, &self.x].iter().map(|b| b.bytes()).sum()
    }
}

/// Units that become fewer, level by level, and how the unknowns next to these come back.
#[derive(Debug)]
pub(super) struct Joins<T> {
    pub(super) up: Vec<Launch>,
    down: Vec<Launch>,
    /// What the launches work on, but for the first units.
    pub(super) levels: Vec<Level<T>>,
}

/// A chunk of rows on a lane, in tiles.
#[derive(Debug)]
pub struct Share<T> {
    reduce: Launch,
    solve: Launch,
    // What the launches work on.
    first: Level<T>,
    joins: Joins<T>,
}

/// The interface system: units of all rows.
#[derive(Debug)]
pub struct Top<T> {
    interface: Launch,
    flag: Buffer<u32>,
    // What the launches work on.
    joins: Joins<T>,
    nodes: Buffer<T>,
    ends: Buffer<T>,
    root: Buffer<T>,
}

/// The exponent s of the share 4^−s of its row below which a pivot is small: four times the unit roundoff.
pub(super) fn exponent(precision: Precision) -> u32 {
    match precision {
        Precision::F64 => 25,
        Precision::F32 => 11,
    }
}

impl<T: Number> Joins<T> {
    /// None yet.
    pub(super) fn none() -> Self {
        Self { up: Vec::new(), down: Vec::new(), levels: Vec::new() }
    }

    /// The units that all became so far, `first` if nothing was joined.
    pub(super) fn last<'l>(&'l self, first: &'l Level<T>) -> &'l Level<T> {
        self.levels.last().unwrap_or(first)
    }

    /// Joins 2^levels units to one, 256 of them at most.
    pub(super) fn add(&mut self, lane: &Lane, first: &Level<T>, levels: u32) -> Result<()> {
        assert!(1 << levels <= FAN, "{levels} levels of a tree at once");
        let (below, small) = (self.last(first), exponent(T::PRECISION));
        let above = Level::new(lane, below.count.div_ceil(1 << levels))?;
        let items = below.count.next_multiple_of(FAN);
        let count = below.count as u32;
        let params = tridiagonal_merge::Params { step: 0, count, small, levels };
        let args = tridiagonal_merge::Args {
            units: below.units.arg(),
            flags: below.flags.arg(),
            above: above.units.arg(),
            flags_above: above.flags.arg(),
        };
        let merge = lane.bind(&MERGE, T::PRECISION, items, params, args)?;
        let params = tridiagonal_expand::Params { step: 0, count, levels };
        let (units, above_, outer) = (below.units.arg(), above.outer.arg(), below.outer.arg());
        let args = tridiagonal_expand::Args { units, above: above_, outer };
        let expand = lane.bind(&EXPAND, T::PRECISION, items, params, args)?;
        self.up.push(merge);
        self.down.insert(0, expand);
        self.levels.push(above);
        Ok(())
    }

    /// Joins 2^levels units to one, however many.
    pub(super) fn climb(&mut self, lane: &Lane, first: &Level<T>, levels: u32) -> Result<()> {
        let most = FAN.ilog2();
        let steps = (0..levels).step_by(most as usize).map(|done| most.min(levels - done));
        steps.into_iter().try_for_each(|levels| self.add(lane, first, levels))
    }

    /// The way back over a join.
    pub(super) fn down_of(&self, join: usize) -> &Launch {
        &self.down[self.down.len() - 1 - join]
    }

    pub(super) fn bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum()
    }
}

impl<T: Number> Share<T> {
    /// Cuts `rows` rows, at least 1, into tiles, and joins 2^levels units of 128 rows to one.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, rows: usize, place: Place, arrays: &Arrays<T>, levels: u32) -> Result<Self> {
        assert!(rows > 0 && rows < 1 << 31, "a chunk of {rows} rows");
        let Arrays { dl, d, du, b, x } = arrays;
        let first = Level::new(lane, rows.div_ceil(UNIT))?;
        let (n, at) = place.params(rows);
        let (step, ring, items) = (0, u32::from(place.ring), rows.div_ceil(TILE) * Kernel::GROUP as usize);
        let (rows, small) = (rows as u32, exponent(T::PRECISION));
        let (dl, d, du, rhs) = (dl.arg(), d.arg(), du.arg(), b.arg());
        let params = tridiagonal_reduce::Params { step, rows, n, first: at, ring, small };
        let (units, flags) = (first.units.arg(), first.flags.arg());
        let args = tridiagonal_reduce::Args { dl, d, du, rhs, units, flags };
        let reduce = lane.bind(&REDUCE, T::PRECISION, items, params, args)?;
        let params = tridiagonal_solve::Params { step, rows, n, first: at, ring };
        let args = tridiagonal_solve::Args { dl, d, du, rhs, outer: first.outer.arg(), x: x.arg() };
        let solve = lane.bind(&SOLVE, T::PRECISION, items, params, args)?;
        let mut joins = Joins::none();
        joins.climb(lane, &first, levels)?;
        Ok(Self { reduce, solve, first, joins })
    }

    /// Bytes on the device, without the chunk's own arrays.
    pub fn bytes(&self) -> u64 {
        self.first.bytes() + self.joins.bytes()
    }

    /// Stage 1: up to the chunk's units.
    pub fn up(&self) -> impl Iterator<Item = &Launch> {
        std::iter::once(&self.reduce).chain(&self.joins.up)
    }

    /// Stage 3, once the unknowns next to these units are there.
    pub fn down(&self) -> impl Iterator<Item = &Launch> {
        self.joins.down.iter().chain(std::iter::once(&self.solve))
    }

    /// The units that the chunk has after stage 1, and where the unknowns next to them go before stage 3.
    pub fn units(&self) -> &Level<T> {
        self.joins.last(&self.first)
    }
}

impl<T: Number> Top<T> {
    /// Of these units, which are those of all rows; `ring`: the first and the last of them are neighbours.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, units: &Level<T>, ring: bool) -> Result<Self> {
        let mut joins = Joins::none();
        while joins.last(units).count > MOST_UNITS {
            joins.add(lane, units, FAN.ilog2())?;
        }
        let top = joins.last(units);
        let ends = lane.alloc("the interface system", 2)?;
        let root = lane.alloc("the interface system", 6)?;
        let flag = lane.alloc("the interface system", 1)?;
        let nodes = lane.alloc("the interface system", 6 * top.count)?;
        let small = exponent(T::PRECISION);
        // The tree ends with one level over all units, and not before or behind it: its depth is the same whatever was joined.
        let share = top.count.div_ceil(FAN).next_power_of_two();
        let width = top.count.next_power_of_two() / share;
        let params = tridiagonal_interface::Params {
            step: 0,
            count: top.count as u32,
            share: share as u32,
            width: width as u32,
            ring: u32::from(ring),
            small,
        };
        let args = tridiagonal_interface::Args {
            units: top.units.arg(),
            flags: top.flags.arg(),
            ends: ends.arg(),
            nodes: nodes.arg(),
            outer: top.outer.arg(),
            above: root.arg(),
            flags_above: flag.arg(),
        };
        let interface = lane.bind(&INTERFACE, T::PRECISION, Kernel::GROUP as usize, params, args)?;
        Ok(Self { interface, flag, joins, nodes, ends, root })
    }

    /// Bytes on the device, without the units it was made of.
    pub fn bytes(&self) -> u64 {
        let rest = self.ends.bytes() + self.root.bytes() + self.flag.bytes() + self.nodes.bytes();
        rest + self.joins.bytes()
    }

    /// Stage 2: from the units to the unknowns next to each.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.joins.up.iter().chain([&self.interface]).chain(&self.joins.down)
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots of all rows, after stage 2.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        let mut flag = [0];
        lane.download(&self.flag, 0, &mut flag)?;
        Ok(flag[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_are_as_coarse_as_parts_allow() {
        assert_eq!(Grain::of_ranks(10_000_000, 2), Grain { rows: 1 << 17, levels: 10 });
        assert_eq!(Grain::of_ranks(10_000_000_000, 8), Grain { rows: 1 << 25, levels: 18 });
        // At tiles at least.
        assert_eq!(Grain::of_ranks(10_000, 2), Grain { rows: 2048, levels: 4 });
        assert_eq!(Grain::of_chunks(10_000, 2), Grain { rows: 2048, levels: 0 });
        assert_eq!(Grain::of_chunks(10_000_000, 4), Grain { rows: 8192, levels: 6 });
    }

    #[test]
    fn kernels_are_told_the_ends_of_a_system_however_large() {
        let huge = 5_000_000_000;
        let of = |first, rows| Place { n: huge, first, ring: false }.params(rows);
        let ends = |(n, at): (u32, u32), rows: usize| (at == 0, at as usize + rows == n as usize);

        assert_eq!(ends(of(0, 1 << 20), 1 << 20), (true, false));
        assert_eq!(ends(of(3 << 30, 1 << 20), 1 << 20), (false, false));
        assert_eq!(ends(of(huge - 77, 77), 77), (false, true));
        assert_eq!(Place { n: 100, first: 250, ring: false }.params(99), (100, 50));
    }
}
