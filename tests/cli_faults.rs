//! Devices, files and disks that fail at a chosen moment, under every command: exit 2, a message that names what
//! failed, no panic, and nothing left in the directory that is not whole.
//!
//! Devices fail on request in builds with debug assertions (`src/lane/fault.rs`).
#![cfg(all(unix, feature = "cli", debug_assertions))]

#[path = "support/command.rs"]
mod command;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::{Command, Stdio};

use command::{Place, Run, THREE, THREE_DRN, THREE_GENERATOR, binary, gzip, three_umb};

/// Every command that computes on lanes, with the files that it writes.
const COMMANDS: [(&str, &str); 15] = [
    ("transient", "transient tandem:8 --time 1,2 -o p.npy --report r.json"),
    (
        "transient, checkpoint",
        "transient tandem:8 --time 1 -o p.csv --checkpoint c --checkpoint-every 0 --resume",
    ),
    ("transient, steady state", "transient tandem:6 --time inf -o p.txt --report r.json"),
    ("transient, intervals", "transient tandem:8 --time 1 --method subdivided -o p.npy --report r.json"),
    ("transient, two lanes", "transient wlan:2,2 --time 1 --device cpu,cpu -o p.npy --report r.json"),
    ("walk", "walk poisson2d:6,0.8 --component 0-3 --chains 4096 -o x.csv --report r.json"),
    ("walk, lazy", "walk poisson2d:6,0.8 --component 2 --chains 4096 --lazy -o x.csv --report r.json"),
    ("tridiagonal", "tridiagonal random:3000 -o x.npy --report r.json"),
    ("tridiagonal, blocks", "tridiagonal random:3000 --block 10 --lanes 2 -o x.csv --report r.json"),
    ("tune", "tune --max-size 7500 --max-lanes 2 --repeat 1 --report r.json"),
    ("bench spmv", "bench spmv tandem:8 --repeat 1 --report r.json"),
    ("bench transient", "bench transient tandem:8 --time 1 --repeat 1 --report r.json"),
    ("bench walk", "bench walk poisson2d:6,0.8 --repeat 1 --report r.json"),
    ("bench tridiagonal", "bench tridiagonal random:3000 --repeat 1 --report r.json"),
    ("bench transfer", "bench transfer --size 64KiB --repeat 1 --report r.json"),
];

/// The line on the CPU, unless it names devices.
fn on(line: &str, device: &str) -> String {
    if line.contains("--device") { line.to_owned() } else { format!("{line} --device {device}") }
}

/// What lies in the directory but for complete checkpoints and an empty folder of settings.
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

/// Lets the K-th event fail for growing K until nothing fails any more, for what measures for seconds a few times.
/// Returns failures, and runs.
fn events(kind: &str, line: &str, names: &str, growth: f64) -> (u32, u32) {
    let (mut at, mut failures, mut runs, mut fine) = (1u64, 0, 0, 0);
    let measures = line.starts_with("bench") || line.starts_with("tune");
    let most = if measures { 3 } else { 40 };
    while fine < 2 && runs < most {
        let place = Place::new();
        let fault = format!("{kind}:{at}");
        let run = place.kolmo_with(line, &[("KOLMO_FAULT", &fault), ("KOLMO_CONFIG_DIR", "settings")]);
        runs += 1;
        match run.code {
            2 => {
                let said = run.stderr.lines().rfind(|l| l.starts_with("error: ")).unwrap_or_default();
                assert!(
                    said.contains("KOLMO_FAULT") && said.contains(names),
                    "{fault}: {line}\n{}",
                    run.stderr
                );
                assert!(left(&place).is_empty(), "{fault}: {line} leaves {:?}", place.names());
                failures += 1;
                fine = 0;
            }
            // Not reached, or made good.
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
            code => panic!("{fault}: {line} ends with {code}\n{}", run.stderr),
        }
        at = (at as f64 * if measures { 4.0 } else { growth }) as u64 + 1;
    }
    (failures, runs)
}

fn every_command(kind: &str) {
    for (name, line) in COMMANDS {
        let (failures, runs) = events(kind, &on(line, "cpu"), "CPU", 2.0);
        assert!(failures > 0, "{name} has no {kind}");
        println!("{kind}: {name}: {failures} failures in {runs} runs");
    }
}

#[test]
fn an_allocation_that_fails() {
    every_command("allocation");
}

#[test]
fn a_device_lost_in_a_step() {
    every_command("launch");
}

#[test]
fn a_device_lost_in_a_copy() {
    every_command("copy");
}

#[cfg(feature = "wgpu")]
#[test]
fn the_same_on_a_wgpu_device() {
    let place = Place::new();
    let there = place.kolmo("transient tandem:3 --time 1 --device wgpu:0 --top 1");
    if there.code != 0 {
        let required = std::env::var("KOLMO_REQUIRE_DEVICES").unwrap_or_default();
        assert!(!required.contains("wgpu:0"), "wgpu:0 is required: {}", there.stderr);
        println!("skipped: {}", there.stderr);
        return;
    }
    for place in [0, 5, 7] {
        let (name, line) = COMMANDS[place];
        for kind in ["allocation", "launch", "copy"] {
            let (failures, runs) = events(kind, &on(line, "wgpu:0"), "", 6.0);
            assert!(failures > 0, "{name} has no {kind}");
            println!("wgpu, {kind}: {name}: {failures} failures in {runs} runs");
        }
    }
}

/// Runs `kolmo` from a shell that says `before` first.
fn shell(place: &Place, before: &str, line: &str, stdout: Stdio) -> Run {
    let output = Command::new("sh")
        .args(["-c", &format!("{before}; exec \"$0\" {line}")])
        .arg(binary())
        .env("KOLMO_CONFIG_DIR", "settings")
        .current_dir(place.path())
        .stdin(Stdio::null())
        .stdout(stdout)
        .output()
        .expect("a shell starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let run = Run {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(!run.stderr.contains("panicked"), "kolmo {line}\n{}", run.stderr);
    run
}

/// Lines with one output each, so that each is the one that fails.
const OUTPUTS: [(&str, &str); 17] = [
    ("transient tandem:25 --time 1", "-o p.npy"),
    ("transient tandem:25 --time 1", "-o p.csv"),
    ("transient tandem:25 --time 1", "-o p.txt"),
    ("transient tandem:25 --time 1 --top 900", "-o p.csv"),
    ("transient tandem:25 --time 1 --top 1", "--report r.json"),
    ("walk poisson2d:6,0.8 --component 0-35 --chains 4096", "-o x.csv"),
    ("walk poisson2d:6,0.8 --component 0 --chains 4096", "--report r.json"),
    ("tridiagonal random:3000", "-o x.npy"),
    ("tridiagonal random:3000", "-o x.csv"),
    ("tridiagonal random:3000", "-o x.txt"),
    ("tridiagonal random:3000", "--report r.json"),
    ("bench transfer --size 64KiB --repeat 1", "--report r.json"),
    ("generate tandem:25", "-o m.tra"),
    ("generate tandem:25", "-o m.mtx"),
    ("generate tandem:25", "-o m.npz"),
    ("generate random:3000", "-o m.csv"),
    ("generate poisson2d:20,0.9", "-o a.mtx"),
];

#[test]
fn a_disk_that_is_full() {
    for (line, output) in OUTPUTS {
        let device = if line.starts_with("generate") { "" } else { "--device cpu" };
        // Files can have that many blocks of 512 bytes; a signal that would say so is not wanted.
        for blocks in [0, 4] {
            let place = Place::new();
            let before = format!("trap '' XFSZ; ulimit -f {blocks}");
            let run = shell(&place, &before, &format!("{line} {device} {output}"), Stdio::piped());

            let small = blocks > 0 && (output.contains("report") || line.starts_with("walk"));
            if run.code != 2 && small {
                continue;
            }
            let name = output.split(' ').next_back().expect("a name");
            assert_eq!(run.code, 2, "{blocks}: {line} {output}\n{}", run.stderr);
            let said = run.stderr.lines().rfind(|l| l.starts_with("error: ")).unwrap_or_default();
            assert!(said.contains(name) || said.contains("the output"), "{line} {output}: {}", run.stderr);
            assert!(said.contains("too large"), "{line} {output}: {}", run.stderr);
            assert!(left(&place).is_empty(), "{line} {output} leaves {:?}", place.names());
        }
        // The device that is always full.
        if output.starts_with("-o") && !output.ends_with("npz") || output.starts_with("--report") {
            let place = Place::new();
            let (option, name) = output.split_once(' ').expect("an option and a name");
            let extension = name.split_once('.').expect("an extension").1;
            std::os::unix::fs::symlink("/dev/full", place.path().join(name)).expect("a link");
            let run = place.kolmo(&format!("{line} {device} {option} {name}"));
            assert_eq!(run.code, 2, "{line} {output}\n{}", run.stderr);
            assert!(run.stderr.contains("No space left"), "{extension}: {line}: {}", run.stderr);
            assert_eq!(place.names(), [name], "{line}");
        }
    }
}

#[test]
fn a_checkpoint_on_a_full_disk_costs_a_warning_and_nothing_else() {
    let place = Place::new();
    let line = "transient tandem:25 --time 1 --device cpu --checkpoint c --checkpoint-every 0 --top 3";

    let run = shell(&place, "trap '' XFSZ; ulimit -f 0", line, Stdio::piped());

    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stderr.matches("warning: no checkpoint written: c: ").count(), 1, "{}", run.stderr);
    assert_eq!(run.stdout, place.kolmo("transient tandem:25 --time 1 --device cpu --top 3").stdout);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn a_stdout_that_is_full() {
    let lines = [
        "transient tandem:25 --time 1 --device cpu",
        "transient tandem:25 --time 1 --device cpu --top 3",
        "walk poisson2d:6,0.8 --component 0 --chains 4096 --device cpu",
        "tridiagonal random:3000 --device cpu",
        "bench transfer --size 64KiB --repeat 1 --device cpu",
        "devices",
        "devices --format json",
    ];
    for line in lines {
        let place = Place::new();
        let full = OpenOptions::new().write(true).open("/dev/full").expect("this system has one");
        let run = shell(&place, ":", line, full.into());
        assert_eq!(run.code, 2, "{line}\n{}", run.stderr);
        assert!(run.stderr.contains("stdout: No space left"), "{line}\n{}", run.stderr);
    }
}

/// Every format, and a command that reads it, with `FILE` where its name goes.
fn inputs() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let place = Place::new();
    for line in [
        "tandem:5 -o m.npz",
        "random:40 -o s.npz",
        "random:40 -o s.csv",
        "poisson2d:5,0.8 -o a.mtx --rhs b.npy",
    ] {
        assert_eq!(place.kolmo(&format!("generate {line}")).code, 0, "{line}");
    }
    let transient = "transient FILE --time 1 --device cpu";
    let tridiagonal = "tridiagonal FILE --device cpu";
    vec![
        ("m.tra", THREE.into(), transient),
        ("m.tra.gz", gzip(THREE), transient),
        ("m.drn", THREE_DRN.into(), transient),
        ("m.mtx", THREE_GENERATOR.into(), transient),
        ("m.umb", three_umb(), transient),
        ("m.npz", place.get("m.npz"), transient),
        ("s.npz", place.get("s.npz"), tridiagonal),
        ("s.csv", place.get("s.csv"), tridiagonal),
        ("a.mtx", place.get("a.mtx"), "walk FILE --component 3 --chains 4096 --device cpu"),
        (
            "b.npy",
            place.get("b.npy"),
            "walk poisson2d:5,0.8 -b FILE --component 3 --chains 4096 --device cpu",
        ),
    ]
}

#[test]
fn files_that_end_too_early() {
    for (name, bytes, line) in inputs() {
        let line = line.replace("FILE", name);
        let whole = Place::new();
        whole.put(name, &bytes);
        assert_eq!(whole.kolmo(&line).code, 0, "{line}");
        let mut refused = 0;
        // The last bytes of some formats say nothing: a line's end, a tar's zeros.
        let last = if name.ends_with("umb") { bytes.len() - 1024 } else { bytes.len() - 3 };
        for end in (0..8).map(|k| k * last / 7) {
            let place = Place::new();
            place.put(name, &bytes[..end]);
            let run = place.kolmo(&line);
            // A number that lost digits is a number, and a state without transitions one that is never left.
            let state =
                bytes[..end].rsplit(|&b| b == b'\n').next().is_some_and(|line| line.starts_with(b"state"));
            // A table tells no length.
            let whole = state || name.ends_with("csv") || (end == last && !name.contains("npz"));
            assert!(run.code == 2 || whole, "{line} of {end} bytes: {}", run.stderr);
            if run.code == 2 {
                assert!(run.stderr.contains(name), "{line} of {end} bytes: {}", run.stderr);
                refused += 1;
            }
            assert_eq!(place.names(), [name]);
        }
        println!("truncated: {name}: {refused} of 8 refused");
    }
}

#[test]
fn reads_that_return_a_few_bytes_at_a_time() {
    for (name, bytes, line) in inputs() {
        let line = line.replace("FILE", name);
        let whole = Place::new();
        whole.put(name, &bytes);
        let wanted = whole.kolmo(&line);
        let place = Place::new();
        let pipe = place.path().join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("a command").success());
        let run = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pipe = OpenOptions::new().write(true).open(&pipe).expect("a reader opens the pipe");
                for piece in bytes.chunks(61) {
                    // A reader that needs a file that can be sought goes away.
                    if pipe.write_all(piece).is_err() {
                        break;
                    }
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            place.kolmo(&line)
        });
        if name.ends_with("npz") || name.ends_with("npy") {
            assert!(run.code == 2 || run.stdout == wanted.stdout, "{line}\n{}", run.stderr);
            assert!(run.code != 2 || run.stderr.contains(name), "{line}\n{}", run.stderr);
        } else {
            assert_eq!((run.code, &run.stdout), (wanted.code, &wanted.stdout), "{line}\n{}", run.stderr);
        }
    }
}
