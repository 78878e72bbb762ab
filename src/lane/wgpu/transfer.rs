//! Mapped staging of values that leave and enter a long loop, one slot per transfer buffer.

use std::sync::Mutex;

use wgpu::{Buffer, BufferUsages, MapMode, SubmissionIndex};

use super::lane::WgpuLane;
use super::pipeline;
use super::staging::StagingSlot;
use crate::Result;
use crate::lane::LaneBatch;
use crate::lane::backend::{ReceiveStaging, SendStaging};
use crate::parallel::lock;

/// Host buffer for copies of an array to the host.
#[derive(Debug)]
pub(in crate::lane) struct WgpuSendBuffer {
    /// Array to copy to the slot; `None` if the slot is the array itself.
    source: Option<Buffer>,
    bytes: u64,
    slot: StagingSlot,
    filled: Mutex<Option<SubmissionIndex>>,
}

impl SendStaging<WgpuLane> for WgpuSendBuffer {
    fn new(lane: &WgpuLane, source: &Buffer, bytes: u64) -> Result<Self> {
        let (source, slot) = match source.usage().contains(BufferUsages::MAP_READ) {
            true => (None, StagingSlot::over(source.clone())),
            false => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                (Some(source.clone()), StagingSlot::new(&lane.device, bytes, usage)?)
            }
        };
        Ok(Self { source, bytes, slot, filled: Mutex::default() })
    }

    fn read(&self, lane: &WgpuLane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let filled = lock(&self.filled).take();
        self.slot.spin(&lane.device)?;
        if self.slot.is_pending() && filled.is_some() {
            lane.device.wait(filled, "an exchange")?;
        }
        self.slot.wait(&lane.device)?;
        match self.slot.buffer.get_mapped_range(..bytes as u64) {
            Ok(view) => take(&view)?,
            Err(_) => return Err(lane.device.lost_error("an exchange")),
        }
        self.slot.buffer.unmap();
        Ok(())
    }
}

/// Host buffer for copies from the host to a place in an array.
#[derive(Debug)]
pub(in crate::lane) struct WgpuReceiveBuffer {
    target: Buffer,
    at: u64,
    bytes: u64,
    slot: StagingSlot,
}

impl ReceiveStaging<WgpuLane> for WgpuReceiveBuffer {
    fn new(lane: &WgpuLane, target: &Buffer, at: u64, bytes: u64) -> Result<Self> {
        let slot = StagingSlot::new(&lane.device, bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?;
        slot.map(MapMode::Write);
        Ok(Self { target: target.clone(), at, bytes, slot })
    }

    fn write(&self, lane: &WgpuLane, values: &[u8]) -> Result<()> {
        // The lane's last batch emptied the slot, but the host may not have noticed its end yet.
        self.slot.spin(&lane.device)?;
        self.slot.wait(&lane.device)?;
        match self.slot.buffer.get_mapped_range_mut(..self.bytes) {
            Ok(mut view) => view.copy_from_slice(values),
            Err(_) => return Err(lane.device.lost_error("an exchange")),
        }
        self.slot.buffer.unmap();
        Ok(())
    }
}

/// Submits a batch's receives, launches and sends in this order, and does not wait.
pub(super) fn submit(lane: &WgpuLane, batch: &LaneBatch<'_>, first: u64) -> Result<()> {
    let receives = || batch.receives.iter().map(|received| received.staging.own::<WgpuReceiveBuffer>());
    let sends = || batch.sends.iter().map(|sent| sent.staging.own::<WgpuSendBuffer>());
    let mut encoder = lane.device.encoder();
    for received in receives() {
        let (from, to) = (&received.slot.buffer, &received.target);
        encoder.copy_buffer_to_buffer(from, 0, to, received.at, received.bytes);
    }
    let mut launches = batch.launches.iter().map(|&(step, launch)| (first + step, launch));
    pipeline::pass(&mut encoder, &mut launches);
    for sent in sends() {
        if let Some(source) = &sent.source {
            encoder.copy_buffer_to_buffer(source, 0, &sent.slot.buffer, 0, sent.bytes);
        }
    }
    let index = lane.device.give(encoder)?;
    receives().for_each(|received| received.slot.map(MapMode::Write));
    for sent in sends() {
        sent.slot.map(MapMode::Read);
        *lock(&sent.filled) = Some(index.clone());
    }
    Ok(())
}
