//! Values that leave and enter a lane within a long loop.
//!
//! Buffers are allocated once. Batches of work are submitted without waiting for them.

use bytemuck::Pod;

use super::backend::{Backend, ReceiveStaging, SendStaging};
use super::backends::on;
use super::object::AnyObject;
use super::{Buffer, Lane, LaneBatch, ReceiveBuffer, SendBuffer, fault_injection};
use crate::Result;

impl Lane {
    /// Makes a buffer for all elements of `source`.
    pub(crate) fn send_buffer<T: Pod>(&self, source: &Buffer<T>) -> Result<SendBuffer> {
        self.place(source, 0, source.len);
        let (memory, bytes) = (&source.memory, source.bytes());
        let staging = on!(self, lane => new_send(lane, memory.own(), bytes))?;
        Ok(SendBuffer { staging, lane: self.number() })
    }

    /// Makes a buffer for `len` elements of `target` from element `first` on.
    pub(crate) fn receive_buffer<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
    ) -> Result<ReceiveBuffer> {
        let at = self.place(target, first, len);
        let (memory, bytes) = (&target.memory, len * size_of::<T>());
        let staging = on!(self, lane => new_receive(lane, memory.own(), at, bytes as u64))?;
        Ok(ReceiveBuffer { staging, bytes, lane: self.number() })
    }

    /// Submits a batch, of which `first` is the first step. Only a CPU lane completes it on return.
    pub(crate) fn submit(&self, batch: &LaneBatch<'_>, first: u64) -> Result<()> {
        let receives = batch.receives.iter().map(|received| received.lane);
        receives.chain(batch.sends.iter().map(|sent| sent.lane)).for_each(|lane| self.assert_transfer(lane));
        batch.launches.iter().for_each(|(_, launch)| self.assert_own("a launch", launch.lane));
        match fault_injection::steps(self.device(), 1) {
            Some((_, lost)) => Err(lost),
            None => on!(self, lane => lane.submit(batch, first)),
        }
    }

    #[track_caller]
    fn assert_transfer(&self, lane: u32) {
        self.assert_own("a buffer of a transfer", lane);
    }

    /// Waits for the batch that filled a buffer, and copies the buffer to `values`.
    pub(crate) fn read_sent<T: Pod>(&self, sent: &SendBuffer, values: &mut [T]) -> Result<()> {
        let values: &mut [u8] = bytemuck::cast_slice_mut(values);
        self.show_sent(sent, values.len(), |bytes| {
            values.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Waits for the batch that filled a buffer, and passes its first `bytes` to `take`.
    fn show_sent(
        &self,
        sent: &SendBuffer,
        bytes: usize,
        take: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.assert_transfer(sent.lane);
        on!(self, lane => lane.sent(sent).read(lane, bytes, take))
    }

    /// Fills a buffer with values that a later batch copies into the array.
    pub(crate) fn write_received<T: Pod>(&self, received: &ReceiveBuffer, values: &[T]) -> Result<()> {
        self.assert_transfer(received.lane);
        let values: &[u8] = bytemuck::cast_slice(values);
        assert_eq!(values.len(), received.bytes, "a buffer of a transfer is filled whole");
        on!(self, lane => lane.received(received).write(lane, values))
    }

    /// Returns true if [`Lane::copy_direct`] is possible from this lane to `reader`.
    pub(crate) fn can_copy_direct(&self, reader: &Self) -> bool {
        self.device().mapped_staging && reader.device().mapped_staging
    }

    /// Waits for the batch that filled `sent`, and copies it to `received` of lane `reader`. The
    /// last values of `received` must have been copied into its array.
    pub(crate) fn copy_direct(
        &self,
        sent: &SendBuffer,
        reader: &Self,
        received: &ReceiveBuffer,
    ) -> Result<()> {
        assert!(self.can_copy_direct(reader), "the copying lanes have direct access");
        self.show_sent(sent, received.bytes, |values| reader.write_received(received, values))
    }
}

fn new_send<B: Backend>(lane: &B, source: &B::Memory, bytes: u64) -> Result<AnyObject> {
    B::SendBuffer::new(lane, source, bytes).map(AnyObject::new)
}

fn new_receive<B: Backend>(lane: &B, target: &B::Memory, at: u64, bytes: u64) -> Result<AnyObject> {
    B::ReceiveBuffer::new(lane, target, at, bytes).map(AnyObject::new)
}
