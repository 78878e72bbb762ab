//! Runs the Python tests of the package with the module that Cargo built for this program.

#![cfg(target_os = "linux")]

use std::env::current_exe;
use std::process::Command;

#[test]
#[ignore = "slow: makes a wheel and an environment of its own"]
fn the_wheel_passes_the_tests_of_the_package() {
    let program = current_exe().expect("this program has a path");
    let built = program.parent().expect("it lies in a folder");
    let status = Command::new("sh")
        .arg("test.sh")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("KOLMO_MODULE", built.join("lib_kolmo.so"))
        .env("KOLMO", built.with_file_name("kolmo"))
        .status()
        .expect("sh starts");
    assert!(status.success(), "python/test.sh: {status}");
}
