//! Page-locked staging of values that leave and enter a long loop, one buffer a box, made once. Copies go through the
//! stream beside the one that computes, so that the rows that nobody waits for are computed meanwhile.

use std::sync::{Arc, Mutex};

use cudarc::driver::DriverError;

use super::super::Window;
use super::driver::{Event, Memory, Pinned, Registered};
use super::{CudaLane, lock};
use crate::Result;

/// Page-locked bytes and the event behind their last transfer.
#[derive(Debug)]
struct Staged {
    host: Host,
    event: Event,
}

#[derive(Debug)]
enum Host {
    /// Memory of this process, and how much of it is used.
    Own(Pinned, usize),
    /// A window to another process. Exchanges are counted, since they take its slots in turn.
    Shared { window: Arc<Window>, exchanges: u64, _locked: Registered },
}

impl Staged {
    fn with(lane: &CudaLane, host: Host) -> std::result::Result<Mutex<Self>, DriverError> {
        let event = Event::new(lane.context)?;
        event.record(&lane.aside)?;
        Ok(Mutex::new(Self { host, event }))
    }

    fn new(lane: &CudaLane, bytes: u64) -> Result<Mutex<Self>> {
        let bytes = bytes as usize;
        Pinned::new(lane.context, bytes.max(1))
            .and_then(|pinned| Self::with(lane, Host::Own(pinned, bytes)))
            .map_err(|e| lane.error("an allocation", e))
    }

    /// None if the driver does not lock a window's pages.
    fn over(lane: &CudaLane, window: &Arc<Window>) -> Result<Option<Mutex<Self>>> {
        let Ok(locked) = Registered::new(lane.context, window) else { return Ok(None) };
        let host = Host::Shared { window: window.clone(), exchanges: 0, _locked: locked };
        Self::with(lane, host).map(Some).map_err(|e| lane.error("an allocation", e))
    }

    fn is_over(&self) -> bool {
        matches!(self.host, Host::Shared { .. })
    }

    /// Works on the bytes of an exchange.
    fn slice<R>(&mut self, exchange: u64, work: impl FnOnce(&mut [u8]) -> R) -> R {
        match &mut self.host {
            Host::Own(pinned, bytes) => work(&mut pinned.bytes_mut()[..*bytes]),
            Host::Shared { window, .. } => window.slot(exchange, work),
        }
    }

    /// The number of the next exchange.
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

/// From an array to the host.
#[derive(Debug)]
pub(in crate::lane) struct SendBuffer {
    source: Arc<Memory>,
    staged: Mutex<Staged>,
}

/// From the host to a place in an array.
#[derive(Debug)]
pub(in crate::lane) struct ReceiveBuffer {
    target: Arc<Memory>,
    at: u64,
    staged: Mutex<Staged>,
}

impl SendBuffer {
    pub(in crate::lane) fn new(lane: &CudaLane, source: &Arc<Memory>, bytes: u64) -> Result<Self> {
        Ok(Self { source: source.clone(), staged: Staged::new(lane, bytes)? })
    }

    /// One whose values go straight to a window; none if its pages cannot be locked.
    pub(in crate::lane) fn over(
        lane: &CudaLane,
        source: &Arc<Memory>,
        window: &Arc<Window>,
    ) -> Result<Option<Self>> {
        Ok(Staged::over(lane, window)?.map(|staged| Self { source: source.clone(), staged }))
    }

    pub(in crate::lane) fn is_over(&self) -> bool {
        lock(&self.staged).is_over()
    }

    /// Puts the copy to the host beside the stream, behind all that is in it.
    pub(in crate::lane) fn send(&self, lane: &CudaLane) -> Result<()> {
        lane.fence()?;
        let mut staged = lock(&self.staged);
        let exchange = staged.next();
        let mut send = || -> std::result::Result<(), DriverError> {
            lane.aside.wait(&lane.fence)?;
            staged.slice(exchange, |slot| lane.aside.fetch(&self.source, 0, slot))?;
            staged.event.record(&lane.aside)
        };
        send().map_err(|e| lane.error("an exchange", e))
    }

    /// Waits for the copy.
    pub(in crate::lane) fn reached(&self, lane: &CudaLane) -> Result<()> {
        lock(&self.staged).event.synchronize().map_err(|e| lane.error("an exchange", e))
    }

    pub(in crate::lane) fn collect(&self, lane: &CudaLane, values: &mut [u8]) -> Result<()> {
        self.reached(lane)?;
        lock(&self.staged).slice(0, |staged| values.copy_from_slice(&staged[..values.len()]));
        Ok(())
    }
}

impl ReceiveBuffer {
    pub(in crate::lane) fn new(lane: &CudaLane, target: &Arc<Memory>, at: u64, bytes: u64) -> Result<Self> {
        Ok(Self { target: target.clone(), at, staged: Staged::new(lane, bytes)? })
    }

    /// One whose values come straight from a window; none if its pages cannot be locked.
    pub(in crate::lane) fn over(
        lane: &CudaLane,
        target: &Arc<Memory>,
        at: u64,
        window: &Arc<Window>,
    ) -> Result<Option<Self>> {
        Ok(Staged::over(lane, window)?.map(|staged| Self { target: target.clone(), at, staged }))
    }

    pub(in crate::lane) fn is_over(&self) -> bool {
        lock(&self.staged).is_over()
    }

    pub(in crate::lane) fn fill(&self, lane: &CudaLane, values: &[u8]) -> Result<()> {
        {
            let mut staged = lock(&self.staged);
            staged.event.synchronize().map_err(|e| lane.error("an exchange", e))?;
            staged.slice(0, |slot| slot.copy_from_slice(values));
        }
        self.take(lane, 0)
    }

    /// Puts the copy to the device beside the stream, behind the last fence.
    pub(in crate::lane) fn take(&self, lane: &CudaLane, exchange: u64) -> Result<()> {
        lane.enter()?;
        let mut staged = lock(&self.staged);
        let mut take = || -> std::result::Result<(), DriverError> {
            lane.aside.wait(&lane.fence)?;
            staged.slice(exchange, |slot| lane.aside.send(slot, &self.target, self.at))?;
            staged.event.record(&lane.aside)
        };
        take().map_err(|e| lane.error("an exchange", e))
    }

    /// Lets the stream wait for the copy.
    pub(in crate::lane) fn deliver(&self, lane: &CudaLane) -> Result<()> {
        lane.enter()?;
        lane.stream.wait(&lock(&self.staged).event).map_err(|e| lane.error("an exchange", e))
    }
}
