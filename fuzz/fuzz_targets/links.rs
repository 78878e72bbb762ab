#![no_main]

#[path = "../../tests/fuzz/harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness::run("links", bytes));
