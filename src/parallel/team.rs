//! Threads that wait awake for one loop after the other: in a run of many short steps those of a pool sleep in between, and are
//! woken up late.

#![expect(unsafe_code, reason = "a loop's work lives as long as threads are in it")]

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::AtHand;
use crate::spin::Spin;

/// Items of a loop: each number up to the last is given to `item` once.
#[derive(Clone, Copy)]
struct Loop {
    item: *const (dyn Fn(usize) + Sync),
    count: usize,
}

/// Threads that share out loops, one of which is the leader's, who begins them.
pub(crate) struct Team {
    /// The number of the loop, whether it is open, whether there are to be no more, and how many threads are in it.
    state: AtomicU64,
    /// Of an open loop.
    work: UnsafeCell<Option<Loop>>,
    /// The next item of each thread's share.
    next: Vec<Apart>,
    /// Threads that sleep.
    asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// What the first thread unwound with that did.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A number in a cache line of its own.
#[repr(align(128))]
struct Apart(AtomicUsize);

const INSIDE: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
const END: u64 = 1 << 17;
const LOOP: u64 = 1 << 18;

/// Longest that a thread keeps its core to itself while it waits, and that it stays awake.
const ALONE: Duration = Duration::from_micros(50);
const AWAKE: Duration = Duration::from_millis(1);

thread_local! {
    /// The team that this thread leads, unless it is in a loop.
    static LEADS: Cell<Option<*const Team>> = const { Cell::new(None) };
}

// SAFETY: the work of a loop is written while no thread is in one, and read by threads that are in it.
unsafe impl Sync for Team {}

impl Team {
    /// Does `work` in a thread of a pool, whose other threads wait for its loops meanwhile.
    pub(crate) fn lead(pool: &rayon::ThreadPool, work: &mut (dyn FnMut() + Send)) {
        let (at_hand, threads) = (AtHand::now(), pool.current_num_threads());
        let team = Self {
            state: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            next: (0..threads).map(|_| Apart(AtomicUsize::new(0))).collect(),
            asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        };
        let work = Mutex::new(work);
        pool.broadcast(|thread| match thread.index() {
            0 => {
                let _end = End(&team, LEADS.replace(Some(&raw const team)));
                let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
                at_hand.within(&mut **work);
            }
            number => team.follow(number),
        });
    }

    /// Gives each number below `count` to `item` on the threads of the team that this one leads; false if it leads none.
    pub(crate) fn share_out(count: usize, item: &(dyn Fn(usize) + Sync)) -> bool {
        let Some(team) = LEADS.take() else { return false };
        // SAFETY: the team lives for as long as this thread leads it.
        let panic = unsafe { &*team }.all_do(count, item);
        LEADS.set(Some(team));
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        true
    }

    /// A loop from beginning to end, and what a thread unwound with, if one did.
    fn all_do(&self, count: usize, item: &(dyn Fn(usize) + Sync)) -> Option<Box<dyn Any + Send>> {
        // SAFETY: the loop ends, with no thread in it, before this call does.
        let item = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync)>(item)
        };
        // SAFETY: the last loop is closed and no thread is in it.
        unsafe { *self.work.get() = Some(Loop { item, count }) };
        for (k, next) in self.next.iter().enumerate() {
            next.0.store(self.share(k, count), Ordering::Relaxed);
        }
        let number = self.state.load(Ordering::Relaxed) & !INSIDE;
        self.state.store((number + LOOP) | OPEN, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
        self.take_part(0);
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        while awake(|| (self.state.load(Ordering::Acquire) & INSIDE == 0).then_some(())).is_none() {}
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The first item of a thread's share.
    fn share(&self, thread: usize, count: usize) -> usize {
        count * thread / self.next.len()
    }

    /// Does items of an open loop until none are left, its own first.
    fn take_part(&self, thread: usize) {
        // SAFETY: this thread is in the loop, or leads it.
        let Some(Loop { item, count }) = (unsafe { *self.work.get() }) else { return };
        for other in (thread..self.next.len()).chain(0..thread) {
            let end = self.share(other + 1, count);
            loop {
                let k = self.next[other].0.fetch_add(1, Ordering::Relaxed);
                if k >= end {
                    break;
                }
                // SAFETY: as above: the loop does not end before this thread has left it.
                let done = catch_unwind(AssertUnwindSafe(|| unsafe { (*item)(k) }));
                if let Err(panic) = done {
                    self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                }
            }
        }
    }

    /// Takes part in each loop until there are to be no more.
    fn follow(&self, thread: usize) {
        let mut seen = 0;
        loop {
            let begun = |state: &u64| state & END != 0 || state & OPEN != 0 && state / LOOP != seen;
            let state = || self.state.load(Ordering::Acquire);
            let before = state();
            let Some(state) = awake(|| Some(state()).filter(begun)) else {
                self.sleep(before);
                continue;
            };
            if state & END != 0 {
                return;
            }
            let enter = self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed);
            if enter.is_ok() {
                seen = state / LOOP;
                self.take_part(thread);
                self.state.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Sleeps until a loop behind that of `state` begins, or there are to be no more.
    fn sleep(&self, state: u64) {
        let mut lock = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let same = |now: u64| now / LOOP == state / LOOP && now & END == 0;
        while same(self.state.load(Ordering::SeqCst)) {
            lock = self.wake.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        let _lock = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
    }
}

/// Ends a team when its leader is done, and puts back what this thread led before.
struct End<'a>(&'a Team, Option<*const Team>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        LEADS.set(self.1);
        self.0.state.fetch_or(END, Ordering::SeqCst);
        self.0.wake();
    }
}

/// Looks until something is there; none when it is time to sleep.
fn awake<V>(look: impl Fn() -> Option<V>) -> Option<V> {
    let spin = |longest, alone| Spin { longest, alone }.until(|| Ok(look())).ok().flatten();
    spin(ALONE, true).or_else(|| spin(AWAKE, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::*;

    fn pool(threads: usize) -> rayon::ThreadPool {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
    }

    #[test]
    fn every_item_of_every_loop_is_done_once() {
        for threads in [1, 2, 5] {
            let mut counts = vec![0u32; 1000];
            Team::lead(&pool(threads), &mut || {
                for k in 0..200 {
                    // Long enough for threads to fall asleep, once or twice.
                    if k % 90 == 89 {
                        thread::sleep(2 * AWAKE);
                    }
                    counts[..5 * k + 5].par_iter_mut().for_each(|count| *count += 1);
                }
            });
            for (i, &count) in counts.iter().enumerate() {
                assert_eq!(count as usize, 200 - i / 5, "item {i}, {threads} threads");
            }
        }
    }

    #[test]
    fn loops_inside_of_loops_are_those_of_the_pool() {
        let sums: Mutex<Vec<usize>> = Mutex::default();
        Team::lead(&pool(3), &mut || {
            (0..50).into_par_iter().for_each(|i| {
                let sum = (0..i + 1).into_par_iter().reduce(|| 0, |a, b| a + b);
                sums.lock().unwrap().push(sum);
            });
        });
        let mut sums = sums.into_inner().unwrap();
        sums.sort_unstable();
        assert_eq!(sums, (0..50).map(|i| i * (i + 1) / 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_arrives_and_leaves_the_pool_in_order() {
        let pool = pool(3);
        for _ in 0..10 {
            let work = || {
                Team::lead(&pool, &mut || {
                    (0..100).into_par_iter().for_each(|i| assert!(i != 70, "seventy"));
                });
            };
            let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
            assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("seventy")));
        }
    }
}
