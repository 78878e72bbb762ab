//! Ctrl-C ends every phase of a run at once, with exit code 130 and no files.
#![cfg(unix)]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Place, Run, on_cpu, section, signal};

/// Time limit for the end after an interrupt: a second is promised, but the machine may be busy.
const END: Duration = Duration::from_secs(20);

/// Interrupts a run some milliseconds after it opened its output, and asserts that it ends as
/// documented.
fn interrupt(place: &Place, line: &str, later: u64, left: &[&str]) {
    let mut child = place.start(line);
    place.await_output(&mut child);
    // The phase of a run is invisible from outside.
    std::thread::sleep(Duration::from_millis(later));
    assert!(child.try_wait().unwrap().is_none(), "kolmo {line} ended before it could be interrupted");
    let asked = Instant::now();
    assert!(signal("-INT", &[child.id()]));
    while child.try_wait().unwrap().is_none() {
        if asked.elapsed() > END {
            child.kill().unwrap();
            panic!("kolmo {line} goes on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("kolmo {line} took {:?} to stop", asked.elapsed());

    let run = Run::of(line, child.wait_with_output().unwrap()).ends(130, &["interrupted"]);

    assert!(run.stdout.is_empty(), "kolmo {line}");
    assert_eq!(place.names(), left, "kolmo {line}");
}

#[test]
fn a_run_that_reads_or_writes_a_model_stops() {
    let place = Place::new();
    // A pipe without a writer: a model that takes forever.
    assert!(Command::new("mkfifo").arg(place.path().join("m.tra")).status().unwrap().success());

    interrupt(&place, "transient m.tra --time 1 --device cpu -o p.csv", 50, &["m.tra"]);
    interrupt(&Place::new(), "generate wlan:113,6 -o m.tra", 100, &[]);
}

#[test]
#[ignore = "slow: interrupts long runs"]
fn every_command_stops() {
    for case in section(include_str!("inputs/faults.txt"), "interrupted after milliseconds") {
        let (later, line) = (case[0].parse().expect("milliseconds"), case[1]);
        let place = Place::new();
        // An older output is kept.
        place.put("p.npy", "old");
        let left: &[&str] = if line.starts_with("tune") { &["p.npy", "settings"] } else { &["p.npy"] };
        interrupt(&place, &on_cpu(line), later, left);
        assert_eq!(place.text("p.npy"), "old");
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let place = Place::new();
    let mut child = place.start("generate wlan:113,6 -o m.tra");
    place.await_output(&mut child);
    let asked = Instant::now();
    // Two simultaneous signals count as one: repeated until one of them is the second.
    while child.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < END, "it goes on");
        signal("-INT", &[child.id()]);
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(130));
    assert!(place.names().is_empty(), "{:?}", place.names());
}
