//! Loops that one thread opens and others enter: the order of reads and writes between them, and nothing else. The file names
//! no crate, since `tests/loom` runs it with loom's types in all orders that the memory model allows.

use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, UnsafeCell, lock, wait};

/// Loops of work `W`, one open at a time.
pub(crate) struct Rounds<W> {
    /// The number of the loop, whether it is open, whether there are to be no more, and how many threads are in it.
    state: AtomicU64,
    /// Work of the open loop, and how many items it has.
    work: UnsafeCell<Option<(W, usize)>>,
    /// The next item of each thread's share.
    next: Vec<Apart>,
    /// Threads that sleep.
    asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

/// A number in a cache line of its own.
#[repr(align(128))]
struct Apart(AtomicUsize);

const INSIDE: u64 = (1 << 16) - 1;
const OPEN: u64 = 1 << 16;
const END: u64 = 1 << 17;
const LOOP: u64 = 1 << 18;

/// Finding of a thread that waits for the next loop.
pub(crate) enum Look {
    /// A loop that it was not in yet.
    Open(Seen),
    /// Nothing new.
    Nothing(Seen),
    /// There are to be no more.
    End,
}

/// The state as it was seen.
#[derive(Clone, Copy)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Before the first loop.
    pub(crate) const NONE: Self = Self(0);
}

// SAFETY: the work of a loop is written while no thread is in one, and read by threads that are in it; they share it.
unsafe impl<W: Send + Sync> Sync for Rounds<W> {}

impl<W: Copy> Rounds<W> {
    /// Loops that so many threads share, the opener among them.
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
    /// One thread alone opens loops, after it has closed the last one and found it [`empty`](Self::is_empty).
    pub(crate) unsafe fn open(&self, work: W, count: usize) {
        // SAFETY: the last loop is closed and no thread is in it, as this function demands.
        self.work.with_mut(|place| unsafe { *place = Some((work, count)) });
        for (k, next) in self.next.iter().enumerate() {
            next.0.store(self.share(k, count), Ordering::Relaxed);
        }
        let number = self.state.load(Ordering::Relaxed) & !INSIDE;
        // Whoever enters sees all of the above.
        self.state.store((number + LOOP) | OPEN, Ordering::Release);
        self.wake_sleepers();
    }

    /// Lets no further thread into the loop.
    pub(crate) fn close(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
    }

    /// No thread is in the loop; what they did is seen from here on.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.load(Ordering::Acquire) & INSIDE == 0
    }

    /// Lets all threads go that wait for a loop.
    pub(crate) fn end(&self) {
        self.state.fetch_or(END, Ordering::AcqRel);
        self.wake_sleepers();
    }

    /// Tells what there is for a thread that was in the loop `seen` last.
    pub(crate) fn look(&self, seen: Seen) -> Look {
        let state = self.state.load(Ordering::Acquire);
        match () {
            () if state & END != 0 => Look::End,
            () if state & OPEN != 0 && state / LOOP != seen.0 / LOOP => Look::Open(Seen(state)),
            () => Look::Nothing(Seen(state)),
        }
    }

    /// Enters the loop that was seen, unless the state is another by now.
    pub(crate) fn enter(&self, Seen(state): Seen) -> bool {
        self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Leaves the loop. What this thread did in it is published.
    pub(crate) fn leave(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// The first item of a thread's share.
    fn share(&self, thread: usize, count: usize) -> usize {
        count * thread / self.next.len()
    }

    /// Does items of the loop until none are left, this thread's own first.
    ///
    /// # Safety
    /// This thread opened the loop and has not closed it, or is in it.
    pub(crate) unsafe fn take_part(&self, thread: usize, mut each: impl FnMut(W, usize)) {
        // SAFETY: the work is not written before this thread has left, as this function demands.
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

    /// Sleeps until a loop behind that of the state that was seen begins, or there are to be no more.
    pub(crate) fn sleep(&self, Seen(seen): Seen) {
        let mut guard = lock(&self.sleep);
        // Either the opener's addition to this number comes later, finds a sleeper and wakes it; or it came before, and what the
        // opener did is seen below.
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
