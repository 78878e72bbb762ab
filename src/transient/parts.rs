//! A chain on its lanes: parts of consecutive rows, each with its share of every vector.
//!
//! A lane has one part wherever it can bind the gathered vector, and more where it cannot. Rows are cut at multiples
//! of 256; a part keeps x locally as \[left halo | own rows | right halo\]. Columns are renumbered so, in ascending
//! order: every row adds its terms in the order of the whole matrix, and the answer has the same bits however rows
//! are cut. Halos are brought up to date after every step, by a kernel between parts of one lane and through the
//! host between lanes. Accumulators never travel.

use std::ops::Range;

use super::bound::Survey;
use super::capacity::{self, Need};
use super::chain::Transitions;
use super::kernels::GATHER;
use super::region::{Kind, Region};
use super::split::{self, Path, Split};
use super::timeline::Timeline;
use crate::kernel::Real;
use crate::lane::{Buffer, Inbox, Lane, Launch, Outbox};
use crate::sparse::{BLOCK, Hyb, Layout, SLICE, WidthRule, cut};
use crate::{Error, Result};

/// Largest chunk built at once on the host, in entries: bounds what building takes beside the result.
const CHUNK_ENTRIES: u64 = 1 << 26;
/// The same for devices with memory of their own, where fewer and larger launches count for more.
const CHUNK_ENTRIES_DEVICE: u64 = 1 << 28;

/// Consecutive rows on a lane.
#[derive(Debug)]
pub struct Part<T> {
    /// Its lane.
    pub lane: usize,
    /// Its own rows, global.
    pub rows: Range<usize>,
    /// Rows that it computes, those of neighbours among them where several steps pass between two exchanges.
    pub computed: Range<usize>,
    /// Place of the first own row in `x`.
    pub own: usize,
    /// Two iterates, halos included.
    pub x: [Buffer<T>; 2],
    /// Exit rates of the computed rows.
    pub exit: Buffer<T>,
    /// The matrix.
    pub chunks: Vec<Chunk<T>>,
    /// What of its halo lies on its own lane.
    halos: Vec<Halo>,
}

/// Some rows of a part's matrix.
#[derive(Debug)]
pub struct Chunk<T> {
    /// Who wants them.
    pub kind: Kind,
    /// First row, in the part's computed rows.
    pub first: usize,
    /// Number of rows.
    pub rows: usize,
    /// See [`Hyb`].
    pub slices: Buffer<u32>,
    /// See [`Hyb`].
    pub columns: Buffer<u32>,
    /// See [`Hyb`].
    pub values: Buffer<T>,
}

/// Values of another part that a part reads.
#[derive(Debug)]
struct Halo {
    owner: usize,
    /// Places in the owner's vector.
    index: Buffer<u32>,
    /// Place of the first in this part's vector.
    first: usize,
}

/// Values that a part of another lane reads.
#[derive(Debug)]
pub struct Link<T> {
    /// The part that owns them.
    pub from: usize,
    /// The part that reads them.
    pub to: usize,
    /// Place of the first in the reader's vector.
    pub first: usize,
    /// Places in the owner's vector, on its lane.
    index: Buffer<u32>,
    /// The values side by side, on the owner's lane.
    pub values: Buffer<T>,
    /// The way through the host, where there is no other: from the owner's lane, and to either iterate of the reader.
    pub(super) host: Option<(Outbox, [Inbox; 2])>,
}

impl<T> Part<T> {
    /// Place of the first own row among the computed ones.
    pub fn ghosts(&self) -> usize {
        self.rows.start - self.computed.start
    }

    /// Place of the first computed row in `x`.
    pub fn base(&self) -> usize {
        self.own - self.ghosts()
    }
}

/// A chain on its lanes.
#[derive(Debug)]
pub struct Parts<T> {
    /// The parts, in the order of their rows.
    pub parts: Vec<Part<T>>,
    /// What parts of different lanes read of each other.
    pub links: Vec<Link<T>>,
    /// What was built.
    pub matrix: MatrixInfo,
    /// Keeps account of steps with an exchange through the host, if asked to.
    pub timeline: Option<Timeline>,
}

/// Facts of a matrix as it was stored.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct MatrixInfo {
    /// `hyb`.
    pub format: &'static str,
    /// Largest ELL width of a slice.
    pub ell_width: u32,
    /// Share of the entries (without the diagonal, which lies apart) in the COO part.
    pub coo_share: f64,
    /// Share of ELL elements that are padding.
    pub padding: f64,
    /// Bytes of the matrix, the diagonal included.
    pub bytes: u64,
    /// Largest number of halo elements of a part, and of parts.
    pub halo: u64,
    /// Number of parts.
    pub parts: usize,
    /// Steps between two exchanges.
    pub hops: usize,
    /// The way of values from lane to lane.
    pub exchange: Path,
    /// How rows were shared out over lanes; empty for one lane.
    pub plan: Vec<split::LanePlan>,
}

impl<T: Real> Parts<T> {
    /// Lays the chain out on the lanes, and copies the matrix there.
    pub fn build(
        lanes: &[Lane],
        transitions: &dyn Transitions,
        survey: &Survey<T>,
        rule: WidthRule,
        how: split::How,
    ) -> Result<Self> {
        let real = T::PRECISION.bytes();
        let Split { regions, plan, hops, path } =
            split::split(lanes, transitions, &survey.lengths, real, how)?;
        let layout = lanes[0].host(|| Layout::new(&survey.lengths, rule, real));
        // What is missing is said before minutes of building, not after.
        capacity::needs(lanes, &regions, &layout, real).iter().try_for_each(Need::expect)?;
        let mut matrix = MatrixInfo {
            format: "hyb",
            ell_width: layout.widths.iter().copied().max().unwrap_or(0),
            halo: regions.iter().map(|r| r.halo.len() as u64).max().unwrap_or(0),
            parts: regions.len(),
            hops,
            exchange: path,
            plan,
            ..MatrixInfo::default()
        };
        let tail: u64 = layout.tails.iter().map(|&t| u64::from(t)).sum();
        let entries: u64 = survey.lengths.iter().map(|&l| u64::from(l)).sum();
        let ell = layout.stored() - tail;
        matrix.coo_share = tail as f64 / entries.max(1) as f64;
        matrix.padding = (ell - (entries - tail)) as f64 / ell.max(1) as f64;

        let mut parts = Vec::with_capacity(regions.len());
        for region in &regions {
            let lane = &lanes[region.lane];
            let limits = lane.device().limits;
            let host = if limits.unified { CHUNK_ENTRIES } else { CHUNK_ENTRIES_DEVICE };
            let most = host.min(limits.binding / real).min(limits.buffer / real);
            let slices = region.computed.start / SLICE..region.computed.end.div_ceil(SLICE);
            let layout = Layout {
                widths: layout.widths[slices.clone()].to_vec(),
                tails: layout.tails[slices].to_vec(),
            };
            let row = |row: usize, entries: &mut Vec<(u32, f64)>| {
                transitions.incoming(region.computed.start + row, entries);
                if region.len() > region.rows.len() {
                    for (column, _) in entries {
                        *column = region.local(*column);
                    }
                }
            };
            let mut chunks = Vec::new();
            for (rows, kind) in region.pieces(&regions) {
                // Local to the computed rows from here on.
                let rows = rows.start - region.computed.start..rows.end - region.computed.start;
                for slices in cut(&layout, rows.start / SLICE..rows.end.div_ceil(SLICE), most) {
                    check_chunk(&layout, &slices, lane, real)?;
                    let first = slices.start * SLICE;
                    let hyb = lane.host(|| Hyb::<T>::build(&layout, slices, region.computed.len(), &row));
                    matrix.bytes += hyb.bytes();
                    chunks.push(Chunk {
                        kind,
                        first,
                        rows: hyb.rows,
                        slices: lane.alloc_with("the matrix's slices", &hyb.slices)?,
                        columns: lane.alloc_with("the matrix's columns", &hyb.columns)?,
                        values: lane.alloc_with("the matrix's values", &hyb.values)?,
                    });
                }
            }
            let exit = &survey.exit[region.computed.clone()];
            matrix.bytes += exit.len() as u64 * real;
            parts.push(Part {
                lane: region.lane,
                rows: region.rows.clone(),
                computed: region.computed.clone(),
                own: region.own(),
                x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
                exit: lane.alloc_with("the exit rates", exit)?,
                chunks,
                halos: halos(lane, region, &regions)?,
            });
        }
        let links = links(lanes, &parts, &regions, path)?;
        Ok(Self { parts, links, matrix, timeline: None })
    }

    /// The parts of a lane, with their numbers.
    pub fn of(&self, lane: usize) -> impl Iterator<Item = (usize, &Part<T>)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.lane == lane)
    }

    /// Launches that bring up to date what parts of one lane read of each other in iterate `which`.
    pub fn gathers(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let mut launches = Vec::new();
        for (_, part) in self.of(lane) {
            for halo in &part.halos {
                let args = [halo.index.arg(), self.parts[halo.owner].x[which].arg(), part.x[which].arg()];
                let items = halo.index.len();
                let params = [0, items as u32, halo.first as u32];
                launches.push(lanes[lane].bind(&GATHER, T::PRECISION, items, &params, &args)?);
            }
        }
        Ok(launches)
    }

    /// Launches that lay the values of iterate `which` that other lanes read into the links' `values`.
    pub fn packs(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let own = self.links.iter().filter(|link| self.parts[link.from].lane == lane);
        own.map(|link| {
            let args = [link.index.arg(), self.parts[link.from].x[which].arg(), link.values.arg()];
            let items = link.index.len();
            lanes[lane].bind(&GATHER, T::PRECISION, items, &[0, items as u32, 0], &args)
        })
        .collect()
    }

    /// Launches that store the values of iterate `which` that other lanes read straight into their halos.
    #[cfg(feature = "cuda")]
    pub(super) fn pushes(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let own = self.links.iter().filter(|link| self.parts[link.from].lane == lane);
        own.map(|link| {
            let args =
                [link.index.arg(), self.parts[link.from].x[which].arg(), self.parts[link.to].x[which].arg()];
            let items = link.index.len();
            lanes[lane].bind(&GATHER, T::PRECISION, items, &[0, items as u32, link.first as u32], &args)
        })
        .collect()
    }

    /// Brings all halos of iterate `which` up to date, once.
    pub fn exchange(&self, lanes: &[Lane], which: usize) -> Result<()> {
        for (l, lane) in lanes.iter().enumerate() {
            let mut launches = self.gathers(lanes, l, which)?;
            launches.extend(self.packs(lanes, l, which)?);
            if !launches.is_empty() {
                lane.launch(&launches.iter().collect::<Vec<_>>(), 0)?;
            }
        }
        for link in &self.links {
            let mut values = vec![T::ZERO; link.values.len()];
            lanes[self.parts[link.from].lane].download(&link.values, 0, &mut values)?;
            let to = &self.parts[link.to];
            lanes[to.lane].upload(&values, &to.x[which], link.first)?;
        }
        Ok(())
    }
}

/// Entries are numbered in 32 bits on a device, and a chunk is at least one block of rows: a chain with rows of
/// hundreds of millions of entries does not fit.
fn check_chunk(layout: &Layout, chunk: &Range<usize>, lane: &Lane, real: u64) -> Result<()> {
    let ell: u64 = layout.widths[chunk.clone()].iter().map(|&w| u64::from(w) * SLICE as u64).sum();
    let entries = ell + layout.tails[chunk.clone()].iter().map(|&t| u64::from(t)).sum::<u64>();
    let limit = (lane.device().limits.binding / real).min(u64::from(u32::MAX) - 1);
    if entries <= limit {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        device: lane.device().name.clone(),
        what: format!("the rows from {} on, {entries} entries in {BLOCK} rows", chunk.start * SLICE),
        asked: entries * (real + 4),
        limit: format!("it takes {limit} entries at a time; use a smaller --ell-width, or --device cpu"),
    })
}

fn halos(lane: &Lane, region: &Region, regions: &[Region]) -> Result<Vec<Halo>> {
    let mut halos = Vec::new();
    for (owner, other) in regions.iter().enumerate().filter(|(_, other)| other.lane == region.lane) {
        if other.rows == region.rows {
            continue;
        }
        if let rows @ [first, ..] = &region.takes(other)[..] {
            let index: Vec<u32> = rows.iter().map(|&h| other.local(h)).collect();
            let first = region.local(*first) as usize;
            halos.push(Halo { owner, index: lane.alloc_with("a halo", &index)?, first });
        }
    }
    Ok(halos)
}

fn links<T: Real>(lanes: &[Lane], parts: &[Part<T>], regions: &[Region], path: Path) -> Result<Vec<Link<T>>> {
    let mut links = Vec::new();
    for (to, region) in regions.iter().enumerate() {
        for (from, other) in regions.iter().enumerate().filter(|(_, other)| other.lane != region.lane) {
            if let rows @ [first, ..] = &region.takes(other)[..] {
                let index: Vec<u32> = rows.iter().map(|&h| other.local(h)).collect();
                let (lane, first) = (&lanes[other.lane], region.local(*first) as usize);
                let values = lane.alloc("a halo", index.len())?;
                let inbox = |which: usize| lanes[region.lane].inbox(&parts[to].x[which], first, index.len());
                let host = match path {
                    Path::Host(_) => Some((lane.outbox(&values)?, [inbox(0)?, inbox(1)?])),
                    Path::None | Path::Peer => None,
                };
                links.push(Link { from, to, first, index: lane.alloc_with("a halo", &index)?, values, host });
            }
        }
    }
    Ok(links)
}
