//! Which rows go where: shares of lanes, parts of a lane, halos, and what they will cost.

use std::ops::Range;

use rayon::prelude::*;

use super::chain::Transitions;
use super::hops::{self, Work};
pub use super::hops::{MOST as MOST_HOPS, Swap};
use super::region::Region;
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
    /// Steps between two exchanges; none: as many as measured latencies make worthwhile.
    pub hops: Option<usize>,
}

impl Default for How {
    fn default() -> Self {
        Self { parts: 1, exchange: Exchange::Halo, hops: None }
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
    /// Values that it receives in an exchange.
    pub halo: usize,
    /// Predicted seconds of a step's own work, from the lane's measured bandwidth.
    pub compute: f64,
    /// Predicted seconds of a step.
    pub step: f64,
    /// Predicted share of a step that waits for the exchange, or computes rows of others to make it rarer.
    pub communication_share: f64,
}

/// Rows on their lanes.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) regions: Vec<Region>,
    pub(super) plan: Vec<LanePlan>,
    /// Steps between two exchanges.
    pub(super) hops: usize,
    /// How lanes exchange.
    pub(super) path: Path,
}

/// The way that values take from lane to lane.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// There is nobody to exchange with.
    #[default]
    None,
    /// Kernels store into the memory of another device, or another stream's.
    Peer,
    /// Through the host, at a cost that was measured.
    Host(Swap),
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
) -> Result<Split> {
    let n = transitions.states();
    let bandwidths = bandwidths(lanes)?;
    let largest = |lane: &Lane| {
        let limits = lane.device().limits;
        (limits.binding.min(limits.buffer) / real) as usize
    };
    let largest: Vec<usize> = lanes.iter().map(largest).collect();
    let mut regions = Vec::new();
    for (lane, rows) in shares(lengths, &bandwidths, real).into_iter().enumerate() {
        let whole = lanes.len() == 1;
        let share = Share { transitions, n, lane, rows, largest: largest[lane], whole, how };
        let own = share.cut().ok_or_else(|| Error::OutOfMemory {
            device: lanes[lane].device().name.clone(),
            what: format!("a vector of {n} states"),
            asked: n as u64 * real,
            limit: format!(
                "its largest binding is {} bytes, and the chain does not split into parts below that; use --device cpu",
                lanes[lane].device().limits.binding
            ),
        })?;
        regions.extend(own);
    }
    if lanes.len() == 1 {
        return Ok(Split { regions, plan: Vec::new(), hops: 1, path: Path::None });
    }
    let path = match peers(lanes) {
        true => Path::Peer,
        false => Path::Host(hops::measure(lanes)?),
    };
    let work = |lane: usize| {
        let of = regions.iter().filter(|r| r.lane == lane);
        let bytes = of.map(|r| r.entries * (real + 4) + r.rows.len() as u64 * 5 * real).sum::<u64>();
        bytes as f64 / bandwidths[lane]
    };
    let compute: Vec<f64> = (0..lanes.len()).map(work).collect();
    let single = (0..lanes.len()).all(|lane| regions.iter().filter(|r| r.lane == lane).count() <= 1);
    let hops = match path {
        Path::Host(swap) if single && how.exchange == Exchange::Halo => {
            let wanted = how.hops.unwrap_or_else(|| {
                let of = |r: &Region| Work::of(r, &regions, compute[r.lane], real);
                hops::choose(&regions.iter().map(of).collect::<Vec<_>>(), swap)
            });
            hops::deepen(&mut regions, transitions, &largest, wanted)
        }
        _ => 1,
    };
    let plan = plan(lanes, &compute, &regions, real, how.exchange, hops, path);
    Ok(Split { regions, plan, hops, path })
}

/// Whether all lanes reach each other's memory.
fn peers(lanes: &[Lane]) -> bool {
    #[cfg(feature = "cuda")]
    let reach = super::push::all_reach(lanes);
    #[cfg(not(feature = "cuda"))]
    let reach = false;
    let _ = lanes;
    reach
}

/// Bytes a second of each lane: measured where several share the rows, since devices may differ.
fn bandwidths(lanes: &[Lane]) -> Result<Vec<f64>> {
    let first = lanes[0].device();
    let alike = |d: &Device| d.name == first.name && d.backend == first.backend;
    if lanes.len() == 1 {
        return Ok(vec![1.0]);
    }
    if lanes.iter().all(|lane| alike(lane.device())) {
        // Equal devices get equal shares: a measurement would only add noise.
        return Ok(vec![lanes[0].bandwidth()?; lanes.len()]);
    }
    lanes.iter().map(Lane::bandwidth).collect()
}

/// Bytes that a step of one row moves: its entries, E, x, y, and the accumulator twice.
pub(super) fn row_bytes(length: u32, real: u64) -> u64 {
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
            return Some(vec![Region {
                lane: self.lane,
                rows: rows.clone(),
                computed: rows.clone(),
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
        let mut region = Region::new(self.transitions, self.lane, rows);
        if self.how.exchange == Exchange::Full {
            region.read_all(self.n);
        }
        region
    }
}

/// What lanes that store into each other's memory wait for one another: events, and a first value's way.
const PEERS: Swap = Swap { latency: 10e-6, rate: 300e9 };

fn plan(
    lanes: &[Lane],
    compute: &[f64],
    regions: &[Region],
    real: u64,
    exchange: Exchange,
    hops: usize,
    path: Path,
) -> Vec<LanePlan> {
    let swap = if let Path::Host(swap) = path { swap } else { PEERS };
    let one = |lane: usize| {
        let own = || regions.iter().filter(move |r| r.lane == lane);
        let entries: u64 = own().map(|r| r.entries).sum();
        let rows: usize = own().map(|r| r.rows.len()).sum();
        let others = || regions.iter().filter(|r| r.lane != lane);
        let halo: usize = own().map(|mine| others().map(|r| mine.takes(r).len()).sum::<usize>()).sum();
        let remote: u64 = own().map(|r| r.remote).sum();
        let interior: f64 = own().map(|r| Work::of(r, regions, 0.0, real).interior).sum::<f64>()
            / own().count().max(1) as f64;
        let ghosts: usize = own().map(|r| r.computed.len() - r.rows.len()).sum();
        let redundant = compute[lane] * ghosts as f64 / rows.max(1) as f64 * (hops - 1) as f64 / hops as f64;
        let seconds = if halo > 0 { swap.seconds(halo as f64 * real as f64) } else { 0.0 };
        // Boundary rows come first, and the exchange passes while the interior is computed; the whole vector is ready
        // only at a step's end.
        let hidden = if exchange == Exchange::Full { 0.0 } else { interior * compute[lane] };
        let exposed = (seconds - hidden).max(0.0) / hops as f64;
        let step = compute[lane] + redundant + exposed;
        LanePlan {
            device: lanes[lane].device().spec.clone(),
            rows,
            entries,
            local_share: 1.0 - remote as f64 / entries.max(1) as f64,
            halo,
            compute: compute[lane],
            step,
            communication_share: if step > 0.0 { (redundant + exposed) / step } else { 0.0 },
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
