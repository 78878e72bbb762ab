//! Properties of devices that a run depends on.

/// Properties of a device that a run depends on.
#[derive(Debug, Clone)]
pub struct Device {
    /// Name for display.
    pub name: String,
    /// Name on the command line, for example `wgpu:0`.
    pub spec: String,
    /// Graphics or compute interface, for reports. One of `cpu`, `cuda`, `vulkan`, `metal`, `dx12`,
    /// `webgpu`. Solvers use the fields below.
    pub backend: &'static str,
    /// Name and version of the driver or runtime, as reported by itself.
    pub driver: String,
    /// True for the CPU lane: the launching thread runs CPU implementations in host memory.
    pub host: bool,
    /// True for software adapters (llvmpipe, WARP).
    pub software: bool,
    /// True if copies from and to page-locked memory are queued like kernels. No host thread takes
    /// part in them.
    pub queued_copies: bool,
    /// True if the host maps transfer buffers. Two such lanes copy directly to each other.
    pub mapped_staging: bool,
    /// True if double precision is supported.
    pub f64: bool,
    /// Limits of memory and bindings.
    pub limits: Limits,
}

impl Device {
    /// Returns true if kernels run on the host's cores. A polling thread slows such kernels down.
    pub fn on_host_cores(&self) -> bool {
        self.host || self.software
    }

    /// Returns command-line name and display name, for errors.
    #[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
    pub(super) fn label(&self) -> String {
        format!("{} ({})", self.spec, self.name)
    }
}

/// Limits of a device, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest array that a kernel can access, in bytes.
    pub binding: u64,
    /// Largest allocation, in bytes.
    pub buffer: u64,
    /// Bytes that were free when the device was opened; `None` if unknown.
    ///
    /// On the CPU at most the memory limit of the options.
    pub memory: Option<u64>,
    /// True if the device shares the host's memory.
    pub unified: bool,
}

/// A line of `kolmo devices`.
#[derive(Debug)]
pub struct Listing {
    /// Properties of the device.
    pub device: Device,
    /// Driver and version, as the backend reports them.
    pub driver: String,
    /// Maximum number of workgroups in one dimension of a grid; `None` on the CPU.
    pub workgroups: Option<u32>,
    /// Reason for which the device cannot be used, if there is one.
    pub unusable: Option<String>,
}
