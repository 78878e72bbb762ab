//! The `kolmo` command.

#![expect(unsafe_code, reason = "the environment is how drivers are configured")]

use std::process::ExitCode;

use kolmo::ranks::Session;

fn main() -> ExitCode {
    // Copies between ranks overlap with steps, in a stream of their own, which one queue would hold up.
    let one_queue = !Session::is_launched() && kolmo_cli::cli::has_one_stream();
    // SAFETY: nothing has run before this, and so no thread.
    unsafe { kolmo::lane::prepare_drivers(one_queue) };
    kolmo_cli::cli::main()
}
