//! `kolmo transient --checkpoint` under `mpirun`: any number of ranks resumes a run.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::time::{Duration, Instant};

use kolmo::transient::checkpoint::inspect;

use crate::mpirun::{PATIENCE, children, finish, launcher, ranks, start};
use crate::support::{Place, Run, signal};

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
