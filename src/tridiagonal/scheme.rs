//! Schemes: methods that reduce rows to interface equations, and positions where rows may be cut.
//!
//! Each [`Scheme`] reduces rows to interface equations in its own way; the code is in `reduction/`.

use super::kernels::alignment::{Alignment, TILE};

/// Maximum rows of a reduced system that the host solves when devices solve the larger ones.
const LEAF: usize = 4096;

/// Rows of a block. Blocks of one level differ by at most one row.
pub(crate) const BLOCK: usize = 32;

/// Blocks of rows with row exchanges, and the solution of their reduced system.
pub(crate) struct Blocking;

impl Blocking {
    /// Returns cut positions at which whole blocks end, also in the next `levels` reduced systems.
    /// The tail is needed because blocks at the end of the rows may be one row shorter.
    pub(crate) fn alignment(levels: u32) -> Alignment {
        // Two rows of each block are rows of the next system.
        let rows = (BLOCK / 2).saturating_pow(levels).saturating_mul(BLOCK);
        Alignment { rows, levels, tail: rows.saturating_mul(BLOCK) }
    }

    /// Number of times that devices reduce the first reduced system of `all` rows further.
    pub(crate) fn device_levels(all: usize) -> u32 {
        Self::smaller(2 * all.div_ceil(BLOCK)).len() as u32
    }

    /// Block counts of a reduced system of `rows` rows, and of the smaller systems that follow on
    /// devices.
    pub(crate) fn smaller(mut rows: usize) -> Vec<usize> {
        let mut blocks = Vec::new();
        while rows > LEAF {
            blocks.push(rows.div_ceil(BLOCK));
            rows = 2 * rows.div_ceil(BLOCK);
        }
        blocks
    }

    /// Number of the [`Self::device_levels`] that a rank can reduce on its own, if its first row is
    /// row `first` of `all`.
    pub(crate) fn levels(first: usize, all: usize) -> u32 {
        let fits = |&levels: &u32| {
            let Alignment { rows, tail, .. } = Self::alignment(levels);
            first == 0 || (first.is_multiple_of(rows) && all - first >= tail)
        };
        (0..=Self::device_levels(all)).rev().find(fits).unwrap_or(0)
    }

    /// Number of blocks in `rows` rows that begin with row `first` of `all`.
    pub(crate) fn blocks(first: usize, rows: usize, all: usize) -> usize {
        if first + rows == all { all.div_ceil(BLOCK) - first / BLOCK } else { rows / BLOCK }
    }

    /// Converts (first row, number of rows, number of all rows) to those of the next reduced
    /// system.
    pub(crate) fn above((first, rows, all): (usize, usize, usize)) -> (usize, usize, usize) {
        (2 * (first / BLOCK), 2 * Self::blocks(first, rows, all), 2 * all.div_ceil(BLOCK))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Tiles: their reduced blocks are joined in the merge tree.
    Tiles,
    /// Blocks: their reduced system is solved.
    Blocks,
    /// Whole systems, which are not coupled to one another, several in a tile.
    Batch { tile: usize },
}

impl Scheme {
    /// Returns the scheme for `rows` rows of systems of `n` rows; in blocks if rows move.
    pub(crate) fn of(n: usize, rows: usize, cyclic: bool, pivot: bool) -> Self {
        match whole_systems(n, rows / n) {
            // One row is no block: its reduced block is the complete solution.
            _ if pivot && rows > 1 => Self::Blocks,
            Some(tile) if !pivot && !cyclic => Self::Batch { tile },
            _ => Self::Tiles,
        }
    }

    /// Positions at which `rows` rows may be cut into shares for `ranks` ranks.
    pub(crate) fn alignment(self, rows: usize, ranks: usize) -> Alignment {
        match self {
            Self::Tiles => Alignment::of_ranks(rows, ranks),
            Self::Blocks => Blocking::alignment(0),
            Self::Batch { tile } => Alignment::at(tile),
        }
    }

    /// Number of interface equations after reducing `rows` rows: reduced blocks, or rows of a
    /// reduced system.
    pub(crate) fn items(self, rows: usize, alignment: Alignment) -> usize {
        match self {
            Self::Tiles => alignment.blocks(rows),
            Self::Blocks => (0..=alignment.levels).fold(rows, |rows, _| 2 * rows.div_ceil(BLOCK)),
            Self::Batch { .. } => 0,
        }
    }
}

/// Rows of a tile of whole systems. `None` if a system does not fit a tile, or tiles would begin at
/// odd rows.
fn whole_systems(n: usize, batch: usize) -> Option<usize> {
    match (TILE / n).min(batch) {
        0 => None,
        // One tile holds all systems.
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
        for all in [65_536, 99_991, 100_000, 1_000_003, 2_500_001] {
            for levels in 0..3 {
                let Alignment { rows: step, tail, .. } = Blocking::alignment(levels);
                if step + tail > all {
                    continue;
                }
                // On each level: starts of the blocks of a part, and the rows of the next level.
                let next = |(first, rows, all): (usize, usize, usize)| {
                    let blocks = Blocking::blocks(first, rows, all);
                    let (length, longer) = (rows / blocks, rows % blocks);
                    let starts = (0..blocks).map(move |k| first + k * length + k.min(longer));
                    (starts.collect::<Vec<_>>(), Blocking::above((first, rows, all)))
                };
                let most = (all - tail) / step;
                for at in [1, 2, 3, most / 2, most - 1, most].map(|k| k.clamp(1, most) * step) {
                    let mut parts = [(0, at, all), (at, all - at, all), (0, all, all)];
                    for level in 0..=levels {
                        let [(left, a), (right, b), (whole, c)] = parts.map(next);
                        let what = format!("{all} rows cut at {at}, level {level}");
                        assert!([left, right].concat() == whole, "{what}");
                        assert_eq!((a.1, b.0, b.0 + b.1), (b.0, a.1, c.1), "{what}");
                        parts = [a, b, c];
                    }
                }
            }
        }
    }
}
