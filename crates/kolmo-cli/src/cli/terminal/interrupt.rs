//! Ctrl-C: the work stops at its next check of the flag. Work that does not check within 0.7 s is
//! killed, and its output files are removed. A second Ctrl-C kills it at once.

#![cfg_attr(target_family = "wasm", allow(dead_code, reason = "a page ends its worker"))]

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::prelude::*;
use kolmo::transient::checkpoint;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Time after Ctrl-C in which the work can stop before the process is ended.
const GRACE: Duration = Duration::from_millis(700);
/// Time after which a rank removes its unfinished outputs.
///
/// Once a rank has died, `mpirun` kills the others one second after it has asked them to end.
const GRACE_OF_OUTPUTS: Duration = Duration::from_millis(200);

/// Installs the signal handler.
///
/// If that is impossible, the system's default remains, which ends the process at once. With
/// several ranks nothing is printed: the launcher reports why they end.
pub(crate) fn listen(ranks: Ranks) {
    let stop = move || {
        if INTERRUPTED.swap(true, Ordering::AcqRel) {
            end(ranks);
        }
        let wait = move || {
            std::thread::sleep(GRACE_OF_OUTPUTS);
            if ranks.is_distributed() && !checkpoint::busy() {
                kolmo::output::abandon();
            }
            std::thread::sleep(GRACE - GRACE_OF_OUTPUTS);
            // A checkpoint that is being written is worth waiting for; a second Ctrl-C ends it too.
            while checkpoint::busy() {
                std::thread::sleep(GRACE / 10);
            }
            end(ranks);
        };
        if std::thread::Builder::new().spawn(wait).is_err() {
            // A second Ctrl-C is not heard until then.
            wait();
        }
    };
    #[cfg(not(target_family = "wasm"))]
    let _ = ctrlc::set_handler(stop);
    #[cfg(target_family = "wasm")]
    let _ = stop;
}

/// Turns exceeded resource limits into ordinary errors.
///
/// A failed allocation that no caller handles aborts; the exit code is then 2, as for other lack of
/// memory, and the runtime has printed the size. A file larger than `ulimit -f` is a write error.
pub(crate) fn answer_for_limits() {
    #[cfg(unix)]
    {
        let always = std::sync::Arc::new(AtomicBool::new(true));
        // If this fails, the system's default remains.
        let _ = signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGABRT, 2, always);
        let noted = std::sync::Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted);
    }
}

/// Removes unfinished outputs and ends the process with exit code 130.
///
/// Needed for work that does not check for interrupts: reading, building, long launches.
fn end(ranks: Ranks) -> ! {
    kolmo::output::abandon();
    if !ranks.is_distributed() {
        say("interrupted");
    }
    std::process::exit(130)
}

/// Returns an error once the user has pressed Ctrl-C.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Acquire) { Err(Error::Interrupted) } else { Ok(()) }
}
