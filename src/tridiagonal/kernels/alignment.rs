//! Places of rows in their systems, and those at which they may be cut.

/// Rows of a unit.
pub const UNIT: usize = 128;
/// Rows of a tile: what one workgroup takes.
pub const TILE: usize = 2048;

/// The place of a chunk in its systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Rows of one system; several lie one behind the other.
    pub n: usize,
    /// Number of the chunk's first row, counted from the beginning of all systems.
    pub first: usize,
    /// Whether the system is cyclic; there is only one then.
    pub cyclic: bool,
}

impl Place {
    /// The rows of a system and the chunk's first row in it, as kernels are told: of systems that are too long for their
    /// counters one that has its ends where `rows` rows from there see them.
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

/// True if several cyclic systems of `n` rows are opened: those that are whole as open ones, of which no number is two coefficients.
pub(crate) fn opens_cyclic(n: usize) -> bool {
    (3..=TILE).contains(&n)
}

/// Units of a rank at least, where it has the rows for them: shares differ by one of so many.
pub(crate) const OF_A_RANK: usize = 32;
/// Units of a chunk at least, which need not travel as far.
const OF_A_CHUNK: usize = 256;

/// The places at which rows may be cut, and the levels above the first equations by which a part of them is reduced by
/// itself. In tiles the levels are those of the merge tree, which depends on the number of all rows alone: a part leaves nodes of it to be
/// joined with those of others. In blocks they are those of reduced systems beside the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Rows between two places.
    pub rows: usize,
    /// Levels: in tiles a reduced block is left of 128·2^levels rows.
    pub levels: u32,
    /// Rows behind the last place at least.
    pub tail: usize,
}

impl Alignment {
    /// Cuts at tiles, and reduced blocks as stage 1 leaves them.
    pub(crate) const TILES: Self = Self::at(TILE);

    /// Cuts at multiples of `rows`.
    pub(crate) const fn at(rows: usize) -> Self {
        Self { rows, levels: 0, tail: 1 }
    }

    /// The alignment for `rows` rows on so many ranks: the coarsest of which each has 32 units, and 64 at most, which it
    /// joins further before it sends them, see [`rank_reduction`](crate::tridiagonal::reduction::rank_reduction).
    pub(crate) fn of_ranks(rows: usize, ranks: usize) -> Self {
        let Self { levels, .. } = Self::coarsest(rows, OF_A_RANK * ranks);
        let levels = levels.max((TILE / UNIT).ilog2());
        Self { rows: UNIT << levels, levels, tail: 1 }
    }

    /// The alignment for `rows` rows in so many chunks: the coarsest of which each has 256 units.
    pub(crate) fn of_chunks(rows: usize, chunks: usize) -> Self {
        Self::coarsest(rows, OF_A_CHUNK * chunks)
    }

    /// The alignment with so many units at least, twice as many at most.
    fn coarsest(rows: usize, units: usize) -> Self {
        let levels = (rows.div_ceil(UNIT) / units).max(1).ilog2();
        Self { rows: TILE.max(UNIT << levels), levels, tail: 1 }
    }

    /// The alignment whose places are also tiles apart, or more.
    pub(crate) fn of_tiles_at_least(self) -> Self {
        Self { rows: self.rows * TILE.div_ceil(self.rows), ..self }
    }

    /// Reduced blocks of a run of `rows` rows that begins at a place.
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
        // At tiles at least.
        assert_eq!(Alignment::of_ranks(10_000, 2), aligned(2048, 4));
        assert_eq!(Alignment::of_chunks(10_000, 2), aligned(2048, 0));
        assert_eq!(Alignment::of_chunks(10_000_000, 4), aligned(8192, 6));
    }

    #[test]
    fn parameters_have_the_ends_of_systems_of_any_size() {
        let huge = 5_000_000_000;
        let of = |first, rows| Place { n: huge, first, cyclic: false }.params(rows);
        let ends = |(n, at): (u32, u32), rows: usize| (at == 0, at as usize + rows == n as usize);

        assert_eq!(ends(of(0, 1 << 20), 1 << 20), (true, false));
        assert_eq!(ends(of(3 << 30, 1 << 20), 1 << 20), (false, false));
        assert_eq!(ends(of(huge - 77, 77), 77), (false, true));
        assert_eq!(Place { n: 100, first: 250, cyclic: false }.params(99), (100, 50));
    }
}
