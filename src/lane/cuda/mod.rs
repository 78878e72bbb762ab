//! The CUDA lane: one stream of one device.

mod compile;
mod driver;
mod lane;
mod memory;
mod transfer;

pub use compile::{kernel_cache, nvrtc_version};

use std::sync::Arc;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

use driver::CudaContext;
pub(crate) use driver::{Event, prepare};
pub(crate) use lane::{CudaLane, Side};
use lane::{CudaLaunch, MOST_GROUPS, SLOT, SLOTS, Staging, describe, device};
use memory::GpuArray;
use transfer::{CudaReceiveBuffer, CudaSendBuffer};

use super::backend::{Backend, OnStep};
use super::batching::pieces;
use super::host_array::Locked;
use super::work::grid;
use super::{Arg, Device, Foreign, HostArray, LaneBatch, Listing, Program};
use crate::error::Size;
use crate::kernel::{Kernel, Precision};
use crate::parallel::{copy_bytes_locked, lock};
use crate::{Error, Limit, Result};

/// Lists every CUDA device, or one entry with the reason why there is none.
pub(super) fn list() -> Vec<Listing> {
    let missing = |spec: String, why: String| Listing {
        device: device("CUDA".to_owned(), spec, String::new(), None),
        driver: String::new(),
        workgroups: None,
        unusable: Some(why),
    };
    let none = |why: String| vec![missing("cuda".to_owned(), why)];
    let count = match driver::present().and_then(|()| driver::count().map_err(driver::reason)) {
        Ok(0) => return none("the driver finds no device".to_owned()),
        Ok(count) => count,
        Err(why) => return none(why),
    };
    let one = |n: usize| match CudaContext::retain(n).and_then(|context| describe(n, &context)) {
        Ok((device, arch)) => Listing { device, driver: arch, workgroups: Some(MOST_GROUPS), unusable: None },
        Err(e) => missing(format!("cuda:{n}"), driver::reason(e)),
    };
    (0..count).map(one).collect()
}

/// Returns the ordinal of the CUDA device that `auto` selects, if there is a device.
pub(super) fn best() -> Option<usize> {
    (count() > 0).then_some(0)
}

pub(super) fn count() -> usize {
    driver::present().map_or(0, |()| driver::count().unwrap_or(0))
}

impl Backend for CudaLane {
    type Memory = Arc<GpuArray>;
    type Launch = CudaLaunch;
    type SendBuffer = CudaSendBuffer;
    type ReceiveBuffer = CudaReceiveBuffer;

    fn device(&self) -> &Device {
        &self.device
    }

    fn free_bytes(&self, _: u64) -> Option<u64> {
        self.context.memory().ok().map(|(free, _)| (free + self.streams.unused_bytes()) as u64)
    }

    fn alloc(&self, bytes: u64) -> Result<Arc<GpuArray>> {
        let memory = self.alloc_unset(bytes)?;
        self.clear(&memory, bytes)?;
        Ok(memory)
    }

    fn alloc_unset(&self, bytes: u64) -> Result<Arc<GpuArray>> {
        match GpuArray::new(self.context, bytes as usize, &self.streams) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let free = Size(self.free_bytes(0).unwrap_or(0));
                let limit = Limit::Free(format!("{free} of its memory are free"));
                Err(Error::memory(&self.device.label(), "an array", bytes, limit))
            }
            Err(e) => Err(self.error("an allocation", e)),
        }
    }

    fn upload(&self, src: &[u8], dst: &Arc<GpuArray>, at: u64) -> Result<()> {
        let mut staging = lock(&self.staging);
        self.during("an upload", || {
            for (i, chunk) in src.chunks(SLOT).enumerate() {
                let (pinned, event) = &mut staging[i % SLOTS];
                event.synchronize()?;
                let bytes = &mut pinned.bytes_mut()[..chunk.len()];
                copy_bytes_locked(bytes, chunk);
                self.streams.main.send(bytes, dst, at + (i * SLOT) as u64)?;
                event.record(&self.streams.main)?;
            }
            Ok(())
        })
    }

    fn download(&self, src: &Arc<GpuArray>, at: u64, dst: &mut [u8]) -> Result<()> {
        let mut staging = lock(&self.staging);
        self.during("a download", || {
            let lengths: Vec<usize> = dst.chunks(SLOT).map(<[u8]>::len).collect();
            let fetch = |staging: &mut Staging, i: usize| -> driver::DriverResult<()> {
                let (pinned, event) = &mut staging[i % SLOTS];
                event.synchronize()?;
                self.streams.main.fetch(
                    src,
                    at + (i * SLOT) as u64,
                    &mut pinned.bytes_mut()[..lengths[i]],
                )?;
                event.record(&self.streams.main)
            };
            for i in 0..lengths.len().min(SLOTS) {
                fetch(&mut staging, i)?;
            }
            for (i, chunk) in dst.chunks_mut(SLOT).enumerate() {
                let (pinned, event) = &mut staging[i % SLOTS];
                event.synchronize()?;
                copy_bytes_locked(chunk, &pinned.bytes()[..chunk.len()]);
                if i + SLOTS < lengths.len() {
                    fetch(&mut staging, i + SLOTS)?;
                }
            }
            Ok(())
        })
    }

    fn send(&self, src: &[u8], dst: &Arc<GpuArray>, at: u64) -> Result<()> {
        self.during("an upload", || self.streams.main.send(src, dst, at))
    }

    fn fetch(&self, src: &Arc<GpuArray>, at: u64, dst: &mut [u8]) -> Result<()> {
        self.during("a download", || self.streams.main.fetch(src, at, dst))
    }

    fn clear(&self, dst: &Arc<GpuArray>, bytes: u64) -> Result<()> {
        self.during("clearing", || self.streams.main.clear(dst, bytes as usize))
    }

    fn copy(&self, src: &Arc<GpuArray>, dst: &Arc<GpuArray>, at: u64, bytes: u64, times: u32) -> Result<()> {
        self.during("a copy", || {
            (0..times).try_for_each(|_| self.streams.main.copy(src, dst, at, bytes as usize))?;
            self.streams.main.synchronize()
        })
    }

    fn reaches_memory(&self, memory: &Arc<GpuArray>) -> bool {
        self.context.reach(&memory.context)
    }

    /// Accepts memory of other CUDA lanes with peer access; `Lane::bind` has checked that.
    fn bind(
        &self,
        kernel: &'static Kernel,
        precision: Precision,
        items: usize,
        args: &[Arg<'_>],
    ) -> Result<CudaLaunch> {
        let memory = || args.iter().map(|arg| arg.memory.own::<Arc<GpuArray>>());
        memory().for_each(|memory| memory.share(&self.streams));
        Ok(CudaLaunch {
            function: self.function(kernel, precision)?,
            grid: grid(items, kernel, MOST_GROUPS),
            group: kernel.group(),
            args: memory().cloned().collect(),
        })
    }

    fn run(&self, program: &Program<'_>, first: u64, count: u64, watch: OnStep<'_>) -> Result<()> {
        let submit = |from: u64, steps: u64| {
            for step in first + from..first + from + steps {
                self.enqueue(Side::Main, program.launches(step).iter().copied(), step)?;
            }
            self.mark()
        };
        pieces(count, submit, |event| self.reached(&event), watch)
    }

    fn submit(&self, batch: &LaneBatch<'_>, first: u64) -> Result<()> {
        for received in &batch.receives {
            received.staging.own::<CudaReceiveBuffer>().deliver(self)?;
        }
        for &(step, launch) in &batch.launches {
            self.enqueue(Side::Main, [launch], first + step)?;
        }
        if batch.before_receives {
            self.fence()?;
        }
        batch.sends.iter().try_for_each(|sent| sent.staging.own::<CudaSendBuffer>().send(self))
    }

    fn finish(&self) -> Result<()> {
        let ended = self.streams.main.synchronize().and_then(|()| self.streams.aside.synchronize());
        ended.map_err(|e| self.error("a wait", e))
    }

    fn host_array<T: bytemuck::Pod>(&self, len: usize) -> Result<HostArray<T>> {
        self.lock_pages((len * size_of::<T>()) as u64).map(HostArray::of_locked)
    }

    fn stream(&self) -> Option<u64> {
        Some(self.streams.main.handle())
    }

    fn address(&self, memory: &Arc<GpuArray>) -> Option<u64> {
        memory.lend();
        Some(memory.pointer)
    }

    #[expect(unsafe_code, reason = "a stream that others give")]
    unsafe fn wait_for(&self, stream: u64) -> Result<()> {
        let wait = || {
            let event = Event::new(self.context)?;
            // SAFETY: guaranteed by the caller.
            unsafe { event.record_foreign(stream) }?;
            self.streams.main.wait(&event)
        };
        // This runs in the caller's thread, since one of CUDA's default streams belongs to the
        // thread. The thread's context is restored.
        self.context.within(wait).map_err(|e| self.error("waiting for a stream", e))
    }

    #[expect(unsafe_code, reason = "an address that others give")]
    unsafe fn copy_from(&self, src: Foreign, dst: &Arc<GpuArray>, at: u64, pitch: usize) -> Result<()> {
        let spec = &self.device.spec;
        let refuse = |why: String| Error::Capability(format!("{why}; use arrays on {spec}, or on the host"));
        self.enter()?;
        for address in [src.address, src.address + src.extent() as u64 - 1] {
            match self.context.ordinal_of(address) {
                Some(own) if own == self.context.device => {}
                Some(other) => return Err(refuse(format!("{address:#x} is memory of cuda:{other}"))),
                None => return Err(refuse(format!("{address:#x} is not CUDA memory"))),
            }
        }
        self.during("a copy from another library's array", || {
            // SAFETY: guaranteed by the caller.
            unsafe { self.streams.main.copy_foreign(&src, dst, at, pitch) }?;
            self.streams.main.synchronize()
        })
    }
}
