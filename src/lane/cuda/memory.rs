//! Device memory of a lane, and unused blocks that it keeps for later arrays.
//!
//! The driver takes up to a millisecond to allocate or free a block, and freeing waits for all work
//! on the device. So a lane keeps blocks, and reuses them for work that it queues later.

#![expect(unsafe_code, reason = "allocations of the driver")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::result as raw;
use cudarc::driver::sys::{self, CUdeviceptr};

use super::driver::{CudaContext, CudaStream, DriverResult, Event};
use crate::lane::Foreign;
use crate::parallel::lock;

/// Maximum number of bytes that a lane keeps in unused blocks.
const MOST_KEPT: usize = 1 << 30;

/// The streams of a lane, and the unused blocks of its memory.
#[derive(Debug)]
pub(super) struct Streams {
    context: CudaContext,
    pub(super) main: CudaStream,
    /// Second stream, for work that overlaps with `main`; its kernels have priority.
    pub(super) aside: CudaStream,
    /// Event in `aside` after all work that may use a dropped block.
    dropped: Event,
    unused: Mutex<Unused>,
}

/// Blocks that no array uses, with their sizes in bytes, the oldest first.
#[derive(Debug, Default)]
struct Unused {
    blocks: Vec<(usize, CUdeviceptr)>,
    bytes: usize,
}

impl Streams {
    pub(super) fn new(context: CudaContext) -> DriverResult<Self> {
        let (main, aside) = (CudaStream::new(context, false)?, CudaStream::new(context, true)?);
        Ok(Self { context, main, aside, dropped: Event::new(context)?, unused: Mutex::default() })
    }

    /// Returns the total size of the unused blocks in bytes.
    pub(super) fn unused_bytes(&self) -> usize {
        lock(&self.unused).bytes
    }

    /// Returns a block of `bytes` bytes that later work in the stream `main` may use.
    fn block(&self, bytes: usize) -> DriverResult<CUdeviceptr> {
        let mut unused = lock(&self.unused);
        if let Some(at) = unused.blocks.iter().rposition(|block| block.0 == bytes) {
            unused.bytes -= bytes;
            return Ok(unused.blocks.remove(at).1);
        }
        // SAFETY: a plain allocation, freed when the array is dropped, or with the unused blocks.
        let allocate = || unsafe { raw::malloc_sync(bytes) };
        allocate().or_else(|_| {
            unused.free(0);
            allocate()
        })
    }

    /// Keeps a block for later work in `main`, and frees the oldest blocks if there is no room.
    ///
    /// Returns false for a block above [`MOST_KEPT`] bytes.
    /// If the block is `lent`, waits for all work on the device, including that of other libraries.
    fn keep(&self, bytes: usize, pointer: CUdeviceptr, lent: bool) -> bool {
        let after = || match lent {
            true => raw::ctx::synchronize(),
            false => self.dropped.record(&self.aside).and_then(|()| self.main.wait(&self.dropped)),
        };
        let mut unused = lock(&self.unused);
        let keeps = bytes <= MOST_KEPT && after().is_ok();
        if keeps {
            unused.free(MOST_KEPT - bytes);
            unused.blocks.push((bytes, pointer));
            unused.bytes += bytes;
        }
        keeps
    }
}

impl Unused {
    /// Frees the oldest blocks, in the current context, until at most `bytes` remain.
    fn free(&mut self, bytes: usize) {
        while self.bytes > bytes && !self.blocks.is_empty() {
            let (size, pointer) = self.blocks.remove(0);
            self.bytes -= size;
            // SAFETY: allocated by `block`; freeing waits for work that uses it.
            let _ = unsafe { raw::free_sync(pointer) };
        }
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let _ = self.context.within(|| {
            lock(&self.unused).free(0);
            Ok(())
        });
    }
}

impl CudaStream {
    /// Enqueues a copy from the host; its bytes must not change until a later event occurs.
    pub(super) fn send(&self, src: &[u8], dst: &GpuArray, offset: u64) -> DriverResult<()> {
        // SAFETY: the caller checked the range. The source is page-locked and outlives the copy
        // (see `Staging` and `HostArray`).
        unsafe { raw::memcpy_htod_async(dst.pointer + offset, src, self.raw()) }
    }

    /// Enqueues a copy to the host; its bytes must not be used until a later event occurs.
    pub(super) fn fetch(&self, src: &GpuArray, offset: u64, dst: &mut [u8]) -> DriverResult<()> {
        // SAFETY: the caller checked the range. The target is page-locked and outlives the copy
        // (see `Staging` and `HostArray`).
        unsafe { raw::memcpy_dtoh_async(dst, src.pointer + offset, self.raw()) }
    }

    pub(super) fn copy(&self, src: &GpuArray, dst: &GpuArray, offset: u64, bytes: usize) -> DriverResult<()> {
        // SAFETY: the caller checked the range.
        unsafe { raw::memcpy_dtod_async(dst.pointer + offset, src.pointer, bytes, self.raw()) }
    }

    /// Enqueues a copy of foreign rows into `dst` from byte `at` on. The target rows are `pitch`
    /// bytes apart.
    ///
    /// # Safety
    /// The rows are memory of this stream's device until the copy is done, and `dst` has space for
    /// them.
    pub(super) unsafe fn copy_foreign(
        &self,
        src: &Foreign,
        dst: &GpuArray,
        at: u64,
        pitch: usize,
    ) -> DriverResult<()> {
        let to = dst.pointer + at;
        if src.height == 1 || (src.pitch == src.width && pitch == src.width) {
            // SAFETY: guaranteed by the caller.
            return unsafe { raw::memcpy_dtod_async(to, src.address, src.width * src.height, self.raw()) };
        }
        let copy = sys::CUDA_MEMCPY2D {
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcDevice: src.address,
            srcPitch: src.pitch,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstDevice: to,
            dstPitch: pitch,
            WidthInBytes: src.width,
            Height: src.height,
            srcXInBytes: 0,
            srcY: 0,
            srcHost: std::ptr::null(),
            srcArray: std::ptr::null_mut(),
            dstXInBytes: 0,
            dstY: 0,
            dstHost: std::ptr::null_mut(),
            dstArray: std::ptr::null_mut(),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.raw()) }.result()
    }

    pub(super) fn clear(&self, dst: &GpuArray, bytes: usize) -> DriverResult<()> {
        // SAFETY: the caller passes the allocation's own length.
        unsafe { raw::memset_d8_async(dst.pointer, 0, bytes, self.raw()) }
    }
}

/// An array in the memory of a device.
#[derive(Debug)]
pub(in crate::lane) struct GpuArray {
    pub(super) context: CudaContext,
    pub(super) pointer: CUdeviceptr,
    bytes: usize,
    streams: Arc<Streams>,
    /// True if other libraries may use the block.
    lent: AtomicBool,
    /// True if other lanes may use the block, perhaps of other devices.
    shared: AtomicBool,
}

impl GpuArray {
    /// Allocates bytes with arbitrary values.
    pub(super) fn new(context: CudaContext, bytes: usize, streams: &Arc<Streams>) -> DriverResult<Self> {
        context.enter()?;
        // Sizes with four significant bits, so that blocks fit arrays of similar sizes.
        let unit = (bytes.next_power_of_two() >> 4).max(512);
        let bytes = bytes.next_multiple_of(unit);
        let (streams, lent, shared) = (streams.clone(), AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { context, pointer: streams.block(bytes)?, bytes, streams, lent, shared })
    }

    /// Records that other libraries may use the array.
    pub(super) fn lend(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }

    /// Records that the lane with these streams may use the array.
    pub(super) fn share(&self, streams: &Arc<Streams>) {
        if !Arc::ptr_eq(&self.streams, streams) {
            self.shared.store(true, Ordering::Relaxed);
        }
    }
}

impl PartialEq for GpuArray {
    /// Returns true for two handles of one allocation; addresses are unique over all devices.
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer
    }
}

impl Drop for GpuArray {
    /// Keeps the thread's context: a lent array may be dropped in a thread of another library.
    fn drop(&mut self) {
        let _ = self.context.within(|| {
            let (lent, shared) = (*self.lent.get_mut(), *self.shared.get_mut());
            if !shared && self.streams.keep(self.bytes, self.pointer, lent) {
                return Ok(());
            }
            // SAFETY: allocated by `block`; freeing waits for work that uses it.
            unsafe { raw::free_sync(self.pointer) }
        });
    }
}
