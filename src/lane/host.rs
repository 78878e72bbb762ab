//! Arrays on the host that a device copies from and to by itself.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

#[cfg(feature = "cuda")]
use super::Queue;
#[cfg(feature = "cuda")]
use super::Store;
#[cfg(feature = "cuda")]
use super::cuda;
use super::{Buffer, Lane, Launch};
use crate::Result;

/// An array on the host: page-locked where a CUDA lane made it, so that copies run beside kernels and other copies.
#[derive(Debug)]
pub struct HostArray<T> {
    memory: Host<T>,
    element: PhantomData<T>,
}

#[derive(Debug)]
enum Host<T> {
    Plain(Vec<T>),
    #[cfg(feature = "cuda")]
    Locked(cuda::Pinned),
}

impl<T: Pod> HostArray<T> {
    /// A zeroed array that is not page-locked.
    pub fn plain(len: usize) -> Self {
        Self { memory: Host::Plain(vec![T::zeroed(); len]), element: PhantomData }
    }

    /// Whether it is page-locked.
    pub fn locked(&self) -> bool {
        !matches!(self.memory, Host::Plain(_))
    }
}

impl<T: Pod> Deref for HostArray<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.memory {
            Host::Plain(values) => values,
            #[cfg(feature = "cuda")]
            Host::Locked(memory) => bytemuck::cast_slice(memory.bytes()),
        }
    }
}

impl<T: Pod> DerefMut for HostArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Host::Plain(values) => values,
            #[cfg(feature = "cuda")]
            Host::Locked(memory) => bytemuck::cast_slice_mut(memory.bytes_mut()),
        }
    }
}

impl Lane {
    /// A zeroed array on the host, page-locked if this is a CUDA lane.
    ///
    /// # Errors
    /// If the driver does not lock that much memory.
    pub fn host_array<T: Pod>(&self, len: usize) -> Result<HostArray<T>> {
        match &self.queue {
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => {
                let memory = Host::Locked(lane.lock_pages((len * size_of::<T>()) as u64)?);
                Ok(HostArray { memory, element: PhantomData })
            }
            _ => Ok(HostArray::plain(len)),
        }
    }

    /// Puts a copy from a [`HostArray`]'s part into the queue. On a CUDA lane it does not wait: until
    /// [`Lane::finish`] the part is neither written nor freed.
    pub(crate) fn send<T: Pod>(&self, src: &[T], dst: &Buffer<T>, offset: usize) -> Result<()> {
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
    pub(crate) fn fetch<T: Pod>(&self, src: &Buffer<T>, offset: usize, dst: &mut [T]) -> Result<()> {
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
            Queue::Cuda(lane) => lane.enqueue(super::Side::Main, launches.iter().copied(), 0),
            _ => self.launch(launches, 0),
        }
    }
}
