//! The CPU lane: a thread pool that runs the CPU implementations of kernels.

#![expect(unsafe_code, reason = "device memory of this lane is shared between launches, as on any device")]

mod memory;

use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(super) use memory::CpuArray;

use super::backend::{Backend, InPlaceReceive, OnStep, SendStaging};
use super::{Arg, Device, Foreign, HostArray, LaneBatch, Launch, Limits, PIECE, Program};
use crate::error::Size;
use crate::kernel::cpu::{BoundKernel, simd};
use crate::kernel::{Kernel, Precision};
use crate::parallel::pool::{build, enter, is_member};
use crate::parallel::{AtHand, Parallel, ParallelSlice, Team, copy_bytes, lock, threads};
use crate::util::memory::{available_memory, less_than};
use crate::{Error, Limit, Result};

/// Largest array, in bytes, that one thread processes faster than the whole pool.
const FEW: usize = 1 << 18;

/// Minimum number of steps of a run for which threads stay awake between steps ([`Team`]).
const MANY_STEPS: u64 = 16;

/// A pool of threads that works in host memory.
#[derive(Debug)]
pub(super) struct CpuLane {
    device: Device,
    /// Threads that only the holder of `queue` uses; `None` if the global thread pool is used.
    pool: Option<rayon::ThreadPool>,
    /// Lock of every operation that accesses memory; makes the lane an in-order queue.
    queue: Mutex<()>,
}

/// Runs a launch once, with step number `step`. The caller holds the lane's lock.
fn run(launch: &Launch, step: u64) {
    let run: &BoundKernel = launch.prepared.own();
    // SAFETY: memory of this lane is used under its lock, and `Lane::bind` asserts that memory that
    // is written is bound once.
    unsafe { run.step(&launch.params, step) };
}

impl CpuLane {
    /// Opens a lane of `count` threads, or of `share` threads by default.
    pub(super) fn open(count: Option<usize>, share: usize, memory_limit: Option<u64>) -> Result<Self> {
        let wanted = count.unwrap_or(share).max(1);
        let pool = (!cfg!(target_family = "wasm")).then(|| build(wanted, "kolmo-cpu")).transpose();
        match (pool, count) {
            (Err(e), Some(count)) => {
                Err(Error::Device(format!("cpu: {count} threads could not be started: {e}")))
            }
            // If the system starts no more threads, launches run in the global thread pool or in
            // the caller.
            (Err(_), None) => Ok(Self::at_hand(memory_limit)),
            (Ok(pool), _) => Ok(Self::of(pool, wanted, memory_limit)),
        }
    }

    /// Returns a lane that works in the global thread pool.
    pub(super) fn at_hand(memory_limit: Option<u64>) -> Self {
        Self::of(None, threads(), memory_limit)
    }

    /// Returns a lane of the same device with its own queue, in the global thread pool.
    pub(super) fn beside(&self) -> Self {
        Self { device: self.device.clone(), pool: None, queue: Mutex::new(()) }
    }

    fn of(pool: Option<rayon::ThreadPool>, threads: usize, memory_limit: Option<u64>) -> Self {
        let memory = available_memory();
        let level = match simd::level() {
            simd::PORTABLE if cfg!(target_arch = "aarch64") => "NEON",
            simd::PORTABLE => "portable code",
            simd::AVX2 => "AVX2",
            _ => "AVX-512",
        };
        let device = Device {
            name: format!("CPU, {threads} thread{} ({level})", if threads == 1 { "" } else { "s" }),
            spec: "cpu".to_owned(),
            backend: "cpu",
            driver: level.to_owned(),
            host: true,
            software: false,
            queued_copies: false,
            mapped_staging: false,
            f64: true,
            limits: Limits {
                binding: u64::MAX,
                buffer: u64::MAX,
                memory: Some(memory_limit.map_or(memory, |limit| limit.min(memory))),
                unified: true,
            },
        };
        Self { device, pool, queue: Mutex::new(()) }
    }

    /// Runs `work` on an array of `bytes` bytes, in all threads if it is large. The lock is held.
    fn on_all(&self, bytes: usize, work: &mut (dyn FnMut() + Send)) {
        if bytes <= FEW { crate::parallel::alone(work) } else { self.enter(work) }
    }

    /// Runs `work` in this lane's threads. The lane's lock is held.
    fn enter(&self, work: &mut (dyn FnMut() + Send)) {
        let at_hand = AtHand::now();
        match &self.pool {
            Some(pool) if !at_hand.alone => enter(pool, &mut || at_hand.within(&mut *work)),
            None if is_member() => crate::parallel::alone(work),
            _ => work(),
        }
    }

    /// Runs loops in this lane's threads, which stay awake between them if there are `many`.
    ///
    /// The lane's lock is held.
    fn run_loops(&self, many: bool, work: &mut (dyn FnMut() + Send)) {
        match &self.pool {
            Some(pool) if many && !AtHand::now().alone => Team::lead(pool, work),
            // All steps run inside the pool: a join between its threads costs a fraction of a
            // microsecond, entering the pool costs tens of microseconds.
            _ => self.enter(work),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        // A panic in a CPU implementation is a bug that ends the program; the memory itself stays
        // consistent.
        lock(&self.queue)
    }
}

impl Backend for CpuLane {
    type Memory = Arc<CpuArray>;
    type Launch = BoundKernel;
    type SendBuffer = Arc<CpuArray>;
    type ReceiveBuffer = InPlaceReceive<Arc<CpuArray>>;

    fn device(&self) -> &Device {
        &self.device
    }

    fn free_bytes(&self, _: u64) -> Option<u64> {
        Some(available_memory())
    }

    fn alloc(&self, bytes: u64) -> Result<Arc<CpuArray>> {
        let out_of_memory =
            |reason: String| Error::memory(&self.device.name, "an array", bytes, Limit::Free(reason));
        if let Some(available) = less_than(bytes) {
            return Err(out_of_memory(format!("{} are available", Size(available))));
        }
        CpuArray::new(bytes as usize).map(Arc::new).map_err(|e| out_of_memory(e.to_string()))
    }

    fn upload(&self, src: &[u8], dst: &Arc<CpuArray>, at: u64) -> Result<()> {
        let (_queue, at) = (self.lock(), at as usize);
        dst.written();
        if !dst.holds(src, at) {
            // SAFETY: the lock is held.
            let dst = unsafe { dst.bytes_mut() };
            self.on_all(src.len(), &mut || copy_bytes(&mut dst[at..at + src.len()], src));
        }
        Ok(())
    }

    fn download(&self, src: &Arc<CpuArray>, at: u64, dst: &mut [u8]) -> Result<()> {
        let (_queue, at) = (self.lock(), at as usize);
        if !src.holds(dst, at) {
            // SAFETY: the lock is held.
            let src = unsafe { src.bytes() };
            self.on_all(dst.len(), &mut || copy_bytes(dst, &src[at..at + dst.len()]));
        }
        Ok(())
    }

    fn clear(&self, dst: &Arc<CpuArray>, _: u64) -> Result<()> {
        let _queue = self.lock();
        dst.written();
        // SAFETY: the lock is held.
        let dst = unsafe { dst.bytes_mut() };
        self.on_all(dst.len(), &mut || dst.par_chunks_mut(FEW).for_each(|piece| piece.fill(0)));
        Ok(())
    }

    fn copy(&self, src: &Arc<CpuArray>, dst: &Arc<CpuArray>, at: u64, bytes: u64, times: u32) -> Result<()> {
        let _queue = self.lock();
        dst.written();
        // SAFETY: the lock is held, and the two arrays are different (asserted by `Lane::copy`).
        let (src, dst) = unsafe { (src.bytes(), dst.bytes_mut()) };
        let (at, bytes) = (at as usize, bytes as usize);
        (0..times).for_each(|_| dst[at..at + bytes].copy_from_slice(&src[..bytes]));
        Ok(())
    }

    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<BoundKernel> {
        Ok(BoundKernel {
            kernel: kernel.cpu(precision),
            group: kernel.group(),
            constants: kernel.constants,
            items,
            bindings: kernel.interface.bindings(precision),
            args: args.iter().map(|arg| Arc::<CpuArray>::clone(arg.memory.own()) as _).collect(),
        })
    }

    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: OnStep<'_>) -> Result<()> {
        let mut done = 0;
        loop {
            let queue = self.lock();
            let since = Instant::now();
            let mut steps = || {
                while done < count && since.elapsed() < PIECE {
                    let step = first + done;
                    program.launches(step).iter().for_each(|launch| run(launch, step));
                    done += 1;
                }
            };
            self.run_loops(count >= MANY_STEPS, &mut steps);
            // The callback may use the lane.
            drop(queue);
            watch(done)?;
            if done == count {
                return Ok(());
            }
        }
    }

    fn with_threads(&self, work: &mut (dyn FnMut() + Send)) {
        let _queue = self.lock();
        self.run_loops(true, work);
    }

    fn submit(&self, batch: &LaneBatch<'_>, first: u64) -> Result<()> {
        // Transfer buffers are the arrays themselves, so only the launches are run.
        if !batch.launches.is_empty() {
            let _queue = self.lock();
            let many = batch.launches.len() as u64 >= MANY_STEPS;
            self.run_loops(many, &mut || {
                batch.launches.iter().for_each(|&(step, launch)| run(launch, first + step));
            });
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }

    fn host_array<T: bytemuck::Pod>(&self, len: usize) -> Result<HostArray<T>> {
        self.alloc((len * size_of::<T>()) as u64).map(HostArray::of)
    }

    fn adopt<T: bytemuck::Pod>(&self, array: &HostArray<T>) -> Option<Arc<CpuArray>> {
        array.own().cloned()
    }

    fn address(&self, memory: &Arc<CpuArray>) -> Option<u64> {
        Some(memory.exposed())
    }

    unsafe fn copy_from(&self, src: Foreign, dst: &Arc<CpuArray>, at: u64, pitch: usize) -> Result<()> {
        let _queue = self.lock();
        dst.written();
        let from = std::ptr::with_exposed_provenance::<u8>(src.address as usize);
        // SAFETY: the lock is held.
        let to = &mut unsafe { dst.bytes_mut() }[at as usize..];
        assert!((src.height - 1) * pitch + src.width <= to.len(), "{src:?} for {} bytes", to.len());
        for row in 0..src.height {
            // SAFETY: the source is allocated (guaranteed by the caller), and the target's range is
            // asserted. They may overlap, since the caller's memory may be this lane's own.
            unsafe {
                std::ptr::copy(from.add(row * src.pitch), to.as_mut_ptr().add(row * pitch), src.width);
            }
        }
        Ok(())
    }
}

/// Send buffer that is the array itself, which the host reads.
impl SendStaging<CpuLane> for Arc<CpuArray> {
    fn new(_: &CpuLane, source: &Self, _: u64) -> Result<Self> {
        Ok(source.clone())
    }

    fn read(&self, lane: &CpuLane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let _queue = lane.lock();
        // SAFETY: the lock is held.
        take(&unsafe { self.bytes() }[..bytes])
    }
}
