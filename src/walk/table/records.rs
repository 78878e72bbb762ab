//! Writer of the records of a [`Table`](super::Table).
//!
//! Sixteen short rows are sorted at once with SIMD instructions: a sorting network compares an
//! entry of each row per step. The sums of their probabilities run in parallel as well.

use std::ops::Range;

use super::record_layout::{CERTAIN, HEAD, LONG, UNIT, pair};
use crate::kernel::cpu::simd::Body;
use crate::walk::convergence::certificate::Certificate;
use crate::walk::splitting::{AHEAD, Split};

/// Number of rows that are sorted and written together.
const ROWS: usize = 16;

/// 2³², the unit of distribution functions.
const ONE: f64 = 4_294_967_296.0;
/// 2⁵²: added to an integer, it leaves that integer in the lowest bits.
const WHOLE: f64 = 4_503_599_627_370_496.0;

/// Data of a row that is needed to write entries that lead to this row.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct TargetRow {
    /// Value by which entries that lead to this row are sorted.
    pub(crate) key: f32,
    /// Position of the row's record, in units of 32 bytes.
    pub(crate) place: u32,
}

impl TargetRow {
    /// Returns an integer that ascends with the key, or with −key if the entry's [`sign`] is set.
    ///
    /// Its lowest bits may be replaced by the number of the entry in its row.
    #[inline(always)]
    pub(crate) fn rank(self, sign: u32) -> i32 {
        let bits = (self.key.to_bits() ^ sign) as i32;
        bits ^ ((bits >> 31) as u32 >> 1) as i32
    }
}

/// Returns bit 31 set if an entry is negative, else 0.
#[inline(always)]
pub(crate) fn sign(l: f64) -> u32 {
    (l.to_bits() >> 32) as u32 & 1 << 31
}

/// Data from which the records of some rows are written.
pub(crate) struct Records<'a> {
    pub(crate) split: &'a Split<'a>,
    pub(crate) certificate: &'a Certificate,
    pub(crate) g: &'a [&'a [f64]],
    /// Factor by which the summands g are multiplied before they are stored.
    pub(crate) unit: f64,
    pub(crate) targets: &'a [TargetRow],
    pub(crate) rows: Range<usize>,
}

/// Writer of [`Records`] into the table.
pub(crate) struct Writing<'a> {
    pub(crate) of: Records<'a>,
    pub(crate) words: &'a mut [u32],
    /// Largest error Σ_j | |l_ij| − p_ij s | of rows i with s = Σ_j |l_ij| and stored p_ij.
    pub(crate) worst: &'a mut f64,
}

impl Body for Writing<'_> {
    #[inline(always)]
    fn run<const LEVEL: u8>(self) {
        let Self { of, words, worst } = self;
        let base = of.targets[of.rows.start].place as usize;
        let mut short: ShortRows = bytemuck::Zeroable::zeroed();
        let mut long = Vec::new();
        for first in of.rows.clone().step_by(ROWS) {
            let rows = first..of.rows.end.min(first + ROWS);
            short.clear();
            for i in rows.clone() {
                // Targets may be far apart: they are prefetched some rows ahead.
                if i + AHEAD < of.rows.end {
                    of.split.prefetch(i + AHEAD, of.targets);
                }
                if of.split.entries(i) <= LONG {
                    short.take(&of, i, i - first);
                }
            }
            short.sort();
            short.add_up();
            for i in rows {
                let own = of.targets[i].place;
                let words = &mut words[(own as usize - base) * UNIT..];
                words[..2].copy_from_slice(&match of.g {
                    [g] => pair(of.certificate.on_walks(i, g[i]) * of.unit),
                    _ => [i as u32, 0],
                });
                let error = match of.split.entries(i) {
                    ..=LONG => short.write(i - first, own, words),
                    _ => of.write_long(i, &mut long, words),
                };
                *worst = worst.max(error);
            }
        }
    }
}

impl Records<'_> {
    /// Returns entry l in column j of a row, scaled as for walks, with its target and its rank.
    ///
    /// `own` is the scale of the row.
    #[inline(always)]
    fn entry(&self, own: f64, j: u32, l: f64) -> (f64, TargetRow, i32) {
        let target = self.targets[j as usize];
        let value = if self.certificate.scaled { l * self.certificate.scale(j as usize) / own } else { l };
        (value, target, target.rank(sign(l)))
    }

    /// Writes a long row's record from its third word on; returns the error of [`write_shares`].
    #[inline(never)]
    fn write_long(&self, i: usize, entries: &mut Vec<RowEntry>, words: &mut [u32]) -> f64 {
        let own = self.certificate.walk_scale(i);
        entries.clear();
        entries.extend(self.split.row(i).map(|(j, l)| {
            let (value, target, rank) = self.entry(own, j, l);
            (rank, value.abs(), target.place | sign(l))
        }));
        // Stable: entries of equal rank stay in the order of their columns.
        entries.sort_by_key(|&(rank, ..)| rank);
        write_shares(entries, entries.iter().map(|e| e.1).sum(), words)
    }
}

/// Entry of a row: position in the order, absolute value, and the target with the sign as a bit.
pub(crate) type RowEntry = (i32, f64, u32);

/// Writes the record of a long row i with s = Σ_j |l_ij| from its third word on.
///
/// Returns the error Σ_j | |l_ij| − p_ij s | of the stored probabilities p_ij.
pub(crate) fn write_shares(entries: &[RowEntry], sum: f64, words: &mut [u32]) -> f64 {
    words[2..4].copy_from_slice(&pair(sum));
    let (d, of_sum) = (entries.len() as f64, ONE / sum);
    words[HEAD + 1] = d as u32;
    let (mut before, mut partial, mut error) = (0.0, 0.0, 0.0);
    for (k, (&(_, l, to), words)) in entries.iter().zip(words[HEAD + 2..].chunks_exact_mut(2)).enumerate() {
        partial += l;
        let behind = behind(partial * of_sum, before, k as f64, d);
        error += (l - (behind - before) * (sum / ONE)).abs();
        before = behind;
        words.copy_from_slice(&[if behind >= ONE { CERTAIN } else { behind as u32 }, to]);
    }
    error
}

/// Returns the cumulative probability up to entry k of d entries, as an integer up to 2³².
///
/// `before` is that of the previous entry, `partial` the exact sum of all up to this one. Every
/// entry has at least 1 of 2³², since a probability of 0 for a nonzero l would be a bias. The last
/// one has at least 2.
#[inline(always)]
fn behind(partial: f64, before: f64, k: f64, d: f64) -> f64 {
    let (rounded, least, most) = ((partial + 0.5).trunc(), before + 1.0, ONE - (d - k));
    let at_least = if rounded > least { rounded } else { least };
    let within = if at_least < most { at_least } else { most };
    if k + 1.0 >= d { ONE } else { within }
}

/// Short rows in columns: entry k of row r is `[k][r]`.
#[derive(bytemuck::Zeroable)]
struct ShortRows {
    value: [[f64; ROWS]; LONG],
    /// Position of the target's record in units of 32 bytes, with the entry's sign in bit 31.
    to: [[u32; ROWS]; LONG],
    /// Ranks with the entry's number in their lowest bits, in ascending order after [`Self::sort`].
    rank: [[i32; ROWS]; LONG],
    count: [u32; ROWS],
    /// Cumulative probabilities of the sorted entries, as fractions of 2³².
    behind: [[u32; ROWS]; LONG],
    sum: [f64; ROWS],
    error: [f64; ROWS],
}

impl ShortRows {
    #[inline(always)]
    fn clear(&mut self) {
        self.rank = [[i32::MAX; ROWS]; LONG];
        self.count = [0; ROWS];
    }

    /// Copies row i, of at most [`LONG`] entries, to the empty row r.
    #[inline(always)]
    fn take(&mut self, of: &Records<'_>, i: usize, r: usize) {
        let own = of.certificate.walk_scale(i);
        let mut d = 0;
        for (j, l) in of.split.each(i) {
            // An entry of L that is 0 is overwritten by the next one, or removed after the loop.
            if d < LONG {
                let (value, target, rank) = of.entry(own, j, l);
                self.value[d][r] = value.abs();
                self.to[d][r] = target.place | sign(l);
                self.rank[d][r] = rank & !(LONG as i32 - 1) | d as i32;
            }
            d += usize::from(l != 0.0);
        }
        if let Some(rank) = self.rank.get_mut(d) {
            rank[r] = i32::MAX;
        }
        self.count[r] = d as u32;
    }

    /// Number of entries of the longest row.
    #[inline(always)]
    fn most(&self) -> usize {
        self.count.iter().copied().max().unwrap_or(0) as usize
    }

    /// Sorts every row by its ranks with Batcher's merge exchange for 16 numbers.
    ///
    /// K. E. Batcher, "Sorting networks and their applications", AFIPS 1968,
    /// doi:10.1145/1468075.1468121.
    #[inline(always)]
    fn sort(&mut self) {
        // Places after the last entry of every row do not change.
        let most = self.most();
        let mut run = 1;
        while run < LONG {
            let mut apart = run;
            while apart > 0 {
                for first in (apart % run..LONG - apart).step_by(2 * apart) {
                    for low in first..(first + apart).min(LONG - apart) {
                        let high = low + apart;
                        if low / (2 * run) != high / (2 * run) || high >= most {
                            continue;
                        }
                        let (a, b) = (self.rank[low], self.rank[high]);
                        for r in 0..ROWS {
                            self.rank[low][r] = a[r].min(b[r]);
                            self.rank[high][r] = a[r].max(b[r]);
                        }
                    }
                }
                apart /= 2;
            }
            run *= 2;
        }
    }

    /// Returns the number of the k-th entry of row r in sorted order.
    #[inline(always)]
    fn nth(&self, k: usize, r: usize) -> usize {
        self.rank[k][r] as usize % LONG
    }

    /// Computes each row's sum, and the distribution function (cumulative) over its entries.
    #[inline(always)]
    fn add_up(&mut self) {
        let most = self.most();
        let (mut value, mut partial) = ([[0.0; ROWS]; LONG], [[0.0; ROWS]; LONG]);
        self.sum = [0.0; ROWS];
        for k in 0..most {
            for r in 0..ROWS {
                let here = self.value[self.nth(k, r)][r];
                value[k][r] = if k < self.count[r] as usize { here } else { 0.0 };
                self.sum[r] += value[k][r];
                partial[k][r] = self.sum[r];
            }
        }
        // One division per row.
        let of_sum = self.sum.map(|sum| ONE / sum);
        let count = self.count.map(f64::from);
        let mut before = [0.0; ROWS];
        self.error = [0.0; ROWS];
        for k in 0..most {
            for r in 0..ROWS {
                let behind = behind(partial[k][r] * of_sum[r], before[r], k as f64, count[r]);
                let error = (value[k][r] - (behind - before[r]) * (self.sum[r] / ONE)).abs();
                self.error[r] += if (k as f64) < count[r] { error } else { 0.0 };
                before[r] = behind;
                self.behind[k][r] = if behind >= ONE { CERTAIN } else { (behind + WHOLE).to_bits() as u32 };
            }
        }
    }

    /// Writes row r's record from its third word on; returns the error as [`write_shares`] does.
    ///
    /// `own` is the position of the record in units of 32 bytes.
    #[inline(always)]
    fn write(&self, r: usize, own: u32, words: &mut [u32]) -> f64 {
        words[2..4].copy_from_slice(&pair(self.sum[r]));
        let d = self.count[r] as usize;
        if d == 0 {
            words[HEAD..HEAD + 2].copy_from_slice(&[CERTAIN, own]);
            return 0.0;
        }
        let entries = &mut words[HEAD..].as_chunks_mut::<2>().0[..d + d % 2];
        for (k, words) in entries.iter_mut().enumerate() {
            // Entries are read in pairs; the one added to an odd number is never selected.
            *words = if k < d { [self.behind[k][r], self.to[self.nth(k, r)][r]] } else { [CERTAIN, own] };
        }
        self.error[r]
    }
}
