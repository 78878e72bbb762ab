//! State of the process before the start of Rust's runtime.

#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "a list of functions that the loader calls is the system's memory")
)]

use std::sync::atomic::{AtomicBool, Ordering};

/// True if the process was started with a closed stdout. The runtime replaces a closed stdout by
/// `/dev/null`.
static WITHOUT_STDOUT: AtomicBool = AtomicBool::new(false);

/// Runs [`note_stdout`] before the runtime starts.
// SAFETY: the section `.init_array` holds pointers to functions of the C calling convention, which
// the loader calls in turn before `main`. This function ignores its arguments, makes a system call
// and stores a flag.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_stdout;

#[cfg(target_os = "linux")]
extern "C" fn note_stdout() {
    WITHOUT_STDOUT.store(rustix::io::fcntl_getfd(std::io::stdout()).is_err(), Ordering::Relaxed);
}

/// Returns true if this process was started without a stdout; false where this is not known.
pub(crate) fn without_stdout() -> bool {
    WITHOUT_STDOUT.load(Ordering::Relaxed)
}
