//! Steps on several CUDA lanes: one thread keeps all streams filled, kernels store straight into the neighbours' halos,
//! and events keep the order.

use std::ops::Range;

use super::exchange::{Launches, Stage};
use super::parts::Parts;
use crate::Result;
use crate::kernel::Real;
use crate::lane::{CudaLane, Event, Lane, Launch, pieces};

/// The streams of the lanes, if all have one.
pub(super) fn streams(lanes: &[Lane]) -> Option<Vec<&CudaLane>> {
    lanes.iter().map(Lane::cuda).collect()
}

/// Whether all lanes are streams, and each reaches the memory of every other.
pub(super) fn all_reach(lanes: &[Lane]) -> bool {
    let Some(streams) = streams(lanes) else { return false };
    streams.iter().all(|one| streams.iter().all(|other| one.reaches(other)))
}

/// Runs steps as [`Parts::run`] does.
pub(super) fn run<T: Real>(
    parts: &Parts<T>,
    lanes: &[Lane],
    streams: &[&CudaLane],
    steps: Range<u64>,
    now: usize,
    launches: Launches<'_>,
    watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
) -> Result<()> {
    // work[k mod 2][lane]
    let mut work: [Vec<Vec<Launch>>; 2] = Default::default();
    for (parity, work) in work.iter_mut().enumerate() {
        let source = (now + parity + steps.start as usize) % 2;
        for lane in 0..lanes.len() {
            let mut all = launches(lane, source, Stage::Boundary)?;
            all.extend(launches(lane, source, Stage::Interior)?);
            all.extend(parts.gathers(lanes, lane, 1 - source)?);
            all.extend(parts.pushes(lanes, lane, 1 - source)?);
            work.push(all);
        }
    }
    // Lanes that a lane waits for: those that write its halo before it reads it, and those that still read what it is
    // about to overwrite.
    let mut neighbours = vec![Vec::new(); lanes.len()];
    for link in &parts.links {
        let (from, to) = (parts.parts[link.from].lane, parts.parts[link.to].lane);
        neighbours[from].push(to);
        neighbours[to].push(from);
    }
    for list in &mut neighbours {
        list.sort_unstable();
        list.dedup();
    }
    // Two events a lane, in turn: one is recorded while the other is waited for.
    let mut events: [Vec<Event>; 2] = Default::default();
    for events in &mut events {
        *events = streams.iter().map(|stream| stream.mark()).collect::<Result<_>>()?;
    }
    pieces(
        steps.end - steps.start,
        |from, count| {
            for step in steps.start + from..steps.start + from + count {
                let (before, after) = (&events[(step % 2) as usize], &events[((step + 1) % 2) as usize]);
                for ((stream, work), neighbours) in
                    streams.iter().zip(&work[(step % 2) as usize]).zip(&neighbours)
                {
                    for &other in neighbours {
                        stream.after(&before[other])?;
                    }
                    stream.enqueue(&work.iter().collect::<Vec<_>>(), step)?;
                }
                for (stream, event) in streams.iter().zip(after) {
                    stream.remark(event)?;
                }
            }
            streams.iter().map(|stream| stream.mark()).collect::<Result<Vec<_>>>()
        },
        |marks| streams.iter().zip(&marks).try_for_each(|(stream, mark)| stream.reached(mark)),
        watch,
    )
}
