//! `kolmo tridiagonal` and `kolmo bench transfer` under `mpirun`, with the bits of one process.
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use zip::CompressionMethod::{self, Deflated, Stored};

use crate::mpirun::{PATIENCE, apart, bits_on, children, finish, launcher, mpirun, ranks};
use crate::support::{Place, binary};

#[test]
fn unknowns_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    for (counts, line) in [
        // Four tiles and a remainder; refinement, whose residuals need rows of neighbours.
        (&[1, 2, 3, 5][..], "tridiagonal random:10007 --refine 2 -o OUT.npy"),
        // At most one boundary is possible, so most ranks have no row.
        (&[5], "tridiagonal random:4500 -o OUT.csv"),
        (&[3], "tridiagonal random:1 -o OUT.txt"),
        // Ranks merge seven, six and five levels of units; nine, eight and seven of the larger
        // system.
        (&[2, 3, 5], "tridiagonal random:1200003 --refine 0 -o OUT.npy"),
        (&[5], "tridiagonal random:4500001 --refine 0 -o OUT.npy"),
        (&[2, 5], "tridiagonal laplace:100003 --seed 5 -o OUT.npy"),
        (&[3], "tridiagonal random:40011 --transpose -o OUT.npy"),
        (&[5], "tridiagonal random:70001 --precision f32 --tolerance 1e-5 -o OUT.npy"),
        // The lanes of each rank divide its rows again.
        (&[2], "tridiagonal random:60013 --lanes 3 -o OUT.npy"),
        // Lanes merge three levels of units or one, and their rank the others.
        (&[2, 3], "tridiagonal random:1200003 --lanes 2 --refine 0 -o OUT.npy"),
    ] {
        bits_on(counts, &Place::new(), &format!("{line} --device cpu --quiet"));
    }
}

#[test]
fn rings_and_many_systems_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    for (counts, line) in [
        (&[2, 5][..], "tridiagonal toeplitz:50001,-1,2.5,-1.2 --cyclic -o OUT.npy"),
        (&[3], "tridiagonal toeplitz:30001,-1,2.5,-1.2 --cyclic --transpose -o OUT.npy"),
        (&[2, 3], "tridiagonal toeplitz:900001,-1,2.5,-1.2 --cyclic --refine 0 --lanes 2 -o OUT.npy"),
        // Whole cyclic systems, two per rank or none.
        (&[3, 5], "tridiagonal toeplitz:3001,-1,2.5,-1.2,4 --cyclic --transpose -o OUT.npy"),
        // Many small cyclic systems in one batch.
        (&[2], "tridiagonal toeplitz:300,-1,2.5,-1.2,100 --cyclic -o OUT.npy"),
        // Systems across two ranks, and systems that are solved as a whole.
        (&[2, 5], "tridiagonal random:3000,19 -o OUT.npy"),
        (&[3], "tridiagonal random:100,5000 -o OUT.npy"),
        (&[5], "tridiagonal random:77,2001 -o OUT.csv"),
    ] {
        bits_on(counts, &Place::new(), &format!("{line} --device cpu --quiet"));
    }
}

#[test]
fn blocks_and_exchanged_rows_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    for (counts, line) in [
        (&[3][..], "tridiagonal random:90001 --pivot scaled -o OUT.npy"),
        // No row is dominant, so that rows are exchanged, in blocks that do not cross ranks.
        (&[2, 5], "tridiagonal toeplitz:170003,1,0.5,1 -o OUT.npy --tolerance 1e-10"),
        // Ranks reduce one interface system above, and two here (one with five ranks).
        (&[2, 3, 5], "tridiagonal toeplitz:1300003,1,0.5,1 -o OUT.npy --refine 0 --tolerance 1e-10"),
        (&[5], "tridiagonal toeplitz:99,1,0.5,1,3000 -o OUT.npy --tolerance 1e-10"),
        (&[3], "tridiagonal toeplitz:170003,1,0.5,1 -o OUT.npy --tolerance 1e-10 --interface host"),
        (&[5], "tridiagonal random:50021 --block 10 --interface device -o OUT.npy"),
        (&[2], "tridiagonal random:250021 --block 7 --interface device -o OUT.npy"),
        (&[3], "tridiagonal random:50021 --interface host -o OUT.npy"),
        (&[2], "tridiagonal random:50021 --block 100 --pivot scaled --lanes 2 -o OUT.npy"),
    ] {
        bits_on(counts, &Place::new(), &format!("{line} --device cpu --quiet"));
    }
}

#[test]
fn a_gpus_lanes_have_the_bits_of_one_lane_too() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "tridiagonal random:270001 --lanes 1 --device wgpu:0 --refine 0 --quiet -o OUT.npy";
    if place.kolmo(&line.replace("OUT", "alone")).code == 2 {
        return crate::devices::skip("wgpu:0", "no adapter wgpu:0");
    }
    bits_on(&[2, 3], &place, line);
}

/// Writes an archive like `numpy.savez` or `numpy.savez_compressed`.
fn archive(place: &Place, name: &str, method: CompressionMethod, members: &[(&str, &[usize], &[f64])]) {
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (member, shape, values) in members {
        archive.start_file(format!("{member}.npy"), options).expect("a member");
        archive.write_all(&array(shape, values)).expect("a member");
    }
    place.put(name, archive.finish().expect("an archive").into_inner());
}

/// Returns an `.npy` file.
fn array(shape: &[usize], values: &[f64]) -> Vec<u8> {
    let mut writer = kolmo::io::npy::NpyWriter::new(Vec::new(), shape).expect("memory takes it");
    writer.write(values).expect("memory takes it");
    writer.finish().expect("memory takes it")
}

/// Returns distinct numbers in (0, 1).
fn numbers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn systems_of_files_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let n = 12_345;
    let (dl, du) = (numbers(n - 1, 1), numbers(n - 1, 2));
    let d: Vec<f64> = numbers(n, 3).iter().map(|v| 2.0 + v).collect();
    let b = numbers(3 * n, 4);
    archive(
        &place,
        "three.npz",
        Stored,
        &[("dl", &[n - 1], &dl), ("d", &[n], &d), ("du", &[n - 1], &du), ("b", &[n, 3], &b)],
    );
    archive(&place, "none.npz", Stored, &[("dl", &[n - 1], &dl), ("d", &[n], &d), ("du", &[n - 1], &du)]);
    let small: [(&str, &[usize], &[f64]); 4] = [
        ("dl", &[8999], &dl[..8999]),
        ("d", &[9000], &d[..9000]),
        ("du", &[8999], &du[..8999]),
        ("b", &[9000], &b[..9000]),
    ];
    archive(&place, "small.npz", Deflated, &small);
    place.put("b.npy", array(&[2, n], &b[..2 * n]));
    for (counts, line) in [
        (&[1, 2, 3, 5][..], "tridiagonal three.npz -o OUT.npy"),
        (&[3], "tridiagonal three.npz -o OUT.csv"),
        (&[2], "tridiagonal none.npz -o OUT.npy"),
        // Two right-hand sides with one matrix, one after the other.
        (&[5], "tridiagonal none.npz -b b.npy -o OUT.npy"),
        (&[2], "tridiagonal small.npz -o OUT.npy"),
    ] {
        bits_on(counts, &place, &format!("{line} --device cpu --quiet"));
    }
}

#[test]
fn reports_equal_those_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    for system in ["random:30011", "toeplitz:30011,1,0.5,1", "toeplitz:3001,-1,2.5,-1.2,7 --cyclic"] {
        let line = format!("tridiagonal {system} --tolerance 1e-10 --device cpu --quiet -o x.npy --report");
        assert_eq!(place.kolmo(&format!("{line} alone.json")).code, 0);
        assert_eq!(ranks(&place, 3, &format!("{line} shared.json")).code, Some(0));

        let (alone, shared) = (place.json("alone.json"), place.json("shared.json"));

        for same in [
            "status",
            "bound",
            "n",
            "batch",
            "residual",
            "componentwise",
            "growth",
            "method",
            "dominant",
            "small_pivots",
            "refinements",
            "block",
        ] {
            assert_eq!(shared[same], alone[same], "{system}: {same}");
        }
        assert_eq!((&shared["ranks"], &alone["ranks"]), (&3.into(), &1.into()));
        assert_eq!(shared["devices"].as_array().map(Vec::len), Some(3), "{system}");
    }
}

#[test]
fn interleaved_systems_have_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let (n, batch) = (301, 23);
    let (dl, du) = (numbers(n * batch, 1), numbers(n * batch, 2));
    let d: Vec<f64> = numbers(n * batch, 3).iter().map(|v| 2.0 + v).collect();
    let shape: &[usize] = &[n, batch];
    archive(&place, "columns.npz", Stored, &[("dl", shape, &dl), ("d", shape, &d), ("du", shape, &du)]);
    place.put("b.npy", array(&[n, batch, 2], &numbers(2 * n * batch, 4)));
    for (counts, line) in [
        (&[2, 5][..], "tridiagonal columns.npz -o OUT.npy"),
        (&[3], "tridiagonal columns.npz -b b.npy -o OUT.npy"),
        (&[2], "tridiagonal columns.npz -o OUT.csv"),
        (&[3], "tridiagonal random:301,23 -b b.npy -o OUT.npy"),
        (&[5], "tridiagonal random:301,23 -o OUT.npy"),
    ] {
        bits_on(counts, &place, &format!("{line} --layout interleaved --device cpu --quiet"));
    }
}

/// Pivots of 0 lead to elimination with pivoting on the host of rank 0.
#[test]
fn elimination_on_the_host_has_the_bits_of_one_process() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    for (system, code) in [
        // Singular for odd n.
        ("toeplitz:30011,1,0,1", 1),
        ("toeplitz:99,1,0,1,400", 1),
        ("toeplitz:30010,1,0,1 --pivot none", 0),
        ("toeplitz:30012,1,0,1 --pivot none --cyclic", 1),
        ("toeplitz:30011,1,0,1 --cyclic", 0),
    ] {
        let line =
            |name: &str| format!("tridiagonal {system} --device cpu -o {name}.npy --report {name}.json");
        let alone = place.kolmo(&line("alone"));
        assert_eq!(alone.code, code, "{system}: {alone:?}");

        let ran = ranks(&place, 3, &line("shared"));

        assert_eq!(ran.code, Some(code), "{system}: {ran:?}");
        let [alone, shared] = ["alone", "shared"].map(|name| place.json(&format!("{name}.json")));
        for same in ["status", "singular", "method", "residual", "small_pivots", "unproved"] {
            assert_eq!(shared[same], alone[same], "{system}: {same}");
        }
        assert_eq!(shared["method"], "host", "{system}");
        assert!(place.get("shared.npy") == place.get("alone.npy"), "{system}");
    }
}

#[test]
fn a_dry_run_predicts_the_memory_of_each_rank() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = "tridiagonal random:2500000 --device cpu --dry-run";
    assert_eq!(place.kolmo(&format!("{line} --report alone.json")).code, 0);

    let ran = ranks(&place, 3, &format!("{line} --report shared.json"));

    assert_eq!(ran.code, Some(0), "{ran:?}");
    for rank in 0..3 {
        assert_eq!(ran.stderr.matches(&format!("rank {rank}, cpu")).count(), 1, "{ran:?}");
    }
    let [alone, shared] = ["alone", "shared"].map(|name| place.json(&format!("{name}.json")));
    let needed = |of: &serde_json::Value| of["memory"][0]["needed"].as_f64().expect("bytes");
    let each: f64 = shared["each"].as_array().expect("ranks").iter().map(needed).sum();
    // The shares of the ranks, and additional memory of every lane.
    approx::assert_abs_diff_eq!(each / needed(&alone), 1.0, epsilon = 0.1);
    assert_eq!(shared["ranks"], 3);
}

/// An error is reported once; all ranks end with exit code 2 and write no file.
#[test]
fn errors_are_reported_once() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    archive(
        &place,
        "uneven.npz",
        Stored,
        &[("dl", &[9], &[1.0; 9]), ("d", &[12], &[4.0; 12]), ("du", &[12], &[1.0; 12])],
    );
    let mut bad = numbers(30_000, 9);
    bad[29_000] = f64::NAN;
    let (n, ones) = (30_000, vec![1.0; 30_000]);
    archive(&place, "bad.npz", Stored, &[("dl", &[n], &ones), ("d", &[n], &bad), ("du", &[n], &ones)]);
    place.put("b.npy", array(&[7], &[1.0; 7]));
    let files = place.names();
    for (line, part) in [
        ("random:0", "for example random:1000000"),
        ("random:10000 --tolerance 7", "--tolerance 7"),
        ("uneven.npz", "invalid shape [9] of dl"),
        ("random:10000 -b b.npy", "invalid shape [7] of b"),
        ("missing.npz", "missing.npz"),
        ("random:10000 -o nowhere/x.npy", "nowhere"),
        ("random:3000000 --dry-run --memory-limit 64KiB", "memory-limit"),
        ("random:10000 --cyclic --block 10", "--block and --interface host are not supported with --cyclic"),
        // Only the last rank reads this row.
        ("bad.npz", "d of row 29000 is NaN"),
    ] {
        let ran = ranks(&place, 3, &format!("tridiagonal {line} --device cpu --quiet --report r.json"));

        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{line}: {ran:?}");
        assert!(ran.stderr.contains(part) && ran.stdout.is_empty(), "{line}: {ran:?}");
        assert_eq!(place.names(), files, "{line}");
    }
}

#[test]
fn an_error_of_rank_2_ends_all_with_its_message() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = |rest: &str| format!("tridiagonal random:300000 --quiet -o x.npy {rest}");
    let well = line("--device cpu");
    for (ill, part) in [
        (line("--device cuda:99"), "cuda:99"),
        // At allocation: a tile does not fit.
        (line("--device cpu --memory-limit 64KiB"), "memory-limit"),
    ] {
        let ran = apart(&place, &[&well, &well, &ill]);

        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("rank 2") && ran.stderr.contains(part), "{ran:?}");
        assert_eq!(ran.stderr.matches("error:").count(), 1, "{ran:?}");
        assert_eq!(place.names(), [""; 0]);
    }
    let other = apart(&place, &[&well, &well, &line("--device cpu --refine 3")]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains("rank 2") && other.stderr.contains("--refine 3"), "{other:?}");
}

#[test]
fn ranks_may_differ_in_lanes_and_memory() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    let line = |rest: &str| format!("tridiagonal random:300007 --quiet --refine 1 -o {rest}");
    assert_eq!(place.kolmo(&line("alone.npy --device cpu")).code, 0);
    let each =
        ["cpu", "cpu,cpu", "cpu --memory-limit 2MiB"].map(|device| line(&format!("x.npy --device {device}")));

    // Only the device and its options may differ between ranks.
    let ran = apart(&place, &[&each[0], &each[1], &each[2]]);

    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(place.get("x.npy") == place.get("alone.npy"), "{ran:?}");
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
    command.args("tridiagonal random:8000000 --refine 100 --device cpu --quiet -o x.npy".split(' '));
    let child = command.spawn().expect("mpirun starts");
    let since = Instant::now();
    let victim = loop {
        let ranks = children(child.id());
        let output = place.names().iter().any(|name| name.contains(".partial"));
        if ranks.len() == 3 && output {
            break ranks[1];
        }
        assert!(since.elapsed() < PATIENCE, "three ranks do not start: {ranks:?}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let killed = Command::new("kill").args(["-9", &victim.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));

    let ran = finish(child);

    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.names(), [""; 0], "{ran:?}");
}

#[test]
fn transfers_between_ranks_are_measured_in_messages_and_windows() {
    if !launcher() {
        return;
    }
    let place = Place::new();
    for (count, windows) in [(2, true), (3, true), (3, false)] {
        let mut command = mpirun(&place);
        command.args(["-n", &count.to_string()]).arg(binary());
        command.args("bench transfer --repeat 2 --size 300KiB --report t.json".split(' '));
        if !windows {
            command.env("KOLMO_NO_WINDOWS", "1");
        }

        let ran = finish(command.spawn().expect("mpirun starts"));

        assert_eq!(ran.code, Some(0), "{ran:?}");
        let lines = place.text("t.json");
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let bytes = |case: &str| {
            let of_case = lines.iter().filter(|line| line["case"] == case);
            of_case.map(|line| line["bytes"].as_u64().unwrap_or(0)).collect::<Vec<_>>()
        };
        let all = [8, 64, 512, 4096, 32_768, 262_144];
        assert_eq!(bytes("between ranks, messages"), all);
        assert_eq!(bytes("between ranks, windows"), if windows { &all[..] } else { &[] });
        for line in &lines {
            let median = line["seconds"]["median"].as_f64().unwrap_or(0.0);
            assert!(median > 0.0 && line["ranks"] == count, "{line}");
            let moved = line["bytes_moved"].as_f64().unwrap_or(0.0);
            assert_eq!(line["gb_per_s"].as_f64(), Some(moved / median / 1e9), "{line}");
            assert_eq!(moved, (count - 1) as f64 * line["bytes"].as_f64().unwrap_or(0.0), "{line}");
        }
        assert!(ran.stdout.contains("between ranks, messages") && ran.stdout.contains("to each neighbour"));
        assert_eq!(ran.stdout.contains("a host in common"), !windows, "{}", ran.stdout);
    }
    let refused = ranks(&place, 2, "bench spmv tandem:5");
    assert_eq!(refused.code, Some(2), "{refused:?}");
}
