//! A logical wgpu device with its queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wgpu::{BufferUsages, Features, PollStatus, PollType, SubmissionIndex};

use super::adapter;
use crate::error::Size;
use crate::lane::Device;
use crate::parallel::backoff::Spin;
use crate::parallel::lock;
use crate::{Error, Limit, Result};

/// Duration of polling before a wait blocks the thread.
const MOMENT: Duration = Duration::from_millis(6);

/// Feature that lets kernels write directly to memory mapped by the host.
pub(super) const MAPPED: Features = Features::MAPPABLE_PRIMARY_BUFFERS;

pub(super) const ARRAY: BufferUsages =
    BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

#[derive(Debug)]
pub(super) struct WgpuDevice {
    pub(super) properties: Device,
    pub(super) wgpu: wgpu::Device,
    queue: wgpu::Queue,
    /// Reason for the loss of the device, set by wgpu's callbacks.
    lost: Arc<Mutex<Option<String>>>,
}

impl WgpuDevice {
    /// Opens an adapter; an error for an unknown index lists the devices with `known`.
    pub(super) fn open(index: usize, known: fn() -> String) -> Result<Self> {
        let Some(adapter) = adapter::adapters().get(index) else {
            return Err(Error::Device(format!("wgpu:{index}: there is no such adapter; {}", known())));
        };
        let properties = adapter::describe(index, adapter);
        if let Some(reason) = adapter::unusable(adapter) {
            return Err(Error::Device(format!("{} has {reason}", properties.label())));
        }
        let _creation = adapter::creation(properties.software);
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("kolmo"),
            required_features: Features::IMMEDIATES
                | (adapter.features() & (Features::SHADER_F64 | Features::SHADER_INT64 | MAPPED)),
            required_limits: adapter.limits(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            // Large arrays get allocations of their own; with small blocks the other buffers do not
            // take 256 MiB.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        });
        let (wgpu, queue) = pollster::block_on(request)
            .map_err(|e| Error::Device(format!("{} cannot be opened: {e}", properties.label())))?;
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
        Ok(Self { properties, wgpu, queue, lost })
    }

    pub(super) fn lost_error(&self, during: &str) -> Error {
        let reason = lock(&self.lost).clone().unwrap_or_else(|| "the driver gave no reason".to_owned());
        Error::lost(&self.properties.label(), during, reason)
    }

    pub(super) fn alive(&self, during: &str) -> Result<()> {
        if lock(&self.lost).is_some() { Err(self.lost_error(during)) } else { Ok(()) }
    }

    pub(super) fn wait(&self, submission: Option<SubmissionIndex>, during: &str) -> Result<()> {
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
    pub(super) fn spin<V>(
        &self,
        longest: Duration,
        look: impl FnMut() -> Result<Option<V>>,
    ) -> Result<Option<V>> {
        let longest = if self.properties.software { Duration::ZERO } else { longest };
        Spin { longest, alone: true }.until(look)
    }

    pub(super) fn poll(&self, how: PollType, during: &str) -> Result<PollStatus> {
        // wgpu panics in poll if the device is lost; here this is an error.
        let polled = catch_unwind(AssertUnwindSafe(|| self.wgpu.poll(how)));
        self.alive(during)?;
        match polled {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(_)) | Err(_) => Err(self.lost_error(during)),
        }
    }

    pub(super) fn encoder(&self) -> wgpu::CommandEncoder {
        self.wgpu.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None })
    }

    pub(super) fn give(&self, encoder: wgpu::CommandEncoder) -> Result<SubmissionIndex> {
        let index = self.queue.submit([encoder.finish()]);
        self.alive("a submission")?;
        Ok(index)
    }

    pub(super) fn clear(&self, dst: &wgpu::Buffer) -> Result<()> {
        let mut encoder = self.encoder();
        encoder.clear_buffer(dst, 0, None);
        self.give(encoder).map(drop)
    }

    pub(super) fn create_buffer(&self, bytes: u64, usage: BufferUsages, what: &str) -> Result<wgpu::Buffer> {
        let out_of_memory = |limit: Limit| Error::memory(&self.properties.label(), what, bytes, limit);
        let limits = &self.properties.limits;
        if bytes > limits.buffer {
            return Err(out_of_memory(Limit::Allocation(format!(
                "its largest buffer is {} bytes",
                limits.buffer
            ))));
        }
        // Software adapters overcommit the host's memory. The host is checked, so that the system
        // does not kill the process.
        if self.properties.software {
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
            return Err(Error::Device(format!("{}: {e}", self.properties.label())));
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
