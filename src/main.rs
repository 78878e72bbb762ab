//! The `kolmo` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    kolmo::cli::main()
}
