//! Arrays on the host that a device copies from and to by itself, or works in.

#![expect(unsafe_code, reason = "memory of a CPU lane, which the host looks into")]

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;

use super::cpu;
use crate::parallel::*;

/// Large pages of an array of which threads at work all begin with the same ones.
const FEW_PAGES: usize = 16;

/// An array on the host: page-locked where a CUDA lane made it, so that copies run beside kernels and other copies; a CPU
/// lane's own memory where that lane made it.
#[derive(Debug)]
pub struct HostArray<T> {
    memory: Host<T>,
}

#[derive(Debug)]
enum Host<T> {
    Plain(Vec<T>),
    Own(Arc<cpu::Memory>),
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "CUDA's driver alone locks pages"))]
    Locked(Box<dyn Locked>),
}

/// Page-locked memory of some device.
pub(super) trait Locked: Debug + Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<T: Pod> HostArray<T> {
    /// A zeroed array that is not page-locked.
    pub fn plain(len: usize) -> Self {
        Self { memory: Host::Plain(vec![T::zeroed(); len]) }
    }

    /// A zeroed array on large pages where the system has some: gathers from all over it stay within the reach of address
    /// translation, and it is made page by page five hundred times as fast. A CPU lane can take it over.
    pub(crate) fn large(len: usize) -> Self {
        let mut array = match cpu::Memory::new(len * size_of::<T>()) {
            Ok(memory) if len > 0 => Self::of(Arc::new(memory)),
            _ => Self::plain(len),
        };
        // Threads that begin to write the same large page each make one, and all but one are thrown away: of few pages each
        // is touched by one thread first.
        if size_of_val(&array[..]) <= FEW_PAGES * cpu::LARGE_PAGE {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut array);
            bytes.par_chunks_mut(cpu::LARGE_PAGE).for_each(|page| page[0] = 0);
        }
        array
    }

    /// The array in memory that a CPU lane works in.
    pub(super) fn of(memory: Arc<cpu::Memory>) -> Self {
        Self { memory: Host::Own(memory) }
    }

    /// The array in page-locked memory.
    #[cfg(feature = "cuda")]
    pub(super) fn of_locked(memory: impl Locked + 'static) -> Self {
        Self { memory: Host::Locked(Box::new(memory)) }
    }

    /// The memory that a CPU lane can work in, if it is such.
    pub(super) fn own(&self) -> Option<&Arc<cpu::Memory>> {
        match &self.memory {
            Host::Own(memory) => Some(memory),
            Host::Plain(_) | Host::Locked(_) => None,
        }
    }

    /// Whether it is page-locked.
    pub fn locked(&self) -> bool {
        matches!(self.memory, Host::Locked(_))
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
            Host::Locked(memory) => bytemuck::cast_slice_mut(memory.bytes_mut()),
        }
    }
}
