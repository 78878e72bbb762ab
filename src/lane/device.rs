//! Devices, as far as a run needs to know them.

#[cfg(any(feature = "wgpu", target_family = "wasm"))]
use {
    super::Arg,
    crate::kernel::Kernel,
    crate::{Error, Result},
};

/// What a run needs to know of a device.
#[derive(Debug, Clone)]
pub struct Device {
    /// Name for people.
    pub name: String,
    /// Name on the command line, `wgpu:0`.
    pub spec: String,
    /// `cpu`, `cuda`, `vulkan`, `metal`, `dx12`, `webgpu`: for reports. Engines ask for what follows.
    pub backend: &'static str,
    /// Name and version of what runs the kernels, as it tells them itself.
    pub driver: String,
    /// Whether it is the host itself: the thread that launches kernels computes their CPU twins, in the host's memory.
    pub host: bool,
    /// Whether a CPU stands behind a GPU's interface.
    pub software: bool,
    /// Whether copies from and to page-locked memory are work in its queue like kernels, which no thread attends to.
    pub queued_copies: bool,
    /// Whether values on their way from and to its arrays lie in memory that the host maps: such lanes copy straight to
    /// one another.
    pub mapped_staging: bool,
    /// Whether it computes in double precision.
    pub f64: bool,
    /// Limits that matter.
    pub limits: Limits,
}

impl Device {
    /// Whether kernels run on the host's cores. A thread that looks for something again and again takes their time.
    pub fn on_host_cores(&self) -> bool {
        self.host || self.software
    }

    /// Both names, for errors.
    #[cfg(any(feature = "wgpu", feature = "cuda", target_family = "wasm"))]
    pub(super) fn label(&self) -> String {
        format!("{} ({})", self.spec, self.name)
    }

    /// An error if a kernel's argument is larger than what it can see.
    #[cfg(any(feature = "wgpu", target_family = "wasm"))]
    pub(super) fn expect_bindings(&self, kernel: &Kernel, args: &[Arg<'_>]) -> Result<()> {
        let most = self.limits.binding;
        match args.iter().find(|arg| arg.bytes > most) {
            None => Ok(()),
            Some(arg) => Err(Error::OutOfMemory {
                device: self.label(),
                what: format!("an array of kernel '{}'", kernel.name),
                asked: arg.bytes,
                limit: format!("its largest binding is {most} bytes"),
            }),
        }
    }
}

/// Limits of a device, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest array that a kernel can see.
    pub binding: u64,
    /// Largest allocation.
    pub buffer: u64,
    /// Memory that a run may take, if known.
    pub memory: Option<u64>,
    /// Whether the device's memory is the host's.
    pub unified: bool,
}
