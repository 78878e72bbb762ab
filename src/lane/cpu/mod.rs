//! The CPU lane: a thread pool that runs the kernels' twins.

#![expect(unsafe_code, reason = "device memory of this lane is shared between launches, as on any device")]

pub mod gather;
pub mod simd;

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use memmap2::MmapMut;

use super::{Device, Limits, PIECE, Program};
use crate::kernel::{Binding, Kernel, Precision, Real};
use crate::{Error, Result};

/// Launches of fewer items than this run on one thread: sharing them out would cost more than it saves.
pub const PARALLEL_ITEMS: usize = 8192;

/// Size of a large page where there are some; arrays of an eighth of it or more are given whole ones.
pub(super) const LARGE_PAGE: usize = 2 << 20;

/// A pool of threads with memory of its own.
#[derive(Debug)]
pub struct CpuLane {
    device: Device,
    pool: rayon::ThreadPool,
    /// Held by every operation that touches memory, so that a lane is the in-order queue it claims to be.
    queue: Mutex<()>,
}

/// Memory of a CPU lane, zeroed, page-aligned.
pub struct Memory {
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

// SAFETY: the bytes are only touched under the owning lane's `queue` lock: `Lane` asserts that arrays, launches and boxes
// are used on the lane that made them. A launch's twin gets each array once, or several times to read (`Lane::bind`
// asserts that what is written is bound once, `Call` that a binding is handed out either to read or once to write).
unsafe impl Sync for Memory {}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.len)
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

/// A launch of a twin.
#[derive(Debug)]
pub struct CpuLaunch {
    twin: fn(&Call<'_>),
    group: u32,
    pub(super) params: Vec<u32>,
    items: usize,
    bindings: &'static [Binding],
    args: Vec<Arc<Memory>>,
}

/// Memory that the system says is available to new work, in bytes.
pub fn available_memory() -> u64 {
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
pub fn expect_memory(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
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
    pub fn open(threads: usize, memory_limit: Option<u64>) -> Result<Self> {
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
            software: false,
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

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn alloc(&self, bytes: u64) -> Result<Arc<Memory>> {
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

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        // A panic inside a twin is a bug that ends the program; the memory itself cannot be left inconsistent.
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn upload(&self, src: &[u8], dst: &Memory, offset: usize) {
        let _queue = self.lock();
        dst.contents.store(new_contents(), Ordering::Relaxed);
        if dst.holds(src, offset) {
            return;
        }
        // SAFETY: the lock is held.
        let dst = unsafe { dst.bytes_mut() };
        dst[offset..offset + src.len()].copy_from_slice(src);
    }

    pub(super) fn download(&self, src: &Memory, offset: usize, dst: &mut [u8]) {
        let _queue = self.lock();
        if src.holds(dst, offset) {
            return;
        }
        // SAFETY: the lock is held.
        let src = unsafe { src.bytes() };
        dst.copy_from_slice(&src[offset..offset + dst.len()]);
    }

    pub(super) fn clear(&self, dst: &Memory) {
        let _queue = self.lock();
        // SAFETY: the lock is held.
        unsafe { dst.bytes_mut() }.fill(0);
    }

    pub(super) fn copy(&self, src: &Memory, dst: &Memory, offset: usize) {
        let _queue = self.lock();
        // SAFETY: the lock is held, and the two are different (asserted by `Lane::copy`).
        unsafe { dst.bytes_mut()[offset..offset + src.len].copy_from_slice(src.bytes()) };
    }

    pub(super) fn bind(
        &self,
        kernel: &Kernel,
        precision: Precision,
        items: usize,
        params: &[u32],
        args: Vec<Arc<Memory>>,
    ) -> CpuLaunch {
        let bindings = kernel.interface.bindings(precision);
        CpuLaunch {
            twin: kernel.twin(precision),
            group: kernel.group(),
            params: params.to_vec(),
            items,
            bindings,
            args,
        }
    }

    /// Runs `count` steps of the program from step `first`, waking up `watch` every [`PIECE`].
    pub(super) fn run(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        let _queue = self.lock();
        // Inside the pool from the first step to the last: a join between two of its threads costs a fraction of
        // a microsecond, entering the pool tens of them.
        self.pool.install(|| {
            let mut seen = Instant::now();
            for step in first..first + count {
                for launch in program.launches(step) {
                    let launch = launch.cpu();
                    (launch.twin)(&Call {
                        params: &launch.params,
                        step: step as u32,
                        items: launch.items,
                        group: launch.group,
                        bindings: launch.bindings,
                        args: &launch.args,
                        taken: Cell::new((0, 0)),
                    });
                }
                if seen.elapsed() >= PIECE {
                    watch(step + 1 - first)?;
                    seen = Instant::now();
                }
            }
            watch(count)
        })
    }

    /// Runs `work` in this lane's pool.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }
}

/// Applies `work` to blocks of at least 4096 elements of `out` (start of the block, block), on all threads if
/// the launch is large.
pub fn blocks<T: Real>(call: &Call<'_>, out: &mut [T], work: impl Fn(usize, &mut [T]) + Sync) {
    use rayon::prelude::*;
    const BLOCK: usize = 1024;
    if call.parallel() {
        out.par_chunks_mut(BLOCK).enumerate().for_each(|(i, block)| work(i * BLOCK, block));
    } else {
        work(0, out);
    }
}
