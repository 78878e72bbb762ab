//! When the device begins and ends batches, by its own clock.

use wgpu::{BufferUsages, CommandEncoder, Features, QuerySet};

use super::{WgpuLane, lock};
use crate::Result;

/// What that takes of an adapter.
pub(super) const FEATURES: Features =
    Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// Batches whose times fit a set.
const MOST: u32 = 1024;

/// Times of the first batches since it was made.
#[derive(Debug)]
pub(super) struct Trace {
    set: QuerySet,
    batches: u32,
}

impl Trace {
    /// Notes that a batch begins, if there is room for it; returns its number.
    pub(super) fn begin(&mut self, encoder: &mut CommandEncoder) -> Option<u32> {
        let number = self.batches;
        if number == MOST {
            return None;
        }
        self.batches += 1;
        encoder.write_timestamp(&self.set, 2 * number);
        Some(number)
    }

    pub(super) fn end(&self, encoder: &mut CommandEncoder, number: u32) {
        encoder.write_timestamp(&self.set, 2 * number + 1);
    }
}

impl WgpuLane {
    /// Begins to note times of batches, where the adapter can.
    pub(in crate::lane) fn trace(&self) {
        if self.wgpu.features().contains(FEATURES) {
            let descriptor =
                wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: 2 * MOST };
            *lock(&self.trace) = Some(Trace { set: self.wgpu.create_query_set(&descriptor), batches: 0 });
        }
    }

    /// Seconds at which batches began and ended, in their order; ends the noting.
    pub(in crate::lane) fn traced(&self) -> Result<Vec<(f64, f64)>> {
        let Some(trace) = lock(&self.trace).take() else { return Ok(Vec::new()) };
        let times = 2 * trace.batches;
        if times == 0 {
            return Ok(Vec::new());
        }
        let bytes = 8 * u64::from(times);
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let buffer = self.create_buffer(bytes, usage, "times")?;
        let mut encoder = self.encoder();
        encoder.resolve_query_set(&trace.set, 0..times, &buffer, 0);
        self.submit(encoder)?;
        let mut ticks = vec![0u64; times as usize];
        self.download(&buffer, 0, bytemuck::cast_slice_mut(&mut ticks))?;
        let second = f64::from(self.queue.get_timestamp_period()) * 1e-9;
        let at = |tick: u64| tick.wrapping_sub(ticks[0]) as f64 * second;
        Ok(ticks.chunks(2).map(|pair| (at(pair[0]), at(pair[1]))).collect())
    }
}
