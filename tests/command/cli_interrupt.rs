//! Ctrl-C ends every phase of a run at once, with exit code 130 and no files.
#![cfg(unix)]

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::support::Place;

/// Time limit for the start of a run, generous since the machine may be busy.
const START: Duration = Duration::from_secs(60);
/// Time limit for the end after an interrupt: a second is promised, but the machine may be busy.
const END: Duration = Duration::from_secs(20);

/// Waits until the run has opened its output, which it does before all work.
fn begun(place: &Place, child: &mut Child) {
    let started = Instant::now();
    while !place.is_written_by(child) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be interrupted");
        assert!(started.elapsed() < START, "no output was opened: {:?}", place.names());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Interrupts a run `later` after its start, and asserts that it ends as documented.
fn interrupt(place: &Place, line: &str, later: Duration, left: &[&str]) {
    let mut child = place.start(line);
    begun(place, &mut child);
    // The phase of a run is invisible from outside.
    std::thread::sleep(later);
    assert!(child.try_wait().unwrap().is_none(), "kolmo {line} ended before it could be interrupted");
    let asked = Instant::now();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    while child.try_wait().unwrap().is_none() {
        if asked.elapsed() > END {
            child.kill().unwrap();
            panic!("kolmo {line} goes on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let took = asked.elapsed();

    let output = child.wait_with_output().unwrap();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "kolmo {line}\n{stderr}");
    println!("kolmo {line} took {took:?} to stop");
    assert!(stderr.contains("interrupted") && !stderr.contains("panicked"), "{stderr}");
    assert!(output.stdout.is_empty(), "kolmo {line}");
    assert_eq!(place.names(), left, "kolmo {line}");
}

#[test]
#[ignore = "slow: interrupts long runs"]
fn a_run_that_multiplies_stops() {
    let place = Place::new();
    place.put("p.npy", "old");
    let line = "transient wlan:12,6 --time 1e6 --device cpu -o p.npy --report r.json";

    interrupt(&place, line, Duration::from_millis(1500), &["p.npy"]);

    assert_eq!(place.text("p.npy"), "old");
}

#[test]
#[ignore = "slow: interrupts long runs"]
fn a_run_that_builds_stops() {
    let place = Place::new();
    let line = "transient wlan:60,6 --time 1e6 --device cpu -o p.npy";
    for later in [0, 100, 400] {
        interrupt(&place, line, Duration::from_millis(later), &[]);
    }
}

#[test]
fn a_run_that_reads_stops() {
    let place = Place::new();
    // A pipe without a writer: a model that takes forever.
    assert!(Command::new("mkfifo").arg(place.path().join("m.tra")).status().unwrap().success());

    interrupt(
        &place,
        "transient m.tra --time 1 --device cpu -o p.csv",
        Duration::from_millis(50),
        &["m.tra"],
    );
}

#[test]
fn a_run_that_writes_a_model_stops() {
    let place = Place::new();

    interrupt(&place, "generate wlan:113,6 -o m.tra", Duration::from_millis(100), &[]);
}

#[test]
#[ignore = "slow: interrupts long runs"]
fn a_benchmark_stops() {
    let place = Place::new();
    let line = "bench transient wlan:60,6 --time 1e3 --device cpu --report r.jsonl";

    interrupt(&place, line, Duration::from_millis(700), &[]);
}

#[test]
#[ignore = "slow: interrupts long runs"]
fn every_other_command_stops() {
    let lines = [
        (
            "walk poisson2d:200,0.99 --component 0-3000 --epsilon 1e-9 --control none --device cpu -o x.csv",
            600,
        ),
        ("walk poisson2d:200,0.99 --component 0-3000 --epsilon 1e-9 --lazy --device cpu,cpu -o x.csv", 600),
        ("tridiagonal random:20000000 --device cpu -o x.npy --report r.json", 300),
        ("tune --device cpu --report r.json", 800),
        ("bench spmv wlan:30,6 --repeat 100000 --device cpu --report r.jsonl", 900),
        ("bench walk poisson2d:200,0.99 --repeat 100000 --device cpu --report r.jsonl", 900),
        ("bench tridiagonal random:4000000 --repeat 1000 --device cpu --report r.jsonl", 900),
        ("bench transfer --repeat 100000 --device cpu --report r.jsonl", 900),
        ("bench seed-table --sizes 40 --device cpu --report r.jsonl", 900),
    ];
    for (line, later) in lines {
        let place = Place::new();
        let left: &[&str] = if line.starts_with("tune") { &["settings"] } else { &[] };
        interrupt(&place, line, Duration::from_millis(later), left);
    }
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let place = Place::new();
    let mut child = place.start("generate wlan:113,6 -o m.tra");
    begun(&place, &mut child);
    let asked = Instant::now();
    // Two simultaneous signals count as one: repeated until one of them is the second.
    while child.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < END, "it goes on");
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(130));
    assert!(place.names().is_empty(), "{:?}", place.names());
}
