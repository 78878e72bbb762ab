//! Start of rayon's thread pool on systems that may refuse to start threads.

use std::error::Error;
use std::sync::OnceLock;

use rayon::ThreadPoolBuilder;

/// Starts rayon's global pool with at most one thread per processor.
///
/// Does nothing if the current thread is in a pool or the global pool runs. If the system refuses
/// to start threads, the current thread does the work itself; rayon alone would panic.
pub fn start_threads() {
    static STARTED: OnceLock<bool> = OnceLock::new();
    if rayon::current_thread_index().is_some() {
        return;
    }
    let started = STARTED.get_or_init(|| {
        let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
        let asked = asked.filter(|&count| count > 0).unwrap_or(usize::MAX);
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(asked);
        let started = ThreadPoolBuilder::new().num_threads(count).build_global();
        // An error without a source means that the pool exists already.
        started.err().is_none_or(|e| e.source().is_none())
    });
    if !started && let Ok(pool) = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build() {
        // The current thread is the pool from now on.
        std::mem::forget(pool);
    }
}
