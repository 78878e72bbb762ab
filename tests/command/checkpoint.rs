//! `--checkpoint`: killed or interrupted runs resume and give equal bytes.
#![cfg(unix)]

use std::time::{Duration, Instant};

use crate::support::{Place, Run, float, signal};

/// Runs `line` to its end while killing its process at random; returns the number of kills.
fn killed(place: &Place, line: &str, longest: u64, random: &mut fastrand::Rng) -> u32 {
    let mut kills = 0;
    loop {
        let mut child = place.start(line);
        // At most eight kills, so that a slow machine completes as well.
        if kills < 8 {
            // Spread over orders of magnitude: early moments are as frequent as late ones.
            std::thread::sleep(Duration::from_millis(random.u64(1..longest) >> random.u32(0..5)));
            if child.try_wait().unwrap().is_none() {
                let sent = signal("-KILL", &[child.id()]);
                // The process may have completed in the meantime.
                if !child.wait().unwrap().success() {
                    assert!(sent);
                    kills += 1;
                    continue;
                }
                return kills;
            }
        }
        Run::of(line, child.wait_with_output().unwrap()).ends(0, &[]);
        return kills;
    }
}

#[test]
#[ignore = "slow: kills runs at random moments"]
fn a_killed_run_resumes_with_equal_bytes() {
    let place = Place::new();
    let mut random = fastrand::Rng::with_seed(21);
    let cases = [
        "transient wlan:5,4 --time 30,60,61 --device cpu",
        "transient wlan:8,5 --time 3 --device cpu,cpu --precision f32 --epsilon 1e-2",
        "transient tandem:60 --time inf,1 --device cpu",
    ];
    let mut all = 0;
    for line in cases {
        let started = Instant::now();
        // With a checkpoint, `auto` uses no expansion, and a steady state starts afresh.
        place.ok(&format!("{line} -o whole.npy --checkpoint c"));
        std::fs::remove_file(place.path().join("c")).unwrap();
        let longest = started.elapsed().as_millis() as u64 + 10;
        let with = format!("{line} -o p.npy --report r.json --checkpoint c --checkpoint-every 0.01 --resume");

        let kills = killed(&place, &with, longest, &mut random);

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
        place.ok(&with);
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
    let line = "transient wlan:6,4 --time 100 --device cpu -o p.npy --checkpoint c";
    let mut child = place.start(&format!("{line} --checkpoint-every 0"));
    // A checkpoint shows that the run is in the iteration.
    while !place.path().join("c").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be interrupted");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(signal("-INT", &[child.id()]));
    let said = "c holds the run; --resume continues it";
    Run::of(line, child.wait_with_output().unwrap()).ends(130, &[said]);
    assert_eq!(place.names(), ["c"]);

    place.ok(&format!("{line} --resume --report r.json")).ends(0, &["kept     c: went on after"]);

    let report = place.json("r.json");
    assert!(float(&report, "checkpoint.resumed") > 0.0 && float(&report, "checkpoint.seconds") > 0.0);
    place.transient("wlan:6,4 --time 100 -o q.npy");
    assert!(place.get("p.npy") == place.get("q.npy"));
}

/// Another chain starts afresh; an older output is not a checkpoint.
#[test]
fn a_checkpoint_of_another_chain_is_replaced_without_resume() {
    let place = Place::new();
    let line = "--time 1 -o p.npy --checkpoint c";
    place.transient(&format!("tandem:5 {line} --resume"));
    place.transient(&format!("tandem:6 {line}")).ends(0, &["starts afresh and replaces c"]);
}
