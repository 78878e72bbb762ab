//! Steps on several CUDA lanes with kernels that store directly into the neighbours' halos.
//!
//! One thread enqueues the work of all streams, and events order it. The interior is computed while
//! the boundary is stored.

use std::ops::Range;

use super::halo::Gathered;
use super::parts::ChainParts;
use crate::Result;
use crate::kernel::Number;
use crate::lane::{CudaLane, Event, Lane, Side, pieces};
use crate::transient::step::stages::LaneStep;

/// Returns the streams of the lanes, if all have one.
fn streams(lanes: &[Lane]) -> Option<Vec<&CudaLane>> {
    lanes.iter().map(Lane::cuda).collect()
}

/// Returns the lanes that write each lane's halo, or still read the values that it overwrites.
fn neighbours<T: Number>(parts: &ChainParts<T>, lanes: usize) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); lanes];
    for source in parts.between_lanes.iter().filter_map(|transfer| transfer.source.as_ref()) {
        if let Gathered::Halo { part, .. } = source.gathered {
            let [from, to] = [source.part, part].map(|part| parts.parts[part].lane);
            neighbours[from].push(to);
            neighbours[to].push(from);
        }
    }
    for list in &mut neighbours {
        list.sort_unstable();
        list.dedup();
    }
    neighbours
}

/// Runs steps as [`ChainParts::run`] does; the first is from x[now].
///
/// `work[lane][source]` is the step of a lane from x[source]. A lane has two streams: the main one
/// computes the interior, and the side stream computes the boundary rows and stores them in the
/// neighbours' halos.
///
/// Step k of either stream begins after step k − 1 of both streams, and after the neighbours have
/// stored their boundary of step k − 1. Values are stored after step k − 1 of the neighbour, which
/// has read the values that they replace.
pub(crate) fn run<T: Number>(
    parts: &ChainParts<T>,
    lanes: &[Lane],
    work: &[[LaneStep; 2]],
    steps: Range<u64>,
    now: usize,
    watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
) -> Result<()> {
    let streams = &streams(lanes).expect("lanes that reach each other's memory have streams");
    let neighbours = &neighbours(parts, lanes.len());
    // Each kind of event has two per lane, used in turn: one is recorded while the other is waited
    // for. `aside`: the lane has stored its boundary; `halo`: its neighbours have done so, too.
    let marks = || streams.iter().map(|stream| stream.mark()).collect::<Result<Vec<Event>>>();
    let (main, aside, halo) = ([marks()?, marks()?], [marks()?, marks()?], [marks()?, marks()?]);
    let join = |at: usize| -> Result<()> {
        for (lane, (stream, neighbours)) in streams.iter().zip(neighbours).enumerate() {
            for &other in neighbours {
                stream.after(Side::Aside, &aside[at][other])?;
            }
            stream.remark(Side::Aside, &halo[at][lane])?;
        }
        Ok(())
    };
    // The first step comes after all earlier work of the neighbours.
    join(0)?;
    join(1)?;
    let one = |step: u64| -> Result<()> {
        let (before, after) = ((step % 2) as usize, ((step + 1) % 2) as usize);
        let source = (now + (step - steps.start) as usize) % 2;
        for (lane, ((stream, work), neighbours)) in streams.iter().zip(work).zip(neighbours).enumerate() {
            let work = &work[source];
            stream.after(Side::Aside, &main[before][lane])?;
            stream.enqueue(Side::Aside, &work.boundary, step)?;
            for &other in neighbours {
                stream.after(Side::Aside, &main[before][other])?;
            }
            stream.enqueue(Side::Aside, &work.sends, step)?;
            stream.remark(Side::Aside, &aside[after][lane])?;

            // The main stream has few events to wait for, because each delays its next kernel.
            stream.after(Side::Main, &halo[before][lane])?;
            stream.enqueue(Side::Main, &work.interior, step)?;
            if !work.rest.is_empty() {
                stream.after(Side::Main, &aside[after][lane])?;
                stream.enqueue(Side::Main, &work.rest, step)?;
            }
            stream.remark(Side::Main, &main[after][lane])?;
        }
        join(after)
    };
    pieces(
        steps.end - steps.start,
        |from, count| {
            let end = steps.start + from + count;
            (steps.start + from..end).try_for_each(one)?;
            // A piece is complete when both streams and the neighbours' stores are.
            let last = (end % 2) as usize;
            let done = |(lane, stream): (usize, &&CudaLane)| {
                stream.after(Side::Main, &halo[last][lane])?;
                stream.mark()
            };
            streams.iter().enumerate().map(done).collect::<Result<Vec<_>>>()
        },
        |marks| streams.iter().zip(&marks).try_for_each(|(stream, mark)| stream.reached(mark)),
        watch,
    )
}
