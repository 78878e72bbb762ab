//! The exchange of halos through the host: a thread for each lane, and the ends that transfers have there.
//!
//! A lane is given the rows that others wait for in a batch of their own, and its other rows behind it. While it works
//! on those, its thread reads the values of the first, sends them on, and lays what the neighbours send where the lane's
//! next batch finds it: the exchange costs nothing as long as it takes no longer than the other rows. Buffers and vectors
//! are made once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use super::timeline::{Clock, Phase, Timeline};
use super::transport::{SharedWindow, Transport};
use crate::kernel::Number;
use crate::lane::{Batch, Lane, ReceiveBuffer, SendBuffer};
use crate::ranks::{Envelope, Messages, Ranks, Wait, with_messages};
use crate::util::backoff::Spin;
use crate::{Error, Result};

/// The interval at which the thread that waits for the lanes looks at the watch, unless one of them is done.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The end of a transfer at its owner's lane.
enum Sender<'a, T> {
    /// To the reader's thread: full vectors go out, empty ones come back. Where this thread fills the reader's buffers
    /// itself, a vector is only a word: that the buffer is full, and that it is given to be emptied.
    Lane {
        buffer: &'a SendBuffer,
        direct: Option<(&'a Lane, &'a [ReceiveBuffer; 2])>,
        full: SyncSender<Vec<T>>,
        empty: Receiver<Vec<T>>,
    },
    Rank {
        buffer: &'a SendBuffer,
        to: Envelope,
        window: Option<&'a SharedWindow>,
        values: Vec<T>,
    },
}

impl<'a, T: Number> Sender<'a, T> {
    fn buffer(&self) -> &'a SendBuffer {
        match self {
            Self::Lane { buffer, .. } | Self::Rank { buffer, .. } => buffer,
        }
    }

    /// Reads the values of the batch before, and sends them to iterate `which`.
    fn send<'v>(
        &'v mut self,
        lane: &Lane,
        which: usize,
        messages: &mut Messages<'_, 'v>,
        mut ended: impl FnMut(Phase),
    ) -> Result<()> {
        match self {
            Self::Lane { buffer, direct, full, empty } => {
                let mut values = empty.recv().map_err(|_| Error::Interrupted)?;
                match direct {
                    Some((reader, buffers)) => lane.copy_direct(buffer, reader, &buffers[which])?,
                    None => lane.read_sent(buffer, &mut values)?,
                }
                ended(Phase::Fetch);
                // A closed channel is a neighbour that has stopped.
                full.send(values).map_err(|_| Error::Interrupted)?;
            }
            Self::Rank { buffer, to, window, values } => {
                match window {
                    Some(shared) => lane.send_to_window(buffer, &shared.window, shared.next())?,
                    None => lane.read_sent(buffer, values)?,
                }
                ended(Phase::Fetch);
                messages.send(*to, bytemuck::cast_slice(values));
            }
        }
        ended(Phase::Send);
        Ok(())
    }
}

/// The end of a transfer at its reader's lane.
enum Reader<'a, T> {
    Lane {
        buffers: &'a [ReceiveBuffer; 2],
        direct: bool,
        full: Receiver<Vec<T>>,
        empty: SyncSender<Vec<T>>,
        /// The vectors that go back once the buffer is given to be emptied.
        word: Option<Vec<T>>,
    },
    Rank {
        buffers: &'a [ReceiveBuffer; 2],
        from: Envelope,
        window: Option<&'a SharedWindow>,
    },
}

impl<'a, T: Number> Reader<'a, T> {
    fn buffer(&self, which: usize) -> &'a ReceiveBuffer {
        match self {
            Self::Lane { buffers, .. } | Self::Rank { buffers, .. } => &buffers[which],
        }
    }

    /// Tells an owner that the buffer that it filled is given to be emptied.
    fn give_back(&mut self) {
        if let Self::Lane { empty, word, .. } = self
            && let Some(word) = word.take()
        {
            // A neighbour that has sent its last needs it no more.
            let _ = empty.send(word);
        }
    }

    /// Waits for the values of iterate `which`, and lays them where the next batch finds them.
    fn receive(
        &mut self,
        lane: &Lane,
        which: usize,
        messages: &mut Messages<'_, '_>,
        mut ended: impl FnMut(Phase),
    ) -> Result<()> {
        match self {
            Self::Lane { buffers, direct, full, empty, word } => {
                let values = wait_for(full, lane)?;
                ended(Phase::Wait);
                if *direct {
                    *word = Some(values);
                    return Ok(());
                }
                lane.write_received(&buffers[which], &values)?;
                // A neighbour that has sent its last needs the vector no more.
                let _ = empty.send(values);
            }
            Self::Rank { buffers, window, .. } => {
                let (values, buffer) = (messages.wait_received()?, &buffers[which]);
                ended(Phase::Wait);
                match window {
                    Some(shared) => lane.receive_from_window(buffer, &shared.window, shared.next())?,
                    None => lane.write_received(buffer, bytemuck::cast_slice::<u32, T>(values))?,
                }
            }
        }
        ended(Phase::Fill);
        Ok(())
    }
}

/// Receives, awake for a while where that takes no time of those that it waits for.
fn wait_for<V>(from: &Receiver<V>, lane: &Lane) -> Result<V> {
    let poll = || match from.try_recv() {
        Ok(values) => Ok(Some(values)),
        Err(TryRecvError::Disconnected) => Err(Error::Interrupted),
        Err(TryRecvError::Empty) => Ok(None),
    };
    let longest = if lane.device().on_host_cores() { Duration::ZERO } else { Spin::VALUES };
    match (Spin { longest, alone: true }).until(poll)? {
        Some(values) => Ok(values),
        None => from.recv().map_err(|_| Error::Interrupted),
    }
}

/// A lane's thread: the lane, and its ends of the transfers through the host.
pub(super) struct Worker<'a, T> {
    pub(crate) lane: &'a Lane,
    pub(crate) number: usize,
    ranks: Ranks,
    /// Set when one of the threads has failed.
    stop: Arc<AtomicBool>,
    clock: Clock<'a>,
    senders: Vec<Sender<'a, T>>,
    readers: Vec<Reader<'a, T>>,
    /// Where messages from other ranks arrive, in the order of their readers.
    arriving: Vec<Vec<T>>,
}

/// A worker for each lane, with all ends that these transports have there.
pub(super) fn workers<'a, T: Number>(
    lanes: &'a [Lane],
    transports: impl IntoIterator<Item = &'a Transport>,
    ranks: Ranks,
    timeline: Option<&'a Timeline>,
) -> Vec<Worker<'a, T>> {
    let stop = Arc::new(AtomicBool::new(false));
    let worker = |(number, lane)| Worker {
        lane,
        number,
        ranks,
        stop: stop.clone(),
        clock: Clock::new(timeline, number),
        senders: Vec::new(),
        readers: Vec::new(),
        arriving: Vec::new(),
    };
    let mut workers: Vec<Worker<'a, T>> = lanes.iter().enumerate().map(worker).collect();
    // Of a window passes the news alone that its slot is full.
    let message =
        |len: usize, window: &Option<SharedWindow>| vec![T::ZERO; if window.is_some() { 1 } else { len }];
    for transport in transports {
        match transport {
            Transport::SameLane | Transport::Peer => {}
            Transport::Host { from, to, len, send, receive } => {
                let direct = lanes[*from].can_copy_direct(&lanes[*to]);
                // Two vectors, one on its way and one being read: a lane may be an exchange ahead of its neighbour.
                let (count, len) = if direct { (1, 0) } else { (2, *len) };
                let ((full, values), (back, empty)) = (sync_channel(count), sync_channel(count));
                for _ in 0..count {
                    back.try_send(vec![T::ZERO; len]).expect("a channel has room for all its vectors");
                }
                workers[*from].senders.push(Sender::Lane {
                    buffer: send,
                    direct: direct.then_some((&lanes[*to], receive)),
                    full,
                    empty,
                });
                workers[*to].readers.push(Reader::Lane {
                    buffers: receive,
                    direct,
                    full: values,
                    empty: back,
                    word: None,
                });
            }
            Transport::ToRank { from, len, send, to, window } => workers[*from].senders.push(Sender::Rank {
                buffer: send,
                to: *to,
                values: message(*len, window),
                window: window.as_ref(),
            }),
            Transport::FromRank { to, len, receive, from, window } => {
                let worker = &mut workers[*to];
                worker.arriving.push(message(*len, window));
                worker.readers.push(Reader::Rank { buffers: receive, from: *from, window: window.as_ref() });
            }
        }
    }
    workers
}

/// Does work with every worker in a thread of its own, which waits for its lane at the end; `watch` is called every
/// 20 ms, and its error stops all.
///
/// # Errors
/// That of a lane which made its neighbours fail, rather than theirs.
pub(super) fn on_lanes<'a, T: Number, R: Send>(
    workers: Vec<Worker<'a, T>>,
    watch: &mut dyn FnMut() -> Result<()>,
    work: &(dyn Fn(&mut Worker<'a, T>) -> Result<R> + Sync),
) -> Result<Vec<R>> {
    let (ranks, stop) = (workers[0].ranks, workers[0].stop.clone());
    let fail = |error: &Error| {
        // Other ranks wait for this one.
        if ranks.is_distributed() {
            ranks.abort_all(error);
        }
    };
    let running = &AtomicUsize::new(workers.len());
    let waiting = &std::thread::current();
    std::thread::scope(|scope| {
        let thread = |mut worker: Worker<'a, T>| {
            let work = &work;
            scope.spawn(move || {
                let result = work(&mut worker);
                // Whatever happened: nothing that the lane still works on may outlive its staging.
                let finished = worker.lane.finish();
                let result = result.and_then(|result| finished.map(|()| result));
                if let Err(e) = &result {
                    if !matches!(e, Error::Interrupted) {
                        fail(e);
                    }
                    worker.stop.store(true, Ordering::Release);
                }
                running.fetch_sub(1, Ordering::Release);
                waiting.unpark();
                result
            })
        };
        let threads: Vec<_> = workers.into_iter().map(thread).collect();
        let mut watched = Ok(());
        // A thread that panicked is finished without having said so.
        while running.load(Ordering::Acquire) > 0 && !threads.iter().all(|t| t.is_finished()) {
            std::thread::park_timeout(POLL_INTERVAL);
            if watched.is_ok() {
                watched = watch();
                if let Err(e) = &watched {
                    fail(e);
                    stop.store(true, Ordering::Release);
                }
            }
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<R>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let results: Vec<Result<R>> = threads.into_iter().map(join).collect();
        watched?;
        first_cause(results)
    })
}

/// The results of lanes that depend on one another. A lane whose neighbour failed says that it was interrupted; the
/// neighbour's own error says why.
fn first_cause<R>(mut results: Vec<Result<R>>) -> Result<Vec<R>> {
    let first = results.iter().position(|r| matches!(r, Err(e) if !matches!(e, Error::Interrupted)));
    match first {
        Some(i) => Err(results.swap_remove(i).err().unwrap_or(Error::Interrupted)),
        None => results.into_iter().collect(),
    }
}

impl<'a, T: Number> Worker<'a, T> {
    /// The buffers that a batch fills for the other lanes.
    pub(super) fn send_buffers(&self) -> Vec<&'a SendBuffer> {
        self.senders.iter().map(Sender::buffer).collect()
    }

    /// The buffers from which a batch fills the halos of iterate `which`.
    pub(super) fn receive_buffers(&self, which: usize) -> Vec<&'a ReceiveBuffer> {
        self.readers.iter().map(|reader| reader.buffer(which)).collect()
    }

    /// One exchange of the halos of iterate `which`. Gives the lane the batch `first`, which fills the send buffers, and
    /// behind it the batch `second`, each with the number of its first step; the receive buffers are then full, for the
    /// next batch.
    pub(crate) fn exchange(
        &mut self,
        which: usize,
        (first, step): (&Batch<'_>, u64),
        second: Option<(&Batch<'_>, u64)>,
    ) -> Result<()> {
        let Self { lane, ranks, stop, clock, senders, readers, arriving, .. } = self;
        if stop.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        // The CPU works in this thread: what it computes before it hands its values on, the others wait for.
        let ahead = !lane.device().host;
        let mut ended = |phase| clock.ended(step, phase);
        with_messages(*ranks, Wait { stop, spin: !lane.device().on_host_cores() }, |messages| {
            let envelopes = readers.iter().filter_map(|reader| match reader {
                Reader::Rank { from, .. } => Some(*from),
                Reader::Lane { .. } => None,
            });
            for (from, values) in envelopes.zip(arriving) {
                messages.receive(from, bytemuck::cast_slice_mut(values));
            }
            lane.submit(first, step)?;
            readers.iter_mut().for_each(Reader::give_back);
            ended(Phase::Boundary);
            if let Some((second, step)) = second.filter(|_| ahead) {
                lane.submit(second, step)?;
                ended(Phase::Interior);
            }
            for sender in senders {
                sender.send(lane, which, messages, &mut ended)?;
            }
            if let Some((second, step)) = second.filter(|_| !ahead) {
                lane.submit(second, step)?;
                ended(Phase::Interior);
            }
            for reader in readers {
                reader.receive(lane, which, messages, &mut ended)?;
            }
            Ok(())
        })
    }

    /// One exchange of values that lie packed, with nothing beside it.
    pub(super) fn exchange_packed(&mut self, which: usize) -> Result<()> {
        let sending = Batch { sends: self.send_buffers(), ..Batch::default() };
        self.exchange(which, (&sending, 0), None)?;
        self.lane.submit(&Batch { receives: self.receive_buffers(which), ..Batch::default() }, 0)
    }
}
