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
    /// Whether the system is cyclic; there is one then, and the chunk holds all of it or its ends come from outside.
    pub ring: bool,
}

/// Units of one level, and the unknowns next to each.
#[derive(Debug)]
struct Level<T> {
    count: usize,
    units: Buffer<T>,
    flags: Buffer<u32>,
    outer: Buffer<T>,
}

impl<T: Number> Level<T> {
    fn new(lane: &Lane, count: usize) -> Result<Self> {
        Ok(Self {
            count,
            units: lane.alloc("the interface system", 6 * count)?,
            flags: lane.alloc("the interface system", count)?,
            outer: lane.alloc("the interface system", 2 * count)?,
        })
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
    ends: Buffer<T>,
    root: Buffer<T>,
    flag: Buffer<u32>,
    up: Vec<Launch>,
    interface: Launch,
    down: Vec<Launch>,
    // What the launches work on.
    levels: Vec<Level<T>>,
    nodes: Buffer<T>,
}

/// The exponent s of the share 4^−s of its row below which a pivot is small: four times the unit roundoff.
pub(super) fn exponent(precision: Precision) -> u32 {
    match precision {
        Precision::F64 => 25,
        Precision::F32 => 11,
    }
}

impl<T: Number> Share<T> {
    /// Cuts `rows` rows, at least 1, into tiles.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, rows: usize, place: Place, arrays: &Arrays<T>) -> Result<Self> {
        assert!(rows > 0 && rows < 1 << 31, "a chunk of {rows} rows");
        let Arrays { dl, d, du, b, x } = arrays;
        let (ends, root, flag) = (
            lane.alloc("the interface system", 2)?,
            lane.alloc("the interface system", 6)?,
            lane.alloc("the interface system", 1)?,
        );
        let mut levels = vec![Level::new(lane, rows.div_ceil(UNIT))?];
        while let Some(last) = levels.last().filter(|last| last.count > MOST_UNITS) {
            levels.push(Level::new(lane, last.count.div_ceil(FAN))?);
        }

        let whole = place.ring && rows == place.n;
        let (n, first) = (place.n as u32, (place.first % place.n) as u32);
        let small = exponent(T::PRECISION);
        let groups = |count: usize| count * Kernel::GROUP as usize;
        let bind = |kernel, groups_, params: &[u32], args: &[_]| {
            lane.bind(kernel, T::PRECISION, groups(groups_), params, args)
        };
        let tiles = rows.div_ceil(TILE);
        let params = [0, rows as u32, n, first, u32::from(place.ring), small];
        let rows_args = [dl.arg(), d.arg(), du.arg(), b.arg()];
        let mut args = rows_args.to_vec();
        args.extend([levels[0].units.arg(), levels[0].flags.arg()]);
        let mut up = vec![bind(&REDUCE, tiles, &params, &args)?];
        let mut args = rows_args.to_vec();
        args.extend([levels[0].outer.arg(), x.arg()]);
        let mut down = vec![bind(&SOLVE, tiles, &params[..5], &args)?];
        for pair in levels.windows(2) {
            let [below, above] = pair else { unreachable!("a window of two") };
            let params = [0, below.count as u32, small];
            let args = [below.units.arg(), below.flags.arg(), above.units.arg(), above.flags.arg()];
            up.push(bind(&MERGE, above.count, &params, &args)?);
            let args = [below.units.arg(), above.outer.arg(), below.outer.arg()];
            down.insert(0, bind(&EXPAND, above.count, &params[..2], &args)?);
        }
        let top = &levels[levels.len() - 1];
        let nodes = lane.alloc("the interface system", 6 * top.count)?;
        let params = [0, top.count as u32, top.count.div_ceil(FAN) as u32, u32::from(whole), small];
        let args = [
            top.units.arg(),
            top.flags.arg(),
            ends.arg(),
            nodes.arg(),
            top.outer.arg(),
            root.arg(),
            flag.arg(),
        ];
        let interface = bind(&INTERFACE, 1, &params, &args)?;
        Ok(Self { ends, root, flag, up, interface, down, levels, nodes })
    }

    /// Bytes on the device, without the chunk's own arrays.
    pub fn bytes(&self) -> u64 {
        let level = |l: &Level<T>| l.units.bytes() + l.flags.bytes() + l.outer.bytes();
        let rest = self.ends.bytes() + self.root.bytes() + self.flag.bytes() + self.nodes.bytes();
        rest + self.levels.iter().map(level).sum::<u64>()
    }

    /// What finds all unknowns where nothing lies next to the chunk.
    pub fn whole(&self) -> Vec<&Launch> {
        self.up().into_iter().chain(self.down.iter()).collect()
    }

    /// Stage 1: up to the chunk's unit.
    pub fn up(&self) -> Vec<&Launch> {
        self.up.iter().chain([&self.interface]).collect()
    }

    /// Stage 3: from the unknowns next to the chunk, once they are in [`Share::ends`].
    pub fn down(&self) -> Vec<&Launch> {
        std::iter::once(&self.interface).chain(&self.down).collect()
    }

    /// The six numbers of the chunk as a [`Unit`](super::unit::Unit), after stage 1.
    pub fn root(&self) -> &Buffer<T> {
        &self.root
    }

    /// Where the unknowns next to the chunk go, before stage 3.
    pub fn ends(&self) -> &Buffer<T> {
        &self.ends
    }

    /// [`NOT_DOMINANT`](super::kernels::NOT_DOMINANT) and the number of small pivots, after stage 1.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        let mut flag = [0];
        lane.download(&self.flag, 0, &mut flag)?;
        Ok(flag[0])
    }
}
