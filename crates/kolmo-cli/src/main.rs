//! The `kolmo` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    kolmo_cli::cli::main()
}
