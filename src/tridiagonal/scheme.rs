//! Schemes: the method that reduces the rows of a system, and the alignment of its parts.
//!
//! The reduction of rows to interface equations, which each [`Scheme`] does in its own way, is in
//! `reduction/`.

use super::kernels::alignment::{Alignment, TILE};

/// A system of this many rows at most is left to the host, where devices solve reduced systems.
const LEAF: usize = 4096;

/// The cut of a system into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocking {
    /// Rows of a block, 3 or more; blocks of one level differ by no more than one row.
    pub(crate) block: usize,
    /// Whether the reduced system goes to the host as it is.
    pub(crate) host: bool,
    /// Whether rows may be exchanged.
    pub(crate) pivot: bool,
}

impl Blocking {
    /// The alignment of parts that have whole blocks on so many levels of reduced systems beside the first. The tail is there
    /// because blocks may be shorter by a row at the end.
    pub(crate) fn alignment(block: usize, levels: u32) -> Alignment {
        // Two rows of each block are rows of the next system.
        let step = if block.is_multiple_of(2) { block / 2 } else { block };
        let rows = step.saturating_pow(levels).saturating_mul(block);
        Alignment { rows, levels, tail: rows.saturating_mul(block) }
    }

    /// Times that the reduced system of `all` rows becomes a smaller one on devices.
    pub(crate) fn device_levels(self, all: usize) -> u32 {
        self.smaller(2 * all.div_ceil(self.block)).len() as u32
    }

    /// Blocks of a reduced system of so many rows and of those that it becomes on devices.
    pub(crate) fn smaller(self, mut rows: usize) -> Vec<usize> {
        let mut blocks = Vec::new();
        while !self.host && rows > LEAF {
            blocks.push(rows.div_ceil(self.block));
            rows = 2 * rows.div_ceil(self.block);
        }
        blocks
    }

    /// The number of these levels that a part that begins with row `first` of all can do by itself.
    pub(crate) fn levels(self, first: usize, all: usize) -> u32 {
        let fits = |&levels: &u32| {
            let Alignment { rows, tail, .. } = Self::alignment(self.block, levels);
            first == 0 || (first.is_multiple_of(rows) && all - first >= tail)
        };
        (0..=self.device_levels(all)).rev().find(fits).unwrap_or(0)
    }

    /// Blocks of `rows` of `all` rows, `first` being the first of them.
    pub(crate) fn blocks(self, first: usize, rows: usize, all: usize) -> usize {
        match first + rows == all {
            true => all.div_ceil(self.block) - first / self.block,
            false => rows / self.block,
        }
    }
}

/// The way in which rows are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Tiles, whose reduced blocks are joined in the merge tree.
    Tiles,
    /// Blocks, whose reduced system is solved.
    Blocks(Blocking),
    /// Whole systems, so many rows of them together, which ask nothing of others.
    Batch {
        /// Rows of a tile.
        tile: usize,
    },
}

impl Scheme {
    /// The scheme for `rows` rows of systems of `n` each, in these blocks if in any.
    pub(crate) fn of(n: usize, rows: usize, cyclic: bool, blocking: Option<Blocking>) -> Self {
        match (blocking, whole_systems(n, rows / n)) {
            // One row is no block: its reduced block says all.
            (Some(blocking), _) if rows > 1 => Self::Blocks(blocking),
            (None, Some(tile)) if !cyclic => Self::Batch { tile },
            _ => Self::Tiles,
        }
    }

    /// The places at which `rows` rows may be cut for so many ranks.
    pub(crate) fn alignment(self, rows: usize, ranks: usize) -> Alignment {
        match self {
            Self::Tiles => Alignment::of_ranks(rows, ranks),
            Self::Blocks(blocking) => Blocking::alignment(blocking.block, 0),
            Self::Batch { tile } => Alignment::at(tile),
        }
    }

    /// Items of all rows, where parts leave them at this alignment.
    pub(crate) fn items(self, rows: usize, alignment: Alignment) -> usize {
        match self {
            Self::Tiles => alignment.blocks(rows),
            Self::Blocks(blocking) => {
                (0..=alignment.levels).fold(rows, |rows, _| 2 * rows.div_ceil(blocking.block))
            }
            Self::Batch { .. } => 0,
        }
    }
}

/// Rows of a tile of whole systems, if the kernel takes these: none where one does not fit, or where tiles would begin at
/// odd rows.
fn whole_systems(n: usize, batch: usize) -> Option<usize> {
    match (TILE / n).min(batch) {
        0 => None,
        // One tile is all.
        all if all == batch => Some(all * n),
        fit => {
            [fit, fit - 1].into_iter().find(|fit| (fit * n).is_multiple_of(2) && *fit > 0).map(|fit| fit * n)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_depend_on_the_cut() {
        for (all, block) in
            [(100_000, 32), (1_000_003, 32), (100_003, 10), (2_500_001, 1024), (65_536, 3), (99_991, 7)]
        {
            for levels in 0..3 {
                let Alignment { rows: step, tail, .. } = Blocking::alignment(block, levels);
                if step + tail > all {
                    continue;
                }
                let blocking = Blocking { block, host: false, pivot: true };
                // On each level: where blocks of a part begin, and the next level's rows.
                let next = |(first, rows, all): (usize, usize, usize)| {
                    let blocks = blocking.blocks(first, rows, all);
                    let (length, longer) = (rows / blocks, rows % blocks);
                    let starts = (0..blocks).map(move |k| first + k * length + k.min(longer));
                    let above = (2 * (first / block), 2 * blocks, 2 * all.div_ceil(block));
                    (starts.collect::<Vec<_>>(), above)
                };
                let most = (all - tail) / step;
                for at in [1, 2, 3, most / 2, most - 1, most].map(|k| k.clamp(1, most) * step) {
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
