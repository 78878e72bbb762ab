//! Steps on several lanes: each lane's thread runs the same loop, and neighbours send one another the values of
//! their halos through bounded channels.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::parts::Parts;
use crate::kernel::Real;
use crate::lane::{Lane, Launch, Program};
use crate::{Error, Result};

/// How often the thread that waits for the lanes looks at the watch.
const LOOK: Duration = Duration::from_millis(20);

/// What a lane does in a step: its launches, and which iterate they make.
type Step = (Vec<Launch>, usize);

/// The launches of a lane's step from x[source] to the other iterate, but for halos.
pub(super) type Launches<'a> = &'a dyn Fn(usize, usize) -> Result<Vec<Launch>>;

impl<T: Real> Parts<T> {
    /// Runs steps on all lanes, the first from x[now], and keeps every halo up to date.
    pub(super) fn run(
        &self,
        lanes: &[Lane],
        steps: Range<u64>,
        now: usize,
        launches: Launches<'_>,
        watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        let mut work = Vec::with_capacity(lanes.len());
        for lane in 0..lanes.len() {
            let mut both = Vec::new();
            for parity in 0..2 {
                // Step k reads x[source]; at the first, that is x[now].
                let source = (now + (parity + steps.start) as usize) % 2;
                let mut all = launches(lane, source)?;
                all.extend(self.gathers(lanes, lane, 1 - source)?);
                all.extend(self.packs(lanes, lane, 1 - source)?);
                both.push((all, 1 - source));
            }
            work.push(both);
        }
        if let ([lane], [both]) = (lanes, &work[..]) {
            let program = Program { cycle: both.iter().map(|(all, _)| all.iter().collect()).collect() };
            return lane.run(&program, steps.start, steps.end - steps.start, watch);
        }
        together(lanes, self, &work, steps, watch)
    }
}

/// Runs steps on several lanes. `work[lane][k mod 2]` is a lane's step k; its last launches gather the values that
/// other lanes' parts need into the links' `values`.
fn together<T: Real>(
    lanes: &[Lane],
    parts: &Parts<T>,
    work: &[Vec<Step>],
    steps: Range<u64>,
    watch: &mut (dyn FnMut(u64) -> Result<()> + Send),
) -> Result<()> {
    let mut senders: Vec<Vec<Outgoing<T>>> = (0..lanes.len()).map(|_| Vec::new()).collect();
    let mut receivers: Vec<Vec<Incoming<T>>> = (0..lanes.len()).map(|_| Vec::new()).collect();
    for (i, link) in parts.links.iter().enumerate() {
        // One vector in flight and one being read: a lane may be a step ahead of its neighbour.
        let (send, receive) = sync_channel(1);
        senders[parts.parts[link.from].lane].push((i, send));
        receivers[parts.parts[link.to].lane].push((i, receive));
    }
    let stop = AtomicBool::new(false);
    let done: Vec<AtomicU64> = lanes.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let ends = senders.into_iter().zip(receivers);
        for (((lane, work), (senders, receivers)), done) in lanes.iter().zip(work).zip(ends).zip(&done) {
            let (steps, stop) = (steps.clone(), &stop);
            threads.push(scope.spawn(move || {
                let result = work_lane(lane, parts, work, senders, receivers, steps, stop, done);
                if result.is_err() {
                    stop.store(true, Ordering::Release);
                }
                result
            }));
        }
        let mut watched = Ok(());
        while !threads.iter().all(|t| t.is_finished()) {
            std::thread::sleep(LOOK.min(Duration::from_micros(200)));
            let least = done.iter().map(|d| d.load(Ordering::Relaxed)).min().unwrap_or(0);
            if watched.is_ok() {
                watched = watch(least);
                if watched.is_err() {
                    stop.store(true, Ordering::Release);
                }
            }
        }
        let mut results: Vec<Result<()>> = Vec::new();
        for thread in threads {
            results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        watched?;
        // A lane whose neighbour failed says that it was interrupted; the neighbour's own error says why.
        let first = results.iter().position(|r| matches!(r, Err(e) if !matches!(e, Error::Interrupted)));
        match first {
            Some(i) => results.swap_remove(i),
            None => results.into_iter().collect(),
        }
    })
}

/// A link's number and this lane's end of its channel.
type Outgoing<T> = (usize, SyncSender<Vec<T>>);
/// The same at the other end.
type Incoming<T> = (usize, Receiver<Vec<T>>);

#[expect(clippy::too_many_arguments, reason = "a lane's ends of everything that lanes share")]
fn work_lane<T: Real>(
    lane: &Lane,
    parts: &Parts<T>,
    work: &[Step],
    senders: Vec<Outgoing<T>>,
    receivers: Vec<Incoming<T>>,
    steps: Range<u64>,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> Result<()> {
    for k in steps.clone() {
        if stop.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        let (launches, made) = &work[(k % 2) as usize];
        lane.launch(&launches.iter().collect::<Vec<_>>(), k)?;
        for (i, send) in &senders {
            let link = &parts.links[*i];
            let mut values = vec![T::ZERO; link.values.len()];
            lane.download(&link.values, 0, &mut values)?;
            // A closed channel is a neighbour that has stopped.
            send.send(values).map_err(|_| Error::Interrupted)?;
        }
        for (i, receive) in &receivers {
            let link = &parts.links[*i];
            let values = receive.recv().map_err(|_| Error::Interrupted)?;
            lane.upload(&values, &parts.parts[link.to].x[*made], link.first)?;
        }
        done.store(k + 1 - steps.start, Ordering::Relaxed);
    }
    Ok(())
}
