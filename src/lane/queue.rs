//! The queue of a lane, its memory account and its copies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;

use super::backend::Backend;
use super::backends::{AnyLane, on};
use super::buffer::{LaneAccount, TimeGuard};
#[cfg(feature = "cuda")]
use super::cuda::CudaLane;
use super::object::AnyObject;
use super::{Buffer, Device, HostArray, cpu, fault_injection};
use crate::error::Size;
use crate::{Error, Limit, Result};

/// An in-order queue of work on one device; clones share the queue.
#[derive(Debug, Clone)]
pub struct Lane {
    pub(super) backend: Arc<AnyLane>,
    pub(super) budget: Arc<LaneAccount>,
    pub(super) measured: Arc<Measured>,
}

#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Memory bandwidth in bytes per second from earlier measurements.
    bandwidth: OnceLock<f64>,
    /// Memory bandwidth in bytes per second from a short measurement in this process.
    pub(super) estimate: OnceLock<f64>,
}

impl Lane {
    pub(super) fn new(backend: AnyLane, memory_limit: Option<u64>) -> Self {
        let budget = Arc::new(LaneAccount::new(memory_limit));
        Self { backend: Arc::new(backend), budget, measured: Arc::default() }
    }

    /// Opens a CPU lane on the global thread pool, without a memory limit.
    pub(crate) fn at_hand() -> Self {
        Self::new(cpu::CpuLane::at_hand(None).into(), None)
    }

    /// Returns a CPU lane with its own queue and memory account, or this lane of another device.
    pub(crate) fn beside(&self) -> Self {
        match &*self.backend {
            AnyLane::Cpu(lane) => {
                let lane = Self::new(lane.beside().into(), self.budget.limit);
                Self { measured: Arc::clone(&self.measured), ..lane }
            }
            #[cfg(any(feature = "cuda", feature = "wgpu", target_family = "wasm"))]
            _ => self.clone(),
        }
    }

    /// Returns the device of this lane.
    pub fn device(&self) -> &Device {
        on!(self, lane => lane.device())
    }

    pub(crate) fn number(&self) -> u32 {
        self.budget.lane
    }

    /// Asserts that an object was made by this lane. Another lane's queue does not order accesses
    /// to its memory.
    #[track_caller]
    pub(super) fn assert_own(&self, what: &str, lane: u32) {
        let (own, spec) = (self.number(), &self.device().spec);
        assert!(lane == own, "{what} of lane {lane} is used on lane {own} ({spec})");
    }

    /// Returns the byte offset of element `offset`. Asserts that the array is this lane's and has
    /// `len` elements from there on.
    #[track_caller]
    pub(super) fn place<T: Pod>(&self, array: &Buffer<T>, offset: usize, len: usize) -> u64 {
        self.assert_own("an array", array.lane());
        let fits = offset.checked_add(len).is_some_and(|end| end <= array.len);
        assert!(fits, "{len} elements at {offset} of {}", array.len);
        // The bytes of an allocated array fit the address space.
        (offset * size_of::<T>()) as u64
    }

    /// Returns true if two handles refer to one array; different arrays never overlap.
    pub(super) fn is_same(&self, a: &AnyObject, b: &AnyObject) -> bool {
        on!(self, lane => lane.is_same(a, b))
    }

    /// Runs `work` without counting it in the statistics: peak memory and transfer times.
    pub(crate) fn unnoticed<R>(&self, work: impl FnOnce() -> R) -> R {
        let counters = [&self.budget.peak, &self.budget.up, &self.budget.down];
        let before = counters.map(|counter| counter.load(Ordering::Relaxed));
        let done = work();
        counters.iter().zip(before).for_each(|(counter, value)| counter.store(value, Ordering::Relaxed));
        done
    }

    /// Sets an earlier measurement of this device: bytes per second. A later call changes nothing.
    pub fn remember(&self, bandwidth: f64) {
        let _ = self.measured.bandwidth.set(bandwidth);
    }

    /// Returns the remembered or measured bandwidth, if there is one.
    pub(crate) fn known_bandwidth(&self) -> Option<f64> {
        self.measured.bandwidth.get().or(self.measured.estimate.get()).copied()
    }

    /// Returns the peak memory of this lane so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.budget.peak.load(Ordering::Relaxed)
    }

    /// Returns the seconds spent so far on copies from the host and to the host.
    pub fn transfer_seconds(&self) -> (f64, f64) {
        let seconds = |nanoseconds: &AtomicU64| nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9;
        (seconds(&self.budget.up), seconds(&self.budget.down))
    }

    /// Returns the number of bytes that can still be allocated, if a limit is known.
    pub fn free_bytes(&self) -> Option<u64> {
        let used = self.budget.used.load(Ordering::Relaxed);
        match self.budget.limit {
            Some(limit) => Some(limit.saturating_sub(used)),
            None => on!(self, lane => lane.free_bytes(used)),
        }
    }

    /// Returns an error if the user's limit leaves less than `bytes`; `what` names their purpose.
    pub(crate) fn expect_room(&self, what: &str, bytes: u64) -> Result<()> {
        let used = self.budget.used.load(Ordering::Relaxed);
        match self.budget.limit {
            Some(limit) if used.saturating_add(bytes) > limit => {
                let in_use =
                    if used > 0 { format!(", of which {} are in use", Size(used)) } else { String::new() };
                let limit = Limit::User(format!("`memory_limit` is {}{in_use}", Size(limit)));
                Err(Error::memory(&self.device().name, what, bytes, limit))
            }
            _ => Ok(()),
        }
    }

    /// Allocates `len` zeroed elements; `what` names them in an out-of-memory error.
    pub fn alloc<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        self.charged(what, len, |bytes| on!(self, lane => lane.alloc(bytes).map(AnyObject::new)))
    }

    /// Allocates `len` zeroed elements that kernels write and the host reads. See
    /// [`Self::send_buffer`].
    pub(crate) fn alloc_for_send<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        self.charged(what, len, |bytes| on!(self, lane => lane.alloc_for_send(bytes).map(AnyObject::new)))
    }

    /// Allocates `len` elements with arbitrary values, for arrays that are written before they are
    /// read.
    pub fn alloc_unset<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        self.charged(what, len, |bytes| on!(self, lane => lane.alloc_unset(bytes).map(AnyObject::new)))
    }

    /// Allocates an array and copies `elements` into it.
    pub fn alloc_with<T: Pod>(&self, what: &str, elements: &[T]) -> Result<Buffer<T>> {
        let buffer = self.alloc_unset(what, elements.len())?;
        self.upload(elements, &buffer, 0)?;
        Ok(buffer)
    }

    /// Allocates `len` elements with `memory`, charges the budget, and names `what` in errors.
    fn charged<T: Pod>(
        &self,
        what: &str,
        len: usize,
        memory: impl FnOnce(u64) -> Result<AnyObject>,
    ) -> Result<Buffer<T>> {
        let bytes = (len.max(1) as u64).saturating_mul(size_of::<T>() as u64);
        fault_injection::allocation(self.device(), what, bytes)?;
        self.expect_room(what, bytes)?;
        let memory = memory(bytes).map_err(|e| match e {
            Error::OutOfMemory { device, asked, limit, .. } => {
                Error::OutOfMemory { device, what: what.to_owned(), asked, limit }
            }
            e => e,
        })?;
        Ok(Buffer::new(len, memory, bytes, &self.budget))
    }

    /// Copies host elements into `dst`, starting at its element `offset`.
    pub fn upload<T: Pod>(&self, src: &[T], dst: &Buffer<T>, offset: usize) -> Result<()> {
        fault_injection::copy(self.device())?;
        let at = self.place(dst, offset, src.len());
        let _timed = TimeGuard::new(&self.budget.up);
        on!(self, lane => lane.upload(bytemuck::cast_slice(src), dst.memory.own(), at))
    }

    /// Copies elements of `src` to the host, starting at its element `offset`.
    pub fn download<T: Pod>(&self, src: &Buffer<T>, offset: usize, dst: &mut [T]) -> Result<()> {
        fault_injection::copy(self.device())?;
        let at = self.place(src, offset, dst.len());
        let _timed = TimeGuard::new(&self.budget.down);
        on!(self, lane => lane.download(src.memory.own(), at, bytemuck::cast_slice_mut(dst)))
    }

    /// Sets every element to zero.
    pub fn clear<T: Pod>(&self, dst: &Buffer<T>) -> Result<()> {
        self.place(dst, 0, dst.len);
        on!(self, lane => lane.clear(dst.memory.own(), dst.bytes()))
    }

    /// Copies all of `src` into `dst` at element `offset`, on the device, and waits. The copy is
    /// repeated `times` times, for measurements.
    pub(crate) fn copy<T: Pod>(
        &self,
        src: &Buffer<T>,
        dst: &Buffer<T>,
        offset: usize,
        times: u32,
    ) -> Result<()> {
        self.place(src, 0, src.len);
        let (at, bytes) = (self.place(dst, offset, src.len), size_of::<T>() * src.len);
        assert!(!self.is_same(&src.memory, &dst.memory), "a copy has two different sides");
        on!(self, lane => lane.copy(src.memory.own(), dst.memory.own(), at, bytes as u64, times))
    }

    /// Enqueues a copy from a part of a [`HostArray`].
    ///
    /// On lanes with [`Device::queued_copies`] it does not wait. The caller must then neither write
    /// nor free the part until [`Lane::finish`].
    pub(crate) fn send<T: Pod>(&self, src: &[T], dst: &Buffer<T>, offset: usize) -> Result<()> {
        if !self.device().queued_copies {
            return self.upload(src, dst, offset);
        }
        let at = self.place(dst, offset, src.len());
        on!(self, lane => lane.send(bytemuck::cast_slice(src), dst.memory.own(), at))
    }

    /// Enqueues a copy to a part of a [`HostArray`].
    ///
    /// On lanes with [`Device::queued_copies`] it does not wait. The caller must then neither
    /// access nor free the part until [`Lane::finish`].
    pub(crate) fn fetch<T: Pod>(&self, src: &Buffer<T>, offset: usize, dst: &mut [T]) -> Result<()> {
        if !self.device().queued_copies {
            return self.download(src, offset, dst);
        }
        let at = self.place(src, offset, dst.len());
        on!(self, lane => lane.fetch(src.memory.own(), at, bytemuck::cast_slice_mut(dst)))
    }

    /// Waits until the queue is empty.
    ///
    /// Work gets there by `Lane::submit`, `Lane::send`, `Lane::enqueue` and `Lane::fetch`.
    pub fn finish(&self) -> Result<()> {
        on!(self, lane => lane.finish())
    }

    /// Runs `work` with the threads of a CPU lane, which stay awake between its parallel loops.
    pub(crate) fn with_threads(&self, work: &mut (dyn FnMut() + Send)) {
        on!(self, lane => lane.with_threads(work));
    }

    /// Allocates a zeroed array on the host; with [`Device::queued_copies`] it is page-locked. A
    /// CPU lane works in such arrays directly.
    ///
    /// # Errors
    /// The driver cannot lock that much memory, or less is available.
    pub fn host_array<T: Pod>(&self, len: usize) -> Result<HostArray<T>> {
        // An empty array has no address, so it is neither locked nor mapped.
        if len == 0 {
            return Ok(HostArray::plain(0));
        }
        on!(self, lane => lane.host_array(len))
    }

    /// Returns the array itself as a buffer, if this lane works in the host's memory.
    ///
    /// Copies between the array and the buffer do nothing. The caller must not run launches of the
    /// buffer while the array is borrowed.
    pub(crate) fn adopt<T: Pod>(&self, what: &str, array: &HostArray<T>) -> Result<Option<Buffer<T>>> {
        let adopted = on!(self, lane => lane.adopt(array).map(AnyObject::new));
        adopted.map(|memory| self.charged(what, array.len(), |_| Ok(memory))).transpose()
    }

    /// Simulates the loss of the device by a driver, if the backend can.
    #[cfg(all(test, feature = "wgpu"))]
    pub(crate) fn lose(&self) {
        on!(self, lane => lane.lose());
    }

    /// Returns false: without CUDA, no lane can access the memory of other lanes.
    #[cfg(not(feature = "cuda"))]
    pub(crate) fn all_reach(_: &[Self]) -> bool {
        false
    }

    /// Returns true if all lanes are CUDA streams with access to the memory of all others.
    #[cfg(feature = "cuda")]
    pub(crate) fn all_reach(lanes: &[Self]) -> bool {
        let streams: Option<Vec<&CudaLane>> = lanes.iter().map(Self::cuda).collect();
        streams
            .is_some_and(|streams| streams.iter().all(|one| streams.iter().all(|other| one.reaches(other))))
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(&self) -> Option<&CudaLane> {
        match &*self.backend {
            AnyLane::Cuda(lane) => Some(lane),
            _ => None,
        }
    }
}
