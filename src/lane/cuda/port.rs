//! Page-locked staging of values that leave and enter a long loop, one buffer a box, made once.

use std::sync::{Arc, Mutex};

use cudarc::driver::DriverError;

use super::driver::{Event, Memory, Pinned};
use super::{CudaLane, lock};
use crate::Result;

/// Page-locked bytes and the event behind their last transfer.
#[derive(Debug)]
struct Staged {
    pinned: Pinned,
    event: Event,
    bytes: usize,
}

impl Staged {
    fn new(lane: &CudaLane, bytes: u64) -> Result<Mutex<Self>> {
        let bytes = bytes as usize;
        let make = || {
            let (pinned, event) = (Pinned::new(lane.context, bytes.max(1))?, Event::new(lane.context)?);
            event.record(&lane.stream)?;
            Ok(Self { pinned, event, bytes })
        };
        make().map(Mutex::new).map_err(|e| lane.error("an allocation", e))
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.pinned.bytes_mut()[..self.bytes]
    }
}

/// From an array to the host.
#[derive(Debug)]
pub(in crate::lane) struct Outbox {
    source: Arc<Memory>,
    staged: Mutex<Staged>,
}

/// From the host to a place in an array.
#[derive(Debug)]
pub(in crate::lane) struct Inbox {
    target: Arc<Memory>,
    at: u64,
    staged: Mutex<Staged>,
}

impl Outbox {
    pub(in crate::lane) fn new(lane: &CudaLane, source: &Arc<Memory>, bytes: u64) -> Result<Self> {
        Ok(Self { source: source.clone(), staged: Staged::new(lane, bytes)? })
    }

    /// Puts the copy to the host into the stream.
    pub(in crate::lane) fn send(&self, lane: &CudaLane) -> Result<()> {
        lane.enter()?;
        let mut staged = lock(&self.staged);
        let mut send = || -> std::result::Result<(), DriverError> {
            lane.stream.fetch(&self.source, 0, staged.slice())?;
            staged.event.record(&lane.stream)
        };
        send().map_err(|e| lane.error("an exchange", e))
    }

    pub(in crate::lane) fn collect(&self, lane: &CudaLane, values: &mut [u8]) -> Result<()> {
        let mut staged = lock(&self.staged);
        staged.event.synchronize().map_err(|e| lane.error("an exchange", e))?;
        values.copy_from_slice(&staged.slice()[..values.len()]);
        Ok(())
    }
}

impl Inbox {
    pub(in crate::lane) fn new(lane: &CudaLane, target: &Arc<Memory>, at: u64, bytes: u64) -> Result<Self> {
        Ok(Self { target: target.clone(), at, staged: Staged::new(lane, bytes)? })
    }

    pub(in crate::lane) fn fill(&self, lane: &CudaLane, values: &[u8]) -> Result<()> {
        let mut staged = lock(&self.staged);
        staged.event.synchronize().map_err(|e| lane.error("an exchange", e))?;
        staged.slice().copy_from_slice(values);
        Ok(())
    }

    /// Puts the copy to the device into the stream.
    pub(in crate::lane) fn deliver(&self, lane: &CudaLane) -> Result<()> {
        lane.enter()?;
        let mut staged = lock(&self.staged);
        let mut deliver = || -> std::result::Result<(), DriverError> {
            lane.stream.send(staged.slice(), &self.target, self.at)?;
            staged.event.record(&lane.stream)
        };
        deliver().map_err(|e| lane.error("an exchange", e))
    }
}
