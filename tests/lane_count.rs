//! Lanes on the command line: their transfers.
#![cfg(feature = "cli")]

#[path = "support/command.rs"]
mod command;

use command::Place;
use serde_json::Value;

/// Whether a device is here; one that KOLMO_REQUIRE_DEVICES names must be.
fn here(device: &str) -> bool {
    let list: Value =
        serde_json::from_str(&Place::new().kolmo("devices --format json").stdout).expect("JSON");
    let usable = |d: &Value| d["device"] == device && d["usable"] == true;
    let found = list.as_array().expect("a list").iter().any(usable);
    let required = std::env::var("KOLMO_REQUIRE_DEVICES").unwrap_or_default();
    assert!(
        found || !required.split(',').any(|d| d == device),
        "{device} is required and not here: {list:#}"
    );
    if !found {
        println!("skipped: {device} is not here");
    }
    found
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

fn transfers(device: &str) {
    if !here(device) {
        return;
    }
    let place = Place::new();

    let run =
        place.kolmo(&format!("bench transfer --device {device} --size 1000KiB --repeat 2 --report r.jsonl"));

    assert_eq!(run.code, 0, "{}", run.stderr);
    let all = lines(&place.text("r.jsonl"));
    let cases = ["host to device", "device to host", "round trip", "copy on the device"];
    let mut expected = Vec::new();
    for lanes in [1, 2, 4, 8, 16, 32] {
        expected.extend(cases.map(|case| (lanes, case)));
    }
    let got: Vec<(u64, &str)> =
        all.iter().map(|r| (r["lanes"].as_u64().unwrap(), r["case"].as_str().unwrap())).collect();
    assert_eq!(got, expected);
    for record in &all {
        for key in ["bench", "device", "backend", "precision", "n", "nnz", "format", "bytes", "bytes_moved"] {
            assert!(!record[key].is_null(), "no {key} in {record}");
        }
        let bytes = record["bytes"].as_f64().unwrap();
        let median = record["seconds"]["median"].as_f64().unwrap();
        // What reads the numbers here may be off by the last digit of each.
        let rate = record["gb_per_s"].as_f64().unwrap() / (bytes / median / 1e9);
        assert!((rate - 1.0).abs() <= 4.0 * f64::EPSILON, "{record}");
        assert_eq!(record["repetitions"], 2);
        assert_eq!(record["relative_error"], 0.0);
        assert!(record["copy_gb_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(record["bytes"].as_u64().unwrap() % (1000 << 10), 0);
    }
    // A header, and a line for each.
    assert_eq!(run.stdout.lines().filter(|line| !line.trim().is_empty()).count(), 1 + all.len());
}

#[test]
fn transfers_on_the_cpu() {
    transfers("cpu");
}

#[cfg(feature = "wgpu")]
#[test]
fn transfers_on_wgpu() {
    transfers("wgpu:0");
}

#[cfg(feature = "cuda")]
#[test]
fn transfers_on_cuda() {
    transfers("cuda:0");
}

#[test]
fn transfers_can_be_of_one_number_of_lanes() {
    let run = Place::new().kolmo("bench transfer --device cpu --lanes 3 --size 4KiB --repeat 1");

    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout.matches(" 3 ").count(), 4, "{}", run.stdout);
}

#[test]
fn transfers_of_nothing_are_refused() {
    for (line, word) in [("--repeat 0", "--repeat"), ("--size 4095", "--size"), ("--lanes 0", "lanes")] {
        let run = Place::new().kolmo(&format!("bench transfer --device cpu {line}"));

        assert_eq!(run.code, 2, "{line}");
        assert!(run.stderr.contains(word), "{line}: {}", run.stderr);
    }
}
