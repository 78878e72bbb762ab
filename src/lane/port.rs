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
pub(crate) struct Outbox {
    staging: Out,
    /// Number of the lane that made it.
    lane: u32,
}

#[derive(Debug)]
enum Out {
    /// The CPU's memory is the host's.
    Cpu(Arc<cpu::Memory>),
    #[cfg(feature = "wgpu")]
    Wgpu(super::wgpu::Outbox),
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::Outbox),
}

/// Where elements of the host wait for their place in an array.
#[derive(Debug)]
pub(crate) struct Inbox {
    staging: In,
    /// Number of the lane that made it.
    lane: u32,
}

#[derive(Debug)]
enum In {
    Cpu(Arc<cpu::Memory>, usize),
    #[cfg(feature = "wgpu")]
    Wgpu(super::wgpu::Inbox),
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::Inbox),
}

/// Work for a lane, done in this order.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// Filled boxes to be emptied into their arrays before the launches.
    pub(crate) arrivals: Vec<&'a Inbox>,
    /// Launches, each with its step counted from the batch's first, ascending.
    pub(crate) launches: Vec<(u64, &'a Launch)>,
    /// Boxes to be filled from their arrays.
    pub(crate) departures: Vec<&'a Outbox>,
    /// Whether what is filled after this batch was given goes to places that its launches read.
    pub(crate) before_arrivals: bool,
}

impl Lane {
    /// Allocates `len` zeroed elements that kernels store and the host reads: see [`Self::outbox`].
    ///
    /// # Errors
    /// As [`Lane::alloc`].
    pub(crate) fn alloc_leaving<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        #[cfg(feature = "wgpu")]
        if let Queue::Wgpu(lane) = &self.queue {
            let leaving = |bytes| lane.alloc_leaving(bytes).map_err(|e| super::named(e, what));
            return self.charged(what, len, |bytes| Ok(Store::Wgpu(leaving(bytes)?)));
        }
        self.alloc(what, len)
    }

    /// A box for all elements of `source`.
    pub(crate) fn outbox<T: Pod>(&self, source: &Buffer<T>) -> Result<Outbox> {
        self.assert_own("an array", source.charge.budget.lane);
        let staging = match (&self.queue, &source.store) {
            (Queue::Cpu(_), Store::Cpu(memory)) => Out::Cpu(memory.clone()),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => {
                Out::Wgpu(super::wgpu::Outbox::new(lane, buffer, source.bytes())?)
            }
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => {
                Out::Cuda(super::cuda::Outbox::new(lane, memory, source.bytes())?)
            }
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        };
        Ok(Outbox { staging, lane: self.budget.lane })
    }

    /// A box for all elements of `source`, from which another process takes them in a window.
    pub(crate) fn outbox_over<T: Pod>(&self, source: &Buffer<T>, window: &Arc<Window>) -> Result<Outbox> {
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), Store::Cuda(memory)) = (&self.queue, &source.store)
            && let Some(outbox) = super::cuda::Outbox::over(lane, memory, window)?
        {
            self.assert_own("an array", source.charge.budget.lane);
            return Ok(Outbox { staging: Out::Cuda(outbox), lane: self.budget.lane });
        }
        let _ = window;
        self.outbox(source)
    }

    /// A box for `len` elements of `target` from element `first` on, which another process lays in a window.
    pub(crate) fn inbox_over<T: Pod>(
        &self,
        target: &Buffer<T>,
        first: usize,
        len: usize,
        window: &Arc<Window>,
    ) -> Result<Inbox> {
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), Store::Cuda(memory)) = (&self.queue, &target.store) {
            assert!(first + len <= target.len, "{len} elements at {first} of {}", target.len);
            let at = (first * size_of::<T>()) as u64;
            if let Some(inbox) = super::cuda::Inbox::over(lane, memory, at, window)? {
                self.assert_own("an array", target.charge.budget.lane);
                return Ok(Inbox { staging: In::Cuda(inbox), lane: self.budget.lane });
            }
        }
        let _ = window;
        self.inbox(target, first, len)
    }

    /// Waits for the batch that filled a box for the exchange of that number, whose values then lie in the window.
    pub(crate) fn collect_in(&self, outbox: &Outbox, window: &Window, exchange: u64) -> Result<()> {
        self.assert_own("a box", outbox.lane);
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), Out::Cuda(outbox)) = (&self.queue, &outbox.staging)
            && outbox.is_over()
        {
            return outbox.reached(lane);
        }
        window.slot(exchange, |slot| self.collect::<u8>(outbox, slot))
    }

    /// Fills a box with what the window has of the exchange of that number.
    pub(crate) fn fill_from(&self, inbox: &Inbox, window: &Window, exchange: u64) -> Result<()> {
        self.assert_own("a box", inbox.lane);
        #[cfg(feature = "cuda")]
        if let (Queue::Cuda(lane), In::Cuda(inbox)) = (&self.queue, &inbox.staging)
            && inbox.is_over()
        {
            return inbox.take(lane, exchange);
        }
        window.slot(exchange, |slot| self.fill::<u8>(inbox, slot))
    }

    /// A box for `len` elements of `target` from element `first` on.
    pub(crate) fn inbox<T: Pod>(&self, target: &Buffer<T>, first: usize, len: usize) -> Result<Inbox> {
        assert!(first + len <= target.len, "{len} elements at {first} of {}", target.len);
        let at = first * size_of::<T>();
        #[cfg(any(feature = "wgpu", feature = "cuda"))]
        let bytes = (len * size_of::<T>()) as u64;
        self.assert_own("an array", target.charge.budget.lane);
        let staging = match (&self.queue, &target.store) {
            (Queue::Cpu(_), Store::Cpu(memory)) => In::Cpu(memory.clone(), at),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => {
                In::Wgpu(super::wgpu::Inbox::new(lane, buffer, at as u64, bytes)?)
            }
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => {
                In::Cuda(super::cuda::Inbox::new(lane, memory, at as u64, bytes)?)
            }
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        };
        Ok(Inbox { staging, lane: self.budget.lane })
    }

    /// Gives the lane a batch whose first step is `first`. A device works on it while the host goes on; the CPU has done
    /// it on return.
    pub(crate) fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()> {
        let boxes = batch.arrivals.iter().map(|inbox| inbox.lane);
        boxes.chain(batch.departures.iter().map(|o| o.lane)).for_each(|lane| self.assert_own("a box", lane));
        batch.launches.iter().for_each(|(_, launch)| self.assert_own("a launch", launch.lane));
        if let Some((_, lost)) = fault::steps(self.device(), 1) {
            return Err(lost);
        }
        match &self.queue {
            Queue::Cpu(lane) => {
                // Its boxes are the arrays themselves: filling and collecting is all.
                let _ = (&batch.arrivals, &batch.departures, batch.before_arrivals);
                for step in batch.launches.chunk_by(|a, b| a.0 == b.0) {
                    let program = Program { cycle: vec![step.iter().map(|&(_, launch)| launch).collect()] };
                    lane.run(&program, first + step[0].0, 1, &mut |_| Ok(()))?;
                }
                Ok(())
            }
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => {
                let arrivals = batch.arrivals.iter().map(|inbox| match &inbox.staging {
                    In::Wgpu(inbox) => inbox,
                    _ => unreachable!("a box is used on the lane that made it"),
                });
                let launches = batch.launches.iter().map(|&(step, launch)| match &launch.prepared {
                    Prepared::Wgpu(launch) => (first + step, launch),
                    _ => unreachable!("a launch runs on the lane that made it"),
                });
                let departures = batch.departures.iter().map(|outbox| match &outbox.staging {
                    Out::Wgpu(outbox) => outbox,
                    _ => unreachable!("a box is used on the lane that made it"),
                });
                lane.enqueue(arrivals, launches, departures)
            }
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => {
                for inbox in &batch.arrivals {
                    match &inbox.staging {
                        In::Cuda(inbox) => inbox.deliver(lane)?,
                        _ => unreachable!("a box is used on the lane that made it"),
                    }
                }
                for &(step, launch) in &batch.launches {
                    lane.enqueue(super::Side::Main, [launch], first + step)?;
                }
                if batch.before_arrivals {
                    lane.fence()?;
                }
                for outbox in &batch.departures {
                    match &outbox.staging {
                        Out::Cuda(outbox) => outbox.send(lane)?,
                        _ => unreachable!("a box is used on the lane that made it"),
                    }
                }
                Ok(())
            }
        }
    }

    /// Waits for the batch that filled a box, and empties it into `values`.
    pub(crate) fn collect<T: Pod>(&self, outbox: &Outbox, values: &mut [T]) -> Result<()> {
        self.assert_own("a box", outbox.lane);
        let values = bytemuck::cast_slice_mut(values);
        match (&self.queue, &outbox.staging) {
            (Queue::Cpu(lane), Out::Cpu(memory)) => {
                lane.download(memory, 0, values);
                Ok(())
            }
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Out::Wgpu(outbox)) => outbox.collect(lane, values),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Out::Cuda(outbox)) => outbox.collect(lane, values),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("a box is used on the lane that made it"),
        }
    }

    /// Whether [`Lane::hand_over`] leads from this lane to another.
    pub(crate) fn hands_over(&self, reader: &Self) -> bool {
        match (&self.queue, &reader.queue) {
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(_), Queue::Wgpu(_)) => true,
            _ => false,
        }
    }

    /// Waits for the batch that filled a box, and fills one of another lane from it, which that lane has emptied.
    pub(crate) fn hand_over(&self, outbox: &Outbox, reader: &Self, inbox: &Inbox) -> Result<()> {
        self.assert_own("a box", outbox.lane);
        reader.assert_own("a box", inbox.lane);
        match (&self.queue, &outbox.staging, &reader.queue, &inbox.staging) {
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Out::Wgpu(outbox), Queue::Wgpu(reader), In::Wgpu(inbox)) => {
                outbox.hand_over(lane, reader, inbox)
            }
            _ => unreachable!("lanes are asked whether they hand over"),
        }
    }

    /// Fills a box, for a later batch to empty.
    pub(crate) fn fill<T: Pod>(&self, inbox: &Inbox, values: &[T]) -> Result<()> {
        self.assert_own("a box", inbox.lane);
        let values = bytemuck::cast_slice(values);
        match (&self.queue, &inbox.staging) {
            (Queue::Cpu(lane), In::Cpu(memory, at)) => {
                lane.upload(values, memory, *at);
                Ok(())
            }
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), In::Wgpu(inbox)) => inbox.fill(lane, values),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), In::Cuda(inbox)) => inbox.fill(lane, values),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("a box is used on the lane that made it"),
        }
    }

    /// Begins to note when the device begins and ends batches, if it can.
    pub(crate) fn trace(&self) {
        #[cfg(feature = "wgpu")]
        if let Queue::Wgpu(lane) = &self.queue {
            lane.trace();
        }
    }

    /// Seconds at which batches began and ended since [`Lane::trace`], the first of them at 0.
    pub(crate) fn traced(&self) -> Result<Vec<(f64, f64)>> {
        match &self.queue {
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => lane.traced(),
            _ => Ok(Vec::new()),
        }
    }

    /// Waits for everything that the lane was given: what [`Lane::submit`], [`Lane::send`], [`Lane::enqueue`] and
    /// [`Lane::fetch`] put into its queue.
    pub(crate) fn finish(&self) -> Result<()> {
        match &self.queue {
            Queue::Cpu(_) => Ok(()),
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => lane.finish(),
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => lane.finish(),
        }
    }
}
