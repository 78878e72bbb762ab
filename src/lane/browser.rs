//! The browser lane: WebGPU, called through the page that runs this program as WebAssembly.
//!
//! WebGPU is asynchronous, with promises. Page functions marked "waits" suspend the program until a
//! promise is resolved (JavaScript Promise Integration), so this lane waits like any other.
//! `web/worker.js` implements [`page`].

#![expect(unsafe_code, reason = "calls of functions that the page gives")]

use std::sync::Arc;

use super::backend::{Backend, InPlaceReceive, OnStep, SendStaging};
use super::batching::pieces;
use super::work::{expect_bindings, grid};
use super::{Arg, Device, LaneBatch, Launch, Limits, Program};
use crate::kernel::{Kernel, Precision};
use crate::{Error, Limit, Result};

/// Functions of the page. Sizes and places in arrays are whole numbers that may exceed 2³².
mod page {
    #[link(wasm_import_module = "webgpu")]
    unsafe extern "C" {
        /// Writes the device's name (0) or its error (1), up to `room` bytes. Returns the full
        /// length.
        pub(super) fn text(which: u32, to: *mut u8, room: usize) -> usize;
        /// Returns the largest binding (0), buffer (1) or grid dimension (2), or 1 for software
        /// (3).
        pub(super) fn limit(which: u32) -> f64;
        /// Waits for a zeroed buffer; returns its number, or 0 if memory does not suffice.
        pub(super) fn create_buffer(bytes: f64) -> u32;
        pub(super) fn destroy_buffer(buffer: u32);
        pub(super) fn write(buffer: u32, at: f64, from: *const u8, bytes: usize);
        /// Copies bytes of a buffer, from byte `at` on, to the host; waits.
        pub(super) fn read(buffer: u32, at: f64, to: *mut u8, bytes: usize);
        pub(super) fn clear(buffer: u32);
        pub(super) fn copy(from: u32, to: u32, at: f64, bytes: f64);
        /// Returns a pipeline made from its description in JSON, or 0 if it is rejected; waits.
        pub(super) fn create_pipeline(description: *const u8, bytes: usize) -> u32;
        /// Returns a launch of a pipeline with its buffers.
        pub(super) fn bind(pipeline: u32, buffers: *const u32, count: usize) -> u32;
        pub(super) fn unbind(launch: u32);
        /// Queues `count` launches, each of 3 words (launch, grid) and 16 words (parameters).
        pub(super) fn submit(words: *const u32, count: usize) -> u32;
        /// Waits for a submission.
        pub(super) fn wait(submission: u32);
    }
}

/// Returns a text of the page: the device's name (0) or its error (1).
fn text(which: u32) -> String {
    let mut bytes = vec![0; 1 << 12];
    // SAFETY: the page writes at most `bytes.len()` bytes.
    let len = unsafe { page::text(which, bytes.as_mut_ptr(), bytes.len()) };
    String::from_utf8_lossy(&bytes[..len.min(bytes.len())]).into_owned()
}

/// A buffer of the page.
#[derive(Debug, PartialEq)]
pub(super) struct WebArray(u32);

impl Drop for WebArray {
    fn drop(&mut self) {
        // SAFETY: this was the last use of the number; the page keeps the buffer until queued work
        // is done.
        unsafe { page::destroy_buffer(self.0) };
    }
}

/// A kernel with its arguments, which it keeps alive.
#[derive(Debug)]
pub(super) struct BrowserLaunch {
    number: u32,
    grid: (u32, u32),
    _arrays: Vec<Arc<WebArray>>,
}

impl Drop for BrowserLaunch {
    fn drop(&mut self) {
        // SAFETY: this was the last use of the number; the page keeps the launch until queued work
        // is done.
        unsafe { page::unbind(self.number) };
    }
}

/// The page's device and its queue.
#[derive(Debug)]
pub(super) struct BrowserLane {
    device: Device,
    workgroups: u32,
}

/// Returns the page's device, if it has one.
pub(super) fn device() -> Option<Device> {
    // SAFETY: the call only returns a number.
    let limit = |which| unsafe { page::limit(which) };
    Some(text(0)).filter(|name| !name.is_empty()).map(|name| Device {
        name,
        spec: "webgpu".to_owned(),
        backend: "webgpu",
        driver: String::new(),
        host: false,
        software: limit(3) > 0.0,
        queued_copies: false,
        mapped_staging: false,
        f64: false,
        limits: Limits { binding: limit(0) as u64, buffer: limit(1) as u64, memory: None, unified: false },
    })
}

/// Returns the maximum number of workgroups in one dimension of a grid.
pub(super) fn workgroups() -> u32 {
    // SAFETY: the call only returns a number.
    unsafe { page::limit(2) as u32 }
}

impl BrowserLane {
    pub(super) fn open() -> Result<Self> {
        let none = || Error::Device("webgpu: this browser has no WebGPU device; use `device` cpu".to_owned());
        Ok(Self { device: device().ok_or_else(none)?, workgroups: workgroups() })
    }

    /// Returns an error if the device is lost or has rejected a command.
    fn alive(&self, during: &str) -> Result<()> {
        match text(1) {
            reason if reason.is_empty() => Ok(()),
            reason => {
                Err(Error::DeviceLost { device: self.device.label(), during: during.to_owned(), reason })
            }
        }
    }

    fn give<'a>(&self, launches: impl Iterator<Item = (u64, &'a Launch)>) -> u32 {
        let mut words = Vec::new();
        for (step, launch) in launches {
            let own: &BrowserLaunch = launch.prepared.own();
            words.extend([own.number, own.grid.0, own.grid.1]);
            words.extend(launch.params_of(step));
        }
        // SAFETY: the page reads `words.len()` words.
        unsafe { page::submit(words.as_ptr(), words.len()) }
    }

    fn wait(&self, submission: u32, during: &str) -> Result<()> {
        // SAFETY: the page returned this number.
        unsafe { page::wait(submission) };
        self.alive(during)
    }
}

impl Backend for BrowserLane {
    type Memory = Arc<WebArray>;
    type Launch = BrowserLaunch;
    type SendBuffer = Arc<WebArray>;
    type ReceiveBuffer = InPlaceReceive<Arc<WebArray>>;

    fn device(&self) -> &Device {
        &self.device
    }

    fn free_bytes(&self, _: u64) -> Option<u64> {
        None
    }

    fn alloc(&self, bytes: u64) -> Result<Arc<WebArray>> {
        let most = self.device.limits.buffer;
        // SAFETY: the argument is a plain number.
        let number = if bytes > most { 0 } else { unsafe { page::create_buffer(bytes as f64) } };
        match number {
            0 => Err(Error::OutOfMemory {
                device: self.device.label(),
                what: "an array".to_owned(),
                asked: bytes,
                limit: Limit::Free(format!("its memory does not suffice (largest buffer {most} bytes)")),
            }),
            number => Ok(Arc::new(WebArray(number))),
        }
    }

    fn upload(&self, src: &[u8], dst: &Arc<WebArray>, at: u64) -> Result<()> {
        // SAFETY: the page copies `src.len()` bytes before it returns.
        unsafe { page::write(dst.0, at as f64, src.as_ptr(), src.len()) };
        Ok(())
    }

    fn download(&self, src: &Arc<WebArray>, at: u64, dst: &mut [u8]) -> Result<()> {
        // SAFETY: the page writes `dst.len()` bytes, which stay borrowed until this returns.
        unsafe { page::read(src.0, at as f64, dst.as_mut_ptr(), dst.len()) };
        self.alive("a download")
    }

    fn clear(&self, dst: &Arc<WebArray>, _: u64) -> Result<()> {
        // SAFETY: the page returned this number.
        unsafe { page::clear(dst.0) };
        Ok(())
    }

    fn copy(&self, src: &Arc<WebArray>, dst: &Arc<WebArray>, at: u64, bytes: u64, times: u32) -> Result<()> {
        // SAFETY: the page returned these numbers.
        (0..times).for_each(|_| unsafe { page::copy(src.0, dst.0, at as f64, bytes as f64) });
        self.finish()
    }

    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<BrowserLaunch> {
        expect_bindings(&self.device, kernel, args)?;
        let bindings = kernel.interface.bindings(precision);
        let description = serde_json::json!({
            "name": kernel.name,
            "text": kernel.text_for_browsers(precision),
            "constants": kernel.constants.iter().copied().collect::<std::collections::BTreeMap<_, _>>(),
            "written": bindings.iter().map(|binding| binding.written).collect::<Vec<_>>(),
        })
        .to_string();
        // SAFETY: the page reads `description.len()` bytes.
        let pipeline = unsafe { page::create_pipeline(description.as_ptr(), description.len()) };
        if pipeline == 0 {
            let (device, name, reason) = (self.device.label(), kernel.name, text(1));
            return Err(Error::Device(format!("{device} rejects the kernel '{name}': {reason}")));
        }
        let arrays: Vec<Arc<WebArray>> = args.iter().map(|arg| Arc::clone(arg.memory.own())).collect();
        let numbers: Vec<u32> = arrays.iter().map(|array| array.0).collect();
        // SAFETY: the page reads `numbers.len()` numbers.
        let number = unsafe { page::bind(pipeline, numbers.as_ptr(), numbers.len()) };
        Ok(BrowserLaunch { number, grid: grid(items, kernel, self.workgroups), _arrays: arrays })
    }

    /// Runs steps in pieces; the next piece is queued while the current one runs.
    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: OnStep<'_>) -> Result<()> {
        let submit = |from: u64, steps: u64| {
            let steps = first + from..first + from + steps;
            Ok(self.give(steps.flat_map(|step| program.launches(step).iter().map(move |&l| (step, l)))))
        };
        pieces(count, submit, |submission| self.wait(submission, "a long loop"), watch)
    }

    fn submit(&self, batch: &LaneBatch<'_>, first: u64) -> Result<()> {
        // Transfer buffers are the arrays themselves, so only the launches are submitted.
        self.give(batch.launches.iter().map(|&(step, launch)| (first + step, launch)));
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.wait(self.give(std::iter::empty()), "the end of the queue")
    }
}

/// Send buffer that is the array itself, without a copy.
impl SendStaging<BrowserLane> for Arc<WebArray> {
    fn new(_: &BrowserLane, source: &Self, _: u64) -> Result<Self> {
        Ok(source.clone())
    }

    fn read(&self, lane: &BrowserLane, bytes: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        let mut values = vec![0; bytes];
        lane.download(self, 0, &mut values)?;
        take(&values)
    }
}
