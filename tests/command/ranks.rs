//! The command line under `mpirun`: the bits of one process, and clear errors when a rank fails.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::time::{Duration, Instant};

use kolmo::lane::{DeviceSpec, OpenOptions};
use kolmo::ranks::Session;
use kolmo::transient::{Direction, Method, Options, exponential_action};
use kolmo::{Error, Machine};

use crate::mpirun::{
    PATIENCE, alone, apart, bits, bits_on, children, equal, finish, launcher, mpirun, ranks, refused,
    side_by_side, start,
};
use crate::support::{array, float, npz, on_cpu, signal, table};

#[test]
fn vectors_and_plots_have_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    place.put("r.srew", "2556 2\n3 1\n2000 2.5\n");
    bits(&place, "vectors and plots");
}

#[test]
fn selections_and_rewards_have_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    let some: String = (0..2556).step_by(3).map(|s| format!("{s} 1\n")).collect();
    let label = |s: usize| format!("{s} {}\n", if s.is_multiple_of(2) { "full" } else { "odd" });
    let labels: String = (7..2556).step_by(7).map(label).collect();
    place.put("m.lab", format!("#DECLARATION\ninit full odd\n#END\n0 init full\n{labels}"));
    place.put("r.srew", format!("2556 {}\n{some}", some.lines().count()));
    let jump: String = (0..2556).map(|s| format!("{s} {} 1\n", (s + 1) / 2)).collect();
    place.put("halve.tra", format!("2556 2556\n{jump}"));
    let phases = "1,tandem:35\n1,jump:halve.tra\n2,\"birth-death:2556,3,2\"\ninf,tandem:35\n";
    place.put("p.csv", format!("until,model\n{phases}"));
    bits(&place, "selections and rewards");
}

#[test]
fn walks_and_systems_have_the_bits_of_one_process() {
    let Some(place) = launcher() else { return };
    for name in ["walks", "tridiagonal", "rings and many systems", "blocks and exchanged rows"] {
        bits(&place, name);
    }
}

#[test]
fn a_gpus_lanes_have_the_bits_of_one_lane_too() {
    let Some(place) = launcher() else { return };
    let line = "tridiagonal random:270001 --lanes 1 --device wgpu:0 --refine 0 -o OUT.npy";
    if place.kolmo(line).code == 2 {
        return crate::devices::skip("wgpu:0", "no adapter wgpu:0");
    }
    bits_on(&[2, 3], &place, line, "");
}

/// Each rank compares a block computed by all ranks with those of one process, bit for bit.
///
/// The launcher starts this test again, which then runs on its ranks.
#[test]
fn blocks_of_vectors_have_the_bits_of_one_process() {
    const NAME: &str = "ranks::blocks_of_vectors_have_the_bits_of_one_process";
    if !Session::is_launched() {
        let Some(place) = launcher() else { return };
        let mut command = mpirun(&place);
        command.args(["-n", "3"]).arg(std::env::current_exe().expect("this program"));
        let run = finish(command.args([NAME, "--exact"]).spawn().expect("mpirun starts"));
        assert_eq!(run.ends(0, &[]).stdout.matches("1 passed").count(), 3);
        return;
    }
    let session = Session::begin().expect("ranks");
    let ranks = session.ranks();
    let machine = |count| {
        let devices = vec![DeviceSpec::Cpu; count];
        Machine::open(&devices, &OpenOptions::default()).expect("lanes of the CPU")
    };
    // Ranks have one, two and one lanes. One block has fewer columns than ranks.
    let shared = machine(1 + ranks.rank() % 2).on_ranks(ranks);
    let chain = kolmo::models::parse("tandem:15").expect("a built-in").expect("sound").transitions;
    let n = chain.states();
    let auto = Options::default();
    for (k, times, lanes, options) in [
        (2, &[0.7, 0.0, 1.9][..], 1, auto),
        (11, &[1.9], 1, auto),
        (11, &[1e4], 4, auto),
        (2, &[0.0, 9.0], 1, auto.method(Method::Krylov { strict: true })),
    ] {
        let block: Vec<f64> = (0..n * k).map(|at| (at * 7919 % 1009) as f64 - 504.0).collect();
        let both = [Direction::Forward, Direction::Backward];
        for direction in both.into_iter().take(if options.method == Method::Auto { 2 } else { 1 }) {
            let act = |machine: &Machine| {
                exponential_action(machine, &*chain, direction, &block, times, &options, &mut ())
            };
            let (own, all) = (act(&machine(lanes)).expect("an action"), act(&shared).expect("an action"));
            assert!(own == all, "{k} vectors, {direction:?}");
        }
    }
    // An error of one rank ends the call on all ranks.
    let block = vec![if ranks.rank() == 1 { f64::NAN } else { 1.0 }; n];
    let failed = exponential_action(&shared, &*chain, Direction::Forward, &block, &[1.0], &auto, &mut ())
        .expect_err("an error of rank 1");
    let is_own = matches!(failed, Error::OnRank { rank: 1, failed: 1, .. });
    assert!(is_own || matches!(failed, Error::Elsewhere) && ranks.rank() != 1, "{failed}");
}

/// A chain with four closed classes, unreachable states, and transient states.
///
/// States 0 … 699 are a path with exits everywhere. Chords keep distances and the number of steps
/// small.
fn classes() -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |from: usize, to: usize, rate: f64| lines.push(format!("{from} {to} {rate}\n"));
    for i in 0..699 {
        add(i, i + 1, 2.0);
        add(i + 1, i, 1.5);
    }
    let chords = |len: usize| (0..len).map(move |i| (i, (7 * i + 3) % len));
    chords(700).filter(|(i, to)| to.abs_diff(*i) > 1).for_each(|(i, to)| add(i, to, 2.5));
    // Two rings far apart, two absorbing states, and one unreachable state.
    for (from, first, len) in [(350, 700, 300), (699, 1700, 257)] {
        add(from, first, 0.5);
        (0..len).for_each(|i| add(first + i, first + (i + 1) % len, 3.0 + (i % 4) as f64));
        let distant = chords(len).filter(|(i, to)| to != i && *to != (i + 1) % len);
        distant.for_each(|(i, to)| add(first + i, first + to, 2.0));
    }
    (0..700).step_by(5).for_each(|i| add(i, 1000, 0.25));
    (3..700).step_by(5).for_each(|i| add(i, 1699, 0.125));
    add(1001, 5, 1.0);
    // The states between them lead back to the path, and are unreachable as well.
    (1002..1699).for_each(|i| add(i, i - 1, 1.0));
    lines.sort_by_key(|line| {
        let mut numbers = line.split(' ').map(|n| n.parse::<f64>().unwrap_or(0.0) as usize);
        (numbers.next(), numbers.next())
    });
    lines.dedup_by_key(|line| line.rsplit_once(' ').map(|(states, _)| states.to_owned()));
    format!("1957 {}\n{}", lines.len(), lines.concat())
}

#[test]
fn reports_have_equal_bounds_and_the_device_of_every_rank() {
    let Some(place) = launcher() else { return };
    place.put("classes.tra", classes());
    const CHAIN: &str = "status bound n nnz alpha terms window per_time padding coo_share";
    const SYSTEM: &str = "status bound n batch residual componentwise growth method dominant small_pivots \
                          refinements block singular unproved";
    let shared = |count, line: &str, keys| {
        bits_on(&[count], &place, &format!("{line} --report OUT.json"), keys);
        let report = place.json("shared.json");
        assert_eq!(report["devices"].as_array().map(Vec::len), Some(count), "{line}");
        report
    };
    let report = shared(3, "transient tandem:15 --time 0.4,900 --top 1", CHAIN);
    assert_eq!(report["plan"].as_array().map(Vec::len), Some(3));
    assert_eq!((0..3).map(|rank| float(&report["plan"][rank], "rows")).sum::<f64>(), 496.0);
    // Certified steady states.
    for (count, line) in [
        (2, "transient tandem:15 --time inf,2"),
        (5, "transient birth-death:513,1,2 --time inf --epsilon 1e-9 --precision f32"),
        (3, "transient classes.tra --time inf --epsilon 1e-3"),
    ] {
        shared(count, &format!("{line} -o OUT.npy"), "status bound terms per_time");
    }
    for system in ["random:30011", "toeplitz:30011,1,0.5,1", "toeplitz:3001,-1,2.5,-1.2,7 --cyclic"] {
        let report = shared(3, &format!("tridiagonal {system} --tolerance 1e-10 -o OUT.npy"), SYSTEM);
        assert_eq!((&report["status"], &report["ranks"]), (&"met".into(), &3.into()), "{system}");
        assert_eq!(place.json("alone.json")["ranks"], 1);
    }
    // Pivots of 0 lead to elimination with pivoting on the host of rank 0.
    for (system, status) in [
        // Singular for odd n.
        ("toeplitz:30011,1,0,1", "not_met"),
        ("toeplitz:99,1,0,1,400", "not_met"),
        ("toeplitz:30010,1,0,1 --pivot none", "met"),
        ("toeplitz:30012,1,0,1 --pivot none --cyclic", "not_met"),
        ("toeplitz:30011,1,0,1 --cyclic", "met"),
    ] {
        let report = shared(3, &format!("tridiagonal {system} -o OUT.npy"), SYSTEM);
        assert_eq!((&report["status"], &report["method"]), (&status.into(), &"host".into()), "{system}");
    }
}

/// An error on all ranks is reported once; all ranks end with exit code 2 and write no file.
#[test]
fn an_error_of_all_ranks_is_reported_once() {
    let Some(place) = launcher() else { return };
    ranks(&place, 2, "transient tandem:35 --time 1 --device cpu --quiet --top 1 --checkpoint c").ends(0, &[]);
    let checkpoint = place.get("c");
    let mut damaged = checkpoint.clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    let of = |dl: usize, d: &[f64]| {
        let side = |n| array(&[n], &vec![1.0; n]);
        npz(false, &[("dl", side(dl)), ("d", array(&[d.len()], d)), ("du", side(d.len()))])
    };
    let mut bad = vec![4.0; 30_000];
    bad[29_000] = f64::NAN;
    place.put("text", "0.5\n").put("damaged", &damaged).put("b.npy", array(&[7], &[1.0; 7]));
    place.put("uneven.npz", of(9, &[4.0; 12])).put("bad.npz", of(30_000, &bad));
    let files = place.names();
    let cases = table(include_str!("wrong/ranks.txt"));
    side_by_side(&cases, |case| refused(ranks(&place, 2, &on_cpu(case[0])), &case[1..]));
    assert!(place.get("c") == checkpoint, "a refusal leaves the file alone");
    assert_eq!(place.names(), files);
}

#[test]
fn an_error_of_rank_2_ends_all_with_its_message() {
    let Some(place) = launcher() else { return };
    for (line, option) in [
        ("transient tandem:300 --time 9 --quiet -o x.npy", "--epsilon 1e-3"),
        ("tridiagonal random:300000 --quiet -o x.npy", "--refine 3"),
    ] {
        for (ill, part) in [
            // Before the work, when devices are opened; during the layout of the matrix.
            ("--device cuda:99", "cuda:99"),
            ("--device cpu --memory-limit 64KiB", "memory-limit"),
            (&format!("--device cpu {option}"), option),
        ] {
            let each = ["--device cpu", "--device cpu", ill].map(|rest| format!("{line} {rest}"));
            refused(apart(&place, &each), &["rank 2", part]);
            assert_eq!(place.names(), [""; 0], "{line} {ill}");
        }
    }
}

#[test]
fn ranks_may_differ_in_devices_lanes_and_memory() {
    let Some(place) = launcher() else { return };
    for (line, limit) in [
        ("transient tandem:35 --time 1 --quiet --top 2", "1GiB"),
        ("tridiagonal random:300007 --quiet --refine 1 -o OUT.npy", "2MiB"),
    ] {
        let limited = format!("--device=cpu --memory-limit {limit}");
        let each = ["--device cpu", "--device cpu,cpu", &limited].map(|rest| format!("{line} {rest}"));
        let alone = alone(&place, &each[0]);
        equal(&place, &alone, &apart(&place, &each.map(|line| line.replace("OUT", "shared"))), "");
    }
}

#[test]
#[ignore = "slow: kills ranks"]
fn the_death_of_a_rank_ends_all_and_leaves_nothing() {
    let Some(place) = launcher() else { return };
    // Long enough that no rank completes.
    for line in [
        "transient birth-death:90000,1,1 --time 1e9 --device cpu --quiet -o x.npy",
        "tridiagonal random:8000000 --refine 100 --device cpu --quiet -o x.npy",
    ] {
        let child = start(&place, 3, line);
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
        assert!(signal("-9", &[victim]));
        let since = Instant::now();

        let run = finish(child);

        assert!(run.code != 0 && since.elapsed() < Duration::from_secs(20), "{run:?}");
        assert_eq!(place.names(), [""; 0], "{run:?}");
    }
}

/// A rank has its share of the memory of one process, its halo, and at most 5 % more.
#[test]
fn ranks_hold_their_share_and_their_halo() {
    let Some(place) = launcher() else { return };
    for (counts, line) in [
        (&[3][..], "transient wlan:20,5 --time 0.1 --halo-depth 1 --matrix-format hyb"),
        (&[2, 4], "transient tandem:400 --time 0.01 --halo-depth 1 --matrix-format packed"),
    ] {
        let line = format!("{line} --device cpu --quiet --top 1 --report r.json");
        place.ok(&line);
        let alone = place.json("r.json");
        let (n, whole) = (float(&alone, "n"), float(&alone["memory"][0], "device_bytes"));
        for &count in counts {
            ranks(&place, count, &line).ends(0, &[]);
            let report = place.json("r.json");
            for rank in 0..count {
                let bytes = float(&report["memory"][rank], "device_bytes");
                let [rows, halo] = ["rows", "halo"].map(|key| float(&report["plan"][rank], key));
                // About as many values leave as arrive. Each takes two doubles in the iterates, one
                // in its message, and an index of four bytes.
                let most = 1.05 * whole * rows / n + 2.0 * halo * (2.0 * 8.0 + 8.0 + 4.0);
                assert!(bytes <= most, "{line}: rank {rank} of {count}: {bytes} of {most}");
                assert!(bytes >= 0.9 * whole * rows / n, "{line}: rank {rank} of {count} holds {bytes}");
            }
        }
    }
}
