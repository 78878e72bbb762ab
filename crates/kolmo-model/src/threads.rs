//! Threads of rayon's pool, where the system may have none to give.

use std::error::Error;
use std::sync::OnceLock;

use rayon::ThreadPoolBuilder;

/// Starts rayon's threads, at most one a processor, unless this thread is in a pool or they run. Where the system does not
/// give them, work of this thread runs in this thread; rayon itself would panic.
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
        // An error without a source says that the pool is there already.
        started.err().is_none_or(|e| e.source().is_none())
    });
    if !started && let Ok(pool) = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build() {
        // This thread is the pool from now on.
        std::mem::forget(pool);
    }
}
