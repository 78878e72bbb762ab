//! Interface of a device kind to [`Lane`](super::Lane).

use bytemuck::Pod;

use super::object::{AnyObject, Object};
use super::{Arg, Device, HostArray, LaneBatch, Program, ReceiveBuffer, SendBuffer};
use crate::kernel::{Kernel, Precision};
use crate::{Error, Result};

/// Callback that receives the number of steps done; its error stops a run.
pub(super) type OnStep<'a> = &'a mut (dyn FnMut(u64) -> Result<()> + Send);

/// An in-order queue of work on a device of one kind.
///
/// `Lane` has checked the arguments: lengths, and that memory, launches and transfer buffers belong
/// to this queue. Kernel arguments may also be memory that this queue can access.
pub(super) trait Backend: Sized {
    /// An array in the device's memory; clones share it.
    type Memory: Object + Clone + PartialEq;
    type Launch: Object;
    /// Host buffer for copies of an array to the host.
    type SendBuffer: Object + SendStaging<Self>;
    /// Host buffer for copies of host values to a place in an array.
    type ReceiveBuffer: Object + ReceiveStaging<Self>;

    fn device(&self) -> &Device;

    /// Returns the bytes that can still be allocated while `used` are in use, if known.
    fn free_bytes(&self, used: u64) -> Option<u64>;

    fn alloc(&self, bytes: u64) -> Result<Self::Memory>;

    /// Allocates an array with arbitrary values.
    fn alloc_unset(&self, bytes: u64) -> Result<Self::Memory> {
        self.alloc(bytes)
    }

    /// Allocates a zeroed array that kernels write and the host reads.
    fn alloc_for_send(&self, bytes: u64) -> Result<Self::Memory> {
        self.alloc(bytes)
    }

    /// Copies host bytes into `dst` from byte `at` on; the caller may change them after return.
    fn upload(&self, src: &[u8], dst: &Self::Memory, at: u64) -> Result<()>;

    /// Copies bytes of `src` from byte `at` on to the host, and waits.
    fn download(&self, src: &Self::Memory, at: u64, dst: &mut [u8]) -> Result<()>;

    /// Copies like [`Self::upload`]; `src` is page-locked and unchanged until [`Self::finish`].
    fn send(&self, src: &[u8], dst: &Self::Memory, at: u64) -> Result<()> {
        self.upload(src, dst, at)
    }

    /// Copies like [`Self::download`]; `dst` is page-locked and unused until [`Self::finish`].
    fn fetch(&self, src: &Self::Memory, at: u64, dst: &mut [u8]) -> Result<()> {
        self.download(src, at, dst)
    }

    /// Sets all `bytes` of an array to zero.
    fn clear(&self, dst: &Self::Memory, bytes: u64) -> Result<()>;

    /// Copies the first `bytes` of `src` to byte `at` of another array, `times` times, and waits.
    fn copy(&self, src: &Self::Memory, dst: &Self::Memory, at: u64, bytes: u64, times: u32) -> Result<()>;

    /// Returns true if two handles refer to one array; different arrays never overlap.
    fn is_same(&self, a: &AnyObject, b: &AnyObject) -> bool {
        a.get::<Self::Memory>().is_some_and(|a| b.get() == Some(a))
    }

    /// Returns true if kernels of this lane can access this memory of another lane.
    fn reaches_memory(&self, _: &Self::Memory) -> bool {
        false
    }

    /// Prepares a launch on a problem of `items` rows or elements.
    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<Self::Launch>;

    /// Runs steps `first .. first + count` of a program, in pieces that take about
    /// [`super::PIECE`], and waits for them.
    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: OnStep<'_>) -> Result<()>;

    /// Enqueues a batch, of which `first` is the number of the first step.
    fn submit(&self, batch: &LaneBatch<'_>, first: u64) -> Result<()>;

    fn sent<'a>(&self, buffer: &'a SendBuffer) -> &'a Self::SendBuffer {
        buffer.staging.own()
    }

    fn received<'a>(&self, buffer: &'a ReceiveBuffer) -> &'a Self::ReceiveBuffer {
        buffer.staging.own()
    }

    /// Runs `work` whose parallel loops use this lane's threads, if it has threads.
    fn with_threads(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }

    fn finish(&self) -> Result<()>;

    /// Allocates a zeroed host array, of the kind with the fastest copies to and from the device.
    fn host_array<T: Pod>(&self, len: usize) -> Result<HostArray<T>> {
        Ok(HostArray::plain(len))
    }

    /// Returns a host array as device memory, if this lane works in host memory.
    fn adopt<T: Pod>(&self, _: &HostArray<T>) -> Option<Self::Memory> {
        None
    }

    /// Returns the handle of the queue for other libraries of this process.
    fn stream(&self) -> Option<u64> {
        None
    }

    fn address(&self, _: &Self::Memory) -> Option<u64> {
        None
    }

    /// Makes the queue wait for the work queued so far in a stream of another library.
    ///
    /// # Safety
    /// As for `Lane::wait_for`.
    #[expect(unsafe_code, reason = "a stream that others give")]
    unsafe fn wait_for(&self, _: u64) -> Result<()> {
        Err(no_foreign_memory(&self.device().spec))
    }

    /// Copies rows of foreign memory into `dst` from byte `at` on, and waits. The target rows are
    /// `pitch` bytes apart.
    ///
    /// # Safety
    /// As for `Lane::copy_from`; `dst` has space for the rows.
    #[expect(unsafe_code, reason = "an address that others give")]
    unsafe fn copy_from(&self, _: Foreign, _dst: &Self::Memory, _at: u64, _pitch: usize) -> Result<()> {
        Err(no_foreign_memory(&self.device().spec))
    }

    /// Simulates the loss of the device by a driver, if the backend can.
    #[cfg(all(test, feature = "wgpu"))]
    fn lose(&self) {}
}

/// Host buffer for copies of an array to the host, allocated once.
pub(super) trait SendStaging<Lane: Backend>: Sized {
    /// Allocates a buffer for all `bytes` of `source`.
    fn new(lane: &Lane, source: &Lane::Memory, bytes: u64) -> Result<Self>;

    /// Waits for the batch that filled this buffer; passes its first `bytes` to `take`.
    fn read(&self, lane: &Lane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()>;
}

/// Host buffer for copies of host values to a place in an array, allocated once.
pub(super) trait ReceiveStaging<Lane: Backend>: Sized {
    /// Allocates a buffer for `bytes` of `target` from byte `at` on.
    fn new(lane: &Lane, target: &Lane::Memory, at: u64, bytes: u64) -> Result<Self>;

    /// Fills this buffer with values that a later batch copies into the array.
    fn write(&self, lane: &Lane, values: &[u8]) -> Result<()>;
}

/// Receive buffer that is a place in the array itself, written by the host.
#[derive(Debug)]
pub(super) struct InPlaceReceive<Memory> {
    target: Memory,
    at: u64,
}

impl<Lane: Backend> ReceiveStaging<Lane> for InPlaceReceive<Lane::Memory> {
    fn new(_: &Lane, target: &Lane::Memory, at: u64, _: u64) -> Result<Self> {
        Ok(Self { target: target.clone(), at })
    }

    fn write(&self, lane: &Lane, values: &[u8]) -> Result<()> {
        lane.upload(values, &self.target, self.at)
    }
}

/// Rows of numbers in memory of another library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Address of the first number, on the device of the reading lane.
    pub address: u64,
    /// Bytes of a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
    /// Bytes from the start of a row to the start of the next, at least `width`.
    pub pitch: usize,
}

impl Foreign {
    /// Describes contiguous bytes.
    pub fn run(address: u64, bytes: usize) -> Self {
        Self { address, width: bytes, height: 1, pitch: bytes }
    }

    /// Returns the number of bytes from the start of the first row to the end of the last.
    #[cfg(feature = "cuda")]
    pub(super) fn extent(&self) -> usize {
        (self.height - 1) * self.pitch + self.width
    }
}

fn no_foreign_memory(spec: &str) -> Error {
    Error::Capability(format!(
        "{spec} cannot read memory of other libraries; use a CUDA device or arrays of the host"
    ))
}
