//! The wgpu lane: one logical device of one adapter, with its queue.

mod adapter;
#[cfg(any(windows, target_os = "linux"))]
mod dedicated;
mod pipeline;
mod staging;
mod transfer;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wgpu::{BufferUsages, Features, PollStatus, PollType, SubmissionIndex};

#[cfg(target_os = "linux")]
pub(crate) use adapter::quiet;
pub(crate) use adapter::{best, hardware, list};

use super::backend::{Backend, Watch};
use super::batching::pieces;
use super::work::grid;
use super::{Arg, Batch, Device, Program};
use crate::kernel::{Kernel, Precision};
use crate::parallel::backoff::Spin;
use crate::parallel::lock;
use crate::util::quantity::Size;
use crate::{Error, Limit, Result};
use pipeline::{Pipeline, WgpuLaunch};
use staging::Ring;
use transfer::{ReceiveBuffer, SendBuffer};

/// Duration of polling before a wait blocks the thread.
const MOMENT: Duration = Duration::from_millis(6);

const ARRAY: BufferUsages = BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

#[derive(Debug)]
pub(super) struct WgpuLane {
    device: Device,
    wgpu: wgpu::Device,
    queue: wgpu::Queue,
    /// Reason for the loss of the device, set by wgpu's callbacks.
    lost: Arc<Mutex<Option<String>>>,
    pipelines: Mutex<HashMap<(usize, Precision), Arc<Pipeline>>>,
    uploads: Mutex<Ring>,
    downloads: Mutex<Ring>,
    checked: bool,
    /// True if 64-bit fixed point is computed with 32-bit integers.
    limbs: bool,
    workgroups: u32,
}

impl WgpuLane {
    /// Opens a lane of an adapter; an error for an unknown index lists the devices with `known`.
    pub(super) fn open(index: usize, checked: bool, limbs: bool, known: fn() -> String) -> Result<Self> {
        let Some(adapter) = adapter::adapters().get(index) else {
            return Err(Error::Device(format!("wgpu:{index}: there is no such adapter; {}", known())));
        };
        let device = adapter::describe(index, adapter);
        if let Some(reason) = adapter::unusable(adapter) {
            return Err(Error::Device(format!("{} has {reason}", device.label())));
        }
        let _creation = adapter::creation(device.software);
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("kolmo"),
            required_features: Features::IMMEDIATES
                | (adapter.features() & (Features::SHADER_F64 | Features::SHADER_INT64 | transfer::FEATURES)),
            required_limits: adapter.limits(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            // Large arrays get allocations of their own; with small blocks the other buffers do not
            // take 256 MiB.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        });
        let (wgpu, queue) = pollster::block_on(request)
            .map_err(|e| Error::Device(format!("{} cannot be opened: {e}", device.label())))?;
        let lost = Arc::new(Mutex::new(None));
        let note = |lost: &Arc<Mutex<Option<String>>>, reason: String| {
            lock(lost).get_or_insert(reason);
        };
        wgpu.set_device_lost_callback({
            let lost = lost.clone();
            move |reason, message| note(&lost, format!("{message} ({reason:?})"))
        });
        wgpu.on_uncaptured_error(Arc::new({
            let lost = lost.clone();
            move |e| note(&lost, e.to_string())
        }));
        Ok(Self {
            device,
            wgpu,
            queue,
            lost,
            pipelines: Mutex::default(),
            uploads: Mutex::default(),
            downloads: Mutex::default(),
            checked,
            limbs: limbs || !adapter.features().contains(Features::SHADER_INT64),
            workgroups: adapter.limits().max_compute_workgroups_per_dimension,
        })
    }

    fn lost_error(&self, during: &str) -> Error {
        let reason = lock(&self.lost).clone().unwrap_or_else(|| "the driver gave no reason".to_owned());
        Error::lost(&self.device.label(), during, reason)
    }

    fn alive(&self, during: &str) -> Result<()> {
        if lock(&self.lost).is_some() { Err(self.lost_error(during)) } else { Ok(()) }
    }

    fn wait(&self, submission: Option<SubmissionIndex>, during: &str) -> Result<()> {
        let done = || Ok((self.poll(PollType::Poll, during)? == PollStatus::QueueEmpty).then_some(()));
        match self.spin(MOMENT, done)? {
            Some(()) => Ok(()),
            None => {
                self.poll(PollType::Wait { submission_index: submission, timeout: None }, during).map(drop)
            }
        }
    }

    /// Calls `look` until it returns a value, for up to `longest`. A software adapter returns
    /// `None` at once, since polling slows down its kernels.
    fn spin<V>(&self, longest: Duration, look: impl FnMut() -> Result<Option<V>>) -> Result<Option<V>> {
        let longest = if self.device.software { Duration::ZERO } else { longest };
        Spin { longest, alone: true }.until(look)
    }

    fn poll(&self, how: PollType, during: &str) -> Result<PollStatus> {
        // wgpu panics in poll if the device is lost; here this is an error.
        let polled = catch_unwind(AssertUnwindSafe(|| self.wgpu.poll(how)));
        self.alive(during)?;
        match polled {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(_)) | Err(_) => Err(self.lost_error(during)),
        }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.wgpu.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
    }

    fn give(&self, encoder: wgpu::CommandEncoder) -> Result<SubmissionIndex> {
        let index = self.queue.submit([encoder.finish()]);
        self.alive("a submission")?;
        Ok(index)
    }

    fn create_buffer(&self, bytes: u64, usage: BufferUsages, what: &str) -> Result<wgpu::Buffer> {
        let out_of_memory = |limit: Limit| Error::memory(&self.device.label(), what, bytes, limit);
        let limits = &self.device.limits;
        if bytes > limits.buffer {
            return Err(out_of_memory(Limit::Allocation(format!(
                "its largest buffer is {} bytes",
                limits.buffer
            ))));
        }
        // Software adapters overcommit the host's memory. The host is checked, so that the system
        // does not kill the process.
        if self.device.software {
            let available = crate::util::memory::available_memory();
            if bytes > available {
                return Err(out_of_memory(Limit::Free(format!("{} are available", Size(available)))));
            }
        }
        let memory = self.wgpu.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let buffer = self.wgpu.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage,
            mapped_at_creation: false,
        });
        let (validation, memory) = (validation.pop(), memory.pop());
        if let Some(e) = pollster::block_on(validation) {
            return Err(Error::Device(format!("{}: {e}", self.device.label())));
        }
        if pollster::block_on(memory).is_some() {
            return Err(out_of_memory(Limit::Free(format!(
                "its memory does not suffice (largest buffer {} bytes, largest binding {} bytes)",
                limits.buffer, limits.binding
            ))));
        }
        self.alive("an allocation")?;
        Ok(buffer)
    }
}

impl Backend for WgpuLane {
    type Memory = wgpu::Buffer;
    type Launch = WgpuLaunch;
    type SendBuffer = SendBuffer;
    type ReceiveBuffer = ReceiveBuffer;

    fn device(&self) -> &Device {
        &self.device
    }

    fn free_bytes(&self, used: u64) -> Option<u64> {
        self.device.limits.memory.map(|memory| memory.saturating_sub(used))
    }

    fn alloc(&self, bytes: u64) -> Result<wgpu::Buffer> {
        #[cfg(any(windows, target_os = "linux"))]
        if let Some(buffer) = self.alloc_dedicated(bytes)? {
            return Ok(buffer);
        }
        self.create_buffer(bytes, ARRAY, "an array")
    }

    /// Uses host memory that kernels write directly, if the adapter supports that.
    fn alloc_for_send(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let mapped = self.wgpu.features().contains(transfer::FEATURES).then_some(BufferUsages::MAP_READ);
        self.create_buffer(bytes, ARRAY | mapped.unwrap_or(BufferUsages::empty()), "an array")
    }

    fn upload(&self, src: &[u8], dst: &wgpu::Buffer, at: u64) -> Result<()> {
        lock(&self.uploads).upload(self, src, dst, at)
    }

    fn download(&self, src: &wgpu::Buffer, at: u64, dst: &mut [u8]) -> Result<()> {
        lock(&self.downloads).download(self, src, at, dst)
    }

    fn clear(&self, dst: &wgpu::Buffer, _: u64) -> Result<()> {
        let mut encoder = self.encoder();
        encoder.clear_buffer(dst, 0, None);
        self.give(encoder).map(drop)
    }

    fn copy(&self, src: &wgpu::Buffer, dst: &wgpu::Buffer, at: u64, bytes: u64, times: u32) -> Result<()> {
        let mut encoder = self.encoder();
        for _ in 0..times {
            encoder.copy_buffer_to_buffer(src, 0, dst, at, bytes);
        }
        let index = self.give(encoder)?;
        self.wait(Some(index), "a copy")
    }

    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<WgpuLaunch> {
        WgpuLaunch::new(self, kernel, precision, grid(items, kernel, self.workgroups), args)
    }

    /// Runs steps in pieces; the next piece is queued while the current one runs.
    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: Watch<'_>) -> Result<()> {
        let submit = |from: u64, steps: u64| {
            let mut encoder = self.encoder();
            let steps = first + from..first + from + steps;
            let launches = steps.flat_map(|step| program.launches(step).iter().map(move |&l| (step, l)));
            pipeline::pass(&mut encoder, launches);
            self.give(encoder)
        };
        pieces(count, submit, |index| self.wait(Some(index), "a long loop"), watch)
    }

    fn submit(&self, batch: &Batch<'_>, first: u64) -> Result<()> {
        transfer::submit(self, batch, first)
    }

    fn finish(&self) -> Result<()> {
        self.wait(None, "an exchange")
    }

    #[cfg(test)]
    fn lose(&self) {
        self.wgpu.destroy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a lane on the first adapter. If none opens, prints that the test is skipped.
    pub(super) fn first() -> Option<WgpuLane> {
        let opened = WgpuLane::open(0, false, false, String::new);
        if let Err(e) = &opened {
            crate::devices::skip("wgpu:0", format!("wgpu:0 cannot be opened: {e}"));
        }
        opened.ok()
    }

    #[test]
    fn a_lost_device_is_an_error_that_names_it() {
        let Some(lane) = first() else { return };
        let buffer = lane.alloc(1024).expect("a small array fits");

        lane.lose();
        let up = lane.upload(&[1; 1024], &buffer, 0).and_then(|()| lane.wait(None, "the test")).unwrap_err();
        let down = lane.download(&buffer, 0, &mut [0; 1024]).unwrap_err();
        let again = lane.alloc(1024).unwrap_err();

        for error in [up, down, again] {
            let Error::DeviceLost { device, .. } = &error else { panic!("{error}") };
            assert!(device.contains("wgpu:0"), "{error}");
        }
    }
}
