//! A chain on its lanes: parts of consecutive rows, each with its share of every vector.
//!
//! A lane has one part wherever it can bind the gathered vector, and more where it cannot. Rows are cut at multiples
//! of 256; a part keeps x locally as \[left halo | own rows | right halo\]. Columns are renumbered so, in ascending
//! order: every row adds its terms in the order of the whole matrix, and the answer has the same bits however rows
//! are cut. Halos are brought up to date after every step, by a kernel between parts of one lane and through the
//! host between lanes. Accumulators never travel.

use std::borrow::Cow;
use std::ops::Range;

use super::cost::exchange_cost;
use super::halo::{self, Gathered, HaloTransfer};
use super::timeline::Timeline;
use super::transport::Transport;
use crate::kernel::Number;
use crate::kernel::cpu::PARALLEL_ITEMS;
use crate::lane::{Buffer, Lane, Launch};
use crate::parallel::alone;
use crate::ranks::Ranks;
use crate::sparse::{BLOCK, Layout, MatrixFormat, WidthRule};
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;
use crate::transient::partition::{self, Partition, Partitioning, RunFacts};
use crate::transient::profile::Clock;
use crate::transient::step::chunk::Part;
use crate::transient::step::matrix::{MatrixInfo, Source};
use crate::transient::step::vector_kernels::SWEEP_ROWS;
use crate::{Machine, Result};

/// A chain on its lanes.
#[derive(Debug)]
pub struct Parts<T> {
    /// The processes that share the chain.
    pub ranks: Ranks,
    /// The rows of this one.
    pub rows: Range<usize>,
    /// True if a state, of whatever rank, is never left.
    pub absorbing: bool,
    /// Blocks of all rows, those of other ranks included.
    pub blocks: usize,
    /// The parts, in the order of their rows.
    pub parts: Vec<Part<T>>,
    /// Halo transfers between parts of one lane.
    within_lanes: Vec<HaloTransfer<T>>,
    /// Halo transfers between parts of two lanes, of this rank or of another.
    pub between_lanes: Vec<HaloTransfer<T>>,
    /// Facts of the matrix as it was stored.
    pub matrix: MatrixInfo,
    /// The time of the methods that ran on it.
    pub clock: Clock,
    /// Keeps account of steps with an exchange through the host, if asked to.
    pub timeline: Option<Timeline>,
}

impl<T: Number> Parts<T> {
    /// Lays the chain out on the lanes, and copies the matrix there.
    pub fn build(
        machine: &Machine,
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
        rule: WidthRule,
        format: MatrixFormat,
        options: Partitioning,
    ) -> Result<Self> {
        Self::build_for(
            machine,
            transitions,
            statistics,
            rule,
            RunFacts::endless(options, format, exchange_cost),
        )
    }

    /// As [`Self::build`], for one run.
    pub(crate) fn build_for(
        machine: &Machine,
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
        rule: WidthRule,
        mut run: RunFacts,
    ) -> Result<Self> {
        let format = run.format;
        assert_eq!(T::PRECISION, machine.precision, "a matrix has its machine's precision");
        let (lanes, ranks, real) = (&machine.lanes, machine.ranks, machine.precision.bytes());
        let shares = match &statistics.shares[..] {
            [] => &partition::share(machine, transitions, Some(&statistics.lengths))?,
            known => known,
        };
        let partition = match run.known.take() {
            Some(known) => known,
            None => partition::split(machine, transitions, shares, &run)?,
        };
        let rows = partition.rows(shares);
        let rule = rule.over(ranks, &statistics.lengths);
        let all = computed_statistics(&lanes[0], transitions, statistics, &partition);
        let layout = lanes[0].host(|| Layout::new(&all.lengths, rule, real));
        let mut matrix = MatrixInfo::new(&layout, &partition);
        matrix.count_entries(&layout, all.rows.start, &rows, &statistics.lengths, ranks);

        // No rank is left waiting for one that lacks memory.
        let assembled = build_parts(lanes, transitions, &all, &layout, &partition, format, &mut matrix)
            .and_then(|(parts, formats)| Ok((parts, formats, halo::plan(&partition, ranks)?)));
        let (parts, formats, transfers) = ranks.all_ok(assembled)?;
        let windows = halo::windows(&halo::window_ends::<T>(&transfers, &partition), ranks);
        let transfers = ranks.all_ok(halo::build(lanes, &parts, &partition, transfers, windows))?;
        let same_lane = |transfer: &HaloTransfer<T>| matches!(transfer.transport, Transport::SameLane);
        let (within_lanes, between_lanes) = transfers.into_iter().partition(same_lane);
        matrix.over(ranks, formats);
        let blocks = transitions.states().div_ceil(BLOCK);
        let absorbing = !statistics.non_absorbing.all();
        Ok(Self {
            ranks,
            rows,
            absorbing,
            blocks,
            parts,
            within_lanes,
            between_lanes,
            matrix,
            clock: Clock::default(),
            timeline: None,
        })
    }

    /// Places of a part's rows among those of this rank.
    pub(crate) fn own(&self, part: &Part<T>) -> Range<usize> {
        part.rows.start - self.rows.start..part.rows.end - self.rows.start
    }

    /// True if no other lane, of this rank or of another, reads anything of these.
    pub(crate) fn closed(&self) -> bool {
        self.between_lanes.is_empty()
    }

    /// Does work of launches over parts, in this thread where none of them has rows for others: they would take longer to wake.
    pub(crate) fn launching<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.parts.iter().all(|part| part.computed.len() < PARALLEL_ITEMS) {
            true => alone(work),
            false => work(),
        }
    }

    /// The parts of a lane, with their numbers.
    pub fn of(&self, lane: usize) -> impl Iterator<Item = (usize, &Part<T>)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.lane == lane)
    }

    /// The array from which values of a part leave for a region, if it is there.
    pub(crate) fn packed(&self, part: usize, reader: usize) -> Option<&Buffer<T>> {
        let sources = self.between_lanes.iter().filter_map(|transfer| transfer.source.as_ref());
        let mut wanted = sources.filter(|source| (source.part, source.reader) == (part, reader));
        match &wanted.next()?.gathered {
            Gathered::Packed(packed) => Some(packed),
            Gathered::Halo { .. } => None,
        }
    }

    /// Launches that bring up to date what parts of one lane read of each other in iterate `which`.
    pub(crate) fn gathers(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        self.gather_launches(lanes, &self.within_lanes, which, |part| part.lane == lane)
    }

    /// Launches that gather what other lanes read of iterate `which`: in the readers' vectors, or side by side. After a
    /// step without those whose boundary lies there already.
    pub(super) fn send_launches(
        &self,
        lanes: &[Lane],
        lane: usize,
        which: usize,
        after_step: bool,
    ) -> Result<Vec<Launch>> {
        self.gather_launches(lanes, &self.between_lanes, which, |part| {
            part.lane == lane && !(after_step && part.packed_in_place())
        })
    }

    /// The launches of transfers whose owners are `wanted`.
    fn gather_launches(
        &self,
        lanes: &[Lane],
        transfers: &[HaloTransfer<T>],
        which: usize,
        wanted: impl Fn(&Part<T>) -> bool,
    ) -> Result<Vec<Launch>> {
        let sources = transfers.iter().filter_map(|transfer| transfer.source.as_ref());
        let sources = sources.filter(|source| wanted(&self.parts[source.part]));
        sources.map(|source| source.gather(lanes, &self.parts, which)).collect()
    }
}

/// The statistics of all rows that this rank computes, those of others among them.
fn computed_statistics<'a, T: Number>(
    lane: &Lane,
    transitions: &dyn Transitions,
    statistics: &'a MatrixStatistics<T>,
    partition: &Partition,
) -> Cow<'a, MatrixStatistics<T>> {
    let computed = partition.computed(&statistics.rows);
    let mut all = Cow::Borrowed(statistics);
    if computed != statistics.rows {
        let all = all.to_mut();
        lane.host(|| all.widen(transitions, computed));
    }
    all
}

/// This rank's parts, and the formats of their matrices.
fn build_parts<T: Number>(
    lanes: &[Lane],
    transitions: &dyn Transitions,
    statistics: &MatrixStatistics<T>,
    layout: &Layout,
    partition: &Partition,
    format: MatrixFormat,
    matrix: &mut MatrixInfo,
) -> Result<(Vec<Part<T>>, Vec<&'static str>)> {
    let mut parts = Vec::with_capacity(partition.own.len());
    let mut formats: Vec<&str> = Vec::new();
    let regions = &partition.regions;
    for region in partition.own_regions() {
        let number = region.lane - partition.first;
        let lane = &lanes[number];
        let depth = partition.halo_depth;
        let source = Source::new(lane, transitions, statistics, layout, region, regions, depth);
        // Small chains run in one workgroup, which reads HYB, and lie in its caches whatever their format.
        let small = regions.len() == 1 && region.rows.len() <= SWEEP_ROWS;
        let hyb = small && format == MatrixFormat::Auto;
        let assembled = source.build(if hyb { MatrixFormat::Hyb } else { format })?;
        matrix.bytes += assembled.bytes;
        matrix.passed_over.extend(assembled.passed_over);
        if !formats.contains(&assembled.format.name()) {
            formats.push(assembled.format.name());
        }
        parts.push(Part {
            lane: number,
            rows: region.rows.clone(),
            computed: region.computed.clone(),
            own: region.own(),
            x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
            non_absorbing: lane
                .alloc_with("states that can be left", statistics.non_absorbing.words(&region.rows))?,
            exit: assembled.exit,
            chunks: assembled.chunks,
        });
    }
    Ok((parts, formats))
}
