//! Pipelines of kernels, and launches of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::adapter;
use super::device::WgpuDevice;
use crate::kernel::{Kernel, Precision};
use crate::lane::work::expect_bindings;
use crate::lane::{Arg, Launch};
use crate::parallel::lock;
use crate::{Error, Result};

#[derive(Debug)]
pub(super) struct Pipeline {
    layout: wgpu::BindGroupLayout,
    pipeline: wgpu::ComputePipeline,
}

#[derive(Debug)]
pub(in crate::lane) struct WgpuLaunch {
    pipeline: Arc<Pipeline>,
    group: wgpu::BindGroup,
    grid: (u32, u32),
}

/// Pipelines of a lane, made at their first use.
#[derive(Debug)]
pub(super) struct Pipelines {
    made: Mutex<HashMap<(usize, Precision), Arc<Pipeline>>>,
    checked: bool,
    /// True if 64-bit fixed point is computed with 32-bit integers.
    limbs: bool,
}

impl Pipelines {
    pub(super) fn new(checked: bool, limbs: bool) -> Self {
        Self { made: Mutex::default(), checked, limbs }
    }

    /// Returns a kernel's pipeline, made at the first call.
    pub(super) fn get(
        &self,
        device: &WgpuDevice,
        kernel: &'static Kernel,
        precision: Precision,
    ) -> Result<Arc<Pipeline>> {
        let mut pipelines = lock(&self.made);
        let key = (std::ptr::from_ref(kernel).addr(), precision);
        if let Some(pipeline) = pipelines.get(&key) {
            return Ok(pipeline.clone());
        }
        let _creation = adapter::creation(device.properties.software);
        let scope = device.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let text = match precision {
            Precision::Q64 if self.limbs => kernel.text_in_limbs(),
            _ => kernel.text(precision),
        };
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        let module = if self.checked {
            device.wgpu.create_shader_module(descriptor)
        } else {
            #[expect(unsafe_code, reason = "kernels without run-time checks of what the host has checked")]
            // SAFETY: the kernels are this crate's own. Indices into gathered vectors are validated
            // when the matrix is built. All other indices are bounded by the kernel's own tests
            // against its parameters, and its loops end.
            unsafe {
                device.wgpu.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
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
        let layout = device.wgpu.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(kernel.name),
            entries: &entries,
        });
        let pipeline_layout = device.wgpu.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 4 * kernel.interface.params.len() as u32,
        });
        let pipeline = device.wgpu.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
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
            let (device, name) = (device.properties.label(), kernel.name);
            return Err(Error::Device(format!("{device} rejects the kernel '{name}': {e}")));
        }
        device.alive("the creation of a pipeline")?;
        let made = Arc::new(Pipeline { layout, pipeline });
        pipelines.insert(key, made.clone());
        Ok(made)
    }
}

impl WgpuLaunch {
    pub(super) fn new(
        device: &WgpuDevice,
        pipeline: Arc<Pipeline>,
        kernel: &'static Kernel,
        grid: (u32, u32),
        args: &[Arg<'_>],
    ) -> Result<Self> {
        expect_bindings(&device.properties, kernel, args)?;
        let memory = args.iter().map(|arg| arg.memory.own::<wgpu::Buffer>());
        let entries: Vec<_> = (0u32..)
            .zip(memory)
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let scope = device.wgpu.push_error_scope(wgpu::ErrorFilter::Validation);
        let group = device.wgpu.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.name),
            layout: &pipeline.layout,
            entries: &entries,
        });
        if let Some(e) = pollster::block_on(scope.pop()) {
            let (device, name) = (device.properties.label(), kernel.name);
            return Err(Error::Device(format!("{device} rejects the arguments of kernel '{name}': {e}")));
        }
        Ok(Self { pipeline, group, grid })
    }
}

/// Encodes launches, each with its step number, into one compute pass.
///
/// With a generic iterator the compiler would spend 6 s on whether the types of wgpu are `Send` and
/// `Sync`.
pub(super) fn pass(encoder: &mut wgpu::CommandEncoder, launches: &mut dyn Iterator<Item = (u64, &Launch)>) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    let mut current: Option<*const Pipeline> = None;
    for (step, launch) in launches {
        let own: &WgpuLaunch = launch.prepared.own();
        if current != Some(Arc::as_ptr(&own.pipeline)) {
            pass.set_pipeline(&own.pipeline.pipeline);
            current = Some(Arc::as_ptr(&own.pipeline));
        }
        pass.set_bind_group(0, &own.group, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(&launch.params_of(step)[..launch.params.len()]));
        pass.dispatch_workgroups(own.grid.0, own.grid.1, 1);
    }
}
