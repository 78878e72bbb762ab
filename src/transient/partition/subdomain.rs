//! Rows of a part: those it owns, those it computes redundantly, and those it only reads.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::parallel::*;
use crate::sparse::BLOCK;
use crate::transient::chain::transitions::Transitions;
use crate::util::memory::zeroed;

/// Rows of a part and the rows that they read.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub(crate) lane: usize,
    /// Rows that the part owns, by global index.
    pub(crate) rows: Range<usize>,
    /// Rows that the part computes: its own, and with a deeper halo those on which they depend.
    ///
    /// Their values equal the owner's bit for bit, for as many steps as the halo is deep.
    pub(crate) computed: Range<usize>,
    /// Halo: remote rows that the computed rows read, global, ascending.
    pub(crate) halo: Vec<u32>,
    /// Number of halo rows before the computed rows.
    pub(crate) left: usize,
    /// Number of entries of the own rows; `remote` counts those in columns that it does not own.
    pub(crate) entries: u64,
    pub(crate) remote: u64,
}

/// Classification of rows of a region by their readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A part of another lane reads or computes these rows.
    Boundary,
    /// No other lane reads these rows; with a deeper halo, all rows that the region computes.
    Interior,
}

/// Rows of a region that are stored together and computed together in each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Global rows; some may be in two pieces.
    pub(crate) rows: Range<usize>,
    pub(crate) kind: RowKind,
}

impl Region {
    /// Creates a region of `rows` with the halo of a single step.
    pub(crate) fn new(transitions: &dyn Transitions, lane: usize, rows: Range<usize>) -> Self {
        let (halo, entries, remote) = reads(transitions, &rows, &rows);
        let left = halo.partition_point(|&h| (h as usize) < rows.start);
        Self { lane, computed: rows.clone(), rows, halo, left, entries, remote }
    }

    /// Creates a region with an empty halo, and without counts of its entries.
    pub(super) fn without_halo(lane: usize, rows: Range<usize>, computed: Range<usize>) -> Self {
        Self { lane, rows, computed, halo: Vec::new(), left: 0, entries: 0, remote: 0 }
    }

    /// Creates a region of all rows; `lengths` are their numbers of entries.
    pub(crate) fn whole(rows: usize, lengths: &[u32]) -> Self {
        let entries = lengths.iter().map(|&length| u64::from(length)).sum();
        Self { entries, ..Self::without_halo(0, 0..rows, 0..rows) }
    }

    /// Returns the lane, rows and computed rows, for other ranks.
    pub(super) fn to_remote(&self) -> [u64; 5] {
        let (rows, computed) = (&self.rows, &self.computed);
        [self.lane, rows.start, rows.end, computed.start, computed.end].map(|number| number as u64)
    }

    /// Creates a region of another rank, from [`Self::to_remote`].
    pub(super) fn from_remote(numbers: [u64; 5]) -> Self {
        let [lane, start, end, first, last] = numbers.map(|number| number as usize);
        Self::without_halo(lane, start..end, first..last)
    }

    /// Returns the rows of another region that this region reads and does not compute, ascending.
    pub(super) fn reads_of(&self, other: &Self) -> &[u32] {
        among(&self.halo, &other.rows)
    }

    /// Returns the total width of the halo in rows, the sum of both sides.
    ///
    /// Each side reaches from the own rows to the farthest row that the region reads, including
    /// rows between that it does not read.
    pub(crate) fn halo_width(&self) -> usize {
        match (self.halo.first(), self.halo.last()) {
            (Some(&first), Some(&last)) => {
                self.rows.start.saturating_sub(first as usize)
                    + (last as usize + 1).saturating_sub(self.rows.end)
            }
            _ => 0,
        }
    }

    /// Appends rows to the halo; they must follow all rows already in it.
    pub(super) fn add_halo(&mut self, rows: &[u32]) {
        self.halo.extend(rows);
        debug_assert!(self.halo.is_sorted(), "rows come in the order of their owners");
        self.left = self.halo.partition_point(|&h| (h as usize) < self.computed.start);
    }

    /// Extends the computed rows for `halo_depth` steps without an exchange.
    ///
    /// After the exchange all elements of the vector are valid. After each step those are valid
    /// that depend on valid ones only. The computed rows grow `halo_depth` − 1 times by the hull of
    /// the rows that they read, in whole blocks. So the own rows are still valid after the last
    /// step.
    pub(super) fn deepen(&mut self, transitions: &dyn Transitions, halo_depth: usize) {
        let n = transitions.states();
        for _ in 1..halo_depth {
            let (Some(&first), Some(&last)) = (self.halo.first(), self.halo.last()) else { break };
            let start = self.computed.start.min(first as usize / BLOCK * BLOCK);
            let end = self.computed.end.max(((last as usize + 1).next_multiple_of(BLOCK)).min(n));
            let grown = start..end;
            for more in [grown.start..self.computed.start, self.computed.end..grown.end] {
                self.halo.extend(reads(transitions, &more, &grown).0);
            }
            self.halo.retain(|&h| !grown.contains(&(h as usize)));
            self.halo.sort_unstable();
            self.halo.dedup();
            self.computed = grown;
            self.left = self.halo.partition_point(|&h| (h as usize) < self.computed.start);
        }
    }

    /// Returns the number of elements of the region's vectors.
    pub(crate) fn len(&self) -> usize {
        self.computed.len() + self.halo.len()
    }

    /// Returns the index of the first own row in the region's vectors.
    pub(crate) fn own(&self) -> usize {
        self.left + self.rows.start - self.computed.start
    }

    /// Returns the index of a global column in the region's vectors.
    pub(crate) fn local(&self, column: u32) -> u32 {
        let c = column as usize;
        (if self.computed.contains(&c) {
            c - self.computed.start + self.left
        } else {
            let place = self.halo.partition_point(|&h| h < column);
            if place < self.left { place } else { place + self.computed.len() }
        }) as u32
    }

    /// Returns the rows that this region reads or computes and `owner` owns: global, ascending.
    ///
    /// They are contiguous in this region's vectors.
    pub(crate) fn halo_from(&self, owner: &Self) -> Vec<u32> {
        let (left, right) = self.halo.split_at(self.left);
        let shared = self.computed.start.max(owner.rows.start)..self.computed.end.min(owner.rows.end);
        let mut rows = among(left, &owner.rows).to_vec();
        rows.extend(shared.start as u32..shared.end.max(shared.start) as u32);
        rows.extend(among(right, &owner.rows));
        rows
    }

    /// Returns the rows that are computed in a step, in pieces cut at multiples of a block.
    ///
    /// With an exchange after every step, these are the own rows in ascending pieces. The interior
    /// is the longest range of own rows that no part of another lane reads.
    ///
    /// With a deeper halo, most steps compute all rows at once, so these are one piece. The
    /// boundary is stored a second time: the last step computes it first, and then again with all
    /// rows.
    pub(crate) fn pieces(&self, regions: &[Self], halo_depth: usize) -> Vec<Piece> {
        let others = regions.iter().filter(|other| other.lane != self.lane);
        let (own, interior) = (&self.rows, self.interior(others.flat_map(|other| other.halo_from(self))));
        let (before, behind) = (own.start..interior.start, interior.end..own.end);
        let all = if halo_depth > 1 { self.computed.clone() } else { interior };
        let pieces = [
            Piece { rows: before, kind: RowKind::Boundary },
            Piece { rows: all, kind: RowKind::Interior },
            Piece { rows: behind, kind: RowKind::Boundary },
        ];
        pieces.into_iter().filter(|piece| !piece.rows.is_empty()).collect()
    }

    /// Returns the longest range of whole blocks of own rows that no other region reads.
    fn interior(&self, read: impl Iterator<Item = u32>) -> Range<usize> {
        let mut read: Vec<u32> = read.collect();
        read.sort_unstable();
        let mut interior = self.rows.start..self.rows.start;
        let mut next = self.rows.start;
        for end in read.iter().map(|&row| row as usize).chain([self.rows.end]) {
            let whole = if end == self.rows.end { end } else { end / BLOCK * BLOCK };
            let free = next.next_multiple_of(BLOCK)..whole;
            if free.len() > interior.len() {
                interior = free;
            }
            next = end + 1;
        }
        interior
    }
}

/// Returns the rows within `range`; `rows` ascend.
fn among<'a>(rows: &'a [u32], range: &Range<usize>) -> &'a [u32] {
    let before = |end: usize| rows.partition_point(|&row| (row as usize) < end);
    let first = before(range.start);
    &rows[first..before(range.end).max(first)]
}

/// Finds the columns outside of `own` that `rows` read, ascending.
///
/// Also returns the number of entries of `rows`, and of entries in columns outside of `own`.
fn reads(transitions: &dyn Transitions, rows: &Range<usize>, own: &Range<usize>) -> (Vec<u32>, u64, u64) {
    let read: Vec<AtomicU64> = (0..transitions.states().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
    let mut lengths: Vec<u32> = zeroed(rows.len());
    // Repeating rows read nothing outside.
    let repeats = transitions.repeats_among(rows);
    let scan = |row: &mut Vec<(u32, f64)>, (first, lengths): (usize, &mut [u32])| {
        let mut remote = 0;
        for (i, length) in lengths.iter_mut().enumerate() {
            let row = transitions.entering(rows.start + first + i, row);
            *length = row.len() as u32;
            for &(column, _) in row.iter().filter(|&&(column, _)| !own.contains(&(column as usize))) {
                remote += 1;
                read[column as usize / 64].fetch_or(1 << (column % 64), Ordering::Relaxed);
            }
        }
        remote
    };
    let places = repeats.places(&mut lengths, 4096).into_par_iter();
    let remote = places.map_init(Vec::new, scan).reduce(|| 0, |a, b| a + b);
    repeats.copy(&mut lengths);
    let entries = lengths.par_iter().map(|&length| u64::from(length)).reduce(|| 0, |a, b| a + b);
    let mut columns = Vec::new();
    for (word, bits) in read.iter().enumerate() {
        let mut bits = bits.load(Ordering::Relaxed);
        while bits != 0 {
            columns.push((word * 64) as u32 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    }
    (columns, entries, remote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transient::chain::csr::Csr;
    use crate::transient::chain::csr::tests::chain;

    /// Line of states with steps of one up and of `reach` down.
    fn line(n: u32, reach: u32) -> Csr {
        let up = (1..n).map(|i| (i - 1, i, 1.0));
        let down = (reach..n).map(|i| (i, i - reach, 1.0));
        chain(n as usize, &up.chain(down).collect::<Vec<_>>())
    }

    fn regions(chain: &Csr, cuts: &[usize], halo_depth: usize) -> Vec<Region> {
        let part = |(lane, ends): (usize, &[usize])| {
            let mut region = Region::new(chain, lane, ends[0]..ends[1]);
            region.deepen(chain, halo_depth);
            region
        };
        cuts.windows(2).enumerate().map(part).collect()
    }

    /// With one step, pieces cover the own rows. With several, all computed rows are one piece.
    #[test]
    fn no_other_part_reads_the_interior_and_neighbours_read_the_boundary() {
        let chain = line(12_000, 300);
        for depth in [1, 3] {
            let all = regions(&chain, &[0, 4096, 8192, 12_000], depth);
            for region in &all {
                let pieces = region.pieces(&all, depth);
                let (whole, boundary): (Vec<_>, Vec<_>) =
                    pieces.iter().partition(|p| p.kind == RowKind::Interior);
                let [interior] = whole[..] else { panic!("{pieces:?}") };
                if depth == 1 {
                    let starts = pieces.iter().map(|piece| piece.rows.start);
                    let ends = std::iter::once(region.rows.start).chain(pieces.iter().map(|p| p.rows.end));
                    assert!(starts.chain([region.rows.end]).eq(ends), "{pieces:?}");
                    assert!(pieces.iter().all(|piece| piece.rows.start.is_multiple_of(BLOCK)), "{pieces:?}");
                } else {
                    assert_eq!(interior.rows, region.computed);
                }
                for other in all.iter().filter(|other| other.lane != region.lane) {
                    for row in other.halo_from(region).into_iter().map(|row| row as usize) {
                        assert!(depth > 1 || !interior.rows.contains(&row), "{row}");
                        assert!(boundary.iter().any(|b| b.rows.contains(&row)), "{row}");
                    }
                }
            }
        }
    }
}
