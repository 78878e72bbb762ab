//! The phases of each lane's thread, in steps with an exchange through the host.

use std::sync::Mutex;
use std::time::Instant;

/// A phase of a thread in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Submits the rows that others wait for, and the receives before them; on the CPU computes them.
    Boundary,
    /// Submits the rows that nobody waits for; on the CPU computes them.
    Interior,
    /// Waits for the boundary rows and fetches their values.
    Fetch,
    /// Hands values to the neighbours.
    Send,
    /// Waits for the neighbours' values.
    Wait,
    /// Lays them where the device finds them.
    Fill,
}

/// All phases, in the order in which a device's thread goes through them.
pub const PHASES: [Phase; 6] =
    [Phase::Boundary, Phase::Interior, Phase::Fetch, Phase::Send, Phase::Wait, Phase::Fill];

impl Phase {
    /// The name.
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
    /// The lane.
    pub lane: usize,
    /// First step since the exchange before.
    pub step: u64,
    /// The phase.
    pub phase: Phase,
    /// Seconds since the timeline began.
    pub from: f64,
    /// The same, at the end.
    pub to: f64,
}

/// A record of moments, kept while it is asked for.
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
    /// Everything so far, in no order; forgets it.
    pub fn take(&self) -> Vec<Moment> {
        std::mem::take(&mut self.moments.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

/// One lane's hand on the timeline, if there is one.
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

    /// A phase has ended.
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
