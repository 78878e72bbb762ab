//! Mapped staging of values that leave and enter a long loop, one buffer a box, made once.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use wgpu::{Buffer, BufferUsages, Features, MapMode, SubmissionIndex};

use super::staging::{PENDING, Slot};
use super::{WgpuLane, WgpuLaunch, lock};
use crate::Result;

/// Lets kernels store straight into memory that the host maps.
pub(super) const FEATURES: Features = Features::MAPPABLE_PRIMARY_BUFFERS;

/// Longest that a thread looks for values before it goes to sleep.
const SPIN: std::time::Duration = std::time::Duration::from_millis(3);

/// From an array to the host.
#[derive(Debug)]
pub(in crate::lane) struct SendBuffer {
    /// What is copied to the slot. None where the slot is the array itself.
    source: Option<Buffer>,
    bytes: u64,
    slot: Slot,
    /// The submission that filled it.
    filled: Mutex<Option<SubmissionIndex>>,
}

/// From the host to a place in an array.
#[derive(Debug)]
pub(in crate::lane) struct ReceiveBuffer {
    target: Buffer,
    at: u64,
    bytes: u64,
    slot: Slot,
}

impl SendBuffer {
    pub(in crate::lane) fn new(lane: &WgpuLane, source: &Buffer, bytes: u64) -> Result<Self> {
        let (source, slot) = match source.usage().contains(BufferUsages::MAP_READ) {
            true => (None, Slot::over(source.clone())),
            false => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                (Some(source.clone()), Slot::new(lane, bytes, usage)?)
            }
        };
        Ok(Self { source, bytes, slot, filled: Mutex::default() })
    }

    /// Waits for the submission that filled it, and gives its values to `take`.
    fn opened(&self, lane: &WgpuLane, bytes: u64, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let filled = lock(&self.filled).take();
        lane.spin(&self.slot)?;
        if self.slot.state.load(Ordering::Acquire) == PENDING && filled.is_some() {
            lane.wait(filled, "an exchange")?;
        }
        self.slot.wait(lane)?;
        match self.slot.buffer.get_mapped_range(..bytes) {
            Ok(view) => take(&view)?,
            Err(_) => return Err(lane.lost_error("an exchange")),
        }
        self.slot.buffer.unmap();
        Ok(())
    }

    pub(in crate::lane) fn collect(&self, lane: &WgpuLane, values: &mut [u8]) -> Result<()> {
        self.opened(lane, values.len() as u64, |view| {
            values.copy_from_slice(view);
            Ok(())
        })
    }

    /// Fills a box of another lane, without a copy in between.
    pub(in crate::lane) fn hand_over(
        &self,
        lane: &WgpuLane,
        reader: &WgpuLane,
        receive_buffer: &ReceiveBuffer,
    ) -> Result<()> {
        self.opened(lane, receive_buffer.bytes, |view| {
            // It was emptied by the reader's last batch, whose end the reader itself may not have seen yet.
            reader.spin(&receive_buffer.slot)?;
            receive_buffer.fill(reader, view)
        })
    }
}

impl ReceiveBuffer {
    pub(in crate::lane) fn new(lane: &WgpuLane, target: &Buffer, at: u64, bytes: u64) -> Result<Self> {
        let slot = Slot::new(lane, bytes, BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC)?;
        slot.map(MapMode::Write);
        Ok(Self { target: target.clone(), at, bytes, slot })
    }

    pub(in crate::lane) fn fill(&self, lane: &WgpuLane, values: &[u8]) -> Result<()> {
        assert_eq!(values.len() as u64, self.bytes, "a box is filled whole");
        self.slot.wait(lane)?;
        match self.slot.buffer.get_mapped_range_mut(..self.bytes) {
            Ok(mut view) => view.copy_from_slice(values),
            Err(_) => return Err(lane.lost_error("an exchange")),
        }
        self.slot.buffer.unmap();
        Ok(())
    }
}

impl WgpuLane {
    /// Submits receives, launches and sends, in this order, and does not wait.
    pub(in crate::lane) fn enqueue<'a>(
        &self,
        receives: impl Iterator<Item = &'a ReceiveBuffer> + Clone,
        launches: impl Iterator<Item = (u64, &'a WgpuLaunch)>,
        sends: impl Iterator<Item = &'a SendBuffer> + Clone,
    ) -> Result<()> {
        let mut encoder = self.encoder();
        let mut trace = lock(&self.trace);
        let number = trace.as_mut().and_then(|trace| trace.begin(&mut encoder));
        for receive_buffer in receives.clone() {
            encoder.copy_buffer_to_buffer(
                &receive_buffer.slot.buffer,
                0,
                &receive_buffer.target,
                receive_buffer.at,
                receive_buffer.bytes,
            );
        }
        self.pass(&mut encoder, launches);
        for send_buffer in sends.clone() {
            if let Some(source) = &send_buffer.source {
                encoder.copy_buffer_to_buffer(source, 0, &send_buffer.slot.buffer, 0, send_buffer.bytes);
            }
        }
        if let (Some(trace), Some(number)) = (&*trace, number) {
            trace.end(&mut encoder, number);
        }
        drop(trace);
        let index = self.submit(encoder)?;
        receives.for_each(|receive_buffer| receive_buffer.slot.map(MapMode::Write));
        for send_buffer in sends {
            send_buffer.slot.map(MapMode::Read);
            *lock(&send_buffer.filled) = Some(index.clone());
        }
        Ok(())
    }

    /// Looks again and again, for a while, whether a slot is mapped: a thread that sleeps is woken up late.
    fn spin(&self, slot: &Slot) -> Result<()> {
        // A software adapter works with the same threads.
        if self.device.software {
            return Ok(());
        }
        let since = std::time::Instant::now();
        while slot.state.load(Ordering::Acquire) == PENDING && since.elapsed() < SPIN {
            self.look("an exchange")?;
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Waits for everything submitted.
    pub(in crate::lane) fn finish(&self) -> Result<()> {
        self.wait(None, "an exchange")
    }
}
