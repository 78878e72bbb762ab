//! Every fuzz target on its seeds and on a fixed number of mutated inputs.
//!
//! libFuzzer runs the targets in `fuzz/`. Here the stable compiler suffices, and every run is
//! deterministic.
//!
//! `KOLMO_FUZZ=N` executes each target N times in each of the two tests, `KOLMO_FUZZ_TARGET=NAME`
//! runs only one target, and `KOLMO_FUZZ_SEED=S` selects another sequence of inputs.

#[path = "../fuzz/harness.rs"]
mod harness;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Returns the seeds of a target; `None` if the test program runs without the repository.
fn seeds(target: &str) -> Option<Vec<Vec<u8>>> {
    let folders =
        [Path::new("tests/fuzz/seeds"), Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/seeds"))];
    let folder: PathBuf = folders.iter().find(|f| f.is_dir())?.join(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.is_file())
        .collect();
    files.sort();
    let mut all: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).expect("a seed")).collect();
    if target == "checkpoint" {
        all.extend(checkpoints());
    }
    Some(all)
}

/// Checkpoints of a partial and of a completed run, made here because they depend on the version.
fn checkpoints() -> Vec<Vec<u8>> {
    use crate::support::{Keep, cpu, model, problem};
    use kolmo::transient::checkpoint::Checkpoint;
    use kolmo::transient::{Initial, Options, solve_resumable};

    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("c");
    let (machine, chain) = (cpu(), model("tandem:3"));
    let mut all = Vec::new();
    for (looks, times) in [(3, &[1.0, 2.0][..]), (3, &[f64::INFINITY]), (u64::MAX, &[0.5])] {
        let initial = Initial::State(0);
        let problem = problem(&*chain, &initial, times);
        let mut checkpoint = Checkpoint::create(&path).expect("a file").every(std::time::Duration::ZERO);
        let options = Options::default();
        let _ = solve_resumable(&machine, &problem, &options, &mut Keep::after(looks), &mut checkpoint);
        all.push(fs::read(&path).expect("a checkpoint"));
    }
    all
}

/// Replacements for numbers.
const NUMBERS: &str = "0 1 -1 2 3 7 10 255 256 65535 65536 4294967294 4294967295 4294967296 \
                       18446744073709551615 18446744073709551616 -9223372036854775808 \
                       1e308 1e-320 nan inf 0.1";

/// Returns an input mutated from the seeds.
fn mutated(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..1 << random.u32(0..5) {
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(1..=1 + bytes.len() / 8)).min(bytes.len());
        match random.u32(0..11) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u32(0..8),
            1 if at < bytes.len() => {
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b' ', b'\n', b',', b'\x0c'][random.usize(..9)];
            }
            2 => drop(bytes.drain(at..end)),
            3 => {
                let copy = bytes[at..end].to_vec();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, copy);
            }
            4 => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                let to = (from + random.usize(1..=1 + other.len() / 4)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            // Replaces a number in text.
            5..=7 => {
                let digits: Vec<usize> = (0..bytes.len())
                    .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
                    .collect();
                if let Some(&from) = digits.get(random.usize(..=digits.len())) {
                    let len = bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
                    let numbers: Vec<&str> = NUMBERS.split(' ').collect();
                    let number = numbers[random.usize(..numbers.len())];
                    bytes.splice(from..from + len, number.bytes());
                }
            }
            // Duplicates a line, or moves or deletes one.
            8 | 9 => {
                let mut lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
                if !lines.is_empty() {
                    let line = lines[random.usize(..lines.len())].clone();
                    match random.bool() {
                        true => lines.insert(random.usize(..=lines.len()), line),
                        false => drop(lines.remove(random.usize(..lines.len()))),
                    }
                    bytes = lines.concat();
                }
            }
            // Overwrites a number of 32 or 64 bits.
            _ => {
                let value: u64 =
                    [0, 1, 0xff, 0xffff_ffff, 1 << 32, u64::MAX, i64::MAX as u64, random.u64(..)]
                        [random.usize(..8)];
                let len = [4, 8][random.usize(..2)].min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
    }
    bytes.truncate(1 << 16);
    bytes
}

fn run(target: &str, work: fn(&[u8]), bytes: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(bytes))) {
        let said =
            panic.downcast_ref::<String>().map(|s| &s[..]).or_else(|| panic.downcast_ref::<&str>().copied());
        let file = std::env::temp_dir().join(format!("kolmo-fuzz-{target}-{}", std::process::id()));
        fs::write(&file, bytes).expect("a temporary file");
        panic!("{target} fails on {}: {}", file.display(), said.unwrap_or("a panic"));
    }
}

#[test]
fn no_input_breaks_a_target() {
    every_target(200);
}

#[test]
#[ignore = "slow: thousands of inputs"]
fn no_input_of_thousands_breaks_a_target() {
    every_target(2000);
}

/// Runs all targets `executions` times, unless the environment sets other values.
fn every_target(executions: u64) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let executions = number("KOLMO_FUZZ").unwrap_or(executions);
    let seed = number("KOLMO_FUZZ_SEED").unwrap_or(0);
    let only = std::env::var("KOLMO_FUZZ_TARGET").ok();
    let wanted: Vec<_> =
        harness::TARGETS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)).collect();
    assert!(!wanted.is_empty(), "no target {only:?}");
    let lines = crate::adversarial::on_all_cores(&wanted, |(name, work)| {
        let Some(seeds) = seeds(name) else {
            crate::devices::skip("seeds", format!("no seeds of {name} here"));
            return None;
        };
        assert!(!seeds.is_empty(), "{name} has seeds");
        let began = std::time::Instant::now();
        seeds.iter().for_each(|bytes| run(name, *work, bytes));
        let hash = twox_hash::XxHash3_128::oneshot(name.as_bytes()) as u64;
        let mut random = fastrand::Rng::with_seed(seed ^ hash);
        for _ in 0..executions {
            run(name, *work, &mutated(&seeds, &mut random));
        }
        let seconds = began.elapsed().as_secs_f64();
        Some(format!("{name}: {} seeds, {executions} inputs, {seconds:.1} s", seeds.len()))
    });
    lines.iter().for_each(|line| println!("{line}"));
}
