//! The command line under `mpirun`: the bits of one process, and clear errors when a rank fails.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mpirun::{PATIENCE, apart, bits_on, children, finish, launcher, mpirun, ranks, side_by_side};
use crate::support::{Place, binary};

#[test]
fn vectors_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    for (counts, line) in [
        // Ten blocks and a remainder; two windows at once; halo depth by measurement.
        (&[1, 2, 3, 5][..], "transient tandem:35 --time 0.4,3,0 -o OUT.npy"),
        // One block for five ranks: four of them have no row.
        (&[5], "transient birth-death:250,0.8,0.7 --time 20 -o OUT.npy"),
        // Two blocks and one row more.
        (&[2, 3], "transient birth-death:513,3,2 --time 1,40 --epsilon 1e-9 --halo-depth 3 -o OUT.npy"),
        // Every rank needs values of all other ranks; a uniform width, chosen from all rows.
        (
            &[2, 5],
            "transient circulant:3000,-1,1,700,-1100 --time 7 --ell-width cusp --matrix-format hyb -o OUT.npy",
        ),
        (&[3], "transient wlan:6,3 --time 0.8 --precision f32 --halo-depth 1 -o OUT.npy"),
        (&[3], "transient wlan:5,3 --time 0.5 --method subdivided --theta 10 -o OUT.npy"),
        // With several lanes, the order is chosen by measurement unless it is given.
        (&[2, 3], "transient wlan:4,3 --time 2 --lanes 2 --parts 2 --order natural -o OUT.csv"),
    ] {
        bits_on(counts, &Place::new(), &format!("{line} --device cpu --quiet"));
    }
}

#[test]
fn selections_and_rewards_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let some: String = (0..2556).step_by(3).map(|s| format!("{s} 1\n")).collect();
    place.put(
        "m.lab",
        format!("#DECLARATION\ninit full odd\n#END\n0 init\n{}", {
            (0..2556)
                .step_by(7)
                .map(|s| format!("{s} {}\n", if s % 2 == 0 { "full" } else { "odd" }))
                .collect::<String>()
        })
        .replacen("0 init\n0 full\n", "0 init full\n", 1),
    );
    place.put("r.srew", format!("2556 {}\n{some}", some.lines().count()));
    for (counts, line) in [
        (&[5][..], "transient tandem:35 --time 0.4,3 --states 5,0,900-920,2555"),
        (&[3], "transient tandem:35 --time 0.4,3,0 --labels m.lab --label full --label odd --label init"),
        (&[5], "transient tandem:35 --time 0.4,3 --top 300"),
        // Early termination at the steady state for the last time.
        (&[3], "transient tandem:35 --time 0,0.4,3,800 --rewards r.srew --epsilon 1e-2"),
        (
            &[2, 3],
            "transient tandem:35 --time 0.4,40,90 --rewards r.srew --method krylov --strict --epsilon 1e-7 -o OUT.npy",
        ),
        (&[3], "transient tandem:35 --time 2 --labels m.lab --absorbing odd --initial label:full --top 9"),
    ] {
        bits_on(counts, &place, &format!("{line} --device cpu --quiet"));
    }
}

#[test]
fn reports_have_equal_bounds_and_the_device_of_every_rank() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "transient tandem:15 --time 0.4,900 --device cpu --quiet --top 1 --report";
    assert_eq!(place.kolmo(&format!("{line} alone.json")).code, 0);
    assert_eq!(ranks(&place, 3, &format!("{line} shared.json")).code, Some(0));

    let (alone, shared) = (place.json("alone.json"), place.json("shared.json"));

    for same in
        ["status", "bound", "n", "nnz", "alpha", "terms", "window", "per_time", "padding", "coo_share"]
    {
        assert_eq!(shared[same], alone[same], "{same}");
    }
    assert_eq!(shared["devices"].as_array().map(Vec::len), Some(3));
    assert_eq!(shared["plan"].as_array().map(Vec::len), Some(3));
    let rows = shared["plan"].as_array().into_iter().flatten().map(|p| p["rows"].as_u64().unwrap_or(0));
    assert_eq!(rows.sum::<u64>(), 496);
}

#[test]
fn walks_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    for (counts, line) in [
        (&[1, 2, 3, 5][..], "walk poisson2d:30,0.9 --component 3,77,800 --epsilon 1e-3"),
        (&[5], "walk poisson2d:30,0.9 --component 5 --chains 3000 --replicates 3 --sequence halton"),
        (
            &[3],
            "walk poisson2d:30,0.9 --component 5,6 --chains 4000 --replicates 4 --sequence mtgp32 --groups 3",
        ),
        (&[2, 5], "walk random-dominant:300,4,0.8,positive --component 0-3 --lazy --epsilon 1e-2"),
    ] {
        bits_on(counts, &place, &format!("{line} --device cpu --quiet"));
    }
}

/// An error on all ranks is reported once; all ranks end with exit code 2.
#[test]
fn an_error_of_all_ranks_is_reported_once() {
    if !launcher() {
        return;
    }
    let refused = [
        ("transient tandem:35 --time -1 --device cpu", "invalid time '-1'"),
        ("transient tandem:0 --time 1 --device cpu", "for example tandem:127"),
        ("transient missing.tra --time 1 --device cpu", "missing.tra"),
        ("transient tandem:35 --time 1 --device cpu --initial 99999", "initial state 99999"),
        ("transient tandem:35 --time 1 --device cpu -o nowhere/x.npy", "nowhere"),
        ("transient tandem:35 --time 1 --device cpu --wrong", "--wrong"),
        ("generate tandem:3 -o x.tra", "start it without mpirun"),
    ];
    side_by_side(&refused, |(line, part)| {
        let place = Place::new();
        let ran = ranks(&place, 2, line);

        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{line}: {ran:?}");
        assert!(ran.stderr.contains(part) && ran.stdout.is_empty(), "{line}: {ran:?}");
        assert_eq!(place.names(), [""; 0], "{line}");
    });
}

#[test]
fn ranks_with_other_options_are_refused_but_each_may_have_its_device() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = |rest: &str| format!("transient tandem:35 --time 1 --quiet --top 2 {rest}");
    let (one, other) = (line("--device cpu"), line("--device cpu --epsilon 1e-3"));

    let refused = apart(&place, &[&one, &one, &other]);
    let mixed = apart(&place, &[&one, &line("--device cpu,cpu"), &line("--device=cpu --memory-limit 1GiB")]);

    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("rank 2") && refused.stderr.contains("--epsilon 1e-3"), "{refused:?}");
    assert_eq!(mixed.code, Some(0), "{mixed:?}");
    assert_eq!(mixed.stdout, place.kolmo(&one).stdout);
}

#[test]
fn an_error_of_rank_2_ends_all_with_its_message() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = |rest: &str| format!("transient tandem:300 --time 9 --quiet -o x.npy {rest}");
    let well = line("--device cpu");
    for (ill, part) in [
        // Before the work, when devices are opened; during the layout of the matrix.
        (line("--device cuda:99"), "cuda:99"),
        (line("--device cpu --memory-limit 64KiB"), "memory-limit"),
    ] {
        let ran = apart(&place, &[&well, &well, &ill]);

        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("rank 2") && ran.stderr.contains(part), "{ran:?}");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{ran:?}");
        assert_eq!(place.names(), [""; 0]);
    }
}

#[test]
#[ignore = "slow: kills ranks"]
fn the_death_of_a_rank_ends_all_and_leaves_nothing() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let mut command = mpirun(&place);
    // Long enough that no rank completes.
    command.args(["-n", "3"]).arg(binary());
    command.args("transient birth-death:90000,1,1 --time 1e9 --device cpu --quiet -o x.npy".split(' '));
    let child = command.spawn().expect("mpirun starts");
    let since = Instant::now();
    let victim = loop {
        let ranks = children(child.id());
        let output = place.names().iter().any(|name| name.contains(".partial"));
        if ranks.len() == 3 && output && since.elapsed() > Duration::from_secs(1) {
            break ranks[1];
        }
        assert!(since.elapsed() < PATIENCE, "three ranks do not start: {ranks:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let killed = Command::new("kill").args(["-9", &victim.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));

    let ran = finish(child);

    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.seconds < 20.0, "{ran:?}");
    assert_eq!(place.names(), [""; 0], "{ran:?}");
}

/// Two network namespaces, connected by a pair of devices; removed when dropped.
struct Networks(Vec<String>);

impl Networks {
    /// Creates the namespaces; `None` without the permission.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let made = Self(vec![format!("kolmo-a{id}"), format!("kolmo-b{id}")]);
        let (a, b) = (&made.0[0], &made.0[1]);
        let ip = |line: String| {
            let done = Command::new("ip").args(line.split_whitespace()).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        let all = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add kolmo-va netns {a} type veth peer name kolmo-vb netns {b}"),
            format!("-n {a} addr add 10.77.0.1/24 dev kolmo-va"),
            format!("-n {b} addr add 10.77.0.2/24 dev kolmo-vb"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
            format!("-n {a} link set kolmo-va up"),
            format!("-n {b} link set kolmo-vb up"),
        ];
        all.into_iter().all(ip).then_some(made)
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

/// Emulates two hosts: a remote shell starts ranks, values go through TCP, no shared memory.
#[test]
fn ranks_in_two_networks_give_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let Some(networks) = Networks::new() else {
        return crate::devices::skip("network namespaces", "this process may not make any");
    };
    let place = Place::new();
    let other = &networks.0[1];
    // The replacement of ssh for Open MPI. The other host has another name.
    let shell =
        format!("#!/bin/sh\nshift\nexec ip netns exec {other} unshare -u sh -c \"hostname {other}; $*\"\n");
    place.put("shell", shell);
    let agent = place.path().join("shell");
    std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let line = "transient tandem:35 --time 0.4,3 --device cpu --quiet -o";
    assert_eq!(place.kolmo(&format!("{line} alone.npy")).code, 0);
    let known = mpirun(&place);

    let mut command = Command::new("ip");
    command.args(["netns", "exec", &networks.0[0], "mpirun", "-n", "3", "--host", "10.77.0.1:1,10.77.0.2:2"]);
    command.arg("--mca").arg("plm_rsh_agent").arg(&agent);
    command.args("--mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24".split(' '));
    command.args("--mca oob_tcp_if_include 10.77.0.0/24 -x KOLMO_NO_WINDOWS=1".split(' '));
    command.arg(binary()).args(line.split(' ')).arg("shared.npy");
    command.current_dir(place.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(known.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = finish(command.spawn().expect("ip starts"));

    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(place.get("shared.npy") == place.get("alone.npy"), "{ran:?}");
}

/// Ranks of one host exchange values in shared memory; without it, in messages.
#[test]
fn messages_and_shared_memory_give_equal_bits() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "transient tandem:35 --time 0.4,3 --halo-depth 1 --device cpu --quiet -o";
    assert_eq!(place.kolmo(&format!("{line} alone.npy")).code, 0);
    for windows in [true, false] {
        let mut command = mpirun(&place);
        command.args(["-n", "3"]).arg(binary()).args(line.split(' ')).arg("shared.npy");
        if !windows {
            command.env("KOLMO_NO_WINDOWS", "1");
        }

        let ran = finish(command.spawn().expect("mpirun starts"));

        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(place.get("shared.npy") == place.get("alone.npy"), "windows: {windows}");
    }
}

#[test]
fn a_dry_run_predicts_other_numbers_of_ranks() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line =
        "transient wlan:9,3 --time 1 --device cpu --dry-run --ranks 7 --matrix-format hyb --report x.json";

    let ran = ranks(&place, 2, line);

    assert_eq!(ran.code, Some(0), "{ran:?}");
    let said = place.json("x.json");
    let many = &said["ranks"];
    assert_eq!(many["count"], 7);
    assert!(many["swap"]["latency"].as_f64() > Some(0.0) && many["step"].as_f64() > Some(0.0), "{many}");
    let looked = many["ranks"].as_array().expect("some ranks");
    assert_eq!(looked.iter().map(|r| r["rank"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(3), Some(6)]);
    // An inner rank reads from two neighbours and has a seventh of the rows.
    assert!(looked[1]["halo"].as_u64() > looked[0]["halo"].as_u64(), "{many}");
    let alone = place.kolmo("transient wlan:9,3 --time 1 --device cpu --dry-run --ranks 7");
    assert_eq!(alone.code, 2);
    assert!(alone.stderr.contains("mpirun -n 2"), "{}", alone.stderr);
}
