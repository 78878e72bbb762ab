//! Properties of devices that a run depends on.

#[cfg(any(feature = "wgpu", target_family = "wasm"))]
use {
    super::Arg,
    crate::kernel::Kernel,
    crate::{Error, Limit, Result},
};

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

    /// Returns an error if an argument exceeds the largest binding.
    #[cfg(any(feature = "wgpu", target_family = "wasm"))]
    pub(super) fn expect_bindings(&self, kernel: &Kernel, args: &[Arg<'_>]) -> Result<()> {
        let most = self.limits.binding;
        match args.iter().find(|arg| arg.bytes > most) {
            None => Ok(()),
            Some(arg) => {
                let what = format!("an array of kernel '{}'", kernel.name);
                let limit = Limit::Allocation(format!("its largest binding is {most} bytes"));
                Err(Error::memory(&self.label(), what, arg.bytes, limit))
            }
        }
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
