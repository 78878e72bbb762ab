//! Cost of an exchange of halos through the host, measured with separate arrays.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::host_exchange::{Worker, on_lanes, workers};
use super::transport::Transport;
use crate::kernel::Precision;
use crate::lane::bandwidth::{bind_copy, median};
use crate::lane::{Batch, Buffer, Lane, Launch};
use crate::ranks::{Envelope, Ranks};
use crate::transient::solution::ExchangeCost;
use crate::{Machine, Result};

/// Number of rounds of a measurement of exchanges without other work.
const ROUNDS: usize = 12;

/// Number of rounds of a measurement of exchanges next to launches, each as long as two exchanges.
const BUSY_ROUNDS: usize = 4;

/// Seconds of a launch that is too small to fill a device.
///
/// A row waits for its header, then its columns, then the values at these columns. 10⁵ rows take
/// about 20 µs on an H200, by its own clock.
const SMALL_LAUNCH: f64 = 20e-6;

/// Default cost of an exchange between two GPUs of one host: two H100s through Vulkan, medians.
const BETWEEN_CARDS: ExchangeCost = ExchangeCost { latency: 80e-6, rate: 10e9, busy: 75e-6, drain: 60e9 };

/// Seconds of products above which a measurement pays: it takes 0.1 s and gains a few percent.
const WORTH_MEASURING: f64 = 2.0;

/// Returns the cost of an exchange between the lanes; the products of the run take `seconds`.
///
/// It is measured once per set of lanes, also for later solves. A short run on GPUs uses a typical
/// cost instead. Ranks measure it each time, since all of them must do so together. They exchange
/// at most `states` values, so that a small chain does not wait longer for the measurement than for
/// its solution.
pub(crate) fn exchange_cost(machine: &Machine, states: usize, seconds: f64) -> Result<ExchangeCost> {
    static MEASURED: Mutex<Vec<(Vec<u32>, ExchangeCost)>> = Mutex::new(Vec::new());
    if machine.ranks.is_distributed() {
        return measure(machine, (states as u64).clamp(1 << 12, MOST));
    }
    let numbers: Vec<u32> = machine.lanes.iter().map(Lane::number).collect();
    let known = || MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, cost)) = known().iter().find(|(measured, _)| *measured == numbers) {
        return Ok(*cost);
    }
    let cards = machine.lanes.iter().all(|lane| !lane.device().on_host_cores());
    if cards && seconds < WORTH_MEASURING {
        return Ok(BETWEEN_CARDS);
    }
    let cost = measure(machine, MOST)?;
    known().push((numbers, cost));
    Ok(cost)
}

/// Largest number of values in a measured exchange.
const MOST: u64 = 1 << 19;

/// Measures exchanges of few values and of `most`, and the time for which they block a lane.
fn measure(machine: &Machine, most: u64) -> Result<ExchangeCost> {
    let (lanes, ranks) = (&machine.lanes, machine.ranks);
    // At most a tenth of the free memory is used.
    let free = lanes.iter().filter_map(Lane::free_bytes).min().unwrap_or(u64::MAX);
    let large = ranks.all_reduce_min((free / 80).clamp(1 << 9, most)) as usize;
    let small = large / (1 << 9);
    let slowest = |elements: usize| -> Result<f64> {
        let within = if lanes.len() > 1 { lane_ring(machine, elements)? } else { 0.0 };
        let between = if ranks.is_distributed() { rank_ring(machine, elements)? } else { 0.0 };
        Ok(ranks.all_reduce_max(within.max(between)))
    };
    let (latency, with_values) = (slowest(small)?, slowest(large)?);
    let rate = ((large - small) * 8) as f64 / (with_values - latency).max(1e-6);
    let (mut busy, mut slower) = (0.0f64, 0.0f64);
    // Lanes on the host's own cores have no gaps, and software adapters would take seconds for the
    // measurement. One lane of each kind is measured.
    let kind = |lane: &Lane| (lane.device().name.clone(), lane.device().backend);
    let first = |&(i, lane): &(usize, &Lane)| lanes[..i].iter().all(|earlier| kind(earlier) != kind(lane));
    let measured = lanes.iter().enumerate().filter(|(_, lane)| !lane.device().on_host_cores());
    for (_, lane) in measured.filter(first) {
        // The cost of small exchanges is hidden by other device work, so it is extrapolated.
        let [quarter, whole] =
            [large / 4, large].map(|len| lane.unnoticed(|| busy_seconds(lane, len, with_values)));
        let (quarter, whole) = (quarter?, whole?);
        let more = (whole - quarter).max(0.0) / 3.0;
        (busy, slower) = (busy.max(quarter - more), slower.max(more));
    }
    let (mut busy, slower) = (ranks.all_reduce_max(busy), ranks.all_reduce_max(slower));
    if busy > 0.0 {
        busy += SMALL_LAUNCH;
    }
    Ok(ExchangeCost { latency, rate, busy, drain: (large / 4 * 8) as f64 / slower })
}

/// Allocates an array to send and one to receive.
fn arrays(lane: &Lane, elements: usize) -> Result<[Buffer<f64>; 2]> {
    lane.unnoticed(|| {
        Ok([lane.alloc_for_send("a measurement", elements)?, lane.alloc("a measurement", elements)?])
    })
}

/// Measures the seconds of an exchange in which every lane sends to the next.
fn lane_ring(machine: &Machine, elements: usize) -> Result<f64> {
    let lanes = &machine.lanes;
    let arrays = lanes.iter().map(|lane| arrays(lane, elements)).collect::<Result<Vec<_>>>()?;
    let transport = |from: usize| {
        let to = (from + 1) % lanes.len();
        Transport::through_host(lanes, (from, &arrays[from][0]), (to, [&arrays[to][1]; 2], 0))
    };
    let transports = (0..lanes.len()).map(transport).collect::<Result<Vec<_>>>()?;
    ring_seconds(workers(lanes, &transports, machine.ranks, None))
}

/// Measures the seconds of an exchange in which every rank's first lane sends to the next rank's.
fn rank_ring(machine: &Machine, elements: usize) -> Result<f64> {
    let (lane, ranks) = (&machine.lanes[..1], machine.ranks);
    let [source, target] = arrays(&lane[0], elements)?;
    let (next, before) = (ranks.rank() + 1, ranks.rank() + ranks.size() - 1);
    let envelope = |rank: usize| Envelope { rank: rank % ranks.size(), tag: 0 };
    let transports = [
        Transport::to_rank(lane, (0, &source), envelope(next), None)?,
        Transport::from_rank(lane, (0, [&target; 2], 0), elements, envelope(before), None)?,
    ];
    ring_seconds(workers(lane, &transports, ranks, None))
}

/// Measures the seconds of an exchange on the slowest of the workers' lanes.
fn ring_seconds(workers: Vec<Worker<'_, f64>>) -> Result<f64> {
    let median = |worker: &mut Worker<'_, f64>| -> Result<f64> {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let at = Instant::now();
            worker.exchange_packed(0)?;
            rounds.push(at.elapsed().as_secs_f64());
        }
        Ok(median(rounds))
    };
    let medians = on_lanes(workers, &mut || Ok(()), &median)?;
    Ok(medians.into_iter().fold(0.0, f64::max))
}

/// Measures the seconds that exchanges of `elements` values add to launches that hide them.
///
/// `exchange` is the duration of an exchange without other work.
fn busy_seconds(lane: &Lane, elements: usize, exchange: f64) -> Result<f64> {
    let [source, target] = arrays(lane, elements.next_multiple_of(2))?;
    let from = lane.alloc::<f64>("a measurement", source.len())?;
    let to = lane.alloc::<f64>("a measurement", source.len())?;
    let pairs = source.len() / if lane.device().f64 { 2 } else { 1 };
    let precision = if lane.device().f64 { Precision::F64 } else { Precision::F32 };
    let copied = |to: &Buffer<f64>| -> Result<Launch> { bind_copy(lane, precision, pairs, &from, to) };
    let (rows, pack) = (copied(&to)?, copied(&source)?);
    // The lane exchanges with itself, as with a neighbour of its own kind.
    let lanes = std::slice::from_ref(lane);
    let transport = [Transport::through_host(lanes, (0, &source), (0, [&target; 2], 0))?];
    let mut worker: Worker<'_, f64> = workers(lanes, &transport, Ranks::ALONE, None).remove(0);
    worker.exchange(0, (&Batch { sends: worker.send_buffers(), ..Batch::default() }, 0), None)?;
    let mut seconds = |count: usize, exchange: bool| -> Result<f64> {
        let interior = Batch { launches: vec![(0, &rows); count], ..Batch::default() };
        // The boundary rows, and the packing of their values.
        let boundary = Batch {
            receives: worker.receive_buffers(0),
            launches: vec![(0, &rows), (0, &pack)],
            sends: worker.send_buffers(),
            before_receives: true,
        };
        let at = Instant::now();
        for _ in 0..BUSY_ROUNDS {
            match exchange {
                true => worker.exchange(0, (&boundary, 0), Some((&interior, 0)))?,
                false => lane.submit(&interior, 0)?,
            }
        }
        lane.finish()?;
        Ok(at.elapsed().as_secs_f64() / BUSY_ROUNDS as f64)
    };
    const SOME: usize = 64;
    seconds(SOME, false)?;
    let launch = seconds(SOME, false)? / SOME as f64;
    // Enough launches to hide an exchange.
    let count = ((2.0 * exchange / launch.max(1e-9)).ceil() as usize).clamp(1, 1024);
    seconds(count, true)?;
    let mut least = |exchange: bool| -> Result<f64> {
        (0..3).try_fold(f64::INFINITY, |least, _| Ok(least.min(seconds(count, exchange)?)))
    };
    Ok((least(true)? - least(false)?).max(0.0))
}
