//! The CUDA lane: one stream of one device.

mod compile;
mod driver;
mod memory;
mod transfer;

pub use compile::{kernel_cache, nvrtc_version};

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::driver::DriverError;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUresult};

use driver::{Context, Function, Pinned, Stream};
pub(crate) use driver::{Event, prepare};
use memory::{Memory, Streams};
use transfer::{ReceiveBuffer, SendBuffer};

use super::backend::{Backend, Watch};
use super::batching::pieces;
use super::host_array::Locked;
use super::work::grid;
use super::{Arg, Batch, Device, Foreign, HostArray, Launch, Limits, Listing, Program};
use crate::kernel::{Kernel, Precision};
use crate::parallel::{copy_bytes_locked, lock};
use crate::util::quantity::Size;
use crate::{Error, Limit, Result};

/// A CUDA stream with its device, context and staging buffers.
#[derive(Debug)]
pub(crate) struct CudaLane {
    device: Device,
    context: Context,
    streams: Arc<Streams>,
    /// Point in the main stream that copies in the second one wait for.
    fence: Event,
    arch: String,
    functions: Mutex<HashMap<(usize, Precision), Function>>,
    staging: Mutex<Staging>,
}

/// One of the two streams of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// The stream for all ordinary work.
    Main,
    /// The second stream; its kernels have priority.
    Aside,
}

/// Page-locked buffers, each with an event after its last transfer.
type Staging = Vec<(Pinned, Event)>;

/// Size of a staging buffer in bytes. Locking its pages takes half a millisecond per megabyte.
const SLOT: usize = 4 << 20;
const SLOTS: usize = 2;

/// Maximum number of groups in one dimension of a grid.
const MOST_GROUPS: u32 = 65_535;

#[derive(Debug)]
pub(super) struct CudaLaunch {
    function: Function,
    grid: (u32, u32),
    group: u32,
    /// Arguments, kept alive while the launch may run.
    args: Vec<Arc<Memory>>,
}

fn device(name: String, spec: String, driver: String, memory: Option<u64>) -> Device {
    Device {
        name,
        spec,
        backend: "cuda",
        driver,
        host: false,
        software: false,
        queued_copies: true,
        mapped_staging: false,
        f64: true,
        limits: Limits { binding: u64::MAX, buffer: u64::MAX, memory, unified: false },
    }
}

fn describe(ordinal: usize, context: &Context) -> driver::Result<(Device, String)> {
    let (free, _) = context.memory()?;
    let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let (name, spec) = (context.name()?, format!("cuda:{ordinal}"));
    Ok((device(name, spec, driver::version(), Some(free as u64)), format!("sm_{major}{minor}")))
}

/// Lists every CUDA device, or one entry with the reason why there is none.
pub(super) fn list() -> Vec<Listing> {
    let missing = |spec: String, why: String| Listing {
        device: device("CUDA".to_owned(), spec, String::new(), None),
        driver: String::new(),
        workgroups: None,
        unusable: Some(why),
    };
    let none = |why: String| vec![missing("cuda".to_owned(), why)];
    let count = match driver::present().and_then(|()| driver::count().map_err(driver::reason)) {
        Ok(0) => return none("the driver finds no device".to_owned()),
        Ok(count) => count,
        Err(why) => return none(why),
    };
    let one = |n: usize| match Context::retain(n).and_then(|context| describe(n, &context)) {
        Ok((device, arch)) => Listing { device, driver: arch, workgroups: Some(MOST_GROUPS), unusable: None },
        Err(e) => missing(format!("cuda:{n}"), driver::reason(e)),
    };
    (0..count).map(one).collect()
}

/// Returns the ordinal of the CUDA device that `auto` selects, if there is a device.
pub(super) fn best() -> Option<usize> {
    (count() > 0).then_some(0)
}

pub(super) fn count() -> usize {
    driver::present().map_or(0, |()| driver::count().unwrap_or(0))
}

impl CudaLane {
    /// Opens a lane of a device; an error for an unknown ordinal lists the devices with `known`.
    pub(super) fn open(ordinal: usize, known: fn() -> String) -> Result<Self> {
        let refuse = |why: String| Error::Device(format!("cuda:{ordinal}: {why}; {}", known()));
        driver::present().map_err(refuse)?;
        let count = driver::count().map_err(|e| refuse(driver::reason(e)))?;
        if ordinal >= count {
            return Err(refuse(format!("there are {count} CUDA devices, counted from 0")));
        }
        let open = || -> driver::Result<Self> {
            let context = Context::retain(ordinal)?;
            let (device, arch) = describe(ordinal, &context)?;
            let streams = Arc::new(Streams::new(context)?);
            let slots = (0..SLOTS).map(|_| {
                let slot = (Pinned::new(context, SLOT)?, Event::new(context)?);
                slot.1.record(&streams.main)?;
                Ok(slot)
            });
            let staging = Mutex::new(slots.collect::<driver::Result<_>>()?);
            let fence = Event::new(context)?;
            fence.record(&streams.main)?;
            Ok(Self { device, context, streams, fence, arch, functions: Mutex::default(), staging })
        };
        open().map_err(|e| refuse(driver::reason(e)))
    }

    fn enter(&self) -> Result<()> {
        self.context.enter().map_err(|e| self.error("a call", e))
    }

    /// Makes driver calls in the lane's context, and names the operation in their errors.
    fn during<T>(&self, what: &str, work: impl FnOnce() -> driver::Result<T>) -> Result<T> {
        self.enter()?;
        work().map_err(|e| self.error(what, e))
    }

    fn error(&self, during: &str, e: DriverError) -> Error {
        Error::lost(&self.device.label(), during, driver::reason(e))
    }

    /// Allocates zeroed page-locked memory.
    fn lock_pages(&self, bytes: u64) -> Result<Pinned> {
        match Pinned::new(self.context, bytes as usize) {
            Ok(mut memory) => {
                memory.bytes_mut().fill(0);
                Ok(memory)
            }
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let limit = Limit::Free("the driver cannot allocate that much".to_owned());
                Err(Error::memory("the host", "page-locked memory", bytes, limit))
            }
            Err(e) => Err(self.error("locking memory", e)),
        }
    }

    /// Records the fence. Copies in the second stream then wait for the work queued in the main
    /// stream so far.
    fn fence(&self) -> Result<()> {
        self.during("an exchange", || self.fence.record(&self.streams.main))
    }

    fn function(&self, kernel: &'static Kernel, precision: Precision) -> Result<Function> {
        let mut functions = lock(&self.functions);
        let key = (std::ptr::from_ref(kernel).addr(), precision);
        if let Some(function) = functions.get(&key) {
            return Ok(*function);
        }
        let code = compile::machine_code(kernel, precision, &self.arch)?;
        let function = driver::load(self.context, &code, kernel.name)
            .map_err(|e| self.error(&format!("loading kernel '{}'", kernel.name), e))?;
        functions.insert(key, function);
        Ok(function)
    }

    fn side(&self, side: Side) -> &Stream {
        match side {
            Side::Main => &self.streams.main,
            Side::Aside => &self.streams.aside,
        }
    }

    /// Enqueues launches in a stream, with `step` as their step number, and does not wait.
    pub(crate) fn enqueue<'a>(
        &self,
        side: Side,
        launches: impl IntoIterator<Item = &'a Launch>,
        step: u64,
    ) -> Result<()> {
        self.enter()?;
        for launch in launches {
            let (own, mut params): (&CudaLaunch, _) = (launch.prepared.own(), launch.params_of(step));
            let mut pointers = [0u64; 16];
            let mut arguments: [*mut c_void; 17] = [std::ptr::null_mut(); 17];
            arguments[0] = params.as_mut_ptr().cast();
            for (i, memory) in own.args.iter().enumerate() {
                pointers[i] = memory.pointer;
                arguments[1 + i] = (&raw mut pointers[i]).cast();
            }
            let arguments = &mut arguments[..1 + own.args.len()];
            #[expect(unsafe_code, reason = "a launch")]
            // SAFETY: parameters and pointers are as many as in the kernel's interface (asserted by
            // `Lane::bind`), which is that of its text (asserted when it was compiled). The launch
            // keeps its memory alive. A dropped block is reused for later work only, or freed when
            // the device is done.
            unsafe { self.side(side).launch(own.function, own.grid, own.group, arguments) }
                .map_err(|e| self.error("a launch", e))?;
        }
        Ok(())
    }

    /// Returns an event after the work queued in the main stream so far.
    pub(crate) fn mark(&self) -> Result<Event> {
        self.during("an event", || {
            let event = Event::new(self.context)?;
            event.record(&self.streams.main)?;
            Ok(event)
        })
    }

    /// Records an event again, after the work queued in a stream so far.
    pub(crate) fn remark(&self, side: Side, event: &Event) -> Result<()> {
        self.during("an event", || event.record(self.side(side)))
    }

    /// Makes later work in a stream wait for an event, of this device or another.
    pub(crate) fn after(&self, side: Side, event: &Event) -> Result<()> {
        self.during("an event", || self.side(side).wait(event))
    }

    pub(crate) fn reached(&self, event: &Event) -> Result<()> {
        event.synchronize().map_err(|e| self.error("a long loop", e))
    }

    /// Returns true if kernels of this lane can access the memory of `other`.
    ///
    /// `KOLMO_NO_PEER` disables such access, so that copies through the host can be tested on any
    /// devices.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        std::env::var_os("KOLMO_NO_PEER").is_none_or(|v| v.is_empty()) && self.context.reach(&other.context)
    }
}

impl Backend for CudaLane {
    type Memory = Arc<Memory>;
    type Launch = CudaLaunch;
    type SendBuffer = SendBuffer;
    type ReceiveBuffer = ReceiveBuffer;

    fn device(&self) -> &Device {
        &self.device
    }

    fn free_bytes(&self, _: u64) -> Option<u64> {
        self.context.memory().ok().map(|(free, _)| (free + self.streams.unused_bytes()) as u64)
    }

    fn alloc(&self, bytes: u64) -> Result<Arc<Memory>> {
        let memory = self.alloc_unset(bytes)?;
        self.clear(&memory, bytes)?;
        Ok(memory)
    }

    fn alloc_unset(&self, bytes: u64) -> Result<Arc<Memory>> {
        match Memory::new(self.context, bytes as usize, &self.streams) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let free = Size(self.free_bytes(0).unwrap_or(0));
                let limit = Limit::Free(format!("{free} of its memory are free"));
                Err(Error::memory(&self.device.label(), "an array", bytes, limit))
            }
            Err(e) => Err(self.error("an allocation", e)),
        }
    }

    fn upload(&self, src: &[u8], dst: &Arc<Memory>, at: u64) -> Result<()> {
        let mut staging = lock(&self.staging);
        self.during("an upload", || {
            for (i, chunk) in src.chunks(SLOT).enumerate() {
                let (pinned, event) = &mut staging[i % SLOTS];
                event.synchronize()?;
                let bytes = &mut pinned.bytes_mut()[..chunk.len()];
                copy_bytes_locked(bytes, chunk);
                self.streams.main.send(bytes, dst, at + (i * SLOT) as u64)?;
                event.record(&self.streams.main)?;
            }
            Ok(())
        })
    }

    fn download(&self, src: &Arc<Memory>, at: u64, dst: &mut [u8]) -> Result<()> {
        let mut staging = lock(&self.staging);
        self.during("a download", || {
            let lengths: Vec<usize> = dst.chunks(SLOT).map(<[u8]>::len).collect();
            let fetch = |staging: &mut Staging, i: usize| -> driver::Result<()> {
                let (pinned, event) = &mut staging[i % SLOTS];
                event.synchronize()?;
                self.streams.main.fetch(
                    src,
                    at + (i * SLOT) as u64,
                    &mut pinned.bytes_mut()[..lengths[i]],
                )?;
                event.record(&self.streams.main)
            };
            for i in 0..lengths.len().min(SLOTS) {
                fetch(&mut staging, i)?;
            }
            for (i, chunk) in dst.chunks_mut(SLOT).enumerate() {
                let (pinned, event) = &mut staging[i % SLOTS];
                event.synchronize()?;
                copy_bytes_locked(chunk, &pinned.bytes()[..chunk.len()]);
                if i + SLOTS < lengths.len() {
                    fetch(&mut staging, i + SLOTS)?;
                }
            }
            Ok(())
        })
    }

    fn send(&self, src: &[u8], dst: &Arc<Memory>, at: u64) -> Result<()> {
        self.during("an upload", || self.streams.main.send(src, dst, at))
    }

    fn fetch(&self, src: &Arc<Memory>, at: u64, dst: &mut [u8]) -> Result<()> {
        self.during("a download", || self.streams.main.fetch(src, at, dst))
    }

    fn clear(&self, dst: &Arc<Memory>, bytes: u64) -> Result<()> {
        self.during("clearing", || self.streams.main.clear(dst, bytes as usize))
    }

    fn copy(&self, src: &Arc<Memory>, dst: &Arc<Memory>, at: u64, bytes: u64, times: u32) -> Result<()> {
        self.during("a copy", || {
            (0..times).try_for_each(|_| self.streams.main.copy(src, dst, at, bytes as usize))?;
            self.streams.main.synchronize()
        })
    }

    fn reaches_memory(&self, memory: &Arc<Memory>) -> bool {
        self.context.reach(&memory.context)
    }

    /// Accepts memory of other CUDA lanes with peer access; `Lane::bind` has checked that.
    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<CudaLaunch> {
        let memory = || args.iter().map(|arg| arg.memory.own::<Arc<Memory>>());
        memory().for_each(|memory| memory.share(&self.streams));
        Ok(CudaLaunch {
            function: self.function(kernel, precision)?,
            grid: grid(items, kernel, MOST_GROUPS),
            group: kernel.group(),
            args: memory().cloned().collect(),
        })
    }

    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: Watch<'_>) -> Result<()> {
        let submit = |from: u64, steps: u64| {
            for step in first + from..first + from + steps {
                self.enqueue(Side::Main, program.launches(step).iter().copied(), step)?;
            }
            self.mark()
        };
        pieces(count, submit, |event| self.reached(&event), watch)
    }

    fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()> {
        for received in &batch.receives {
            received.staging.own::<ReceiveBuffer>().deliver(self)?;
        }
        for &(step, launch) in &batch.launches {
            self.enqueue(Side::Main, [launch], first + step)?;
        }
        if batch.before_receives {
            self.fence()?;
        }
        batch.sends.iter().try_for_each(|sent| sent.staging.own::<SendBuffer>().send(self))
    }

    fn finish(&self) -> Result<()> {
        let ended = self.streams.main.synchronize().and_then(|()| self.streams.aside.synchronize());
        ended.map_err(|e| self.error("a wait", e))
    }

    fn host_array<T: bytemuck::Pod>(&self, len: usize) -> Result<HostArray<T>> {
        self.lock_pages((len * size_of::<T>()) as u64).map(HostArray::of_locked)
    }

    fn stream(&self) -> Option<u64> {
        Some(self.streams.main.handle())
    }

    fn address(&self, memory: &Arc<Memory>) -> Option<u64> {
        memory.lend();
        Some(memory.pointer)
    }

    #[expect(unsafe_code, reason = "a stream that others give")]
    unsafe fn wait_for(&self, stream: u64) -> Result<()> {
        let wait = || {
            let event = Event::new(self.context)?;
            // SAFETY: guaranteed by the caller.
            unsafe { event.record_foreign(stream) }?;
            self.streams.main.wait(&event)
        };
        // This runs in the caller's thread, since one of CUDA's default streams belongs to the
        // thread. The thread's context is restored.
        self.context.within(wait).map_err(|e| self.error("waiting for a stream", e))
    }

    #[expect(unsafe_code, reason = "an address that others give")]
    unsafe fn copy_from(&self, src: Foreign, dst: &Arc<Memory>, at: u64, pitch: usize) -> Result<()> {
        let spec = &self.device.spec;
        let refuse = |why: String| Error::Capability(format!("{why}; use arrays on {spec}, or on the host"));
        self.enter()?;
        for address in [src.address, src.address + src.extent() as u64 - 1] {
            match self.context.ordinal_of(address) {
                Some(own) if own == self.context.device => {}
                Some(other) => return Err(refuse(format!("{address:#x} is memory of cuda:{other}"))),
                None => return Err(refuse(format!("{address:#x} is not CUDA memory"))),
            }
        }
        self.during("a copy from another library's array", || {
            // SAFETY: guaranteed by the caller.
            unsafe { self.streams.main.copy_foreign(&src, dst, at, pitch) }?;
            self.streams.main.synchronize()
        })
    }
}
