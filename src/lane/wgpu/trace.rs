//! Start and end times of batches by the device's clock.

use wgpu::{BufferUsages, CommandEncoder, Features, QuerySet};

use super::WgpuLane;
use crate::Result;
use crate::lane::backend::Backend;

/// Adapter features that traces need.
pub(super) const FEATURES: Features =
    Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

const MOST: u32 = 1024;

/// Times of the first [`MOST`] batches since the trace began.
#[derive(Debug)]
pub(super) struct Trace {
    set: QuerySet,
    batches: u32,
}

impl Trace {
    /// Starts to record the times of batches, if the adapter can.
    pub(super) fn begin(lane: &WgpuLane) -> Option<Self> {
        let descriptor =
            wgpu::QuerySetDescriptor { label: None, ty: wgpu::QueryType::Timestamp, count: 2 * MOST };
        let can = lane.wgpu.features().contains(FEATURES);
        can.then(|| Self { set: lane.wgpu.create_query_set(&descriptor), batches: 0 })
    }

    /// Records the start of a batch and returns its number; `None` if the trace is full.
    pub(super) fn batch_begins(&mut self, encoder: &mut CommandEncoder) -> Option<u32> {
        let number = self.batches;
        if number == MOST {
            return None;
        }
        self.batches += 1;
        encoder.write_timestamp(&self.set, 2 * number);
        Some(number)
    }

    pub(super) fn batch_ends(&self, encoder: &mut CommandEncoder, number: u32) {
        encoder.write_timestamp(&self.set, 2 * number + 1);
    }

    /// Returns start and end of each batch in seconds, in their order.
    pub(super) fn end(self, lane: &WgpuLane) -> Result<Vec<(f64, f64)>> {
        let times = 2 * self.batches;
        if times == 0 {
            return Ok(Vec::new());
        }
        let bytes = 8 * u64::from(times);
        let usage = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let buffer = lane.create_buffer(bytes, usage, "times")?;
        let mut encoder = lane.encoder();
        encoder.resolve_query_set(&self.set, 0..times, &buffer, 0);
        lane.give(encoder)?;
        let mut ticks = vec![0u64; times as usize];
        lane.download(&buffer, 0, bytemuck::cast_slice_mut(&mut ticks))?;
        let second = f64::from(lane.queue.get_timestamp_period()) * 1e-9;
        let at = |tick: u64| tick.wrapping_sub(ticks[0]) as f64 * second;
        Ok(ticks.chunks(2).map(|pair| (at(pair[0]), at(pair[1]))).collect())
    }
}
