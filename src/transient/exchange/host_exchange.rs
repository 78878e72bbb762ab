//! Exchange of halos through the host: one thread per lane, with its ends of the transfers.
//!
//! A thread submits a batch of launches that compute the boundary rows, then one for the other
//! rows. During the second batch it reads the boundary values and sends them. It then stores the
//! neighbours' values where the lane's next batch reads them. The exchange is hidden if it takes no
//! longer than the other rows. Buffers and vectors are allocated once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use super::transport::Transport;
use crate::kernel::Number;
use crate::lane::{Lane, LaneBatch, ReceiveBuffer, SendBuffer};
use crate::parallel::backoff::Spin;
use crate::parallel::no_thread;
use crate::ranks::{MessageEnvelope, Messages, Ranks, Wait, with_messages};
use crate::{Error, Result};

/// Interval at which `watch` (see [`on_lanes`]) is called, unless a lane finishes earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sending end of a transfer, in the thread of the owner's lane.
enum Sender<'a, T> {
    /// Sends to the thread of the reader's lane: full vectors go out, empty ones return.
    ///
    /// With `direct`, this thread fills the reader's buffers, and vectors are signals only. One
    /// that goes out means a full buffer. One that returns means that a batch will empty the
    /// buffer.
    Lane {
        buffer: &'a SendBuffer,
        direct: Option<(&'a Lane, &'a [ReceiveBuffer; 2])>,
        full: SyncSender<Vec<T>>,
        empty: Receiver<Vec<T>>,
    },
    Rank {
        buffer: &'a SendBuffer,
        to: MessageEnvelope,
        values: Vec<T>,
    },
}

impl<'a, T: Number> Sender<'a, T> {
    fn buffer(&self) -> &'a SendBuffer {
        match self {
            Self::Lane { buffer, .. } | Self::Rank { buffer, .. } => buffer,
        }
    }

    /// Waits for the batch that filled the buffer, and sends its values to the reader.
    ///
    /// If the reader's memory is written in place, they go into its iterate `which`, 0 or 1.
    fn send<'v>(&'v mut self, lane: &Lane, which: usize, messages: &mut Messages<'_, 'v>) -> Result<()> {
        match self {
            Self::Lane { buffer, direct, full, empty } => {
                let mut values = empty.recv().map_err(|_| Error::Interrupted)?;
                match direct {
                    Some((reader, buffers)) => lane.copy_direct(buffer, reader, &buffers[which])?,
                    None => lane.read_sent(buffer, &mut values)?,
                }
                // A closed channel means that the neighbour has stopped.
                full.send(values).map_err(|_| Error::Interrupted)?;
            }
            Self::Rank { buffer, to, values } => {
                lane.read_sent(buffer, values)?;
                messages.send(*to, bytemuck::cast_slice(values));
            }
        }
        Ok(())
    }
}

/// Receiving end of a transfer, in the thread of the reader's lane.
enum ReceivingEnd<'a, T> {
    Lane {
        buffers: &'a [ReceiveBuffer; 2],
        direct: bool,
        full: Receiver<Vec<T>>,
        empty: SyncSender<Vec<T>>,
        /// Vector to return as a signal that the batch that empties the buffer has been submitted.
        word: Option<Vec<T>>,
    },
    Rank {
        buffers: &'a [ReceiveBuffer; 2],
        from: MessageEnvelope,
    },
}

impl<'a, T: Number> ReceivingEnd<'a, T> {
    fn buffer(&self, which: usize) -> &'a ReceiveBuffer {
        match self {
            Self::Lane { buffers, .. } | Self::Rank { buffers, .. } => &buffers[which],
        }
    }

    /// Signals the owner that the batch that empties its filled buffer has been submitted.
    fn give_back(&mut self) {
        if let Self::Lane { empty, word, .. } = self
            && let Some(word) = word.take()
        {
            // The channel is closed if the neighbour has sent its last values.
            let _ = empty.send(word);
        }
    }

    /// Waits for the values of iterate `which`, and stores them where the next batch reads them.
    fn receive(&mut self, lane: &Lane, which: usize, messages: &mut Messages<'_, '_>) -> Result<()> {
        match self {
            Self::Lane { buffers, direct, full, empty, word } => {
                let values = wait_for(full, lane)?;
                if *direct {
                    *word = Some(values);
                    return Ok(());
                }
                lane.write_received(&buffers[which], &values)?;
                // The channel is closed if the neighbour has sent its last values.
                let _ = empty.send(values);
            }
            Self::Rank { buffers, .. } => {
                let values = messages.wait_received()?;
                lane.write_received(&buffers[which], bytemuck::cast_slice::<u32, T>(values))?;
            }
        }
        Ok(())
    }
}

/// Receives a value. Spins first, unless that would take time from lanes on the host's cores.
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

/// Thread of a lane, with its ends of the transfers through the host.
pub(super) struct ExchangeWorker<'a, T> {
    pub(crate) lane: &'a Lane,
    pub(crate) number: usize,
    ranks: Ranks,
    /// Set if one of the threads has failed.
    stop: Arc<AtomicBool>,
    senders: Vec<Sender<'a, T>>,
    readers: Vec<ReceivingEnd<'a, T>>,
    /// Receive vectors for messages from other ranks, in the order of their readers.
    arriving: Vec<Vec<T>>,
}

/// Creates a worker for each lane, with its ends of the given transports.
pub(super) fn workers<'a, T: Number>(
    lanes: &'a [Lane],
    transports: impl IntoIterator<Item = &'a Transport>,
    ranks: Ranks,
) -> Vec<ExchangeWorker<'a, T>> {
    let stop = Arc::new(AtomicBool::new(false));
    let worker = |(number, lane)| ExchangeWorker {
        lane,
        number,
        ranks,
        stop: stop.clone(),
        senders: Vec::new(),
        readers: Vec::new(),
        arriving: Vec::new(),
    };
    let mut workers: Vec<ExchangeWorker<'a, T>> = lanes.iter().enumerate().map(worker).collect();
    for transport in transports {
        match transport {
            Transport::SameLane | Transport::Peer => {}
            Transport::Host { from, to, len, send, receive } => {
                let direct = lanes[*from].can_copy_direct(&lanes[*to]);
                // Two vectors: one in transit and one being read. A lane may be one exchange ahead
                // of its neighbour.
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
                workers[*to].readers.push(ReceivingEnd::Lane {
                    buffers: receive,
                    direct,
                    full: values,
                    empty: back,
                    word: None,
                });
            }
            Transport::ToRank { from, len, send, to } => {
                let values = vec![T::ZERO; *len];
                workers[*from].senders.push(Sender::Rank { buffer: send, to: *to, values });
            }
            Transport::FromRank { to, len, receive, from } => {
                let worker = &mut workers[*to];
                worker.arriving.push(vec![T::ZERO; *len]);
                worker.readers.push(ReceivingEnd::Rank { buffers: receive, from: *from });
            }
        }
    }
    workers
}

/// Runs `work` with every worker in its own thread, which finally waits for its lane.
///
/// `watch` is called every 20 ms, and its error stops all workers.
///
/// # Errors
/// The original error of a lane, not the errors that it caused in its neighbours. Threads that the
/// system refuses are errors, because each lane waits for its neighbours.
pub(super) fn on_lanes<'a, T: Number>(
    workers: Vec<ExchangeWorker<'a, T>>,
    watch: &mut dyn FnMut() -> Result<()>,
    work: &(dyn Fn(&mut ExchangeWorker<'a, T>) -> Result<()> + Sync),
) -> Result<()> {
    let (ranks, stop) = (workers[0].ranks, workers[0].stop.clone());
    let fail = |error: &Error| {
        // Other ranks wait for this one.
        if ranks.is_distributed() {
            ranks.abort_all(error);
        }
    };
    let running = &AtomicUsize::new(workers.len());
    let waiting = &thread::current();
    thread::scope(|scope| {
        let thread = |mut worker: ExchangeWorker<'a, T>| {
            let (work, name) = (&work, worker.lane.device().spec.to_string());
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                let result = work(&mut worker);
                // The lane's work must end before its staging buffers are freed, also after an
                // error.
                let finished = worker.lane.finish();
                let result = result.and(finished);
                if let Err(e) = &result {
                    if !matches!(e, Error::Interrupted) {
                        fail(e);
                    }
                    worker.stop.store(true, Ordering::Release);
                }
                running.fetch_sub(1, Ordering::Release);
                waiting.unpark();
                result
            });
            // The lanes that have been started wait for this one.
            started.map_err(|error| {
                let error = no_thread(&name, &error);
                fail(&error);
                stop.store(true, Ordering::Release);
                running.fetch_sub(1, Ordering::Release);
                error
            })
        };
        let threads: Vec<_> = workers.into_iter().map(thread).collect();
        let mut watched = Ok(());
        // A thread that panicked has not decremented `running`.
        while running.load(Ordering::Acquire) > 0 && !threads.iter().flatten().all(|t| t.is_finished()) {
            thread::park_timeout(POLL_INTERVAL);
            if watched.is_ok() {
                watched = watch();
                if let Err(e) = &watched {
                    fail(e);
                    stop.store(true, Ordering::Release);
                }
            }
        }
        let join = |thread: Result<thread::ScopedJoinHandle<'_, Result<()>>>| {
            thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let results: Vec<Result<()>> = threads.into_iter().map(join).collect();
        watched?;
        first_cause(results)
    })
}

/// Returns the error that caused the others, if any: neighbours of a failed lane are `Interrupted`.
fn first_cause(mut results: Vec<Result<()>>) -> Result<()> {
    let first = results.iter().position(|r| matches!(r, Err(e) if !matches!(e, Error::Interrupted)));
    match first {
        Some(i) => results.swap_remove(i),
        None => results.into_iter().collect(),
    }
}

impl<'a, T: Number> ExchangeWorker<'a, T> {
    /// Returns the buffers that a batch fills for other lanes.
    pub(super) fn send_buffers(&self) -> Vec<&'a SendBuffer> {
        self.senders.iter().map(Sender::buffer).collect()
    }

    /// Returns the buffers from which a batch fills the halos of iterate `which`.
    pub(super) fn receive_buffers(&self, which: usize) -> Vec<&'a ReceiveBuffer> {
        self.readers.iter().map(|reader| reader.buffer(which)).collect()
    }

    /// Exchanges the halos of iterate `which` once.
    ///
    /// Submits the batch `first`, which fills the send buffers, and then `second`, each with the
    /// number of its first step. Afterwards the receive buffers are full, for the next batch.
    pub(crate) fn exchange(
        &mut self,
        which: usize,
        (first, step): (&LaneBatch<'_>, u64),
        second: Option<(&LaneBatch<'_>, u64)>,
    ) -> Result<()> {
        let Self { lane, ranks, stop, senders, readers, arriving, .. } = self;
        if stop.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        // The CPU computes in this thread, so it sends its boundary values before it computes
        // `second`.
        let ahead = !lane.device().host;
        with_messages(*ranks, Wait { stop, spin: !lane.device().on_host_cores() }, |messages| {
            let envelopes = readers.iter().filter_map(|reader| match reader {
                ReceivingEnd::Rank { from, .. } => Some(*from),
                ReceivingEnd::Lane { .. } => None,
            });
            for (from, values) in envelopes.zip(arriving) {
                messages.receive(from, bytemuck::cast_slice_mut(values));
            }
            lane.submit(first, step)?;
            readers.iter_mut().for_each(ReceivingEnd::give_back);
            if let Some((second, step)) = second.filter(|_| ahead) {
                lane.submit(second, step)?;
            }
            for sender in senders {
                sender.send(lane, which, messages)?;
            }
            if let Some((second, step)) = second.filter(|_| !ahead) {
                lane.submit(second, step)?;
            }
            for reader in readers {
                reader.receive(lane, which, messages)?;
            }
            Ok(())
        })
    }

    /// Exchanges values that are already packed, without other work.
    pub(super) fn exchange_packed(&mut self, which: usize) -> Result<()> {
        // Values are received after queued work, such as a clear, even if nothing is sent.
        let sending = LaneBatch { sends: self.send_buffers(), before_receives: true, ..LaneBatch::default() };
        self.exchange(which, (&sending, 0), None)?;
        self.lane.submit(&LaneBatch { receives: self.receive_buffers(which), ..LaneBatch::default() }, 0)
    }
}
