//! Which rows go where: shares of lanes, parts of a lane, halos, and what they will cost.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::chain::Transitions;
use crate::lane::{Device, Lane};
use crate::sparse::BLOCK;
use crate::{Error, Result};

/// What lanes exchange after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exchange {
    /// The values that the other reads.
    #[default]
    Halo,
    /// The whole vector, as in Algorithm 2 of Karwacki, Bylina, Bylina (FedCSIS 2012).
    Full,
}

/// How rows are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// Least number of parts on each lane.
    pub parts: usize,
    /// What lanes exchange.
    pub exchange: Exchange,
}

impl Default for How {
    fn default() -> Self {
        Self { parts: 1, exchange: Exchange::Halo }
    }
}

/// A lane's share of a chain, and what its steps are expected to cost.
#[derive(Debug, Clone, serde::Serialize)]
pub struct LanePlan {
    /// The lane's device.
    pub device: String,
    /// Number of rows.
    pub rows: usize,
    /// Entries of the rows, without the diagonal.
    pub entries: u64,
    /// Share of the entries whose columns are the lane's own rows.
    pub local_share: f64,
    /// Values that it receives in a step.
    pub halo: usize,
    /// Predicted seconds of a step's own work, from the lane's measured bandwidth.
    pub compute: f64,
    /// Predicted share of a step that goes into the exchange.
    pub communication_share: f64,
}

/// Rows of a part, its halo's global rows in ascending order, and how many of them lie left.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) lane: usize,
    pub(super) rows: Range<usize>,
    pub(super) halo: Vec<u32>,
    pub(super) left: usize,
    /// Entries, and those whose columns lie in the halo.
    entries: u64,
    remote: u64,
}

impl Region {
    /// Elements of its vectors.
    pub(super) fn len(&self) -> usize {
        self.rows.len() + self.halo.len()
    }

    /// Place of a global column in its vectors.
    pub(super) fn local(&self, column: u32) -> u32 {
        let c = column as usize;
        (if self.rows.contains(&c) {
            c - self.rows.start + self.left
        } else {
            let place = self.halo.partition_point(|&h| h < column);
            if place < self.left { place } else { place + self.rows.len() }
        }) as u32
    }

    /// What it reads of another region: global rows, a slice of its halo.
    pub(super) fn reads(&self, other: &Self) -> &[u32] {
        let first = self.halo.partition_point(|&h| (h as usize) < other.rows.start);
        let end = self.halo.partition_point(|&h| (h as usize) < other.rows.end);
        &self.halo[first..end]
    }
}

/// Splits the rows of a chain with these row lengths over lanes and their parts.
///
/// # Errors
/// [`Error::OutOfMemory`] for a lane whose bindings are too small for any part.
pub(super) fn split(
    lanes: &[Lane],
    transitions: &dyn Transitions,
    lengths: &[u32],
    real: u64,
    how: How,
) -> Result<(Vec<Region>, Vec<LanePlan>)> {
    let n = transitions.states();
    let bandwidths = bandwidths(lanes)?;
    let mut regions = Vec::new();
    for (lane, rows) in shares(lengths, &bandwidths, real).into_iter().enumerate() {
        let limits = lanes[lane].device().limits;
        let largest = (limits.binding.min(limits.buffer) / real) as usize;
        let whole = lanes.len() == 1;
        let share = Share { transitions, n, lane, rows, largest, whole, how };
        let own = share.cut().ok_or_else(|| Error::OutOfMemory {
            device: lanes[lane].device().name.clone(),
            what: format!("a vector of {n} states"),
            asked: n as u64 * real,
            limit: format!(
                "its largest binding is {} bytes, and the chain does not split into parts below that; use --device cpu",
                limits.binding
            ),
        })?;
        regions.extend(own);
    }
    let plan = match lanes.len() {
        1 => Vec::new(),
        _ => plan(lanes, &bandwidths, &regions, real),
    };
    Ok((regions, plan))
}

/// Bytes a second of each lane: measured where several share the rows, since devices may differ.
fn bandwidths(lanes: &[Lane]) -> Result<Vec<f64>> {
    let first = lanes[0].device();
    let alike = |d: &Device| d.name == first.name && d.backend == first.backend;
    if lanes.len() == 1 {
        return Ok(vec![1.0]);
    }
    let measure = |lane: &Lane| crate::bench::triad_bandwidth(lane, 32 << 20, 3).map(|gb| gb * 1e9);
    if lanes.iter().all(|lane| alike(lane.device())) {
        // Equal devices get equal shares: a measurement would only add noise.
        return Ok(vec![measure(&lanes[0])?; lanes.len()]);
    }
    lanes.iter().map(measure).collect()
}

/// Bytes that a step of one row moves: its entries, E, x, y, and the accumulator twice.
fn row_bytes(length: u32, real: u64) -> u64 {
    u64::from(length) * (real + 4) + 5 * real
}

/// Shares rows out over lanes: contiguous, at multiples of 256, the bytes of a step in proportion to what each
/// lane moves in a second. A lane may get none.
fn shares(lengths: &[u32], bandwidths: &[f64], real: u64) -> Vec<Range<usize>> {
    let n = lengths.len();
    let mut bytes: Vec<u64> =
        lengths.par_chunks(BLOCK).map(|rows| rows.iter().map(|&l| row_bytes(l, real)).sum()).collect();
    let mut sum = 0;
    for b in &mut bytes {
        sum += *b;
        *b = sum;
    }
    let whole: f64 = bandwidths.iter().sum();
    let (mut shares, mut start, mut before) = (Vec::new(), 0, 0.0);
    for (i, bandwidth) in bandwidths.iter().enumerate() {
        before += bandwidth;
        let end = match i + 1 == bandwidths.len() {
            true => n,
            false => (bytes.partition_point(|&b| b as f64 <= sum as f64 * (before / whole)) * BLOCK).min(n),
        };
        shares.push(start..end.max(start));
        start = end.max(start);
    }
    shares
}

/// A lane's rows, to be cut into parts.
struct Share<'a> {
    transitions: &'a dyn Transitions,
    n: usize,
    lane: usize,
    rows: Range<usize>,
    /// Most elements of a part's vectors, halos included.
    largest: usize,
    /// There is no other lane, so that a single part needs no halo.
    whole: bool,
    how: How,
}

impl Share<'_> {
    fn cut(&self) -> Option<Vec<Region>> {
        let rows = &self.rows;
        if rows.is_empty() {
            return Some(Vec::new());
        }
        if self.whole && self.n <= self.largest && self.how.parts <= 1 {
            let rows = rows.clone();
            return Some(vec![Region {
                lane: self.lane,
                rows,
                halo: Vec::new(),
                left: 0,
                entries: 0,
                remote: 0,
            }]);
        }
        let blocks = rows.len().div_ceil(BLOCK);
        let most = blocks.min(4096);
        let mut count = self.how.parts.max(rows.len().div_ceil(self.largest.max(1))).min(most);
        loop {
            let per = blocks.div_ceil(count) * BLOCK;
            let starts = rows.clone().step_by(per);
            let cut: Vec<Region> = starts.map(|s| self.region(s..(s + per).min(rows.end))).collect();
            if cut.iter().all(|r| r.len() <= self.largest) {
                return Some(cut);
            }
            if count == most {
                return None;
            }
            count = (count + count.div_ceil(4)).min(most);
        }
    }

    /// Finds the halo of some rows.
    fn region(&self, rows: Range<usize>) -> Region {
        let read: Vec<AtomicU64> = (0..self.n.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let (entries, remote) = rows
            .clone()
            .into_par_iter()
            .with_min_len(4096)
            .map_init(Vec::new, |row, i| {
                row.clear();
                self.transitions.incoming(i, row);
                let mut remote = 0;
                for &(column, _) in row.iter().filter(|&&(column, _)| !rows.contains(&(column as usize))) {
                    remote += 1;
                    read[column as usize / 64].fetch_or(1 << (column % 64), Ordering::Relaxed);
                }
                (row.len() as u64, remote)
            })
            .reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let halo: Vec<u32> = match self.how.exchange {
            Exchange::Full => (0..self.n as u32).filter(|&h| !rows.contains(&(h as usize))).collect(),
            Exchange::Halo => {
                let mut halo = Vec::new();
                for (word, bits) in read.iter().enumerate() {
                    let mut bits = bits.load(Ordering::Relaxed);
                    while bits != 0 {
                        halo.push((word * 64) as u32 + bits.trailing_zeros());
                        bits &= bits - 1;
                    }
                }
                halo
            }
        };
        let left = halo.partition_point(|&h| (h as usize) < rows.start);
        Region { lane: self.lane, rows, halo, left, entries, remote }
    }
}

/// Seconds that an exchange takes before its first value arrives, and values' bytes a second, between two kinds of
/// device: streams that store into each other's memory; everything else goes through the host, where a swap between
/// two adapters was measured at 210 µs and a copy at 10 GB/s.
fn link_cost(from: &Device, to: &Device) -> (f64, f64) {
    match (from.backend, to.backend) {
        ("cuda", "cuda") => (10e-6, 300e9),
        ("cpu", "cpu") => (20e-6, 5e9),
        _ => (210e-6, 10e9),
    }
}

fn plan(lanes: &[Lane], bandwidths: &[f64], regions: &[Region], real: u64) -> Vec<LanePlan> {
    let one = |lane: usize| {
        let own = || regions.iter().filter(move |r| r.lane == lane);
        let entries: u64 = own().map(|r| r.entries).sum();
        let rows: usize = own().map(|r| r.rows.len()).sum();
        let bytes = entries * (real + 4) + rows as u64 * 5 * real;
        let compute = bytes as f64 / bandwidths[lane];
        let (mut halo, mut exchange) = (0, 0.0f64);
        for other in 0..lanes.len() {
            let values: usize = match other == lane {
                true => 0,
                false => regions
                    .iter()
                    .filter(|r| r.lane == other)
                    .map(|r| own().map(|mine| mine.reads(r).len()).sum::<usize>())
                    .sum(),
            };
            if values > 0 {
                let (latency, rate) = link_cost(lanes[other].device(), lanes[lane].device());
                exchange = exchange.max(latency + values as f64 * real as f64 / rate);
                halo += values;
            }
        }
        let remote: u64 = own().map(|r| r.remote).sum();
        LanePlan {
            device: lanes[lane].device().spec.clone(),
            rows,
            entries,
            local_share: 1.0 - remote as f64 / entries.max(1) as f64,
            halo,
            compute,
            communication_share: if exchange > 0.0 { exchange / (exchange + compute) } else { 0.0 },
        }
    };
    (0..lanes.len()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_blocks_in_proportion_to_bandwidth() {
        let lengths = vec![5u32; 10_000];

        let shares = shares(&lengths, &[3.0, 1.0], 8);

        assert_eq!((shares[0].start, shares[1].end), (0, 10_000));
        assert_eq!(shares[0].end, shares[1].start);
        assert_eq!(shares[0].end % BLOCK, 0);
        assert!((7_400..=7_680).contains(&shares[0].end), "{shares:?}");
    }

    #[test]
    fn a_lane_without_rows_has_an_empty_share() {
        let shares = shares(&[2; 300], &[1.0, 1.0, 1.0], 8);

        assert_eq!(shares.iter().map(|s| s.len()).sum::<usize>(), 300);
        assert!(shares.iter().any(|s| s.is_empty()), "{shares:?}");
    }
}
