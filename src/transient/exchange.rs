//! Steps on several lanes: each lane's thread runs the same loop, and neighbours send one another the values of
//! their halos through bounded channels.
//!
//! A lane is given the rows that others wait for in a batch of their own, and its other rows behind it. While it works
//! on those, its thread fetches the values of the first, hands them on, and lays what the neighbours hand over where
//! the lane's next batch finds it: the exchange costs nothing as long as it takes no longer than the other rows.
//! Staging and vectors are made once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use super::halo_depth::first_cause;
use super::partitioning::Path;
use super::parts::{Link, Parts, ReceivedHalo, SentHalo};
use super::region::Kind;
use super::timeline::{Clock, Phase};
use crate::kernel::Real;
use crate::lane::{Batch, Lane, Launch, Program, ReceiveBuffer, SendBuffer};
use crate::ranks::{Ranks, Wait, post};
use crate::{Error, Result};

/// How often the thread that waits for the lanes looks at the watch, unless one of them is done.
const LOOK: Duration = Duration::from_millis(20);

/// A part of a step; they follow each other in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Rows that others wait for.
    Boundary,
    /// All other rows; all rows, where several steps pass between two exchanges.
    Interior,
    /// The own rows alone: what the last of several steps is taken for.
    Own,
    /// What needs all rows.
    Rest,
}

impl Stage {
    /// The rows that are computed in it.
    pub(super) fn kind(self) -> Option<Kind> {
        match self {
            Self::Boundary => Some(Kind::Boundary),
            Self::Interior | Self::Own => Some(Kind::Interior),
            Self::Rest => None,
        }
    }
}

/// The launches of a stage of a lane's step from x[source] to the other iterate, but for halos.
pub(super) type Launches<'a> = &'a dyn Fn(usize, usize, Stage) -> Result<Vec<Launch>>;

/// A lane's step from x[source].
#[derive(Debug)]
struct Step {
    boundary: Vec<Launch>,
    /// The boundary's values side by side.
    packs: Vec<Launch>,
    /// The interior, the rest, and halos between parts of the lane.
    interior: Vec<Launch>,
    /// The same in the last step before an exchange, where it differs.
    last: Option<Vec<Launch>>,
}

impl<T: Real> Parts<T> {
    /// Runs steps on all lanes, the first from x[now], and leaves every halo up to date.
    pub(super) fn run(
        &self,
        lanes: &[Lane],
        steps: Range<u64>,
        now: usize,
        launches: Launches<'_>,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        #[cfg(feature = "cuda")]
        if self.matrix.exchange == Path::Peer
            && let Some(streams) = super::push::streams(lanes)
        {
            return super::push::run(self, lanes, &streams, steps, now, launches, watch);
        }
        // work[lane][source]
        let mut work = Vec::with_capacity(lanes.len());
        for lane in 0..lanes.len() {
            let step = |source: usize| -> Result<Step> {
                let inner = |stage: Stage| -> Result<Vec<Launch>> {
                    let mut inner = launches(lane, source, stage)?;
                    inner.extend(launches(lane, source, Stage::Rest)?);
                    inner.extend(self.gathers(lanes, lane, 1 - source)?);
                    Ok(inner)
                };
                Ok(Step {
                    boundary: launches(lane, source, Stage::Boundary)?,
                    packs: self.packs(lanes, lane, 1 - source, true)?,
                    interior: inner(Stage::Interior)?,
                    last: (self.matrix.halo_depth > 1).then(|| inner(Stage::Own)).transpose()?,
                })
            };
            work.push([step(0)?, step(1)?]);
        }
        if let ([lane], [work]) = (lanes, &work[..])
            && self.closed()
        {
            let all = |k: u64| {
                let step = &work[(now + (steps.start + k) as usize) % 2];
                step.boundary.iter().chain(&step.interior).collect()
            };
            // Step k is at place k mod 2.
            let program = Program { cycle: vec![all(0), all(1)] };
            return lane.run(&program, steps.start, steps.end - steps.start, watch);
        }
        debug_assert!(!matches!(self.matrix.exchange, Path::None), "several lanes have a way to each other");
        together(lanes, self, &work, steps, now, watch)
    }
}

/// A link and its owner's ends of two channels: full vectors go out, empty ones come back.
struct Outgoing<'a, T> {
    send_buffer: &'a SendBuffer,
    /// The reader and its boxes, where the owner fills them itself; the vectors are only a word then.
    straight: Option<(&'a Lane, &'a [ReceiveBuffer; 2])>,
    send: SyncSender<Vec<T>>,
    back: Receiver<Vec<T>>,
}

/// The same at the reader's.
struct Incoming<'a, T> {
    receive_buffers: &'a [ReceiveBuffer; 2],
    straight: bool,
    receive: Receiver<Vec<T>>,
    back: SyncSender<Vec<T>>,
}

/// What a lane's thread has.
struct Worker<'a, T> {
    lane: &'a Lane,
    work: &'a [Step; 2],
    outgoing: Vec<Outgoing<'a, T>>,
    incoming: Vec<Incoming<'a, T>>,
    /// To and from other ranks.
    sends: Vec<&'a SentHalo<T>>,
    receives: Vec<&'a ReceivedHalo>,
    ranks: Ranks,
    halo_depth: u64,
}

fn host<T>(link: &Link<T>) -> &(SendBuffer, [ReceiveBuffer; 2]) {
    let Some(host) = &link.host else { unreachable!("links through the host have their boxes") };
    host
}

/// Runs steps on several lanes. `work[lane][source]` is a lane's step from x[source].
fn together<T: Real>(
    lanes: &[Lane],
    parts: &Parts<T>,
    work: &[[Step; 2]],
    steps: Range<u64>,
    now: usize,
    watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
) -> Result<()> {
    let mut workers: Vec<Worker<'_, T>> = Vec::with_capacity(lanes.len());
    for (number, (lane, work)) in lanes.iter().zip(work).enumerate() {
        let sends = parts.sends.iter().filter(|d| parts.parts[d.from].lane == number).collect();
        let receives = parts.receives.iter().filter(|a| parts.parts[a.to].lane == number).collect();
        let (ranks, halo_depth) = (parts.ranks, parts.matrix.halo_depth as u64);
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        workers.push(Worker { lane, work, outgoing, incoming, sends, receives, ranks, halo_depth });
    }
    for link in &parts.links {
        let (send_buffer, receive_buffers) = host(link);
        let [from, to] = [link.from, link.to].map(|part| parts.parts[part].lane);
        let straight = lanes[from].can_copy_direct(&lanes[to]);
        // Two vectors, one on its way and one being read: a lane may be an exchange ahead of its neighbour. Where the
        // owner fills the reader's box, one word, until that box is given to be emptied.
        let (count, len) = if straight { (1, 0) } else { (2, link.values.len()) };
        let ((send, receive), (back, empty)) = (sync_channel(count), sync_channel(count));
        for _ in 0..count {
            back.send(vec![T::ZERO; len]).map_err(|_| Error::Interrupted)?;
        }
        let reader = straight.then_some((&lanes[to], receive_buffers));
        workers[from].outgoing.push(Outgoing { send_buffer, straight: reader, send, back: empty });
        workers[to].incoming.push(Incoming { receive_buffers, straight, receive, back });
    }
    let stop = AtomicBool::new(false);
    let running = AtomicUsize::new(lanes.len());
    let done: Vec<AtomicU64> = lanes.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (worker, done)) in workers.into_iter().zip(&done).enumerate() {
            let (steps, stop, running) = (steps.clone(), &stop, &running);
            let mut clock = Clock::new(parts.timeline.as_ref(), number);
            let waiting = std::thread::current();
            threads.push(scope.spawn(move || {
                let result = worker.run(steps, now, stop, done, &mut clock);
                if let Err(e) = &result {
                    // Other ranks wait for this one.
                    if worker.ranks.is_distributed() && !matches!(e, Error::Interrupted) {
                        worker.ranks.abort_all(e);
                    }
                    stop.store(true, Ordering::Release);
                }
                running.fetch_sub(1, Ordering::Release);
                waiting.unpark();
                result
            }));
        }
        let mut watched = Ok(());
        // A thread that panicked is finished without having said so.
        while running.load(Ordering::Acquire) > 0 && !threads.iter().all(|t| t.is_finished()) {
            std::thread::park_timeout(LOOK);
            let least = done.iter().map(|d| d.load(Ordering::Relaxed)).min().unwrap_or(0);
            if watched.is_ok() {
                watched = watch(least);
                if let Err(e) = &watched {
                    if parts.ranks.is_distributed() {
                        parts.ranks.abort_all(e);
                    }
                    stop.store(true, Ordering::Release);
                }
            }
        }
        let mut results: Vec<Result<()>> = Vec::new();
        for thread in threads {
            results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        watched?;
        first_cause(results).map(drop)
    })
}

/// Longest that a thread looks for a neighbour's values before it goes to sleep.
const SPIN: Duration = Duration::from_millis(3);

/// Receives, looking again and again for a while: a thread that sleeps is woken up late.
/// Not where the thread would take the time of those that it waits for.
fn receive<V>(from: &Receiver<V>, lane: &Lane) -> Result<V> {
    if lane.device().on_host_cores() {
        return from.recv().map_err(|_| Error::Interrupted);
    }
    let since = std::time::Instant::now();
    while since.elapsed() < SPIN {
        match from.try_recv() {
            Ok(values) => return Ok(values),
            Err(TryRecvError::Disconnected) => return Err(Error::Interrupted),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
        }
    }
    from.recv().map_err(|_| Error::Interrupted)
}

impl<T: Real> Worker<'_, T> {
    fn run(
        &self,
        steps: Range<u64>,
        now: usize,
        stop: &AtomicBool,
        done: &AtomicU64,
        clock: &mut Clock<'_>,
    ) -> Result<()> {
        let result = self.exchanges(steps, now, stop, done, clock);
        // Whatever happened: nothing that the lane still works on may outlive its staging.
        let finished = self.lane.finish();
        result.and(finished)
    }

    fn exchanges(
        &self,
        steps: Range<u64>,
        now: usize,
        stop: &AtomicBool,
        done: &AtomicU64,
        clock: &mut Clock<'_>,
    ) -> Result<()> {
        let lane = self.lane;
        // The CPU works in this thread: what it computes before it hands its values on, the others wait for.
        let ahead = !lane.device().host;
        let wait = Wait { stop, alone: !lane.device().on_host_cores() };
        // Through a window passes the news alone that its slot is full.
        let news = size_of::<u32>().div_ceil(size_of::<T>());
        let values = |len: usize, shared: bool| vec![T::ZERO; if shared { news } else { len }];
        let mut leaving: Vec<Vec<T>> =
            self.sends.iter().map(|d| values(d.len(), d.shared.is_some())).collect();
        let mut coming: Vec<Vec<T>> =
            self.receives.iter().map(|a| values(a.len, a.shared.is_some())).collect();
        let (mut k, mut source) = (steps.start, now);
        let mut arrived = None;
        // Words that go back once the boxes are given to be emptied.
        let mut words = Vec::new();
        while k < steps.end {
            if stop.load(Ordering::Acquire) {
                return Err(Error::Interrupted);
            }
            let count = self.halo_depth.min(steps.end - k);
            let last = (source + count as usize - 1) % 2;
            let (first, second) = (self.first(arrived, source, count), self.second(last));
            post(self.ranks, &wait, |post| {
                for (receive, values) in self.receives.iter().zip(&mut coming) {
                    post.expect(receive.from, bytemuck::cast_slice_mut(values));
                }
                lane.submit(&first, k)?;
                for (link, word) in words.drain(..) {
                    let link: &Incoming<'_, T> = link;
                    // A neighbour that has sent its last needs it no more.
                    let _ = link.back.send(word);
                }
                clock.ended(k, Phase::Boundary);
                if ahead {
                    lane.submit(&second, k + count - 1)?;
                    clock.ended(k, Phase::Interior);
                }
                for link in &self.outgoing {
                    let mut values = link.back.recv().map_err(|_| Error::Interrupted)?;
                    match link.straight {
                        Some((reader, receive_buffers)) => {
                            lane.copy_direct(link.send_buffer, reader, &receive_buffers[1 - last])?;
                        }
                        None => lane.read_sent(link.send_buffer, &mut values)?,
                    }
                    clock.ended(k, Phase::Fetch);
                    // A closed channel is a neighbour that has stopped.
                    link.send.send(values).map_err(|_| Error::Interrupted)?;
                    clock.ended(k, Phase::Send);
                }
                for (send, values) in self.sends.iter().zip(&mut leaving) {
                    match &send.shared {
                        Some(shared) => {
                            lane.send_to_window(&send.send_buffer, &shared.window, shared.next())?
                        }
                        None => lane.read_sent(&send.send_buffer, values)?,
                    }
                    clock.ended(k, Phase::Fetch);
                    post.send(send.to, bytemuck::cast_slice(values));
                    clock.ended(k, Phase::Send);
                }
                if !ahead {
                    lane.submit(&second, k + count - 1)?;
                    clock.ended(k, Phase::Interior);
                }
                for link in &self.incoming {
                    let values = receive(&link.receive, lane)?;
                    clock.ended(k, Phase::Wait);
                    if link.straight {
                        words.push((link, values));
                        continue;
                    }
                    lane.write_received(&link.receive_buffers[1 - last], &values)?;
                    // A neighbour that has sent its last needs the vector no more.
                    let _ = link.back.send(values);
                    clock.ended(k, Phase::Fill);
                }
                for (number, receive) in self.receives.iter().enumerate() {
                    let values = post.arrived(number, &wait)?;
                    clock.ended(k, Phase::Wait);
                    let receive_buffer = &receive.receive_buffers[1 - last];
                    match &receive.shared {
                        Some(shared) => {
                            lane.receive_from_window(receive_buffer, &shared.window, shared.next())?
                        }
                        None => {
                            lane.write_received(receive_buffer, bytemuck::cast_slice::<u32, T>(values))?
                        }
                    }
                    clock.ended(k, Phase::Fill);
                }
                Ok(())
            })?;
            arrived = Some(1 - last);
            source = 1 - last;
            k += count;
            done.store(k - steps.start, Ordering::Relaxed);
        }
        match arrived {
            Some(which) => lane.submit(&Batch { receives: self.receives(which), ..Batch::default() }, k),
            None => Ok(()),
        }
    }

    fn receives(&self, which: usize) -> Vec<&ReceiveBuffer> {
        let here = self.incoming.iter().map(|link| &link.receive_buffers[which]);
        here.chain(self.receives.iter().map(|receive| &receive.receive_buffers[which])).collect()
    }

    /// What arrived in iterate `arrived`, all steps but the last from x[source] on, the last step's boundary, and its
    /// send. Where there are several steps, the interior is all rows.
    fn first(&self, arrived: Option<usize>, source: usize, count: u64) -> Batch<'_> {
        let mut launches = Vec::new();
        for j in 0..count {
            let step = &self.work[(source + j as usize) % 2];
            let all: [&[Launch]; 2] = match j + 1 == count {
                true => [&step.boundary, &step.packs],
                false => [&step.interior, &[]],
            };
            launches.extend(all.into_iter().flatten().map(|launch| (j, launch)));
        }
        Batch {
            receives: arrived.map_or_else(Vec::new, |which| self.receives(which)),
            launches,
            before_receives: true,
            sends: (self.outgoing.iter().map(|link| link.send_buffer))
                .chain(self.sends.iter().map(|send| &send.send_buffer))
                .collect(),
        }
    }

    /// The rest of a step from x[source].
    fn second(&self, source: usize) -> Batch<'_> {
        let step = &self.work[source];
        let launches =
            step.last.as_ref().unwrap_or(&step.interior).iter().map(|launch| (0, launch)).collect();
        Batch { launches, ..Batch::default() }
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use super::*;
    use crate::kernel::Precision;
    use crate::lane::{DeviceSpec, OpenOptions, open};
    use crate::transient::{Initial, Observer, Options, Problem, solve};

    /// Loses a lane when the first steps are done, and lets nothing be written.
    struct Lose<'a>(&'a Lane);

    impl Observer for Lose<'_> {
        fn progress(&mut self, done: u64, _: u64) -> Result<()> {
            if done > 0 {
                self.0.lose();
            }
            Ok(())
        }

        fn result(&mut self, _: usize, _: &[f64]) -> Result<()> {
            panic!("a result after the loss of a device");
        }
    }

    #[test]
    fn a_device_lost_in_the_middle_is_named_and_nothing_is_delivered() {
        for (count, lost) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
            let specs = vec![DeviceSpec::Wgpu(0); count];
            let lanes = match open(&specs, &OpenOptions::default()) {
                Ok((lanes, _)) => lanes,
                Err(e) => return crate::devices::skip("wgpu:0", format!("wgpu:0 does not open: {e}")),
            };
            let chain = crate::models::parse("wlan:3,2").unwrap().unwrap();
            let problem = Problem {
                transitions: &*chain.transitions,
                initial: &Initial::State(0),
                times: &[1e3],
                rewards: &[],
                vectors: true,
            };

            let error = solve(&lanes, Precision::F64, &problem, &Options::default(), &mut Lose(&lanes[lost]))
                .unwrap_err();

            assert!(
                matches!(&error, Error::DeviceLost { device, .. } if device.contains("wgpu:0")),
                "lane {lost} of {count}: {error}"
            );
        }
    }
}
