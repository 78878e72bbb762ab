//! The state of a wgpu lane.

use std::sync::Mutex;

use wgpu::Features;

use super::device::WgpuDevice;
use super::pipeline::Pipelines;
use super::staging::Ring;
use crate::Result;

/// A logical device of one adapter, with pipelines and staging rings.
#[derive(Debug)]
pub(in crate::lane) struct WgpuLane {
    pub(super) device: WgpuDevice,
    pub(super) pipelines: Pipelines,
    pub(super) uploads: Mutex<Ring>,
    pub(super) downloads: Mutex<Ring>,
}

impl WgpuLane {
    /// Opens a lane of an adapter; an error for an unknown index lists the devices with `known`.
    pub(in crate::lane) fn open(
        index: usize,
        checked: bool,
        limbs: bool,
        known: fn() -> String,
    ) -> Result<Self> {
        let device = WgpuDevice::open(index, known)?;
        let limbs = limbs || !device.wgpu.features().contains(Features::SHADER_INT64);
        let (pipelines, uploads) = (Pipelines::new(checked, limbs), Mutex::default());
        Ok(Self { device, pipelines, uploads, downloads: Mutex::default() })
    }
}
