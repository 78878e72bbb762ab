//! Threads that spin between the loops of one run.
//!
//! The threads of a pool go to sleep between short steps, and waking them takes longer than a step.

#![expect(unsafe_code, reason = "a loop's work lives as long as threads are in it")]

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::pool::in_each;
use super::rounds::{Look, Rounds, Seen};
use super::{AtHand, lock};
use crate::parallel::backoff::Spin;

/// Function that a loop calls with each item number.
#[derive(Clone, Copy)]
struct LoopBody(*const (dyn Fn(usize) + Sync));

// SAFETY: any thread may call the function, and it lives while threads are in its loop.
unsafe impl Send for LoopBody {}
// SAFETY: as above.
unsafe impl Sync for LoopBody {}

/// A fixed set of threads that execute loops started by one of them, the leader.
pub(crate) struct Team {
    rounds: Rounds<LoopBody>,
    /// Payload of the first panic in a loop.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// Longest time that a waiting thread spins without yielding its core.
const ALONE: Duration = Duration::from_micros(50);
/// Longest time that a waiting thread then polls before it sleeps.
const AWAKE: Duration = Duration::from_millis(1);
/// Duration of each sleep of a thread that waits for the end of a loop that it opened.
const ASLEEP: Duration = Duration::from_micros(100);

thread_local! {
    /// Team that this thread leads; `None` while it executes a loop.
    static LEADS: Cell<Option<*const Team>> = const { Cell::new(None) };
}

impl Team {
    /// Runs `work` in a thread of a pool, while the pool's other threads wait for its loops.
    ///
    /// The caller is not a thread of the pool, and the pool has no other work: a second team would
    /// wait for threads that follow this one.
    pub(crate) fn lead(pool: &rayon::ThreadPool, work: &mut (dyn FnMut() + Send)) {
        let at_hand = AtHand::now();
        let team = Self { rounds: Rounds::new(pool.current_num_threads()), panic: Mutex::new(None) };
        let work = Mutex::new(work);
        in_each(pool, &|thread| match thread {
            0 => {
                assert!(LEADS.get().is_none(), "a thread leads one team");
                LEADS.set(Some(&raw const team));
                let _end = EndGuard(&team);
                at_hand.within(&mut **lock(&work));
            }
            number => team.follow(number),
        });
    }

    /// Calls `item` with the numbers below `count` on this thread's team; false if it leads none.
    pub(crate) fn share_out(count: usize, item: &(dyn Fn(usize) + Sync)) -> bool {
        let Some(team) = LEADS.take() else { return false };
        // SAFETY: the team lives while this thread leads it.
        let panic = unsafe { &*team }.all_do(count, item, || ());
        LEADS.set(Some(team));
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        true
    }

    /// Calls `item` with the numbers below `count`, on the calling thread and on threads of a pool.
    ///
    /// Threads that wake after the loop has ended take no part, so that a short loop waits for
    /// none. The caller is not a thread of the pool.
    pub(super) fn with_helpers(
        pool: &'static rayon::ThreadPool,
        count: usize,
        item: &(dyn Fn(usize) + Sync),
    ) {
        let threads = pool.current_num_threads().min(count);
        let team = Arc::new(Self { rounds: Rounds::new(threads), panic: Mutex::new(None) });
        let helpers = team.clone();
        let summon = || pool.spawn(move || helpers.help(pool, 1));
        if let Some(panic) = team.all_do(count, item, summon) {
            resume_unwind(panic);
        }
    }

    /// Takes part in the open loop as thread number `thread`, after waking two further threads.
    fn help(self: Arc<Self>, pool: &'static rayon::ThreadPool, thread: usize) {
        if thread >= self.rounds.threads() {
            return;
        }
        while let Look::Open(seen) = self.rounds.look(Seen::NONE) {
            if self.rounds.enter(seen) {
                for next in [2 * thread, 2 * thread + 1] {
                    let team = self.clone();
                    pool.spawn(move || team.help(pool, next));
                }
                // SAFETY: this thread is in the loop.
                unsafe { self.take_part(thread) };
                return self.rounds.leave();
            }
        }
    }

    /// Runs a loop and calls `opened` at its start. Returns the payload of a panic, if any.
    fn all_do(
        &self,
        count: usize,
        item: &(dyn Fn(usize) + Sync),
        opened: impl FnOnce(),
    ) -> Option<Box<dyn Any + Send>> {
        // SAFETY: the loop ends, with no thread in it, before this call does.
        let item = LoopBody(unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync), *const (dyn Fn(usize) + Sync)>(item)
        });
        // SAFETY: only the leader opens loops, each after the end of the last one below.
        unsafe { self.rounds.open(item, count) };
        opened();
        // SAFETY: this thread opened the loop.
        unsafe { self.take_part(0) };
        self.rounds.close();
        while awake(|| self.rounds.is_empty().then_some(())).is_none() {
            std::thread::sleep(ASLEEP);
        }
        lock(&self.panic).take()
    }

    /// Processes items of an open loop until none are left, beginning with this thread's share.
    ///
    /// # Safety
    /// Requirements of [`Rounds::take_part`].
    unsafe fn take_part(&self, thread: usize) {
        let each = |LoopBody(item): LoopBody, k| {
            // SAFETY: the loop does not end before this thread has left it.
            let done = catch_unwind(AssertUnwindSafe(|| unsafe { (*item)(k) }));
            if let Err(panic) = done {
                lock(&self.panic).get_or_insert(panic);
            }
        };
        // SAFETY: as this function requires.
        unsafe { self.rounds.take_part(thread, each) };
    }

    /// Takes part in each loop until there are no further ones.
    fn follow(&self, thread: usize) {
        let mut last = Seen::NONE;
        loop {
            let mut found = Look::Nothing(last);
            let mut look = || {
                found = self.rounds.look(last);
                (!matches!(found, Look::Nothing(_))).then_some(())
            };
            awake(&mut look);
            match found {
                Look::End => return,
                Look::Nothing(seen) => self.rounds.sleep(seen),
                Look::Open(seen) if self.rounds.enter(seen) => {
                    last = seen;
                    // SAFETY: this thread is in the loop.
                    unsafe { self.take_part(thread) };
                    self.rounds.leave();
                }
                // The loop was closed, or the number of threads inside changed.
                Look::Open(_) => {}
            }
        }
    }
}

/// Guard that ends a team when its leader is done.
struct EndGuard<'a>(&'a Team);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        LEADS.set(None);
        self.0.rounds.end();
    }
}

/// Polls until `look` returns a value; `None` when it is time to sleep.
fn awake<V>(mut look: impl FnMut() -> Option<V>) -> Option<V> {
    let mut spin = |longest, alone| Spin { longest, alone }.until(|| Ok(look())).ok().flatten();
    spin(ALONE, true).or_else(|| spin(AWAKE, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::*;

    fn pool(threads: usize) -> rayon::ThreadPool {
        pool::build(threads, "test").unwrap()
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
    fn a_team_within_a_team_panics() {
        let pool = pool(2);
        let nested = || Team::lead(&pool, &mut || Team::lead(&pool, &mut || ()));
        let panic = catch_unwind(AssertUnwindSafe(nested)).unwrap_err();
        assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("waits for all of it")));
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
