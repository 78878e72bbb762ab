//! Ctrl-C: work stops at its next look at the watch; what does not look in time is ended, its outputs removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Error, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// How long work has to stop by itself.
const GRACE: Duration = Duration::from_millis(700);

/// Begins to listen. Where that is impossible the system's default, to end at once, stays.
pub(super) fn listen() {
    let _ = ctrlc::set_handler(|| {
        INTERRUPTED.store(true, Ordering::Release);
        std::thread::sleep(GRACE);
        // Reading, building and single long launches have no watch.
        crate::io::output::abandon();
        super::say("interrupted");
        std::process::exit(130);
    });
}

/// An error once the user has asked to stop.
pub(super) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Acquire) { Err(Error::Interrupted) } else { Ok(()) }
}
