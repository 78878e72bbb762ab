//! The wgpu lane: one logical device of one adapter, with its queue.

mod adapter;
#[cfg(any(windows, target_os = "linux"))]
mod dedicated;
mod port;
mod staging;
mod trace;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wgpu::{BufferUsages, Features, PollStatus, PollType, SubmissionIndex};

pub(crate) use adapter::quiet;
pub(crate) use adapter::{best, hardware, list};

use super::pieces::pieces;
use super::{Device, Program};
use crate::kernel::{Kernel, Precision};
use crate::{Error, Result};
pub(super) use port::{ReceiveBuffer, SendBuffer};
use staging::Ring;
use trace::Trace;

/// How long work is waited for awake.
const MOMENT: Duration = Duration::from_millis(6);

/// What arrays are for.
const ARRAY: BufferUsages = BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

/// A logical device and its queue.
#[derive(Debug)]
pub(super) struct WgpuLane {
    device: Device,
    wgpu: wgpu::Device,
    queue: wgpu::Queue,
    /// Why the device is lost, once it is; set by wgpu's callbacks.
    lost: Arc<Mutex<Option<String>>>,
    pipelines: Mutex<HashMap<(usize, Precision), Arc<Pipeline>>>,
    uploads: Mutex<Ring>,
    downloads: Mutex<Ring>,
    trace: Mutex<Option<Trace>>,
    checked: bool,
    workgroups: u32,
}

#[derive(Debug)]
struct Pipeline {
    layout: wgpu::BindGroupLayout,
    pipeline: wgpu::ComputePipeline,
}

/// A pipeline with its bindings and grid.
#[derive(Debug)]
pub(super) struct WgpuLaunch {
    pipeline: Arc<Pipeline>,
    group: wgpu::BindGroup,
    grid: (u32, u32),
    pub(super) params: Vec<u32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl WgpuLane {
    pub(super) fn open(index: usize, checked: bool) -> Result<Self> {
        let Some(adapter) = adapter::adapters().get(index) else {
            return Err(Error::Device(format!(
                "wgpu:{index}: there is no such adapter; {}",
                super::spec::known()
            )));
        };
        let device = adapter::describe(index, adapter);
        if let Some(reason) = adapter::unusable(adapter) {
            return Err(Error::Device(format!("{} ({}) has {reason}", device.spec, device.name)));
        }
        let _creation = lock(&adapter::CREATION);
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("kolmo"),
            required_features: Features::IMMEDIATES
                | (adapter.features() & (Features::SHADER_F64 | port::FEATURES | trace::FEATURES)),
            required_limits: adapter.limits(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            // Large arrays get allocations of their own; small blocks keep the rest from taking 256 MiB.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        });
        let (wgpu, queue) = pollster::block_on(request)
            .map_err(|e| Error::Device(format!("{} ({}) does not open: {e}", device.spec, device.name)))?;
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
            trace: Mutex::default(),
            checked,
            workgroups: adapter.limits().max_compute_workgroups_per_dimension,
        })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    fn lost_error(&self, during: &str) -> Error {
        Error::DeviceLost {
            device: format!("{} ({})", self.device.spec, self.device.name),
            during: during.to_owned(),
            reason: lock(&self.lost).clone().unwrap_or_else(|| "the driver gave no reason".to_owned()),
        }
    }

    fn alive(&self, during: &str) -> Result<()> {
        if lock(&self.lost).is_some() { Err(self.lost_error(during)) } else { Ok(()) }
    }

    /// Waits for a submission, or for all.
    fn wait(&self, submission: Option<SubmissionIndex>, during: &str) -> Result<()> {
        // What takes a moment is looked for again and again: a thread that sleeps is woken up late. A software adapter works
        // with the same threads.
        let since = Instant::now();
        while !self.device.software && since.elapsed() < MOMENT {
            if self.poll(PollType::Poll, during)? == PollStatus::QueueEmpty {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.poll(PollType::Wait { submission_index: submission, timeout: None }, during).map(drop)
    }

    /// Runs the callbacks of what is done.
    fn look(&self, during: &str) -> Result<()> {
        self.poll(PollType::Poll, during).map(drop)
    }

    fn poll(&self, how: PollType, during: &str) -> Result<PollStatus> {
        // wgpu panics in poll when the device is lost; that is an error here.
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

    fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<SubmissionIndex> {
        let index = self.queue.submit([encoder.finish()]);
        self.alive("a submission")?;
        Ok(index)
    }

    fn create_buffer(&self, bytes: u64, usage: BufferUsages, what: &str) -> Result<wgpu::Buffer> {
        let out_of_memory = |limit: String| Error::OutOfMemory {
            device: format!("{} ({})", self.device.spec, self.device.name),
            what: what.to_owned(),
            asked: bytes,
            limit,
        };
        let limits = &self.device.limits;
        if bytes > limits.buffer {
            return Err(out_of_memory(format!("its largest buffer is {} bytes", limits.buffer)));
        }
        // A software adapter overcommits the host's memory: ask the host, lest the system end the process.
        if self.device.software {
            let available = super::cpu::available_memory();
            if bytes > available {
                return Err(out_of_memory(format!("{available} bytes of memory are available")));
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
            return Err(Error::Device(format!("{} ({}): {e}", self.device.spec, self.device.name)));
        }
        if pollster::block_on(memory).is_some() {
            return Err(out_of_memory(format!(
                "its memory does not suffice (largest buffer {} bytes, largest binding {} bytes)",
                limits.buffer, limits.binding
            )));
        }
        self.alive("an allocation")?;
        Ok(buffer)
    }

    pub(super) fn alloc(&self, bytes: u64) -> Result<wgpu::Buffer> {
        #[cfg(any(windows, target_os = "linux"))]
        if let Some(buffer) = self.alloc_dedicated(bytes)? {
            return Ok(buffer);
        }
        self.create_buffer(bytes, ARRAY, "an array")
    }

    /// An array for what leaves the device: kernels store into the host's memory where the adapter can do that.
    pub(super) fn alloc_for_send(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let mapped = self.wgpu.features().contains(port::FEATURES).then_some(BufferUsages::MAP_READ);
        self.create_buffer(bytes, ARRAY | mapped.unwrap_or(BufferUsages::empty()), "an array")
    }

    pub(super) fn upload(&self, src: &[u8], dst: &wgpu::Buffer, offset: u64) -> Result<()> {
        lock(&self.uploads).upload(self, src, dst, offset)
    }

    pub(super) fn download(&self, src: &wgpu::Buffer, offset: u64, dst: &mut [u8]) -> Result<()> {
        lock(&self.downloads).download(self, src, offset, dst)
    }

    pub(super) fn clear(&self, dst: &wgpu::Buffer) -> Result<()> {
        let mut encoder = self.encoder();
        encoder.clear_buffer(dst, 0, None);
        self.submit(encoder).map(drop)
    }

    pub(super) fn copy(
        &self,
        src: &wgpu::Buffer,
        dst: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
        times: u32,
    ) -> Result<()> {
        let mut encoder = self.encoder();
        for _ in 0..times {
            encoder.copy_buffer_to_buffer(src, 0, dst, offset, bytes);
        }
        let index = self.submit(encoder)?;
        self.wait(Some(index), "a copy")
    }

    fn pipeline(&self, kernel: &'static Kernel, precision: Precision) -> Result<Arc<Pipeline>> {
        let mut pipelines = lock(&self.pipelines);
        let key = (std::ptr::from_ref(kernel).addr(), precision);
        if let Some(pipeline) = pipelines.get(&key) {
            return Ok(pipeline.clone());
        }
        let _creation = lock(&adapter::CREATION);
        let scope = self.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(kernel.text(precision).into()),
        };
        let module = if self.checked {
            self.wgpu.create_shader_module(descriptor)
        } else {
            #[expect(unsafe_code, reason = "kernels without run-time checks of what the host has checked")]
            // SAFETY: the kernels are this crate's own. Indices into gathered vectors are validated where the
            // matrix is built, all others are bounded by the kernel's own tests against its parameters, and its
            // loops end.
            unsafe {
                self.wgpu.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
            }
        };
        let entries: Vec<wgpu::BindGroupLayoutEntry> = (0u32..)
            .zip(kernel.interface.bindings(precision))
            .map(|(number, binding)| wgpu::BindGroupLayoutEntry {
                binding: number,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: !binding.written },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let layout = self.wgpu.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(kernel.name),
            entries: &entries,
        });
        let pipeline_layout = self.wgpu.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 4 * kernel.interface.params.len() as u32,
        });
        let pipeline = self.wgpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(kernel.name),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: kernel.constants,
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        if let Some(e) = pollster::block_on(scope.pop()) {
            return Err(Error::Device(format!(
                "{} ({}) does not take the kernel '{}': {e}",
                self.device.spec, self.device.name, kernel.name
            )));
        }
        self.alive("the making of a pipeline")?;
        let made = Arc::new(Pipeline { layout, pipeline });
        pipelines.insert(key, made.clone());
        Ok(made)
    }

    pub(super) fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        params: &[u32],
        args: &[(&wgpu::Buffer, u64)],
    ) -> Result<WgpuLaunch> {
        let pipeline = self.pipeline(kernel, precision)?;
        for &(_, bytes) in args {
            if bytes > self.device.limits.binding {
                return Err(Error::OutOfMemory {
                    device: format!("{} ({})", self.device.spec, self.device.name),
                    what: format!("an array of kernel '{}'", kernel.name),
                    asked: bytes,
                    limit: format!("its largest binding is {} bytes", self.device.limits.binding),
                });
            }
        }
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0u32..)
            .zip(args)
            .map(|(binding, (buffer, _))| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let scope = self.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let group = self.wgpu.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.name),
            layout: &pipeline.layout,
            entries: &entries,
        });
        if let Some(e) = pollster::block_on(scope.pop()) {
            return Err(Error::Device(format!(
                "{} ({}) does not take the arguments of kernel '{}': {e}",
                self.device.spec, self.device.name, kernel.name
            )));
        }
        let groups = items.div_ceil(kernel.group() as usize).max(1) as u64;
        Ok(WgpuLaunch {
            pipeline,
            group,
            grid: super::fold(groups, self.workgroups),
            params: params.to_vec(),
        })
    }

    /// Runs a long loop, in submissions of about [`super::PIECE`] with the next one queued behind it.
    pub(super) fn run(
        &self,
        program: &Program<'_>,
        first: u64,
        count: u64,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        pieces(
            count,
            |from, steps| self.submit(self.encode(program, first + from, steps)),
            |index| self.wait(Some(index), "a long loop"),
            watch,
        )
    }

    #[cfg(test)]
    pub(super) fn lose(&self) {
        self.wgpu.destroy();
    }

    fn encode(&self, program: &Program<'_>, first: u64, steps: u64) -> wgpu::CommandEncoder {
        let mut encoder = self.encoder();
        let launches = (first..first + steps)
            .flat_map(|step| program.launches(step).iter().map(move |launch| (step, launch.wgpu())));
        self.pass(&mut encoder, launches);
        encoder
    }

    /// Encodes launches, each with its step.
    fn pass<'a>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        launches: impl Iterator<Item = (u64, &'a WgpuLaunch)>,
    ) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let mut current: Option<*const Pipeline> = None;
        for (step, launch) in launches {
            let mut params = [0u32; 16];
            params[..launch.params.len()].copy_from_slice(&launch.params);
            params[0] = step as u32;
            if current != Some(Arc::as_ptr(&launch.pipeline)) {
                pass.set_pipeline(&launch.pipeline.pipeline);
                current = Some(Arc::as_ptr(&launch.pipeline));
            }
            pass.set_bind_group(0, &launch.group, &[]);
            pass.set_immediates(0, bytemuck::cast_slice(&params[..launch.params.len()]));
            pass.dispatch_workgroups(launch.grid.0, launch.grid.1, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lane on the first adapter. None, and a word about it, where there is none and none is required.
    pub(super) fn first() -> Option<WgpuLane> {
        let opened = WgpuLane::open(0, false);
        if let Err(e) = &opened {
            crate::devices::skip("wgpu:0", format!("wgpu:0 does not open: {e}"));
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
            assert!(
                matches!(&error, Error::DeviceLost { device, .. } if device.contains("wgpu:0")),
                "{error}"
            );
        }
    }
}
