//! The CPU lane: a thread pool that runs the kernels' twins.

#![expect(unsafe_code, reason = "device memory of this lane is shared between launches, as on any device")]

pub(crate) mod gather;
pub(crate) mod simd;

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use memmap2::MmapMut;

use super::backend::{Backend, Watch, own};
use super::{Arg, Batch, Device, HostArray, Launch, Limits, PIECE, Program, Window};
use crate::kernel::{Binding, Kernel, Precision, Real};
use crate::{Error, Result};

/// Launches of fewer items than this run on one thread: sharing them out would cost more than it saves.
const PARALLEL_ITEMS: usize = 8192;

/// Size of a large page where there are some; arrays of an eighth of it or more are given whole ones.
pub(super) const LARGE_PAGE: usize = 2 << 20;

/// A pool of threads with memory of its own.
#[derive(Debug)]
pub(super) struct CpuLane {
    device: Device,
    pool: rayon::ThreadPool,
    /// Held by every operation that touches memory, so that a lane is the in-order queue it claims to be.
    queue: Mutex<()>,
}

/// Memory of a CPU lane, zeroed, page-aligned.
pub(super) struct Memory {
    bytes: UnsafeCell<MmapMut>,
    address: usize,
    len: usize,
    /// Changes with the host's every write, and differs between all arrays.
    contents: AtomicU64,
}

/// A number that was not given out before.
fn new_contents() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

// SAFETY: the bytes are only touched under the owning lane's `queue` lock: `Lane` asserts that arrays, launches and buffers
// of transfers are used on the lane that made them. A launch's twin gets each array once, or several times to read (`Lane::bind`
// asserts that what is written is bound once, `Call` that a binding is handed out either to read or once to write).
unsafe impl Sync for Memory {}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
    }
}

impl PartialEq for Memory {
    /// Whether both are the same memory.
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl Memory {
    pub(super) fn new(len: usize) -> std::io::Result<Self> {
        // Gathers touch a page per element in the worst case; large pages keep them within the TLB's reach. A
        // kernel that has none says so.
        let large = len >= LARGE_PAGE / 8;
        let map = MmapMut::map_anon(if large { len.next_multiple_of(LARGE_PAGE) } else { len.max(8) })?;
        #[cfg(target_os = "linux")]
        if large {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let address = map.as_ptr().addr();
        Ok(Self { bytes: UnsafeCell::new(map), address, len, contents: new_contents().into() })
    }

    /// Whether these bytes are the memory's own, from `offset` on: an array of the host that a lane adopted.
    fn holds(&self, bytes: &[u8], offset: usize) -> bool {
        self.address + offset == bytes.as_ptr().addr()
    }

    /// # Safety
    /// Nothing writes these bytes while the slice lives.
    pub(super) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: as this function demands.
        unsafe { &(&*self.bytes.get())[..self.len] }
    }

    /// # Safety
    /// Nothing else reads or writes these bytes while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "device memory: exclusive access is what this function demands")]
    pub(super) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as this function demands.
        unsafe { &mut (&mut *self.bytes.get())[..self.len] }
    }
}

/// What a twin sees of its launch: the same parameters and bindings as the kernel's text.
#[derive(Debug)]
pub struct Call<'a> {
    params: &'a [u32],
    step: u32,
    items: usize,
    group: u32,
    bindings: &'static [Binding],
    args: &'a [Arc<Memory>],
    /// One bit an argument: handed out for reading, for writing.
    taken: Cell<(u32, u32)>,
}

impl<'a> Call<'a> {
    /// Problem size: rows, elements.
    pub fn items(&self) -> usize {
        self.items
    }

    /// Threads of the kernel's workgroups.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// The kernel's parameters.
    pub(crate) fn params<P: bytemuck::Pod>(&self) -> P {
        let mut params = bytemuck::pod_read_unaligned(bytemuck::cast_slice(self.params));
        bytemuck::cast_slice_mut(bytemuck::bytes_of_mut(&mut params))[0] = self.step;
        params
    }

    /// Whether the launch is large enough to be shared out over threads.
    pub fn parallel(&self) -> bool {
        self.items >= PARALLEL_ITEMS
    }

    /// A binding that the kernel reads.
    pub(crate) fn read<T: bytemuck::Pod>(&self, binding: usize) -> &'a [T] {
        let (read, written) = self.taken.get();
        assert!(written & (1 << binding) == 0, "binding {binding} is already written by this launch");
        self.taken.set((read | 1 << binding, written));
        // SAFETY: the lane's queue lock is held, and this binding is not handed out for writing (asserted); no other that
        // is written shares its memory (asserted by `Lane::bind`, and that a twin writes only these below).
        bytemuck::cast_slice(unsafe { self.args[binding].bytes() })
    }

    /// A number that stands for the contents of a binding that no kernel writes: equal contents of one array, and
    /// different numbers otherwise.
    pub fn contents<T>(&self, array: &[T]) -> u64 {
        let bound = self.args.iter().find(|memory| memory.address == array.as_ptr().addr());
        bound.expect("the whole of a binding").contents.load(Ordering::Relaxed)
    }

    /// A binding that the kernel writes.
    pub(crate) fn write<T: bytemuck::Pod>(&self, binding: usize) -> &'a mut [T] {
        assert!(self.bindings[binding].written, "{} is not written", self.bindings[binding].name);
        let (read, written) = self.taken.get();
        assert!((read | written) & (1 << binding) == 0, "binding {binding} is already in use by this launch");
        self.taken.set((read, written | 1 << binding));
        // SAFETY: as in `read`, and this binding is handed out once.
        bytemuck::cast_slice_mut(unsafe { self.args[binding].bytes_mut() })
    }
}

/// A twin with its arguments.
#[derive(Debug)]
pub(super) struct CpuLaunch {
    twin: fn(&Call<'_>),
    group: u32,
    items: usize,
    bindings: &'static [Binding],
    args: Vec<Arc<Memory>>,
}

impl CpuLaunch {
    /// Runs it as a step. The lane's lock is held.
    fn run(launch: &Launch, step: u64) {
        let own: &Self = own(&launch.prepared);
        (own.twin)(&Call {
            params: &launch.params,
            step: step as u32,
            items: own.items,
            group: own.group,
            bindings: own.bindings,
            args: &own.args,
            taken: Cell::new((0, 0)),
        });
    }
}

/// A place in an array, which is the host's memory itself.
#[derive(Debug)]
pub(super) struct ReceiveBuffer {
    target: Arc<Memory>,
    offset: u64,
}

/// Memory that the system says is available to new work, in bytes.
pub(crate) fn available_memory() -> u64 {
    // A system that does not tell is taken to have enough: the allocation itself will say.
    sysinfo::System::new().map_or(u64::MAX, |mut system| {
        system.refresh_memory();
        system.available_memory()
    })
}

/// An error if the system says that it has less memory than `bytes`; `what` names what they are for. To be asked
/// before vectors are made that a program ends over when they do not fit.
///
/// # Errors
/// [`Error::OutOfMemory`] with both numbers.
pub(crate) fn expect_memory(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    let available = available_memory();
    if bytes <= available {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        device: "the host".to_owned(),
        what: what(),
        asked: bytes,
        limit: format!("{available} bytes of memory are available"),
    })
}

impl CpuLane {
    /// Opens a lane of `threads` threads.
    pub(super) fn open(threads: usize, memory_limit: Option<u64>) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("kolmo-cpu-{i}"))
            .build()
            .map_err(|e| Error::Device(format!("cpu: {threads} threads could not be started: {e}")))?;
        let memory = available_memory();
        let level = match simd::level() {
            simd::Level::Avx512 => "AVX-512",
            simd::Level::Avx2 => "AVX2",
            simd::Level::Portable => "portable code",
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
        Ok(Self { device, pool, queue: Mutex::new(()) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        // A panic inside a twin is a bug that ends the program; the memory itself cannot be left inconsistent.
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Backend for CpuLane {
    type Memory = Arc<Memory>;
    type Launch = CpuLaunch;
    type SendBuffer = Arc<Memory>;
    type ReceiveBuffer = ReceiveBuffer;

    fn device(&self) -> &Device {
        &self.device
    }

    fn free_bytes(&self, _: u64) -> Option<u64> {
        Some(available_memory())
    }

    fn alloc(&self, bytes: u64) -> Result<Arc<Memory>> {
        let out_of_memory = |reason: String| Error::OutOfMemory {
            device: self.device.name.clone(),
            what: "an array".to_owned(),
            asked: bytes,
            limit: reason,
        };
        let available = available_memory();
        if bytes > available {
            return Err(out_of_memory(format!("{available} bytes of memory are available")));
        }
        Memory::new(bytes as usize).map(Arc::new).map_err(|e| out_of_memory(e.to_string()))
    }

    fn upload(&self, src: &[u8], dst: &Arc<Memory>, offset: u64) -> Result<()> {
        let (_queue, offset) = (self.lock(), offset as usize);
        dst.contents.store(new_contents(), Ordering::Relaxed);
        if !dst.holds(src, offset) {
            // SAFETY: the lock is held.
            let dst = unsafe { dst.bytes_mut() };
            dst[offset..offset + src.len()].copy_from_slice(src);
        }
        Ok(())
    }

    fn download(&self, src: &Arc<Memory>, offset: u64, dst: &mut [u8]) -> Result<()> {
        let (_queue, offset) = (self.lock(), offset as usize);
        if !src.holds(dst, offset) {
            // SAFETY: the lock is held.
            let src = unsafe { src.bytes() };
            dst.copy_from_slice(&src[offset..offset + dst.len()]);
        }
        Ok(())
    }

    fn clear(&self, dst: &Arc<Memory>, _: u64) -> Result<()> {
        let _queue = self.lock();
        // SAFETY: the lock is held.
        unsafe { dst.bytes_mut() }.fill(0);
        Ok(())
    }

    fn copy(&self, src: &Arc<Memory>, dst: &Arc<Memory>, offset: u64, bytes: u64, times: u32) -> Result<()> {
        let _queue = self.lock();
        // SAFETY: the lock is held, and the two are different (asserted by `Lane::copy`).
        let (src, dst) = unsafe { (src.bytes(), dst.bytes_mut()) };
        let (offset, bytes) = (offset as usize, bytes as usize);
        for _ in 0..times {
            dst[offset..offset + bytes].copy_from_slice(&src[..bytes]);
        }
        Ok(())
    }

    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<CpuLaunch> {
        Ok(CpuLaunch {
            twin: kernel.twin(precision),
            group: kernel.group(),
            items,
            bindings: kernel.interface.bindings(precision),
            args: args.iter().map(|arg| Arc::clone(own(arg.memory))).collect(),
        })
    }

    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: Watch<'_>) -> Result<()> {
        let _queue = self.lock();
        // Inside the pool from the first step to the last: a join between two of its threads costs a fraction of
        // a microsecond, entering the pool tens of them.
        self.pool.install(|| {
            let mut seen = Instant::now();
            for step in first..first + count {
                program.launches(step).iter().for_each(|launch| CpuLaunch::run(launch, step));
                if seen.elapsed() >= PIECE {
                    watch(step + 1 - first)?;
                    seen = Instant::now();
                }
            }
            watch(count)
        })
    }

    fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()> {
        // Buffers of transfers are the arrays themselves: filling and reading them is all.
        if !batch.launches.is_empty() {
            let _queue = self.lock();
            let launches = batch.launches.iter();
            self.pool.install(|| launches.for_each(|&(step, launch)| CpuLaunch::run(launch, first + step)));
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }

    fn send_buffer(&self, source: &Arc<Memory>, _: u64, _: Option<&Arc<Window>>) -> Result<Arc<Memory>> {
        Ok(source.clone())
    }

    fn receive_buffer(
        &self,
        target: &Arc<Memory>,
        offset: u64,
        _: u64,
        _: Option<&Arc<Window>>,
    ) -> Result<ReceiveBuffer> {
        Ok(ReceiveBuffer { target: target.clone(), offset })
    }

    fn read_sent(
        &self,
        sent: &Arc<Memory>,
        bytes: usize,
        take: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let _queue = self.lock();
        // SAFETY: the lock is held.
        take(&unsafe { sent.bytes() }[..bytes])
    }

    fn write_received(&self, received: &ReceiveBuffer, values: &[u8]) -> Result<()> {
        self.upload(values, &received.target, received.offset)
    }

    fn host_array<T: bytemuck::Pod>(&self, len: usize) -> Result<HostArray<T>> {
        self.alloc((len * size_of::<T>()) as u64).map(HostArray::of)
    }

    fn adopt<T: bytemuck::Pod>(&self, array: &HostArray<T>) -> Option<Arc<Memory>> {
        array.own().cloned()
    }

    fn host<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }
}

/// Applies `work` to blocks of at least 4096 elements of `out` (start of the block, block), on all threads if
/// the launch is large.
pub(crate) fn blocks<T: Real>(call: &Call<'_>, out: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
    use rayon::prelude::*;
    const BLOCK: usize = 1024;
    if call.parallel() {
        out.par_chunks_mut(BLOCK).enumerate().for_each(|(i, block)| work(i * BLOCK, block));
    } else {
        work(0, out);
    }
}
