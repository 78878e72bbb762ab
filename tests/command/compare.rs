//! `kolmo bench compare`: its lines and its table.

use std::collections::BTreeMap;

use crate::support::{Place, RECORD, float, has};

/// The devices of the test: a software adapter as well if it is required.
fn devices() -> &'static str {
    if crate::devices::required("wgpu:0") { "cpu,wgpu:0" } else { "cpu" }
}

#[test]
#[ignore = "slow: measures"]
fn devices_are_compared_and_stored_lines_shown_next_to_another_run() {
    let place = Place::new();
    // Copies are measured on as much memory as is available.
    let line = "bench compare --size tiny --repeat 1 --memory-limit 100MiB -q";

    let first = place.ok(&format!("{line} --device {} --report a.json", devices()));

    let lines = place.json_lines("a.json");
    let mut parts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in &lines {
        has(line, RECORD);
        let number = |key: &str| float(line, key);
        assert!(number("seconds.min") <= number("seconds.median") && number("seconds.min") > 0.0, "{line}");
        assert!(number("speed") > 0.0, "{line}");
        // All of this work is in double precision; the coarsest results are from walks.
        assert!(number("relative_error") >= 0.0 && number("relative_error") < 1.0, "{line}");
        let exact = matches!(line["part"].as_str(), Some("step" | "transient" | "tridiagonal"));
        assert!(!exact || number("relative_error") < 1e-6, "{line}");
        parts.entry(line["part"].as_str().unwrap()).or_default().push(line["spec"].as_str().unwrap());
    }
    for part in ["step", "transient", "walk", "tridiagonal", "transfer"] {
        for spec in devices().split(',') {
            assert!(parts[part].contains(&spec), "{spec} has no line of {part}");
        }
    }
    assert!(["error", "speed", "1 ×"].iter().all(|words| first.stdout.contains(words)), "{}", first.stdout);

    let run = place.ok("bench compare --from a.json --report b.json");

    assert_eq!((run.stdout, lines), (first.stdout, place.json_lines("b.json")));

    let run = place.ok(&format!("{line} --only transfer --device cpu --with a.json"));

    assert!(run.stdout.contains("cpu in a") && run.stderr.is_empty(), "{}{}", run.stdout, run.stderr);
}
