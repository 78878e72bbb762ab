//! Page-locked staging of values that leave and enter a long loop, one per transfer buffer.
//!
//! Copies use the lane's second stream, so that they overlap with computing rows that no other lane
//! needs.

use std::sync::{Arc, Mutex};

use super::driver::{Event, Pinned};
use super::lane::CudaLane;
use super::memory::GpuArray;
use crate::Result;
use crate::lane::backend::{ReceiveStaging, SendStaging};
use crate::lane::host_array::Locked;
use crate::parallel::lock;

/// Page-locked bytes on the host, and an event after their last transfer.
#[derive(Debug)]
struct Staged {
    host: Pinned,
    /// Number of used bytes.
    bytes: usize,
    event: Event,
}

impl Staged {
    fn new(lane: &CudaLane, bytes: u64) -> Result<Mutex<Self>> {
        lane.during("an allocation", || {
            let host = Pinned::new(lane.context, bytes.max(1) as usize)?;
            let event = Event::new(lane.context)?;
            event.record(&lane.streams.aside)?;
            Ok(Mutex::new(Self { host, bytes: bytes as usize, event }))
        })
    }

    fn wait(&self, lane: &CudaLane) -> Result<()> {
        self.event.synchronize().map_err(|e| lane.error("an exchange", e))
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.host.bytes_mut()[..self.bytes]
    }
}

/// Page-locked host buffer for copies of an array to the host.
#[derive(Debug)]
pub(in crate::lane) struct CudaSendBuffer {
    source: Arc<GpuArray>,
    staged: Mutex<Staged>,
}

impl CudaSendBuffer {
    /// Enqueues the copy to the host in the second stream, after the main stream's current work.
    pub(super) fn send(&self, lane: &CudaLane) -> Result<()> {
        lane.fence()?;
        let mut staged = lock(&self.staged);
        lane.during("an exchange", || {
            lane.streams.aside.wait(&lane.fence)?;
            lane.streams.aside.fetch(&self.source, 0, staged.slice())?;
            staged.event.record(&lane.streams.aside)
        })
    }
}

impl SendStaging<CudaLane> for CudaSendBuffer {
    fn new(lane: &CudaLane, source: &Arc<GpuArray>, bytes: u64) -> Result<Self> {
        Ok(Self { source: source.clone(), staged: Staged::new(lane, bytes)? })
    }

    fn read(&self, lane: &CudaLane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let mut staged = lock(&self.staged);
        staged.wait(lane)?;
        take(&staged.slice()[..bytes])
    }
}

/// Page-locked host buffer for copies from the host to a place in an array.
#[derive(Debug)]
pub(in crate::lane) struct CudaReceiveBuffer {
    target: Arc<GpuArray>,
    at: u64,
    staged: Mutex<Staged>,
}

impl CudaReceiveBuffer {
    /// Enqueues the copy to the device in the second stream, after the lane's fence.
    fn take(&self, lane: &CudaLane, staged: &mut Staged) -> Result<()> {
        lane.during("an exchange", || {
            lane.streams.aside.wait(&lane.fence)?;
            lane.streams.aside.send(staged.slice(), &self.target, self.at)?;
            staged.event.record(&lane.streams.aside)
        })
    }

    /// Makes the main stream wait for the last copy of this buffer to the device.
    pub(super) fn deliver(&self, lane: &CudaLane) -> Result<()> {
        lane.during("an exchange", || lane.streams.main.wait(&lock(&self.staged).event))
    }
}

impl ReceiveStaging<CudaLane> for CudaReceiveBuffer {
    fn new(lane: &CudaLane, target: &Arc<GpuArray>, at: u64, bytes: u64) -> Result<Self> {
        Ok(Self { target: target.clone(), at, staged: Staged::new(lane, bytes)? })
    }

    fn write(&self, lane: &CudaLane, values: &[u8]) -> Result<()> {
        let mut staged = lock(&self.staged);
        staged.wait(lane)?;
        staged.slice().copy_from_slice(values);
        self.take(lane, &mut staged)
    }
}
