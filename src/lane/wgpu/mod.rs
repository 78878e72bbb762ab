//! The wgpu lane: one logical device of one adapter, with its queue.

mod adapter;
#[cfg(any(windows, target_os = "linux"))]
mod dedicated;
mod device;
mod lane;
mod pipeline;
mod staging;
mod transfer;

use wgpu::BufferUsages;

#[cfg(target_os = "linux")]
pub(crate) use adapter::quiet;
pub(crate) use adapter::{best, hardware, list};
pub(super) use lane::WgpuLane;

use super::backend::{Backend, OnStep};
use super::batching::pieces;
use super::work::grid;
use super::{Arg, Device, LaneBatch, Program};
use crate::Result;
use crate::kernel::{Kernel, Precision};
use crate::parallel::lock;
use device::{ARRAY, MAPPED};
use pipeline::WgpuLaunch;
use transfer::{WgpuReceiveBuffer, WgpuSendBuffer};

impl Backend for WgpuLane {
    type Memory = wgpu::Buffer;
    type Launch = WgpuLaunch;
    type SendBuffer = WgpuSendBuffer;
    type ReceiveBuffer = WgpuReceiveBuffer;

    fn device(&self) -> &Device {
        &self.device.properties
    }

    fn free_bytes(&self, used: u64) -> Option<u64> {
        self.device.properties.limits.memory.map(|memory| memory.saturating_sub(used))
    }

    fn alloc(&self, bytes: u64) -> Result<wgpu::Buffer> {
        #[cfg(any(windows, target_os = "linux"))]
        if let Some(buffer) = self.device.alloc_dedicated(bytes)? {
            return Ok(buffer);
        }
        self.device.create_buffer(bytes, ARRAY, "an array")
    }

    /// Uses host memory that kernels write directly, if the adapter supports that.
    fn alloc_for_send(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let mapped = self.device.wgpu.features().contains(MAPPED).then_some(BufferUsages::MAP_READ);
        self.device.create_buffer(bytes, ARRAY | mapped.unwrap_or(BufferUsages::empty()), "an array")
    }

    fn upload(&self, src: &[u8], dst: &wgpu::Buffer, at: u64) -> Result<()> {
        lock(&self.uploads).upload(&self.device, src, dst, at)
    }

    fn download(&self, src: &wgpu::Buffer, at: u64, dst: &mut [u8]) -> Result<()> {
        lock(&self.downloads).download(&self.device, src, at, dst)
    }

    fn clear(&self, dst: &wgpu::Buffer, _: u64) -> Result<()> {
        self.device.clear(dst)
    }

    fn copy(&self, src: &wgpu::Buffer, dst: &wgpu::Buffer, at: u64, bytes: u64, times: u32) -> Result<()> {
        let mut encoder = self.device.encoder();
        for _ in 0..times {
            encoder.copy_buffer_to_buffer(src, 0, dst, at, bytes);
        }
        let index = self.device.give(encoder)?;
        self.device.wait(Some(index), "a copy")
    }

    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<WgpuLaunch> {
        let most = self.device.wgpu.limits().max_compute_workgroups_per_dimension;
        let pipeline = self.pipelines.get(&self.device, kernel, precision)?;
        WgpuLaunch::new(&self.device, pipeline, kernel, grid(items, kernel, most), args)
    }

    /// Runs steps in pieces; the next piece is queued while the current one runs.
    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: OnStep<'_>) -> Result<()> {
        let submit = |from: u64, steps: u64| {
            let mut encoder = self.device.encoder();
            let steps = first + from..first + from + steps;
            let mut launches = steps.flat_map(|step| program.launches(step).iter().map(move |&l| (step, l)));
            pipeline::pass(&mut encoder, &mut launches);
            self.device.give(encoder)
        };
        pieces(count, submit, |index| self.device.wait(Some(index), "a long loop"), watch)
    }

    fn submit(&self, batch: &LaneBatch<'_>, first: u64) -> Result<()> {
        transfer::submit(self, batch, first)
    }

    fn finish(&self) -> Result<()> {
        self.device.wait(None, "an exchange")
    }

    #[cfg(test)]
    fn lose(&self) {
        self.device.wgpu.destroy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

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
        let up = lane
            .upload(&[1; 1024], &buffer, 0)
            .and_then(|()| lane.device.wait(None, "the test"))
            .unwrap_err();
        let down = lane.download(&buffer, 0, &mut [0; 1024]).unwrap_err();
        let again = lane.alloc(1024).unwrap_err();

        for error in [up, down, again] {
            let Error::DeviceLost { device, .. } = &error else { panic!("{error}") };
            assert!(device.contains("wgpu:0"), "{error}");
        }
    }
}
