//! Host arrays that a device copies from and to directly, or works in.

#![expect(unsafe_code, reason = "memory of a CPU lane, which the host looks into")]

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;

use super::cpu;
use crate::parallel::*;
use crate::util::memory::LARGE_PAGE;

/// Maximum number of large pages of an array that [`HostArray::large`] creates in advance.
const FEW_PAGES: usize = 16;

/// An array on the host, in memory that suits the lane that made it.
///
/// A CUDA lane makes page-locked arrays, so that copies overlap with kernels and with other copies.
/// A CPU lane makes arrays of its own memory.
#[derive(Debug)]
pub struct HostArray<T> {
    memory: Host<T>,
}

#[derive(Debug)]
enum Host<T> {
    Plain(Vec<T>),
    Own(Arc<cpu::CpuArray>),
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "CUDA's driver alone locks pages"))]
    Locked(Box<dyn Locked>),
}

/// Page-locked memory of a device's driver.
pub(super) trait Locked: Debug + Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: Pod> HostArray<T> {
    /// Returns a zeroed array that is not page-locked.
    pub fn plain(len: usize) -> Self {
        Self { memory: Host::Plain(vec![T::zeroed(); len]) }
    }

    /// Returns a zeroed array on large pages, if the system has them; a CPU lane can adopt it.
    ///
    /// Large pages keep random gathers within the reach of the TLB, and creating the array takes
    /// 512 times fewer page faults.
    pub(crate) fn large(len: usize) -> Self {
        let mut array = match cpu::CpuArray::new(len * size_of::<T>()) {
            Ok(memory) if len > 0 => Self::of(Arc::new(memory)),
            _ => Self::plain(len),
        };
        // Threads that write to one new large page at a time each make a page, and all but one are
        // discarded. Few pages are therefore first touched by one thread each.
        if size_of_val(&array[..]) <= FEW_PAGES * LARGE_PAGE {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut array);
            bytes.par_chunks_mut(LARGE_PAGE).for_each(|page| page[0] = 0);
        }
        array
    }

    pub(super) fn of(memory: Arc<cpu::CpuArray>) -> Self {
        Self { memory: Host::Own(memory) }
    }

    #[cfg(feature = "cuda")]
    pub(super) fn of_locked(memory: impl Locked + 'static) -> Self {
        Self { memory: Host::Locked(Box::new(memory)) }
    }

    /// Returns the memory if a CPU lane can work in it.
    pub(super) fn own(&self) -> Option<&Arc<cpu::CpuArray>> {
        match &self.memory {
            Host::Own(memory) => Some(memory),
            Host::Plain(_) | Host::Locked(_) => None,
        }
    }

    /// Returns true if the array is page-locked.
    pub fn locked(&self) -> bool {
        matches!(self.memory, Host::Locked(_))
    }
}

impl<T: Pod> Deref for HostArray<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.memory {
            Host::Plain(values) => values,
            // SAFETY: a lane works in this memory only by launches of a buffer from `Lane::adopt`.
            // The caller of `adopt` does not run them while the array is borrowed.
            Host::Own(memory) => bytemuck::cast_slice(unsafe { memory.bytes() }),
            Host::Locked(memory) => bytemuck::cast_slice(memory.bytes()),
        }
    }
}

impl<T: Pod> DerefMut for HostArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Host::Plain(values) => values,
            // SAFETY: as in `deref`, and the array itself is borrowed exclusively.
            Host::Own(memory) => bytemuck::cast_slice_mut(unsafe { memory.bytes_mut() }),
            Host::Locked(memory) => bytemuck::cast_slice_mut(memory.bytes_mut()),
        }
    }
}
