//! A chain on its lanes: parts of consecutive rows, each with its share of every vector.
//!
//! A lane has one part if it can bind the gathered vector, and several otherwise. Rows are cut at
//! multiples of 256. A part stores x locally as \[left halo | own rows | right halo\], with columns
//! renumbered in ascending order. So every row adds its terms in the order of the whole matrix, and
//! the result has the same bits for any cut. Halos are updated after every step, by a kernel
//! between parts of one lane and through the host between lanes. Accumulators are never sent.

use std::borrow::Cow;
use std::ops::Range;

use super::halo::{self, HaloTransfer};
use super::transport::Transport;
use crate::kernel::Number;
use crate::kernel::cpu::PARALLEL_ITEMS;
use crate::lane::{Lane, Launch};
use crate::parallel::{alone, at_once};
use crate::ranks::Ranks;
use crate::sparse::{BLOCK, HybLayout, MatrixFormat};
use crate::transient::chain::statistics::MatrixStatistics;
use crate::transient::chain::transitions::Transitions;
use crate::transient::lockstep::GroupMember;
use crate::transient::partition::subdomain::Region;
use crate::transient::partition::{self, Partition, Partitioning};
use crate::transient::step::chunk::LanePart;
use crate::transient::step::matrix::{MatrixInfo, MatrixSource, PartMatrix};
use crate::transient::step::time_tiles::TimeTiles;
use crate::transient::step::vector_kernels::SWEEP_ROWS;
use crate::{Machine, Result};

/// Minimum number of steps for which a search for [`TimeTiles`] pays; it takes as long as some ten.
const WORTH_TILES: f64 = 200.0;

/// Matrix rows and iterates of a chain on its lanes, with the transfers of halos.
#[derive(Debug)]
pub struct ChainParts<T> {
    /// Processes that share the chain.
    pub ranks: Ranks,
    /// Rows of all parts of this rank.
    pub rows: Range<usize>,
    /// True if some state of any rank is absorbing.
    pub absorbing: bool,
    /// Number of blocks of 256 rows, over all ranks.
    pub blocks: usize,
    /// Parts, in the order of their rows.
    pub parts: Vec<LanePart<T>>,
    /// Halo transfers between parts of one lane.
    within_lanes: Vec<HaloTransfer<T>>,
    /// Halo transfers between parts of different lanes, of this rank or a remote one.
    pub between_lanes: Vec<HaloTransfer<T>>,
    /// Properties of the matrix as stored.
    pub matrix: MatrixInfo,
    /// Tiles of the rows, if several steps of a tile are taken while it is in the caches.
    pub(crate) tiles: Option<TimeTiles>,
    /// Membership in a group of chains with common steps; the only part then has no matrix.
    pub(crate) member: Option<GroupMember>,
}

impl<T: Number> ChainParts<T> {
    /// Distributes the chain over the lanes, and copies the matrix there.
    pub fn build(
        machine: &Machine,
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
        format: MatrixFormat,
        options: Partitioning,
    ) -> Result<Self> {
        assert_eq!(T::PRECISION, machine.precision, "a matrix has its machine's precision");
        let (lanes, ranks, real) = (&machine.lanes, machine.ranks, machine.precision.bytes());
        let shares = match &statistics.shares[..] {
            [] => &partition::share(machine, transitions, Some(&statistics.lengths))?,
            known => known,
        };
        let partition = partition::split(machine, transitions, shares, options, format)?;
        let rows = partition.rows(shares);
        let all = computed_statistics(transitions, statistics, &partition);
        let layout = HybLayout::new(&all.lengths, real);
        let mut matrix = MatrixInfo::new(&layout, &partition);
        matrix.count_entries(&layout, all.rows.start, &rows, &statistics.lengths, ranks);

        // No rank waits for another one that lacks memory.
        let assembled = build_parts(lanes, transitions, &all, &layout, &partition, format, &mut matrix)
            .and_then(|(parts, formats)| Ok((parts, formats, halo::plan(&partition, ranks)?)));
        let (parts, formats, transfers) = ranks.all_ok(assembled)?;
        let transfers = ranks.all_ok(halo::build(lanes, &parts, &partition, transfers))?;
        let tiles = match (&parts[..], &transfers[..]) {
            ([part], []) if lanes[part.lane].device().host && statistics.steps >= WORTH_TILES => {
                // Two iterates and a sum.
                TimeTiles::new(transitions, matrix.bytes + 3 * part.x[0].bytes())
            }
            _ => None,
        };
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
            tiles,
            member: None,
        })
    }

    /// Allocates the vectors of a whole chain on the only lane.
    ///
    /// The chain has its matrix there, or is a group's member without a matrix.
    pub(crate) fn whole(
        machine: &Machine,
        statistics: &MatrixStatistics<T>,
        matrix: Option<PartMatrix<T>>,
        member: Option<GroupMember>,
    ) -> Result<Self> {
        let (lane, rows) = (&machine.lanes[0], statistics.rows.clone());
        let vector = || lane.alloc("a vector", rows.len());
        let (exit, chunks, bytes, format) = match matrix {
            Some(PartMatrix { exit, chunks, bytes, format, .. }) => (exit, chunks, bytes, format.name()),
            None => (lane.alloc("the exit rates", 1)?, Vec::new(), 0, "lockstep"),
        };
        let part = LanePart {
            lane: 0,
            rows: rows.clone(),
            computed: rows.clone(),
            own: 0,
            x: [vector()?, vector()?],
            non_absorbing: lane
                .alloc_with("states that can be left", statistics.non_absorbing.words(&rows))?,
            exit,
            chunks,
        };
        Ok(Self {
            ranks: machine.ranks,
            absorbing: !statistics.non_absorbing.all(),
            blocks: rows.len().div_ceil(BLOCK),
            rows,
            parts: vec![part],
            within_lanes: Vec::new(),
            between_lanes: Vec::new(),
            matrix: MatrixInfo { format: format.to_owned(), parts: 1, bytes, ..MatrixInfo::default() },
            tiles: None,
            member,
        })
    }

    /// Returns the indices of a part's rows among those of this rank.
    pub(crate) fn own(&self, part: &LanePart<T>) -> Range<usize> {
        part.rows.start - self.rows.start..part.rows.end - self.rows.start
    }

    /// True if no other lane, of this rank or a remote one, reads values of these parts.
    pub(crate) fn closed(&self) -> bool {
        self.between_lanes.is_empty()
    }

    /// Runs `work` that launches kernels over parts.
    ///
    /// If no part has enough rows for several threads, it uses this thread alone: waking the others
    /// would take longer.
    pub(crate) fn launching<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.parts.iter().all(|part| part.computed.len() < PARALLEL_ITEMS) {
            true => alone(work),
            false => work(),
        }
    }

    /// Launches the kernels of `launches` once for every part, with the step index `step`.
    pub(crate) fn launch_each(
        &self,
        lanes: &[Lane],
        step: u64,
        launches: impl Fn(usize) -> Result<Vec<Launch>>,
    ) -> Result<()> {
        for (p, part) in self.parts.iter().enumerate() {
            let launches = launches(p)?;
            let launches: Vec<&Launch> = launches.iter().collect();
            self.launching(|| lanes[part.lane].launch(&launches, step))?;
        }
        Ok(())
    }

    /// Returns the parts of a lane, with their numbers.
    pub fn of(&self, lane: usize) -> impl Iterator<Item = (usize, &LanePart<T>)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.lane == lane)
    }

    /// Returns launches that update the halos of iterate `which` between parts of one lane.
    pub(crate) fn gathers(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        self.gather_launches(lanes, lane, &self.within_lanes, which)
    }

    /// Returns launches that gather the values of iterate `which` that other lanes read.
    ///
    /// They store into the readers' vectors, or into packed arrays.
    pub(super) fn send_launches(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        self.gather_launches(lanes, lane, &self.between_lanes, which)
    }

    /// Returns the launches of the transfers from parts of a lane.
    fn gather_launches(
        &self,
        lanes: &[Lane],
        lane: usize,
        transfers: &[HaloTransfer<T>],
        which: usize,
    ) -> Result<Vec<Launch>> {
        let sources = transfers.iter().filter_map(|transfer| transfer.source.as_ref());
        let sources = sources.filter(|source| self.parts[source.part].lane == lane);
        sources.map(|source| source.gather(lanes, &self.parts, which)).collect()
    }
}

/// Returns the statistics of all rows that this rank computes, including rows owned by other ranks.
fn computed_statistics<'a, T: Number>(
    transitions: &dyn Transitions,
    statistics: &'a MatrixStatistics<T>,
    partition: &Partition,
) -> Cow<'a, MatrixStatistics<T>> {
    let computed = partition.computed(&statistics.rows);
    let mut all = Cow::Borrowed(statistics);
    if computed != statistics.rows {
        let all = all.to_mut();
        all.widen(transitions, computed);
    }
    all
}

/// Builds this rank's parts; also returns the formats of their matrices.
fn build_parts<T: Number>(
    lanes: &[Lane],
    transitions: &dyn Transitions,
    statistics: &MatrixStatistics<T>,
    layout: &HybLayout,
    partition: &Partition,
    format: MatrixFormat,
    matrix: &mut MatrixInfo,
) -> Result<(Vec<LanePart<T>>, Vec<&'static str>)> {
    let regions = &partition.regions;
    let build = |region: &Region| {
        let number = region.lane - partition.first;
        let lane = &lanes[number];
        let depth = partition.halo_depth;
        let source = MatrixSource::new(lane, transitions, statistics, layout, region, regions, depth);
        // Small chains run in one workgroup, which reads HYB; its caches hold them in any format.
        let small = regions.len() == 1 && region.rows.len() <= SWEEP_ROWS;
        let hyb = small && format == MatrixFormat::Auto;
        let assembled = source.build(if hyb { MatrixFormat::Hyb } else { format })?;
        let figures = (assembled.bytes, assembled.passed_over, assembled.format.name());
        let part = LanePart {
            lane: number,
            rows: region.rows.clone(),
            computed: region.computed.clone(),
            own: region.own(),
            x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
            non_absorbing: lane
                .alloc_with("states that can be left", statistics.non_absorbing.words(&region.rows))?,
            exit: assembled.exit,
            chunks: assembled.chunks,
        };
        Ok((part, figures))
    };
    // Drivers need tens of milliseconds for the kernels of a lane, so lanes are built concurrently.
    let lanes_regions = partition.own_regions().chunk_by(|one, next| one.lane == next.lane);
    let built = at_once(lanes_regions, |own| own.iter().map(build).collect::<Result<Vec<_>>>());
    let built = built.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten();
    let mut formats: Vec<&str> = Vec::new();
    let parts = built.map(|(part, (bytes, passed_over, format))| {
        matrix.bytes += bytes;
        matrix.passed_over.extend(passed_over);
        if !formats.contains(&format) {
            formats.push(format);
        }
        part
    });
    let parts = parts.collect();
    Ok((parts, formats))
}
