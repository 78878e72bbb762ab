//! A chain on its lanes: parts of consecutive rows, each with its share of every vector.
//!
//! A lane has one part wherever it can bind the gathered vector, and more where it cannot. Rows are cut at multiples
//! of 256; a part keeps x locally as \[left halo | own rows | right halo\]. Columns are renumbered so, in ascending
//! order: every row adds its terms in the order of the whole matrix, and the answer has the same bits however rows
//! are cut. Halos are brought up to date after every step, by a kernel between parts of one lane and through the
//! host between lanes. Accumulators never travel.

use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::bound::{MatrixStatistics, scale_rates};
use super::chain::Transitions;
use super::kernels::{GATHER, SWEEP_ROWS, gather};
use super::matrix::{Chunk, MatrixInfo, Source};
use super::partitioning::{self, Partition, Path};
use super::region::Region;
use super::timeline::Timeline;
use crate::kernel::Real;
use crate::lane::{Buffer, Lane, Launch, ReceiveBuffer, SendBuffer, Window};
use crate::ranks::{Envelope, Ranks, Wait, post};
use crate::sparse::{BLOCK, Layout, MatrixFormat, SLICE, WidthRule};
use crate::{Error, Result};

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
    /// Exit rates of the computed rows, unless its patterns hold them.
    pub exit: Buffer<T>,
    /// The matrix.
    pub chunks: Vec<Chunk<T>>,
    /// Whether its boundary is stored for other lanes alone, and computed straight to where it leaves from.
    pub(super) straight: bool,
    /// What of its halo lies on its own lane.
    halos: Vec<Halo>,
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
    /// The part that reads them, and its number among all regions.
    pub to: usize,
    taker: usize,
    /// Place of the first in the reader's vector.
    pub first: usize,
    /// Places in the owner's vector, on its lane.
    index: Buffer<u32>,
    /// The values side by side, on the owner's lane.
    pub values: Buffer<T>,
    /// The way through the host, where there is no other: from the owner's lane, and to either iterate of the reader.
    pub(super) host: Option<(SendBuffer, [ReceiveBuffer; 2])>,
}

/// Values of a part that a part of another rank reads.
#[derive(Debug)]
pub(super) struct SentHalo<T> {
    /// The part that owns them.
    pub(super) from: usize,
    /// Where they go, and the number of the reader among all regions.
    pub(super) to: Envelope,
    taker: usize,
    /// Places in the owner's vector.
    index: Buffer<u32>,
    /// The values side by side.
    values: Buffer<T>,
    pub(super) send_buffer: SendBuffer,
    pub(super) shared: Option<Shared>,
}

/// A window between two processes of a host, and the number of the next exchange through it.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) window: Arc<Window>,
    exchanges: AtomicU64,
}

impl Shared {
    fn new(window: Arc<Window>) -> Self {
        Self { window, exchanges: AtomicU64::new(0) }
    }

    /// The number of this exchange.
    pub(super) fn next(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed)
    }
}

impl<T: Real> SentHalo<T> {
    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

/// Values of a part of another rank that a part reads.
#[derive(Debug)]
pub(super) struct ReceivedHalo {
    /// The part that reads them.
    pub(super) to: usize,
    /// Where they come from.
    pub(super) from: Envelope,
    /// Place of the first in the reader's vector, and how many they are.
    first: usize,
    pub(super) len: usize,
    /// The way to either iterate.
    pub(super) receive_buffers: [ReceiveBuffer; 2],
    pub(super) shared: Option<Shared>,
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
    /// The processes that share the chain.
    pub ranks: Ranks,
    /// The rows of this one.
    pub rows: Range<usize>,
    /// Blocks of all rows, those of other ranks included.
    pub blocks: usize,
    /// The parts, in the order of their rows.
    pub parts: Vec<Part<T>>,
    /// What parts of other ranks read, and what is read of them.
    pub(super) sends: Vec<SentHalo<T>>,
    pub(super) receives: Vec<ReceivedHalo>,
    /// What parts of different lanes read of each other.
    pub links: Vec<Link<T>>,
    /// What was built.
    pub matrix: MatrixInfo,
    /// Keeps account of steps with an exchange through the host, if asked to.
    pub timeline: Option<Timeline>,
}

impl<T: Real> Parts<T> {
    /// Lays the chain out on the lanes, and copies the matrix there.
    pub fn build(
        lanes: &[Lane],
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
        rule: WidthRule,
        format: MatrixFormat,
        how: partitioning::Partitioning,
    ) -> Result<Self> {
        let real = T::PRECISION.bytes();
        let ranks = how.ranks;
        let shares = match &statistics.shares[..] {
            [] => &partitioning::share(lanes, transitions, Some(&statistics.lengths), real, ranks)?,
            known => known,
        };
        let split = partitioning::split(lanes, transitions, shares, real, how)?;
        let rows = split.rows(shares);
        // Rows of others that are computed here, too, have to be known.
        let mine = &split.regions[split.own.clone()];
        let hull = mine.iter().fold(statistics.rows.clone(), |hull, region| {
            hull.start.min(region.computed.start)..hull.end.max(region.computed.end)
        });
        let wider = match hull == statistics.rows {
            true => None,
            false => {
                let mut wider = statistics.clone();
                lanes[0].host(|| wider.widen(transitions, hull));
                Some(wider)
            }
        };
        let own_lengths = &statistics.lengths;
        let statistics = wider.as_ref().unwrap_or(statistics);
        let rule = rule.over(ranks, own_lengths);
        let layout = lanes[0].host(|| Layout::new(&statistics.lengths, rule, real));
        let Partition { regions, plan, halo_depth, path, .. } = &split;
        let (halo_depth, path) = (*halo_depth, *path);
        let mut matrix = MatrixInfo {
            ell_width: layout.widths.iter().copied().max().unwrap_or(0),
            halo: mine.iter().map(|r| r.halo.len() as u64).max().unwrap_or(0),
            parts: regions.len(),
            halo_depth,
            exchange: path,
            plan: plan.clone(),
            ..MatrixInfo::default()
        };
        // Own rows count, and not those of others that are computed here, too.
        let first = (rows.start - statistics.rows.start) / SLICE;
        let slices = first..first + rows.len().div_ceil(SLICE);
        let counted =
            Layout { widths: layout.widths[slices.clone()].to_vec(), tails: layout.tails[slices].to_vec() };
        let tail: u64 = ranks.all_reduce_sum(counted.tails.iter().map(|&t| u64::from(t)).sum());
        let entries: u64 = ranks.all_reduce_sum(own_lengths.iter().map(|&l| u64::from(l)).sum());
        let ell = ranks.all_reduce_sum(counted.stored()) - tail;
        matrix.coo_share = tail as f64 / entries.max(1) as f64;
        matrix.padding = (ell - (entries - tail)) as f64 / ell.max(1) as f64;

        // No rank is left waiting for one that lacks memory.
        let blocks = transitions.states().div_ceil(BLOCK);
        let built = (|| {
            let (parts, formats) =
                Self::parts(lanes, transitions, statistics, &layout, &split, format, &mut matrix)?;
            let links = links(lanes, &parts, &split)?;
            Ok((parts, formats, links, ways(&split, ranks)?))
        })();
        let (parts, formats, links, ways) = ranks.all_ok(built)?;
        let windows = windows::<T>(&ways, ranks);
        let (sends, receives) = ranks.all_ok(crossings(lanes, &parts, ways, windows))?;
        matrix.over(ranks, formats);
        Ok(Self { ranks, rows, blocks, parts, sends, receives, links, matrix, timeline: None })
    }

    /// This rank's parts, and the formats of their matrices.
    fn parts(
        lanes: &[Lane],
        transitions: &dyn Transitions,
        statistics: &MatrixStatistics<T>,
        layout: &Layout,
        split: &Partition,
        format: MatrixFormat,
        matrix: &mut MatrixInfo,
    ) -> Result<(Vec<Part<T>>, Vec<&'static str>)> {
        let Partition { regions, own, first, .. } = split;
        let mut parts = Vec::with_capacity(own.len());
        let mut formats: Vec<&str> = Vec::new();
        for region in &regions[own.clone()] {
            let lane = &lanes[region.lane - first];
            let mut straight = false;
            let built = with_source(
                lane,
                transitions,
                statistics,
                layout,
                region,
                (regions, split.halo_depth),
                |source| {
                    straight = source.leaving.is_some();
                    // Small chains run in one workgroup, which reads HYB, and lie in its caches whatever their format.
                    let small = regions.len() == 1 && region.rows.len() <= SWEEP_ROWS;
                    source.build(if small && format == MatrixFormat::Auto {
                        MatrixFormat::Hyb
                    } else {
                        format
                    })
                },
            )?;
            matrix.bytes += built.bytes;
            matrix.passed_over.extend(built.passed_over);
            if !formats.contains(&built.format.name()) {
                formats.push(built.format.name());
            }
            parts.push(Part {
                lane: region.lane - first,
                rows: region.rows.clone(),
                computed: region.computed.clone(),
                own: region.own(),
                x: [lane.alloc("a vector", region.len())?, lane.alloc("a vector", region.len())?],
                exit: built.exit,
                chunks: built.chunks,
                straight,
                halos: halos(lane, region, split)?,
            });
        }
        Ok((parts, formats))
    }

    /// Places of a part's rows among those of this rank.
    pub(super) fn own(&self, part: &Part<T>) -> Range<usize> {
        part.rows.start - self.rows.start..part.rows.end - self.rows.start
    }

    /// Whether no other lane, of this rank or of another, reads anything of these.
    pub(super) fn closed(&self) -> bool {
        self.links.is_empty() && self.sends.is_empty() && self.receives.is_empty()
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
                let (from, to) = (&self.parts[halo.owner].x[which], &part.x[which]);
                launches.push(gathered(&lanes[lane], &halo.index, from, to, halo.first)?);
            }
        }
        Ok(launches)
    }

    /// The values side by side that a region takes over from a part, if it is there.
    pub(super) fn leaving(&self, part: usize, taker: usize) -> Option<&Buffer<T>> {
        let links = self.links.iter().map(|link| (link.from, link.taker, &link.values));
        let mut all = links.chain(self.sends.iter().map(|d| (d.from, d.taker, &d.values)));
        all.find(|&(from, to, _)| (from, to) == (part, taker)).map(|(.., values)| values)
    }

    /// Launches that lay the values of iterate `which` that other lanes read into the links' `values`, after a step where
    /// its boundary does not come to lie there by itself.
    pub(super) fn packs(
        &self,
        lanes: &[Lane],
        lane: usize,
        which: usize,
        after_step: bool,
    ) -> Result<Vec<Launch>> {
        let links = self.links.iter().map(|link| (link.from, &link.index, &link.values));
        let sends = self.sends.iter().map(|d| (d.from, &d.index, &d.values));
        let own = links.chain(sends).filter(|(from, ..)| {
            let part = &self.parts[*from];
            part.lane == lane && !(after_step && part.straight)
        });
        own.map(|(from, index, values)| gathered(&lanes[lane], index, &self.parts[from].x[which], values, 0))
            .collect()
    }

    /// Launches that store the values of iterate `which` that other lanes read straight into their halos.
    #[cfg(feature = "cuda")]
    pub(super) fn pushes(&self, lanes: &[Lane], lane: usize, which: usize) -> Result<Vec<Launch>> {
        let own = self.links.iter().filter(|link| self.parts[link.from].lane == lane);
        own.map(|link| {
            let (from, to) = (&self.parts[link.from].x[which], &self.parts[link.to].x[which]);
            gathered(&lanes[lane], &link.index, from, to, link.first)
        })
        .collect()
    }

    /// Brings all halos of iterate `which` up to date, once.
    pub fn exchange(&self, lanes: &[Lane], which: usize) -> Result<()> {
        for (l, lane) in lanes.iter().enumerate() {
            let mut launches = self.gathers(lanes, l, which)?;
            launches.extend(self.packs(lanes, l, which, false)?);
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
        let never = AtomicBool::new(false);
        let wait = Wait { stop: &never, alone: false };
        let mut arriving: Vec<Vec<T>> = self.receives.iter().map(|a| vec![T::ZERO; a.len]).collect();
        let mut leaving: Vec<Vec<T>> = self.sends.iter().map(|d| vec![T::ZERO; d.len()]).collect();
        post(self.ranks, &wait, |post| {
            for (receive, values) in self.receives.iter().zip(&mut arriving) {
                post.expect(receive.from, bytemuck::cast_slice_mut(values));
            }
            for (send, values) in self.sends.iter().zip(&mut leaving) {
                lanes[self.parts[send.from].lane].download(&send.values, 0, values)?;
                post.send(send.to, bytemuck::cast_slice(values));
            }
            for (number, receive) in self.receives.iter().enumerate() {
                let values = bytemuck::cast_slice::<u32, T>(post.arrived(number, &wait)?);
                let to = &self.parts[receive.to];
                lanes[to.lane].upload(values, &to.x[which], receive.first)?;
            }
            Ok(())
        })
    }
}

/// Does something with the source of a region's matrix.
pub(super) fn with_source<T: Real, R>(
    lane: &Lane,
    transitions: &dyn Transitions,
    statistics: &MatrixStatistics<T>,
    layout: &Layout,
    region: &Region,
    (regions, halo_depth): (&[Region], usize),
    work: impl FnOnce(&Source<'_, T>) -> R,
) -> R {
    let (before, computed) = (statistics.rows.start, &region.computed);
    let slices = (computed.start - before) / SLICE..(computed.end - before).div_ceil(SLICE);
    let layout =
        Layout { widths: layout.widths[slices.clone()].to_vec(), tails: layout.tails[slices].to_vec() };
    let row = |row: usize, entries: &mut Vec<(u32, f64)>| {
        transitions.incoming(region.computed.start + row, entries);
        scale_rates(entries, statistics.scale);
        if region.len() > region.rows.len() {
            for (column, _) in entries {
                *column = region.local(*column);
            }
        }
    };
    let exit = &statistics.exit[computed.start - before..computed.end - before];
    let pieces = region.pieces(regions, halo_depth);
    let leaving = region.leaving(&pieces, regions, halo_depth);
    work(&Source { lane, region, pieces: &pieces, leaving, layout: &layout, exit, row: &row })
}

fn halos(lane: &Lane, region: &Region, split: &Partition) -> Result<Vec<Halo>> {
    let mut halos = Vec::new();
    let mine = split.regions[split.own.clone()].iter().enumerate();
    for (owner, other) in mine.filter(|(_, other)| other.lane == region.lane) {
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

fn links<T: Real>(lanes: &[Lane], parts: &[Part<T>], split: &Partition) -> Result<Vec<Link<T>>> {
    let mut links = Vec::new();
    let mine = &split.regions[split.own.clone()];
    for (to, region) in mine.iter().enumerate() {
        for (from, other) in mine.iter().enumerate().filter(|(_, other)| other.lane != region.lane) {
            if let rows @ [first, ..] = &region.takes(other)[..] {
                let index: Vec<u32> = rows.iter().map(|&h| other.local(h)).collect();
                let (lane, first) = (&lanes[parts[from].lane], region.local(*first) as usize);
                let values = lane.alloc_for_send("a halo", index.len())?;
                let receive_buffer = |which: usize| {
                    lanes[parts[to].lane].receive_buffer(&parts[to].x[which], first, index.len())
                };
                let host = match split.path {
                    Path::Host(_) => {
                        Some((lane.send_buffer(&values)?, [receive_buffer(0)?, receive_buffer(1)?]))
                    }
                    Path::None | Path::Peer => None,
                };
                let taker = split.own.start + to;
                links.push(Link {
                    from,
                    to,
                    taker,
                    first,
                    index: lane.alloc_with("a halo", &index)?,
                    values,
                    host,
                });
            }
        }
    }
    Ok(links)
}

/// A way between parts of two ranks, one of them this one.
struct Way {
    other: Envelope,
    leaves: bool,
    /// Number of the reader among all regions.
    reader: usize,
    /// This rank's part.
    part: usize,
    /// Place of the first value in its vector, of receives; places of all, of sends.
    first: usize,
    index: Vec<u32>,
    len: usize,
    /// Lanes of this rank and of the other, among all.
    lanes: (usize, usize),
}

/// The ways to and from parts of other ranks. Both ends number those between the same two ranks alike: by reader, then
/// by owner.
fn ways(split: &Partition, ranks: Ranks) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    let (mut leaving, mut arriving) = (vec![0; ranks.size()], vec![0; ranks.size()]);
    let number = |numbers: &mut [usize], rank: usize| {
        numbers[rank] += 1;
        Envelope { rank, number: numbers[rank] - 1 }
    };
    for (reader, region) in split.regions.iter().enumerate() {
        for (owner, other) in split.regions.iter().enumerate() {
            let (to, from) = (split.ranks[region.lane], split.ranks[other.lane]);
            if to == from || (to != ranks.rank() && from != ranks.rank()) {
                continue;
            }
            let rows = region.takes(other);
            let (Some(&first), len) = (rows.first(), rows.len()) else { continue };
            // A message is counted in `int`s, of halves of a double.
            if len >= 1 << 30 {
                return Err(Error::Invalid(format!(
                    "a rank would send another {len} values after a step, and a message holds 2^30; use more ranks",
                )));
            }
            ways.push(if from == ranks.rank() {
                Way {
                    other: number(&mut leaving, to),
                    leaves: true,
                    reader,
                    part: owner - split.own.start,
                    first: 0,
                    index: rows.iter().map(|&h| other.local(h)).collect(),
                    len,
                    lanes: (other.lane, region.lane),
                }
            } else {
                Way {
                    other: number(&mut arriving, from),
                    leaves: false,
                    reader,
                    part: reader - split.own.start,
                    first: region.local(first) as usize,
                    index: Vec::new(),
                    len,
                    lanes: (region.lane, other.lane),
                }
            });
        }
    }
    Ok(ways)
}

/// The launch that lays the values of `x` at `index` into `y`, from `first` on.
fn gathered<T: Real>(
    lane: &Lane,
    index: &Buffer<u32>,
    x: &Buffer<T>,
    y: &Buffer<T>,
    first: usize,
) -> Result<Launch> {
    let params = gather::Params { step: 0, items: index.len() as u32, first: first as u32 };
    let args = gather::Args { index: index.arg(), x: x.arg(), y: y.arg() };
    lane.bind(&GATHER, T::PRECISION, index.len(), params, args)
}

/// Turns windows off, for tests and comparisons.
pub const NO_WINDOWS: &str = "KOLMO_NO_WINDOWS";

/// A window for each way between two processes of one host. None where the other lies on another host, and where
/// nothing comes back on the way, by which a writer learns that its slot was read.
fn windows<T: Real>(ways: &[Way], ranks: Ranks) -> Vec<Option<Window>> {
    let both = |way: &Way| ways.iter().any(|w| w.leaves != way.leaves && w.lanes == way.lanes);
    let bytes = |way: &Way| way.len * size_of::<T>();
    let off = std::env::var_os(NO_WINDOWS).is_some();
    let mut windows: Vec<Option<Window>> = ways.iter().map(|_| None).collect();
    let mut paths = Vec::new();
    let mut offers = String::new();
    for (way, window) in ways.iter().zip(&mut windows).filter(|(way, _)| way.leaves && !off && both(way)) {
        if let Ok((made, path)) = Window::create(bytes(way)) {
            offers += &format!("{} {} {}\n", way.other.rank, way.other.number, path.display());
            *window = Some(made);
            paths.push(path);
        }
    }
    // Who reads finds the file on the same host alone.
    let offers = ranks.all_gather_text(&offers);
    let mut taken = String::new();
    for (way, window) in ways.iter().zip(&mut windows).filter(|(way, _)| !way.leaves) {
        let mine = format!("{} {} ", ranks.rank(), way.other.number);
        let path = offers[way.other.rank].lines().find_map(|line| line.strip_prefix(&mine[..]));
        *window = path.filter(|_| !off).and_then(|path| Window::open(FilePath::new(path), bytes(way)).ok());
        if window.is_some() {
            taken += &format!("{} {}\n", way.other.rank, way.other.number);
        }
    }
    let taken = ranks.all_gather_text(&taken);
    for (way, window) in ways.iter().zip(&mut windows).filter(|(way, _)| way.leaves) {
        let mine = format!("{} {}", ranks.rank(), way.other.number);
        if !taken[way.other.rank].lines().any(|line| line == mine) {
            *window = None;
        }
    }
    paths.iter().for_each(|path| Window::forget(path));
    windows
}

/// What ways take on the lanes.
fn crossings<T: Real>(
    lanes: &[Lane],
    parts: &[Part<T>],
    ways: Vec<Way>,
    windows: Vec<Option<Window>>,
) -> Result<(Vec<SentHalo<T>>, Vec<ReceivedHalo>)> {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (way, window) in ways.into_iter().zip(windows) {
        let (part, lane) = (&parts[way.part], &lanes[parts[way.part].lane]);
        let window = window.map(Arc::new);
        if way.leaves {
            let values = lane.alloc_for_send("a halo", way.len)?;
            let send_buffer = match &window {
                Some(window) => lane.send_buffer_in(&values, window)?,
                None => lane.send_buffer(&values)?,
            };
            let index = lane.alloc_with("a halo", &way.index)?;
            let (from, to, taker, shared) = (way.part, way.other, way.reader, window.map(Shared::new));
            sends.push(SentHalo { from, to, taker, index, values, send_buffer, shared });
        } else {
            let receive_buffer = |which: usize| match &window {
                Some(window) => lane.receive_buffer_in(&part.x[which], way.first, way.len, window),
                None => lane.receive_buffer(&part.x[which], way.first, way.len),
            };
            let receive_buffers = [receive_buffer(0)?, receive_buffer(1)?];
            let (to, from, first, len) = (way.part, way.other, way.first, way.len);
            receives.push(ReceivedHalo {
                to,
                from,
                first,
                len,
                receive_buffers,
                shared: window.map(Shared::new),
            });
        }
    }
    Ok((sends, receives))
}
