//! Rows of systems that a process has: all of them, or those of a rank.

use std::ops::Range;

use crate::ranks::Ranks;
use crate::tridiagonal::kernels::alignment::{Alignment, OF_A_RANK, opens_cyclic};
use crate::tridiagonal::kernels::number::Number;
use crate::tridiagonal::scheme::{Blocking, Scheme};
use crate::util::quantity::gcd;

/// Range of rows of `batch` concatenated systems of `n` rows each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowSpan {
    /// Rows of one system.
    pub n: usize,
    /// Number of systems.
    pub batch: usize,
    /// True if the first and the last unknown of a system are neighbours.
    pub cyclic: bool,
    /// First local row, counted over all systems.
    pub first: usize,
    /// Number of local rows.
    pub rows: usize,
    /// Ranks that share the rows.
    pub ranks: Ranks,
}

impl RowSpan {
    /// Range of all rows.
    pub fn whole(n: usize, batch: usize, cyclic: bool) -> Self {
        Self { n, batch, cyclic, first: 0, rows: n.saturating_mul(batch), ranks: Ranks::ALONE }
    }

    /// Share of this rank of systems.
    ///
    /// Shares are as even as possible with cuts at positions that suit every method of solution.
    /// Several cyclic systems are not divided.
    ///
    /// In tiles, a rank sends two interface equations, 56 bytes, to rank 0 for each subtree of its
    /// units: at most two per level, 13 in all. In blocks of 32 rows it sends rows of a reduced
    /// system, 32 bytes each: at most 1026, or 4096 on all ranks together. For several cyclic
    /// systems it sends nothing.
    pub fn share(n: usize, batch: usize, cyclic: bool, ranks: Ranks) -> Self {
        let all = n.saturating_mul(batch);
        let whole = Self::whole(n, batch, cyclic);
        if !ranks.is_distributed() || all == 0 {
            return whole;
        }
        let Alignment { rows: unit, tail, .. } = match cyclic && batch > 1 {
            true if !opens_cyclic(n) => Alignment { tail: n, ..Alignment::at(n) },
            true => Alignment { tail: n, ..Scheme::of(n, all, false, false).alignment(all, ranks.size()) },
            false => Self::alignment(n, all, cyclic, ranks.size()),
        };
        let (units, last) = (all.div_ceil(unit), all.saturating_sub(tail) / unit);
        let Range { start, end } = ranks.share(units as u64);
        let cut = |number: u64| if number == units as u64 { all } else { last.min(number as usize) * unit };
        let (first, end) = (cut(start), cut(end));
        Self { first, rows: end - first, ranks, ..whole }
    }

    /// Positions at which `all` rows can be cut for `ranks` ranks with every method of solution.
    fn alignment(n: usize, all: usize, cyclic: bool, ranks: usize) -> Alignment {
        let plain = Scheme::of(n, all, cyclic, false).alignment(all, ranks);
        // If rows have to be exchanged, they are in blocks of another size. Ranks reduce the
        // reduced systems of these blocks further as long as each rank has many of the last blocks.
        let lcm = |a: usize, b: usize| (a / gcd(a, b)).saturating_mul(b);
        let both = |levels| lcm(plain.rows, Blocking::alignment(levels).rows);
        let most = plain.rows.max(all / (OF_A_RANK * ranks));
        let levels =
            (0..=Blocking::device_levels(all)).rev().find(|&levels| both(levels) <= most).unwrap_or(0);
        let Alignment { rows, .. } = Alignment::at(both(levels)).of_tiles_at_least();
        let tail = rows.max(plain.tail).max(Blocking::alignment(levels).tail);
        Alignment { rows, levels, tail }
    }

    /// Number of rows of all systems, on all ranks.
    pub fn all(&self) -> usize {
        self.n.saturating_mul(self.batch)
    }

    /// Range of the local rows, counted over all systems.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.rows
    }

    /// Number of rows before and after the local ones, at most `most` each.
    pub(crate) fn neighbours(&self, most: usize) -> [usize; 2] {
        [self.first.min(most), (self.all() - self.first - self.rows).min(most)]
    }

    /// Gathers an array's elements of `rows` from all ranks; `own` has the local rows' elements.
    /// Every rank calls this.
    pub(crate) fn of_all<T: Number>(&self, own: &[T], rows: Range<usize>) -> Vec<T> {
        let at = |row: usize| row.clamp(self.first, self.first + self.rows) - self.first;
        self.ranks.all_gather(&own[at(rows.start)..at(rows.end)]).concat()
    }

    /// Fills the ends of an array with the numbers of neighbouring rows on remote ranks.
    ///
    /// The ends have the lengths of [`Self::neighbours`]. Every rank calls this.
    pub(crate) fn exchange<T: Number>(&self, most: usize, array: &mut [T]) {
        let [before, _] = self.neighbours(most);
        let own = &array[before..][..self.rows];
        let ends = self.rows.min(most);
        let lists = self.ranks.all_gather(&[&own[..ends], &own[self.rows - ends..]].concat());
        let shares = self.ranks.all_gather(&[self.first as u64, self.rows as u64]);
        let origin = self.first - before;
        for (rank, (list, share)) in lists.iter().zip(shares).enumerate() {
            let (head, tail) = list.split_at(list.len() / 2);
            let (first, end) = (share[0] as usize, (share[0] + share[1]) as usize);
            for (first, piece) in [(first, head), (end - tail.len(), tail)] {
                let rows = (first..).zip(piece).filter(|_| rank != self.ranks.rank());
                rows.for_each(|(row, &number)| {
                    if let Some(to) = row.checked_sub(origin).and_then(|at| array.get_mut(at)) {
                        *to = number;
                    }
                });
            }
        }
    }

    /// Values next to the local rows, from the previous and the next rank that has rows.
    ///
    /// `own` has the first and the last local value. The first and the last rank are neighbours.
    pub(crate) fn adjacent_values(&self, own: Option<[f64; 2]>) -> [f64; 2] {
        if !self.ranks.is_distributed() {
            return own.map_or([0.0; 2], |[first, last]| [last, first]);
        }
        let all = self.ranks.all_gather(own.as_ref().map_or(&[][..], |own| own));
        let (rank, size) = (self.ranks.rank(), self.ranks.size());
        let at = |rank: usize| all[rank % size].get(..2);
        let before = (1..=size).find_map(|k| at(rank + size - k)).map_or(0.0, |ends| ends[1]);
        let behind = (1..=size).find_map(|k| at(rank + k)).map_or(0.0, |ends| ends[0]);
        [before, behind]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tridiagonal::scheme::BLOCK;

    fn shares(n: usize, batch: usize, cyclic: bool, size: usize) -> Vec<RowSpan> {
        (0..size).map(|r| RowSpan::share(n, batch, cyclic, Ranks::simulated(r, size))).collect()
    }

    #[test]
    fn shares_cover_all_rows_at_places_where_everything_can_be_cut() {
        for (n, batch, cyclic) in [
            (1, 1, false),
            (5000, 1, false),
            (100_003, 1, false),
            (100_003, 1, true),
            (700_001, 1, false),
            (2_500_001, 1, false),
            (10_000_019, 1, false),
            (100, 5000, false),
            (3000, 70, false),
            (777, 9, true),
        ] {
            for size in [2, 3, 5, 8] {
                let shares = shares(n, batch, cyclic, size);
                let (mut at, all) = (0, n * batch);
                for share in &shares {
                    assert_eq!(share.first, at, "{n} x {batch} on {size}");
                    at += share.rows;
                    if at == all || share.rows == 0 {
                        continue;
                    }
                    if cyclic && batch > 1 {
                        assert_eq!(at % n, 0);
                        continue;
                    }
                    assert!(at % BLOCK == 0 && all - at >= BLOCK * BLOCK, "{n} x {batch} on {size}");
                    let scheme = Scheme::of(n, all, cyclic, false);
                    let Alignment { rows, tail, .. } = scheme.alignment(all, size);
                    assert!(at % rows == 0 && all - at >= tail, "{n} x {batch} on {size}");
                }
                assert_eq!(at, all);
                let (most, even) = (shares.iter().map(|share| share.rows).max().unwrap_or(0), all / size);
                if all > 9_000_000 {
                    assert!(most as f64 <= 1.1 * even as f64, "{most} of {even}");
                }
            }
        }
    }

    #[test]
    fn ranks_reduce_interface_systems_as_devices_do() {
        for (n, size, levels) in
            [(100_003, 2, 1), (60_000, 2, 0), (1_300_003, 3, 2), (1_300_003, 5, 1), (1_000_000_007, 8, 4)]
        {
            let shares = shares(n, 1, false, size);
            let found = shares.iter().map(|share| Blocking::levels(share.first, n)).min();
            assert_eq!(found, Some(levels), "{n} on {size}");
        }
    }
}
