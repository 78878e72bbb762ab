//! Thread pool of this crate, and safe entry into it.
//!
//! A rayon thread that waits for another pool meanwhile executes further tasks of its own pool, on
//! its stack and with its locks held. A caller in some pool could thus reach a lock that it holds,
//! or nest without end. Therefore callers block until the threads of this pool are done, and these
//! threads only run loops of this crate.

#![expect(unsafe_code, reason = "work that is borrowed while its caller sleeps")]

use std::cell::Cell;
use std::iter::successors;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, OnceLock};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::lock;

thread_local! {
    /// True if this thread belongs to a pool made by [`build`].
    static MEMBER: Cell<bool> = const { Cell::new(false) };
}

/// Largest number of threads for loops; 0 means no limit.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Builds a pool of `threads` threads and checks that all of them run.
pub(crate) fn build(threads: usize, name: &'static str) -> Result<ThreadPool, ThreadPoolBuildError> {
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(move |i| format!("{name}-{i}"));
    let pool = builder.start_handler(|_| MEMBER.set(true)).build()?;
    // A thread without enough memory to start would panic later.
    in_each(&pool, &|_| ());
    Ok(pool)
}

/// Limits the threads of the global pool, unless it has already been built.
#[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "ranks alone share the processors of a host"))]
pub(crate) fn limit(threads: usize) {
    LIMIT.store(threads, Ordering::Relaxed);
}

/// Returns the number of threads of the global pool: one per processor, unless it is limited.
fn wanted() -> usize {
    let number = |text: String| text.parse().ok().filter(|&count| count > 0);
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(number).unwrap_or(usize::MAX);
    let limit = Some(LIMIT.load(Ordering::Relaxed)).filter(|&limit| limit > 0).unwrap_or(usize::MAX);
    std::thread::available_parallelism().map_or(1, usize::from).min(asked).min(limit)
}

/// Returns the global pool; `None` if it would have only one thread.
///
/// If the system refuses that many threads, the pool has fewer.
pub(super) fn global() -> Option<&'static ThreadPool> {
    static POOL: OnceLock<Option<ThreadPool>> = OnceLock::new();
    let fewer = |&threads: &usize| (threads > 3).then_some(threads / 2);
    let make = || {
        let counts = successors(Some(wanted()).filter(|&threads| threads > 1), fewer);
        (!cfg!(target_family = "wasm"))
            .then(|| counts.map_while(Some).find_map(|n| build(n, "kolmo").ok()))?
    };
    POOL.get_or_init(make).as_ref()
}

/// True if this thread belongs to a pool made by [`build`].
pub(crate) fn is_member() -> bool {
    MEMBER.get()
}

/// Returns the number of threads among which loops of this thread are divided.
pub fn threads() -> usize {
    if MEMBER.get() {
        rayon::current_num_threads()
    } else {
        global().map_or(1, ThreadPool::current_num_threads)
    }
}

/// Runs `work` in a thread of the global pool or of this thread's pool; false without a pool.
pub(super) fn inside(work: &mut (dyn FnMut() + Send)) -> bool {
    match MEMBER.get() {
        true => work(),
        false => match global() {
            Some(pool) => enter(pool, work),
            None => return false,
        },
    }
    true
}

pub(crate) fn enter(pool: &ThreadPool, work: &mut (dyn FnMut() + Send)) {
    if pool.current_thread_index().is_some() {
        return work();
    }
    let work = Mutex::new(work);
    let once = |_| lock(&work)();
    sleep(1, &once, |job| pool.spawn(move || job(0)));
}

/// Calls `work` with each thread number of a pool, concurrently. The caller is not in the pool.
pub(crate) fn in_each(pool: &ThreadPool, work: &(dyn Fn(usize) + Sync)) {
    assert!(pool.current_thread_index().is_none(), "a thread of a pool waits for all of it");
    sleep(pool.current_num_threads(), work, |job| pool.spawn_broadcast(move |thread| job(thread.index())));
}

/// Blocks until the calls of a job that `begin` starts are done.
fn sleep(calls: usize, job: &(dyn Fn(usize) + Sync), begin: impl FnOnce(Box<dyn Fn(usize) + Send + Sync>)) {
    let (tell, told) = sync_channel(calls);
    // SAFETY: only the calls use the reference, and each reports when it no longer has it. This
    // function returns, and the borrow ends, after all reports.
    let job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job) };
    begin(Box::new(move |number| {
        let done = catch_unwind(AssertUnwindSafe(|| job(number)));
        // The channel has capacity for all reports, and its receiver exists.
        let _ = tell.send(done);
    }));
    // Calls that were dropped without running are not waited for.
    let done: Vec<_> = (0..calls).map_while(|_| told.recv().ok()).collect();
    if let Some(panic) = done.into_iter().find_map(Result::err) {
        resume_unwind(panic);
    }
}
