//! The `kolmo` command.

#![expect(unsafe_code, reason = "the environment is how drivers are configured")]

use std::process::ExitCode;

use kolmo::ranks::Session;

fn main() -> ExitCode {
    // Ranks overlap copies with steps in a second stream. A single hardware queue would serialise
    // the two streams.
    let queues = if Session::is_launched() { None } else { kolmo_cli::cli::cuda_queues() };
    // SAFETY: this is the first statement that has an effect, so no other thread exists.
    unsafe { kolmo::lane::prepare_drivers(queues) };
    kolmo_cli::cli::main()
}
