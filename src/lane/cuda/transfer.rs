//! Page-locked staging of values that leave and enter a long loop, one per transfer buffer.
//!
//! Copies use the lane's second stream, so that they overlap with computing rows that no other lane
//! needs.

use std::sync::{Arc, Mutex};

use super::CudaLane;
use super::driver::{Event, Pinned, Registered};
use super::memory::Memory;
use crate::Result;
use crate::lane::Window;
use crate::lane::backend::{ReceiveStaging, SendStaging};
use crate::lane::host_array::Locked;
use crate::parallel::lock;

/// Page-locked bytes on the host, and an event after their last transfer.
#[derive(Debug)]
struct Staged {
    host: Host,
    event: Event,
}

#[derive(Debug)]
enum Host {
    /// Memory of this process, and its used bytes.
    Own(Pinned, usize),
    /// A window to another process. The exchanges are counted, since they use its slots in turn.
    Shared { window: Arc<Window>, exchanges: u64, _locked: Registered },
}

impl Staged {
    /// Makes a staging buffer: in the window to another process if its pages can be locked, else
    /// in memory of this process.
    fn new(lane: &CudaLane, bytes: u64, window: Option<&Arc<Window>>) -> Result<Mutex<Self>> {
        let shared = |window: &Arc<Window>| {
            let locked = Registered::new(lane.context, window).ok()?;
            Some(Host::Shared { window: window.clone(), exchanges: 0, _locked: locked })
        };
        lane.during("an allocation", || {
            let host = match window.and_then(shared) {
                Some(host) => host,
                None => Host::Own(Pinned::new(lane.context, bytes.max(1) as usize)?, bytes as usize),
            };
            let event = Event::new(lane.context)?;
            event.record(&lane.streams.aside)?;
            Ok(Mutex::new(Self { host, event }))
        })
    }

    fn is_window(&self) -> bool {
        matches!(self.host, Host::Shared { .. })
    }

    fn wait(&self, lane: &CudaLane) -> Result<()> {
        self.event.synchronize().map_err(|e| lane.error("an exchange", e))
    }

    /// Calls `work` with the staging bytes: the window's slot of an exchange, or own memory.
    fn slice<R>(&mut self, exchange: u64, work: impl FnOnce(&mut [u8]) -> R) -> R {
        match &mut self.host {
            Host::Own(pinned, bytes) => work(&mut pinned.bytes_mut()[..*bytes]),
            Host::Shared { window, .. } => window.slot(exchange, work),
        }
    }

    fn next(&mut self) -> u64 {
        match &mut self.host {
            Host::Own(..) => 0,
            Host::Shared { exchanges, .. } => {
                *exchanges += 1;
                *exchanges - 1
            }
        }
    }
}

/// Page-locked host buffer for copies of an array to the host.
#[derive(Debug)]
pub(in crate::lane) struct SendBuffer {
    source: Arc<Memory>,
    staged: Mutex<Staged>,
}

impl SendBuffer {
    /// Enqueues the copy to the host in the second stream, after the main stream's current work.
    pub(super) fn send(&self, lane: &CudaLane) -> Result<()> {
        lane.fence()?;
        let mut staged = lock(&self.staged);
        let exchange = staged.next();
        lane.during("an exchange", || {
            lane.streams.aside.wait(&lane.fence)?;
            staged.slice(exchange, |slot| lane.streams.aside.fetch(&self.source, 0, slot))?;
            staged.event.record(&lane.streams.aside)
        })
    }
}

impl SendStaging<CudaLane> for SendBuffer {
    fn new(lane: &CudaLane, source: &Arc<Memory>, bytes: u64, window: Option<&Arc<Window>>) -> Result<Self> {
        Ok(Self { source: source.clone(), staged: Staged::new(lane, bytes, window)? })
    }

    fn read(&self, lane: &CudaLane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let mut staged = lock(&self.staged);
        staged.wait(lane)?;
        staged.slice(0, |staged| take(&staged[..bytes]))
    }

    fn wait_in_window(&self, lane: &CudaLane) -> Result<bool> {
        let staged = lock(&self.staged);
        match staged.is_window() {
            true => staged.wait(lane).map(|()| true),
            false => Ok(false),
        }
    }
}

/// Page-locked host buffer for copies from the host to a place in an array.
#[derive(Debug)]
pub(in crate::lane) struct ReceiveBuffer {
    target: Arc<Memory>,
    at: u64,
    staged: Mutex<Staged>,
}

impl ReceiveBuffer {
    /// Enqueues the copy to the device in the second stream, after the lane's fence.
    fn take(&self, lane: &CudaLane, staged: &mut Staged, exchange: u64) -> Result<()> {
        lane.during("an exchange", || {
            lane.streams.aside.wait(&lane.fence)?;
            staged.slice(exchange, |slot| lane.streams.aside.send(slot, &self.target, self.at))?;
            staged.event.record(&lane.streams.aside)
        })
    }

    /// Makes the main stream wait for the last copy of this buffer to the device.
    pub(super) fn deliver(&self, lane: &CudaLane) -> Result<()> {
        lane.during("an exchange", || lane.streams.main.wait(&lock(&self.staged).event))
    }
}

impl ReceiveStaging<CudaLane> for ReceiveBuffer {
    fn new(
        lane: &CudaLane,
        target: &Arc<Memory>,
        at: u64,
        bytes: u64,
        window: Option<&Arc<Window>>,
    ) -> Result<Self> {
        Ok(Self { target: target.clone(), at, staged: Staged::new(lane, bytes, window)? })
    }

    fn write(&self, lane: &CudaLane, values: &[u8]) -> Result<()> {
        let mut staged = lock(&self.staged);
        staged.wait(lane)?;
        staged.slice(0, |slot| slot.copy_from_slice(values));
        self.take(lane, &mut staged, 0)
    }

    fn take_from_window(&self, lane: &CudaLane, exchange: u64) -> Result<bool> {
        let mut staged = lock(&self.staged);
        match staged.is_window() {
            true => self.take(lane, &mut staged, exchange).map(|()| true),
            false => Ok(false),
        }
    }
}
