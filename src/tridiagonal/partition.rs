//! A chunk of rows on one lane: up to one unit, and from the unknowns next to it down to its own.

use super::kernels::{EXPAND, FAN, INTERFACE, MERGE, REDUCE, SOLVE, TILE, UNIT};
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

/// Where rows may be cut: at multiples of so many, each of which become one unit, or, without a join, some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grain {
    /// Rows between two places.
    pub rows: usize,
    /// How often the units of a run are joined, 256 to one.
    pub joins: usize,
}

impl Grain {
    /// Cuts at tiles.
    pub const TILES: Self = Self { rows: TILE, joins: 0 };

    /// The grain for `rows` rows in so many parts: units of tiles, or, where a part has 16 of them, of 256 times as many
    /// rows. How often units are joined, and with which others, depends on the number of all rows alone, so that the
    /// grain changes no bit: it says which units leave their lane.
    pub fn of(rows: usize, parts: usize) -> Self {
        let coarse = Self { rows: UNIT * FAN, joins: 1 };
        let few = rows.div_ceil(UNIT) <= MOST_UNITS || rows / coarse.rows < 16 * parts;
        if few { Self::TILES } else { coarse }
    }

    /// Units of a run of `rows` rows that begins at a multiple of the grain.
    pub fn units(self, rows: usize) -> usize {
        (0..self.joins).fold(rows.div_ceil(UNIT), |units, _| units.div_ceil(FAN))
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

/// A chunk of rows on a lane, in tiles.
#[derive(Debug)]
pub struct Share<T> {
    up: Vec<Launch>,
    down: Vec<Launch>,
    // What the launches work on.
    levels: Vec<Level<T>>,
}

/// The interface system: units of all rows.
#[derive(Debug)]
pub struct Top<T> {
    launches: Vec<Launch>,
    flag: Buffer<u32>,
    // What the launches work on.
    levels: Vec<Level<T>>,
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

/// What makes a level's units those of the next, and what brings the unknowns next to these back.
fn join<T: Number>(lane: &Lane, below: &Level<T>, above: &Level<T>) -> Result<[Launch; 2]> {
    let small = exponent(T::PRECISION);
    let items = above.count * Kernel::GROUP as usize;
    let args = [below.units.arg(), below.flags.arg(), above.units.arg(), above.flags.arg()];
    let up = lane.bind(&MERGE, T::PRECISION, items, &[0, below.count as u32, small], &args)?;
    let args = [below.units.arg(), above.outer.arg(), below.outer.arg()];
    let down = lane.bind(&EXPAND, T::PRECISION, items, &[0, below.count as u32], &args)?;
    Ok([up, down])
}

impl<T: Number> Share<T> {
    /// Cuts `rows` rows, at least 1, into tiles, and joins their units so often.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, rows: usize, place: Place, arrays: &Arrays<T>, joins: usize) -> Result<Self> {
        assert!(rows > 0 && rows < 1 << 31, "a chunk of {rows} rows");
        let Arrays { dl, d, du, b, x } = arrays;
        let first = Level::new(lane, rows.div_ceil(UNIT))?;
        let (n, at) = place.params(rows);
        let params = [0, rows as u32, n, at, u32::from(place.ring), exponent(T::PRECISION)];
        let items = rows.div_ceil(TILE) * Kernel::GROUP as usize;
        let bind = |kernel, params: &[u32], args: &[_]| lane.bind(kernel, T::PRECISION, items, params, args);
        let rows_args = [dl.arg(), d.arg(), du.arg(), b.arg()];
        let mut args = rows_args.to_vec();
        args.extend([first.units.arg(), first.flags.arg()]);
        let mut up = vec![bind(&REDUCE, &params, &args)?];
        let mut args = rows_args.to_vec();
        args.extend([first.outer.arg(), x.arg()]);
        let mut down = vec![bind(&SOLVE, &params[..5], &args)?];
        let mut levels = vec![first];
        for _ in 0..joins {
            let below = &levels[levels.len() - 1];
            let above = Level::new(lane, below.count.div_ceil(FAN))?;
            let [merge, expand] = join(lane, below, &above)?;
            up.push(merge);
            down.insert(0, expand);
            levels.push(above);
        }
        Ok(Self { up, down, levels })
    }

    /// Bytes on the device, without the chunk's own arrays.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum()
    }

    /// Stage 1: up to the chunk's units.
    pub fn up(&self) -> impl Iterator<Item = &Launch> {
        self.up.iter()
    }

    /// Stage 3, once the unknowns next to these units are there.
    pub fn down(&self) -> impl Iterator<Item = &Launch> {
        self.down.iter()
    }

    /// The units that the chunk has after stage 1, and where the unknowns next to them go before stage 3.
    pub fn units(&self) -> &Level<T> {
        &self.levels[self.levels.len() - 1]
    }
}

impl<T: Number> Top<T> {
    /// Of these units, which are those of all rows; `ring`: the first and the last of them are neighbours.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, units: &Level<T>, ring: bool) -> Result<Self> {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut levels: Vec<Level<T>> = Vec::new();
        while levels.last().unwrap_or(units).count > MOST_UNITS {
            let below = levels.last().unwrap_or(units);
            let above = Level::new(lane, below.count.div_ceil(FAN))?;
            let [merge, expand] = join(lane, below, &above)?;
            up.push(merge);
            down.insert(0, expand);
            levels.push(above);
        }
        let top = levels.last().unwrap_or(units);
        let ends = lane.alloc("the interface system", 2)?;
        let root = lane.alloc("the interface system", 6)?;
        let flag = lane.alloc("the interface system", 1)?;
        let nodes = lane.alloc("the interface system", 6 * top.count)?;
        let small = exponent(T::PRECISION);
        let params = [0, top.count as u32, top.count.div_ceil(FAN) as u32, u32::from(ring), small];
        let args = [
            top.units.arg(),
            top.flags.arg(),
            ends.arg(),
            nodes.arg(),
            top.outer.arg(),
            root.arg(),
            flag.arg(),
        ];
        up.push(lane.bind(&INTERFACE, T::PRECISION, Kernel::GROUP as usize, &params, &args)?);
        up.append(&mut down);
        Ok(Self { launches: up, flag, levels, nodes, ends, root })
    }

    /// Bytes on the device, without the units it was made of.
    pub fn bytes(&self) -> u64 {
        let rest = self.ends.bytes() + self.root.bytes() + self.flag.bytes() + self.nodes.bytes();
        rest + self.levels.iter().map(Level::bytes).sum::<u64>()
    }

    /// Stage 2: from the units to the unknowns next to each.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.launches.iter()
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
    fn coarse_grains_are_for_parts_of_many() {
        assert_eq!(Grain::of(10_000_000, 2), Grain { rows: 32_768, joins: 1 });
        assert_eq!(Grain::of(10_000_000, 20), Grain::TILES);
        // The interface kernel takes these without a join, so no part may join them.
        assert_eq!(Grain::of(MOST_UNITS * UNIT, 1), Grain::TILES);
        for grain in [Grain::TILES, Grain::of(10_000_000, 2)] {
            let whole = grain.units(10_000_000);
            let cut = 7 * 32_768;
            assert_eq!(grain.units(cut) + grain.units(10_000_000 - cut), whole, "{grain:?}");
        }
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
