//! Uniformization runs of several chains in lockstep: one pattern of transitions, different rates.
//!
//! [`in_lockstep`] solves each chain in its own thread, by the code of single runs. Small chains
//! need nothing else: each one occupies one core. A run of a larger chain submits
//! its steps in legs: a leg ends where the run needs the iterate, such as for a convergence check.
//! The thread then waits until all threads wait or have ended. One thread performs the steps of all
//! waiting runs with the most common pattern.
//!
//! Vectors of up to eight runs are interleaved: vector instructions process eight chains at once,
//! and a step needs no gather ([`stack`]). Entries of the pattern whose rates are equal within each
//! chain share one stored rate per chain ([`pattern`]).
//!
//! Each run performs the operations of a single run in the same order, so results are bitwise
//! equal. Early termination, Poisson windows and errors are determined per run.

mod pattern;
mod stack;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Builder};

use self::pattern::Pattern;
pub(super) use self::stack::{Leg, WeightedSum};
use self::stack::{Stack, WIDTH};
use super::chain::statistics::MatrixStatistics;
use super::problem::{Method, Options, Partitioning, Problem};
use super::step::vector_kernels::SWEEP_ROWS;
use crate::kernel::{Number, Precision};
use crate::lane::Lane;
use crate::parallel::{AtHand, alone, lock, pool};
use crate::sparse::MatrixFormat;
use crate::{Machine, Result};

/// Number of stored patterns from which on patterns without runs are dropped.
const MOST_PATTERNS: usize = 8;

/// Calls `work` with 0 … `count` − 1 in several threads; returns the results in order.
///
/// Speeds up parameter studies, where chains have equal patterns of transitions and different
/// rates. Each call of `work` solves transient problems as usual, all on one machine, of chains
/// with at most `states` states. Results are bitwise equal to those of single runs.
///
/// If `states` is at most 1024, there is a thread per core, and each call works in its thread
/// alone. Otherwise there are eight threads. Runs with equal patterns then take their steps
/// together, several times faster than one after another: for uniformization in f64 on one CPU
/// lane, chains of more than 1024 states and finite times. All other problems are solved by single
/// runs. Each thread has one chain in memory at once, if `work` drops its chain.
///
/// A call may block until all other calls wait or end. It must not hold a lock that another call
/// needs.
///
/// ```
/// use kolmo::Machine;
/// use kolmo::lane::{DeviceSpec, OpenOptions};
/// use kolmo::transient::{Chain, Options, in_lockstep};
///
/// // A component with 50 failure rates: its availability at time 10.
/// let machine = Machine::open(&[DeviceSpec::Cpu], &OpenOptions::default())?;
/// let availability = in_lockstep(50, 2, |k| {
///     let chain = Chain::from_csr(2, &[0, 1, 2], &[1, 0], &[0.01 * (1.0 + k as f64), 0.5])?;
///     Ok(chain.transient_on(&machine, &[10.0], &Options::default())?.probabilities[0][0])
/// });
/// let availability = availability.into_iter().collect::<kolmo::Result<Vec<f64>>>()?;
/// assert!(availability[0] > availability[49]);
/// # Ok::<(), kolmo::Error>(())
/// ```
///
/// # Panics
/// If `work` panics.
pub fn in_lockstep<R: Send>(count: usize, states: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let small = states <= SWEEP_ROWS;
    let work = |index: usize| if small { alone(|| work(index)) } else { work(index) };
    let workers = count.min(if small { pool::threads() } else { WIDTH });
    if workers < 2 || cfg!(target_family = "wasm") || pool::is_member() {
        return (0..count).map(work).collect();
    }
    let group = Arc::new(ThreadGroup { state: Mutex::default(), changed: Condvar::new() });
    lock(&group.state).active = workers;
    let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let at_hand = AtHand::now();
    let serve = || {
        let _worker = GroupThread::enter(&group);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(result) = results.get(index) else { break };
            let done = work(index);
            *lock(result) = Some(done);
        }
    };
    thread::scope(|scope| {
        let begin =
            |_| Builder::new().name("kolmo-chain".to_owned()).spawn_scoped(scope, || at_hand.within(serve));
        let (others, refused): (Vec<_>, Vec<_>) =
            (1..workers).map(begin).partition(std::result::Result::is_ok);
        group.leave(refused.len());
        serve();
        if let Some(panic) = others.into_iter().flatten().filter_map(|thread| thread.join().err()).next() {
            std::panic::resume_unwind(panic);
        }
    });
    let results =
        results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    results.map(|result| result.expect("each number is served once")).collect()
}

thread_local! {
    /// Group of this thread; `None` outside of [`in_lockstep`].
    static GROUP: RefCell<Option<Arc<ThreadGroup>>> = const { RefCell::new(None) };
}

/// Threads of one call of [`in_lockstep`].
#[derive(Debug)]
struct ThreadGroup {
    state: Mutex<GroupState>,
    /// Condition variable, notified after steps of legs and when a worker ends.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GroupState {
    /// Number of workers that do not wait for steps; at 0, one of them performs the steps.
    active: usize,
    /// Stacks of runs, one per pattern of transitions.
    stacks: Vec<Stack>,
    /// Number of the newest stack.
    next: u64,
}

impl ThreadGroup {
    fn leave(&self, workers: usize) {
        lock(&self.state).active -= workers;
        self.changed.notify_all();
    }
}

/// Membership of a thread in a group; ends on drop.
struct GroupThread {
    before: Option<Arc<ThreadGroup>>,
}

impl GroupThread {
    fn enter(group: &Arc<ThreadGroup>) -> Self {
        Self { before: GROUP.replace(Some(Arc::clone(group))) }
    }
}

impl Drop for GroupThread {
    fn drop(&mut self) {
        if let Some(group) = GROUP.replace(self.before.take()) {
            group.leave(1);
        }
    }
}

/// Membership of a run in a group, which performs its steps; ends on drop.
#[derive(Debug)]
pub(crate) struct GroupMember {
    group: Arc<ThreadGroup>,
    lane: Lane,
    stack: u64,
    slot: usize,
}

impl GroupMember {
    /// Adds a run to the group of this thread.
    ///
    /// `None` if there is no group, or if the run cannot take its steps with others (see
    /// [`in_lockstep`]). `expands`: the run may switch to the Chebyshev or Krylov method.
    pub(super) fn join<T: Number>(
        machine: &Machine,
        problem: &Problem<'_>,
        options: &Options,
        statistics: &MatrixStatistics<T>,
        expands: bool,
    ) -> Option<Self> {
        let group = GROUP.with_borrow(Clone::clone)?;
        let [lane] = &machine.lanes[..] else { return None };
        let plain = matches!(options.method, Method::Auto | Method::Uniformization)
            && options.format == MatrixFormat::Auto
            && options.split == Partitioning::default();
        let served = T::PRECISION == Precision::F64
            && lane.device().backend == "cpu"
            && !machine.ranks.is_distributed()
            && problem.transitions.states() > SWEEP_ROWS;
        if !(plain && served) || expands {
            return None;
        }
        let (pattern, rates) = Pattern::read(problem.transitions, statistics)?;
        let mut state = lock(&group.state);
        let (stack, slot) = state.place(pattern, &rates)?;
        drop(state);
        Some(Self { group, lane: lane.clone(), stack, slot })
    }

    /// Performs the steps of a leg, and returns it with the new iterates.
    ///
    /// `watch` receives the number of completed steps of the leg about every 70 ms.
    ///
    /// # Errors
    /// Those of `watch`.
    pub(super) fn advance(&self, leg: Leg, watch: &mut dyn FnMut(u64) -> Result<()>) -> Result<Leg> {
        let mut state = lock(&self.group.state);
        state.stack(self.stack).set(self.slot, leg);
        loop {
            state.active -= 1;
            while state.stack(self.stack).waits(self.slot) {
                if state.active > 0 {
                    state = self.group.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                // If `run` unwinds, dropping the worker decrements `active`: count it before.
                state.active += 1;
                let stack = state.stacks.iter_mut().max_by_key(|stack| stack.waiting());
                let advanced = stack.expect("this run waits").run(&self.lane);
                state.active += advanced;
                state.active -= 1;
                self.group.changed.notify_all();
            }
            let done = state.stack(self.stack).done(self.slot);
            drop(state);
            let watched = watch(done);
            state = lock(&self.group.state);
            if let Some(leg) = state.stack(self.stack).taken(self.slot, watched.is_err()) {
                return watched.map(|()| leg);
            }
        }
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        lock(&self.group.state).stack(self.stack).free(self.slot);
    }
}

impl GroupState {
    fn stack(&mut self, number: u64) -> &mut Stack {
        self.stacks.iter_mut().find(|stack| stack.number == number).expect("a stack with runs is kept")
    }

    /// Adds a run to the stack of its pattern; returns the numbers of stack and slot.
    ///
    /// `None` if memory does not suffice for a new stack.
    fn place(&mut self, pattern: Pattern, rates: &[f64]) -> Option<(u64, usize)> {
        let known = self.stacks.iter().position(|stack| stack.pattern == pattern);
        let at = match known {
            Some(at) => at,
            None => {
                if self.stacks.len() >= MOST_PATTERNS || !Stack::fits(&pattern) {
                    self.stacks.retain(|stack| !stack.is_empty());
                }
                if !Stack::fits(&pattern) {
                    return None;
                }
                self.next += 1;
                self.stacks.push(Stack::new(self.next, pattern));
                self.stacks.len() - 1
            }
        };
        Some((self.stacks[at].number, self.stacks[at].add(rates)))
    }
}
