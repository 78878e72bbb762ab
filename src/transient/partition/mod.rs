//! Partition of the rows of a chain over lanes, and its predicted cost.
//!
//! Each lane has a [`subdomain`]: consecutive rows, and a halo of the remote rows that it reads.
//! [`halo_depth`] chooses the number of steps between two exchanges of halos.

pub(super) mod halo_depth;
pub(super) mod subdomain;

use std::ops::Range;

use self::halo_depth::{ExchangeCost, Work};
use self::subdomain::Region;
use crate::lane::Lane;
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::sparse::{BLOCK, MatrixFormat};
use crate::transient::chain::scan::lengths;
use crate::transient::chain::transitions::Transitions;
pub(crate) use crate::transient::problem::Partitioning;
pub(crate) use crate::transient::solution::{LaneExchange, LanePlan};
use crate::{Error, Limit, Machine, Result};

/// Parts of all lanes of all ranks.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Regions of all lanes of all ranks.
    ///
    /// For a remote region, only its rows and the rows that it reads of this rank's regions are
    /// known.
    pub(super) regions: Vec<Region>,
    /// Indices of this rank's regions in `regions`.
    pub(super) own: Range<usize>,
    /// Number of this rank's first lane among all.
    pub(super) first: usize,
    /// Rank that each lane belongs to.
    pub(super) ranks: Vec<usize>,
    pub(super) plan: Vec<LanePlan>,
    /// Number of steps between two exchanges of halos.
    pub(super) halo_depth: usize,
    pub(super) exchange: LaneExchange,
}

impl Partition {
    /// Returns this rank's regions.
    pub(super) fn own_regions(&self) -> &[Region] {
        &self.regions[self.own.clone()]
    }

    /// Returns this rank's rows, from the shares of all lanes.
    pub(super) fn rows(&self, shares: &[Range<usize>]) -> Range<usize> {
        rows_of(shares, self.first, self.ranks.iter().filter(|&&r| r == self.ranks[self.first]).count())
    }

    /// Returns the hull of this rank's rows and the rows that it computes redundantly.
    pub(super) fn computed(&self, rows: &Range<usize>) -> Range<usize> {
        self.own_regions().iter().fold(rows.clone(), |hull, region| {
            hull.start.min(region.computed.start)..hull.end.max(region.computed.end)
        })
    }
}

/// Returns the rows of `lanes` lanes from `first` on.
pub(super) fn rows_of(shares: &[Range<usize>], first: usize, lanes: usize) -> Range<usize> {
    shares[first].start..shares[first + lanes - 1].end
}

/// Returns the rows of every lane of all ranks, contiguous and cut at multiples of 256.
///
/// The bytes of a step are in proportion to the bandwidth of each lane. A lane, and a rank, may get
/// no rows. All ranks return equal shares; each adds up the bytes of its part of the chain. `known`
/// are the lengths of all rows, if there is one rank.
pub(super) fn share(
    machine: &Machine,
    transitions: &dyn Transitions,
    known: Option<&[u32]>,
) -> Result<Vec<Range<usize>>> {
    let ranks = machine.ranks;
    let blocks = transitions.states().div_ceil(BLOCK);
    let mine = blocks * ranks.rank() / ranks.size()..blocks * (ranks.rank() + 1) / ranks.size();
    let mine = (mine.start * BLOCK).min(transitions.states())..(mine.end * BLOCK).min(transitions.states());
    let bandwidths = bandwidths(machine, transitions.states())?;
    let looked_up: Vec<u32>;
    let lengths = match known {
        Some(lengths) => lengths,
        None => {
            looked_up = lengths(transitions, mine);
            &looked_up
        }
    };
    Ok(shares(lengths, transitions.states(), &bandwidths, machine.precision.bytes(), ranks))
}

/// Splits the rows of a chain, shared by [`share`], into parts on each lane.
/// Fails with [`Error::OutOfMemory`] if the largest binding of a lane is too small for any part.
pub(super) fn split(
    machine: &Machine,
    transitions: &dyn Transitions,
    shares: &[Range<usize>],
    options: Partitioning,
    format: MatrixFormat,
) -> Result<Partition> {
    let (lanes, all, real) = (&machine.lanes, machine.ranks, machine.precision.bytes());
    let bandwidths = bandwidths(machine, transitions.states())?;
    let counts: Vec<usize> = all.all_gather(&[lanes.len() as u64]).iter().map(|c| c[0] as usize).collect();
    // Lanes are numbered over all ranks.
    let first = counts[..all.rank()].iter().sum();
    let ranks: Vec<usize> =
        counts.iter().enumerate().flat_map(|(rank, &count)| std::iter::repeat_n(rank, count)).collect();
    let cutter = Cutter { transitions, first, whole: ranks.len() == 1, real, parts: options.parts };
    // All ranks fail together.
    let regions = all.all_ok(cutter.cut(lanes, &shares[first..first + lanes.len()]))?;
    let alone = Partition {
        own: 0..regions.len(),
        regions,
        first,
        ranks,
        plan: Vec::new(),
        halo_depth: 1,
        exchange: LaneExchange::None,
    };
    if alone.ranks.len() == 1 {
        return Ok(alone);
    }
    let (regions, own) = all_gather_regions(alone.regions, &alone.ranks, all);
    let patterns = format != MatrixFormat::Hyb && is_periodic(transitions);
    let compute = compute_seconds(&regions, &bandwidths, real, patterns);
    let exchange = lane_exchange(machine);
    let cost = ExchangeCost::of(machine, exchange);
    let mine = (first..first + lanes.len()).map(|k| Work::of(k, &regions, compute[k], real));
    let work = all.all_gather(&mine.collect::<Vec<_>>()).concat();
    let mut partition = Partition { regions, own, exchange, ..alone };
    deepen(&mut partition, machine, transitions, options.halo_depth, || halo_depth::choose(&work, cost));
    partition.plan = plan(machine, &partition, &work, cost);
    Ok(partition)
}

/// Returns the largest number of elements of a vector that a lane can bind.
pub(super) fn most_elements(lane: &Lane, real: u64) -> usize {
    let limits = lane.device().limits;
    (limits.binding.min(limits.buffer) / real) as usize
}

/// Returns the transport of halos between the lanes.
fn lane_exchange(machine: &Machine) -> LaneExchange {
    match !machine.ranks.is_distributed() && Lane::all_reach(&machine.lanes) {
        true => LaneExchange::Peer,
        false => LaneExchange::Host,
    }
}

/// True if nearly all rows repeat with a period, so that they are stored as patterns.
fn is_periodic(transitions: &dyn Transitions) -> bool {
    let distinct = transitions.repeats_among(&(0..transitions.states())).looked_at(usize::MAX);
    distinct.iter().map(Range::len).sum::<usize>() < transitions.states() / 8
}

/// Returns the seconds that a step of each lane's own rows takes.
///
/// Entries stored as patterns take no memory traffic. Only the owner knows the entries of a region.
fn compute_seconds(regions: &[Region], bandwidths: &[f64], real: u64, patterns: bool) -> Vec<f64> {
    let entry = if patterns { 0 } else { real + 4 };
    let bytes = |r: &Region| r.entries * entry + r.rows.len() as u64 * 5 * real;
    let seconds = |(lane, bandwidth): (usize, &f64)| {
        regions.iter().filter(|r| r.lane == lane).map(bytes).sum::<u64>() as f64 / bandwidth
    };
    bandwidths.iter().enumerate().map(seconds).collect()
}

/// Extends the halos to the requested or chosen depth, if the memory of all lanes suffices.
fn deepen(
    partition: &mut Partition,
    machine: &Machine,
    transitions: &dyn Transitions,
    halo_depth: Option<usize>,
    choose: impl FnOnce() -> usize,
) {
    let (all, real, regions) = (machine.ranks, machine.precision.bytes(), &partition.regions);
    let single = regions.is_sorted_by(|one, next| one.lane < next.lane);
    if !single || partition.exchange != LaneExchange::Host {
        return;
    }
    let depth = halo_depth.unwrap_or_else(choose);
    if depth <= 1 {
        return;
    }
    let mut deep = partition.own_regions().to_vec();
    let fits = deep.iter_mut().all(|region| {
        region.deepen(transitions, depth);
        region.len() <= most_elements(&machine.lanes[region.lane - partition.first], real)
    });
    if all.all_reduce_min(u64::from(fits)) == 1 {
        partition.halo_depth = depth;
        (partition.regions, partition.own) = all_gather_regions(deep, &partition.ranks, all);
    }
}

/// Gathers the regions of all ranks; also returns the indices of this rank's. Collective.
///
/// Every rank sends the owners the rows that its own regions read.
fn all_gather_regions(mine: Vec<Region>, ranks: &[usize], all: Ranks) -> (Vec<Region>, Range<usize>) {
    if !all.is_distributed() {
        let own = 0..mine.len();
        return (mine, own);
    }
    let known = all.all_gather(&mine.iter().map(Region::to_remote).collect::<Vec<_>>());
    let first: usize = known[..all.rank()].iter().map(Vec::len).sum();
    let own = first..first + mine.len();
    let mut regions: Vec<Region> = known.into_iter().flatten().map(Region::from_remote).collect();
    regions.splice(own.clone(), mine);
    // To each rank: the reader, the number of rows, and the rows.
    let mut wanted = vec![Vec::new(); all.size()];
    for reader in own.clone() {
        for other in regions.iter().filter(|r| ranks[r.lane] != all.rank()) {
            let rows = regions[reader].reads_of(other);
            if !rows.is_empty() {
                let list = &mut wanted[ranks[other.lane]];
                list.extend([reader as u32, rows.len() as u32]);
                list.extend(rows);
            }
        }
    }
    for list in all.all_to_all(wanted) {
        let mut rest = &list[..];
        while let [reader, count, rows @ ..] = rest {
            let (rows, behind) = rows.split_at(*count as usize);
            regions[*reader as usize].add_halo(rows);
            rest = behind;
        }
    }
    (regions, own)
}

/// Bandwidth of equal devices that is assumed for chains of up to [`FEW`] states, in bytes/s.
const ASSUMED: f64 = 1e10;
/// Maximum number of states for which a measurement takes longer than hundreds of steps.
const FEW: usize = 1 << 14;

/// Returns the bandwidth of each lane of all ranks in bytes per second; 1 for a single lane.
///
/// It is measured once, since devices may differ. Equal devices share one value: the known one, an
/// assumed one for a small number of `states`, or a measured one.
pub fn bandwidths(machine: &Machine, states: usize) -> Result<Vec<f64>> {
    let (lanes, ranks) = (&machine.lanes, machine.ranks);
    let kind = |lane: &Lane| format!("{} {}\n", lane.device().name, lane.device().backend);
    let kinds = ranks.all_gather_text(&lanes.iter().map(kind).collect::<String>()).concat();
    let count = kinds.lines().count();
    if count == 1 {
        return Ok(vec![1.0]);
    }
    if kinds.lines().all(|other| Some(other) == kinds.lines().next()) {
        // Equal devices get equal shares: a measurement would only add noise.
        let known = lanes.iter().find_map(Lane::known_bandwidth);
        let measured = || if states <= FEW { Ok(ASSUMED) } else { lanes[0].bandwidth() };
        let bandwidth = known.map_or_else(measured, Ok)?;
        return Ok(vec![ranks.all_gather(&[bandwidth])[0][0]; count]);
    }
    let mine = lanes.iter().map(Lane::bandwidth).collect::<Result<Vec<_>>>()?;
    Ok(ranks.all_gather(&mine).concat())
}

/// Returns the bytes that a step of one row moves: entries, exit rate, x, y, accumulator twice.
pub(super) fn row_bytes(length: u32, real: u64) -> u64 {
    u64::from(length) * (real + 4) + 5 * real
}

/// Assigns contiguous rows to the lanes of all ranks, in proportion to their bandwidths.
///
/// Rows are weighted by the bytes that a step moves, and cut at multiples of 256. `lengths` are the
/// numbers of entries of the rows counted by this rank; `real` is the size of a number in bytes.
fn shares(lengths: &[u32], n: usize, bandwidths: &[f64], real: u64, ranks: Ranks) -> Vec<Range<usize>> {
    let mut bytes: Vec<u64> =
        lengths.par_chunks(BLOCK).map(|rows| rows.iter().map(|&l| row_bytes(l, real)).sum()).collect();
    let sums = ranks.all_gather(&[bytes.iter().sum::<u64>()]).concat();
    let (mut here, sum) = (sums[..ranks.rank()].iter().sum(), sums.iter().sum::<u64>() as f64);
    for b in &mut bytes {
        here += *b;
        *b = here;
    }
    // Number of blocks before each cut, in this rank's part and then in all.
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

/// Cuts the rows of this rank's lanes into parts.
struct Cutter<'a> {
    transitions: &'a dyn Transitions,
    /// Number of this rank's first lane, among the lanes of all ranks.
    first: usize,
    /// True if there is no other lane, so that a single part needs no halo.
    whole: bool,
    real: u64,
    /// Minimum number of parts on each lane.
    parts: usize,
}

impl Cutter<'_> {
    /// Returns the regions of all lanes.
    fn cut(&self, lanes: &[Lane], shares: &[Range<usize>]) -> Result<Vec<Region>> {
        let mut regions = Vec::new();
        for (number, (lane, rows)) in lanes.iter().zip(shares).enumerate() {
            let own = self.cut_share(self.first + number, rows, most_elements(lane, self.real));
            regions.extend(own.ok_or_else(|| self.out_of_memory(lane))?);
        }
        Ok(regions)
    }

    fn out_of_memory(&self, lane: &Lane) -> Error {
        let (device, n) = (lane.device(), self.transitions.states());
        Error::OutOfMemory {
            device: device.name.clone(),
            what: format!("a vector of {n} states"),
            asked: n as u64 * self.real,
            limit: Limit::Allocation(format!(
                "its largest binding is {} bytes, and the chain does not split into parts below \
                 that; use `device` cpu",
                device.limits.binding
            )),
        }
    }

    /// Returns the regions of a lane that can bind `largest` elements; `None` if none fit.
    fn cut_share(&self, lane: usize, rows: &Range<usize>, largest: usize) -> Option<Vec<Region>> {
        if rows.is_empty() {
            return Some(Vec::new());
        }
        if self.whole && self.transitions.states() <= largest && self.parts <= 1 {
            return Some(vec![Region::without_halo(lane, rows.clone(), rows.clone())]);
        }
        let blocks = rows.len().div_ceil(BLOCK);
        let most = blocks.min(4096);
        let mut count = self.parts.max(rows.len().div_ceil(largest.max(1))).min(most);
        loop {
            let per = blocks.div_ceil(count) * BLOCK;
            let starts = rows.clone().step_by(per);
            let region = |s: usize| Region::new(self.transitions, lane, s..(s + per).min(rows.end));
            let cut: Vec<Region> = starts.map(region).collect();
            if cut.iter().all(|r| r.len() <= largest) {
                return Some(cut);
            }
            if count == most {
                return None;
            }
            count = (count + count.div_ceil(4)).min(most);
        }
    }
}

/// Returns the predicted plan of every lane of all ranks. Collective.
fn plan(machine: &Machine, partition: &Partition, work: &[Work], cost: ExchangeCost) -> Vec<LanePlan> {
    let regions = &partition.regions;
    let one = |(lane, device): (usize, &Lane)| {
        let own = || regions.iter().filter(move |r| r.lane == lane);
        let others = || regions.iter().filter(|r| r.lane != lane);
        let entries: u64 = own().map(|r| r.entries).sum();
        let remote: u64 = own().map(|r| r.remote).sum();
        let (compute, step) = (work[lane].compute, work[lane].step(partition.halo_depth, cost));
        LanePlan {
            device: device.device().spec.clone(),
            rows: own().map(|r| r.rows.len()).sum(),
            entries,
            local_share: 1.0 - remote as f64 / entries.max(1) as f64,
            halo: own().map(|mine| others().map(|r| mine.halo_from(r).len()).sum::<usize>()).sum(),
            compute,
            step,
            communication_share: if step > 0.0 { 1.0 - compute / step } else { 0.0 },
        }
    };
    let mine: Vec<LanePlan> = (partition.first..).zip(&machine.lanes).map(one).collect();
    if !machine.ranks.is_distributed() {
        return mine;
    }
    let text = serde_json::to_string(&mine).expect("a plan is written as JSON");
    let read = |text: &String| serde_json::from_str::<Vec<LanePlan>>(text);
    let plans = machine.ranks.all_gather_text(&text);
    plans.iter().flat_map(|text| read(text).expect("a rank's plan is read back")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_blocks_in_proportion_to_bandwidth_and_may_be_empty() {
        let few = shares(&[2; 300], 300, &[1.0; 3], 8, Ranks::ALONE);
        assert_eq!(few.iter().map(|s| s.len()).sum::<usize>(), 300);
        assert!(few.iter().any(|s| s.is_empty()), "{few:?}");

        let shares = shares(&[5; 10_000], 10_000, &[3.0, 1.0], 8, Ranks::ALONE);
        assert_eq!((shares[0].start, shares[0].end % BLOCK, shares[1].end), (0, 0, 10_000));
        assert_eq!(shares[0].end, shares[1].start);
        assert!((7_400..=7_680).contains(&shares[0].end), "{shares:?}");
    }
}
