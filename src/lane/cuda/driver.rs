//! Safe wrappers of CUDA driver calls, each with the driver's error as its result.

#![expect(unsafe_code, reason = "a foreign interface")]

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, OnceLock};

use cudarc::driver::DriverError;
use cudarc::driver::result as raw;
use cudarc::driver::sys;

use crate::lane::host_array::Locked;
use crate::parallel::lock;

pub(super) type DriverResult<T> = Result<T, DriverError>;

/// Checks once that the driver's library exists and starts; cudarc panics without it.
pub(super) fn present() -> Result<(), String> {
    static PRESENT: OnceLock<Result<(), String>> = OnceLock::new();
    PRESENT
        .get_or_init(|| {
            // SAFETY: this only searches for the library.
            if !unsafe { sys::is_culib_present() } {
                return Err("CUDA's driver library (libcuda) is not on this machine".to_owned());
            }
            raw::init().map_err(|e| format!("CUDA's driver does not start: {}", reason(e)))
        })
        .clone()
}

/// Requests a number of hardware queues per device, unless the environment sets one. See
/// [`crate::lane::prepare_drivers`].
///
/// # Safety
/// No other thread of the process runs yet.
pub(crate) unsafe fn prepare(queues: Option<u32>) {
    const QUEUES: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
    if let Some(queues) = queues.filter(|_| std::env::var_os(QUEUES).is_none()) {
        // SAFETY: guaranteed by the caller.
        unsafe { std::env::set_var(QUEUES, queues.to_string()) };
    }
}

/// Returns the versions of NVIDIA's driver in the operating system, if reported, and of CUDA.
pub(super) fn version() -> String {
    let mut version = 0;
    // SAFETY: the call writes one number.
    let cuda = match unsafe { sys::cuDriverGetVersion(&raw mut version) } {
        sys::CUresult::CUDA_SUCCESS => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        _ => "CUDA".to_owned(),
    };
    let told = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let number = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    told.split_whitespace().find(number).map_or(cuda.clone(), |module| format!("{module}, {cuda}"))
}

pub(super) fn reason(e: DriverError) -> String {
    match (e.error_name(), e.error_string()) {
        (Ok(name), Ok(text)) => format!("{} ({})", text.to_string_lossy(), name.to_string_lossy()),
        _ => format!("{:?}", e.0),
    }
}

/// Driver handle or pointer that may be used in any thread.
#[derive(Debug, Clone, Copy)]
struct Handle<T>(T);

// SAFETY: the driver accepts contexts, streams, events and functions from any thread, and from
// several at a time; the lane orders the calls. Page-locked memory has one owner.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Handle<T> {}

/// A device's primary context, current in each thread that calls [`CudaContext::enter`].
#[derive(Debug, Clone, Copy)]
pub(super) struct CudaContext {
    pub(super) device: sys::CUdevice,
    context: Handle<sys::CUcontext>,
}

pub(super) fn count() -> DriverResult<usize> {
    raw::device::get_count().map(|n| n as usize)
}

impl CudaContext {
    /// Returns the context of device `ordinal`.
    ///
    /// It is never released, since that would reset the resources of other lanes on the device.
    pub(super) fn retain(ordinal: usize) -> DriverResult<Self> {
        let device = raw::device::get(ordinal as i32)?;
        // SAFETY: the device exists.
        let context = unsafe { raw::primary_ctx::retain(device)? };
        Ok(Self { device, context: Handle(context) })
    }

    pub(super) fn enter(&self) -> DriverResult<()> {
        // SAFETY: the context is never released.
        unsafe { raw::ctx::set_current(self.context.0) }
    }

    /// Runs work with this context current, then restores the previous one for other libraries.
    pub(super) fn within<R>(&self, work: impl FnOnce() -> DriverResult<R>) -> DriverResult<R> {
        // SAFETY: the context is never released.
        unsafe { sys::cuCtxPushCurrent_v2(self.context.0) }.result()?;
        let done = work();
        let mut own = std::ptr::null_mut();
        // SAFETY: `own` is space for the popped context: the one pushed above, or one entered
        // since.
        let left = unsafe { sys::cuCtxPopCurrent_v2(&raw mut own) }.result();
        done.and_then(|done| left.map(|()| done))
    }

    /// Returns the device that an address belongs to, if the driver knows it.
    pub(super) fn ordinal_of(&self, address: u64) -> Option<sys::CUdevice> {
        let (mut ordinal, which): (i32, _) =
            (-1, sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        // SAFETY: the attribute is one number, and `ordinal` is space for it. An invalid address is
        // an error.
        let found = unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), which, address) };
        found.result().ok().map(|()| ordinal)
    }

    pub(super) fn name(&self) -> DriverResult<String> {
        raw::device::get_name(self.device)
    }

    pub(super) fn attribute(&self, which: sys::CUdevice_attribute) -> DriverResult<i32> {
        // SAFETY: the device exists.
        unsafe { raw::device::get_attribute(self.device, which) }
    }

    pub(super) fn memory(&self) -> DriverResult<(usize, usize)> {
        self.enter()?;
        raw::mem_get_info()
    }

    /// Enables access of this device's kernels to the memory of `other`; returns true on success.
    pub(super) fn reach(&self, other: &Self) -> bool {
        // Access lasts as long as the contexts, which are never released.
        static ENABLED: Mutex<BTreeSet<[i32; 2]>> = Mutex::new(BTreeSet::new());
        let pair = [self.device, other.device];
        if self.device == other.device {
            return true;
        }
        // The lock is held during the calls: threads enable access one after the other.
        let mut enabled = lock(&ENABLED);
        enabled.contains(&pair) || (self.enable(other) && enabled.insert(pair))
    }

    fn enable(&self, other: &Self) -> bool {
        let mut can = 0;
        // SAFETY: both devices exist, `can` is space for the answer, and the peer's context is
        // never released.
        unsafe {
            if sys::cuDeviceCanAccessPeer(&mut can, self.device, other.device).result().is_err() || can == 0 {
                return false;
            }
            if self.enter().is_err() {
                return false;
            }
            matches!(
                sys::cuCtxEnablePeerAccess(other.context.0, 0),
                sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
            )
        }
    }
}

#[derive(Debug)]
pub(super) struct Pinned {
    context: CudaContext,
    pointer: Handle<*mut c_void>,
    len: usize,
}

impl Pinned {
    pub(super) fn new(context: CudaContext, len: usize) -> DriverResult<Self> {
        context.enter()?;
        // SAFETY: freed when this value is dropped. The size is never 0, for which there would be
        // no pointer. No flag is set, since the host reads the memory after copies.
        let pointer = unsafe { raw::malloc_host(len.max(1), 0)? };
        Ok(Self { context, pointer: Handle(pointer), len })
    }
}

impl Locked for Pinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: this value owns `len` bytes. Transfers to and from them are awaited before they
        // are accessed (see `Staging` and `HostArray`).
        unsafe { std::slice::from_raw_parts(self.pointer.0.cast(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.0.cast(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`.
        let _ = self.context.within(|| unsafe { raw::free_host(self.pointer.0) });
    }
}

#[derive(Debug)]
pub(super) struct CudaStream {
    context: CudaContext,
    stream: Handle<sys::CUstream>,
}

impl CudaStream {
    /// Creates a stream; with `first`, its kernels have the highest priority.
    pub(super) fn new(context: CudaContext, first: bool) -> DriverResult<Self> {
        context.enter()?;
        let (least, greatest) = raw::stream::get_priority_range()?;
        let priority = if first { greatest } else { least };
        let stream = raw::stream::create_with_priority(raw::stream::StreamKind::NonBlocking, priority)?;
        Ok(Self { context, stream: Handle(stream) })
    }

    pub(super) fn synchronize(&self) -> DriverResult<()> {
        self.context.enter()?;
        // SAFETY: the stream is not destroyed.
        unsafe { raw::stream::synchronize(self.stream.0) }
    }

    pub(super) fn wait(&self, event: &Event) -> DriverResult<()> {
        // SAFETY: stream and event are not destroyed; no flags are set.
        unsafe {
            raw::stream::wait_event(
                self.stream.0,
                event.event.0,
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
        }
    }

    /// Returns the handle of the stream for other libraries of this process.
    pub(super) fn handle(&self) -> u64 {
        self.stream.0.addr() as u64
    }

    /// Returns the handle of the stream for the driver's functions.
    pub(super) fn raw(&self) -> sys::CUstream {
        self.stream.0
    }

    /// Launches a function of this context on a grid of blocks of `threads` threads each.
    ///
    /// # Safety
    /// The arguments are those that the function declares. All memory that they point to is
    /// allocated until the launch is done.
    pub(super) unsafe fn launch(
        &self,
        function: Function,
        grid: (u32, u32),
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> DriverResult<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            raw::launch_kernel(
                function.0.0,
                (grid.0, grid.1, 1),
                (threads, 1, 1),
                0,
                self.stream.0,
                arguments,
            )
        }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: created by `new`; work in it is finished first.
        let _ = self.context.within(|| unsafe { raw::stream::destroy(self.stream.0) });
    }
}

/// A CUDA event: a point in a stream that work in other streams can wait for.
#[derive(Debug)]
pub(crate) struct Event {
    context: CudaContext,
    event: Handle<sys::CUevent>,
}

impl Event {
    pub(super) fn new(context: CudaContext) -> DriverResult<Self> {
        context.enter()?;
        let event = raw::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        Ok(Self { context, event: Handle(event) })
    }

    pub(super) fn record(&self, stream: &CudaStream) -> DriverResult<()> {
        // SAFETY: event and stream are not destroyed and belong to one context.
        unsafe { raw::event::record(self.event.0, stream.stream.0) }
    }

    /// Records the event in another library's stream, after the work queued there so far.
    ///
    /// # Safety
    /// `stream` is a stream of this event's device, or stands for one of CUDA's default streams.
    pub(super) unsafe fn record_foreign(&self, stream: u64) -> DriverResult<()> {
        let stream = std::ptr::with_exposed_provenance_mut(stream as usize);
        // SAFETY: guaranteed by the caller.
        unsafe { raw::event::record(self.event.0, stream) }
    }

    pub(super) fn synchronize(&self) -> DriverResult<()> {
        self.context.enter()?;
        // SAFETY: the event is not destroyed.
        unsafe { raw::event::synchronize(self.event.0) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = self.context.within(|| unsafe { raw::event::destroy(self.event.0) });
    }
}

/// A function of a module that stays loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function(Handle<sys::CUfunction>);

/// Loads machine code for the lifetime of the process, and returns its function.
pub(super) fn load(context: CudaContext, image: &[u8], name: &str) -> DriverResult<Function> {
    context.enter()?;
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the image is a complete ELF file as NVRTC wrote it; the module is never unloaded.
    unsafe {
        let module = raw::module::load_data(image.as_ptr().cast())?;
        raw::module::get_function(module, name).map(|function| Function(Handle(function)))
    }
}
