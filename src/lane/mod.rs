//! Lanes: in-order queues of work on one device each.
//!
//! A lane is a wgpu device with its queue, a CUDA stream, or a pool of CPU threads. Lanes are values of one type, so a run
//! may mix devices and no solver is generic over a backend. Memory belongs to the lane that allocated it.
//!
//! ```
//! use kolmo::lane::{DeviceSpec, OpenOptions, open};
//!
//! // Two CPU lanes share out the threads; `list()` says what else there is, "wgpu:0".parse() names it.
//! let specs: Vec<DeviceSpec> = vec!["cpu".parse()?, DeviceSpec::Cpu];
//! let (lanes, precision) = open(&specs, &OpenOptions::default())?;
//! assert_eq!((lanes.len(), precision), (2, kolmo::kernel::Precision::F64));
//! let numbers = lanes[0].alloc_with("some numbers", &[1.0, 2.0, 3.0])?;
//! let mut back = [0.0; 3];
//! lanes[0].download(&numbers, 0, &mut back)?;
//! assert_eq!(back, [1.0, 2.0, 3.0]);
//! # Ok::<(), kolmo::Error>(())
//! ```

pub mod bandwidth;
pub mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fault;
mod host;
#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod pieces;
mod port;
mod self_test;
mod spec;
#[cfg(feature = "wgpu")]
mod wgpu;
pub(crate) mod window;

#[cfg(feature = "cuda")]
pub(crate) use cuda::{CudaLane, Event, Side};
pub use host::HostArray;
#[cfg(feature = "cuda")]
pub(crate) use pieces::pieces;
pub(crate) use port::{Batch, ReceiveBuffer, SendBuffer};
pub(crate) use self_test::SELF_TEST;
pub use spec::{DeviceSpec, Listing, OpenOptions, list, open};
pub use spec::{of_place, quiet_drivers};
pub(crate) use window::Window;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytemuck::Pod;

use crate::kernel::{Arguments, Kernel, Precision, Scalar};
use crate::sparse::MatrixFormat;
use crate::{Error, Result};

/// How long a lane works between two looks at the watch: long enough to hide the cost of waking up, short
/// enough that an interruption is noticed at once.
pub const PIECE: Duration = Duration::from_millis(70);

/// What a run needs to know of a device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Name for people.
    pub name: String,
    /// Name on the command line, `wgpu:0`.
    pub spec: String,
    /// `cpu`, `vulkan`, `metal`, `dx12`.
    pub backend: &'static str,
    /// Name and version of what runs the kernels, as it tells them itself.
    pub driver: String,
    /// Whether a CPU stands behind a GPU's interface.
    pub software: bool,
    /// Whether it computes in double precision.
    pub f64: bool,
    /// Limits that matter.
    pub limits: Limits,
}

/// Limits of a device, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest array that a kernel can see.
    pub binding: u64,
    /// Largest allocation.
    pub buffer: u64,
    /// Memory that a run may take, if known.
    pub memory: Option<u64>,
    /// Whether the device's memory is the host's.
    pub unified: bool,
}

/// Bytes in use on a lane, against the limit set by the user or the device; and time spent on transfers.
#[derive(Debug)]
struct Budget {
    /// Number of the lane, which no other has.
    lane: u32,
    used: AtomicU64,
    peak: AtomicU64,
    limit: Option<u64>,
    /// Nanoseconds of uploads and downloads.
    up: AtomicU64,
    down: AtomicU64,
}

/// An in-order queue of work on one device.
#[derive(Debug)]
pub struct Lane {
    queue: Queue,
    budget: Arc<Budget>,
    /// Bytes a second that it was once measured to move.
    bandwidth: OnceLock<f64>,
    /// Formats of matrices that it was once measured to be slow with.
    slow: OnceLock<Vec<MatrixFormat>>,
}

#[derive(Debug)]
enum Queue {
    Cpu(cpu::CpuLane),
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuLane),
    #[cfg(feature = "cuda")]
    Cuda(CudaLane),
}

/// An array in a lane's memory.
#[derive(Debug)]
pub struct Buffer<T> {
    len: usize,
    store: Store,
    charge: Charge,
    element: PhantomData<T>,
}

#[derive(Debug, Clone)]
enum Store {
    Cpu(Arc<cpu::Memory>),
    #[cfg(feature = "wgpu")]
    Wgpu(::wgpu::Buffer),
    #[cfg(feature = "cuda")]
    Cuda(Arc<cuda::Memory>),
}

/// Bytes charged to a lane's budget until dropped.
#[derive(Debug)]
struct Charge {
    bytes: u64,
    budget: Arc<Budget>,
}

impl Store {
    /// Whether both are the same memory. Arrays never share a part of it.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cpu(a), Self::Cpu(b)) => Arc::ptr_eq(a, b),
            #[cfg(feature = "wgpu")]
            (Self::Wgpu(a), Self::Wgpu(b)) => a == b,
            #[cfg(feature = "cuda")]
            (Self::Cuda(a), Self::Cuda(b)) => Arc::ptr_eq(a, b),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => false,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Adds the time until it is dropped to a counter.
struct Timed<'a> {
    from: Instant,
    counter: &'a AtomicU64,
}

impl<'a> Timed<'a> {
    fn new(counter: &'a AtomicU64) -> Self {
        Self { from: Instant::now(), counter }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.counter.fetch_add(self.from.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Arg<'a> {
    store: &'a Store,
    #[cfg_attr(not(feature = "wgpu"), allow(dead_code, reason = "only devices have a limit to check"))]
    bytes: u64,
    /// Number of the lane that it belongs to.
    lane: u32,
    /// Its numbers, if they are known.
    scalar: Option<Scalar>,
}

impl Arg<'_> {
    /// The same memory, whatever numbers the kernel takes it for.
    pub fn untyped(self) -> Self {
        Self { scalar: None, ..self }
    }
}

/// An error that names what there is no memory for.
fn named(e: Error, what: &str) -> Error {
    match e {
        Error::OutOfMemory { device, asked, limit, .. } => {
            Error::OutOfMemory { device, what: what.to_owned(), asked, limit }
        }
        e => e,
    }
}

impl<T: Pod> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.charge.bytes
    }

    /// This array as an argument of a kernel.
    pub fn arg(&self) -> Arg<'_> {
        let scalar = Scalar::of::<T>();
        Arg { store: &self.store, bytes: self.bytes(), lane: self.charge.budget.lane, scalar }
    }
}

/// A kernel with its arguments, ready to run any number of times on the lane that made it.
#[derive(Debug)]
pub struct Launch {
    prepared: Prepared,
    /// Those of the parameters.
    names: &'static [&'static str],
    /// Number of that lane.
    lane: u32,
}

#[derive(Debug)]
enum Prepared {
    Cpu(cpu::CpuLaunch),
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuLaunch),
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaLaunch),
}

impl Launch {
    /// Changes a parameter.
    ///
    /// # Panics
    /// If the kernel has none of this name.
    pub fn set(&mut self, name: &str, value: u32) {
        let index = self.names.iter().position(|known| *known == name);
        let index = index.unwrap_or_else(|| panic!("no parameter {name} among {:?}", self.names));
        match &mut self.prepared {
            Prepared::Cpu(launch) => launch.params[index] = value,
            #[cfg(feature = "wgpu")]
            Prepared::Wgpu(launch) => launch.params[index] = value,
            #[cfg(feature = "cuda")]
            Prepared::Cuda(launch) => launch.params[index] = value,
        }
    }

    fn cpu(&self) -> &cpu::CpuLaunch {
        match &self.prepared {
            Prepared::Cpu(launch) => launch,
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("a launch runs on the lane that made it"),
        }
    }

    #[cfg(feature = "wgpu")]
    fn wgpu(&self) -> &wgpu::WgpuLaunch {
        match &self.prepared {
            Prepared::Wgpu(launch) => launch,
            _ => unreachable!("a launch runs on the lane that made it"),
        }
    }

    #[cfg(feature = "cuda")]
    fn cuda(&self) -> &cuda::CudaLaunch {
        match &self.prepared {
            Prepared::Cuda(launch) => launch,
            _ => unreachable!("a launch runs on the lane that made it"),
        }
    }
}

/// A grid of at least `groups` workgroups, as square as its limit of `most` in one dimension asks for.
#[cfg(any(feature = "wgpu", feature = "cuda"))]
fn fold(groups: u64, most: u32) -> (u32, u32) {
    let rows = groups.div_ceil(u64::from(most));
    let columns = groups.div_ceil(rows);
    assert!(rows <= u64::from(most), "{groups} workgroups do not fit a grid of {most} by {most}");
    (columns as u32, rows as u32)
}

/// The launches of a long loop: step k runs `cycle[k mod cycle.len()]`, in order.
#[derive(Debug, Default)]
pub struct Program<'a> {
    /// Launches of each step of a period.
    pub cycle: Vec<Vec<&'a Launch>>,
}

impl<'a> Program<'a> {
    fn launches(&self, step: u64) -> &[&'a Launch] {
        &self.cycle[(step % self.cycle.len() as u64) as usize]
    }
}

impl Lane {
    fn new(queue: Queue, memory_limit: Option<u64>) -> Self {
        static LANES: AtomicU32 = AtomicU32::new(0);
        Self {
            queue,
            budget: Arc::new(Budget {
                lane: LANES.fetch_add(1, Ordering::Relaxed),
                used: AtomicU64::new(0),
                peak: AtomicU64::new(0),
                limit: memory_limit,
                up: AtomicU64::new(0),
                down: AtomicU64::new(0),
            }),
            bandwidth: OnceLock::new(),
            slow: OnceLock::new(),
        }
    }

    /// Number of this lane, which no other of this process ever has.
    pub(crate) fn number(&self) -> u32 {
        self.budget.lane
    }

    /// Asserts that something was made by this lane: another would use its memory without this one's queue.
    #[track_caller]
    fn assert_own(&self, what: &str, lane: u32) {
        let (own, spec) = (self.budget.lane, &self.device().spec);
        assert!(lane == own, "{what} of lane {lane} is used on lane {own} ({spec})");
    }

    /// Does what is no part of a run: neither its arrays nor its copies count.
    pub(crate) fn unnoticed<R>(&self, work: impl FnOnce() -> R) -> R {
        let counters = [&self.budget.peak, &self.budget.up, &self.budget.down];
        let before = counters.map(|counter| counter.load(Ordering::Relaxed));
        let done = work();
        counters.iter().zip(before).for_each(|(counter, value)| counter.store(value, Ordering::Relaxed));
        done
    }

    /// Takes over what was measured of this device before: bytes a second, and the formats of matrices that are slower
    /// on it than they should be. What this lane knows already it keeps.
    pub fn remember(&self, bandwidth: f64, slow: Vec<MatrixFormat>) {
        let _ = self.bandwidth.set(bandwidth);
        let _ = self.slow.set(slow);
    }

    /// Formats of matrices that this device is known to be slow with.
    pub(crate) fn slow(&self) -> &[MatrixFormat] {
        self.slow.get().map_or(&[], |slow| slow)
    }

    /// Bytes a second that this lane moves, measured when first asked for.
    pub(crate) fn bandwidth(&self) -> Result<f64> {
        if let Some(&measured) = self.bandwidth.get() {
            return Ok(measured);
        }
        let measured = self.unnoticed(|| bandwidth::triad_bandwidth(self, 32 << 20, 3))? * 1e9;
        Ok(*self.bandwidth.get_or_init(|| measured))
    }

    /// The device behind this lane.
    pub fn device(&self) -> &Device {
        match &self.queue {
            Queue::Cpu(lane) => lane.device(),
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => lane.device(),
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => lane.device(),
        }
    }

    /// Largest number of bytes that this lane held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.budget.peak.load(Ordering::Relaxed)
    }

    /// Seconds spent so far on copies from the host and to the host.
    pub fn transfer_seconds(&self) -> (f64, f64) {
        let seconds = |nanoseconds: &AtomicU64| nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9;
        (seconds(&self.budget.up), seconds(&self.budget.down))
    }

    /// Forgets what was held and copied before, as the self-test was.
    fn forget(&self) {
        for counter in [&self.budget.peak, &self.budget.up, &self.budget.down] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Bytes that can still be allocated, if a limit is known.
    pub fn free_bytes(&self) -> Option<u64> {
        let used = self.budget.used.load(Ordering::Relaxed);
        match (self.budget.limit, &self.queue) {
            (Some(limit), _) => Some(limit.saturating_sub(used)),
            (None, Queue::Cpu(_)) => Some(cpu::available_memory()),
            #[cfg(feature = "wgpu")]
            (None, Queue::Wgpu(lane)) => lane.device().limits.memory.map(|m| m.saturating_sub(used)),
            #[cfg(feature = "cuda")]
            (None, Queue::Cuda(lane)) => lane.free(),
        }
    }

    /// An error if the user's limit leaves less than `bytes`; `what` names what they are for.
    pub(crate) fn expect_room(&self, what: &str, bytes: u64) -> Result<()> {
        let used = self.budget.used.load(Ordering::Relaxed);
        match self.budget.limit {
            Some(limit) if used.saturating_add(bytes) > limit => Err(Error::OutOfMemory {
                device: self.device().name.clone(),
                what: what.to_owned(),
                asked: bytes,
                limit: format!("{used} of the {limit} bytes of --memory-limit are in use"),
            }),
            _ => Ok(()),
        }
    }

    /// Allocates `len` zeroed elements; `what` names them in the error when memory does not suffice.
    pub fn alloc<T: Pod>(&self, what: &str, len: usize) -> Result<Buffer<T>> {
        self.charged(what, len, |bytes| {
            Ok(match &self.queue {
                Queue::Cpu(lane) => Store::Cpu(lane.alloc(bytes).map_err(|e| named(e, what))?),
                #[cfg(feature = "wgpu")]
                Queue::Wgpu(lane) => Store::Wgpu(lane.alloc(bytes).map_err(|e| named(e, what))?),
                #[cfg(feature = "cuda")]
                Queue::Cuda(lane) => Store::Cuda(lane.alloc(bytes).map_err(|e| named(e, what))?),
            })
        })
    }

    /// A buffer of `len` elements whose bytes count as used.
    fn charged<T: Pod>(
        &self,
        what: &str,
        len: usize,
        store: impl FnOnce(u64) -> Result<Store>,
    ) -> Result<Buffer<T>> {
        let bytes = (len.max(1) as u64) * size_of::<T>() as u64;
        fault::allocation(self.device(), what, bytes)?;
        self.expect_room(what, bytes)?;
        let store = store(bytes)?;
        let used = self.budget.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.budget.peak.fetch_max(used, Ordering::Relaxed);
        Ok(Buffer { len, store, charge: Charge { bytes, budget: self.budget.clone() }, element: PhantomData })
    }

    /// Allocates an array with these elements.
    pub fn alloc_with<T: Pod>(&self, what: &str, elements: &[T]) -> Result<Buffer<T>> {
        let buffer = self.alloc(what, elements.len())?;
        self.upload(elements, &buffer, 0)?;
        Ok(buffer)
    }

    /// Copies host elements into `dst`, from its element `offset` on.
    pub fn upload<T: Pod>(&self, src: &[T], dst: &Buffer<T>, offset: usize) -> Result<()> {
        fault::copy(self.device())?;
        self.assert_own("an array", dst.charge.budget.lane);
        let _timed = Timed::new(&self.budget.up);
        assert!(offset + src.len() <= dst.len, "{} elements at {offset} of {}", src.len(), dst.len);
        let (bytes, at) = (bytemuck::cast_slice(src), offset * size_of::<T>());
        match (&self.queue, &dst.store) {
            (Queue::Cpu(lane), Store::Cpu(memory)) => lane.upload(bytes, memory, at),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => return lane.upload(bytes, buffer, at as u64),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => return lane.upload(bytes, memory, at as u64),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        }
        Ok(())
    }

    /// Copies elements of `src`, from its element `offset` on, to the host.
    pub fn download<T: Pod>(&self, src: &Buffer<T>, offset: usize, dst: &mut [T]) -> Result<()> {
        fault::copy(self.device())?;
        self.assert_own("an array", src.charge.budget.lane);
        let _timed = Timed::new(&self.budget.down);
        assert!(offset + dst.len() <= src.len, "{} elements at {offset} of {}", dst.len(), src.len);
        let (bytes, at) = (bytemuck::cast_slice_mut(dst), offset * size_of::<T>());
        match (&self.queue, &src.store) {
            (Queue::Cpu(lane), Store::Cpu(memory)) => lane.download(memory, at, bytes),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => return lane.download(buffer, at as u64, bytes),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => return lane.download(memory, at as u64, bytes),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        }
        Ok(())
    }

    /// Sets every element to zero.
    pub fn clear<T: Pod>(&self, dst: &Buffer<T>) -> Result<()> {
        self.assert_own("an array", dst.charge.budget.lane);
        match (&self.queue, &dst.store) {
            (Queue::Cpu(lane), Store::Cpu(memory)) => lane.clear(memory),
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(buffer)) => return lane.clear(buffer),
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => return lane.clear(memory, dst.bytes()),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        }
        Ok(())
    }

    /// Copies all of `src` into `dst`, from its element `offset` on, on the device, and waits. `times` repeats it,
    /// for measuring.
    pub fn copy<T: Pod>(&self, src: &Buffer<T>, dst: &Buffer<T>, offset: usize, times: u32) -> Result<()> {
        assert!(offset + src.len <= dst.len, "{} elements at {offset} of {}", src.len, dst.len);
        [src, dst].iter().for_each(|array| self.assert_own("an array", array.charge.budget.lane));
        assert!(!src.store.is(&dst.store), "a copy has two different sides");
        let at = offset * size_of::<T>();
        match (&self.queue, &src.store, &dst.store) {
            (Queue::Cpu(lane), Store::Cpu(src), Store::Cpu(dst)) => {
                (0..times).for_each(|_| lane.copy(src, dst, at));
            }
            #[cfg(feature = "wgpu")]
            (Queue::Wgpu(lane), Store::Wgpu(a), Store::Wgpu(b)) => {
                return lane.copy(a, b, at as u64, (src.len * size_of::<T>()) as u64, times);
            }
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(a), Store::Cuda(b)) => {
                return lane.copy(a, b, at as u64, (src.len * size_of::<T>()) as u64, times);
            }
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => unreachable!("an array is used on the lane that allocated it"),
        }
        Ok(())
    }

    /// Prepares a launch of `kernel` on a problem of `items` rows or elements. Of its parameters the step is set by each
    /// run. Arrays that it writes are different from all others.
    ///
    /// # Panics
    /// If parameters and arguments are those of another kernel, numbers of an argument are of another type, memory that
    /// is written is bound twice, or memory belongs to a lane that this one does not reach.
    pub fn bind<'a, A: Arguments<'a>>(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        params: A::Params,
        args: A,
    ) -> Result<Launch> {
        assert_eq!(A::KERNEL, kernel.name, "the kernel whose arguments are bound, and the kernel");
        let args = args.list();
        self.assert_interface(kernel, precision, &args);
        let params: &[u32] = bytemuck::cast_slice(bytemuck::bytes_of(&params));
        let prepared = match &self.queue {
            Queue::Cpu(lane) => {
                let args = args.iter().map(|arg| match arg.store {
                    Store::Cpu(memory) => memory.clone(),
                    #[cfg(any(feature = "wgpu", feature = "cuda"))]
                    _ => unreachable!("an array is used on the lane that allocated it"),
                });
                Prepared::Cpu(lane.bind(kernel, precision, items, params, args.collect()))
            }
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => {
                let args = args.iter().map(|arg| match arg.store {
                    Store::Wgpu(buffer) => (buffer, arg.bytes),
                    _ => unreachable!("an array is used on the lane that allocated it"),
                });
                Prepared::Wgpu(lane.bind(kernel, precision, items, params, &args.collect::<Vec<_>>())?)
            }
            // Memory of another CUDA lane that this one reaches is an argument as good as its own.
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => {
                let args = args.iter().map(|arg| match arg.store {
                    Store::Cuda(memory) => memory.clone(),
                    _ => unreachable!("an array is used on a lane that reaches it"),
                });
                Prepared::Cuda(lane.bind(kernel, precision, items, params, args.collect())?)
            }
        };
        Ok(Launch { prepared, names: kernel.interface.params, lane: self.budget.lane })
    }

    /// Asserts what the lanes' unsafe code relies on: see [`Lane::bind`].
    #[track_caller]
    fn assert_interface(&self, kernel: &Kernel, precision: Precision, args: &[Arg<'_>]) {
        let (name, bindings, own) = (kernel.name, kernel.interface.bindings(precision), self.budget.lane);
        for (i, (arg, binding)) in args.iter().zip(bindings).enumerate() {
            let what = || format!("argument {i} of kernel '{name}', {}", binding.name);
            assert!(
                arg.lane == own || self.reaches(arg.store),
                "{}, is memory of lane {}, bound on lane {own} ({})",
                what(),
                arg.lane,
                self.device().spec
            );
            let (given, wanted) = (arg.scalar, (binding.scalar)());
            assert!(
                given.is_none() || wanted.is_none() || given == wanted,
                "{}, holds {given:?}, not {wanted:?}",
                what()
            );
            let twice = (0..args.len()).find(|&k| k != i && args[k].store.is(arg.store));
            if let Some(k) = twice.filter(|_| binding.written) {
                panic!("{}, is written and is argument {k}, {}, as well", what(), bindings[k].name);
            }
        }
    }

    /// Whether kernels of this lane may be given memory of another: CUDA devices reach each other's.
    fn reaches(&self, store: &Store) -> bool {
        match (&self.queue, store) {
            #[cfg(feature = "cuda")]
            (Queue::Cuda(lane), Store::Cuda(memory)) => lane.reaches_memory(memory),
            _ => false,
        }
    }

    /// Runs steps `first .. first + count` of a program and waits for them. Every [`PIECE`], and at the end,
    /// `watch` gets the number of steps done so far; its error stops the run.
    pub fn run(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        assert!(first + count <= u64::from(u32::MAX), "steps are counted in 32 bits: {first} + {count}");
        program.cycle.iter().flatten().for_each(|launch| self.assert_own("a launch", launch.lane));
        if let Some((before, lost)) = fault::steps(self.device(), count) {
            return self.queued(program, first, before, watch).and(Err(lost));
        }
        self.queued(program, first, count, watch)
    }

    fn queued(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        match &self.queue {
            Queue::Cpu(lane) => lane.run(program, first, count, watch),
            #[cfg(feature = "wgpu")]
            Queue::Wgpu(lane) => lane.run(program, first, count, watch),
            #[cfg(feature = "cuda")]
            Queue::Cuda(lane) => lane.run(program, first, count, watch),
        }
    }

    /// Runs each launch once, in order, as step `step`, and waits for them.
    pub fn launch(&self, launches: &[&Launch], step: u64) -> Result<()> {
        self.run(&Program { cycle: vec![launches.to_vec()] }, step, 1, &mut |_| Ok(()))
    }

    /// Runs host work in this lane's threads, if it has any of its own.
    pub fn host<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.queue {
            Queue::Cpu(lane) => lane.install(work),
            #[cfg(any(feature = "wgpu", feature = "cuda"))]
            _ => work(),
        }
    }

    /// Takes the device away, as a driver that gives up does.
    #[cfg(all(test, feature = "wgpu"))]
    pub(crate) fn lose(&self) {
        if let Queue::Wgpu(lane) = &self.queue {
            lane.lose();
        }
    }

    /// The stream behind a CUDA lane.
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(&self) -> Option<&CudaLane> {
        match &self.queue {
            Queue::Cuda(lane) => Some(lane),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(all(test, any(feature = "wgpu", feature = "cuda")))]
mod grids {
    use super::fold;

    #[test]
    fn a_folded_grid_covers_every_group_and_wastes_less_than_one_row() {
        for groups in [1, 2, 65_535, 65_536, 140_625, 1 << 30] {
            let (columns, rows) = fold(groups, 65_535);

            let covered = u64::from(columns) * u64::from(rows);
            assert!(columns <= 65_535 && rows <= 65_535, "{columns} x {rows}");
            assert!(covered >= groups && covered - groups < u64::from(rows), "{groups}: {covered}");
        }
    }
}
