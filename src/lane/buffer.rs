//! Arrays in a lane's memory, and the memory account of a lane.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use bytemuck::Pod;

use super::object::AnyObject;
use crate::kernel::Scalar;

/// An array in a lane's memory. Clones share the memory.
#[derive(Debug, Clone)]
pub struct Buffer<T> {
    pub(super) len: usize,
    pub(super) memory: AnyObject,
    charge: Arc<Charge>,
    element: PhantomData<T>,
}

/// Bytes charged to a lane's account, until the last clone of an array is dropped.
#[derive(Debug)]
struct Charge {
    bytes: u64,
    budget: Arc<LaneAccount>,
}

impl<T: Pod> Buffer<T> {
    /// Makes an array and charges the budget with its `bytes`.
    pub(super) fn new(len: usize, memory: AnyObject, bytes: u64, budget: &Arc<LaneAccount>) -> Self {
        let used = budget.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        budget.peak.fetch_max(used, Ordering::Relaxed);
        let charge = Arc::new(Charge { bytes, budget: budget.clone() });
        Self { len, memory, charge, element: PhantomData }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size on the device in bytes.
    pub fn bytes(&self) -> u64 {
        self.charge.bytes
    }

    /// Returns the array as an argument of a kernel.
    pub fn arg(&self) -> Arg<'_> {
        Arg { memory: &self.memory, bytes: self.bytes(), lane: self.lane(), scalar: Scalar::of::<T>() }
    }

    pub(super) fn lane(&self) -> u32 {
        self.charge.budget.lane
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Arg<'a> {
    pub(super) memory: &'a AnyObject,
    #[cfg_attr(
        not(any(feature = "wgpu", target_family = "wasm")),
        allow(dead_code, reason = "only devices have a limit to check")
    )]
    pub(super) bytes: u64,
    /// Number of the lane that owns the memory.
    pub(super) lane: u32,
    /// Type of the numbers in the memory, if known.
    pub(super) scalar: Option<Scalar>,
}

impl Arg<'_> {
    /// Returns the memory without a number type, so that a kernel may use any.
    pub fn untyped(self) -> Self {
        Self { scalar: None, ..self }
    }
}

/// Account of a lane: bytes in use, their limit set by the user, and time spent on transfers.
#[derive(Debug)]
pub(super) struct LaneAccount {
    /// Number of the lane, unique in the process.
    pub(super) lane: u32,
    pub(super) used: AtomicU64,
    pub(super) peak: AtomicU64,
    pub(super) limit: Option<u64>,
    /// Total duration of uploads in nanoseconds; `down` is that of downloads.
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

impl LaneAccount {
    pub(super) fn new(limit: Option<u64>) -> Self {
        static LANES: AtomicU32 = AtomicU32::new(0);
        Self {
            lane: LANES.fetch_add(1, Ordering::Relaxed),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            limit,
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        }
    }
}

/// Guard that adds the time from its creation to its drop to a counter.
pub(super) struct TimeGuard<'a> {
    from: Instant,
    counter: &'a AtomicU64,
}

impl<'a> TimeGuard<'a> {
    pub(super) fn new(counter: &'a AtomicU64) -> Self {
        Self { from: Instant::now(), counter }
    }
}

impl Drop for TimeGuard<'_> {
    fn drop(&mut self) {
        self.counter.fetch_add(self.from.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}
