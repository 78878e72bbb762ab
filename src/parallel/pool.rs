//! Threads of this crate, and the way into them.
//!
//! A thread of a rayon pool that waits for another pool takes up further work of its own pool meanwhile: on top of its
//! stack, and of the locks that it holds. A caller that is a thread of some pool could so come to the same lock again, or
//! nest without end. Callers therefore sleep until the threads here are done, and the threads here run loops of this crate
//! alone.

#![expect(unsafe_code, reason = "work that is borrowed while its caller sleeps")]

use std::cell::Cell;
use std::iter::successors;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, OnceLock, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

thread_local! {
    /// This thread belongs to a pool that [`build`] made.
    static MEMBER: Cell<bool> = const { Cell::new(false) };
}

/// Most threads that loops may have, 0 where nothing says so.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// A pool of so many threads, all of which run.
pub(crate) fn build(threads: usize, name: &'static str) -> Result<ThreadPool, ThreadPoolBuildError> {
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(move |i| format!("{name}-{i}"));
    let pool = builder.start_handler(|_| MEMBER.set(true)).build()?;
    // A thread that finds no memory to begin with would panic later.
    in_each(&pool, &|_| ());
    Ok(pool)
}

/// Leaves the pool of all loops at most so many threads, if it is not made yet.
#[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "ranks alone share the processors of a host"))]
pub(crate) fn limit(threads: usize) {
    LIMIT.store(threads, Ordering::Relaxed);
}

/// Threads that the pool of all loops is to have: one a processor, or fewer where `RAYON_NUM_THREADS` says so.
fn wanted() -> usize {
    let number = |text: String| text.parse().ok().filter(|&count| count > 0);
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(number).unwrap_or(usize::MAX);
    let limit = Some(LIMIT.load(Ordering::Relaxed)).filter(|&limit| limit > 0).unwrap_or(usize::MAX);
    std::thread::available_parallelism().map_or(1, usize::from).min(asked).min(limit)
}

/// The pool of all loops: of fewer threads where the system does not give more, none where that leaves one.
pub(super) fn of_all_loops() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let fewer = |&threads: &usize| (threads > 3).then_some(threads / 2);
    let make = || {
        let counts = successors(Some(wanted()).filter(|&threads| threads > 1), fewer);
        (!cfg!(target_family = "wasm"))
            .then(|| counts.map_while(Some).find_map(|n| build(n, "kolmo").ok()))?
    };
    POOL.get_or_init(make).as_ref()
}

/// Tells if this thread belongs to a pool that [`build`] made.
pub(crate) fn is_member() -> bool {
    MEMBER.get()
}

/// Threads that loops of this thread are shared out to.
pub fn threads() -> usize {
    if MEMBER.get() {
        rayon::current_num_threads()
    } else {
        of_all_loops().map_or(1, ThreadPool::current_num_threads)
    }
}

/// Does work in a thread of the pool of all loops, or of that which this thread belongs to; false without doing it where
/// there is no pool.
pub(super) fn inside(work: &mut (dyn FnMut() + Send)) -> bool {
    match MEMBER.get() {
        true => work(),
        false => match of_all_loops() {
            Some(pool) => enter(pool, work),
            None => return false,
        },
    }
    true
}

/// Does work in a thread of a pool.
pub(crate) fn enter(pool: &ThreadPool, work: &mut (dyn FnMut() + Send)) {
    if pool.current_thread_index().is_some() {
        return work();
    }
    let work = Mutex::new(work);
    let once = |_| work.lock().unwrap_or_else(PoisonError::into_inner)();
    sleep(1, &once, |job| pool.spawn(move || job(0)));
}

/// Calls `work` with the number of each thread of a pool, in all of them at once. The caller is none of them.
pub(crate) fn in_each(pool: &ThreadPool, work: &(dyn Fn(usize) + Sync)) {
    assert!(pool.current_thread_index().is_none(), "a thread of a pool waits for all of it");
    sleep(pool.current_num_threads(), work, |job| pool.spawn_broadcast(move |thread| job(thread.index())));
}

/// Sleeps until as many calls of a job as `begin` began are done.
fn sleep(calls: usize, job: &(dyn Fn(usize) + Sync), begin: impl FnOnce(Box<dyn Fn(usize) + Send + Sync>)) {
    let (tell, told) = sync_channel(calls);
    // SAFETY: the reference is used by the calls alone, each of which tells that it is done when it no longer has it; this
    // function returns, and the borrow ends, when all have told.
    let job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job) };
    begin(Box::new(move |number| {
        let done = catch_unwind(AssertUnwindSafe(|| job(number)));
        // There is room for all of them, and who waits is there.
        let _ = tell.send(done);
    }));
    // Calls that are dropped unmade leave nothing to wait for.
    let done: Vec<_> = (0..calls).map_while(|_| told.recv().ok()).collect();
    if let Some(panic) = done.into_iter().find_map(Result::err) {
        resume_unwind(panic);
    }
}
