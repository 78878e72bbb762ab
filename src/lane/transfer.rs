//! Values that leave and enter a lane within a long loop: staging that is made once, and batches of work that nobody
//! waits for.

use std::sync::Arc;

use bytemuck::Pod;

use super::backend::{AnyReceiveBuffer, AnySendBuffer, Backend, In, on, own};
use super::{Buffer, Lane, Launch, Window, fault};
use crate::Result;

/// Where the elements of an array arrive on the host.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    pub(super) staging: AnySendBuffer,
    /// Number of the lane that made it.
    lane: u32,
}

/// Where elements of the host wait for their place in an array.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    pub(super) staging: AnyReceiveBuffer,
    bytes: usize,
    /// Number of the lane that made it.
    lane: u32,
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
    pub(crate) before_receives: bool,
}

impl Lane {
    /// A buffer for all elements of `source`.
    pub(crate) fn send_buffer<T: Pod>(&self, source: &Buffer<T>) -> Result<SendBuffer> {
        self.send_buffer_over(source, None)
    }

    /// A buffer for all elements of `source`, from which another process takes them in a window.
    pub(crate) fn send_buffer_in<T: Pod>(
        &self,
        source: &Buffer<T>,
        window: &Arc<Window>,
    ) -> Result<SendBuffer> {
        self.send_buffer_over(source, Some(window))
    }

    fn send_buffer_over<T: Pod>(
        &self,
        source: &Buffer<T>,
        window: Option<&Arc<Window>>,
    ) -> Result<SendBuffer> {
        self.place(source, 0, source.len);
        let (memory, bytes) = (&source.memory, source.bytes());
        let staging = on!(self, lane => lane.send_buffer(own(memory), bytes, window)?.any());
        Ok(SendBuffer { staging, lane: self.number() })
    }

    /// A buffer for `len` elements of `target` from element `first` on.
    pub(crate) fn receive_buffer<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
    ) -> Result<ReceiveBuffer> {
        self.receive_buffer_over(target, first, len, None)
    }

    /// A buffer for `len` elements of `target` from element `first` on, which another process lays in a window.
    pub(crate) fn receive_buffer_in<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
        window: &Arc<Window>,
    ) -> Result<ReceiveBuffer> {
        self.receive_buffer_over(target, first, len, Some(window))
    }

    fn receive_buffer_over<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
        window: Option<&Arc<Window>>,
    ) -> Result<ReceiveBuffer> {
        let (at, bytes, memory) = (self.place(target, first, len), len * size_of::<T>(), &target.memory);
        let staging = on!(self, lane => lane.receive_buffer(own(memory), at, bytes as u64, window)?.any());
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
        self.assert_transfer(sent.lane);
        let values: &mut [u8] = bytemuck::cast_slice_mut(values);
        on!(self, lane => lane.read_sent(own(&sent.staging), values.len(), |bytes| {
            values.copy_from_slice(bytes);
            Ok(())
        }))
    }

    /// Fills a buffer, for a later batch to empty.
    pub(crate) fn write_received<T: Pod>(&self, received: &ReceiveBuffer, values: &[T]) -> Result<()> {
        self.assert_transfer(received.lane);
        let values: &[u8] = bytemuck::cast_slice(values);
        assert_eq!(values.len(), received.bytes, "a buffer of a transfer is filled whole");
        on!(self, lane => lane.write_received(own(&received.staging), values))
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
        self.assert_transfer(sent.lane);
        let bytes = received.bytes;
        on!(self, lane => lane.read_sent(own(&sent.staging), bytes, |values| reader.write_received(received, values)))
    }

    /// Waits for the batch that filled a buffer for the exchange of that number, whose values then lie in the window.
    pub(crate) fn send_to_window(&self, sent: &SendBuffer, window: &Window, exchange: u64) -> Result<()> {
        self.assert_transfer(sent.lane);
        on!(self, lane => lane.send_to_window(own(&sent.staging), window, exchange))
    }

    /// Fills a buffer with what the window has of the exchange of that number.
    pub(crate) fn receive_from_window(
        &self,
        received: &ReceiveBuffer,
        window: &Window,
        exchange: u64,
    ) -> Result<()> {
        self.assert_transfer(received.lane);
        on!(self, lane => lane.receive_from_window(own(&received.staging), window, exchange))
    }
}
