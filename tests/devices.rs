//! What a test needs of its machine, and what is said where that is missing.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Whether `KOLMO_REQUIRE_DEVICES` names it: a device, a library or a tool.
pub(crate) fn required(name: &str) -> bool {
    std::env::var("KOLMO_REQUIRE_DEVICES").is_ok_and(|all| all.split(',').any(|one| one == name))
}

/// Says that the running test is left out for lack of `what`, which must not be required: past the test harness, which
/// keeps what passing tests print to itself, and in the file that `KOLMO_SKIPPED` names, whose lines `tests/run.sh` counts.
#[track_caller]
pub(crate) fn skip(what: &str, why: impl Display) {
    assert!(!what.split(',').all(required), "{what} is required: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = why.to_string().replace(['\n', '\t'], " ");
    // Where stderr is closed nobody reads it.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
    if let Some(path) = std::env::var_os("KOLMO_SKIPPED") {
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).expect("a file of KOLMO_SKIPPED");
        // One write: tests run side by side.
        file.write_all(format!("{what}\t{test}\t{why}\n").as_bytes()).expect("the list of what is skipped");
    }
}
