//! Timeline of the phases of each lane's thread, in steps with an exchange through the host.

use std::sync::Mutex;
use std::time::Instant;

/// Phase of a thread in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Submits the boundary rows, and the receives before them; on the CPU computes them.
    Boundary,
    /// Submits the interior rows, which no other lane reads; on the CPU computes them.
    Interior,
    /// Waits for the boundary rows and fetches their values.
    Fetch,
    /// Sends values to the neighbours.
    Send,
    /// Waits for the neighbours' values.
    Wait,
    /// Stores the neighbours' values where the device reads them.
    Fill,
}

/// All phases, in the order of a device's thread.
pub const PHASES: [Phase; 6] =
    [Phase::Boundary, Phase::Interior, Phase::Fetch, Phase::Send, Phase::Wait, Phase::Fill];

impl Phase {
    /// Returns the name of the phase.
    pub fn name(self) -> &'static str {
        match self {
            Self::Boundary => "boundary",
            Self::Interior => "interior",
            Self::Fetch => "fetch",
            Self::Send => "send",
            Self::Wait => "wait",
            Self::Fill => "fill",
        }
    }
}

/// One phase of one exchange on one lane.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Moment {
    /// Index of the lane among this rank's lanes.
    pub lane: usize,
    /// First step since the previous exchange.
    pub step: u64,
    /// Phase that the thread was in.
    pub phase: Phase,
    /// Start, in seconds since the timeline began.
    pub from: f64,
    /// End, in seconds since the timeline began.
    pub to: f64,
}

/// Record of the phases of all lanes.
#[derive(Debug)]
pub struct Timeline {
    start: Instant,
    moments: Mutex<Vec<Moment>>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { start: Instant::now(), moments: Mutex::default() }
    }
}

impl Timeline {
    /// Returns and removes the phases recorded so far, in no particular order.
    pub fn take(&self) -> Vec<Moment> {
        std::mem::take(&mut self.moments.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// Recorder of one lane's phases; does nothing without a timeline.
pub(crate) struct Clock<'a> {
    timeline: Option<&'a Timeline>,
    lane: usize,
    last: f64,
    moments: Vec<Moment>,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(timeline: Option<&'a Timeline>, lane: usize) -> Self {
        let mut clock = Self { timeline, lane, last: 0.0, moments: Vec::new() };
        clock.last = clock.now();
        clock
    }

    fn now(&self) -> f64 {
        self.timeline.map_or(0.0, |timeline| timeline.start.elapsed().as_secs_f64())
    }

    /// Records the end of a phase.
    pub(crate) fn ended(&mut self, step: u64, phase: Phase) {
        if self.timeline.is_some() {
            let (from, to) = (self.last, self.now());
            self.moments.push(Moment { lane: self.lane, step, phase, from, to });
            self.last = to;
        }
    }
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        if let Some(timeline) = self.timeline {
            timeline.moments.lock().unwrap_or_else(|e| e.into_inner()).append(&mut self.moments);
        }
    }
}
