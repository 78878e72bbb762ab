//! Chain tables: one record per row with all its data, so that a step reads few cache lines.
//!
//! A record starts at a multiple of 32 bytes. Its words:
//!
//!  | words | |
//!  |---|---|
//!  | 0, 1 | g_i as the sum of two f32; with several columns g, i and 0 |
//!  | 2, 3 | the sum of |l_ij| over j, as the sum of two f32; 0 ends a walk |
//!  | 4 + 2k | C_k, the distribution function after entry k, as a fraction of 2³² |
//!  | 5 + 2k | the target's record in units of 32 bytes; the sign of the entry in bit 31 |
//!
//! A walk with the fraction u, at most 2³² − 2, takes the first entry with u < C_k. The last C is
//! 2³² − 1, above all u. If the number of entries is odd, one more entry with this C follows.
//!
//! Probabilities are those of almost optimal walks, p_ij = |l_ij| / Σ_j |l_ij| (S. Lai and others,
//! ISCC 2015, eq. 2.14), so that |l_ij / p_ij| is the row's sum. A row of more than `LONG` entries
//! has the pair (0, number of entries) before them, and is searched by bisection.

pub(crate) mod functional;
pub(crate) mod record_layout;
pub(crate) mod records;
pub(crate) mod targets;

use self::functional::{ScaledFunctional, Start};
use self::record_layout::{COLUMNS, HEAD, LONG, UNIT};
use self::records::{Records, TargetRow, Writing};
use super::convergence::certificate::Certificate;
use super::splitting::{ROWS, Split};
use crate::kernel::cpu::simd::dispatch;
use crate::lane::HostArray;
use crate::parallel::*;
use crate::{Error, Limit, Result};

/// Chain table of a system, for up to `COLUMNS` right-hand sides.
#[derive(Debug)]
pub struct Table {
    /// Records of all rows, in whole units of 32 bytes.
    pub words: HostArray<u32>,
    /// Position of each row's record, in units of 32 bytes.
    pub place: HostArray<u32>,
    /// Start records of functionals.
    pub starts: Vec<Start>,
    /// Summands g of walks for several right-hand sides: `COLUMNS` numbers per row, divided by
    /// `factor`, then a row of zeros.
    pub columns: Vec<f64>,
    /// Power of 2 by which the summands g of walks are divided before they are stored.
    pub factor: f64,
    /// Error max_i Σ_j | |l_ij| − p_ij Σ_j |l_ij| | of the stored probabilities p_ij.
    pub probability_error: f64,
    /// Relative error of a stored row sum Σ_j |l_ij|, and of a stored summand g.
    pub number_error: f64,
}

/// Relative error of a number as a pair of f32, without underflow of the second one.
const PAIR: f64 = 1.0 / (1u64 << 48) as f64;

impl Table {
    /// Builds the table of L and up to `COLUMNS` columns g of summands.
    ///
    /// Walks use the collision estimator, which adds the weight times g at each state. `order_by`
    /// has the values by which entries are sorted. If `certificate` scales the system, L
    /// and V⁻¹g are scaled, too.
    pub fn build(
        split: &Split<'_>,
        certificate: &Certificate,
        g: &[&[f64]],
        order_by: &[f64],
        functionals: &[ScaledFunctional],
    ) -> Result<Self> {
        assert!((1..=COLUMNS).contains(&g.len()), "{} columns", g.len());
        let n = split.unknowns();
        // The data of a target are adjacent, because the targets of a row may be far apart.
        let (mut place, mut targets) = join(|| HostArray::large(n), || HostArray::<TargetRow>::large(n));
        // Places are relative to the block's first record. Returns the number of units of the
        // block.
        let blocks = place.par_chunks_mut(ROWS).enumerate().map(|(block, place)| {
            let mut before = 0u32;
            for (k, place) in place.iter_mut().enumerate() {
                let entries = split.entries(block * ROWS + k);
                *place = before;
                before += (HEAD + 2 * entries.max(1) + 2 * usize::from(entries > LONG)).div_ceil(UNIT) as u32;
            }
            before
        });
        let blocks: Vec<u32> = blocks.collect();
        let mut units = 0u64;
        let mut begins = Vec::with_capacity(blocks.len());
        for &here in &blocks {
            begins.push(units);
            units += u64::from(here);
        }
        let of_rows = units;
        units += functionals.iter().map(|h| h.units() as u64).sum::<u64>();
        let (asked, what) = (4 * UNIT as u64 * units, || format!("the chain table of {n} rows"));
        if units >= 1 << 31 {
            let limit = Limit::Allocation("records are addressed by 31 bits, at most 64 GiB".to_owned());
            return Err(Error::OutOfMemory { device: "the host".to_owned(), what: what(), asked, limit });
        }
        crate::util::memory::expect_memory(asked, what)?;
        let factor = power_above(certificate, g);
        // A power of 2, like the factor.
        let unit = 1.0 / factor;

        // A step loads two units at once, so one more unit follows the last record.
        let mut words = HostArray::large((units as usize + 1) * UNIT);
        targets.par_iter_mut().zip(&mut place[..]).enumerate().with_min_len(ROWS).for_each(
            |(j, (target, place))| {
                *place += begins[j / ROWS] as u32;
                let key = certificate.on_walks(j, order_by[j]) * unit;
                *target = TargetRow { key: key as f32, place: *place };
            },
        );
        // Records of blocks of rows, as separate slices.
        let mut rest = &mut words[..];
        let mut cut = |units: usize| rest.split_off_mut(..units * UNIT).expect("the table has all records");
        let slices = blocks.iter().enumerate().map(|(block, &units)| (block * ROWS, cut(units as usize)));
        let slices: Vec<(usize, &mut [u32])> = slices.collect();
        let (mut at, mut starts) = (of_rows as u32, Vec::with_capacity(functionals.len()));
        for h in functionals {
            let place = (at, cut(h.units()));
            starts.push(h.write(certificate, &targets, (g, unit), place));
            at += h.units() as u32;
        }
        let targets = &targets[..];
        let probability_error = slices
            .into_par_iter()
            .map(|(first, words)| {
                let mut worst = 0.0f64;
                let rows = first..n.min(first + ROWS);
                let of = Records { split, certificate, g, unit, targets, rows };
                dispatch(Writing { of, words, worst: &mut worst });
                worst
            })
            .reduce(|| 0.0, f64::max);
        let columns = summands(certificate, g, n, unit);
        Ok(Self { words, place, starts, columns, factor, probability_error, number_error: PAIR })
    }
}

/// Returns a power of 2 above max_i |g_i| / v_i if walks run on the scaled system, else above
/// max_i |g_i|; 1 if that is 0. Its exponent is limited to −1000 … 1000.
fn power_above(certificate: &Certificate, g: &[&[f64]]) -> f64 {
    let norm = |g: &&[f64]| {
        g.par_iter().enumerate().map(|(i, g)| certificate.on_walks(i, g.abs())).reduce(|| 0.0, f64::max)
    };
    let top = g.iter().map(norm).fold(0.0, f64::max);
    if top > 0.0 { 2f64.powi((top.log2().floor() as i32 + 1).clamp(-1000, 1000)) } else { 1.0 }
}

impl Table {
    /// Position of a row's record, in units of 32 bytes; functional k is row n + k.
    pub(super) fn place(&self, row: u32) -> u32 {
        let n = self.place.len();
        self.place.get(row as usize).copied().unwrap_or_else(|| self.starts[row as usize - n].place)
    }
}

/// Returns [`Table::columns`] of n rows for the summands g, each times `unit`.
fn summands(certificate: &Certificate, g: &[&[f64]], n: usize, unit: f64) -> Vec<f64> {
    let mut columns = vec![0.0; if g.len() > 1 { COLUMNS * (n + 1) } else { 0 }];
    let rows = columns.len().min(COLUMNS * n);
    columns[..rows].par_chunks_mut(COLUMNS).enumerate().with_min_len(ROWS).for_each(|(i, row)| {
        row.iter_mut().zip(g).for_each(|(x, g)| *x = certificate.on_walks(i, g[i]) * unit);
    });
    columns
}

#[cfg(test)]
mod tests {
    use super::record_layout::CERTAIN;
    use super::*;
    use crate::sparse::CsrMatrix;
    use crate::walk::options::Splitting;

    /// Returns the probability and the target of each entry of a record, and true if it is
    /// negative.
    fn read(table: &Table, i: usize) -> Vec<(f64, u32, bool)> {
        let words = &table.words[table.place[i] as usize * UNIT..];
        let (first, most) =
            if words[HEAD] == 0 { (HEAD + 2, words[HEAD + 1] as usize) } else { (HEAD, LONG) };
        let (mut entries, mut before) = (Vec::new(), 0u64);
        for &[end, target] in words[first..].as_chunks().0.iter().take(most) {
            let behind = if end == CERTAIN { 1 << 32 } else { u64::from(end) };
            let share = (behind - before) as f64 / 2f64.powi(32);
            entries.push((share, target & !(1 << 31), target >> 31 == 1));
            before = behind;
            if end == CERTAIN {
                break;
            }
        }
        entries
    }

    #[test]
    fn shares_are_those_of_the_entries() {
        let rows: [&[(u32, f64)]; 4] = [
            &[(0, 0.1), (2, -0.3), (3, 0.2)],
            &[],
            &[(1, -0.5)],
            &[(0, 1e-30), (1, 0.25), (2, 1e-30), (3, 0.25)],
        ];
        let matrix = CsrMatrix::from_rows(4, 4, |i, row| row.extend_from_slice(rows[i]));
        let split = Split::new(&matrix, Splitting::Given).unwrap();
        let g = [0.75, -0.5, 3.0, 0.1];
        let certificate = Certificate::of_norm(Splitting::Given, 0.6, 0);
        let table = Table::build(&split, &certificate, &[&g], &[0.0; 4], &[]).unwrap();
        assert_eq!(table.factor, 4.0);
        for i in 0..4 {
            let mut entries = read(&table, i);
            entries.sort_by_key(|&(_, target, _)| target);
            let words = &table.words[table.place[i] as usize * UNIT..];
            let real =
                |k: usize| f64::from(f32::from_bits(words[k])) + f64::from(f32::from_bits(words[k + 1]));
            let sum: f64 = rows[i].iter().map(|e| e.1.abs()).sum();
            assert!((real(0) * 4.0 - g[i]).abs() <= PAIR * g[i].abs(), "g of row {i}");
            assert!((real(2) - sum).abs() <= PAIR * sum, "sum of row {i}");
            if rows[i].is_empty() {
                assert_eq!(entries, [(1.0, table.place[i], false)]);
                continue;
            }
            assert_eq!(entries.len(), rows[i].len());
            let mut off = 0.0;
            for (entry, &(j, l)) in entries.iter().zip(rows[i]) {
                assert_eq!((entry.1, entry.2), (table.place[j as usize], l < 0.0));
                assert!(entry.0 > 0.0 && (entry.0 - l.abs() / sum).abs() < 4.0 / 2f64.powi(32), "{entry:?}");
                off += (entry.0 * sum - l.abs()).abs();
            }
            assert!(off <= table.probability_error * (1.0 + 1e-12));
        }
    }
}
