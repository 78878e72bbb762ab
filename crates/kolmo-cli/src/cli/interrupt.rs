//! Ctrl-C: work stops at its next look at the watch; what does not look in time is ended, its outputs removed.
//! A second Ctrl-C ends it at once.

#![cfg_attr(target_family = "wasm", allow(dead_code, reason = "a page ends its worker"))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kolmo::ranks::Ranks;
use kolmo::transient::checkpoint;
use kolmo::{Error, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Time for work to stop by itself.
const GRACE: Duration = Duration::from_millis(700);
/// Time for which a rank keeps its outputs: once one has died `mpirun` kills the others a second after it asked them to end.
const GRACE_OF_OUTPUTS: Duration = Duration::from_millis(200);

/// Begins to listen. Where that is impossible the system's default, to end at once, stays. Of one of several ranks the
/// launcher says why they end.
pub(super) fn listen(ranks: Ranks) {
    let stop = move || {
        if INTERRUPTED.swap(true, Ordering::AcqRel) {
            end(ranks);
        }
        std::thread::spawn(move || {
            std::thread::sleep(GRACE_OF_OUTPUTS);
            if ranks.is_distributed() && !checkpoint::busy() {
                kolmo::output::abandon();
            }
            std::thread::sleep(GRACE - GRACE_OF_OUTPUTS);
            // What is being kept for a run that resumes is worth a moment; asking twice ends it too.
            while checkpoint::busy() {
                std::thread::sleep(GRACE / 10);
            }
            end(ranks);
        });
    };
    #[cfg(not(target_family = "wasm"))]
    let _ = ctrlc::set_handler(stop);
    #[cfg(target_family = "wasm")]
    let _ = stop;
}

/// Has an allocation that fails where nobody can answer for it end with the exit code of all other lack of memory (the
/// runtime says how much was asked for, and aborts), and a file beyond `ulimit -f` be an error of writing.
pub(super) fn answer_for_limits() {
    #[cfg(unix)]
    {
        let always = std::sync::Arc::new(AtomicBool::new(true));
        // Where that is impossible the system's default stays.
        let _ = signal_hook::flag::register_conditional_shutdown(signal_hook::consts::SIGABRT, 2, always);
        let noted = std::sync::Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, noted);
    }
}

/// Ends the process. Reading, building and single long launches have no watch.
fn end(ranks: Ranks) -> ! {
    kolmo::output::abandon();
    if !ranks.is_distributed() {
        super::say("interrupted");
    }
    std::process::exit(130)
}

/// An error once the user has asked to stop.
pub(super) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Acquire) { Err(Error::Interrupted) } else { Ok(()) }
}
