//! `--checkpoint`: killed or interrupted runs resume and give equal bytes.
#![cfg(unix)]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::Place;

/// Runs `line` to its end while killing its process at random; returns the number of kills.
fn killed(place: &Place, line: &str, longest: u64, signal: &str, random: &mut fastrand::Rng) -> u32 {
    let mut kills = 0;
    loop {
        let mut child = place.start(line);
        // At most eight kills, so that a slow machine completes as well.
        if kills < 8 {
            // Spread over orders of magnitude: early moments are as frequent as late ones.
            std::thread::sleep(Duration::from_millis(random.u64(1..longest) >> random.u32(0..5)));
            if child.try_wait().unwrap().is_none() {
                let kill = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
                let output = child.wait_with_output().unwrap();
                // The process may have completed in the meantime.
                if !output.status.success() {
                    assert!(kill.success());
                    kills += 1;
                    continue;
                }
                return kills;
            }
        }
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "kolmo {line}\n{stderr}");
        return kills;
    }
}

#[test]
#[ignore = "slow: kills runs at random moments"]
fn a_killed_run_resumes_with_equal_bytes() {
    let place = Place::new();
    let mut random = fastrand::Rng::with_seed(21);
    let cases = [
        "transient wlan:5,4 --time 150,300,301 --device cpu",
        "transient wlan:8,5 --time 8 --device cpu,cpu --order natural --precision f32 --epsilon 1e-2",
        "transient tandem:60 --time inf,1 --device cpu",
    ];
    let mut all = 0;
    for line in cases {
        let started = Instant::now();
        // With a checkpoint, `auto` uses no expansion, and a steady state starts afresh.
        assert!(place.kolmo(&format!("{line} -o whole.npy --checkpoint c")).code == 0, "{line}");
        std::fs::remove_file(place.path().join("c")).unwrap();
        let longest = started.elapsed().as_millis() as u64 + 10;
        let with = format!("{line} -o p.npy --report r.json --checkpoint c --checkpoint-every 0.01 --resume");

        let kills = killed(&place, &with, longest, "-KILL", &mut random);

        assert!(place.get("p.npy") == place.get("whole.npy"), "{line}: killed {kills} times");
        let resumed = &place.json("r.json")["checkpoint"]["resumed"];
        println!("{line}: killed {kills} times, at last resumed at {resumed}");
        // The next process that writes to the folder removes partial files that are at least a
        // second old.
        for left in place.names().iter().filter(|name| name.ends_with(".partial")) {
            let file = std::fs::File::options().write(true).open(place.path().join(left)).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(2)).unwrap();
        }
        // A complete checkpoint delivers all results again.
        let again = place.kolmo(&with);
        assert_eq!(again.code, 0, "{}", again.stderr);
        assert_eq!(place.names(), ["c", "p.npy", "r.json", "whole.npy"]);
        assert!(place.get("p.npy") == place.get("whole.npy"), "{line}");
        std::fs::remove_file(place.path().join("c")).unwrap();
        all += kills;
    }
    assert!(all > 2, "killed {all} times");
}

#[test]
#[ignore = "slow: three long runs"]
fn ctrl_c_writes_a_checkpoint_and_reports_it() {
    let place = Place::new();
    let line = "transient wlan:6,4 --time 300 --device cpu -o p.npy --checkpoint c";
    let mut child = place.start(line);
    let started = Instant::now();
    while !place.is_written_by(&child) {
        assert!(started.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    // Long enough to be in the iteration, which is invisible from outside.
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be interrupted");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("c holds the run; --resume goes on with it"), "{stderr}");
    assert_eq!(place.names(), ["c"]);

    let run = place.kolmo(&format!("{line} --resume --report r.json"));

    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("kept     c: went on after"), "{}", run.stderr);
    let report = place.json("r.json");
    assert!(report["checkpoint"]["resumed"].as_u64().unwrap() > 0, "{}", report["checkpoint"]);
    assert!(report["checkpoint"]["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(place.kolmo("transient wlan:6,4 --time 300 --device cpu -o q.npy").code, 0);
    assert!(place.get("p.npy") == place.get("q.npy"));
}

#[test]
fn invalid_checkpoint_options_are_rejected() {
    let place = Place::new();
    place.put("text", "0.5\n");
    std::fs::create_dir(place.path().join("folder")).unwrap();
    let first = place.kolmo("transient tandem:5 --time 1 --device cpu -o p.npy --checkpoint c --resume");
    assert_eq!(first.code, 0, "no checkpoint there yet: {}", first.stderr);
    let cases = [
        ("tandem:5 --time 1 --resume", "--checkpoint <FILE>"),
        ("tandem:5 --time 1 --checkpoint-every 3", "--checkpoint <FILE>"),
        ("tandem:5 --time 1 --checkpoint c --checkpoint-every -1", "must be a number of seconds"),
        ("tandem:5 --time 1 --checkpoint c --checkpoint-every soon", "invalid value 'soon'"),
        ("tandem:5 --time 1 --checkpoint p.npy -o p.npy", "give them two files"),
        ("tandem:5 --time 1 --checkpoint folder", "is a directory"),
        ("tandem:5 --time 1 --checkpoint no/where", "does not exist"),
        ("tandem:5 --time 1 --checkpoint text --resume", "not a checkpoint"),
        ("tandem:5 --time 1 --checkpoint text", "text: is not a checkpoint, but would be replaced by one"),
        ("tandem:6 --time 1 --checkpoint c --resume", "the chain (there 66 states, here 91 states)"),
        ("tandem:5 --time 2 --checkpoint c --resume", "the times (there 1, here 2)"),
        ("tandem:5 --time 1 --precision f32 --checkpoint c --resume", "the precision (there f64, here f32)"),
    ];
    for (line, said) in cases {
        let run = place.kolmo(&format!("transient {line} --device cpu"));
        assert_eq!(run.code, 2, "{line}: {}", run.stderr);
        assert!(run.stderr.contains(said), "{line}: '{said}' in {}", run.stderr);
        assert!(run.stdout.is_empty(), "{line}");
    }
    assert_eq!(place.names(), ["c", "folder", "p.npy", "text"]);
    assert_eq!(place.text("text"), "0.5\n");
    let afresh = place.kolmo("transient tandem:6 --time 1 --device cpu -o p.npy --checkpoint c");
    assert_eq!(afresh.code, 0, "{}", afresh.stderr);
    assert!(afresh.stderr.contains("starts afresh and replaces c"), "{}", afresh.stderr);
}
