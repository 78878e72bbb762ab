//! MPI implementation of the collective operations and messages.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::mpi::datatype::{Partition, PartitionMut};
use ::mpi::request::{self, Request};
use ::mpi::topology::SimpleCommunicator;
use ::mpi::traits::*;
use ::mpi::{Count, Threading};

use super::{MessageEnvelope, Ranks, Wait};
use crate::{Error, Invalid, Result};

pub(super) struct Universe(
    #[expect(dead_code, reason = "what counts is when it is dropped")] ::mpi::environment::Universe,
);

impl std::fmt::Debug for Universe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Universe")
    }
}

fn world() -> SimpleCommunicator {
    SimpleCommunicator::world()
}

/// Initialises MPI; returns this rank and the number of ranks, overall and on this host.
pub(super) fn join() -> Result<(Universe, usize, usize, (usize, usize))> {
    let Some((universe, threading)) = ::mpi::initialize_with_threading(Threading::Multiple) else {
        return Err(Error::invalid("MPI is already initialised"));
    };
    if threading < Threading::Multiple {
        return Invalid::Unsupported.fail(format!(
            "the MPI library supports {threading:?} threads only: expected MPI_THREAD_MULTIPLE"
        ));
    }
    let world = world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let host = world.split_shared(world.rank());
    let place = (host.rank() as usize, host.size() as usize);
    // Ranks that may run on equal sets of cores divide these; a launcher may also bind each rank to
    // its own cores.
    let mask = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = mask.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap_or_default();
    let masks = gather(&host, mask.as_bytes());
    let sharing = masks.iter().filter(|other| **other == masks[place.0]).count();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()) / sharing.max(1);
    // A pool that exists already stays.
    crate::parallel::pool::limit(threads.max(1));
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build_global();
    Ok((Universe(universe), rank, size, place))
}

pub(super) fn abort(code: i32) -> ! {
    world().abort(code)
}

fn displacements(counts: &[Count]) -> Vec<Count> {
    let place = |sum: &mut Count, &count: &Count| {
        let here = *sum;
        *sum += count;
        Some(here)
    };
    counts.iter().scan(0, place).collect()
}

fn gather(ranks: &SimpleCommunicator, mine: &[u8]) -> Vec<Vec<u8>> {
    let count = Count::try_from(mine.len()).expect("lists for all are short");
    let mut counts = vec![0 as Count; ranks.size() as usize];
    ranks.all_gather_into(&count, &mut counts[..]);
    // One extra byte follows the last list: an empty buffer has an address that MPI takes for
    // MPI_IN_PLACE.
    let mut all = vec![0u8; counts.iter().map(|&c| c as usize).sum::<usize>() + 1];
    let places = displacements(&counts);
    let mine = if mine.is_empty() { &[0][..0] } else { mine };
    ranks.all_gather_varcount_into(mine, &mut PartitionMut::new(&mut all[..], &counts[..], &places[..]));
    let list = |(&count, &place): (&Count, &Count)| all[place as usize..][..count as usize].to_vec();
    counts.iter().zip(&places).map(list).collect()
}

pub(super) fn all_gather(mine: &[u8]) -> Vec<Vec<u8>> {
    gather(&world(), mine)
}

pub(super) fn all_to_all(lists: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let world = world();
    let count = |list: &Vec<u32>| Count::try_from(list.len()).expect("a halo has fewer than 2^31 rows");
    let counts: Vec<Count> = lists.iter().map(count).collect();
    let mut coming = vec![0 as Count; lists.len()];
    world.all_to_all_into(&counts[..], &mut coming[..]);
    let (places, arriving) = (displacements(&counts), displacements(&coming));
    let mine = lists.concat();
    drop(lists);
    let mut all = vec![0u32; coming.iter().map(|&c| c as usize).sum()];
    world.all_to_all_varcount_into(
        &Partition::new(&mine[..], &counts[..], &places[..]),
        &mut PartitionMut::new(&mut all[..], &coming[..], &arriving[..]),
    );
    drop(mine);
    let list = |(&count, &place): (&Count, &Count)| all[place as usize..][..count as usize].to_vec();
    coming.iter().zip(&arriving).map(list).collect()
}

pub(super) fn ordered_reduce(rank: usize, size: usize, numbers: &mut [f64], change: impl FnOnce(&mut [f64])) {
    let world = world();
    if rank > 0 {
        world.process_at_rank(rank as i32 - 1).receive_into(numbers);
    }
    change(numbers);
    if rank + 1 < size {
        world.process_at_rank(rank as i32 + 1).send(&*numbers);
    }
    world.process_at_rank(size as i32 - 1).broadcast_into(numbers);
}

/// Maximum elements per message: MPI counts them by an `int`, up to 2³¹ − 1.
const PIECE: usize = 1 << 27;

pub(super) fn gather_to_root(ranks: Ranks, mine: &[f64]) -> Vec<f64> {
    let world = world();
    let counts = ranks.all_gather(&[mine.len() as u64]);
    if !ranks.is_root() {
        let first = world.process_at_rank(0);
        mine.chunks(PIECE).for_each(|piece| first.send(piece));
        return Vec::new();
    }
    let mut all = Vec::with_capacity(counts.iter().flatten().sum::<u64>() as usize);
    all.extend_from_slice(mine);
    for (rank, count) in counts.iter().enumerate().skip(1) {
        let from = all.len();
        all.resize(from + count[0] as usize, 0.0);
        let process = world.process_at_rank(rank as i32);
        for piece in all[from..].chunks_mut(PIECE) {
            process.receive_into(piece);
        }
    }
    all
}

pub(super) fn scatter_from_root(ranks: Ranks, mine: usize, list: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    let world = world();
    if ranks.is_root() {
        for rank in 1..ranks.size() {
            let process = world.process_at_rank(rank as i32);
            list(rank).chunks(PIECE).for_each(|piece| process.send(piece));
        }
        return list(0);
    }
    let first = world.process_at_rank(0);
    let mut all = vec![0.0; mine];
    for piece in all.chunks_mut(PIECE) {
        first.receive_into(piece);
    }
    all
}

type Pending<'s, 'v> = Request<'v, [u32], &'s request::LocalScope<'v>>;

/// Pending non-blocking receives and sends of this rank.
#[derive(Debug)]
pub struct Messages<'s, 'v> {
    scope: &'s request::LocalScope<'v>,
    wait: Wait<'s>,
    receives: VecDeque<Pending<'s, 'v>>,
    sends: Vec<Pending<'s, 'v>>,
}

impl<'v> Messages<'_, 'v> {
    /// Starts a non-blocking receive of a message into `values`.
    pub fn receive(&mut self, from: MessageEnvelope, values: &'v mut [u32]) {
        let (world, rank) = (world(), from.rank as i32);
        let process = world.process_at_rank(rank);
        let tag = from.tag as i32;
        self.receives.push_back(process.immediate_receive_into_with_tag(self.scope, values, tag));
    }

    /// Starts a non-blocking send of `values`; [`with_messages`] waits for its completion.
    pub fn send(&mut self, to: MessageEnvelope, values: &'v [u32]) {
        let (world, rank) = (world(), to.rank as i32);
        let process = world.process_at_rank(rank);
        self.sends.push(process.immediate_send_with_tag(self.scope, values, to.tag as i32));
    }

    /// Waits for the values of the next receive, in the order of [`Self::receive`].
    /// Fails with [`Error::Interrupted`] once the flag [`Wait::stop`] is set.
    pub fn wait_received(&mut self) -> Result<&'v [u32]> {
        let (wait, receives) = (self.wait, &mut self.receives);
        wait.until(|| match receives.pop_front().expect("values are received once").test_with_data() {
            Ok((_, values)) => Some(values),
            Err(pending) => {
                receives.push_front(pending);
                None
            }
        })
    }

    fn wait_sent(&mut self) -> Result<()> {
        let (wait, sends) = (self.wait, &mut self.sends);
        while !sends.is_empty() {
            wait.until(|| match sends.pop()?.test() {
                Ok(_) => Some(()),
                Err(pending) => {
                    sends.push(pending);
                    None
                }
            })?;
        }
        Ok(())
    }
}

/// Time that a thread polls before it sleeps between polls.
const LOOK: Duration = Duration::from_millis(3);
/// Sleep between two polls after [`LOOK`] has elapsed.
const NAP: Duration = Duration::from_micros(20);

impl Wait<'_> {
    fn until<V>(&self, mut look: impl FnMut() -> Option<V>) -> Result<V> {
        let since = Instant::now();
        loop {
            if let Some(value) = look() {
                return Ok(value);
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::Interrupted);
            }
            if since.elapsed() > LOOK {
                std::thread::sleep(NAP);
            } else if self.spin {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Runs `work`, which sends and receives, and waits until all of its messages are sent.
/// Returns an error of `work` if no message is pending. MPI cannot withdraw from buffers that it
/// was given, so an error with pending messages aborts all ranks.
pub fn with_messages<'v>(
    ranks: Ranks,
    wait: Wait<'_>,
    work: impl FnOnce(&mut Messages<'_, 'v>) -> Result<()>,
) -> Result<()> {
    request::scope(|scope| {
        let mut messages = Messages { scope, wait, receives: VecDeque::new(), sends: Vec::new() };
        let done = work(&mut messages).and_then(|()| messages.wait_sent());
        if let Err(e) = &done
            && !(messages.receives.is_empty() && messages.sends.is_empty())
        {
            if matches!(e, Error::Interrupted) {
                // The thread that knows the reason aborts all ranks.
                std::thread::sleep(Duration::from_secs(10));
            }
            ranks.abort_all(e);
        }
        done
    })
}
