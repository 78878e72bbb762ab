//! What `kolmo transient` does under `mpirun` beyond the bits of its vectors: checkpoints, charts, the steady state,
//! files that are read by parts, memory.
#![cfg(all(feature = "cli", feature = "mpi", target_os = "linux"))]

#[path = "support/command.rs"]
mod command;
#[path = "support/mpirun.rs"]
mod mpirun;

use std::process::Command;
use std::time::{Duration, Instant};

use command::{Place, binary};
use mpirun::{PATIENCE, children, finish, launcher, mpirun, ranks};

/// Starts `kolmo` on so many ranks.
fn start(place: &Place, count: usize, line: &str) -> std::process::Child {
    let mut command = mpirun(place);
    command.args(["-n", &count.to_string()]).arg(binary()).args(line.split_whitespace());
    command.spawn().expect("mpirun starts")
}

/// Runs `line` to its end on 3, 2, 1, 3, 2 … ranks, all of which are killed at random moments. Returns how often
/// they were.
fn killed(place: &Place, line: &str, longest: u64, random: &mut fastrand::Rng) -> u32 {
    let mut kills = 0;
    loop {
        let count = [3, 2, 1][kills as usize % 3];
        let mut child = start(place, count, line);
        if kills < 6 {
            // Early moments as often as late ones; no process is there at once.
            std::thread::sleep(Duration::from_millis(300 + (random.u64(1..longest) >> random.u32(0..3))));
            if child.try_wait().expect("mpirun was started").is_none() {
                let ranks = children(child.id()).iter().map(u32::to_string).collect::<Vec<_>>();
                let _ = Command::new("kill").arg("-KILL").args(&ranks).status();
                let ran = finish(child);
                if ran.code == Some(0) {
                    return kills;
                }
                kills += 1;
                continue;
            }
        }
        let ran = finish(child);
        assert_eq!(ran.code, Some(0), "{count} ranks: {line}\n{ran:?}");
        return kills;
    }
}

#[test]
fn ranks_that_are_killed_go_on_as_any_number_of_ranks_to_the_bytes_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let mut random = fastrand::Rng::with_seed(31);
    let mut all = 0;
    for line in [
        "transient wlan:10,5 --time 60,100,101 --device cpu --hops 1",
        "transient tandem:60 --time 30,31 --device cpu --precision f32 --epsilon 1e-2",
        "transient tandem:30 --time 9 --method subdivided --theta 10 --device cpu",
    ] {
        assert_eq!(place.kolmo(&format!("{line} -o whole.npy")).code, 0, "{line}");
        let with = format!("{line} -o p.npy --report r.json --checkpoint c --checkpoint-every 0.01 --resume");

        let kills = killed(&place, &with, 1500, &mut random);

        assert!(place.get("p.npy") == place.get("whole.npy"), "{line}: killed {kills} times");
        let resumed = place.json("r.json")["checkpoint"]["resumed"].as_u64();
        println!("{line}: killed {kills} times, at last resumed at {resumed:?}");
        // A complete checkpoint delivers everything again, to one process too.
        for again in [place.kolmo(&with).code, ranks(&place, 5, &with).code.unwrap_or(-1)] {
            assert_eq!(again, 0);
            assert!(place.get("p.npy") == place.get("whole.npy"), "{line}");
        }
        std::fs::remove_file(place.path().join("c")).expect("a checkpoint");
        all += kills;
    }
    assert!(all > 2, "killed {all} times");
}

/// Runs until a checkpoint is there, and ends them then.
fn until_kept(place: &Place, count: usize, line: &str, signal: &str, to_ranks: bool) -> mpirun::Ran {
    let child = start(place, count, line);
    let since = Instant::now();
    while !place.names().iter().any(|name| name == "c") {
        assert!(since.elapsed() < PATIENCE, "no checkpoint is written");
        std::thread::sleep(Duration::from_millis(5));
    }
    let targets = if to_ranks { children(child.id()) } else { vec![child.id()] };
    let targets: Vec<String> = targets.iter().map(u32::to_string).collect();
    assert!(Command::new("kill").arg(signal).args(&targets).status().is_ok_and(|s| s.success()));
    finish(child)
}

#[test]
fn a_checkpoint_of_three_ranks_is_resumed_on_two_and_by_one_process_and_the_other_way_round() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "transient wlan:10,5 --time 200,400 --device cpu --quiet";
    assert_eq!(place.kolmo(&format!("{line} -o whole.npy")).code, 0);
    let kept = format!("{line} -o p.npy --checkpoint c --checkpoint-every 0");
    for (before, after) in [(3, 2), (2, 1), (1, 3)] {
        let ended = until_kept(&place, before, &kept, "-KILL", true);
        assert_ne!(ended.code, Some(0), "the run ended before it could be killed");
        let stored = place.get("c");

        let ran = ranks(&place, after, &format!("{kept} --resume --report r.json"));

        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(place.get("p.npy") == place.get("whole.npy"), "{before} ranks, then {after}");
        assert!(place.json("r.json")["checkpoint"]["resumed"].as_u64() > Some(0));
        // One process goes on from the same bytes.
        place.put("c", &stored);
        assert_eq!(place.kolmo(&format!("{kept} --resume")).code, 0);
        assert!(place.get("p.npy") == place.get("whole.npy"), "{before} ranks, then one process");
        std::fs::remove_file(place.path().join("c")).expect("a checkpoint");
    }
}

#[test]
fn an_interruption_of_ranks_keeps_the_run() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "transient wlan:10,5 --time 200,400 --device cpu --order natural -o p.npy --checkpoint c --checkpoint-every";
    let ended = until_kept(&place, 3, &format!("{line} 0.3"), "-INT", false);
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert_eq!(place.names(), ["c"], "{ended:?}");

    let ran = ranks(&place, 2, &format!("{line} 1000 --resume"));

    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("kept     c: went on after"), "{ran:?}");
    assert_eq!(place.kolmo("transient wlan:10,5 --time 200,400 --device cpu -o q.npy").code, 0);
    assert!(place.get("p.npy") == place.get("q.npy"));
}

#[test]
fn what_checkpoints_of_ranks_refuse_is_told_once() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    place.put("text", "0.5\n");
    let first = ranks(&place, 3, "transient tandem:35 --time 1 --device cpu --quiet --top 1 --checkpoint c");
    assert_eq!(first.code, Some(0), "{first:?}");
    let stored = place.get("c");
    let mut damaged = stored.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    place.put("damaged", &damaged);
    for (line, part) in [
        ("tandem:35 --time 1 --checkpoint no/where", "does not exist"),
        ("tandem:35 --time 1 --checkpoint text --resume", "not a checkpoint"),
        ("tandem:35 --time 2 --checkpoint c --resume", "the times (there 1, here 2)"),
        ("tandem:36 --time 1 --checkpoint c --resume", "the chain (there 2556 states, here 2701 states)"),
        ("tandem:35 --time 1 --checkpoint damaged --resume", "its bytes are not those that were written"),
    ] {
        let ran = ranks(&place, 3, &format!("transient {line} --device cpu --top 1"));

        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{line}: {ran:?}");
        assert!(ran.stderr.contains(part) && ran.stdout.is_empty(), "{line}: {ran:?}");
    }
    assert!(place.get("c") == stored, "a refusal leaves the file alone");
    assert_eq!(place.names(), ["c", "damaged", "text"]);
}
