//! `kolmo transient --checkpoint` under `mpirun`: any number of ranks resumes a run.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::time::{Duration, Instant};

use kolmo::transient::checkpoint::inspect;

use crate::mpirun::{PATIENCE, children, finish, finish_within, launcher, ranks, start};
use crate::support::{Place, Run, signal};

/// Runs `line` on 3, 2, 1, 3, 2 … ranks and kills all ranks at random; returns the number of kills.
fn killed(place: &Place, line: &str, longest: u64, random: &mut fastrand::Rng) -> u32 {
    let mut kills = 0;
    loop {
        let count = [3, 2, 1][kills as usize % 3];
        let mut child = start(place, count, line);
        if kills < 3 {
            let since = Instant::now();
            while children(child.id()).len() < count && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Spread over orders of magnitude: early moments are as frequent as late ones.
            std::thread::sleep(Duration::from_millis(random.u64(1..longest) >> random.u32(0..4)));
            if child.try_wait().expect("mpirun was started").is_none() {
                signal("-KILL", &children(child.id()));
                // A launcher may miss ranks that end during the start, and is ended as well.
                let (run, _) = finish_within(child, Duration::from_secs(2));
                if run.code == 0 {
                    return kills;
                }
                kills += 1;
                continue;
            }
        }
        finish(child).ends(0, &[]);
        return kills;
    }
}

#[test]
#[ignore = "slow: kills ranks at random moments"]
fn killed_ranks_resume_on_any_number_of_ranks_with_the_bytes_of_one_process() {
    let Some(place) = launcher() else { return };
    let mut random = fastrand::Rng::with_seed(31);
    let mut all = 0;
    for line in [
        "transient wlan:10,5 --time 9,14,15 --device cpu --halo-depth 1",
        "transient tandem:60 --time 4,5 --device cpu --precision f32 --epsilon 1e-2",
    ] {
        let started = Instant::now();
        place.ok(&format!("{line} -o whole.npy"));
        let longest = started.elapsed().as_millis() as u64 + 600;
        let with = format!("{line} -o p.npy --report r.json --checkpoint c --checkpoint-every 0.01 --resume");

        let kills = killed(&place, &with, longest, &mut random);

        assert!(place.get("p.npy") == place.get("whole.npy"), "{line}: killed {kills} times");
        let resumed = place.json("r.json")["checkpoint"]["resumed"].as_u64();
        println!("{line}: killed {kills} times, at last resumed at {resumed:?}");
        // A complete checkpoint delivers all results again, also to one process.
        for again in [place.kolmo(&with), ranks(&place, 2, &with)] {
            again.ends(0, &[]);
            assert!(place.get("p.npy") == place.get("whole.npy"), "{line}");
        }
        std::fs::remove_file(place.path().join("c")).expect("a checkpoint");
        all += kills;
    }
    assert!(all > 2, "killed {all} times");
}

/// Runs until a checkpoint with some work exists, then ends the ranks or their launcher.
fn until_kept(place: &Place, count: usize, line: &str, name: &str, to_ranks: bool) -> Run {
    let child = start(place, count, line);
    let since = Instant::now();
    let path = place.path().join("c");
    let terms = || inspect(&path, &std::fs::read(&path).ok()?).ok().map(|kept| kept.terms);
    while terms() < Some(20) {
        assert!(since.elapsed() < PATIENCE, "no checkpoint is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(signal(name, &if to_ranks { children(child.id()) } else { vec![child.id()] }));
    let run = finish(child);
    assert_ne!(run.code, 0, "the run ended before it could be stopped");
    run
}

#[test]
#[ignore = "slow: kills ranks"]
fn checkpoints_are_resumed_on_other_numbers_of_ranks() {
    let Some(place) = launcher() else { return };
    let line = "transient wlan:8,5 --time 20,30 --device cpu --quiet";
    place.ok(&format!("{line} -o whole.npy"));
    let kept = format!("{line} -o p.npy --checkpoint c --checkpoint-every 0");
    for (before, after) in [(3, 2), (1, 3)] {
        until_kept(&place, before, &kept, "-KILL", true);
        let stored = place.get("c");

        ranks(&place, after, &format!("{kept} --resume --report r.json")).ends(0, &[]);

        assert!(place.get("p.npy") == place.get("whole.npy"), "{before} ranks, then {after}");
        assert!(place.json("r.json")["checkpoint"]["resumed"].as_u64() > Some(0));
        // One process continues from equal bytes.
        place.put("c", &stored).ok(&format!("{kept} --resume"));
        assert!(place.get("p.npy") == place.get("whole.npy"), "{before} ranks, then one process");
        std::fs::remove_file(place.path().join("c")).expect("a checkpoint");
    }
}

#[test]
fn an_interruption_of_ranks_writes_a_checkpoint() {
    let Some(place) = launcher() else { return };
    let line = "transient wlan:10,5 --time 30,40 --device cpu -o p.npy --checkpoint c --checkpoint-every";
    let ended = until_kept(&place, 3, &format!("{line} 0"), "-INT", false);
    assert_eq!(place.names(), ["c"], "{ended:?}");

    ranks(&place, 2, &format!("{line} 1000 --resume")).ends(0, &["kept     c: went on after"]);

    place.transient("wlan:10,5 --time 30,40 -o q.npy");
    assert!(place.get("p.npy") == place.get("q.npy"));
}
