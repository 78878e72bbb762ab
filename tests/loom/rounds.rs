//! Model check of the loops of a thread team, in all orders allowed by the memory model.
//!
//! The number of preemptions is bounded.

#[path = "../../src/parallel/rounds.rs"]
#[allow(dead_code, reason = "a file of the library")]
mod rounds;

/// Replacements for the library's imports from the standard library.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }

    pub(crate) fn wait<'a, T>(wake: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        wake.wait(guard).unwrap()
    }
}

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use rounds::{Look, Rounds, Seen};

/// Values that a loop's items write without synchronization. loom fails if two accesses are
/// unordered.
struct Places(Vec<UnsafeCell<usize>>);

// SAFETY: loom checks the order of all accesses, which is the purpose of this test.
unsafe impl Sync for Places {}
// SAFETY: as for `Sync`.
unsafe impl Send for Places {}

/// Runs the loops on `threads` threads. Loop k, from 1, adds k to the value of each of its items.
///
/// The follower threads poll `looks` times before they sleep.
fn run(threads: usize, loops: &'static [usize], looks: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if threads > 2 { 2 } else { 3 });
    model.check(move || {
        let most = loops.iter().copied().max().unwrap_or(0);
        let rounds = Arc::new(Rounds::<usize>::new(threads));
        let places = Arc::new(Places((0..most).map(|_| UnsafeCell::new(0)).collect()));
        let each = |places: &Places, amount: usize, item: usize| {
            places.0[item].with_mut(|place| unsafe { *place += amount });
        };
        let followers: Vec<_> = (1..threads)
            .map(|thread| {
                let (rounds, places) = (rounds.clone(), places.clone());
                thread::spawn(move || {
                    follow(&rounds, looks, |seen| {
                        if rounds.enter(seen) {
                            unsafe { rounds.take_part(thread, |amount, item| each(&places, amount, item)) };
                            rounds.leave();
                            return true;
                        }
                        false
                    })
                })
            })
            .collect();
        for (number, &count) in loops.iter().enumerate() {
            unsafe { rounds.open(number + 1, count) };
            unsafe { rounds.take_part(0, |amount, item| each(&places, amount, item)) };
            rounds.close();
            while !rounds.is_empty() {
                thread::yield_now();
            }
            // Every item was executed once, and this thread sees the results without further
            // synchronization.
            for (item, place) in places.0.iter().enumerate() {
                let wanted: usize = (0..=number).filter(|&k| item < loops[k]).map(|k| k + 1).sum();
                assert_eq!(place.with(|place| unsafe { *place }), wanted, "item {item} of loop {number}");
            }
        }
        rounds.end();
        followers.into_iter().for_each(|follower| follower.join().unwrap());
    });
}

/// Takes part in every loop until the end is announced.
fn follow(rounds: &Rounds<usize>, looks: usize, mut take_part: impl FnMut(Seen) -> bool) {
    let (mut last, mut left) = (Seen::NONE, looks);
    loop {
        match rounds.look(last) {
            Look::End => return,
            Look::Open(seen) if take_part(seen) => (last, left) = (seen, looks),
            Look::Open(_) => thread::yield_now(),
            Look::Nothing(_) if left > 0 => {
                left -= 1;
                thread::yield_now();
            }
            Look::Nothing(seen) => rounds.sleep(seen),
        }
    }
}

#[test]
fn two_threads_share_two_loops() {
    run(2, &[2, 1], 0);
    // The follower polls once before it sleeps.
    run(2, &[1, 2], 1);
}

#[test]
fn three_threads_share_a_loop() {
    run(3, &[2], 0);
}
