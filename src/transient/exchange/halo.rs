//! Halo transfers: rows of one part that another reads, and the transport of their values from one to the other.

use std::path::Path;

use super::transport::{SharedWindow, Transport};
use crate::kernel::Number;
use crate::lane::{Buffer, Lane, Launch, Window};
use crate::ranks::{Envelope, Ranks};
use crate::transient::partition::{LaneExchange, Partition};
use crate::transient::step::chunk::Part;
use crate::transient::step::vector_kernels::{GATHER, gather};
use crate::{Error, Result};

/// The transfer of rows of one part to another that reads them.
#[derive(Debug)]
pub struct HaloTransfer<T> {
    /// The rows, where a part of this rank owns them.
    pub(crate) source: Option<HaloSource<T>>,
    pub(super) transport: Transport,
}

/// Rows of a part that another reads.
#[derive(Debug)]
pub(crate) struct HaloSource<T> {
    /// The part that owns them.
    pub(crate) part: usize,
    /// Number of the region that reads them.
    pub(crate) reader: usize,
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

impl<T: Number> HaloSource<T> {
    /// The launch that gathers the values of iterate `which`.
    pub(crate) fn gather(&self, lanes: &[Lane], parts: &[Part<T>], which: usize) -> Result<Launch> {
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

/// A transfer from or to a part of this rank that has no buffers yet.
pub(crate) struct PlannedTransfer {
    /// Numbers of the owner and the reader among all regions.
    owner: usize,
    reader: usize,
    /// Global rows, ascending.
    rows: Vec<u32>,
    /// The envelope of its messages, if it has another rank's region at one end, and whether this rank owns the rows.
    remote: Option<(Envelope, bool)>,
}

/// The transfers from and to parts of this rank, those within it first. Both ends number the messages between the same
/// two ranks alike: by reader, then by owner.
pub(crate) fn plan(partition: &Partition, ranks: Ranks) -> Result<Vec<PlannedTransfer>> {
    let mut transfers = Vec::new();
    let (mut sent, mut received) = (vec![0; ranks.size()], vec![0; ranks.size()]);
    let regions = || partition.regions.iter().enumerate();
    for (reader, to) in regions() {
        for (owner, from) in regions().filter(|&(owner, _)| owner != reader) {
            let [to_rank, from_rank] = [to, from].map(|region| partition.ranks[region.lane]);
            if to_rank != ranks.rank() && from_rank != ranks.rank() {
                continue;
            }
            let rows = to.halo_from(from);
            if rows.is_empty() {
                continue;
            }
            let mut remote = None;
            if to_rank != from_rank {
                // A message is counted in `int`s, of halves of a double.
                if rows.len() >= 1 << 30 {
                    return Err(Error::Invalid(format!(
                        "a rank would send another rank {} values after a step, but a message \
                         holds 2^30; use more ranks",
                        rows.len()
                    )));
                }
                let sends = from_rank == ranks.rank();
                let (rank, tags) = if sends { (to_rank, &mut sent) } else { (from_rank, &mut received) };
                remote = Some((Envelope { rank, tag: tags[rank] }, sends));
                tags[rank] += 1;
            }
            transfers.push(PlannedTransfer { owner, reader, rows, remote });
        }
    }
    transfers.sort_by_key(|transfer| transfer.remote.is_some());
    Ok(transfers)
}

/// Turns windows off, for tests and comparisons.
const NO_WINDOWS: &str = "KOLMO_NO_WINDOWS";

/// This rank's end of messages that a window could carry: their envelope, whether this rank sends, and their bytes.
pub type WindowEnd = (Envelope, bool, usize);

/// A window for each end that has its other end in a process of the same host.
pub fn windows(ends: &[Option<WindowEnd>], ranks: Ranks) -> Vec<Option<Window>> {
    let off = std::env::var_os(NO_WINDOWS).is_some();
    let mut windows: Vec<Option<Window>> = ends.iter().map(|_| None).collect();
    let mut paths = Vec::new();
    let mut offers = String::new();
    for (end, window) in ends.iter().zip(&mut windows) {
        if let Some((Envelope { rank, tag }, true, bytes)) = *end
            && !off
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
    for (end, window) in ends.iter().zip(&mut windows) {
        if let Some((Envelope { rank, tag }, false, bytes)) = *end
            && !off
            && let mine = format!("{} {tag} ", ranks.rank())
            && let Some(path) = offers[rank].lines().find_map(|line| line.strip_prefix(&mine[..]))
            && let Ok(other) = Window::open(Path::new(path), bytes)
        {
            *window = Some(other);
            opened += &format!("{rank} {tag}\n");
        }
    }
    let opened = ranks.all_gather_text(&opened);
    for (end, window) in ends.iter().zip(&mut windows) {
        if let Some((Envelope { rank, tag }, true, _)) = *end
            && let mine = format!("{} {tag}", ranks.rank())
            && !opened[rank].lines().any(|line| line == mine)
        {
            *window = None;
        }
    }
    paths.iter().for_each(|path| Window::forget(path));
    windows
}

/// The ends of transfers, for [`windows`]. None within a rank, and where nothing comes back between the same lanes, by which a
/// writer learns that its slot was read.
pub(super) fn window_ends<T: Number>(
    transfers: &[PlannedTransfer],
    partition: &Partition,
) -> Vec<Option<WindowEnd>> {
    let lane = |region: usize| partition.regions[region].lane;
    let end = |one: &PlannedTransfer| {
        let back = |other: &PlannedTransfer| {
            (lane(other.owner), lane(other.reader)) == (lane(one.reader), lane(one.owner))
        };
        let (envelope, sends) = one.remote.filter(|_| transfers.iter().any(back))?;
        Some((envelope, sends, one.rows.len() * size_of::<T>()))
    };
    transfers.iter().map(end).collect()
}

/// The transfers with their buffers on this rank's lanes.
pub(crate) fn build<T: Number>(
    lanes: &[Lane],
    parts: &[Part<T>],
    partition: &Partition,
    transfers: Vec<PlannedTransfer>,
    windows: Vec<Option<Window>>,
) -> Result<Vec<HaloTransfer<T>>> {
    let (regions, own) = (&partition.regions, partition.own.start);
    let context = |(transfer, window): (PlannedTransfer, Option<Window>)| {
        let PlannedTransfer { owner, reader, rows, remote } = transfer;
        let window = window.map(SharedWindow::from);
        let target = || {
            let (part, first) = (&parts[reader - own], regions[reader].local(rows[0]) as usize);
            (part.lane, part.x.each_ref(), first)
        };
        if let Some((envelope, false)) = remote {
            let transport = Transport::from_rank(lanes, target(), rows.len(), envelope, window)?;
            return Ok(HaloTransfer { source: None, transport });
        }
        let from = parts[owner - own].lane;
        let pack = || lanes[from].alloc_for_send("a halo", rows.len());
        let (gathered, transport) = match remote {
            Some((envelope, _)) => {
                let packed = pack()?;
                let transport = Transport::to_rank(lanes, (from, &packed), envelope, window)?;
                (Gathered::Packed(packed), transport)
            }
            None => {
                let (to, x, first) = target();
                let halo = Gathered::Halo { part: reader - own, first };
                match partition.exchange {
                    _ if from == to => (halo, Transport::SameLane),
                    LaneExchange::Peer => (halo, Transport::Peer),
                    _ => {
                        let packed = pack()?;
                        let transport = Transport::through_host(lanes, (from, &packed), (to, x, first))?;
                        (Gathered::Packed(packed), transport)
                    }
                }
            }
        };
        let places: Vec<u32> = rows.iter().map(|&row| regions[owner].local(row)).collect();
        let places = lanes[from].alloc_with("a halo", &places)?;
        Ok(HaloTransfer {
            source: Some(HaloSource { part: owner - own, reader, places, gathered }),
            transport,
        })
    };
    transfers.into_iter().zip(windows).map(context).collect()
}
