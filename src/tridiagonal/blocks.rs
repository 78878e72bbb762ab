//! A chunk of rows on one lane, with a block of rows a thread: the method as first published (Austin, Berndt, Moulton
//! 2004), and the one that exchanges rows.
//!
//! Block by block, a chunk becomes an interface system of two rows a block, which is tridiagonal again and becomes a
//! smaller one in the same way, until the host takes over. Scaled partial pivoting inside of a block leaves the two
//! unknowns at its ends alone, so no row moves from one block to another and the interface stays tridiagonal (Klein,
//! Strzodka 2023, doi:10.1145/3580373).

use std::ops::Range;

use super::block_kernels::{BLOCK_REDUCE, BLOCK_SOLVE, tridiagonal_block_reduce, tridiagonal_block_solve};
use super::kernels::{NOT_DOMINANT, both};
use super::partition::{Arrays, Place, exponent};
use super::unit::Number;
use crate::Result;
use crate::kernel::Kernel;
use crate::lane::{Arg, Buffer, Lane, Launch};

/// A system of this many rows at most is left to the host, where devices solve interface systems.
const LEAF: usize = 4096;

/// How a system is cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Rows of a block, 3 or more; blocks of one level differ by no more than one row.
    pub block: usize,
    /// Whether the interface system goes to the host as it is.
    pub host: bool,
    /// Whether rows may be exchanged.
    pub pivot: bool,
}

impl Cut {
    /// Where rows may be cut, so that each part has whole blocks on as many levels of interface systems beside the first: at
    /// multiples of the first number that lie at least the second before the end, where blocks may be shorter by a row.
    pub fn grain(block: usize, levels: u32) -> (usize, usize) {
        // Two rows of each block are rows of the next system.
        let step = if block.is_multiple_of(2) { block / 2 } else { block };
        let rows = step.saturating_pow(levels).saturating_mul(block);
        (rows, rows.saturating_mul(block))
    }

    /// Rows of the interface system of all rows, and how often it becomes a smaller one on devices.
    pub fn interface(self, all: usize) -> (usize, u32) {
        let (first, mut levels) = (2 * all.div_ceil(self.block), 0);
        let mut rows = first;
        while self.again(rows) {
            (rows, levels) = (2 * rows.div_ceil(self.block), levels + 1);
        }
        (first, levels)
    }

    /// Whether an interface system of so many rows becomes a smaller one on devices.
    fn again(self, rows: usize) -> bool {
        !self.host && rows > LEAF
    }

    /// How many of these levels a part that begins with row `first` of all can do by itself.
    pub fn levels(self, first: usize, all: usize) -> u32 {
        let (_, most) = self.interface(all);
        let fits = |&levels: &u32| {
            let (rows, tail) = Self::grain(self.block, levels);
            first == 0 || (first.is_multiple_of(rows) && all - first >= tail)
        };
        (0..=most).rev().find(fits).unwrap_or(0)
    }

    /// Blocks of `rows` of `all` rows, `first` being the first of them.
    pub fn blocks(self, first: usize, rows: usize, all: usize) -> usize {
        match first + rows == all {
            true => all.div_ceil(self.block) - first / self.block,
            false => rows / self.block,
        }
    }
}

/// The interface system of some rows on the device.
#[derive(Debug)]
pub struct Level<T> {
    /// Its rows, two a block.
    pub rows: usize,
    /// dl, d, du, b.
    pub system: Buffer<T>,
    /// Its unknowns, and the one behind them.
    pub x: Buffer<T>,
    flags: Buffer<u32>,
}

impl<T: Number> Level<T> {
    /// Of so many blocks.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, blocks: usize) -> Result<Self> {
        let rows = 2 * blocks;
        Ok(Self {
            rows,
            system: lane.alloc("the interface system", 4 * rows)?,
            x: lane.alloc("the interface system", rows + 1)?,
            flags: lane.alloc("the interface system", blocks.div_ceil(Kernel::GROUP as usize))?,
        })
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.system.bytes() + self.x.bytes() + self.flags.bytes()
    }

    fn flags(&self, lane: &Lane) -> Result<u32> {
        let mut flags = vec![0; self.flags.len()];
        lane.download(&self.flags, 0, &mut flags)?;
        Ok(flags.into_iter().fold(0, both))
    }
}

/// A chunk of rows on a lane, in blocks.
#[derive(Debug)]
pub struct BlockShare<T> {
    level: Level<T>,
    up: Launch,
    down: Launch,
}

/// The interface system of all rows, which becomes smaller ones.
#[derive(Debug)]
pub struct BlockTop<T> {
    levels: Vec<Level<T>>,
    up: Vec<Launch>,
    down: Vec<Launch>,
    // What the launches work on.
    kept: Option<Buffer<T>>,
}

/// The interface system of a rank's rows, which becomes smaller ones before it leaves the rank.
#[derive(Debug)]
pub struct BlockLeaving<T> {
    given: Level<T>,
    levels: Vec<Level<T>>,
    up: Vec<Launch>,
    down: Vec<Launch>,
    // What the launches work on.
    kept: Buffer<T>,
}

/// A system in blocks: its rows, where they lie in theirs, its arrays and where in them it begins.
struct Source<'a> {
    rows: usize,
    place: (u32, u32),
    arrays: [Arg<'a>; 4],
    at: [usize; 4],
    x: Arg<'a>,
}

/// What makes a system the interface system `above` of its blocks, and the unknowns of this those of the former.
fn halve<T: Number>(
    lane: &Lane,
    source: &Source<'_>,
    above: &Level<T>,
    kept: &Buffer<T>,
    pivot: bool,
) -> Result<[Launch; 2]> {
    let blocks = above.rows / 2;
    assert!(kept.len() >= 3 * source.rows, "room for {} of {} numbers", kept.len(), 3 * source.rows);
    let [at_dl, at_d, at_du, at_rhs] = source.at.map(|at| at as u32);
    let params = tridiagonal_block_reduce::Params {
        step: 0,
        rows: source.rows as u32,
        n: source.place.0,
        first: source.place.1,
        blocks: blocks as u32,
        pivot: u32::from(pivot),
        small: exponent(T::PRECISION),
        at_dl,
        at_d,
        at_du,
        at_rhs,
    };
    let [dl, d, du, rhs] = source.arrays;
    let (system, flags) = (above.system.arg(), above.flags.arg());
    let args = tridiagonal_block_reduce::Args { dl, d, du, rhs, above: system, flags };
    let up = lane.bind(&BLOCK_REDUCE, T::PRECISION, blocks, params, args)?;
    let (above, kept, x) = (above.x.arg(), kept.arg(), source.x);
    let args = tridiagonal_block_solve::Args { dl, d, du, rhs, above, kept, x };
    let down = lane.bind(&BLOCK_SOLVE, T::PRECISION, blocks, params, args)?;
    Ok([up, down])
}

/// What makes an interface system the one `above` of so many blocks, and the way back.
fn again<T: Number>(
    lane: &Lane,
    below: &Level<T>,
    above: &Level<T>,
    kept: &Buffer<T>,
    pivot: bool,
) -> Result<[Launch; 2]> {
    // The interface system has no end: where a system begins or ends its coefficients are zero.
    let source = Source {
        rows: below.rows,
        place: ((1 << 31) - 1, 1),
        arrays: [below.system.arg(); 4],
        at: [0, 1, 2, 3].map(|k| k * below.rows),
        x: below.x.arg(),
    };
    halve(lane, &source, above, kept, pivot)
}

/// The number of small pivots of some levels. Dominance is asked of given rows alone.
fn small_pivots<T: Number>(lane: &Lane, levels: &[Level<T>]) -> Result<u32> {
    let one = |level: &Level<T>| Ok(level.flags(lane)? & !NOT_DOMINANT);
    levels.iter().try_fold(0, |all, level| Ok(both(all, one(level)?)))
}

impl<T: Number> BlockShare<T> {
    /// Cuts `rows` rows, at least 2, into so many blocks. `kept` has room for 3 numbers a row.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(
        lane: &Lane,
        rows: usize,
        place: Place,
        arrays: &Arrays<T>,
        kept: &Buffer<T>,
        blocks: usize,
        pivot: bool,
    ) -> Result<Self> {
        assert!((2..1 << 31).contains(&rows) && rows >= 2 * blocks, "{rows} rows in {blocks} blocks");
        let level = Level::new(lane, blocks)?;
        let Arrays { dl, d, du, b, x } = arrays;
        let arrays = [dl.arg(), d.arg(), du.arg(), b.arg()];
        let source = Source { rows, place: place.params(rows), arrays, at: [0; 4], x: x.arg() };
        let [up, down] = halve(lane, &source, &level, kept, pivot)?;
        Ok(Self { level, up, down })
    }

    /// Bytes on the device, without the chunk's own arrays.
    pub fn bytes(&self) -> u64 {
        self.level.bytes()
    }

    /// Stage 1: down to the interface system.
    pub fn up(&self) -> &Launch {
        &self.up
    }

    /// Stage 3, once that system's unknowns are there.
    pub fn down(&self) -> &Launch {
        &self.down
    }

    /// The interface system of the chunk.
    pub fn level(&self) -> &Level<T> {
        &self.level
    }

    /// [`NOT_DOMINANT`] of the chunk's rows and the number of their small pivots, after
    /// stage 1.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        self.level.flags(lane)
    }
}

impl<T: Number> BlockTop<T> {
    /// Of this interface system, which is that of all rows.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, whole: &Level<T>, cut: Cut) -> Result<Self> {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut levels: Vec<Level<T>> = Vec::new();
        let kept = match cut.again(whole.rows) {
            true => Some(lane.alloc("what blocks keep for the way back", 3 * whole.rows)?),
            false => None,
        };
        while let Some(kept) = kept.as_ref().filter(|_| cut.again(levels.last().unwrap_or(whole).rows)) {
            let below = levels.last().unwrap_or(whole);
            let above = Level::new(lane, below.rows.div_ceil(cut.block))?;
            let [reduce, solve] = again(lane, below, &above, kept, cut.pivot)?;
            up.push(reduce);
            down.insert(0, solve);
            levels.push(above);
        }
        Ok(Self { levels, up, down, kept })
    }

    /// Bytes on the device, without the system it was made of.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum::<u64>() + self.kept.as_ref().map_or(0, Buffer::bytes)
    }

    /// Down to the system that the host takes.
    pub fn up(&self) -> impl Iterator<Item = &Launch> {
        self.up.iter()
    }

    /// From its unknowns to those of the system that all was made of.
    pub fn down(&self) -> impl Iterator<Item = &Launch> {
        self.down.iter()
    }

    /// The system that the host takes, `whole` if there is no smaller one.
    pub fn leaf<'l>(&'l self, whole: &'l Level<T>) -> &'l Level<T> {
        self.levels.last().unwrap_or(whole)
    }

    /// The number of small pivots.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        small_pivots(lane, &self.levels)
    }
}

impl<T: Number> BlockLeaving<T> {
    /// Of `rows` rows from row `first` on, of `all`, so many levels beside the first system.
    ///
    /// # Errors
    /// If the lane's memory does not suffice.
    pub fn new(lane: &Lane, rows: Range<usize>, all: usize, cut: Cut, levels: u32) -> Result<Self> {
        // Of the system on each level: its first row here, those here and all.
        let next = |(first, rows, all): (usize, usize, usize)| {
            (2 * (first / cut.block), 2 * cut.blocks(first, rows, all), 2 * all.div_ceil(cut.block))
        };
        let mut here = next((rows.start, rows.len(), all));
        let given = Level::new(lane, here.1 / 2)?;
        let kept = lane.alloc("what blocks keep for the way back", 3 * given.rows)?;
        let (mut up, mut down, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..levels {
            here = next(here);
            let below = done.last().unwrap_or(&given);
            let above = Level::new(lane, here.1 / 2)?;
            let [reduce, solve] = again(lane, below, &above, &kept, cut.pivot)?;
            up.push(reduce);
            down.insert(0, solve);
            done.push(above);
        }
        Ok(Self { given, levels: done, up, down, kept })
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.given.bytes() + self.levels.iter().map(Level::bytes).sum::<u64>() + self.kept.bytes()
    }

    /// The system of the rank's chunks.
    pub fn given(&self) -> &Level<T> {
        &self.given
    }

    /// Those it becomes, of which the last one leaves.
    pub fn levels(&self) -> &[Level<T>] {
        &self.levels
    }

    /// From the former to the latter.
    pub fn up(&self) -> impl Iterator<Item = &Launch> {
        self.up.iter()
    }

    /// Back, once the unknowns of the last one, and on each level the one behind, are there.
    pub fn down(&self) -> impl Iterator<Item = &Launch> {
        self.down.iter()
    }

    /// The number of small pivots.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn flags(&self, lane: &Lane) -> Result<u32> {
        small_pivots(lane, &self.levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_blocks_of_the_whole() {
        for (all, block) in
            [(100_000, 32), (1_000_003, 32), (100_003, 10), (2_500_001, 1024), (65_536, 3), (99_991, 7)]
        {
            for levels in 0..3 {
                let (grain, tail) = Cut::grain(block, levels);
                if grain + tail > all {
                    continue;
                }
                let cut = Cut { block, host: false, pivot: true };
                // On each level: where blocks of a part begin, and the next level's rows.
                let next = |(first, rows, all): (usize, usize, usize)| {
                    let blocks = cut.blocks(first, rows, all);
                    let (length, longer) = (rows / blocks, rows % blocks);
                    let starts = (0..blocks).map(move |k| first + k * length + k.min(longer));
                    let above = (2 * (first / block), 2 * blocks, 2 * all.div_ceil(block));
                    (starts.collect::<Vec<_>>(), above)
                };
                let most = (all - tail) / grain;
                for at in [1, 2, 3, most / 2, most - 1, most].map(|k| k.clamp(1, most) * grain) {
                    let mut parts = [(0, at, all), (at, all - at, all), (0, all, all)];
                    for level in 0..=levels {
                        let [(left, a), (right, b), (whole, c)] = parts.map(next);
                        let what = format!("{all} rows in blocks of {block}, cut at {at}, level {level}");
                        assert!([left, right].concat() == whole, "{what}");
                        assert_eq!((a.1, b.0, b.0 + b.1), (b.0, a.1, c.1), "{what}");
                        parts = [a, b, c];
                    }
                }
            }
        }
    }
}
