//! Which rows go where: shares of lanes, parts of a lane, halos, and what they will cost.

use std::ops::Range;

use rayon::prelude::*;

use super::bound::lengths;
use super::chain::Transitions;
use super::halo_depth::{self, Work};
pub use super::halo_depth::{MOST as MAX_HALO_DEPTH, Swap};
use super::region::Region;
use crate::lane::Lane;
use crate::ranks::Ranks;
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
pub struct Partitioning {
    /// Least number of parts on each lane.
    pub parts: usize,
    /// What lanes exchange.
    pub exchange: Exchange,
    /// Steps between two exchanges; none: as many as measured latencies make worthwhile.
    pub halo_depth: Option<usize>,
    /// The processes that share the rows.
    pub ranks: Ranks,
}

impl Default for Partitioning {
    fn default() -> Self {
        Self { parts: 1, exchange: Exchange::Halo, halo_depth: None, ranks: Ranks::ALONE }
    }
}

/// A lane's share of a chain, and what its steps are expected to cost.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
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
pub(super) struct Partition {
    /// Regions of all lanes of all ranks. Of a region of another rank its rows are known, and what it takes over from
    /// regions of this one.
    pub(super) regions: Vec<Region>,
    /// Which of them are this rank's.
    pub(super) own: Range<usize>,
    /// Number of this rank's first lane among all.
    pub(super) first: usize,
    /// The rank of each lane.
    pub(super) ranks: Vec<usize>,
    pub(super) plan: Vec<LanePlan>,
    /// Steps between two exchanges.
    pub(super) halo_depth: usize,
    /// How lanes exchange.
    pub(super) path: Path,
}

impl Partition {
    /// This rank's rows, of all lanes' shares.
    pub(super) fn rows(&self, shares: &[Range<usize>]) -> Range<usize> {
        rows_of(shares, self.first, self.ranks.iter().filter(|&&r| r == self.ranks[self.first]).count())
    }
}

/// The rows of some lanes.
pub(super) fn rows_of(shares: &[Range<usize>], first: usize, lanes: usize) -> Range<usize> {
    shares[first].start..shares[first + lanes - 1].end
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

/// The rows of every lane of all ranks, known alike to all: contiguous, at multiples of 256, the bytes of a step in
/// proportion to what each lane moves in a second. A lane, and a rank, may get none. Each rank adds up its part of the
/// bytes; `known` are the lengths of all rows, where there is one rank.
pub(super) fn share(
    lanes: &[Lane],
    transitions: &dyn Transitions,
    known: Option<&[u32]>,
    real: u64,
    ranks: Ranks,
) -> Result<Vec<Range<usize>>> {
    let blocks = transitions.states().div_ceil(BLOCK);
    let mine = blocks * ranks.rank() / ranks.size()..blocks * (ranks.rank() + 1) / ranks.size();
    let mine = (mine.start * BLOCK).min(transitions.states())..(mine.end * BLOCK).min(transitions.states());
    let bandwidths = bandwidths(lanes, ranks)?;
    let looked_up: Vec<u32>;
    let lengths = match known {
        Some(lengths) => lengths,
        None => {
            looked_up = lanes[0].host(|| lengths(transitions, mine));
            &looked_up
        }
    };
    Ok(shares(lengths, transitions.states(), &bandwidths, real, ranks))
}

/// Splits the rows of a chain over lanes, as [`share`] gives them, and their parts.
///
/// # Errors
/// [`Error::OutOfMemory`] for a lane whose bindings are too small for any part.
pub(super) fn split(
    lanes: &[Lane],
    transitions: &dyn Transitions,
    shares: &[Range<usize>],
    real: u64,
    how: Partitioning,
) -> Result<Partition> {
    let (n, all) = (transitions.states(), how.ranks);
    let bandwidths = bandwidths(lanes, all)?;
    let counts: Vec<usize> = all.all_gather(&[lanes.len() as u64]).iter().map(|c| c[0] as usize).collect();
    let first = counts[..all.rank()].iter().sum();
    let ranks: Vec<usize> =
        counts.iter().enumerate().flat_map(|(rank, &count)| std::iter::repeat_n(rank, count)).collect();
    let largest = |lane: &Lane| {
        let limits = lane.device().limits;
        (limits.binding.min(limits.buffer) / real) as usize
    };
    // Lanes are numbered over all ranks; those of others answer for themselves.
    let mut largest_of = vec![usize::MAX; ranks.len()];
    largest_of[first..first + lanes.len()].copy_from_slice(&lanes.iter().map(largest).collect::<Vec<_>>());
    let largest = largest_of;
    let mut regions = Vec::new();
    for (number, rows) in shares[first..first + lanes.len()].iter().cloned().enumerate() {
        let (lane, whole) = (first + number, ranks.len() == 1);
        let share = Share { transitions, n, lane, rows, largest: largest[lane], whole, how };
        let own = share.cut().ok_or_else(|| Error::OutOfMemory {
            device: lanes[number].device().name.clone(),
            what: format!("a vector of {n} states"),
            asked: n as u64 * real,
            limit: format!(
                "its largest binding is {} bytes, and the chain does not split into parts below that; use --device cpu",
                lanes[number].device().limits.binding
            ),
        });
        regions.push(own);
    }
    // No rank goes on alone.
    let regions: Vec<Region> =
        all.all_ok(regions.into_iter().collect::<Result<Vec<_>>>())?.into_iter().flatten().collect();
    if ranks.len() == 1 {
        let own = 0..regions.len();
        return Ok(Partition {
            regions,
            own,
            first,
            ranks,
            plan: Vec::new(),
            halo_depth: 1,
            path: Path::None,
        });
    }
    let (mut regions, own) = all_gather_regions(regions, &ranks, all);
    let path = match !all.is_distributed() && peers(lanes) {
        true => Path::Peer,
        false => Path::Host(halo_depth::swap(lanes, all)?),
    };
    let work = |lane: usize| {
        let of = regions.iter().filter(|r| r.lane == lane);
        let bytes = of.map(|r| r.entries * (real + 4) + r.rows.len() as u64 * 5 * real).sum::<u64>();
        bytes as f64 / bandwidths[lane]
    };
    // Of other ranks' regions only the owner knows the entries.
    let compute: Vec<f64> = (0..ranks.len()).map(work).collect();
    let single = (0..ranks.len()).all(|lane| regions.iter().filter(|r| r.lane == lane).count() <= 1);
    let (mut halo_depth, mut own) = (1, own);
    if let Path::Host(swap) = path
        && single
        && how.exchange == Exchange::Halo
    {
        // Of a chain that is read by parts a rank knows its own rows.
        let fixed = if transitions.whole() { how.halo_depth } else { Some(1) };
        let wanted = fixed.unwrap_or_else(|| {
            let of = |r: &Region| Work::of(r, &regions, compute[r.lane], real).numbers();
            let mine: Vec<[f64; 5]> = regions[own.clone()].iter().map(of).collect();
            let work: Vec<Work> = all.all_gather(&mine).into_iter().flatten().map(Work::from).collect();
            halo_depth::choose(&work, swap)
        });
        let mut deep = regions[own.clone()].to_vec();
        let deepened = halo_depth::deepen(&mut deep, transitions, &largest, wanted);
        if wanted > 1 && all.all_reduce_min(deepened as u64) as usize == wanted {
            halo_depth = wanted;
            (regions, own) = all_gather_regions(deep, &ranks, all);
        }
    }
    let mine = plan(lanes, first, &compute, &regions, real, how.exchange, halo_depth, path);
    let plan = match all.is_distributed() {
        false => mine,
        true => {
            let plans =
                all.all_gather_text(&serde_json::to_string(&mine).expect("a plan is written as JSON"));
            let read = |text: &String| serde_json::from_str::<Vec<LanePlan>>(text);
            plans.iter().flat_map(|text| read(text).expect("a rank's plan is read back")).collect()
        }
    };
    Ok(Partition { regions, own, first, ranks, plan, halo_depth, path })
}

/// The regions of all ranks, and which of them are this rank's. Every rank tells the owners which rows its own take
/// over.
fn all_gather_regions(mine: Vec<Region>, ranks: &[usize], all: Ranks) -> (Vec<Region>, Range<usize>) {
    if !all.is_distributed() {
        let own = 0..mine.len();
        return (mine, own);
    }
    let told = |r: &Region| {
        let (rows, computed) = (&r.rows, &r.computed);
        [r.lane, rows.start, rows.end, computed.start, computed.end].map(|number| number as u64)
    };
    let known = all.all_gather(&mine.iter().map(told).collect::<Vec<_>>());
    let first: usize = known[..all.rank()].iter().map(Vec::len).sum();
    let own = first..first + mine.len();
    let mut regions: Vec<Region> = known.iter().flatten().map(|&told| Region::told(told)).collect();
    regions.splice(own.clone(), mine);
    // To each rank: the taker, how many rows, and these.
    let mut wanted = vec![Vec::new(); all.size()];
    for taker in own.clone() {
        for other in regions.iter().filter(|r| ranks[r.lane] != all.rank()) {
            let rows = regions[taker].reads_of(other);
            if !rows.is_empty() {
                let list = &mut wanted[ranks[other.lane]];
                list.extend([taker as u32, rows.len() as u32]);
                list.extend(rows);
            }
        }
    }
    for list in all.all_to_all(wanted) {
        let mut rest = &list[..];
        while let [taker, count, rows @ ..] = rest {
            let (rows, behind) = rows.split_at(*count as usize);
            regions[*taker as usize].also_reads(rows);
            rest = behind;
        }
    }
    (regions, own)
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

/// Bytes a second of each lane of all ranks: measured where several share the rows, since devices may differ. Measured
/// once.
pub fn bandwidths(lanes: &[Lane], ranks: Ranks) -> Result<Vec<f64>> {
    let kind = |lane: &Lane| format!("{} {}\n", lane.device().name, lane.device().backend);
    let kinds = ranks.all_gather_text(&lanes.iter().map(kind).collect::<String>()).concat();
    let count = kinds.lines().count();
    if count == 1 {
        return Ok(vec![1.0]);
    }
    if kinds.lines().all(|other| Some(other) == kinds.lines().next()) {
        // Equal devices get equal shares: a measurement would only add noise.
        return Ok(vec![ranks.all_gather(&[lanes[0].bandwidth()?])[0][0]; count]);
    }
    let mine = lanes.iter().map(Lane::bandwidth).collect::<Result<Vec<_>>>()?;
    Ok(ranks.all_gather(&mine).concat())
}

/// Bytes that a step of one row moves: its entries, E, x, y, and the accumulator twice.
pub(super) fn row_bytes(length: u32, real: u64) -> u64 {
    u64::from(length) * (real + 4) + 5 * real
}

/// Shares n rows out over lanes. `lengths` are those of this rank's part of the rows.
fn shares(lengths: &[u32], n: usize, bandwidths: &[f64], real: u64, ranks: Ranks) -> Vec<Range<usize>> {
    let mut bytes: Vec<u64> =
        lengths.par_chunks(BLOCK).map(|rows| rows.iter().map(|&l| row_bytes(l, real)).sum()).collect();
    let sums = ranks.all_gather(&[bytes.iter().sum::<u64>()]).concat();
    let (mut here, sum) = (sums[..ranks.rank()].iter().sum(), sums.iter().sum::<u64>() as f64);
    for b in &mut bytes {
        here += *b;
        *b = here;
    }
    // Blocks before each cut, of this rank's part and then of all.
    let whole: f64 = bandwidths.iter().sum();
    let mut before = 0.0;
    let mut cuts: Vec<u64> = Vec::new();
    for bandwidth in &bandwidths[..bandwidths.len() - 1] {
        before += bandwidth;
        cuts.push(bytes.partition_point(|&b| b as f64 <= sum * (before / whole)) as u64);
    }
    let cuts = ranks.all_gather(&cuts);
    let (mut shares, mut start) = (Vec::new(), 0);
    for i in 0..bandwidths.len() {
        let end = match i + 1 == bandwidths.len() {
            true => n,
            false => (cuts.iter().map(|cuts| cuts[i] as usize).sum::<usize>() * BLOCK).min(n),
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
    how: Partitioning,
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
const PEERS: Swap = Swap { latency: 10e-6, rate: 300e9, busy: 0.0, drain: f64::INFINITY };

#[expect(clippy::too_many_arguments, reason = "all that a prediction depends on")]
fn plan(
    lanes: &[Lane],
    first: usize,
    compute: &[f64],
    regions: &[Region],
    real: u64,
    exchange: Exchange,
    halo_depth: usize,
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
        let again = if halo_depth > 1 { (1.0 - interior) / halo_depth as f64 } else { 0.0 };
        let redundant = compute[lane] * (ghosts as f64 / rows.max(1) as f64 + again);
        // The whole vector is ready only at a step's end.
        let interior = if exchange == Exchange::Full { 0.0 } else { interior };
        let bytes = halo as f64 * real as f64;
        let exposed = match halo {
            0 => 0.0,
            _ => swap.waits(bytes, halo_depth, interior, compute[lane]) / halo_depth as f64,
        };
        let step = compute[lane] + redundant + exposed;
        LanePlan {
            device: lanes[lane - first].device().spec.clone(),
            rows,
            entries,
            local_share: 1.0 - remote as f64 / entries.max(1) as f64,
            halo,
            compute: compute[lane],
            step,
            communication_share: if step > 0.0 { (redundant + exposed) / step } else { 0.0 },
        }
    };
    (first..first + lanes.len()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_blocks_in_proportion_to_bandwidth() {
        let lengths = vec![5u32; 10_000];

        let shares = shares(&lengths, 10_000, &[3.0, 1.0], 8, Ranks::ALONE);

        assert_eq!((shares[0].start, shares[1].end), (0, 10_000));
        assert_eq!(shares[0].end, shares[1].start);
        assert_eq!(shares[0].end % BLOCK, 0);
        assert!((7_400..=7_680).contains(&shares[0].end), "{shares:?}");
    }

    #[test]
    fn a_lane_without_rows_has_an_empty_share() {
        let shares = shares(&[2; 300], 300, &[1.0, 1.0, 1.0], 8, Ranks::ALONE);

        assert_eq!(shares.iter().map(|s| s.len()).sum::<usize>(), 300);
        assert!(shares.iter().any(|s| s.is_empty()), "{shares:?}");
    }
}
