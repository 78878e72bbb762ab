//! Every target of the harness; the environment variable `KOLMO_FUZZ_TARGET` has its name.

#![no_main]

#[path = "../../tests/fuzz/harness.rs"]
mod harness;

use std::sync::LazyLock;

static TARGET: LazyLock<String> =
    LazyLock::new(|| std::env::var("KOLMO_FUZZ_TARGET").expect("KOLMO_FUZZ_TARGET has a target's name"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::run(&TARGET, bytes));
