//! Values that leave and enter a lane within a long loop: staging that is made once, and batches of work that nobody
//! waits for.

use std::sync::Arc;

use bytemuck::Pod;

#[cfg(feature = "wgpu")]
use super::Prepared;
use super::{Buffer, Lane, Launch, Program, Queue, Store, Window, cpu, fault};
use crate::Result;

/// Where the elements of an array arrive on the host.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    staging: Out,
    /// Number of the lane that made it.
    lane: u32,
}

#[derive(Debug)]
enum Out {
    /// The CPU's memory is the host's.
    Cpu(Arc<cpu::Memory>),
    #[cfg(feature = "wgpu")]
    Wgpu(super::wgpu::SendBuffer),
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::SendBuffer),
}

/// Where elements of the host wait for their place in an array.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    staging: In,
    /// Number of the lane that made it.
    lane: u32,
}

#[derive(Debug)]
enum In {
    Cpu(Arc<cpu::Memory>, usize),
    #[cfg(feature = "wgpu")]
    Wgpu(super::wgpu::ReceiveBuffer),
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::ReceiveBuffer),
}

/// Work for a lane, done in this order.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Filled boxes to be emptied into their arrays before the launches.
    pub(crate) receives: Vec<&'a ReceiveBuffer>,
    /// Launches, each with its step counted from the batch's first, ascending.
    pub(crate) launches: Vec<(u64, &'a Launch)>,
    /// Boxes to be filled from their arrays.
    pub(crate) sends: Vec<&'a SendBuffer>,
    /// Whether what is filled after this batch was given goes to places that its launches read.
    pub(crate) before_receives: bool,
}

impl Lane {
    /// Allocates `len` zeroed elements that kernels store and the host reads: see [`Self::send_buffer`].
    ///
    /// # Errors
    /// As [`Lane::alloc`].
    pub(crate) fn alloc_for_send<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        #[cfg(feature = "wgpu")]
        if let Queue::Wgpu(lane) = &self.queue {
            let leaving = |bytes| lane.alloc_for_send(bytes).map_err(|e| super::named(e, what));
            return self.charged(what, len, |bytes| Ok(Store::Wgpu(leaving(bytes)?)));
        }
        self.alloc(what, len)
    }

    /// A box for all elements of `source`.
    pub(crate) fn send_buffer<T: Pod>(&self, source: &Buffer<T>) -> Result<SendBuffer> {
        self.assert_own("an array", source.charge.budget.lane);
        let staging = match (&self.queue, &source.store) {
            (Queue::Cpu(_), Store::Cpu(memory)) => Out::Cpu(memory.clone()),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => {
                Out::Wgpu(super::wgpu::SendBuffer::new(lane, buffer, source.bytes())?)
            }
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => {
                Out::Cuda(super::cuda::SendBuffer::new(lane, memory, source.bytes())?)
            }
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        };
        Ok(SendBuffer { staging, lane: self.budget.lane })
    }

    /// A box for all elements of `source`, from which another process takes them in a window.
    pub(crate) fn send_buffer_in<T: Pod>(
        &self,
        source: &Buffer<T>,
        window: &Arc<Window>,
    ) -> Result<SendBuffer> {
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), Store::Cuda(memory)) = (&self.queue, &source.store)
            && let Some(send_buffer) = super::cuda::SendBuffer::over(lane, memory, window)?
        {
            self.assert_own("an array", source.charge.budget.lane);
            return Ok(SendBuffer { staging: Out::Cuda(send_buffer), lane: self.budget.lane });
        }
        let _ = window;
        self.send_buffer(source)
    }

    /// A box for `len` elements of `target` from element `first` on, which another process lays in a window.
    pub(crate) fn receive_buffer_in<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
        window: &Arc<Window>,
    ) -> Result<ReceiveBuffer> {
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), Store::Cuda(memory)) = (&self.queue, &target.store) {
            assert!(first + len <= target.len, "{len} elements at {first} of {}", target.len);
            let at = (first * size_of::<T>()) as u64;
            if let Some(receive_buffer) = super::cuda::ReceiveBuffer::over(lane, memory, at, window)? {
                self.assert_own("an array", target.charge.budget.lane);
                return Ok(ReceiveBuffer { staging: In::Cuda(receive_buffer), lane: self.budget.lane });
            }
        }
        let _ = window;
        self.receive_buffer(target, first, len)
    }

    /// Waits for the batch that filled a box for the exchange of that number, whose values then lie in the window.
    pub(crate) fn send_to_window(
        &self,
        send_buffer: &SendBuffer,
        window: &Window,
        exchange: u64,
    ) -> Result<()> {
        self.assert_own("a buffer of a transfer", send_buffer.lane);
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), Out::Cuda(send_buffer)) = (&self.queue, &send_buffer.staging)
            && send_buffer.is_over()
        {
            return send_buffer.reached(lane);
        }
        window.slot(exchange, |slot| self.read_sent::<u8>(send_buffer, slot))
    }

    /// Fills a box with what the window has of the exchange of that number.
    pub(crate) fn receive_from_window(
        &self,
        receive_buffer: &ReceiveBuffer,
        window: &Window,
        exchange: u64,
    ) -> Result<()> {
        self.assert_own("a buffer of a transfer", receive_buffer.lane);
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), In::Cuda(receive_buffer)) = (&self.queue, &receive_buffer.staging)
            && receive_buffer.is_over()
        {
            return receive_buffer.take(lane, exchange);
        }
        window.slot(exchange, |slot| self.write_received::<u8>(receive_buffer, slot))
    }

    /// A box for `len` elements of `target` from element `first` on.
    pub(crate) fn receive_buffer<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
    ) -> Result<ReceiveBuffer> {
        assert!(first + len <= target.len, "{len} elements at {first} of {}", target.len);
        let at = first * size_of::<T>();
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        let bytes = (len * size_of::<T>()) as u64;
        self.assert_own("an array", target.charge.budget.lane);
        let staging = match (&self.queue, &target.store) {
            (Queue::Cpu(_), Store::Cpu(memory)) => In::Cpu(memory.clone(), at),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => {
                In::Wgpu(super::wgpu::ReceiveBuffer::new(lane, buffer, at as u64, bytes)?)
            }
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => {
                In::Cuda(super::cuda::ReceiveBuffer::new(lane, memory, at as u64, bytes)?)
            }
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        };
        Ok(ReceiveBuffer { staging, lane: self.budget.lane })
    }

    /// Gives the lane a batch whose first step is `first`. A device works on it while the host goes on; the CPU has done
    /// it on return.
    pub(crate) fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()> {
        let boxes = batch.receives.iter().map(|receive_buffer| receive_buffer.lane);
        boxes
            .chain(batch.sends.iter().map(|o| o.lane))
            .for_each(|lane| self.assert_own("a buffer of a transfer", lane));
        batch.launches.iter().for_each(|(_, launch)| self.assert_own("a launch", launch.lane));
        if let Some((_, lost)) = fault::steps(self.device(), 1) {
            return Err(lost);
        }
        match &self.queue {
            Queue::Cpu(lane) => {
                // Its boxes are the arrays themselves: filling and collecting is all.
                let _ = (&batch.receives, &batch.sends, batch.before_receives);
                for step in batch.launches.chunk_by(|a, b| a.0 == b.0) {
                    let program = Program { cycle: vec![step.iter().map(|&(_, launch)| launch).collect()] };
                    lane.run(&program, first + step[0].0, 1, &mut |_| Ok(()))?;
                }
                Ok(())
            }
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => {
                let receives = batch.receives.iter().map(|receive_buffer| match &receive_buffer.staging {
                    In::Wgpu(receive_buffer) => receive_buffer,
                    _ => unreachable!("a send or receive buffer is used on the lane that made it"),
                });
                let launches = batch.launches.iter().map(|&(step, launch)| match &launch.prepared {
                    Prepared::Wgpu(launch) => (first + step, launch),
                    _ => unreachable!("a launch runs on the lane that made it"),
                });
                let sends = batch.sends.iter().map(|send_buffer| match &send_buffer.staging {
                    Out::Wgpu(send_buffer) => send_buffer,
                    _ => unreachable!("a send or receive buffer is used on the lane that made it"),
                });
                lane.enqueue(receives, launches, sends)
            }
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => {
                for receive_buffer in &batch.receives {
                    match &receive_buffer.staging {
                        In::Cuda(receive_buffer) => receive_buffer.deliver(lane)?,
                        _ => unreachable!("a send or receive buffer is used on the lane that made it"),
                    }
                }
                for &(step, launch) in &batch.launches {
                    lane.enqueue(super::Side::Main, [launch], first + step)?;
                }
                if batch.before_receives {
                    lane.fence()?;
                }
                for send_buffer in &batch.sends {
                    match &send_buffer.staging {
                        Out::Cuda(send_buffer) => send_buffer.send(lane)?,
                        _ => unreachable!("a send or receive buffer is used on the lane that made it"),
                    }
                }
                Ok(())
            }
        }
    }

    /// Waits for the batch that filled a box, and empties it into `values`.
    pub(crate) fn read_sent<T: Pod>(&self, send_buffer: &SendBuffer, values: &mut [T]) -> Result<()> {
        self.assert_own("a buffer of a transfer", send_buffer.lane);
        let values = bytemuck::cast_slice_mut(values);
        match (&self.queue, &send_buffer.staging) {
            (Queue::Cpu(lane), Out::Cpu(memory)) => {
                lane.download(memory, 0, values);
                Ok(())
            }
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Out::Wgpu(send_buffer)) => send_buffer.collect(lane, values),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Out::Cuda(send_buffer)) => send_buffer.collect(lane, values),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("a send or receive buffer is used on the lane that made it"),
        }
    }

    /// Whether [`Lane::hand_over`] leads from this lane to another.
    pub(crate) fn can_copy_direct(&self, reader: &Self) -> bool {
        match (&self.queue, &reader.queue) {
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(_), Queue::Wgpu(_)) => true,
            _ => false,
        }
    }

    /// Waits for the batch that filled a box, and fills one of another lane from it, which that lane has emptied.
    pub(crate) fn copy_direct(
        &self,
        send_buffer: &SendBuffer,
        reader: &Self,
        receive_buffer: &ReceiveBuffer,
    ) -> Result<()> {
        self.assert_own("a buffer of a transfer", send_buffer.lane);
        reader.assert_own("a buffer of a transfer", receive_buffer.lane);
        match (&self.queue, &send_buffer.staging, &reader.queue, &receive_buffer.staging) {
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Out::Wgpu(send_buffer), Queue::Wgpu(reader), In::Wgpu(receive_buffer)) => {
                send_buffer.hand_over(lane, reader, receive_buffer)
            }
            _ => unreachable!("lanes are asked whether they hand over"),
        }
    }

    /// Fills a box, for a later batch to empty.
    pub(crate) fn write_received<T: Pod>(&self, receive_buffer: &ReceiveBuffer, values: &[T]) -> Result<()> {
        self.assert_own("a buffer of a transfer", receive_buffer.lane);
        let values = bytemuck::cast_slice(values);
        match (&self.queue, &receive_buffer.staging) {
            (Queue::Cpu(lane), In::Cpu(memory, at)) => {
                lane.upload(values, memory, *at);
                Ok(())
            }
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), In::Wgpu(receive_buffer)) => receive_buffer.fill(lane, values),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), In::Cuda(receive_buffer)) => receive_buffer.fill(lane, values),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("a send or receive buffer is used on the lane that made it"),
        }
    }

    /// Begins to note when the device begins and ends batches, if it can.
    pub fn trace(&self) {
        #[cfg(feature = "wgpu")]
        if let Queue::Wgpu(lane) = &self.queue {
            lane.trace();
        }
    }

    /// Seconds at which batches began and ended since [`Lane::trace`], the first of them at 0.
    pub fn traced(&self) -> Result<Vec<(f64, f64)>> {
        match &self.queue {
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => lane.traced(),
            _ => Ok(Vec::new()),
        }
    }

    /// Waits for everything that the lane was given: what [`Lane::submit`], [`Lane::send`], [`Lane::enqueue`] and
    /// [`Lane::fetch`] put into its queue.
    pub fn finish(&self) -> Result<()> {
        match &self.queue {
            Queue::Cpu(_) => Ok(()),
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => lane.finish(),
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => lane.finish(),
        }
    }
}
