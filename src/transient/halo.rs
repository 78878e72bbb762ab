//! Halo transfers: rows of one part that another reads, and the transport of their values from one to the other.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kernels::{GATHER, gather};
use super::partitioning::{LaneExchange, Partition};
use super::parts::Part;
use super::region::Region;
use crate::kernel::Real;
use crate::lane::{Buffer, Lane, Launch, ReceiveBuffer, SendBuffer, Window};
use crate::ranks::{Envelope, Ranks};
use crate::{Error, Result};

/// The transfer of rows of one part to another that reads them.
#[derive(Debug)]
pub(crate) struct HaloTransfer<T> {
    /// The rows, where a part of this rank owns them.
    pub(super) source: Option<HaloSource<T>>,
    pub(super) transport: Transport,
}

pub(super) type Transfers<T> = Vec<HaloTransfer<T>>;

/// Rows of a part that another reads.
#[derive(Debug)]
pub(super) struct HaloSource<T> {
    /// The part that owns them.
    pub(super) part: usize,
    /// Number of the region that reads them.
    pub(super) reader: usize,
    /// Their places in the owner's vector.
    places: Buffer<u32>,
    /// Where a kernel of the owner's lane gathers their values, side by side.
    pub(super) gathered: Gathered<T>,
}

/// An array in which the values of a halo lie side by side.
#[derive(Debug)]
pub(super) enum Gathered<T> {
    /// The vector of the part that reads them, from that place on.
    Halo { part: usize, first: usize },
    /// One of their own, from which they leave the lane.
    Packed(Buffer<T>),
}

/// The way of values from their owner to either iterate of the reader. `from` and `to` are numbers of lanes.
#[derive(Debug)]
pub(super) enum Transport {
    /// A kernel stores them into the reader's vector, on its own lane or on one whose memory it reaches.
    Kernel,
    /// The host copies them between two lanes, from one buffer to the other or through a vector.
    Host { from: usize, to: usize, len: usize, send: SendBuffer, receive: [ReceiveBuffer; 2] },
    /// They go to another rank: in a message, or in a window of which a message says that it is full.
    ToRank { from: usize, len: usize, send: SendBuffer, to: Envelope, window: Option<SharedWindow> },
    /// They come from another rank.
    FromRank {
        to: usize,
        len: usize,
        receive: [ReceiveBuffer; 2],
        from: Envelope,
        window: Option<SharedWindow>,
    },
}

/// A window between two processes of a host, and the number of the next exchange through it.
#[derive(Debug)]
pub(super) struct SharedWindow {
    pub(super) window: Arc<Window>,
    exchanges: AtomicU64,
}

impl SharedWindow {
    /// The number of this exchange.
    pub(super) fn next(&self) -> u64 {
        self.exchanges.fetch_add(1, Ordering::Relaxed)
    }
}

impl From<Window> for SharedWindow {
    fn from(window: Window) -> Self {
        Self { window: Arc::new(window), exchanges: AtomicU64::new(0) }
    }
}

impl Transport {
    /// From all of an array on one lane to places from `first` on of two vectors on another.
    pub(super) fn through_host<T: Real>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
    ) -> Result<Self> {
        let len = packed.len();
        let receive = |x: &Buffer<T>| lanes[to].receive_buffer(x, first, len);
        let (send, receive) = (lanes[from].send_buffer(packed)?, [receive(x[0])?, receive(x[1])?]);
        Ok(Self::Host { from, to, len, send, receive })
    }

    /// From all of an array on a lane to another rank.
    pub(super) fn to_rank<T: Real>(
        lanes: &[Lane],
        (from, packed): (usize, &Buffer<T>),
        to: Envelope,
        window: Option<SharedWindow>,
    ) -> Result<Self> {
        let send = match &window {
            Some(shared) => lanes[from].send_buffer_in(packed, &shared.window)?,
            None => lanes[from].send_buffer(packed)?,
        };
        Ok(Self::ToRank { from, len: packed.len(), send, to, window })
    }

    /// From another rank to `len` places from `first` on of two vectors on a lane.
    pub(super) fn from_rank<T: Real>(
        lanes: &[Lane],
        (to, x, first): (usize, [&Buffer<T>; 2], usize),
        len: usize,
        from: Envelope,
        window: Option<SharedWindow>,
    ) -> Result<Self> {
        let receive = |x: &Buffer<T>| match &window {
            Some(shared) => lanes[to].receive_buffer_in(x, first, len, &shared.window),
            None => lanes[to].receive_buffer(x, first, len),
        };
        Ok(Self::FromRank { to, len, receive: [receive(x[0])?, receive(x[1])?], from, window })
    }
}

impl<T: Real> HaloSource<T> {
    /// Rows of a region whose vector the lane has.
    fn new(
        lane: &Lane,
        (part, owner): (usize, &Region),
        reader: usize,
        rows: &[u32],
        gathered: Gathered<T>,
    ) -> Result<Self> {
        let places: Vec<u32> = rows.iter().map(|&row| owner.local(row)).collect();
        Ok(Self { part, reader, places: lane.alloc_with("a halo", &places)?, gathered })
    }

    /// The launch that gathers the values of iterate `which`.
    pub(super) fn gather(&self, lanes: &[Lane], parts: &[Part<T>], which: usize) -> Result<Launch> {
        let (owner, items) = (&parts[self.part], self.places.len());
        let (y, first) = match &self.gathered {
            Gathered::Halo { part, first } => (&parts[*part].x[which], *first),
            Gathered::Packed(packed) => (packed, 0),
        };
        let params = gather::Params { step: 0, items: items as u32, first: first as u32 };
        let args = gather::Args { index: self.places.arg(), x: owner.x[which].arg(), y: y.arg() };
        lanes[owner.lane].bind(&GATHER, T::PRECISION, items, params, args)
    }
}

/// The transfers between parts of this rank: within lanes, and between lanes.
pub(super) fn within_rank<T: Real>(
    lanes: &[Lane],
    parts: &[Part<T>],
    partition: &Partition,
) -> Result<(Transfers<T>, Transfers<T>)> {
    let (mut within_lanes, mut between_lanes) = (Vec::new(), Vec::new());
    let regions = partition.own_regions();
    for (to, reader) in regions.iter().enumerate() {
        for (from, owner) in regions.iter().enumerate().filter(|&(from, _)| from != to) {
            let rows = reader.halo_from(owner);
            let Some(&first) = rows.first() else { continue };
            let (from_lane, to_lane) = (parts[from].lane, parts[to].lane);
            let (lane, place) = (&lanes[from_lane], reader.local(first) as usize);
            let through_host = from_lane != to_lane && partition.exchange != LaneExchange::Peer;
            let (gathered, transport) = if through_host {
                let packed = lane.alloc_for_send("a halo", rows.len())?;
                let x = parts[to].x.each_ref();
                let transport = Transport::through_host(lanes, (from_lane, &packed), (to_lane, x, place))?;
                (Gathered::Packed(packed), transport)
            } else {
                (Gathered::Halo { part: to, first: place }, Transport::Kernel)
            };
            let number = partition.own.start + to;
            let source = Some(HaloSource::new(lane, (from, owner), number, &rows, gathered)?);
            let transfers = if from_lane == to_lane { &mut within_lanes } else { &mut between_lanes };
            transfers.push(HaloTransfer { source, transport });
        }
    }
    Ok((within_lanes, between_lanes))
}

/// A transfer between parts of two ranks, one of them this one.
pub(super) struct RankTransfer {
    /// The other rank.
    envelope: Envelope,
    /// This rank owns the rows.
    sends: bool,
    /// Numbers of the owner and the reader among all regions.
    owner: usize,
    reader: usize,
    rows: Vec<u32>,
    /// Lanes of this rank and of the other, among all.
    lanes: (usize, usize),
}

/// The transfers to and from parts of other ranks. Both ends number those between the same two ranks alike: by reader,
/// then by owner.
pub(super) fn between_ranks(partition: &Partition, ranks: Ranks) -> Result<Vec<RankTransfer>> {
    let mut transfers = Vec::new();
    let (mut sent, mut received) = (vec![0; ranks.size()], vec![0; ranks.size()]);
    for (reader, region) in partition.regions.iter().enumerate() {
        for (owner, other) in partition.regions.iter().enumerate() {
            let (to, from) = (partition.ranks[region.lane], partition.ranks[other.lane]);
            if to == from || (to != ranks.rank() && from != ranks.rank()) {
                continue;
            }
            let rows = region.halo_from(other);
            if rows.is_empty() {
                continue;
            }
            // A message is counted in `int`s, of halves of a double.
            if rows.len() >= 1 << 30 {
                return Err(Error::Invalid(format!(
                    "a rank would send another {} values after a step, and a message holds 2^30; use more ranks",
                    rows.len()
                )));
            }
            let sends = from == ranks.rank();
            let (rank, tags, lanes) = match sends {
                true => (to, &mut sent, (other.lane, region.lane)),
                false => (from, &mut received, (region.lane, other.lane)),
            };
            let envelope = Envelope { rank, tag: tags[rank] };
            tags[rank] += 1;
            transfers.push(RankTransfer { envelope, sends, owner, reader, rows, lanes });
        }
    }
    Ok(transfers)
}

/// Turns windows off, for tests and comparisons.
const NO_WINDOWS: &str = "KOLMO_NO_WINDOWS";

/// An end of a transfer between two ranks: the envelope of its messages, whether this rank sends, and the bytes of a window,
/// if it may have one.
pub(crate) type WindowEnd = (Envelope, bool, Option<usize>);

/// A window for each transfer between two processes of one host.
pub(crate) fn windows(ends: &[WindowEnd], ranks: Ranks) -> Vec<Option<Window>> {
    let off = std::env::var_os(NO_WINDOWS).is_some();
    let mut windows: Vec<Option<Window>> = ends.iter().map(|_| None).collect();
    let mut paths = Vec::new();
    let mut offers = String::new();
    for (&(Envelope { rank, tag }, sends, bytes), window) in ends.iter().zip(&mut windows) {
        if let Some(bytes) = bytes.filter(|_| sends && !off)
            && let Ok((made, path)) = Window::create(bytes)
        {
            offers += &format!("{rank} {tag} {}\n", path.display());
            *window = Some(made);
            paths.push(path);
        }
    }
    // Who reads finds the file on the same host alone.
    let offers = ranks.all_gather_text(&offers);
    let mut opened = String::new();
    for (&(Envelope { rank, tag }, sends, bytes), window) in ends.iter().zip(&mut windows) {
        let mine = format!("{} {tag} ", ranks.rank());
        if let Some(bytes) = bytes.filter(|_| !sends && !off)
            && let Some(path) = offers[rank].lines().find_map(|line| line.strip_prefix(&mine[..]))
            && let Ok(other) = Window::open(Path::new(path), bytes)
        {
            *window = Some(other);
            opened += &format!("{rank} {tag}\n");
        }
    }
    let opened = ranks.all_gather_text(&opened);
    for (&(Envelope { rank, tag }, sends, _), window) in ends.iter().zip(&mut windows) {
        let mine = format!("{} {tag}", ranks.rank());
        if sends && !opened[rank].lines().any(|line| line == mine) {
            *window = None;
        }
    }
    paths.iter().for_each(|path| Window::forget(path));
    windows
}

/// The ends of transfers, for [`windows`]. None is wanted where nothing comes back between the same lanes, by which a writer
/// learns that its slot was read.
pub(super) fn window_ends<T: Real>(transfers: &[RankTransfer]) -> Vec<WindowEnd> {
    let returns = |one: &RankTransfer| transfers.iter().any(|t| t.sends != one.sends && t.lanes == one.lanes);
    let end =
        |one: &RankTransfer| (one.envelope, one.sends, returns(one).then(|| one.rows.len() * size_of::<T>()));
    transfers.iter().map(end).collect()
}

/// The transfers between ranks, with their buffers on this rank's lanes.
pub(super) fn with_buffers<T: Real>(
    lanes: &[Lane],
    parts: &[Part<T>],
    partition: &Partition,
    transfers: Vec<RankTransfer>,
    windows: Vec<Option<Window>>,
) -> Result<Transfers<T>> {
    let (regions, own) = (&partition.regions, partition.own.start);
    let built = |(transfer, window): (RankTransfer, Option<Window>)| {
        let RankTransfer { envelope, sends, owner, reader, rows, .. } = transfer;
        let window = window.map(SharedWindow::from);
        if !sends {
            let (part, first) = (&parts[reader - own], regions[reader].local(rows[0]) as usize);
            let target = (part.lane, part.x.each_ref(), first);
            let transport = Transport::from_rank(lanes, target, rows.len(), envelope, window)?;
            return Ok(HaloTransfer { source: None, transport });
        }
        let number = parts[owner - own].lane;
        let lane = &lanes[number];
        let packed = lane.alloc_for_send("a halo", rows.len())?;
        let transport = Transport::to_rank(lanes, (number, &packed), envelope, window)?;
        let owner = (owner - own, &regions[owner]);
        let source = HaloSource::new(lane, owner, reader, &rows, Gathered::Packed(packed))?;
        Ok(HaloTransfer { source: Some(source), transport })
    };
    transfers.into_iter().zip(windows).map(built).collect()
}
