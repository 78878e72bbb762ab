//! Halo transfers: rows of one part that another part reads, and the transport of their values.

use super::transport::Transport;
use crate::kernel::Number;
use crate::lane::{Buffer, Lane, Launch};
use crate::ranks::{MessageEnvelope, Ranks};
use crate::transient::partition::{LaneExchange, Partition};
use crate::transient::step::chunk::LanePart;
use crate::transient::step::vector_kernels::{GATHER, gather};
use crate::{Invalid, Result};

/// Transfer of rows of one part to another part that reads them.
#[derive(Debug)]
pub struct HaloTransfer<T> {
    /// Source of the values, if a part of this rank owns the rows.
    pub(crate) source: Option<HaloSource<T>>,
    pub(super) transport: Transport,
}

/// Rows of a part that another part reads.
#[derive(Debug)]
pub(crate) struct HaloSource<T> {
    /// Index of the part that owns the rows, among this rank's parts.
    pub(crate) part: usize,
    /// Indices of the rows in the owner's vector.
    places: Buffer<u32>,
    /// Destination to which a kernel of the owner's lane gathers the values.
    pub(super) gathered: Gathered<T>,
}

/// Array in which the values of a halo are contiguous.
#[derive(Debug)]
pub(super) enum Gathered<T> {
    /// The vector of the part that reads them, from index `first` on.
    Halo { part: usize, first: usize },
    /// Separate send buffer on the owner's lane.
    Packed(Buffer<T>),
}

impl<T: Number> HaloSource<T> {
    /// Returns the launch that gathers the values of iterate number `which`, 0 or 1.
    pub(crate) fn gather(&self, lanes: &[Lane], parts: &[LanePart<T>], which: usize) -> Result<Launch> {
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

/// Transfer from or to a part of this rank, without buffers yet.
pub(crate) struct PlannedTransfer {
    /// Index of the owner's region among those of all ranks; `reader` is that of the reader.
    owner: usize,
    reader: usize,
    /// Transferred rows, by global index, ascending.
    rows: Vec<u32>,
    /// Envelope of its messages and true if this rank owns the rows; `None` within a rank.
    remote: Option<(MessageEnvelope, bool)>,
}

/// Plans the transfers from and to parts of this rank, those within it first.
///
/// Two ranks number the messages between them alike: in the order of readers, then of owners.
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
                // MPI counts the elements of a message, half doubles, in an `int`.
                if rows.len() >= 1 << 30 {
                    return Invalid::TooLarge.fail(format!(
                        "a rank would send another rank {} values after a step, but a message \
                         holds 2^30; use more ranks",
                        rows.len()
                    ));
                }
                let sends = from_rank == ranks.rank();
                let (rank, tags) = if sends { (to_rank, &mut sent) } else { (from_rank, &mut received) };
                remote = Some((MessageEnvelope { rank, tag: tags[rank] }, sends));
                tags[rank] += 1;
            }
            transfers.push(PlannedTransfer { owner, reader, rows, remote });
        }
    }
    transfers.sort_by_key(|transfer| transfer.remote.is_some());
    Ok(transfers)
}

/// Builds the transfers with their buffers on this rank's lanes.
pub(crate) fn build<T: Number>(
    lanes: &[Lane],
    parts: &[LanePart<T>],
    partition: &Partition,
    transfers: Vec<PlannedTransfer>,
) -> Result<Vec<HaloTransfer<T>>> {
    let (regions, own) = (&partition.regions, partition.own.start);
    let context = |PlannedTransfer { owner, reader, rows, remote }| {
        let target = || {
            let (part, first) = (&parts[reader - own], regions[reader].local(rows[0]) as usize);
            (part.lane, part.x.each_ref(), first)
        };
        if let Some((envelope, false)) = remote {
            let transport = Transport::from_rank(lanes, target(), rows.len(), envelope)?;
            return Ok(HaloTransfer { source: None, transport });
        }
        let from = parts[owner - own].lane;
        let pack = || lanes[from].alloc_for_send("a halo", rows.len());
        let (gathered, transport) = match remote {
            Some((envelope, _)) => {
                let packed = pack()?;
                let transport = Transport::to_rank(lanes, (from, &packed), envelope)?;
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
        Ok(HaloTransfer { source: Some(HaloSource { part: owner - own, places, gathered }), transport })
    };
    transfers.into_iter().map(context).collect()
}
