//! Staging rings of fixed size between host and device, allocated once.
//!
//! wgpu's own staging grows with the written data, and loses the device when memory runs out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use wgpu::{Buffer, BufferUsages, MapMode, PollType};

use super::device::WgpuDevice;
use crate::Result;
use crate::parallel::backoff::Spin;
use crate::parallel::copy_bytes_locked;

const SLOT: u64 = 16 << 20;
const SLOTS: usize = 2;

const READY: u8 = 0;
const PENDING: u8 = 1;
const FAILED: u8 = 2;

/// A staging buffer that the host has mapped, or that is being mapped again.
#[derive(Debug)]
pub(super) struct StagingSlot {
    pub(super) buffer: Buffer,
    state: Arc<AtomicU8>,
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    slots: Vec<StagingSlot>,
}

impl StagingSlot {
    pub(super) fn new(device: &WgpuDevice, bytes: u64, usage: BufferUsages) -> Result<Self> {
        Ok(Self::over(device.create_buffer(bytes, usage, "staging")?))
    }

    pub(super) fn over(buffer: Buffer) -> Self {
        Self { buffer, state: Arc::new(AtomicU8::new(READY)) }
    }

    /// Requests the mapping, which follows the work submitted so far.
    pub(super) fn map(&self, mode: MapMode) {
        self.state.store(PENDING, Ordering::Release);
        let state = self.state.clone();
        self.buffer.map_async(mode, .., move |result| {
            state.store(if result.is_ok() { READY } else { FAILED }, Ordering::Release);
        });
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state.load(Ordering::Acquire) == PENDING
    }

    /// Polls for a while until the buffer is mapped.
    pub(super) fn spin(&self, device: &WgpuDevice) -> Result<()> {
        let mapped = || match self.is_pending() {
            true => device.poll(PollType::Poll, "an exchange").map(|_| None),
            false => Ok(Some(())),
        };
        device.spin(Spin::VALUES, mapped).map(drop)
    }

    pub(super) fn wait(&self, device: &WgpuDevice) -> Result<()> {
        while self.is_pending() {
            device.wait(None, "a transfer")?;
        }
        match self.state.load(Ordering::Acquire) {
            READY => Ok(()),
            _ => Err(device.lost_error("a transfer")),
        }
    }
}

impl Ring {
    fn slots(&mut self, device: &WgpuDevice, usage: BufferUsages) -> Result<&[StagingSlot]> {
        while self.slots.len() < SLOTS {
            let slot = StagingSlot::new(device, SLOT, usage)?;
            if usage.contains(BufferUsages::MAP_WRITE) {
                slot.map(MapMode::Write);
            }
            self.slots.push(slot);
        }
        Ok(&self.slots)
    }

    /// Copies host bytes to the device; returns when the last copy is submitted.
    pub(super) fn upload(
        &mut self,
        device: &WgpuDevice,
        src: &[u8],
        dst: &Buffer,
        offset: u64,
    ) -> Result<()> {
        let slots = self.slots(device, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?;
        for (i, chunk) in src.chunks(SLOT as usize).enumerate() {
            let slot = &slots[i % SLOTS];
            slot.wait(device)?;
            match slot.buffer.get_mapped_range_mut(..chunk.len() as u64) {
                Ok(mut view) => view.copy_from_slice(chunk),
                Err(_) => return Err(device.lost_error("an upload")),
            }
            slot.buffer.unmap();
            let mut encoder = device.encoder();
            encoder.copy_buffer_to_buffer(&slot.buffer, 0, dst, offset + i as u64 * SLOT, chunk.len() as u64);
            device.give(encoder)?;
            slot.map(MapMode::Write);
        }
        Ok(())
    }

    /// Copies device bytes to the host; the next chunk is copied while the current one is read.
    pub(super) fn download(
        &mut self,
        device: &WgpuDevice,
        src: &Buffer,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        let slots = self.slots(device, BufferUsages::MAP_READ | BufferUsages::COPY_DST)?;
        let send = |i: usize, len: usize| -> Result<()> {
            let slot = &slots[i % SLOTS];
            let mut encoder = device.encoder();
            encoder.copy_buffer_to_buffer(src, offset + i as u64 * SLOT, &slot.buffer, 0, len as u64);
            device.give(encoder)?;
            slot.map(MapMode::Read);
            Ok(())
        };
        let lengths: Vec<usize> = dst.chunks(SLOT as usize).map(<[u8]>::len).collect();
        for (i, &len) in lengths.iter().enumerate().take(SLOTS) {
            send(i, len)?;
        }
        for (i, chunk) in dst.chunks_mut(SLOT as usize).enumerate() {
            let slot = &slots[i % SLOTS];
            slot.wait(device)?;
            match slot.buffer.get_mapped_range(..chunk.len() as u64) {
                Ok(view) => copy_bytes_locked(chunk, &view),
                Err(_) => return Err(device.lost_error("a download")),
            }
            slot.buffer.unmap();
            if let Some(&len) = lengths.get(i + SLOTS) {
                send(i + SLOTS, len)?;
            }
        }
        Ok(())
    }
}
