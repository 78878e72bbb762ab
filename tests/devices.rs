//! Devices, libraries and tools that tests need, and the messages of skipped tests.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;

/// True if `KOLMO_REQUIRE_DEVICES` names this device, library or tool.
pub(crate) fn required(name: &str) -> bool {
    std::env::var("KOLMO_REQUIRE_DEVICES").is_ok_and(|all| all.split(',').any(|one| one == name))
}

/// Reports that the running test is skipped for lack of `what`; panics if that is required.
///
/// The message goes to stderr directly, since the test harness hides the output of passing tests.
/// It is also appended to the file `KOLMO_SKIPPED`, whose lines `tests/run.sh` counts.
#[track_caller]
pub(crate) fn skip(what: &str, why: impl Display) {
    assert!(!what.split(',').all(required), "{what} is required: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let why = why.to_string().replace(['\n', '\t'], " ");
    // stderr may be closed.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
    if let Some(path) = std::env::var_os("KOLMO_SKIPPED") {
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).expect("a file of KOLMO_SKIPPED");
        // One write, since tests run concurrently.
        file.write_all(format!("{what}\t{test}\t{why}\n").as_bytes()).expect("the list of what is skipped");
    }
}
