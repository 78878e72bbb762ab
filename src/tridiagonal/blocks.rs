//! A chunk of rows on one lane, with a block of rows a thread: the method as first published (Austin, Berndt, Moulton
//! 2004), and the one that exchanges rows.
//!
//! Block by block, a chunk becomes an interface system of two rows a block, which is tridiagonal again and becomes a
//! smaller one in the same way, until the host takes over. Scaled partial pivoting inside of a block leaves the two
//! unknowns at its ends alone, so no row moves from one block to another and the interface stays tridiagonal (Klein,
//! Strzodka 2023, doi:10.1145/3580373).

use std::ops::Range;

use super::block_kernels::{BLOCK_REDUCE, BLOCK_SOLVE};
use super::kernels::{NOT_DOMINANT, both};
use super::partition::{Arrays, Place, exponent};
use super::unit::Number;
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Arg, Buffer, Lane, Launch};

/// A system of this many rows at most is left to the host, where devices solve interface systems.
const LEAF: usize = 4096;

/// How a chunk is cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Rows of a block, 3 or more; blocks of one level differ by no more than one row.
    pub block: usize,
    /// Whether the interface system goes to the host as it is.
    pub host: bool,
    /// Whether rows may be exchanged.
    pub pivot: bool,
}

/// A system on the device, but for the chunk's own rows.
#[derive(Debug)]
struct Level<T> {
    rows: usize,
    /// dl, d, du, b.
    system: Buffer<T>,
    /// Its unknowns, and the one behind the chunk.
    x: Buffer<T>,
    flags: Buffer<u32>,
}

/// A chunk of rows on a lane.
#[derive(Debug)]
pub struct BlockShare<T> {
    levels: Vec<Level<T>>,
    up: Vec<Launch>,
    down: Vec<Launch>,
}

impl<T: Number> BlockShare<T> {
    /// Cuts `rows` rows, at least 2, into blocks. `kept` has room for 3 numbers a row.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(
        lane: &Lane,
        rows: usize,
        place: Place,
        arrays: &Arrays<T>,
        kept: &Buffer<T>,
        cut: Cut,
    ) -> Result<Self> {
        assert!((2..1 << 31).contains(&rows) && cut.block >= 3, "{rows} rows in blocks of {}", cut.block);
        let mut levels: Vec<Level<T>> = Vec::new();
        let mut count = rows;
        while levels.is_empty() || (!cut.host && count > LEAF) {
            let blocks = count.div_ceil(cut.block);
            count = 2 * blocks;
            levels.push(Level {
                rows: count,
                system: lane.alloc("the interface system", 4 * count)?,
                x: lane.alloc("the interface system", count + 1)?,
                flags: lane.alloc("the interface system", blocks.div_ceil(Kernel::GROUP as usize))?,
            });
        }
        assert!(kept.len() >= 3 * rows, "room for {} of {} numbers", kept.len(), 3 * rows);
        let [dl, d, du, b, x] =
            [&arrays.dl, &arrays.d, &arrays.du, &arrays.b, &arrays.x].map(|array| array.arg());
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut below = rows;
        for (k, level) in levels.iter().enumerate() {
            let blocks = level.rows / 2;
            // The interface system has no end: where a system begins or ends its coefficients are zero.
            let (n, first, at) = match k {
                0 => (place.n as u32, (place.first % place.n) as u32, [0; 4]),
                _ => ((1 << 31) - 1, 1, [0, 1, 2, 3].map(|j| (j * below) as u32)),
            };
            let params = [
                0,
                below as u32,
                n,
                first,
                blocks as u32,
                u32::from(cut.pivot),
                exponent(T::PRECISION),
                at[0],
                at[1],
                at[2],
                at[3],
            ];
            let source = match k {
                0 => [dl, d, du, b],
                k => [levels[k - 1].system.arg(); 4],
            };
            let target = if k == 0 { x } else { levels[k - 1].x.arg() };
            let bind = |kernel, rest: &[Arg<'_>]| {
                let args: Vec<Arg<'_>> = source.iter().chain(rest).copied().collect();
                lane.bind(kernel, T::PRECISION, blocks, &params, &args)
            };
            up.push(bind(&BLOCK_REDUCE, &[level.system.arg(), level.flags.arg()])?);
            down.insert(0, bind(&BLOCK_SOLVE, &[level.x.arg(), kept.arg(), target])?);
            below = level.rows;
        }
        Ok(Self { levels, up, down })
    }

    /// Bytes on the device, without the chunk's own arrays.
    pub fn bytes(&self) -> u64 {
        let level = |l: &Level<T>| l.system.bytes() + l.x.bytes() + l.flags.bytes();
        self.levels.iter().map(level).sum()
    }

    /// Stage 1: down to the system that the host takes.
    pub fn up(&self) -> Vec<&Launch> {
        self.up.iter().collect()
    }

    /// Stage 3, once that system's unknowns are in their [`targets`](Self::targets).
    pub fn down(&self) -> Vec<&Launch> {
        self.down.iter().collect()
    }

    /// The system that the host takes, after stage 1: dl, d, du and b, one behind the other.
    pub fn top(&self) -> &Buffer<T> {
        &self.levels[self.levels.len() - 1].system
    }

    /// [`NOT_DOMINANT`] of the chunk's rows and the number of small pivots of all levels,
    /// after stage 1.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        let mut all = 0;
        for (k, level) in self.levels.iter().enumerate() {
            let mut flags = vec![0; level.flags.len()];
            lane.download(&level.flags, 0, &mut flags)?;
            let own = flags.into_iter().fold(0, both);
            // Dominance is asked of the chunk's rows alone.
            all = both(all, if k == 0 { own } else { own & !NOT_DOMINANT });
        }
        Ok(all)
    }

    /// Where the unknowns of that system, and behind them the one behind the chunk, go before stage 3: an array, a
    /// place in it, and which of them.
    pub fn targets(&self) -> Vec<(&Buffer<T>, usize, Range<usize>)> {
        let [below @ .., top] = &self.levels[..] else { unreachable!("there is a level") };
        let behind = top.rows..top.rows + 1;
        let below = below.iter().map(|level| (&level.x, level.rows, behind.clone()));
        std::iter::once((&top.x, 0, 0..top.rows + 1)).chain(below).collect()
    }
}
