//! Values that leave and enter a lane within a long loop: staging that is made once, and batches of work that nobody
//! waits for.

use std::sync::Arc;

use bytemuck::Pod;

use super::backend::{AnyReceiveBuffer, AnySendBuffer, Backend, In, ReceiveStaging, SendStaging, on, own};
use super::{Buffer, Lane, Launch, Window, fault};
use crate::Result;

/// Where the elements of an array arrive on the host.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    staging: AnySendBuffer,
    /// Number of the lane that made it.
    lane: u32,
}

impl SendBuffer {
    /// The backend's own staging.
    pub(super) fn of<B: Backend>(&self, _: &B) -> &B::SendBuffer {
        own(&self.staging)
    }
}

/// Where elements of the host wait for their place in an array.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    staging: AnyReceiveBuffer,
    bytes: usize,
    /// Number of the lane that made it.
    lane: u32,
}

impl ReceiveBuffer {
    /// The backend's own staging.
    pub(super) fn of<B: Backend>(&self, _: &B) -> &B::ReceiveBuffer {
        own(&self.staging)
    }
}

/// Work for a lane, done in this order.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Filled buffers to be emptied into their arrays before the launches.
    pub(crate) receives: Vec<&'a ReceiveBuffer>,
    /// Launches, each with its step counted from the batch's first, ascending.
    pub(crate) launches: Vec<(u64, &'a Launch)>,
    /// Buffers to be filled from their arrays.
    pub(crate) sends: Vec<&'a SendBuffer>,
    /// Whether what is filled after this batch was given goes to places that its launches read.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "other lanes keep the order by themselves"))]
    pub(crate) before_receives: bool,
}

impl Lane {
    /// A buffer for all elements of `source`.
    pub(crate) fn send_buffer<T: Pod>(&self, source: &Buffer<T>) -> Result<SendBuffer> {
        self.send_buffer_in(source, None)
    }

    /// A buffer for all elements of `source`, from which another process takes them in the window, if there is one.
    pub(crate) fn send_buffer_in<'a, T: Pod>(
        &self,
        source: &Buffer<T>,
        window: impl Into<Option<&'a Arc<Window>>>,
    ) -> Result<SendBuffer> {
        self.place(source, 0, source.len);
        let (memory, bytes, window) = (&source.memory, source.bytes(), window.into());
        let staging = on!(self, lane => new_send(lane, own(memory), bytes, window))?;
        Ok(SendBuffer { staging, lane: self.number() })
    }

    /// A buffer for `len` elements of `target` from element `first` on.
    pub(crate) fn receive_buffer<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
    ) -> Result<ReceiveBuffer> {
        self.receive_buffer_in(target, first, len, None)
    }

    /// A buffer for `len` elements of `target` from element `first` on, which another process lays in the window, if
    /// there is one.
    pub(crate) fn receive_buffer_in<'a, T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
        window: impl Into<Option<&'a Arc<Window>>>,
    ) -> Result<ReceiveBuffer> {
        let at = self.place(target, first, len);
        let (memory, bytes, window) = (&target.memory, len * size_of::<T>(), window.into());
        let staging = on!(self, lane => new_receive(lane, own(memory), at, bytes as u64, window))?;
        Ok(ReceiveBuffer { staging, bytes, lane: self.number() })
    }

    /// Gives the lane a batch whose first step is `first`. A device works on it while the host goes on; the CPU has done
    /// it on return.
    pub(crate) fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()> {
        let receives = batch.receives.iter().map(|received| received.lane);
        receives.chain(batch.sends.iter().map(|sent| sent.lane)).for_each(|lane| self.assert_transfer(lane));
        batch.launches.iter().for_each(|(_, launch)| self.assert_own("a launch", launch.lane));
        match fault::steps(self.device(), 1) {
            Some((_, lost)) => Err(lost),
            None => on!(self, lane => lane.submit(batch, first)),
        }
    }

    #[track_caller]
    fn assert_transfer(&self, lane: u32) {
        self.assert_own("a buffer of a transfer", lane);
    }

    /// Waits for the batch that filled a buffer, and empties it into `values`.
    pub(crate) fn read_sent<T: Pod>(&self, sent: &SendBuffer, values: &mut [T]) -> Result<()> {
        let values: &mut [u8] = bytemuck::cast_slice_mut(values);
        self.show_sent(sent, values.len(), |bytes| {
            values.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Waits for the batch that filled a buffer, and shows its first `bytes` to `take`.
    fn show_sent(
        &self,
        sent: &SendBuffer,
        bytes: usize,
        take: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.assert_transfer(sent.lane);
        on!(self, lane => sent.of(lane).read(lane, bytes, take))
    }

    /// Fills a buffer, for a later batch to empty.
    pub(crate) fn write_received<T: Pod>(&self, received: &ReceiveBuffer, values: &[T]) -> Result<()> {
        self.assert_transfer(received.lane);
        let values: &[u8] = bytemuck::cast_slice(values);
        assert_eq!(values.len(), received.bytes, "a buffer of a transfer is filled whole");
        on!(self, lane => received.of(lane).write(lane, values))
    }

    /// Whether [`Lane::copy_direct`] leads from this lane to another.
    pub(crate) fn can_copy_direct(&self, reader: &Self) -> bool {
        self.device().mapped_staging && reader.device().mapped_staging
    }

    /// Waits for the batch that filled a buffer, and fills one of another lane from it, which that lane has emptied.
    pub(crate) fn copy_direct(
        &self,
        sent: &SendBuffer,
        reader: &Self,
        received: &ReceiveBuffer,
    ) -> Result<()> {
        assert!(self.can_copy_direct(reader), "lanes are asked whether they copy straight to one another");
        self.show_sent(sent, received.bytes, |values| reader.write_received(received, values))
    }

    /// Waits for the batch that filled a buffer for the exchange of that number, whose values then lie in the window.
    pub(crate) fn send_to_window(&self, sent: &SendBuffer, window: &Window, exchange: u64) -> Result<()> {
        self.assert_transfer(sent.lane);
        match on!(self, lane => sent.of(lane).wait_in_window(lane))? {
            true => Ok(()),
            false => window.slot(exchange, |slot| self.read_sent::<u8>(sent, slot)),
        }
    }

    /// Fills a buffer with what the window has of the exchange of that number.
    pub(crate) fn receive_from_window(
        &self,
        received: &ReceiveBuffer,
        window: &Window,
        exchange: u64,
    ) -> Result<()> {
        self.assert_transfer(received.lane);
        match on!(self, lane => received.of(lane).take_from_window(lane, exchange))? {
            true => Ok(()),
            false => window.slot(exchange, |slot| self.write_received::<u8>(received, slot)),
        }
    }
}

fn new_send<B: Backend>(
    lane: &B,
    source: &B::Memory,
    bytes: u64,
    window: Option<&Arc<Window>>,
) -> Result<AnySendBuffer> {
    B::SendBuffer::new(lane, source, bytes, window).map(In::any)
}

fn new_receive<B: Backend>(
    lane: &B,
    target: &B::Memory,
    at: u64,
    bytes: u64,
    window: Option<&Arc<Window>>,
) -> Result<AnyReceiveBuffer> {
    B::ReceiveBuffer::new(lane, target, at, bytes, window).map(In::any)
}
