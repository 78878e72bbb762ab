//! The adapters of this machine, numbered as by `kolmo devices`.

use std::sync::{Mutex, MutexGuard, OnceLock};

use wgpu::{Adapter, Backends, DeviceType, Features};

use super::super::{Device, Limits, Listing};
use crate::kernel::Precision;
use crate::parallel::lock;

const IMMEDIATE_BYTES: u32 = 64;

/// Locks creation of devices and pipelines on software adapters, whose drivers crash otherwise.
pub(super) fn creation(software: bool) -> Option<MutexGuard<'static, ()>> {
    static CREATION: Mutex<()> = Mutex::new(());
    software.then(|| lock(&CREATION))
}

/// Disables Mesa's device-selection layer.
///
/// The layer searches for a display and writes warnings to stderr in every headless process.
///
/// # Safety
/// No other thread of the process runs yet.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the environment is how Vulkan layers are configured")]
pub(crate) unsafe fn quiet() {
    // SAFETY: guaranteed by the caller.
    unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
}

/// Returns the adapters, hardware before software; they are opened once.
pub(super) fn adapters() -> &'static [Adapter] {
    static ADAPTERS: OnceLock<Vec<Adapter>> = OnceLock::new();
    ADAPTERS.get_or_init(|| {
        let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends,
            flags: wgpu::InstanceFlags::empty(),
            memory_budget_thresholds: wgpu::MemoryBudgetThresholds {
                for_resource_creation: Some(98),
                for_device_loss: None,
            },
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let mut all = pollster::block_on(instance.enumerate_adapters(backends));
        all.sort_by_key(|adapter| {
            let info = adapter.get_info();
            let kind = match info.device_type {
                DeviceType::DiscreteGpu => 0,
                DeviceType::IntegratedGpu => 1,
                DeviceType::VirtualGpu | DeviceType::Other => 2,
                DeviceType::Cpu => 3,
            };
            // Vulkan precedes DX12, since only Vulkan supports double precision.
            let backend = match info.backend {
                wgpu::Backend::Vulkan => 0,
                wgpu::Backend::Metal => 1,
                _ => 2,
            };
            (kind, backend, info.device_pci_bus_id)
        });
        all
    })
}

fn software(adapter: &Adapter) -> bool {
    adapter.get_info().device_type == DeviceType::Cpu
}

/// Returns true if an adapter runs kernels in double precision, with 32 KiB of workgroup memory.
fn in_double_precision(adapter: &Adapter) -> bool {
    let memory = adapter.limits().max_compute_workgroup_storage_size;
    adapter.features().contains(Features::SHADER_F64) && memory >= 1 << 15
}

pub(super) fn describe(index: usize, adapter: &Adapter) -> Device {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    Device {
        name: info.name.clone(),
        spec: format!("wgpu:{index}"),
        backend: match info.backend {
            wgpu::Backend::Vulkan => "vulkan",
            wgpu::Backend::Metal => "metal",
            wgpu::Backend::Dx12 => "dx12",
            _ => "other",
        },
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        host: false,
        software: software(adapter),
        queued_copies: false,
        mapped_staging: true,
        f64: in_double_precision(adapter),
        limits: Limits {
            binding: limits.max_storage_buffer_binding_size,
            buffer: limits.max_buffer_size,
            memory: software(adapter).then(crate::util::memory::available_memory),
            unified: matches!(info.device_type, DeviceType::Cpu | DeviceType::IntegratedGpu),
        },
    }
}

/// Returns the reason why an adapter cannot run the kernels, if there is one.
pub(super) fn unusable(adapter: &Adapter) -> Option<String> {
    let limits = adapter.limits();
    let immediates = adapter.features().contains(Features::IMMEDIATES).then_some(limits.max_immediate_size);
    let limits = [
        (immediates.unwrap_or(0), IMMEDIATE_BYTES, "", " bytes of immediate data"),
        (limits.max_storage_buffers_per_shader_stage, 8, "", " storage buffers a kernel"),
        (limits.max_compute_invocations_per_workgroup, 256, "workgroups of ", ""),
    ];
    let (limit, least, before, what) = limits.into_iter().find(|(limit, least, ..)| limit < least)?;
    Some(format!("{before}{limit}{what}: expected at least {least}"))
}

/// Lists every adapter for `kolmo devices`.
pub(crate) fn list() -> Vec<Listing> {
    let all = adapters().iter().enumerate();
    all.map(|(i, adapter)| {
        let device = describe(i, adapter);
        Listing {
            driver: device.driver.clone(),
            device,
            workgroups: Some(adapter.limits().max_compute_workgroups_per_dimension),
            unusable: unusable(adapter),
        }
    })
    .collect()
}

pub(crate) fn hardware() -> Vec<usize> {
    let mut seen = Vec::new();
    let mut out = Vec::new();
    for (i, adapter) in adapters().iter().enumerate() {
        let info = adapter.get_info();
        let id = (info.vendor, info.device, info.device_pci_bus_id);
        // Identical cards differ only in their PCI bus; a backend that does not report it lists
        // them as one.
        if !software(adapter) && unusable(adapter).is_none() && !seen.contains(&id) {
            seen.push(id);
            out.push(i);
        }
    }
    out
}

/// Returns the hardware adapter that `auto` selects, if one supports the precision.
pub(crate) fn best(precision: Precision) -> Option<usize> {
    adapters().iter().position(|adapter| {
        !software(adapter)
            && unusable(adapter).is_none()
            && (precision != Precision::F64 || in_double_precision(adapter))
    })
}
