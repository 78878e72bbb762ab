//! Faults of devices, files and disks at a chosen moment, under every command.
//!
//! Each ends with exit code 2 and a message that names the failed part. There is no panic, and the
//! directory contains no incomplete file.
//!
//! Devices fail on request in builds with debug assertions (`src/lane/fault_injection.rs`).
#![cfg(all(unix, debug_assertions))]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::devices::skip;
use crate::lane_count::measured;
use crate::support::{
    Place, Run, THREE, THREE_DRN, THREE_GENERATOR, binary, gzip, number, on_cpu, shell, signal,
};

/// Returns the lines of a section of `inputs/faults.txt`.
fn lines(section: &str) -> Vec<Vec<&'static str>> {
    crate::support::section(include_str!("inputs/faults.txt"), section)
}

/// Returns the files in the directory, except complete checkpoints and the folder of settings.
fn left(place: &Place) -> Vec<String> {
    let mut names = place.names();
    names.retain(|name| {
        if name == "c" {
            let bytes = place.get("c");
            kolmo::transient::checkpoint::inspect("c".as_ref(), &bytes).expect("a checkpoint is whole");
            return false;
        }
        name != "settings" || std::fs::read_dir(place.path().join(name)).unwrap().count() > 0
    });
    names
}

fn error(run: &Run) -> &str {
    run.stderr.lines().rfind(|line| line.starts_with("error: ")).unwrap_or_default()
}

/// Makes the K-th event fail, for growing K until no run fails; returns failures and runs.
///
/// Benchmarks and `tune` take seconds, and run only twice.
fn events(kind: &str, line: &str, names: &str, growth: f64) -> (u32, u32) {
    let (mut at, mut failures, mut runs, mut fine) = (1u64, 0, 0, 0);
    let measures = line.starts_with("bench") || line.starts_with("tune");
    let most = if measures { 2 } else { 40 };
    while fine < 2 && runs < most {
        let place = Place::new();
        let fault = format!("{kind}:{at}");
        let run = place.kolmo_with(line, &[("KOLMO_FAULT", &fault), ("KOLMO_CONFIG_DIR", "settings")]);
        runs += 1;
        match run.code {
            2 => {
                let said = error(&run);
                assert!(said.contains("KOLMO_FAULT") && said.contains(names), "{fault}: {run:?}");
                assert!(!said.contains(" for ;"), "{said}: an allocation without a name");
                assert!(left(&place).is_empty(), "{fault}: {line} leaves {:?}", place.names());
                failures += 1;
                fine = 0;
            }
            // The event was not reached, or the program recovered.
            0 | 1 => {
                let written: Vec<&str> = ["p.npy", "p.csv", "p.txt", "x.npy", "x.csv", "r.json"]
                    .into_iter()
                    .filter(|name| line.contains(name))
                    .collect();
                let mut left = left(&place);
                left.retain(|name| name != "settings");
                left.sort_by_key(|name| name.starts_with('r'));
                assert_eq!(left, written, "{fault}: {line}");
                fine += 1;
            }
            _ => panic!("{fault}: {run:?}"),
        }
        at = (at as f64 * if measures { 4.0 } else { growth }) as u64 + 1;
    }
    (failures, runs)
}

/// Lets a command's allocations, steps and copies fail, one kind after the other.
fn every_kind(name: &str, line: &str, names: &str, growth: f64) {
    for kind in ["allocation", "launch", "copy"] {
        let (failures, runs) = events(kind, line, names, growth);
        assert!(failures > 0, "{name} has no {kind}");
        println!("{name}, {kind}: {failures} failures in {runs} runs");
    }
}

#[test]
#[ignore = "slow: runs every command again and again"]
fn faults_of_the_cpu() {
    for command in lines("commands") {
        every_kind(command[0], &on_cpu(command[1]), "CPU", 2.0);
    }
}

#[cfg(feature = "wgpu")]
#[test]
#[ignore = "slow: runs every command again and again"]
fn faults_of_a_wgpu_device() {
    let place = Place::new();
    let there = place.kolmo("transient tandem:3 --time 1 --device wgpu:0 --top 1");
    if there.code != 0 {
        return skip("wgpu:0", there.stderr);
    }
    for place in [0, 5, 7] {
        let command = &lines("commands")[place];
        every_kind(command[0], &format!("{} --device wgpu:0", command[1]), "", 6.0);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_tridiagonal_system_is_refused_before_memory_runs_out() {
    let mut refused = 0;
    for kibibytes in (250_000..=800_000).step_by(50_000) {
        let place = Place::new();
        let line = on_cpu("tridiagonal laplace:4000000 -o x.npy");
        let run = shell(&place, &format!("ulimit -v {kibibytes}"), &line, Stdio::piped());
        assert!([0, 2].contains(&run.code), "{kibibytes} KiB: {}\n{}", run.code, run.stderr);
        // A limit can leave so little that any small allocation fails, at any place. Arrays of the
        // system must be refused by a message.
        let failed = run.stderr.split("memory allocation of ").skip(1);
        for bytes in failed.map(|rest| number(rest.split(' ').next().unwrap_or_default())) {
            assert!(run.code == 2 && bytes < 65_536.0, "{kibibytes} KiB: {}", run.stderr);
        }
        refused += usize::from(run.stderr.contains("the solution of 4000000 rows"));
        if refused == 2 {
            return;
        }
    }
    assert!(refused > 0, "no limit was between the system and its solution");
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_does_not_suffice_is_exit_2() {
    let mut refused = 0;
    for case in lines("too little memory") {
        for kibibytes in [100_000, 200_000] {
            let (line, place) = (case[0], Place::new());
            let run = shell(&place, &format!("ulimit -v {kibibytes}"), &on_cpu(line), Stdio::piped());

            assert!([0, 2].contains(&run.code), "{kibibytes} KiB: {run:?}");
            if run.code == 2 {
                let said = run.stderr.contains("error: ") || run.stderr.contains("memory allocation of");
                assert!(said, "{kibibytes} KiB: {line}\n{}", run.stderr);
                assert_eq!(place.names(), Vec::<String>::new(), "{kibibytes} KiB: {line}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 8, "{refused} of 10 runs had too little memory");
}

const MODEL: &str = "ctmc\nmodule m\n x:[0..1] init 0;\n [] x=0 -> 1:(x'=1);\nendmodule\n";

/// Runs every command with few or no additional threads.
///
/// Root has no such limit, so that root runs as a user id without a user.
#[cfg(target_os = "linux")]
#[test]
fn without_threads_every_command_answers() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.path(), all).expect("a folder for all");
    let program = place.path().join("kolmo-here");
    std::fs::copy(binary(), &program).expect("a program that all may run");
    place.put("m.sm", MODEL).put("links.txt", "0 1\n1 2\n2 0\n");
    let as_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let user = if as_root { "setpriv --reuid=61234 --regid=61234 --clear-groups" } else { "" };
    let limits = if as_root { &[1, 2, 3][..] } else { &[1] };
    let start = |limit: u32, line: &str| {
        let command = format!("{user} prlimit --nproc={limit} ./kolmo-here {line}");
        let mut words = command.split_whitespace();
        let mut run = Command::new(words.next().expect("a word"));
        run.args(words).current_dir(place.path()).env("HOME", place.path());
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run.spawn().expect("a command starts")
    };
    let run = |limit: u32, line: &str| {
        Run::of(line, start(limit, line).wait_with_output().expect("a command ends"))
    };
    for case in lines("without threads") {
        for limit in limits {
            run(*limit, case[0]).ends(0, &[]);
        }
    }
    // Lanes that wait for each other need their threads.
    let line = "transient tandem:30 --time 1 --device cpu,cpu";
    run(1, line).ends(2, &["error: no thread can be started for "]);
    // Ctrl-C, when all threads have been started.
    let line = "walk poisson2d:300,0.99999 --component 5 --control none --time-limit 60 --device cpu";
    let child = start(64, line);
    std::thread::sleep(Duration::from_millis(1500));
    let lowered = format!("{user} prlimit --nproc=1 --pid {}", child.id());
    let lowered: Vec<&str> = lowered.split_whitespace().collect();
    let lowered = Command::new(lowered[0]).args(&lowered[1..]).status();
    assert!(lowered.is_ok_and(|lowered| lowered.success()) && signal("-INT", &[child.id()]));
    Run::of(line, child.wait_with_output().expect("a command ends")).ends(130, &[]);
}

#[test]
fn more_threads_than_processors_are_as_many_as_processors() {
    let place = Place::new();
    place.put("m.sm", MODEL);
    for line in ["transient tandem:30 --time 1 --quiet", "check m.sm P=?[F<=1(x=1)]"] {
        for threads in ["100000", "1000", "many", "0", "1"] {
            place.kolmo_with(&on_cpu(line), &[("RAYON_NUM_THREADS", threads)]).ends(0, &[]);
        }
    }
}

#[test]
fn files_beyond_their_limit_are_errors() {
    for (before, line, error) in [
        ("ulimit -f 4", "generate tandem:25 -o m.tra", "error: m.tra: "),
        ("trap '' XFSZ; ulimit -f 0", "manual pages", "error: pages/kolmo"),
        ("trap '' XFSZ; ulimit -f 4", "manual pages", "error: pages/kolmo"),
    ] {
        let place = Place::new();
        let pages = place.path().join("pages");
        std::fs::create_dir(&pages).expect("a folder");

        shell(&place, before, line, Stdio::piped()).ends(2, &[error, "too large"]);
        assert_eq!(place.names(), ["pages"]);
        assert_eq!(std::fs::read_dir(pages).expect("a folder").count(), 0);
    }
}

/// Returns a directory with a file that takes one page of a small file system.
fn with_page() -> Place {
    let place = Place::new();
    place.put("page", "0".repeat(3000));
    place
}

#[test]
#[ignore = "slow: runs every command again and again"]
fn a_disk_that_is_full() {
    for case in lines("outputs") {
        let (line, output) = (on_cpu(case[0]), case[1]);
        let name = output.split(' ').next_back().expect("a name");
        // Limits files to `blocks` blocks of 512 bytes, and ignores the signal.
        for blocks in [0, 4] {
            let place = with_page();
            let before = format!("trap '' XFSZ; ulimit -f {blocks}");
            let run = shell(&place, &before, &format!("{line} {output}"), Stdio::piped());

            let small = blocks > 0 && (output.contains("report") || line.starts_with("walk"));
            if run.code != 2 && small {
                continue;
            }
            let run = run.ends(2, &["too large"]);
            let files = ["the output", name, "a.npz"];
            assert!(files.iter().any(|name| error(&run).contains(name)), "{run:?}");
            assert_eq!(left(&place), ["page"], "{line} {output}");
        }
        // A device that is always full.
        if !output.ends_with("npz") {
            let place = with_page();
            std::os::unix::fs::symlink("/dev/full", place.path().join(name)).expect("a link");
            place.kolmo(&format!("{line} {output}")).ends(2, &["No space left"]);
            let mut names = [name, "page"];
            names.sort_unstable();
            assert_eq!(place.names(), names, "{line}");
        }
    }
}

#[test]
fn a_checkpoint_on_a_full_disk_costs_a_warning_and_nothing_else() {
    let place = Place::new();
    let line = "transient tandem:25 --time 1 --device cpu --checkpoint c --checkpoint-every 0 --top 3";

    let run = shell(&place, "trap '' XFSZ; ulimit -f 0", line, Stdio::piped()).ends(0, &[]);

    assert_eq!(run.stderr.matches("warning: no checkpoint written: c: ").count(), 1, "{}", run.stderr);
    assert_eq!(run.stdout, place.kolmo("transient tandem:25 --time 1 --device cpu --top 3").stdout);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
#[ignore = "slow: measures"]
fn measurements_on_a_full_disk_keep_the_old_file() {
    let place = Place::new();
    measured(&place);
    let stored = || -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(place.path().join("settings")).expect("a folder");
        let path = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").path();
        entries.map(path).map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
    };
    let before = stored();
    assert_eq!(before.len(), 1);

    let line = "tune --device cpu --max-size 7500 --max-lanes 1 --repeat 1 --memory-limit 64MiB --quiet";
    shell(&place, "trap '' XFSZ; ulimit -f 0", line, Stdio::piped())
        .ends(2, &["error: settings/lanes-cpu", "too large"]);

    assert!(stored() == before, "other measurements, or none");
}

#[test]
fn a_stdout_that_is_full() {
    for case in [lines("printing"), lines("printing help")].concat() {
        let (line, place) = (case[0], with_page());
        let full = OpenOptions::new().write(true).open("/dev/full").expect("this system has one");
        shell(&place, ":", &on_cpu(line), full.into()).ends(2, &["stdout: No space left"]);
    }
}

#[test]
fn messages_on_a_full_stderr_change_no_result() {
    for case in lines("exit code without stderr") {
        let (code, line) = (case[0].parse().expect("a code"), case[1]);
        let (heard, unheard) = (Place::new(), Place::new());

        let wanted = heard.kolmo(line).ends(code, &[]);
        let run = shell(&unheard, "exec 2>/dev/full", line, Stdio::piped()).ends(code, &[]);
        assert_eq!(run.stdout, wanted.stdout, "{line}");
        assert_eq!(unheard.names(), heard.names(), "{line}");
    }
}

/// Every format, and a command that reads it; `FILE` stands for the file name.
fn inputs() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let place = Place::new();
    place.put("m.tra", THREE).put("m.drn", THREE_DRN).put("m.mtx", THREE_GENERATOR);
    place.put_all(include_str!("inputs/labels.txt"));
    for line in lines("generated") {
        place.ok(line[0]);
    }
    for name in ["m.tra", "m.drn", "m.mtx"] {
        place.put(&format!("{name}.gz"), gzip(place.get(name)));
    }
    lines("formats").into_iter().map(|line| (line[0], place.get(line[0]), line[1])).collect()
}

#[test]
#[ignore = "slow: runs every command again and again"]
fn files_that_end_too_early() {
    for (name, bytes, line) in inputs() {
        let line = line.replace("FILE", name);
        let whole = Place::new();
        whole.put(name, &bytes).ok(&line);
        let mut refused = 0;
        // The last bytes may carry no data: a line end.
        let last = bytes.len() - 3;
        for end in (0..8).map(|k| k * last / 7) {
            let place = Place::new();
            place.put(name, &bytes[..end]);
            let run = place.kolmo(&line);
            // A number that lost digits is still a number. A state without transitions is
            // absorbing.
            let state =
                bytes[..end].rsplit(|&b| b == b'\n').next().is_some_and(|line| line.starts_with(b"state"));
            // Tables contain no length.
            let table = ["csv", "lab", "srew", "json"].iter().any(|format| name.ends_with(format));
            let whole = state || table || (end == last && !name.contains("npz"));
            assert!(run.code == 2 || whole, "{line} of {end} bytes: {}", run.stderr);
            if run.code == 2 {
                // A file with fewer labels is valid, too.
                let named = run.stderr.contains(name) || run.stderr.contains("no label 'down'");
                assert!(named, "{line} of {end} bytes: {}", run.stderr);
                refused += 1;
            }
            assert_eq!(place.names(), [name]);
        }
        println!("truncated: {name}: {refused} of 8 refused");
    }
}

/// Runs a line that reads a pipe, into which a thread writes.
fn through_pipe(place: &Place, name: &str, line: &str, write: impl FnOnce(File) + Send) -> Run {
    let pipe = place.path().join(name);
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("a command").success());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write(OpenOptions::new().write(true).open(&pipe).expect("a reader opens the pipe"));
            // A reader that opens the pipe again would wait for another writer.
            while !ended.load(Ordering::Relaxed) {
                drop(OpenOptions::new().read(true).write(true).open(&pipe));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let run = place.kolmo(line);
        ended.store(true, Ordering::Relaxed);
        run
    })
}

/// A pipe returns a few bytes at a time, or ends early, like that of a writer that died.
#[test]
#[ignore = "slow: runs every command again and again"]
fn pipes_are_read_like_files() {
    let mut refused = 0;
    for (name, bytes, line) in inputs() {
        let line = line.replace("FILE", name);
        for end in [bytes.len(), bytes.len() / 2] {
            let (file, place) = (Place::new(), Place::new());
            let wanted = file.put(name, &bytes[..end]).kolmo(&line);
            let run = through_pipe(&place, name, &line, |mut pipe| {
                for piece in bytes[..end].chunks(61) {
                    // A reader that needs a seekable file closes the pipe.
                    if pipe.write_all(piece).is_err() {
                        break;
                    }
                    // Slower than the reader, so that each read returns one piece.
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            let seeks = name.ends_with("npz") || name.ends_with("npy");
            let same = (run.code, &run.stdout) == (wanted.code, &wanted.stdout);
            assert!(same || (seeks && run.code == 2), "{run:?}");
            assert!(run.code != 2 || run.stderr.contains(name), "{run:?}");
            assert_eq!(place.names(), [name], "{line}");
            refused += u32::from(run.code == 2 && end < bytes.len());
        }
    }
    println!("pipes that end early: {refused} refused");
    assert!(refused >= 12, "{refused}");
}

/// Reading unmapped memory of a process gives an I/O error, as from a failing device.
#[cfg(target_os = "linux")]
#[test]
fn files_that_cannot_be_read() {
    for (name, _, line) in inputs() {
        let place = Place::new();
        std::os::unix::fs::symlink("/proc/self/mem", place.path().join(name)).expect("a link");

        let run = place.kolmo(&line.replace("FILE", name)).ends(2, &[]);

        assert!(error(&run).contains(name), "{run:?}");
        assert_eq!(place.names(), [name], "{line}");
    }
}
