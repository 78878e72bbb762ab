//! State of the process before its runtime began.

#![expect(unsafe_code, reason = "a list of functions that the loader calls is the system's memory")]

use std::sync::atomic::{AtomicBool, Ordering};

/// True where the process was started with a closed stdout, which the runtime replaces by `/dev/null`.
static WITHOUT_STDOUT: AtomicBool = AtomicBool::new(false);

/// Runs before the runtime.
// SAFETY: the section `.init_array` holds pointers to functions of the C calling convention, which the loader calls one
// after the other before `main`. This one ignores their arguments, makes a system call and stores a flag.
#[cfg(target_os = "linux")]
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_stdout;

#[cfg(target_os = "linux")]
extern "C" fn note_stdout() {
    WITHOUT_STDOUT.store(rustix::io::fcntl_getfd(std::io::stdout()).is_err(), Ordering::Relaxed);
}

/// True where this process was started without a stdout, as far as the system tells.
pub(crate) fn without_stdout() -> bool {
    WITHOUT_STDOUT.load(Ordering::Relaxed)
}
