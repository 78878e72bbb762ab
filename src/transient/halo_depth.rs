//! How many steps lanes take between two exchanges through the host: a swap costs a latency that a step of a small
//! chain does not hide, and rows that neighbours compute as well make it rarer.

use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::chain::Transitions;
use super::region::{Kind, Region};
use crate::kernel::Precision;
use crate::lane::bandwidth::{COPY, copy, median};
use crate::lane::{Batch, Buffer, Lane, Launch, ReceiveBuffer, SendBuffer};
use crate::ranks::{Envelope, Ranks, Wait, post};
use crate::{Error, Result};

/// Most steps between two exchanges.
pub const MOST: usize = 64;

/// What an exchange through the host was measured to cost.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Swap {
    /// Seconds from the end of a step to the values of another lane, were there none.
    pub latency: f64,
    /// Bytes a second of the values.
    pub rate: f64,
    /// Seconds for which it keeps a lane from its rows, whatever else hides it, were there no values.
    pub busy: f64,
    /// Bytes a second of the values while it does.
    pub drain: f64,
}

impl Swap {
    /// Seconds of an exchange of so many bytes.
    pub(super) fn seconds(self, bytes: f64) -> f64 {
        self.latency + bytes / self.rate
    }

    /// Seconds by which an exchange of so many bytes makes `halo_depth` steps longer. Where one follows every step, the
    /// rows that no other lane waits for hide it, a share `interior` of the `compute` seconds of a step; where several
    /// steps pass, all rows of the last one do.
    pub(super) fn waits(self, bytes: f64, halo_depth: usize, interior: f64, compute: f64) -> f64 {
        let hidden = if halo_depth == 1 { interior * compute } else { compute };
        self.busy + bytes / self.drain + (self.seconds(bytes) - hidden).max(0.0)
    }
}

/// Rounds of a measurement.
const ROUNDS: usize = 12;

/// Seconds of a launch that is too small to fill a device, on its own between others: a row waits for its header, its
/// columns and what they point to, one after the other. About 20 µs for 10⁵ rows on an H200, by its own clock.
const SMALL_LAUNCH: f64 = 20e-6;

/// What a swap between these lanes costs: measured once, for later solves on the same lanes as well. Ranks measure
/// each time, since all have to do the same.
pub(super) fn swap(lanes: &[Lane], ranks: Ranks) -> Result<Swap> {
    static MEASURED: Mutex<Vec<(Vec<u32>, Swap)>> = Mutex::new(Vec::new());
    if ranks.is_distributed() {
        return measure(lanes, ranks);
    }
    let numbers: Vec<u32> = lanes.iter().map(Lane::number).collect();
    let known = || MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, swap)) = known().iter().find(|(measured, _)| *measured == numbers) {
        return Ok(*swap);
    }
    let swap = measure(lanes, ranks)?;
    known().push((numbers, swap));
    Ok(swap)
}

/// Measures a swap: every lane gives its values to the next, as in the long loop, and so does every rank.
fn measure(lanes: &[Lane], ranks: Ranks) -> Result<Swap> {
    // A tenth of what is free, where that is little.
    let free = lanes.iter().filter_map(Lane::free_bytes).min().unwrap_or(u64::MAX);
    let large = ranks.all_reduce_min((free / 80).clamp(1 << 9, 1 << 19)) as usize;
    let small = large / (1 << 9);
    let across = |elements: usize| lanes[0].unnoticed(|| around(&lanes[0], ranks, elements));
    let seconds = |elements: usize| -> Result<f64> {
        let boxes = lanes.iter().map(|lane| lane.unnoticed(|| Boxes::new(lane, elements)));
        let boxes = boxes.collect::<Result<Vec<_>>>()?;
        // To every lane from the one before it, and what it has read back.
        let ways = lanes.iter().map(|_| (sync_channel(1), sync_channel(1)));
        let (mut news, mut backs): (Vec<_>, Vec<_>) = ways.map(|((a, b), (c, d))| ((a, d), (c, b))).unzip();
        news.rotate_left(1);
        for (back, _) in &backs {
            back.send(vec![0.0; elements]).map_err(|_| Error::Interrupted)?;
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (lanes.iter().zip(news.drain(..)).zip(backs.drain(..)).enumerate())
                .map(|(number, ((lane, (send, empty)), (back, receive)))| {
                    let next = (number + 1) % lanes.len();
                    let (reader, own, theirs) = (&lanes[next], &boxes[number], &boxes[next]);
                    let straight = lane.can_copy_direct(reader);
                    let before = &lanes[(number + lanes.len() - 1) % lanes.len()];
                    let rounds = move || -> Result<f64> {
                        let sending = Batch { sends: vec![&own.out], ..Batch::default() };
                        let receiving = Batch { receives: vec![&own.back], ..Batch::default() };
                        let mut rounds = Vec::new();
                        for _ in 0..ROUNDS {
                            let at = Instant::now();
                            lane.submit(&sending, 0)?;
                            let mut values: Vec<f64> = empty.recv().map_err(|_| Error::Interrupted)?;
                            match straight {
                                true => lane.copy_direct(&own.out, reader, &theirs.back)?,
                                false => lane.read_sent(&own.out, &mut values)?,
                            }
                            send.send(values).map_err(|_| Error::Interrupted)?;
                            let values = receive.recv().map_err(|_| Error::Interrupted)?;
                            if !before.can_copy_direct(lane) {
                                lane.write_received(&own.back, &values)?;
                            }
                            lane.submit(&receiving, 0)?;
                            // The last ones are nobody's.
                            let _ = back.send(values);
                            rounds.push(at.elapsed().as_secs_f64());
                        }
                        lane.finish()?;
                        Ok(median(rounds))
                    };
                    scope.spawn(rounds)
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<f64>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            // All results, lest the error of a lane whose neighbour failed hides that of the neighbour.
            let results: Vec<Result<f64>> = threads.into_iter().map(join).collect();
            first_cause(results).map(|all| all.into_iter().fold(0.0, f64::max))
        })
    };
    let slowest = |elements: usize| -> Result<f64> {
        let within = if lanes.len() > 1 { seconds(elements)? } else { 0.0 };
        let between = if ranks.is_distributed() { across(elements)? } else { 0.0 };
        Ok(ranks.all_reduce_max(within.max(between)))
    };
    let (latency, with_values) = (slowest(small)?, slowest(large)?);
    let rate = ((large - small) * 8) as f64 / (with_values - latency).max(1e-6);
    let (mut busy, mut slower) = (0.0f64, 0.0f64);
    // Lanes on the host's own cores have no gaps, and software adapters would take seconds for it.
    for lane in lanes.iter().filter(|lane| !lane.device().on_host_cores()) {
        // Small ones are hidden in what the device does anyway.
        let [quarter, whole] =
            [large / 4, large].map(|len| lane.unnoticed(|| kept_busy(lane, len, with_values)));
        let (quarter, whole) = (quarter?, whole?);
        let more = (whole - quarter).max(0.0) / 3.0;
        (busy, slower) = (busy.max(quarter - more), slower.max(more));
    }
    let (mut busy, slower) = (ranks.all_reduce_max(busy), ranks.all_reduce_max(slower));
    if busy > 0.0 {
        busy += SMALL_LAUNCH;
    }
    Ok(Swap { latency, rate, busy, drain: (large / 4 * 8) as f64 / slower })
}

/// Where a lane's values leave, and others arrive.
struct Boxes {
    source: Buffer<f64>,
    out: SendBuffer,
    back: ReceiveBuffer,
}

impl Boxes {
    fn new(lane: &Lane, elements: usize) -> Result<Self> {
        let (source, target) = (
            lane.alloc_for_send::<f64>("a measurement", elements)?,
            lane.alloc::<f64>("a measurement", elements)?,
        );
        Ok(Self { out: lane.send_buffer(&source)?, back: lane.receive_buffer(&target, 0, elements)?, source })
    }
}

/// Seconds that exchanges of so many elements add to launches that hide swaps of `swap` seconds.
fn kept_busy(lane: &Lane, elements: usize, swap: f64) -> Result<f64> {
    let Boxes { source, out, back } = Boxes::new(lane, elements.next_multiple_of(2))?;
    let from = lane.alloc::<f64>("a measurement", source.len())?;
    let to = lane.alloc::<f64>("a measurement", source.len())?;
    let pairs = source.len() / if lane.device().f64 { 2 } else { 1 };
    let precision = if lane.device().f64 { Precision::F64 } else { Precision::F32 };
    let copied = |to: &Buffer<f64>| -> Result<Launch> {
        let args = copy::Args { b: from.arg().untyped(), a: to.arg().untyped() };
        lane.bind(&COPY, precision, pairs, copy::Params { step: 0, items: pairs as u32 }, args)
    };
    let (rows, pack) = (copied(&to)?, copied(&source)?);
    let mut values = vec![0.0f64; source.len()];
    // As to a neighbour of its own kind.
    let mut exchange_values = || match lane.can_copy_direct(lane) {
        true => lane.copy_direct(&out, lane, &back),
        false => {
            lane.read_sent(&out, &mut values)?;
            lane.write_received(&back, &values)
        }
    };
    lane.submit(&Batch { sends: vec![&out], ..Batch::default() }, 0)?;
    exchange_values()?;
    let mut seconds = |count: usize, exchange: bool| -> Result<f64> {
        let interior = Batch { launches: vec![(0, &rows); count], ..Batch::default() };
        // The boundary, and its values laid side by side.
        let boundary = Batch {
            receives: vec![&back],
            launches: vec![(0, &rows), (0, &pack)],
            sends: vec![&out],
            before_receives: true,
        };
        let at = Instant::now();
        for _ in 0..ROUNDS {
            if exchange {
                lane.submit(&boundary, 0)?;
            }
            lane.submit(&interior, 0)?;
            if exchange {
                exchange_values()?;
            }
        }
        lane.finish()?;
        Ok(at.elapsed().as_secs_f64() / ROUNDS as f64)
    };
    const SOME: usize = 64;
    seconds(SOME, false)?;
    let launch = seconds(SOME, false)? / SOME as f64;
    // Long enough to hide an exchange.
    let count = ((2.0 * swap / launch.max(1e-9)).ceil() as usize).clamp(1, 1024);
    seconds(count, true)?;
    let mut least = |exchange: bool| -> Result<f64> {
        (0..3).try_fold(f64::INFINITY, |least, _| Ok(least.min(seconds(count, exchange)?)))
    };
    Ok((least(true)? - least(false)?).max(0.0))
}

/// Seconds of a round in which every rank's lane gives values to the next rank's.
fn around(lane: &Lane, ranks: Ranks, elements: usize) -> Result<f64> {
    let buffer = lane.alloc::<f64>("a measurement", elements)?;
    let (out, back) = (lane.send_buffer(&buffer)?, lane.receive_buffer(&buffer, 0, elements)?);
    let sending = Batch { sends: vec![&out], ..Batch::default() };
    let receiving = Batch { receives: vec![&back], ..Batch::default() };
    let to = Envelope { rank: (ranks.rank() + 1) % ranks.size(), number: 0 };
    let from = Envelope { rank: (ranks.rank() + ranks.size() - 1) % ranks.size(), number: 0 };
    let never = std::sync::atomic::AtomicBool::new(false);
    let wait = Wait { stop: &never, alone: !lane.device().host };
    let (mut leaving, mut arriving) = (vec![0.0; elements], vec![0.0; elements]);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let at = Instant::now();
        post(ranks, &wait, |post| {
            post.expect(from, bytemuck::cast_slice_mut(&mut arriving));
            lane.submit(&sending, 0)?;
            lane.read_sent(&out, &mut leaving)?;
            post.send(to, bytemuck::cast_slice(&leaving));
            let values = post.arrived(0, &wait)?;
            lane.write_received(&back, bytemuck::cast_slice::<u32, f64>(values))?;
            lane.submit(&receiving, 0)
        })?;
        rounds.push(at.elapsed().as_secs_f64());
    }
    lane.finish()?;
    Ok(median(rounds))
}

/// The results of lanes that depend on one another. A lane whose neighbour failed says that it was interrupted; the
/// neighbour's own error says why.
pub(super) fn first_cause<R>(mut results: Vec<Result<R>>) -> Result<Vec<R>> {
    let first = results.iter().position(|r| matches!(r, Err(e) if !matches!(e, Error::Interrupted)));
    match first {
        Some(i) => Err(results.swap_remove(i).err().unwrap_or(Error::Interrupted)),
        None => results.into_iter().collect(),
    }
}

/// What is known of a lane's step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// Seconds of its own rows.
    pub(super) compute: f64,
    /// Seconds of rows that it computes for one more step without an exchange, in each step but the last.
    pub(super) ghosts: f64,
    /// Share of its rows that no other lane waits for.
    pub(super) interior: f64,
    /// Bytes that it takes over after one step.
    pub(super) bytes: f64,
    /// Bytes that it takes over beside them for one more step without an exchange: all rows as far as it reads.
    pub(super) deeper: f64,
}

impl From<[f64; 5]> for Work {
    fn from([compute, ghosts, interior, bytes, deeper]: [f64; 5]) -> Self {
        Self { compute, ghosts, interior, bytes, deeper }
    }
}

impl Work {
    /// As ranks tell it one another.
    pub(super) fn numbers(self) -> [f64; 5] {
        [self.compute, self.ghosts, self.interior, self.bytes, self.deeper]
    }

    pub(super) fn of(region: &Region, regions: &[Region], compute: f64, real: u64) -> Self {
        let hull = region.reach();
        let rows = region.rows.len().max(1) as f64;
        let pieces = region.pieces(regions, 1);
        let interior = pieces.iter().find(|(_, kind)| *kind == Kind::Interior).map_or(0, |(r, _)| r.len());
        Self {
            compute,
            ghosts: compute * hull as f64 / rows,
            interior: interior as f64 / rows,
            bytes: (region.len() - region.rows.len()) as f64 * real as f64,
            deeper: hull as f64 * real as f64,
        }
    }

    /// Seconds of a step with an exchange every `halo_depth` steps, and of them those that the exchange takes.
    pub(super) fn step(self, halo_depth: usize, swap: Swap) -> (f64, f64) {
        let k = halo_depth as f64;
        // Every step computes k − 1 layers of halo, and the last its boundary twice.
        let ghosts = k * (k - 1.0) * self.ghosts;
        let again = if halo_depth == 1 { 0.0 } else { (1.0 - self.interior) * self.compute };
        let bytes = self.bytes + (k - 1.0) * self.deeper;
        let waits = swap.waits(bytes, halo_depth, self.interior, self.compute);
        ((k * self.compute + ghosts + again + waits) / k, waits / k)
    }
}

/// The number of steps between two exchanges with the shortest predicted step; a larger one only where its step is a
/// tenth less, or a seventieth where it is known what an exchange keeps a lane from. The bits are the same for any.
pub(super) fn choose(work: &[Work], swap: Swap) -> usize {
    let slowest = |halo_depth: usize| work.iter().map(|w| w.step(halo_depth, swap).0).fold(0.0, f64::max);
    let enough = if swap.busy > 0.0 { 0.985 } else { 0.9 };
    let (mut best, mut chosen) = (slowest(1), 1);
    for halo_depth in [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, MOST] {
        let step = slowest(halo_depth);
        if step < enough * best {
            (best, chosen) = (step, halo_depth);
        }
    }
    chosen
}

/// Makes every region fit for `halo_depth` steps without an exchange, or leaves them as they are where that would outgrow
/// what a lane can bind; returns the number of steps.
pub(super) fn deepen(
    regions: &mut [Region],
    transitions: &dyn Transitions,
    largest: &[usize],
    halo_depth: usize,
) -> usize {
    if halo_depth <= 1 {
        return 1;
    }
    let mut deep = regions.to_vec();
    for region in &mut deep {
        region.deepen(transitions, halo_depth);
        if region.len() > largest[region.lane] {
            return 1;
        }
    }
    regions.clone_from_slice(&deep);
    halo_depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_chains_exchange_after_every_step_and_small_ones_rarely() {
        let swap = Swap { latency: 210e-6, rate: 10e9, busy: 0.0, drain: f64::INFINITY };
        let large = Work { compute: 430e-6, ghosts: 8e-6, interior: 0.98, bytes: 757e3, deeper: 1.41e6 };
        let small = Work { compute: 21e-6, ghosts: 0.5e-6, interior: 0.9, bytes: 20e3, deeper: 20e3 };

        assert_eq!(choose(&[large, large], swap), 1);
        let halo_depth = choose(&[small, small], swap);
        assert!((4..=32).contains(&halo_depth), "{halo_depth}");
        assert!(small.step(halo_depth, swap).0 < 0.5 * small.step(1, swap).0);
    }

    #[test]
    fn ghosts_as_large_as_a_lanes_share_are_not_worth_it() {
        let swap = Swap { latency: 50e-6, rate: 10e9, busy: 0.0, drain: f64::INFINITY };
        let dense = Work { compute: 100e-6, ghosts: 100e-6, interior: 0.0, bytes: 1e6, deeper: 1e6 };

        assert_eq!(choose(&[dense], swap), 1);
    }

    #[test]
    fn exchanges_that_keep_a_lane_busy_are_rarer_though_hidden() {
        // Two wgpu adapters and `wlan:204,6`: 496, 468 and 476 µs a step in HYB with 1, 2 and 3 of them between two
        // exchanges, 289, 271 and 299 µs in patterns.
        let swap = Swap { latency: 72e-6, rate: 11.5e9, busy: 60e-6, drain: 40e9 };
        let hyb = Work { compute: 402e-6, ghosts: 4e-6, interior: 0.99, bytes: 757e3, deeper: 1.41e6 };
        let patterns = Work { compute: 190e-6, ghosts: 2e-6, ..hyb };

        assert_eq!(choose(&[hyb, hyb], swap), 2);
        assert!(choose(&[patterns, patterns], swap) <= 2);
        for (halo_depth, measured) in [(1, 496e-6), (2, 468e-6), (3, 476e-6)] {
            let (step, _) = hyb.step(halo_depth, swap);
            assert!((step / measured - 1.0).abs() < 0.05, "{halo_depth}: {step}");
        }
    }
}
