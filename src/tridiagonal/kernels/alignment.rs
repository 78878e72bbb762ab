//! Positions of rows in their systems, and positions at which rows may be cut.

/// Rows of a unit, the smallest run of rows that is reduced to one reduced block.
pub const UNIT: usize = 128;
/// Rows of a tile, which one workgroup processes.
pub const TILE: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    /// Rows of one system; several systems are concatenated.
    pub n: usize,
    /// Index of the chunk's first row, counted from the beginning of all systems.
    pub first: usize,
    /// True for a cyclic system; there is only one system then.
    pub cyclic: bool,
}

impl ChunkPlace {
    /// Kernel parameters: rows of a system, and index of the chunk's first row in it.
    ///
    /// A system that is too long for 32-bit counters is replaced by a shorter one. Of the chunk's
    /// `rows` rows, those at the ends of the system are at the ends of the shorter one.
    pub(crate) fn params(self, rows: usize) -> (u32, u32) {
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

/// True if several cyclic systems of `n` rows are opened by the Sherman–Morrison formula.
///
/// Each open system fits a tile. From 3 rows on, no matrix element is the sum of two coefficients.
pub(crate) fn opens_cyclic(n: usize) -> bool {
    (3..=TILE).contains(&n)
}

/// Minimum number of reduction units per rank, if there are enough rows.
///
/// A unit is the 128·2^levels rows of one reduced block (see [`Alignment`]), and ranks hold whole
/// units. So their shares differ by at most one unit in 32.
pub(crate) const OF_A_RANK: usize = 32;
/// Minimum number of reduction units per chunk, larger than [`OF_A_RANK`] since a chunk sends its
/// units to no other rank.
const OF_A_CHUNK: usize = 256;

/// Positions at which rows may be cut, and the levels of reduction in each part (chunk or rank).
///
/// In tiles the levels are those of the merge tree, which depends on the total number of rows
/// alone. A part leaves nodes of the tree, which are joined with those of other parts. In blocks
/// the levels are reduced systems after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Distance between two cut positions in rows.
    pub rows: usize,
    /// Number of levels of reduction. In tiles, one reduced block is left per 128·2^levels rows.
    pub levels: u32,
    /// Minimum number of rows after the last cut.
    pub tail: usize,
}

impl Alignment {
    /// Chunks of rows begin at multiples of [`TILE`], and leave one reduced block per [`UNIT`].
    ///
    /// Used for one chunk of all rows, whose reduced blocks are all joined in stage 2.
    pub(crate) const TILES: Self = Self::at(TILE);

    /// Cuts at multiples of `rows`, without further levels of reduction.
    pub(crate) const fn at(rows: usize) -> Self {
        Self { rows, levels: 0, tail: 1 }
    }

    /// Alignment for `rows` rows on `ranks` ranks: the coarsest with at least 32 units per rank.
    ///
    /// A rank has at most 64 such units, and merges them before it sends them, see
    /// [`rank_reduction`](crate::tridiagonal::reduction::rank_reduction).
    pub(crate) fn of_ranks(rows: usize, ranks: usize) -> Self {
        let Self { levels, .. } = Self::coarsest(rows, OF_A_RANK * ranks);
        let levels = levels.max((TILE / UNIT).ilog2());
        Self { rows: UNIT << levels, levels, tail: 1 }
    }

    /// Alignment for `rows` rows in `chunks` chunks: the coarsest with at least 256 units per
    /// chunk.
    pub(crate) fn of_chunks(rows: usize, chunks: usize) -> Self {
        Self::coarsest(rows, OF_A_CHUNK * chunks)
    }

    /// Coarsest alignment with at least `units` units, and at most twice as many.
    fn coarsest(rows: usize, units: usize) -> Self {
        let levels = (rows.div_ceil(UNIT) / units).max(1).ilog2();
        Self { rows: TILE.max(UNIT << levels), levels, tail: 1 }
    }

    /// Alignment at multiples of this one's rows that are at least a tile apart.
    pub(crate) fn of_tiles_at_least(self) -> Self {
        Self { rows: self.rows * TILE.div_ceil(self.rows), ..self }
    }

    /// Number of reduced blocks that `rows` rows leave, if they begin at a cut position.
    pub(crate) fn blocks(self, rows: usize) -> usize {
        rows.div_ceil(UNIT << self.levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_are_as_coarse_as_parts_allow() {
        let aligned = |rows, levels| Alignment { rows, levels, tail: 1 };
        assert_eq!(Alignment::of_ranks(10_000_000, 2), aligned(1 << 17, 10));
        assert_eq!(Alignment::of_ranks(10_000_000_000, 8), aligned(1 << 25, 18));
        // Cuts are at least a tile apart.
        assert_eq!(Alignment::of_ranks(10_000, 2), aligned(2048, 4));
        assert_eq!(Alignment::of_chunks(10_000, 2), aligned(2048, 0));
        assert_eq!(Alignment::of_chunks(10_000_000, 4), aligned(8192, 6));
    }

    #[test]
    fn parameters_have_the_ends_of_systems_of_any_size() {
        let huge = 5_000_000_000;
        let of = |first, rows| ChunkPlace { n: huge, first, cyclic: false }.params(rows);
        let ends = |(n, at): (u32, u32), rows: usize| (at == 0, at as usize + rows == n as usize);

        assert_eq!(ends(of(0, 1 << 20), 1 << 20), (true, false));
        assert_eq!(ends(of(3 << 30, 1 << 20), 1 << 20), (false, false));
        assert_eq!(ends(of(huge - 77, 77), 77), (false, true));
        assert_eq!(ChunkPlace { n: 100, first: 250, cyclic: false }.params(99), (100, 50));
    }
}
