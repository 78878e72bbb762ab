//! The CUDA lane: one stream of one device.

mod compile;
mod driver;
mod port;

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::DriverError;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUresult};

use driver::{Context, Function, Stream};
pub(crate) use driver::{Event, Memory, Pinned};
pub(super) use port::{ReceiveBuffer, SendBuffer};

use super::pieces::pieces;
use super::{Device, Limits, Listing, Program};
use crate::kernel::{Kernel, Precision};
use crate::{Error, Result};

/// A stream and what it needs.
#[derive(Debug)]
pub(crate) struct CudaLane {
    device: Device,
    context: Context,
    stream: Stream,
    /// For what is to pass by the stream.
    aside: Stream,
    /// A point in the stream that copies beside it wait for.
    fence: Event,
    arch: String,
    functions: Mutex<HashMap<(usize, Precision), Function>>,
    staging: Mutex<Staging>,
}

/// A stream of a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    /// The one that all work goes through.
    Main,
    /// The one beside it, whose kernels go first.
    Aside,
}

/// Two page-locked buffers, each with the event behind its last transfer.
#[derive(Debug)]
struct Staging {
    slots: Vec<(Pinned, Event)>,
}

const SLOT: usize = 16 << 20;
const SLOTS: usize = 2;

/// A function with its arguments and grid.
#[derive(Debug)]
pub(crate) struct CudaLaunch {
    function: Function,
    grid: (u32, u32),
    group: u32,
    pub(super) params: Vec<u32>,
    /// Kept alive, as long as the launch may run.
    args: Vec<Arc<Memory>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn describe(ordinal: usize, context: &Context) -> std::result::Result<(Device, String), DriverError> {
    let (free, _) = context.memory()?;
    let major = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let device = Device {
        name: context.name()?,
        spec: format!("cuda:{ordinal}"),
        backend: "cuda",
        driver: driver::version(),
        software: false,
        f64: true,
        limits: Limits { binding: u64::MAX, buffer: u64::MAX, memory: Some(free as u64), unified: false },
    };
    Ok((device, format!("sm_{major}{minor}")))
}

/// Every CUDA device, or one line that says why there is none.
pub(super) fn list() -> Vec<Listing> {
    let missing = |why: String| Listing {
        device: Device {
            name: "CUDA".to_owned(),
            spec: "cuda".to_owned(),
            backend: "cuda",
            driver: String::new(),
            software: false,
            f64: true,
            limits: Limits { binding: u64::MAX, buffer: u64::MAX, memory: None, unified: false },
        },
        driver: String::new(),
        workgroups: None,
        unusable: Some(why),
    };
    let count = match driver::present().and_then(|()| driver::count().map_err(driver::reason)) {
        Ok(0) => return vec![missing("the driver finds no device".to_owned())],
        Ok(count) => count,
        Err(why) => return vec![missing(why)],
    };
    let one = |n: usize| {
        let context = Context::retain(n);
        match context.and_then(|context| describe(n, &context)) {
            Ok((device, arch)) => Listing { device, driver: arch, workgroups: Some(65_535), unusable: None },
            Err(e) => Listing {
                device: Device { spec: format!("cuda:{n}"), ..missing(String::new()).device },
                ..missing(driver::reason(e))
            },
        }
    };
    (0..count).map(one).collect()
}

/// The CUDA device that `auto` takes, if there is one.
pub(super) fn best() -> Option<usize> {
    (count() > 0).then_some(0)
}

/// How many devices there are.
pub(super) fn count() -> usize {
    driver::present().map_or(0, |()| driver::count().unwrap_or(0))
}

impl CudaLane {
    pub(super) fn open(ordinal: usize) -> Result<Self> {
        let refuse = |why: String| Error::Device(format!("cuda:{ordinal}: {why}; {}", super::spec::known()));
        driver::present().map_err(refuse)?;
        let count = driver::count().map_err(|e| refuse(driver::reason(e)))?;
        if ordinal >= count {
            return Err(refuse(format!("there are {count} CUDA devices, counted from 0")));
        }
        let open = || -> std::result::Result<Self, DriverError> {
            let context = Context::retain(ordinal)?;
            let (device, arch) = describe(ordinal, &context)?;
            let (stream, aside) = (Stream::new(context, false)?, Stream::new(context, true)?);
            let slots = (0..SLOTS).map(|_| {
                let slot = (Pinned::new(context, SLOT)?, Event::new(context)?);
                slot.1.record(&stream)?;
                Ok(slot)
            });
            let staging =
                Mutex::new(Staging { slots: slots.collect::<std::result::Result<_, DriverError>>()? });
            let fence = Event::new(context)?;
            fence.record(&stream)?;
            Ok(Self { device, context, stream, aside, fence, arch, functions: Mutex::default(), staging })
        };
        open().map_err(|e| refuse(driver::reason(e)))
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes that the driver would still give.
    pub(super) fn free(&self) -> Option<u64> {
        self.context.memory().ok().map(|(free, _)| free as u64)
    }

    fn enter(&self) -> Result<()> {
        self.context.enter().map_err(|e| self.error("a call", e))
    }

    fn error(&self, during: &str, e: DriverError) -> Error {
        Error::DeviceLost {
            device: format!("{} ({})", self.device.spec, self.device.name),
            during: during.to_owned(),
            reason: driver::reason(e),
        }
    }

    pub(super) fn alloc(&self, bytes: u64) -> Result<Arc<Memory>> {
        match Memory::new(self.context, bytes as usize, &self.stream) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(Error::OutOfMemory {
                device: format!("{} ({})", self.device.spec, self.device.name),
                what: "an array".to_owned(),
                asked: bytes,
                limit: format!("{} bytes of its memory are free", self.free().unwrap_or(0)),
            }),
            Err(e) => Err(self.error("an allocation", e)),
        }
    }

    pub(super) fn upload(&self, src: &[u8], dst: &Memory, offset: u64) -> Result<()> {
        let mut staging = lock(&self.staging);
        self.enter()?;
        let mut copy = || -> std::result::Result<(), DriverError> {
            for (i, chunk) in src.chunks(SLOT).enumerate() {
                let (pinned, event) = &mut staging.slots[i % SLOTS];
                event.synchronize()?;
                let bytes = &mut pinned.bytes_mut()[..chunk.len()];
                bytes.copy_from_slice(chunk);
                self.stream.send(bytes, dst, offset + (i * SLOT) as u64)?;
                event.record(&self.stream)?;
            }
            Ok(())
        };
        copy().map_err(|e| self.error("an upload", e))
    }

    pub(super) fn download(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<()> {
        let mut staging = lock(&self.staging);
        self.enter()?;
        let mut copy = || -> std::result::Result<(), DriverError> {
            let lengths: Vec<usize> = dst.chunks(SLOT).map(<[u8]>::len).collect();
            let fetch = |staging: &mut Staging, i: usize| -> std::result::Result<(), DriverError> {
                let (pinned, event) = &mut staging.slots[i % SLOTS];
                event.synchronize()?;
                self.stream.fetch(src, offset + (i * SLOT) as u64, &mut pinned.bytes_mut()[..lengths[i]])?;
                event.record(&self.stream)
            };
            for i in 0..lengths.len().min(SLOTS) {
                fetch(&mut staging, i)?;
            }
            for (i, chunk) in dst.chunks_mut(SLOT).enumerate() {
                let (pinned, event) = &mut staging.slots[i % SLOTS];
                event.synchronize()?;
                chunk.copy_from_slice(&pinned.bytes()[..chunk.len()]);
                if i + SLOTS < lengths.len() {
                    fetch(&mut staging, i + SLOTS)?;
                }
            }
            Ok(())
        };
        copy().map_err(|e| self.error("a download", e))
    }

    /// Page-locked memory, zeroed.
    pub(super) fn lock_pages(&self, bytes: u64) -> Result<Pinned> {
        match Pinned::new(self.context, bytes as usize) {
            Ok(mut memory) => {
                memory.bytes_mut().fill(0);
                Ok(memory)
            }
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(Error::OutOfMemory {
                device: "the host".to_owned(),
                what: "page-locked memory".to_owned(),
                asked: bytes,
                limit: "the driver does not get that much".to_owned(),
            }),
            Err(e) => Err(self.error("locking memory", e)),
        }
    }

    /// Puts a copy into the stream, from page-locked memory that stays as it is until [`CudaLane::finish`].
    pub(super) fn send(&self, src: &[u8], dst: &Memory, offset: u64) -> Result<()> {
        self.enter()?;
        self.stream.send(src, dst, offset).map_err(|e| self.error("an upload", e))
    }

    /// Puts a copy into the stream, to page-locked memory that nobody looks at until [`CudaLane::finish`].
    pub(super) fn fetch(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<()> {
        self.enter()?;
        self.stream.fetch(src, offset, dst).map_err(|e| self.error("a download", e))
    }

    /// What copies beside the stream wait for: all that is in it now.
    pub(super) fn fence(&self) -> Result<()> {
        self.enter()?;
        self.fence.record(&self.stream).map_err(|e| self.error("an exchange", e))
    }

    /// Waits for everything that is in the stream.
    pub(super) fn finish(&self) -> Result<()> {
        self.stream.synchronize().map_err(|e| self.error("a wait", e))
    }

    pub(super) fn clear(&self, dst: &Memory, bytes: u64) -> Result<()> {
        self.enter()?;
        self.stream.clear(dst, bytes as usize).map_err(|e| self.error("clearing", e))
    }

    pub(super) fn copy(&self, src: &Memory, dst: &Memory, offset: u64, bytes: u64, times: u32) -> Result<()> {
        self.enter()?;
        let copy = || -> std::result::Result<(), DriverError> {
            for _ in 0..times {
                self.stream.copy(src, dst, offset, bytes as usize)?;
            }
            self.stream.synchronize()
        };
        copy().map_err(|e| self.error("a copy", e))
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

    pub(super) fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        params: &[u32],
        args: Vec<Arc<Memory>>,
    ) -> Result<CudaLaunch> {
        let function = self.function(kernel, precision)?;
        let groups = items.div_ceil(kernel.group() as usize).max(1) as u64;
        Ok(CudaLaunch {
            function,
            group: kernel.group(),
            grid: super::fold(groups, 65_535),
            params: params.to_vec(),
            args,
        })
    }

    fn side(&self, side: Side) -> &Stream {
        match side {
            Side::Main => &self.stream,
            Side::Aside => &self.aside,
        }
    }

    /// Puts launches into a stream as step `step`, and does not wait.
    pub(crate) fn enqueue<'a>(
        &self,
        side: Side,
        launches: impl IntoIterator<Item = &'a super::Launch>,
        step: u64,
    ) -> Result<()> {
        self.enter()?;
        for launch in launches {
            let launch = launch.cuda();
            let mut params = [0u32; 16];
            params[..launch.params.len()].copy_from_slice(&launch.params);
            params[0] = step as u32;
            let mut pointers = [0u64; 16];
            let mut arguments: [*mut c_void; 17] = [std::ptr::null_mut(); 17];
            arguments[0] = params.as_mut_ptr().cast();
            for (i, memory) in launch.args.iter().enumerate() {
                pointers[i] = memory.pointer;
                arguments[1 + i] = (&raw mut pointers[i]).cast();
            }
            let arguments = &mut arguments[..1 + launch.args.len()];
            #[expect(unsafe_code, reason = "a launch")]
            // SAFETY: parameters and pointers are as many as the kernel's interface has (asserted by `Lane::bind`), which
            // is that of its text (asserted when it was compiled); the launch keeps its memory, and whoever drops that
            // waits for the device.
            unsafe { self.side(side).launch(launch.function, launch.grid, launch.group, arguments) }
                .map_err(|e| self.error("a launch", e))?;
        }
        Ok(())
    }

    pub(super) fn run(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        pieces(
            count,
            |from, steps| {
                for step in first + from..first + from + steps {
                    self.enqueue(Side::Main, program.launches(step).iter().copied(), step)?;
                }
                self.mark()
            },
            |event| self.reached(&event),
            watch,
        )
    }

    /// An event behind everything that is in the stream now.
    pub(crate) fn mark(&self) -> Result<Event> {
        let mark = || {
            let event = Event::new(self.context)?;
            event.record(&self.stream)?;
            Ok(event)
        };
        mark().map_err(|e| self.error("an event", e))
    }

    /// Moves an event behind everything that is in a stream now.
    pub(crate) fn remark(&self, side: Side, event: &Event) -> Result<()> {
        self.enter()?;
        event.record(self.side(side)).map_err(|e| self.error("an event", e))
    }

    /// What is put into a stream from now on waits for an event, of this device or another.
    pub(crate) fn after(&self, side: Side, event: &Event) -> Result<()> {
        self.enter()?;
        self.side(side).wait(event).map_err(|e| self.error("an event", e))
    }

    /// Waits for an event.
    pub(crate) fn reached(&self, event: &Event) -> Result<()> {
        event.synchronize().map_err(|e| self.error("a long loop", e))
    }

    /// Whether kernels of this lane can be given this memory.
    pub(super) fn reaches_memory(&self, memory: &Memory) -> bool {
        self.context.reach(&memory.context)
    }

    /// Whether kernels of this lane can write the other's memory. With `KOLMO_NO_PEER` set none can, so that the way
    /// through the host can be tried on devices that have a shorter one.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        std::env::var_os("KOLMO_NO_PEER").is_none_or(|v| v.is_empty()) && self.context.reach(&other.context)
    }
}
