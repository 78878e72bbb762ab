//! The state of a CUDA lane: its streams and staging buffers, and the compiled kernels of devices.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cudarc::driver::DriverError;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUresult};

use super::compile;
use super::driver::{self, CudaContext, CudaStream, Event, Function, Pinned};
use super::memory::{GpuArray, Streams};
use crate::kernel::{Kernel, Precision};
use crate::lane::host_array::Locked;
use crate::lane::{Device, Launch, Limits};
use crate::parallel::lock;
use crate::{Error, Limit, Result};

/// A CUDA stream with its device, context and staging buffers.
#[derive(Debug)]
pub(crate) struct CudaLane {
    pub(super) device: Device,
    pub(super) context: CudaContext,
    pub(super) streams: Arc<Streams>,
    /// Point in the main stream that copies in the second one wait for.
    pub(super) fence: Event,
    arch: String,
    functions: Arc<Functions>,
    pub(super) staging: Mutex<Staging>,
}

/// One of the two streams of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// The stream for all ordinary work.
    Main,
    /// The second stream; its kernels have priority.
    Aside,
}

/// Loaded kernels of a device, by address and precision.
type Functions = Mutex<HashMap<(usize, Precision), Function>>;

/// Returns the loaded kernels of a device. All its lanes share them, since no module is unloaded.
fn functions_of(device: CUdevice) -> Arc<Functions> {
    static DEVICES: Mutex<Vec<(CUdevice, Arc<Functions>)>> = Mutex::new(Vec::new());
    let mut devices = lock(&DEVICES);
    if let Some((_, known)) = devices.iter().find(|(known, _)| *known == device) {
        return Arc::clone(known);
    }
    let functions = Arc::<Functions>::default();
    devices.push((device, Arc::clone(&functions)));
    functions
}

/// Page-locked buffers, each with an event after its last transfer.
pub(super) type Staging = Vec<(Pinned, Event)>;

/// Size of a staging buffer in bytes. Locking its pages takes half a millisecond per megabyte.
pub(super) const SLOT: usize = 4 << 20;
pub(super) const SLOTS: usize = 2;

/// Maximum number of groups in one dimension of a grid.
pub(super) const MOST_GROUPS: u32 = 65_535;

#[derive(Debug)]
pub(in crate::lane) struct CudaLaunch {
    pub(super) function: Function,
    pub(super) grid: (u32, u32),
    pub(super) group: u32,
    /// Arguments, kept alive while the launch may run.
    pub(super) args: Vec<Arc<GpuArray>>,
}

pub(super) fn device(name: String, spec: String, driver: String, memory: Option<u64>) -> Device {
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

pub(super) fn describe(ordinal: usize, context: &CudaContext) -> driver::DriverResult<(Device, String)> {
    let (free, _) = context.memory()?;
    let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let (name, spec) = (context.name()?, format!("cuda:{ordinal}"));
    Ok((device(name, spec, driver::version(), Some(free as u64)), format!("sm_{major}{minor}")))
}

impl CudaLane {
    /// Opens a lane of a device; an error for an unknown ordinal lists the devices with `known`.
    pub(in crate::lane) fn open(ordinal: usize, known: fn() -> String) -> Result<Self> {
        let refuse = |why: String| Error::Device(format!("cuda:{ordinal}: {why}; {}", known()));
        driver::present().map_err(refuse)?;
        let count = driver::count().map_err(|e| refuse(driver::reason(e)))?;
        if ordinal >= count {
            return Err(refuse(format!("there are {count} CUDA devices, counted from 0")));
        }
        let open = || -> driver::DriverResult<Self> {
            let context = CudaContext::retain(ordinal)?;
            let (device, arch) = describe(ordinal, &context)?;
            let streams = Arc::new(Streams::new(context)?);
            let slots = (0..SLOTS).map(|_| {
                let slot = (Pinned::new(context, SLOT)?, Event::new(context)?);
                slot.1.record(&streams.main)?;
                Ok(slot)
            });
            let staging = Mutex::new(slots.collect::<driver::DriverResult<_>>()?);
            let functions = functions_of(context.device);
            let fence = Event::new(context)?;
            fence.record(&streams.main)?;
            Ok(Self { device, context, streams, fence, arch, functions, staging })
        };
        open().map_err(|e| refuse(driver::reason(e)))
    }

    pub(super) fn enter(&self) -> Result<()> {
        self.context.enter().map_err(|e| self.error("a call", e))
    }

    /// Makes driver calls in the lane's context, and names the operation in their errors.
    pub(super) fn during<T>(&self, what: &str, work: impl FnOnce() -> driver::DriverResult<T>) -> Result<T> {
        self.enter()?;
        work().map_err(|e| self.error(what, e))
    }

    pub(super) fn error(&self, during: &str, e: DriverError) -> Error {
        Error::lost(&self.device.label(), during, driver::reason(e))
    }

    /// Allocates zeroed page-locked memory.
    pub(super) fn lock_pages(&self, bytes: u64) -> Result<Pinned> {
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
    pub(super) fn fence(&self) -> Result<()> {
        self.during("an exchange", || self.fence.record(&self.streams.main))
    }

    pub(super) fn function(&self, kernel: &'static Kernel, precision: Precision) -> Result<Function> {
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

    fn side(&self, side: Side) -> &CudaStream {
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
