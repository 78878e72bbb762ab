//! Arrays on the host that a device copies from and to by itself, or works in.

#![expect(unsafe_code, reason = "memory of a CPU lane, which the host looks into")]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;
use rayon::prelude::*;

#[cfg(feature = "cuda")]
use super::cuda;
use super::{Buffer, Lane, Launch, Queue, Store, cpu};
use crate::Result;

/// Large pages of an array of which threads at work all begin with the same ones.
const FEW_PAGES: usize = 16;

/// An array on the host: page-locked where a CUDA lane made it, so that copies run beside kernels and other copies; a CPU
/// lane's own memory where that lane made it.
#[derive(Debug)]
pub struct HostArray<T> {
    memory: Host<T>,
    element: PhantomData<T>,
}

#[derive(Debug)]
enum Host<T> {
    Plain(Vec<T>),
    Own(Arc<cpu::Memory>),
    #[cfg(feature = "cuda")]
    Locked(cuda::Pinned),
}

impl<T: Pod> HostArray<T> {
    /// A zeroed array that is not page-locked.
    pub fn plain(len: usize) -> Self {
        Self { memory: Host::Plain(vec![T::zeroed(); len]), element: PhantomData }
    }

    /// A zeroed array on large pages where the system has some: gathers from all over it stay within the reach of address
    /// translation, and it is made page by page five hundred times as fast. A CPU lane can take it over.
    pub(crate) fn large(len: usize) -> Self {
        let memory = match cpu::Memory::new(len * size_of::<T>()) {
            Ok(memory) if len > 0 => Host::Own(Arc::new(memory)),
            _ => Host::Plain(vec![T::zeroed(); len]),
        };
        let mut array = Self { memory, element: PhantomData };
        // Threads that begin to write the same large page each make one, and all but one are thrown away: of few pages each
        // is touched by one thread first.
        if size_of_val(&array[..]) <= FEW_PAGES * cpu::LARGE_PAGE {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut array);
            bytes.par_chunks_mut(cpu::LARGE_PAGE).for_each(|page| page[0] = 0);
        }
        array
    }

    /// Whether it is page-locked.
    pub fn locked(&self) -> bool {
        match self.memory {
            Host::Plain(_) | Host::Own(_) => false,
            #[cfg(feature = "cuda")]
            Host::Locked(_) => true,
        }
    }
}

impl<T: Pod> Deref for HostArray<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.memory {
            Host::Plain(values) => values,
            // SAFETY: a lane works in this memory only by the launches of a buffer from `Lane::adopt`, whose caller
            // does not run them while it borrows the array.
            Host::Own(memory) => bytemuck::cast_slice(unsafe { memory.bytes() }),
            #[cfg(feature = "cuda")]
            Host::Locked(memory) => bytemuck::cast_slice(memory.bytes()),
        }
    }
}

impl<T: Pod> DerefMut for HostArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Host::Plain(values) => values,
            // SAFETY: as above, and the array itself is borrowed exclusively.
            Host::Own(memory) => bytemuck::cast_slice_mut(unsafe { memory.bytes_mut() }),
            #[cfg(feature = "cuda")]
            Host::Locked(memory) => bytemuck::cast_slice_mut(memory.bytes_mut()),
        }
    }
}

impl Lane {
    /// A zeroed array on the host, page-locked if this is a CUDA lane.
    ///
    /// # Errors
    /// If the driver does not lock that much memory, or there is less.
    pub fn host_array<T: Pod>(&self, len: usize) -> Result<HostArray<T>> {
        // Nothing is neither locked nor mapped: it has no address.
        if len == 0 {
            return Ok(HostArray::plain(0));
        }
        match &self.queue {
            Queue::Cpu(lane) => {
                let memory = Host::Own(lane.alloc((len * size_of::<T>()) as u64)?);
                Ok(HostArray { memory, element: PhantomData })
            }
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => {
                let memory = Host::Locked(lane.lock_pages((len * size_of::<T>()) as u64)?);
                Ok(HostArray { memory, element: PhantomData })
            }
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(_) => Ok(HostArray::plain(len)),
        }
    }

    /// The array itself as a buffer of this lane, where that is possible: on the CPU lane that made it. Copies between
    /// the two do nothing. As long as the buffer is there, its launches do not run while the array is borrowed.
    ///
    /// # Errors
    /// If the lane's limit does not leave as much.
    pub(crate) fn adopt<T: Pod>(&self, what: &str, array: &HostArray<T>) -> Result<Option<Buffer<T>>> {
        match (&self.queue, &array.memory) {
            (Queue::Cpu(_), Host::Own(memory)) => {
                let (len, store) = (array.len(), Store::Cpu(memory.clone()));
                self.charged(what, len, |_| Ok(store)).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Puts a copy from a [`HostArray`]'s part into the queue. On a CUDA lane it does not wait: until
    /// [`Lane::finish`] the part is neither written nor freed.
    pub fn send<T: Pod>(&self, src: &[T], dst: &Buffer<T>, offset: usize) -> Result<()> {
        assert!(offset + src.len() <= dst.len, "{} elements at {offset} of {}", src.len(), dst.len);
        match (&self.queue, &dst.store) {
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => {
                lane.send(bytemuck::cast_slice(src), memory, (offset * size_of::<T>()) as u64)
            }
            _ => self.upload(src, dst, offset),
        }
    }

    /// Puts a copy to a [`HostArray`]'s part into the queue. On a CUDA lane it does not wait: until [`Lane::finish`]
    /// the part is not looked at.
    pub fn fetch<T: Pod>(&self, src: &Buffer<T>, offset: usize, dst: &mut [T]) -> Result<()> {
        assert!(offset + dst.len() <= src.len, "{} elements at {offset} of {}", dst.len(), src.len);
        match (&self.queue, &src.store) {
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => {
                lane.fetch(memory, (offset * size_of::<T>()) as u64, bytemuck::cast_slice_mut(dst))
            }
            _ => self.download(src, offset, dst),
        }
    }

    /// Puts launches into the queue, as step 0. On a CUDA lane it does not wait.
    pub(crate) fn enqueue(&self, launches: &[&Launch]) -> Result<()> {
        match &self.queue {
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => match super::fault::steps(self.device(), 1) {
                Some((_, lost)) => Err(lost),
                None => lane.enqueue(super::Side::Main, launches.iter().copied(), 0),
            },
            _ => self.launch(launches, 0),
        }
    }
}
