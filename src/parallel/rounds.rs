//! Synchronization of loops that one thread opens and other threads enter.
//!
//! This file names no crate: `tests/loom` runs it with loom's types in all orders that the memory
//! model allows.

use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, UnsafeCell, lock, wait};

/// Synchronization of loops with work `W`, one open at a time.
pub(crate) struct Rounds<W> {
    /// Loop number, flags for "open" and "end", and number of threads inside, packed in bits.
    state: AtomicU64,
    /// Work and number of items of the open loop.
    work: UnsafeCell<Option<(W, usize)>>,
    /// Next item of each thread's share.
    next: Vec<Apart>,
    asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

#[repr(align(128))]
struct Apart(AtomicUsize);

const INSIDE: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
const END: u64 = 1 << 17;
const LOOP: u64 = 1 << 18;

/// State found by a thread that waits for the next loop.
pub(crate) enum Look {
    /// A loop is open that this thread has not entered before.
    Open(Seen),
    /// No new loop.
    Nothing(Seen),
    /// There will be no further loops.
    End,
}

/// Value of `Rounds::state` that a thread last read, to recognize loops that are new to it.
#[derive(Clone, Copy)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Snapshot from before the first loop.
    pub(crate) const NONE: Self = Self(0);
}

// SAFETY: the work of a loop is written while no thread is inside, and read by threads inside; they
// share it.
unsafe impl<W: Send + Sync> Sync for Rounds<W> {}

impl<W: Copy> Rounds<W> {
    /// Creates loops for `threads` threads, including the one that opens them.
    pub(crate) fn new(threads: usize) -> Self {
        assert!((threads as u64) < INSIDE, "{threads} threads are not counted in 16 bits");
        Self {
            state: AtomicU64::new(0),
            work: UnsafeCell::new(None),
            next: (0..threads).map(|_| Apart(AtomicUsize::new(0))).collect(),
            asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Number of threads that share a loop.
    pub(crate) fn threads(&self) -> usize {
        self.next.len()
    }

    /// Opens a loop of `count` items.
    ///
    /// # Safety
    /// Only one thread opens loops, after it has closed the last one and found it
    /// [`empty`](Self::is_empty).
    pub(crate) unsafe fn open(&self, work: W, count: usize) {
        // SAFETY: the last loop is closed and no thread is inside, as this function requires.
        self.work.with_mut(|place| unsafe { *place = Some((work, count)) });
        for (k, next) in self.next.iter().enumerate() {
            next.0.store(self.share(k, count), Ordering::Relaxed);
        }
        let number = self.state.load(Ordering::Relaxed) & !INSIDE;
        // Threads that enter see all writes above.
        self.state.store((number + LOOP) | OPEN, Ordering::Release);
        self.wake_sleepers();
    }

    /// Prevents further threads from entering the loop.
    pub(crate) fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
    }

    /// True if no thread is in the loop; its threads' writes are visible afterwards.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & INSIDE == 0
    }

    /// Ends the wait of all threads: there will be no further loops.
    pub(crate) fn end(&self) {
        self.state.fetch_or(END, Ordering::AcqRel);
        self.wake_sleepers();
    }

    /// Returns the state for a thread that was last in the loop `seen`.
    pub(crate) fn look(&self, seen: Seen) -> Look {
        let state = self.state.load(Ordering::Acquire);
        match () {
            () if state & END != 0 => Look::End,
            () if state & OPEN != 0 && state / LOOP != seen.0 / LOOP => Look::Open(Seen(state)),
            () => Look::Nothing(Seen(state)),
        }
    }

    /// Enters the loop of a snapshot, unless the state has changed.
    pub(crate) fn enter(&self, Seen(state): Seen) -> bool {
        self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Leaves the loop and publishes this thread's writes.
    pub(crate) fn leave(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Returns the first item of a thread's share of `count` items.
    fn share(&self, thread: usize, count: usize) -> usize {
        count * thread / self.next.len()
    }

    /// Processes items of the loop until none are left, beginning with this thread's share.
    ///
    /// # Safety
    /// This thread opened the loop and has not closed it, or is inside.
    pub(crate) unsafe fn take_part(&self, thread: usize, mut each: impl FnMut(W, usize)) {
        // SAFETY: the work is not written before this thread has left, as this function requires.
        let Some((work, count)) = self.work.with(|place| unsafe { *place }) else { return };
        for other in (thread..self.next.len()).chain(0..thread) {
            let end = self.share(other + 1, count);
            loop {
                let item = self.next[other].0.fetch_add(1, Ordering::Relaxed);
                if item >= end {
                    break;
                }
                each(work, item);
            }
        }
    }

    /// Blocks until a loop opens after that of the snapshot, or there will be no further ones.
    pub(crate) fn sleep(&self, Seen(seen): Seen) {
        let mut guard = lock(&self.sleep);
        // The opener updates `asleep`, too. If its update is later than this one, it finds a
        // sleeper and wakes it. If it is earlier, the opener's new state is visible below.
        self.asleep.fetch_add(1, Ordering::AcqRel);
        let same = |now: u64| now / LOOP == seen / LOOP && now & END == 0;
        while same(self.state.load(Ordering::Acquire)) {
            guard = wait(&self.wake, guard);
        }
        self.asleep.fetch_sub(1, Ordering::AcqRel);
    }

    fn wake_sleepers(&self) {
        if self.asleep.fetch_add(0, Ordering::AcqRel) > 0 {
            let _guard = lock(&self.sleep);
            self.wake.notify_all();
        }
    }
}
