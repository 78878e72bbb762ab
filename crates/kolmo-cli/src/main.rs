//! The `kolmo` command.

use std::process::ExitCode;

/// Runs before the runtime, which opens `/dev/null` in place of a closed stdout.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the section is a list of functions that the loader calls")]
// SAFETY: `.init_array` holds pointers to functions that take no arguments they need and return; this is one. It makes a
// system call and stores a flag, which needs nothing of the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn note() {
        kolmo::output::note_closed_stdout();
    }
    note
};

fn main() -> ExitCode {
    kolmo_cli::cli::main()
}
